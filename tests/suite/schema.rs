//! The schema: least rights, tenancy, explanations.

use std::collections::HashSet;

use letterbox_database::Role;
use letterbox_tests::World;

use crate::{closed_sets::statements, source_tree::files};

#[tokio::test]
async fn every_statement_fits_the_schema_under_its_role() {
    let world = World::new().await;
    let of_people = letterbox_operator::statements()
        .filter(|one| one.is_of_desk)
        .map(|one| (Role::Desk, one));
    let all: Vec<_> = statements().into_iter().chain(of_people).collect();
    for role in [Role::Gateway, Role::Worker, Role::Operator, Role::Desk] {
        let client = world.session(role).await;
        for (_, statement) in all.iter().filter(|(its, _)| *its == role) {
            let prepared = client.prepare(statement.sql).await;
            prepared.unwrap_or_else(|error| panic!("{}: {error:?}", statement.name));
        }
    }
}

/// Look-ups of what an order names by an id alone. Each fails if two rows have it.
const LOOK_UPS: [&str; 7] = [
    "account",
    "deployed_now",
    "home_of_workflow",
    "webhook",
    "signing",
    "workflow",
    "live_links",
];

/// Ids that the desk may insert mean a row only together with their workspace.
#[tokio::test]
async fn no_tenants_table_is_asked_by_an_id_alone() {
    let world = World::new().await;
    let insertable = "SELECT DISTINCT attname::text FROM pg_attribute
        JOIN pg_constraint ON contype = 'p' AND conrelid = attrelid AND attnum = ANY (conkey)
        WHERE has_column_privilege('letterbox_desk', attrelid, attnum, 'INSERT')
          AND attname NOT IN ('workspace_id', 'user_id') AND attname LIKE '%\\_id'";
    let ids: Vec<String> = world.column(insertable).await;
    assert!(ids.contains(&"webhook_id".to_owned()), "{ids:?}");
    let of_people = letterbox_operator::statements()
        .filter(|one| one.is_of_desk)
        .map(|one| (Role::Desk, one));
    for (_, statement) in statements().into_iter().chain(of_people) {
        let words: Vec<&str> = statement.sql.split_whitespace().collect();
        let is_given = |name: &str| {
            words.windows(3).any(|three| {
                let column = three[0].trim_start_matches('(');
                let column = column.rsplit('.').next().unwrap_or_default();
                column == name && three[1] == "=" && three[2].starts_with('$')
            })
        };
        let alone = ids.iter().filter(|id| is_given(id));
        let alone: Vec<_> = alone.filter(|_| !is_given("workspace_id")).collect();
        let name = statement.name;
        let is_look_up = LOOK_UPS.contains(&name);
        assert!(alone.is_empty() || is_look_up, "{name}: {alone:?}");
        let changes = ["UPDATE", "DELETE", "INSERT"].map(|verb| words.contains(&verb));
        assert!(!is_look_up || changes == [false; 3], "{name} changes");
    }
}

/// A plan that is made while the tables are empty is kept when they are large.
#[tokio::test]
async fn the_gateway_finds_rows_by_their_keys_only() {
    let world = World::new().await;
    let client = world.session(Role::Gateway).await;
    let (in_functions, own): (Vec<_>, Vec<_>) = letterbox_gateway::keyed_statements()
        .map(|one| one.sql.trim_start())
        .partition(|sql| called_function(sql).is_some());
    // What is looked at on a timer, for no request, asks for no keys.
    for statement in own.into_iter().filter(|sql| sql.contains("$1")) {
        let parameters = (1..=9).filter(|n| statement.contains(&format!("${n}")));
        let prepared = format!("PREPARE it AS {statement}");
        assert_uses_indexes(&client, &prepared, parameters.count()).await;
    }
    // Functions have their owner's rights, and are planned like their caller's statements.
    client.batch_execute("SET ROLE NONE").await.unwrap();
    let function = "
        SELECT prosrc, proargnames[1:pronargs] AS names,
               ARRAY(SELECT format_type(type, NULL) FROM unnest(proargtypes) AS type) AS types
        FROM pg_proc WHERE proname = $1";
    assert_eq!(in_functions.len(), 3);
    let called = in_functions.into_iter().map(called_function);
    // What they and the others ask in turn.
    for name in called.chain([Some("live_keys")]) {
        let row = client.query_one(function, &[&name]).await.unwrap();
        let (body, names): (String, Vec<String>) = (row.get("prosrc"), row.get("names"));
        let types: Vec<String> = row.get("types");
        for body in body.split("RETURN QUERY").skip(1) {
            let body = body.split(';').next().unwrap();
            let prepared = format!("PREPARE it ({}) AS {}", types.join(", "), of(body, &names));
            assert_uses_indexes(&client, &prepared, names.len()).await;
        }
    }
}

