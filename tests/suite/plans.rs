//! What statements cost: how many pages they look at, where there is much that they must not look
//! at.

use letterbox_database::Role;
use letterbox_tests::World;
use tokio_postgres::Client;

use crate::closed_sets::statements;

/// What executing a statement came to.
struct Executed {
    rows: u64,
    /// Pages that were looked at.
    pages: u64,
    plan: Vec<String>,
}

/// Executes a statement with these arguments, as its process would, and explains it.
async fn execute(client: &Client, name: &str, arguments: &str) -> Executed {
    let all = statements();
    let (_, found) = all.iter().find(|(_, one)| one.name == name).unwrap();
    let prepare = format!("PREPARE {name} AS {}", found.sql);
    client.batch_execute(&prepare).await.unwrap();
    let call = match arguments {
        "" => String::new(),
        given => format!("({given})"),
    };
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS) EXECUTE {name}{call}");
    let rows = client.query(&explain, &[]).await.unwrap();
    let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    // "Limit  (cost=… rows=3 …) (actual time=… rows=1 loops=1)"
    let actual = plan[0].rsplit("rows=").next().unwrap();
    let rows = actual.split(' ').next().unwrap().parse::<f64>().unwrap() as u64;
    // "Buffers: shared hit=5 dirtied=1"
    let buffers = plan.iter().find(|line| line.contains("Buffers:")).unwrap();
    let pages = buffers
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("hit=").or(word.strip_prefix("read=")))
        .map(|pages| pages.parse::<u64>().unwrap())
        .sum();
    Executed { rows, pages, plan }
}

/// What waits costs nothing: however many runs are ready or scheduled, and however many were before
/// an old snapshot, each statement that looks for runs looks at few pages, and the one that counts
/// them at no more than it counts.
#[tokio::test]
async fn waiting_runs_cost_nothing() {
    let world = World::new().await;
    let of_any_run = "ALTER TABLE active_runs DROP CONSTRAINT active_runs_workspace_id_run_id_fkey";
    world.change(of_any_run).await;
    let old = world.session(Role::Login).await;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM runs";
    old.batch_execute(begin).await.unwrap();
    let crowd = "
        INSERT INTO active_runs (workspace_id, run_id, due_at, state)
        SELECT gen_random_uuid(), gen_random_uuid(), now() - n * interval '1 second', 'taken'
        FROM generate_series(400, 30000) AS n;
        DELETE FROM active_runs;
        INSERT INTO active_runs (workspace_id, run_id, due_at, state)
        SELECT md5((n % 5)::text)::uuid, gen_random_uuid(), now() - n * interval '1 second', 'ready'
        FROM generate_series(1, 60000) AS n;
        INSERT INTO active_runs (workspace_id, run_id, due_at, state)
        SELECT md5((n % 5)::text)::uuid, gen_random_uuid(), now() + n * interval '1 second',
               'scheduled'
        FROM generate_series(60, 60000) AS n;
        INSERT INTO active_runs (workspace_id, run_id, due_at, state)
        SELECT md5('6')::uuid, gen_random_uuid(), now(), 'scheduled';
        INSERT INTO active_runs (workspace_id, run_id, due_at, turn, state)
        SELECT md5('7')::uuid, md5('7')::uuid, now() + interval '1 minute', 1, 'taken';
        INSERT INTO workers (worker_id, name, places, workspaces, runs)
        SELECT gen_random_uuid(), 'other', 1, ARRAY[md5('7')::uuid], ARRAY[md5('7')::uuid];
        ANALYZE active_runs";
    world.change(crowd).await;
    let behind = "'00000000-0000-0000-0000-000000000000'";
    let lane = format!("ARRAY[md5('1')::uuid], ARRAY[{behind}::uuid]");
    let taken = "ARRAY[jsonb_populate_record(NULL::run_change, jsonb_build_object(
        'workspace_id', md5('7')::uuid, 'run_id', md5('7')::uuid, 'turn', 1, 'seconds', 1))]";
    let first = "ARRAY['-infinity'::timestamptz]";
    let worker = world.session(Role::Worker).await;
    let cases = [
        ("runs_by_time", "1000, false".to_owned(), 1, 100),
        ("taken_by_others", behind.to_owned(), 1, 100),
        ("ready_runs", format!("{lane}, {first}, ARRAY[24]"), 24, 100),
        ("ready_lanes", format!("{behind}, {behind}, 256"), 5, 100),
        // And those that write for a turn find it by its key.
        ("hold_runs", taken.to_owned(), 1, 100),
        ("release_runs", taken.to_owned(), 0, 100),
        ("backlog", String::new(), 1, 10_000),
    ];
    for (statement, arguments, rows, pages) in cases {
        let executed = execute(&worker, statement, &arguments).await;
        let plan = format!(
            "{statement}: {} pages: {:#?}",
            executed.pages, executed.plan
        );
        assert_eq!(executed.rows, rows, "{plan}");
        assert!((1..pages).contains(&executed.pages), "{plan}");
    }
}

