//! The servers that all tests share, and private ones for tests that break their server.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

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
    /// For the script, whenever it runs.
    settings: Vec<(String, String)>,
}

impl Private {
    fn new(kind: &str, parent: &Path, settings: &[(&str, &str)]) -> Self {
        let settings = settings.iter();
        let private = Self {
            script: script(kind),
            folder: parent.join(format!("{kind}-{}", Uuid::new_v4().simple())),
            settings: settings
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
        };
        private.run("start", &[]);
        private
    }

    fn run(&self, verb: &str, arguments: &[&str]) -> String {
        let settings = self.settings.iter();
        let output = Command::new(&self.script)
            .arg(verb)
            .arg(&self.folder)
            .args(arguments)
            .envs(settings.map(|(name, value)| (name, value)))
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
        let pid = self.run("pid", &[]);
        // The children first: they would end with their parent, in order.
        let children = Command::new("pkill").args([name, "-P", &pid]).status();
        children.expect("pkill runs");
        let parent = Command::new("kill").args([name, &pid]).status();
        assert!(parent.expect("kill runs").success());
    }

    /// Whether the server is stopped by a signal.
    fn is_frozen(&self) -> bool {
        let status = format!("/proc/{}/status", self.run("pid", &[]));
        let status = std::fs::read_to_string(status).unwrap_or_default();
        status.lines().any(|line| line.starts_with("State:\tT"))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = Command::new(&self.script)
            .arg("delete")
            .arg(&self.folder)
            .status();
    }
}

/// A RabbitMQ node that a test may block, kill and start again.
pub struct PrivateBroker(Private);

impl PrivateBroker {
    /// `settings` are lines for rabbitmq.conf.
    pub fn start(settings: &str) -> Self {
        let settings = [("LETTERBOX_RABBITMQ_SETTINGS", settings)];
        Self(Private::new("rabbitmq", &folder(), &settings))
    }

    pub fn start_again(&self) {
        self.0.run("start", &[]);
    }

    pub fn url(&self) -> String {
        self.0.run("url", &[])
    }

    /// The answer of `rabbitmqctl`.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        self.0.run("ctl", arguments)
    }

    /// Ends the node as a crash would.
    pub fn kill(&self) {
        self.0.signal("-KILL");
    }

    pub fn freeze(&self) {
        self.0.signal("-STOP");
    }

    pub fn is_frozen(&self) -> bool {
        self.0.is_frozen()
    }

    pub fn thaw(&self) {
        self.0.signal("-CONT");
    }

    /// Stops it in order.
    pub fn stop(&self) {
        self.0.run("stop", &[]);
    }
}

/// A PostgreSQL of its own.
pub struct PrivateDatabase(Private);

impl PrivateDatabase {
    /// `options` are for the server's command line.
    pub fn start(options: &str) -> Self {
        Self::start_in(&folder(), &[("LETTERBOX_POSTGRES_OPTIONS", options)])
    }

    /// In this folder, with variables of its environment.
    pub fn start_in(parent: &Path, environment: &[(&str, &str)]) -> Self {
        Self(Private::new("postgres", parent, environment))
    }

    pub fn start_again(&self) {
        self.0.run("start", &[]);
    }

    pub fn url(&self) -> String {
        self.0.run("url", &[])
    }

    /// Ends it as a crash would.
    pub fn kill(&self) {
        self.0.signal("-KILL");
    }

    pub fn freeze(&self) {
        self.0.signal("-STOP");
    }

    pub fn is_frozen(&self) -> bool {
        self.0.is_frozen()
    }

    pub fn thaw(&self) {
        self.0.signal("-CONT");
    }

    /// Stops it in order.
    pub fn stop(&self) {
        self.0.run("stop", &[]);
    }
}