/// A query of a function, with numbers in place of its parameters and variables.
fn of(query: &str, parameters: &[String]) -> String {
    let halves = query
        .replace("halves.filled", "1")
        .replace("halves.other", "2");
    let mut query = halves.replace("(admitted)", "('{1}'::bigint[])");
    for (number, name) in (1..).zip(parameters) {
        for (before, after) in [
            ("(", ","),
            (" ", ","),
            (" ", ")"),
            ("(", ")"),
            (" ", " *"),
            (" ", "["),
            (" ", " ="),
        ] {
            let named = format!("{before}{name}{after}");
            query = query.replace(&named, &format!("{before}${number}{after}"));
        }
    }
    query
}

/// The function of the schema that a statement only calls.
fn called_function(statement: &str) -> Option<&str> {
    let (_, from) = statement.strip_prefix("SELECT ")?.split_once(" FROM ")?;
    let (name, _) = from.split_once('(')?;
    let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    (is_name && name != "unnest").then_some(name)
}

/// What is prepared as `it` finds its rows by their keys.
async fn assert_uses_indexes(client: &tokio_postgres::Client, prepared: &str, parameters: usize) {
    let preparing = client.batch_execute(prepared).await;
    preparing.unwrap_or_else(|error| panic!("{prepared}: {error:?}"));
    let explain = format!("EXPLAIN EXECUTE it({})", vec!["NULL"; parameters].join(","));
    let rows = client.query(&explain, &[]).await.unwrap();
    let plan: Vec<String> = rows.iter().map(|row| row.get::<_, String>(0)).collect();
    assert!(plan.iter().any(|line| line.contains("Index")), "{plan:#?}");
    let scans = |line: &String| line.contains("Seq Scan") || line.contains("Hash Join");
    assert!(!plan.iter().any(scans), "{plan:#?}");
    client.batch_execute("DEALLOCATE it").await.unwrap();
}

/// Whoever may connect may make a temporary table and call a function on it.
#[tokio::test]
async fn functions_with_rights_of_their_own_are_not_for_everybody() {
    let world = World::new().await;
    let open = "SELECT coalesce(string_agg(oid::regprocedure::text, ', '), '') FROM pg_proc
        WHERE prosecdef AND pronamespace = 'public'::regnamespace
          AND has_function_privilege('public', oid, 'EXECUTE')";
    let open: String = world.value(open).await;
    assert_eq!(open, "");
}

/// What a name means in a function is decided when it is made, not by who calls it.
#[tokio::test]
async fn every_function_is_pinned() {
    let world = World::new().await;
    let loose = "SELECT coalesce(string_agg(proname, ', '), '') FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace AND prosqlbody IS NULL
          AND NOT coalesce('search_path=public, pg_temp' = ANY (proconfig), false)";
    let loose: String = world.value(loose).await;
    assert_eq!(loose, "");
}

