//! A gateway that has been taken over: with its login of the database and its login of the broker
//! somebody may do anything, and comes no further than the webhooks and form links that live.

use std::collections::BTreeMap;

use lapin::{
    BasicProperties, Connection, ConnectionProperties,
    options::{BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions},
    types::{AMQPValue, ShortString},
};
use letterbox_broker::{BatchBody, FormSubmission, Message, WebhookDelivery, topology::EXCHANGE};
use letterbox_common::{
    KeyHash,
    ids::{DeliveryId, ReleaseId, RunId, WebhookId, WorkspaceId},
    sealing::KeyRing,
    webhook::WebhookAddress,
};
use letterbox_database::Role;
use letterbox_operator::Move;
use letterbox_tests::{
    Form, Peer, Process, Reply, Servers, World, delivery_to, eventually, http_client, payload,
    submission_to,
};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio_postgres::types::ToSql;

const DEAD_LETTERS: &str = "letterbox.v1.dead-letters";
/// How deep headers nest that fill a frame.
const DEEP_ARRAYS: usize = 25_000;
const DEEP_TABLES: usize = 18_000;

/// The logins of a gateway, in somebody else's hands.
struct Intruder {
    database: tokio_postgres::Client,
    broker: Connection,
}

impl Intruder {
    async fn of(world: &World) -> Self {
        let runtime = async_rs::Runtime::tokio_current();
        let properties = ConnectionProperties::default();
        let url = &world.process_amqp_urls[0];
        let connecting = Connection::connect_with_runtime(url, properties, runtime);
        Self {
            database: world.session(Role::Gateway).await,
            broker: connecting.await.unwrap(),
        }
    }

    async fn publish(&self, message: Message) {
        let channel = self.broker.create_channel().await.unwrap();
        let confirms = ConfirmSelectOptions::default();
        channel.confirm_select(confirms).await.unwrap();
        let options = BasicPublishOptions::default();
        let publishing = channel.basic_publish(
            message.exchange.into(),
            message.routing_key.into(),
            options,
            &message.body,
            message.properties,
        );
        publishing.await.unwrap().await.unwrap();
    }

    async fn deliver(&self, address: WebhookAddress, id: DeliveryId, body: &'static str) {
        self.deliver_to(address, None, id, body).await;
    }

    /// Publishes a delivery that says under which webhook's id its body is remembered.
    async fn deliver_to(
        &self,
        address: WebhookAddress,
        memory: Option<WebhookId>,
        id: DeliveryId,
        body: &'static str,
    ) {
        let delivery = WebhookDelivery {
            delivery: id,
            memory,
            ..delivery_to(address)
        };
        let batch = BatchBody::encode(&[(delivery, body.into())]);
        self.publish(batch.into_message("webhooks".into(), "x".into(), "x"))
            .await;
    }

    async fn submit(&self, form: &Form, release: ReleaseId, id: RunId) {
        self.submit_under(form, release, id, None).await;
    }

    /// Publishes a submission that says it was claimed under this key.
    async fn submit_under(&self, form: &Form, release: ReleaseId, id: RunId, key: Option<KeyHash>) {
        let submission = FormSubmission {
            run: id,
            key,
            ..submission_to(form, release)
        };
        let batch = BatchBody::encode(&[(submission, payload().to_string().into())]);
        self.publish(batch.into_message("forms".into(), "x".into(), "x"))
            .await;
    }

