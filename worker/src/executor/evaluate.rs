//! Evaluates templates: small ones at once, others beside the executor, where one that does not end
//! can be left behind. The check at deployment and the clock of a rendering both trust what they
//! know of the engine.

use std::{
    fmt::Display,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use letterbox_workflow::{References, SHORT_VALUE};
use tokio::{sync::oneshot, task::spawn_blocking, time::timeout};

/// How long evaluating may take, waiting for the processor included: well under any lease.
const MAX_TIME: Duration = Duration::from_secs(5);
/// The size up to which templates are small: 4 KiB of them, and 512 bytes of values.
const SMALL: usize = 2 << 20;

/// The size up to which they may keep others waiting: for some milliseconds at the worst.
pub(super) const VERY_SMALL: usize = SMALL / 2;

/// The most that the templates of a release with these references can have to do, in bytes: those
/// that they insert of the values, and what is made of these.
pub(super) fn size(release: usize, values: usize, references: &References) -> usize {
    let each = release.saturating_add(references.work());
    each.saturating_mul(values.max(SHORT_VALUE))
}

/// What the templates of an action of a [`size`] give.
pub(super) async fn evaluate<T: Send + 'static, E: Display + Send + 'static>(
    size: usize,
    templates: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, String> {
    let evaluated = match size {
        ..=SMALL => catch_unwind(AssertUnwindSafe(templates)).ok(),
        _ => beside(templates).await?,
    };
    match evaluated {
        Some(evaluated) => evaluated.map_err(|error| error.to_string()),
        None => {
            tracing::error!("the evaluation of a template panicked");
            Err("its templates can't be evaluated".to_owned())
        }
    }
}

/// What they give on another thread; `None` if they panic.
async fn beside<T: Send + 'static>(
    templates: impl FnOnce() -> T + Send + 'static,
) -> Result<Option<T>, String> {
    let (begin, begun) = oneshot::channel();
    let evaluating = spawn_blocking(move || {
        // Whoever waits for a thread has not begun.
        let _ = begin.send(());
        templates()
    });
    let _ = begun.await;
    match timeout(MAX_TIME, evaluating).await {
        Ok(evaluated) => Ok(evaluated.ok()),
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
        let templates = move || ended.recv().map_err(|error| error.to_string());
        let endless = evaluate(SMALL + 1, templates).await;
        assert_eq!(endless, Err("its templates take more than 5 s".to_owned()));
        drop(end);
        for size in [SMALL, SMALL + 1] {
            let panics = evaluate(size, || -> Result<(), String> { panic!("of a test") });
            let expected = Err("its templates can't be evaluated".to_owned());
            assert_eq!(panics.await, expected, "{size}");
        }
    }
}
