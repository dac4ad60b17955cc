//! Orders about dead letters: they are looked at, and have their processing tried again. Those that
//! nobody has claimed are taken after all only on the operator's word that they are genuine.

use std::time::Duration;

use jiff::Timestamp;
use letterbox_broker::{
    BrokerError, BrokerTarget, Content, DeadLetter, DeadLetters, ReceivedEntry, UNCLAIMED,
};
use letterbox_common::ids::WorkspaceId;
use serde::Serialize;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use crate::{Operator, OperatorError, PROGRAM, store};

/// Which dead letters.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DeadLetterFilter {
    /// Only the message with this id, or with an entry of this id; its beginning is enough.
    pub id: Option<String>,
    /// Only those whose reason contains this text.
    pub reason: Option<String>,
}

impl DeadLetterFilter {
    fn lets_through(&self, letter: &DeadLetter) -> bool {
        let is_meant = |id: &String| {
            let entries = letter.entries.iter().filter_map(ReceivedEntry::id);
            let mut ids = letter.message_id.iter().cloned().chain(entries);
            ids.any(|one| one.starts_with(id.as_str()))
        };
        self.id.as_ref().is_none_or(is_meant)
            && self
                .reason
                .as_ref()
                .is_none_or(|text| letter.reason.contains(text))
    }
}

/// A dead letter, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadLetterRow {
    /// Of the message; of an entry that a worker has given up its own.
    pub message_id: Option<String>,
    /// The queue that it came from.
    pub queue: String,
    /// Since when it is one.
    pub dead_since: Option<Timestamp>,
    /// Why.
    pub reason: String,
    /// What it holds.
    pub entries: Vec<DeadEntry>,
}

/// An entry of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadEntry {
    /// The id of the signal or run that it would become; of a wake the run.
    pub id: Option<String>,
    /// `delivery`, `submission`, `wake` or `unreadable`.
    pub kind: &'static str,
    /// Its tenant.
    pub workspace_id: Option<WorkspaceId>,
    /// When a gateway received it.
    pub received_at: Option<Timestamp>,
    /// Length of the body in bytes.
    pub bytes: usize,
    /// What was sent, where it was asked for; what is not text is escaped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

impl DeadLetterRow {
    fn new(letter: &DeadLetter, with_bodies: bool) -> Self {
        let entries = letter.entries.iter();
        Self {
            message_id: letter.message_id.clone(),
            queue: letter.queue.clone(),
            dead_since: letter.dead_since,
            reason: letter.reason.clone(),
            entries: entries
                .map(|entry| DeadEntry::new(entry, with_bodies))
                .collect(),
        }
    }
}

impl DeadEntry {
    fn new(entry: &ReceivedEntry, with_body: bool) -> Self {
        let (kind, workspace_id) = match &entry.content {
            Ok(Content::Delivery(delivery)) => ("delivery", Some(delivery.workspace)),
            Ok(Content::Submission(submission)) => ("submission", Some(submission.workspace)),
            Ok(Content::Wake(wake)) => ("wake", Some(wake.workspace)),
            Err(_) => ("unreadable", None),
        };
        let text = || match std::str::from_utf8(&entry.body) {
            Ok(text) => text.to_owned(),
            Err(_) => entry.body.escape_ascii().to_string(),
        };
        Self {
            id: entry.id(),
            kind,
            workspace_id,
            received_at: entry.received_at(),
            bytes: entry.body.len(),
            body: with_body.then(text),
        }
    }
}

/// What became of dead letters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Redriven {
    /// Published again.
    pub redriven: u64,
    /// Left: not meant, not claimed, delivered again by their senders meanwhile, or not taken by
    /// their queue, which is full.
    pub left: u64,
}