    /// Claims a body of a webhook through a door of the caller's choice; how many were claimed.
    async fn claim(
        &self,
        workspace: WorkspaceId,
        webhook: WebhookId,
        door: WebhookId,
        id: DeliveryId,
        body: &str,
    ) -> usize {
        let (high, low) = KeyHash::of_content(webhook.as_bytes(), body.as_bytes()).halves();
        let sha256 = Sha256::digest(body.as_bytes()).to_vec();
        let claim = "SELECT claim('deliveries', ARRAY[$1::uuid], ARRAY[$2::uuid],
            ARRAY[$3::uuid], ARRAY[uuid_send($4::uuid)], '{NULL}', ARRAY[$5::bytea], '{NULL}',
            '{7}', ARRAY[$6::uuid], 60, '{}')";
        let values: [&(dyn ToSql + Sync); 6] = [&workspace, &high, &low, &door, &sha256, &id];
        self.database.query(claim, &values).await.unwrap().len()
    }

    /// Claims a key of a workflow through a link; how many were claimed.
    async fn claim_for(&self, form: &Form, token: &str, id: RunId) -> usize {
        let (high, low) = KeyHash::of_content(form.workflow.as_bytes(), b"key").halves();
        let (sha256, token) = (
            Sha256::digest(b"key").to_vec(),
            Sha256::digest(token).to_vec(),
        );
        let claim = "SELECT claim('submissions', ARRAY[$1::uuid], ARRAY[$2::uuid],
            ARRAY[$3::uuid], ARRAY[$4::bytea], '{NULL}', ARRAY[$5::bytea], '{1}', '{8}',
            ARRAY[$6::uuid], 60, '{}')";
        let values: [&(dyn ToSql + Sync); 6] = [&form.workspace, &high, &low, &token, &sha256, &id];
        self.database.query(claim, &values).await.unwrap().len()
    }
}

/// A form whose run calls the peer, and the release that it had before this one.
async fn redeployed_form(world: &World, gateway: &Process, peer: &Peer) -> (Form, ReleaseId) {
    let form = world.sending_form(gateway, peer).await;
    let operator = world.operator().await;
    let before = operator.workflow(form.workflow).await.unwrap();
    world.redeploy(form.workflow).await;
    let form = world.relink(&form).await;
    (form, before.row.release_id.unwrap())
}

