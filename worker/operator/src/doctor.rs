//! What may be wrong with an installation, looked for without changing anything: settings of the
//! database that lose what was accepted, rights that are too great, clocks that differ, processes
//! and queues that are missing. What the broker's dashboard tells is judged here, too.

use std::collections::BTreeSet;

use jiff::Timestamp;
use letterbox_broker::{BrokerTarget, QueueLength, queue_lengths, topology::DEAD_LETTERS_QUEUE};
use letterbox_database::{from_row, migrations, statements};
use serde::Serialize;
use serde_json::Value;

use crate::{Operator, OperatorError, PROGRAM};

/// How far clocks may differ: a tenth of the tolerance of webhooks' times.
const MAX_CLOCK_SECONDS: f64 = 30.0;
/// Above this share of the connections in use there is no room for processes that are replaced.
const MAX_CONNECTIONS_USED: f64 = 0.8;
/// For how long a transaction may be open: signals wait for it.
const MAX_OPEN_SECONDS: f64 = 60.0;
/// Less than this is the broker's default, at which it is out of space before it stops taking.
const MIN_DISK_LIMIT: f64 = 1e9;

statements! {
    /// Settings on which nothing accepted is lost depends, and the schema's version.
    DURABILITY = doctor_durability "
SELECT current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
    (SELECT setting FROM pg_settings WHERE name = 'synchronous_commit') AS synchronous_commit,
    (SELECT coalesce(max(version), 0) FROM refinery_schema_history) AS version,
    clock_timestamp() AS clock";

    /// Connections, and transactions that hold up the reading of signals.
    SESSIONS = doctor_sessions "
SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS used,
    current_setting('max_connections')::integer AS most,
    (SELECT coalesce(extract(epoch FROM clock_timestamp() - min(xact_start)), 0)::float8
     FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND datname = current_database())
        AS open_seconds,
    (SELECT count(*) FROM pg_prepared_xacts) AS prepared,
    (SELECT pg_has_role(relowner, 'pg_read_all_stats', 'MEMBER') FROM pg_class
     WHERE oid = 'signals'::regclass) AS sees_sessions";

    /// Logins that are connected and have the rights of more than one kind of process.
    MIGHTY_LOGINS = doctor_logins "
SELECT r.rolname::text AS login, r.rolsuper AS is_superuser
FROM pg_roles r
WHERE r.oid IN (SELECT usesysid FROM pg_stat_activity WHERE datname = current_database())
    AND (SELECT count(*) FROM pg_roles o WHERE o.rolname IN ('letterbox_gateway',
        'letterbox_worker', 'letterbox_operator', 'letterbox_desk')
        AND pg_has_role(r.oid, o.oid, 'MEMBER')) > 1
ORDER BY r.rolname";
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Fine,
    /// It works, and should be otherwise.
    Warning,
    /// Something does not work, or may lose what was accepted.
    Failure,
}

/// What was found about one thing.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub about: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub detail: String,
    /// What mends it; `None` if all is well.
    pub mend: Option<&'static str>,
    /// Whether `letterbox check --repair` does.
    #[serde(skip)]
    pub repairs: bool,
}

impl Finding {
    /// A finding that is fine if `is_fine`.
    pub(crate) fn new(
        about: &'static str,
        is_fine: bool,
        otherwise: Verdict,
        detail: String,
        mend: &'static str,
    ) -> Self {
        Self {
            about,
            verdict: if is_fine { Verdict::Fine } else { otherwise },
            detail,
            mend: (!is_fine).then_some(mend),
            repairs: false,
        }
    }

    /// Something that can't be looked at, for want of a setting.
    pub(crate) fn unseen(about: &'static str, mend: &'static str) -> Self {
        Self::new(
            about,
            false,
            Verdict::Warning,
            "not looked at".to_owned(),
            mend,
        )
    }
}

struct Durability {
    fsync: String,
    full_page_writes: String,
    synchronous_commit: String,
    version: i32,
    clock: Timestamp,
}

from_row!(Durability {
    fsync,
    full_page_writes,
    synchronous_commit,
    version,
    clock
});

struct Sessions {
    used: i64,
    most: i32,
    open_seconds: f64,
    prepared: i64,
    sees_sessions: bool,
}

from_row!(Sessions {
    used,
    most,
    open_seconds,
    prepared,
    sees_sessions
});

struct MightyLogin {
    login: String,
    is_superuser: bool,
}

from_row!(MightyLogin {
    login,
    is_superuser
});

