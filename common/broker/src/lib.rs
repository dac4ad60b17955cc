//! RabbitMQ for Letterbox's processes: the topology, the format of messages, confirmed publishing,
//! and connections that reconnect by themselves.

mod batch;
mod connection;
mod dead_letters;
mod entry;
mod error;
mod message;
pub mod metrics;
mod publisher;
mod reading;
mod settings;
pub mod spans;
mod subscription;
pub mod topology;

pub use batch::{Alone, BatchBody, MAX_LINE, RETURNS_HEADER, ReceivedEntry, decode, decode_alone};
pub use connection::{
    Session, declare, publishing_blocked, queue_lengths, retry_delays, supervise,
};
pub use dead_letters::{DeadLetter, DeadLetters, REASON_HEADER, TIME_HEADER, UNCLAIMED};
pub use entry::{Content, Entry, FormSubmission, Receipt, WebhookDelivery};
pub use error::{BrokerError, close_channel, with_timeout};
pub use message::{MalformedMessage, Message, MessageType, republished};
pub use publisher::{PublishError, Publisher, PublisherSession, publisher};
pub use reading::{ReadMessage, read_queue};
pub use settings::{AMQP_URL, BrokerTarget};
pub use subscription::{
    NotPublished, Published, SignalChannel, SignalMessage, declare_subscription, end_subscription,
    has_queue,
};
pub use topology::QueueLength;