/// Dead letters, and nothing of them among signals and runs.
async fn assert_not_believed(world: &World, worker: &Process, expected: u32) {
    world.await_messages(DEAD_LETTERS, expected).await;
    // A letter is in its queue a moment before its line is in the log.
    eventually("every letter is logged", async || {
        worker.log().matches("unclaimed").count() >= expected as usize
    })
    .await;
    assert_eq!((world.signals().await, world.runs().await), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_has_claimed_is_not_believed() {
    let (world, gateway, worker) = World::with_both().await;
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (webhook, other) = (world.webhook(&gateway).await, world.webhook(&gateway).await);
    let (form, retired) = redeployed_form(&world, &gateway, &peer).await;
    let live = world.operator().await.workflow(form.workflow).await;
    let live = live.unwrap().row.release_id.unwrap();
    let intruder = Intruder::of(&world).await;
    let new = DeliveryId::generate;

    // Nothing is claimed.
    intruder.deliver(webhook.address, new(), "1").await;
    intruder.submit(&form, live, RunId::generate()).await;
    assert_not_believed(&world, &worker, 2).await;

    // Another body, another webhook, another id than what was claimed.
    let (workspace, id) = (webhook.address.workspace, webhook.address.webhook);
    let claimed = DeliveryId::generate();
    let claiming = intruder.claim(workspace, id, id, claimed, "2");
    assert_eq!(claiming.await, 1, "a live webhook");
    intruder.deliver(webhook.address, claimed, "3").await;
    intruder.deliver(other.address, claimed, "2").await;
    intruder.deliver(webhook.address, new(), "2").await;
    assert_not_believed(&world, &worker, 5).await;

    // A release that is not that of the link.
    let run = RunId::generate();
    assert_eq!(intruder.claim_for(&form, &form.token, run).await, 1);
    intruder.submit(&form, retired, run).await;
    assert_not_believed(&world, &worker, 6).await;

    // What a gateway may do: the proof that only the claim was missing.
    intruder.deliver(webhook.address, claimed, "2").await;
    intruder.submit(&form, live, run).await;
    world.await_signals(1).await;
    world.await_state("succeeded", 1).await;
}

/// A gateway dies with a submission that the broker has; after a redeploy its sender tries again
/// through the new link, and that attempt comes to nothing: what was accepted first is believed.
#[tokio::test(flavor = "multi_thread")]
async fn every_release_that_was_claimed_for_is_believed() {
    let (world, _gateway, form) = World::with_form().await;
    let operator = world.operator().await;
    let workflow = operator.workflow(form.workflow).await.unwrap();
    let first = workflow.row.release_id.unwrap();
    let intruder = Intruder::of(&world).await;
    let run = RunId::generate();
    assert_eq!(intruder.claim_for(&form, &form.token, run).await, 1);
    world.redeploy(form.workflow).await;
    let link = world.relink(&form).await;
    world.end_leases().await;
    let (high, low) = KeyHash::of_content(form.workflow.as_bytes(), b"key").halves();
    let (sha256, token) = (
        Sha256::digest(b"key").to_vec(),
        Sha256::digest(&link.token).to_vec(),
    );
    let take_over = "SELECT take_over('submissions', ARRAY[$1::uuid], ARRAY[$2::uuid],
        ARRAY[$3::uuid], ARRAY[$4::bytea], '{NULL}', ARRAY[$5::bytea], '{9}', 60)";
    let values: [&(dyn ToSql + Sync); 5] = [&form.workspace, &high, &low, &token, &sha256];
    let taken = intruder.database.query(take_over, &values).await.unwrap();
    assert_eq!(taken.len(), 1);
    let _worker = world.worker().await;
    intruder.submit(&form, first, run).await;
    world.await_runs(1).await;
    assert_eq!(world.messages(DEAD_LETTERS).await, 0);
}

/// The database was restored to an earlier state: what the broker still had is taken on the word of
/// an operator, and its sender's retry is a repeat.
#[tokio::test(flavor = "multi_thread")]
async fn what_lost_its_claim_is_taken_on_an_operators_word() {
    let (world, gateway, worker, webhook) = World::with_recorded_webhook().await;
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (form, retired) = redeployed_form(&world, &gateway, &peer).await;
    let intruder = Intruder::of(&world).await;
    for _ in 0..2 {
        let (delivery, run) = (DeliveryId::generate(), RunId::generate());
        intruder.deliver(webhook.address, delivery, "1").await;
        intruder.submit(&form, retired, run).await;
    }
    let key = KeyHash::of_content(form.workflow.as_bytes(), b"sent again");
    let run = RunId::generate();
    intruder.submit_under(&form, retired, run, Some(key)).await;
    assert_not_believed(&world, &worker, 5).await;
    form.assert_accepts("sent again").await;
    world.await_state("succeeded", 1).await;

    let broker = [("AMQP_URL", world.amqp_url.as_str())];
    // One of them by its id, and that only.
    let alone = DeliveryId::generate();
    intruder.deliver(webhook.address, alone, "alone").await;
    world.await_messages(DEAD_LETTERS, 6).await;
    let one = format!("dead-letters redrive {alone}");
    let unasked = world.letterbox_with(&broker, &one);
    assert_eq!(unasked.status.code(), Some(1), "on an operator's word only");
    let one = format!("{one} --unclaimed");
    assert_eq!(world.order_with(&broker, &one)["redriven"], 1);
    world.await_signals(1).await;
    world.await_messages(DEAD_LETTERS, 5).await;

    let redrive = || world.order_with(&broker, "dead-letters redrive --unclaimed");
    // Of two deliveries of one body one is taken, and what was submitted again is not.
    assert_eq!(redrive(), json!({"redriven": 3, "left": 2}));
    world.await_signals(2).await;
    world.await_state("succeeded", 3).await;
    assert!(webhook.send("1").await.is_duplicate());
    world.await_messages(DEAD_LETTERS, 2).await;
    assert_eq!(redrive(), json!({"redriven": 0, "left": 2}));
    let orders = world.order("audit list --limit 2");
    for order in orders.as_array().unwrap() {
        assert_eq!(order["command"], "dead-letters redrive");
        assert_eq!(order["after"]["unclaimed"], true);
    }
}

/// A delivery to a successor is remembered under the id of the webhook that it has replaced, and
/// under nobody else's: a claim of one webhook makes no signal of another.
#[tokio::test(flavor = "multi_thread")]
async fn a_memory_is_that_of_its_webhook() {
    let (world, gateway, worker) = World::with_both().await;
    let (former, other) = (world.webhook(&gateway).await, world.webhook(&gateway).await);
    let operator = world.operator().await;
    let keys: KeyRing = world.webhook_keys.parse().unwrap();
    let overlap = std::time::Duration::from_secs(3_600);
    let replacing = operator.replace_webhook(&keys, former.address.webhook, None, overlap);
    let successor = replacing.await.unwrap().address;
    let beside = world
        .create_webhook(successor.workspace, "beside")
        .await
        .address;
    let intruder = Intruder::of(&world).await;
    let id = DeliveryId::generate();
    let (workspace, memory) = (successor.workspace, former.address.webhook);
    let claimed = intruder.claim(workspace, memory, successor.webhook, id, "1");
    assert_eq!(claimed.await, 1); // the successor's door leads to the former one's memory
    let wrong = intruder.claim(workspace, successor.webhook, successor.webhook, id, "2");
    assert_eq!(wrong.await, 0, "and to no other");
    intruder.deliver_to(beside, Some(memory), id, "1").await;
    intruder.deliver_to(successor, None, id, "1").await;
    intruder
        .deliver_to(other.address, Some(memory), id, "1")
        .await;
    assert_not_believed(&world, &worker, 3).await;
    intruder.deliver_to(successor, Some(memory), id, "1").await;
    world.await_signals(1).await;

    // What lost its claim is taken on an operator's word, and found again when it comes again.
    let lost = DeliveryId::generate();
    intruder
        .deliver_to(successor, Some(memory), lost, "9")
        .await;
    world.await_messages(DEAD_LETTERS, 4).await;
    let broker = [("AMQP_URL", world.amqp_url.as_str())];
    let slowly = "dead-letters redrive --unclaimed --rate 100";
    assert_eq!(world.order_with(&broker, slowly)["redriven"], 4);
    world.await_signals(2).await;
    world.await_messages(DEAD_LETTERS, 2).await;
    assert_eq!(world.signals().await, 2);
}

#[tokio::test]
async fn claims_are_made_through_live_doors_only() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, gateway) = World::with_gateway().await;
    let (webhook, other) = (world.webhook(&gateway).await, world.webhook(&gateway).await);
    let (form, _) = redeployed_form(&world, &gateway, &peer).await;
    let intruder = Intruder::of(&world).await;
    let (workspace, id) = (webhook.address.workspace, webhook.address.webhook);
    let nobody = WebhookId::generate();
    // A temporary table would come before the real one, if the functions let it.
    let decoys = "CREATE TEMPORARY TABLE webhooks AS
            SELECT gen_random_uuid() AS workspace_id, gen_random_uuid() AS webhook_id,
                   NULL::timestamptz AS deleted_at;
        CREATE TEMPORARY TABLE live_links AS
            SELECT ''::bytea AS token_sha256, gen_random_uuid() AS workspace_id,
                   gen_random_uuid() AS workflow_id, gen_random_uuid() AS release_id;";
    intruder.database.batch_execute(decoys).await.unwrap();
    let fill = "INSERT INTO pg_temp.webhooks VALUES ($1, $2, NULL)";
    let values: [&(dyn ToSql + Sync); 2] = [&workspace, &nobody];
    intruder.database.execute(fill, &values).await.unwrap();

    for (tenant, key, door) in [
        (workspace, nobody, nobody),
        (workspace, other.address.webhook, other.address.webhook),
        (other.address.workspace, id, id),
        // A live door, and the key of another.
        (workspace, nobody, id),
    ] {
        let id = DeliveryId::generate();
        let claiming = intruder.claim(tenant, key, door, id, "1");
        assert_eq!(claiming.await, 0, "{tenant} {key} {door}");
    }
    let tokens = ["", "no such token, of a good length", &form.token[1..]];
    for token in tokens {
        let claiming = intruder.claim_for(&form, token, RunId::generate());
        assert_eq!(claiming.await, 0, "{token}");
    }
    world.delete_webhook(webhook.address.webhook).await;
    let claiming = intruder.claim(workspace, id, id, DeliveryId::generate(), "1");
    assert_eq!(claiming.await, 0, "deleted");
    world.move_workflow(form.workflow, Move::Pause).await;
    let claiming = intruder.claim_for(&form, &form.token, RunId::generate());
    assert_eq!(claiming.await, 0, "paused");
    world.assert_rows("webhook_deliveries", 0).await;
    world.assert_rows("form_submissions", 0).await;

    let fewer = "UPDATE work_queues SET queues = 0";
    let refused = intruder.database.batch_execute(fewer).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "42501");
}

