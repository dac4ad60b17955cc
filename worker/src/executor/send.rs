//! An action that sends a request, stage by stage: what holds, what exactly is sent and what the
//! policy says of it, whether a person must approve it, the beginning, and the exchange. The first
//! stage that says no ends it; `conclude` says what it comes to.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use letterbox_common::{
    ids::{AccountId, UserId, WorkspaceId},
    sealing::{OpenError, Place},
};
use letterbox_database::DatabaseError;
use letterbox_traces::{Span, SpanKind, child};
use letterbox_workflow::actions::{Outgoing, Request, TIMEOUT};
use uuid::Uuid;

use super::{
    Executor, MARGIN,
    approvals::{Permission, permission},
    plan::Next,
    prepare::{Prepared, Sending},
    record::{Account, Circumstances, Hindrance, Retries},
    run_in_progress::RunInProgress,
    store,
    transition::{Beginning, Change, Decided, Outcome, Then},
    turns::Call,
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
pub(super) const UNAUTHORIZED: u16 = 401;
/// An attempt that has begun.
struct Attempt {
    number: i32,
    /// The idempotency key.
    key: Uuid,
    /// Another run calls the account when this is over.
    call: Call,
}

/// What was sent, and what came back.
pub(super) struct Exchange {
    pub(super) attempt: i32,
    pub(super) took: Duration,
    pub(super) answered: Result<HttpResponse, EgressError>,
    /// Hidden where the answer is told, and dropped then.
    pub(super) credential: Option<Credential>,
    /// The account has refused its token, and gets another one.
    pub(super) is_renewed: bool,
    pub(super) retries: Retries,
}

impl Executor {
    /// What was answered. A worker that stops waits for no answer longer than for most.
    pub(super) async fn answer_in_time(
        &self,
        sending: impl Future<Output = Result<HttpResponse, EgressError>>,
    ) -> Result<HttpResponse, EgressError> {
        let stopped = async {
            self.stop.cancelled().await;
            tokio::time::sleep(TIMEOUT).await;
        };
        tokio::select! {
            answered = sending => answered,
            () = stopped => Err(EgressError::Failed("the worker was stopped".to_owned())),
        }
    }

    /// What comes of an action that sends a request.
    pub(super) async fn send(
        &self,
        run: &RunInProgress<'_>,
        next: &Next<'_>,
        outgoing: &Arc<dyn Outgoing>,
    ) -> Result<Outcome, Hindrance> {
        let sending = Sending {
            executor: self,
            run,
            next,
            outgoing,
            record: run.record_of(next.action),
        };
        sending.stages().await
    }

    /// Opens a credential, for the moment of its use. A missing key may come back; what was altered
    /// stays so.
    pub(super) fn open_credential(
        &self,
        workspace: WorkspaceId,
        user: UserId,
        account: &Account,
    ) -> Result<Credential, EgressError> {
        let place = Place::AccountCredential {
            workspace,
            account: account.id,
            user,
            header: &account.header,
            base_url: &account.base_url,
        };
        let opened = self.keys.open(place, &account.credential_sealed);
        let value = opened.map_err(|error| {
            metrics::UNOPENED_CREDENTIALS.increment(1);
            tracing::error!(account_id = %account.id, %error, "a credential can't be decrypted");
            let reason = format!("the account's credential can't be decrypted: {error}");
            match error {
                OpenError::UnknownKey { .. } => EgressError::NotSent(reason),
                OpenError::Malformed | OpenError::Refused => EgressError::Refused(reason),
            }
        })?;
        Ok(Credential::of(&account.header, &value))
    }
}

impl Sending<'_> {
    async fn stages(&self) -> Result<Outcome, Hindrance> {
        // It failed, which was answered only after another worker had taken the run.
        if let Some(reason) = &self.record.failed {
            let why = format!("{}: {reason}", self.next.action.id);
            return Ok(Outcome::Fail(None, why));
        }

        // What holds now. What is to be sent from a held workspace waits until it is released.
        let circumstances = self.circumstances().await?;
        if circumstances.is_held {
            return Ok(Outcome::let_go());
        }

        // What calls an account that waits for a token, or for its owner, waits in its lane.
        if let Some(account) = circumstances.account.as_ref().filter(|one| one.waits) {
            let then = Then::Release(Duration::ZERO, Some(account.id));
            return Ok(Outcome::Leave(None, then));
        }

        // The account, the exact request, and what the policy says of it.
        let retries = circumstances.retries;
        let Prepared {
            account,
            request,
            decided,
        } = match self.prepare(circumstances).await {
            Ok(prepared) => prepared,
            Err(Hindrance::Lasting(reason)) => {
                return Ok(self.fail(reason, None, self.record.unanswered));
            }
            Err(hindrance) => return Err(hindrance),
        };

        // The permission of a person, if the policy wants that.
        let decision = decided.ruling.decision;
        let limit = self.executor.timeouts.approval;
        match permission(decision, self.record.approval, limit) {
            Permission::Granted => {}
            Permission::Awaited(limit) => {
                self.run.place.recorded().await;
                self.count_request(&decided);
                let change = Change::AwaitsApproval(decided);
                return Ok(self.leave(change, Then::AwaitApproval(limit)));
            }
            Permission::Denied(reason) => return Ok(self.deny(decided, reason)),
        }

        // The beginning: recorded before the request leaves, so that after a crash its outcome is
        // known to be unknown.
        let attempt = match self.begin(account.id, decided).await? {
            Ok(attempt) => attempt,
            Err(outcome) => return Ok(outcome),
        };

        // The exchange, and what came of it.
        let exchange = self.exchange(&account, &request, attempt, retries);
        let exchange = exchange.await?;
        Ok(self.conclude(exchange))
    }

    /// What holds for an action that calls this account.
    async fn circumstances(&self) -> Result<Circumstances, DatabaseError> {
        let known = &self.run.circumstances;
        let account = self.outgoing.account();
        let is_of_account = known
            .account
            .as_ref()
            .is_some_and(|known| known.name == account);
        if is_of_account && known.since.elapsed() < CIRCUMSTANCES_LAST {
            return Ok(known.clone());
        }
        let workspace = self.run.turn.workspace;
        let owner = self.run.owner;
        let database = &self.executor.database;
        self.run.place.recorded().await;
        let ask = || store::load::circumstances(database, workspace, owner, account);
        self.executor.persist(ask).await
    }

    /// Begins an attempt, and waits for room of its account; or says what becomes of the run,
    /// because nothing may be sent now.
    async fn begin(
        &self,
        account: AccountId,
        decided: Decided,
    ) -> Result<Result<Attempt, Outcome>, DatabaseError> {
        let leave = |then| Ok(Err(Outcome::Leave(None, then)));
        if self.executor.stop.is_cancelled() {
            return leave(Then::let_go());
        }
        // A run may be taken before its retry is due.
        if let Some(pause) = self.record.retry_in {
            return leave(Then::Release(pause, None));
        }
        // A run is taken to call one account.
        let then = Then::Release(Duration::ZERO, Some(account));
        if self.run.account != Some(account) {
            return leave(then);
        }
        let beginning = Arc::new(Beginning {
            turn: self.run.turn,
            action: self.run.key(self.next),
            account,
            decided,
            timeout: self.outgoing.timeout(),
            was_asked: self.record.approval.is_some(),
            before: self.run.unwritten.lock().take(),
        });
        let has_failed = AtomicBool::new(false);
        let begin = || async {
            let since = Instant::now();
            let again = has_failed.swap(true, Ordering::Relaxed);
            if let Some(begun) = self.run.place.begun(&beginning).await {
                return Ok((since, begun));
            }
            let beginnings = &self.executor.batches.beginnings;
            Ok((since, beginnings.ask(&beginning, again).await?))
        };
        let (since, begun) = self.executor.persist(begin).await?;
        self.count_request(&beginning.decided);
        let number = beginning.attempt();
        // Without a key something does not hold any more, and the next turn sees what.
        let Some(key) = begun else {
            return leave(Then::let_go());
        };
        // It may have been taken before there was room. A process that was paused meanwhile may
        // have lost its turn to another one.
        let call = self.run.place.call().await;
        let is_stopped = self.executor.stop.is_cancelled();
        let call = call.filter(|_| !is_stopped && since.elapsed() < MARGIN);
        let attempt = call.map(|call| Attempt { number, key, call });
        Ok(attempt.ok_or_else(|| self.leave(Change::Withdrawn(number), then)))
    }

    /// Counts a request that is recorded now.
    fn count_request(&self, decided: &Decided) {
        if self.record.request.is_none() {
            self.executor.count(self.run, decided.request.len());
        }
    }

    /// Sends the request, and looks whether its token was refused.
    async fn exchange(
        &self,
        account: &Account,
        request: &Request,
        attempt: Attempt,
        retries: Retries,
    ) -> Result<Exchange, DatabaseError> {
        let asked = Instant::now();
        let workspace = self.run.turn.workspace;
        let executor = self.executor;
        let opened = executor.open_credential(workspace, self.run.owner, account);
        let (answered, credential) = match opened {
            Ok(credential) => {
                let answered = self.send(request, &credential, attempt.key).await;
                (answered, Some(credential))
            }
            Err(error) => (Err(error), None),
        };
        let took = asked.elapsed();
        attempt.call.end(answered.is_ok());
        let is_renewed = self.is_renewed(account, &answered, &retries);
        Ok(Exchange {
            attempt: attempt.number,
            took,
            is_renewed: is_renewed.await?,
            answered,
            credential,
            retries,
        })
    }

    async fn send(
        &self,
        request: &Request,
        credential: &Credential,
        key: Uuid,
    ) -> Result<HttpResponse, EgressError> {
        let mut span = self.span();
        let traceparent = span.as_ref().map(Span::traceparent);
        let egress = &self.executor.egress;
        let timeout = self.outgoing.timeout();
        // One byte more tells that the answer is longer.
        let most = self.outgoing.reading().max + 1;
        let sending = egress.send(request, credential, key, timeout, most, traceparent);
        let answered = self.executor.answer_in_time(sending).await;
        note_answer(&mut span, &answered);
        answered
    }

    /// Whether the account has refused its token, and gets another one: once, until it answers
    /// something else, unless the token was to be renewed by then.
    async fn is_renewed(
        &self,
        account: &Account,
        answered: &Result<HttpResponse, EgressError>,
        retries: &Retries,
    ) -> Result<bool, DatabaseError> {
        let executor = self.executor;
        let record = self.record;
        let is_refused = answered
            .as_ref()
            .is_ok_and(|one| one.status == UNAUTHORIZED);
        let is_again = record.attempts > 0 && record.status == Some(UNAUTHORIZED);
        // Not without end, whatever its token server gives.
        if !is_refused || is_again && record.attempts + 1 >= max_attempts(retries) {
            return Ok(false);
        }
        let workspace = self.run.turn.workspace;
        let used = &account.credential_sealed;
        let refuse = || refuse_token(&executor.database, workspace, account.id, used, is_again);
        Ok(executor.persist(refuse).await?.0)
    }

    /// The step of a trace that a request is. Neither its address nor what it carries is told: a
    /// stranger may have written it.
    fn span(&self) -> Option<Span> {
        let method = self.outgoing.method();
        let parent = self.run.traceparent()?;
        let mut span = child(SpanKind::Client, method.to_owned(), &parent)?;
        span.set("http.request.method", method.to_owned());
        let attempts = i64::from(self.record.attempts);
        span.set("http.request.resend_count", attempts);
        span.set("letterbox.action_id", self.next.action.id.clone());
        span.set("letterbox.account", self.outgoing.account().to_owned());
        Some(span)
    }
}

/// How often an action may be tried.
pub(super) fn max_attempts(retries: &Retries) -> i32 {
    retries.attempts.unwrap_or(MAX_ATTEMPTS)
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
