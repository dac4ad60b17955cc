//! A workspace as documents, in files that people keep: read and checked here, written by `export`,
//! brought about by `apply`. A document is named by its kind and its name; what it does not say is
//! left as it is. None holds a secret.

mod apply;
mod change;
mod export;
mod orders;
mod outlook;
mod plan;
mod steps;

use letterbox_common::states::WorkflowState;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::{
    apply::Applied,
    plan::Plan,
    steps::{Set, Step, Verb},
};

use letterbox_database::{FromRow, Statement};

use crate::{
    MemberSettings, Reason, SubscriptionSettings, WebhookSettings, WorkspaceSettings, json,
    strict::strict_json,
};

/// The JSON Schema of documents.
pub const DOCUMENT_SCHEMA: &str = include_str!("../../schemas/document.json");

/// Every statement of this module.
pub(crate) static STATEMENTS: [&[&Statement]; 2] = [export::STATEMENTS, orders::STATEMENTS];

/// One document. The kind of each is its member `kind`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Document {
    /// The workspace itself; the documents after it are of it.
    Workspace(WorkspaceSettings),
    /// A member, who becomes a user if they are none yet.
    Member(MemberSettings),
    /// The policy.
    Policy(PolicyDocument),
    /// A workflow with its definition.
    Workflow(WorkflowDocument),
    /// A webhook.
    Webhook(WebhookSettings),
    /// A subscription to its signals.
    Subscription(SubscriptionSettings),
}

/// The policy of a workspace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyDocument {
    /// As `policy set` takes it.
    pub policy: Value,
}

/// A workflow.
#[derive(Debug, Clone, PartialEq, FromRow, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowDocument {
    /// Of one workflow of the workspace that is not deleted.
    pub name: String,
    /// The e-mail address of the member whose identity its runs use.
    pub owner: String,
    /// `draft`, `deployed` or `paused`.
    pub state: WorkflowState,
    /// As `workflow deploy` takes it.
    #[row(with = json)]
    pub definition: Value,
}

impl Document {
    /// Reads the documents of a JSON text: one, or a list.
    ///
    /// # Errors
    /// As [`Self::read`], and when it is not JSON, or has two members of one name: readers differ
    /// in which of them they take.
    pub fn parse(text: &str) -> Result<Vec<Self>, String> {
        Self::read(strict_json(text)?)
    }

    /// Reads documents: one, or a list.
    ///
    /// # Errors
    /// The number of a document, from 1, and what is wrong with it.
    pub fn read(documents: Value) -> Result<Vec<Self>, String> {
        let documents = match documents {
            Value::Array(documents) => documents,
            one => vec![one],
        };
        let numbered = (1..).zip(documents);
        numbered
            .map(|(number, mut value)| {
                if let Value::Object(members) = &mut value {
                    members.remove("$schema");
                }
                let read = serde_json::from_value(value);
                read.map_err(|error| format!("document {number}: {error}"))
            })
            .collect()
    }

    /// Its kind, as it is written.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Workspace(_) => "workspace",
            Self::Member(_) => "member",
            Self::Policy(_) => "policy",
            Self::Workflow(_) => "workflow",
            Self::Webhook(_) => "webhook",
            Self::Subscription(_) => "subscription",
        }
    }

    /// What names it among those of its kind in a workspace.
    pub fn name(&self) -> &str {
        match self {
            Self::Workspace(one) => &one.name,
            Self::Member(one) => &one.email,
            Self::Policy(_) => "",
            Self::Workflow(one) => &one.name,
            Self::Webhook(one) => &one.name,
            Self::Subscription(one) => one.name(),
        }
    }

    /// Whether both are about the same thing.
    fn is_about(&self, other: &Self) -> bool {
        let is_same = match self {
            Self::Member(_) => self.name().eq_ignore_ascii_case(other.name()),
            // The workspace has been found by it already.
            Self::Workspace(_) => true,
            _ => self.name() == other.name(),
        };
        self.kind() == other.kind() && is_same
    }

    /// What it says, by member.
    fn members(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(members)) => members,
            _ => Map::new(),
        }
    }
}

/// What there is of that which a document is about.
fn former<'c>(
    current: &'c [Document],
    document: &Document,
) -> Result<Option<&'c Document>, Reason> {
    let mut same = current.iter().filter(|one| one.is_about(document));
    match (same.next(), same.next()) {
        (_, Some(_)) => Err(Reason::SameName(
            document.kind(),
            document.name().to_owned(),
        )),
        (found, None) => Ok(found),
    }
}
