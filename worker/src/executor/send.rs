//! An action that sends a request, stage by stage. The first stage that says no ends it.

use std::time::{Duration, Instant};

use letterbox_common::{
    ids::AccountId,
    sealing::{OpenError, Place},
    states::{ActionState, RefusedReason},
};
use letterbox_database::DatabaseError;
use letterbox_workflow::{
    ActionFacts, Policy, Ruling, TemplateContext,
    actions::{Outgoing, Request},
};
use serde::{Deserialize, Serialize};
use url::Url;
use uuid::Uuid;

use super::{
    Executor, Progress, RunInProgress,
    permission::{Permission, permission},
    plan::Next,
    store::{
        self, Account, ActionRecord, ActionUpdate, AttemptEnd, Circumstances, Decided, Transition,
    },
    verdict::{Verdict, judge},
};
use crate::egress::{Credential, EgressError};

/// Attempts at one action, unless its workspace says otherwise.
const MAX_ATTEMPTS: i32 = 11;
/// Longest pause between two attempts, whether an account asks for it or not.
const MAX_PAUSE: Duration = Duration::from_secs(3600);

/// A rendered request and the account that sends it. Recorded, shown to whoever approves it, and
/// used by every attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RenderedRequest {
    account_id: AccountId,
    account: String,
    #[serde(flatten)]
    request: Request,
}

/// Everything that is decided about an action before it is sent.
struct Prepared {
    account: Account,
    rendered: RenderedRequest,
    /// What is recorded and shown of it.
    shown: RenderedRequest,
    ruling: Ruling,
    policy_version: i32,
}

impl Prepared {
    /// `request` is the rendered one, as JSON.
    fn decided<'r>(&self, request: &'r str) -> Decided<'r> {
        Decided {
            ruling: self.ruling,
            policy_version: self.policy_version,
            request,
        }
    }
}

impl Executor {
    pub(super) async fn send(
        &self,
        run: &RunInProgress,
        next: &Next<'_>,
        outgoing: &dyn Outgoing,
    ) -> Result<Progress, DatabaseError> {
        let record = run.record_of(next.action);

        // Circumstances: asked for every action, because they may have changed since the last one.
        let (workspace, account) = (run.lease.workspace, outgoing.account());
        let circumstances =
            store::circumstances(&self.database, workspace, run.owner, account).await?;

        // Held: what is to be sent waits until it is released.
        if circumstances.is_held {
            let waiting = Transition::Pause(Duration::ZERO);
            return self
                .record(run, None, &waiting)
                .await
                .map(|_| Progress::Stop);
        }

        // Account, request, policy.
        let retries = circumstances.retries;
        let prepare = || prepare(run, next, outgoing, &record, circumstances);
        let prepared = match tokio::task::block_in_place(prepare) {
            Ok(prepared) => prepared,
            Err(reason) => {
                let update = next.update(ActionState::Failed);
                return match next.is_tool_call() {
                    true => self.tell(run, update, reason).await,
                    false => self.fail(run, update, reason, None).await,
                };
            }
        };
        let request = prepared.shown.to_json();
        let decided = prepared.decided(&request);

        // Approval.
        let decision = decided.ruling.decision;
        let approval = permission(decision, record.approval, self.timeouts.approval);
        if let Some(stop) = self.held_back(run, next, decided, approval).await? {
            return Ok(stop);
        }

        // Due: a run may be woken before its retry is.
        if let Some(pause) = record.retry_in {
            let mut update = next.update(ActionState::Retrying);
            update.decided = Some(decided);
            return self.pause(run, &update, pause).await;
        }

        // A place at the account: the relay gives it, when it is this run's turn.
        let account = prepared.account.id;
        if run.account != Some(account) {
            let waiting = Transition::AwaitAccount(account);
            return self
                .record(run, None, &waiting)
                .await
                .map(|_| Progress::Stop);
        }

        // Record: before the request leaves, so that after a crash its outcome is known to be
        // unknown.
        let recorded = Instant::now();
        let Some(key) = self.begin_attempt(run, next, decided).await? else {
            // The lease is lost, or the run was cancelled.
            store::cancel_run(&self.database, &run.lease).await?;
            return Ok(Progress::Stop);
        };

        // A process that was paused meanwhile may have lost the lease to another holder.
        if recorded.elapsed() > self.timeouts.lease / 2 {
            return Ok(Progress::Stop);
        }

        // Send. The credential is opened now and not kept.
        let sent = match self.open_credential(run, &prepared.account) {
            Ok(credential) => {
                let request = &prepared.rendered.request;
                self.egress.send(request, &credential, key).await
            }
            Err(error) => Err(error),
        };

        // Verdict.
        let attempt = record.attempts + 1;
        let max_attempts = retries.attempts.unwrap_or(MAX_ATTEMPTS);
        let (sent, answer) = match sent {
            Ok(mut response) => {
                let judged = std::mem::take(&mut response.body);
                let answer = judged.clone();
                response.body = judged;
                (Ok(response), Some(answer))
            }
            Err(error) => (Err(error), None),
        };
        let verdict = judge(outgoing, sent, attempt, max_attempts);
        let first_pause = retries.first_pause.unwrap_or(self.timeouts.retry);
        let pause = retry_pause(first_pause, attempt);
        self.record_verdict(run, next, verdict, answer, pause).await
    }

