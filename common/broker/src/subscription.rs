//! Signals on their way out: the exchange that they are published to, the queues of those who
//! subscribe, and one channel that publishes for one subscription.
//!
//! ```text
//! letterbox.v1.signals ──SUBSCRIPTION.WORKSPACE.WEBHOOK.KIND──> the queue of that subscription
//! ```
//! A routing key begins with the subscription, because each subscription has a cursor of its own:
//! what is published for one, perhaps again, is not meant for another.

use std::time::Duration;

use futures_util::{StreamExt, stream::FuturesOrdered};
use jiff::Timestamp;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection,
    options::QueueDeleteOptions,
    types::{AMQPValue, FieldTable},
};
use letterbox_common::{fail_point::fails, webhook::KeptHeaders};

use crate::{
    BrokerError, BrokerTarget,
    connection::{connect_any, open_channel},
    error::{CLOSE_TIMEOUT, close_channel, with_timeout},
    message::{MANDATORY, properties},
    topology::{
        ANSWER_TIMEOUT, SIGNALS_EXCHANGE, bind, declare_signals_exchange, lasting_arguments, queue,
        queue_length, text,
    },
};

/// Messages that may wait in a queue before nothing more is published to it: signals wait in the
/// database as well, and the broker's disk is everybody's.
const MAX_WAITING: u32 = 20_000;
/// How long a batch may be unconfirmed.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(10);

/// Declares the queue of a subscription, durable and replicated, and binds it. It refuses messages
/// when it is full, and returns them to their consumers as often as these return them.
///
/// # Errors
/// When the broker can't be reached, does not answer or refuses: as when there is a queue of this
/// name with other arguments.
pub async fn declare_subscription(
    target: &BrokerTarget,
    name: &str,
    subscription: &str,
    queue_name: &str,
) -> Result<(), BrokerError> {
    on_channel(target, name, async |channel| {
        declare_signals_exchange(&channel).await?;
        queue(&channel, queue_name, lasting_arguments()).await?;
        let keys = keys_of(subscription);
        bind(&channel, queue_name, SIGNALS_EXCHANGE, &keys).await
    })
    .await
}

