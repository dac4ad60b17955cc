//! People, each as themselves: they prove who they are by a session of the desk, and see and change
//! what their role in a workspace allows.

use std::collections::{BTreeMap, BTreeSet};

use letterbox_common::{
    Token,
    ids::{RunId, UserId, WorkspaceId},
    states::MemberRole,
};
use letterbox_database::Role;
use letterbox_operator::{Operator, Orderer, RunFilter};
use letterbox_tests::{Peer, Reply, Scene, Webhook, World, eventually, post};
use serde_json::{Value, json};

const ADDRESS: &str = "192.0.2.7";

async fn user(world: &World, name: &str) -> UserId {
    let operator = world.operator().await;
    let email = format!("{name}@example.com");
    operator.create_user(&email, name).await.unwrap().user_id
}

async fn member(world: &World, workspace: WorkspaceId, role: MemberRole) -> UserId {
    let user = user(world, role.as_str()).await;
    let operator = world.operator().await;
    let setting = operator.set_member(workspace, user, role, false);
    setting.await.unwrap();
    user
}

/// A link begins one session, which ends when it is not used, when it is old, and when somebody
/// ends it.
#[tokio::test]
async fn sessions_begin_once_and_end() {
    let world = World::new().await;
    let (ada, desk) = (user(&world, "ada").await, world.desk());
    let operator = world.operator().await;
    let begin = async || {
        let link = operator.make_sign_in_link(ada).await.unwrap().token;
        let begun = Operator::begin_session(&desk, &link, ADDRESS.into()).await;
        (link, begun.unwrap().unwrap())
    };
    let person = async |session: &Token| {
        let person = Operator::in_session(&desk, session, ADDRESS.into(), Orderer::default()).await;
        person.unwrap()
    };
    let (link, session) = begin().await;
    assert_eq!(
        person(&session).await.unwrap().person().unwrap().user_id,
        ada
    );
    let again = Operator::begin_session(&desk, &link, ADDRESS.into()).await;
    assert!(again.unwrap().is_none(), "a link is used once");
    assert!(person(&link).await.is_none(), "a link is no session");

    let late = operator.make_sign_in_link(ada).await.unwrap().token;
    let change = async |sql: &str| world.database.batch_execute(sql).await.unwrap();
    change("UPDATE sign_in_links SET expires_at = now()").await;
    let begun = Operator::begin_session(&desk, &late, ADDRESS.into()).await;
    assert!(begun.unwrap().is_none(), "a link lasts ten minutes");

    for age in [
        "seen_at = now() - interval '13 hours'",
        "created_at = now() - interval '8 days'",
    ] {
        let (_, session) = begin().await;
        assert!(person(&session).await.is_some());
        change(&format!("UPDATE sessions SET {age}")).await;
        assert!(person(&session).await.is_none(), "{age}");
    }
    // What is used lives on.
    let (_, session) = begin().await;
    change("UPDATE sessions SET seen_at = now() - interval '11 hours'").await;
    assert!(person(&session).await.is_some());
    let seen = "SELECT count(*) FROM sessions WHERE seen_at > now() - interval '1 minute'";
    assert_eq!(world.count(seen).await, 1);

    person(&session).await.unwrap().end_session().await.unwrap();
    assert!(person(&session).await.is_none(), "signed out");
    let (_, session) = begin().await;
    let unused = operator.make_sign_in_link(ada).await.unwrap().token;
    let ended = world.order("user sign-out ada@example.com");
    assert_eq!(ended["sessions"], 1);
    assert!(
        person(&session).await.is_none(),
        "signed out by an operator"
    );
    let begun = Operator::begin_session(&desk, &unused, ADDRESS.into()).await;
    assert!(begun.unwrap().is_none());
    let (_, session) = begin().await;
    operator.deactivate_user(ada).await.unwrap();
    assert!(person(&session).await.is_none(), "deactivated");

    let entries = world.order("audit list");
    let signed_in = |entry: &&Value| entry["command"] == "sign in";
    let signed_in = entries.as_array().unwrap().iter().find(signed_in).unwrap();
    assert_eq!(signed_in["address"], ADDRESS);
    assert_eq!(signed_in["subject_id"], json!(ada));
    assert_eq!(
        (&signed_in["ordered_by"], &signed_in["proven_by"]),
        (&json!(ada), &json!("link"))
    );
    let text = entries.to_string();
    assert!(
        !text.contains(&hex::encode(session.hash())),
        "no hash is told"
    );
}

