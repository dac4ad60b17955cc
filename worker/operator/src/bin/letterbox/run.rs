//! `letterbox run …`

use clap::{Args, Subcommand};
use jiff::Timestamp;
use letterbox_common::{
    ids::{RunId, WorkflowId, WorkspaceId},
    sealing::{SealedColumn, key_ring},
    states::RunState,
};
use letterbox_operator::{Operator, RunFilter, RunRow};
use serde_json::json;

use crate::{Failure, Output};

const COLUMNS: [&str; 6] = [
    "run_id",
    "received_at",
    "workflow_id",
    "state",
    "refused_reason",
    "failure",
];
/// Runs that one statement cancels or retries.
const PIECE: u32 = 500;

#[derive(Subcommand)]
pub(crate) enum RunCommand {
    /// List the newest runs of a workspace
    List {
        #[command(flatten)]
        which: Which,
        /// Only those before this run, the last one of the page before
        #[arg(long, value_name = "RUN_ID")]
        before: Option<RunId>,
        /// Most runs to list
        #[arg(long, default_value_t = 100, value_parser =
            clap::value_parser!(u32).range(1..=1_000_000))]
        limit: u32,
    },
    /// Show one run with its input, which a stranger wrote, and what accounts have answered, where
    /// it is kept and LETTERBOX_ACCOUNT_KEYS opens it
    Show { run_id: RunId },
    /// Cancel a run, or all that a filter lets through: what was sent stays sent
    Cancel {
        #[command(flatten)]
        subjects: Subjects,
    },
    /// Let a run go on at the action that failed or was denied, or all that a filter lets through
    Retry {
        #[command(flatten)]
        subjects: Subjects,
        /// How many of them in each second [default: all at once]
        #[arg(long, value_name = "PER_SECOND")]
        rate: Option<u32>,
    },
    /// Forget what was submitted to a run that is over, and what it has sent
    Erase { run_id: RunId },
}

/// Which runs of a workspace.
#[derive(Args)]
pub(crate) struct Which {
    #[arg(long, value_name = "WORKSPACE_ID")]
    workspace: WorkspaceId,
    #[command(flatten)]
    narrowed: Narrowed,
}

/// What makes of all runs of a workspace some of them.
#[derive(Args)]
pub(crate) struct Narrowed {
    /// Only those of one workflow
    #[arg(long, value_name = "WORKFLOW_ID")]
    workflow: Option<WorkflowId>,
    /// Only those in this state; may be given several times
    #[arg(long)]
    state: Vec<RunState>,
    /// Only those received since a time, such as 2026-01-31T08:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<Timestamp>,
    /// Only those received before a time
    #[arg(long, value_name = "TIME")]
    until: Option<Timestamp>,
    /// Only those whose failure contains this text
    #[arg(long, value_name = "TEXT")]
    failure: Option<String>,
}

impl Narrowed {
    fn filter(self, workspace: WorkspaceId) -> RunFilter {
        RunFilter {
            workspace,
            workflow: self.workflow,
            states: self.state,
            since: self.since,
            until: self.until,
            failure: self.failure,
        }
    }
}

/// One run, or a filter.
#[derive(Args)]
pub(crate) struct Subjects {
    /// One run
    #[arg(conflicts_with_all = ["workspace", "workflow", "state", "since", "until", "failure"],
          required_unless_present = "workspace")]
    run_id: Option<RunId>,
    /// All runs of a workspace that the other options let through
    #[arg(long, value_name = "WORKSPACE_ID")]
    workspace: Option<WorkspaceId>,
    #[command(flatten)]
    narrowed: Narrowed,
    /// Do it: without this, a filter only shows what it would be done to
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(operator: &Operator, verb: RunCommand) -> Result<Output, Failure> {
    Ok(match verb {
        RunCommand::List {
            which,
            before,
            limit,
        } => {
            let filter = which.narrowed.filter(which.workspace);
            Output::many(&operator.runs(&filter, before, limit).await?, &COLUMNS)
        }
        RunCommand::Erase { run_id } => Output::one(&operator.erase_run(run_id).await?),
        RunCommand::Show { run_id } => Output::one(&match key_ring(SealedColumn::ActionAnswer) {
            Ok(keys) => operator.run_with_answers(run_id, &keys).await?,
            Err(_) => operator.run(run_id).await?,
        }),
        RunCommand::Cancel { subjects } => cancel(operator, subjects).await?,
        RunCommand::Retry { subjects, rate } => retry(operator, subjects, rate).await?,
    })
}

