//! The servers that everything runs on: one RabbitMQ and one PostgreSQL; or a cluster of three
//! nodes, and a primary with a synchronous standby.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use letterbox_database::{Role, connect_once};
use letterbox_tests::{PrivateBroker, PrivateDatabase, PrivateServer, folder};
use tokio_postgres::Client;

use crate::{
    clock::Clock,
    disk::Disk,
    network::{self, Network},
};

/// How long a cluster may take to be whole, and a standby to follow.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(300);
const NODES: usize = 3;
/// Nodes notice within these seconds that another one is silent.
const TICKS: &str = "-kernel net_ticktime 5";
/// Nothing is committed before the standby has it.
const SYNCHRONOUS: [&str; 2] = [
    "ALTER SYSTEM SET synchronous_standby_names = '*'",
    "SELECT pg_reload_conf()",
];
const ALONE: [&str; 2] = [
    "ALTER SYSTEM RESET synchronous_standby_names",
    "SELECT pg_reload_conf()",
];
const IS_FOLLOWED: &str = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";

/// All servers.
pub struct Servers {
    pub brokers: Vec<PrivateBroker>,
    pub databases: Vec<PrivateDatabase>,
    /// Which of the databases is written to.
    primary: AtomicUsize,
    /// After the brokers, whose network it is.
    pub network: Option<Network>,
    pub disk: Disk,
    pub clock: Clock,
}

impl Servers {
    /// One of each kind, the database on a disk of so many MiB.
    pub fn alone(disk: u32) -> Self {
        Self::with(vec![PrivateBroker::start("")], None, 1, disk)
    }

    /// Three nodes in namespaces of their own, and two databases.
    pub async fn cluster(disk: u32) -> Self {
        let network = Network::new(NODES);
        let mut brokers: Vec<PrivateBroker> = Vec::new();
        for host in 0..NODES {
            let node = node(host, brokers.first());
            brokers.push(node);
        }
        let servers = Self::with(brokers, Some(network), 2, disk);
        servers.await_cluster().await;
        // The queues were declared when the first node was alone.
        for host in 1..NODES {
            let node = format!("letterbox@{}", network::address(host));
            let grow = ["grow", &node, "all", "--queue-pattern", "^letterbox"];
            servers.broker().queues(&grow);
        }
        servers.databases[1].follow(&servers.databases[0]);
        servers.await_standby().await;
        servers
    }

    fn with(
        brokers: Vec<PrivateBroker>,
        network: Option<Network>,
        databases: usize,
        disk: u32,
    ) -> Self {
        let (disk, clock) = (Disk::new(disk), Clock::new());
        let environment = clock.environment();
        let environment = borrowed(&environment);
        let databases =
            (0..databases).map(|_| PrivateDatabase::start_in(&disk.folder, &environment));
        Self {
            brokers,
            databases: databases.collect(),
            primary: AtomicUsize::new(0),
            network,
            disk,
            clock,
        }
    }

    /// The URLs of all nodes.
    pub fn amqp_url(&self) -> String {
        let urls: Vec<_> = self.brokers.iter().map(|broker| broker.url()).collect();
        urls.join(",")
    }

    /// The URL of whichever database may be written to.
    pub fn database_url(&self) -> String {
        let urls: Vec<_> = self.databases.iter().map(|one| one.url()).collect();
        let [first, others @ ..] = &urls[..] else {
            unreachable!("there is one")
        };
        if others.is_empty() {
            return first.clone();
        }
        let host = |url: &String| url.split(['@', '/']).nth(3).unwrap().to_owned();
        let hosts: Vec<_> = urls.iter().map(host).collect();
        let both = first.replace(&hosts[0], &hosts.join(","));
        format!("{both}?target_session_attrs=read-write")
    }

    /// The only broker, or the first one.
    pub fn broker(&self) -> &PrivateBroker {
        &self.brokers[0]
    }

    /// The database that may be written to.
    pub fn primary(&self) -> &PrivateDatabase {
        &self.databases[self.primary.load(Ordering::Relaxed)]
    }

    /// The other one.
    pub fn standby(&self) -> &PrivateDatabase {
        &self.databases[1 - self.primary.load(Ordering::Relaxed)]
    }

    /// Which node leads a queue; `None` when the node that is asked does not know.
    pub fn leader_of(&self, queue: &str, asked: usize) -> Option<usize> {
        let listing = ["list_queues", "--no-table-headers", "name", "leader"];
        let leaders = self.brokers[asked].try_ctl(&listing)?;
        let leader = leaders.lines().find_map(|line| line.strip_prefix(queue))?;
        (0..NODES).find(|host| leader.trim().ends_with(&network::address(*host)))
    }

