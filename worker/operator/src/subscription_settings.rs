//! The settings of a subscription: where its signals go, and which ones. What names it is its
//! target: the name of the queue, or the URL.

use clap::Args;
use jiff::Timestamp;
use letterbox_common::{condition::Condition, ids::WebhookId, states::SignalKind};
use letterbox_workflow::account::check_url;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::{Reason, Result, given, workspace_settings::Nullable};

/// Most requests that may wait for their answers.
const MAX_IN_FLIGHT: i32 = 32;
/// Most conditions of a subscription.
const MAX_CONDITIONS: usize = 8;

/// The settings of a subscription, as a document gives them. What is `None` is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionSettings {
    /// The queue that gets the signals: this, or the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The URL that they are posted to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Url>,
    /// Only those of the webhook of this name.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    pub webhook: Option<Nullable<String>>,
    /// Only those of this kind.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    pub signal_kind: Option<Nullable<SignalKind>>,
    /// Only those whose bodies these hold for.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    /// How many requests may wait for their answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<i32>,
    /// Whether it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_paused: Option<bool>,
}

/// Where the signals of a subscription go.
#[derive(Debug, Clone)]
pub enum Target {
    /// To this queue.
    Queue(String),
    /// To this URL.
    Url(Url),
}

/// A new subscription. The flags of the command line are this, which names the webhook otherwise.
#[derive(Debug, Clone, Default, Args)]
pub struct NewSubscription {
    /// Only signals of this webhook, and of those that replace it.
    #[arg(skip)]
    pub webhook: Option<WebhookId>,
    /// Only those of this kind: generic, or the type of the event
    #[arg(long)]
    pub signal_kind: Option<SignalKind>,
    /// Only those whose bodies are objects with a member that equals a text, such as
    /// /data/status=paid; up to 8, which must all hold
    #[arg(long = "where", value_name = "POINTER=TEXT")]
    pub conditions: Vec<Condition>,
    /// Also those stored since a time, such as 2026-01-31T08:00:00Z, yesterday or 1h
    #[arg(long, value_name = "TIME", value_parser = crate::moment)]
    pub from: Option<Timestamp>,
    /// Make a user of RabbitMQ who reads this queue and nothing else; the password is shown
    /// once
    #[arg(long, value_name = "NAME", requires = "queue")]
    pub login: Option<String>,
    /// The queue may exist: whoever reads it may read what it holds
    #[arg(long = "existing", requires = "queue")]
    pub may_exist: bool,
    /// How many requests may wait for their answers; only with one, the default, signals keep
    /// their order. Given again, it changes
    #[arg(long, value_name = "COUNT", requires = "url",
          value_parser = clap::value_parser!(i32).range(1..=32))]
    pub in_flight: Option<i32>,
}

impl Target {
    /// That queue, or that URL.
    ///
    /// # Errors
    /// When it is neither, or both.
    pub fn of(queue: Option<String>, url: Option<Url>) -> Result<Self> {
        match (queue, url) {
            (Some(queue), None) => Ok(Self::Queue(queue)),
            (None, Some(url)) => Ok(Self::Url(url)),
            _ => Err(Reason::InvalidTarget.into()),
        }
    }

    /// What names the subscription.
    pub fn name(&self) -> &str {
        match self {
            Self::Queue(name) => name,
            Self::Url(url) => url.as_str(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), Reason> {
        match self {
            Self::Queue(name) => check_queue(name),
            Self::Url(url) => Ok(check_url(url)?),
        }
    }
}

impl SubscriptionSettings {
    /// What names it.
    pub(crate) fn name(&self) -> &str {
        let url = self.url.as_ref().map(Url::as_str);
        self.queue.as_deref().or(url).unwrap_or_default()
    }

    /// Where its signals go, if that is one queue or one URL.
    pub(crate) fn target(&self) -> Result<Target> {
        let most = if self.url.is_some() { MAX_IN_FLIGHT } else { 0 };
        let is_bad = |wanted| !(1..=most).contains(&wanted);
        if self.in_flight.is_some_and(is_bad) {
            return Err(Reason::InvalidTarget.into());
        }
        check_conditions(self.conditions.as_deref().unwrap_or_default())?;
        Target::of(self.queue.clone(), self.url.clone())
    }
}

/// Checks that a subscription may have so many conditions.
pub(crate) fn check_conditions(conditions: &[Condition]) -> Result<(), Reason> {
    let is_good = conditions.len() <= MAX_CONDITIONS;
    is_good.then_some(()).ok_or(Reason::TooManyConditions)
}

/// Checks that a queue of this name can be subscribed: letters, digits and `_ . : -`, none of the
/// broker's names, and none of Letterbox's.
fn check_queue(name: &str) -> Result<(), Reason> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    let is_good = (1..=200).contains(&name.len())
        && name.chars().all(is_plain)
        && !name.starts_with("amq.")
        && !name.starts_with("letterbox.");
    is_good.then_some(()).ok_or(Reason::InvalidQueue)
}