    async fn record_verdict(
        &self,
        run: &RunInProgress,
        next: &Next<'_>,
        verdict: Verdict,
        answer: Option<Vec<u8>>,
        pause: Duration,
    ) -> Result<Progress, DatabaseError> {
        match verdict {
            Verdict::Done { branch, status } => {
                let update = ActionUpdate {
                    ended: Some(AttemptEnd::Answered),
                    branch,
                    status: Some(status),
                    ..next.update(ActionState::Succeeded)
                };
                self.done(run, update, answer).await
            }
            Verdict::Fail {
                reason,
                status,
                end,
            } => {
                let update = ActionUpdate {
                    ended: Some(end),
                    status,
                    ..next.update(ActionState::Failed)
                };
                self.record_failure(run, next, update, reason, answer).await
            }
            Verdict::Retry {
                error,
                status,
                after,
                end,
            } => {
                // An account may ask for patience, within limits.
                let after = after.map(|after| after.min(MAX_PAUSE));
                let pause = after.unwrap_or(pause);
                let update = ActionUpdate {
                    status,
                    error: Some(error),
                    ended: Some(end),
                    ..next.update(ActionState::Retrying)
                };
                self.pause(run, &update, pause).await
            }
        }
    }

    /// The action has failed. The model that has called it is told what it was answered.
    async fn record_failure(
        &self,
        run: &RunInProgress,
        next: &Next<'_>,
        update: ActionUpdate<'_>,
        reason: String,
        answer: Option<Vec<u8>>,
    ) -> Result<Progress, DatabaseError> {
        let id = &next.action.id;
        match (next.is_tool_call(), answer) {
            // An answer is an answer: the model is told what it says.
            (true, Some(answer)) if update.status.is_some() => {
                let record = ActionRecord {
                    is_done: true,
                    status: update.status,
                    ..ActionRecord::default()
                };
                let update = ActionUpdate {
                    answer: self.seal_answer(run, id, &answer),
                    error: Some(reason),
                    is_told: true,
                    ..update
                };
                let record = ActionRecord {
                    answer: Some(answer),
                    ..record
                };
                self.go_on(run, &update, record).await
            }
            (true, _) => self.tell(run, update, reason).await,
            (false, answer) => self.fail(run, update, reason, answer).await,
        }
    }

    /// Records that an action must wait for a person, or must not be sent. None when it may be.
    async fn held_back(
        &self,
        run: &RunInProgress,
        next: &Next<'_>,
        decided: Decided<'_>,
        approval: Permission,
    ) -> Result<Option<Progress>, DatabaseError> {
        let (state, error, transition) = match approval {
            Permission::Granted => return Ok(None),
            Permission::Awaited(time_left) => (
                ActionState::WaitingApproval,
                None,
                Transition::AwaitApproval(time_left),
            ),
            Permission::Denied(reason) => {
                let (denied, reason) = (ActionState::Denied, reason.to_owned());
                let update = ActionUpdate {
                    decided: Some(decided),
                    ..next.update(denied)
                };
                if next.is_tool_call() {
                    return self.tell(run, update, reason).await.map(Some);
                }
                // What follows a failure does not make it a denial.
                if run.failing.is_some() {
                    return self.fail(run, update, reason, None).await.map(Some);
                }
                (denied, Some(reason.clone()), Transition::Deny(reason))
            }
        };
        let update = ActionUpdate {
            decided: Some(decided),
            error,
            ..next.update(state)
        };
        self.record(run, Some(&update), &transition)
            .await
            .map(|_| Some(Progress::Stop))
    }

    /// Counts and records an attempt, and renews the lease. Gives the idempotency key to send; none
    /// when the lease is lost.
    async fn begin_attempt(
        &self,
        run: &RunInProgress,
        next: &Next<'_>,
        decided: Decided<'_>,
    ) -> Result<Option<Uuid>, DatabaseError> {
        let state = ActionState::Running;
        let decided = Some(decided);
        let begun = ActionUpdate {
            decided,
            begins_attempt: true,
            ..next.update(state)
        };
        let holding = Transition::Continue(self.timeouts.lease);
        let written = store::write_step(&self.database, &run.lease, Some(&begun), &holding).await?;
        Ok(written.and_then(|written| written.idempotency_key))
    }

