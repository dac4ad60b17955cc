//! A real gateway or worker process: started, watched, signalled, ended.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::PathBuf,
    process::Stdio,
};

use serde_json::Value;
use tokio::process::{Child, Command};
use uuid::Uuid;

use crate::{eventually, http_client, marks::assert_unmarked};

/// A program that `cargo build` has made, in the profile of the running one; or of the former
/// version, where it is called `former/…`.
pub fn binary(program: &str) -> PathBuf {
    if let Some(program) = program.strip_prefix("former/") {
        return former().expect("asked for where it is there").join(program);
    }
    let running = std::env::current_exe().unwrap();
    let folders = running.ancestors().skip(1).take(2);
    let found = folders
        .map(|folder| folder.join(program))
        .find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{program} is not built: use deploy/test or deploy/bench"))
}

/// Where the programs of the former version are; None where there is none, or no history to build
/// it from.
pub fn former() -> Option<PathBuf> {
    std::env::var_os("LETTERBOX_TEST_FORMER").map(PathBuf::from)
}

/// A running process and its log. Killed when dropped.
pub struct Process {
    child: Child,
    /// What it has logged, with no name in any folder: what it has written can be read at once.
    log: File,
    pub http: reqwest::Client,
}

impl Process {
    pub fn start(program: &str, settings: &[(&str, &str)]) -> Self {
        let path = std::env::temp_dir().join(format!("letterbox-log-{}", Uuid::new_v4()));
        let mut options = File::options();
        let log = options.read(true).append(true).create_new(true).open(&path);
        let log = log.unwrap();
        fs::remove_file(&path).unwrap();
        let child = Command::new(binary(program))
            .env_clear()
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stderr(log.try_clone().unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            child,
            log,
            http: http_client(),
        }
    }

    /// The URL of a socket, once it listens.
    fn url(&self, socket: &str) -> Option<String> {
        let log = self.log();
        let mut lines = log.lines().filter(|line| line.contains("listening"));
        let listening = lines.find_map(|line| {
            let event: Value = serde_json::from_str(line).ok()?;
            let is_it = event["message"] == "listening" && event["socket"] == socket;
            is_it.then_some(event)
        })?;
        Some(format!("http://{}", listening["address"].as_str()?))
    }

    pub fn public_url(&self) -> String {
        self.url("public").expect("the gateway listens")
    }

    /// `host:port` of the public socket.
    pub fn public_address(&self) -> String {
        self.public_url().replace("http://", "")
    }

    /// Everything that the process has logged.
    pub fn log(&self) -> String {
        let mut bytes = vec![0; self.log.metadata().unwrap().len() as usize];
        self.log.read_exact_at(&mut bytes, 0).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Status and body of a path on the admin address; nothing when it does not answer.
    pub async fn admin(&self, path: &str) -> Option<(u16, String)> {
        let url = format!("{}{path}", self.url("admin")?);
        let answer = self.http.get(url).send().await.ok()?;
        let (status, text) = (answer.status().as_u16(), answer.text().await.ok()?);
        assert_unmarked(path, &text);
        Some((status, text))
    }

    pub async fn is_ready(&self) -> bool {
        matches!(self.admin("/readyz").await, Some((200, _)))
    }

    /// Whether it is ready and does without nothing.
    pub async fn is_whole(&self) -> bool {
        let answer = self.admin("/readyz").await;
        matches!(answer, Some((200, text)) if text.contains(r#""degraded":{}"#))
    }

    /// Waits until it is ready and does without nothing.
    pub async fn await_ready(&self) {
        eventually(&format!("ready:\n{}", self.quiet_log()), async || {
            self.is_whole().await
        })
        .await;
    }

    pub async fn await_not_ready(&self) {
        eventually("not ready", async || !self.is_ready().await).await;
    }

    /// Waits until it is not ready, and says these words of that.
    pub async fn await_not_ready_for(&self, words: &str) {
        eventually(words, async || {
            let answer = self.admin("/readyz").await;
            matches!(answer, Some((503, text)) if text.contains(words))
        })
        .await;
    }

    /// Waits until it has logged some words.
    pub async fn await_log(&self, words: &str) {
        eventually(words, async || self.log().contains(words)).await;
    }

    fn quiet_log(&self) -> String {
        self.log()
            .lines()
            .filter(|line| !line.contains("TRACE"))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// The value of a metric, summed over its labels.
    pub async fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.admin("/metrics").await.unwrap();
        let lines = text
            .lines()
            .filter(|line| line.starts_with(name) && !line.starts_with('#'));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Waits until a metric, summed over its labels, has this value.
    pub async fn await_metric(&self, name: &str, expected: f64) {
        let what = format!("{name} {expected}");
        eventually(&what, async || self.metric(name).await == expected).await;
    }

    /// How often it has called a statement of the database.
    pub async fn calls(&self, statement: &str) -> f64 {
        let name = "letterbox_statement_duration_seconds_count";
        self.metric(&format!("{name}{{statement=\"{statement}\"}}"))
            .await
    }

    pub fn pid(&self) -> u32 {
        self.child.id().expect("the process runs")
    }

    fn signal(&self, name: &str) {
        let status = std::process::Command::new("kill")
            .args([name, &self.pid().to_string()])
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// Whether it is over already.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Asks it to stop, and does not wait.
    pub fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> std::process::ExitStatus {
        let patience = std::time::Duration::from_secs(40);
        let status = tokio::time::timeout(patience, self.child.wait()).await;
        status.expect("it ends").unwrap()
    }

    /// Ends it as a crash would.
    pub async fn kill(&mut self) {
        self.signal("-KILL");
        self.ended().await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_unmarked("a log", &self.log());
        }
    }
}
