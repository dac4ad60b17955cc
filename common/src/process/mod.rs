//! What every Letterbox process does alike: read settings, log, report its health on the admin
//! address, and shut down in order.

pub mod admin;
pub mod logging;
pub mod metrics;
pub mod networks;
pub mod readiness;
pub mod secret_setting;
pub mod settings;
pub mod shutdown;
pub mod supervisor;
pub mod vital;

use std::{error::Error, io, io::Write, net::SocketAddr, process::ExitCode};

use tokio::net::TcpListener;

/// The name under which a process shows itself to its servers: `program@host`.
#[must_use]
pub fn name(program: &str) -> String {
    format!("{program}@{}", gethostname::gethostname().to_string_lossy())
}

/// Binds a socket and logs its address, which tells the port where the setting says 0.
///
/// # Errors
/// Names the address that could not be bound.
pub async fn bind(socket: &'static str, address: SocketAddr) -> io::Result<TcpListener> {
    let name = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
    let listener = TcpListener::bind(address).await.map_err(name)?;
    tracing::info!(socket, address = %listener.local_addr()?, "listening");
    Ok(listener)
}

/// The exit code of a program that has ended. Says on standard error why it could not run.
#[must_use]
pub fn exit_code(program: &str, outcome: Result<(), Box<dyn Error>>) -> ExitCode {
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    // Standard error may be closed; there is nowhere else to say it.
    let _ = writeln!(io::stderr(), "{program}: {error}");
    ExitCode::FAILURE
}
