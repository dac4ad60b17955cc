//! Connected accounts: a person's own, and for an owner of the workspace all of them. Credentials
//! are sealed to the workers: the desk can't open them.

use std::time::Duration;

use askama::Template;
use axum::response::IntoResponse;
use letterbox_common::{
    ids::{AccountId, WorkspaceId},
    sealing::{SealedColumn, Secret},
    states::AccountWait,
};
use letterbox_operator::{
    AccountRow, AccountSecret, AccountSettings, AccountUse, GrantStatus, LastAnswer, Member,
    TrialRow,
};
use url::Url;

use super::{Nowhere, PageWorkspace, To, Visit, id, or_refusal, refused, see_list};
use crate::{
    oauth,
    pages::filters,
    response::{Answered, Trouble, see},
    session::Cookie,
};

/// How long the answer of a trial is awaited: less than a page may take.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Template)]
#[template(path = "accounts.html")]
struct AccountsPage<'v> {
    visit: &'v Visit,
    place: PageWorkspace,
    /// What the addresses of callbacks begin with.
    callback: String,
    accounts: Vec<AccountRow>,
    uses: Vec<AccountUse>,
    answers: Vec<LastAnswer>,
    members: Vec<Member>,
    grants: Vec<GrantStatus>,
    trials: Vec<TrialRow>,
    refused: Option<String>,
}

impl AccountsPage<'_> {
    fn grant(&self, account: &AccountRow) -> Option<&GrantStatus> {
        let mut grants = self.grants.iter();
        grants.find(|one| one.account_id == account.account_id)
    }

    fn trial(&self, account: &AccountRow) -> Option<&TrialRow> {
        let mut trials = self.trials.iter();
        trials.find(|one| one.account_id == account.account_id)
    }

    /// The path that was tried last, or one that could be.
    fn tried_path<'p>(&self, trial: &Option<&'p TrialRow>) -> &'p str {
        trial.and_then(|one| one.path.as_deref()).unwrap_or("/")
    }

    fn answer(&self, account: &AccountRow) -> Option<&LastAnswer> {
        let mut answers = self.answers.iter();
        answers.find(|one| one.account_id == account.account_id)
    }

    fn uses<'p>(&'p self, account: &'p AccountRow) -> impl Iterator<Item = &'p AccountUse> {
        let uses = self.uses.iter();
        uses.filter(|one| (one.user_id, &one.account) == (account.user_id, &account.name))
    }
}

/// The accounts of a workspace.
pub(crate) async fn list(visit: Visit) -> Answered {
    Ok(match visit.place().await? {
        Some(place) => visit.page("Accounts", &found(&visit, place).await?),
        None => visit.page("Accounts", &Nowhere { title: "Accounts" }),
    })
}

async fn found(visit: &Visit, place: PageWorkspace) -> Result<AccountsPage<'_>, Trouble> {
    let operator = &visit.operator;
    let workspace = place.workspace;
    let mut accounts = operator.accounts(workspace).await?;
    accounts.retain(|one| one.disconnected_at.is_none());
    Ok(AccountsPage {
        visit,
        callback: format!("{}{}", visit.asked.desk.origin, oauth::CALLBACK),
        accounts,
        uses: operator.account_uses(workspace).await?,
        answers: operator.last_answers(workspace).await?,
        members: operator.members(workspace).await?,
        grants: operator.grants(workspace).await?,
        trials: operator.trials(workspace).await?,
        refused: None,
        place,
    })
}

/// Connects an account of the person, or one that gets its tokens by OAuth 2.0.
pub(crate) async fn connect(visit: Visit) -> Answered {
    let form = &visit.asked.form;
    let workspace: WorkspaceId = id(visit.given("workspace")?)?;
    let url = |name| form.get(name).map(Url::parse).transpose();
    let (Ok(Some(base_url)), Ok(token_url), Ok(authorize_url)) =
        (url("base_url"), url("token_url"), url("authorize_url"))
    else {
        let words = "An address is no URL: begin with https:// and a host.";
        return refusal(&visit, words).await;
    };
    let text = |name| form.get(name).map(|text| text.trim().to_owned());
    let secret = match token_url {
        None => secret(&visit)?,
        Some(_) => {
            let secret = text("client_secret");
            AccountSecret::Client(secret.map(|secret| Secret::new(secret.into_bytes())))
        }
    };
    let account = AccountSettings {
        header: form.get("header").map(str::to_owned),
        sender: text("sender"),
        token_url,
        authorize_url,
        client_id: text("client_id"),
        scope: text("scope"),
        ..AccountSettings::of(visit.given("name")?, base_url)
    };
    let operator = &visit.operator;
    let keys = operator.recipient(SealedColumn::AccountCredential).await?;
    let connecting = operator.connect_account(&keys, workspace, visit.user, &account, &secret);
    match or_refusal(connecting.await)? {
        Ok(connected) if account.authorize_url.is_some() => Ok(see(&format!(
            "/accounts/{}/authorize",
            connected.account_id
        ))),
        Ok(_) => Ok(see_list("accounts", workspace)),
        Err(refused) => refusal(&visit, &refused).await,
    }
}

