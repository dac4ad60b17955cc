//! Live forms: what a token leads to. Asked of the database for every request, so that the request
//! after a pause is refused already, on every gateway.

mod store;

use letterbox_common::{
    form::{Form, TokenHash},
    ids::{ReleaseId, WorkflowId, WorkspaceId},
};
use letterbox_database::{Database, DatabaseError};
use tokio_util::task::TaskTracker;

use self::store::FormsByToken;
pub(crate) use self::store::STATEMENTS;
use crate::batcher::{Batcher, Limits, LookUpError, LookUps};

const LOOKUPS: Limits = Limits {
    max_queued: 4_096,
    max_bytes: 1 << 20,
    max_batch: 256,
    max_batch_bytes: 1 << 20,
    max_in_flight: 1,
};

/// The release that a live form belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LiveRelease {
    pub(crate) workspace: WorkspaceId,
    pub(crate) workflow: WorkflowId,
    pub(crate) release: ReleaseId,
}

/// The form behind a live token.
#[derive(Debug, Clone)]
pub(crate) struct LiveForm {
    pub(crate) release: LiveRelease,
    /// JSON text, as the public reads it.
    pub(crate) definition: String,
}

/// The stored definition is not a form: nobody deployed it through Letterbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidDefinition;

/// Looks up live forms, in batches.
pub(crate) struct Forms(Batcher<LookUps<FormsByToken>>);

impl Forms {
    /// Starts the look-ups as tasks of `tasks`.
    pub(crate) fn start(database: Database, tasks: &TaskTracker) -> Self {
        let look_ups = LookUps(FormsByToken { database });
        Self(Batcher::start("forms", LOOKUPS, look_ups, tasks))
    }

    /// The live form of a token; none when the token is unknown or not live.
    ///
    /// # Errors
    /// When the database did not answer.
    pub(crate) async fn find(
        &self,
        token: TokenHash,
    ) -> Result<Option<LiveForm>, LookUpError<DatabaseError>> {
        self.0.look_up(token).await
    }
}

impl LiveForm {
    /// The definition, to validate a payload against.
    ///
    /// # Errors
    /// When what is stored is not a form. Logged.
    pub(crate) fn parse(&self) -> Result<Form, InvalidDefinition> {
        serde_json::from_str(&self.definition).map_err(|error| {
            let (workflow_id, release_id) = (self.release.workflow, self.release.release);
            tracing::error!(%workflow_id, %release_id, %error, "a release's form can't be parsed");
            InvalidDefinition
        })
    }
}
