//! The key of a claim: a body of a webhook, or an idempotency key of a workflow, with the door
//! through which it came.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use letterbox_common::{
    KeyHash, delivery_sha256,
    form::TokenHash,
    ids::{DeliveryId, RunId, WebhookId, WorkflowId, WorkspaceId},
    states::ClaimKind,
    webhook::WebhookAddress,
};
use sha2::{Digest, Sha256};
use tokio_postgres::types::{FromSqlOwned, ToSql};

/// The row that must exist for a claim to succeed: a live webhook or form link.
pub trait Door: Copy + Eq + Hash + fmt::Debug + Send + Sync + 'static {
    /// The id of the entry to publish.
    type Id: Copy + Eq + Hash + fmt::Display + fmt::Debug + ToSql + FromSqlOwned + Send + Sync;

    /// The kind of the claims that are made through it.
    const KIND: ClaimKind;

    /// Generates an id.
    fn generate_id() -> Self::Id;
    /// What the statements find it by.
    fn value(&self) -> &[u8];
}

impl Door for WebhookId {
    type Id = DeliveryId;

    const KIND: ClaimKind = ClaimKind::Deliveries;

    fn generate_id() -> DeliveryId {
        DeliveryId::generate()
    }
    fn value(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Door for TokenHash {
    type Id = RunId;

    const KIND: ClaimKind = ClaimKind::Submissions;

    fn generate_id() -> RunId {
        RunId::generate()
    }
    fn value(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// The key of a claim. Keys that came with different payloads are equal.
#[derive(Debug, Clone, Copy)]
pub struct ClaimKey<D> {
    pub(crate) workspace: WorkspaceId,
    pub(super) door: D,
    /// The SHA-256 of the body, the sender's id or the idempotency key, from which the database can
    /// check `hash`.
    pub(super) sha256: [u8; 32],
    /// The key within its workspace.
    pub(crate) hash: KeyHash,
    /// A hash of the payload that came with the key; `None` if the key covers all of it.
    pub(super) payload_hash: Option<i64>,
    /// The version of the door by which the entry was checked: another one is not this door. `None`
    /// for any.
    pub(super) version: Option<i64>,
}

/// One distinct body of one webhook, or one id of its sender, where the webhook goes by that.
pub type DeliveryKey = ClaimKey<WebhookId>;

/// One idempotency key of one workflow, through one form link. The link is not part of the row, so
/// that a retry through a newer link finds the same row.
pub(crate) type SubmissionKey = ClaimKey<TokenHash>;

impl<D: Eq> PartialEq for ClaimKey<D> {
    fn eq(&self, other: &Self) -> bool {
        (self.workspace, &self.door, self.hash) == (other.workspace, &other.door, other.hash)
    }
}

impl<D: Eq> Eq for ClaimKey<D> {}

impl<D: Hash> Hash for ClaimKey<D> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.workspace, &self.door, self.hash).hash(state);
    }
}

impl DeliveryKey {
    /// Creates the key of a body that a webhook has received, or of the sender's id. `memory` is
    /// the webhook under whose id it remembers them: itself, or the first of those that it has
    /// replaced.
    pub fn new(
        address: WebhookAddress,
        memory: WebhookId,
        same_by: Option<&str>,
        body: &[u8],
    ) -> Self {
        let sha256 = delivery_sha256(same_by, body);
        Self {
            workspace: address.workspace,
            door: address.webhook,
            sha256,
            hash: KeyHash::of(memory.as_bytes(), &sha256),
            payload_hash: same_by.map(|_| salted(&sha256, body)),
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
            door: token,
            sha256: key_sha256,
            hash: KeyHash::of(workflow.as_bytes(), &key_sha256),
            payload_hash: Some(salted(&key_sha256, payload)),
            version: None,
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
