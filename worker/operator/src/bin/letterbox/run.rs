//! `letterbox run …`

use clap::{Args, Subcommand};
use letterbox_common::{
    ids::{AccountId, RunId, WorkflowId, WorkspaceId},
    sealing::{SealedColumn, key_ring},
    states::RunState,
};
use letterbox_operator::{NOT_ERASED, Named, Operator, Reason, RunFilter, RunRow, WorkflowRow};
use serde_json::json;

use crate::{
    Failure, Output, Result,
    confirm::confirm_loss,
    follow,
    in_workspace::InWorkspace,
    settings::CliSettings,
    story::{story, word},
    times::to_second,
};

const COLUMNS: &str = "run_id received_at condition workflow why";
/// Runs that one statement cancels or retries.
const PIECE: u32 = 500;
/// Runs that are shown before something is done to them.
const MAX_SHOWN: usize = 20;

#[derive(Subcommand)]
pub(crate) enum RunCommand {
    /// List the newest runs of a workspace
    List {
        #[command(flatten)]
        workspace: InWorkspace,
        #[command(flatten)]
        narrowed: Narrowed,
        /// Only those before this run, the last one of the previous page
        #[arg(long, value_name = "RUN_ID")]
        before: Option<Named<RunId>>,
        /// Most runs to list
        #[arg(long, default_value_t = 100, value_parser =
            clap::value_parser!(u32).range(1..=1_000_000))]
        limit: u32,
        /// Go on until interrupted: print new runs, and changes among the newest 1,000
        #[arg(long, conflicts_with = "before")]
        follow: bool,
    },
    /// Show the story of one run: its state and why, the submission, each action and who allowed it
    ///
    /// --json shows everything, also the responses of accounts, if they are kept and
    /// LETTERBOX_ACCOUNT_KEYS opens them.
    Show { run_id: Named<RunId> },
    /// Cancel a run, or all that match a filter; requests that were sent stay sent
    Cancel(Subjects),
    /// Let a run, or all that match a filter, go on at the action that failed or was denied
    Retry {
        #[command(flatten)]
        subjects: Subjects,
        /// Runs each second [default: all at once]
        #[arg(long, value_name = "PER_SECOND")]
        rate: Option<u32>,
        /// Do not wait for the next attempt: for runs that are being retried already
        #[arg(long, conflicts_with_all = ["rate", "workflow", "state", "since", "until", "failure",
                                          "request_id", "field"])]
        now: bool,
        /// With --now: only those that wait for this account
        #[arg(
            long,
            value_name = "ACCOUNT_ID",
            requires = "now",
            conflicts_with = "run_id"
        )]
        account: Option<Named<AccountId>>,
    },
    /// Forget the submission of a run that is over, and the requests that it sent; or those of a
    /// person, by an answer
    Erase {
        #[arg(conflicts_with_all =
                  ["workspace", "workflow", "state", "since", "until", "failure", "request_id",
                   "field"],
              required_unless_present = "workspace")]
        run_id: Option<RunId>,
        /// All runs of a workspace that have this answer and that the other options let through
        #[arg(long, value_name = "WORKSPACE_ID", requires = "field")]
        workspace: Option<Named<WorkspaceId>>,
        #[command(flatten)]
        narrowed: Narrowed,
        /// Do it: do not ask for confirmation, and do more than show the runs that match
        #[arg(long)]
        yes: bool,
    },
}

/// The filters of `run list`, `run cancel` and `run retry`.
#[derive(Args)]
pub(crate) struct Narrowed {
    /// Only those of one workflow
    #[arg(long, value_name = "WORKFLOW_ID")]
    workflow: Option<Named<WorkflowId>>,
    #[command(flatten)]
    filter: RunFilter,
}

impl Narrowed {
    async fn filter(self, operator: &Operator, workspace: WorkspaceId) -> Result<RunFilter> {
        let workflow = self.workflow.as_ref();
        let workflow = operator.id_in(Some(workspace), workflow).await?;
        Ok(RunFilter {
            workflow,
            ..self.filter
        })
    }
}

