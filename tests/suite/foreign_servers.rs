//! Other people's servers as they are: what they answer beside what their documents say.

use std::{sync::Arc, time::Duration};

use letterbox_tests::{
    CHAT, Peer, Received, Reply, Scene, World, assert_holds, call, call_with, command_file,
    model_answer, one_of, post, results_in, table,
};
use letterbox_workflow::actions::Branch;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

fn reply(status: u16, body: &str) -> Reply {
    Reply::With(status, Vec::new(), body.to_owned())
}

/// Asserts that a run of these actions fails, as the nth one that does, and why.
async fn assert_fails(scene: &Scene, actions: Value, nth: i64, why: &str) {
    let (world, plain) = (&scene.world, &scene.form);
    let form = world.redeployed(&scene.gateway, plain, actions).await;
    form.assert_accepts(&format!("failing {nth}")).await;
    world.await_state("failed", nth).await;
    world.assert_failed(&form, why).await;
}

/// Looks for somebody, and creates them where there is nobody, with a form as some servers want it.
#[tokio::test]
async fn what_is_not_found_is_created() {
    let peer = Peer::start(|request, _| match request.target.as_str() {
        "/people/Ada" => Reply::Status(404),
        _ => Reply::Status(201),
    })
    .await;
    let path = "/people/{{ form.name }}";
    let find = call_with("find", "GET", path, json!({"expect": [404]}));
    let hello = json!({"form": {"Body": "Hello {{ form.name }}", "To": "+49301"}});
    let create = call_with("create", "POST", "/people", hello);
    let actions = json!([
        find,
        {"id": "new", "type": "condition", "if": "actions.find.status == 404", "then": [create]},
    ]);
    let scene = Scene::new(&peer, actions).await;
    scene.submit_until("k", "succeeded", 1).await;
    let received = peer.await_received(2).await;
    let form = received[1].header("content-type");
    assert_eq!(form, Some("application/x-www-form-urlencoded"));
    assert_eq!(received[1].body, "Body=Hello+Ada&To=%2B49301");
    // Without `expect` it is a failure, and the comparison is warned of.
    let find = call("find", "GET", path);
    let then = json!({"id": "new", "type": "condition", "if": "actions.find.status == 404"});
    let actions = json!([find, then]);
    assert_fails(&scene, actions, 1, "answered with status 404").await;
}

