//! The executor: takes a run, goes on where the record says that it stands, and does one action
//! after the other, each recorded before and after. Whatever ends it, the next one goes on from the
//! record: with the same request, under the same key.
//!
//! Nothing is waited for while a run is held. A retry, a person's answer, and the end of a dead
//! worker's lease each stand in the outbox, whose relay wakes the run when it is time.

mod outbox;
mod plan;
mod store;

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use deadpool_postgres::Pool;
use letterbox_common::{
    database::{DatabaseError, Fault},
    ids::{AccountId, RunId, UserId, WorkspaceId},
    sealing::KeyRing,
};
use serde::{Deserialize, Serialize};
use url::Url;

use self::{
    plan::Next,
    store::{Account, After, Answer, Note, Record, Taken},
};
use crate::{
    accounts,
    actions::{
        self, Action, Branch, Input, Kind, Names, TemplateError, ai_condition,
        http_request::Request,
    },
    definition::Mistakes,
    egress::{self, Credential, Egress, SendError},
    policy::{Decision, Facts, Policy, Ruling},
};

pub use self::{
    outbox::{STATEMENTS as OUTBOX_STATEMENTS, relay, wake_again},
    store::STATEMENTS,
};

/// How long one executor works on a run without a break.
const SITTING: Duration = Duration::from_secs(300);
/// Pauses before another try to write down what has become of a request: to forget it would mean to
/// send it again.
const WRITE_PAUSES: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(5),
];
/// Attempts at one action.
const ATTEMPTS: i32 = 6;
/// Longest pause between two attempts that is of our own choice, and at all.
const PAUSE_MAX: Duration = Duration::from_secs(300);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// How patient the executor is.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// How long a worker may be silent about a run before another one takes it. Longer than any
    /// request takes.
    pub lease: Duration,
    /// Pause before the second attempt at an action; doubled before each further one.
    pub retry: Duration,
    /// How long a person may take to approve.
    pub approval: Duration,
}

/// Executes runs. Cheap to clone.
#[derive(Clone)]
pub struct Executor {
    pub pool: Pool,
    pub keys: KeyRing,
    pub egress: Egress,
    pub patience: Patience,
}

/// What was rendered for an action: what is sent, and by which account. Recorded, shown to who
/// approves, and used by every attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Rendered {
    account_id: AccountId,
    account: String,
    #[serde(flatten)]
    request: Request,
}

/// A run in the hands of this executor.
struct Held {
    workspace: WorkspaceId,
    run: RunId,
    turn: i32,
    owner: UserId,
    input: Input,
    actions: Vec<Action>,
    records: HashMap<String, Record>,
}

/// Whether there is more to do for this holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    GoOn,
    Over,
}

impl Executor {
    /// Brings a run as far as it can be brought now. Does nothing when it is over, or somebody else
    /// has it.
    ///
    /// # Errors
    /// When the database does not answer: trying again is safe.
    pub async fn advance(&self, workspace: WorkspaceId, run: RunId) -> Result<(), DatabaseError> {
        let Some(taken) = store::take(&self.pool, workspace, run, self.patience.lease).await?
        else {
            return Ok(());
        };
        let turn = taken.turn;
        let Some((actions, input)) = read(run, &taken) else {
            let why = After::Failed("the release can't be read".into());
            return store::step(&self.pool, (workspace, run, turn), None, &why)
                .await
                .map(drop);
        };
        let records = store::records(&self.pool, workspace, run).await?;
        let mut held = Held {
            workspace,
            run,
            turn,
            owner: taken.run_as,
            input,
            actions,
            records,
        };
        let began = Instant::now();
        while self.step(&mut held).await? == Progress::GoOn {
            if began.elapsed() > SITTING {
                // The broker does not wait for ever for an acknowledgement: another sitting goes
                // on.
                return store::step(
                    &self.pool,
                    held.holder(),
                    None,
                    &After::Later(Duration::ZERO),
                )
                .await
                .map(drop);
            }
        }
        Ok(())
    }

