//! People, each as themselves: they prove who they are by a session of the desk, and see and change
//! what their role in a workspace allows.

use std::collections::{BTreeMap, BTreeSet};

use letterbox_common::{
    Token,
    ids::{AccountId, ApprovalId, RunId, UserId, WorkspaceId},
    states::MemberRole,
};
use letterbox_database::Role;
use letterbox_operator::{Operator, Orderer, RunFilter};
use letterbox_tests::{
    Peer, Reply, Scene, Webhook, World, assert_hides, assert_holds, eventually, post,
};
use serde_json::{Value, json};

const ADDRESS: &str = "192.0.2.7";

/// Beside what `states/sessions/` shows: a link is no session, an unused one ends with the sessions
/// of its user, a user who is deactivated has none, and the log says who has signed in from where.
#[tokio::test]
async fn sessions_end_with_their_user() {
    let world = World::new().await;
    let (ada, desk) = (world.user("ada").await, world.desk());
    let operator = world.operator().await;
    let link = async || operator.make_sign_in_link(ada).await.unwrap().token;
    let begin = async |link: &Token| {
        let begun = Operator::begin_session(&desk, link, ADDRESS.into()).await;
        begun.unwrap()
    };
    let person = async |session: &Token| {
        let person = Operator::in_session(&desk, session, ADDRESS.into(), Orderer::default()).await;
        person.unwrap()
    };
    let used = link().await;
    let session = begin(&used).await.unwrap();
    assert!(person(&session).await.is_some());
    assert!(person(&used).await.is_none());
    let unused = link().await;
    let ended = world.order("user sign-out ada@example.com");
    assert_eq!(ended["sessions"], 1);
    assert!(begin(&unused).await.is_none());
    let session = begin(&link().await).await.unwrap();
    operator.deactivate_user(ada).await.unwrap();
    assert!(person(&session).await.is_none());

    let entries = world.order("audit list");
    let signed_in = |entry: &&Value| entry["command"] == "sign in";
    let signed_in = entries.as_array().unwrap().iter().find(signed_in).unwrap();
    let by_link = json!({"address": ADDRESS, "subject_id": ada, "ordered_by": ada,
        "proven_by": "link"});
    assert_holds(signed_in, by_link);
    assert_hides(&entries.to_string(), &[&hex::encode(session.hash())]); // no hash is told
}

/// Somebody of one workspace, signed in at the desk, and another workspace with something of
/// everything.
struct Stranger {
    scene: Scene,
    question: ApprovalId,
    /// Whose credential is not got by a grant.
    account: AccountId,
    own: WorkspaceId,
    eve: UserId,
    desk: tokio_postgres::Client,
}

impl Stranger {
    async fn new() -> Self {
        let (peer, scene) = Scene::posting("send").await;
        let (world, form) = (&scene.world, &scene.form);
        let question = scene.ask().await.approval_id;
        let webhook = world.webhook_in(&scene.gateway, form.workspace).await;
        webhook.send_until_accepted("{}").await;
        assert!(webhook.send("{}").await.is_duplicate());
        world.await_rows("webhook_repeats", 1).await;
        world.await_signals(1).await;
        world
            .change(
                "INSERT INTO form_link_waits SELECT workspace_id, form_link_id, 1 FROM form_links",
            )
            .await;
        world
            .change(
                "INSERT INTO seen_answers
                SELECT workspace_id, workflow_id, owner_id, workflow_id FROM workflows",
            )
            .await;
        let forger = Webhook {
            secret: "of somebody else".to_owned(),
            ..webhook
        };
        assert_eq!(forger.send("{}").await.status, 401);
        world.await_rows("webhook_refusals", 1).await;
        let accounts = world.operator().await.accounts(form.workspace).await;
        let granting = world.connect_by_grant(form.workspace, form.owner, "granted", &peer.url);
        granting.await;
        let account = accounts.as_ref().unwrap()[0].account_id;
        world.order(format!("account try {account}"));
        let own = world.workspace("Own").await;
        let eve = world.member(own, "eve", MemberRole::Owner).await;
        Self {
            account: accounts.unwrap()[0].account_id,
            desk: world.desk_of(eve).await,
            scene,
            question,
            own,
            eve,
        }
    }

    /// Which rows are another's.
    fn foreign(&self) -> String {
        format!("workspace_id = '{}'", self.scene.form.workspace)
    }

    /// How many rows of a table are seen; `None` if it may not be read.
    async fn seen(&self, table: &str, which: &str) -> Option<i64> {
        let counted = format!("SELECT count(*) FROM {table} WHERE {which}");
        match self.desk.query_one(&counted, &[]).await {
            Ok(row) => Some(row.get(0)),
            Err(error) => {
                assert_eq!(code(&error), "42501", "{table}");
                None
            }
        }
    }