/// One run, or a filter.
#[derive(Args)]
pub(crate) struct Subjects {
    /// One run
    #[arg(conflicts_with_all =
              ["workspace", "workflow", "state", "since", "until", "failure", "request_id",
               "field"],
          required_unless_present = "workspace")]
    run_id: Option<Named<RunId>>,
    /// All runs of a workspace that the other options let through
    #[arg(long, value_name = "WORKSPACE_ID")]
    workspace: Option<Named<WorkspaceId>>,
    #[command(flatten)]
    narrowed: Narrowed,
    /// Do it; without this, a filter only shows the runs that match
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(settings: &CliSettings, verb: RunCommand) -> Result<Output> {
    let operator = &settings.operator().await?;
    Ok(match verb {
        RunCommand::List {
            workspace,
            narrowed,
            before,
            limit,
            follow,
        } => {
            let workspace = workspace.id(operator).await?;
            let filter = narrowed.filter(operator, workspace).await?;
            if follow {
                let read = async |limit| operator.runs(workspace, &filter, None, limit).await;
                let known = |run: &RunRow| (run.run_id, condition(run));
                return follow::follow(limit, settings.json, read, known, one_line).await;
            }
            let before = operator.id_in(None, before.as_ref()).await?;
            let runs = operator.runs(workspace, &filter, before, limit).await?;
            list(&runs, &operator.workflows(workspace).await?)
        }
        RunCommand::Erase {
            run_id: Some(run_id),
            yes,
            ..
        } => {
            confirm_loss("what was submitted and sent is forgotten", yes)?;
            Output::one(&operator.erase_run(run_id).await?)
        }
        RunCommand::Erase {
            run_id: None,
            workspace,
            narrowed,
            yes,
        } => {
            let subjects = Subjects {
                run_id: None,
                workspace,
                narrowed,
                yes,
            };
            erase(operator, subjects).await?
        }
        RunCommand::Show { run_id } => {
            let run_id = operator.id(&run_id).await?;
            let keys = key_ring(SealedColumn::ActionAnswer).ok();
            let run = operator.run_with_answers(run_id, keys.as_ref()).await?;
            Output::text(story(&run), &run)
        }
        RunCommand::Cancel(subjects) => cancel(operator, subjects).await?,
        RunCommand::Retry {
            subjects,
            now: true,
            account,
            ..
        } => hurry(operator, subjects, account).await?,
        RunCommand::Retry { subjects, rate, .. } => retry(operator, subjects, rate).await?,
    })
}

/// A list of runs; for people it says, too, of which workflow each is, whether it waits for its
/// next attempt, and why it went wrong.
fn list(runs: &[RunRow], workflows: &[WorkflowRow]) -> Output {
    let rows = runs.iter().map(|run| {
        let mut workflows = workflows.iter();
        let workflow = workflows.find(|one| one.workflow_id == run.workflow_id);
        let mut row = json!(run);
        row["condition"] = condition(run).into();
        row["workflow"] = json!(workflow.map(|one| &one.name));
        row["why"] = why(run).into();
        row
    });
    Output::many(&rows.collect::<Vec<_>>(), COLUMNS)
}

fn why(run: &RunRow) -> String {
    let refused = run.refused_reason.map(|reason| reason.to_string());
    run.failure.clone().or(refused).unwrap_or_default()
}

fn condition(run: &RunRow) -> &'static str {
    match run.is_retrying {
        true => "retrying",
        false => run.state.as_str(),
    }
}

fn one_line(run: &RunRow) -> String {
    let received_at = to_second(run.received_at);
    let why = why(run);
    let why = word(&why);
    format!(
        "{}  {received_at}  {:<16}  {why}",
        run.run_id,
        condition(run)
    )
}

async fn cancel(operator: &Operator, subjects: Subjects) -> Result<Output> {
    if let Some(run_id) = &subjects.run_id {
        let run_id = operator.id(run_id).await?;
        let outcome = operator.cancel_run(run_id).await?;
        return Ok(Output::One(json!({ "run_id": run_id, "outcome": outcome })));
    }
    let open = [
        RunState::Queued,
        RunState::Running,
        RunState::WaitingApproval,
    ];
    let yes = subjects.yes;
    let found = found(operator, subjects, &open).await?;
    if !yes {
        return Ok(would("cancelled", &found));
    }
    let mut outcomes = Vec::new();
    for piece in found.runs.chunks(PIECE as usize) {
        outcomes.extend(operator.cancel_runs(found.workspace, piece).await?);
    }
    Ok(Output::many(&outcomes, "run_id outcome"))
}

