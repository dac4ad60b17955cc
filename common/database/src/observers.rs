//! The last tasks of a process: they watch and report it until everything else has ended.

use letterbox_common::process::{admin::Admin, readiness::Readiness, supervisor, tasks::Tasks};
use tokio_util::sync::CancellationToken;

use crate::{Database, health};

/// Adds them to the tasks of a process, behind the closing of its database. `stop` tells the
/// process to stop, which its supervisor hears at once.
pub fn observe(
    tasks: &mut Tasks,
    stop: &CancellationToken,
    database: &Database,
    readiness: &Readiness,
    admin: Admin,
) {
    let closing = database.clone();
    tasks.then("database", async move { closing.close() });
    tasks.next_stage();
    let component = readiness.component("database");
    tasks.spawn("health", |stop| {
        health::watch(database.clone(), component, stop)
    });
    let telling = supervisor::tell(readiness.clone(), stop.clone());
    tasks.spawn("supervisor", |_| telling);
    tasks.spawn("admin", |stop| admin.serve(readiness.clone(), stop));
}