/// Whether there is a queue of this name.
pub async fn has_queue(
    target: &BrokerTarget,
    name: &str,
    queue_name: &str,
) -> Result<bool, BrokerError> {
    let looking = on_channel(target, name, async |channel| {
        queue_length(&channel, queue_name).await.map(drop)
    });
    match looking.await {
        Ok(()) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes back what [`declare_subscription`] did: the queue with everything in it if `deletes`,
/// otherwise only that more comes. What does not exist is fine.
pub async fn end_subscription(
    target: &BrokerTarget,
    name: &str,
    subscription: &str,
    queue_name: &str,
    deletes: bool,
) -> Result<(), BrokerError> {
    let ending = on_channel(target, name, async |channel| {
        if deletes {
            let options = QueueDeleteOptions::default();
            let deleting = channel.queue_delete(queue_name.into(), options);
            return deleting.await.map(drop);
        }
        // The queue may be gone: then there is nothing to unbind.
        queue_length(&channel, queue_name).await?;
        let keys = keys_of(subscription).into();
        let exchange = SIGNALS_EXCHANGE.into();
        let none = FieldTable::default();
        let unbinding = channel.queue_unbind(queue_name.into(), exchange, keys, none);
        unbinding.await
    });
    match ending.await {
        Err(error) if error.is_not_found() => Ok(()),
        ended => ended,
    }
}

fn keys_of(subscription: &str) -> String {
    format!("{subscription}.#")
}

/// Does something on a connection of its own.
async fn on_channel(
    target: &BrokerTarget,
    name: &str,
    work: impl AsyncFnOnce(Channel) -> lapin::Result<()>,
) -> Result<(), BrokerError> {
    let connection = connect_any(target, name).await?;
    let working = async {
        let channel = connection.create_channel().await?;
        work(channel).await
    };
    let done = with_timeout(ANSWER_TIMEOUT, working).await;
    let _ = with_timeout(CLOSE_TIMEOUT, connection.close(200, "done".into())).await;
    done
}

/// A signal as it is published.
#[derive(Debug, Clone)]
pub struct SignalMessage {
    /// Its id, and that of the message.
    pub id: String,
    /// `SUBSCRIPTION.WORKSPACE.WEBHOOK.KIND`.
    pub routing_key: String,
    /// Its kind: the message's type.
    pub kind: String,
    /// When its delivery was received.
    pub received_at: Timestamp,
    /// What it says besides its body, by name: headers of the message.
    pub fields: Vec<(&'static str, String)>,
    /// The headers that were kept of its delivery: two tables among the message's headers.
    pub headers: KeptHeaders,
    /// The exact bytes that were signed; empty if they were forgotten.
    pub body: Vec<u8>,
}

impl SignalMessage {
    fn properties(&self, app_id: &str) -> BasicProperties {
        let mut headers = FieldTable::default();
        for (name, value) in &self.fields {
            headers.insert((*name).into(), text(value));
        }
        let kept = [
            ("signed_headers", &self.headers.signed),
            ("unsigned_headers", &self.headers.unsigned),
        ];
        for (name, kept) in kept {
            let mut table = FieldTable::default();
            for (name, value) in kept {
                table.insert(name.as_str().into(), text(value));
            }
            headers.insert(name.into(), AMQPValue::FieldTable(table));
        }
        let received = u64::try_from(self.received_at.as_second()).unwrap_or(0);
        properties(&self.kind, self.id.clone(), app_id)
            .with_timestamp(received)
            .with_content_type("application/json".into())
            .with_headers(headers)
    }
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// How many of it the broker has confirmed, from the first on without a gap; none if that is
    /// not certain.
    pub confirmed: usize,
    /// Why the next one was not confirmed; `None` if all were. The channel is of no more use then.
    pub failure: Option<NotPublished>,
}

/// Why signals were not published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotPublished {
    /// The queue is missing, or nothing leads there.
    #[error("there is no such queue, or it is not bound: subscribe again")]
    NoQueue,
    /// The queue holds all that it may.
    #[error("the queue is full")]
    Full,
    /// The broker answers nothing.
    #[error("the broker did not answer in time")]
    Silent,
    /// The broker or the connection failed.
    #[error("{0}")]
    Failed(String),
}

impl From<BrokerError> for NotPublished {
    fn from(error: BrokerError) -> Self {
        match error {
            BrokerError::TimedOut(_) => Self::Silent,
            error if error.is_not_found() => Self::NoQueue,
            error => Self::Failed(error.to_string()),
        }
    }
}

/// Publishes signals with confirms, on a channel that nothing else uses.
pub struct SignalChannel {
    channel: Channel,
    app_id: String,
}

impl SignalChannel {
    /// Opens a channel to a queue for a process called `app_id`.
    ///
    /// # Errors
    /// When there is no such queue, it is full, or the broker does not answer or refuses.
    pub async fn open(
        connection: &Connection,
        app_id: &str,
        queue_name: &str,
    ) -> Result<Self, NotPublished> {
        let channel = open_channel(connection).await?;
        let waiting = with_timeout(ANSWER_TIMEOUT, queue_length(&channel, queue_name)).await?;
        let app_id = app_id.to_owned();
        let opened = Self { channel, app_id };
        if waiting >= MAX_WAITING {
            opened.close().await;
            return Err(NotPublished::Full);
        }
        Ok(opened)
    }

    /// Publishes a batch and waits for its confirms.
    pub async fn publish(&self, batch: &[SignalMessage]) -> Published {
        // A returned message is told with any of the confirms: what is not all told is not certain.
        let uncertain = |failure| Published {
            confirmed: 0,
            failure: Some(failure),
        };
        if fails(&["publish.signals.before"]).await {
            return uncertain(NotPublished::Silent);
        }
        let publishing = tokio::time::timeout(CONFIRM_TIMEOUT, self.publish_all(batch));
        let published = publishing.await;
        if fails(&["publish.signals.after"]).await {
            return uncertain(NotPublished::Silent);
        }
        match published {
            Ok(Ok(published)) => published,
            Ok(Err(failure)) => uncertain(failure),
            Err(_) => uncertain(NotPublished::Silent),
        }
    }

    async fn publish_all(&self, batch: &[SignalMessage]) -> Result<Published, NotPublished> {
        let mut confirms = FuturesOrdered::new();
        for signal in batch {
            let exchange = SIGNALS_EXCHANGE.into();
            let key = signal.routing_key.as_str().into();
            let properties = signal.properties(&self.app_id);
            let channel = &self.channel;
            let sending = channel.basic_publish(exchange, key, MANDATORY, &signal.body, properties);
            confirms.push_back(sending.await.map_err(BrokerError::from)?);
        }
        let mut confirmed = 0;
        let mut failure = None;
        while let Some(confirm) = confirms.next().await {
            match confirm.map_err(BrokerError::from)? {
                Confirmation::Ack(None) if failure.is_none() => confirmed += 1,
                Confirmation::Ack(None) => {}
                Confirmation::Nack(None) => failure = Some(NotPublished::Full),
                Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_)) => {
                    return Err(NotPublished::NoQueue);
                }
                Confirmation::NotRequested => {
                    let why = "nothing is confirmed on this channel";
                    return Err(NotPublished::Failed(why.to_owned()));
                }
            }
        }
        Ok(Published { confirmed, failure })
    }

    /// Closes the channel.
    pub async fn close(self) {
        close_channel(&self.channel).await;
    }
}
