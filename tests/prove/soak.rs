//! A long mixture of faults under load, and what grows meanwhile: memory and descriptors of the
//! processes, memory of the broker, tables and indexes.

use std::time::{Duration, Instant};

use crate::{
    arguments::Arguments,
    faults::{self, Fault},
    ledger::Ledger,
    member::Member,
    stack::Stack,
    trial,
};

/// How much time lies between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(10 * 60);
/// Bytes of tables with their rows as they are and were, and of their indexes, the largest first.
const RELATIONS: &str = "SELECT relname::text, n_live_tup, pg_table_size(relid),
    pg_indexes_size(relid) FROM pg_stat_user_tables
    ORDER BY pg_total_relation_size(relid) DESC LIMIT 16";
/// What is emptied again and again, and must not grow.
const PASSING: &str = "SELECT sum(pg_total_relation_size(relid))::int8 FROM pg_stat_user_tables
    WHERE relname IN ('active_runs', 'open_batches', 'rate_limits')";
const DATABASE: &str = "SELECT pg_database_size(current_database())";

/// Faults in random order for so many minutes. In the second half no process is ended, so that what
/// grows in one has time to be seen.
pub async fn run(stack: &Stack, ledger: &mut Ledger, arguments: &Arguments, minutes: u64) {
    let whole = Duration::from_secs(60 * minutes);
    let began = Instant::now();
    let mut looked: Option<Instant> = None;
    let mut looks = Vec::new();
    while began.elapsed() < whole {
        if looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
            looked = Some(Instant::now());
            looks.push(look(stack, began.elapsed()).await);
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
    looks.push(look(stack, began.elapsed()).await);
    println!("\nminute  gateways MiB (descriptors)  workers  desk  RabbitMQ  database  passing");
    for look in looks {
        println!("{look}");
    }
    print_relations(stack).await;
}

/// What everything takes at this moment, in MiB.
async fn look(stack: &Stack, after: Duration) -> String {
    let mut line = format!("{:>6}", after.as_secs() / 60);
    for member in stack.members() {
        line += &format!("  {}", footprint(member).await);
    }
    let broker = stack
        .servers
        .broker()
        .ctl(&["eval", "erlang:memory(total)."]);
    line += &format!("  {:.0}", broker.parse().unwrap_or(f64::NAN) / MIB);
    for query in [DATABASE, PASSING] {
        let rows = stack.query(query).await;
        let bytes = rows.map_or(f64::NAN, |rows| rows[0].get::<_, i64>(0) as f64);
        line += &format!("  {:.1}", bytes / MIB);
    }
    line
}

const MIB: f64 = (1_u64 << 20) as f64;

/// Resident memory in MiB, and open descriptors.
async fn footprint(member: &Member) -> String {
    let Some(pid) = member.pid().await else {
        return "-".to_owned();
    };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    format!("{:.1} ({open})", kib.unwrap_or(f64::NAN) / 1024.0)
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