#[derive(Template)]
#[template(path = "account_authorize.html")]
struct AuthorizePage<'v> {
    visit: &'v Visit,
    account: AccountRow,
    grant: GrantStatus,
    step: Step,
}

enum Step {
    Begin { to: String, back: String },
    Connect { code: String, state: String },
    Refused,
}

/// Says where the person lets Letterbox in, and has the browser keep what that begins with.
pub(crate) async fn authorize(To(visit, account): To<AccountId>) -> Answered {
    let (account, grant) = visit.operator.grant(account).await?;
    let begun = oauth::begin(&grant, &visit.asked.desk.origin);
    let begun = begun
        .ok()
        .flatten()
        .filter(|_| account.user_id == visit.user);
    let begun = begun.ok_or(Trouble::NotFound)?;
    let back = oauth::way_back(&grant, &visit.asked.desk.origin).ok_or(Trouble::NotFound)?;
    let cookie = Cookie::Authorize.set(&begun.kept, visit.asked.desk.is_https());
    let to = begun.to;
    let page = AuthorizePage {
        visit: &visit,
        account,
        grant,
        step: Step::Begin { to, back },
    };
    let page = visit.page("Connect", &page);
    Ok((cookie, page).into_response())
}

/// The callback of the authorization server.
pub(crate) async fn come_back(To(visit, host): To<String>) -> Answered {
    let query = &visit.asked.query;
    let kept = visit.asked.kept(Cookie::Authorize);
    let begun = oauth::begun(kept, query.get("state"));
    let account = begun.ok_or_else(not_begun)?.account;
    let (account, grant) = visit.operator.grant(account).await?;
    if oauth::host(&grant) != Some(host) {
        return Err(not_begun());
    }
    let step = match (query.get("code"), query.get("state")) {
        (Some(code), Some(state)) => Step::Connect {
            code: code.to_owned(),
            state: state.to_owned(),
        },
        _ => Step::Refused,
    };
    let page = AuthorizePage {
        visit: &visit,
        account,
        grant,
        step,
    };
    Ok(visit.page("Connect", &page))
}

/// Stores the code of the callback, once.
pub(crate) async fn hand_in(visit: Visit) -> Answered {
    let kept = visit.asked.kept(Cookie::Authorize);
    let begun = oauth::begun(kept, visit.asked.form.get("state"));
    let begun = begun.ok_or_else(not_begun)?;
    let operator = &visit.operator;
    let (_, grant) = operator.grant(begun.account).await?;
    let back = oauth::way_back(&grant, &visit.asked.desk.origin).ok_or(Trouble::NotFound)?;
    let code = oauth::code(visit.given("code")?, &begun, back);
    let keys = operator.recipient(SealedColumn::Grant).await?;
    let handing = operator.hand_in_code(&keys, begun.account, begun.handed_in, &code);
    let account = handing.await?;
    let forgotten = Cookie::Authorize.set("", visit.asked.desk.is_https());
    let list = see_list("accounts", account.workspace_id);
    Ok((forgotten, list).into_response())
}

fn not_begun() -> Trouble {
    refused("Nothing was connected: this was not begun in this browser. Begin again in Accounts.")
}

async fn refusal(visit: &Visit, refused: &str) -> Answered {
    let mut found = found(visit, visit.some_place().await?).await?;
    found.refused = Some(refused.to_owned());
    Ok(visit.refusal("Accounts", &found))
}

/// The secret of the kind that is given.
fn secret(visit: &Visit) -> Result<AccountSecret, Trouble> {
    let form = &visit.asked.form;
    let secret = form.get("credential").unwrap_or_default().trim();
    let secret = match form.get("user_name") {
        Some(name) => format!("{}:{secret}", name.trim()),
        None => secret.to_owned(),
    };
    let secret = Secret::new(secret.into_bytes());
    Ok(match visit.given("kind")? {
        "bearer" => AccountSecret::Bearer(secret),
        "basic" => AccountSecret::Basic(secret),
        "none" => AccountSecret::None,
        "client_secret" => AccountSecret::Client(Some(secret)),
        _ => AccountSecret::Credential(secret),
    })
}

/// Gives an account another secret.
pub(crate) async fn rotate(To(visit, account): To<AccountId>) -> Answered {
    let operator = &visit.operator;
    let keys = operator.recipient(SealedColumn::AccountCredential).await?;
    let secret = secret(&visit)?;
    let rotated = operator.rotate_account(&keys, account, &secret).await?;
    Ok(see_list("accounts", rotated.workspace_id))
}

/// Sends a GET to an account. What it answered is then shown with the account.
pub(crate) async fn try_it(To(visit, account): To<AccountId>) -> Answered {
    let path = visit.asked.form.get("path").unwrap_or("/").trim();
    let tried = visit.operator.try_account(account, path, PATIENCE).await?;
    Ok(see_list("accounts", tried.workspace_id))
}

/// Disconnects an account.
pub(crate) async fn disconnect(To(visit, account): To<AccountId>) -> Answered {
    visit.need_sure()?;
    let gone = visit.operator.disconnect_account(account).await?;
    Ok(see_list("accounts", gone.workspace_id))
}
