//! `letterbox status`

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use letterbox_broker::{AMQP_URL, BrokerTarget};
use letterbox_operator::{Operator, Status};

use crate::{Failure, Output, output};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Args)]
pub(crate) struct StatusCommand {
    /// Look again and again, until interrupted
    #[arg(long)]
    watch: bool,
}

pub(crate) async fn run(
    operator: &Operator,
    command: &StatusCommand,
    json: bool,
) -> Result<Output, Failure> {
    let broker = match AMQP_URL.read()? {
        Some(_) => Some(BrokerTarget::from_environment()?),
        None => None,
    };
    loop {
        let status = operator.status(broker.as_ref()).await?;
        if !command.watch {
            let is_late = status.is_late;
            return Ok(Output::Status {
                text: text(&status),
                value: output::value(&status),
                is_late,
            });
        }
        match json {
            true => output::line(&output::value(&status)),
            false => output::screen(&text(&status)),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// One screen.
fn text(status: &Status) -> String {
    let mut lines = Vec::new();
    for part in &status.parts {
        let word = if part.is_ready { "ready" } else { "NOT READY" };
        lines.push(format!("{:<10} {word:<10} {}", part.part, part.detail));
    }
    lines.push(String::new());
    lines.push(format!("{:<28} {:>9} {:>10}", "waiting", "count", "oldest"));
    for kind in &status.backlog {
        let late = if kind.is_late { "  LATE" } else { "" };
        let oldest = kind.oldest_seconds.map_or_else(|| "-".to_owned(), age);
        let line = format!("{:<28} {:>9} {oldest:>10}{late}", kind.kind, kind.count);
        lines.push(line);
    }
    lines.push(String::new());
    lines.push(format!("runs under way      {}", counts(&status.runs)));
    lines.push(format!(
        "ended in an hour    {}",
        counts(&status.ended_last_hour)
    ));
    for held in &status.held {
        let id = held
            .workspace_id
            .map(|id| format!(" ({id})"))
            .unwrap_or_default();
        lines.push(format!(
            "held                {}{id} since {}",
            held.name, held.held_at
        ));
    }
    lines.join("\n")
}

fn counts(by_state: &BTreeMap<String, i64>) -> String {
    let counts = by_state
        .iter()
        .map(|(state, count)| format!("{state} {count}"));
    match counts.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "none".to_owned(),
        counts => counts,
    }
}

/// A time in its largest two units.
fn age(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_short() {
        for (seconds, shown) in [
            (0.4, "0 s"),
            (61.0, "1 min 1 s"),
            (7_260.0, "2 h 1 min"),
            (90_000.0, "1 d 1 h"),
            (-3.0, "0 s"),
        ] {
            assert_eq!(age(seconds), shown);
        }
    }
}