impl Operator {
    /// Looks at the database and, if it is given, the broker. Changes nothing.
    ///
    /// # Errors
    /// When the database can't be asked.
    pub async fn doctor(
        &self,
        broker: Option<&BrokerTarget>,
    ) -> Result<Vec<Finding>, OperatorError> {
        let mut found = self.examine_database().await?;
        let status = self.status(None).await?;
        for part in &status.parts {
            let mend = match part.part {
                "gateways" => "start or mend gateways: letterbox ready URL says what is missing",
                "workers" => "start or mend workers: letterbox ready URL says what is missing",
                _ => continue,
            };
            let detail = part.detail.clone();
            found.push(Finding::new(
                part.part,
                part.is_ready,
                Verdict::Failure,
                detail,
                mend,
            ));
        }
        let behind: Vec<_> = status.behind.iter().map(|one| one.queue.as_str()).collect();
        found.push(Finding::new(
            "subscriptions",
            behind.is_empty(),
            Verdict::Warning,
            match behind.len() {
                0 => "none is behind".to_owned(),
                _ => format!("behind: {}", behind.join(", ")),
            },
            "letterbox status says why",
        ));
        match broker {
            Some(broker) => found.push(queues(
                &queue_lengths(broker, PROGRAM, 1)
                    .await
                    .map_err(|error| error.to_string()),
            )),
            None => found.push(Finding::unseen("queues", "set AMQP_URL")),
        }
        Ok(found)
    }

    async fn examine_database(&self) -> Result<Vec<Finding>, OperatorError> {
        let durability: Durability = self.database.fetch_one(&DURABILITY, &[]).await?;
        let now = Timestamp::now();
        let sessions: Sessions = self.database.fetch_one(&SESSIONS, &[]).await?;
        let mighty: Vec<MightyLogin> = self.database.fetch_all(&MIGHTY_LOGINS, &[]).await?;
        let apart = durability.clock.duration_since(now).as_secs_f64().abs();
        let known = migrations::known_version();
        let (used, most) = (sessions.used, sessions.most);
        let logins = mighty.iter().map(|one| match one.is_superuser {
            true => format!("{} (superuser)", one.login),
            false => one.login.clone(),
        });
        let logins: Vec<_> = logins.collect();
        Ok(vec![
            Finding::new(
                "schema",
                durability.version == known,
                Verdict::Failure,
                format!("version {}; this program knows {known}", durability.version),
                "letterbox migrate, of the newest version",
            ),
            Finding::new(
                "fsync",
                durability.fsync == "on" && durability.full_page_writes == "on",
                Verdict::Failure,
                format!(
                    "fsync is {}, full_page_writes {}",
                    durability.fsync, durability.full_page_writes
                ),
                "ALTER SYSTEM RESET fsync; ALTER SYSTEM RESET full_page_writes; SELECT \
                 pg_reload_conf()",
            ),
            Finding::new(
                "synchronous_commit",
                durability.synchronous_commit != "off",
                Verdict::Failure,
                durability.synchronous_commit.clone(),
                "ALTER SYSTEM RESET synchronous_commit; SELECT pg_reload_conf()",
            ),
            Finding::new(
                "clock",
                apart < MAX_CLOCK_SECONDS,
                Verdict::Warning,
                format!("{apart:.1} s between the database and this machine"),
                "set both by NTP, such as timedatectl set-ntp true",
            ),
            Finding::new(
                "connections",
                (used as f64) < f64::from(most) * MAX_CONNECTIONS_USED,
                Verdict::Warning,
                format!("{used} of {most} are in use"),
                "ALTER SYSTEM SET max_connections = MORE; then restart PostgreSQL",
            ),
            Finding::new(
                "logins",
                mighty.is_empty(),
                Verdict::Warning,
                match logins.len() {
                    0 => "each has the rights of one kind of process".to_owned(),
                    _ => format!(
                        "rights of several kinds of processes: {}",
                        logins.join(", ")
                    ),
                },
                "give each process a login of its own: deploy/README.md, Logins",
            ),
            Finding::new(
                "transactions",
                sessions.open_seconds < MAX_OPEN_SECONDS && sessions.prepared == 0,
                Verdict::Warning,
                format!(
                    "the oldest that writes is open for {:.0} s; {} are prepared",
                    sessions.open_seconds, sessions.prepared
                ),
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity …, or ROLLBACK PREPARED: \
                 signals wait for them",
            ),
            Finding::new(
                "sessions",
                sessions.sees_sessions,
                Verdict::Warning,
                match sessions.sees_sessions {
                    true => "nobody who can't store signals holds them up".to_owned(),
                    false => "whoever has a login can hold signals up".to_owned(),
                },
                "GRANT pg_read_all_stats TO the owner of the tables",
            ),
        ])
    }
}