    /// The columns of all tables: their names, and whether people may insert and update them.
    async fn columns(&self) -> Vec<(String, String, bool, bool)> {
        let columns = "SELECT c.relname::text, a.attname::text,
                has_column_privilege('letterbox_desk', c.oid, a.attnum, 'INSERT'),
                has_column_privilege('letterbox_desk', c.oid, a.attnum, 'UPDATE')
            FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
            WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v')
                AND a.attnum > 0 AND NOT a.attisdropped";
        let columns = self.scene.world.database.query(columns, &[]).await.unwrap();
        assert!(columns.len() > 200);
        let read = |row: &tokio_postgres::Row| (row.get(0), row.get(1), row.get(2), row.get(3));
        columns.iter().map(read).collect()
    }

    /// Nothing is changed, or the attempt fails.
    async fn try_out(&self, change: String) {
        let changed = self.desk.execute(&change, &[]).await;
        assert!(
            changed.is_err() || changed.is_ok_and(|rows| rows == 0),
            "{change}"
        );
    }
}

fn code(error: &tokio_postgres::Error) -> &str {
    error.code().map_or("", |code| code.code())
}

/// Whatever is in the tables of other workspaces, a person sees none of it. Read from the catalog:
/// a table that is added is tried as well.
#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_others_are_not_there() {
    let it = Stranger::new().await;
    let (world, foreign) = (&it.scene.world, it.foreign());
    let tables = "SELECT c.relname::text AS name, EXISTS (SELECT FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attname = 'workspace_id' AND NOT a.attisdropped)
            AS is_tenants
        FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace
            AND c.relkind IN ('r', 'p', 'v')";
    let tables = world.database.query(tables, &[]).await.unwrap();
    let mut readable = BTreeSet::new();
    for is_signed_in in [true, false] {
        if !is_signed_in {
            let signing_out = it.desk.batch_execute("SET letterbox.session = ''");
            signing_out.await.unwrap();
        }
        for table in &tables {
            let (name, is_tenants): (String, bool) = (table.get("name"), table.get("is_tenants"));
            let all = it.seen(&name, "true").await;
            if is_tenants {
                if let Some(seen) = it.seen(&name, &foreign).await {
                    assert_eq!(seen, 0, "{name} shows foreign rows");
                    let there = format!("SELECT count(*) FROM {name} WHERE {foreign}");
                    assert!(world.count(&there).await > 0, "{name} has none to show");
                }
                let seen = all.unwrap_or(0);
                assert!(is_signed_in || seen == 0, "{name} shows rows to nobody");
            }
            if all.is_some() {
                readable.insert(name);
            }
        }
    }
    // Of these, `all_workspaces` belongs to no workspace and may be read all the same.
    let known = "
        account_trials active_runs all_workspaces approvals audit_log connected_accounts
        form_link_waits form_links grants members policies processes refinery_schema_history
        releases run_actions runs seen_answers signals users visible_runs webhook_refusals
        webhook_repeats webhooks workflows workspaces";
    let readable: Vec<&str> = readable.iter().map(String::as_str).collect();
    // A table that people see is one that is meant.
    assert_eq!(readable, Vec::from_iter(known.split_whitespace()));
}

/// Nor does a person see who shares no workspace, or control what is another's.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_a_stranger_controls_nothing() {
    let it = Stranger::new().await;
    let (world, foreign) = (&it.scene.world, it.scene.form.workspace);
    let seen = it.desk.query("SELECT user_id FROM users", &[]).await;
    let seen: Vec<UserId> = seen.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(seen, [it.eve]); // only who shares a workspace
    let run = it.scene.the_run().await.row.run_id;
    for order in ["cancel_run($1, $2, 'x')", "retry_run($1, $2, 0)"] {
        let order = format!("SELECT {order}");
        let called = it.desk.query(&order, &[&foreign, &run]).await;
        assert_eq!(code(&called.unwrap_err()), "42501", "{order}");
    }
    // Who may not answer holds up nobody, not even while a transaction lasts.
    let answering = format!(
        "BEGIN; SELECT answer_approval('{}', '{}', 'approved')",
        it.question, it.eve
    );
    it.desk.batch_execute(&answering).await.unwrap();
    let free = "SELECT FROM active_runs FOR UPDATE NOWAIT";
    assert_eq!(world.database.execute(free, &[]).await.unwrap(), 1);
    it.desk.batch_execute("COMMIT").await.unwrap();
    let called = "SELECT changed_repeats($1, $2)";
    let told = it.desk.query_one(called, &[&foreign, &run]).await.unwrap();
    assert_eq!(told.get::<_, Option<i64>>(0), None);
    let open = "SELECT count(*) FROM approvals WHERE state = 'pending'";
    world.assert_count(open, 1).await;
    let workflow = it.scene.form.workflow;
    let called = "SELECT see_answers($1, $2, $3)";
    let called = it.desk.execute(called, &[&foreign, &workflow, &run]).await;
    called.unwrap();
    let noted = format!("seen_answers WHERE user_id = '{}'", it.eve);
    world.assert_rows(&noted, 0).await;
    // What is set and not read asks no policy of reading.
    let desk = world.desk_of(world.user("stranger").await).await;
    let mut changeable = it.columns().await;
    changeable.retain(|(.., may_update)| *may_update);
    assert!(!changeable.is_empty());
    for (table, column, ..) in changeable {
        let change = format!("UPDATE {table} SET {column} = DEFAULT");
        let changed = desk.execute(&change, &[]).await;
        assert_eq!(changed.unwrap(), 0, "{change}");
    }
}

