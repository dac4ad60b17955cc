//! Rehearsals: what a submission to a draft would lead to, without sending anything.

use jiff::{SignedDuration, Timestamp};
use letterbox_workflow::{
    ActionFacts, Decision, Definition, Policy,
    actions::{Action, Request},
    rehearsal::{self, Rehearsed},
};
use serde_json::{Value, json};
use url::Url;

use crate::{AccountRow, Operator, OperatorError, Reason, WorkflowDetail};

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
}

impl Operator {
    /// Rehearses what a submission of these answers, the JSON text of an object, would lead to by
    /// the draft of a workflow, as its owner and by the policy that holds now.
    ///
    /// # Errors
    /// When the draft has mistakes.
    pub async fn rehearse(
        &self,
        workflow: &WorkflowDetail,
        answers: String,
    ) -> Result<Vec<RehearsedAction>, OperatorError> {
        let workspace = workflow.row.workspace_id;
        let mut accounts = self.accounts(workspace).await?;
        let owner = workflow.row.owner_id;
        accounts.retain(|one| one.user_id == owner && one.disconnected_at.is_none());
        let policy = self.policy(workspace).await?.policy.to_string();
        let draft = workflow.text.clone().unwrap_or_default();
        // Rendering is bounded, but takes up to a moment for each request.
        let rehearsed =
            tokio::task::spawn_blocking(move || rehearse(&draft, &answers, &policy, &accounts));
        rehearsed
            .await
            .map_err(|_| Reason::InvalidDefinition(Vec::new()))?
    }
}

fn rehearse(
    draft: &str,
    answers: &str,
    policy: &str,
    accounts: &[AccountRow],
) -> Result<Vec<RehearsedAction>, OperatorError> {
    let definition = Definition::check(draft).map_err(Reason::InvalidDefinition)?;
    let policy = Policy::parse(policy).map_err(Reason::InvalidPolicy)?;
    let account = |name: &str| {
        let account = accounts.iter().find(|one| one.name == name)?;
        Url::parse(&account.base_url).ok()
    };
    let now = Timestamp::now().to_string();
    let rehearsed = rehearsal::rehearse(&definition, answers, &now, &account);
    let rehearsed = rehearsed.map_err(|_| Reason::InvalidDefinition(Vec::new()))?;
    let told = |(action, rehearsed): (&Action, Rehearsed)| {
        let (told, request) = match rehearsed {
            Rehearsed::Send(Ok(request), taint) => {
                let url = Url::parse(&request.url).ok();
                let facts = ActionFacts {
                    action: action.kind.name,
                    account: action.account().unwrap_or_default(),
                    method: &request.method,
                    host: url.as_ref().and_then(Url::host_str).unwrap_or_default(),
                    taint,
                };
                let told = match policy.decide(&facts).decision {
                    Decision::Allow => "This is sent:",
                    Decision::Approve => "A person is asked first, and then this is sent:",
                    Decision::Deny => "The policy refuses this:",
                };
                (told.to_owned(), Some(shown(&request, facts.account)))
            }
            Rehearsed::Send(Err(error), _) => (format!("The run fails here: {error}"), None),
            Rehearsed::Choose(branch) => {
                let holds = if branch.as_str() == "then" {
                    "holds"
                } else {
                    "does not hold"
                };
                (format!("The condition {holds}."), None)
            }
            Rehearsed::Wait(time) => {
                let time = SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
                (format!("The run waits {time:#}."), None)
            }
            Rehearsed::Fail(reason) => (format!("The run fails here: {reason}"), None),
            Rehearsed::NoAccount => {
                let name = action.account().unwrap_or_default();
                (
                    format!("The run fails here: no account {name:?} is connected."),
                    None,
                )
            }
            Rehearsed::ByAnswer => {
                let told = "It depends on what an account has answered before.";
                (told.to_owned(), None)
            }
            Rehearsed::ByModel => ("A model decides what is sent.".to_owned(), None),
        };
        RehearsedAction {
            action_id: action.id.clone(),
            told,
            request,
        }
    };
    Ok(rehearsed.into_iter().map(told).collect())
}

/// A request as a run records it.
fn shown(request: &Request, account: &str) -> Value {
    let mut shown = json!(request);
    shown["account"] = account.into();
    shown
}
