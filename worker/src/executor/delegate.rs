//! An agent, part by part: each question to its model, and each call that the model answers with,
//! is an action of its own, under the same policy, approval and keys as any other. What comes next
//! follows from the parts that are recorded.

use std::{sync::Arc, time::Duration};

use letterbox_common::states::ActionState;
use letterbox_workflow::actions::{
    AGENT, Action, Agent, AgentPart, Branches, PartOutcome, Step, TOOL_CALL,
};
use serde_json::json;

use super::{
    Executor,
    plan::Next,
    record::{ActionKey, ActionRecord, Answer, Change, Failure, Hindrance, Outcome},
    run_in_progress::RunInProgress,
};

/// How long an agent may take, with all waiting for people.
const MAX_TIME: Duration = Duration::from_secs(30 * 24 * 3_600);

impl Executor {
    /// Does the next part of an agent, or ends it.
    pub(super) async fn delegate(
        &self,
        run: &RunInProgress<'_>,
        next: &Next<'_>,
        agent: &Arc<Agent>,
    ) -> Result<Outcome, Hindrance> {
        let id = &next.action.id;
        let Some(begun) = run.records.get(id) else {
            // Its own record comes before those of its parts.
            let record = ActionRecord::default();
            return Ok(Outcome::GoOn(run.key(next), Change::Opened, record));
        };
        if begun.age > MAX_TIME {
            let reason = "it has taken more than 30 days".to_owned();
            return Err(reason.into());
        }
        let part_id = |number: usize| format!("{id}/{number}");
        let parts = (1..).map_while(|number| {
            let part = run.records.get(&part_id(number));
            part.filter(|part| part.is_done)
        });
        let over: Vec<_> = parts.map(ActionRecord::part_outcome).collect();
        let number = over.len() + 1;
        let part = |kind, outgoing: &Arc<_>| Action {
            id: part_id(number),
            kind,
            step: Step::Send(Arc::clone(outgoing)),
            branches: Branches::default(),
            references: outgoing.references(),
            index: number,
        };

        match agent.next(&over) {
            AgentPart::Ask(outgoing) => {
                let part = part(AGENT, &outgoing);
                let next = Next {
                    action: &part,
                    taint: next.taint.of_question(number == 1),
                    part_of: Some(id),
                    arguments: None,
                };
                self.send(run, &next, &outgoing).await
            }
            AgentPart::Call {
                outgoing,
                arguments,
            } => {
                let part = part(TOOL_CALL, &outgoing);
                let next = Next {
                    action: &part,
                    taint: next.taint.of_tool_call(),
                    part_of: Some(id),
                    arguments: Some(arguments),
                };
                self.send(run, &next, &outgoing).await
            }
            AgentPart::Tell(reason) => {
                let part = Action {
                    id: part_id(number),
                    kind: TOOL_CALL,
                    ..next.action.clone()
                };
                let refused = Next {
                    action: &part,
                    taint: next.taint.of_tool_call(),
                    part_of: Some(id),
                    arguments: None,
                };
                Ok(tell(run.key(&refused), reason, None))
            }
            AgentPart::Done(said) => Ok(self.conclude_agent(run, next, &said)),
            AgentPart::Fail(reason) => Err(reason.into()),
        }
    }

    /// An agent is done: what its model said last is its answer.
    fn conclude_agent(&self, run: &RunInProgress<'_>, next: &Next<'_>, said: &str) -> Outcome {
        let id = &next.action.id;
        let answer = json!({ "content": said }).to_string().into_bytes();
        let answer = Some(answer).filter(|_| run.release.uses_answer_of(id));
        let sealed = answer.as_deref();
        let change = Change::Concluded {
            status: 200,
            sealed: sealed.and_then(|answer| self.seal_answer(run, id, answer)),
        };
        let record = ActionRecord {
            answer,
            status: Some(200),
            ..ActionRecord::done(None)
        };
        Outcome::GoOn(run.key(next), change, record)
    }
}

/// A call of an agent failed, with this answer if there was one: its model is told, and the run
/// goes on.
pub(super) fn tell(
    key: ActionKey,
    reason: String,
    answer: Option<(Answer, Option<Vec<u8>>)>,
) -> Outcome {
    let (answer, body) = answer.unzip();
    let body = body.flatten();
    let record = ActionRecord {
        is_done: true,
        status: answer.as_ref().and_then(|answer| answer.status),
        // An answer is an answer: the model is told what it says.
        refused: body.is_none().then(|| reason.clone()),
        answer: body,
        ..ActionRecord::default()
    };
    let failure = Failure {
        reason,
        answer,
        is_told: true,
    };
    Outcome::GoOn(key, Change::Failed(failure), record)
}

impl ActionRecord {
    /// How a part of an agent ended that is over.
    fn part_outcome(&self) -> PartOutcome<'_> {
        match &self.refused {
            Some(reason) if self.state == Some(ActionState::Denied) => PartOutcome::Denied(reason),
            Some(reason) => PartOutcome::Refused(reason),
            None => PartOutcome::Answered {
                status: self.status,
                body: self.answer.as_deref().unwrap_or_default(),
            },
        }
    }
}