    /// Ends a run that can't be brought further, ever: by a bug, or by what the database refuses.
    ///
    /// # Errors
    /// When not even that can be written.
    pub async fn abandon(&self, workspace: WorkspaceId, run: RunId) -> Result<(), DatabaseError> {
        store::abandon(
            &self.pool,
            workspace,
            run,
            "the run could not be brought further: a bug in Letterbox",
        )
        .await
    }

    async fn step(&self, held: &mut Held) -> Result<Progress, DatabaseError> {
        let actions = std::mem::take(&mut held.actions);
        let progress = match plan::next(&actions, &held.records) {
            None => {
                metrics::counter!("letterbox_runs_finished_total", "state" => "succeeded")
                    .increment(1);
                store::step(&self.pool, held.holder(), None, &After::Succeeded)
                    .await
                    .map(|_| Progress::Over)
            }
            Some(next) => match &next.action.kind {
                Kind::Condition(condition, _) => match condition.holds(&held.input) {
                    Ok(holds) => self.done(held, &next, Some(holds.into()), None).await,
                    Err(error) => self.fail(held, &next, error.to_string(), None).await,
                },
                Kind::HttpRequest(_) | Kind::AiCondition(..) => self.send(held, &next).await,
            },
        };
        held.actions = actions;
        progress
    }

    /// An action that goes out: may it, what exactly, and then the sending.
    async fn send(&self, held: &mut Held, next: &Next<'_>) -> Result<Progress, DatabaseError> {
        let record = held
            .records
            .get(&next.action.id)
            .cloned()
            .unwrap_or_default();
        let name = next.action.kind.account().unwrap_or_default();
        let facts = store::facts(&self.pool, held.workspace, held.owner, name).await?;
        if !facts.owner_may_run {
            return self.fail(held, next, "owner_cannot_run".into(), None).await;
        }
        let Some(account) = facts.account else {
            return self
                .fail(
                    held,
                    next,
                    format!("the owner has no connected account {name:?}"),
                    None,
                )
                .await;
        };
        if matches!(&next.action.kind, Kind::HttpRequest(request) if request.has_header(&account.header))
        {
            return self
                .fail(
                    held,
                    next,
                    format!("the header {:?} is the account's", account.header),
                    None,
                )
                .await;
        }
        let rendered = match rendered(&record, next, name, &account, &held.input) {
            Ok(rendered) => rendered,
            Err(error) => return self.fail(held, next, error.to_string(), None).await,
        };
        let recorded = serde_json::to_string(&rendered).unwrap_or_default();
        let (policy, version) = match facts.policy {
            None => (Policy::default(), 0),
            Some((version, text)) => match Policy::read(&text) {
                Ok(policy) => (policy, version),
                Err(error) => {
                    return self
                        .fail(
                            held,
                            next,
                            format!("the policy can't be read: {error}"),
                            None,
                        )
                        .await;
                }
            },
        };
        let ruling = policy.decide(&Facts {
            action: next.action.kind.name(),
            account: name,
            method: &rendered.request.method,
            data: next.action.kind.reads_form(),
            control: next.control,
        });
        let mut note = Note {
            request: Some(&recorded),
            ruling: Some((ruling, version)),
            ..note(next, "running")
        };

        if let Some(refusal) = self.permission(held, ruling, &record, &note).await? {
            return Ok(refusal);
        }
        if let Some(pause) = record.retry_in {
            // Woken too early, by whatever.
            note.state = "retrying";
            return self.write(held, &note, &After::Later(pause)).await;
        }
        if record.attempts >= ATTEMPTS {
            return self
                .fail(
                    held,
                    next,
                    format!("given up after {ATTEMPTS} attempts"),
                    None,
                )
                .await;
        }

        // Recorded before it is sent.
        note.begins = true;
        let lease = After::Running(self.patience.lease);
        let Some(key) = store::step(&self.pool, held.holder(), Some(&note), &lease).await? else {
            return Ok(Progress::Over);
        };
        let sent = match self.open(held.workspace, &account) {
            Ok(credential) => self.egress.send(&rendered.request, &credential, key).await,
            Err(error) => Err(SendError::Failed(error)),
        };
        self.conclude(held, next, record.attempts + 1, sent).await
    }

