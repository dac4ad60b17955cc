//! The rooms: each file has the pages of one, and what can be done there.

pub(crate) mod accounts;
pub(crate) mod forms;
pub(crate) mod people;
pub(crate) mod runs;
pub(crate) mod sign_in;
pub(crate) mod waiting;
pub(crate) mod webhooks;

use std::{fmt::Display, str::FromStr};

use letterbox_common::{
    ids::{UserId, WorkspaceId},
    states::MemberRole,
};
use letterbox_operator::{Operator, OperatorError, Reason, Workspace};
use minijinja::{Value, context};
use serde::Serialize;

use crate::{
    desk::Desk,
    request::Asked,
    response::{Response, Trouble, WithCookie, refusal, see, words_of},
    session::Cookie,
};

/// A person in a room.
pub(crate) struct Visit<'a> {
    pub(crate) desk: &'a Desk,
    pub(crate) asked: &'a Asked,
    /// The token against cross-site requests that the page's forms carry.
    pub(crate) form_token: String,
    /// Carries out the person's orders.
    pub(crate) operator: Operator,
}

/// A workspace in which a person works.
#[derive(Serialize)]
struct PageWorkspace {
    /// All that the person may choose from.
    workspaces: Vec<Workspace>,
    /// The chosen one.
    workspace: WorkspaceId,
    /// The person's role there.
    role: MemberRole,
}

impl PageWorkspace {
    fn is_editor(&self) -> bool {
        matches!(self.role, MemberRole::Owner | MemberRole::Editor)
    }

    fn may_run(&self) -> bool {
        self.role != MemberRole::Viewer
    }
}

impl Visit<'_> {
    /// The page of a room.
    fn page(&self, template: &str, title: &str, found: impl Serialize) -> Response {
        let given = self.asked.form.shown();
        let found = context! {
            given, form_token => self.form_token, ..Value::from_serialize(found)
        };
        let person = self.operator.person();
        self.desk.pages.page(person, template, title, found)
    }

    /// The page of a room that says why something was not done, and has what was filled in.
    fn refusal(&self, template: &str, title: &str, found: impl Serialize) -> Response {
        refusal(self.page(template, title, found))
    }

    /// The current user.
    fn user(&self) -> Result<UserId, Trouble> {
        self.operator.ordered_by().ok_or(Trouble::SignedOut)
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
        let role = self.operator.role_of(workspace, self.user()?).await?;
        Ok(Some(PageWorkspace {
            workspaces,
            workspace,
            role: role.ok_or(Trouble::NotFound)?,
        }))
    }

    /// As [`Self::place`], where there must be one.
    async fn some_place(&self) -> Result<PageWorkspace, Trouble> {
        self.place().await?.ok_or(Trouble::NotFound)
    }

    /// Sends the browser to the page that shows a secret once: who loads that again makes nothing.
    fn show_once(&self, place: &str, id: &impl Display, secret: &str) -> Response {
        let kept = format!("{id}.{secret}");
        let cookie = Cookie::Made.set(&kept, self.desk.is_https());
        see(place).with_cookie(cookie)
    }

    /// The page that shows a secret, which the browser forgets.
    fn once(&self, template: &str, title: &str, found: impl Serialize) -> Response {
        let forgotten = Cookie::Made.set("", self.desk.is_https());
        self.page(template, title, found).with_cookie(forgotten)
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