/// Whatever is in the tables of other workspaces, a person sees none of it and changes none of it.
/// Read from the catalog: a table that is added is tried as well.
#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_others_are_not_there() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let (world, foreign) = (&scene.world, scene.form.workspace);
    let question = scene.ask().await.approval_id;
    // Something of everything.
    let webhook = world.webhook_in(&scene.gateway, foreign).await;
    webhook.send_until_accepted("{}").await;
    world.await_signals(1).await;
    let forger = Webhook {
        secret: "of somebody else".to_owned(),
        ..webhook
    };
    assert_eq!(forger.send("{}").await.status, 401);
    eventually("the refusal is noted", async || {
        let noted = "SELECT count(*) FROM webhook_refusals";
        world.count(noted).await == 1
    })
    .await;
    let owner = scene.form.owner;
    let granting = world.connect_by_grant(foreign, owner, "granted", &peer.url);
    granting.await;
    let operator = world.operator().await;
    let own = operator
        .create_workspace("Own", None)
        .await
        .unwrap()
        .workspace_id;
    let eve = member(world, own, MemberRole::Owner).await;
    let session_of = async |user| {
        let link = operator.make_sign_in_link(user).await.unwrap().token;
        let session = Operator::begin_session(&world.desk(), &link, ADDRESS.into()).await;
        hex::encode(session.unwrap().unwrap().hash())
    };
    let session = session_of(eve).await;

    let desk = world.session(Role::Desk).await;
    let tables = "SELECT c.relname::text AS name, EXISTS (SELECT FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attname = 'workspace_id' AND NOT a.attisdropped)
            AS is_tenants
        FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace
            AND c.relkind IN ('r', 'p', 'v')";
    let tables = world.database.query(tables, &[]).await.unwrap();
    let mut readable = BTreeSet::new();
    for is_signed_in in [true, false] {
        let hash = if is_signed_in { session.as_str() } else { "" };
        let naming = format!("SET letterbox.session = '{hash}'");
        desk.batch_execute(&naming).await.unwrap();
        for table in &tables {
            let (name, is_tenants): (String, bool) = (table.get("name"), table.get("is_tenants"));
            let rows = async |which: String| {
                let counted = format!("SELECT count(*) FROM {name} WHERE {which}");
                match desk.query_one(&counted, &[]).await {
                    Ok(row) => Some(row.get::<_, i64>(0)),
                    Err(error) => {
                        assert_eq!(
                            error.code().map(|code| code.code()),
                            Some("42501"),
                            "{name}"
                        );
                        None
                    }
                }
            };
            if is_tenants {
                if let Some(seen) = rows(format!("workspace_id = '{foreign}'")).await {
                    assert_eq!(seen, 0, "{name} shows foreign rows");
                    let there =
                        format!("SELECT count(*) FROM {name} WHERE workspace_id = '{foreign}'");
                    assert!(world.count(&there).await > 0, "{name} has none to show");
                    readable.insert(name.clone());
                }
                if let Some(seen) = rows("true".to_owned()).await {
                    assert!(is_signed_in || seen == 0, "{name} shows rows to nobody");
                }
            } else if rows("true".to_owned()).await.is_some() {
                readable.insert(name.clone());
            }
        }
    }
    // What belongs to no workspace and may be read all the same.
    let without_tenant = [
        "all_workspaces",
        "processes",
        "refinery_schema_history",
        "users",
    ];
    let tenants = [
        "active_runs",
        "approvals",
        "audit_log",
        "connected_accounts",
        "form_links",
        "grants",
        "members",
        "policies",
        "releases",
        "run_actions",
        "runs",
        "signals",
        "visible_runs",
        "webhook_refusals",
        "webhooks",
        "workflows",
        "workspaces",
    ];
    let known = tenants
        .iter()
        .chain(&without_tenant)
        .map(|it| (*it).to_owned());
    assert_eq!(
        readable,
        known.collect::<BTreeSet<_>>(),
        "a table that people see is one that is meant"
    );
    desk.batch_execute(&format!("SET letterbox.session = '{session}'"))
        .await
        .unwrap();
    let seen = desk.query("SELECT user_id FROM users", &[]).await.unwrap();
    let seen: Vec<UserId> = seen.iter().map(|row| row.get(0)).collect();
    assert_eq!(seen, [eve], "only who shares a workspace");
    let run = scene.the_run().await.row.run_id;
    for order in ["cancel_run($1, $2, 'x')", "retry_run($1, $2, 0)"] {
        let called = desk
            .query(&format!("SELECT {order}"), &[&foreign, &run])
            .await;
        let code = called.unwrap_err().code().unwrap().code().to_owned();
        assert_eq!(code, "42501", "{order}");
    }
    // What is set and not read asks no policy of reading.
    let stranger = session_of(user(world, "stranger").await).await;
    desk.batch_execute(&format!("SET letterbox.session = '{stranger}'"))
        .await
        .unwrap();
    let changeable = "SELECT c.relname::text, a.attname::text
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
            AND a.attnum > 0 AND has_column_privilege(c.oid, a.attnum, 'UPDATE')";
    let changeable = desk.query(changeable, &[]).await.unwrap();
    assert!(!changeable.is_empty());
    for row in changeable {
        let (table, column): (String, String) = (row.get(0), row.get(1));
        let change = format!("UPDATE {table} SET {column} = DEFAULT");
        assert_eq!(desk.execute(&change, &[]).await.unwrap(), 0, "{change}");
    }
    desk.batch_execute(&format!("SET letterbox.session = '{session}'"))
        .await
        .unwrap();
    // Who may not answer holds up nobody, not even while a transaction lasts.
    let answering = format!("BEGIN; SELECT answer_approval('{question}', '{eve}', 'approved')");
    desk.batch_execute(&answering).await.unwrap();
    let free = "SELECT FROM active_runs FOR UPDATE NOWAIT";
    assert_eq!(world.database.execute(free, &[]).await.unwrap(), 1);
    desk.batch_execute("COMMIT").await.unwrap();
    let called = "SELECT changed_repeats($1, $2)";
    let told = desk.query_one(called, &[&foreign, &run]).await.unwrap();
    assert_eq!(told.get::<_, Option<i32>>(0), None);
    assert_eq!(
        world
            .count("SELECT count(*) FROM approvals WHERE state = 'pending'")
            .await,
        1
    );
}

