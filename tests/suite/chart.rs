//! The chart for Kubernetes, rendered: who gets which secrets and how, what it refuses, and that
//! its largest size does not need more connections than PostgreSQL has.

use std::process::Command;

use letterbox_tests::folder;
use serde_json::{Value, json};

use crate::source_tree::root;

/// What Helm makes of the chart with these values: objects, or why it refuses them. `None` where
/// Helm's library is not to be had.
fn render(values: &Value) -> Option<Result<Vec<Value>, String>> {
    let python =
        std::env::var("LETTERBOX_TEST_PYTHON").expect("Python is installed: use deploy/test");
    let told = Command::new(python)
        .arg(root().join("tests/chart/render.py"))
        .arg(values.to_string())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // Helm keeps a cache in the home folder.
        .env("HOME", folder())
        .output()
        .unwrap();
    if told.status.code() == Some(77) {
        println!("Helm's library is not installed: the chart is not checked");
        return None;
    }
    assert!(told.status.success(), "{told:?}");
    let mut answer: Value = serde_json::from_slice(&told.stdout).unwrap();
    Some(match answer["refused"].as_str() {
        Some(reason) => Err(reason.to_owned()),
        None => Ok(serde_json::from_value(answer["objects"].take()).unwrap()),
    })
}

/// Values that switch on everything that there is.
fn everything() -> Value {
    json!({
        "fullnameOverride": "mail",
        "podAnnotations": {"reloader.stakater.com/auto": "true"},
        "envFrom": [{"secretRef": {"name": "collector"}}],
        "settings": {"LETTERBOX_SPILL_MESSAGES": 1_000_000.0},
        "gateway": {"trustedProxies": "10.0.0.0/8", "autoscaling": {"enabled": true}},
        "worker": {"keda": {"enabled": true}},
        "desk": {
            "enabled": true, "url": "https://desk.example.com", "trustedProxies": "10.0.0.0/8",
        },
        "ingress": {"enabled": true},
        "networkPolicy": {
            "publicFrom": [{"podSelector": {}}],
            "adminFrom": [{"namespaceSelector": {}}],
        },
        "podMonitor": {"enabled": true},
        "prometheusRule": {"enabled": true, "runbookUrl": "https://wiki.example.com/mail"},
    })
}

/// The objects of a kind.
fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |one| one["kind"] == kind)
}

/// Every value under this name, at any depth.
fn under<'a>(name: &str, within: &'a Value, found: &mut Vec<&'a Value>) {
    match within {
        Value::Object(members) => {
            found.extend(members.get(name));
            for member in members.values() {
                under(name, member, found);
            }
        }
        Value::Array(members) => {
            for member in members {
                under(name, member, found);
            }
        }
        _ => {}
    }
}

/// The names of the secrets whose files an object's pods get.
fn secrets(object: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    under("secretName", object, &mut found);
    found.into_iter().filter_map(Value::as_str).collect()
}

#[test]
fn only_what_ends_has_the_operators_secrets() {
    let Some(objects) = render(&json!({})) else {
        return;
    };
    let objects = objects.unwrap();
    let programs: Vec<_> = of_kind(&objects, "Deployment").map(secrets).collect();
    assert_eq!(programs, [["letterbox-gateway"], ["letterbox-worker"]]);
    let jobs: Vec<_> = of_kind(&objects, "Job").collect();
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    assert_eq!(secrets(jobs[0]), ["letterbox-migrate"]);
    let hook = &jobs[0]["metadata"]["annotations"]["helm.sh/hook"];
    assert_eq!(hook, "pre-install,pre-upgrade");
    let templates: Vec<_> = of_kind(&objects, "CronJob").collect();
    assert_eq!(templates.len(), 1, "{templates:?}");
    assert_eq!(secrets(templates[0]), ["letterbox-operator"]);
    assert_eq!(templates[0]["spec"]["suspend"], true);
    let other = ["Pod", "StatefulSet", "DaemonSet", "ReplicaSet"];
    for kind in other {
        assert_eq!(of_kind(&objects, kind).count(), 0, "{kind}");
    }
}

