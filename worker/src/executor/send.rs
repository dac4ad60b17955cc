//! An action that sends a request, stage by stage. The first stage that says no ends it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use letterbox_common::{
    ids::AccountId,
    sealing::{OpenError, Place},
    states::ActionState,
};
use letterbox_database::DatabaseError;
use letterbox_traces::{Span, SpanKind, child};
use letterbox_workflow::actions::Outgoing;
use uuid::Uuid;

use super::{
    Executor, Progress,
    permission::{Permission, permission},
    plan::Next,
    prepare::prepare,
    run_in_progress::RunInProgress,
    store::{self, Account, ActionRecord, ActionUpdate, AttemptEnd, Decided, Transition},
    verdict::{Verdict, judge},
};
use crate::{
    egress::{Credential, EgressError, HttpResponse},
    metrics,
};

/// Attempts at one action, unless its workspace says otherwise.
const MAX_ATTEMPTS: i32 = 11;
/// Longest pause between two attempts, whether an account asks for it or not.
const MAX_PAUSE: Duration = Duration::from_secs(3600);

/// Methods that change nothing.
const SAFE_METHODS: [&str; 2] = ["GET", "HEAD"];

/// An action that has failed.
struct Failed<'a> {
    update: ActionUpdate<'a>,
    reason: String,
    /// What it was answered.
    answer: Option<Vec<u8>>,
    /// Of how many attempts it is not known what came of them.
    unanswered: i32,
}

