//! Dead letters: look at them, redrive them, discard them. Those without a claim are redriven only
//! on the operator's word that they are genuine.

use std::{collections::BTreeSet, time::Duration};

use clap::Args;
use jiff::Timestamp;
use letterbox_broker::{
    BrokerError, BrokerTarget, Content, DeadLetter, DeadLetters, ReceivedEntry, UNCLAIMED,
};
use letterbox_common::ids::WorkspaceId;
use serde::Serialize;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    Operator, OperatorError, PROGRAM, Reason, Result, audit::note_order, names::MIN_DIGITS,
};

/// Letters that are looked at to tell how old the oldest is.
const MAX_LOOKED_AT: u32 = 1_000;
/// How many matches of an id are shown.
const MAX_MEANT: usize = 10;
/// Letters that were taken and left are put back after this time: the broker wants each settled
/// within half an hour.
const MAX_HELD: Duration = Duration::from_secs(20 * 60);

/// Which dead letters an order is about. The arguments of the command line are this.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[group(skip)]
pub struct DeadLetterFilter {
    /// Only the message with this id, or with an entry of this id; its beginning is enough
    pub id: Option<String>,
    /// Only those whose reason contains this text
    #[arg(long, value_name = "TEXT", value_parser = part_of_a_reason)]
    pub reason: Option<String>,
}

/// What a reason contains: not nothing, or an order would be about all.
pub fn part_of_a_reason(text: &str) -> Result<String, &'static str> {
    match text.trim() {
        "" => Err("must not be blank"),
        _ => Ok(text.to_owned()),
    }
}

impl DeadLetterFilter {
    fn lets_through(&self, letter: &DeadLetter) -> bool {
        let has_reason = |text: &String| letter.reason.contains(text);
        self.id
            .as_ref()
            .is_none_or(|id| meant(letter, id).is_some())
            && self.reason.as_ref().is_none_or(has_reason)
    }

    /// Takes the letters that it lets through out of the queue.
    ///
    /// # Errors
    /// When the id can mean more than one thing, or the broker fails.
    async fn take_named(&self, id: &str, letters: &mut DeadLetters) -> Result<Vec<DeadLetter>> {
        let mut taken = Vec::new();
        let mut ids = BTreeSet::new();
        while let Some(letter) = letters.next().await? {
            if self.lets_through(&letter) {
                ids.extend(meant(&letter, id));
                taken.push(letter);
            }
        }
        // A whole id means itself, not the longer ones that begin with it.
        if ids.contains(id) {
            taken.retain(|letter| meant(letter, id).as_deref() == Some(id));
        } else if ids.len() > 1 {
            return Err(OperatorError::from(Reason::Ambiguous {
                text: id.to_owned(),
                meant: ids.into_iter().take(MAX_MEANT).collect(),
            }));
        }
        if taken.is_empty() {
            let reason = match id.chars().count() < MIN_DIGITS {
                true => Reason::IdTooShort,
                false => Reason::NotFound("dead letter"),
            };
            return Err(reason.into());
        }
        Ok(taken)
    }
}

/// The id of a letter, or of an entry of it, that this text means: the same id, if there is one,
/// else one that begins with it.
fn meant(letter: &DeadLetter, text: &str) -> Option<String> {
    let entries = letter.entries.iter().filter_map(ReceivedEntry::id);
    let ids: Vec<String> = [letter.message_id.clone()]
        .into_iter()
        .chain(entries)
        .collect();
    let whole = ids.iter().find(|id| *id == text);
    let is_enough = text.chars().count() >= MIN_DIGITS;
    // Ids may be written in capitals.
    let begins = |id: &str| {
        let beginning = id.get(..text.len());
        beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(text))
    };
    let begun = || ids.iter().find(|id| is_enough && begins(id));
    whole.or_else(begun).cloned()
}

