//! The dead letters, for operators: taken one by one, then replayed, discarded or put back.
//!
//! A worker dead-letters one entry at a time and gives a reason. The broker dead-letters a whole
//! message, under the routing key that it was published with, and names the queue, the reason and
//! the time in headers of its own.

use std::time::{Duration, Instant};

use bytes::Bytes;
use jiff::Timestamp;
use lapin::{
    Channel, Connection,
    message::Delivery,
    options::{BasicAckOptions, BasicGetOptions, BasicNackOptions},
    types::AMQPValue,
};
use sha2::{Digest, Sha256};
use tokio::time::sleep;

use crate::{
    BrokerError, BrokerTarget, ReceivedEntry,
    connection::{connect_any, open_channel},
    decode,
    error::{CLOSE_TIMEOUT, with_timeout},
    message::{MANDATORY, republished},
    topology::{ANSWER_TIMEOUT, DEAD_LETTERS_QUEUE, EXCHANGE, queue_length},
};

/// Header of a dead letter: the reason.
pub const REASON_HEADER: &str = "dead_letter_reason";
/// Header of a dead letter: when it became one.
pub const TIME_HEADER: &str = "dead_letter_at";
/// The beginning of the reason of an unclaimed entry.
pub const UNCLAIMED: &str = "unclaimed";
/// Maximum characters of a reason: the publisher may have written anything there.
const MAX_REASON: usize = 500;
/// Maximum time until letters that were put back are in their queue.
const MAX_RETURN: Duration = Duration::from_secs(2);
const RETURN_LOOK: Duration = Duration::from_millis(10);

/// A pass through the queue of dead letters. However it ends, the letters that were taken and
/// neither replayed nor discarded return to the queue.
pub struct DeadLetters {
    connection: Connection,
    channel: Channel,
    /// Letters that were in the queue when the first was taken, and are not taken yet. `None` until
    /// then: only what the queue says with a letter is exact, asked for its length alone it says 0
    /// when it does not answer in time.
    left: Option<u32>,
    /// Letters that were taken and neither replayed nor discarded.
    held: u32,
    held_since: Option<Instant>,
}

/// A dead letter that was taken.
pub struct DeadLetter {
    delivery: Delivery,
    body: Bytes,
    /// The id of the message; of one that has none, the beginning of its body's SHA-256.
    pub message_id: String,
    /// The queue that it came from.
    pub queue: String,
    /// Why it was dead-lettered.
    pub reason: String,
    /// When it was dead-lettered, if known.
    pub dead_since: Option<Timestamp>,
    /// Its entries: one, or perhaps several if the broker dead-lettered it.
    pub entries: Vec<ReceivedEntry>,
}

impl DeadLetter {
    fn new(mut delivery: Delivery) -> Self {
        let body = Bytes::from(std::mem::take(&mut delivery.data));
        let headers = delivery.properties.headers().as_ref();
        let header = |name| headers.and_then(|headers| headers.inner().get(name));
        let text = |name| header(name).and_then(text);
        let routing_key = delivery.routing_key.as_str();
        let given_up = Death {
            queue: None,
            reason: text(REASON_HEADER),
            time: text(TIME_HEADER).and_then(|time| time.parse().ok()),
        };
        // It may have been dead-lettered before and replayed: the latest time counts.
        let by_broker = header("x-death").and_then(Death::last);
        let by_broker = by_broker.filter(|death| {
            given_up.reason.is_none() || death.time.is_some_and(|time| Some(time) > given_up.time)
        });
        let death = by_broker.unwrap_or(given_up);
        let message_id = delivery.properties.message_id().as_ref();
        let message_id = message_id.map(ToString::to_string);
        Self {
            message_id: message_id.unwrap_or_else(|| id_of_content(&body)),
            queue: death.queue.unwrap_or_else(|| routing_key.to_owned()),
            reason: match death.reason {
                Some(reason) => reason.chars().take(MAX_REASON).collect(),
                None => "unknown".to_owned(),
            },
            dead_since: death.time,
            entries: decode(&delivery.properties, body.clone()),
            body,
            delivery,
        }
    }

    /// The routing key that leads back to its queue. Queues are named after their routing keys.
    fn routing_key(&self) -> &str {
        let key = self.delivery.routing_key.as_str();
        let of_queue = key.strip_prefix(EXCHANGE);
        let of_queue = of_queue.and_then(|key| key.strip_prefix('.'));
        of_queue.unwrap_or(key)
    }
}

/// Where nobody has given an id, the content is one: it stays the same wherever the letter is in
/// its queue.
fn id_of_content(body: &[u8]) -> String {
    format!("sha256-{}", hex::encode(&Sha256::digest(body)[..8]))
}

fn text(value: &AMQPValue) -> Option<String> {
    match value {
        AMQPValue::LongString(text) => Some(text.to_string()),
        AMQPValue::ShortString(text) => Some(text.to_string()),
        _ => None,
    }
}

/// When and why a message was dead-lettered.
struct Death {
    /// `None` where the routing key names it.
    queue: Option<String>,
    reason: Option<String>,
    time: Option<Timestamp>,
}

