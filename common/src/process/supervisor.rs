//! Notifies the supervisor of this process: systemd, for units with `Type=notify`.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio_util::sync::CancellationToken;

use super::readiness::Readiness;

/// How often the readiness is checked.
const EVERY: Duration = Duration::from_millis(200);

/// Reports until `stop` that the process has started, what it waits for, and that it stops. Does
/// nothing without a supervisor. A process that waits for a server counts as started, so that it
/// does not hold up other units.
pub async fn tell(readiness: Readiness, stop: CancellationToken) {
    if !is_asked() {
        return;
    }
    notify(NotifyState::Ready);
    let mut told = None;
    while !stop.is_cancelled() {
        let waiting = readiness.waiting();
        let waiting = waiting.iter().map(|(what, why)| format!("{what}: {why}"));
        let status = match waiting.collect::<Vec<_>>().join("; ") {
            nothing if nothing.is_empty() => "ready".to_owned(),
            // A line break would start another message.
            waiting => format!("waits for {}", waiting.replace(char::is_control, " ")),
        };
        if told.as_ref() != Some(&status) {
            notify(NotifyState::Status(&status));
            told = Some(status);
        }
        tokio::select! { () = tokio::time::sleep(EVERY) => {}, () = stop.cancelled() => {} }
    }
    notify(NotifyState::Stopping);
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "the supervisor does not listen");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "not a setting: systemd says where it listens"
)]
fn is_asked() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}
