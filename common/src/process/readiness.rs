//! The readiness of a process, as `/readyz` reports it: a process is ready when each of its
//! components is.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The components of a process that are not ready, and why.
#[derive(Debug, Clone, Default)]
pub struct Readiness {
    waiting: Reasons,
    degraded: Reasons,
}

/// Why each component is not ready, by its name.
type Reasons = Arc<Mutex<BTreeMap<&'static str, String>>>;

/// The handle by which a component reports its readiness.
#[derive(Debug, Clone)]
pub struct Component {
    name: &'static str,
    reasons: Reasons,
}

impl Readiness {
    /// Adds a component, which is not ready yet.
    #[must_use]
    pub fn component(&self, name: &'static str) -> Component {
        Component::starting(name, &self.waiting)
    }

    /// Adds a component that the process can do without for a while: it is reported, but the
    /// process is ready without it.
    #[must_use]
    pub fn dispensable(&self, name: &'static str) -> Component {
        Component::starting(name, &self.degraded)
    }

    /// Why the process is not ready, by component. Empty when it is.
    #[must_use]
    pub fn waiting(&self) -> BTreeMap<&'static str, String> {
        lock(&self.waiting).clone()
    }

    /// The components that the process does without at the moment, and why.
    #[must_use]
    pub fn degraded(&self) -> BTreeMap<&'static str, String> {
        lock(&self.degraded).clone()
    }
}

fn lock(reasons: &Reasons) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
    reasons.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Component {
    fn starting(name: &'static str, reasons: &Reasons) -> Self {
        let reasons = reasons.clone();
        let component = Self { name, reasons };
        component.not_ready("starting");
        component
    }

    /// Marks the component as ready. Logged when it was not.
    pub fn ready(&self) {
        if lock(&self.reasons).remove(self.name).is_some() {
            tracing::info!(component = self.name, "ready");
        }
    }

    /// Marks the component as not ready. Logged when the reason is new.
    pub fn not_ready(&self, reason: impl Into<String>) {
        let reason = reason.into();
        let before = lock(&self.reasons).insert(self.name, reason.clone());
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

    #[test]
    fn what_can_be_done_without_is_reported_only() {
        let readiness = Readiness::default();
        let broker = readiness.dispensable("broker");
        assert!(readiness.waiting().is_empty());
        assert_eq!(readiness.degraded()["broker"], "starting");
        broker.ready();
        assert!(readiness.degraded().is_empty());
    }
}
