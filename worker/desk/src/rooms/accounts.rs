//! Connected accounts: a person's own, and for an owner of the workspace all of them. Credentials
//! are sealed to the workers: the desk can't open them.

use letterbox_common::{
    ids::{AccountId, WorkspaceId},
    sealing::{SealedColumn, Secret},
};
use letterbox_operator::{AccountSecret, AccountSettings};
use serde_json::{Value, json};
use url::Url;

use super::{Visit, id, or_refusal, refused, see_list};
use crate::{
    oauth,
    response::{Response, Trouble, WithCookie, see},
    session::Cookie,
};

/// The accounts of a workspace.
pub(crate) async fn list(visit: &Visit<'_>) -> Result<Response, Trouble> {
    let found = found(visit).await?;
    Ok(visit.page("accounts", "Accounts", found))
}

async fn found(visit: &Visit<'_>) -> Result<Value, Trouble> {
    let Some(place) = visit.place().await? else {
        return Ok(json!({}));
    };
    let operator = &visit.operator;
    let user = visit.user()?;
    let accounts = operator.accounts(place.workspace).await?;
    let uses = operator.account_uses(place.workspace).await?;
    let answers = operator.last_answers(place.workspace).await?;
    let members = operator.members(place.workspace).await?;
    let grants = operator.grants(place.workspace).await?;
    let connected = accounts.iter().filter(|one| one.disconnected_at.is_none());
    let connected = connected.map(|account| {
        let uses = uses
            .iter()
            .filter(|one| (one.user_id, &one.account) == (account.user_id, &account.name));
        let owner = members.iter().find(|one| one.user_id == account.user_id);
        json!({
            "account": account,
            "is_mine": account.user_id == user,
            "owner": owner.map(|owner| &owner.name),
            "warning": account.warning(),
            "grant": grants.iter().find(|one| one.account_id == account.account_id),
            "uses": uses.collect::<Vec<_>>(),
            "answer": answers.iter().find(|one| one.account_id == account.account_id),
        })
    });
    Ok(json!({
        "may_connect": place.may_run(),
        "callback": format!("{}{}", visit.desk.origin, oauth::CALLBACK),
        "accounts": connected.collect::<Vec<_>>(),
        "place": place,
    }))
}

/// Connects an account of the person.
pub(crate) async fn connect(visit: &Visit<'_>) -> Result<Response, Trouble> {
    let form = &visit.asked.form;
    let workspace: WorkspaceId = id(visit.given("workspace")?)?;
    let Ok(base_url) = visit.given("base_url")?.parse() else {
        return refusal(
            visit,
            "The address is no URL: begin with https:// and a host.",
        )
        .await;
    };
    let account = AccountSettings {
        header: form.get("header").map(str::to_owned),
        ..AccountSettings::of(visit.given("name")?, base_url)
    };
    let secret = secret(visit)?;
    let user = visit.user()?;
    let operator = &visit.operator;
    let keys = operator.recipient(SealedColumn::AccountCredential).await?;
    let connecting = operator.connect_account(&keys, workspace, user, &account, &secret);
    match or_refusal(connecting.await)? {
        Ok(_) => Ok(see_list("accounts", workspace)),
        Err(refused) => refusal(visit, &refused).await,
    }
}

/// Connects an account of the person that gets its tokens by OAuth 2.0.
pub(crate) async fn connect_by_grant(visit: &Visit<'_>) -> Result<Response, Trouble> {
    let form = &visit.asked.form;
    let workspace: WorkspaceId = id(visit.given("workspace")?)?;
    let url = |name| form.get(name).map(Url::parse).transpose();
    let (Ok(Some(base_url)), Ok(Some(token_url)), Ok(authorize_url)) =
        (url("base_url"), url("token_url"), url("authorize_url"))
    else {
        let words = "An address is no URL: begin with https:// and a host.";
        return refusal(visit, words).await;
    };
    let secret = form.get("client_secret").map(str::trim);
    let secret = secret.map(|secret| Secret::new(secret.as_bytes().to_vec()));
    let secret = AccountSecret::Client(secret);
    let account = AccountSettings {
        token_url: Some(token_url),
        authorize_url,
        client_id: Some(visit.given("client_id")?.trim().to_owned()),
        scope: form.get("scope").map(|scope| scope.trim().to_owned()),
        ..AccountSettings::of(visit.given("name")?, base_url)
    };
    let user = visit.user()?;
    let operator = &visit.operator;
    let keys = operator.recipient(SealedColumn::ClientSecret).await?;
    let connecting = operator.connect_account(&keys, workspace, user, &account, &secret);
    match or_refusal(connecting.await)? {
        Ok(connected) if account.authorize_url.is_some() => Ok(see(&format!(
            "/accounts/{}/authorize",
            connected.account_id
        ))),
        Ok(_) => Ok(see_list("accounts", workspace)),
        Err(refused) => refusal(visit, &refused).await,
    }
}

