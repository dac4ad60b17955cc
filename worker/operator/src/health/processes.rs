//! The gateways and workers that are alive, by what they tell of themselves in the database.

use letterbox_common::states::Program;
use letterbox_database::{FromRow, statements};

use super::{
    database::ALLOW_CONNECTIONS,
    finding::{Finding, Verdict},
};
use crate::{Operator, Result};

/// How many gateways and workers that have trouble are named.
const MAX_TROUBLED: usize = 3;
/// Connections that PostgreSQL keeps for administrators.
const RESERVED: i64 = 3;
/// Processes say by a write that they are alive.
const UNHEARD: &str = "not known: the database refuses writes";

statements! {
    /// Gateways and workers that are alive, and which of them have no setting after which anything
    /// is deleted.
    fn living_processes() -> Vec<Process> = "
SELECT program, name, is_ready, trouble, NOT EXISTS (
        SELECT FROM jsonb_each_text(settings) AS s
        WHERE s.key LIKE 'LETTERBOX_KEEP_%_DAYS' AND s.value <> '') AS keeps_all
FROM processes
WHERE is_alive(seen_at, 30) ORDER BY is_ready, name";

    /// The places of the workers that are alive.
    fn places() -> (i64,) = "
SELECT coalesce(sum(places), 0) AS places
FROM workers WHERE is_alive(seen_at, 30)";

    /// Settings in which living processes differ: what each should agree on.
    fn doctor_differing() -> Vec<(String,)> = "
SELECT name || ': ' || string_agg(DISTINCT left(value, 100), ' or ') AS values FROM (
    SELECT s.key AS name, s.value FROM processes p, jsonb_each_text(p.settings) AS s
    WHERE is_alive(p.seen_at, 30) AND s.key NOT LIKE '%LISTEN'
      AND s.key NOT IN ('LETTERBOX_LOG', 'LETTERBOX_LOG_FORMAT', 'LETTERBOX_DATABASE_POOL_SIZE',
          'LETTERBOX_SHUTDOWN_SECONDS')
    UNION ALL
    SELECT 'the first key of each ' || program, key_id FROM processes
    WHERE is_alive(seen_at, 30)) AS told (name, value)
GROUP BY name HAVING count(DISTINCT value) > 1 ORDER BY name LIMIT 50";

    /// Workspaces that want notices by e-mail while no living worker can send any.
    fn doctor_unsent() -> Vec<(String,)> = "
SELECT name FROM workspaces
WHERE notify_by_email AND NOT sends_mail()
ORDER BY name LIMIT 20";

    /// The connections that living processes may open, of how many, whether a proxy is before
    /// gateways that believe none, and through which one actions leave.
    fn doctor_told() -> Told = "
SELECT coalesce(sum(substring(settings ->> 'LETTERBOX_DATABASE_POOL_SIZE'
           FROM '^[0-9]{1,5}$')::integer), 0) AS pools,
       current_setting('max_connections')::bigint AS most,
       coalesce(bool_or(program = 'gateway' AND settings ->> 'LETTERBOX_BASE_URL' LIKE 'https:%'
           AND settings ->> 'LETTERBOX_TRUSTED_PROXIES' = ''), false) AS is_unproxied,
       coalesce(max(settings ->> 'LETTERBOX_EGRESS_PROXY'), '') AS egress_proxy
FROM processes WHERE is_alive(seen_at, 30)";
}

/// A gateway or a worker that is alive.
#[derive(FromRow)]
struct Process {
    program: Program,
    name: String,
    is_ready: bool,
    trouble: Option<String>,
    keeps_all: bool,
}

#[derive(FromRow)]
struct Told {
    pools: i64,
    most: i64,
    is_unproxied: bool,
    /// Empty if there is none.
    egress_proxy: String,
}

/// Those that are alive.
pub(super) struct Processes {
    all: Vec<Process>,
    places: i64,
}

impl Operator {
    pub(super) async fn processes(&self) -> Result<Processes> {
        let all = living_processes(self).await?;
        let (places,) = places(self).await?;
        Ok(Processes { all, places })
    }

