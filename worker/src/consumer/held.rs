//! Messages that can't be acknowledged yet, beside a queue that goes on.
//!
//! A message is held while dead letters of it are not published, or while entries of it can't be
//! stored although the database answers: somebody keeps a row of their door locked, which is that
//! tenant's trouble and nobody else's. Entries wait by door, each door with a patience of its own,
//! and what comes for a door that waits joins it. Held messages count in what the broker hands out
//! unacknowledged, so they may be half of that at most: entries of further ones are published anew
//! and come again, behind the others.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    time::Duration,
};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use lapin::message::Delivery;
use letterbox_broker::BrokerError;
use letterbox_common::ids::WorkspaceId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    in_hand::Hold,
    patience::MAX_HOLD,
    queue_reader::QueueReader,
    storing::{Attempted, OpenEntry, Rejected, Storing, Tag, oldest},
};
use crate::apply::Door;

/// Why a consumer that held dead letters ended.
const DEAD_LETTERS_AWAY: &str = "dead letters could not be published for too long";
/// Pause before the entries of a door are tried again, doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(15);
/// Doors that are tried at once: each may wait for a lock, with a connection.
const MAX_TRIED: usize = 2;
/// Doors of a workspace that wait each by itself. What comes for further ones waits together,
/// without being tried first: the lock may be one of the workspace.
const MAX_DOORS: usize = 4;

/// The held messages of one queue.
pub(super) struct Held<'c> {
    storing: &'c Storing<'c>,
    pub(super) queue: &'c str,
    /// In the order in which the broker has handed them out.
    messages: BTreeMap<Tag, HeldMessage>,
    doors: HashMap<Door, Locked>,
    trials: Trials<'c>,
}

struct HeldMessage {
    delivery: Delivery,
    letters: Vec<Rejected>,
    /// How many of its entries wait.
    waiting: usize,
    since: Instant,
    _in_hand: Option<Hold>,
}

/// The entries of a door that wait.
struct Locked {
    entries: Vec<OpenEntry>,
    pause: Duration,
    due: Instant,
    is_tried: bool,
}

impl Locked {
    fn new() -> Self {
        Self {
            entries: Vec::new(),
            pause: FIRST_PAUSE,
            due: Instant::now() + FIRST_PAUSE,
            is_tried: false,
        }
    }
}

/// What came of trying the entries of a door, and of which messages they were.
pub(super) struct Tried {
    door: Door,
    messages: Vec<Tag>,
    attempted: Attempted,
}

/// The doors that are tried now. One may have locks: whatever else is done goes on
/// [beside](Trials::beside) them, or it would wait for what nobody goes on with.
#[derive(Default)]
struct Trials<'c> {
    running: FuturesUnordered<BoxFuture<'c, Tried>>,
    over: VecDeque<Tried>,
}

impl Trials<'_> {
    fn beside<T>(&mut self, work: impl Future<Output = T>) -> impl Future<Output = T> {
        let mut work = Box::pin(work);
        async move {
            loop {
                tokio::select! {
                    biased;
                    done = &mut work => return done,
                    Some(tried) = self.running.next() => self.over.push_back(tried),
                }
            }
        }
    }

    /// Can be dropped while it waits.
    async fn next(&mut self) -> Tried {
        if let Some(tried) = self.over.pop_front() {
            return tried;
        }
        match self.running.next().await {
            Some(tried) => tried,
            None => std::future::pending().await,
        }
    }
}

