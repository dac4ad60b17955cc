//! One word in common: the id that a sender is answered leads an operator to what came of it.

use letterbox_tests::{World, assert_holds, assert_tells, raw};
use serde_json::{Value, json};

#[tokio::test]
async fn an_answer_leads_to_what_came_of_it() {
    let (world, gateway, _worker) = World::with_both().await;
    let (webhook, form) = (world.webhook(&gateway).await, world.form(&gateway).await);
    let event = json!({"type": "client.created", "entity": "Ada", "sourceTool": "crm",
        "eventId": "e-1"});
    let native = webhook.send(event.to_string()).await;
    let generic = webhook.send("[]").await;
    let repeated = webhook.send("[]").await;
    let submitted = form.submit("k", &letterbox_tests::payload()).await;
    world.await_signals(2).await;
    world.await_runs(1).await;
    let ids = [&native, &generic, &repeated, &submitted].map(|answer| &answer.request_id.0);
    for (index, id) in ids.iter().enumerate() {
        assert_eq!(id.len(), 32, "{id}");
        assert!(!ids[..index].contains(id), "each answer has its own");
    }
    let list = format!("signal list --workspace {}", webhook.address.workspace);
    for (answer, kind) in [(&native, "client.created"), (&generic, "generic")] {
        let id = &answer.request_id.0;
        let found = world.order(format!("{list} --request-id {id}"));
        assert_eq!(found.as_array().unwrap().len(), 1);
        assert_holds(&found[0], json!({"kind": kind, "request_id": id}));
        let signal = found[0]["signal_id"].as_str().unwrap();
        let shown = world.order(format!("signal show {signal}"));
        assert_eq!(shown["request_id"], json!(id));
    }
    let repeated = world.order(format!("{list} --request-id {}", repeated.request_id.0));
    assert_eq!(repeated, json!([]), "nothing came of it");
    let run = world.run_of(&form).await;
    assert_eq!(run.request_id.as_ref(), Some(&submitted.request_id.0));
    let told = world.read(format!("run show {}", run.row.run_id));
    assert_tells(&told, &[&submitted.request_id.0]);
    // At the usual level, of what was refused.
    let usual = world.gateway_with(&[("LETTERBOX_LOG", "info")]).await;
    let refused = form.at(&usual).submit("k", &json!([])).await;
    assert_eq!(refused.status, 400);
    let id = &refused.request_id.0;
    usual.await_log(id).await;
}

/// Everybody gets an id, and only a trusted proxy brings its own, where that is wanted: many
/// proxies pass on what a stranger says.
#[tokio::test]
async fn proxies_that_are_trusted_bring_their_own() {
    let world = World::new().await;
    let trusted = ("LETTERBOX_TRUSTED_REQUEST_IDS", "true");
    let settings = [("LETTERBOX_TRUSTED_PROXIES", "127.0.0.1"), trusted];
    let trusting = world.gateway_with(&settings).await;
    let settings = [("LETTERBOX_TRUSTED_PROXIES", "10.0.0.0/8"), trusted];
    let wary = world.gateway_with(&settings).await;
    let usual = [("LETTERBOX_TRUSTED_PROXIES", "127.0.0.1")];
    let usual = world.gateway_with(&usual).await;
    let id = async |gateway: &letterbox_tests::Process, request: &str| {
        let answer = raw(&gateway.public_address(), request.as_bytes()).await;
        let line = answer
            .lines()
            .find_map(|line| line.strip_prefix("x-request-id: "));
        line.unwrap_or_else(|| panic!("{request}: {answer}"))
            .to_owned()
    };
    let asking = |id: &str| {
        format!("GET /x HTTP/1.1\r\nhost: x\r\nx-request-id: {id}\r\nconnection: close\r\n\r\n")
    };
    assert_eq!(id(&trusting, &asking("edge-1.2")).await, "edge-1.2");
    assert_eq!(id(&trusting, &asking("a b")).await.len(), 32);
    assert_eq!(id(&wary, &asking("edge-1.2")).await.len(), 32);
    assert_eq!(id(&usual, &asking("edge-1.2")).await.len(), 32);
    for request in [
        "nonsense\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        "GET /forms HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        "DELETE /forms HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: x\r\norigin: https://x.example\r\nconnection: close\r\n\r\n",
    ] {
        assert_eq!(id(&wary, request).await.len(), 32, "{request}");
    }
}

#[tokio::test]
async fn signals_are_found_by_what_is_known_of_them() {
    let (world, gateway, _worker, first) = World::with_recorded_webhook().await;
    let workspace = first.address.workspace;
    let second = world.named_webhook(&gateway, workspace, "billing").await;
    for number in 0..3 {
        let event = json!({"type": "client.created", "entity": "Ada", "sourceTool": "crm",
            "eventId": format!("e-{number}")});
        assert!(first.send(event.to_string()).await.is_first());
    }
    assert!(second.send("[]").await.is_first());
    world.await_signals(4).await;
    let list = async |filter: &str| -> Vec<Value> {
        let found = world.order(format!("signal list --workspace {workspace}{filter}"));
        found.as_array().unwrap().clone()
    };
    let all = list("").await;
    assert_eq!(all.len(), 4);
    let billing = list(" --webhook billing").await;
    assert_eq!(billing.len(), 1);
    assert_eq!(&billing[0]["webhook_name"], &json!("billing"));
    assert_eq!(list(" --kind generic").await, billing);
    assert_eq!(list(" --kind client.created").await.len(), 3);
    assert_eq!(list(" --event-id e-1").await.len(), 1);
    assert_eq!(list(" --since 2999-01-01T00:00:00Z").await.len(), 0);
    let page = list(" --limit 2").await;
    let last = page[1]["signal_id"].as_str().unwrap();
    let next = list(&format!(" --limit 2 --before {last}")).await;
    assert_eq!([page, next].concat(), all, "page by page");
}