#[tokio::test]
async fn the_broker_lets_a_gateway_publish_and_nothing_else() {
    let world = World::new().await;
    let _worker = world.worker().await;
    let intruder = Intruder::of(&world).await;
    let channel = async || intruder.broker.create_channel().await.unwrap();
    let queue = || "letterbox.v1.webhooks".into();
    let mut refused = Vec::new();
    let getting = channel().await;
    let getting = getting.basic_get(queue(), BasicGetOptions::default());
    refused.push(getting.await.map(drop));
    let dead = channel().await;
    let dead = dead.basic_get(DEAD_LETTERS.into(), BasicGetOptions::default());
    refused.push(dead.await.map(drop));
    let purging = channel().await;
    refused.push(
        purging
            .queue_purge(queue(), Default::default())
            .await
            .map(drop),
    );
    let deleting = channel().await;
    refused.push(
        deleting
            .queue_delete(queue(), Default::default())
            .await
            .map(drop),
    );
    let binding = channel().await;
    let (exchange, table) = ("letterbox.v1".into(), Default::default());
    let binding = binding.queue_bind(queue(), exchange, "x".into(), Default::default(), table);
    refused.push(binding.await);
    let declaring = channel().await;
    let declaring = declaring.queue_declare("mine".into(), Default::default(), Default::default());
    refused.push(declaring.await.map(drop));
    for (number, refusal) in refused.into_iter().enumerate() {
        let told = refusal.expect_err(&number.to_string()).to_string();
        assert!(told.contains("ACCESS_REFUSED"), "{number}: {told}");
    }
    for exchange in ["letterbox.v1.dead", "letterbox.v1.unrouted", "amq.direct"] {
        let channel = channel().await;
        let confirms = ConfirmSelectOptions::default();
        channel.confirm_select(confirms).await.unwrap();
        let options = BasicPublishOptions::default();
        let properties = BasicProperties::default();
        let publishing =
            channel.basic_publish(exchange.into(), "x".into(), options, b"1", properties);
        let confirm = publishing.await.unwrap().await;
        assert!(confirm.is_err(), "{exchange}: {confirm:?}");
    }
}