impl Operator {
    /// The dead letters that a filter lets through, the oldest first, at most `limit`; with the
    /// bodies of their entries where these are wanted. They stay where they are.
    ///
    /// # Errors
    /// When the broker fails.
    pub async fn dead_letters(
        broker: &BrokerTarget,
        filter: &DeadLetterFilter,
        limit: usize,
        with_bodies: bool,
    ) -> Result<Vec<DeadLetterRow>, OperatorError> {
        let (mut letters, mut rows) = (DeadLetters::open(broker, PROGRAM).await?, Vec::new());
        while rows.len() < limit
            && let Some(letter) = letters.next().await?
        {
            if filter.lets_through(&letter) {
                rows.push(DeadLetterRow::new(&letter, with_bodies));
            }
        }
        letters.close().await;
        Ok(rows)
    }

    /// Publishes the dead letters again that a filter lets through, the oldest first, at most
    /// `rate` in each second. Leaves those that nobody has claimed: they would come back.
    ///
    /// # Errors
    /// When a server fails. What was redriven until then stays so; to repeat the order is safe.
    pub async fn redrive(
        &self,
        broker: &BrokerTarget,
        filter: &DeadLetterFilter,
        rate: Option<u32>,
    ) -> Result<Redriven, OperatorError> {
        let ordered = json!({ "redrive": filter });
        store::note_order(&self.database, "dead_letters", &ordered).await?;
        let is_meant = async |letter: &DeadLetter| {
            Ok(!letter.reason.starts_with(UNCLAIMED) && filter.lets_through(letter))
        };
        redrive(broker, rate, is_meant).await
    }

    /// Claims what lies unclaimed among the dead letters, and publishes it again: after the
    /// database was restored to an earlier state, when it is known that no stranger could publish.
    ///
    /// # Errors
    /// As [`Self::redrive`].
    pub async fn redrive_unclaimed(
        &self,
        broker: &BrokerTarget,
        rate: Option<u32>,
    ) -> Result<Redriven, OperatorError> {
        let ordered = json!({ "redrive": "unclaimed" });
        store::note_order(&self.database, "dead_letters", &ordered).await?;
        let is_meant = async |letter: &DeadLetter| {
            Ok(letter.reason.starts_with(UNCLAIMED) && self.claim(letter).await?)
        };
        redrive(broker, rate, is_meant).await
    }

    /// Claims what a dead letter holds. An entry that was not believed died alone.
    async fn claim(&self, letter: &DeadLetter) -> Result<bool, OperatorError> {
        let (database, [entry]) = (&self.database, &letter.entries[..]) else {
            return Ok(false);
        };
        Ok(match &entry.content {
            Ok(Content::Delivery(delivery)) => {
                store::claim_delivery(database, delivery, &entry.body).await?
            }
            Ok(Content::Submission(submission)) => {
                store::claim_submission(database, submission).await?
            }
            _ => false,
        })
    }
}

/// Since when the oldest dead letter is one, where that is known.
///
/// # Errors
/// When the broker fails.
pub(crate) async fn oldest(broker: &BrokerTarget) -> Result<Option<Timestamp>, BrokerError> {
    let mut letters = DeadLetters::open(broker, PROGRAM).await?;
    let oldest = letters.next().await?;
    letters.close().await;
    Ok(oldest.and_then(|letter| letter.dead_since))
}

/// Publishes again what is meant.
async fn redrive(
    broker: &BrokerTarget,
    rate: Option<u32>,
    is_meant: impl AsyncFn(&DeadLetter) -> Result<bool, OperatorError>,
) -> Result<Redriven, OperatorError> {
    let mut letters = DeadLetters::open(broker, PROGRAM).await?;
    let mut outcome = Redriven::default();
    let mut pace = rate.map(|rate| interval(Duration::from_secs(1) / rate.max(1)));
    if let Some(pace) = &mut pace {
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    while let Some(letter) = letters.next().await? {
        if is_meant(&letter).await? {
            if let Some(pace) = &mut pace {
                pace.tick().await;
            }
            match letters.replay(letter).await? {
                true => outcome.redriven += 1,
                false => outcome.left += 1,
            }
        } else {
            outcome.left += 1;
        }
    }
    letters.close().await;
    Ok(outcome)
}
