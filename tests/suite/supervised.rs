//! A process under systemd: it tells how it stands, and its unit lets it do nothing that it need
//! not.

use std::{path::PathBuf, process::Command};

use letterbox_tests::{Proxy, World, folder};
use tokio::net::UnixDatagram;
use uuid::Uuid;

use crate::source_tree::root;

/// Hears what processes tell; to be asked for one thing after the other.
struct Supervisor {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Supervisor {
    fn new() -> Self {
        let path = folder().join(Uuid::new_v4().to_string());
        let socket = UnixDatagram::bind(&path).unwrap();
        Self { socket, path }
    }

    /// Listens until something is told that begins like this.
    async fn until(&self, awaited: &str) {
        let mut heard = false;
        while !heard {
            let mut buffer = vec![0; 4_096];
            let length = self.socket.recv(&mut buffer).await.unwrap();
            let text = String::from_utf8_lossy(&buffer[..length]);
            heard = text.lines().any(|line| line.starts_with(awaited));
        }
    }
}

#[tokio::test]
async fn systemd_is_told_what_a_process_waits_for() {
    let world = World::new().await;
    for program in ["letterbox-gateway", "letterbox-worker", "letterbox-desk"] {
        let supervisor = Supervisor::new();
        let path = supervisor.path.to_str().unwrap();
        let database = Proxy::before(&world.database_url).await;
        database.stall();
        let settings = [("NOTIFY_SOCKET", path), ("DATABASE_URL", &database.url)];
        let mut process = world.start(program, &settings);
        supervisor.until("READY=1").await;
        supervisor.until("STATUS=waits for ").await;
        database.pass();
        supervisor.until("STATUS=ready").await;
        process.await_ready().await;
        process.terminate();
        supervisor.until("STOPPING=1").await;
        assert!(process.ended().await.success());
        let log = process.log();
        assert!(!log.contains("\"level\":\"ERROR\""), "{log}");
    }
}

/// `systemd-analyze security` counts what a unit may do, from 0 to 100.
#[test]
fn units_let_a_process_do_little() {
    for program in ["gateway", "worker", "desk"] {
        let unit = root().join(format!("deploy/systemd/letterbox-{program}.service"));
        let judged = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--threshold=15", "--no-pager"])
            .arg(unit)
            .output()
            .expect("systemd is installed: use deploy/test");
        let told = String::from_utf8_lossy(&judged.stdout);
        assert!(judged.status.success(), "{told}");
        assert!(told.contains("Overall exposure level"), "{told}");
    }
}