/// A dead letter, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadLetterRow {
    /// Of the message; of an entry that a worker has given up its own; of a message without one
    /// `sha256-` and the beginning of its body's.
    pub message_id: String,
    /// The queue that it came from.
    pub queue: String,
    /// When it became one.
    pub dead_since: Option<Timestamp>,
    /// Why it could not be processed.
    pub reason: String,
    /// The deliveries or submissions in it.
    pub entries: Vec<DeadEntry>,
}

/// An entry of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadEntry {
    /// The id of the signal or run that it would become.
    pub id: Option<String>,
    /// `delivery`, `submission` or `unreadable`.
    pub kind: &'static str,
    /// Its tenant.
    pub workspace_id: Option<WorkspaceId>,
    /// When a gateway received it.
    pub received_at: Option<Timestamp>,
    /// Length of the body in bytes.
    pub bytes: usize,
    /// The body, if it was asked for; bytes that are not text are escaped.
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

/// The result of redriving.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Redriven {
    /// Published again.
    pub redriven: u64,
    /// Left: not meant, not claimed, delivered again by their senders meanwhile, or not taken by
    /// their queue, which is full.
    pub left: u32,
}

/// The result of discarding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Discarded {
    /// Gone for good.
    pub discarded: u64,
    /// Left: not meant.
    pub left: u32,
}

impl Operator {
    /// The dead letter with this id, or with an entry of this id, with the bodies of its entries.
    /// It stays where it is.
    ///
    /// # Errors
    /// When there is none, when more than one can be meant, or the broker fails.
    pub async fn dead_letter(broker: &BrokerTarget, id: &str) -> Result<DeadLetterRow> {
        let mut letters = DeadLetters::open(broker, PROGRAM).await?;
        let filter = DeadLetterFilter {
            id: Some(id.to_owned()),
            reason: None,
        };
        let taken = filter.take_named(id, &mut letters).await;
        letters.close().await;
        let row = taken?
            .first()
            .map(|letter| DeadLetterRow::new(letter, true));
        Ok(row.ok_or(Reason::NotFound("dead letter"))?)
    }

    /// The first `limit` dead letters that a filter lets through, the oldest of them first, without
    /// the bodies of their entries. They stay where they are.
    pub async fn dead_letters(
        broker: &BrokerTarget,
        filter: &DeadLetterFilter,
        limit: usize,
    ) -> Result<Vec<DeadLetterRow>> {
        let mut letters = DeadLetters::open(broker, PROGRAM).await?;
        let mut rows = Vec::new();
        while rows.len() < limit
            && let Some(letter) = letters.next().await?
        {
            if filter.lets_through(&letter) {
                rows.push(DeadLetterRow::new(&letter, false));
            }
        }
        letters.close().await;
        // A look puts back behind the others what it has held.
        rows.sort_by_key(|row| row.dead_since);
        Ok(rows)
    }

    /// Publishes the dead letters again that a filter lets through, the oldest first, at most
    /// `rate` in each second. Leaves those without a claim: they would come back. With `unclaimed`,
    /// it claims those, and leaves the others: after the database was restored to an earlier state,
    /// when it is known that no stranger could publish.
    ///
    /// # Errors
    /// When a server fails. What was redriven until then stays so; to repeat the order is safe.
    /// Where an id is given, also when that means none or more than one, and when it is left.
    pub async fn redrive(
        &self,
        broker: &BrokerTarget,
        filter: &DeadLetterFilter,
        rate: Option<u32>,
        unclaimed: bool,
    ) -> Result<Redriven> {
        let mut ordered = json!({ "redrive": filter });
        if unclaimed {
            ordered["unclaimed"] = true.into();
        }
        // Before anything is done: what fails half-way was ordered, too.
        note_order(self, "dead_letters", &ordered).await?;
        let judge = async |letter: &DeadLetter| {
            Ok(match (unclaimed, letter.reason.starts_with(UNCLAIMED)) {
                (false, false) => Ok(()),
                (false, true) => Err("it has no claim, see --unclaimed"),
                (true, false) => Err("it was claimed, leave out --unclaimed"),
                (true, true) if self.claim(letter).await? => Ok(()),
                (true, true) => Err("it can't be claimed, or its sender has sent it again"),
            })
        };
        redrive(broker, filter, rate, judge).await
    }

