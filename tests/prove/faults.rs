//! Everything that is broken on purpose. Each fault says how often it could be seen to happen: an
//! ended process, a cut connection, an alarm that was raised.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use futures_util::future::{BoxFuture, join_all};
use letterbox_tests::{PrivateServer, Proxy};

use crate::{member::Member, servers::answers, stack::Stack, way::Way};

/// A way to do harm.
pub struct Fault {
    pub name: &'static str,
    /// Does it once, and puts it right; how often it happened.
    pub run: for<'s> fn(&'s Stack) -> BoxFuture<'s, u64>,
    /// Whether it resembles another fault, and is left out where there is little time.
    pub resembles: bool,
}

/// What no sender may notice.
const UNNOTICED: &str = "all processes replaced one by one";

impl Fault {
    /// Whether it is a process of ours that ends.
    pub fn ends_processes(&self) -> bool {
        let is = |words: [&str; 2]| words.iter().any(|word| self.name.contains(word));
        is(["killed", "replaced"]) && !is(["RabbitMQ", "PostgreSQL"])
    }

    /// Whether no sender may notice.
    pub fn is_unnoticed(&self) -> bool {
        self.name == UNNOTICED
    }
}

macro_rules! faults {
    (@resembles) => { false };
    (@resembles resembles) => { true };
    ($($name:expr $(, $resembles:ident)? => $run:expr;)+) => {
        &[$(Fault {
            name: $name,
            run: |stack| Box::pin(async move {
                let fired: u64 = $run(stack).await;
                fired
            }),
            resembles: faults!(@resembles $($resembles)?),
        }),+]
    };
}

pub(crate) use faults;

/// All of them that need no cluster.
pub static ALL: &[Fault] = faults! {
    "gateway killed" => |stack| kill(stack, &stack.gateways);
    "gateway frozen until its lease is over" => |stack| freeze(stack, &stack.gateways);
    "worker killed" => |stack| kill(stack, &stack.workers);
    "worker frozen until its lease is over" => |stack| freeze(stack, &stack.workers);
    "desk killed" => |stack| kill(stack, std::slice::from_ref(&stack.desk));
    "desk frozen", resembles => |stack| freeze(stack, std::slice::from_ref(&stack.desk));
    UNNOTICED => replace_all;
    "RabbitMQ killed" => |stack| kill_server(stack, broker, 1_500);
    "RabbitMQ frozen" => |stack| freeze_server(stack, broker);
    "RabbitMQ restarted in order", resembles => |stack| restart_server(stack, broker);
    "PostgreSQL killed" => |stack| kill_server(stack, primary, 500);
    "PostgreSQL frozen" => |stack| freeze_server(stack, primary);
    "PostgreSQL restarted in order" => |stack| restart_server(stack, primary);
    "RabbitMQ: connections cut", resembles => |stack| network(stack, brokers, Proxy::cut, 500);
    "RabbitMQ: connections half-open" => |stack| network(stack, brokers, Proxy::stall, 4_000);
    "RabbitMQ: connections slow" => |stack| network(stack, brokers, delay, 3_000);
    "RabbitMQ: nothing arrives there", resembles =>
        |stack| network(stack, brokers, Proxy::stall_to_server, 4_000);
    "RabbitMQ: nothing comes back" =>
        |stack| lose_answers(stack, brokers, 4_000);
    "RabbitMQ: cut in the middle of a frame" => |stack| network(stack, brokers, Proxy::tear, 500);
    "PostgreSQL: connections cut", resembles => |stack| network(stack, databases, Proxy::cut, 500);
    "PostgreSQL: connections half-open", resembles =>
        |stack| network(stack, databases, Proxy::stall, 4_000);
    "PostgreSQL: connections slow", resembles => |stack| network(stack, databases, delay, 3_000);
    "PostgreSQL: nothing arrives there", resembles =>
        |stack| network(stack, databases, Proxy::stall_to_server, 4_000);
    "PostgreSQL: cut in the middle of a frame" =>
        |stack| network(stack, databases, Proxy::tear, 500);
    "PostgreSQL: nothing comes back", resembles =>
        |stack| lose_answers(stack, databases, 4_000);
    "senders: connections cut", resembles =>
        |stack| from_senders(stack, network(stack, senders, Proxy::cut, 1_500));
    "senders: nothing comes back", resembles =>
        |stack| from_senders(stack, lose_answers(stack, senders, 1_500));
    "senders: cut in the middle" =>
        |stack| from_senders(stack, network(stack, senders, Proxy::tear, 1_500));
    "accounts: connections cut", resembles => |stack| network(stack, accounts, Proxy::cut, 1_000);
    "accounts: nothing comes back" =>
        |stack| lose_answers(stack, accounts, 3_000);
    "accounts: cut in the middle" => |stack| network(stack, accounts, Proxy::tear, 1_000);
    "RabbitMQ: memory alarm" => |stack| alarm(
        stack,
        &["set_vm_memory_high_watermark", "absolute", "1MB"],
        &["set_vm_memory_high_watermark", "0.4"],
    );
    "RabbitMQ: disk alarm", resembles => |stack| alarm(
        stack,
        &["set_disk_free_limit", "100000GB"],
        &["set_disk_free_limit", "50MB"],
    );
    "RabbitMQ: queues deleted" => delete_queues;
    "PostgreSQL: all sessions ended" => end_sessions;
    "PostgreSQL: no connection left" => exhaust_connections;
    "PostgreSQL: read-only" => read_only;
    "PostgreSQL: tables locked" => lock_tables;
    "PostgreSQL: disk full" => fill_disk;
    "PostgreSQL: clock set forward" => |stack| set_clock(stack, 3_600);
    "PostgreSQL: clock set back", resembles => |stack| set_clock(stack, -3_600);
};

