//! What an action that sends a request comes to: by what came back, or by what was decided before
//! anything was sent.

use std::time::Duration;

use letterbox_workflow::actions::MAX_ANSWER;

use super::{
    prepare::Sending,
    send::{Exchange, UNAUTHORIZED, max_attempts},
    transition::{Answer, AttemptEnd, Change, Decided, End, Failure, Outcome, Then},
    verdict::{Verdict, judge, pause_between},
};
use crate::{
    egress::{Credential, EgressError},
    metrics,
};

/// The status of a request that conflicts with what is there.
const CONFLICT: u16 = 409;
/// Methods that change nothing.
const SAFE_METHODS: [&str; 2] = ["GET", "HEAD"];

impl Sending<'_> {
    /// Judges what came back.
    pub(super) fn conclude(&self, exchange: Exchange) -> Outcome {
        let attempts = self.record.attempts + 1;
        let verdict = match exchange.is_renewed {
            true => Verdict::refused_token(UNAUTHORIZED),
            false => judge(
                self.outgoing.as_ref(),
                &exchange.answered,
                attempts,
                self.max_attempts(&exchange),
            ),
        };
        metrics::ACTION_DURATION.record([verdict.label()], exchange.took);
        let failed_with = self.failed_with(&verdict, &exchange);
        let answer = |end, status, body| Answer {
            attempt: exchange.attempt,
            end,
            status,
            body,
            failed_with,
        };
        let body = exchange.answered.ok().map(|response| response.body);
        match verdict {
            Verdict::Done { branch, status } => {
                let is_kept = self.next.part_of.is_some() || self.is_used();
                let body = self.kept(body.filter(|_| is_kept));
                let answer = answer(AttemptEnd::Answered, Some(status), body);
                let change = Change::Answered { answer, branch };
                Outcome::GoOn(self.run.key(self.next), change)
            }
            Verdict::Fail {
                reason,
                status,
                end,
            } => {
                let before = self.record.unanswered;
                let reason = explain(reason, status, before);
                let left = end.left_unanswered(before + 1);
                self.fail(reason, Some(answer(end, status, body)), left)
            }
            Verdict::Retry {
                error,
                status,
                after,
                end,
            } => {
                let first = exchange.retries.first_pause;
                let first = first.unwrap_or(self.executor.timeouts.retry);
                let pause = pause_between(after, first, attempts);
                self.tell_of_trouble(&error, pause);
                let change = Change::Retry {
                    answer: answer(end, status, None),
                    error,
                    pause,
                };
                self.leave(change, Then::Release(pause, None))
            }
        }
    }

    /// How often it may be tried. An e-mail that may have been taken is sent again once.
    fn max_attempts(&self, exchange: &Exchange) -> i32 {
        let is_unknown = matches!(exchange.answered, Err(EgressError::Failed(_)));
        match self.outgoing.is_mail() && is_unknown && self.record.unanswered > 0 {
            true => self.record.attempts + 1,
            false => max_attempts(&exchange.retries),
        }
    }

    /// What is told of an answer that is a failure.
    fn failed_with(&self, verdict: &Verdict, exchange: &Exchange) -> Option<String> {
        let response = exchange.answered.as_ref().ok()?;
        if matches!(verdict, Verdict::Done { .. }) {
            return None;
        }
        let secrets = exchange.credential.as_ref().map(Credential::secrets);
        let told = response.beginning(&secrets.unwrap_or_default());
        self.executor.count(self.run, told.len());
        Some(told)
    }

    /// Whether somebody may use the answer.
    fn is_used(&self) -> bool {
        self.run.release.uses_answer_of(&self.next.action.id)
    }

    /// What is kept of an answer, whatever its status.
    fn kept(&self, body: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let is_part = self.next.part_of.is_some();
        let mut kept = self.outgoing.reading().kept(body?, is_part);
        // All parts of an agent are in hand at once.
        if is_part {
            kept.truncate(MAX_ANSWER);
        }
        Some(kept)
    }

    /// Says in the log that an account could not be used, once a minute for each.
    fn tell_of_trouble(&self, error: &str, pause: Duration) {
        let workspace = self.run.turn.workspace;
        let account = self.outgoing.account();
        let key = (workspace, account.to_owned());
        if self.executor.told.get(&key).is_none() {
            self.executor.told.insert(key, ());
            let seconds = pause.as_secs();
            tracing::warn!(workspace_id = %workspace, account, %error, seconds,
                "an action is tried again later");
        }
    }

    /// Whether the model that has called it is told that it failed, and may try something else; but
    /// not if what it has called may have been done (`unanswered` attempts): it would be done
    /// twice.
    fn is_told(&self, unanswered: i32) -> bool {
        let may_be_done = unanswered > 0 && !SAFE_METHODS.contains(&self.outgoing.method());
        self.next.is_tool_call() && !may_be_done
    }

    /// The action has failed, with this answer if there was one.
    pub(super) fn fail(
        &self,
        reason: String,
        mut answer: Option<Answer>,
        unanswered: i32,
    ) -> Outcome {
        let is_told = self.is_told(unanswered);
        if let Some(answer) = &mut answer {
            // What follows a failure may use it, too.
            let is_kept = (is_told || self.is_used()) && answer.status.is_some();
            answer.body = self.kept(answer.body.take().filter(|_| is_kept));
        }
        let failure = Failure {
            reason,
            answer,
            is_told,
        };
        Outcome::failed(self.run.key(self.next), failure)
    }

    /// The policy or a person denies the action. The model that has called it is told; otherwise
    /// the run ends, but what follows a failure does not make it a denial.
    pub(super) fn deny(&self, decided: Decided, reason: &str) -> Outcome {
        let key = self.run.key(self.next);
        let why = format!("{}: {reason}", key.id);
        let is_told = self.is_told(self.record.unanswered);
        let change = Change::Denied(Failure::unsent(reason.to_owned(), is_told), decided);
        if is_told {
            Outcome::GoOn(key, change)
        } else if self.next.is_tool_call() || self.run.failing.is_some() {
            Outcome::Fail(Some((key, change)), why)
        } else {
            self.leave(change, Then::End(End::Denied(reason.to_owned())))
        }
    }

    pub(super) fn leave(&self, change: Change, then: Then) -> Outcome {
        Outcome::Leave(Some((self.run.key(self.next), change)), then)
    }
}

/// Why an action has failed, after so many attempts without an answer: what a request conflicts
/// with may be what one of them has done.
fn explain(reason: String, status: Option<u16>, unanswered: i32) -> String {
    match status {
        Some(CONFLICT) if unanswered > 0 => {
            format!("{reason}; an earlier attempt, which got no answer, may have done it")
        }
        _ => reason,
    }
}
