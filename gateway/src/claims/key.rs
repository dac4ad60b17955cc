//! The keys of claims, one type for each table: a body of a webhook, an idempotency key of a
//! workflow.

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

use super::store::statements::{self, ClaimStatements};

/// The key of a claim.
pub trait ClaimKey: Copy + Eq + Hash + fmt::Debug + Send + Sync + 'static {
    /// The id of the entry to publish.
    type Id: Copy + Eq + Hash + fmt::Display + fmt::Debug + ToSql + FromSqlOwned + Send + Sync;
    /// The key of the door, the row (live webhook or form link) that must exist for the claim to
    /// succeed.
    type Door<'a>: Copy + ToSql + Sync + Send;

    /// The statements over its table.
    const STATEMENTS: ClaimStatements;

    /// Generates an id.
    fn generate_id() -> Self::Id;
    /// The workspace.
    fn workspace(&self) -> WorkspaceId;
    /// The key within its workspace.
    fn key_hash(&self) -> KeyHash;
    /// The SHA-256 of the body or the idempotency key, from which the database can check
    /// [`Self::key_hash`].
    fn sha256(&self) -> &[u8];
    /// The door of the claim.
    fn door(&self) -> Self::Door<'_>;
    /// A hash of the payload that came with the key; `None` if the key covers the whole body.
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
    /// Creates the key of a body that a webhook has received. `memory` is the webhook under whose
    /// id it remembers bodies: itself, or the first of those that it has replaced.
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

    const STATEMENTS: ClaimStatements = statements::DELIVERIES;

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

/// One idempotency key of one workflow, through one form link. The link is not part of the row, so
/// that a retry through a newer link finds the same row. Keys with different payloads are equal.
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
    /// Creates the key of a submission. `key_sha256` is the SHA-256 of its idempotency key.
    pub(crate) fn new(
        workspace: WorkspaceId,
        workflow: WorkflowId,
        key_sha256: [u8; 32],
        token: TokenHash,
        payload: &[u8],
    ) -> Self {
        // Salted, so that the payload can't be guessed from the row without knowing the key.
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

    const STATEMENTS: ClaimStatements = statements::SUBMISSIONS;

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
