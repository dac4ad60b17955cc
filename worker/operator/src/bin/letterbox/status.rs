//! `letterbox status`

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use letterbox_common::states::AccountWait;
use letterbox_operator::{Deaf, Status};
use serde_json::json;

use crate::{
    Output, Result, output,
    settings::{CliSettings, broker},
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

pub(crate) async fn run(settings: &CliSettings, command: &StatusCommand) -> Result<Output> {
    let operator = settings.operator().await?;
    let broker = broker()?;
    loop {
        let status = operator.status(broker.as_ref()).await?;
        if !command.watch {
            let code = if status.is_late { output::LOOK } else { 0 };
            return Ok(Output::status(text(&status), &status, code));
        }
        let is_read = if settings.json {
            output::line(&json!(&status))
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
    let parts = status.parts.iter().map(|part| {
        let word = if part.is_ready { "ready" } else { "NOT READY" };
        let detail = part.detail.replace('\n', " ");
        format!("{:<10} {word:<10} {detail}", part.part)
    });
    let waiting = status.backlog.iter().map(|kind| {
        let late = kind.late_because.map(|why| format!("  LATE: {why}"));
        let oldest = kind.oldest_seconds.map_or_else(|| "-".to_owned(), age);
        let late = late.unwrap_or_default();
        format!("{:<28} {:>9} {oldest:>10}{late}", kind.kind, kind.count)
    });
    let head = format!("{:<28} {:>9} {:>10}", "waiting", "count", "oldest");
    let mut lines: Vec<_> = parts.chain([String::new(), head]).chain(waiting).collect();
    lines.push(String::new());
    let runs = runs(status).into_iter();
    lines.extend(runs.map(|(about, text)| format!("{about:<20}{text}")));
    lines.join("\n")
}

/// What runs, and what waits for somebody to do something: what a line is about, and the line.
fn runs(status: &Status) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("runs under way", counts(&status.runs)),
        ("ended in an hour", counts(&status.ended_last_hour)),
    ];
    if status.keeps_all {
        let kept = "what people have sent: no worker deletes anything";
        lines.push(("kept forever", kept.to_owned()));
    }
    lines.extend(status.retrying.iter().map(|one| {
        let runs = one.runs;
        let account = word(&one.account);
        let workspace = word(&one.workspace_name);
        let error = word(&one.error);
        let next = to_second(one.next_at);
        let told = format!("{runs}, account '{account}' of {workspace}: {error}; next {next}");
        ("retrying", told)
    }));
    lines.extend(status.unconnected.iter().map(|one| {
        let runs = one.runs;
        let account = word(&one.account);
        let workspace = word(&one.workspace_name);
        let error = one.error.as_deref().map(word);
        let error = error.map(|error| format!(" ({error})")).unwrap_or_default();
        let whom = match one.waits_for {
            Some(AccountWait::Token) => "a token",
            Some(AccountWait::Owner) | None => "its owner",
        };
        let told = format!("{runs}, account '{account}' of {workspace} waits for {whom}{error}");
        ("unconnected", told)
    }));
    lines.extend(status.behind.iter().map(|one| {
        let signals = one.signals;
        let oldest = age(one.seconds);
        let target = match (&one.queue, &one.url) {
            (Some(queue), _) => format!("queue {}", word(queue)),
            (None, url) => word(url.as_deref().unwrap_or_default()),
        };
        let workspace = word(&one.workspace_name);
        let why = [&one.failure, &one.received].into_iter().flatten();
        let why: String = why.map(|why| format!(": {}", word(why))).collect();
        let told = format!("{signals} signals, the oldest {oldest}, {target} of {workspace}");
        ("behind", told + &why)
    }));
    let deaf = status.deaf.iter().map(loses_events);
    lines.extend(deaf.map(|told| ("loses events", told)));
    lines.extend(status.held.iter().map(|one| {
        let id = one.workspace_id.map(|id| format!(" ({id})"));
        let id = id.unwrap_or_default();
        ("held", format!("{}{id} since {}", one.name, one.held_at))
    }));
    lines
}

fn loses_events(one: &Deaf) -> String {
    let (name, workspace) = (word(&one.name), word(&one.workspace_name));
    let detail = one.detail.as_deref().map(word);
    let detail = detail.map(|detail| format!(" ({detail})"));
    let (detail, at) = (detail.unwrap_or_default(), to_second(one.refused_at));
    format!(
        "webhook '{name}' of {workspace}: {}{detail}, last {at}",
        one.reason
    )
}

fn counts(by_state: &BTreeMap<String, i64>) -> String {
    let counts = by_state.iter();
    let counts = counts.map(|(state, count)| format!("{state} {count}"));
    match counts.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "none".to_owned(),
        counts => counts,
    }
}
