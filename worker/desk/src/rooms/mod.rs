//! The rooms: each file has the pages of one, and what can be done there.

pub(crate) mod accounts;
pub(crate) mod answers;
mod draft;
mod expression;
pub(crate) mod form_link;
pub(crate) mod forms;
pub(crate) mod history;
pub(crate) mod people;
pub(crate) mod person;
pub(crate) mod policy;
pub(crate) mod preview;
pub(crate) mod questions;
pub(crate) mod rehearsal;
pub(crate) mod runs;
pub(crate) mod sign_in;
pub(crate) mod steps;
pub(crate) mod waiting;
pub(crate) mod webhooks;

use std::{fmt::Display, str::FromStr, sync::Arc};

use askama::Template;
use axum::{
    RequestExt,
    extract::{FromRequest, Path, Request},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use jiff::tz::TimeZone;
use letterbox_common::{
    ids::{UserId, WorkspaceId},
    process::{client_address::ClientAddress, shares::Share},
    states::MemberRole,
};
use letterbox_operator::{Member, Operator, OperatorError, Reason, Workspace};

use crate::{
    desk::Desk,
    pages::{self, Visitor},
    places::Kept,
    request::{Asked, Values},
    response::{Trouble, see, words_of},
    session::{self, Cookie},
};

/// A browser without a session, and its share of requests.
pub(crate) struct Stranger(Asked, Share<ClientAddress>);

impl FromRequest<Arc<Desk>> for Stranger {
    type Rejection = Trouble;

    async fn from_request(request: Request, desk: &Arc<Desk>) -> Result<Self, Trouble> {
        let mut asked = Asked::read(desk, &request)?;
        let share = desk.strangers.take(asked.client).ok_or(Trouble::Busy)?;
        if asked.is_post {
            asked.form = Values::read_short(request).await?;
        }
        Ok(Self(asked, share))
    }
}

/// A person in a room.
pub(crate) struct Visit {
    asked: Asked,
    user: UserId,
    /// In which times are told and given.
    zone: TimeZone,
    /// The token against cross-site requests that the page's forms carry.
    form_token: String,
    /// Carries out the person's orders.
    operator: Operator,
    _place: Kept,
    _share: Share<UserId>,
}

impl FromRequest<Arc<Desk>> for Visit {
    type Rejection = Trouble;

    /// Looks up the person in whose session this is asked. What is posted is read only then, and
    /// must come from a page of the session.
    async fn from_request(request: Request, desk: &Arc<Desk>) -> Result<Self, Trouble> {
        let mut asked = Asked::read(desk, &request)?;
        let session = asked.session.clone();
        let session = session.ok_or_else(|| asked.come_back(&request))?;
        // The session isn't looked up yet.
        let looking_up = desk.lookups.take(asked.client).ok_or(Trouble::Busy)?;
        let operator = asked.operator().await?;
        drop(looking_up);
        let ordered = operator.and_then(|one| Some((one.ordered_by()?, one)));
        let Some((user, mut operator)) = ordered else {
            return Err(hold(asked, request).await);
        };
        let place = asked.place.keep();
        let share = desk.people.take(user).ok_or(Trouble::Busy)?;
        if asked.is_post {
            asked.form = Values::read(request).await?;
            let given = asked.form.get("form_token").unwrap_or_default();
            if !session::is_form_token(&session, given) {
                let token = Some(session::form_token(&session));
                return Err(match asked.form.held() {
                    Some(values) if is_typed(&asked.path) => {
                        Trouble::Held(asked.path, values, token)
                    }
                    _ => Trouble::Forged,
                });
            }
            let reason = asked.form.get("reason").map(str::to_owned);
            operator = operator.ordering(command(&asked.path), reason);
        }
        Ok(Self {
            zone: asked.zone(),
            asked,
            user,
            form_token: session::form_token(&session),
            operator,
            _place: place,
            _share: share,
        })
    }
}

/// Whether a page that posts there is one on which people write. Nothing else is held: who decides
/// about something sees it first.
fn is_typed(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    let of_form = ["forms", "questions", "steps", "deploy"];
    matches!(path, "/me" | "/policy") || path.starts_with("/forms") && of_form.contains(&last)
}

/// Sends a person whose session is over to where one begins; what they have typed is not lost.
async fn hold(asked: Asked, request: Request) -> Trouble {
    let signed_out = asked.come_back(&request);
    if !asked.is_post || !is_typed(&asked.path) {
        return signed_out;
    }
    let Some(_share) = asked.desk.strangers.take(asked.client) else {
        return Trouble::Busy;
    };
    match Values::read_held(request).await {
        Some(values) => Trouble::Held(asked.path, values, None),
        None => signed_out,
    }
}

/// What the audit log calls what was posted: the path without its ids.
fn command(path: &str) -> String {
    let words = path
        .split('/')
        .filter(|word| !word.is_empty() && word.len() < 36);
    let words: Vec<_> = words.collect();
    format!("desk {}", words.join(" "))
}

/// A visit to what the path names, such as a run; what is no id is not found.
pub(crate) struct To<T>(Visit, T);

impl<T: FromStr<Err: Display>> FromRequest<Arc<Desk>> for To<T> {
    type Rejection = Trouble;

    async fn from_request(mut request: Request, desk: &Arc<Desk>) -> Result<Self, Trouble> {
        let named = request.extract_parts::<Path<String>>().await;
        let visit = Visit::from_request(request, desk).await?;
        let Path(named) = named.map_err(|_| Trouble::NotFound)?;
        Ok(Self(visit, id(&named)?))
    }
}

/// What a person may do in a workspace.
#[derive(Clone, Copy)]
struct Rights(MemberRole);

impl Rights {
    fn is_owner(self) -> bool {
        self.0 == MemberRole::Owner
    }

    fn is_editor(self) -> bool {
        matches!(self.0, MemberRole::Owner | MemberRole::Editor)
    }

    fn may_run(self) -> bool {
        self.0 != MemberRole::Viewer
    }
}

/// A workspace in which a person works.
struct PageWorkspace {
    /// All that the person may choose from.
    workspaces: Vec<Workspace>,
    /// The chosen one.
    workspace: WorkspaceId,
    /// The person's rights there.
    rights: Rights,
}

/// The page of a room for a person who is a member of no workspace.
#[derive(Template)]
#[template(path = "nowhere.html")]
struct Nowhere<'p> {
    title: &'p str,
}

