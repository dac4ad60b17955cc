//! Closed sets: each has one registry, and what a registry forgets fails here.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    process::{Command, Stdio},
};

use letterbox_broker::{MessageType, topology::work_queues};
use letterbox_common::{
    process::metrics::{Metric, MetricKind},
    sealing::SealedColumn,
    states::{
        AccountWait, ActionState, ActiveState, ApprovalState, ClaimKind, Forgotten, InputTrust,
        MemberRole, Program, Proof, RefusedReason, RunState, SegmentState, SignalKind,
        WorkflowState,
    },
    webhook::DeliveryFault,
};
use letterbox_database::{Role, Statement};
use letterbox_tests::{World, assert_tells, eventually};
use letterbox_workflow::{
    ApproveBy, Decision, Steering, Untrusted,
    actions::{Branch, KINDS},
};

use crate::source_tree::{SERVICES, code, files, read};

/// Every registered statement with the role that runs it.
pub fn statements() -> Vec<(Role, &'static Statement)> {
    let gateway = letterbox_gateway::statements().map(|one| (Role::Gateway, one));
    let worker = letterbox_worker::statements().map(|one| (Role::Worker, one));
    let operator = letterbox_operator::statements().map(|one| (Role::Operator, one));
    gateway.chain(worker).chain(operator).collect()
}

/// The names of the statements that a file declares: `statements!` with `fn name(…) = "SQL"` or
/// `CONSTANT = name "SQL"`.
pub fn declared_in(text: &str) -> Option<Vec<String>> {
    let (_, list) = text.split_once("\nstatements! {")?;
    let list = list.split("\n}").next()?;
    let names = list.lines().filter_map(|line| {
        if let Some((_, signature)) = line.split_once("fn ") {
            return Some(signature.split('(').next().unwrap().to_owned());
        }
        let (constant, rest) = line.trim_start().split_once(" = ")?;
        let is_constant = constant.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        is_constant.then(|| rest.split(' ').next().unwrap().to_owned())
    });
    Some(names.collect())
}

/// A list that no registry takes in would be found here and not there.
#[test]
fn every_declared_statement_is_registered_once() {
    let registered: Vec<_> = statements().iter().map(|(_, one)| one.name).collect();
    let distinct: BTreeSet<_> = registered.iter().copied().collect();
    assert_eq!(registered.len(), distinct.len()); // no two have one name

    let mut declared = BTreeSet::new();
    for (file, text) in SERVICES.into_iter().flat_map(files) {
        if let Some(names) = declared_in(&text) {
            assert!(!names.is_empty(), "{file} declares no statement");
            declared.extend(names);
        }
    }
    let missing: Vec<_> = declared
        .iter()
        .filter(|name| !distinct.contains(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "not registered: {missing:?}");
    assert_eq!(declared.len(), distinct.len());
}

/// The words that a column may hold by its CHECK constraint: `column = ANY (ARRAY['a', 'b'])`,
/// `column = 'a'` or `column <@ '{a,b}'`.
fn checked_words(definition: &str) -> Option<BTreeSet<String>> {
    let quoted = |text: &str| {
        text.split('\'')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
    };
    if let Some((_, list)) = definition.split_once("= ANY (ARRAY[") {
        return Some(quoted(list));
    }
    if let Some((_, list)) = definition.split_once("<@ '{") {
        let list = list.split('}').next().unwrap();
        return Some(list.split(',').map(str::to_owned).collect());
    }
    let (_, word) = definition.split_once(" = '")?;
    Some(quoted(&format!("'{word}")))
}

#[tokio::test]
async fn the_words_of_every_enum_equal_the_check_of_its_column() {
    let enums: BTreeMap<(&str, &str), &[&str]> = [
        (("members", "role"), MemberRole::WORDS),
        (("workflows", "state"), WorkflowState::WORDS),
        (("processes", "program"), Program::WORDS),
        (("runs", "state"), RunState::WORDS),
        (("active_runs", "state"), ActiveState::WORDS),
        (("runs", "refused_reason"), RefusedReason::WORDS),
        (("runs", "input_trust"), InputTrust::WORDS),
        (("forgotten", "what"), Forgotten::WORDS),
        (("run_actions", "state"), ActionState::WORDS),
        (("run_actions", "untrusted"), Untrusted::WORDS),
        (("run_actions", "steered_by"), Steering::WORDS),
        (("run_actions", "decision"), Decision::WORDS),
        (("run_actions", "branch"), Branch::WORDS),
        (("approvals", "state"), ApprovalState::WORDS),
        (("approvals", "proven_by"), Proof::WORDS),
        (("audit_log", "proven_by"), Proof::WORDS),
        (("sessions", "proven_by"), Proof::WORDS),
        (("signals", "kind"), SignalKind::WORDS),
        (("subscriptions", "signal_kind"), SignalKind::WORDS),
        (("connected_accounts", "waits_for"), AccountWait::WORDS),
        (("webhook_refusals", "reason"), DeliveryFault::WORDS),
        (("spilled_messages", "message_type"), MessageType::WORDS),
        (("claim_halves", "source"), ClaimKind::WORDS),
        (("policies", "approve_by"), ApproveBy::WORDS),
        (("memory_segments", "state"), SegmentState::WORDS),
        (("memory_segments", "source"), ClaimKind::WORDS),
    ]
    .into();
    let world = World::new().await;
    let checks = "
        SELECT c.relname::text, a.attname::text, pg_get_constraintdef(k.oid)
        FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.conkey[1]
        WHERE k.contype = 'c' AND cardinality(k.conkey) = 1";
    let mut checked = BTreeMap::new();
    for row in world.database.query(checks, &[]).await.unwrap() {
        if let Some(words) = checked_words(row.get(2)) {
            checked.insert((row.get::<_, String>(0), row.get::<_, String>(1)), words);
        }
    }
    for ((table, column), words) in &enums {
        let words: BTreeSet<_> = words.iter().map(|word| (*word).to_owned()).collect();
        let check = checked.remove(&((*table).to_owned(), (*column).to_owned()));
        assert_eq!(check, Some(words), "{table}.{column}");
    }
    assert!(checked.is_empty(), "no enum has these words: {checked:?}");
}

#[tokio::test]
async fn every_sealed_column_is_rotated() {
    let world = World::new().await;
    let columns = "
        SELECT table_name || '.' || column_name FROM information_schema.columns
        WHERE table_schema = 'public' AND column_name LIKE '%\\_sealed' ORDER BY 1";
    let sealed: BTreeSet<String> = world.column(columns).await.into_iter().collect();
    let known = SealedColumn::ALL.map(|one| format!("{}.{}", one.table(), one.name()));
    assert_eq!(sealed, known.into());
}

#[tokio::test]
async fn every_work_queue_is_consumed() {
    let world = World::new().await;
    let _worker = world.worker().await;
    for queue in work_queues(1) {
        eventually(&queue.name, async || {
            world.consumers(&queue.name).await == 1
        })
        .await;
    }
}

fn metrics() -> BTreeMap<&'static str, &'static Metric> {
    let all = letterbox_gateway::all_metrics().chain(letterbox_worker::all_metrics());
    all.map(|metric| (metric.name, metric)).collect()
}

#[test]
fn every_metric_is_declared_in_a_registry_and_documented() {
    let metrics = metrics();
    for (file, text) in SERVICES.into_iter().flat_map(files) {
        if file.ends_with("process/metrics.rs") {
            continue;
        }
        for macro_name in ["counter!(", "gauge!(", "histogram!("] {
            let call = format!("metrics::{macro_name}");
            assert!(!text.contains(&call), "{file}: declare it in metrics.rs");
        }
        let declared = text.split('"').filter(|part| {
            part.starts_with("letterbox_")
                && part.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        });
        if file.ends_with("metrics.rs") {
            for name in declared {
                assert!(metrics.contains_key(name), "{file}: {name}");
            }
        }
    }
    let documentation = read("deploy/README.md");
    for metric in metrics.values() {
        let labels = metric.labels.iter().map(|label| format!("`{label}`"));
        let labels = labels.collect::<Vec<_>>().join(", ");
        let (name, kind, help) = (metric.name, kind_of(metric), metric.help.trim());
        let row = format!("| `{name}` | {kind} | {labels} | {help} |");
        assert!(documentation.contains(&row), "deploy/README.md: {row}");
    }
    let rows = documentation.matches("\n| `letterbox_");
    assert_eq!(rows.count(), metrics.len()); // no row for what is no metric
}

/// Prometheus's name of the kind of a metric.
fn kind_of(metric: &Metric) -> &'static str {
    match metric.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Seconds | MetricKind::Delays | MetricKind::Sizes => "histogram",
    }
}

