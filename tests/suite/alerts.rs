//! The rules for Prometheus: they come when they should, speak of metrics that there are, and are
//! explained.

use std::process::Command;

use letterbox_common::process::metrics::Metric;

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

#[test]
fn alerts_speak_of_metrics_that_there_are() {
    let all: Vec<&Metric> = letterbox_gateway::all_metrics()
        .chain(letterbox_worker::all_metrics())
        .collect();
    let rules = read("deploy/prometheus/letterbox.rules.yml");
    let words = rules.split(|one: char| !one.is_ascii_lowercase() && one != '_');
    let named: Vec<_> = words
        .filter(|word| word.starts_with("letterbox_"))
        .collect();
    assert!(named.len() > 15, "{named:?}");
    for name in named {
        let name = name.trim_end_matches("_bucket").trim_end_matches("_count");
        assert!(all.iter().any(|metric| metric.name == name), "{name}");
    }
}

#[test]
fn every_alert_is_explained_and_tried() {
    let (rules, tried, explained) = (
        read("deploy/prometheus/letterbox.rules.yml"),
        read("deploy/prometheus/letterbox.rules.test.yml"),
        read("deploy/README.md"),
    );
    let alerts: Vec<_> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in &alerts {
        assert!(explained.contains(&format!("\n### {alert}\n")), "{alert}");
        let link = format!("runbook: deploy/README.md#{}\n", alert.to_lowercase());
        assert!(rules.contains(&link), "{alert}: {link}");
        assert!(tried.contains(alert), "{alert} is not tried");
    }
    let explanations = explained
        .lines()
        .filter(|line| line.starts_with("### Letterbox"));
    assert_eq!(explanations.count(), alerts.len());
}
