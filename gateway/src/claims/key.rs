//! The keys of claims, one type for each table: a body of a webhook, an idempotency key of a
//! workflow.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use letterbox_common::{
    KeyHash, delivery_sha256,
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
    /// Whether its statements ask for the versions of doors.
    const HAVE_VERSIONS: bool;

    /// Generates an id.
    fn generate_id() -> Self::Id;
    /// The workspace.
    fn workspace(&self) -> WorkspaceId;
    /// The key within its workspace.
    fn key_hash(&self) -> KeyHash;
    /// The SHA-256 of the body, the sender's id or the idempotency key, from which the database can
    /// check [`Self::key_hash`].
    fn sha256(&self) -> &[u8];
    /// The door of the claim.
    fn door(&self) -> Self::Door<'_>;
    /// A hash of the payload that came with the key; `None` if the key covers all of it.
    fn payload_hash(&self) -> Option<i64>;
    /// The version of the door by which the entry was checked: another one is not this door. `None`
    /// for any.
    fn version(&self) -> Option<i64>;
}

/// One distinct body of one webhook, or one id of its sender, where the webhook goes by that. Keys
/// with different bodies are equal then.
#[derive(Debug, Clone, Copy)]
pub struct DeliveryKey {
    address: WebhookAddress,
    sha256: [u8; 32],
    hash: KeyHash,
    body_hash: Option<i64>,
    version: Option<i64>,
}

impl PartialEq for DeliveryKey {
    fn eq(&self, other: &Self) -> bool {
        (self.address, self.hash) == (other.address, other.hash)
    }
}

impl Eq for DeliveryKey {}

impl Hash for DeliveryKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.address, self.hash).hash(state);
    }
}

impl DeliveryKey {
    /// Creates the key of a body that a webhook has received, or of the sender's id. `memory` is
    /// the webhook under whose id it remembers them: itself, or the first of those that it has
    /// replaced.
    #[must_use]
    pub fn new(
        address: WebhookAddress,
        memory: WebhookId,
        same_by: Option<&str>,
        body: &[u8],
    ) -> Self {
        let sha256 = delivery_sha256(same_by, body);
        Self {
            address,
            sha256,
            hash: KeyHash::of(memory.as_bytes(), &sha256),
            body_hash: same_by.map(|_| salted(&sha256, body)),
            version: None,
        }
    }

    /// The same key, for this version of the webhook only.
    #[must_use]
    pub fn of_version(self, version: i64) -> Self {
        Self {
            version: Some(version),
            ..self
        }
    }
}

/// A hash of what came with a key, salted, so that it can't be guessed from the row without knowing
/// the key.
fn salted(key_sha256: &[u8; 32], payload: &[u8]) -> i64 {
    let salted = Sha256::new_with_prefix(key_sha256).chain_update(payload);
    let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = salted.finalize().into();
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

impl ClaimKey for DeliveryKey {
    type Id = DeliveryId;
    type Door<'a> = WebhookId;

    const STATEMENTS: ClaimStatements = statements::DELIVERIES;
    const HAVE_VERSIONS: bool = true;

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
        &self.sha256
    }
    fn door(&self) -> WebhookId {
        self.address.webhook
    }
    fn payload_hash(&self) -> Option<i64> {
        self.body_hash
    }
    fn version(&self) -> Option<i64> {
        self.version
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
        Self {
            workspace,
            key_sha256,
            hash: KeyHash::of(workflow.as_bytes(), &key_sha256),
            token,
            payload_hash: salted(&key_sha256, payload),
        }
    }
}

impl ClaimKey for SubmissionKey {
    type Id = RunId;
    type Door<'a> = &'a [u8];

    const STATEMENTS: ClaimStatements = statements::SUBMISSIONS;
    const HAVE_VERSIONS: bool = false;

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
    fn version(&self) -> Option<i64> {
        None
    }
}
