//! Who belongs to a workspace, and the policy that holds there: its members see both, and its
//! owners change them.

use letterbox_common::{
    ids::{UserId, WorkspaceId},
    states::MemberRole,
};
use letterbox_operator::{AccountRow, Losing, words};
use serde_json::{Value, json};

use super::{Visit, chosen, id, or_refusal, see_list};
use crate::response::{Answered, Trouble, see};

/// Versions of the policy that are shown.
const VERSIONS: u32 = 20;

/// The members of a workspace and its policy.
pub(crate) async fn list(visit: Visit) -> Answered {
    let found = found(&visit).await?;
    Ok(visit.page("people", "People", found))
}

async fn found(visit: &Visit) -> Result<Value, Trouble> {
    let Some(place) = visit.place().await? else {
        return Ok(json!({}));
    };
    let operator = &visit.operator;
    let workspace = place.workspace;
    let policy = operator.policy(workspace).await?;
    let history = operator.policy_history(workspace, VERSIONS).await?;
    let history = history
        .iter()
        .map(|version| json!({ "version": version, "words": words::policy(&version.policy) }));
    Ok(json!({
        "is_owner": place.role == MemberRole::Owner,
        "members": operator.members(workspace).await?,
        "roles": MemberRole::ALL,
        "me": visit.user,
        "notices": operator.notices(workspace).await?,
        "accounts": own_accounts(visit, workspace).await?,
        "policy": policy,
        "words": words::policy(&policy.policy),
        "text": format!("{:#}", policy.policy),
        "history": history.collect::<Vec<_>>(),
        "place": place,
    }))
}

/// The connected accounts of the person.
async fn own_accounts(visit: &Visit, workspace: WorkspaceId) -> Result<Vec<AccountRow>, Trouble> {
    let mut accounts = visit.operator.accounts(workspace).await?;
    accounts.retain(|one| one.user_id == visit.user && one.disconnected_at.is_none());
    Ok(accounts)
}

/// The room again, with what was filled in, and why it was not done.
async fn refusal(visit: &Visit, refused: &str) -> Answered {
    let mut found = found(visit).await?;
    found["refused"] = refused.into();
    Ok(visit.refusal("people", "People", found))
}

/// Adds a member.
pub(crate) async fn invite(visit: Visit) -> Answered {
    let workspace: WorkspaceId = id(visit.given("workspace")?)?;
    let email = visit.given("email")?;
    let role: MemberRole = chosen(visit.given("role")?)?;
    // A new user's name is their e-mail address until they set one.
    let invited = visit.operator.invite(workspace, email, email, role).await;
    match or_refusal(invited)? {
        Ok(_) => Ok(see_list("people", workspace)),
        Err(refused) => refusal(&visit, &refused).await,
    }
}

/// Changes a member's role, takes their rights or gives them back, or removes them. What ends with
/// that is shown before.
pub(crate) async fn change(visit: Visit) -> Answered {
    let workspace: WorkspaceId = id(visit.given("workspace")?)?;
    let user: UserId = id(visit.given("user")?)?;
    let role: MemberRole = chosen(visit.given("role")?)?;
    let how = visit.given("how")?;
    let operator = &visit.operator;
    let keeps_links = how == "set" && role != MemberRole::Viewer;
    if !keeps_links && visit.asked.form.get("sure").is_none() {
        let members = operator.members(workspace).await?;
        let member = members.iter().find(|one| one.user_id == user);
        let found = json!({
            "workspace": workspace,
            "member": member.ok_or(Trouble::NotFound)?,
            "role": role,
            "how": how,
            "ends": operator.live_links(Losing::Member(workspace, user)).await?,
        });
        return Ok(visit.page("member", "Member", found));
    }
    let done = match how {
        "set" => operator.set_member(workspace, user, role, false).await,
        "deactivate" => operator.set_member(workspace, user, role, true).await,
        "remove" => operator.remove_member(workspace, user).await,
        _ => return Err(Trouble::Unreadable),
    };
    done?;
    Ok(see_list("people", workspace))
}

/// The person's name, as others see it.
pub(crate) async fn me(visit: Visit) -> Answered {
    let found = json!({ "me": visit.operator.person() });
    Ok(visit.page("me", "You", found))
}

/// Says what the person is called.
pub(crate) async fn call_me(visit: Visit) -> Answered {
    visit.operator.call_me(visit.given("name")?).await?;
    Ok(see("/me"))
}

/// Sets the policy, or only says what it would change.
pub(crate) async fn policy(visit: Visit) -> Answered {
    let workspace: WorkspaceId = id(visit.given("workspace")?)?;
    let operator = &visit.operator;
    let text = visit.given("policy")?;
    if visit.given("how")? == "set" {
        let version = visit
            .given("version")?
            .parse()
            .map_err(|_| Trouble::Unreadable)?;
        let setting = operator
            .replace_policy(workspace, text, Some(version))
            .await;
        return match or_refusal(setting)? {
            Ok(_) => Ok(see_list("people", workspace)),
            Err(refused) => refusal(&visit, &refused).await,
        };
    }
    match or_refusal(operator.preview_policy(workspace, text).await)? {
        Ok(change) => {
            let mut found = found(&visit).await?;
            found["change"] = json!(change);
            Ok(visit.page("people", "People", found))
        }
        Err(refused) => refusal(&visit, &refused).await,
    }
}

/// Sets who gets notifications.
pub(crate) async fn notices(visit: Visit) -> Answered {
    let workspace: WorkspaceId = id(visit.given("workspace")?)?;
    let operator = &visit.operator;
    let form = &visit.asked.form;
    let by_email = form.get("by_email").is_some();
    // Another owner's choice stays unless it is changed here.
    let account = match form.get("account") {
        Some("unchanged") => None,
        account => Some(account.map(id).transpose()?),
    };
    operator.notify(workspace, Some(by_email), account).await?;
    Ok(see_list("people", workspace))
}