    /// Deletes the dead letters that a filter lets through, for good.
    ///
    /// # Errors
    /// When a server fails. Where an id is given, also when that means none or more than one.
    pub async fn discard_dead_letters(
        &self,
        broker: &BrokerTarget,
        filter: &DeadLetterFilter,
    ) -> Result<Discarded> {
        let ordered = json!({ "discard": filter });
        note_order(self, "dead_letters", &ordered).await?;
        let mut letters = DeadLetters::open(broker, PROGRAM).await?;
        let mut discarded = 0;
        match &filter.id {
            Some(id) => {
                for letter in filter.take_named(id, &mut letters).await? {
                    letters.discard(letter).await?;
                    discarded += 1;
                }
            }
            None => {
                while let Some(letter) = letters.next().await? {
                    if filter.lets_through(&letter) {
                        letters.discard(letter).await?;
                        discarded += 1;
                    }
                }
            }
        }
        let left = letters.held();
        letters.close().await;
        Ok(Discarded { discarded, left })
    }
}

/// When the oldest of the first dead letters became one, if that is known.
pub(crate) async fn oldest(broker: &BrokerTarget) -> Result<Option<Timestamp>, BrokerError> {
    let mut letters = DeadLetters::open(broker, PROGRAM).await?;
    let mut oldest = None;
    while letters.held() < MAX_LOOKED_AT
        && let Some(letter) = letters.next().await?
    {
        let known = oldest.into_iter().chain(letter.dead_since);
        oldest = known.min();
    }
    letters.close().await;
    Ok(oldest)
}

/// Publishes again the letters that a filter lets through, unless the judge says why not.
async fn redrive(
    broker: &BrokerTarget,
    filter: &DeadLetterFilter,
    rate: Option<u32>,
    judge: impl AsyncFn(&DeadLetter) -> Result<Result<(), &'static str>>,
) -> Result<Redriven> {
    let mut letters = DeadLetters::open(broker, PROGRAM).await?;
    if let Some(id) = &filter.id {
        return redrive_named(letters, filter, id, judge).await;
    }
    let mut redriven = 0;
    let mut pace = rate.map(|rate| interval(Duration::from_secs(1) / rate.max(1)));
    if let Some(pace) = &mut pace {
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    while let Some(letter) = letters.next().await? {
        if filter.lets_through(&letter) && judge(&letter).await?.is_ok() {
            if let Some(pace) = &mut pace {
                pace.tick().await;
            }
            redriven += u64::from(letters.replay(letter).await?);
            // Those that stay are held, and the broker closes a channel for the oldest of them.
            if letters.held_for() > MAX_HELD {
                letters.put_back().await?;
            }
        }
    }
    let left = letters.held();
    letters.close().await;
    Ok(Redriven { redriven, left })
}

/// Publishes again the letter with this id.
async fn redrive_named(
    mut letters: DeadLetters,
    filter: &DeadLetterFilter,
    id: &str,
    judge: impl AsyncFn(&DeadLetter) -> Result<Result<(), &'static str>>,
) -> Result<Redriven> {
    let mut redriven = 0;
    let mut why_left = None;
    for letter in filter.take_named(id, &mut letters).await? {
        match judge(&letter).await? {
            Err(why) => why_left = Some(why),
            Ok(()) if letters.replay(letter).await? => redriven += 1,
            Ok(()) => why_left = Some("its queue takes nothing now"),
        }
    }
    let left = letters.held();
    letters.close().await;
    match why_left.filter(|_| redriven == 0) {
        Some(why) => Err(OperatorError::from(Reason::LeftDead(why))),
        None => Ok(Redriven { redriven, left }),
    }
}
