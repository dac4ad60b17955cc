//! Rehearsals: what a submission to a draft would lead to, without sending anything.

use jiff::SignedDuration;
use letterbox_workflow::{
    Decision, Definition, Policy, Problem,
    actions::Branch,
    rehearsal::{self, Rehearsed, RehearsedAction as Reached},
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use url::Url;

use crate::{AccountRow, Operator, Reason, Result, WorkflowDetail};

/// Rehearsals at once: each may compute for seconds, also when nobody waits for it any more.
static AT_ONCE: Semaphore = Semaphore::const_new(2);

/// What a run would come to at an action.
#[derive(Debug, Clone)]
pub struct RehearsedAction {
    /// The id of the action.
    pub action_id: String,
    /// What would be done, in words.
    pub told: String,
    /// The request as a run would record it, with the name of its account; `None` if it sends none
    /// or it isn't known yet.
    pub request: Option<Value>,
    /// The account, if the policy lets this be sent to it at once.
    sent_to: Option<String>,
}

impl RehearsedAction {
    /// The action and the account to which it may be sent at once.
    pub fn sendable(&self) -> Option<(&str, &str)> {
        Some((&self.action_id, self.sent_to.as_deref()?))
    }
}

impl Operator {
    /// Rehearses what a submission of these answers, the JSON text of an object, would lead to by
    /// the draft of a workflow, as its owner and by the policy that holds now, at a time.
    ///
    /// # Errors
    /// When the draft has mistakes.
    pub async fn rehearse(
        &self,
        workflow: &WorkflowDetail,
        answers: &str,
        received_at: &str,
    ) -> Result<Vec<RehearsedAction>> {
        let workspace = workflow.row.workspace_id;
        let mut accounts = self.accounts(workspace).await?;
        let owner = workflow.row.owner_id;
        accounts.retain(|one| one.user_id == owner && one.disconnected_at.is_none());
        let policy = self.policy(workspace).await?.policy.to_string();
        let draft = workflow.text.clone().unwrap_or_default();
        let (answers, received_at) = (answers.to_owned(), received_at.to_owned());
        let share = AT_ONCE.acquire().await;
        let rehearsed = tokio::task::spawn_blocking(move || {
            let _share = share;
            rehearse(&draft, &answers, &received_at, &policy, &accounts)
        });
        // The panic is logged where it happens.
        let failed = |_| unrehearsed("their templates can't be evaluated: simplify them");
        rehearsed.await.map_err(failed)?
    }
}

fn rehearse(
    draft: &str,
    answers: &str,
    received_at: &str,
    policy: &str,
    accounts: &[AccountRow],
) -> Result<Vec<RehearsedAction>> {
    let definition = Definition::check(draft).map_err(Reason::InvalidDefinition)?;
    let policy = Policy::parse(policy).map_err(Reason::InvalidPolicy)?;
    let account = |name: &str| {
        let account = accounts.iter().find(|one| one.name == name)?;
        Url::parse(&account.base_url).ok()
    };
    let rehearsed = rehearsal::rehearse(&definition, answers, received_at, account, &policy);
    let rehearsed = rehearsed.map_err(|error| unrehearsed(&format!("these answers: {error}")))?;
    Ok(rehearsed.into_iter().map(told).collect())
}

/// What keeps a definition without mistakes from being rehearsed.
fn unrehearsed(why: &str) -> Reason {
    Reason::InvalidDefinition(vec![Problem {
        path: "actions".to_owned(),
        message: why.to_owned(),
    }])
}

fn decided(decision: Decision) -> &'static str {
    match decision {
        Decision::Allow => "This is sent",
        Decision::Approve => "A person is asked first, and then this is sent",
        Decision::Deny => "The policy refuses this, and the run ends",
    }
}

fn told(reached: Reached<'_>) -> RehearsedAction {
    let account = reached.action.account().unwrap_or_default();
    let (mut request, mut sent_to) = (None, None);
    let told = match reached.rehearsed {
        Rehearsed::Send(sent, decision) => {
            let mut shown = json!(sent);
            shown["account"] = account.into();
            request = Some(shown);
            sent_to = (decision == Decision::Allow).then(|| account.to_owned());
            format!("{}:", decided(decision))
        }
        Rehearsed::SendUnshown(decision) => {
            format!(
                "{}, but it is too long to be shown with the others.",
                decided(decision)
            )
        }
        Rehearsed::Choose(Branch::Then) => "The condition holds.".to_owned(),
        Rehearsed::Choose(Branch::Else) => "The condition does not hold.".to_owned(),
        Rehearsed::Wait(time) => {
            let time = SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
            format!("The run waits {time:#}.")
        }
        Rehearsed::Fail(reason) => format!("The run fails here: {reason}"),
        Rehearsed::NoAccount => {
            format!("The run fails here: no account {account:?} is connected.")
        }
        Rehearsed::ByAnswer => "It depends on what an account has answered before.".to_owned(),
        Rehearsed::ByModel => "A model decides what is sent.".to_owned(),
    };
    RehearsedAction {
        action_id: reached.action.id.clone(),
        told: match reached.only_if {
            Some((id, Branch::Then)) => format!("If {id} comes out as yes: {told}"),
            Some((id, Branch::Else)) => format!("If {id} comes out as no: {told}"),
            None => told,
        },
        request,
        sent_to,
    }
}
