//! The dead letters, for whoever looks at them: taken one by one, and published again or left.

use lapin::{
    Channel, Connection,
    message::Delivery,
    options::{BasicAckOptions, BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions},
    types::AMQPValue,
};

use crate::{
    BrokerError, BrokerTarget, Content, Entry, FormSubmission, PublishError, ReceivedEntry,
    WebhookDelivery,
    connection::connect,
    decode,
    error::{CLOSE_TIMEOUT, with_timeout},
    topology::{ANSWER_TIMEOUT, DEAD_LETTERS_QUEUE, EXCHANGE},
};

/// Header of a dead letter: why it is one.
pub const REASON_HEADER: &str = "dead_letter_reason";
/// How the reason of an entry begins that nobody has claimed.
pub const UNCLAIMED: &str = "unclaimed";

/// A look through the queue of dead letters. What was taken and not replayed is back in the queue
/// when the look has ended, however it ends.
pub struct DeadLetters {
    connection: Connection,
    channel: Channel,
    /// What was in the queue at the beginning and was not taken yet.
    left: u32,
}

/// A dead letter that was taken.
pub struct DeadLetter {
    delivery: Delivery,
    /// Why it is one; empty where the broker itself gave it up.
    pub reason: String,
    /// What it holds.
    pub entry: ReceivedEntry,
}

impl DeadLetters {
    /// Connects, as `name`. Takes nothing yet.
    ///
    /// # Errors
    /// When the broker can't be reached, does not answer or refuses.
    pub async fn open(target: &BrokerTarget, name: &str) -> Result<Self, BrokerError> {
        let connection = connect(target, 0, name).await?;
        let opening = async {
            let channel = connection.create_channel().await?;
            let confirms = ConfirmSelectOptions::default();
            channel.confirm_select(confirms).await?;
            let queue = crate::topology::queue_length(&channel, DEAD_LETTERS_QUEUE).await?;
            Ok((channel, queue))
        };
        let (channel, left) = with_timeout(ANSWER_TIMEOUT, opening).await?;
        Ok(Self {
            connection,
            channel,
            left,
        })
    }

    /// The next one of those that were there at the beginning.
    ///
    /// # Errors
    /// When the broker does not answer or refuses.
    pub async fn next(&mut self) -> Result<Option<DeadLetter>, BrokerError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let (queue, options) = (DEAD_LETTERS_QUEUE.into(), BasicGetOptions::default());
        let getting = self.channel.basic_get(queue, options);
        let Some(got) = with_timeout(ANSWER_TIMEOUT, getting).await? else {
            return Ok(None);
        };
        let mut delivery = got.delivery;
        let headers = delivery.properties.headers().as_ref();
        let reason = match headers.and_then(|headers| headers.inner().get(REASON_HEADER)) {
            Some(AMQPValue::LongString(reason)) => reason.to_string(),
            _ => String::new(),
        };
        let body = std::mem::take(&mut delivery.data).into();
        let entry = decode(&delivery.properties, body).into_iter().next();
        let entry = entry.ok_or_else(|| BrokerError::Ended("an empty dead letter".to_owned()))?;
        Ok(Some(DeadLetter {
            delivery,
            reason,
            entry,
        }))
    }

    /// Publishes a dead letter again, to the first queue of its kind, and removes it.
    ///
    /// # Errors
    /// When the broker does not confirm: then it is still a dead letter. It may be published all
    /// the same, which changes nothing, since an entry is taken once.
    pub async fn replay(&self, letter: DeadLetter) -> Result<(), BrokerError> {
        let DeadLetter {
            delivery, entry, ..
        } = letter;
        let family = match &entry.content {
            Ok(Content::Delivery(_)) => WebhookDelivery::QUEUES,
            Ok(Content::Submission(_)) => FormSubmission::QUEUES,
            _ => return Err(BrokerError::Ended("it holds no entry".to_owned())),
        };
        let key = family.routing_key(1);
        let alone = entry.alone();
        let headers = alone.properties.headers().clone().unwrap_or_default();
        let mut headers = headers.inner().clone();
        headers.remove(REASON_HEADER);
        let properties = alone.properties.with_headers(headers.into());
        let options = BasicPublishOptions::default();
        let publishing = async {
            let (exchange, body) = (EXCHANGE.into(), &alone.body);
            let publishing =
                self.channel
                    .basic_publish(exchange, key.into(), options, body, properties);
            publishing.await?.await
        };
        match with_timeout(ANSWER_TIMEOUT, publishing).await? {
            lapin::Confirmation::Ack(None) => {
                let acknowledging = delivery.ack(BasicAckOptions::default());
                with_timeout(ANSWER_TIMEOUT, acknowledging).await.map(drop)
            }
            _ => Err(BrokerError::Ended(PublishError::Refused.to_string())),
        }
    }

    /// Ends the look.
    pub async fn close(self) {
        let _ = with_timeout(CLOSE_TIMEOUT, self.connection.close(200, "done".into())).await;
    }
}