#[test]
fn secrets_are_files_and_not_in_the_environment() {
    let Some(objects) = render(&everything()) else {
        return;
    };
    let objects = Value::Array(objects.unwrap());
    let (mut references, mut environments) = (Vec::new(), Vec::new());
    under("valueFrom", &objects, &mut references);
    assert!(references.is_empty(), "{references:?}");
    under("env", &objects, &mut environments);
    let variables = environments.into_iter().filter_map(Value::as_array);
    let variables: Vec<_> = variables.flatten().collect();
    assert!(variables.len() > 10, "{variables:?}");
    let mut files = 0;
    for variable in variables {
        let name = variable["name"].as_str().unwrap();
        let value = variable["value"].as_str().unwrap();
        let secrets = ["DATABASE_URL", "AMQP_URL", "_KEYS"];
        if secrets.iter().any(|word| name.contains(word)) {
            assert!(name.ends_with("_FILE"), "{name}");
            assert!(value.starts_with("/run/secrets/"), "{name}: {value}");
            files += 1;
        }
        if name == "LETTERBOX_SPILL_MESSAGES" {
            assert_eq!(value, "1000000");
        }
    }
    assert!(files > 10, "{files}");
}

#[test]
fn alerts_link_to_where_the_page_is_read() {
    let Some(objects) = render(&everything()) else {
        return;
    };
    let objects = objects.unwrap();
    let rules: Vec<_> = of_kind(&objects, "PrometheusRule").collect();
    let mut links = Vec::new();
    under("runbook_url", rules[0], &mut links);
    assert!(links.len() > 10, "{links:?}");
    for link in links {
        let link = link.as_str().unwrap();
        let expected = "https://wiki.example.com/mail#letterbox";
        assert!(link.starts_with(expected), "{link}");
    }
}

#[test]
fn wrong_values_are_refused_with_a_reason() {
    let scaled = |workers: u32| {
        json!({
            "gateway": {"autoscaling": {"enabled": true}},
            "worker": {"keda": {"enabled": true, "maxReplicas": workers}},
        })
    };
    let (on, below) = (json!({"enabled": true}), "https://desk.example.com/path");
    let database = json!({"DATABASE_URL": "postgres://u:p@h/d"});
    let keys = json!({"LETTERBOX_ACCOUNT_KEYS": "a:b"});
    for (values, reason) in [
        (json!({"gateway": {"replica": 5}}), "replica"),
        (json!({"gateway": {"replicas": "2"}}), "replicas"),
        (json!({"commandLine": {"enabled": true}}), "commandLine"),
        (json!({"settings": database}), "DATABASE_URL"),
        (
            json!({"worker": {"settings": keys}}),
            "LETTERBOX_ACCOUNT_KEYS",
        ),
        (json!({"ingress": on}), "gateway.trustedProxies"),
        (json!({"podMonitor": on}), "networkPolicy.adminFrom"),
        (json!({"desk": on}), "desk.url"),
        (json!({"desk": {"enabled": true, "url": below}}), "desk"),
        (json!({"gateway": {"replicas": 20}}), "databaseConnections"),
        (scaled(6), "up to 99 connections"),
    ] {
        let Some(rendered) = render(&values) else {
            return;
        };
        let refusal = rendered.expect_err(&values.to_string());
        assert!(refusal.contains(reason), "{values}: {refusal}");
    }
    // The largest size that the chart's own values lead to, also with a desk.
    let mut largest = scaled(5);
    assert!(render(&largest).is_none_or(|rendered| rendered.is_ok()));
    largest["desk"] = json!({"enabled": true, "url": "https://desk.example.com"});
    assert!(render(&largest).is_none_or(|rendered| rendered.is_ok()));
}

/// The desk has a login of its own, and no key; people reach it by a host of its own.
#[test]
fn the_desk_has_no_keys() {
    let Some(objects) = render(&everything()) else {
        return;
    };
    let objects = objects.unwrap();
    let desk = |kind| {
        let mut found = of_kind(&objects, kind);
        found
            .find(|one| one["metadata"]["name"] == "mail-desk")
            .unwrap()
    };
    assert_eq!(secrets(desk("Deployment")), ["letterbox-desk"]);
    assert!(!desk("Deployment").to_string().contains("_KEYS"));
    let host = &desk("Ingress")["spec"]["rules"][0]["host"];
    assert_eq!(host, "desk.example.com");
    desk("Service");
    desk("NetworkPolicy");
}
