//! The memory of what was recorded long ago: whatever moves at the same moment, nothing is taken
//! for new twice.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use jiff::Timestamp;
use letterbox_broker::topology::DEAD_LETTERS_QUEUE;
use letterbox_common::{
    ids::{DeliveryId, WebhookId, WorkspaceId},
    states::SegmentState,
    webhook::WebhookAddress,
};
use letterbox_database::{Database, DatabaseSettings, Role};
use letterbox_gateway::{
    claims::{Claims, DeliveryKey, Outcome},
    open_batches::BatchId,
};
use letterbox_operator::Closing;
use letterbox_tests::{World, assert_holds, assert_tells, eventually, value};
use letterbox_worker::memory::Mover;
use serde_json::json;
use tokio::time::timeout;

use crate::{
    dead_letters::{message, to},
    form_closing::closing,
};

const CLAIMS: &str = "SELECT (SELECT count(*) FROM webhook_deliveries)
    + (SELECT count(*) FROM form_submissions)";
const KEYS: &str = "SELECT coalesce(sum(length(m.keys) / 16), 0)::bigint FROM memory m
    JOIN memory_segments USING (segment) WHERE state IN ('copied', 'ready')";

fn database(world: &World, role: Role) -> Database {
    let settings = DatabaseSettings {
        database_pool_size: 4,
    };
    let target = world.database_url.parse().unwrap();
    Database::new(&target, &settings, role, "test").unwrap()
}

fn mover(world: &World) -> Mover {
    Mover::eager(database(world, Role::Worker), Duration::ZERO)
}

