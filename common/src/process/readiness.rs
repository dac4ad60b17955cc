//! Whether a process can do its work: true when each of its parts says so. Asked by `/readyz`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The parts of a process and what each of them waits for.
#[derive(Debug, Clone, Default)]
pub struct Readiness {
    waiting: Arc<Mutex<BTreeMap<&'static str, String>>>,
}

/// One part's own switch.
#[derive(Debug, Clone)]
pub struct Part {
    name: &'static str,
    whole: Readiness,
}

impl Readiness {
    /// Adds a part, which is not ready yet.
    #[must_use]
    pub fn part(&self, name: &'static str) -> Part {
        let part = Part {
            name,
            whole: self.clone(),
        };
        part.waits_for("starting");
        part
    }

    /// What keeps the process from being ready, by part. Empty when it is.
    #[must_use]
    pub fn waiting(&self) -> BTreeMap<&'static str, String> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    /// The part can do its work. Logged when it could not before.
    pub fn ready(&self) {
        if self.whole.lock().remove(self.name).is_some() {
            tracing::info!(part = self.name, "ready");
        }
    }

    /// The part can't do its work, and why. Logged when the reason is new.
    pub fn waits_for(&self, reason: impl Into<String>) {
        let reason = reason.into();
        let before = self.whole.lock().insert(self.name, reason.clone());
        if before.is_none_or(|before| before != reason) {
            tracing::info!(part = self.name, reason, "not ready");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_when_every_part_is() {
        let readiness = Readiness::default();
        let (database, broker) = (readiness.part("database"), readiness.part("broker"));
        assert_eq!(readiness.waiting().len(), 2);
        database.ready();
        broker.ready();
        assert!(readiness.waiting().is_empty());
        broker.waits_for("connection lost");
        assert_eq!(readiness.waiting()["broker"], "connection lost");
    }
}
