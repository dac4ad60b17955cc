//! The servers that all tests share, and private ones for tests that break their server.

use std::{
    ops::Deref,
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
pub struct PrivateServer {
    script: PathBuf,
    pub folder: PathBuf,
    /// For the script, whenever it runs.
    environment: Vec<(String, String)>,
}

impl PrivateServer {
    fn start(kind: &str, parent: &Path, environment: &[(&str, &str)]) -> Self {
        let environment = environment.iter();
        let server = Self {
            script: script(kind),
            folder: parent.join(format!("{kind}-{}", Uuid::new_v4().simple())),
            environment: environment
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
        };
        server.run("start", &[]);
        server
    }

    pub fn start_again(&self) {
        self.run("start", &[]);
    }

    pub fn url(&self) -> String {
        self.run("url", &[])
    }

    /// Ends it as a crash would.
    pub fn kill(&self) {
        self.signal("-KILL");
    }

    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    /// Stops it in order.
    pub fn stop(&self) {
        self.run("stop", &[]);
    }

    fn run(&self, verb: &str, arguments: &[&str]) -> String {
        let answer = self.try_run(verb, arguments);
        answer.unwrap_or_else(|error| panic!("{verb}: {error}"))
    }

    /// What the script prints, or its complaint.
    fn try_run(&self, verb: &str, arguments: &[&str]) -> Result<String, String> {
        let environment = self.environment.iter();
        let output = Command::new(&self.script)
            .arg(verb)
            .arg(&self.folder)
            .args(arguments)
            .envs(environment.map(|(name, value)| (name, value)))
            .stdin(std::process::Stdio::null())
            .output()
            .expect("the script runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
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
    pub fn is_frozen(&self) -> bool {
        let status = format!("/proc/{}/status", self.run("pid", &[]));
        let status = std::fs::read_to_string(status).unwrap_or_default();
        status.lines().any(|line| line.starts_with("State:\tT"))
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        let _ = Command::new(&self.script)
            .arg("delete")
            .arg(&self.folder)
            .status();
    }
}

/// A RabbitMQ node that a test may block, kill and start again.
pub struct PrivateBroker(PrivateServer);

impl PrivateBroker {
    /// `settings` are lines for rabbitmq.conf.
    pub fn start(settings: &str) -> Self {
        Self::start_in(&folder(), &[("LETTERBOX_RABBITMQ_SETTINGS", settings)])
    }

    /// In this folder, with variables for the script.
    pub fn start_in(parent: &Path, environment: &[(&str, &str)]) -> Self {
        Self(PrivateServer::start("rabbitmq", parent, environment))
    }

    /// The answer of `rabbitmqctl`.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        self.run("ctl", arguments)
    }

    /// The answer of `rabbitmq-queues`.
    pub fn queues(&self, arguments: &[&str]) -> String {
        self.run("queues", arguments)
    }

    /// The answer of `rabbitmqctl` at a node that may be away.
    pub fn try_ctl(&self, arguments: &[&str]) -> Option<String> {
        self.try_run("ctl", arguments).ok()
    }
}

impl Deref for PrivateBroker {
    type Target = PrivateServer;

    fn deref(&self) -> &PrivateServer {
        &self.0
    }
}

/// A PostgreSQL of its own.
pub struct PrivateDatabase(PrivateServer);

impl PrivateDatabase {
    /// `options` are for the server's command line.
    pub fn start(options: &str) -> Self {
        Self::start_in(&folder(), &[("LETTERBOX_POSTGRES_OPTIONS", options)])
    }

    /// In this folder, with variables of its environment.
    pub fn start_in(parent: &Path, environment: &[(&str, &str)]) -> Self {
        Self(PrivateServer::start("postgres", parent, environment))
    }

    /// Becomes a standby of another one, and forgets what it had.
    pub fn follow(&self, primary: &Self) {
        self.run("follow", &[&primary.folder.to_string_lossy()]);
    }
}

impl Deref for PrivateDatabase {
    type Target = PrivateServer;

    fn deref(&self) -> &PrivateServer {
        &self.0
    }
}