impl Death {
    /// Reads the latest entry of the header `x-death`, which the broker puts first.
    fn last(deaths: &AMQPValue) -> Option<Self> {
        let AMQPValue::FieldArray(deaths) = deaths else {
            return None;
        };
        let Some(AMQPValue::FieldTable(death)) = deaths.as_slice().first() else {
            return None;
        };
        let of = |name| death.inner().get(name);
        let reason = of("reason").and_then(text)?;
        Some(Self {
            queue: of("queue").and_then(text),
            reason: Some(format!("given up by the broker: {reason}")),
            time: match of("time") {
                Some(AMQPValue::Timestamp(second)) => {
                    let second = i64::try_from(*second).ok();
                    second.and_then(|second| Timestamp::from_second(second).ok())
                }
                _ => None,
            },
        })
    }
}

impl DeadLetters {
    /// Connects as `name`, without taking anything yet.
    pub async fn open(target: &BrokerTarget, name: &str) -> Result<Self, BrokerError> {
        let connection = connect_any(target, name).await?;
        let channel = open_channel(&connection).await?;
        Ok(Self {
            connection,
            channel,
            left: None,
            held: 0,
            held_since: None,
        })
    }

    /// Takes the next of the letters that were there when the first was taken, oldest first.
    pub async fn next(&mut self) -> Result<Option<DeadLetter>, BrokerError> {
        if self.left == Some(0) {
            return Ok(None);
        }
        let queue = DEAD_LETTERS_QUEUE.into();
        let options = BasicGetOptions::default();
        let getting = self.channel.basic_get(queue, options);
        let Some(got) = with_timeout(ANSWER_TIMEOUT, getting).await? else {
            self.left = Some(0);
            return Ok(None);
        };
        self.left = Some(match self.left {
            Some(left) => left - 1,
            None => got.message_count,
        });
        self.held += 1;
        self.held_since.get_or_insert_with(Instant::now);
        Ok(Some(DeadLetter::new(got.delivery)))
    }

    /// The number of letters that were taken and neither replayed nor discarded.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// How long the first of them has been held. The broker closes a channel that holds a message
    /// for longer than its `consumer_timeout`, by default 30 minutes.
    pub fn held_for(&self) -> Duration {
        let since = self.held_since.map(|since| since.elapsed());
        since.unwrap_or_default()
    }

    /// Returns the held letters to the queue and waits until they are there, unless somebody takes
    /// them meanwhile. [`Self::next`] gives them once more.
    pub async fn put_back(&mut self) -> Result<(), BrokerError> {
        let all = BasicNackOptions {
            multiple: true,
            requeue: true,
        };
        let putting_back = async {
            let length = async || queue_length(&self.channel, DEAD_LETTERS_QUEUE).await;
            let whole = length().await?.saturating_add(self.held);
            self.channel.basic_nack(0, all).await?;
            // A quorum queue takes its time, and does not answer when it is done.
            let until = Instant::now() + MAX_RETURN;
            while length().await? < whole && Instant::now() < until {
                sleep(RETURN_LOOK).await;
            }
            Ok(())
        };
        with_timeout(ANSWER_TIMEOUT, putting_back).await?;
        self.left = self.left.map(|left| left + self.held);
        (self.held, self.held_since) = (0, None);
        Ok(())
    }

    /// Publishes a dead letter to the queue that it came from, unexamined, and removes it. Returns
    /// `false` if the broker does not take it now: then it stays.
    ///
    /// # Errors
    /// When the broker does not answer: then it is still a dead letter, and may have been published
    /// as well. That is harmless, since workers take an entry once.
    pub async fn replay(&mut self, letter: DeadLetter) -> Result<bool, BrokerError> {
        // If the queue is gone, the exchange routes to another one; if that is gone, too, the
        // message is returned and does not count as published.
        let properties = republished(&letter.delivery.properties);
        let key = letter.routing_key().into();
        let publishing = async {
            let exchange = EXCHANGE.into();
            let body = &letter.body;
            let channel = &self.channel;
            let publishing = channel.basic_publish(exchange, key, MANDATORY, body, properties);
            publishing.await?.await
        };
        match with_timeout(ANSWER_TIMEOUT, publishing).await? {
            lapin::Confirmation::Ack(None) => {
                self.discard(letter).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Removes a dead letter for good.
    ///
    /// # Errors
    /// When the broker does not answer: then it may still be there.
    pub async fn discard(&mut self, letter: DeadLetter) -> Result<(), BrokerError> {
        let acknowledging = letter.delivery.ack(BasicAckOptions::default());
        with_timeout(ANSWER_TIMEOUT, acknowledging).await?;
        self.held -= 1;
        Ok(())
    }

    /// Ends the pass. What it held is in the queue again, for the pass that comes next.
    pub async fn close(mut self) {
        if self.held > 0 {
            let _ = self.put_back().await;
        }
        let _ = with_timeout(CLOSE_TIMEOUT, self.connection.close(200, "done".into())).await;
    }
}