/// Says where the person lets Letterbox in, and has the browser keep what that begins with.
pub(crate) async fn authorize(visit: &Visit<'_>, account: &str) -> Result<Response, Trouble> {
    let (account, grant) = visit.operator.grant(id(account)?).await?;
    let begun = oauth::begin(&grant, &visit.desk.origin);
    let begun = begun
        .ok()
        .flatten()
        .filter(|_| Some(account.user_id) == visit.user().ok());
    let begun = begun.ok_or(Trouble::NotFound)?;
    let cookie = Cookie::Authorize.set(&begun.kept, visit.desk.is_https());
    let back = oauth::way_back(&grant, &visit.desk.origin);
    let found = json!({ "account": account, "grant": grant, "to": begun.to, "back": back });
    let page = visit.page("account_authorize", "Connect", found);
    Ok(page.with_cookie(cookie))
}

/// The callback of the authorization server.
pub(crate) async fn come_back(visit: &Visit<'_>, host: &str) -> Result<Response, Trouble> {
    let query = &visit.asked.query;
    let kept = visit.asked.kept(Cookie::Authorize);
    let begun = oauth::begun(kept, query.get("state"));
    let account = begun.ok_or_else(not_begun)?.account;
    let (account, grant) = visit.operator.grant(account).await?;
    if oauth::host(&grant).as_deref() != Some(host) {
        return Err(not_begun());
    }
    let found = json!({
        "account": account,
        "grant": grant,
        "code": query.get("code"),
        "state": query.get("state"),
    });
    Ok(visit.page("account_authorize", "Connect", found))
}

/// Stores the code of the callback, once.
pub(crate) async fn hand_in(visit: &Visit<'_>) -> Result<Response, Trouble> {
    let kept = visit.asked.kept(Cookie::Authorize);
    let begun = oauth::begun(kept, visit.asked.form.get("state"));
    let begun = begun.ok_or_else(not_begun)?;
    let operator = &visit.operator;
    let (_, grant) = operator.grant(begun.account).await?;
    let back = oauth::way_back(&grant, &visit.desk.origin).ok_or(Trouble::NotFound)?;
    let code = oauth::code(visit.given("code")?, &begun, back);
    let keys = operator.recipient(SealedColumn::Grant).await?;
    let handing = operator.hand_in_code(&keys, begun.account, begun.handed_in, &code);
    let account = handing.await?;
    let forgotten = Cookie::Authorize.set("", visit.desk.is_https());
    Ok(see_list("accounts", account.workspace_id).with_cookie(forgotten))
}

fn not_begun() -> Trouble {
    refused("Nothing was connected: this was not begun in this browser. Begin again in Accounts.")
}

async fn refusal(visit: &Visit<'_>, refused: &str) -> Result<Response, Trouble> {
    let mut found = found(visit).await?;
    found["refused"] = refused.into();
    Ok(visit.refusal("accounts", "Accounts", found))
}

/// The secret of the kind that is given.
fn secret(visit: &Visit<'_>) -> Result<AccountSecret, Trouble> {
    let secret = visit.given("credential")?.trim().as_bytes();
    Ok(match visit.given("kind")? {
        "bearer" => AccountSecret::bearer(secret),
        "client_secret" => AccountSecret::Client(Some(Secret::new(secret.to_vec()))),
        _ => AccountSecret::Credential(Secret::new(secret.to_vec())),
    })
}

/// Gives an account another secret.
pub(crate) async fn rotate(visit: &Visit<'_>, account: &str) -> Result<Response, Trouble> {
    let account: AccountId = id(account)?;
    let operator = &visit.operator;
    let keys = operator.recipient(SealedColumn::AccountCredential).await?;
    let secret = secret(visit)?;
    let rotated = operator.rotate_account(&keys, account, &secret).await?;
    Ok(see_list("accounts", rotated.workspace_id))
}

/// Disconnects an account.
pub(crate) async fn disconnect(visit: &Visit<'_>, account: &str) -> Result<Response, Trouble> {
    visit.need_sure()?;
    let gone = visit.operator.disconnect_account(id(account)?).await?;
    Ok(see_list("accounts", gone.workspace_id))
}
