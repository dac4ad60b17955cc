//! An action that sends a request, stage by stage: what holds, what exactly is sent and what the
//! policy says of it, whether a person must approve it, the beginning, the exchange, and what came
//! of it. The first stage that says no ends it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use letterbox_common::{
    sealing::{OpenError, Place},
    states::ActionState,
};
use letterbox_database::DatabaseError;
use letterbox_traces::{Span, SpanKind, child};
use letterbox_workflow::actions::{Branch, Outgoing};
use uuid::Uuid;

use super::{
    Executor, MARGIN, Progress, answers,
    approvals::{Permission, permission},
    plan::Next,
    prepare::{Prepared, prepare},
    record::{
        Account, ActionRecord, Answer, AttemptEnd, Beginning, Change, Circumstances, Decided, End,
        Failure, Hindrance, Retries, Then,
    },
    run_in_progress::RunInProgress,
    store,
    verdict::{Verdict, judge, pause_between},
};
use crate::{
    egress::{Credential, EgressError, HttpResponse},
    grants::refuse_token,
    metrics,
};

/// Attempts at one action, unless its workspace says otherwise.
const MAX_ATTEMPTS: i32 = 11;
/// How long what is known to hold is relied on. An attempt begins only if it still holds.
const CIRCUMSTANCES_LAST: Duration = Duration::from_secs(1);

/// The status of an account that refuses its credential.
const UNAUTHORIZED: u16 = 401;
/// Methods that change nothing.
const SAFE_METHODS: [&str; 2] = ["GET", "HEAD"];

/// An attempt that has begun.
struct Attempt {
    number: i32,
    /// The idempotency key.
    key: Uuid,
}

/// What was sent, and what came back.
struct Exchange {
    attempt: i32,
    took: Duration,
    answered: Result<HttpResponse, EgressError>,
    /// The account has refused its token, and gets another one.
    is_renewed: bool,
    retries: Retries,
}

impl Executor {
    pub(super) async fn send(
        &self,
        run: &RunInProgress<'_>,
        next: &Next<'_>,
        outgoing: &Arc<dyn Outgoing>,
    ) -> Result<Progress, DatabaseError> {
        let record = run.record_of(next.action);
        // It failed, which was answered only after another worker had taken the run.
        if let Some(reason) = &record.failed {
            let why = format!("{}: {reason}", next.action.id);
            let failed = (next.action.id.clone(), record.clone());
            return self.fail_run(run, None, why, failed).await;
        }

        // What holds now. What is to be sent from a held workspace waits until it is released.
        let circumstances = self.circumstances(run, outgoing.account()).await?;
        if circumstances.is_held {
            return self.let_go(run, Then::let_go()).await;
        }

        // What calls an account that waits for a token, or for its owner, waits in its lane.
        if let Some(account) = circumstances.account.as_ref().filter(|one| one.waits) {
            let then = Then::Release(Duration::ZERO, Some(account.id));
            return self.let_go(run, then).await;
        }

        // The account, the exact request, and what the policy says of it.
        let retries = circumstances.retries;
        let prepared = match self.prepare(run, next, outgoing, circumstances).await {
            Ok(prepared) => prepared,
            Err(Hindrance::Lasting(reason)) => {
                return self.refuse(run, next, outgoing.as_ref(), reason).await;
            }
            Err(hindrance) => return self.leave(run, hindrance).await,
        };
        let decided = prepared.decided();

        // The permission of a person, if the policy wants that.
        let (decision, limit) = (decided.ruling.decision, self.timeouts.approval);
        match permission(decision, record.approval, limit) {
            Permission::Granted => {}
            Permission::Awaited(limit) => {
                self.count_request(run, record, &decided);
                let change = Change::AwaitsApproval(decided);
                let then = Then::AwaitApproval(limit);
                return self.pause(run, run.key(next), change, then).await;
            }
            Permission::Denied(reason) => {
                return self
                    .deny(run, next, outgoing.as_ref(), decided, reason)
                    .await;
            }
        }

        // The beginning: recorded before the request leaves, so that after a crash its outcome is
        // known to be unknown.
        let attempt = match self.begin(run, next, &prepared, decided).await? {
            Ok(attempt) => attempt,
            Err(then) => return self.let_go(run, then).await,
        };

        // The exchange.
        let asked = Instant::now();
        let outgoing = outgoing.as_ref();
        let answered = self
            .exchange(run, next, outgoing, &prepared, &attempt)
            .await;
        let took = asked.elapsed();
        let is_renewed = self
            .is_renewed(run, record, &prepared.account, &answered, &retries)
            .await?;
        let exchange = Exchange {
            attempt: attempt.number,
            took,
            answered,
            is_renewed,
            retries,
        };

        // What came of it.
        self.conclude(run, next, outgoing, exchange).await
    }