impl Visit {
    /// The page of a room.
    fn page(&self, title: &str, room: &impl Template) -> Response {
        let person = self.operator.person();
        let visitor = person.map(|person| Visitor {
            name: &person.name,
            form_token: &self.form_token,
            zone: &self.zone,
        });
        pages::page(visitor, title, room)
    }

    /// The page of a room that says why something was not done, and has what was filled in.
    fn refusal(&self, title: &str, room: &impl Template) -> Response {
        (StatusCode::UNPROCESSABLE_ENTITY, self.page(title, room)).into_response()
    }

    /// What was filled in, for the page that shows it again.
    fn filled(&self, name: &str) -> &str {
        self.asked.form.get(name).unwrap_or_default()
    }

    /// What the person may do in a workspace, which is theirs.
    async fn rights(&self, workspace: WorkspaceId) -> Result<Rights, Trouble> {
        let role = self.operator.role_of(workspace, self.user).await?;
        role.map(Rights).ok_or(Trouble::NotFound)
    }

    /// The workspace that the query or the form names, or the person's first; `None` if they are
    /// a member of none.
    async fn place(&self) -> Result<Option<PageWorkspace>, Trouble> {
        let workspaces = self.operator.workspaces().await?;
        let named = self.asked.query.get("workspace");
        let named = named.or_else(|| self.asked.form.get("workspace"));
        let workspace = match named {
            Some(named) => id(named)?,
            None => match workspaces.first() {
                Some(first) => first.workspace_id,
                None => return Ok(None),
            },
        };
        Ok(Some(PageWorkspace {
            workspaces,
            workspace,
            rights: self.rights(workspace).await?,
        }))
    }

    /// As [`Self::place`], where there must be one.
    async fn some_place(&self) -> Result<PageWorkspace, Trouble> {
        self.place().await?.ok_or(Trouble::NotFound)
    }

    /// Sends the browser to the page that shows a secret once: who loads that again makes nothing.
    fn show_once(&self, place: &str, id: &impl Display, secret: &str) -> Response {
        let kept = format!("{id}.{secret}");
        let cookie = Cookie::Made.set(&kept, self.asked.desk.is_https());
        (cookie, see(place)).into_response()
    }

    /// The page that shows a secret, which the browser forgets.
    fn once(&self, title: &str, room: &impl Template) -> Response {
        let forgotten = Cookie::Made.set("", self.asked.desk.is_https());
        (forgotten, self.page(title, room)).into_response()
    }

    /// An order that can't be undone needs a ticked box.
    fn need_sure(&self) -> Result<(), Trouble> {
        match self.asked.form.get("sure") {
            Some(_) => Ok(()),
            None => Err(refused("Nothing was done: tick that you are sure.")),
        }
    }

    /// A value of the form that must be there.
    fn given(&self, name: &str) -> Result<&str, Trouble> {
        self.asked.form.get(name).ok_or(Trouble::Unreadable)
    }
}

/// Sends the browser to the list of a room.
fn see_list(room: &str, workspace: WorkspaceId) -> Response {
    see(&format!("/{room}?workspace={workspace}"))
}

/// The name of a member; `None` for who is none any more.
fn name_of<'m>(user: &UserId, members: &'m [Member]) -> Option<&'m str> {
    let mut members = members.iter();
    let member = members.find(|one| one.user_id == *user)?;
    Some(&member.name)
}

/// The id in a path or a form; what is none is not found.
fn id<T: FromStr<Err: Display>>(text: &str) -> Result<T, Trouble> {
    text.parse().map_err(|_| Trouble::NotFound)
}

/// A word of a list in a form.
fn chosen<T: FromStr<Err: Display>>(text: &str) -> Result<T, Trouble> {
    text.parse().map_err(|_| Trouble::Unreadable)
}

fn refused(words: &str) -> Trouble {
    Trouble::Refused(words.to_owned())
}

/// What was ordered, or why it was refused, for the page on which it was filled in. All else is a
/// trouble of its own.
fn or_refusal<T>(done: Result<T, OperatorError>) -> Result<Result<T, String>, Trouble> {
    match done {
        Ok(done) => Ok(Ok(done)),
        Err(OperatorError::Refused(reason)) if !matches!(reason, Reason::NotFound(_)) => {
            Ok(Err(words_of(&reason)))
        }
        Err(error) => Err(error.into()),
    }
}