/// Moves until there are so many claims.
async fn move_until(world: &World, mover: &mut Mover, claims: i64) {
    eventually("moved", async || {
        mover.step().await.unwrap();
        let moved = "SELECT count(*) FROM memory_segments WHERE source IS NOT NULL";
        world.count(CLAIMS).await == claims && world.count(moved).await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_moved_is_a_repeat_and_what_is_not_recorded_stays() {
    let (world, gateway, mut worker) = World::with_both().await;
    let (webhook, form) = (world.webhook(&gateway).await, world.form(&gateway).await);
    let mut mover = mover(&world);
    for round in 0..4 {
        for n in 0..10 {
            assert!(webhook.send(format!("[{round}, {n}]")).await.is_first());
            form.assert_accepts(&format!("key {round} {n}")).await;
        }
        world.await_signals(10 * (round + 1)).await;
        world.await_runs(10 * (round + 1)).await;
        move_until(&world, &mut mover, 0).await;
        world.assert_count(KEYS, 20 * (round + 1)).await;
        world.forget_hits().await;
    }

    // Claimed and not recorded: a mover leaves it.
    worker.kill().await;
    assert!(webhook.send("\"waits\"").await.is_first());
    form.assert_accepts("waits").await;
    for _ in 0..20 {
        mover.step().await.unwrap();
    }
    world.assert_count(CLAIMS, 2).await;
    let _worker = world.worker().await;
    world.await_signals(41).await;
    world.await_runs(41).await;
    move_until(&world, &mut mover, 0).await;

    let other = world.gateway().await;
    for round in 0..4 {
        for n in 0..10 {
            let body = format!("[{round}, {n}]");
            assert!(webhook.send(body.clone()).await.is_duplicate());
            assert!(webhook.at(&other).send(body).await.is_duplicate());
            form.assert_accepts(&format!("key {round} {n}")).await;
        }
        world.forget_hits().await;
    }
    assert!(webhook.send("\"waits\"").await.is_duplicate());
    form.assert_accepts("waits").await;
    assert!(webhook.send("\"new\"").await.is_first());
    world.await_signals(42).await;
    assert_eq!(world.runs().await, 41);
}

/// A closed link still knows its keys, and takes no new ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_link_finds_what_was_moved() {
    let (world, _gateway, _worker, form) = World::with_recorded_form().await;
    let soon = Closing {
        at: Some(Timestamp::now() + Duration::from_secs(2)),
        ..Closing::default()
    };
    let form = closing(&world.operator().await, &form, soon).await;
    form.assert_accepts("k").await;
    world.await_runs(1).await;
    move_until(&world, &mut mover(&world), 0).await;
    eventually("the link has closed", async || {
        form.read().await.status == 404
    })
    .await;
    form.assert_accepts("k").await;
    form.assert_dead().await;
    assert_eq!(world.runs().await, 1);
}

/// A claim of a submission is kept for a day, in which its repeats are compared.
#[tokio::test(flavor = "multi_thread")]
async fn a_submissions_claim_is_kept_for_a_day() {
    let (world, _gateway, _worker, form) = World::with_recorded_form().await;
    form.assert_accepts("k").await;
    world.await_runs(1).await;
    let mut mover = Mover::eager(database(&world, Role::Worker), Duration::from_secs(60));
    for _ in 0..20 {
        mover.step().await.unwrap();
    }
    world.assert_count(CLAIMS, 1).await;
}

/// Two gateways, bodies that come twice, and movers that are dropped in the middle of a step: not
/// one of two is told to be new.
#[tokio::test(flavor = "multi_thread")]
async fn movers_that_die_anywhere_lose_and_double_nothing() {
    const SENDERS: usize = 8;
    let bodies: usize = match std::env::var("LETTERBOX_TEST_MOVES") {
        Ok(number) => number.parse().unwrap(),
        Err(_) => 150,
    };
    let world = World::new().await;
    let (one, two) = (world.gateway().await, world.gateway().await);
    let _worker = world.worker().await;
    let webhook = world.webhook(&one).await;
    let doors = [webhook.clone(), webhook.at(&two)];
    let is_over = Arc::new(AtomicBool::new(false));
    let killed = Arc::new(AtomicUsize::new(0));

    let movers = (0..2).map(|seed| {
        let (database, is_over) = (database(&world, Role::Worker), is_over.clone());
        let killed = killed.clone();
        tokio::spawn(async move {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut longest = 40_000;
            while !is_over.load(Ordering::Relaxed) {
                let mut mover = Mover::eager(database.clone(), Duration::ZERO);
                // Some die before they have reached the server, some after it has committed.
                let life = Duration::from_micros(rng.u64(500..longest));
                let mut steps = 0;
                let living = async {
                    while mover.step().await.is_ok() {
                        steps += 1;
                    }
                };
                if timeout(life, living).await.is_err() {
                    killed.fetch_add(1, Ordering::Relaxed);
                }
                // However slow the machine is, some get something done, and not all do.
                longest = match steps {
                    0 => longest + longest / 8,
                    _ => 40_000.max(longest - longest / 8),
                };
            }
        })
    });
    let movers: Vec<_> = movers.collect();
    let firsts = RefCell::new(HashMap::<String, usize>::new());
    let senders = (0..SENDERS).map(|sender| {
        let (doors, firsts) = (&doors, &firsts);
        async move {
            let mut rng = fastrand::Rng::with_seed(sender as u64);
            for n in 0..bodies {
                // Now and again one of all that came before, through either door.
                for body in [n, n, rng.usize(..=n)] {
                    let body = format!("[{sender}, {body}]");
                    let answer = doors[rng.usize(..2)].send_until_accepted(&body).await;
                    if answer.is_first() {
                        *firsts.borrow_mut().entry(body).or_default() += 1;
                    }
                }
            }
        }
    });
    join_all(senders).await;
    world.await_signals((SENDERS * bodies) as i64).await;
    is_over.store(true, Ordering::Relaxed);
    for mover in movers {
        mover.await.unwrap();
    }
    let firsts = firsts.into_inner();
    let twice: Vec<_> = firsts.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert_eq!(firsts.len(), SENDERS * bodies);
    assert!(killed.load(Ordering::Relaxed) > 10);
    let moved = world.count(KEYS).await;
    println!(
        "{moved} moved under load, {} movers died",
        killed.load(Ordering::Relaxed)
    );
    assert!(moved > 0);
    move_until(&world, &mut mover(&world), 0).await;
    world.assert_count(KEYS, (SENDERS * bodies) as i64).await;
}

/// What a property test does.
struct Tried {
    world: World,
    claims: [Claims; 2],
    mover: Mover,
    workspaces: Vec<(WorkspaceId, String, WebhookId)>,
    /// What was claimed and what of it is recorded.
    claimed: HashMap<(WorkspaceId, u32), (DeliveryId, WebhookId)>,
    recorded: HashSet<(WorkspaceId, u32)>,
}

impl Tried {
    async fn new() -> Self {
        let world = World::new().await;
        let claims = [(), ()].map(|()| {
            let database = database(&world, Role::Gateway);
            Claims::new(database, Duration::from_secs(60), Arc::default())
        });
        let mover = mover(&world);
        Self {
            world,
            claims,
            mover,
            workspaces: Vec::new(),
            claimed: HashMap::new(),
            recorded: HashSet::new(),
        }
    }

    async fn add_workspace(&mut self, number: usize) {
        let name = format!("Workspace {number}");
        let workspace = self.world.workspace(&name).await;
        let created = self.world.create_webhook(workspace, "tool").await;
        let webhook = created.address.webhook;
        self.workspaces.push((workspace, name, webhook));
    }

    /// Claims some bodies, and compares what is new with what was never claimed.
    async fn claim(&mut self, rng: &mut fastrand::Rng) {
        let (workspace, _, webhook) = self.workspaces[rng.usize(..self.workspaces.len())];
        let address = WebhookAddress { workspace, webhook };
        let bodies: HashSet<u32> = (0..rng.usize(1..30)).map(|_| rng.u32(..400)).collect();
        let batch = BatchId::generate();
        let key = |body: u32| DeliveryKey::new(address, webhook, None, &body.to_be_bytes());
        let keys: Vec<_> = bodies.iter().map(|body| (key(*body), *body)).collect();
        let wanted: Vec<_> = keys.iter().map(|(key, _)| (*key, batch)).collect();
        let claims = &self.claims[rng.usize(..2)];
        let answers = claims.claim(&wanted).await.unwrap();
        for (key, body) in keys {
            let place = (workspace, body);
            match answers[&key] {
                Ok(id) => {
                    let before = self.claimed.insert(place, (id, webhook));
                    assert_eq!(before, None, "{place:?} is new for the second time");
                }
                Err(Outcome::Duplicate) => assert!(self.recorded.contains(&place), "{place:?}"),
                Err(Outcome::InProgress) => {
                    assert!(self.claimed.contains_key(&place), "{place:?}");
                    assert!(!self.recorded.contains(&place), "{place:?}");
                }
                Err(outcome) => panic!("{outcome:?}"),
            }
        }
    }

    /// Records what was claimed, as a worker does, and settles it.
    async fn record(&mut self, rng: &mut fastrand::Rng) {
        let signal = "INSERT INTO signals (workspace_id, signal_id, webhook_id, kind,
                generic_reason, received_at) VALUES ($1, $2, $3, 'generic', 'not_json', now())";
        let settle = "DELETE FROM open_batches b USING webhook_deliveries d
            WHERE d.batch_id = b.batch_id AND d.claim_id = $1";
        for (place, (id, webhook)) in &self.claimed {
            if !self.recorded.contains(place) && rng.bool() {
                let database = &self.world.database;
                let stored = database.execute(signal, &[&place.0, id, webhook]).await;
                assert_eq!(stored.unwrap(), 1);
                self.recorded.insert(*place);
                // The batch of one is the batch of others.
                database.execute(settle, &[id]).await.unwrap();
            }
        }
        // What shares a batch with what is settled is settled, too: it is recorded as well.
        for (place, (id, webhook)) in &self.claimed {
            if !self.recorded.contains(place) {
                let open = "SELECT count(*) FROM webhook_deliveries JOIN open_batches
                    USING (batch_id) WHERE claim_id = $1";
                let database = &self.world.database;
                let row = database.query_one(open, &[id]).await.unwrap();
                if row.get::<_, i64>(0) == 0 {
                    let stored = database.execute(signal, &[&place.0, id, webhook]).await;
                    assert_eq!(stored.unwrap(), 1);
                    self.recorded.insert(*place);
                }
            }
        }
    }

    async fn delete_workspace(&mut self, rng: &mut fastrand::Rng) {
        let place = rng.usize(..self.workspaces.len());
        let (workspace, name, _) = self.workspaces.swap_remove(place);
        let operator = self.world.operator().await;
        operator.delete_workspace(workspace, &name).await.unwrap();
        self.claimed.retain(|(other, _), _| *other != workspace);
        self.recorded.retain(|(other, _)| *other != workspace);
        let left = format!("SELECT count(*) FROM memory WHERE workspace_id = '{workspace}'");
        self.world.assert_count(&left, 0).await;
    }
}

/// Claims, records, moves, dies and deletes at random, and is told of each body what a plain set
/// tells.
#[tokio::test(flavor = "multi_thread")]
async fn the_memory_knows_what_a_plain_set_knows() {
    let (seed, steps) = match std::env::var("LETTERBOX_TEST_SEED") {
        Ok(seed) => (seed.parse().unwrap(), 4_000),
        Err(_) => (fastrand::u64(..), 600),
    };
    println!("LETTERBOX_TEST_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut tried = Tried::new().await;
    for number in 0..3 {
        tried.add_workspace(number).await;
    }
    let mut states = HashSet::new();
    for step in 0..steps {
        match rng.u32(..100) {
            0..40 => tried.claim(&mut rng).await,
            40..50 => tried.record(&mut rng).await,
            50 => {
                tried.delete_workspace(&mut rng).await;
                tried.add_workspace(step + 10).await;
            }
            51..60 => {
                // Dies: its step may be done or not.
                let life = Duration::from_micros(rng.u64(..3_000));
                let _ = timeout(life, tried.mover.step()).await;
                tried.mover = mover(&tried.world);
            }
            _ => {
                tried.mover.step().await.unwrap();
            }
        }
        let seen = "SELECT DISTINCT state FROM memory_segments";
        states.extend(tried.world.column::<String>(seen).await);
    }
    assert_eq!(states.len(), SegmentState::ALL.len(), "{states:?}");
    let claims = tried.world.count(CLAIMS).await;
    let keys = tried.world.count(KEYS).await;
    let open = tried.claimed.len() - tried.recorded.len();
    assert!(claims + keys >= tried.claimed.len() as i64 && claims >= open as i64);
}

/// Claims that are under way are waited for, both before claims are made in the other half and
/// before the first one is emptied: they do not see what was done since they began.
#[tokio::test(flavor = "multi_thread")]
async fn claims_stay_until_older_claims_are_over() {
    let (world, _gateway, _worker, webhook) = World::with_recorded_webhook().await;
    assert!(webhook.send("0").await.is_first());
    world.await_signals(1).await;
    let mut mover = mover(&world);
    let older = world.session(Role::Login).await;
    let changed = "SELECT count(*) FROM claim_halves WHERE filled = 2";
    let copied = "SELECT count(*) FROM memory_segments WHERE state = 'copied'";
    for (body, is_done) in [("1", changed), ("2", copied)] {
        let begin = "BEGIN; SELECT join_claiming('deliveries')";
        older.batch_execute(begin).await.unwrap();
        let mut other = self::mover(&world);
        let moving = tokio::spawn(async move { while other.step().await.is_ok() {} });
        eventually("the mover waits", async || {
            let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted
                AND mode = 'ExclusiveLock' AND relation = 'claim_halves'::regclass AND database =
                    (SELECT oid FROM pg_database WHERE datname = current_database())";
            world.count(waiting).await == 1
        })
        .await;
        // The others do not wait for the one that is stuck.
        let claims = world.count(CLAIMS).await;
        assert!(webhook.send(body).await.is_first());
        world.assert_count(CLAIMS, claims + 1).await;
        world.await_signals(claims + 1).await;
        moving.abort();
        let _ = moving.await;
        older.batch_execute("COMMIT").await.unwrap();
        eventually("the next thing is done", async || {
            mover.step().await.unwrap();
            world.count(is_done).await == 1
        })
        .await;
    }
    move_until(&world, &mut mover, 0).await;
    for body in ["0", "1", "2"] {
        assert!(webhook.send(body).await.is_duplicate());
    }
}

/// A claim in a transaction whose snapshot is from its beginning could be in the wrong half.
#[tokio::test]
async fn claims_are_refused_at_another_isolation_level() {
    let world = World::new().await;
    let gateway = world.session(Role::Gateway).await;
    let claim = |kind| {
        let lists = ["'{}'"; 9].join(", ");
        format!("SELECT claim('{kind}', {lists}, 1, '{{}}')")
    };
    for kind in ["deliveries", "submissions"] {
        gateway.batch_execute(&claim(kind)).await.unwrap();
        for level in ["REPEATABLE READ", "SERIALIZABLE"] {
            let begin = format!("BEGIN ISOLATION LEVEL {level}");
            gateway.batch_execute(&begin).await.unwrap();
            let refused = gateway.batch_execute(&claim(kind)).await.unwrap_err();
            assert_tells(&format!("{refused:?}"), &["read committed"]);
            gateway.batch_execute("ROLLBACK").await.unwrap();
        }
    }
}

/// A dump that has its snapshot from before a half was copied, or a segment was replaced, finds
/// what its snapshot shows.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_moved_stays_for_older_snapshots() {
    let (world, _gateway, _worker, webhook) = World::with_recorded_webhook().await;
    let mut mover = mover(&world);
    let retired = "SELECT count(*) FROM memory_segments WHERE state = 'retired'";
    let dump = world.session(Role::Login).await;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM signals";
    let seen = async |what: &str| -> i64 { value(&dump, what).await };
    for n in 0..2 {
        assert!(webhook.send(n.to_string()).await.is_first());
        world.await_signals(n + 1).await;
        dump.batch_execute(begin).await.unwrap();
        for _ in 0..20 {
            mover.step().await.unwrap();
        }
        assert_eq!((seen(CLAIMS).await, seen(KEYS).await), (1, n));
        world.assert_count(KEYS, n + 1).await; // it is copied
        dump.batch_execute("COMMIT").await.unwrap();
        move_until(&world, &mut mover, 0).await;
    }
    dump.batch_execute(begin).await.unwrap();
    eventually("merged", async || {
        mover.step().await.unwrap();
        world.count(retired).await == 2
    })
    .await;
    for _ in 0..20 {
        mover.step().await.unwrap();
    }
    assert_eq!(seen(KEYS).await, 2);
    dump.batch_execute("COMMIT").await.unwrap();
    eventually("emptied", async || {
        mover.step().await.unwrap();
        world.count(retired).await == 0
    })
    .await;
    world.assert_count(KEYS, 2).await;
}

/// What was copied a moment ago stays, and so does what somebody has locked, whose snapshot may not
/// be seen.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_copied_stays_for_a_while_and_while_it_is_locked() {
    let (world, _gateway, _worker, webhook) = World::with_recorded_webhook().await;
    assert!(webhook.send("1").await.is_first());
    world.await_signals(1).await;
    let copied = "SELECT count(*) FROM memory_segments WHERE state = 'copied'";
    let dump = world.session(Role::Login).await;
    let lock = "BEGIN; LOCK TABLE webhook_deliveries IN ACCESS SHARE MODE";
    dump.batch_execute(lock).await.unwrap();
    let mut mover = mover(&world);
    eventually("copied", async || {
        mover.step().await.unwrap();
        world.count(copied).await == 1
    })
    .await;
    let worker = world.session(Role::Worker).await;
    let empty = async |seconds: i32| -> bool {
        let empty = format!(
            "SELECT empty_half(segment, {seconds}) FROM memory_segments WHERE state = 'copied'"
        );
        value(&worker, &empty).await
    };
    assert!(!empty(0).await, "it is locked");
    world.assert_count(CLAIMS, 1).await;
    dump.batch_execute("COMMIT").await.unwrap();
    assert!(!empty(60).await, "it is too early");
    world.assert_count(CLAIMS, 1).await;
    eventually("emptied", async || empty(0).await).await;
    world.assert_count(CLAIMS, 0).await;
}

