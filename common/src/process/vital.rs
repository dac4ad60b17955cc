//! Tasks that a process can't do without: if one panics the process ends, and its supervisor starts
//! another. Accepted work is safe whenever a process ends; a process that went on without such a
//! task would answer everything with a 503 and look healthy.

use tokio::task::JoinHandle;

/// Starts a task whose panic ends the process with exit code 1.
pub fn spawn_vital(
    name: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(vital(name, task))
}

/// A future for a task whose panic ends the process with exit code 1.
#[expect(clippy::exit, reason = "that is what it is for")]
pub async fn vital(name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
    // A panic can only be caught at the boundary of a task.
    let mut task = AbortOnDrop(tokio::spawn(task));
    if let Err(error) = (&mut task.0).await
        && error.is_panic()
    {
        tracing::error!(task = name, "a vital task panicked: the process ends");
        std::process::exit(1);
    }
}

/// Aborts its task when dropped, as if the task were a plain future.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: &str = "LETTERBOX_TEST_VITAL";

    /// Runs itself again as a child process, in which a vital task panics or not.
    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "tells the child process apart")]
    async fn a_panic_ends_the_process() {
        if let Ok(panics) = std::env::var(CHILD) {
            let task = spawn_vital("test", async move { assert!(panics == "no", "as told") });
            let _ = task.await;
            std::process::exit(7);
        }
        let name = "process::vital::tests::a_panic_ends_the_process";
        for (panics, code) in [("no", 7), ("yes", 1)] {
            let own = std::env::current_exe().unwrap();
            let status = std::process::Command::new(own)
                .args(["--exact", name, "--nocapture"])
                .env(CHILD, panics)
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .status();
            assert_eq!(status.unwrap().code(), Some(code), "{panics}");
        }
    }
}
