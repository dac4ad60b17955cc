//! Whether a process can do its work: true when each of its components says so. Asked by
//! `/readyz`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The components of a process that are not ready, and what each of them waits for.
#[derive(Debug, Clone, Default)]
pub struct Readiness {
    waiting: Arc<Mutex<BTreeMap<&'static str, String>>>,
}

/// One component's own switch.
#[derive(Debug, Clone)]
pub struct Component {
    name: &'static str,
    process: Readiness,
}

impl Readiness {
    /// Adds a component, which is not ready yet.
    #[must_use]
    pub fn component(&self, name: &'static str) -> Component {
        let component = Component {
            name,
            process: self.clone(),
        };
        component.not_ready("starting");
        component
    }

    /// What keeps the process from being ready, by component. Empty when it is.
    #[must_use]
    pub fn waiting(&self) -> BTreeMap<&'static str, String> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Component {
    /// The component can do its work. Logged when it could not before.
    pub fn ready(&self) {
        if self.process.lock().remove(self.name).is_some() {
            tracing::info!(component = self.name, "ready");
        }
    }

    /// The component can't do its work, and why. Logged when the reason is new.
    pub fn not_ready(&self, reason: impl Into<String>) {
        let reason = reason.into();
        let before = self.process.lock().insert(self.name, reason.clone());
        if before.is_none_or(|before| before != reason) {
            tracing::info!(component = self.name, reason, "not ready");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_when_every_component_is() {
        let readiness = Readiness::default();
        let (database, broker) = (
            readiness.component("database"),
            readiness.component("broker"),
        );
        assert_eq!(readiness.waiting().len(), 2);
        database.ready();
        broker.ready();
        assert!(readiness.waiting().is_empty());
        broker.not_ready("connection lost");
        assert_eq!(readiness.waiting()["broker"], "connection lost");
    }
}
