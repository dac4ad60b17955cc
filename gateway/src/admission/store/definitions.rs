//! What releases say of their forms. A release never changes, so what was read once is kept, in
//! bounded room; whether a link is live is asked for every request.

use std::{collections::HashMap, sync::Arc, time::Duration};

use letterbox_common::{
    form::{Form, Page},
    ids::ReleaseId,
};
use letterbox_database::{Database, DatabaseError, FromRow, statements};
use moka::sync::Cache;

/// Bytes of text that are kept; parsed, they take a few times as many.
const MAX_KEPT: u64 = 16 << 20;
const KEPT_FOR: Duration = Duration::from_secs(3600);

statements! {
    /// What the releases behind live links say of their forms.
    fn definitions(tokens_sha256: &[&[u8]]) -> Vec<StoredDefinition> = "
SELECT release_id AS release, form, page, least_seconds FROM live_form_links
WHERE token_sha256 = ANY ($1)";
}

#[derive(FromRow)]
struct StoredDefinition {
    release: ReleaseId,
    form: String,
    page: Option<String>,
    least_seconds: Option<i16>,
}

/// What a release says of its form.
#[derive(Debug, Default)]
pub(crate) struct Definition {
    /// The form, as the JSON text that the public reads.
    pub(crate) json: String,
    /// The form; `None` if the text is none, so it was not deployed through Letterbox.
    pub(crate) form: Option<Form>,
    /// The look of its page; plain if it was not deployed through Letterbox.
    pub(crate) page: Page,
    /// The minimum time to fill it in, in seconds, if its submissions need a proof of work.
    pub(crate) least_seconds: Option<i16>,
}

impl Definition {
    /// Parses the JSON texts of a form and the look of its page.
    pub(crate) fn new(json: String, page: Option<&str>, least_seconds: Option<i16>) -> Self {
        let form = serde_json::from_str(&json);
        let form = form.inspect_err(|error| tracing::error!(%error, "a form can't be parsed"));
        let page = page.and_then(|page| serde_json::from_str(page).ok());
        Self {
            form: form.ok(),
            page: page.unwrap_or_default(),
            json,
            least_seconds,
        }
    }
}

/// Definitions by their releases, with the bytes of text that they were made of.
pub(in crate::admission) struct Definitions(Cache<ReleaseId, (u32, Arc<Definition>)>);

impl Default for Definitions {
    fn default() -> Self {
        let kept = Cache::builder().max_capacity(MAX_KEPT);
        let kept = kept.weigher(|_, (bytes, _): &(u32, _)| *bytes);
        Self(kept.time_to_live(KEPT_FOR).build())
    }
}

impl Definitions {
    /// The definitions of releases, each with the hash of a link's token behind which it is; those
    /// of links that have died are missing.
    pub(super) async fn find<'t>(
        &self,
        database: &Database,
        wanted: impl Iterator<Item = (ReleaseId, &'t [u8])>,
    ) -> Result<HashMap<ReleaseId, Arc<Definition>>, DatabaseError> {
        let mut found = HashMap::new();
        let mut unknown = HashMap::new();
        for (release, token) in wanted {
            match self.0.get(&release) {
                Some((_, kept)) => {
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
            let bytes = stored.form.len() + page.map_or(0, str::len);
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            let definition = Definition::new(stored.form, page, stored.least_seconds);
            let definition = Arc::new(definition);
            self.0.insert(stored.release, (bytes, definition.clone()));
            found.insert(stored.release, definition);
        }
        Ok(found)
    }
}
