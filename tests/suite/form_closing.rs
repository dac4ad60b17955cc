//! Links that close by themselves: at a time, or after so many answers.

use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use letterbox_common::states::MemberRole;
use letterbox_operator::{Closing, Operator};
use letterbox_tests::{Form, World, assert_holds, assert_tells, eventually, payload};
use serde_json::json;

pub(super) async fn closing(operator: &Operator, form: &Form, closing: Closing) -> Form {
    let creating = operator.create_form_link(form.workflow, closing);
    form.with_token(creating.await.unwrap().token.expose())
}

fn after(answers: i32) -> Closing {
    Closing {
        after_answers: Some(answers),
        ..Closing::default()
    }
}

/// Sixty people at two gateways want ten places, and each of them tries twice at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_takes_exactly_as_many_answers_as_it_may() {
    let world = World::new().await;
    let gateways = [world.gateway().await, world.gateway().await];
    let _worker = world.worker().await;
    let operator = world.operator().await;
    let form = world.form(&gateways[0]).await;
    let form = closing(&operator, &form, after(10)).await;
    let (mut accepted, mut waiting) = (Vec::new(), (0..60).collect::<Vec<_>>());
    while !waiting.is_empty() {
        world.forget_hits().await;
        let tries = waiting.iter().flat_map(|key| [(*key, 0), (*key, 1)]);
        let tries = tries.map(|(key, gateway)| {
            let form = form.at(&gateways[gateway]);
            async move { (key, form.submit(&format!("key {key}"), &payload()).await) }
        });
        let mut limited = Vec::new();
        for (key, answer) in join_all(tries).await {
            match answer.status {
                200 => accepted.push(key),
                404 => {}
                429 => limited.push(key),
                _ => panic!("{answer:?}"),
            }
        }
        limited.sort_unstable();
        limited.dedup();
        limited.retain(|key| !accepted.contains(key));
        waiting = limited;
    }
    accepted.sort_unstable();
    accepted.dedup();
    assert_eq!(accepted.len(), 10, "{accepted:?}");
    world.await_runs(10).await;
    let answers = "SELECT sum(answers) FROM form_links";
    world.assert_count(answers, 10).await;

    // For everybody else the link is dead; who was taken is told so again.
    form.assert_dead().await;
    let broken = form.submit("new", &json!({})).await;
    assert_eq!(broken.status, 404, "{broken:?}");
    for key in &accepted {
        form.assert_accepts(&format!("key {key}")).await;
        let otherwise = form.submit(&format!("key {key}"), &json!({})).await;
        assert_eq!(otherwise.status, 200, "{otherwise:?}");
        world.forget_hits().await;
    }
    let reading = form.request(reqwest::Method::GET, &form.page_url());
    assert_eq!(reading.send().await.unwrap().status(), 404);
    assert_eq!(world.runs().await, 10);
    let shown = world.order(format!("workflow show {}", form.workflow));
    assert_holds(&shown, json!({"answers": 10, "max_answers": 10}));
    let orders = "SELECT count(*) FROM audit_log
        WHERE subject = 'form_links' AND before ->> 'answers' IS NOT NULL";
    world.assert_count(orders, 0).await; // that an answer was counted is no order
}

#[tokio::test]
async fn a_link_closes_at_its_time() {
    let (world, gateway, _worker) = World::with_both().await;
    let operator = world.operator().await;
    let form = world.form(&gateway).await;
    let past = Closing {
        at: Some(Timestamp::now()),
        ..Closing::default()
    };
    let refused = operator.create_form_link(form.workflow, past).await;
    assert!(refused.unwrap_err().to_string().contains("past"));
    form.assert_lives().await;

    let soon = Timestamp::now() + Duration::from_secs(3);
    let at_three = Closing {
        at: Some(soon),
        ..Closing::default()
    };
    let form = closing(&operator, &form, at_three).await;
    form.assert_accepts("k").await;
    eventually("the link has closed", async || {
        form.read().await.status == 404
    })
    .await;
    assert!(Timestamp::now() >= soon);
    form.assert_dead().await;
    form.assert_accepts("k").await;
    world.await_runs(1).await;
}

