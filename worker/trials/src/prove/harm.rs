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

impl HarmFaults {
    /// Calls the command again and again until `stop`, the last time to its end.
    pub(super) async fn do_harm(
        &mut self,
        command: Option<&str>,
        every: Duration,
        stop: &CancellationToken,
    ) {
        let Some(command) = command else { return };
        while stop.run_until_cancelled(sleep(every)).await.is_some() {
            let called = Command::new("sh")
                .args(["-c", command])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .status()
                .await;
            match called {
                Ok(status) if status.success() => self.done += 1,
                _ => self.failed += 1,
            }
        }
    }
}
