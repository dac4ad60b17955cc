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
    record::{ActionRecord, Hindrance},
    run_in_progress::RunInProgress,
    transition::{Change, Failure, Outcome},
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
            return Ok(Outcome::GoOn(run.key(next), Change::Opened));
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
        let is_first = number == 1;
        let (kind, outgoing, taint, arguments) = match agent.next(&over) {
            AgentPart::Ask(outgoing) => (AGENT, outgoing, next.taint.of_question(is_first), None),
            AgentPart::Call {
                outgoing,
                arguments,
            } => (
                TOOL_CALL,
                outgoing,
                next.taint.of_tool_call(),
                Some(arguments),
            ),
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
                let failure = Failure::unsent(reason, true);
                return Ok(Outcome::failed(run.key(&refused), failure));
            }
            AgentPart::Done(said) => {
                // What its model said last is its answer.
                let body = json!({ "content": said }).to_string().into_bytes();
                let body = Some(body).filter(|_| run.release.uses_answer_of(id));
                let change = Change::Concluded { status: 200, body };
                return Ok(Outcome::GoOn(run.key(next), change));
            }
            AgentPart::Fail(reason) => return Err(reason.into()),
        };
        let part = Action {
            id: part_id(number),
            kind,
            step: Step::Send(Arc::clone(&outgoing)),
            branches: Branches::default(),
            references: outgoing.references(),
            index: number,
        };
        let next = Next {
            action: &part,
            taint,
            part_of: Some(id),
            arguments,
        };
        self.send(run, &next, &outgoing).await
    }
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
