//! A world: one test's database and virtual host, with an operator's and an observer's view of
//! them.

use std::{
    sync::{LazyLock, mpsc},
    time::Duration,
};

use letterbox_broker::declare;
use letterbox_common::{Token, ids::UserId};
use letterbox_database::{Database, DatabaseSettings, Role, connect_once};
use letterbox_operator::{Operator, Orderer, migrate};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::{
    Form, Process, Proxy, Servers, Webhook, http_client,
    marks::{mark, mark_password},
};

const TEMPLATE: &str = "letterbox_template";
/// What opens webhook secrets, and nothing else.
const WEBHOOK_KEYS: &str = "test:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
/// What opens credentials, and nothing else.
const ACCOUNT_KEYS: &str = "test:1f1e1d1c1b1a191817161514131211100f0e0d0c0b0a09080706050403020100";
/// From where people sign in.
const ADDRESS: &str = "192.0.2.7";
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// Everything that one test needs.
pub struct World {
    pub database_url: String,
    pub amqp_url: String,
    /// For gateways and for workers.
    pub process_amqp_urls: [String; 2],
    pub webhook_keys: String,
    pub account_keys: String,
    /// The database under the login that owns it: sees everything.
    pub database: tokio_postgres::Client,
    _over: Option<Over>,
}

/// Removes its database and its virtual host from the shared servers when the world is over.
struct Over(String);

impl Drop for Over {
    fn drop(&mut self) {
        // Beside the tests, one after the other: each waits for a checkpoint.
        static REMOVING: LazyLock<mpsc::Sender<String>> = LazyLock::new(|| {
            let (sender, receiver) = mpsc::channel();
            std::thread::spawn(move || remove_worlds(&receiver));
            sender
        });
        let _ = REMOVING.send(std::mem::take(&mut self.0));
    }
}

fn remove_worlds(names: &mpsc::Receiver<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let servers = Servers::shared();
        let admin = connect(&servers.database_url).await;
        for name in names {
            let order = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
            let _ = admin.batch_execute(&order).await;
            // The broker works for each queue that it has, whether or not anything is in it.
            let vhost = format!("{}api/vhosts/{name}", servers.dashboard_url);
            match http_client().delete(vhost).send().await {
                Ok(answer) if answer.status().is_success() => {}
                refused => eprintln!("a virtual host is left: {refused:?}"),
            }
        }
    });
}

impl World {
    /// A database with the schema and an empty virtual host.
    pub async fn new() -> Self {
        let servers = Servers::shared();
        migrate_template(servers).await;
        Self::made_of(TEMPLATE).await
    }

    /// A world with a gateway that is ready.
    pub async fn with_gateway() -> (Self, Process) {
        let world = Self::new().await;
        let gateway = world.gateway().await;
        (world, gateway)
    }

    /// A world with a gateway that reaches the broker through a proxy.
    pub async fn with_broker_proxy(settings: &[(&str, &str)]) -> (Self, Proxy, Process) {
        let world = Self::new().await;
        let broker = Proxy::before(&world.amqp_url).await;
        let through = [("AMQP_URL", broker.url.as_str())];
        let gateway = world.gateway_with(&[settings, &through].concat()).await;
        (world, broker, gateway)
    }

    /// A world with a gateway and a worker that are ready.
    pub async fn with_both() -> (Self, Process, Process) {
        let (world, gateway) = Self::with_gateway().await;
        let worker = world.worker().await;
        (world, gateway, worker)
    }

    /// A world with a gateway that is ready, and a webhook there.
    pub async fn with_webhook() -> (Self, Process, Webhook) {
        let (world, gateway) = Self::with_gateway().await;
        let webhook = world.webhook(&gateway).await;
        (world, gateway, webhook)
    }

    /// The same with a worker, which records what is sent.
    pub async fn with_recorded_webhook() -> (Self, Process, Process, Webhook) {
        let (world, gateway, webhook) = Self::with_webhook().await;
        let worker = world.worker().await;
        (world, gateway, worker, webhook)
    }

    /// A world with a gateway that is ready, and a form there.
    pub async fn with_form() -> (Self, Process, Form) {
        let (world, gateway) = Self::with_gateway().await;
        let form = world.form(&gateway).await;
        (world, gateway, form)
    }

    /// The same with a worker, which records what is submitted.
    pub async fn with_recorded_form() -> (Self, Process, Process, Form) {
        let (world, gateway, form) = Self::with_form().await;
        let worker = world.worker().await;
        (world, gateway, worker, form)
    }