    /// Whether the policy, and a person where it asks for one, lets an action through. `Some` when
    /// not, or not yet.
    async fn permission(
        &self,
        held: &Held,
        ruling: Ruling,
        record: &Record,
        note: &Note<'_>,
    ) -> Result<Option<Progress>, DatabaseError> {
        let denied = |why: &str| {
            (
                Note {
                    state: "denied",
                    error: Some(why.to_owned()),
                    ..note.clone()
                },
                After::Denied(why.to_owned()),
            )
        };
        let (note, after) = match (ruling.decision, record.approval) {
            (Decision::Deny, _) => denied("the policy denies it"),
            (_, Some(Answer::Denied)) => denied("a member has denied it"),
            (Decision::Approve, Some(Answer::Expired)) => denied("nobody has approved it in time"),
            (Decision::Allow, _) | (Decision::Approve, Some(Answer::Approved)) => return Ok(None),
            (Decision::Approve, Some(Answer::Pending(expires_in))) => (
                Note {
                    state: "waiting_approval",
                    ..note.clone()
                },
                After::Waiting(expires_in),
            ),
            (Decision::Approve, None) => (
                Note {
                    state: "waiting_approval",
                    ..note.clone()
                },
                After::Waiting(self.patience.approval),
            ),
        };
        self.write(held, &note, &after).await.map(Some)
    }

    /// What the answer, or its absence, means for the action.
    async fn conclude(
        &self,
        held: &mut Held,
        next: &Next<'_>,
        attempts: i32,
        sent: Result<egress::Answer, SendError>,
    ) -> Result<Progress, DatabaseError> {
        let (status, error, retry_after) = match sent {
            Ok(answer) if (200..300).contains(&answer.status) => {
                return match &next.action.kind {
                    Kind::AiCondition(..) if answer.is_broken => {
                        let broken = Err(SendError::Failed("the answer broke off".into()));
                        Box::pin(self.conclude(held, next, attempts, broken)).await
                    }
                    Kind::AiCondition(..) => match ai_condition::read_answer(&answer.body) {
                        Some(branch) => {
                            self.done(held, next, Some(branch), Some(answer.status))
                                .await
                        }
                        None => {
                            let why = "the model answered neither yes nor no";
                            self.fail(held, next, why.into(), Some(answer.status)).await
                        }
                    },
                    _ => self.done(held, next, None, Some(answer.status)).await,
                };
            }
            Ok(answer) => {
                let error = format!("answered with status {}", answer.status);
                if answer.status != 429 && answer.status < 500 {
                    return self.fail(held, next, error, Some(answer.status)).await;
                }
                (Some(answer.status), error, answer.retry_after)
            }
            Err(SendError::Refused(error)) => return self.fail(held, next, error, None).await,
            Err(SendError::Failed(error)) => (None, error, None),
        };
        if attempts >= ATTEMPTS {
            return self
                .fail(
                    held,
                    next,
                    format!("{error}; given up after {attempts} attempts"),
                    status,
                )
                .await;
        }
        let pause =
            retry_after.map_or_else(|| self.pause(attempts), |pause| pause.min(RETRY_AFTER_MAX));
        let note = Note {
            status,
            error: Some(error),
            ..note(next, "retrying")
        };
        self.write(held, &note, &After::Later(pause)).await
    }

    /// Doubled after each attempt, up to a quarter more or less, so that many runs do not come back
    /// together.
    fn pause(&self, attempts: i32) -> Duration {
        let doubled = self
            .patience
            .retry
            .saturating_mul(1 << attempts.clamp(1, 16).saturating_sub(1))
            .min(PAUSE_MAX);
        doubled.mul_f64(f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / 512.0 + 0.75)
    }

    async fn done(
        &self,
        held: &mut Held,
        next: &Next<'_>,
        branch: Option<Branch>,
        status: Option<u16>,
    ) -> Result<Progress, DatabaseError> {
        let note = Note {
            branch,
            status,
            ..note(next, "succeeded")
        };
        let progress = self
            .write(held, &note, &After::Running(self.patience.lease))
            .await?;
        held.records.insert(
            next.action.id.clone(),
            Record {
                is_done: true,
                branch,
                ..Record::default()
            },
        );
        Ok(progress)
    }

