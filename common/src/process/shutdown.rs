//! Shutdown: SIGTERM and SIGINT cancel one token, and every step has a deadline.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Returns a token that is cancelled by the first signal. A second signal ends the process at once.
///
/// # Errors
/// When the operating system refuses the signal handlers.
pub fn on_signal() -> std::io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            }
        };
        let name = next().await;
        tracing::info!(signal = name, "stopping");
        stopping.cancel();
        let name = next().await;
        tracing::warn!(signal = name, "second signal: ending at once");
        std::process::exit(1);
    });
    Ok(stop)
}

/// When a shutdown must be over.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(tokio::time::Instant);

impl Deadline {
    /// A deadline `time` from now.
    pub fn after(time: Duration) -> Self {
        Self(tokio::time::Instant::now() + time)
    }

    /// Waits for one step of the shutdown. Returns `false`, and logs it, if the step does not end
    /// in time.
    pub async fn step(self, name: &'static str, step: impl Future<Output = ()>) -> bool {
        let ended = tokio::time::timeout_at(self.0, step).await.is_ok();
        if ended {
            tracing::debug!(step = name, "shutdown step done");
        } else {
            tracing::warn!(step = name, "shutdown step did not end in time");
        }
        ended
    }
}