pub async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

fn broker(stack: &Stack) -> &PrivateServer {
    stack.servers.broker()
}

fn primary(stack: &Stack) -> &PrivateServer {
    stack.servers.primary()
}

async fn kill_server(stack: &Stack, which: fn(&Stack) -> &PrivateServer, milliseconds: u64) -> u64 {
    let server = which(stack);
    server.kill();
    pause(milliseconds).await;
    let is_away = !answers(&server.url()).await;
    server.start_again();
    is_away.into()
}

async fn freeze_server(stack: &Stack, which: fn(&Stack) -> &PrivateServer) -> u64 {
    let server = which(stack);
    server.freeze();
    pause(4_000).await;
    let is_frozen = server.is_frozen();
    server.thaw();
    is_frozen.into()
}

async fn restart_server(stack: &Stack, which: fn(&Stack) -> &PrivateServer) -> u64 {
    let server = which(stack);
    server.stop();
    let is_away = !answers(&server.url()).await;
    server.start_again();
    is_away.into()
}

/// One of these.
fn any(members: &[Member]) -> &Member {
    &members[fastrand::usize(..members.len())]
}

/// Kills one at some moment, and starts another one.
async fn kill(stack: &Stack, members: &[Member]) -> u64 {
    pause(fastrand::u64(..300)).await;
    let member = any(members);
    let is_killed = member.kill().await;
    pause(300).await;
    member.start(&stack.world).await;
    is_killed.into()
}

/// Stops one, ends what it holds, and lets it go on as if nothing had happened.
async fn freeze(stack: &Stack, members: &[Member]) -> u64 {
    pause(fastrand::u64(..300)).await;
    let member = any(members);
    let is_frozen = member.freeze().await;
    pause(1_000).await;
    let is_over = stack.expire().await;
    // Others take what was its own.
    pause(1_500).await;
    (member.thaw().await && is_frozen && is_over).into()
}

