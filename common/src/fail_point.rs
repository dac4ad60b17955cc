//! Fail points: steps at which a test build can be told to crash, to fail or to be slow, by the
//! variable `FAILPOINTS` (`statement.claim_new.after=5*off->1*return(crash)`, as the crate
//! `fail` reads it). Every statement, publish, acknowledgement and request passes one before and
//! one after, every transaction one before its commit, and a batch of messages one when it has
//! arrived. They are nothing in release builds, and without the feature `fail-points`, which only
//! the tests turn on.

/// Passes a step, whose name has these parts; whether it has to fail, as if the other side had not
/// answered.
#[cfg(all(feature = "fail-points", debug_assertions))]
pub async fn fails(step: &[&str]) -> bool {
    armed::pass(step).await
}

/// Passes a step: nothing.
#[cfg(not(all(feature = "fail-points", debug_assertions)))]
#[expect(clippy::unused_async, reason = "as it is where it does something")]
pub async fn fails(_: &[&str]) -> bool {
    false
}

#[cfg(all(feature = "fail-points", debug_assertions))]
mod armed {
    use std::{sync::LazyLock, time::Duration};

    /// How long a slow step takes: longer than a publish may.
    const SLOW: Duration = Duration::from_millis(2_500);

    /// Whether any point is armed in this process.
    static IS_ANY: LazyLock<bool> = LazyLock::new(|| {
        // It would disarm them when dropped.
        std::mem::forget(fail::FailScenario::setup());
        !fail::list().is_empty()
    });

    pub(super) async fn pass(step: &[&str]) -> bool {
        if !*IS_ANY {
            return false;
        }
        let step = step.join(".");
        let Some(told) = told(&step) else {
            return false;
        };
        // Whoever armed it counts these lines.
        tracing::warn!(step, told, "fail point");
        match told.as_str() {
            "crash" => std::process::abort(),
            "slow" => {
                tokio::time::sleep(SLOW).await;
                false
            }
            _ => true,
        }
    }

    fn told(step: &str) -> Option<String> {
        fail::fail_point!(step, |told| told);
        None
    }
}
