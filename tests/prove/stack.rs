//! The whole stack: two gateways, two workers and the desk on servers of their own, each reached
//! through a proxy of each process's own; and those who send, act and read.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use letterbox_broker::{ReadMessage, read_queue, topology::DEAD_LETTERS_QUEUE};
use letterbox_common::sealing::Secret;
use letterbox_operator::{AccountSecret, AccountSettings, migrate};
use letterbox_tests::{
    Peer, Proxy, Received, Reply, Visitor, World, agent, definition_with, form_token_of, post,
    sign_in_link,
};
use serde_json::json;

use crate::{
    doors::{Arrival, Door, Stored, model, name_in},
    load::Doors,
    member::Member,
    servers::{Servers, connect},
    tokens::{self, Tokens},
    way::Way,
};

/// The queue of the subscription.
const QUEUE: &str = "prove";
/// Forms of each door for one submission in a second: each may be submitted so often.
const FORMS: usize = 3;
/// How long everything may take to be well again.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long dead letters may take.
const DEAD_LETTERS_WITHIN: Duration = Duration::from_secs(20);
/// Ends every lease, as time would.
/// Leaves alone what sleeps for days until somebody answers: an answer wakes it. A clock that went
/// forth and back makes a pause an hour longer.
const EXPIRE: &str = "UPDATE active_runs SET due_at = clock_timestamp()
        WHERE state <> 'scheduled' OR due_at < clock_timestamp() + interval '2 hours';
    UPDATE open_batches SET lease_until = clock_timestamp();
    UPDATE spilled_messages SET lease_until = clock_timestamp();
    UPDATE subscriptions SET leased_until = clock_timestamp() WHERE leased_by IS NOT NULL;
    UPDATE grants SET taken_until = clock_timestamp() WHERE taken_until IS NOT NULL";
/// What is still under way.
const UNDER_WAY: &str = "SELECT (SELECT count(*) FROM active_runs)
    + (SELECT count(*) FROM spilled_messages)";

/// Everything.
pub struct Stack {
    pub world: World,
    pub servers: Servers,
    pub gateways: [Member; 2],
    pub workers: [Member; 2],
    pub desk: Member,
    pub doors: Arc<Doors>,
    /// To the accounts of all runs, and to the server of their tokens.
    pub to_accounts: Way,
    _peer: Peer,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    /// Names and ids of the messages of the subscription.
    messages: Arc<Mutex<Vec<(String, String)>>>,
    /// When each question was first answered.
    answered: Arc<Mutex<HashMap<String, Instant>>>,
    /// Panics that were told of.
    panics: AtomicU64,
}

impl Stack {
    /// On these servers, which are empty.
    pub async fn start(servers: Servers) -> Self {
        let (database_url, amqp_url) = (servers.database_url(), servers.amqp_url());
        migrate(&database_url.parse().unwrap()).await.unwrap();
        let world = World::on(database_url, amqp_url).await;
        let [gateways, workers] = [
            new_pair("letterbox-gateway", &world).await,
            new_pair("letterbox-worker", &world).await,
        ];
        let desk = Member::new("letterbox-desk", &world).await;
        let arrivals = Arc::<Mutex<Vec<Arrival>>>::default();
        let peer = Peer::start(script(arrivals.clone())).await;
        let to_accounts = Way::to(&peer.url).await;
        let (doors, owner) = set_up(&world, &gateways, &to_accounts.url).await;
        let stack = Self {
            messages: read_messages(&world.amqp_url),
            world,
            servers,
            gateways,
            workers,
            desk,
            doors: Arc::new(doors),
            to_accounts,
            _peer: peer,
            arrivals,
            answered: Arc::default(),
            panics: AtomicU64::new(0),
        };
        stack.heal().await;
        let link = sign_in_link(&stack.world, &stack.desk.url, owner);
        let approver = Visitor::signed_in(&stack.desk.url, &link).await;
        tokio::spawn(approve(approver, stack.answered.clone()));
        stack
    }