    /// Whether a node takes connections and sees all others.
    pub async fn is_whole(&self, host: usize) -> bool {
        answers(&self.brokers[host].url()).await
            && self.brokers[host]
                .try_ctl(&["eval", "length(rabbit_nodes:all_running())."])
                .is_some_and(|count| count == NODES.to_string())
    }

    /// # Panics
    /// When the nodes do not find each other.
    pub async fn await_cluster(&self) {
        let deadline = Instant::now() + PATIENCE;
        for host in 0..NODES {
            while !self.is_whole(host).await {
                assert!(Instant::now() < deadline, "node {host} is alone");
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }

    /// The standby takes over from a primary that is away for good; whether it has.
    pub async fn fail_over(&self) -> bool {
        let successor = self.standby();
        // Who is left alone waits for nobody.
        let orders = ["SELECT pg_promote()", ALONE[0], ALONE[1]];
        let is_promoted = execute(successor, &orders).await
            && count(successor, "SELECT count(*) WHERE NOT pg_is_in_recovery()").await == Some(1);
        if is_promoted {
            self.primary.fetch_xor(1, Ordering::Relaxed);
        }
        is_promoted
    }

    /// How many at the primary wait for the standby.
    pub async fn held_up(&self) -> u64 {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        let waiting = count(self.primary(), waiting).await;
        waiting.unwrap_or_default().unsigned_abs()
    }

    /// Makes a standby of what was a primary.
    pub async fn follow_again(&self) {
        self.standby().follow(self.primary());
        self.await_standby().await;
    }

    /// # Panics
    /// When there is no standby.
    pub async fn await_standby(&self) {
        assert!(execute(self.primary(), &SYNCHRONOUS).await);
        let deadline = Instant::now() + PATIENCE;
        while count(self.primary(), IS_FOLLOWED).await != Some(1) {
            assert!(Instant::now() < deadline, "no standby follows");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// A node, which joins the cluster of `first`.
fn node(host: usize, first: Option<&PrivateBroker>) -> PrivateBroker {
    // The first one waits for nobody.
    let members = [0, host].map(|member| {
        let (number, address) = (member + 1, network::address(member));
        format!("cluster_formation.classic_config.nodes.{number} = letterbox@{address}\n")
    });
    let members = if host > 0 {
        members.concat()
    } else {
        String::new()
    };
    let settings = format!(
        "cluster_formation.peer_discovery_backend = classic_config
{members}cluster_partition_handling = pause_minority"
    );
    let peer = first.map_or_else(String::new, |first| {
        first.folder.to_string_lossy().into_owned()
    });
    let environment = [
        ("LETTERBOX_NETNS", network::name(host)),
        ("LETTERBOX_RABBITMQ_HOST", network::address(host)),
        ("LETTERBOX_RABBITMQ_PEER", peer),
        ("LETTERBOX_RABBITMQ_KERNEL", TICKS.to_owned()),
        ("LETTERBOX_RABBITMQ_SETTINGS", settings),
    ];
    PrivateBroker::start_in(&folder(), &borrowed(&environment))
}

fn borrowed<'a>(environment: &'a [(&'a str, String)]) -> Vec<(&'a str, &'a str)> {
    let pairs = environment.iter();
    pairs.map(|(name, value)| (*name, &**value)).collect()
}

/// Whether a server takes connections.
pub async fn answers(url: &str) -> bool {
    let url: url::Url = url.parse().unwrap();
    let address = (url.host_str().unwrap(), url.port().unwrap());
    let connecting = tokio::net::TcpStream::connect(address);
    let within = tokio::time::timeout(Duration::from_secs(2), connecting);
    matches!(within.await, Ok(Ok(_)))
}

/// A session of the administrator; `None` where the database does not answer.
pub async fn connect(url: &str) -> Option<Client> {
    let target = url.parse().unwrap();
    connect_once(&target, Role::Login, "prove").await.ok()
}

/// Runs statements at one server, whichever it is now; whether it took them.
async fn execute(server: &PrivateServer, statements: &[&str]) -> bool {
    let Some(client) = connect(&server.url()).await else {
        return false;
    };
    for statement in statements {
        if client.batch_execute(statement).await.is_err() {
            return false;
        }
    }
    true
}

/// What a query at one server counts; `None` where it does not answer.
async fn count(server: &PrivateServer, query: &str) -> Option<i64> {
    let client = connect(&server.url()).await?;
    Some(client.query_one(query, &[]).await.ok()?.get(0))
}
