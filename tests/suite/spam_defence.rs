//! Forms that want a proof of work: what has none costs nothing and starts nothing.

use letterbox_tests::{DEFINITION, Form, Process, Proxy, World, assert_tells, payload};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    browser::{Browser, Engine, in_every_browser},
    site::Site,
};

in_every_browser! {
    the_page_proves_its_work,
}

/// A form that wants a proof, and at least so many seconds.
async fn defended(world: &World, gateway: &Process, least_seconds: i64) -> Form {
    let plain = world.form(gateway).await;
    let mut definition: Value = serde_json::from_str(DEFINITION).unwrap();
    definition["spam_defence"] = json!({"least_seconds": least_seconds});
    let definition = definition.to_string();
    world
        .form_of(gateway, plain.workspace, plain.owner, &definition)
        .await
}

async fn challenge(form: &Form) -> String {
    let read = form.read().await;
    assert_eq!(read.status, 200, "{read:?}");
    read.header("letterbox-challenge").unwrap().to_owned()
}

/// As a program would that submits honestly.
fn solved(challenge: &str, key: &str) -> Value {
    let bits: u32 = challenge.split('.').nth(1).unwrap().parse().unwrap();
    let nonce = (0_u64..)
        .find(|nonce| {
            let hash = Sha256::digest(format!("{challenge}.{key}.{nonce}"));
            u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]).leading_zeros() >= bits
        })
        .unwrap();
    json!({"challenge": challenge, "nonce": nonce.to_string()})
}

async fn submit(form: &Form, key: &str, proof: &Value) -> (u16, String) {
    let body = json!({"token": form.token, "idempotencyKey": key, "payload": payload(),
        "proof": proof});
    let answer = form.post(body.to_string()).await;
    (answer.status, answer.body)
}

#[tokio::test]
async fn one_key_one_proof_one_run() {
    let world = World::new().await;
    let gateways = [world.gateway().await, world.gateway().await];
    let _worker = world.worker().await;
    let form = defended(&world, &gateways[0], 0).await;
    let challenge = challenge(&form).await;
    let proof = solved(&challenge, "k");
    // The other gateway believes it, too.
    let form = form.at(&gateways[1]);
    assert_eq!(submit(&form, "k", &proof).await.0, 200);
    assert_eq!(submit(&form, "k", &proof).await.0, 200, "again");
    let (status, told) = submit(&form, "another", &proof).await;
    assert!(status == 400 && told.contains("proof.nonce"), "{told}");
    world.await_runs(1).await;

    // Forms without it ask for nothing and tell nothing.
    let plain = world.form(&gateways[0]).await;
    assert_eq!(plain.read().await.header("letterbox-challenge"), None);
    assert_eq!(submit(&plain, "k", &json!("whatever")).await.0, 200);
}

/// With the database away, a refusal that needs nothing of it comes all the same.
#[tokio::test]
async fn what_has_no_proof_asks_nothing_of_the_database() {
    let world = World::new().await;
    let database = Proxy::before(&world.database_url).await;
    let gateway = world.gateway_with(&[("DATABASE_URL", &database.url)]).await;
    let form = defended(&world, &gateway, 60).await;
    let challenge = challenge(&form).await;
    database.cut();
    let foreign = json!({"challenge": "1.0.0.aa", "nonce": "x"});
    for (proof, told) in [
        (Value::Null, "needs a proof of work"),
        (json!({"challenge": challenge, "nonce": "x"}), "proof.nonce"),
        (foreign, "proof.challenge"),
        (solved(&challenge, "k"), "submitted too soon"),
    ] {
        let (status, body) = submit(&form, "k", &proof).await;
        assert_eq!(status, 400, "{proof}: {body}");
        assert_tells(&body, &[told]);
    }
    let refused = gateway.metric("letterbox_unproven_submissions_total").await;
    assert!(refused >= 1.0, "{refused}");
    let plain = form.with_token(&"0".repeat(64));
    let waits = plain.submit("k", &payload()).await;
    assert_eq!(waits.status, 503); // what has to be looked up waits
}

/// Who sends wrong proofs exhausts its own limit, and raises the work of that form only.
#[tokio::test]
async fn wrong_proofs_count_against_their_client_and_their_form() {
    let world = World::new().await;
    let gateway = world.gateway_with(&[("LETTERBOX_PROOF_BITS", "8")]).await;
    let form = defended(&world, &gateway, 0).await;
    let other = defended(&world, &gateway, 0).await;
    let challenged = challenge(&form).await;
    let wrong = json!({"challenge": challenged, "nonce": "x"});
    let bits = |challenge: &str| challenge.split('.').nth(1).unwrap().parse::<u32>().unwrap();
    for client in 1..=4 {
        let client = format!("10.0.0.{client}");
        let mut answers = Vec::new();
        for _ in 0..70 {
            answers.push(submit(&form.from(&client), "k", &wrong).await.0);
        }
        assert_eq!(answers[..60], [400; 60]);
        assert_eq!(answers[60..], [429; 10]);
    }
    assert!(bits(&challenge(&form).await) > 8);
    assert_eq!(bits(&challenge(&other).await), 8);
}

async fn the_page_proves_its_work(engine: Engine) {
    let (site, _worker) = Site::with_worker().await;
    let defence = json!({"least_seconds": 1});
    let form = site.form_with("spam_defence", defence).await;
    let page = Browser::visiting(engine, &site, &form).await;
    let trap = page.evaluate("document.getElementById('trap').getBoundingClientRect().right < 0");
    assert_eq!(trap.await, true, "people don't see it");
    page.answer("Ada").await;
    page.press_for("Submit", "Thank you").await;
    site.world.await_runs(1).await;

    // A program that fills in whatever it finds.
    page.visit(&site, &form).await;
    page.evaluate("document.getElementById('trap').value = 'https://spam.example'")
        .await;
    page.answer("Bot").await;
    page.press("Submit").await;
    page.await_text("These answers were not accepted.").await;
    assert_eq!(site.world.runs().await, 1);

    // An answer is lost, and then the challenge is too old: it still counts once.
    page.visit(&site, &form).await;
    page.evaluate(
        "(() => { const real = window.fetch; let posts = 0; \
         window.fetch = async (url, request) => { \
         if (request?.method !== 'POST') return real(url, request); posts++; \
         if (posts === 2) return new Response(JSON.stringify({error: {code: 'invalid_input', \
         message: 'proof.challenge is not of this form'}}), {status: 400}); \
         const answer = await real(url, request); if (posts > 1) return answer; \
         throw new Error('lost'); }; })()",
    )
    .await;
    page.press_for("Submit", "Thank you").await;
    site.world.await_runs(2).await;

    // A program for passwords fills it in for a person, who presses again.
    page.visit(&site, &form).await;
    page.evaluate("document.getElementById('trap').value = 'ada'")
        .await;
    page.answer("Eve").await;
    page.press("Submit").await;
    page.await_text("These answers were not accepted.").await;
    page.press_for("Submit", "Thank you").await;
    site.world.await_runs(3).await;
    page.close().await;
}
