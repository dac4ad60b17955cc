//! `letterbox status`

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use letterbox_operator::{Operator, Status};

use crate::{
    Failure, Output, output,
    settings::broker,
    story::word,
    times::{age, to_second},
};

/// Pause between two refreshes.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Args)]
pub(crate) struct StatusCommand {
    /// Refresh until interrupted
    #[arg(long)]
    watch: bool,
}

pub(crate) async fn run(
    operator: &Operator,
    command: &StatusCommand,
    json: bool,
) -> Result<Output, Failure> {
    let broker = broker()?;
    loop {
        let status = operator.status(broker.as_ref()).await?;
        if !command.watch {
            let code = if status.is_late { output::LOOK } else { 0 };
            return Ok(Output::Status {
                text: text(&status),
                value: output::value(&status),
                code,
            });
        }
        let is_read = if json {
            output::line(&output::value(&status))
        } else {
            output::screen(&text(&status))
        };
        if !is_read {
            return Ok(Output::Nothing);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// One screen.
fn text(status: &Status) -> String {
    let mut lines = Vec::new();
    for part in &status.parts {
        let word = if part.is_ready { "ready" } else { "NOT READY" };
        let detail = part.detail.replace('\n', " ");
        lines.push(format!("{:<10} {word:<10} {detail}", part.part));
    }
    lines.push(String::new());
    lines.push(format!("{:<28} {:>9} {:>10}", "waiting", "count", "oldest"));
    for kind in &status.backlog {
        let late = kind.late_because.map(|why| format!("  LATE: {why}"));
        let late = late.unwrap_or_default();
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
    if status.keeps_all {
        lines.push(
            "kept forever        what people have sent: no worker deletes anything".to_owned(),
        );
    }
    for retrying in &status.retrying {
        let (runs, next) = (retrying.runs, to_second(retrying.next_at));
        let account = word(&retrying.account);
        let (workspace, error) = (word(&retrying.workspace_name), word(&retrying.error));
        lines.push(format!(
            "retrying            {runs}, account '{account}' of {workspace}: {error}; next {next}"
        ));
    }
    for waiting in &status.unconnected {
        let (workspace, account) = (word(&waiting.workspace_name), word(&waiting.account));
        let error = waiting
            .error
            .as_deref()
            .map(|error| format!(" ({})", word(error)));
        lines.push(format!(
            "unconnected         {}, account '{account}' of {workspace} waits for its owner{}",
            waiting.runs,
            error.unwrap_or_default()
        ));
    }
    for behind in &status.behind {
        let (queue, workspace) = (word(&behind.queue), word(&behind.workspace_name));
        let (signals, oldest) = (behind.signals, age(behind.seconds));
        let failure = behind
            .failure
            .as_deref()
            .map(|why| format!(": {}", word(why)));
        lines.push(format!(
            "behind              {signals} signals, the oldest {oldest}, queue {queue} of \
             {workspace}{}",
            failure.unwrap_or_default()
        ));
    }
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
