//! A long mixture of faults under load, and what grows meanwhile: memory and descriptors of the
//! processes, memory of the broker, tables and indexes.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use crate::{
    arguments::Arguments,
    faults::{self, Fault},
    ledger::Ledger,
    member::Member,
    stack::Stack,
    trial,
};

/// How much time lies between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(5 * 60);
/// Bytes of tables with their rows as they are and were, and of their indexes, the largest first.
const RELATIONS: &str = "SELECT relname::text, n_live_tup, pg_table_size(relid),
    pg_indexes_size(relid) FROM pg_stat_user_tables
    ORDER BY pg_total_relation_size(relid) DESC LIMIT 16";
/// What is emptied again and again, and must not grow.
const PASSING: &str = "SELECT sum(pg_total_relation_size(relid))::int8 FROM pg_stat_user_tables
    WHERE relname IN ('active_runs', 'open_batches', 'spilled_messages', 'rate_limits')";
const DATABASE: &str = "SELECT pg_database_size(current_database())";

/// Faults in random order for so many minutes. In the second half no process is ended, so that what
/// grows in one has time to be seen. Whether nothing grew.
pub async fn run(stack: &Stack, ledger: &mut Ledger, arguments: &Arguments, minutes: u64) -> bool {
    let whole = Duration::from_secs(60 * minutes);
    let began = Instant::now();
    let mut looked: Option<Instant> = None;
    let mut looks = Vec::new();
    while began.elapsed() < whole {
        if looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
            looked = Some(Instant::now());
            let look = Look::now(stack, began.elapsed()).await;
            println!("{COLUMNS}\n{look}");
            looks.push(look);
        }
        let is_second_half = began.elapsed() > whole / 2;
        let possible: Vec<&Fault> = faults::ALL
            .iter()
            .filter(|fault| arguments.wants(fault.name))
            .filter(|fault| !is_second_half || !fault.ends_processes())
            .collect();
        let Some(fault) = fastrand::choice(possible) else {
            break;
        };
        ledger.note(trial::of_fault(stack, fault, true).await);
    }
    looks.push(Look::now(stack, began.elapsed()).await);
    println!("\n{COLUMNS}");
    for look in &looks {
        println!("{look}");
    }
    print_relations(stack).await;
    looks.retain(|look| look.after > whole / 2);
    is_level(&looks)
}

/// Whether nothing that should stay level has grown, if the looks are enough to say so: whether the
/// least of the later ones is about the least of the earlier ones.
fn is_level(looks: &[Look]) -> bool {
    let (earlier, later) = looks.split_at(looks.len() / 2);
    if earlier.len() < 2 {
        println!("\ntoo short to say whether anything grows");
        return true;
    }
    let (before, after) = (floors(earlier), floors(later));
    let mut is_level = true;
    for (what, before) in &before {
        let after = after[what];
        // A process that was never there is not a number, and not level.
        let stays = after <= 1.25 * before + SLACK;
        if !stays {
            println!("! grew in the second half: {what}, {before:.1} to {after:.1}");
        }
        is_level &= stays;
    }
    is_level
}

/// The least that was seen of each thing.
fn floors(looks: &[Look]) -> BTreeMap<String, f64> {
    let mut floors = BTreeMap::new();
    for (what, seen) in looks.iter().flat_map(Look::level) {
        let floor = floors.entry(what).or_insert(f64::NAN);
        *floor = floor.min(seen);
    }
    floors
}

/// What one moment takes; memory in MiB.
struct Look {
    after: Duration,
    /// Of each process: its program, resident memory, and open descriptors.
    members: Vec<(&'static str, f64, f64)>,
    broker: f64,
    database: f64,
    passing: f64,
    /// What is used of the database's disk: its log and what it writes ahead are on it, too.
    disk: f64,
}

impl Look {
    async fn now(stack: &Stack, after: Duration) -> Self {
        let mut members = Vec::new();
        for member in stack.members() {
            let (memory, open) = footprint(member).await;
            members.push((member.program, memory, open));
        }
        let broker = stack.servers.broker();
        let memory = broker.ctl(&["eval", "erlang:memory(total)."]);
        Self {
            after,
            members,
            broker: memory.parse().unwrap_or(f64::NAN) / MIB,
            database: size(stack, DATABASE).await,
            passing: size(stack, PASSING).await,
            disk: stack.servers.disk.used(),
        }
    }

    /// What should not grow: all but the database, which keeps what was sent.
    fn level(&self) -> Vec<(String, f64)> {
        let mut level = vec![
            ("RabbitMQ".to_owned(), self.broker),
            ("what passes through".to_owned(), self.passing),
        ];
        for (at, (program, memory, open)) in self.members.iter().enumerate() {
            level.push((format!("memory of {program} ({at})"), *memory));
            level.push((format!("descriptors of {program} ({at})"), *open));
        }
        level
    }
}

impl fmt::Display for Look {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:>6}", self.after.as_secs() / 60)?;
        for (_, memory, open) in &self.members {
            write!(to, "  {memory:.1} ({open})")?;
        }
        let Self {
            broker,
            database,
            passing,
            disk,
            ..
        } = self;
        write!(to, "  {broker:.0}  {database:.1}  {passing:.1}  {disk}")
    }
}

const COLUMNS: &str =
    "minute  gateways MiB (descriptors)  workers  desk  RabbitMQ  database  passing  disk";
const MIB: f64 = (1_u64 << 20) as f64;
/// How many MiB or descriptors may be added to a quarter more.
const SLACK: f64 = 16.0;

async fn size(stack: &Stack, query: &str) -> f64 {
    let rows = stack.query(query).await;
    rows.map_or(f64::NAN, |rows| rows[0].get::<_, i64>(0) as f64) / MIB
}

/// Resident memory in MiB, and open descriptors.
async fn footprint(member: &Member) -> (f64, f64) {
    let Some(pid) = member.pid().await else {
        return (f64::NAN, f64::NAN);
    };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    let open =
        std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(f64::NAN, |open| open.count() as f64);
    (kib.unwrap_or(f64::NAN) / 1024.0, open)
}

async fn print_relations(stack: &Stack) {
    println!(
        "\n{:<24}{:>10}{:>14}{:>14}",
        "table", "rows", "KiB", "indexes KiB"
    );
    for row in stack.query(RELATIONS).await.unwrap_or_default() {
        let (name, rows): (String, i64) = (row.get(0), row.get(1));
        let (table, indexes): (i64, i64) = (row.get(2), row.get(3));
        println!(
            "{name:<24}{rows:>10}{:>14}{:>14}",
            table >> 10,
            indexes >> 10
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(memory: impl Fn(f64) -> f64) -> Vec<Look> {
        let look = |at: u32| Look {
            after: Duration::from_secs(u64::from(at)),
            members: vec![("letterbox-gateway", memory(f64::from(at)), 20.0)],
            broker: 100.0,
            database: 10.0 * f64::from(at),
            passing: 8.0,
            disk: 100.0,
        };
        (0..12).map(look).collect()
    }

    #[test]
    fn what_grows_is_told_from_what_comes_and_goes() {
        assert!(is_level(&looks(|_| 30.0)));
        assert!(is_level(&looks(|at| 30.0 + 40.0 * (at % 3.0))));
        assert!(!is_level(&looks(|at| 30.0 + 6.0 * at)));
        assert!(!is_level(&looks(|_| f64::NAN)));
    }
}
