//! The database: its settings on which nothing accepted is lost depends, its sessions and logins,
//! and what the processes tell there of themselves.

use jiff::Timestamp;
use letterbox_database::{
    FromRow,
    health::{ALLOW_WRITES, LEAVE_STANDBY},
    migrations, statements,
};

use super::{Finding, Verdict, WRITES};
use crate::{Operator, OperatorError};

/// How far clocks may differ: a tenth of the tolerance of webhooks' times.
const MAX_CLOCK_SECONDS: f64 = 30.0;
/// Above this share of the connections in use there is no room for processes that are replaced.
const MAX_CONNECTIONS_USED: f64 = 0.8;
/// For how long a transaction may be open: signals wait for it.
const MAX_OPEN_SECONDS: f64 = 60.0;
/// Connections that PostgreSQL keeps for administrators.
const RESERVED: i64 = 3;

statements! {
    /// Settings on which nothing accepted is lost depends, whether writes are taken, and the
    /// schema's version.
    DURABILITY = doctor_durability "
SELECT pg_is_in_recovery() AS is_standby,
    current_setting('transaction_read_only') = 'on' AS is_read_only,
    current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
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

    /// Logins that are connected and have the rights of more than one kind of process, and those of
    /// one that have rights which none needs.
    MIGHTY_LOGINS = doctor_logins "
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

    /// Settings in which living processes differ: what each should agree on.
    DIFFERING = doctor_differing "
SELECT name, string_agg(DISTINCT left(value, 100), ' or ') AS values FROM (
    SELECT s.key AS name, s.value FROM processes p, jsonb_each_text(p.settings) AS s
    WHERE is_alive(p.seen_at, 30) AND s.key NOT LIKE '%LISTEN'
      AND s.key NOT IN ('LETTERBOX_LOG', 'LETTERBOX_LOG_FORMAT', 'LETTERBOX_DATABASE_POOL_SIZE',
          'LETTERBOX_SHUTDOWN_SECONDS')
    UNION ALL
    SELECT 'the first key of each ' || program, key_id FROM processes
    WHERE is_alive(seen_at, 30)) AS told (name, value)
GROUP BY name HAVING count(DISTINCT value) > 1 ORDER BY name LIMIT 50";

    /// The connections that living processes may open, and whether a proxy is before gateways that
    /// believe none.
    TOLD = doctor_told "
SELECT coalesce(sum(substring(settings ->> 'LETTERBOX_DATABASE_POOL_SIZE'
           FROM '^[0-9]{1,5}$')::integer), 0) AS pools,
       coalesce(bool_or(program = 'gateway' AND settings ->> 'LETTERBOX_BASE_URL' LIKE 'https:%'
           AND settings ->> 'LETTERBOX_TRUSTED_PROXIES' = ''), false) AS is_unproxied
FROM processes WHERE is_alive(seen_at, 30)";

    /// Workspaces whose policy lets no action go on by itself.
    WAITING_POLICIES = doctor_policies "
SELECT w.name FROM workspaces w
JOIN LATERAL (SELECT p.policy::json AS policy FROM policies p
              WHERE p.workspace_id = w.workspace_id ORDER BY p.version DESC LIMIT 1) AS latest
    ON latest.policy ->> 'default' <> 'allow'
WHERE NOT EXISTS (SELECT FROM json_array_elements(latest.policy -> 'rules') AS rule
                  WHERE rule ->> 'decision' = 'allow')
ORDER BY w.name LIMIT 20";
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

#[derive(FromRow)]
struct Differing {
    name: String,
    values: String,
}

#[derive(FromRow)]
struct Told {
    pools: i64,
    is_unproxied: bool,
}

#[derive(FromRow)]
struct WaitingPolicy {
    name: String,
}

impl Operator {
    pub(super) async fn examine_database(&self) -> Result<Vec<Finding>, OperatorError> {
        let durability: Durability = self.database.fetch_one(&DURABILITY, &[]).await?;
        let now = Timestamp::now();
        let sessions: Sessions = self.database.fetch_one(&SESSIONS, &[]).await?;
        let mighty: Vec<MightyLogin> = self.database.fetch_all(&MIGHTY_LOGINS, &[]).await?;
        let mut found = durability.found(now);
        found.extend(sessions.found());
        found.push(logins(&mighty));
        Ok(found)
    }

    /// What the processes tell of their settings, and workspaces of their policies.
    pub(super) async fn examine_settings(&self) -> Result<Vec<Finding>, OperatorError> {
        let differing: Vec<Differing> = self.database.fetch_all(&DIFFERING, &[]).await?;
        let told: Told = self.database.fetch_one(&TOLD, &[]).await?;
        let sessions: Sessions = self.database.fetch_one(&SESSIONS, &[]).await?;
        let waiting: Vec<WaitingPolicy> = self.database.fetch_all(&WAITING_POLICIES, &[]).await?;
        let differing = differing.iter();
        let differing: Vec<_> = differing
            .map(|one| format!("{}: {}", one.name, one.values))
            .collect();
        let waiting: Vec<_> = waiting.into_iter().map(|one| one.name).collect();
        let (pools, most) = (told.pools, i64::from(sessions.most));
        Ok(vec![
            Finding::of_list(
                "settings",
                &differing,
                Verdict::Warning,
                "the processes agree",
                "give them the same settings, and replace those that differ",
            ),
            Finding::new(
                "pools",
                pools + RESERVED <= most,
                Verdict::Warning,
                format!("the processes may open {pools} connections; there are {most}"),
                "ALTER SYSTEM SET max_connections = MORE; then restart PostgreSQL",
            ),
            Finding::new(
                "proxies",
                !told.is_unproxied,
                Verdict::Warning,
                match told.is_unproxied {
                    true => "the base URL is https, and gateways believe no proxy: all submitters \
                             count as one"
                        .to_owned(),
                    false => "gateways believe one where they need to".to_owned(),
                },
                "set LETTERBOX_TRUSTED_PROXIES to the networks of what ends TLS",
            ),
            Finding::of_list(
                "policies",
                &waiting,
                Verdict::Warning,
                "none makes every action wait",
                "letterbox policy set, with a rule that allows: no action goes on by itself",
            ),
        ])
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
            Finding::new(
                WRITES,
                !self.is_read_only,
                Verdict::Failure,
                writes.to_owned(),
                mend,
            ),
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
                self.synchronous_commit.clone(),
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
        let (used, most) = (self.used, self.most);
        vec![
            Finding::new(
                "connections",
                (used as f64) < f64::from(most) * MAX_CONNECTIONS_USED,
                Verdict::Warning,
                format!("{used} of {most} are in use"),
                "ALTER SYSTEM SET max_connections = MORE; then restart PostgreSQL",
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
                    true => "nobody who can't store signals holds them up".to_owned(),
                    false => "whoever has a login can hold signals up".to_owned(),
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