/// Whatever people may write, they write it into no row of others: every table of the catalog ×
/// every verb × every column. And the functions that they may call are those that are meant.
#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_others_do_not_change() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let world = &scene.world;
    scene.ask().await;
    let hook = world.webhook_in(&scene.gateway, scene.form.workspace).await;
    hook.send(r#"{"a": 1}"#).await;
    world.await_signals(1).await;
    let operator = world.operator().await;
    let plain_account = operator.accounts(scene.form.workspace).await.unwrap()[0].account_id;
    world
        .connect_by_grant(
            scene.form.workspace,
            scene.form.owner,
            "by-grant",
            &peer.url,
        )
        .await;
    let own = operator.create_workspace("Own", None).await.unwrap();
    let eve = member(world, own.workspace_id, MemberRole::Owner).await;
    let link = operator.make_sign_in_link(eve).await.unwrap().token;
    let session = Operator::begin_session(&world.desk(), &link, ADDRESS.into()).await;
    let session = hex::encode(session.unwrap().unwrap().hash());
    let desk = world.session(Role::Desk).await;
    let naming = format!("SET letterbox.session = '{session}'");
    desk.batch_execute(&naming).await.unwrap();

    let columns = "SELECT c.relname::text, a.attname::text,
            has_column_privilege('letterbox_desk', c.oid, a.attnum, 'INSERT'),
            has_column_privilege('letterbox_desk', c.oid, a.attnum, 'UPDATE')
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v')
            AND a.attnum > 0 AND NOT a.attisdropped";
    let columns = world.database.query(columns, &[]).await.unwrap();
    assert!(columns.len() > 200);
    let tables: BTreeSet<String> = columns.iter().map(|row| row.get(0)).collect();
    let mut written: BTreeMap<String, Vec<String>> = BTreeMap::new();
    // Nothing is changed, or the attempt fails.
    let try_out = async |change: String| {
        let changed = desk.execute(&change, &[]).await;
        assert!(
            changed.is_err() || changed.is_ok_and(|rows| rows == 0),
            "{change}"
        );
    };
    let foreign = format!("workspace_id = '{}'", scene.form.workspace);
    for row in &columns {
        let (table, column): (String, String) = (row.get(0), row.get(1));
        let (may_insert, may_update): (bool, bool) = (row.get(2), row.get(3));
        if may_insert || may_update {
            written.entry(table.clone()).or_default();
        }
        if may_insert {
            written.get_mut(&table).unwrap().push(column.clone());
        }
        for change in [
            format!("UPDATE {table} SET {column} = {column} WHERE {foreign}"),
            format!("UPDATE {table} SET {column} = DEFAULT WHERE {foreign}"),
            format!("SELECT {column} FROM {table} WHERE {foreign} FOR UPDATE"),
            format!("SELECT {column} FROM {table} WHERE {foreign} FOR KEY SHARE"),
        ] {
            try_out(change).await;
        }
        if !may_update {
            let change = format!("UPDATE {table} SET {column} = {column}");
            assert!(desk.execute(&change, &[]).await.is_err(), "{change}");
        }
    }
    for table in &tables {
        try_out(format!("DELETE FROM {table} WHERE {foreign}")).await;
        let truncated = desk.execute(&format!("TRUNCATE {table}"), &[]).await;
        assert!(truncated.is_err(), "{table}");
    }
    let meant = [
        "connected_accounts",
        "form_links",
        "grants",
        "members",
        "policies",
        "releases",
        "webhooks",
        "workflows",
        "workspaces",
    ];
    assert_eq!(written.keys().collect::<Vec<_>>(), meant);
    // A copy of a foreign row, under another key.
    for (table, columns) in written.iter().filter(|(_, columns)| !columns.is_empty()) {
        let rows = format!("SELECT to_jsonb(t)::text FROM {table} t WHERE {foreign} LIMIT 1");
        let row = world.database.query_one(&rows, &[]).await;
        let mut row: Value = serde_json::from_str(row.expect(table).get(0)).unwrap();
        for key in [
            "account_id",
            "form_link_id",
            "release_id",
            "webhook_id",
            "workflow_id",
        ] {
            if table == "form_links" && key != "form_link_id"
                || table == "releases" && key == "workflow_id"
            {
                continue;
            }
            row[key] = json!(uuid::Uuid::now_v7());
        }
        row["version"] = json!(2);
        row["number"] = json!(99);
        row["user_id"] = json!(eve);
        row["owner_id"] = json!(eve);
        if table == "grants" {
            let (account, owner) = (plain_account, scene.form.owner);
            (row["account_id"], row["user_id"]) = (json!(account), json!(owner));
        }
        row["token_sha256"] = json!(format!("\\x{}", "07".repeat(32)));
        let (names, row) = (columns.join(", "), row.to_string());
        let copy = format!(
            "INSERT INTO {table} ({names})
            SELECT {names} FROM jsonb_populate_record(NULL::{table}, $1::text::jsonb)"
        );
        // The same by somebody whom nothing stops, to see that only the rights do.
        let as_operator = format!(
            "BEGIN; SET LOCAL ROLE letterbox_operator; {}; ROLLBACK",
            copy.replace("$1", &format!("$json${row}$json$"))
        );
        if let Err(error) = world.database.batch_execute(&as_operator).await {
            panic!("{table}: {error:?}");
        }
        let error = desk.execute(&copy, &[&row]).await.unwrap_err();
        assert_eq!(
            error.code().map(|code| code.code()),
            Some("42501"),
            "{table}: {error:?}"
        );
    }
    // Nor with tricks: a table in the way of a trigger's, a lock on all rows, the last version that
    // there can be, a member whom nobody has asked in.
    let (own, account) = (own.workspace_id, plain_account);
    let tricks = [
        (
            format!(
                "CREATE TEMP TABLE connected_accounts AS SELECT '{own}'::uuid AS workspace_id,
                    '{account}'::uuid AS account_id, '{eve}'::uuid AS user_id,
                    NULL::timestamptz AS disconnected_at;
                UPDATE workspaces SET notify_account = '{account}' WHERE workspace_id = '{own}'"
            ),
            "42501",
        ),
        (
            "LOCK TABLE members IN ACCESS EXCLUSIVE MODE".to_owned(),
            "42501",
        ),
        (
            format!(
                "INSERT INTO policies (workspace_id, version, policy)
                VALUES ('{own}', 2147483647, '{{}}')"
            ),
            "23514",
        ),
        (
            format!(
                "INSERT INTO members (workspace_id, user_id, role)
                VALUES ('{own}', '{}', 'viewer')",
                scene.form.owner
            ),
            "42501",
        ),
    ];
    for (trick, code) in tricks {
        let in_vain = desk.batch_execute(&format!("BEGIN; {trick}; COMMIT")).await;
        let error = in_vain.expect_err(&trick);
        assert_eq!(error.code().unwrap().code(), code, "{trick}: {error:?}");
        desk.batch_execute("ROLLBACK").await.unwrap();
    }
    let functions = "SELECT proname::text FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace AND prosecdef
            AND has_function_privilege('letterbox_desk', oid, 'EXECUTE') ORDER BY proname";
    let functions = world.database.query(functions, &[]).await.unwrap();
    let functions: Vec<String> = functions.iter().map(|row| row.get(0)).collect();
    let meant = [
        "acting",
        "answer_approval",
        "ask_sign_in_link",
        "begin_session",
        "begin_session_by",
        "call_me",
        "cancel_run",
        "changed_repeats",
        "end_session",
        "greet",
        "hand_in",
        "introduce",
        "is_known",
        "is_mine",
        "lock_owner",
        "remove_member",
        "retry_run",
        "sign_in_link",
        "workspaces_as",
    ];
    assert_eq!(functions, meant);
}