/// Whatever people may write, they write it into no row of others: every table of the catalog ×
/// every verb × every column.
#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_others_do_not_change() {
    let it = Stranger::new().await;
    let foreign = it.foreign();
    let (mut tables, mut written) = (BTreeSet::new(), BTreeSet::new());
    for (table, column, may_insert, may_update) in it.columns().await {
        for change in [
            format!("UPDATE {table} SET {column} = {column} WHERE {foreign}"),
            format!("UPDATE {table} SET {column} = DEFAULT WHERE {foreign}"),
            format!("SELECT {column} FROM {table} WHERE {foreign} FOR UPDATE"),
            format!("SELECT {column} FROM {table} WHERE {foreign} FOR KEY SHARE"),
        ] {
            it.try_out(change).await;
        }
        if !may_update {
            let change = format!("UPDATE {table} SET {column} = {column}");
            assert!(it.desk.execute(&change, &[]).await.is_err(), "{change}");
        }
        if may_insert || may_update {
            written.insert(table.clone());
        }
        tables.insert(table);
    }
    for table in &tables {
        it.try_out(format!("DELETE FROM {table} WHERE {foreign}"))
            .await;
        let truncated = it.desk.execute(&format!("TRUNCATE {table}"), &[]).await;
        assert!(truncated.is_err(), "{table}");
    }
    let meant = "
        connected_accounts form_links grants members policies releases webhooks workflows
        workspaces";
    assert_eq!(
        Vec::from_iter(written),
        Vec::from_iter(meant.split_whitespace())
    );
}

/// Nobody adds a row to those of others: not a copy of one of them under another key, either.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_added_to_the_rows_of_others() {
    let it = Stranger::new().await;
    let (world, foreign) = (&it.scene.world, it.foreign());
    let mut written = BTreeMap::<String, Vec<String>>::new();
    for (table, column, may_insert, _) in it.columns().await {
        if may_insert {
            written.entry(table).or_default().push(column);
        }
    }
    for (table, columns) in &written {
        let rows = format!("SELECT to_jsonb(t)::text FROM {table} t WHERE {foreign} LIMIT 1");
        let row = world.database.query_one(&rows, &[]).await;
        let mut row: Value = serde_json::from_str(row.expect(table).get(0)).unwrap();
        let keys = "account_id form_link_id release_id webhook_id workflow_id";
        for key in keys.split(' ') {
            if table == "form_links" && key != "form_link_id"
                || table == "releases" && key == "workflow_id"
            {
                continue;
            }
            row[key] = json!(uuid::Uuid::now_v7());
        }
        row["version"] = json!(2);
        row["number"] = json!(99);
        row["user_id"] = json!(it.eve);
        row["owner_id"] = json!(it.eve);
        if table == "grants" {
            row["account_id"] = json!(it.account);
            row["user_id"] = json!(it.scene.form.owner);
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
        world.change(&as_operator).await;
        let error = it.desk.execute(&copy, &[&row]).await.unwrap_err();
        assert_eq!(code(&error), "42501", "{table}: {error:?}");
    }
}

