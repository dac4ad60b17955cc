//! RabbitMQ: what is declared there, what a message looks like, and connections that come back by
//! themselves.

mod connection;
mod envelope;
mod publisher;
mod settings;
pub mod topology;

pub use connection::{BrokerError, Session, supervise};
pub use envelope::{Envelope, EnvelopeError, FormSubmission, Receipt, RunWake, WebhookDelivery};
pub use publisher::{Message, PublishError, Publisher, PublisherSession, publisher};
pub use settings::{BrokerSettings, BrokerTarget};
