//! Releases and policies, parsed once a process: neither ever changes.

use std::{sync::Arc, time::Duration};

use letterbox_common::{
    cache::Cache,
    ids::{ReleaseId, WorkflowId, WorkspaceId},
};
use letterbox_database::{Database, DatabaseError};
use letterbox_workflow::{LANGUAGE, Policy, release::Release};
use tokio::sync::Mutex;

use super::{evaluate::evaluate, record::Hindrance, store::load, turns::Place};

/// Bytes of JSON texts whose parsed forms are kept.
const MAX_RELEASES: u64 = 16 << 20;
const MAX_POLICIES: u64 = 4 << 20;
/// Workspaces of which it is remembered that a release is being loaded.
const MAX_LOADING: usize = 1_000;

/// What is parsed, or why it can't be.
type CachedRelease<T> = Result<Arc<T>, String>;

/// The parsed releases and policies. Cheap to clone.
#[derive(Clone)]
pub(super) struct Parsed {
    database: Database,
    releases: Cache<(WorkspaceId, ReleaseId), CachedRelease<Release>>,
    policies: Cache<(WorkspaceId, i32), CachedRelease<Policy>>,
    /// Each workspace has one release loaded at a time, and each release once.
    loading: Cache<WorkspaceId, Arc<Mutex<()>>>,
}

impl Parsed {
    pub(super) fn new(database: Database) -> Self {
        Self {
            database,
            releases: Cache::of_bytes(MAX_RELEASES, Duration::MAX),
            policies: Cache::of_bytes(MAX_POLICIES, Duration::MAX),
            loading: Cache::new(MAX_LOADING, Duration::MAX),
        }
    }

    /// The actions of a release, or why they can't be executed. It is loaded for runs that are
    /// recorded.
    pub(super) async fn release(
        &self,
        workspace: WorkspaceId,
        workflow: WorkflowId,
        release: ReleaseId,
        place: &Place,
    ) -> Result<Result<Arc<Release>, Hindrance>, DatabaseError> {
        let key = (workspace, release);
        if let Some(known) = self.releases.get(&key) {
            return Ok(known.map_err(Hindrance::Lasting));
        }
        place.recorded().await;
        let loading = self.loading.get_or_make(&workspace, Arc::default);
        let _loading = loading.lock().await;
        if let Some(known) = self.releases.get(&key) {
            return Ok(known.map_err(Hindrance::Lasting));
        }
        let stored = load::release_texts(&self.database, workspace, workflow, release).await?;
        let texts = stored.texts;
        let language = stored.language;
        if language > LANGUAGE {
            let reason = format!(
                "the release was checked by version {language} of the language, and this worker \
                 knows {LANGUAGE}: update it"
            );
            return Ok(Err(Hindrance::Local(reason)));
        }
        let length = texts.length();
        let texts = Arc::new(texts);
        let load = || {
            let texts = texts.clone();
            move || Release::load(&texts)
        };
        // Checking runs what it checks, with sample values. What is found is kept for all runs: a
        // machine that has stood still for a moment says nothing of a release.
        let loaded = match evaluate(usize::MAX, load()).await {
            Ok(release) => Ok(release),
            Err(_) => evaluate(usize::MAX, load()).await,
        };
        let loaded = loaded.map(Arc::new);
        if let Err(error) = &loaded {
            tracing::error!(release_id = %release, %error, "a release can't be loaded");
        }
        self.releases.insert_bytes(key, loaded.clone(), length);
        Ok(loaded.map_err(Hindrance::Lasting))
    }

    /// A version of the policy of a workspace, or why it can't be read. 0 is the default policy.
    /// It is loaded for runs that are recorded.
    pub(super) async fn policy(
        &self,
        workspace: WorkspaceId,
        version: i32,
        place: Option<&Place>,
    ) -> Result<Result<Arc<Policy>, String>, DatabaseError> {
        if version == 0 {
            return Ok(Ok(Arc::new(Policy::default())));
        }
        let key = (workspace, version);
        if let Some(known) = self.policies.get(&key) {
            return Ok(known);
        }
        if let Some(place) = place {
            place.recorded().await;
        }
        let (text,) = load::policy_text(&self.database, workspace, version).await?;
        let parsed = Policy::parse(&text).map(Arc::new);
        let parsed = parsed.map_err(|error| format!("the policy can't be read: {error}"));
        self.policies.insert_bytes(key, parsed.clone(), text.len());
        Ok(parsed)
    }
}
