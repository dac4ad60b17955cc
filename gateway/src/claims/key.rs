//! What can be claimed, and in which table: a body of a webhook, an idempotency key of a workflow.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use letterbox_common::{
    KeyHash,
    form::TokenHash,
    ids::{DeliveryId, RunId, WebhookId, WorkflowId, WorkspaceId},
    webhook::WebhookAddress,
};
use sha2::{Digest, Sha256};
use tokio_postgres::types::{FromSqlOwned, ToSql};

use super::store::{self, ClaimStatements};

/// What is claimed.
pub trait ClaimKey: Copy + Eq + Hash + fmt::Debug + Send + Sync + 'static {
    /// Id of the entry to publish.
    type Id: Copy + Eq + Hash + fmt::Display + fmt::Debug + ToSql + FromSqlOwned + Send + Sync;
    /// Key of the row (live webhook or form link) that must exist for the claim to succeed.
    type Door<'a>: Copy + ToSql + Sync + Send;

    /// The statements over its table.
    const STATEMENTS: ClaimStatements;

    /// A new id.
    fn generate_id() -> Self::Id;
    /// The tenant.
    fn workspace(&self) -> WorkspaceId;
    /// The key within its workspace.
    fn key_hash(&self) -> KeyHash;
    /// SHA-256 of what the key says once: with the door it makes the key.
    fn sha256(&self) -> &[u8];
    /// The row that must exist for the claim to succeed.
    fn door(&self) -> Self::Door<'_>;
    /// What a claim keeps of what comes with its key; none where the key says it all.
    fn payload_hash(&self) -> Option<i64>;
}

/// One distinct body of one webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeliveryKey {
    address: WebhookAddress,
    body_sha256: [u8; 32],
    hash: KeyHash,
}

impl DeliveryKey {
    /// The key of a body that a webhook has received; `memory` is the webhook under whose id it
    /// remembers bodies: itself, or the first one of those that it has replaced.
    #[must_use]
    pub fn new(address: WebhookAddress, memory: WebhookId, body: &[u8]) -> Self {
        let body_sha256 = Sha256::digest(body).into();
        Self {
            address,
            body_sha256,
            hash: KeyHash::of(memory.as_bytes(), &body_sha256),
        }
    }
}

impl ClaimKey for DeliveryKey {
    type Id = DeliveryId;
    type Door<'a> = WebhookId;

    const STATEMENTS: ClaimStatements = store::DELIVERIES;

    fn generate_id() -> DeliveryId {
        DeliveryId::generate()
    }
    fn workspace(&self) -> WorkspaceId {
        self.address.workspace
    }
    fn key_hash(&self) -> KeyHash {
        self.hash
    }
    fn sha256(&self) -> &[u8] {
        &self.body_sha256
    }
    fn door(&self) -> WebhookId {
        self.address.webhook
    }
    fn payload_hash(&self) -> Option<i64> {
        None
    }
}

/// One idempotency key of one workflow, through one form link. The link is not part of the row: a
/// retry through a newer link finds the same row. Nor is the payload: keys that came with different
/// ones are equal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SubmissionKey {
    workspace: WorkspaceId,
    key_sha256: [u8; 32],
    hash: KeyHash,
    token: TokenHash,
    payload_hash: i64,
}

impl PartialEq for SubmissionKey {
    fn eq(&self, other: &Self) -> bool {
        (self.workspace, self.hash, self.token) == (other.workspace, other.hash, other.token)
    }
}

impl Eq for SubmissionKey {}

impl Hash for SubmissionKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.workspace, self.hash, self.token).hash(state);
    }
}

impl SubmissionKey {
    /// The key of a submission; `key_sha256` is the SHA-256 of its idempotency key.
    pub(crate) fn new(
        workspace: WorkspaceId,
        workflow: WorkflowId,
        key_sha256: [u8; 32],
        token: TokenHash,
        payload: &[u8],
    ) -> Self {
        let salted = Sha256::new_with_prefix(key_sha256).chain_update(payload);
        let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = salted.finalize().into();
        Self {
            workspace,
            key_sha256,
            hash: KeyHash::of(workflow.as_bytes(), &key_sha256),
            token,
            payload_hash: i64::from_be_bytes([a, b, c, d, e, f, g, h]),
        }
    }
}

impl ClaimKey for SubmissionKey {
    type Id = RunId;
    type Door<'a> = &'a [u8];

    const STATEMENTS: ClaimStatements = store::SUBMISSIONS;

    fn generate_id() -> RunId {
        RunId::generate()
    }
    fn workspace(&self) -> WorkspaceId {
        self.workspace
    }
    fn key_hash(&self) -> KeyHash {
        self.hash
    }
    fn sha256(&self) -> &[u8] {
        &self.key_sha256
    }
    fn door(&self) -> &[u8] {
        self.token.as_bytes()
    }
    fn payload_hash(&self) -> Option<i64> {
        Some(self.payload_hash)
    }
}