    /// Every process.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.gateways
            .iter()
            .chain(&self.workers)
            .chain([&self.desk])
    }

    /// Starts what has ended, lets everything pass, and waits until all is well.
    ///
    /// # Panics
    /// When it does not get well.
    pub async fn heal(&self) {
        self.servers.clock.sweep();
        self.to_accounts.each(Proxy::pass);
        self.doors.are_harmed.store(false, Ordering::Relaxed);
        for member in self.members() {
            member.to_database.each(Proxy::pass);
            member.to_broker.each(Proxy::pass);
            member.from_senders.each(Proxy::pass);
            member.start(&self.world).await;
        }
        let deadline = Instant::now() + PATIENCE;
        for member in self.members() {
            while !member.is_ready().await {
                if Instant::now() > deadline {
                    panic!("{} does not get well:\n{}", member.url, member.log().await);
                }
                // One that ended by itself, as a supervisor would do.
                member.start(&self.world).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// How often something has panicked since this was asked before.
    pub async fn new_panics(&self) -> u64 {
        let mut all = 0;
        for member in self.members() {
            all += member.panicked().await;
        }
        all - self.panics.swap(all, Ordering::Relaxed)
    }

    /// Rows of a query; `None` where the database does not answer.
    pub async fn query(&self, sql: &str) -> Option<Vec<tokio_postgres::Row>> {
        let client = self.client().await?;
        client.query(sql, &[]).await.ok()
    }

    /// A session of the administrator.
    pub async fn client(&self) -> Option<tokio_postgres::Client> {
        connect(&self.world.database_url).await
    }

    /// Runs statements; whether the database took them.
    pub async fn sql(&self, statements: &str) -> bool {
        match self.client().await {
            Some(client) => client.batch_execute(statements).await.is_ok(),
            None => false,
        }
    }

    /// Whether the database refuses a statement with this code.
    pub async fn is_refused(&self, statement: &str, code: &str) -> bool {
        let Some(client) = self.client().await else {
            return false;
        };
        let refused = client.batch_execute(statement).await.err();
        let told = refused.and_then(|error| Some(error.code()?.code().to_owned()));
        told.as_deref() == Some(code)
    }

    /// Ends all leases: what would take a minute happens now.
    pub async fn expire(&self) -> bool {
        self.sql_at_last(EXPIRE).await
    }

    /// Runs statements that may meet a deadlock: then they are given up, and tried again.
    pub async fn sql_at_last(&self, statements: &str) -> bool {
        for _ in 0..5 {
            if self.sql(statements).await {
                return true;
            }
        }
        false
    }

    /// Whether nothing is under way any more.
    pub async fn is_at_rest(&self) -> bool {
        let rows = self.query(UNDER_WAY).await;
        rows.is_some_and(|rows| rows[0].get::<_, i64>(0) == 0)
    }

    /// What has become signals and runs, by name.
    pub async fn stored(&self, prefix: &str) -> Option<Stored> {
        let names = |rows: Vec<tokio_postgres::Row>| {
            let names = rows.iter().filter_map(|row| {
                let text: String = row.get(0);
                name_in(&text).map(str::to_owned)
            });
            names.collect()
        };
        let of = |column, table| {
            format!(
                "SELECT convert_from({column}, 'UTF8') FROM {table}
                 WHERE position('{prefix}-'::bytea IN {column}) > 0"
            )
        };
        Some(Stored {
            signals: names(self.query(&of("body", "signals")).await?),
            runs: names(self.query(&of("input", "runs")).await?),
        })
    }

    /// Why runs did not succeed, and how many each.
    pub async fn failures(&self, prefix: &str) -> Vec<String> {
        let failures = format!(
            "SELECT concat_ws(' ', count(*), state, coalesce(failure, refused_reason)) FROM runs
             WHERE position('{prefix}-'::bytea IN input) > 0 AND state <> 'succeeded'
             GROUP BY state, coalesce(failure, refused_reason)"
        );
        let rows = self.query(&failures).await.unwrap_or_default();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// When a person first allowed what was submitted under each name.
    pub async fn allowed(&self, prefix: &str) -> Option<HashMap<String, Instant>> {
        let approvals = format!(
            "SELECT approval_id::text, convert_from(input, 'UTF8') FROM approvals JOIN runs r
             USING (workspace_id, run_id)
             WHERE approvals.state = 'approved' AND position('{prefix}-'::bytea IN r.input) > 0"
        );
        let rows = self.query(&approvals).await?;
        let answered = self.answered.lock().unwrap();
        let allowed = rows.iter().filter_map(|row| {
            let (id, input): (String, String) = (row.get(0), row.get(1));
            Some((name_in(&input)?.to_owned(), *answered.get(&id)?))
        });
        Some(allowed.collect())
    }

    /// The requests that runs have sent for names of this prefix.
    pub fn arrivals(&self, prefix: &str) -> Vec<Arrival> {
        of_prefix(&self.arrivals, prefix, |one| &one.name)
    }

    /// Names and ids of the messages that came out.
    pub fn messages(&self, prefix: &str) -> Vec<(String, String)> {
        of_prefix(&self.messages, prefix, |(name, _)| name)
    }

    /// Publishes messages that no worker can read, at the doors in turn.
    pub async fn publish_unreadable(&self, count: usize) {
        for (number, key) in ["webhooks", "forms"].iter().cycle().take(count).enumerate() {
            let properties = lapin::BasicProperties::default();
            let message = letterbox_broker::Message {
                exchange: letterbox_broker::topology::EXCHANGE,
                routing_key: (*key).into(),
                properties: properties.with_message_id(format!("unreadable {number}").into()),
                body: "{}".into(),
            };
            self.world.publish_unclaimed(message).await;
        }
    }

    /// Takes all dead letters away, once there are so many, or no more come; how many differ.
    pub async fn take_dead_letters(&self, expected: usize) -> usize {
        let mut ids = HashSet::new();
        let deadline = Instant::now() + DEAD_LETTERS_WITHIN;
        while ids.len() < expected && Instant::now() < deadline {
            match self.world.take_message(DEAD_LETTERS_QUEUE).await {
                Some(letter) => {
                    let id = letter.properties.message_id().as_ref();
                    ids.extend(id.map(ToString::to_string));
                }
                None => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        while self.world.take_message(DEAD_LETTERS_QUEUE).await.is_some() {}
        ids.len()
    }

    /// What runs, and on what.
    pub async fn versions(&self) -> String {
        let rows = self.query("SHOW server_version").await.unwrap();
        let postgres: String = rows[0].get(0);
        let rabbitmq = self.servers.broker().ctl(&["version"]);
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        format!("PostgreSQL {postgres}, RabbitMQ {rabbitmq}, {cores} cores")
    }
}

/// Those whose names begin with a prefix.
fn of_prefix<T: Clone>(all: &Mutex<Vec<T>>, prefix: &str, name: fn(&T) -> &String) -> Vec<T> {
    let (all, prefix) = (all.lock().unwrap(), format!("{prefix}-"));
    let of_prefix = all.iter().filter(|one| name(one).starts_with(&prefix));
    of_prefix.cloned().collect()
}

async fn new_pair(program: &'static str, world: &World) -> [Member; 2] {
    [
        Member::new(program, world).await,
        Member::new(program, world).await,
    ]
}

/// Webhook, forms and subscription of one workspace.
async fn set_up(world: &World, gateways: &[Member; 2], accounts: &str) -> (Doors, String) {
    gateways[0].start(world).await;
    let first = world.gateway().await;
    let webhook = world.webhook(&first).await;
    let workspace = webhook.address.workspace;
    let subscribe = format!("signal subscribe --workspace {workspace} --queue {QUEUE}");
    world.order_with(&[("AMQP_URL", &world.amqp_url)], subscribe);
    let operator = world.operator().await;
    let user = operator.create_user("prover@example.com", "Prover").await;
    let user = user.unwrap().user_id;
    let owner = letterbox_common::states::MemberRole::Owner;
    world.set_role(workspace, user, owner).await;
    let policy = json!({"rules": [
        {"when": {"account": "asked"}, "decision": "approve"},
        {"when": {"steered_by": "ai.agent"}, "decision": "allow"},
    ], "default": "allow"});
    let policy = policy.to_string();
    operator.set_policy(workspace, &policy).await.unwrap();
    world.connect(workspace, user, "asked", accounts).await;
    let by_grant = AccountSettings {
        token_url: Some(format!("{accounts}{}", tokens::PATH).parse().unwrap()),
        client_id: Some("prover".to_owned()),
        ..AccountSettings::of("crm", accounts.parse().unwrap())
    };
    let secret = AccountSecret::Client(Some(Secret::new(b"prover-secret".to_vec())));
    let connecting = world.connect_with(workspace, user, &by_grant, &secret);
    connecting.await;
    let mut approved = post("approved");
    approved["account"] = json!("asked");
    let actions = [
        (Door::Form, json!([])),
        (Door::Run, json!([post("run")])),
        (Door::Agent, json!([agent()])),
        (Door::Approval, json!([approved])),
    ];
    let direct = gateways.iter().map(|gateway| &gateway.url);
    let through = gateways.iter().map(|gateway| &gateway.from_senders.url);
    let urls: Vec<_> = direct.chain(through).collect();
    let mut forms = HashMap::new();
    for (door, actions) in actions {
        let of_door: &mut Vec<_> = forms.entry(door).or_default();
        let in_a_second = door.pace().map_or(0.0, |pace| 1.0 / pace.as_secs_f64());
        // One more, so that each comes to every gateway.
        for _ in 0..(in_a_second.ceil() as usize * FORMS) | 1 {
            let definition = definition_with(actions.clone());
            let form = world.form_of(&first, workspace, user, &definition).await;
            of_door.push(urls.iter().map(|url| form.behind(url)).collect());
        }
    }
    let doors = Doors {
        webhooks: urls.iter().map(|url| webhook.behind(url)).collect(),
        forms,
        are_harmed: AtomicBool::new(false),
    };
    (doors, user.to_string())
}

/// What runs call: keeps what arrives, and answers as a model and as tools would.
fn script(
    arrivals: Arc<Mutex<Vec<Arrival>>>,
) -> impl Fn(&Received, usize) -> Reply + Send + Sync + 'static {
    let tokens = Tokens::default();
    move |request, _| {
        if request.target == tokens::PATH {
            return tokens.give();
        }
        // Whoever was asked first has an account whose token lasts.
        if request.target != "/approved" && !tokens.take(request) {
            return Reply::With(401, Vec::new(), String::new());
        }
        if request.target == letterbox_tests::CHAT {
            return Reply::With(200, Vec::new(), model(&request.json()));
        }
        if let Some(name) = name_in(&request.body) {
            arrivals.lock().unwrap().push(Arrival {
                path: request.target.clone(),
                key: request.header("idempotency-key").unwrap_or_default().into(),
                name: name.to_owned(),
                at: Instant::now(),
            });
        }
        Reply::With(200, Vec::new(), r#"{"done":true}"#.to_owned())
    }
}

/// Reads the queue of the subscription for good, whatever becomes of the broker.
fn read_messages(url: &str) -> Arc<Mutex<Vec<(String, String)>>> {
    let messages = Arc::<Mutex<Vec<(String, String)>>>::default();
    let (kept, target) = (messages.clone(), url.parse().unwrap());
    tokio::spawn(async move {
        let keep = |message: ReadMessage<'_>| {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            if let Some(name) = name_in(&text(message.body)) {
                let id = message.id.map(text).unwrap_or_default();
                kept.lock().unwrap().push((name.to_owned(), id));
            }
        };
        read_queue(&target, "prove", QUEUE, keep).await
    });
    messages
}

/// Says yes to everything that is asked at the desk, and remembers since when.
async fn approve(approver: Visitor, answered: Arc<Mutex<HashMap<String, Instant>>>) {
    loop {
        // The desk may be away: then a person tries again.
        let _ = answer_all(&approver, &answered).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn answer_all(
    approver: &Visitor,
    answered: &Mutex<HashMap<String, Instant>>,
) -> reqwest::Result<()> {
    const QUESTION: &str = r#"name="question" value=""#;
    let page = approver.try_get("/").await?.error_for_status()?;
    let page = page.text().await?;
    let ids = page.split(QUESTION).skip(1);
    let ids = ids.filter_map(|rest| rest.split('"').next());
    let ids: HashSet<&str> = ids.collect();
    if ids.is_empty() {
        return Ok(());
    }
    let token = form_token_of(&page);
    let mut form = vec![
        ("form_token", token),
        ("answer", "approve"),
        ("reason", "seen"),
    ];
    {
        let mut answered = answered.lock().unwrap();
        for id in ids {
            form.push(("question", id));
            answered.entry(id.to_owned()).or_insert_with(Instant::now);
        }
    }
    approver.try_send("/questions", &form).await?;
    Ok(())
}
