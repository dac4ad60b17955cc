//! RabbitMQ for Letterbox's processes: what is declared there, what a message looks like, and
//! connections that come back by themselves.

mod connection;
mod envelope;
pub mod metrics;
mod publisher;
mod settings;
pub mod topology;

pub use connection::{BrokerError, Session, retry_delays, supervise};
pub use envelope::{
    Envelope, EnvelopeError, FormSubmission, Message, Receipt, RunWake, WebhookDelivery,
};
pub use publisher::{PublishError, Publisher, PublisherSession, publisher};
pub use settings::{BrokerSettings, BrokerTarget};
