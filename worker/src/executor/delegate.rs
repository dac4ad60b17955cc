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
    transition::{ActionKey, Change, Failure, Outcome},
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
        let over = parts_over(run, id);
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
                let refused = call_key(run, next, number);
                let failure = Failure::unsent(reason, true);
                return Ok(Outcome::failed(refused, failure));
            }
            AgentPart::Done(said) => return Ok(concluded(run, next, &said)),
            AgentPart::Fail(reason) => return Err(reason.into()),
        };
        let part = Action {
            id: part_id(id, number),
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

fn part_id(agent: &str, number: usize) -> String {
    format!("{agent}/{number}")
}

/// How the parts of an agent ended that are over.
fn parts_over<'r>(run: &'r RunInProgress<'_>, agent: &str) -> Vec<PartOutcome<'r>> {
    let parts = (1..).map_while(|number| {
        let part = run.records.get(&part_id(agent, number));
        part.filter(|part| part.is_done)
    });
    parts.map(ActionRecord::part_outcome).collect()
}

/// A call that an agent's model may not make.
fn call_key(run: &RunInProgress<'_>, agent: &Next<'_>, number: usize) -> ActionKey {
    let call = Action {
        id: part_id(&agent.action.id, number),
        kind: TOOL_CALL,
        ..agent.action.clone()
    };
    run.key(&Next {
        action: &call,
        taint: agent.taint.of_tool_call(),
        part_of: Some(&agent.action.id),
        arguments: None,
    })
}

/// An agent is done: what its model said last is its answer.
fn concluded(run: &RunInProgress<'_>, agent: &Next<'_>, said: &str) -> Outcome {
    let body = json!({ "content": said }).to_string().into_bytes();
    let body = Some(body).filter(|_| run.release.uses_answer_of(&agent.action.id));
    Outcome::GoOn(run.key(agent), Change::Concluded { status: 200, body })
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
