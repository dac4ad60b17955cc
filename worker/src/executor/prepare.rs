//! What is decided about a request before it is sent: by which account, what exactly, and what the
//! policy says of it.

use std::sync::Arc;

use letterbox_common::{ids::AccountId, json_object::text_of, states::RefusedReason};
use letterbox_workflow::{
    ActionFacts, account,
    actions::{MAX_STORED, Outgoing, Request},
};
use serde::{Deserialize, Serialize};
use url::Url;

use super::{
    Executor,
    plan::Next,
    record::{Account, ActionRecord, Circumstances, Hindrance},
    run_in_progress::RunInProgress,
    transition::Decided,
};

/// An action that sends a request, while it is in hand.
pub(super) struct Sending<'s> {
    pub(super) executor: &'s Executor,
    pub(super) run: &'s RunInProgress<'s>,
    pub(super) next: &'s Next<'s>,
    pub(super) outgoing: &'s Arc<dyn Outgoing>,
    pub(super) record: &'s ActionRecord,
}

/// A rendered request and the account that sends it. Recorded, shown to whoever approves it, and
/// used by every attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RenderedRequest {
    account_id: AccountId,
    account: String,
    #[serde(flatten)]
    request: Request,
}

/// Everything that is decided about an action before it is sent.
pub(super) struct Prepared {
    pub(super) account: Account,
    pub(super) request: Request,
    /// With what is recorded and shown of the request.
    pub(super) decided: Decided,
}

impl Sending<'_> {
    /// The account, the request and the policy's ruling; or why the action fails.
    pub(super) async fn prepare(&self, now: Circumstances) -> Result<Prepared, Hindrance> {
        let parsed = &self.executor.parsed;
        let workspace = self.run.turn.workspace;
        let place = Some(self.run.place);
        let policy = || parsed.policy(workspace, now.policy_version, place);
        let policy = self.executor.persist(policy).await??;
        if !now.owner_may_run {
            return Err(RefusedReason::OwnerCannotRun.to_string().into());
        }
        let name = self.outgoing.account();
        let account = now.account;
        let account =
            account.ok_or_else(|| format!("the owner has no connected account {name:?}"))?;
        check_fits(&**self.outgoing, &account)?;
        let (rendered, shown) = self.requests(&account).await?;
        let is_new = self.record.request.is_none();
        // The request, and the longest answer to it.
        let shown = text_of(&shown);
        let at_most = shown.len() + self.outgoing.reading().max;
        if is_new && !self.run.has_room_for(at_most) {
            let megabytes = MAX_STORED >> 20;
            return Err(format!("the run would store more than {megabytes} MiB").into());
        }
        let url = rendered.request.url.parse::<Url>();
        let url = url.map_err(|_| "the recorded request has no valid URL".to_owned())?;
        let ruling = policy.decide(&ActionFacts {
            host: url.host_str().unwrap_or_default(),
            action: self.next.action.kind.name,
            account: name,
            method: &rendered.request.method,
            taint: self.next.taint,
        });
        Ok(Prepared {
            account,
            request: rendered.request,
            decided: Decided {
                ruling,
                policy_version: now.policy_version,
                request: shown,
            },
        })
    }

    /// What is sent, and what is recorded and shown of it.
    async fn requests(
        &self,
        account: &Account,
    ) -> Result<(RenderedRequest, RenderedRequest), Hindrance> {
        let Some(recorded) = &self.record.request else {
            let (rendered, shown) = self.render(account).await?;
            return Ok((rendered.clone(), shown.unwrap_or(rendered)));
        };
        let recorded = recorded_request(recorded, account, self.outgoing.account())?;
        // Rendered once: later attempts send what was recorded.
        let Some(request) = self.outgoing.shown(&recorded.request) else {
            return Ok((recorded.clone(), recorded));
        };
        // Recorded is what is shown of it (once it was more): what is sent must look like that.
        let (rendered, shown) = self.render(account).await?;
        if shown.is_none_or(|shown| shown.request != request) {
            let reason = "the request is not the one that was recorded";
            return Err(reason.to_owned().into());
        }
        Ok((rendered, recorded))
    }

    /// The request, and what is shown of it where that is another.
    async fn render(
        &self,
        account: &Account,
    ) -> Result<(RenderedRequest, Option<RenderedRequest>), Hindrance> {
        let next = self.next;
        let values = self.executor.values(self.run, &next.action.references);
        let values = values.await?;
        let context = match &next.arguments {
            Some(arguments) => arguments.with(&values.context),
            None => values.context.clone(),
        };
        let base_url = base_url(account)?;
        let rendering = Arc::clone(self.outgoing);
        let rendered = move || rendering.render(&base_url, &context.renderer());
        let request = self.run.evaluate(next.action, rendered).await?;
        let request = with_sender(request, account);
        let shown = self.outgoing.shown(&request);
        let by_account = |request| RenderedRequest {
            account_id: account.id,
            account: self.outgoing.account().to_owned(),
            request,
        };
        Ok((by_account(request), shown.map(by_account)))
    }
}

/// Refuses an account that an action can't call.
pub(super) fn check_fits(outgoing: &dyn Outgoing, account: &Account) -> Result<(), String> {
    let Account { name, header, .. } = account;
    match (outgoing.is_mail(), account.sender.is_some()) {
        (false, true) => {
            let why = "sends e-mail and nothing else: only email.send can call it";
            Err(format!("the account {name:?} {why}"))
        }
        (true, false) => {
            let why = "is no mail server: email.send can't call it";
            Err(format!("the account {name:?} {why}"))
        }
        _ if outgoing.sets_header(header) => {
            Err(format!("the header {header:?} is reserved for the account"))
        }
        _ => Ok(()),
    }
}

/// A request as its account sends it: an e-mail says from whom it is.
pub(super) fn with_sender(mut request: Request, account: &Account) -> Request {
    if let Some(sender) = &account.sender {
        let from = ("From".to_owned(), sender.clone());
        request.headers.insert(0, from);
    }
    request
}

/// The request as it was rendered for an earlier attempt or an approval.
fn recorded_request(
    recorded: &str,
    account: &Account,
    name: &str,
) -> Result<RenderedRequest, String> {
    let rendered: RenderedRequest = serde_json::from_str(recorded)
        .map_err(|error| format!("the recorded request can't be read: {error}"))?;
    if rendered.account_id != account.id {
        return Err(format!(
            "the account {name:?} was replaced after the request was rendered"
        ));
    }
    if !rendered.request.is_below(&base_url(account)?) {
        return Err(format!(
            "the recorded request does not go to the account {name:?}"
        ));
    }
    Ok(rendered)
}

/// Where the requests to an account go, if they may go there: people may write its row.
pub(super) fn base_url(account: &Account) -> Result<Url, String> {
    let parsed = account.base_url.parse();
    let url = parsed.map_err(|_| "the account's base URL is invalid".to_owned())?;
    account::check_base_url(&url)
        .and_then(|()| account::check_header(&account.header))
        .and_then(|()| account::check_sender(&url, account.sender.as_deref()))
        .map_err(|error| format!("the account {:?}: {error}", account.name))?;
    Ok(url)
}