    /// What holds for an action that calls this account.
    async fn circumstances(
        &self,
        run: &RunInProgress<'_>,
        account: &str,
    ) -> Result<Circumstances, DatabaseError> {
        let known = &run.circumstances;
        let is_of_account = known
            .account
            .as_ref()
            .is_some_and(|known| known.name == account);
        if is_of_account && known.since.elapsed() < CIRCUMSTANCES_LAST {
            return Ok(known.clone());
        }
        let (workspace, owner) = (run.turn.workspace, run.owner);
        let ask = || store::load::circumstances(&self.database, workspace, owner, account);
        self.persist(ask).await
    }

    /// What would be sent, and what the policy says of it.
    async fn prepare(
        &self,
        run: &RunInProgress<'_>,
        next: &Next<'_>,
        outgoing: &Arc<dyn Outgoing>,
        circumstances: Circumstances,
    ) -> Result<Prepared, Hindrance> {
        let (workspace, version) = (run.turn.workspace, circumstances.policy_version);
        let policy = || self.parsed.policy(workspace, version);
        let policy = self.persist(policy).await??;
        let record = run.record_of(next.action);
        prepare(self, run, next, outgoing, record, circumstances, &policy).await
    }

    /// Begins an attempt; or says how the run is let go of, because it may not begin now.
    async fn begin(
        &self,
        run: &RunInProgress<'_>,
        next: &Next<'_>,
        prepared: &Prepared,
        decided: Decided,
    ) -> Result<Result<Attempt, Then>, DatabaseError> {
        let record = run.record_of(next.action);
        // A run may be taken before its retry is due.
        if let Some(pause) = record.retry_in {
            return Ok(Err(Then::Release(pause, None)));
        }
        // Only so many runs at once may call an account: it is counted when the run is taken.
        let account = prepared.account.id;
        if run.account != Some(account) {
            return Ok(Err(Then::Release(Duration::ZERO, Some(account))));
        }
        let beginning = Arc::new(Beginning {
            turn: run.turn,
            action: run.key(next),
            account,
            decided,
            was_asked: record.approval.is_some(),
        });
        let has_failed = AtomicBool::new(false);
        let begin = || async {
            let asked = Instant::now();
            let again = has_failed.swap(true, Ordering::Relaxed);
            Ok((asked, self.steps.begin(&beginning, again).await?))
        };
        let (asked, begun) = self.persist(begin).await?;
        self.count_request(run, record, &beginning.decided);
        let number = beginning.attempt();
        // A process that was paused meanwhile may have lost its turn to another one.
        let is_in_time = asked.elapsed() < MARGIN;
        // Otherwise something does not hold any more, and the next turn sees what.
        let attempt = begun.map(|key| Attempt { number, key });
        Ok(attempt.filter(|_| is_in_time).ok_or_else(Then::let_go))
    }

    /// Counts a request that is recorded now.
    fn count_request(&self, run: &RunInProgress<'_>, record: &ActionRecord, decided: &Decided) {
        if record.request.is_none() {
            self.count(run, decided.request.len());
        }
    }

    /// Sends the request. The credential is opened for it and not kept.
    async fn exchange(
        &self,
        run: &RunInProgress<'_>,
        next: &Next<'_>,
        outgoing: &dyn Outgoing,
        prepared: &Prepared,
        attempt: &Attempt,
    ) -> Result<HttpResponse, EgressError> {
        let mut span = request_span(run, next, outgoing);
        let answered = match self.open_credential(run, &prepared.account) {
            Ok(credential) => {
                let request = &prepared.rendered.request;
                let traceparent = span.as_ref().map(Span::traceparent);
                let sending = self
                    .egress
                    .send(request, &credential, attempt.key, traceparent);
                sending.await
            }
            Err(error) => Err(error),
        };
        note_answer(&mut span, &answered);
        answered
    }

