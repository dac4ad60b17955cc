//! What can be claimed, and where its claims stand: a body of a webhook, an idempotency key of a
//! workflow.

use std::{fmt, hash::Hash};

use letterbox_common::{
    form::TokenHash,
    ids::{DeliveryId, RunId, WorkflowId, WorkspaceId},
    webhook::WebhookAddress,
};
use tokio_postgres::types::{FromSqlOwned, ToSql};

use super::store::{Statements, statements};

/// What is claimed. Ordered as its table's key is, so that batches lock in one order.
pub trait ClaimKey: Copy + Eq + Hash + Ord + fmt::Debug + Send + Sync + 'static {
    /// Id of the message that a claim lets pass.
    type Id: Copy
        + Eq
        + Hash
        + Ord
        + fmt::Display
        + fmt::Debug
        + ToSql
        + FromSqlOwned
        + Send
        + Sync
        + 'static;
    /// What the key belongs to, within its workspace.
    type Scope: Copy + ToSql + Sync + Send;
    /// By what the door is known that has to be open when the claim is made.
    type Door<'a>: Copy + ToSql + Sync + Send;

    const STATEMENTS: Statements;
    /// Names of the batchers that claim and settle, in metrics.
    const BATCHERS: (&'static str, &'static str);

    fn generate_id() -> Self::Id;
    fn workspace(&self) -> WorkspaceId;
    fn scope(&self) -> Self::Scope;
    fn sha256(&self) -> &[u8; 32];
    fn door(&self) -> Self::Door<'_>;
}

/// One distinct body of one webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryKey {
    pub address: WebhookAddress,
    /// SHA-256 of the exact body.
    pub body_sha256: [u8; 32],
}

impl ClaimKey for DeliveryKey {
    type Id = DeliveryId;
    type Scope = letterbox_common::ids::WebhookId;
    type Door<'a> = letterbox_common::ids::WebhookId;

    const STATEMENTS: Statements = statements!(
        table: "webhook_deliveries", scope: "webhook_id", sha256: "body_sha256", id: "delivery_id",
        door: "uuid", open: "webhooks w ON w.workspace_id = wanted.workspace_id AND w.webhook_id = wanted.door AND w.deleted_at IS NULL",
    );
    const BATCHERS: (&'static str, &'static str) = ("delivery_claims", "delivery_settles");

    fn generate_id() -> DeliveryId {
        DeliveryId::generate()
    }
    fn workspace(&self) -> WorkspaceId {
        self.address.workspace
    }
    fn scope(&self) -> Self::Scope {
        self.address.webhook
    }
    fn sha256(&self) -> &[u8; 32] {
        &self.body_sha256
    }
    fn door(&self) -> Self::Door<'_> {
        self.address.webhook
    }
}

/// One idempotency key of one workflow, through one form link. The link is no part of the row: a
/// retry through a newer link meets the same row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubmissionKey {
    pub workspace: WorkspaceId,
    pub workflow: WorkflowId,
    /// SHA-256 of the idempotency key.
    pub key_sha256: [u8; 32],
    pub token: TokenHash,
}

impl ClaimKey for SubmissionKey {
    type Id = RunId;
    type Scope = WorkflowId;
    type Door<'a> = &'a [u8];

    const STATEMENTS: Statements = statements!(
        table: "form_submissions", scope: "workflow_id", sha256: "key_sha256", id: "submission_id",
        door: "bytea", open: "live_form_links l ON l.token_sha256 = wanted.door AND l.workspace_id = wanted.workspace_id AND l.workflow_id = wanted.scope",
    );
    const BATCHERS: (&'static str, &'static str) = ("submission_claims", "submission_settles");

    fn generate_id() -> RunId {
        RunId::generate()
    }
    fn workspace(&self) -> WorkspaceId {
        self.workspace
    }
    fn scope(&self) -> WorkflowId {
        self.workflow
    }
    fn sha256(&self) -> &[u8; 32] {
        &self.key_sha256
    }
    fn door(&self) -> &[u8] {
        self.token.as_bytes()
    }
}
