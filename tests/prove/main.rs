//! The evidence: what was accepted while everything around it broke, and what became of it.
//!
//! Each fault happens under load at every door. Afterwards all that was sent is compared with all
//! that came out, in the words of RabbitMQ's own suite: a line for each door. A fault that did not
//! fire shows nothing, and fails. `deploy/prove` starts this.

mod arguments;
mod clock;
mod cluster;
mod disk;
mod doors;
mod faults;
mod ledger;
mod load;
mod member;
mod network;
mod servers;
mod soak;
mod stack;
mod steps;
mod tokens;
mod trial;
mod way;

use std::{process::ExitCode, time::Instant};

use arguments::Arguments;
use clap::Parser;
use faults::Fault;
use ledger::Ledger;
use servers::Servers;
use stack::Stack;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let faults = match arguments.is_cluster {
        true => cluster::FAULTS,
        false => faults::ALL,
    };
    let faults = faults.iter().filter(|fault| arguments.takes(fault));
    let faults: Vec<&Fault> = faults.collect();
    let steps = steps::names().filter(|_| arguments.takes_steps());
    let names: Vec<_> = faults.iter().map(|fault| fault.name).chain(steps).collect();
    if let Some(word) = arguments.unknown_word(&names) {
        eprintln!("nothing that is shown with these options has '{word}' in its name");
        return ExitCode::FAILURE;
    }
    if arguments.check {
        arguments
            .debian
            .iter()
            .for_each(|suite| println!("{suite}"));
        return ExitCode::SUCCESS;
    }
    fastrand::seed(arguments.seed);
    let began = Instant::now();
    let servers = match arguments.is_cluster {
        true => Servers::cluster(arguments.disk()).await,
        false => Servers::alone(arguments.disk()),
    };
    let stack = Stack::start(servers).await;
    println!("{}", stack.versions().await);
    println!("seed {}\n", arguments.seed);
    let mut ledger = Ledger::default();
    ledger.print_head();
    let is_level = match arguments.soak {
        Some(minutes) => soak::run(&stack, &mut ledger, &arguments, minutes).await,
        None => {
            for_each_fault(&stack, &mut ledger, &arguments, &faults).await;
            true
        }
    };
    if arguments.takes_steps() {
        steps::print(&stack, &mut ledger, &arguments).await;
    }
    let is_counted = ledger.count_again(&stack).await;
    let is_whole = ledger.print_sum() && is_counted && is_level;
    println!("\n{} s", began.elapsed().as_secs());
    match is_whole {
        true => println!("Everything looks good!"),
        false => println!("Something is lost, done twice, or was not shown: see the lines with !"),
    }
    ExitCode::from(u8::from(!is_whole))
}

/// Each fault that is asked for, as often as it is asked for.
async fn for_each_fault(
    stack: &Stack,
    ledger: &mut Ledger,
    arguments: &Arguments,
    faults: &[&Fault],
) {
    for fault in faults.iter().filter(|fault| arguments.wants(fault.name)) {
        for _ in 0..arguments.rounds() {
            ledger.note(trial::of_fault(stack, fault, arguments.is_short).await);
        }
    }
}
