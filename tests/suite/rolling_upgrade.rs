//! An upgrade under load: the programs of the former version beside the new ones, before, while and
//! after the schema changes.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use letterbox_database::Role;
use letterbox_tests::{
    Form, Peer, Process, Reply, Webhook, World, command_file, definition_with, eventually, former,
    payload, post,
};
use serde_json::{Value, json};
use tokio_postgres::Client;

/// Deliveries, and as many submissions, in each part of the upgrade.
const PART: usize = 60;

/// What senders know of the gateways, and what they have sent.
#[derive(Default)]
struct Load {
    gateways: Mutex<Vec<String>>,
    /// How many of each were accepted.
    accepted: Mutex<usize>,
    /// Answers that were not the first of their kind, by status.
    others: Mutex<HashMap<u16, usize>>,
    is_over: AtomicBool,
}

impl Load {
    /// Sends one of each after the other, to each gateway in turn, until it is accepted.
    async fn send(&self, webhook: &Webhook, form: &Form, database: &Client) {
        for n in 0.. {
            if n % 5 == 0 {
                // A minute has passed, as far as the rate limits know.
                let forgetting = database.batch_execute("UPDATE rate_limits SET hits = '{}'");
                forgetting.await.unwrap();
            }
            if self.is_over.load(Relaxed) {
                return;
            }
            for attempt in 0.. {
                let gateway = {
                    let gateways = self.gateways.lock().unwrap();
                    gateways[(n + attempt) % gateways.len()].clone()
                };
                let webhook = webhook.behind(&gateway);
                let form = form.behind(&gateway);
                let sent = webhook.send(n.to_string()).await;
                let submitted = form.submit(&n.to_string(), &payload()).await;
                let statuses = [sent.status, submitted.status];
                if statuses == [202, 200] {
                    // A delivery that was accepted before its companion is a duplicate now.
                    assert!(sent.is_first() || attempt > 0, "{sent:?}");
                    break;
                }
                for status in statuses.into_iter().filter(|status| *status >= 300) {
                    *self.others.lock().unwrap().entry(status).or_default() += 1;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            *self.accepted.lock().unwrap() = n + 1;
        }
    }

    fn accepted(&self) -> usize {
        *self.accepted.lock().unwrap()
    }

    /// Waits until so many more are accepted.
    async fn go_on(&self, more: usize) {
        let enough = self.accepted() + more;
        eventually("more is accepted", async || self.accepted() >= enough).await;
    }
}

/// What an order of the former command line gives.
fn order(world: &World, command: &str) -> Value {
    let output = world.letterbox_of("former/letterbox", &[], format!("{command} --json"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {told}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A webhook, and a form whose runs call an account, made by the former command line.
fn doors(world: &World, gateway: &Process, account: &str) -> (Webhook, Form) {
    let id = |thing: &Value, name: &str| thing[name].as_str().unwrap().to_owned();
    let workspace = id(
        &order(world, "workspace create --name Acme"),
        "workspace_id",
    );
    let user = order(world, "user create --email o@example.com --name Owner");
    let user = id(&user, "user_id");
    order(
        world,
        &format!("member set --workspace {workspace} --user {user} --role owner"),
    );
    let credential = command_file(&format!("{workspace}.credential"), "canary");
    order(
        world,
        &format!(
            "account connect --workspace {workspace} --user {user} --name crm --base-url {account} \
             --bearer-file {credential}"
        ),
    );
    let definition = definition_with(json!([post("send")]));
    let definition = command_file(&format!("{workspace}.workflow"), &definition);
    let workflow = order(
        world,
        &format!(
            "workflow create --workspace {workspace} --owner {user} --name W --definition \
             {definition}"
        ),
    );
    let workflow = id(&workflow, "workflow_id");
    order(world, &format!("workflow deploy {workflow}"));
    let link = order(world, &format!("form-link create {workflow}"));
    let webhook = order(
        world,
        &format!("webhook create --workspace {workspace} --name T"),
    );
    let url = gateway.public_url();
    let address = id(&webhook, "url");
    let address = address.rsplit('/').next().unwrap().parse().unwrap();
    (
        Webhook::new(&url, address, id(&webhook, "secret")),
        Form::new(
            &url,
            workspace.parse().unwrap(),
            user.parse().unwrap(),
            workflow.parse().unwrap(),
            &id(&link, "token"),
        ),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn senders_do_not_notice_an_upgrade() {
    if former().is_none() {
        // Said by deploy/test: no migration after the baseline, or no history to build it from.
        return;
    }
    let world = World::without_schema().await;
    let account = Peer::start(|_, _| Reply::Status(200)).await;
    order(&world, "migrate");
    let mut former_gateway = world.start("former/letterbox-gateway", &[]);
    let mut former_worker = world.start("former/letterbox-worker", &[]);
    former_gateway.await_ready().await;
    former_worker.await_ready().await;
    let (webhook, form) = doors(&world, &former_gateway, &account.url);

    let load = Arc::new(Load::default());
    load.gateways
        .lock()
        .unwrap()
        .push(former_gateway.public_url());
    let sending = tokio::spawn({
        let load = load.clone();
        let database = world.session(Role::Login).await;
        async move { load.send(&webhook, &form, &database).await }
    });
    load.go_on(PART).await;

    // The schema first, then the programs, one after the other.
    world.order("migrate");
    load.go_on(PART).await;
    // One of before can be started still: there is a way back.
    let another = world.start("former/letterbox-gateway", &[]);
    another.await_ready().await;
    drop(another);
    let gateway = world.gateway().await;
    load.gateways.lock().unwrap().push(gateway.public_url());
    load.go_on(PART).await;
    let worker = world.worker().await;
    load.go_on(PART).await;
    former_worker.terminate();
    assert!(former_worker.ended().await.success());
    *load.gateways.lock().unwrap() = vec![gateway.public_url()];
    // Nobody is on the way to it any more.
    load.go_on(2).await;
    former_gateway.terminate();
    assert!(former_gateway.ended().await.success());
    load.go_on(PART).await;
    load.is_over.store(true, Relaxed);
    sending.await.unwrap();

    let accepted = load.accepted() as i64;
    assert!(accepted >= 5 * PART as i64);
    world.await_state("succeeded", accepted).await;
    world.await_signals(accepted).await;
    assert_eq!(world.runs().await, accepted);
    let mut keys: Vec<_> = account
        .received()
        .iter()
        .map(|request| request.header("idempotency-key").unwrap().to_owned())
        .collect();
    assert_eq!(keys.len() as i64, accepted, "each is sent once");
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len() as i64, accepted);
    let others = load.others.lock().unwrap().clone();
    assert!(others.is_empty(), "senders noticed: {others:?}");
    drop(worker);
}