    /// A database without a schema, and an empty virtual host.
    pub async fn without_schema() -> Self {
        Self::made_of("template0").await
    }

    async fn made_of(template: &str) -> Self {
        let servers = Servers::shared();
        let name = format!("t{}", Uuid::new_v4().simple());
        let database_url = create_database(servers, &name, template).await;
        let amqp_url = create_vhost(servers, &name).await;
        let for_vhost = |url: &String| url.replace("%2f", &name);
        let mut world = Self::on(database_url, amqp_url).await;
        world._over = Some(Over(name.clone()));
        world.process_amqp_urls = servers.process_amqp_urls.each_ref().map(for_vhost);
        for url in &world.process_amqp_urls {
            mark_password(url);
        }
        world
    }

    /// A world on given servers, whose schema is there, under one login for all processes.
    pub async fn on(database_url: String, amqp_url: String) -> Self {
        let database = connect(&database_url).await;
        for url in [&database_url, &amqp_url] {
            mark_password(url);
        }
        for keys in [WEBHOOK_KEYS, ACCOUNT_KEYS] {
            mark(keys);
        }
        let declaring = amqp_url.parse().unwrap();
        // Beside other tests a broker can take longer for a new vhost than a process would wait.
        eventually("the broker has declared its queues", async || {
            declare(&declaring, "test").await.is_ok()
        })
        .await;
        Self {
            database_url,
            process_amqp_urls: [amqp_url.clone(), amqp_url.clone()],
            amqp_url,
            webhook_keys: WEBHOOK_KEYS.into(),
            account_keys: ACCOUNT_KEYS.into(),
            database,
            _over: None,
        }
    }

    /// The same database, with another broker under one login for all processes.
    pub async fn with_broker(mut self, amqp_url: String) -> Self {
        let over = self._over.take();
        let mut world = Self::on(self.database_url, amqp_url).await;
        world._over = over;
        world
    }

    /// Another connection to the database, under a role.
    pub async fn session(&self, role: Role) -> tokio_postgres::Client {
        connect_once(&self.database_url.parse().unwrap(), role, "test")
            .await
            .unwrap()
    }

    pub async fn operator(&self) -> Operator {
        Operator::connect(&self.database_url.parse().unwrap())
            .await
            .unwrap()
    }

    /// An operator whose orders somebody answers for.
    pub async fn operator_as(&self, orderer: Orderer) -> Operator {
        Operator::connect_as(&self.database_url.parse().unwrap(), orderer)
            .await
            .unwrap()
    }

    /// The rights of people, as the desk has them.
    pub fn desk(&self) -> Database {
        let target = self.database_url.parse().unwrap();
        Database::new(&target, &DatabaseSettings::SINGLE, Role::Desk, "test").unwrap()
    }

    /// A session of a user at the desk.
    async fn session_of(&self, user: UserId) -> Token {
        let link = self.operator().await.make_sign_in_link(user).await;
        let token = link.unwrap().token;
        let session = Operator::begin_session(&self.desk(), &token, ADDRESS.into()).await;
        session.unwrap().expect("the link is new")
    }

    /// A user, signed in.
    pub async fn person(&self, user: UserId) -> Operator {
        let (session, desk) = (self.session_of(user).await, self.desk());
        let person = Operator::in_session(&desk, &session, ADDRESS.into(), Orderer::default());
        person.await.unwrap().expect("the session lives")
    }

    /// A connection of the desk, on which a user is signed in and anything can be said.
    pub async fn desk_of(&self, user: UserId) -> tokio_postgres::Client {
        let session = hex::encode(self.session_of(user).await.hash());
        let desk = self.session(Role::Desk).await;
        let naming = format!("SET letterbox.session = '{session}'");
        desk.batch_execute(&naming).await.unwrap();
        desk
    }

    /// The URL of the database under a login that is a person's, and the login, which is `role`'s
    /// and outlives the world.
    pub async fn login_in(&self, role: &str) -> (String, String) {
        let login = format!("person_{}", Uuid::new_v4().simple());
        let create = format!("CREATE ROLE {login} LOGIN PASSWORD 'x' IN ROLE {role}");
        self.change(&create).await;
        let mut url: url::Url = self.database_url.parse().unwrap();
        url.set_username(&login).unwrap();
        url.set_password(Some("x")).unwrap();
        (url.into(), login)
    }