/// Nor with tricks: a table in the way of a trigger's, a lock on all rows, the last version that
/// there can be, a member whom nobody has asked in.
#[tokio::test(flavor = "multi_thread")]
async fn tricks_lead_to_no_rows_of_others() {
    let it = Stranger::new().await;
    let (own, account, eve) = (it.own, it.account, it.eve);
    let table_in_the_way = format!(
        "CREATE TEMP TABLE connected_accounts AS SELECT '{own}'::uuid AS workspace_id,
            '{account}'::uuid AS account_id, '{eve}'::uuid AS user_id,
            NULL::timestamptz AS disconnected_at;
        UPDATE workspaces SET notify_account = '{account}' WHERE workspace_id = '{own}'"
    );
    let last_version = format!(
        "INSERT INTO policies (workspace_id, version, policy) VALUES ('{own}', 2147483647, '{{}}')"
    );
    let uninvited = format!(
        "INSERT INTO members (workspace_id, user_id, role) VALUES ('{own}', '{}', 'viewer')",
        it.scene.form.owner
    );
    let tricks = [
        (table_in_the_way.as_str(), "42501"),
        ("LOCK TABLE members IN ACCESS EXCLUSIVE MODE", "42501"),
        (&last_version, "23514"),
        (&uninvited, "42501"),
    ];
    for (trick, expected) in tricks {
        let trick = format!("BEGIN; {trick}; COMMIT");
        let error = it.desk.batch_execute(&trick).await.expect_err(&trick);
        assert_eq!(code(&error), expected, "{trick}: {error:?}");
        it.desk.batch_execute("ROLLBACK").await.unwrap();
    }
}

/// The functions that people may call are those that are meant.
#[tokio::test]
async fn people_call_what_is_meant() {
    let world = World::new().await;
    let functions = "SELECT proname::text FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace AND prosecdef
            AND has_function_privilege('letterbox_desk', oid, 'EXECUTE') ORDER BY proname";
    let functions: Vec<String> = world.column(functions).await;
    let meant = "
        acting answer_approval ask_sign_in_link ask_trial begin_session begin_session_by call_me
        cancel_run changed_repeats end_session erase_run failed_answers greet hand_in introduce
        is_known is_mine lock_owner remove_member retry_run see_answers send_invitation sends_mail
        sign_in_link workspaces_as";
    assert_eq!(functions, Vec::from_iter(meant.split_whitespace()));
}

/// Every order × every role, also of another workspace: what is foreign is not there.
#[tokio::test(flavor = "multi_thread")]
async fn each_role_may_do_its_part() {
    let peer = Peer::start(|_, _| Reply::Status(400)).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let (world, form) = (&scene.world, &scene.form);
    scene.decide("approve").await;
    let elsewhere = world.workspace("Elsewhere").await;
    let mut people = Vec::new();
    for role in [MemberRole::Viewer, MemberRole::Runner, MemberRole::Editor] {
        let user = world.member(form.workspace, role.as_str(), role).await;
        people.push((Some(role), user));
    }
    let foreign = world.member(elsewhere, "foreign", MemberRole::Owner).await;
    people.push((None, foreign));
    for (number, _) in people.iter().enumerate() {
        form.assert_accepts(&format!("k{number}")).await;
    }
    let count = people.len() as i64;
    world.await_state("waiting_approval", count).await;
    let questions = world.waiting(form.workspace).await;
    let run_of: Vec<_> = questions
        .iter()
        .map(|one| (one.approval_id, one.run_id))
        .collect();
    for ((role, user), (approval, run)) in people.iter().zip(&run_of) {
        let person = world.person(*user).await;
        let may_answer = *role == Some(MemberRole::Editor);
        let (sees, name) = (role.is_some(), role.map_or("foreign", MemberRole::as_str));
        assert_eq!(person.run(*run).await.is_ok(), sees, "{name}");
        assert_eq!(person.approval(*approval).await.is_ok(), sees, "{name}");
        let listed = person
            .runs(form.workspace, &RunFilter::default(), None, 10)
            .await;
        let sees_all = listed.is_ok_and(|runs| runs.len() == people.len());
        assert_eq!(sees_all, sees, "{name}");
        let waiting = person.waiting_approvals(None, 10).await.unwrap();
        assert_eq!(!waiting.is_empty(), sees, "{name}");
        // In nobody else's name either.
        let forged = person.approve(*approval, form.owner).await;
        assert!(forged.is_err(), "{name}");
        let told = |error: letterbox_operator::OperatorError| error.to_string();
        let approved = person.approve(*approval, *user).await;
        let cancelled = if may_answer {
            world.await_state("failed", 1).await;
            person.retry_run(*run).await.map(drop)
        } else {
            person.cancel_run(*run).await.map(drop)
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
    world.set_owner_role(form, MemberRole::Runner).await;
    let own: RunId = run_of[0].1;
    let person = world.person(form.owner).await;
    person.cancel_run(own).await.unwrap();
}

/// Whoever is signed out stays so, although a session was just beginning.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_beginning_ends_too() {
    let world = World::new().await;
    let ada = world.user("ada").await;
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
        let beginning = async {
            eventually("it waits", async || world.locks_out().await).await;
            desk.batch_execute("COMMIT").await.unwrap();
        };
        tokio::join!(beginning, ending);
        assert_eq!(world.rows("sessions").await, 0, "{deactivates}");
    }
}
