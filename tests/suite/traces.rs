//! Traces: what became of one request, told to a collector where there is one.

use letterbox_tests::{
    Answer, Peer, Process, Reply, World, assert_hides, assert_holds, assert_tells, eventually,
    http_client, payload,
};
use serde_json::{Value, json};

const STRANGERS: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Settings by which a process tells its spans to a collector.
fn told_to(collector: &Peer) -> [(&'static str, &str); 3] {
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_BSP_SCHEDULE_DELAY", "100"),
    ]
}

/// Every span that a collector was told, with the name of the program beside it.
fn spans(collector: &Peer) -> Vec<(String, Value)> {
    let mut spans = Vec::new();
    for request in collector.received() {
        assert_eq!(request.target, "/v1/traces");
        for resource in request.json()["resourceSpans"].as_array().unwrap() {
            let program = attribute(&resource["resource"], "service.name").unwrap();
            let scopes = resource["scopeSpans"].as_array().unwrap().iter();
            let found = scopes.flat_map(|scope| scope["spans"].as_array().unwrap());
            spans.extend(found.map(|span| (program.clone(), span.clone())));
        }
    }
    spans
}

fn attribute(of: &Value, key: &str) -> Option<String> {
    let mut attributes = of["attributes"].as_array()?.iter();
    let value = &attributes.find(|one| one["key"] == key)?["value"];
    let text = value["stringValue"].as_str().map(str::to_owned);
    text.or_else(|| value["intValue"].as_str().map(str::to_owned))
        .or_else(|| value["intValue"].as_i64().map(|number| number.to_string()))
}

fn named<'s>(spans: &'s [(String, Value)], program: &str, name: &str) -> Option<&'s Value> {
    let mut spans = spans.iter();
    let found = spans.find(|(by, span)| by == program && span["name"] == name);
    found.map(|(_, span)| span)
}

/// From a stranger's submission to the request that an action sends: one trace, which is not the
/// stranger's.
#[tokio::test(flavor = "multi_thread")]
async fn one_trace_leads_from_the_form_to_the_account() {
    let world = World::new().await;
    let collector = Peer::start(|_, _| Reply::With(200, Vec::new(), "{}".into())).await;
    let account = Peer::start(|_, _| Reply::Status(200)).await;
    let settings = told_to(&collector);
    let gateway = world.gateway_with(&settings).await;
    let worker = world.worker_with(&settings).await;
    let form = world.sending_form(&gateway, &account).await;
    let sending = form.submission("canary-key", &payload());
    let answer = Answer::to(sending.header("traceparent", STRANGERS)).await;
    answer.assert_accepted();
    let request_id = answer.request_id.0;
    let unknown = format!("{}/made-up/{}", gateway.public_url(), form.token);
    let answer = http_client().get(unknown).send().await.unwrap();
    assert_eq!(answer.status(), 404);
    let sent = &account.await_received(1).await[0];
    world.await_state("succeeded", 1).await;

    let server = "POST /public/workflow-forms/forms/submit";
    eventually("everything is told", async || {
        let spans = spans(&collector);
        let of_gateway = |name| named(&spans, "letterbox-gateway", name).is_some();
        let of_worker = |name| named(&spans, "letterbox-worker", name).is_some();
        [server, "claim submissions", "publish letterbox.v1.forms"].map(of_gateway) == [true; 3]
            && ["process letterbox.v1.forms", "run", "POST"].map(of_worker) == [true; 3]
    })
    .await;
    let spans = spans(&collector);
    // What is at no known path begins none.
    let of_server = spans.iter().filter(|(_, span)| span["kind"] == 2);
    assert_eq!(of_server.count(), 1);
    let first = named(&spans, "letterbox-gateway", server).unwrap();
    let trace = first["traceId"].as_str().unwrap();
    assert!(!STRANGERS.contains(trace), "a trace of our own");
    let linked = first["links"][0]["traceId"].as_str().unwrap();
    assert!(STRANGERS.contains(linked), "{first}");
    assert_eq!(attribute(first, "letterbox.request_id"), Some(request_id));
    let status = attribute(first, "http.response.status_code");
    assert_eq!(status.as_deref(), Some("200"));
    for (program, name) in [
        ("letterbox-gateway", "claim submissions"),
        ("letterbox-gateway", "publish letterbox.v1.forms"),
        ("letterbox-worker", "process letterbox.v1.forms"),
    ] {
        let span = named(&spans, program, name).unwrap();
        assert_eq!(span["traceId"], trace, "{name}");
        assert_eq!(span["links"][0]["spanId"], first["spanId"], "{name}");
    }
    let run = named(&spans, "letterbox-worker", "run").unwrap();
    let post = named(&spans, "letterbox-worker", "POST").unwrap();
    let expected = json!({"traceId": first["traceId"], "parentSpanId": first["spanId"]});
    assert_holds(run, expected);
    assert_eq!(post["parentSpanId"], run["spanId"]);
    let action = attribute(post, "letterbox.action_id");
    assert_eq!(action.as_deref(), Some("send"));
    let context = format!("00-{trace}-{}-01", post["spanId"].as_str().unwrap());
    assert_eq!(sent.header("traceparent"), Some(context.as_str()));
    assert_eq!(world.run_of(&form).await.trace_id.as_deref(), Some(trace));

    // A collector is somebody else.
    for request in collector.received() {
        assert_hides(&request.body, &[&form.token, "canary-key", "Ada"]);
        assert_hides(&request.body, &["canary-credential"]);
    }
    drop((gateway, worker));
}

/// Nothing is made, kept or passed on where nobody wants traces, or this one is not sampled.
#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_follows_leaves_no_trace() {
    let collector = Peer::start(|_, _| Reply::With(200, Vec::new(), "{}".into())).await;
    let mut unsampled = told_to(&collector).to_vec();
    unsampled.push(("OTEL_TRACES_SAMPLER", "always_off"));
    for settings in [Vec::new(), unsampled] {
        let world = World::new().await;
        let account = Peer::start(|_, _| Reply::Status(200)).await;
        let mut gateway = world.gateway_with(&settings).await;
        let mut worker = world.worker_with(&settings).await;
        let form = world.sending_form(&gateway, &account).await;
        world.submit_until(&form, "k", "succeeded", 1).await;
        let received = account.await_received(1).await;
        assert_eq!(received[0].header("traceparent"), None);
        let traced = "SELECT count(traceparent) FROM runs";
        world.assert_count(traced, 0).await;
        // What is left is told at the end.
        stop(&mut gateway).await;
        stop(&mut worker).await;
    }
    assert_eq!(collector.received().len(), 0);
}

/// A collector that is away costs nobody anything; one that can't be is told at the start.
#[tokio::test]
async fn a_collector_may_be_away() {
    let world = World::new().await;
    let away = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
        ("OTEL_BSP_SCHEDULE_DELAY", "50"),
    ];
    let mut gateway = world.gateway_with(&away).await;
    let mut worker = world.worker_with(&away).await;
    let webhook = world.webhook(&gateway).await;
    assert!(webhook.send("1").await.is_first());
    world.await_signals(1).await;
    for process in [&mut gateway, &mut worker] {
        stop(process).await;
    }
    let wrong = [("OTEL_EXPORTER_OTLP_ENDPOINT", "no address")];
    let mut refused = world.start("letterbox-gateway", &wrong);
    assert!(!refused.ended().await.success());
    assert_tells(&refused.log(), &["OTEL_EXPORTER_OTLP_ENDPOINT"]);
}

async fn stop(process: &mut Process) {
    process.terminate();
    assert!(process.ended().await.success());
}