    /// A gateway that is ready.
    pub async fn gateway(&self) -> Process {
        self.gateway_with(&[]).await
    }

    /// A gateway that is ready, with settings beside or instead of the usual ones.
    pub async fn gateway_with(&self, settings: &[(&str, &str)]) -> Process {
        let process = self.start("letterbox-gateway", settings);
        process.await_ready().await;
        process
    }

    /// A worker that is ready.
    pub async fn worker(&self) -> Process {
        self.worker_with(&[]).await
    }

    pub async fn worker_with(&self, settings: &[(&str, &str)]) -> Process {
        let process = self.start("letterbox-worker", settings);
        process.await_ready().await;
        process
    }

    /// A process that may not get ready.
    pub fn start(&self, program: &str, settings: &[(&str, &str)]) -> Process {
        let mut all = vec![
            ("DATABASE_URL", self.database_url.as_str()),
            match program.ends_with("letterbox-gateway") {
                true => ("AMQP_URL", self.process_amqp_urls[0].as_str()),
                false => ("AMQP_URL", &self.process_amqp_urls[1]),
            },
            match program.ends_with("letterbox-gateway") {
                true => ("LETTERBOX_WEBHOOK_KEYS", &self.webhook_keys),
                false => ("LETTERBOX_ACCOUNT_KEYS", &self.account_keys),
            },
            ("LETTERBOX_LISTEN", "127.0.0.1:0"),
            ("LETTERBOX_DESK_LISTEN", "127.0.0.1:0"),
            ("LETTERBOX_ADMIN_LISTEN", "127.0.0.1:0"),
            ("LETTERBOX_TRUSTED_PROXIES", "127.0.0.1"),
            ("LETTERBOX_EGRESS_ALLOW", "127.0.0.1"),
            ("LETTERBOX_RETRY_MILLISECONDS", "50"),
            ("LETTERBOX_LOG", "trace"),
        ];
        all.extend(settings);
        Process::start(program, &all)
    }
}

/// Waits until something holds; panics when it does not come true.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds().await {
        assert!(
            tokio::time::Instant::now() < deadline,
            "waited in vain: {what}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn connect(url: &str) -> tokio_postgres::Client {
    connect_once(&url.parse().unwrap(), Role::Login, "test")
        .await
        .unwrap()
}

/// The address of another database on the same server.
fn sibling(servers: &Servers, name: &str) -> String {
    servers
        .database_url
        .replace("/letterbox", &format!("/{name}"))
        .replacen(&format!("/{name}:"), "/letterbox:", 1)
}

/// The database that all others are copies of: migrated once.
async fn migrate_template(servers: &Servers) {
    static MIGRATED: OnceCell<()> = OnceCell::const_new();
    let admin = connect(&servers.database_url).await;
    MIGRATED
        .get_or_init(async || {
            admin
                .batch_execute(&format!("CREATE DATABASE {TEMPLATE}"))
                .await
                .unwrap();
            let target = sibling(servers, TEMPLATE).parse().unwrap();
            migrate(&target).await.unwrap();
            let gone =
                format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{TEMPLATE}'");
            eventually("the template is free", async || {
                admin.query_one(&gone, &[]).await.unwrap().get::<_, i64>(0) == 0
            })
            .await;
        })
        .await;
}

async fn create_database(servers: &Servers, name: &str, template: &str) -> String {
    let admin = connect(&servers.database_url).await;
    // By file: through the log, block by block, takes eight times as long.
    let copy = format!("CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy");
    admin.batch_execute(&copy).await.unwrap();
    sibling(servers, name)
}

/// A virtual host in which gateways and workers have the rights that deploy/rabbitmq gives them.
async fn create_vhost(servers: &Servers, name: &str) -> String {
    put(servers, &format!("vhosts/{name}"), "{}".to_owned()).await;
    let definitions: serde_json::Value =
        serde_json::from_str(include_str!("../../deploy/rabbitmq/definitions.json")).unwrap();
    for permission in definitions["permissions"].as_array().unwrap() {
        let user = permission["user"].as_str().unwrap();
        let path = format!("permissions/{name}/{user}");
        put(servers, &path, permission.to_string()).await;
    }
    servers.amqp_url.replace("%2f", name)
}

async fn put(servers: &Servers, path: &str, body: String) {
    let url = format!("{}api/{path}", servers.dashboard_url);
    let request = http_client()
        .put(url)
        .header("content-type", "application/json");
    let answer = request.body(body).send().await.unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
}
