//! The servers that all tests share, and private ones for tests that break their server.

use std::{path::PathBuf, process::Command, sync::OnceLock};

use uuid::Uuid;

/// The folder for servers and files of the tests.
pub fn folder() -> PathBuf {
    let folder = std::env::var_os("LETTERBOX_TEST_FOLDER");
    PathBuf::from(folder.expect("started by deploy/test or deploy/prove"))
}

/// Where the shared servers are.
pub struct Servers {
    pub database_url: String,
    /// For the administrator, who may do anything.
    pub amqp_url: String,
    /// For gateways and workers, with their rights.
    pub process_amqp_urls: [String; 2],
    pub dashboard_url: String,
}

impl Servers {
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Servers> = OnceLock::new();
        SHARED.get_or_init(|| {
            let get = |name: &str| {
                std::env::var(name)
                    .unwrap_or_else(|_| panic!("{name} is not set: run the tests with deploy/test"))
            };
            Self {
                database_url: get("LETTERBOX_TEST_DATABASE_URL"),
                amqp_url: get("LETTERBOX_TEST_AMQP_URL"),
                process_amqp_urls: [
                    get("LETTERBOX_TEST_GATEWAY_AMQP_URL"),
                    get("LETTERBOX_TEST_WORKER_AMQP_URL"),
                ],
                dashboard_url: get("LETTERBOX_TEST_DASHBOARD_URL"),
            }
        })
    }
}

fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy/lib")
        .join(name)
}

/// A server of one test's own, started by the same script that `deploy/up` uses, stopped when
/// dropped.
struct Private {
    script: PathBuf,
    folder: PathBuf,
    last_verb: &'static str,
}

impl Private {
    fn new(kind: &str, last_verb: &'static str) -> Self {
        let folder = folder().join(format!("{kind}-{}", Uuid::new_v4().simple()));
        Self {
            script: script(kind),
            folder,
            last_verb,
        }
    }

    fn run(&self, verb: &str, arguments: &[&str], settings: &[(&str, &str)]) -> String {
        let output = Command::new(&self.script)
            .arg(verb)
            .arg(&self.folder)
            .args(arguments)
            .envs(settings.iter().copied())
            .stdin(std::process::Stdio::null())
            .output()
            .expect("the script runs");
        assert!(
            output.status.success(),
            "{verb}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Sends a signal to the server and all of its processes.
    fn signal(&self, name: &str) {
        let pid = self.run("pid", &[], &[]);
        // The children first: they would end with their parent, in order.
        let children = Command::new("pkill").args([name, "-P", &pid]).status();
        children.expect("pkill runs");
        let parent = Command::new("kill").args([name, &pid]).status();
        assert!(parent.expect("kill runs").success());
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = Command::new(&self.script)
            .arg(self.last_verb)
            .arg(&self.folder)
            .status();
    }
}

/// A RabbitMQ node that a test may block, kill and start again.
pub struct PrivateBroker(Private);

impl PrivateBroker {
    /// `settings` are lines for rabbitmq.conf.
    pub fn start(settings: &str) -> Self {
        let private = Private::new("rabbitmq", "delete");
        private.run("start", &[], &[("LETTERBOX_RABBITMQ_SETTINGS", settings)]);
        Self(private)
    }

    pub fn start_again(&self) {
        self.0.run("start", &[], &[]);
    }

    pub fn url(&self) -> String {
        self.0.run("url", &[], &[])
    }

    /// The answer of `rabbitmqctl`.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        self.0.run("ctl", arguments, &[])
    }

    /// Ends the node as a crash would.
    pub fn kill(&self) {
        self.0.signal("-KILL");
    }

    pub fn freeze(&self) {
        self.0.signal("-STOP");
    }

    pub fn thaw(&self) {
        self.0.signal("-CONT");
    }

    /// Stops it in order.
    pub fn stop(&self) {
        self.0.run("stop", &[], &[]);
    }
}

/// A PostgreSQL of its own.
pub struct PrivateDatabase(Private);

impl PrivateDatabase {
    /// `options` are for the server's command line.
    pub fn start(options: &str) -> Self {
        let private = Private::new("postgres", "delete");
        private.run("start", &[], &[("LETTERBOX_POSTGRES_OPTIONS", options)]);
        Self(private)
    }

    pub fn start_again(&self) {
        self.0.run("start", &[], &[]);
    }

    pub fn url(&self) -> String {
        self.0.run("url", &[], &[])
    }

    /// Ends it as a crash would.
    pub fn kill(&self) {
        self.0.signal("-KILL");
    }

    pub fn freeze(&self) {
        self.0.signal("-STOP");
    }

    pub fn thaw(&self) {
        self.0.signal("-CONT");
    }

    /// Stops it in order.
    pub fn stop(&self) {
        self.0.run("stop", &[], &[]);
    }
}
