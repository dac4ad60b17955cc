//! What people write into the fields of the desk is text of a bounded length. Read from the pages
//! and the router: a form that is added is tried as well.

use std::collections::{BTreeMap, BTreeSet};

use letterbox_tests::{Desk, Scene, Visitor, definition_with, post};
use serde_json::json;

use crate::source_tree::{read, root};

/// Where each form of the pages is posted, and its fields.
fn forms() -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for page in std::fs::read_dir(root().join("worker/desk/templates")).unwrap() {
        let page = std::fs::read_to_string(page.unwrap().path()).unwrap();
        for form in page.split("<form method=\"post\" action=\"").skip(1) {
            // What one page holds for another has that one's address.
            if form.starts_with("{{ path") {
                continue;
            }
            let (action, rest) = form.split_once('"').unwrap();
            let (inner, _) = rest.split_once("</form>").unwrap();
            let fields = inner.split(" name=\"").skip(1);
            let fields = fields.map(|rest| rest.split('"').next().unwrap().to_owned());
            let fields: Vec<_> = fields.collect();
            // Another button may send the same elsewhere.
            let others = inner.split(" formaction=\"").skip(1);
            let others = others.map(|rest| rest.split('"').next().unwrap());
            for action in others.chain([action]) {
                let found: &mut BTreeSet<_> = found.entry(action.to_owned()).or_default();
                found.extend(fields.iter().cloned());
            }
        }
    }
    found
}

/// What the router takes when it is posted; `None` stands for any word.
fn routes() -> Vec<Vec<Option<String>>> {
    let router = read("worker/desk/src/router.rs");
    let routes = router.split(".route(").skip(1);
    let posted = routes.filter(|route| route.contains("post("));
    let posted = posted.filter_map(|route| route.trim_start().strip_prefix('"'));
    let word = |word: &str| (!word.starts_with('{')).then(|| word.to_owned());
    let words = |route: &str| {
        let path = route.split('"').next().unwrap();
        path.split('/').skip(1).map(word).collect()
    };
    posted.map(words).collect()
}

fn leads_to(path: &str, route: &[Option<String>]) -> bool {
    let words: Vec<_> = path.split('/').skip(1).collect();
    let mut pairs = words.iter().zip(route);
    words.len() == route.len()
        && pairs.all(|(word, known)| known.as_ref().is_none_or(|known| known == word))
}

/// Every order that somebody can give: its path, and its fields, filled in as they should be.
struct Orders {
    scene: Scene,
    desk: Desk,
    owner: Visitor,
    all: Vec<(String, BTreeMap<String, String>)>,
}

impl Orders {
    async fn new() -> Self {
        let (_peer, scene) = Scene::posting("send").await;
        let question = scene.ask().await;
        let (world, form) = (&scene.world, &scene.form);
        let hook = world.webhook_in(&scene.gateway, form.workspace).await;
        let account = world.operator().await.accounts(form.workspace).await;
        let account = account.unwrap()[0].account_id;
        let desk = Desk::start_with(world, &[("LETTERBOX_SIGN_IN_BY_EMAIL", "true")]).await;
        let owner = desk.visitor(world, form.owner).await;
        let form_token = owner.form_token().await;
        let (workspace, user) = (form.workspace.to_string(), form.owner.to_string());
        let (approval, definition) = (
            question.approval_id.to_string(),
            definition_with(json!([post("send")])),
        );
        let value = |field: &str| match field {
            "form_token" => form_token.as_str(),
            "workspace" => &workspace,
            "user" => &user,
            "question" => &approval,
            "definition" => &definition,
            "answer" => "approve",
            "base_url" | "token_url" | "authorize_url" => "https://x.example/",
            "email" => "x@example.com",
            "how" => "set",
            "kind" => "bearer",
            "max_answers" => "5",
            "policy" => r#"{"rules": [], "default": "deny"}"#,
            "role" => "runner",
            "tool" => "letterbox",
            "version" => "1",
            "closes_at" | "account" | "rules" | "allow_from" | "same_by" | "secret" => "",
            _ => "given",
        };
        let ids = [
            ("{{ row.workflow_id }}", form.workflow.to_string()),
            ("{{ webhook.webhook_id }}", hook.address.webhook.to_string()),
            ("{{ row.run_id }}", question.run_id.to_string()),
            ("{{ one.account_id }}", account.to_string()),
        ];
        let mut all = Vec::new();
        for (action, fields) in forms() {
            let path = ids
                .iter()
                .fold(action, |path, (name, id)| path.replace(name, id));
            let filled = fields.into_iter();
            let filled = filled.map(|field| (field.clone(), value(&field).to_owned()));
            let filled: BTreeMap<_, _> = filled.collect();
            all.push((path, filled));
        }
        let found = Self {
            scene,
            desk,
            owner,
            all,
        };
        found.assert_complete();
        found
    }

    /// There is no order without a form, and no form without an order.
    fn assert_complete(&self) {
        let routes = routes();
        assert!(routes.len() > 20, "{routes:?}");
        for route in &routes {
            let mut paths = self.all.iter().map(|(path, _)| path);
            assert!(paths.any(|path| leads_to(path, route)), "{route:?}");
        }
        for (path, _) in &self.all {
            let mut routes = routes.iter();
            assert!(routes.any(|route| leads_to(path, route)), "{path}");
        }
    }

    async fn changes(&self) -> i64 {
        let changes = "SELECT (SELECT count(*) FROM audit_log)
            + (SELECT count(*) FROM sign_in_requests)";
        self.scene.world.count(changes).await
    }