async fn replace_all(stack: &Stack) -> u64 {
    let mut replaced = 0;
    for member in stack.members() {
        replaced += u64::from(member.replace(&stack.world).await);
        while !member.is_ready().await {
            pause(20).await;
        }
    }
    replaced
}

fn brokers(stack: &Stack) -> Vec<&Way> {
    stack.members().map(|member| &member.to_broker).collect()
}

fn databases(stack: &Stack) -> Vec<&Way> {
    stack.members().map(|member| &member.to_database).collect()
}

fn accounts(stack: &Stack) -> Vec<&Way> {
    vec![&stack.to_accounts]
}

fn senders(stack: &Stack) -> Vec<&Way> {
    let gateways = stack.gateways.iter();
    gateways.map(|gateway| &gateway.from_senders).collect()
}

fn delay(proxy: &Proxy) {
    proxy.delay(Duration::from_millis(300));
}

/// Harms all connections of a kind, and lets everything pass again.
async fn network(
    stack: &Stack,
    which: fn(&Stack) -> Vec<&Way>,
    harm: fn(&Proxy),
    milliseconds: u64,
) -> u64 {
    let harmed = network_until(stack, which, harm, milliseconds).await;
    which(stack).iter().for_each(|way| way.each(Proxy::pass));
    harmed
}

async fn network_until(
    stack: &Stack,
    which: fn(&Stack) -> Vec<&Way>,
    harm: fn(&Proxy),
    milliseconds: u64,
) -> u64 {
    let ways = which(stack);
    let harmed = || ways.iter().map(|way| way.harmed()).sum::<u64>();
    let before = harmed();
    ways.iter().for_each(|way| way.each(harm));
    pause(milliseconds).await;
    harmed() - before
}

/// Holds back what servers say, and loses it with the connections.
async fn lose_answers(stack: &Stack, which: fn(&Stack) -> Vec<&Way>, milliseconds: u64) -> u64 {
    let held = network_until(stack, which, Proxy::stall_to_client, milliseconds).await;
    let cut = network(stack, which, Proxy::cut, 100).await;
    if held > 0 { held + cut } else { 0 }
}

/// Harms the connections of senders, who come through the proxies meanwhile: otherwise they would
/// not see that a gateway is away.
async fn from_senders(stack: &Stack, harm: impl Future<Output = u64>) -> u64 {
    stack.doors.are_harmed.store(true, Relaxed);
    pause(500).await;
    let harmed = harm.await;
    stack.doors.are_harmed.store(false, Relaxed);
    harmed
}

async fn alarm(stack: &Stack, raise: &[&str], clear: &[&str]) -> u64 {
    let broker = stack.servers.broker();
    broker.ctl(raise);
    let alarms = broker.ctl(&["eval", "rabbit_alarm:get_alarms()."]);
    pause(1_500).await;
    broker.ctl(clear);
    alarms.contains("resource_limit").into()
}

/// Deletes queues that are empty at this moment: what is in one goes with it, whoever deletes it.
async fn delete_queues(stack: &Stack) -> u64 {
    let queues = ["letterbox.v1.webhooks", "letterbox.v1.forms"];
    let each = |members: &[Member], change: fn(&Proxy)| {
        members.iter().for_each(|one| one.to_broker.each(change));
    };
    each(&stack.gateways, Proxy::cut);
    let mut deleted = 0;
    for _ in 0..20 {
        // What the workers have in hand is ready again when they are gone.
        each(&stack.workers, Proxy::cut);
        let mut waiting = 0;
        for queue in queues {
            while stack.world.consumers(queue).await > 0 {
                pause(50).await;
            }
            waiting += stack.world.messages(queue).await;
        }
        if waiting == 0 {
            for queue in queues {
                let answer = stack.servers.broker().ctl(&["delete_queue", queue]);
                deleted += u64::from(answer.contains("deleted"));
            }
            break;
        }
        each(&stack.workers, Proxy::pass);
        pause(500).await;
    }
    each(&stack.gateways, Proxy::pass);
    each(&stack.workers, Proxy::pass);
    deleted
}

