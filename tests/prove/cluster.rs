//! What breaks between several servers: nodes that are lost, networks that part them, and a primary
//! whose standby takes over.

use std::time::Duration;

use crate::{
    faults::{Fault, faults, pause},
    network::Network,
    servers::{Servers, answers},
    stack::Stack,
};

/// Long enough for nodes to notice, and to choose other leaders.
const PARTED: Duration = Duration::from_secs(12);
/// Longer than a statement may take.
const WITHOUT_STANDBY: u64 = 8_000;

/// All of them. Of the partitions of RabbitMQ's own suite, halves, random halves and a random node
/// are one among three nodes.
pub static FAULTS: &[Fault] = faults! {
    "RabbitMQ: leader of the queues killed" => kill_leader;
    "RabbitMQ: two of three nodes killed" => kill_majority;
    "RabbitMQ: partition, a random node" =>
        |stack| part(stack, |network| alone(network, fastrand::usize(..3)));
    "RabbitMQ: partition, the leader" => async |stack: &Stack| {
        let Some(leader) = leader(&stack.servers, 0) else { return 0 };
        part(stack, |network| alone(network, leader)).await
    };
    "RabbitMQ: partition, ring" => |stack| part(stack, ring);
    "RabbitMQ: partition, between two nodes" => |stack| part(stack, |network| {
        let one = fastrand::usize(..3);
        cut(network, one, (one + 1) % 3);
    });
    "PostgreSQL: primary killed" => kill_primary;
    "PostgreSQL: standby killed" => kill_standby;
    "PostgreSQL: standby silent, primary killed" => silence_standby;
};

/// Nothing passes between two, either way.
fn cut(network: &Network, one: usize, other: usize) {
    network.block(one, other);
    network.block(other, one);
}

/// One sees nobody, and the others each other.
fn alone(network: &Network, one: usize) {
    cut(network, one, (one + 1) % 3);
    cut(network, one, (one + 2) % 3);
}

/// Each hears one of the others, and no two the same: where answers are needed, all are alone.
fn ring(network: &Network) {
    for host in 0..3 {
        network.block(host, (host + 1) % 3);
    }
}

/// Parts the nodes for a while; how many of them have noticed.
async fn part(stack: &Stack, how: impl FnOnce(&Network)) -> u64 {
    let servers = &stack.servers;
    let Some(network) = &servers.network else {
        return 0;
    };
    how(network);
    tokio::time::sleep(PARTED).await;
    let mut noticed = 0;
    for host in 0..servers.brokers.len() {
        noticed += u64::from(!servers.is_whole(host).await);
    }
    network.pass();
    servers.await_cluster().await;
    noticed
}

fn leader(servers: &Servers, asked: usize) -> Option<usize> {
    servers.leader_of("letterbox.v1.webhooks", asked)
}

async fn kill_leader(stack: &Stack) -> u64 {
    let servers = &stack.servers;
    let Some(former) = leader(servers, 0) else {
        return 0;
    };
    servers.brokers[former].kill();
    pause(6_000).await;
    let is_away = !answers(&servers.brokers[former].url()).await;
    let successor = leader(servers, (former + 1) % 3);
    servers.brokers[former].start_again();
    servers.await_cluster().await;
    (is_away && successor.is_some_and(|one| one != former)).into()
}

/// No queue has a majority any more, until they are back.
async fn kill_majority(stack: &Stack) -> u64 {
    let servers = &stack.servers;
    let lives = fastrand::usize(..3);
    let killed = [(lives + 1) % 3, (lives + 2) % 3];
    for host in killed {
        servers.brokers[host].kill();
    }
    pause(6_000).await;
    let mut away = 0;
    for host in killed {
        away += u64::from(!answers(&servers.brokers[host].url()).await);
    }
    for host in killed {
        servers.brokers[host].start_again();
    }
    servers.await_cluster().await;
    away
}

async fn kill_primary(stack: &Stack) -> u64 {
    let servers = &stack.servers;
    servers.primary().kill();
    pause(500).await;
    let is_taken_over = servers.fail_over().await;
    pause(2_000).await;
    servers.follow_again().await;
    is_taken_over.into()
}

/// Nothing is committed until it is back.
async fn kill_standby(stack: &Stack) -> u64 {
    let servers = &stack.servers;
    servers.standby().kill();
    pause(WITHOUT_STANDBY).await;
    let held_up = servers.held_up().await;
    servers.standby().start_again();
    servers.await_standby().await;
    held_up
}

/// What waits for the standby is only at the primary, which then is lost.
async fn silence_standby(stack: &Stack) -> u64 {
    let servers = &stack.servers;
    servers.standby().freeze();
    pause(WITHOUT_STANDBY).await;
    let held_up = servers.held_up().await;
    servers.primary().kill();
    servers.standby().thaw();
    let is_taken_over = servers.fail_over().await;
    servers.follow_again().await;
    if is_taken_over { held_up } else { 0 }
}