async fn erase(operator: &Operator, subjects: Subjects) -> Result<Output> {
    let yes = subjects.yes;
    let over = [
        RunState::Succeeded,
        RunState::Failed,
        RunState::Denied,
        RunState::Cancelled,
        RunState::Refused,
    ];
    let found = found(operator, subjects, &over).await?;
    if !yes {
        return Ok(would("erased", &found));
    }
    let mut erased = Vec::new();
    for piece in found.runs.chunks(PIECE as usize) {
        erased.extend(operator.erase_runs(found.workspace, piece).await?);
    }
    let count = erased.len();
    Ok(Output::text(
        format!("{count} runs are erased. {NOT_ERASED} See also: letterbox dead-letters list."),
        &json!({ "erased": erased, "not_reached": NOT_ERASED }),
    ))
}

async fn retry(operator: &Operator, subjects: Subjects, rate: Option<u32>) -> Result<Output> {
    if let Some(run_id) = &subjects.run_id {
        let run = operator.retry_run(operator.id(run_id).await?).await?;
        return Ok(Output::text(story(&run), &run));
    }
    let ended = [RunState::Failed, RunState::Denied, RunState::Cancelled];
    let yes = subjects.yes;
    let mut found = found(operator, subjects, &ended).await?;
    if !yes {
        return Ok(would("retried", &found));
    }
    // The oldest first.
    found.runs.reverse();
    let mut outcomes = Vec::new();
    for (place, piece) in (0_u32..).zip(found.runs.chunks(PIECE as usize)) {
        let pace = rate.map(|rate| (f64::from(rate), place * PIECE));
        outcomes.extend(operator.retry_runs(found.workspace, piece, pace).await?);
    }
    Ok(Output::many(&outcomes, "run_id outcome"))
}

/// Lets runs make their next attempt now.
async fn hurry(
    operator: &Operator,
    subjects: Subjects,
    account: Option<Named<AccountId>>,
) -> Result<Output> {
    let (workspace, run) = match (&subjects.run_id, &subjects.workspace) {
        (Some(run), _) => {
            let run = operator.id(run).await?;
            (operator.run(run).await?.row.workspace_id, Some(run))
        }
        (None, Some(workspace)) => (operator.id(workspace).await?, None),
        (None, None) => return Err(Failure::NoSubject),
    };
    let account = operator.id_in(Some(workspace), account.as_ref()).await?;
    let hurried = operator.hurry_runs(workspace, account, run).await?;
    if let ([], Some(_)) = (&hurried[..], run) {
        return Err(Failure::Operator(Reason::NotRetrying.into()));
    }
    let rows: Vec<_> = hurried.iter().map(|run| json!({ "run_id": run })).collect();
    Ok(Output::many(&rows, "run_id"))
}

/// The runs that a filter lets through.
struct FoundRun {
    workspace: WorkspaceId,
    /// Newest first.
    runs: Vec<RunId>,
    /// The newest of them, as a person reads them.
    shown: Vec<String>,
}

/// The runs that a filter lets through, of those that are in one of these states.
async fn found(operator: &Operator, subjects: Subjects, states: &[RunState]) -> Result<FoundRun> {
    let workspace = subjects.workspace.ok_or(Failure::NoSubject)?;
    let workspace = operator.id(&workspace).await?;
    let mut filter = subjects.narrowed.filter(operator, workspace).await?;
    if filter.states.is_empty() {
        filter.states = states.to_vec();
    } else {
        filter.states.retain(|state| states.contains(state));
    }
    let mut found = FoundRun {
        workspace,
        runs: Vec::new(),
        shown: Vec::new(),
    };
    // No state is left: no run matches.
    let mut is_last = filter.states.is_empty();
    while !is_last {
        let before = found.runs.last().copied();
        let page = operator.runs(workspace, &filter, before, PIECE).await?;
        is_last = page.len() < PIECE as usize;
        found.runs.extend(page.iter().map(|run| run.run_id));
        let room = MAX_SHOWN - found.shown.len();
        found.shown.extend(page.iter().take(room).map(one_line));
    }
    Ok(found)
}

/// A preview of the order, and how to carry it out.
fn would(done: &str, found: &FoundRun) -> Output {
    let count = found.runs.len();
    let mut lines = vec![format!("{count} runs would be {done}: give --yes to do it")];
    lines.extend_from_slice(&found.shown);
    if count > found.shown.len() {
        lines.push(format!("and {} older ones", count - found.shown.len()));
    }
    Output::text(
        lines.join("\n"),
        &json!({ "would_be": done, "runs": found.runs }),
    )
}