    /// Whether the account has refused its token, and gets another one: once, until it answers
    /// something else, unless the token was to be renewed by then.
    async fn is_renewed(
        &self,
        run: &RunInProgress<'_>,
        record: &ActionRecord,
        account: &Account,
        answered: &Result<HttpResponse, EgressError>,
        retries: &Retries,
    ) -> Result<bool, DatabaseError> {
        let is_refused = answered
            .as_ref()
            .is_ok_and(|one| one.status == UNAUTHORIZED);
        let is_again = record.attempts > 0 && record.status == Some(UNAUTHORIZED);
        // Not without end, whatever its token server gives.
        if !is_refused || is_again && record.attempts + 1 >= max_attempts(retries) {
            return Ok(false);
        }
        let (workspace, used) = (run.turn.workspace, &account.credential_sealed);
        let refuse = || refuse_token(&self.database, workspace, account.id, used, is_again);
        self.persist(refuse).await
    }

    /// Judges what came back, and writes what that means.
    async fn conclude(
        &self,
        run: &RunInProgress<'_>,
        next: &Next<'_>,
        outgoing: &dyn Outgoing,
        exchange: Exchange,
    ) -> Result<Progress, DatabaseError> {
        let record = run.record_of(next.action);
        let attempts = record.attempts + 1;
        let max_attempts = max_attempts(&exchange.retries);
        let verdict = match exchange.is_renewed {
            true => Verdict::refused_token(UNAUTHORIZED),
            false => judge(outgoing, &exchange.answered, attempts, max_attempts),
        };
        metrics::ACTION_DURATION.record([verdict.label()], exchange.took);
        let body = exchange.answered.ok().map(|response| response.body);
        let answer = |end, status| Answer {
            attempt: exchange.attempt,
            end,
            status,
            sealed: None,
        };
        match verdict {
            Verdict::Done { branch, status } => {
                let answer = answer(AttemptEnd::Answered, Some(status));
                self.done(run, next, (answer, body), branch).await
            }
            Verdict::Fail {
                reason,
                status,
                end,
            } => {
                let left = end.left_unanswered(record.unanswered + 1);
                let answered = Some((answer(end, status), body));
                self.fail_action(run, next, outgoing, reason, answered, left)
                    .await
            }
            Verdict::Retry {
                error,
                status,
                after,
                end,
            } => {
                let first = exchange.retries.first_pause.unwrap_or(self.timeouts.retry);
                let pause = pause_between(after, first, attempts);
                let change = Change::Retry {
                    answer: answer(end, status),
                    error,
                    pause,
                };
                self.tell_of_trouble(run, outgoing.account(), &change);
                let then = Then::Release(pause, None);
                self.pause(run, run.key(next), change, then).await
            }
        }
    }

    /// Says in the log that an account could not be used, once a minute for each.
    fn tell_of_trouble(&self, run: &RunInProgress<'_>, account: &str, change: &Change) {
        let Change::Retry { error, pause, .. } = change else {
            return;
        };
        let workspace = run.turn.workspace;
        let key = (workspace, account.to_owned());
        if self.told.get(&key).is_none() {
            self.told.insert(key, ());
            let seconds = pause.as_secs();
            tracing::warn!(workspace_id = %workspace, account, %error, seconds,
                "an action is tried again later");
        }
    }

    /// The action succeeded: continue with the next one. Its answer is kept if somebody may use it.
    async fn done(
        &self,
        run: &RunInProgress<'_>,
        next: &Next<'_>,
        (answer, body): (Answer, Option<Vec<u8>>),
        branch: Option<Branch>,
    ) -> Result<Progress, DatabaseError> {
        let id = &next.action.id;
        let body = body.filter(|_| next.part_of.is_some() || run.release.uses_answer_of(id));
        let sealed = body.as_deref();
        let sealed = sealed.and_then(|body| self.seal_answer(run, id, body));
        let record = ActionRecord {
            answer: body,
            status: answer.status,
            ..ActionRecord::done(branch)
        };
        let change = Change::Answered {
            answer: Answer { sealed, ..answer },
            branch,
        };
        self.go_on(run, run.key(next), change, record).await
    }

