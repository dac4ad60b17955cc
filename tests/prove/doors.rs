//! The doors: how often something is sent to each, and where it is seen that it was done.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use letterbox_common::text_enum;
use letterbox_trials::Counts;
use serde_json::Value;

use crate::stack::Stack;

text_enum! {
    /// A way in, or a way on.
    pub enum Door {
        /// A signed webhook: one signal
        Webhook = "webhook",
        /// A form whose workflow does nothing: one run
        Form = "form",
        /// A form whose workflow sends a request: done under one key
        Run = "run",
        /// A form whose workflow asks an agent, which calls a tool: done under one key
        Agent = "agent",
        /// A form whose action waits for a person at the desk: done under one key, and not before
        Approval = "approval",
        /// The queue of whoever has subscribed: each signal under one id
        Subscription = "subscription",
    }
}

impl Door {
    pub fn name(self) -> &'static str {
        self.as_str()
    }

    /// The time between two that are sent; nothing is sent to subscriptions.
    pub fn pace(self) -> Option<Duration> {
        let in_a_second = match self {
            Self::Webhook => 80,
            Self::Form => 20,
            Self::Run => 16,
            Self::Agent => 5,
            Self::Approval => 8,
            Self::Subscription => return None,
        };
        Some(Duration::from_secs(1) / in_a_second)
    }

    /// The path that its runs call.
    fn path(self) -> Option<&'static str> {
        match self {
            Self::Run => Some("/run"),
            Self::Agent => Some("/notes"),
            Self::Approval => Some("/approved"),
            Self::Webhook | Self::Form | Self::Subscription => None,
        }
    }
}

/// A request that a run has sent.
#[derive(Debug, Clone)]
pub struct Arrival {
    pub path: String,
    pub key: String,
    pub name: String,
    pub at: Instant,
}

/// The name of a thing, where there is one in a text.
pub fn name_in(text: &str) -> Option<&str> {
    let from = text.find("item-")?;
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let length = text[from..]
        .find(|c| !is_of_name(c))
        .unwrap_or(text.len() - from);
    Some(&text[from..from + length])
}

/// Everything that came of what was sent with names of a prefix.
#[derive(Debug, Default)]
pub struct Found {
    stored: Stored,
    arrivals: Vec<Arrival>,
    /// When a person allowed what has this name.
    allowed: HashMap<String, Instant>,
    messages: Vec<(String, String)>,
}

impl Found {
    /// `None` while the database does not answer.
    pub async fn of(stack: &Stack, prefix: &str) -> Option<Self> {
        Some(Self {
            stored: stack.stored(prefix).await?,
            arrivals: stack.arrivals(prefix),
            allowed: stack.allowed(prefix).await?,
            messages: stack.messages(prefix),
        })
    }

    /// All that ever came, by the prefixes of the trials.
    pub async fn of_all(stack: &Stack) -> Option<HashMap<String, Self>> {
        let all = Self::of(stack, "item").await?;
        let mut found = HashMap::<_, Self>::new();
        let of_trial = |name: &str| {
            let end = name.match_indices('-').nth(1).map(|(end, _)| end);
            name[..end.unwrap_or(name.len())].to_owned()
        };
        for name in all.stored.signals {
            let of_trial: &mut Self = found.entry(of_trial(&name)).or_default();
            of_trial.stored.signals.push(name);
        }
        for name in all.stored.runs {
            let of_trial = found.entry(of_trial(&name)).or_default();
            of_trial.stored.runs.push(name);
        }
        for arrival in all.arrivals {
            let of_trial = found.entry(of_trial(&arrival.name)).or_default();
            of_trial.arrivals.push(arrival);
        }
        for (name, at) in all.allowed {
            let of_trial = found.entry(of_trial(&name)).or_default();
            of_trial.allowed.insert(name, at);
        }
        for message in all.messages {
            let of_trial = found.entry(of_trial(&message.0)).or_default();
            of_trial.messages.push(message);
        }
        Some(found)
    }
}

/// What was sent at one door, by the name that each thing carries, and whether it was accepted.
pub type Sent = HashMap<String, bool>;

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    pub door: Door,
    pub counts: Counts,
    /// Sent again under the key by which its receiver knows it.
    pub again: u64,
}

/// Counts what became of everything that was sent, door by door.
pub fn count(found: &Found, sent: &HashMap<Door, Sent>) -> Vec<Line> {
    let Found {
        stored,
        arrivals,
        allowed,
        messages,
    } = found;
    let empty = Sent::new();
    let counted = Door::ALL.iter().map(|door| {
        let sent = match door {
            Door::Subscription => sent.get(&Door::Webhook),
            door => sent.get(door),
        };
        let sent = sent.unwrap_or(&empty);
        let of_door = || {
            arrivals
                .iter()
                .filter(|one| Some(&*one.path) == door.path())
        };
        let mut again = 0;
        let done = match door {
            Door::Webhook => times(stored.signals.iter().cloned()),
            Door::Form => {
                let of_form = stored.runs.iter().filter(|name| name.contains("-form-"));
                times(of_form.cloned())
            }
            Door::Subscription => {
                let distinct: HashSet<_> = messages.iter().collect();
                again = (messages.len() - distinct.len()) as u64;
                times(distinct.into_iter().map(|(name, _)| name.clone()))
            }
            Door::Run | Door::Agent | Door::Approval => {
                let distinct: HashSet<_> = of_door().map(|one| (&one.name, &one.key)).collect();
                again = (of_door().count() - distinct.len()) as u64;
                times(distinct.into_iter().map(|(name, _)| name.clone()))
            }
        };
        let mut counts = Counts::of(sent, &done);
        // What has no key or id is known to nobody who gets it twice.
        let unnamed = match door {
            Door::Subscription => messages.iter().filter(|(_, id)| id.is_empty()).count(),
            _ => of_door().filter(|one| one.key.is_empty()).count(),
        };
        counts.unexpected += unnamed as u64;
        if *door == Door::Approval {
            let is_early = |one: &&Arrival| allowed.get(&one.name).is_none_or(|at| *at > one.at);
            counts.unexpected += of_door().filter(is_early).count() as u64;
        }
        Line {
            door: *door,
            counts,
            again,
        }
    });
    counted.collect()
}

fn times(names: impl Iterator<Item = String>) -> HashMap<String, u64> {
    let mut times = HashMap::new();
    for name in names {
        *times.entry(name).or_default() += 1;
    }
    times
}

/// What is in the database.
#[derive(Debug, Default)]
pub struct Stored {
    pub signals: Vec<String>,
    pub runs: Vec<String>,
}

/// What an agent's model answers to a question: one note about what was submitted, then words.
pub fn model(question: &Value) -> String {
    let asked = question.to_string();
    let is_told = question["messages"]
        .as_array()
        .is_some_and(|messages| messages.iter().any(|one| one["role"] == "tool"));
    let name = name_in(&asked).unwrap_or("item-nobody");
    let calls = [("note", serde_json::json!({ "text": name }))];
    let calls: &[_] = if is_told { &[] } else { &calls };
    letterbox_tests::model_answer("done", calls)
}