/// A metric that nothing records is a promise that is not kept.
#[test]
fn every_metric_is_recorded_somewhere() {
    let (registries, others): (Vec<_>, Vec<_>) = SERVICES
        .into_iter()
        .flat_map(files)
        .partition(|(file, _)| file.ends_with("metrics.rs"));
    let mut found = 0;
    for (file, registry) in registries {
        for line in code(&registry).filter(|line| line.contains("= \"letterbox_")) {
            let name = line.trim().split(':').next().unwrap();
            let (by_module, alone) = (format!("metrics::{name}."), format!(" {name}."));
            let is_recorded = others
                .iter()
                .any(|(_, text)| text.contains(&by_module) || text.contains(&alone));
            assert!(is_recorded, "{file}: {name}");
            found += 1;
        }
    }
    assert!(found >= metrics().len(), "{found}");
}

/// What a process exports is what is declared, with a help text.
#[tokio::test]
async fn every_exported_metric_is_declared() {
    let (world, gateway, worker, webhook) = World::with_recorded_webhook().await;
    assert!(webhook.send("{}").await.is_first());
    world.await_signals(1).await;
    let metrics = metrics();
    for process in [&gateway, &worker] {
        let (_, text) = process.admin("/metrics").await.unwrap();
        let exported: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
            .collect();
        assert_tells(&text, &["# TYPE process_cpu_seconds_total "]);
        let (_, own): (Vec<_>, Vec<_>) = exported
            .into_iter()
            .partition(|(name, _)| name.starts_with("process_"));
        assert!(!own.is_empty());
        for (name, kind) in own {
            let metric = metrics.get(name).expect(name);
            assert_eq!(kind, kind_of(metric), "{name}");
            assert_tells(&text, &[&format!("# HELP {name} {}", metric.help.trim())]);
        }
        let mut linting = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Prometheus is installed: use deploy/test");
        let mut stdin = linting.stdin.take().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
        drop(stdin);
        let told = linting.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&told.stderr).into_owned();
        assert_eq!(told, "", "what promtool complains of");
    }
}

/// A kind of action has a row in the documentation, and is executed by a test.
#[test]
fn every_kind_of_action_is_documented_and_executed_by_a_test() {
    let documentation = read("worker/README.md");
    let tests = ["tests/src", "tests/suite"].into_iter().flat_map(files);
    let tests: String = tests.map(|(_, text)| text).collect();
    for kind in &KINDS {
        let (row, name) = (format!("| `{}`", kind.name), kind.name);
        assert!(documentation.contains(&row), "worker/README.md: {name}");
        let definition = format!(r#""type": "{name}""#);
        assert!(tests.contains(&definition), "no test defines {name}");
    }
}