    async fn fail(
        &self,
        held: &Held,
        next: &Next<'_>,
        why: String,
        status: Option<u16>,
    ) -> Result<Progress, DatabaseError> {
        let note = Note {
            status,
            error: Some(why.clone()),
            ..note(next, "failed")
        };
        self.write(
            held,
            &note,
            &After::Failed(format!("{}: {why}", next.action.id)),
        )
        .await
    }

    async fn write(
        &self,
        held: &Held,
        note: &Note<'_>,
        after: &After,
    ) -> Result<Progress, DatabaseError> {
        let mut written = store::step(&self.pool, held.holder(), Some(note), after).await;
        for pause in WRITE_PAUSES {
            if !matches!(&written, Err(error) if error.fault == Fault::Transient) {
                break;
            }
            tokio::time::sleep(pause).await;
            written = store::step(&self.pool, held.holder(), Some(note), after).await;
        }
        let written = written?;
        let goes_on = written.is_some() && matches!(after, After::Running(_));
        if let (Some(_), After::Failed(_) | After::Denied(_)) = (written, after) {
            metrics::counter!("letterbox_runs_finished_total", "state" => note.state).increment(1);
        }
        Ok(if goes_on {
            Progress::GoOn
        } else {
            Progress::Over
        })
    }

    /// Opens a credential, for the moment of its use.
    fn open(&self, workspace: WorkspaceId, account: &Account) -> Result<Credential, String> {
        let place = accounts::seal_place(workspace, &account.id);
        let value = self.keys.open(place, &account.sealed).map_err(|error| {
            tracing::error!(account_id = %account.id, %error, "a credential does not open");
            format!("the account's credential does not open: {error}")
        })?;
        Ok(Credential {
            header: account.header.clone(),
            value,
        })
    }
}

impl Held {
    fn holder(&self) -> (WorkspaceId, RunId, i32) {
        (self.workspace, self.run, self.turn)
    }
}

/// The actions of a release and the values of a run.
fn read(run: RunId, taken: &Taken) -> Option<(Vec<Action>, Input)> {
    let unreadable = |what: &str| tracing::error!(run_id = %run, release_id = %taken.release, what, "a release can't be read");
    let list = serde_json::from_str(&taken.actions)
        .inspect_err(|_| unreadable("actions"))
        .ok()?;
    let mut mistakes = Mistakes::default();
    let actions = actions::check(&mut mistakes, Some(&list), &Names::of_release());
    if !mistakes.is_empty() {
        unreadable("actions");
        return None;
    }
    let input = String::from_utf8_lossy(&taken.input);
    let input = Input::of_run(
        &input,
        &run.to_string(),
        &format!("{:.3}", taken.received_at),
    );
    Some((actions, input.inspect_err(|_| unreadable("input")).ok()?))
}

/// The request of an action: as it was rendered first, or rendered now.
fn rendered(
    record: &Record,
    next: &Next<'_>,
    name: &str,
    account: &Account,
    input: &Input,
) -> Result<Rendered, TemplateError> {
    if let Some(recorded) = &record.request {
        let rendered: Rendered = serde_json::from_str(recorded)
            .map_err(|_| TemplateError::new("the recorded request can't be read"))?;
        return if rendered.account_id == account.id {
            Ok(rendered)
        } else {
            Err(TemplateError::new(format!(
                "the account {name:?} is another one than when the request was made"
            )))
        };
    }
    let base_url: Url = account
        .base_url
        .parse()
        .map_err(|_| TemplateError::new("the account's base URL is none"))?;
    let request = next.action.kind.render(&base_url, input)?;
    Ok(Rendered {
        account_id: account.id,
        account: name.to_owned(),
        request,
    })
}

fn note<'a>(next: &Next<'a>, state: &'static str) -> Note<'a> {
    Note {
        action: &next.action.id,
        kind: next.action.kind.name(),
        state,
        data: next.action.kind.reads_form(),
        control: next.control,
        ruling: None,
        request: None,
        begins: false,
        status: None,
        branch: None,
        error: None,
    }
}