impl<'c> Held<'c> {
    pub(super) fn new(storing: &'c Storing<'c>, queue: &'c str) -> Self {
        Self {
            storing,
            queue,
            messages: BTreeMap::new(),
            doors: HashMap::new(),
            trials: Trials::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Does something while doors are tried.
    pub(super) fn beside<T>(&mut self, work: impl Future<Output = T>) -> impl Future<Output = T> {
        self.trials.beside(work)
    }

    /// Separates the entries whose doors wait already: trying them would take the time of a lock.
    pub(super) fn split(&self, entries: Vec<OpenEntry>) -> (Vec<OpenEntry>, Vec<OpenEntry>) {
        let mut doors: HashMap<WorkspaceId, usize> = HashMap::new();
        for (workspace, _) in self.doors.keys() {
            *doors.entry(*workspace).or_default() += 1;
        }
        let is_crowded = |workspace: WorkspaceId| doors.get(&workspace) >= Some(&MAX_DOORS);
        let waits = |one: &OpenEntry| {
            let door = one.entry.door();
            door.is_some_and(|door| self.doors.contains_key(&door) || is_crowded(door.0))
        };
        entries.into_iter().partition(|one| !waits(one))
    }

    /// Acknowledges a message of which nothing is left, or holds it.
    pub(super) async fn settle(
        &mut self,
        delivery: Delivery,
        letters: Vec<Rejected>,
        mut left: Vec<OpenEntry>,
    ) -> Result<(), BrokerError> {
        let is_full = self.messages.len() >= self.storing.max_held();
        if is_full && !left.is_empty() {
            let separating = self.storing.separate(&delivery, &left);
            if self.trials.beside(separating).await {
                left.clear();
            }
        }
        if left.is_empty() && letters.is_empty() {
            return QueueReader::acknowledge(&delivery, false).await;
        }
        let entries = left.iter().map(|one| &one.entry);
        let entries = entries.chain(letters.iter().map(|letter| &letter.entry));
        let message = HeldMessage {
            _in_hand: self.storing.in_hand.hold(self.queue, oldest(entries)),
            letters,
            waiting: left.len(),
            since: Instant::now(),
            delivery,
        };
        self.messages.insert(message.delivery.delivery_tag, message);
        for one in left {
            self.wait(one);
        }
        Ok(())
    }

    fn wait(&mut self, one: OpenEntry) {
        let Some(mut door) = one.entry.door() else {
            return;
        };
        if !self.doors.contains_key(&door) {
            let of_workspace = self.doors.keys().filter(|(other, _)| *other == door.0);
            if of_workspace.count() >= MAX_DOORS {
                door.1 = Uuid::nil();
            }
        }
        let locked = self.doors.entry(door).or_insert_with(Locked::new);
        locked.entries.push(one);
    }

    /// Waits until something came of trying a door, which is to be [noted](Self::note); for ever if
    /// none is tried. Nothing is lost if it is dropped while it waits.
    pub(super) async fn tried(&mut self) -> Tried {
        self.trials.next().await
    }

    /// Notes what came of trying a door, and acknowledges the messages of which nothing is left.
    pub(super) async fn note(&mut self, tried: Tried) -> Result<(), BrokerError> {
        let Tried {
            door,
            messages,
            attempted,
        } = tried;
        for letter in attempted.letters {
            if let Some(message) = self.messages.get_mut(&letter.message) {
                message.letters.push(letter);
            }
        }
        let mut over: HashMap<Tag, usize> = HashMap::new();
        for tag in messages {
            *over.entry(tag).or_default() += 1;
        }
        for one in &attempted.left {
            *over.entry(one.message).or_default() -= 1;
        }
        let locked = self.doors.entry(door).or_insert_with(Locked::new);
        // What has come for this door meanwhile stays, too.
        locked.entries.extend(attempted.left);
        locked.pause = match attempted.done {
            0 => LAST_PAUSE.min(locked.pause * 2),
            _ => FIRST_PAUSE,
        };
        locked.due = Instant::now() + locked.pause;
        locked.is_tried = false;
        if locked.entries.is_empty() {
            self.doors.remove(&door);
        }
        for (tag, over) in over {
            if let Some(message) = self.messages.get_mut(&tag) {
                message.waiting = message.waiting.saturating_sub(over);
            }
            self.acknowledge(tag).await?;
        }
        Ok(())
    }

    /// Acknowledges a held message if nothing of it is left.
    async fn acknowledge(&mut self, tag: Tag) -> Result<(), BrokerError> {
        let is_over = |held: &HeldMessage| held.waiting == 0 && held.letters.is_empty();
        if !self.messages.get(&tag).is_some_and(is_over) {
            return Ok(());
        }
        match self.messages.remove(&tag) {
            Some(message) => QueueReader::acknowledge(&message.delivery, false).await,
            None => Ok(()),
        }
    }

    /// Tries doors again that are due, and publishes dead letters again.
    ///
    /// # Errors
    /// When dead letters were held for [`MAX_HOLD`]: ending the consumer returns their messages to
    /// their queue.
    pub(super) async fn try_again(&mut self, stop: &CancellationToken) -> Result<(), BrokerError> {
        // What is left returns to its queue when the channel closes; shutdown must not wait.
        if stop.is_cancelled() {
            return Ok(());
        }
        self.release().await?;
        let (now, room) = (
            Instant::now(),
            MAX_TRIED.saturating_sub(self.trials.running.len()),
        );
        let due = self.doors.iter_mut();
        let is_due = |locked: &Locked| locked.due <= now && !locked.is_tried;
        let due = due.filter(|(_, locked)| is_due(locked) && !locked.entries.is_empty());
        let mut due: Vec<_> = due.collect();
        // Those first that have waited longest: however many there are, each has its turn.
        due.sort_unstable_by_key(|(_, locked)| locked.due);
        for (door, locked) in due.into_iter().take(room) {
            let (door, entries) = (*door, std::mem::take(&mut locked.entries));
            locked.is_tried = true;
            let messages = entries.iter().map(|one| one.message).collect();
            let (storing, queue) = (self.storing, self.queue);
            self.trials.running.push(Box::pin(async move {
                Tried {
                    door,
                    messages,
                    attempted: storing.attempt(queue, entries).await,
                }
            }));
        }
        let with_letters = self.messages.iter_mut();
        let with_letters = with_letters.filter(|(_, held)| !held.letters.is_empty());
        let tags: Vec<Tag> = with_letters.map(|(tag, _)| *tag).collect();
        for tag in tags {
            self.publish(tag).await?;
        }
        Ok(())
    }

    /// Publishes the dead letters of a message again.
    async fn publish(&mut self, tag: Tag) -> Result<(), BrokerError> {
        let Some(message) = self.messages.get_mut(&tag) else {
            return Ok(());
        };
        let mut left = Vec::new();
        for letter in std::mem::take(&mut message.letters) {
            let publishing = self.storing.dead_letter(self.queue, letter);
            left.extend(self.trials.beside(publishing).await);
        }
        message.letters = left;
        if !message.letters.is_empty() && message.since.elapsed() > MAX_HOLD {
            return Err(BrokerError::Ended(DEAD_LETTERS_AWAY.into()));
        }
        self.acknowledge(tag).await
    }

    /// Publishes anew what has waited for as long as the broker lets a message be held.
    async fn release(&mut self) -> Result<(), BrokerError> {
        let is_old = |held: &HeldMessage| held.waiting > 0 && held.since.elapsed() > MAX_HOLD;
        let old: HashSet<Tag> = self
            .messages
            .iter()
            .filter(|(_, held)| is_old(held))
            .map(|(tag, _)| *tag)
            .collect();
        if old.is_empty() {
            return Ok(());
        }
        for tag in old {
            let mut entries = Vec::new();
            for locked in self.doors.values_mut() {
                let all = std::mem::take(&mut locked.entries);
                let (its, others) = all.into_iter().partition(|one| one.message == tag);
                locked.entries = others;
                entries.extend::<Vec<_>>(its);
            }
            let Some(message) = self.messages.get_mut(&tag) else {
                continue;
            };
            let separating = self.storing.separate(&message.delivery, &entries);
            if self.trials.beside(separating).await {
                message.waiting -= entries.len();
                self.acknowledge(tag).await?;
            } else {
                entries.into_iter().for_each(|one| self.wait(one));
            }
        }
        // A door whose entries are being tried stays known: its attempt reports to it.
        self.doors
            .retain(|_, locked| locked.is_tried || !locked.entries.is_empty());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use letterbox_common::ids::WorkspaceId;
    use tokio::sync::oneshot;

    use super::*;

    /// Other work may wait for what a trial has locked; what came of the trial is not lost.
    #[tokio::test]
    async fn a_trial_goes_on_beside_other_work() {
        let mut trials = Trials::default();
        let (unlock, unlocked) = oneshot::channel();
        trials.running.push(Box::pin(async move {
            unlock.send(()).unwrap();
            Tried {
                door: (WorkspaceId::generate(), Uuid::nil()),
                messages: vec![7],
                attempted: Attempted::default(),
            }
        }));
        trials.beside(unlocked).await.unwrap();
        assert_eq!(trials.next().await.messages, [7]);
    }
}