    /// Each order is refused with these words when this stands in one of its fields.
    async fn assert_refused(&self, spoil: impl Fn(&str, &str) -> Option<String>, words: &str) {
        let before = self.changes().await;
        for (path, filled) in &self.all {
            for (field, value) in filled {
                let Some(spoilt) = spoil(field, value) else {
                    continue;
                };
                let form: Vec<_> = filled
                    .iter()
                    .map(|(name, value)| match name == field {
                        true => (name.as_str(), spoilt.as_str()),
                        false => (name.as_str(), value.as_str()),
                    })
                    .collect();
                let refused = self.owner.send(path, &form).await;
                let status = refused.status();
                let told = refused.text().await.unwrap();
                assert_eq!(status, 400, "{path} {field}: {told}");
                let named = format!("The field &#34;{field}&#34; has ");
                assert!(
                    told.contains(&named) && told.contains(words),
                    "{path}: {told}"
                );
            }
        }
        assert_eq!(self.changes().await, before, "something has changed");
        let log = self.desk.process.log();
        assert!(!log.contains("ERROR"), "{log}");
    }
}

/// U+0000 is in no text that the database stores: in no field of any order, in no query, however it
/// is posted.
#[tokio::test(flavor = "multi_thread")]
async fn no_field_takes_what_is_no_text() {
    let orders = Orders::new().await;
    let spoil = |_: &str, value: &str| Some(format!("{value}\0"));
    orders.assert_refused(spoil, "U+0000").await;
    let spoilt = [("workspace", "x"), ("name", "a\0b"), ("definition", "{}")];
    let refused = orders.owner.order_with_file("/forms", &spoilt).await;
    assert_eq!(refused.status(), 400);
    let refused = orders.owner.get("/runs?field=a&value=b%00").await;
    assert_eq!(refused.status(), 400);
    let log = orders.desk.process.log();
    assert!(!log.contains("ERROR"), "{log}");
}

/// What is longer than its field takes is refused before anything is done with it; a reason, which
/// is kept for ever, is short wherever it comes from.
#[tokio::test(flavor = "multi_thread")]
async fn no_field_takes_what_is_too_long() {
    let orders = Orders::new().await;
    // What a person writes in a line, and what other services make.
    let of_others = [
        "credential",
        "secret",
        "client_secret",
        "code",
        "state",
        "scope",
        "base_url",
        "token_url",
        "authorize_url",
        "allow_from",
        "kept_headers",
    ];
    let documents = ["definition", "policy", "rules"];
    let of_forms = [
        "title",
        "description",
        "thanks",
        "label",
        "hint",
        "words",
        "frame_ancestors",
    ];
    let too_long = "é".repeat(501);
    let spoil = |field: &str, _: &str| match field {
        field if documents.contains(&field) => None,
        field if of_others.contains(&field) => Some("x".repeat(10_001)),
        "choices" => Some("x".repeat(30_001)),
        field if of_forms.contains(&field) || field.starts_with("answer-") => {
            Some("x".repeat(5_001))
        }
        _ => Some(too_long.clone()),
    };
    orders
        .assert_refused(spoil, " characters, and takes ")
        .await;

    let world = &orders.scene.world;
    let cancel = format!("/runs/{}/cancel", orders.scene.the_run().await.row.run_id);
    let longest = "é".repeat(500);
    let cancelled = orders.owner.order(&cancel, &[("reason", &longest)]).await;
    assert_eq!(cancelled.status(), 303);
    let kept = "SELECT count(*) FROM audit_log WHERE char_length(reason) = 500";
    assert!(world.count(kept).await > 0);
    let (code, told) = world.refusal(format!(
        "user create --email a@b --name A --reason {too_long}"
    ));
    assert!(
        code == 1 && told.contains("at most 500 characters"),
        "{told}"
    );
    // Whatever program asks.
    for name in ["reason", "command"] {
        let order = format!(
            "BEGIN; SELECT set_config('letterbox.{name}', repeat('x', 300000), true);
            UPDATE workspaces SET name = 'Another'"
        );
        let refused = world.database.batch_execute(&order).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "23514", "{name}");
        world.change("ROLLBACK").await;
    }
}

/// What its field takes and the schema does not is refused, as everything else is that can't be
/// done: the desk has seen no trouble.
#[tokio::test(flavor = "multi_thread")]
async fn what_no_column_takes_is_refused() {
    let orders = Orders::new().await;
    let mut refused = 0;
    for (path, filled) in &orders.all {
        for field in filled.keys() {
            let spoilt = match field.as_str() {
                "token_url" | "authorize_url" => format!("https://x.example/{}", "x".repeat(9_000)),
                "credential" | "secret" | "client_secret" => "x".repeat(9_900),
                "scope" => "x".repeat(9_000),
                "allow_from" => vec!["192.0.2.1"; 900].join(","),
                _ => continue,
            };
            let mut form: Vec<_> = filled
                .iter()
                .map(|(a, b)| (a.as_str(), b.as_str()))
                .collect();
            form.retain(|(name, _)| name != field);
            form.push((field, &spoilt));
            let status = orders.owner.send(path, &form).await.status();
            assert!(!status.is_server_error(), "{path} {field}: {status}");
            refused += usize::from(status.is_client_error());
        }
    }
    assert!(refused > 3, "{refused}");
    let log = orders.desk.process.log();
    assert!(!log.contains("ERROR"), "{log}");
}
