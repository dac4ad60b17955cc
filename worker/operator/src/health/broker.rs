//! The broker: its queues, and what its dashboard says of alarms, limits, members, feature flags
//! and users.

use std::collections::BTreeSet;

use letterbox_broker::{
    BrokerTarget, QueueLength, queue_lengths,
    topology::{DEAD_LETTERS_QUEUE, declared_arguments},
};
use letterbox_database::statements;
use serde_json::Value;

use super::finding::{Finding, Verdict};
use crate::{Operator, PROGRAM};

/// Less than this is the broker's default, at which it is out of space before it stops taking.
const MIN_DISK_LIMIT: f64 = 1e9;

/// Mends a queue that is not as it is declared. RabbitMQ does not ask whether a quorum queue is
/// empty.
const OTHER_QUEUE: &str = "stop the gateways; when letterbox status shows nothing in it, stop the \
     workers; if it is empty still: rabbitmqctl -p VHOST delete_queue NAME, then letterbox migrate";

statements! {
    /// The most queues that a gateway has ever used.
    fn status_queues() -> (i32,) = "SELECT max(queues) AS queues FROM work_queues";
}

impl Operator {
    /// The length of every queue that there is, or why it can't be told.
    pub(super) async fn queue_lengths(
        &self,
        broker: &BrokerTarget,
    ) -> Result<Vec<QueueLength>, String> {
        let queues = status_queues(&self.database).await;
        let (queues,) = queues.map_err(|error| error.to_string())?;
        let queues = u16::try_from(queues).unwrap_or(1);
        let lengths = queue_lengths(broker, PROGRAM, queues).await;
        lengths.map_err(|error| error.to_string())
    }
}

/// Whether every queue has a consumer, and there are no dead letters.
pub(super) fn consumed(lengths: &Result<Vec<QueueLength>, String>) -> Finding {
    let about = "queues";
    let broken = Verdict::Failure;
    let lengths = match lengths {
        Ok(lengths) => lengths,
        Err(error) => {
            let mend =
                "see that RabbitMQ answers at AMQP_URL; letterbox migrate declares what is missing";
            return Finding::new(about, false, broken, error, mend);
        }
    };
    let unread = lengths
        .iter()
        .filter(|one| !is_dead(one) && one.consumers == 0);
    let unread: Vec<_> = unread.map(|one| one.queue.as_str()).collect();
    if !unread.is_empty() {
        let detail = format!("no worker consumes {}", unread.join(", "));
        let mend = "systemctl start letterbox-worker, or as your workers are started";
        return Finding::new(about, false, broken, detail, mend);
    }
    let ([waiting, dead], consumed) = (counted(lengths), lengths.len() - 1);
    let detail = format!("{consumed} consumed, {waiting} messages wait, {dead} dead letters");
    let mend = "letterbox dead-letters list";
    Finding::new(about, dead == 0, Verdict::Warning, detail, mend)
}

/// How much waits in the queues, and whether anything of it is dead.
pub(super) fn emptied(lengths: &Result<Vec<QueueLength>, String>) -> Finding {
    let about = "queues";
    let [waiting, dead] = match lengths {
        Ok(lengths) => counted(lengths),
        Err(error) => {
            let mend = "letterbox doctor";
            return Finding::new(about, false, Verdict::Failure, error, mend);
        }
    };
    let detail = format!("{waiting} messages wait, {dead} are dead letters");
    let mend = "letterbox dead-letters list, then redrive or discard";
    Finding::new(about, dead == 0, Verdict::Warning, detail, mend)
}

pub(super) fn is_dead(length: &QueueLength) -> bool {
    length.queue == DEAD_LETTERS_QUEUE
}

/// The messages that wait for a worker, and the dead ones.
fn counted(lengths: &[QueueLength]) -> [u64; 2] {
    [false, true].map(|dead| {
        let counted = lengths.iter().filter(|one| is_dead(one) == dead);
        counted.map(|one| u64::from(one.ready)).sum()
    })
}

/// Judges what the broker's dashboard says of its nodes, its queues of ours, and its users: the
/// answers of its API to `nodes`, `queues/VHOST`, `users` and `feature-flags`.
pub fn examine_broker(nodes: &Value, queues: &Value, users: &Value, flags: &Value) -> Vec<Finding> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let nodes = list(nodes);
    let ours = list(queues).into_iter().filter(|queue| {
        let name = queue["name"].as_str();
        name.is_some_and(|name| name.starts_with("letterbox.v1."))
    });
    let mut found = examine_nodes(&nodes);
    found.extend(examine_queues(&ours.collect::<Vec<_>>(), nodes.len()));
    let flags = list(flags).into_iter();
    let off = flags.filter(|flag| flag["state"] == "disabled");
    found.push(Finding::of_list(
        "feature flags",
        off.filter_map(|flag| Some(flag["name"].as_str()?.to_owned())),
        Verdict::Warning,
        "all are on",
        "rabbitmqctl enable_feature_flag all: the next version of RabbitMQ may need them",
    ));
    let has_guest = list(users).iter().any(|user| user["name"] == "guest");
    found.push(Finding::new(
        "default user",
        !has_guest,
        Verdict::Warning,
        match has_guest {
            true => "the user guest exists",
            false => "there is no user guest",
        },
        "rabbitmqctl delete_user guest",
    ));
    found
}

