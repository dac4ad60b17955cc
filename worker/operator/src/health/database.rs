//! The database: its settings on which nothing accepted is lost depends, its sessions and logins.

use jiff::Timestamp;
use letterbox_database::{
    FromRow,
    health::{ALLOW_WRITES, LEAVE_STANDBY},
    migrations, statements,
};

use super::finding::{Finding, Verdict};
use crate::{Operator, Result};

/// How far clocks may differ: a tenth of the tolerance of webhooks' times.
const MAX_CLOCK_SECONDS: f64 = 30.0;
/// Above this share of the connections in use there is no room for processes that are replaced.
const MAX_CONNECTIONS_USED: f64 = 0.8;
/// For how long a transaction may be open: signals wait for it.
const MAX_OPEN_SECONDS: f64 = 60.0;
/// What mends a lack of connections.
pub(super) const ALLOW_CONNECTIONS: &str =
    "ALTER SYSTEM SET max_connections = MORE; then restart PostgreSQL";

statements! {
    /// Settings on which nothing accepted is lost depends, whether writes are taken, and the
    /// schema's version.
    fn doctor_durability() -> Durability = "
SELECT pg_is_in_recovery() AS is_standby,
    current_setting('transaction_read_only') = 'on' AS is_read_only,
    current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
    (SELECT setting FROM pg_settings WHERE name = 'synchronous_commit') AS synchronous_commit,
    (SELECT coalesce(max(version), 0) FROM refinery_schema_history) AS version,
    clock_timestamp() AS clock";

    /// Connections, and transactions that hold up the reading of signals.
    fn doctor_sessions() -> Sessions = "
SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS used,
    current_setting('max_connections')::integer AS most,
    (SELECT coalesce(extract(epoch FROM clock_timestamp() - min(xact_start)), 0)::float8
     FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND datname = current_database())
        AS open_seconds,
    (SELECT count(*) FROM pg_prepared_xacts) AS prepared,
    (SELECT pg_has_role(relowner, 'pg_read_all_stats', 'MEMBER') FROM pg_class
     WHERE oid = 'signals'::regclass) AS sees_sessions";

    /// Logins that are connected and have the rights of more than one kind of process, and those of
    /// one that have rights which none needs.
    fn doctor_logins() -> Vec<MightyLogin> = "
SELECT r.rolname::text AS login, CASE WHEN r.rolsuper THEN 'superuser'
    WHEN r.rolbypassrls THEN 'BYPASSRLS' WHEN r.rolcreaterole THEN 'CREATEROLE' END AS attribute
FROM pg_roles r, LATERAL (SELECT count(*) FROM pg_roles o WHERE o.rolname IN ('letterbox_gateway',
        'letterbox_worker', 'letterbox_operator', 'letterbox_desk')
        AND pg_has_role(r.oid, o.oid, 'MEMBER')) AS kinds
WHERE r.rolcanlogin AND (
    kinds.count = 1 AND (r.rolbypassrls OR r.rolcreaterole)
    OR kinds.count > 1 AND r.oid IN (
        SELECT usesysid FROM pg_stat_activity WHERE datname = current_database()))
ORDER BY r.rolname";
}

#[derive(FromRow)]
struct Durability {
    is_standby: bool,
    is_read_only: bool,
    fsync: String,
    full_page_writes: String,
    synchronous_commit: String,
    version: i32,
    clock: Timestamp,
}

#[derive(FromRow)]
struct Sessions {
    used: i64,
    most: i32,
    open_seconds: f64,
    prepared: i64,
    sees_sessions: bool,
}

#[derive(FromRow)]
struct MightyLogin {
    login: String,
    /// What PostgreSQL calls a right that no process needs.
    attribute: Option<String>,
}

impl Operator {
    /// What is found, and whether writes are taken: all that processes tell depends on it.
    pub(super) async fn examine_database(&self) -> Result<(bool, Vec<Finding>)> {
        let durability = doctor_durability(self).await?;
        let now = Timestamp::now();
        let sessions = doctor_sessions(self).await?;
        let mighty = doctor_logins(self).await?;
        let mut found = durability.found(now);
        found.extend(sessions.found());
        found.push(logins(&mighty));
        Ok((!durability.is_read_only, found))
    }
}

impl Durability {
    fn found(&self, now: Timestamp) -> Vec<Finding> {
        let apart = self.clock.duration_since(now).as_secs_f64().abs();
        let known = migrations::known_version();
        let (writes, mend) = match (self.is_standby, self.is_read_only) {
            (true, _) => (
                "refused: the database is a read-only standby",
                LEAVE_STANDBY,
            ),
            (_, true) => ("refused: the database is read-only", ALLOW_WRITES),
            _ => ("taken", ""),
        };
        vec![
            Finding::new("writes", !self.is_read_only, Verdict::Failure, writes, mend),
            Finding::new(
                "schema",
                self.version == known,
                Verdict::Failure,
                format!("version {}; this program knows {known}", self.version),
                "letterbox migrate, of the newest version",
            ),
            Finding::new(
                "fsync",
                self.fsync == "on" && self.full_page_writes == "on",
                Verdict::Failure,
                format!(
                    "fsync is {}, full_page_writes {}",
                    self.fsync, self.full_page_writes
                ),
                "ALTER SYSTEM SET fsync = on; ALTER SYSTEM SET full_page_writes = on; SELECT \
                 pg_reload_conf()",
            ),
            Finding::new(
                "synchronous_commit",
                self.synchronous_commit != "off",
                Verdict::Failure,
                &self.synchronous_commit,
                "ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf()",
            ),
            Finding::new(
                "clock",
                apart < MAX_CLOCK_SECONDS,
                Verdict::Warning,
                format!("{apart:.1} s between the database and this machine"),
                "set both by NTP, such as timedatectl set-ntp true",
            ),
        ]
    }
}

impl Sessions {
    fn found(&self) -> Vec<Finding> {
        let used = self.used;
        let most = self.most;
        vec![
            Finding::new(
                "connections",
                (used as f64) < f64::from(most) * MAX_CONNECTIONS_USED,
                Verdict::Warning,
                format!("{used} of {most} are in use"),
                ALLOW_CONNECTIONS,
            ),
            Finding::new(
                "transactions",
                self.open_seconds < MAX_OPEN_SECONDS && self.prepared == 0,
                Verdict::Warning,
                format!(
                    "the oldest that writes is open for {:.0} s; {} are prepared",
                    self.open_seconds, self.prepared
                ),
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_xid IS NOT \
                 NULL AND datname = current_database() AND xact_start < now() - interval '1 \
                 minute'; or ROLLBACK PREPARED: signals wait for them",
            ),
            Finding::new(
                "sessions",
                self.sees_sessions,
                Verdict::Warning,
                match self.sees_sessions {
                    true => "nobody who can't store signals holds them up",
                    false => "whoever has a login can hold signals up",
                },
                "GRANT pg_read_all_stats TO the owner of the tables",
            ),
        ]
    }
}

fn logins(mighty: &[MightyLogin]) -> Finding {
    let logins = mighty.iter().map(|one| match &one.attribute {
        Some(attribute) => format!("{} ({attribute})", one.login),
        None => one.login.clone(),
    });
    let logins: Vec<_> = logins.collect();
    Finding::new(
        "logins",
        mighty.is_empty(),
        Verdict::Warning,
        match logins.len() {
            0 => "each has the rights of one kind of process".to_owned(),
            _ => format!("more rights than a process needs: {}", logins.join(", ")),
        },
        "give each process a login of its own: deploy/README.md, Logins",
    )
}