/// What was claimed and never recorded is not lost because its link has closed meanwhile.
#[tokio::test]
async fn the_last_place_is_kept_for_who_has_it() {
    let settings = [
        ("LETTERBOX_SPILL_MESSAGES", "0"),
        ("LETTERBOX_CLAIM_LEASE_SECONDS", "3"),
    ];
    let (world, broker, gateway) = World::with_broker_proxy(&settings).await;
    let _worker = world.worker().await;
    let operator = world.operator().await;
    let form = world.form(&gateway).await;
    let form = closing(&operator, &form, after(1)).await;
    broker.cut();
    let away = form.submit("k", &payload()).await;
    assert_eq!(away.status, 503, "{away:?}");
    broker.pass();
    gateway.await_ready().await;
    eventually("the claim is taken over", async || {
        form.submit("k", &payload()).await.status == 200
    })
    .await;
    form.assert_dead().await;
    world.await_runs(1).await;
}

#[tokio::test]
async fn the_database_counts_up_only() {
    let (world, _gateway, form) = World::with_form().await;
    let operator = world.operator().await;
    closing(&operator, &form, after(2)).await;
    for statement in [
        "UPDATE form_links SET max_answers = 3 WHERE ended_at IS NULL",
        "UPDATE form_links SET closes_at = now() WHERE ended_at IS NULL",
        "UPDATE form_links SET answers = 3 WHERE ended_at IS NULL",
        "UPDATE form_links SET answers = 1 WHERE ended_at IS NOT NULL",
    ] {
        let refused = world.database.execute(statement, &[]).await;
        assert!(refused.is_err(), "{statement}");
    }
    let counted = "UPDATE form_links SET answers = 1 WHERE ended_at IS NULL";
    assert_eq!(world.database.execute(counted, &[]).await.unwrap(), 1);
    let back = "UPDATE form_links SET answers = 0 WHERE ended_at IS NULL";
    assert!(world.database.execute(back, &[]).await.is_err());
}

#[tokio::test]
async fn moves_say_which_links_they_end() {
    let (world, gateway, form) = World::with_form().await;
    let (workspace, owner, workflow) = (form.workspace, form.owner, form.workflow);
    let moves = [
        format!("workflow deploy {workflow}"),
        format!("workflow pause {workflow}"),
        format!("workflow activate {workflow}"),
        format!("workflow draft {workflow}"),
        format!("form-link create {workflow}"),
        format!("member remove --workspace {workspace} --user {owner}"),
        format!("member set --workspace {workspace} --user {owner} --role viewer"),
        format!(
            "member set --workspace {workspace} --user {owner} --role owner --is-deactivated on"
        ),
        format!("workflow delete {workflow}"),
    ];
    let mut form = form;
    for order in &moves {
        let (code, told) = world.refusal(order);
        assert_eq!(code, 2, "{order}: {told}");
        assert_tells(&told, &["the form link of Contact"]);
        form.assert_lives().await;
        world.order(format!("{order} --yes"));
        form.assert_dead().await;
        if order.contains(" delete ") {
            form = world.form_in(&gateway, workspace, owner).await;
            continue;
        }
        world.set_owner_role(&form, MemberRole::Owner).await;
        world.order(format!("workflow deploy {} --yes", form.workflow));
        let link = world.order(format!("form-link create {} --yes", form.workflow));
        form = form.with_token(link["token"].as_str().unwrap());
        let quiet = world.letterbox(format!("workflow show {}", form.workflow));
        assert!(quiet.stderr.is_empty());
    }
    let workflow = form.workflow;
    form.assert_lives().await;

    // In one step, with the next link; and asked nothing where nobody loses anything.
    let order = format!("workflow deploy {workflow} --new-link --max-answers 1 --yes");
    let deployed = world.order(order);
    form.assert_dead().await;
    let next = form.with_token(deployed["form_link"]["token"].as_str().unwrap());
    next.assert_accepts("k").await;
    next.assert_dead().await;
    let (code, told) = world.refusal(format!("workflow deploy {workflow} --max-answers 1 --yes"));
    assert!(code == 2 && told.contains("--new-link"), "{told}");
    let quiet = world.letterbox(format!("workflow pause {workflow} --yes"));
    assert!(quiet.stderr.is_empty(), "said beforehand");
    let quiet = world.letterbox(format!("workflow draft {workflow}"));
    assert!(quiet.stderr.is_empty(), "nobody loses anything");
    // A link that can't be made leaves everything as it was.
    let past = "--closes-at 2020-01-01T00:00:00Z";
    let refused = world.refusal(format!("workflow deploy {workflow} --new-link {past}"));
    assert_eq!(refused.0, 1, "{refused:?}");
    let shown = world.order(format!("workflow show {workflow}"));
    assert_eq!(shown["state"], "draft");
}
