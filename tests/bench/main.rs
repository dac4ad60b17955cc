//! The benchmark: what Letterbox does in a second and what that costs, beside what its parts can do
//! alone, all of it measured in one run by one load generator.
//!
//! A machine's speed drifts, so everything is measured in turns, several times over: figures are
//! medians, ratios are taken within a round. Run it with `deploy/bench`.

mod arguments;
mod bare;
mod bench;
mod client;
mod cpu;
mod drain;
mod fairness;
mod figures;
mod form_requests;
mod forms;
mod growth;
mod intake;
mod jobs;
mod limits;
mod links;
mod load;
mod publishing;
mod refusals;
mod requests;
mod summary;
mod table;
mod targets;

use arguments::{Arguments, Section};
use bench::Bench;
use clap::Parser;
use figures::Round;
use form_requests::Tokens;
use summary::Summary;
use targets::Judged;

#[tokio::main]
async fn main() {
    let arguments = Arguments::parse();
    if let Some(status) = arguments.serve {
        return bare::serve(status).await;
    }
    if arguments.check {
        return;
    }
    let result = measure(&arguments).await;
    result.print(&arguments);
}

/// What was measured so far.
#[derive(Default)]
struct Measured {
    rounds: Vec<Round>,
    once: Round,
}

impl Measured {
    fn print(&self, arguments: &Arguments) {
        let (summary, targets) = self.judged(arguments);
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let (rounds, seconds) = (arguments.rounds, arguments.seconds);
        println!("{rounds} rounds of {seconds} s a measurement, on {cores} cores");
        table::print(&summary, &targets, arguments.against.as_ref());
    }

    fn judged(&self, arguments: &Arguments) -> (Summary, Vec<Judged>) {
        let former = arguments.against.as_ref();
        let targets = targets::judge(&self.rounds, &self.once, former);
        (Summary::of(&self.rounds, &self.once), targets)
    }

    fn write(&self, arguments: &Arguments) {
        let (summary, targets) = self.judged(arguments);
        let json = summary.json(self.rounds.len(), arguments.seconds, &targets);
        let written = std::fs::write(&arguments.file, format!("{json:#}\n"));
        written.expect("the result can be written");
    }
}

/// Measures every round, and then what is measured once. What is there is written after each step,
/// so that a failure later on does not take it away.
async fn measure(arguments: &Arguments) -> Measured {
    let bench = Bench::new(arguments).await;
    let tokens = links::create(&bench).await;
    let mut measured = Measured::default();
    for number in 1..=arguments.rounds {
        bench.start_over().await;
        let mut round = Round::default();
        for section in arguments.wanted(&Section::IN_ROUNDS) {
            eprintln!("round {number} of {}: {}", arguments.rounds, section.name());
            run(&bench, section, &tokens, arguments, &mut round).await;
        }
        measured.rounds.push(round);
        measured.write(arguments);
    }
    for section in arguments.wanted(&Section::ONCE) {
        eprintln!("once: {}", section.name());
        run(&bench, section, &tokens, arguments, &mut measured.once).await;
        measured.write(arguments);
    }
    measured
}

async fn run(
    bench: &Bench,
    section: Section,
    tokens: &Tokens,
    arguments: &Arguments,
    round: &mut Round,
) {
    match section {
        Section::Limits => limits::run(bench, round).await,
        Section::Intake => intake::run(bench, round).await,
        Section::Forms => forms::run(bench, tokens, round).await,
        Section::Refusals => refusals::run(bench, tokens, round).await,
        Section::Drain => drain::run(bench, round).await,
        Section::Growth => growth::run(bench, arguments.remembered, round).await,
        Section::Fairness => fairness::run(bench, round).await,
    }
}
