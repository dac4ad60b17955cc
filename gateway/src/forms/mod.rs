//! Live forms: what a token leads to, and what is known of an idempotency key. Asked of the
//! database for every request, so that the request after a pause is refused already, on every
//! gateway.

mod store;

use letterbox_common::{
    form::{Form, TokenHash},
    ids::{ReleaseId, WorkflowId, WorkspaceId},
};
use letterbox_database::{Database, DatabaseError};
use tokio_util::task::TaskTracker;

use self::store::FormsByToken;
pub(crate) use self::store::STATEMENTS;
use crate::batcher::{BatchError, Batcher, Limits};

const LOOKUPS: Limits = Limits {
    max_queued: 4_096,
    max_batch: 256,
    max_in_flight: 1,
};

/// SHA-256 of an idempotency key.
pub(crate) type KeyHash = [u8; 32];

/// The form behind a live token.
#[derive(Debug, Clone)]
pub(crate) struct LiveForm {
    pub(crate) workspace: WorkspaceId,
    pub(crate) workflow: WorkflowId,
    pub(crate) release: ReleaseId,
    /// JSON text, as the public reads it.
    pub(crate) definition: String,
}

/// The stored definition is not a form: nobody deployed it through Letterbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidDefinition;

/// What is known of an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyState {
    /// Nothing, or its first submission could not be recorded.
    New,
    /// Its first submission is being recorded.
    InProgress,
    /// It has been accepted.
    Accepted,
}

/// A live form, and the state of the idempotency key that was asked for with it.
#[derive(Debug, Clone)]
pub(crate) struct FormLookup {
    pub(crate) form: LiveForm,
    pub(crate) key: KeyState,
}

/// Looks up live forms, in batches.
pub(crate) struct Forms(Batcher<FormsByToken>);

impl Forms {
    /// Starts the look-ups as tasks of `tasks`.
    pub(crate) fn start(database: Database, tasks: &TaskTracker) -> Self {
        Self(Batcher::start(
            "forms",
            LOOKUPS,
            FormsByToken { database },
            tasks,
        ))
    }

    /// The live form of a token; none when the token is unknown or not live.
    ///
    /// # Errors
    /// When the database did not answer.
    pub(crate) async fn find(
        &self,
        token: TokenHash,
        key: Option<KeyHash>,
    ) -> Result<Option<FormLookup>, BatchError<DatabaseError>> {
        self.0.submit((token, key)).await
    }
}

impl LiveForm {
    /// The definition, to validate a payload against.
    ///
    /// # Errors
    /// When what is stored is not a form. Logged.
    pub(crate) fn parse(&self) -> Result<Form, InvalidDefinition> {
        serde_json::from_str(&self.definition).map_err(|error| {
            let (workflow_id, release_id) = (self.workflow, self.release);
            tracing::error!(%workflow_id, %release_id, %error, "a release's form can't be parsed");
            InvalidDefinition
        })
    }
}
