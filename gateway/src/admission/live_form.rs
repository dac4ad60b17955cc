//! The live form behind a token, and what is remembered of it.
//!
//! Whether a form is live is asked every time. Its content is asked for once, because a link has
//! one release for life, and a release never changes.

use std::sync::Arc;

use bytes::Bytes;
use letterbox_common::{
    form::{Form, TokenHash},
    ids::{ReleaseId, WorkflowId, WorkspaceId},
};
use moka::sync::Cache;

/// Maximum bytes of definitions that are remembered.
const MAX_CACHED_BYTES: u64 = 16 << 20;

/// The release of a live form.
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
    pub(crate) content: Arc<FormContent>,
    /// The minimum time to fill it in, if its submissions need a proof of work.
    pub(crate) least_seconds: Option<i16>,
}

/// The content of a release's form.
#[derive(Debug)]
pub(crate) struct FormContent {
    pub(super) release: ReleaseId,
    /// The definition, as the JSON text that the public reads.
    pub(crate) definition: Bytes,
    form: Option<Form>,
}

/// The stored definition is not a form, so it was not deployed through Letterbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidDefinition;

impl FormContent {
    /// Parses a definition. Logs one that is not a form.
    fn new(release: LiveRelease, definition: String) -> Self {
        let form = serde_json::from_str(&definition).inspect_err(|error| {
            let (workflow_id, release_id) = (release.workflow, release.release);
            tracing::error!(%workflow_id, %release_id, %error, "a release's form can't be parsed");
        });
        Self {
            release: release.release,
            definition: definition.into(),
            form: form.ok(),
        }
    }

    /// The parsed form, for the validation of payloads.
    ///
    /// # Errors
    /// When the stored definition is not a form.
    pub(crate) fn form(&self) -> Result<&Form, InvalidDefinition> {
        self.form.as_ref().ok_or(InvalidDefinition)
    }
}

/// The contents of forms, by the tokens under which they were live.
pub(super) struct Contents(Cache<TokenHash, Arc<FormContent>>);

impl Default for Contents {
    fn default() -> Self {
        let weigh = |_: &_, content: &Arc<FormContent>| {
            u32::try_from(content.definition.len()).unwrap_or(u32::MAX)
        };
        Self(
            Cache::builder()
                .max_capacity(MAX_CACHED_BYTES)
                .weigher(weigh)
                .build(),
        )
    }
}

impl Contents {
    /// The content of the form under a token, if it is remembered.
    pub(super) fn get(&self, token: TokenHash) -> Option<Arc<FormContent>> {
        self.0.get(&token)
    }

    /// Parses and remembers a definition.
    pub(super) fn insert(
        &self,
        token: TokenHash,
        release: LiveRelease,
        definition: String,
    ) -> Arc<FormContent> {
        let content = Arc::new(FormContent::new(release, definition));
        self.0.insert(token, content.clone());
        content
    }
}
