//! Tasks of a process: if one panics the process ends, and its supervisor starts another. Accepted
//! work is safe whenever a process ends; a process that went on without one of its tasks would look
//! healthy, and be not.

use std::pin::Pin;

use tokio::task::JoinSet;

/// A future for a task whose panic ends the process with exit code 1.
pub fn vital(
    name: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    // Of one type for all tasks: the runtime's code for a task is compiled once for each type.
    ends_with(name, Box::pin(task))
}

#[expect(clippy::exit, reason = "that is what it is for")]
async fn ends_with(name: &'static str, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
    // A panic can only be caught at the boundary of a task. The set takes it along when dropped.
    let mut tasks = JoinSet::new();
    tasks.spawn(task);
    if let Some(Err(error)) = tasks.join_next().await
        && error.is_panic()
    {
        tracing::error!(task = name, "a vital task panicked: the process ends");
        std::process::exit(1);
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
            vital("test", async move { assert!(panics == "no", "as told") }).await;
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