async fn cancel(operator: &Operator, subjects: Subjects) -> Result<Output, Failure> {
    if let Some(run_id) = subjects.run_id {
        let outcome = operator.cancel_run(run_id).await?;
        return Ok(Output::one(
            &json!({ "run_id": run_id, "outcome": outcome }),
        ));
    }
    let open = [
        RunState::Queued,
        RunState::Running,
        RunState::WaitingApproval,
    ];
    let (filter, found) = found(operator, subjects.workspace, subjects.narrowed, &open).await?;
    if !subjects.yes {
        return Ok(would("cancelled", &found));
    }
    let mut outcomes = Vec::new();
    for piece in found.chunks(PIECE as usize) {
        let runs: Vec<_> = piece.iter().map(|run| run.run_id).collect();
        outcomes.extend(operator.cancel_runs(filter.workspace, &runs).await?);
    }
    Ok(Output::many(&outcomes, &["run_id", "outcome"]))
}

async fn retry(
    operator: &Operator,
    subjects: Subjects,
    rate: Option<u32>,
) -> Result<Output, Failure> {
    if let Some(run_id) = subjects.run_id {
        return Ok(Output::one(&operator.retry_run(run_id).await?));
    }
    let ended = [RunState::Failed, RunState::Denied, RunState::Cancelled];
    let (filter, found) = found(operator, subjects.workspace, subjects.narrowed, &ended).await?;
    if !subjects.yes {
        return Ok(would("retried", &found));
    }
    // The oldest first.
    let runs: Vec<_> = found.iter().rev().map(|run| run.run_id).collect();
    let mut outcomes = Vec::new();
    for (place, piece) in (0_u32..).zip(runs.chunks(PIECE as usize)) {
        let pace = rate.map(|rate| (f64::from(rate), place * PIECE));
        outcomes.extend(operator.retry_runs(filter.workspace, piece, pace).await?);
    }
    Ok(Output::many(&outcomes, &["run_id", "outcome"]))
}

/// The runs that a filter lets through, of those that are in one of these states.
async fn found(
    operator: &Operator,
    workspace: Option<WorkspaceId>,
    narrowed: Narrowed,
    states: &[RunState],
) -> Result<(RunFilter, Vec<RunRow>), Failure> {
    let workspace = workspace.ok_or(Failure::NoSubject)?;
    let mut filter = narrowed.filter(workspace);
    match filter.states.is_empty() {
        true => filter.states = states.to_vec(),
        false => filter.states.retain(|state| states.contains(state)),
    }
    if filter.states.is_empty() {
        return Ok((filter, Vec::new()));
    }
    let mut found: Vec<RunRow> = Vec::new();
    loop {
        let before = found.last().map(|run| run.run_id);
        let page = operator.runs(&filter, before, PIECE).await?;
        let is_last = page.len() < PIECE as usize;
        found.extend(page);
        if is_last {
            return Ok((filter, found));
        }
    }
}

/// What would be done, and how to have it done.
fn would(done: &str, found: &[RunRow]) -> Output {
    let runs: Vec<_> = found.iter().map(|run| run.run_id).collect();
    let mut text = format!(
        "{} runs would be {done}; give --yes to have it done",
        runs.len()
    );
    for run in found.iter().take(20) {
        text += &format!("\n{}  {}  {}", run.run_id, run.received_at, run.state);
    }
    if found.len() > 20 {
        text += &format!("\nand {} older ones", found.len() - 20);
    }
    Output::Text {
        text,
        value: json!({ "would_be": done, "runs": runs }),
    }
}