/// The lock that claims and the mover have in common is nobody else's.
#[tokio::test]
async fn nobody_else_can_keep_claims_waiting() {
    let world = World::new().await;
    for role in [Role::Gateway, Role::Worker, Role::Operator] {
        let session = world.session(role).await;
        for mode in ["ROW SHARE", "EXCLUSIVE"] {
            let lock = format!("BEGIN; LOCK TABLE claim_halves IN {mode} MODE");
            let refused = session.batch_execute(&lock).await.unwrap_err();
            assert!(format!("{refused:?}").contains("permission denied"));
            session.batch_execute("ROLLBACK").await.unwrap();
        }
    }
}

/// Who claims must see what was committed before it claims, whatever the database's default is.
#[tokio::test]
async fn every_statement_has_a_snapshot_of_its_own() {
    let world = World::new().await;
    let name: String = world.value("SELECT current_database()").await;
    let default =
        format!("ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'");
    world.change(&default).await;
    for role in [Role::Gateway, Role::Worker, Role::Operator] {
        let isolation = "SELECT current_setting('transaction_isolation')";
        let session = world.session(role).await;
        let isolation: String = value(&session, isolation).await;
        assert_eq!(isolation, "read committed", "{role:?}");
    }
}

/// A mover that has slept while others have ended and begun the same segment writes nothing.
#[tokio::test]
async fn a_mover_that_has_slept_writes_nothing() {
    let world = World::new().await;
    let workspace = world.workspace("W").await;
    let worker = world.session(Role::Worker).await;
    let extend = |version: i64, next: &str| {
        format!(
            "SELECT extend_segment(1::smallint, {version}, ARRAY['{workspace}'::uuid],
                 ARRAY['{workspace}'::uuid], ARRAY['\\x0000'::bytea],
                 ARRAY[uuid_send('{workspace}')], '{{}}', '{{}}', {next})"
        )
    };
    let told = async |order: String| -> bool { value(&worker, &order).await };
    let begin = "SELECT begin_segment('deliveries', '{}') = 1";
    assert!(told(begin.to_owned()).await);
    let version = "SELECT version FROM memory_segments WHERE segment = 1";
    let slept = world.count(version).await;
    assert!(told(extend(slept, "NULL, NULL")).await);
    let retire = "UPDATE memory_segments SET state = 'retired', source = NULL WHERE segment = 1";
    assert_eq!(world.database.execute(retire, &[]).await.unwrap(), 1);
    assert!(told("SELECT empty_segment(1::smallint, 0)".to_owned()).await);
    assert!(told(begin.to_owned()).await);
    // It stands where it stood then: at the start.
    let further = format!("'{workspace}', '{workspace}'");
    assert!(!told(extend(slept, &further)).await);
    assert!(told(extend(world.count(version).await, &further)).await);
    world.assert_rows("memory", 1).await;
}

/// An operator's word for a lost claim does not bring back what is remembered under another id.
#[tokio::test(flavor = "multi_thread")]
async fn a_remembered_body_is_not_claimed_as_lost() {
    let (world, _gateway, _worker, webhook) = World::with_recorded_webhook().await;
    assert!(webhook.send("1").await.is_first());
    world.await_signals(1).await;
    let mut mover = mover(&world);
    move_until(&world, &mut mover, 0).await;
    world.publish_unclaimed(message(&[to(&webhook, "1")])).await;
    world.await_messages(DEAD_LETTERS_QUEUE, 1).await;
    let broker = [("AMQP_URL", world.amqp_url.as_str())];
    let told = world.order_with(&broker, "dead-letters redrive --unclaimed");
    assert_holds(&told, json!({"redriven": 0, "left": 1}));
    assert_eq!(world.signals().await, 1);
    world.assert_count(CLAIMS, 0).await;
}