/// A byte order mark is no part of an answer; what can't be used says why.
#[tokio::test]
async fn an_answer_that_cannot_be_used_says_why() {
    let long = format!(r#"{{"n":"{}"}}"#, "x".repeat(92_000));
    let peer = Peer::start(move |request, _| match request.target.as_str() {
        "/marked" => reply(200, "\u{feff}{\"n\":7}"),
        "/long" => reply(200, &long),
        "/page" => reply(200, "<!DOCTYPE html><p>Hello"),
        "/moved" => {
            let location = ("location", "https://new.example/x".to_owned());
            Reply::With(308, vec![location], String::new())
        }
        _ => Reply::Status(200),
    })
    .await;
    let using = |path: &str| {
        let body = json!({"body": {"n": "{{ actions.a.body.n }}"}});
        json!([
            call("a", "GET", path),
            call_with("use", "POST", "/use", body)
        ])
    };
    let scene = Scene::new(&peer, using("/marked")).await;
    scene.submit_until("marked", "succeeded", 1).await;
    assert_eq!(peer.await_received(2).await[1].json(), json!({"n": 7}));
    for (number, (path, why)) in (1..).zip([
        ("/long", "\"a\" is longer than 65536 bytes, and was cut"),
        ("/page", "\"a\" is not JSON"),
        ("/moved", "status 308: moved to https://new.example"),
    ]) {
        assert_fails(&scene, using(path), number, why).await;
    }
}

/// Of a long answer the part is kept that is used, for later actions as for the model of an agent.
#[tokio::test]
async fn a_part_of_a_long_answer_is_kept() {
    let results = |first: Value| {
        let more = "x".repeat(300_000);
        json!({"results": first, "more": more}).to_string()
    };
    let peer = Peer::start(move |request, _| match &*request.target {
        "/long" => reply(200, &results(json!([{"n": 7}]))),
        "/none" => reply(200, &results(json!([]))),
        "/use" => Reply::Status(200),
        CHAT => match results_in(request) {
            0 => reply(200, &model_answer("", &[("find", json!({}))])),
            _ => reply(200, &model_answer("Found.", &[])),
        },
        _ => reply(200, &results(json!([{"n": "found"}]))),
    })
    .await;
    let using = |path: &str, reading: Value, value: &str| {
        let value = format!("{{{{ actions.a.{value} }}}}");
        json!([
            call_with("a", "GET", path, reading),
            call_with("use", "POST", "/use", json!({"body": {"n": value}}))
        ])
    };
    let kept = json!({"max_answer": 400_000, "keep": "/results/0"});
    let whole = json!({"max_answer": 400_000});
    let agent = json!([{"id": "agent", "type": "ai.agent", "account": "crm", "model": "m",
        "goal": "Find it.", "input": "{{ form.message }}", "max_steps": 5, "max_tokens": 9_000,
        "tools": [{"name": "find", "description": "Finds it", "account": "crm",
            "parameters": {"type": "object"}, "method": "GET", "path": "/tool",
            "max_answer": 400_000, "keep": "/results"}]}]);
    let scene = Scene::new(&peer, using("/long", kept.clone(), "body.n")).await;
    let mut form = scene.form.clone();
    let absent = using("/none", kept.clone(), "body is undefined");
    let uses = [
        using("/long", kept.clone(), "body.n"),
        using("/long", whole, "body.results[0].n"),
        absent,
        agent,
    ];
    for (number, actions) in (1..).zip(uses) {
        form = scene.world.redeployed(&scene.gateway, &form, actions).await;
        form.assert_accepts(&number.to_string()).await;
        scene.world.await_state("succeeded", number).await;
    }
    let received = peer.received();
    let used = received.iter().filter(|one| one.target == "/use");
    let used: Vec<Value> = used.map(|one| one.json()["n"].clone()).collect();
    assert_eq!(used, [json!(7), json!(7), json!(true)]);
    let told = received.last().unwrap().json()["messages"][3]["content"].clone();
    assert_eq!(told, r#"{"body":[{"n":"found"}],"status":200}"#);
    let cut = json!({"keep": "/results/0"});
    let nothing = "the answer of \"a\" has nothing at /results/0";
    let long = "\"a\" is longer than 65536 bytes, and was cut";
    for (number, (path, reading, why)) in
        (1..).zip([("/none", kept, nothing), ("/long", cut, long)])
    {
        assert_fails(&scene, using(path, reading, "body.n"), number, why).await;
    }
    let lengths =
        "SELECT octet_length(answer_sealed) FROM run_actions WHERE answer_sealed IS NOT NULL";
    let lengths: Vec<i32> = scene.world.column(lengths).await;
    assert_eq!(lengths.len(), 2);
    assert!(lengths.iter().all(|one| *one < 200), "{lengths:?}");
}

/// It says 200 and that it has failed; and 409 to an attempt that repeats one without an answer.
#[tokio::test]
async fn what_was_not_done_or_perhaps_was_says_so() {
    let peer = Peer::start(|request, before| match (&*request.target, before) {
        ("/sends", _) => reply(200, r#"{"success":false}"#),
        (_, 0) => Reply::HangUp,
        _ => Reply::Status(409),
    })
    .await;
    let scene = Scene::new(&peer, json!([post("conflict")])).await;
    scene.submit_until("k", "failed", 1).await;
    let why = "409; an earlier attempt, which got no answer, may have done it";
    scene.assert_failed(why).await;
    let failing = json!([
        post("sends"),
        {"id": "sent", "type": "condition", "if": "actions.sends.body.success", "else": [
            {"id": "not", "type": "fail", "reason": "the message was not sent"}]},
        post("never"),
    ]);
    assert_fails(&scene, failing, 2, "not: the message was not sent").await;
    assert!(!peer.targets().contains(&"/never".to_owned()));
}

/// What stands within HTML is escaped by the template, and a moment is told in a time zone.
#[tokio::test]
async fn a_mail_of_html_is_written_safely() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let body = json!({"body": {
        "html": "<p>{{ form.name | escape }}</p>",
        "link": "https://x.example/?q={{ form.name | urlencode }}",
        "year": "{{ run.received_at | date('Pacific/Auckland', '%Y') }}",
    }});
    let scene = Scene::new(&peer, json!([call_with("mail", "POST", "/mail", body)])).await;
    let name = "<a href=\"https://evil.example\">Ada & Co</a>";
    let values = json!({ "name": name });
    scene.form.assert_accepts_with("k", values).await;
    let sent = peer.await_received(1).await[0].json();
    let safe =
        "&lt;a href=&quot;https:&#x2f;&#x2f;evil.example&quot;&gt;Ada &amp; Co&lt;&#x2f;a&gt;";
    assert_eq!(sent["html"], format!("<p>{safe}</p>"));
    let link = sent["link"].as_str().unwrap();
    assert!(!link.contains(['<', '"', ' ']), "{sent}");
    assert_eq!(sent["year"].as_str().unwrap().len(), 4);
}

/// A model that refuses a parameter, as today's do.
fn strict(request: &Received) -> Option<Reply> {
    let body = request.json();
    let refused = ["max_tokens", "temperature"]
        .into_iter()
        .find(|name| !body[name].is_null())?;
    let error = json!({"error": {"message": format!("Unsupported parameter: {refused}")}});
    Some(reply(400, &error.to_string()))
}

/// A question to a model.
fn question(model: &str) -> Value {
    json!({"id": format!("ask-{model}"), "type": "ai.condition", "account": "crm",
        "model": model, "question": "Is it a complaint?", "input": "{{ form.message }}"})
}

#[tokio::test]
async fn models_answer_yes_and_no_in_their_ways() {
    let peer = Peer::start(|request, _| {
        if request.target != CHAT {
            return Reply::Status(200);
        }
        let message = match request.json()["model"].as_str().unwrap() {
            "new" => match strict(request) {
                Some(refusal) => return refusal,
                None => json!({"content": "Yes"}),
            },
            "bold" => json!({"content": "**Yes**"}),
            "why" => json!({"content": "Yes, because there is no link in it."}),
            "think" => json!({"content": "<think>No? No.</think>\n\nyes"}),
            "parts" => json!({"content": [{"type": "text", "text": "Yes."}]}),
            _ => json!({"content": null, "refusal": "I can't help with that."}),
        };
        reply(200, &json!({"choices": [{"message": message}]}).to_string())
    })
    .await;
    let scene = Scene::new(&peer, json!([question("new")])).await;
    let mut form = scene.form.clone();
    for (number, model) in (1..).zip(["new", "bold", "why", "think", "parts"]) {
        let actions = json!([question(model)]);
        form = scene.world.redeployed(&scene.gateway, &form, actions).await;
        form.assert_accepts(model).await;
        scene.world.await_state("succeeded", number).await;
        let story = scene.world.run_of(&form).await;
        assert_eq!(story.actions[0].branch, Some(Branch::Then), "{model}");
    }
    let actions = json!([question("refusing"), post("never")]);
    assert_fails(&scene, actions, 1, "the model refused to answer").await;
}

/// Longer than other requests may take.
#[tokio::test]
#[ignore = "long: a model thinks for 22 seconds"]
async fn a_model_may_think_for_long() {
    let gate = Arc::new(Semaphore::new(0));
    let opened = gate.clone();
    let answer = json!({"choices": [{"message": {"content": "yes"}}]}).to_string();
    let peer = Peer::start(move |request, _| match &*request.target {
        CHAT => Reply::WhenWith(opened.clone(), 200, answer.clone()),
        _ => Reply::Status(200),
    })
    .await;
    let scene = Scene::new(&peer, json!([question("m")])).await;
    scene.form.assert_accepts("k").await;
    peer.await_received(1).await;
    tokio::time::sleep(Duration::from_secs(22)).await;
    gate.add_permits(1);
    scene.world.await_state("succeeded", 1).await;
    assert_eq!(peer.targets(), [CHAT]);
}

/// Whoever stops waits no longer for it than for another request, and hands the run on at once.
#[tokio::test]
#[ignore = "long: a worker stops for 20 seconds"]
async fn a_long_question_does_not_hold_up_a_stop() {
    let peer = Peer::start(|_, before| match before {
        0 => Reply::Silence,
        _ => Reply::chat("yes"),
    })
    .await;
    let mut scene = Scene::new(&peer, json!([question("m")])).await;
    scene.form.assert_accepts("k").await;
    peer.await_received(1).await;
    scene.worker.terminate();
    scene.worker.ended().await;
    assert!(scene.worker.log().contains("\"in_order\":true"));
    let _worker = scene.world.worker().await;
    scene.world.await_state("succeeded", 1).await;
    let key = |request: &Received| request.header("idempotency-key").map(str::to_owned);
    let received = peer.received();
    assert_eq!(key(&received[0]), key(&received[1]));
}

/// A token, a key in a header of its own, a name with a password, or nothing.
#[tokio::test]
async fn credentials_come_as_servers_want_them() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, gateway, _worker, plain) = World::with_recorded_form().await;
    let file = |name: &str, text: &str| command_file(&format!("foreign.{name}"), text);
    let (key, pair) = (file("key", "k-1"), file("pair", "ada:p:w\n"));
    let kinds = table::<4>(
        "token | --bearer-file KEY                   | authorization | Bearer k-1
         key   | --header X-Api-Key --value-file KEY | x-api-key     | k-1
         basic | --basic-file PAIR                   | authorization | Basic YWRhOnA6dw==
         open  | --no-credential                     | authorization |",
    );
    let mut actions = Vec::new();
    for [name, secret, ..] in &kinds {
        let secret = secret.replace("KEY", &key).replace("PAIR", &pair);
        world.order(format!(
            "account connect --workspace {} --user {} --name {name} --base-url {} {secret}",
            plain.workspace, plain.owner, peer.url
        ));
        let mut action = call(name, "GET", "/");
        action["account"] = (*name).into();
        actions.push(action);
    }
    let form = world.redeployed(&gateway, &plain, actions.into()).await;
    world.submit_until(&form, "k", "succeeded", 1).await;
    for (received, [name, _, header, value]) in peer.await_received(4).await.iter().zip(kinds) {
        assert_eq!(received.header(header).unwrap_or_default(), value, "{name}");
    }
}

