//! The readiness of a process, as `/readyz` reports it: a process is ready when each of its
//! components is. A component may have members, of which one is enough.

use std::{collections::BTreeMap, fmt, sync::Arc};

use parking_lot::Mutex;
/// The components of a process, and what they wait for.
#[derive(Debug, Clone, Default)]
pub struct Readiness(ReadinessParts);

type ReadinessParts = Arc<Mutex<BTreeMap<&'static str, ReadinessPart>>>;

/// A component: its members, or itself under an empty name.
#[derive(Debug, Default)]
struct ReadinessPart {
    is_dispensable: bool,
    /// Why each is not ready; `None` when it is.
    members: BTreeMap<String, Option<String>>,
}

/// The handle by which a component reports its readiness.
#[derive(Debug, Clone)]
pub struct Component {
    name: &'static str,
    member: String,
    parts: ReadinessParts,
}

impl Readiness {
    /// Adds a component, which is not ready yet.
    pub fn component(&self, name: &'static str) -> Component {
        self.add(name, String::new(), false)
    }

    /// Adds a component that the process can do without for a while: it is reported, but the
    /// process is ready without it.
    pub fn dispensable(&self, name: &'static str) -> Component {
        self.add(name, String::new(), true)
    }

    /// Adds a member to a component that is ready while any of its members is; the others are
    /// reported.
    pub fn one_of(&self, name: &'static str, member: &str) -> Component {
        self.add(name, member.to_owned(), false)
    }

    fn add(&self, name: &'static str, member: String, is_dispensable: bool) -> Component {
        let mut parts = self.0.lock();
        let part = parts.entry(name).or_default();
        part.is_dispensable = is_dispensable;
        part.members
            .insert(member.clone(), Some("starting".to_owned()));
        Component {
            name,
            member,
            parts: self.0.clone(),
        }
    }

    /// Why the process is not ready, by component. Empty when it is.
    pub fn waiting(&self) -> BTreeMap<&'static str, String> {
        self.reasons(|part| !part.is_dispensable && part.waits())
    }

    /// The components that the process does without at the moment, and why.
    pub fn degraded(&self) -> BTreeMap<&'static str, String> {
        self.reasons(|part| part.is_dispensable || !part.waits())
    }

    fn reasons(&self, is_asked: impl Fn(&ReadinessPart) -> bool) -> BTreeMap<&'static str, String> {
        let parts = self.0.lock();
        let asked = parts.iter().filter(|(_, part)| is_asked(part));
        let told = asked.filter_map(|(name, part)| Some((*name, part.reason()?)));
        told.collect()
    }
}

impl ReadinessPart {
    fn waits(&self) -> bool {
        self.members.values().all(Option::is_some)
    }

    /// What its members wait for; `None` if for nothing.
    fn reason(&self) -> Option<String> {
        let first = self.members.values().next()?;
        // One reason for all is not repeated for each.
        if self.members.values().all(|reason| reason == first) {
            return first.clone();
        }
        let reasons = self.members.iter();
        let reasons =
            reasons.filter_map(|(member, why)| Some(format!("{member}: {}", why.as_ref()?)));
        Some(reasons.collect::<Vec<_>>().join("; "))
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.member.as_str() {
            "" => f.write_str(self.name),
            member => write!(f, "{}: {member}", self.name),
        }
    }
}

impl Component {
    /// Marks the component as ready. Logged when it was not.
    pub fn ready(&self) {
        if self.set(None) {
            tracing::info!(component = %self, "ready");
        }
    }

    /// Marks the component as not ready. Logged when the reason is new.
    pub fn not_ready(&self, reason: impl Into<String>) {
        let reason = reason.into();
        if self.set(Some(reason.clone())) {
            tracing::info!(component = %self, reason, "not ready");
        }
    }

    /// Returns whether this is new.
    fn set(&self, reason: Option<String>) -> bool {
        let mut parts = self.parts.lock();
        let members = parts.get_mut(self.name).map(|part| &mut part.members);
        let Some(now) = members.and_then(|members| members.get_mut(&self.member)) else {
            return false;
        };
        let is_new = *now != reason;
        *now = reason;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_when_every_component_is() {
        let readiness = Readiness::default();
        let database = readiness.component("database");
        let broker = readiness.component("broker");
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

    #[test]
    fn one_member_of_a_component_is_enough() {
        let readiness = Readiness::default();
        let [first, second] = ["first", "second"].map(|name| readiness.one_of("queues", name));
        first.ready();
        second.not_ready("down");
        assert!(readiness.waiting().is_empty());
        assert_eq!(readiness.degraded()["queues"], "second: down");
        first.not_ready("away");
        assert_eq!(readiness.waiting()["queues"], "first: away; second: down");
        assert!(readiness.degraded().is_empty());
        second.not_ready("away");
        assert_eq!(readiness.waiting()["queues"], "away");
        second.ready();
        first.ready();
        assert!(readiness.waiting().is_empty() && readiness.degraded().is_empty());
    }
}
