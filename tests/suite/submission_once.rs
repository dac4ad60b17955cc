//! One idempotency key, one run: over duplicates, link rotations, failures and redeliveries.

use futures_util::future::join_all;
use letterbox_tests::{Answer, World, eventually, payload};
use serde_json::json;

/// Less than an answer may take.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);
const CLAIMED: &str = "SELECT count(*) FROM form_submissions";

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_duplicates_are_all_accepted_and_run_once() {
    let world = World::new().await;
    let gateways = [world.gateway().await, world.gateway().await];
    let form = world.form(&gateways[0]).await;
    let duplicates = (0..15).map(|n| {
        let form = form.at(&gateways[n % 2]);
        // Each with other content: one of them counts.
        let payload = json!({"name": n.to_string(), "email": "a@b", "terms": true});
        async move { form.submit("duplicate", &payload).await }
    });
    let answers = join_all(duplicates).await;
    answers.iter().for_each(Answer::assert_accepted);
    let _worker = world.worker().await;
    world.await_runs(1).await;
    world.assert_count(CLAIMED, 1).await;
    world.await_messages("letterbox.v1.forms", 0).await;
    assert_eq!(world.runs().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_payload_under_a_used_key_is_counted_and_not_told() {
    let (world, gateway, _worker, form) = World::with_recorded_form().await;
    let named = |name: &str| json!({"name": name, "email": "a@b", "terms": true});
    // The same, in another order and with more space.
    let rearranged = format!(
        r#"{{"payload": {{"terms" : true, "email": "a@b", "name": "Ada"}},
            "idempotencyKey": "key", "token": "{}"}}"#,
        form.token
    );
    let first = form.submit("key", &named("Ada")).await;
    first.assert_accepted();
    for answer in [
        form.submit("key", &named("Ada")).await,
        form.post(rearranged).await,
        form.submit("key", &named("Eve")).await,
        form.submit("key", &named("Mallory")).await,
        form.submit("key", &json!({"neither": "nor"})).await,
    ] {
        assert_eq!(answer.status, first.status);
        assert_eq!(answer.body, first.body.clone());
        assert_eq!(answer.headers, first.headers.clone());
    }
    let changed = "letterbox_changed_repeats_total";
    gateway.await_metric(changed, 3.0).await;
    world.await_runs(1).await;
    let operator = world.operator().await;
    let run = world.run_of(&form).await;
    assert_eq!(run.changed_repeats, 3);
    assert_eq!(run.input.unwrap().value()["name"], "Ada");

    // Of a run that is erased no hash is left to compare with.
    let kept = "SELECT count(payload_hash) FROM form_submissions";
    world.assert_count(kept, 1).await;
    eventually("over", async || {
        operator.erase_run(run.row.run_id).await.is_ok()
    })
    .await;
    world.assert_count(kept, 0).await;
}

#[tokio::test]
async fn a_key_belongs_to_the_workflow_not_to_the_link() {
    let (world, gateway, _worker, form) = World::with_recorded_form().await;
    form.assert_accepts("key").await;
    world.redeploy(form.workflow).await;
    let fresh = world.relink(&form).await;
    fresh.assert_accepts("key").await;
    world.await_runs(1).await;
    fresh.assert_accepts("Key").await;
    let other = world.form_in(&gateway, form.workspace, form.owner).await;
    other.assert_accepts("key").await;
    world.await_runs(3).await;
}

#[tokio::test]
async fn a_first_submission_that_failed_frees_its_key() {
    let (world, broker, failing) = World::with_broker_proxy(&[
        ("LETTERBOX_PUBLISH_TIMEOUT_MILLISECONDS", "300"),
        ("LETTERBOX_SPILL_MESSAGES", "0"),
        // Longer than anybody waits here: its end must be told.
        ("LETTERBOX_CLAIM_LEASE_SECONDS", "300"),
    ])
    .await;
    let gateway = world.gateway().await;
    let form = world.form(&gateway).await;
    broker.stall();
    let answer = form.at(&failing).submit("key", &payload()).await;
    answer.assert_refused(503, "temporarily_unavailable");
    world.assert_count(CLAIMED, 1).await;
    // Free, as soon as its lease has ended: the payload counts again, and a good one is recorded.
    eventually("free", async || {
        form.submit("key", &json!({})).await.status == 400
    })
    .await;
    form.assert_accepts("key").await;
    assert_eq!(form.submit("key", &json!({})).await.status, 200); // known now
    let _worker = world.worker().await;
    world.await_runs(1).await;
}

