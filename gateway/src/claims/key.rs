//! What can be claimed, and in which table: a body of a webhook, an idempotency key of a workflow.

use std::{fmt, hash::Hash};

use letterbox_common::{
    form::TokenHash,
    ids::{DeliveryId, RunId, WorkflowId, WorkspaceId},
    webhook::WebhookAddress,
};
use tokio_postgres::types::{FromSqlOwned, ToSql};

use super::store::{ClaimStatements, claim_statements};

/// What is claimed. Ordered like its table's key, so that batches lock in one order.
pub trait ClaimKey: Copy + Eq + Hash + Ord + fmt::Debug + Send + Sync + 'static {
    /// Id of the message to publish.
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
    /// Key of the row (live webhook or form link) that must exist for the claim to succeed.
    type Guard<'a>: Copy + ToSql + Sync + Send;

    /// The statements over its table.
    const STATEMENTS: ClaimStatements;
    /// Names of the batchers that claim and settle, in metrics.
    const BATCHERS: (&'static str, &'static str);

    /// A new id.
    fn generate_id() -> Self::Id;
    /// The tenant.
    fn workspace(&self) -> WorkspaceId;
    /// What the key belongs to.
    fn scope(&self) -> Self::Scope;
    /// The key itself.
    fn sha256(&self) -> &[u8; 32];
    /// The row that must exist for the claim to succeed.
    fn guard(&self) -> Self::Guard<'_>;
}

/// One distinct body of one webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryKey {
    /// The webhook that received the body.
    pub address: WebhookAddress,
    /// SHA-256 of the exact body.
    pub body_sha256: [u8; 32],
}

impl ClaimKey for DeliveryKey {
    type Id = DeliveryId;
    type Scope = letterbox_common::ids::WebhookId;
    type Guard<'a> = letterbox_common::ids::WebhookId;

    const STATEMENTS: ClaimStatements = claim_statements!(
        name: "delivery", table: "webhook_deliveries", scope: "webhook_id", sha256: "body_sha256",
            id: "delivery_id",
        guard: "uuid", guard_row: "webhooks w
    ON w.workspace_id = wanted.workspace_id AND w.webhook_id = wanted.guard
    AND w.deleted_at IS NULL",
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
    fn guard(&self) -> Self::Guard<'_> {
        self.address.webhook
    }
}

/// One idempotency key of one workflow, through one form link. The link is not part of the row: a
/// retry through a newer link finds the same row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SubmissionKey {
    pub workspace: WorkspaceId,
    pub workflow: WorkflowId,
    /// SHA-256 of the idempotency key.
    pub key_sha256: [u8; 32],
    pub token: TokenHash,
}

impl ClaimKey for SubmissionKey {
    type Id = RunId;
    type Scope = WorkflowId;
    type Guard<'a> = &'a [u8];

    const STATEMENTS: ClaimStatements = claim_statements!(
        name: "submission", table: "form_submissions", scope: "workflow_id", sha256: "key_sha256",
            id: "submission_id",
        guard: "bytea", guard_row: "live_form_links l
    ON l.token_sha256 = wanted.guard AND l.workspace_id = wanted.workspace_id
    AND l.workflow_id = wanted.scope",
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
    fn guard(&self) -> &[u8] {
        self.token.as_bytes()
    }
}