#[tokio::test]
async fn token_servers_give_tokens_in_their_ways() {
    let text = r#"{"access_token":"t1","token_type":"Bearer","expires_in":"3600"}"#;
    let list = r#"{"access_token":"t2","token_type":"bearer","scope":["a","b"]}"#;
    let wrong = r#"{"status":"BAD_CLIENT_ID","message":"no such client"}"#;
    let peer = Peer::start(move |request, _| match request.target.as_str() {
        "/token/text" => reply(200, text),
        "/token/list" => reply(200, list),
        "/token/bare" => reply(200, r#"{"access_token":"t3"}"#),
        "/token/form" => reply(200, "access_token=t4&token_type=bearer&scope=a"),
        "/token/body" => match request.body.contains("client_secret=") {
            true => reply(200, r#"{"access_token":"t5","token_type":"bearer"}"#),
            false => reply(400, r#"{"status":"BAD_CLIENT_SECRET","message":"missing"}"#),
        },
        "/token/wrong" => reply(400, wrong),
        "/token/page" => reply(404, "<html>nothing here"),
        _ => Reply::Status(200),
    })
    .await;
    let (world, gateway, plain) = World::with_form().await;
    let secret = command_file("foreign.secret", "a secret");
    let kinds = ["text", "list", "bare", "form", "body", "wrong", "page"];
    for kind in kinds {
        world.order(format!(
            "account connect --workspace {} --user {} --name {kind} --base-url {url} --token-url \
             {url}/token/{kind} --client-id letterbox --client-secret-file {secret}",
            plain.workspace,
            plain.owner,
            url = peer.url
        ));
    }
    let _worker = world.worker().await;
    let ready = "connected_accounts WHERE waits_for IS NULL";
    world.await_rows(ready, 5).await;
    world.await_rows("grants WHERE error IS NOT NULL", 2).await;
    let told = "SELECT error FROM grants WHERE error IS NOT NULL ORDER BY error";
    let told: Vec<String> = world.column(told).await;
    let wrong = r#"it answered with status 400: "BAD_CLIENT_ID: no such client""#;
    assert_eq!(told[0], wrong);
    let page = "it answered with status 404 and nothing";
    assert!(told[1].starts_with(page), "{told:?}");
    let accounts = world.order(format!("account list --workspace {}", plain.workspace));
    let ready = |account: &&Value| account["waits_for"].is_null();
    let all = accounts.as_array().unwrap().iter();
    assert_eq!(all.filter(ready).count(), 5);
    // From the first failure on it is the same reason wherever somebody looks.
    let mut action = post("send");
    action["account"] = "page".into();
    let form = world.redeployed(&gateway, &plain, json!([action])).await;
    form.assert_accepts("k").await;
    let ready = "active_runs WHERE state = 'ready'";
    world.await_rows(ready, 1).await;
    let run = world.run_of(&form).await;
    let sentence = format!("for a token of the account page: {}", told[1]);
    assert_eq!(run.waits().as_ref(), Some(&sentence));
    let shown = world.read(format!("run show {}", run.row.run_id));
    assert!(shown.contains(&sentence), "{shown}");
    let (_, status) = crate::status::status(&world);
    let page = one_of(&status["unconnected"], "account", "page");
    assert_holds(page, json!({"error": told[1], "waits_for": "token"}));
    assert_eq!(one_of(&accounts, "name", "page")["error"], told[1]);
}
