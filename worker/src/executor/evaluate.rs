//! Evaluates templates beside the executor, where one that does not end can be left behind: the
//! check at deployment and the clock of a rendering both trust what they know of the engine.

use std::{panic::resume_unwind, time::Duration};

use letterbox_workflow::RenderError;
use tokio::{task::spawn_blocking, time::timeout};

/// How long evaluating may take, waiting for the processor included: well under any lease.
const MAX_TIME: Duration = Duration::from_secs(5);

/// What the templates of an action give.
///
/// # Errors
/// When they give nothing, or do not end.
pub(super) async fn evaluate<T: Send + 'static>(
    templates: impl FnOnce() -> Result<T, RenderError> + Send + 'static,
) -> Result<T, String> {
    match timeout(MAX_TIME, spawn_blocking(templates)).await {
        Ok(Ok(evaluated)) => evaluated.map_err(|error| error.to_string()),
        Ok(Err(panicked)) => resume_unwind(panicked.into_panic()),
        Err(_) => {
            let seconds = MAX_TIME.as_secs();
            tracing::error!(
                seconds,
                "a template does not end: a thread is lost until a restart"
            );
            Err(format!("its templates take more than {seconds} s"))
        }
    }
}
