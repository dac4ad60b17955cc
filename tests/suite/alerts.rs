//! The rules for Prometheus: they come when they should, speak of metrics that there are, and are
//! explained. The dashboard asks for what there is, too.

use std::{collections::BTreeSet, process::Command};

use letterbox_common::process::metrics::Metric;
use letterbox_tests::{command_file, folder};
use serde_json::{Value, json};

use crate::source_tree::{read, root};

fn promtool(arguments: &[&str]) {
    let told = Command::new("promtool")
        .args(arguments)
        .current_dir(root().join("deploy/prometheus"))
        .output()
        .expect("Prometheus is installed: use deploy/test");
    assert!(told.status.success(), "{told:?}");
}

#[test]
fn alerts_come_when_they_should() {
    promtool(&["check", "rules", "letterbox.rules.yml"]);
    promtool(&["test", "rules", "letterbox.rules.test.yml"]);
}

/// Fails where a text speaks of a metric of ours that there is not; gives those that it speaks of.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let all: Vec<&Metric> = letterbox_gateway::all_metrics()
        .chain(letterbox_worker::all_metrics())
        .collect();
    let words = text.split(|one: char| !one.is_ascii_lowercase() && one != '_');
    let named = words.filter(|word| word.starts_with("letterbox_"));
    let named = named.map(|name| {
        let name = name.trim_end_matches("_bucket").trim_end_matches("_count");
        assert!(all.iter().any(|metric| metric.name == name), "{name}");
        name.to_owned()
    });
    named.collect()
}

#[test]
fn alerts_speak_of_metrics_that_there_are() {
    let named = metrics_in(&read("deploy/prometheus/letterbox.rules.yml"));
    assert!(named.len() > 15, "{named:?}");
}

/// Every query of the dashboard is one, and asks for metrics that there are.
#[test]
fn the_dashboard_asks_for_what_there_is() {
    let dashboard = read("deploy/grafana/letterbox.json");
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let queries = targets
        .flatten()
        .map(|target| target["expr"].as_str().unwrap());
    let queries: Vec<&str> = queries.collect();
    assert!(metrics_in(&queries.join("\n")).len() > 25, "{queries:?}");
    let rules = queries.iter().enumerate().map(|(number, query)| {
        let query = query.replace("$__rate_interval", "1m");
        json!({"record": format!("query:{number}"), "expr": query})
    });
    let groups = json!({"groups": [{"name": "dashboard", "rules": rules.collect::<Vec<_>>()}]});
    let file = command_file("dashboard.rules.json", &groups.to_string());
    let file = folder().join(file);
    promtool(&["check", "rules", "--lint=none", file.to_str().unwrap()]);
}

#[test]
fn every_alert_is_explained_and_tried() {
    let rules = read("deploy/prometheus/letterbox.rules.yml");
    let tried = read("deploy/prometheus/letterbox.rules.test.yml");
    let explained = read("deploy/README.md");
    let alerts = rules.lines().map(str::trim);
    let alerts: Vec<_> = alerts
        .filter_map(|line| line.strip_prefix("- alert: "))
        .collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in &alerts {
        assert!(explained.contains(&format!("\n### {alert}\n")), "{alert}");
        let link = format!("runbook_url: deploy/README.md#{}\n", alert.to_lowercase());
        assert!(rules.contains(&link), "{alert}: {link}");
        assert!(tried.contains(alert), "{alert} is not tried");
    }
    let explanations = explained.matches("\n### Letterbox");
    assert_eq!(explanations.count(), alerts.len());
}