    /// The action can't be sent, for this reason.
    async fn refuse(
        &self,
        run: &RunInProgress<'_>,
        next: &Next<'_>,
        outgoing: &dyn Outgoing,
        reason: String,
    ) -> Result<Progress, DatabaseError> {
        let unanswered = run.record_of(next.action).unanswered;
        self.fail_action(run, next, outgoing, reason, None, unanswered)
            .await
    }

    /// The action has failed, with this answer if there was one. The model that has called it is
    /// told, and may try something else; but not if what it has called may have been done
    /// (`unanswered` attempts): it would be done twice.
    async fn fail_action(
        &self,
        run: &RunInProgress<'_>,
        next: &Next<'_>,
        outgoing: &dyn Outgoing,
        reason: String,
        answered: Option<(Answer, Option<Vec<u8>>)>,
        unanswered: i32,
    ) -> Result<Progress, DatabaseError> {
        let id = &next.action.id;
        let may_be_done = unanswered > 0 && !SAFE_METHODS.contains(&outgoing.method());
        let seal = |answer: Answer, body: &Vec<u8>| Answer {
            sealed: self.seal_answer(run, id, body),
            ..answer
        };
        if next.is_tool_call() && !may_be_done {
            let answered = answered.map(|(answer, body)| {
                let body = body.filter(|_| answer.status.is_some());
                match body {
                    Some(body) => (seal(answer, &body), Some(body)),
                    None => (answer, None),
                }
            });
            return self.tell(run, run.key(next), reason, answered).await;
        }
        // The beginning of the answer, for whoever looks why.
        let answered = answered.map(|(answer, body)| match body.map(answers::excerpt) {
            Some(body) => (seal(answer, &body), body),
            None => (answer, Vec::new()),
        });
        self.fail(run, run.key(next), reason, answered).await
    }

    /// The policy or a person denies the action. The model that has called it is told; otherwise
    /// the run ends, but what follows a failure does not make it a denial.
    async fn deny(
        &self,
        run: &RunInProgress<'_>,
        next: &Next<'_>,
        outgoing: &dyn Outgoing,
        decided: Decided,
        reason: &str,
    ) -> Result<Progress, DatabaseError> {
        let unanswered = run.record_of(next.action).unanswered;
        let may_be_done = unanswered > 0 && !SAFE_METHODS.contains(&outgoing.method());
        let is_told = next.is_tool_call() && !may_be_done;
        let failure = Failure {
            reason: reason.to_owned(),
            answer: None,
            is_told,
        };
        let change = Change::Denied(failure, decided);
        let id = &next.action.id;
        if is_told {
            let record = ActionRecord {
                is_done: true,
                state: Some(ActionState::Denied),
                refused: Some(reason.to_owned()),
                ..ActionRecord::default()
            };
            return self.go_on(run, run.key(next), change, record).await;
        }
        if next.is_tool_call() || run.failing.is_some() {
            let why = format!("{id}: {reason}");
            let failed = (id.clone(), ActionRecord::default());
            let change = Some((run.key(next), change));
            return self.fail_run(run, change, why, failed).await;
        }
        let then = Then::End(End::Denied(reason.to_owned()));
        self.pause(run, run.key(next), change, then).await
    }

    /// Opens a credential, for the moment of its use. A missing key may come back; what was altered
    /// stays so.
    fn open_credential(
        &self,
        run: &RunInProgress<'_>,
        account: &Account,
    ) -> Result<Credential, EgressError> {
        let place = Place::AccountCredential {
            workspace: run.turn.workspace,
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

/// How often an action may be tried.
fn max_attempts(retries: &Retries) -> i32 {
    retries.attempts.unwrap_or(MAX_ATTEMPTS)
}

/// The step of a trace that a request is. Neither its address nor what it carries is told: a
/// stranger may have written it.
fn request_span(run: &RunInProgress<'_>, next: &Next<'_>, outgoing: &dyn Outgoing) -> Option<Span> {
    let method = outgoing.method();
    let mut span = child(SpanKind::Client, method.to_owned(), &run.traceparent()?)?;
    let attempts = run.record_of(next.action).attempts;
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
