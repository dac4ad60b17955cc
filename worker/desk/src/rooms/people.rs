//! Who belongs to a workspace, and who is told of what: its members see it, and its owners change
//! it.

use askama::Template;
use axum::response::IntoResponse;
use jiff::tz::TimeZone;
use letterbox_common::{
    ids::{UserId, WorkspaceId},
    states::MemberRole,
};
use letterbox_operator::{
    AccountRow, Invitation, LiveLink, Losing, Member, Notices, Person, PolicyRow, words,
};

use super::{Nowhere, PageWorkspace, Visit, chosen, id, or_refusal, see_list};
use crate::{
    pages::filters,
    response::{Answered, Trouble, see},
    session::Cookie,
};

#[derive(Template)]
#[template(path = "people.html")]
struct PeoplePage<'v> {
    visit: &'v Visit,
    place: PageWorkspace,
    members: Vec<Member>,
    notices: Notices,
    /// Those of the person.
    accounts: Vec<AccountRow>,
    policy: PolicyRow,
    refused: Option<String>,
}

impl PeoplePage<'_> {
    /// Whether notices go through an account of another owner.
    fn is_of_another_owner(&self) -> bool {
        let is_mine = |account| self.accounts.iter().any(|one| one.account_id == account);
        self.notices
            .account_id
            .is_some_and(|account| !is_mine(account))
    }
}

/// The members of a workspace and its policy.
pub(crate) async fn list(visit: Visit) -> Answered {
    Ok(match visit.place().await? {
        Some(place) => visit.page("People", &found(&visit, place).await?),
        None => visit.page("People", &Nowhere { title: "People" }),
    })
}

async fn found(visit: &Visit, place: PageWorkspace) -> Result<PeoplePage<'_>, Trouble> {
    let operator = &visit.operator;
    let workspace = place.workspace;
    Ok(PeoplePage {
        visit,
        members: operator.members(workspace).await?,
        notices: operator.notices(workspace).await?,
        accounts: own_accounts(visit, workspace).await?,
        policy: operator.policy(workspace).await?,
        refused: None,
        place,
    })
}

/// The connected accounts of the person.
async fn own_accounts(visit: &Visit, workspace: WorkspaceId) -> Result<Vec<AccountRow>, Trouble> {
    let mut accounts = visit.operator.accounts(workspace).await?;
    accounts.retain(|one| one.user_id == visit.user && one.disconnected_at.is_none());
    Ok(accounts)
}

/// The room again, with what was filled in, and why it was not done.
async fn refusal(visit: &Visit, refused: &str) -> Answered {
    let mut found = found(visit, visit.some_place().await?).await?;
    found.refused = Some(refused.to_owned());
    Ok(visit.refusal("People", &found))
}

/// Adds a member.
pub(crate) async fn invite(visit: Visit) -> Answered {
    let workspace: WorkspaceId = id(visit.given("workspace")?)?;
    let email = visit.given("email")?;
    let role: MemberRole = chosen(visit.given("role")?)?;
    // A new user's name is their e-mail address until they set one.
    let invited = visit.operator.invite(workspace, email, email, role).await;
    match or_refusal(invited)? {
        Ok(member) => {
            // Whoever can't sign in by a link of e-mail's own would look in vain.
            let told = match visit.asked.desk.signs_in_by_email {
                true => {
                    visit
                        .operator
                        .send_invitation(workspace, member.user_id)
                        .await
                }
                false => Ok(Invitation::Unsent),
            };
            // They are a member, whatever became of that.
            let told = told.unwrap_or(Invitation::Unsent);
            Ok(see(&format!(
                "/people?workspace={workspace}&invited={told}"
            )))
        }
        Err(refused) => refusal(&visit, &refused).await,
    }
}

#[derive(Template)]
#[template(path = "member.html")]
struct MemberPage<'v> {
    visit: &'v Visit,
    workspace: WorkspaceId,
    member: &'v Member,
    role: MemberRole,
    how: &'v str,
    ends: Vec<LiveLink>,
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
        let page = MemberPage {
            visit: &visit,
            workspace,
            member: member.ok_or(Trouble::NotFound)?,
            role,
            how,
            ends: operator.live_links(Losing::Member(workspace, user)).await?,
        };
        return Ok(visit.page("Member", &page));
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

#[derive(Template)]
#[template(path = "me.html")]
struct MePage<'v> {
    visit: &'v Visit,
    me: &'v Person,
    /// The names of time zones.
    zones: Vec<String>,
    /// The chosen one's.
    zone: String,
}

/// The person's name, as others see it.
pub(crate) async fn me(visit: Visit) -> Answered {
    let me = visit.operator.person().ok_or(Trouble::NotFound)?;
    let zones = jiff::tz::db().available();
    let zones = zones.map(|zone| zone.as_str().to_owned());
    // The others are names of the past, and of machines.
    let zones = zones.filter(|zone| zone.contains('/') && !zone.starts_with("Etc/"));
    let page = MePage {
        visit: &visit,
        me,
        zones: zones.collect(),
        zone: visit.zone.iana_name().unwrap_or_default().to_owned(),
    };
    Ok(visit.page("You", &page))
}

/// Says what the person is called, and in which time zone this browser tells times.
pub(crate) async fn call_me(visit: Visit) -> Answered {
    visit.operator.call_me(visit.given("name")?).await?;
    let zone = Some(visit.filled("zone")).filter(|zone| TimeZone::get(zone).is_ok());
    let kept = Cookie::Zone.set(zone.unwrap_or_default(), visit.asked.desk.is_https());
    Ok((kept, see("/me")).into_response())
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