    /// Whether the settings that the processes tell agree with each other and with the database.
    pub(super) async fn examine_settings(&self) -> Result<[Finding; 5]> {
        let differing = doctor_differing(self).await?;
        let unsent = doctor_unsent(self).await?;
        let told = doctor_told(self).await?;
        let pools = told.pools;
        let most = told.most;
        Ok([
            Finding::of_list(
                "settings",
                differing.into_iter().map(|(one,)| one),
                Verdict::Warning,
                "the processes agree",
                "give them the same settings, and replace those that differ",
            ),
            Finding::of_list(
                "e-mail",
                unsent.into_iter().map(|(name,)| name),
                Verdict::Warning,
                "where notices by e-mail are on, a worker can send them",
                "set LETTERBOX_SMTP_URL and LETTERBOX_SMTP_FROM of the workers: there notices by \
                 e-mail are on, and none is sent",
            ),
            Finding::new(
                "pools",
                pools + RESERVED <= most,
                Verdict::Warning,
                format!("the processes may open {pools} connections; there are {most}"),
                ALLOW_CONNECTIONS,
            ),
            Finding::new(
                "proxies",
                !told.is_unproxied,
                Verdict::Warning,
                match told.is_unproxied {
                    true => {
                        "the base URL is https, and gateways believe no proxy: all submitters \
                         count as one"
                    }
                    false => "gateways believe one where they need to",
                },
                "set LETTERBOX_TRUSTED_PROXIES to the networks of what ends TLS",
            ),
            Finding::new(
                "way out",
                true,
                Verdict::Warning,
                match &*told.egress_proxy {
                    "" => "actions leave without a proxy".to_owned(),
                    proxy => format!(
                        "actions leave through {proxy}, which must refuse private networks itself"
                    ),
                },
                "",
            ),
        ])
    }
}

impl Processes {
    /// Whether gateways and workers are alive and ready; not known where the database refuses
    /// their writes.
    pub(super) fn found(&self, takes_writes: bool) -> [Finding; 2] {
        let places = format!(", {} places", self.places);
        [
            self.living(Program::Gateway, takes_writes, "nothing is received", ""),
            self.living(Program::Worker, takes_writes, "runs wait", &places),
        ]
    }

    fn living(&self, program: Program, takes_writes: bool, without: &str, more: &str) -> Finding {
        let (about, mend) = match program {
            Program::Gateway => (
                "gateways",
                "start or mend gateways: letterbox ready URL says what is missing",
            ),
            Program::Worker => (
                "workers",
                "start or mend workers: letterbox ready URL says what is missing",
            ),
        };
        if !takes_writes {
            let mend = "mend the writes of the database first";
            return Finding::new(about, false, Verdict::Failure, UNHEARD, mend);
        }
        let living: Vec<_> = self.of(program).collect();
        let is_fine = !living.is_empty() && living.iter().all(|one| one.is_ready);
        let detail = match living.len() {
            0 => format!("none is alive: {without}"),
            count => format!("{count} alive{more}{}", troubles(&living)),
        };
        Finding::new(about, is_fine, Verdict::Failure, detail, mend)
    }

    /// Whether workers are alive of which none ever deletes what people have sent.
    pub(super) fn keeps_all(&self) -> bool {
        self.of(Program::Worker).next().is_some()
            && self.of(Program::Worker).all(|one| one.keeps_all)
    }

    pub(super) fn retention(&self) -> Finding {
        let keeps_all = self.keeps_all();
        Finding::new(
            "retention",
            !keeps_all,
            Verdict::Warning,
            match keeps_all {
                true => "what people send is kept forever: no worker deletes anything",
                false => "no worker keeps everything forever",
            },
            "set LETTERBOX_KEEP_RUNS_DAYS and LETTERBOX_KEEP_BODIES_DAYS of the workers",
        )
    }

    fn of(&self, program: Program) -> impl Iterator<Item = &Process> {
        self.all.iter().filter(move |one| one.program == program)
    }
}

/// The first of those that have trouble, and how many more there are.
fn troubles(living: &[&Process]) -> String {
    let mut troubled = living
        .iter()
        .filter_map(|one| Some(format!("; {}: {}", one.name, one.trouble.as_deref()?)));
    let named: String = troubled.by_ref().take(MAX_TROUBLED).collect();
    match troubled.count() {
        0 => named,
        more => format!("{named}; {more} more have trouble"),
    }
}
