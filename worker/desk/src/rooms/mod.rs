//! The rooms: each file has the pages of one, and what can be done there.

pub(crate) mod runs;
pub(crate) mod sign_in;
pub(crate) mod waiting;

use std::{fmt::Display, str::FromStr};

use letterbox_common::ids::UserId;
use letterbox_operator::Operator;
use serde::Serialize;

use crate::{
    request::Asked,
    response::{Response, Trouble},
    server::Desk,
};

/// A person in a room.
pub(crate) struct Visit<'a> {
    pub(crate) desk: &'a Desk,
    pub(crate) asked: &'a Asked,
    /// What the forms of the page carry.
    pub(crate) form_token: String,
    /// Carries out the person's orders.
    pub(crate) operator: Operator,
}

impl Visit<'_> {
    /// The page of a room.
    fn page(&self, template: &str, title: &str, found: impl Serialize) -> Response {
        self.desk.pages.page(self, template, title, found)
    }

    /// Who visits.
    fn user(&self) -> Result<UserId, Trouble> {
        self.operator.ordered_by().ok_or(Trouble::SignedOut)
    }
}

/// The id in a path or a form; what is none is not found.
fn id<T: FromStr<Err: Display>>(text: &str) -> Result<T, Trouble> {
    text.parse().map_err(|_| Trouble::NotFound)
}