/// A run ends at the cost of what it has done, however many answers others have just had.
#[tokio::test]
async fn the_answers_of_others_cost_the_end_of_a_run_nothing() {
    let world = World::new().await;
    let answer = "
        INSERT INTO run_actions (workspace_id, run_id, action_id, position, type, state,
            steered_by, idempotency_key, answer_sealed)
        SELECT md5((n % 5)::text)::uuid, gen_random_uuid(), 'send', 1, 'http.request', 'succeeded',
               '{}', gen_random_uuid(), $answer FROM generate_series(1, 20000) AS n";
    let crowd = [
        "ALTER TABLE active_runs DROP CONSTRAINT active_runs_workspace_id_run_id_fkey",
        "ALTER TABLE run_actions DROP CONSTRAINT run_actions_workspace_id_run_id_fkey",
        "ALTER TABLE run_actions DISABLE TRIGGER USER",
        &answer.replace("$answer", "NULL"),
        "ANALYZE run_actions",
        &answer.replace("$answer", "'sealed'"),
        "INSERT INTO active_runs (workspace_id, run_id, due_at, turn, state)
         SELECT md5('7')::uuid, md5('7')::uuid, now() + interval '1 minute', 1, 'taken'",
    ];
    world.change(&crowd.join(";")).await;
    let ends = "ARRAY[jsonb_populate_record(NULL::run_change, jsonb_build_object(
        'workspace_id', md5('7')::uuid, 'run_id', md5('7')::uuid, 'turn', 1,
        'state', 'succeeded'))]";
    let worker = world.session(Role::Worker).await;
    let executed = execute(&worker, "end_runs", ends).await;
    // The first call of a session reads catalogs, too.
    let few = 1..5_000;
    assert!(few.contains(&executed.pages), "{} pages", executed.pages);
}

/// Processes see every row, and their statements are planned as if no row were hidden from people.
#[tokio::test]
async fn row_security_costs_processes_nothing() {
    let world = World::new().await;
    let of_tables = "
        SELECT string_agg(format('ALTER TABLE %s %%s ROW LEVEL SECURITY', oid::regclass), ';')
        FROM pg_class WHERE relrowsecurity";
    let of_tables: String = world.value(of_tables).await;
    let mut plans = [const { Vec::new() }; 2];
    for (state, plans) in ["ENABLE", "DISABLE"].into_iter().zip(&mut plans) {
        let set = of_tables.replace("%s", state);
        world.change(&set).await;
        for role in [Role::Gateway, Role::Worker] {
            let client = world.session(role).await;
            let statements = statements();
            for (_, statement) in statements.iter().filter(|(its, _)| *its == role) {
                plans.push((statement.name, plan(&client, statement.sql, "OFF").await));
            }
        }
    }
    let [hiding, showing] = plans;
    assert!(hiding.len() > 50);
    for (one, other) in hiding.iter().zip(&showing) {
        assert_eq!(one, other);
    }
}

