//! What the tasks of a worker share.

use letterbox_common::sealing::KeyRing;
use letterbox_database::Database;
use uuid::Uuid;

use crate::egress::Egress;

/// A worker, as far as its tasks need to know it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Worker {
    /// Identifies this process among the workers. Ids sort by the start of their process.
    pub(crate) id: Uuid,
    /// Its name as its servers see it: `letterbox-worker@host`.
    pub(crate) name: String,
    pub(crate) database: Database,
    pub(crate) keys: KeyRing,
    pub(crate) egress: Egress,
}
