//! The forms that are live: what stands behind a token, and what is known of an idempotency key,
//! asked of the database for every request. So the request after a pause is refused already, on
//! every gateway.

mod store;

use deadpool_postgres::Pool;
use letterbox_common::{
    database::DatabaseError,
    form::{Form, TokenHash},
    ids::{ReleaseId, WorkflowId, WorkspaceId},
};
use tokio_util::task::TaskTracker;

use self::store::Lookup;
use crate::{
    batcher::{BatchError, Batcher, Limits},
    error::Refusal,
};

pub use self::store::FIND_FORMS;

const LOOKUPS: Limits = Limits {
    queue: 4_096,
    batch: 256,
    lanes: 1,
};

/// SHA-256 of an idempotency key.
pub type KeyHash = [u8; 32];

/// The form behind a live token.
#[derive(Debug, Clone)]
pub struct LiveForm {
    pub workspace: WorkspaceId,
    pub workflow: WorkflowId,
    pub release: ReleaseId,
    /// JSON text, as the public reads it.
    pub definition: String,
}

/// What is known of an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Nothing, or a first that could not be recorded.
    New,
    /// A first is under way.
    InProgress,
    /// It has been accepted.
    Accepted,
}

/// A live form, and what is known of the key that was asked for with it.
#[derive(Debug, Clone)]
pub struct Found {
    pub form: LiveForm,
    pub known: Known,
}

/// Looks up live forms, in batches.
pub struct Forms(Batcher<Lookup>);

impl Forms {
    /// Starts the look-ups as tasks of `tasks`.
    #[must_use]
    pub fn start(pool: Pool, tasks: &TaskTracker) -> Self {
        Self(Batcher::start("forms", LOOKUPS, Lookup { pool }, tasks))
    }

    /// What stands behind a token; nothing when it is unknown or not live.
    ///
    /// # Errors
    /// When the database did not answer.
    pub async fn find(
        &self,
        token: TokenHash,
        key: Option<KeyHash>,
    ) -> Result<Option<Found>, BatchError<DatabaseError>> {
        self.0.submit((token, key)).await
    }
}

impl LiveForm {
    /// The definition, to check a payload against.
    ///
    /// # Errors
    /// When what is stored is no form: nobody deployed it through Letterbox.
    pub fn parse(&self) -> Result<Form, Refusal> {
        serde_json::from_str(&self.definition).map_err(|error| {
            tracing::error!(workflow_id = %self.workflow, release_id = %self.release, %error, "a release's form can't be read");
            Refusal::temporarily_unavailable()
        })
    }
}