/// The sessions of the processes.
const END_SESSIONS: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE application_name <> 'prove' AND backend_type = 'client backend'";

async fn end_sessions(stack: &Stack) -> u64 {
    let ended = stack.query(END_SESSIONS).await;
    ended.map_or(0, |rows| rows[0].get::<_, i64>(0).unsigned_abs())
}

/// Takes every connection that there is, and those of the processes as well.
async fn exhaust_connections(stack: &Stack) -> u64 {
    let Some(administrator) = stack.client().await else {
        return 0;
    };
    let (mut taken, mut is_full) = (Vec::new(), false);
    for _ in 0..20 {
        let connecting = (0..50).map(|_| stack.client());
        let connected = join_all(connecting).await;
        is_full = connected.iter().any(Option::is_none);
        taken.extend(connected.into_iter().flatten());
        if is_full {
            break;
        }
    }
    let ended = administrator.query(END_SESSIONS, &[]).await.is_ok();
    // What has become free is taken, too.
    let freed = join_all((0..50).map(|_| stack.client())).await;
    taken.extend(freed.into_iter().flatten());
    pause(2_000).await;
    (is_full && ended).into()
}

async fn read_only(stack: &Stack) -> u64 {
    let is_set = stack
        .sql("ALTER SYSTEM SET default_transaction_read_only = on")
        .await
        && stack.sql("SELECT pg_reload_conf()").await;
    pause(300).await;
    end_sessions(stack).await;
    let refused = stack.is_refused("CREATE TABLE not_now ()", "25006").await;
    pause(2_000).await;
    let writable = "SET default_transaction_read_only = off;";
    let Some(administrator) = stack.client().await else {
        return 0;
    };
    for statement in [
        writable,
        "ALTER SYSTEM RESET default_transaction_read_only",
        "SELECT pg_reload_conf()",
    ] {
        administrator.batch_execute(statement).await.unwrap();
    }
    pause(300).await;
    end_sessions(stack).await;
    (is_set && refused).into()
}

/// Locks what everybody writes to, for longer than a statement may take.
async fn lock_tables(stack: &Stack) -> u64 {
    let locked =
        "BEGIN; LOCK TABLE webhook_deliveries, form_submissions, open_batches, signals, runs,
        active_runs IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(6); COMMIT";
    stack.sql_at_last(locked).await.into()
}

async fn fill_disk(stack: &Stack) -> u64 {
    let is_full = stack.servers.disk.fill();
    let much = "DROP TABLE IF EXISTS too_much;
        CREATE TABLE too_much AS SELECT generate_series(1, 1000000)";
    let mut refuses = false;
    for _ in 0..10 {
        // No space, or it has stopped for lack of it.
        refuses |=
            stack.is_refused(much, "53100").await || !answers(&stack.servers.primary().url()).await;
        pause(250).await;
    }
    stack.servers.disk.empty();
    // It may have stopped, as it does when its log does not fit.
    stack.servers.primary().start_again();
    stack.sql("DROP TABLE IF EXISTS too_much").await;
    (is_full && refuses).into()
}

/// Sets the clock of the database by an hour, and then right again.
async fn set_clock(stack: &Stack, seconds: i64) -> u64 {
    let apart = async || {
        let clock = "SELECT extract(epoch FROM clock_timestamp())::float8";
        let asked = stack.query(clock).await?;
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().ok()?;
        Some(asked[0].get::<_, f64>(0) - now.as_secs_f64())
    };
    let is_set = stack.servers.clock.set(seconds);
    pause(2_500).await;
    let differed = apart().await;
    let differed = differed.is_some_and(|apart| (apart - seconds as f64).abs() < 60.0);
    stack.servers.clock.set(0);
    pause(1_500).await;
    (is_set && differed).into()
}