/// Nothing that people may write is longer than those who read it for all tenants can bear.
#[tokio::test]
async fn what_people_write_has_a_length() {
    let world = World::new().await;
    let endless = "SELECT coalesce(string_agg(attrelid::regclass || '.' || attname, ', '), '')
        FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND attnum > 0
          AND atttypid IN ('text'::regtype, 'bytea'::regtype, 'text[]'::regtype,
              'json'::regtype, 'jsonb'::regtype)
          AND (has_column_privilege('letterbox_desk', attrelid, attnum, 'INSERT')
              OR has_column_privilege('letterbox_desk', attrelid, attnum, 'UPDATE'))
          AND NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = attrelid
              AND contype = 'c' AND attnum = ANY (conkey)
              AND pg_get_constraintdef(oid) ~ ('(length\\(|= ANY|array_to_string\\()[^;]*'))";
    let endless: String = world.value(endless).await;
    assert_eq!(endless, "");
}

#[tokio::test]
async fn each_role_can_do_its_work_and_no_more() {
    let world = World::new().await;
    let denied: [(Role, &[&str]); 4] = [
        (
            Role::Gateway,
            &[
                "SELECT * FROM signals",
                "SELECT body FROM signals",
                "SELECT * FROM members",
                "SELECT name FROM webhooks",
                "UPDATE webhooks SET deleted_at = now()",
                "DELETE FROM claims",
                "DELETE FROM webhook_deliveries",
                "SELECT payload_hash FROM claims",
                "UPDATE claims SET batch_id = 0",
                "UPDATE form_submissions SET release_ids = NULL",
                "INSERT INTO claims DEFAULT VALUES",
                "INSERT INTO claims_1 DEFAULT VALUES",
                "UPDATE changed_repeats SET times = 0",
                "SELECT payload_hash FROM form_submissions",
                "INSERT INTO open_batches DEFAULT VALUES",
                "DELETE FROM open_batches",
                "INSERT INTO spilled_messages DEFAULT VALUES",
                "UPDATE spilled_messages SET body = ''",
                "SELECT body FROM spilled_messages",
                "DELETE FROM spilled_messages",
                "CREATE TABLE mine ()",
                "INSERT INTO signals DEFAULT VALUES",
                "SELECT * FROM workflows",
                "SELECT * FROM releases",
                "SELECT token_sha256 FROM form_links",
                "SELECT * FROM runs",
                "SELECT * FROM run_usage",
                "DELETE FROM form_submissions",
                "SELECT * FROM connected_accounts",
                "SELECT * FROM run_actions",
            ],
        ),
        (
            Role::Worker,
            &[
                "UPDATE spilled_messages SET body = ''",
                "SELECT * FROM claims",
                "SELECT claim('deliveries', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
                     1, '{}')",
                "SELECT secret_sealed FROM webhooks",
                "SELECT body FROM signals",
                "UPDATE signals SET kind = 'generic'",
                "DELETE FROM signals",
                "UPDATE runs SET input = ''",
                "UPDATE approvals SET decided_by = NULL",
                "UPDATE connected_accounts SET base_url = ''",
                "INSERT INTO policies DEFAULT VALUES",
                "DELETE FROM runs",
                "SELECT * FROM form_links",
                "SELECT definition FROM workflows",
                "UPDATE workspaces SET run_allowance = NULL",
                "SELECT * FROM form_submissions",
                "SELECT * FROM rate_limits",
                "INSERT INTO approvals
                     (workspace_id, approval_id, run_id, action_id, expires_at, state)
                 SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'a', now(),
                     'approved'",
            ],
        ),
        (
            Role::Desk,
            &[
                "SELECT * FROM sessions",
                "SELECT * FROM sign_in_links",
                "SELECT answer_sealed FROM run_actions",
                "SELECT failed_with FROM run_actions",
            ],
        ),
        (
            Role::Operator,
            &[
                "DROP TABLE signals",
                "DELETE FROM form_links",
                "DELETE FROM webhooks",
                "DELETE FROM workflows",
                "UPDATE users SET email = ''",
                "INSERT INTO runs DEFAULT VALUES",
                "UPDATE runs SET state = 'queued'",
                "UPDATE signals SET kind = 'generic'",
                "UPDATE claims SET key_low = key_high",
                "DELETE FROM open_batches",
                "UPDATE run_usage SET started = 0",
                "DELETE FROM policies",
                "DELETE FROM releases",
                "UPDATE run_actions SET request = NULL",
                "DELETE FROM run_actions",
                "DELETE FROM approvals",
                "UPDATE approvals SET expires_at = now()",
            ],
        ),
    ];
    for (role, statements) in denied {
        let session = world.session(role).await;
        for statement in statements {
            let error = session.batch_execute(statement).await.unwrap_err();
            let code = error.code().map(|code| code.code());
            assert_eq!(code, Some("42501"), "{role:?}: {statement}: {error}");
        }
    }
}

