//! The broker of a world: what is in its queues, and messages that no gateway has sent.

use lapin::{
    Channel, Confirmation, Connection, ConnectionProperties,
    options::{BasicAckOptions, BasicGetOptions, BasicNackOptions, BasicPublishOptions},
};
use letterbox_broker::{
    Content, FormSubmission, Message, Receipt, WebhookDelivery, decode, topology::EXCHANGE,
};
use letterbox_common::{
    KeyHash,
    ids::{DeliveryId, ReleaseId, RunId, WorkspaceId},
    webhook::{KeptHeaders, WebhookAddress},
};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::{Form, Servers, World, eventually, http_client};

/// A receipt of now.
fn receipt() -> Receipt {
    Receipt {
        received_at: jiff::Timestamp::now(),
        traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
        request_id: None,
    }
}

/// A delivery to a webhook, as a gateway hands it over.
pub fn delivery_to(address: WebhookAddress) -> WebhookDelivery {
    WebhookDelivery {
        delivery: DeliveryId::generate(),
        workspace: address.workspace,
        webhook: address.webhook,
        memory: None,
        same_by: None,
        event_type: None,
        headers: KeptHeaders::default(),
        receipt: receipt(),
    }
}

/// A submission to a form, as a gateway hands it over.
pub fn submission_to(form: &Form, release: ReleaseId) -> FormSubmission {
    FormSubmission {
        run: RunId::generate(),
        workspace: form.workspace,
        workflow: form.workflow,
        release,
        key: None,
        receipt: receipt(),
    }
}

impl World {
    /// A connection to the broker, for looking and for mischief.
    pub async fn broker(&self) -> Connection {
        let runtime = async_rs::Runtime::tokio_current();
        Connection::connect_with_runtime(&self.amqp_url, ConnectionProperties::default(), runtime)
            .await
            .unwrap()
    }

    /// A channel of a connection of its own.
    pub async fn channel(&self) -> Channel {
        self.broker().await.create_channel().await.unwrap()
    }

    /// Publishes a message as a gateway does: what it holds is claimed first. Knows that it has
    /// arrived.
    pub async fn publish(&self, message: Message) {
        self.claim(&message).await;
        self.publish_unclaimed(message).await;
    }