/// Judges the queues: one without a consumer is not emptied, and nobody looks at dead letters by
/// themselves.
fn queues(lengths: &Result<Vec<QueueLength>, String>) -> Finding {
    let (about, broken) = ("queues", Verdict::Failure);
    let lengths = match lengths {
        Ok(lengths) => lengths,
        Err(error) => {
            return Finding::new(
                about,
                false,
                broken,
                error.clone(),
                "letterbox migrate, with AMQP_URL: it declares what is missing",
            );
        }
    };
    let is_dead = |one: &&QueueLength| one.queue == DEAD_LETTERS_QUEUE;
    let unread = lengths
        .iter()
        .filter(|one| !is_dead(one) && one.consumers == 0);
    let unread: Vec<_> = unread.map(|one| one.queue.as_str()).collect();
    if !unread.is_empty() {
        let detail = format!("no worker consumes {}", unread.join(", "));
        return Finding::new(about, false, broken, detail, "start workers");
    }
    let dead: u32 = lengths.iter().filter(is_dead).map(|one| one.ready).sum();
    Finding::new(
        about,
        dead == 0,
        Verdict::Warning,
        format!("{} consumed, {dead} dead letters", lengths.len() - 1),
        "letterbox dead-letters list",
    )
}

/// Judges what the broker's dashboard says of its nodes, its queues of ours, and its users: the
/// answers of its API to `nodes`, `queues/VHOST` and `users`.
#[must_use]
pub fn examine_broker(nodes: &Value, queues: &Value, users: &Value) -> Vec<Finding> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let nodes = list(nodes);
    let is_set = |node: &Value, alarm: &str| node[alarm].as_bool() == Some(true);
    let alarmed = nodes
        .iter()
        .filter(|node| is_set(node, "mem_alarm") || is_set(node, "disk_free_alarm"));
    let alarmed = alarmed.count();
    let limit = |node: &Value| node["disk_free_limit"].as_f64().unwrap_or(f64::MAX);
    let limits = nodes.iter().map(limit).fold(f64::MAX, f64::min);
    let ours: Vec<Value> = list(queues)
        .into_iter()
        .filter(|queue| {
            let name = queue["name"].as_str();
            name.is_some_and(|name| name.starts_with("letterbox.v1."))
        })
        .collect();
    let names = |chosen: &dyn Fn(&Value) -> bool| -> BTreeSet<String> {
        let chosen = ours.iter().filter(|queue| chosen(queue));
        chosen
            .map(|queue| queue["name"].as_str().unwrap_or_default().to_owned())
            .collect()
    };
    let listed = |names: &BTreeSet<String>| match names.is_empty() {
        true => "none".to_owned(),
        false => names.iter().cloned().collect::<Vec<_>>().join(", "),
    };
    let other = names(&|queue| queue["type"] != "quorum");
    let wanted = nodes.len().min(3);
    let few = names(&|queue| queue["members"].as_array().map_or(0, Vec::len) < wanted);
    let has_guest = list(users).iter().any(|user| user["name"] == "guest");
    vec![
        Finding::new(
            "broker alarms",
            alarmed == 0,
            Verdict::Failure,
            format!("{alarmed} of {} nodes block publishing", nodes.len()),
            "free memory or disk on those nodes; signals and forms are spilled meanwhile",
        ),
        Finding::new(
            "broker disk limit",
            limits >= MIN_DISK_LIMIT,
            Verdict::Warning,
            format!("it stops taking messages at {:.0} MB free", limits / 1e6),
            "rabbitmqctl set_disk_free_limit 2GB, and disk_free_limit.absolute in its settings",
        ),
        Finding::new(
            "queue types",
            other.is_empty(),
            Verdict::Failure,
            format!("not quorum queues: {}", listed(&other)),
            "empty and delete them, then letterbox migrate",
        ),
        Finding::new(
            "queue members",
            few.is_empty(),
            Verdict::Warning,
            format!("fewer than {wanted} members: {}", listed(&few)),
            "rabbitmq-queues grow NODE all, for each node without",
        ),
        Finding::new(
            "default user",
            !has_guest,
            Verdict::Warning,
            match has_guest {
                true => "the user guest exists".to_owned(),
                false => "there is no user guest".to_owned(),
            },
            "rabbitmqctl delete_user guest",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdicts(nodes: &Value, queues: &Value, users: &Value) -> Vec<(&'static str, Verdict)> {
        let found = examine_broker(nodes, queues, users);
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
            json!({"name": name, "type": kind, "members": members})
        };
        let nodes = json!([node(false, 2e9), node(false, 2e9), node(false, 2e9)]);
        let good = json!([queue("quorum", &["a", "b", "c"]), {"name": "other", "type": "classic"}]);
        let fine = verdicts(&nodes, &good, &json!([{"name": "admin"}]));
        assert!(
            fine.iter().all(|(_, verdict)| *verdict == Verdict::Fine),
            "{fine:?}"
        );
        let bad = verdicts(
            &json!([node(true, 5e7), node(false, 2e9)]),
            &json!([queue("classic", &["a"])]),
            &json!([{"name": "guest"}]),
        );
        let expected = [
            ("broker alarms", Verdict::Failure),
            ("broker disk limit", Verdict::Warning),
            ("queue types", Verdict::Failure),
            ("queue members", Verdict::Warning),
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
            assert_eq!(queues(&lengths).verdict, verdict, "{lengths:?}");
        }
    }
}
