//! The tasks common to all Letterbox processes: read settings, log, report health on the admin
//! address, and shut down in order.

pub mod admin;
pub mod client_address;
pub mod deep_stacks;
pub mod logging;
pub mod metrics;
pub mod networks;
pub mod readiness;
pub mod secret_setting;
pub mod settings;
pub mod shares;
pub mod shutdown;
pub mod supervisor;
pub mod tasks;
pub mod vital;

use std::{error::Error, io, io::Write, net::SocketAddr, process::ExitCode, time::Duration};

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// The most connections that the system holds until they are accepted: senders come all at once.
pub const BACKLOG: u32 = 1_024;
/// Pause after a connection could not be accepted, mostly for too many open files; doubled up to
/// the maximum.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The name by which a process identifies itself to its servers: `program@host`.
pub fn name(program: &str) -> String {
    format!("{program}@{}", gethostname::gethostname().to_string_lossy())
}

/// Binds a socket and logs its address, including the port that was chosen for port 0.
///
/// # Errors
/// Names the address that could not be bound.
pub fn bind(socket: &'static str, address: SocketAddr) -> io::Result<TcpListener> {
    let name = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
    let listener = listen(address).map_err(name)?;
    tracing::info!(socket, address = %listener.local_addr()?, "listening");
    Ok(listener)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // The successor of a process may listen while connections of the former are closing.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts the next connection, after a pause if one could not be accepted.
pub async fn accept(socket: &TcpListener) -> (TcpStream, SocketAddr) {
    let mut pause = ACCEPT_PAUSE;
    loop {
        match socket.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
            }
        }
    }
}

/// The exit code of a program that has ended. Writes its error to standard error.
pub fn exit_code(program: &str, outcome: Result<(), Box<dyn Error>>) -> ExitCode {
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    // Standard error may be closed; there is nowhere else to report this.
    let _ = writeln!(io::stderr(), "{program}: {error}");
    ExitCode::FAILURE
}
