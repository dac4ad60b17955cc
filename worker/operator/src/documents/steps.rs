//! What is given to a plan, and what it tells.

use letterbox_common::ids::WorkspaceId;
use serde::Serialize;

use super::Document;

/// The documents of one workspace.
#[derive(Debug, Clone, Default)]
pub struct Set {
    /// Which one they are about; `None` is that which the first of them names, or a new one.
    pub workspace: Option<WorkspaceId>,
    /// In the order in which they were given.
    pub documents: Vec<Document>,
}

impl Set {
    /// Whether queues are named, which may be missing.
    pub fn names_queues(&self) -> bool {
        self.documents
            .iter()
            .any(|one| matches!(one, Document::Subscription(one) if one.queue.is_some()))
    }
}

/// What becomes of a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// It is made.
    Create,
    /// It is changed.
    Change,
    /// It ends for good.
    Delete,
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The workspace's name.
    pub workspace: String,
    /// What becomes of it.
    pub verb: Verb,
    /// The kind of the document.
    pub kind: &'static str,
    /// The name of the thing.
    pub name: String,
    /// Changed members, with their values before and after where these are short.
    pub changes: Vec<String>,
    /// What ends by this, for everybody who has it.
    pub ends: Vec<String>,
    /// What the owner may want to fix.
    pub warnings: Vec<String>,
}
