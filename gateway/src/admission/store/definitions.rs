//! What releases say of their forms. A release never changes, so what was read once is kept, in
//! bounded room; whether a link is live is asked for every request.

use std::{collections::HashMap, sync::Arc, time::Duration};

use letterbox_common::cache::Cache;
use letterbox_database::{Database, DatabaseError, FromRow, statements};

use crate::admission::live_form::{Definition, LiveRelease};

/// Bytes that are kept, about.
const MAX_KEPT: u64 = 32 << 20;
const KEPT_FOR: Duration = Duration::from_secs(3600);

statements! {
    /// What the releases behind live links say of their forms.
    fn definitions(tokens_sha256: &[&[u8]]) -> Vec<StoredDefinition> = "
SELECT workspace_id AS workspace, workflow_id AS workflow, release_id AS release, form, page,
       least_seconds
FROM live_form_links WHERE token_sha256 = ANY ($1)";
}

#[derive(FromRow)]
struct StoredDefinition {
    #[row(flatten)]
    release: LiveRelease,
    form: String,
    page: Option<String>,
    least_seconds: Option<i16>,
}

/// Definitions by their releases. Not by the id of a release alone: people may make one with an id
/// that another tenant has.
pub(in crate::admission) struct Definitions(Cache<LiveRelease, Arc<Definition>>);

impl Default for Definitions {
    fn default() -> Self {
        Self(Cache::of_bytes(MAX_KEPT, KEPT_FOR))
    }
}

impl Definitions {
    /// The definitions of releases, each with the hash of a link's token behind which it is; those
    /// of links that have died are missing.
    pub(super) async fn find<'t>(
        &self,
        database: &Database,
        wanted: impl Iterator<Item = (LiveRelease, &'t [u8])>,
    ) -> Result<HashMap<LiveRelease, Arc<Definition>>, DatabaseError> {
        let mut found = HashMap::new();
        let mut unknown = HashMap::new();
        for (release, token) in wanted {
            match self.0.get(&release) {
                Some(kept) => {
                    found.insert(release, kept);
                }
                None => {
                    unknown.insert(release, token);
                }
            }
        }
        if unknown.is_empty() {
            return Ok(found);
        }
        let tokens: Vec<&[u8]> = unknown.into_values().collect();
        for stored in definitions(database, &tokens).await? {
            let page = stored.page.as_deref();
            // Parsed, a text takes a few times as many as it has.
            let bytes = 4 * (stored.form.len() + page.map_or(0, str::len));
            let definition = Definition::new(stored.form, page, stored.least_seconds);
            if definition.form.is_none() {
                let LiveRelease {
                    workflow, release, ..
                } = stored.release;
                tracing::error!(%workflow, %release, "a release's form can't be parsed");
            }
            let definition = Arc::new(definition);
            let kept = definition.clone();
            self.0.insert_bytes(stored.release, kept, bytes);
            found.insert(stored.release, definition);
        }
        Ok(found)
    }
}