/// What a gateway says in a message's properties is its own word only: under its user's id, with a
/// time to live, it is a dead letter like any other, and holds up nothing.
#[tokio::test(flavor = "multi_thread")]
async fn properties_of_a_message_bind_nobody() {
    let (world, _gateway, worker, webhook) = World::with_recorded_webhook().await;
    let intruder = Intruder::of(&world).await;
    // Headers that fill a frame, send copies, or tell of a death that never was.
    let long = "x".repeat(130_990);
    let headers = [
        ("long", AMQPValue::LongString(long.into())),
        ("CC", names(["webhooks", "forms"])),
        ("x-death", died_in_the_year_2100()),
    ];
    for (name, value) in headers {
        for key in ["webhooks", "forms"] {
            let headers = BTreeMap::from([(ShortString::from(name), value.clone())]);
            let mut properties = BasicProperties::default().with_headers(headers.into());
            if name != "long" {
                properties = properties
                    .with_user_id("letterbox_gateway".into())
                    .with_expiration("600000".into());
            }
            let message = Message {
                exchange: EXCHANGE,
                routing_key: key.into(),
                properties,
                body: "\"bare\"".into(),
            };
            intruder.publish(message).await;
        }
    }
    // With the copies of two, in one more queue each.
    let dead = async |expected| world.await_messages(DEAD_LETTERS, expected).await;
    dead(6 + 2).await;
    assert!(webhook.send("1").await.is_first());
    world.await_signals(1).await;
    let broker = [("AMQP_URL", world.amqp_url.as_str())];
    let listed = world.order_with(&broker, "dead-letters list");
    for letter in listed.as_array().unwrap() {
        assert_eq!(letter["reason"], "unknown message type", "{letter}");
    }
    let redriven = world.order_with(&broker, "dead-letters redrive --all");
    assert_eq!(redriven, json!({"redriven": 8, "left": 0}));
    dead(8).await;
    while let Some(dead) = world.take_message(DEAD_LETTERS).await {
        assert_eq!(dead.properties.user_id().as_ref(), None);
        assert_eq!(dead.properties.expiration().as_ref(), None);
    }
    let breaks = "letterbox_broker_connection_failures_total";
    assert_eq!(worker.metric(breaks).await, 0.0);
}

fn names<const N: usize>(names: [&str; N]) -> AMQPValue {
    let names = names.map(|name| AMQPValue::LongString(name.into()));
    AMQPValue::FieldArray(names.to_vec().into())
}

