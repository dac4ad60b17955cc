//! What an action that sends a request comes to: by what came back, or by what was decided before
//! anything was sent.

use std::time::Duration;

use letterbox_common::states::ActionState;
use letterbox_workflow::actions::Branch;

use super::{
    answers,
    delegate::tell,
    record::{ActionRecord, Answer, AttemptEnd, Change, Decided, End, Failure, Outcome, Then},
    send::{Exchange, Sending, UNAUTHORIZED, max_attempts},
    verdict::{Verdict, judge, pause_between},
};
use crate::metrics;

/// Methods that change nothing.
const SAFE_METHODS: [&str; 2] = ["GET", "HEAD"];

impl Sending<'_> {
    /// Judges what came back.
    pub(super) fn conclude(&self, exchange: Exchange) -> Outcome {
        let attempts = self.record.attempts + 1;
        let max_attempts = max_attempts(&exchange.retries);
        let verdict = match exchange.is_renewed {
            true => Verdict::refused_token(UNAUTHORIZED),
            false => judge(
                self.outgoing.as_ref(),
                &exchange.answered,
                attempts,
                max_attempts,
            ),
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
                self.done(answer(AttemptEnd::Answered, Some(status)), body, branch)
            }
            Verdict::Fail {
                reason,
                status,
                end,
            } => {
                let left = end.left_unanswered(self.record.unanswered + 1);
                self.fail(reason, Some((answer(end, status), body)), left)
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
                    answer: answer(end, status),
                    error,
                    pause,
                };
                self.leave(change, Then::Release(pause, None))
            }
        }
    }

    /// Says in the log that an account could not be used, once a minute for each.
    fn tell_of_trouble(&self, error: &str, pause: Duration) {
        let (workspace, account) = (self.run.turn.workspace, self.outgoing.account());
        let key = (workspace, account.to_owned());
        if self.executor.told.get(&key).is_none() {
            self.executor.told.insert(key, ());
            let seconds = pause.as_secs();
            tracing::warn!(workspace_id = %workspace, account, %error, seconds,
                "an action is tried again later");
        }
    }

    /// The action succeeded: continue with the next one. Its answer is kept if somebody may use it.
    fn done(&self, mut answer: Answer, body: Option<Vec<u8>>, branch: Option<Branch>) -> Outcome {
        let (run, id) = (self.run, &self.next.action.id);
        let is_kept = self.next.part_of.is_some() || run.release.uses_answer_of(id);
        let body = body.filter(|_| is_kept);
        let sealed = body.as_deref();
        answer.sealed = sealed.and_then(|body| self.executor.seal_answer(run, id, body));
        let record = ActionRecord {
            answer: body,
            status: answer.status,
            ..ActionRecord::done(branch)
        };
        let change = Change::Answered { answer, branch };
        Outcome::GoOn(run.key(self.next), change, record)
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
        answered: Option<(Answer, Option<Vec<u8>>)>,
        unanswered: i32,
    ) -> Outcome {
        let (run, id) = (self.run, &self.next.action.id);
        let seal = |answer: Answer, body: &Vec<u8>| Answer {
            sealed: self.executor.seal_answer(run, id, body),
            ..answer
        };
        if self.is_told(unanswered) {
            let answered = answered.map(|(answer, body)| {
                let body = body.filter(|_| answer.status.is_some());
                match body {
                    Some(body) => (seal(answer, &body), Some(body)),
                    None => (answer, None),
                }
            });
            return tell(run.key(self.next), reason, answered);
        }
        // The beginning of the answer, for whoever looks why.
        let answered = answered.map(|(answer, body)| match body.map(answers::excerpt) {
            Some(body) => (seal(answer, &body), body),
            None => (answer, Vec::new()),
        });
        Outcome::failed(run.key(self.next), reason, answered)
    }

    /// The policy or a person denies the action. The model that has called it is told; otherwise
    /// the run ends, but what follows a failure does not make it a denial.
    pub(super) fn deny(&self, decided: Decided, reason: &str) -> Outcome {
        let is_told = self.is_told(self.record.unanswered);
        let failure = Failure {
            reason: reason.to_owned(),
            answer: None,
            is_told,
        };
        let change = Change::Denied(failure, decided);
        if is_told {
            let record = ActionRecord {
                is_done: true,
                state: Some(ActionState::Denied),
                refused: Some(reason.to_owned()),
                ..ActionRecord::default()
            };
            return Outcome::GoOn(self.run.key(self.next), change, record);
        }
        if self.next.is_tool_call() || self.run.failing.is_some() {
            let id = self.next.action.id.clone();
            return Outcome::Fail {
                change: Some((self.run.key(self.next), change)),
                why: format!("{id}: {reason}"),
                record: (id, ActionRecord::default()),
            };
        }
        self.leave(change, Then::End(End::Denied(reason.to_owned())))
    }

    pub(super) fn leave(&self, change: Change, then: Then) -> Outcome {
        Outcome::Leave(Some((self.run.key(self.next), change)), then)
    }
}
