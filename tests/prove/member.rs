//! A process of the stack, at one address for good: killed, frozen, replaced, and cut off from its
//! servers.

use std::{collections::HashMap, net::TcpListener};

use letterbox_tests::{Process, World};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::way::Way;

/// A gateway, a worker or the desk.
pub struct Member {
    pub program: &'static str,
    /// Where it listens for senders or people.
    pub url: String,
    settings: Vec<(&'static str, String)>,
    pub to_database: Way,
    pub to_broker: Way,
    /// Where senders come through who are to be harmed.
    pub from_senders: Way,
    process: Mutex<Option<Process>>,
    /// Its fail points, from its next start on.
    armed: Mutex<String>,
    /// What its former processes have logged of what counts.
    former: Mutex<Told>,
}

impl Member {
    pub async fn new(program: &'static str, world: &World) -> Self {
        // Free a moment ago, and its own from now on.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let to_database = Way::to(&world.database_url).await;
        let to_broker = Way::to(&world.amqp_url).await;
        let url = format!("http://{address}");
        let from_senders = Way::to(&url).await;
        let listen = match program {
            "letterbox-desk" => "LETTERBOX_DESK_LISTEN",
            _ => "LETTERBOX_LISTEN",
        };
        let settings = vec![
            (listen, address),
            ("LETTERBOX_DESK_URL", url.clone()),
            ("DATABASE_URL", to_database.url.clone()),
            ("AMQP_URL", to_broker.url.clone()),
            ("LETTERBOX_LOG", "info".to_owned()),
        ];
        Self {
            program,
            url,
            settings,
            to_database,
            to_broker,
            from_senders,
            process: Mutex::default(),
            armed: Mutex::default(),
            former: Mutex::default(),
        }
    }

    /// Starts it, unless it runs.
    pub async fn start(&self, world: &World) {
        let mut process = self.process.lock().await;
        if let Some(running) = process.as_mut() {
            if !running.has_ended() {
                return;
            }
            self.former.lock().await.add(Told::by(running));
        }
        let armed = self.armed.lock().await;
        let mut settings: Vec<_> = self
            .settings
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        settings.push(("FAILPOINTS", &armed));
        *process = Some(world.start(self.program, &settings));
    }

    /// Whether it is ready and does without nothing.
    pub async fn is_ready(&self) -> bool {
        match self.process.lock().await.as_ref() {
            Some(process) => process.is_whole().await,
            None => false,
        }
    }

    pub async fn pid(&self) -> Option<u32> {
        let mut process = self.process.lock().await;
        let running = process.as_mut()?;
        (!running.has_ended()).then(|| running.pid())
    }

    /// Ends it as a crash would; whether it ran.
    pub async fn kill(&self) -> bool {
        let mut process = self.process.lock().await;
        let Some(running) = process.as_mut() else {
            return false;
        };
        let is_running = !running.has_ended();
        if is_running {
            running.kill().await;
        }
        is_running
    }

    /// Stops it in order, and starts its successor. Whether it ended well.
    pub async fn replace(&self, world: &World) -> bool {
        let ended = match self.process.lock().await.as_mut() {
            Some(running) => {
                running.terminate();
                running.ended().await.success()
            }
            None => false,
        };
        self.start(world).await;
        ended
    }

    pub async fn freeze(&self) -> bool {
        self.signal("-STOP").await
    }

    pub async fn thaw(&self) -> bool {
        self.signal("-CONT").await
    }

    async fn signal(&self, name: &str) -> bool {
        let Some(pid) = self.pid().await else {
            return false;
        };
        let sent = std::process::Command::new("kill")
            .args([name, &pid.to_string()])
            .status();
        sent.is_ok_and(|status| status.success())
    }

    /// Arms fail points for its next start, or disarms them where there are none.
    pub async fn arm(&self, points: &str) {
        points.clone_into(&mut *self.armed.lock().await);
    }

    /// How often a fail point has failed in this way so far.
    pub async fn failed(&self, point: &str, way: &str) -> u64 {
        let told = self.told().await;
        told.failed.get(&failure(point, way)).copied().unwrap_or(0)
    }

    /// How often something in it has panicked so far.
    pub async fn panicked(&self) -> u64 {
        self.told().await.panicked
    }

    async fn told(&self) -> Told {
        let process = self.process.lock().await;
        let mut told = self.former.lock().await.clone();
        if let Some(running) = process.as_ref() {
            told.add(Told::by(running));
        }
        told
    }

    /// What it has logged since it was started.
    pub async fn log(&self) -> String {
        self.process
            .lock()
            .await
            .as_ref()
            .map(Process::log)
            .unwrap_or_default()
    }
}

/// What the logs of processes tell.
#[derive(Default, Clone)]
struct Told {
    /// How often each fail point has failed in each way.
    failed: HashMap<String, u64>,
    panicked: u64,
}

impl Told {
    fn by(process: &Process) -> Self {
        let log = process.log();
        let mut failed = HashMap::new();
        for line in log.lines().filter(|line| line.contains("fail point")) {
            let line: Value = serde_json::from_str(line).unwrap_or_default();
            if let (Some(point), Some(way)) = (line["step"].as_str(), line["told"].as_str()) {
                *failed.entry(failure(point, way)).or_default() += 1;
            }
        }
        let panicked = log.matches("panicked at").count() as u64;
        Self { failed, panicked }
    }

    fn add(&mut self, other: Self) {
        for (failure, times) in other.failed {
            *self.failed.entry(failure).or_default() += times;
        }
        self.panicked += other.panicked;
    }
}

/// As it is armed.
fn failure(point: &str, way: &str) -> String {
    format!("{point}={way}")
}