/// Every order × every role, also of another workspace: what is foreign is not there.
#[tokio::test(flavor = "multi_thread")]
async fn each_role_may_do_its_part() {
    let peer = Peer::start(|_, _| Reply::Status(400)).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let (world, form) = (&scene.world, &scene.form);
    scene
        .set_policy(json!({"rules": [], "default": "approve"}))
        .await;
    let operator = world.operator().await;
    let elsewhere = operator
        .create_workspace("Elsewhere", None)
        .await
        .unwrap()
        .workspace_id;
    let mut people = Vec::new();
    for role in [MemberRole::Viewer, MemberRole::Runner, MemberRole::Editor] {
        people.push((Some(role), member(world, form.workspace, role).await));
    }
    people.push((None, member(world, elsewhere, MemberRole::Owner).await));
    let mut run_of = Vec::new();
    for (number, _) in people.iter().enumerate() {
        form.assert_accepts(&format!("k{number}")).await;
    }
    let count = people.len() as i64;
    world.await_state("waiting_approval", count).await;
    for question in world.waiting(form.workspace).await {
        run_of.push((question.approval_id, question.run_id));
    }
    for ((role, user), (approval, run)) in people.iter().zip(&run_of) {
        let person = world.person(*user).await;
        let may_answer = *role == Some(MemberRole::Editor);
        let (sees, name) = (role.is_some(), role.map_or("foreign", MemberRole::as_str));
        assert_eq!(person.run(*run).await.is_ok(), sees, "{name}");
        assert_eq!(person.approval(*approval).await.is_ok(), sees, "{name}");
        let listed = person.runs(&RunFilter::of(form.workspace), None, 10).await;
        assert_eq!(
            listed.is_ok_and(|runs| runs.len() == people.len()),
            sees,
            "{name}"
        );
        let waiting = person.waiting_approvals(None, 10).await.unwrap();
        assert_eq!(
            waiting.len(),
            if sees { waiting.len().max(1) } else { 0 },
            "{name}"
        );
        // In nobody else's name either.
        let forged = person.approve(*approval, form.owner).await;
        assert!(forged.is_err(), "{name}");
        let told = |error: letterbox_operator::OperatorError| error.to_string();
        let (cancelled, approved) = if may_answer {
            let approved = person.approve(*approval, *user).await;
            world.await_state("failed", 1).await;
            (person.retry_run(*run).await.map(drop), approved.map(drop))
        } else {
            let approved = person.approve(*approval, *user).await;
            (person.cancel_run(*run).await.map(drop), approved.map(drop))
        };
        match name {
            "editor" => assert!(cancelled.is_ok() && approved.is_ok()),
            "foreign" => {
                assert_eq!(told(cancelled.unwrap_err()), "there is no such run");
                assert_eq!(told(approved.unwrap_err()), "there is no such approval");
            }
            _ => {
                let (cancelled, approved) = (cancelled.unwrap_err(), approved.unwrap_err());
                assert!(told(cancelled).contains("not yours to control"), "{name}");
                assert!(told(approved).contains("owner or editor"), "{name}");
            }
        }
    }
    // As whom a run acts may cancel it, as a runner, too.
    let set = operator.set_member(form.workspace, form.owner, MemberRole::Runner, false);
    set.await.unwrap();
    let own: RunId = run_of[0].1;
    let person = world.person(form.owner).await;
    person.cancel_run(own).await.unwrap();
}

/// Whoever is signed out stays so, although a session was just beginning.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_beginning_ends_too() {
    let world = World::new().await;
    let ada = user(&world, "ada").await;
    let sessions = "SELECT count(*) FROM sessions";
    let operator = world.operator().await;
    for deactivates in [false, true] {
        let link = operator.make_sign_in_link(ada).await.unwrap();
        let hash = hex::encode(link.token.hash());
        let desk = world.session(Role::Desk).await;
        let begin = format!(
            "BEGIN; SELECT begin_session('\\x{hash}', NULL, NULL, NULL, '\\x{}')",
            "07".repeat(32)
        );
        desk.batch_execute(&begin).await.unwrap();
        let ending = async {
            if deactivates {
                operator.deactivate_user(ada).await.unwrap();
            } else {
                operator.sign_out_user(ada).await.unwrap();
            }
        };
        let waiting = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let beginning = async {
            eventually("it waits", async || world.count(waiting).await > 0).await;
            desk.batch_execute("COMMIT").await.unwrap();
        };
        tokio::join!(beginning, ending);
        assert_eq!(world.count(sessions).await, 0, "{deactivates}");
    }
}