fn died_in_the_year_2100() -> AMQPValue {
    let text = |text: &str| AMQPValue::LongString(text.into());
    let death = [
        ("reason", text("unclaimed: never")),
        ("queue", text("letterbox.v1.forms")),
        ("time", AMQPValue::Timestamp(4_102_444_800)),
    ];
    let death = death.map(|(name, value)| (ShortString::from(name), value));
    let death = AMQPValue::FieldTable(BTreeMap::from(death).into());
    AMQPValue::FieldArray(vec![death].into())
}

/// Headers that nest as deep as fits in a frame: workers and operators read them, and live. It
/// takes the broker a second or two to encode one for whoever reads it.
#[tokio::test]
async fn headers_within_headers_end_nobody() {
    let (world, _gateway, mut worker, webhook) = World::with_recorded_webhook().await;
    let vhost = world.amqp_url.rsplit('/').next().unwrap();
    let dashboard = &Servers::shared().dashboard_url;
    let publish = format!("{dashboard}api/exchanges/{vhost}/letterbox.v1/publish");
    for (open, close, deep) in [("[", "]", DEEP_ARRAYS), (r#"{"":"#, "}", DEEP_TABLES)] {
        let (open, close) = (open.repeat(deep), close.repeat(deep));
        let message = format!(
            r#"{{"properties": {{"headers": {{"x": {open}0{close}}}}}, "routing_key": "webhooks",
                "payload": "{{}}", "payload_encoding": "string"}}"#
        );
        let published = http_client().post(&publish).body(message).send().await;
        assert_eq!(published.unwrap().status(), 200);
    }
    assert!(webhook.send("1").await.is_first());
    world.await_signals(1).await;
    world.await_messages(DEAD_LETTERS, 2).await;
    let letters = world.order_with(&[("AMQP_URL", &world.amqp_url)], "dead-letters list");
    assert_eq!(letters.as_array().unwrap().len(), 2, "{letters}");
    assert!(!worker.has_ended());
}

/// What was spilled can be neither removed nor rewritten by a gateway: not by closing it, freeing
/// it, or spilling something else into its place.
#[tokio::test]
async fn what_was_spilled_stays_as_it_is() {
    let (world, broker, gateway) = World::with_broker_proxy(&[]).await;
    let webhook = world.webhook(&gateway).await;
    broker.cut();
    eventually("noticed", async || !gateway.is_whole().await).await;
    for n in 0..3 {
        assert!(webhook.send(n.to_string()).await.is_first());
    }
    let taken_over = world.session(Role::Gateway).await;
    let ids = "SELECT array_agg(batch_id)::text FROM spilled_messages";
    let ids: String = world.database.query_one(ids, &[]).await.unwrap().get(0);
    for order in [
        "close_batches(ids)",
        "end_leases(ids)",
        "claim('deliveries', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 1, ids)",
        "spill_batches(ids, array_fill('webhooks'::text, ARRAY[3]),
             array_fill('webhook.deliveries'::text, ARRAY[3]),
             array_fill(gen_random_uuid(), ARRAY[3]), array_fill('x'::bytea, ARRAY[3]))",
    ] {
        let order = format!("SELECT {order} FROM (SELECT '{ids}'::bigint[] AS ids) AS spilled");
        taken_over.batch_execute(&order).await.unwrap();
    }
    // Nothing that would harm who stores it gets into the spill.
    let open = "INSERT INTO open_batches (batch_id, lease_until) VALUES (7, now())";
    world.change(open).await;
    for (key, body) in [
        ("repeat('x', 300)", "'x'"),
        ("'elsewhere'", "'x'"),
        ("'forms'", "''"),
        ("'forms'", "repeat('x', 262145)::bytea"),
    ] {
        let order = format!(
            "SELECT spill_batches('{{7}}', ARRAY[{key}], '{{form.submissions}}',
                 ARRAY[gen_random_uuid()], ARRAY[{body}::bytea])"
        );
        assert!(taken_over.batch_execute(&order).await.is_err(), "{order}");
    }
    world
        .change("DELETE FROM open_batches WHERE batch_id = 7")
        .await;
    let _worker = world.worker().await;
    world.await_signals(3).await;
    world.await_rows("spilled_messages", 0).await;
}
