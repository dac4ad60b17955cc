//! Evaluates templates beside the executor, where one that does not end can be left behind: the
//! check at deployment and the clock of a rendering both trust what they know of the engine.

use std::{fmt::Display, time::Duration};

use tokio::{sync::oneshot, task::spawn_blocking, time::timeout};

/// How long evaluating may take, waiting for the processor included: well under any lease.
const MAX_TIME: Duration = Duration::from_secs(5);

/// What the templates of an action give.
pub(super) async fn evaluate<T: Send + 'static, E: Display + Send + 'static>(
    templates: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, String> {
    let (begin, begun) = oneshot::channel();
    let evaluating = spawn_blocking(move || {
        // Whoever waits for a thread has not begun.
        let _ = begin.send(());
        templates()
    });
    let _ = begun.await;
    match timeout(MAX_TIME, evaluating).await {
        Ok(Ok(evaluated)) => evaluated.map_err(|error| error.to_string()),
        Ok(Err(error)) => {
            tracing::error!(%error, "the evaluation of a template panicked");
            Err("its templates can't be evaluated".to_owned())
        }
        Err(_) => {
            let seconds = MAX_TIME.as_secs();
            tracing::error!(
                seconds,
                "templates take too long: their thread is lost until they end"
            );
            Err(format!("its templates take more than {seconds} s"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Should the check ever let through what does not end, nothing waits for it.
    #[tokio::test]
    async fn what_does_not_end_is_left_behind() {
        let (end, ended) = mpsc::channel::<()>();
        let endless = evaluate(move || ended.recv().map_err(|error| error.to_string()));
        assert_eq!(
            endless.await,
            Err("its templates take more than 5 s".to_owned())
        );
        drop(end);
        let panics = evaluate(|| -> Result<(), String> { panic!("of a test") });
        assert_eq!(
            panics.await,
            Err("its templates can't be evaluated".to_owned())
        );
    }
}