impl Executor {
    pub(super) async fn send(
        &self,
        run: &RunInProgress,
        next: &Next<'_>,
        outgoing: &Arc<dyn Outgoing>,
    ) -> Result<Progress, DatabaseError> {
        let record = run.record_of(next.action);

        // Circumstances: asked for every action, because they may have changed since the last one.
        let (workspace, account) = (run.lease.workspace, outgoing.account());
        let circumstances =
            store::circumstances(&self.database, workspace, run.owner, account).await?;

        // Held: what is to be sent waits until it is released.
        if circumstances.is_held {
            return self.let_go(run, Transition::Pause(Duration::ZERO)).await;
        }

        // Account, request, policy.
        let retries = circumstances.retries;
        let prepared = match prepare(run, next, outgoing, record, circumstances).await {
            Ok(prepared) => prepared,
            Err(reason) => {
                let failed = Failed {
                    update: next.update(ActionState::Failed),
                    reason,
                    answer: None,
                    unanswered: record.unanswered,
                };
                return self
                    .record_failure(run, next, outgoing.as_ref(), failed)
                    .await;
            }
        };
        let outgoing = outgoing.as_ref();
        let request = prepared.shown.to_json();
        let decided = prepared.decided(&request);

        // Approval.
        let decision = decided.ruling.decision;
        let approval = permission(decision, record.approval, self.timeouts.approval);
        if let Some(stop) = self
            .held_back(run, next, outgoing, decided, approval)
            .await?
        {
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
            return self.let_go(run, Transition::AwaitAccount(account)).await;
        }

        // Record: before the request leaves, so that after a crash its outcome is known to be
        // unknown.
        let recorded = Instant::now();
        let Some(key) = self.begin_attempt(run, next, account, decided).await? else {
            // Something does not hold any more, and the next turn sees what. Or the lease is lost.
            return self.let_go(run, Transition::Pause(Duration::ZERO)).await;
        };

        // A process that was paused meanwhile may have lost the lease to another holder.
        if recorded.elapsed() > self.timeouts.lease / 2 {
            return Ok(Progress::Stop);
        }

        // Send. The credential is opened now and not kept.
        let asked = Instant::now();
        let request = &prepared.rendered.request;
        let mut span = request_span(run, next, outgoing, record.attempts);
        let sent = match self.open_credential(run, &prepared.account) {
            Ok(credential) => {
                let traceparent = span.as_ref().map(Span::traceparent);
                let sending = self.egress.send(request, &credential, key, traceparent);
                sending.await
            }
            Err(error) => Err(error),
        };
        note_answer(&mut span, &sent);

        // Verdict.
        let attempt = record.attempts + 1;
        let max_attempts = retries.attempts.unwrap_or(MAX_ATTEMPTS);
        let verdict = judge(outgoing, &sent, attempt, max_attempts);
        metrics::ACTION_DURATION.record([verdict.label()], asked.elapsed());
        let answer = sent.ok().map(|response| response.body);
        let first_pause = retries.first_pause.unwrap_or(self.timeouts.retry);
        let pause = retry_pause(first_pause, attempt);

        // Record.
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
                let failed = Failed {
                    update,
                    reason,
                    answer,
                    unanswered: end.left_unanswered(record.unanswered + 1),
                };
                self.record_failure(run, next, outgoing, failed).await
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

    /// Lets go of the run before anything was sent.
    async fn let_go(
        &self,
        run: &RunInProgress,
        waiting: Transition,
    ) -> Result<Progress, DatabaseError> {
        let recording = self.record(run, None, &waiting);
        recording.await.map(|_| Progress::Stop)
    }

    /// The action has failed. The model that has called it is told, and may try something else;
    /// but not where what it has called may have been done: it would be done twice.
    async fn record_failure(
        &self,
        run: &RunInProgress,
        next: &Next<'_>,
        outgoing: &dyn Outgoing,
        failed: Failed<'_>,
    ) -> Result<Progress, DatabaseError> {
        let Failed {
            update,
            reason,
            answer,
            unanswered,
        } = failed;
        let may_be_done = unanswered > 0 && !SAFE_METHODS.contains(&outgoing.method());
        if !next.is_tool_call() || may_be_done {
            return self.fail(run, update, reason, answer).await;
        }
        // An answer is an answer: the model is told what it says.
        let Some(answer) = answer.filter(|_| update.status.is_some()) else {
            return self.tell(run, update, reason).await;
        };
        let update = ActionUpdate {
            answer: self.seal_answer(run, &next.action.id, &answer),
            error: Some(reason),
            is_told: true,
            ..update
        };
        let record = ActionRecord {
            is_done: true,
            status: update.status,
            answer: Some(answer),
            ..ActionRecord::default()
        };
        self.go_on(run, &update, record).await
    }

    /// Records that an action must wait for a person, or must not be sent. None when it may be.
    async fn held_back(
        &self,
        run: &RunInProgress,
        next: &Next<'_>,
        outgoing: &dyn Outgoing,
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
                // What follows a failure does not make it a denial.
                if next.is_tool_call() || run.failing.is_some() {
                    let failed = Failed {
                        update,
                        reason,
                        answer: None,
                        unanswered: run.record_of(next.action).unanswered,
                    };
                    let recording = self.record_failure(run, next, outgoing, failed);
                    return recording.await.map(Some);
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
    /// where it may not begin: the lease is lost, or something that it was decided by has changed.
    async fn begin_attempt(
        &self,
        run: &RunInProgress,
        next: &Next<'_>,
        account: AccountId,
        decided: Decided<'_>,
    ) -> Result<Option<Uuid>, DatabaseError> {
        let state = ActionState::Running;
        let decided = Some(decided);
        let begun = ActionUpdate {
            decided,
            begins: Some(account),
            was_asked: run.record_of(next.action).approval.is_some(),
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
                metrics::UNOPENED_CREDENTIALS.increment(1);
                tracing::error!(account_id = %account.id, %error, "a credential does not open");
                let reason = format!("the account's credential does not open: {error}");
                match error {
                    OpenError::UnknownKey { .. } => EgressError::NotSent(reason),
                    OpenError::Malformed | OpenError::Refused => EgressError::Refused(reason),
                }
            })?;
        Ok(Credential {
            header: account.header.clone(),
            value,
        })
    }
}

/// The step of a trace that a request is. Neither its address nor what it carries is told: a
/// stranger may have written it.
fn request_span(
    run: &RunInProgress,
    next: &Next<'_>,
    outgoing: &dyn Outgoing,
    attempts: i32,
) -> Option<Span> {
    let method = outgoing.method();
    let mut span = child(
        SpanKind::Client,
        method.to_owned(),
        run.traceparent.as_deref()?,
    )?;
    span.set("http.request.method", method.to_owned());
    span.set("http.request.resend_count", i64::from(attempts));
    span.set("letterbox.action_id", next.action.id.clone());
    span.set("letterbox.account", outgoing.account().to_owned());
    Some(span)
}

fn note_answer(span: &mut Option<Span>, sent: &Result<HttpResponse, EgressError>) {
    let Some(span) = span else { return };
    match sent {
        Ok(response) => {
            span.set("http.response.status_code", i64::from(response.status));
            if response.status >= 400 {
                span.fail("");
            }
        }
        Err(_) => span.fail("no answer"),
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
