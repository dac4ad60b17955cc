//! The command that does harm while events are sent.

use std::{process::Stdio, time::Duration};

use tokio::{process::Command, time::sleep};
use tokio_util::sync::CancellationToken;

/// The outcome of the command that injects faults.
#[derive(Debug, Default)]
pub(super) struct HarmFaults {
    pub(super) are_wanted: bool,
    pub(super) done: u64,
    pub(super) failed: u64,
}

/// Calls the command again and again until `stop`, the last time to its end.
pub(super) async fn do_harm(
    command: Option<&str>,
    every: Duration,
    stop: &CancellationToken,
) -> HarmFaults {
    let mut faults = HarmFaults::default();
    let Some(command) = command else {
        return faults;
    };
    faults.are_wanted = true;
    while stop.run_until_cancelled(sleep(every)).await.is_some() {
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", command]).stdin(Stdio::null());
        match shell.stdout(Stdio::null()).status().await {
            Ok(status) if status.success() => faults.done += 1,
            _ => faults.failed += 1,
        }
    }
    faults
}