#[tokio::test]
async fn every_tenant_table_is_keyed_by_workspace_and_everything_is_explained() {
    let world = World::new().await;
    let keyless = "
        SELECT count(*) FROM pg_class c JOIN pg_namespace
            n ON n.oid = relnamespace AND nspname = 'public'
        WHERE relkind = 'r'
        AND relname NOT IN ('users', 'rate_limits', 'open_batches', 'work_queues',
            'decoy_webhooks', 'forgotten', 'turn_lock', 'workers', 'processes', 'all_workspaces',
            'sign_in_links', 'sign_in_requests', 'sessions', 'claim_halves',
            'memory_segments', 'issuers', 'subjects', 'signal_epoch', 'refinery_schema_history')
        AND NOT EXISTS (
            SELECT FROM pg_index i JOIN pg_attribute a
                ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
            WHERE i.indrelid = c.oid AND i.indisunique AND a.attname = 'workspace_id')";
    world.assert_count(keyless, 0).await; // a table without workspace_id at the head of its key
    let crossing = "
        SELECT count(*) FROM pg_constraint k JOIN pg_class target ON target.oid = k.confrelid
        WHERE k.contype = 'f' AND target.relname NOT IN ('users', 'issuers') AND NOT EXISTS (
            SELECT FROM pg_attribute a WHERE a.attrelid = k.conrelid AND
                a.attnum = ANY (k.conkey) AND a.attname = 'workspace_id')";
    world.assert_count(crossing, 0).await; // a foreign key that could point into another workspace
    let unexplained = "
        SELECT count(*) FROM pg_class c JOIN pg_namespace
            n ON n.oid = relnamespace AND nspname = 'public'
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum >= 0 AND NOT a.attisdropped
        WHERE relkind IN ('r', 'p') AND NOT relispartition
          AND relname <> 'refinery_schema_history'
          AND (obj_description(c.oid) IS NULL OR col_description(c.oid, a.attnum) IS NULL
              AND attname !~ '(_id|_at)$' AND attname <> ALL ('{branch, decision, error, failure,
                  half, issuer, key_low, name, reason, type}'))";
    // A table without a comment, or a column whose name does not say what it is.
    world.assert_count(unexplained, 0).await;
    assert!(world.rows("pg_class WHERE relname = 'signals'").await == 1);
}

/// Whoever reads a definition reads the one that holds.
#[test]
fn no_function_or_view_is_defined_twice() {
    let mut seen = HashSet::new();
    for (file, text) in files("migrations") {
        for line in text.lines().filter(|line| line.starts_with("CREATE ")) {
            let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            let words: Vec<_> = words.collect();
            let mut kinds = words.iter();
            let kind = kinds.position(|word| ["FUNCTION", "VIEW"].contains(word));
            if let Some(kind) = kind {
                assert!(seen.insert(words[kind + 1].to_owned()), "{file}: {line}");
            }
        }
    }
    assert!(seen.len() > 40);
}

/// A schema that was made before the baseline is not patched up.
#[tokio::test]
async fn a_database_with_another_schema_is_refused_in_one_sentence() {
    let world = World::without_schema().await;
    let before = "CREATE TABLE refinery_schema_history
            (version int4 PRIMARY KEY, name varchar(255), applied_on varchar(255), checksum text);
        INSERT INTO refinery_schema_history
        VALUES (1, 'roles', '2026-01-01T00:00:00Z', '1')";
    world.change(before).await;
    let refused = world.letterbox("migrate");
    assert_eq!(
        String::from_utf8_lossy(&refused.stderr).trim(),
        "letterbox: the schema: the database has a schema that this program does not know, such as \
         one from before the first release: migrate an empty database"
    );
}