    /// Opens a credential, for the moment of its use. A missing key may come back; what was altered
    /// stays so.
    fn open_credential(
        &self,
        run: &RunInProgress,
        account: &Account,
    ) -> Result<Credential, EgressError> {
        let place = Place::AccountCredential {
            workspace: run.lease.workspace,
            account: account.id,
            user: run.owner,
            header: &account.header,
            base_url: &account.base_url,
        };
        let value = self
            .keys
            .open(place, &account.credential_sealed)
            .map_err(|error| {
                tracing::error!(account_id = %account.id, %error, "a credential does not open");
                let reason = format!("the account's credential does not open: {error}");
                match error {
                    OpenError::UnknownKey { .. } => EgressError::Failed(reason),
                    OpenError::Malformed | OpenError::Refused => EgressError::Refused(reason),
                }
            })?;
        Ok(Credential {
            header: account.header.clone(),
            value,
        })
    }
}

impl RenderedRequest {
    #[expect(
        clippy::expect_used,
        reason = "ids, strings and lists of them always serialize"
    )]
    fn to_json(&self) -> String {
        serde_json::to_string(self).expect("ids, strings and lists of them always serialize")
    }
}

/// Doubled after each attempt, and jittered by up to a quarter, so that many runs do not come back
/// together.
fn retry_pause(first: Duration, attempts: i32) -> Duration {
    let doublings = attempts.clamp(1, 16).saturating_sub(1);
    let pause = first.saturating_mul(1 << doublings).min(MAX_PAUSE);
    let random = Uuid::new_v4().as_bytes()[0];
    pause.mul_f64(f64::from(random) / 512.0 + 0.75)
}

/// The account, the request and the policy's ruling; or why the action fails.
fn prepare(
    run: &RunInProgress,
    next: &Next<'_>,
    outgoing: &dyn Outgoing,
    record: &ActionRecord,
    circumstances: Circumstances,
) -> Result<Prepared, String> {
    if !circumstances.owner_may_run {
        return Err(RefusedReason::OwnerCannotRun.to_string());
    }
    let name = outgoing.account();
    let account = circumstances.account;
    let account = account.ok_or_else(|| format!("the owner has no connected account {name:?}"))?;
    if outgoing.sets_header(&account.header) {
        return Err(format!(
            "the header {:?} is reserved for the account",
            account.header
        ));
    }
    let recorded = match &record.request {
        Some(recorded) => Some(recorded_request(recorded, &account, name)?),
        None => None,
    };
    let render = || {
        let context = match &next.arguments {
            Some(arguments) => &arguments.with(&run.context),
            None => &run.context,
        };
        let rendered = render(outgoing, &account, name, context)?;
        let shown = outgoing
            .shown(&rendered.request)
            .map(|request| RenderedRequest {
                request,
                ..rendered.clone()
            });
        Ok::<_, String>((rendered, shown))
    };
    let (rendered, shown) = match recorded {
        None => {
            let (rendered, shown) = render()?;
            (rendered.clone(), shown.unwrap_or(rendered))
        }
        Some(recorded) if outgoing.shown(&recorded.request).is_some() => {
            // Recorded is what is shown of it: what is sent must look like that.
            let (rendered, shown) = render()?;
            if shown.as_ref() != Some(&recorded) {
                return Err("the request is not the one that was recorded".to_owned());
            }
            (rendered, recorded)
        }
        // Rendered once: later attempts send what was recorded.
        Some(recorded) => (recorded.clone(), recorded),
    };
    let (policy_version, policy) = match circumstances.policy {
        None => (0, Policy::default()),
        Some((version, text)) => {
            let policy = Policy::parse(&text);
            (
                version,
                policy.map_err(|error| format!("the policy can't be read: {error}"))?,
            )
        }
    };
    let url: Url = rendered
        .request
        .url
        .parse()
        .map_err(|_| "the recorded request has no valid URL".to_owned())?;
    let ruling = policy.decide(&ActionFacts {
        host: url.host_str().unwrap_or_default(),
        action: next.action.kind.name,
        account: name,
        method: &rendered.request.method,
        taint: next.taint,
    });
    Ok(Prepared {
        account,
        rendered,
        shown,
        ruling,
        policy_version,
    })
}

/// The request as it was rendered for an earlier attempt or an approval.
fn recorded_request(
    recorded: &str,
    account: &Account,
    name: &str,
) -> Result<RenderedRequest, String> {
    let rendered: RenderedRequest = serde_json::from_str(recorded)
        .map_err(|error| format!("the recorded request can't be read: {error}"))?;
    if rendered.account_id != account.id {
        return Err(format!(
            "the account {name:?} was replaced after the request was rendered"
        ));
    }
    if !rendered.request.is_below(&base_url(account)?) {
        return Err(format!(
            "the recorded request does not go to the account {name:?}"
        ));
    }
    Ok(rendered)
}

fn render(
    outgoing: &dyn Outgoing,
    account: &Account,
    name: &str,
    context: &TemplateContext,
) -> Result<RenderedRequest, String> {
    let request = outgoing
        .render(&base_url(account)?, &context.renderer())
        .map_err(|error| error.to_string())?;
    Ok(RenderedRequest {
        account_id: account.id,
        account: name.to_owned(),
        request,
    })
}

fn base_url(account: &Account) -> Result<Url, String> {
    let parsed = account.base_url.parse();
    parsed.map_err(|_| "the account's base URL is invalid".to_owned())
}