fn examine_nodes(nodes: &[Value]) -> Vec<Finding> {
    let is_set = |node: &Value, alarm: &str| node[alarm].as_bool() == Some(true);
    let alarmed = nodes
        .iter()
        .filter(|node| is_set(node, "mem_alarm") || is_set(node, "disk_free_alarm"));
    let alarmed = alarmed.count();
    let limit = |node: &Value| node["disk_free_limit"].as_f64().unwrap_or(f64::MAX);
    let limits = nodes.iter().map(limit).fold(f64::MAX, f64::min);
    vec![
        Finding::new(
            "broker alarms",
            alarmed == 0,
            Verdict::Failure,
            format!("{alarmed} of {} nodes block publishing", nodes.len()),
            "rabbitmq-diagnostics alarms says where to free memory or disk; what is accepted is \
             spilled meanwhile",
        ),
        Finding::new(
            "broker disk limit",
            limits >= MIN_DISK_LIMIT,
            Verdict::Warning,
            format!("it stops taking messages at {:.0} MB free", limits / 1e6),
            "rabbitmqctl set_disk_free_limit 2GB, and disk_free_limit.absolute in its settings",
        ),
    ]
}

/// Whether they are as they are declared, and have as many members as the cluster offers.
fn examine_queues(ours: &[Value], nodes: usize) -> Vec<Finding> {
    let names = |chosen: &dyn Fn(&Value) -> bool| -> BTreeSet<String> {
        let chosen = ours.iter().filter(|queue| chosen(queue));
        let names = chosen.map(|queue| queue["name"].as_str().unwrap_or_default().to_owned());
        names.collect()
    };
    let other = names(&|queue| queue["type"] != "quorum");
    let wanted = nodes.min(3);
    let few = names(&|queue| queue["members"].as_array().map_or(0, Vec::len) < wanted);
    let differs = names(&|queue| {
        let declared = declared_arguments(queue["name"].as_str().unwrap_or_default());
        let is_same = |(name, value): (String, String)| {
            let told = &queue["arguments"][name];
            told.as_str()
                .map_or_else(|| told.to_string(), str::to_owned)
                == value
        };
        !declared.into_iter().all(is_same)
    });
    vec![
        Finding::of_list(
            "queue types",
            other,
            Verdict::Failure,
            "all are quorum queues",
            OTHER_QUEUE,
        ),
        Finding::of_list(
            "queue arguments",
            differs,
            Verdict::Failure,
            "as they are declared",
            OTHER_QUEUE,
        ),
        Finding::of_list(
            "queue members",
            few,
            Verdict::Warning,
            &format!("each has {wanted} or more"),
            "rabbitmq-queues grow NODE all, for each node without",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdicts([nodes, queues, users, flags]: [&Value; 4]) -> Vec<(&'static str, Verdict)> {
        let found = examine_broker(nodes, queues, users, flags);
        assert!(
            found
                .iter()
                .all(|one| (one.verdict == Verdict::Fine) == one.mend.is_none())
        );
        found.iter().map(|one| (one.about, one.verdict)).collect()
    }

    #[test]
    fn a_cluster_is_judged_by_what_its_dashboard_says() {
        let node = |alarm: bool, limit: f64| {
            let mem_alarm = false;
            json!({"mem_alarm": mem_alarm, "disk_free_alarm": alarm, "disk_free_limit": limit})
        };
        let queue = |kind: &str, members: &[&str]| {
            let name = "letterbox.v1.forms";
            let arguments: serde_json::Map<_, _> = declared_arguments(name)
                .into_iter()
                .map(|(name, value)| (name, json!(value)))
                .collect();
            json!({"name": name, "type": kind, "members": members, "arguments": arguments})
        };
        let flags = json!([{"name": "quorum_queue", "state": "enabled"}]);
        let nodes = json!([node(false, 2e9), node(false, 2e9), node(false, 2e9)]);
        let good = json!([queue("quorum", &["a", "b", "c"]), {"name": "other", "type": "classic"}]);
        let fine = verdicts([&nodes, &good, &json!([{"name": "admin"}]), &flags]);
        assert!(
            fine.iter().all(|(_, verdict)| *verdict == Verdict::Fine),
            "{fine:?}"
        );
        let mut other = queue("classic", &["a"]);
        other["arguments"]["x-delivery-limit"] = json!(20);
        let bad = verdicts([
            &json!([node(true, 5e7), node(false, 2e9)]),
            &json!([other]),
            &json!([{"name": "guest"}]),
            &json!([{"name": "stream_queue", "state": "disabled"}]),
        ]);
        let expected = [
            ("broker alarms", Verdict::Failure),
            ("broker disk limit", Verdict::Warning),
            ("queue types", Verdict::Failure),
            ("queue arguments", Verdict::Failure),
            ("queue members", Verdict::Warning),
            ("feature flags", Verdict::Warning),
            ("default user", Verdict::Warning),
        ];
        assert_eq!(bad, expected);
    }

    #[test]
    fn queues_without_consumers_and_dead_letters_are_told() {
        let length = |queue: &str, ready, consumers| QueueLength {
            queue: queue.to_owned(),
            ready,
            consumers,
        };
        let dead = |ready| length(DEAD_LETTERS_QUEUE, ready, 0);
        for (lengths, verdict) in [
            (Ok(vec![length("a", 9, 1), dead(0)]), Verdict::Fine),
            (Ok(vec![length("a", 0, 1), dead(1)]), Verdict::Warning),
            (Ok(vec![length("a", 0, 0), dead(0)]), Verdict::Failure),
            (Err("away".to_owned()), Verdict::Failure),
        ] {
            assert_eq!(consumed(&lengths).verdict, verdict, "{lengths:?}");
        }
    }
}
