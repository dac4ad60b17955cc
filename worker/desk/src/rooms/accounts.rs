//! Connected accounts: those of the person, and for an owner of the workspace all. Credentials are
//! sealed to the workers: the desk can't open what it takes.

use letterbox_common::{
    ids::{AccountId, WorkspaceId},
    sealing::{SealedColumn, Secret},
};
use letterbox_operator::{NewAccount, bearer};
use serde_json::{Value, json};

use super::{Visit, id, or_refusal};
use crate::response::{Response, Trouble, see};

/// The accounts of a workspace.
pub(crate) async fn list(visit: &Visit<'_>) -> Result<Response, Trouble> {
    match found(visit).await? {
        Some(found) => Ok(visit.page("accounts", "Accounts", found)),
        None => Ok(visit.page("accounts", "Accounts", ())),
    }
}

async fn found(visit: &Visit<'_>) -> Result<Option<Value>, Trouble> {
    let Some(place) = visit.place().await? else {
        return Ok(None);
    };
    let (operator, user) = (&visit.operator, visit.user()?);
    let accounts = operator.accounts(place.workspace).await?;
    let uses = operator.account_uses(place.workspace).await?;
    let answers = operator.last_answers(place.workspace).await?;
    let members = operator.members(place.workspace).await?;
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
            "uses": uses.collect::<Vec<_>>(),
            "answer": answers.iter().find(|one| one.account_id == account.account_id),
        })
    });
    Ok(Some(json!({
        "may_connect": place.may_run(),
        "accounts": connected.collect::<Vec<_>>(),
        "place": place,
    })))
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
    let header = form.get("header").unwrap_or("authorization");
    let account = NewAccount {
        workspace,
        user: visit.user()?,
        name: visit.given("name")?.to_owned(),
        base_url,
        header: header.to_owned(),
        credential: credential(visit)?,
    };
    let keys = visit
        .operator
        .recipient(SealedColumn::AccountCredential)
        .await?;
    let connecting = visit.operator.connect_account(&keys, &account).await;
    match or_refusal(connecting)? {
        Ok(_) => Ok(see(&format!("/accounts?workspace={workspace}"))),
        Err(refused) => refusal(visit, &refused).await,
    }
}

/// The room again, with what was filled in but for the credential.
async fn refusal(visit: &Visit<'_>, refused: &str) -> Result<Response, Trouble> {
    let form = &visit.asked.form;
    let mut found = found(visit).await?.unwrap_or_default();
    found["refused"] = refused.into();
    for name in ["name", "base_url", "header"] {
        found[name] = form.get(name).into();
    }
    Ok(visit.refusal("accounts", "Accounts", found))
}

/// The value of the header: a token is sent as the bearer that it is.
fn credential(visit: &Visit<'_>) -> Result<Secret, Trouble> {
    let credential = visit.given("credential")?.trim().as_bytes();
    Ok(match visit.given("kind")? {
        "bearer" => bearer(credential),
        _ => Secret::new(credential.to_vec()),
    })
}

/// Gives an account another credential.
pub(crate) async fn rotate(visit: &Visit<'_>, account: &str) -> Result<Response, Trouble> {
    let account: AccountId = id(account)?;
    let keys = visit
        .operator
        .recipient(SealedColumn::AccountCredential)
        .await?;
    let credential = credential(visit)?;
    let rotating = visit.operator.rotate_account(&keys, account, &credential);
    let rotated = rotating.await?;
    Ok(see(&format!(
        "/accounts?workspace={}",
        rotated.workspace_id
    )))
}

/// Disconnects an account.
pub(crate) async fn disconnect(visit: &Visit<'_>, account: &str) -> Result<Response, Trouble> {
    visit.need_sure()?;
    let gone = visit.operator.disconnect_account(id(account)?).await?;
    Ok(see(&format!("/accounts?workspace={}", gone.workspace_id)))
}
