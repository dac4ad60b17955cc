//! What every Letterbox process does alike: read settings, log, say how it is on the admin address, and stop in order.

pub mod admin;
pub mod logging;
pub mod readiness;
pub mod settings;
pub mod shutdown;

/// The name under which a process shows itself to its servers: `program@host`.
#[must_use]
pub fn name(program: &str) -> String {
    format!("{program}@{}", gethostname::gethostname().to_string_lossy())
}