    /// Settled claims of what a message holds, though no gateway has seen it.
    pub async fn claim(&self, message: &Message) {
        let (mut deliveries, mut submissions) = (Vec::new(), Vec::new());
        for entry in decode(&message.properties, message.body.clone()) {
            match &entry.content {
                Ok(Content::Delivery(one)) => {
                    let key = one.key_hash(&entry.body);
                    let id = Uuid::from_bytes(*one.delivery.as_bytes());
                    deliveries.push((one.workspace, key.halves(), id));
                }
                Ok(Content::Submission(one)) => {
                    let id = Uuid::from_bytes(*one.run.as_bytes());
                    let key = KeyHash::of_content(one.workflow.as_bytes(), id.as_bytes());
                    submissions.push((one.workspace, key.halves(), id));
                }
                _ => {}
            }
        }
        // For every release of the workspace: what a message names is another test's matter.
        let releases = "ARRAY(SELECT release_id FROM releases r
            WHERE r.workspace_id = new.workspace_id)";
        for (kind, claims, releases) in [
            ("deliveries", deliveries, "NULL"),
            ("submissions", submissions, releases),
        ] {
            let workspaces: Vec<WorkspaceId> = claims.iter().map(|one| one.0).collect();
            let highs: Vec<Uuid> = claims.iter().map(|one| one.1.0).collect();
            let lows: Vec<Uuid> = claims.iter().map(|one| one.1.1).collect();
            let ids: Vec<Uuid> = claims.iter().map(|one| one.2).collect();
            let claim = format!(
                "INSERT INTO claims SELECT 0, new.*, NULL, filled, {releases}
                 FROM claim_halves, unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[])
                     AS new (workspace_id, high, low, id)
                 WHERE source = '{kind}' ON CONFLICT DO NOTHING"
            );
            let values: [&(dyn ToSql + Sync); 4] = [&workspaces, &highs, &lows, &ids];
            self.database.execute(&claim, &values).await.unwrap();
        }
    }

    /// Publishes a message, and knows that it has arrived.
    pub async fn publish_unclaimed(&self, message: Message) {
        assert!(self.offer(message).await, "refused");
    }

    /// Publishes a message; whether the broker has taken it.
    pub async fn offer(&self, message: Message) -> bool {
        let channel = self.channel().await;
        channel.confirm_select(Default::default()).await.unwrap();
        let Message {
            exchange,
            routing_key,
            properties,
            body,
        } = message;
        let options = BasicPublishOptions::default();
        let publishing = channel.basic_publish(
            exchange.into(),
            routing_key.into(),
            options,
            &body,
            properties,
        );
        let confirm = publishing.await.unwrap().await.unwrap();
        matches!(confirm, Confirmation::Ack(None))
    }

    /// Sets a RabbitMQ policy for some of the queues, or takes it away again.
    pub async fn set_queue_policy(&self, policy: Option<&'static str>) {
        let vhost = self.amqp_url.rsplit('/').next().unwrap();
        let policies = format!("{}api/policies", Servers::shared().dashboard_url);
        let http = http_client();
        let request = match policy {
            Some(policy) => http.put(format!("{policies}/{vhost}/test")).body(policy),
            None => http.delete(format!("{policies}/{vhost}/test")),
        };
        let request = request.header("content-type", "application/json");
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
    }

    /// How many messages are ready in a queue.
    pub async fn messages(&self, queue: &str) -> u32 {
        self.queue(queue).await.message_count()
    }

    /// Waits until so many messages are ready in a queue.
    pub async fn await_messages(&self, queue: &str, expected: u32) {
        let what = format!("{expected} messages in {queue}");
        eventually(&what, async || self.messages(queue).await == expected).await;
    }

    /// How many consumers a queue has.
    pub async fn consumers(&self, queue: &str) -> u32 {
        self.queue(queue).await.consumer_count()
    }

    async fn queue(&self, queue: &str) -> lapin::Queue {
        let channel = self.channel().await;
        let options = lapin::options::QueueDeclareOptions {
            passive: true,
            ..Default::default()
        };
        channel
            .queue_declare(queue.into(), options, Default::default())
            .await
            .unwrap()
    }

    /// Takes the first message of submissions, to publish it again.
    pub async fn take_submissions(&self) -> Message {
        let taken = self.take_message("letterbox.v1.forms").await.unwrap();
        Message {
            exchange: EXCHANGE,
            routing_key: "forms".into(),
            properties: taken.properties,
            body: taken.data.into(),
        }
    }

    /// Gets the first message of a queue and returns it, so many times.
    pub async fn return_message(&self, queue: &str, times: u32) {
        let channel = self.channel().await;
        for _ in 0..times {
            let got = channel.basic_get(queue.into(), BasicGetOptions::default());
            let message = got.await.unwrap().expect("a message is there").delivery;
            let requeue = BasicNackOptions {
                requeue: true,
                ..Default::default()
            };
            message.nack(requeue).await.unwrap();
        }
        channel.close(200, "".into()).await.unwrap();
    }

    /// Takes one message out of a queue.
    pub async fn take_message(&self, queue: &str) -> Option<lapin::message::Delivery> {
        let channel = self.channel().await;
        let message = channel
            .basic_get(queue.into(), BasicGetOptions::default())
            .await
            .unwrap()?
            .delivery;
        message.ack(BasicAckOptions::default()).await.unwrap();
        // The acknowledgement has arrived when the next answer comes.
        channel.close(200, "".into()).await.unwrap();
        Some(message)
    }
}