/// Tables that are empty at times, and full a minute later.
const FILLED: [&str; 3] = ["active_runs", "open_batches", "spilled_messages"];
/// Statements that go through such a table, or a part of it, up to a limit or seldom.
const GO_THROUGH: [&str; 3] = ["measure_spill", "measure_spill_shares", "backlog"];

/// A statement finds rows by their keys also if its plan was made while the table was as good as
/// empty: plans are kept, and tables fill up.
#[tokio::test]
async fn no_plan_counts_on_an_empty_table() {
    let world = World::new().await;
    let mut found = Vec::new();
    let roles = [Role::Gateway, Role::Worker];
    // Never analyzed, and analyzed.
    let states = ["SELECT", "VACUUM ANALYZE"].map(|state| roles.map(|role| (state, role)));
    for (state, role) in states.into_iter().flatten() {
        world.change(state).await;
        let client = world.session(role).await;
        let statements = statements();
        for (_, statement) in statements.iter().filter(|(its, _)| *its == role) {
            let plan = plan(&client, statement.sql, "OFF").await;
            let mut lines = plan.lines().peekable();
            while let Some(line) = lines.next() {
                let scan = line.trim_start().trim_start_matches("->").trim_start();
                let is_filled =
                    scan.contains(" Scan ") && scan.split(' ').any(|word| FILLED.contains(&word));
                // By a run's id alone an index is gone through: it comes second in each.
                let is_found = lines.peek().is_some_and(|next| {
                    let has = |word| next.contains(word);
                    has(" Cond: ") && (has("workspace_id") || !has("run_id"))
                });
                if is_filled && !is_found && !GO_THROUGH.contains(&statement.name) {
                    found.push(format!("{}: {scan}", statement.name));
                }
            }
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

/// What a scan costs, at least, that the session does without if it can.
const SWITCHED_OFF: f64 = 1e10;
/// Statements that read a small table as a whole, and where nothing else matters, or that are
/// executed seldom.
const WHOLE: [&str; 12] = [
    "announce_work_queues",
    "backlog",
    "claim_halves",
    "count_dead_workers",
    "count_work_queues",
    "forget_worker",
    "insert_signals",
    "measure_spill",
    "memory_size",
    "subscription_lags",
    "sweep_rate_limits",
    "take_trials",
];

/// No other statement needs a scan that is switched off. Its cost would hide what the rest of the
/// plan costs: the planner takes plans for equal whose costs differ by less than a hundredth.
#[tokio::test]
async fn no_plan_needs_what_is_switched_off() {
    let world = World::new().await;
    let mut found = Vec::new();
    for role in [Role::Gateway, Role::Worker] {
        let client = world.session(role).await;
        for (_, statement) in statements().iter().filter(|(its, _)| *its == role) {
            let plan = plan(&client, statement.sql, "ON").await;
            // "Limit  (cost=0.15..8.17 rows=1 width=4)"
            let costs = plan.split("..").skip(1);
            let costs = costs.filter_map(|rest| rest.split(' ').next()?.parse::<f64>().ok());
            let most = costs.fold(0.0, f64::max);
            if most >= SWITCHED_OFF {
                found.push(statement.name);
            }
        }
    }
    found.sort_unstable();
    assert_eq!(found, WHOLE);
}

async fn plan(client: &Client, sql: &str, costs: &str) -> String {
    let parameters = (1..=30).filter(|n| sql.contains(&format!("${n}")));
    let nulls = vec!["NULL"; parameters.count()].join(",");
    let call = match nulls.is_empty() {
        true => nulls,
        false => format!("({nulls})"),
    };
    let prepare = format!("DEALLOCATE ALL; PREPARE it AS {sql}");
    client.batch_execute(&prepare).await.unwrap();
    let explain = format!("EXPLAIN (COSTS {costs}) EXECUTE it{call}");
    let rows = client.query(&explain, &[]).await.unwrap();
    let lines: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    lines.join("\n")
}
