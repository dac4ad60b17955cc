//! A real gateway or worker process: started, watched, signalled, ended.

use std::{
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

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

type Shared<T> = Arc<Mutex<T>>;

/// A running process and its log. Killed when dropped.
pub struct Process {
    child: Child,
    /// Reads the log until its end.
    reading: Option<tokio::task::JoinHandle<()>>,
    log: Shared<Vec<String>>,
    public: Shared<Option<String>>,
    admin: Shared<Option<String>>,
    pub http: reqwest::Client,
}

impl Process {
    pub fn start(program: &str, settings: &[(&str, &str)]) -> Self {
        let mut child = Command::new(binary(program))
            .env_clear()
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let log = Shared::<Vec<String>>::default();
        let (public, admin) = (
            Shared::<Option<String>>::default(),
            Shared::<Option<String>>::default(),
        );
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (kept, heard_public, heard_admin) = (log.clone(), public.clone(), admin.clone());
        let reading = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if line.contains("listening")
                    && let Ok(event) = serde_json::from_str::<serde_json::Value>(&line)
                    && event["message"] == "listening"
                {
                    let heard = if event["socket"] == "public" {
                        &heard_public
                    } else {
                        &heard_admin
                    };
                    *heard.lock().unwrap() = event["address"]
                        .as_str()
                        .map(|address| format!("http://{address}"));
                }
                kept.lock().unwrap().push(line);
            }
        });
        Self {
            child,
            reading: Some(reading),
            log,
            public,
            admin,
            http: http_client(),
        }
    }

    pub fn public_url(&self) -> String {
        self.public
            .lock()
            .unwrap()
            .clone()
            .expect("the gateway listens")
    }

    /// `host:port` of the public socket.
    pub fn public_address(&self) -> String {
        self.public_url().replace("http://", "")
    }

    /// Everything that the process has logged.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// Status and body of a path on the admin address; nothing when it does not answer.
    pub async fn admin(&self, path: &str) -> Option<(u16, String)> {
        let url = format!("{}{path}", self.admin.lock().unwrap().clone()?);
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

    /// Asks it to stop, and does not wait.
    pub fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Waits for its end, and for the last line of its log.
    pub async fn ended(&mut self) -> std::process::ExitStatus {
        let ending = async {
            let status = self.child.wait().await.unwrap();
            if let Some(reading) = self.reading.take() {
                reading.await.unwrap();
            }
            status
        };
        tokio::time::timeout(std::time::Duration::from_secs(40), ending)
            .await
            .expect("it ends")
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