/// While a first is under way its duplicate waits, and hears what becomes of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_concurrent_duplicate_waits_for_the_outcome() {
    let (world, broker, gateway) =
        World::with_broker_proxy(&[("LETTERBOX_PUBLISH_TIMEOUT_MILLISECONDS", "10000")]).await;
    let form = world.form(&gateway).await;
    broker.stall();
    let send = |payload| form.begin("key", payload);
    let first = send(payload());
    world.await_count("claimed", CLAIMED, 1).await;
    let duplicates = [send(payload()), send(json!({"nonsense": 1}))];
    let admitted = "letterbox_batch_size_sum{batcher=\"admission\"}";
    gateway.await_metric(admitted, 3.0).await;
    assert!(!first.is_finished() && duplicates.iter().all(|one| !one.is_finished()));
    broker.pass();
    first.await.unwrap().assert_accepted();
    for duplicate in duplicates {
        duplicate.await.unwrap().assert_accepted();
    }
    let _worker = world.worker().await;
    world.await_runs(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_is_recorded_although_its_sender_hangs_up() {
    let (world, broker, gateway) = World::with_broker_proxy(&[]).await;
    let form = world.form(&gateway).await;
    broker.stall();
    let sending = form.begin("key", payload());
    world.await_count("claimed", CLAIMED, 1).await;
    sending.abort();
    assert!(sending.await.unwrap_err().is_cancelled());
    broker.pass();
    world.await_rows("open_batches", 0).await;
    form.assert_accepts("key").await;
    let _worker = world.worker().await;
    world.await_runs(1).await;
}

/// A gateway dies between its claim and the confirm: another one takes over when the lease is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_gateways_claim_is_taken_over() {
    let (world, broker, mut doomed) = World::with_broker_proxy(&[]).await;
    let form = world.form(&doomed).await;
    broker.stall_to_server();
    let sending = tokio::spawn({
        let form = form.clone();
        async move {
            let sending = form.submission("key", &payload()).send();
            sending.await.is_ok()
        }
    });
    world.await_count("claimed", CLAIMED, 1).await;
    doomed.kill().await;
    assert!(!sending.await.unwrap());
    let heir = world.gateway().await;
    let form = form.at(&heir);
    let batch = "SELECT batch_id FROM form_submissions";
    let first = world.count(batch).await;
    world.end_leases().await;
    form.assert_accepts("key").await;
    let taken_over = world.count(batch).await;
    assert_ne!(taken_over, first);
    // What the first attempt said is not what is recorded, perhaps: nothing is compared with it.
    let compared = "SELECT count(payload_hash) FROM form_submissions";
    world.assert_count(compared, 0).await;
    let _worker = world.worker().await;
    world.await_runs(1).await;
}

#[tokio::test]
async fn a_repeated_message_changes_nothing() {
    let (world, _gateway, form) = World::with_form().await;
    form.assert_accepts("key").await;
    let message = world.take_submissions().await;
    for _ in 0..5 {
        world.publish_unclaimed(message.clone()).await;
    }
    let _workers = [world.worker().await, world.worker().await];
    world.await_runs(1).await;
    world.await_messages("letterbox.v1.forms", 0).await;
    assert_eq!(world.runs().await, 1);
    let started = "SELECT started::bigint FROM run_usage";
    world.assert_count(started, 1).await;
}

/// A gateway dies after its claim: whoever tries again is told so at once, and waits only if the
/// claim is free before long.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_a_dead_gateway() {
    let world = World::new().await;
    // An answer may take a minute here, and a claim holds for longer.
    let slow = [
        ("LETTERBOX_PUBLISH_TIMEOUT_MILLISECONDS", "60000"),
        ("LETTERBOX_CLAIM_LEASE_SECONDS", "100"),
    ];
    let dies = ("FAILPOINTS", "statement.claim_new.after=1*return(crash)");
    let mut doomed = world.gateway_with(&[slow[0], slow[1], dies]).await;
    let form = world.form(&doomed).await;
    let sending = form.submission("key", &payload()).send();
    assert!(sending.await.is_err());
    doomed.ended().await;
    let heir = world.gateway_with(&slow).await;
    let form = form.at(&heir);
    let ends_in = async |seconds: u32| {
        let until = format!(
            "UPDATE open_batches SET lease_until = clock_timestamp() + interval '{seconds} seconds'"
        );
        world.change(&until).await;
    };
    ends_in(90).await;
    // What does not fit the form is told the same: it may be known.
    for payload in [payload(), json!({})] {
        let asking = tokio::time::timeout(PATIENCE, form.submit("key", &payload));
        let answer = asking.await.expect("at once");
        answer.assert_refused(503, "temporarily_unavailable");
        let mut headers = answer.headers.iter();
        assert!(headers.any(|(name, _)| name == "retry-after"), "{answer:?}");
    }
    ends_in(1).await;
    form.assert_accepts("key").await;
    let _worker = world.worker().await;
    world.await_runs(1).await;
}
