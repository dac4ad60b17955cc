//! What may be wrong with an installation, looked for without changing anything: settings of the
//! database that lose what was accepted, rights that are too great, clocks that differ, processes
//! and queues that are missing, settings that disagree.

mod broker;
mod database;

use letterbox_broker::{BrokerTarget, QueueLength, topology::DEAD_LETTERS_QUEUE};
use serde::Serialize;

pub use self::broker::examine_broker;
pub(crate) use self::database::STATEMENTS;
use crate::{Operator, OperatorError};

/// What a finding is about on which all that writes depends.
const WRITES: &str = "writes";

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Fine,
    /// It works, and should be otherwise.
    Warning,
    /// Something does not work, or may lose what was accepted.
    Failure,
}

/// What was found about one thing.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub about: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub detail: String,
    /// What mends it; `None` if all is well.
    pub mend: Option<&'static str>,
    /// Whether `letterbox check --repair` does.
    #[serde(skip)]
    pub repairs: bool,
}

impl Finding {
    /// A finding that is fine if `is_fine`.
    pub fn new(
        about: &'static str,
        is_fine: bool,
        otherwise: Verdict,
        detail: String,
        mend: &'static str,
    ) -> Self {
        Self {
            about,
            verdict: if is_fine { Verdict::Fine } else { otherwise },
            detail,
            mend: (!is_fine && !mend.is_empty()).then_some(mend),
            repairs: false,
        }
    }

    /// A finding that is fine if nothing is listed.
    pub(crate) fn of_list(
        about: &'static str,
        listed: &[String],
        otherwise: Verdict,
        fine: &str,
        mend: &'static str,
    ) -> Self {
        let detail = match listed.is_empty() {
            true => fine.to_owned(),
            false => listed.join(", "),
        };
        Self::new(about, listed.is_empty(), otherwise, detail, mend)
    }

    /// Something that can't be looked at, for want of a setting.
    #[must_use]
    pub fn unseen(about: &'static str, mend: &'static str) -> Self {
        Self::new(
            about,
            false,
            Verdict::Warning,
            "not looked at".to_owned(),
            mend,
        )
    }
}

impl Operator {
    /// Looks at the database and, if it is given, the broker. Changes nothing.
    pub async fn doctor(
        &self,
        broker: Option<&BrokerTarget>,
    ) -> Result<Vec<Finding>, OperatorError> {
        let mut found = self.examine_database().await?;
        found.extend(self.examine_settings().await?);
        let status = self.status(None).await?;
        let is_deaf = found
            .iter()
            .any(|one| one.about == WRITES && one.verdict == Verdict::Failure);
        for part in &status.parts {
            let mend = match part.part {
                "gateways" | "workers" if is_deaf => "mend the writes of the database first",
                "gateways" => "start or mend gateways: letterbox ready URL says what is missing",
                "workers" => "start or mend workers: letterbox ready URL says what is missing",
                _ => continue,
            };
            let detail = part.detail.clone();
            found.push(Finding::new(
                part.part,
                part.is_ready,
                Verdict::Failure,
                detail,
                mend,
            ));
        }
        let behind: Vec<_> = status.behind.iter().map(|one| one.queue.clone()).collect();
        found.push(Finding::of_list(
            "subscriptions",
            &behind,
            Verdict::Warning,
            "none is behind",
            "letterbox status says why",
        ));
        found.push(Finding::new(
            "retention",
            !status.keeps_all,
            Verdict::Warning,
            match status.keeps_all {
                true => "what people send is kept forever: no worker deletes anything".to_owned(),
                false => "no worker keeps everything forever".to_owned(),
            },
            "set LETTERBOX_KEEP_RUNS_DAYS and LETTERBOX_KEEP_BODIES_DAYS of the workers",
        ));
        match broker {
            Some(broker) => found.push(queues(&self.queue_lengths(broker).await)),
            None => found.push(Finding::unseen("queues", "set AMQP_URL")),
        }
        Ok(found)
    }
}

/// Judges the queues: one without a consumer is not emptied, and nobody looks at dead letters by
/// themselves.
fn queues(lengths: &Result<Vec<QueueLength>, String>) -> Finding {
    let (about, broken) = ("queues", Verdict::Failure);
    let lengths = match lengths {
        Ok(lengths) => lengths,
        Err(error) => {
            return Finding::new(
                about,
                false,
                broken,
                error.clone(),
                "letterbox migrate, with AMQP_URL: it declares what is missing",
            );
        }
    };
    let is_dead = |one: &&QueueLength| one.queue == DEAD_LETTERS_QUEUE;
    let unread = lengths
        .iter()
        .filter(|one| !is_dead(one) && one.consumers == 0);
    let unread: Vec<_> = unread.map(|one| one.queue.as_str()).collect();
    if !unread.is_empty() {
        let detail = format!("no worker consumes {}", unread.join(", "));
        let mend = "systemctl start letterbox-worker, or as your workers are started";
        return Finding::new(about, false, broken, detail, mend);
    }
    let waiting: u32 = lengths
        .iter()
        .filter(|one| !is_dead(one))
        .map(|one| one.ready)
        .sum();
    let dead: u32 = lengths.iter().filter(is_dead).map(|one| one.ready).sum();
    Finding::new(
        about,
        dead == 0,
        Verdict::Warning,
        format!(
            "{} consumed, {waiting} messages wait, {dead} dead letters",
            lengths.len() - 1
        ),
        "letterbox dead-letters list",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_without_consumers_and_dead_letters_are_told() {
        let length = |queue: &str, ready, consumers| QueueLength {
            queue: queue.to_owned(),
            ready,
            consumers,
        };
        let dead = |ready| length(DEAD_LETTERS_QUEUE, ready, 0);
        for (lengths, verdict) in [
            (Ok(vec![length("a", 9, 1), dead(0)]), Verdict::Fine),
            (Ok(vec![length("a", 0, 1), dead(1)]), Verdict::Warning),
            (Ok(vec![length("a", 0, 0), dead(0)]), Verdict::Failure),
            (Err("away".to_owned()), Verdict::Failure),
        ] {
            assert_eq!(queues(&lengths).verdict, verdict, "{lengths:?}");
        }
    }
}
