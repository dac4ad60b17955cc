//! The publisher and its channels, while connections break, the broker blocks, refuses and is
//! silent, callers give up, and the process stops.

use std::{sync::Arc, time::Duration};

use amqp::Event;
use bytes::Bytes;
use common::process::readiness::Readiness;
use shuttle::rand::{Rng, thread_rng};
use shuttle_tokio::{spawn, task::yield_now};
use tokio_util::sync::CancellationToken;

use crate::{
    BasicProperties, BrokerTarget, Message, PublishError, Publisher,
    broker::{Server, dawdle},
    publisher,
    publisher::answers::SILENT_FOR,
    reach, supervise,
    time::Instant,
};

const CALLERS: usize = 3;
const MESSAGES: usize = 2;
/// Longer than anything takes that is not awaited in vain.
const NEVER: Duration = Duration::from_secs(600);
const DEADLINE: Duration = Duration::from_secs(2);

fn message(id: &str) -> Message {
    message_to("webhooks", id)
}

fn message_to(key: &str, id: &str) -> Message {
    Message {
        exchange: "letterbox.v1",
        routing_key: key.to_owned(),
        properties: BasicProperties::default().with_message_id(id.into()),
        body: Bytes::new(),
    }
}

/// What a caller was told holds for its own message.
fn assert_true(server: &Server, id: &str, told: Result<(), PublishError>) {
    reach(told.map_or_else(PublishError::label, |()| "confirmed"));
    let ledger = server.ledger();
    match told {
        Ok(()) => assert!(ledger.acknowledged.contains(id), "{id} is not confirmed"),
        Err(PublishError::Refused) => assert!(ledger.refused.contains(id), "{id} is not refused"),
        Err(PublishError::Unavailable | PublishError::Overloaded) => {
            assert!(!ledger.arrived.contains_key(id), "{id} was sent");
        }
        Err(PublishError::TimedOut | PublishError::Lost) => {}
    }
    let times = ledger.arrived.get(id).copied().unwrap_or_default();
    assert!(times <= 1, "{id} was sent {times} times");
}

/// A publisher on a supervised connection.
struct Owner {
    server: Arc<Server>,
    publisher: Publisher,
    stop: CancellationToken,
    supervising: shuttle_tokio::task::JoinHandle<()>,
}

fn owner(channels: u16, deadline: Duration) -> Owner {
    let (server, stop) = (Arc::<Server>::default(), CancellationToken::new());
    let (publisher, session) = publisher(channels, deadline);
    let uri = server.clone();
    let target = BrokerTarget {
        declares: false,
        uri,
    };
    let component = Readiness::default().component("publisher");
    let supervising = spawn(supervise(target, "test", component, session, stop.clone()));
    Owner {
        server,
        publisher,
        stop,
        supervising,
    }
}

impl Owner {
    async fn open(&self) {
        while !self.publisher.is_open() {
            yield_now().await;
        }
    }

    /// Stops, and leaves no connection open.
    async fn end(self) {
        self.stop.cancel();
        self.supervising.await.unwrap();
        assert_eq!(self.server.open(), 0);
    }
}

/// Several callers publish at once on two channels, some of them give up, connections break, the
/// broker blocks or is away, and the owner is stopped in the middle of it.
pub async fn every_caller_is_told_the_truth_at_once() {
    let owner = owner(2, NEVER);
    owner.open().await;
    let mut callers = Vec::new();
    for caller in 0..CALLERS {
        let (server, publisher) = (owner.server.clone(), owner.publisher.clone());
        callers.push(spawn(async move {
            for number in 0..MESSAGES {
                let id = format!("{caller}-{number}");
                let publishing = publisher.publish(message(&id));
                if thread_rng().gen_ratio(1, 4) {
                    shuttle_tokio::select! {
                        told = publishing => assert_true(&server, &id, told),
                        () = dawdle(8) => reach("given up"),
                    }
                    continue;
                }
                let told = publishing.await;
                assert_ne!(told, Err(PublishError::TimedOut), "{id} has waited in vain");
                assert_true(&server, &id, told);
            }
        }));
    }
    for _ in 0..thread_rng().gen_range(0..3) {
        dawdle(20).await;
        trouble(&owner.server);
    }
    // Nobody has to stop it for everybody to be told.
    let stops_early = thread_rng().gen_bool(0.5);
    if stops_early {
        dawdle(30).await;
        owner.stop.cancel();
    }
    for caller in callers {
        caller.await.unwrap();
    }
    owner.stop.cancel();
    owner.supervising.await.unwrap();
    assert_eq!(owner.server.open(), 0);
    let late = owner.publisher.publish(message("late")).await;
    assert_eq!(late, Err(PublishError::Unavailable));
}

fn trouble(server: &Server) {
    let Some(connection) = server.connection() else {
        return;
    };
    match thread_rng().gen_range(0..3) {
        0 => {
            // It may be away for long.
            server.ledger().refusing = if thread_rng().gen_bool(0.5) {
                0
            } else {
                u32::MAX
            };
            connection.break_off();
        }
        1 => connection.tell(Event::ConnectionBlocked("memory".to_owned())),
        _ => connection.tell(Event::ConnectionUnblocked),
    }
}

/// The broker falls silent and comes back: callers are told so by their deadlines, the connection
/// is given up, the next one is given twice the time, and the one after it publishes again.
pub async fn a_silent_connection_is_given_up() {
    let owner = owner(2, DEADLINE);
    owner.open().await;
    owner.server.ledger().silent = vec!["webhooks"];
    let first = owner.server.ledger().connections();
    let (mut number, mut last_of_first) = (0, Instant::now());
    // What was answered to on a silent connection stays unanswered: only another one helps.
    while owner.server.ledger().connections() < first + 2 {
        number += 1;
        let id = format!("silent-{number}");
        let told = owner.publisher.publish(message(&id)).await;
        assert!(told.is_err(), "{id}");
        assert_true(&owner.server, &id, told);
        let is_first = owner.server.ledger().connections() == first;
        if is_first && told == Err(PublishError::TimedOut) {
            last_of_first = Instant::now();
        }
        yield_now().await;
    }
    assert!(last_of_first.elapsed() >= 2 * SILENT_FOR);
    owner.server.ledger().silent.clear();
    loop {
        number += 1;
        let id = format!("again-{number}");
        let told = owner.publisher.publish(message(&id)).await;
        assert_true(&owner.server, &id, told);
        if told.is_ok() {
            break;
        }
        yield_now().await;
    }
    owner.end().await;
}

/// One queue is silent for long, and another one answers. The connection is given up only if all of
/// this is late: if nothing was answered for as long as nobody may be silent.
pub async fn a_silent_queue_costs_no_connection() {
    let owner = owner(2, DEADLINE);
    owner.open().await;
    owner.server.ledger().silent = vec!["forms"];
    let began = Instant::now();
    // When the last message was sent that was answered.
    let mut sent = began;
    for number in 0.. {
        let now = Instant::now();
        let id = format!("other-{number}");
        let told = owner.publisher.publish(message(&id)).await;
        assert_true(&owner.server, &id, told);
        if matches!(told, Ok(()) | Err(PublishError::Refused)) {
            sent = now;
        }
        let silent = format!("silent-{number}");
        let told = owner.publisher.publish(message_to("forms", &silent)).await;
        assert!(told.is_err(), "{silent}");
        if owner.server.ledger().connections() > 1 {
            assert!(sent.elapsed() >= SILENT_FOR, "{id} was answered");
            break;
        }
        if began.elapsed() > 4 * SILENT_FOR {
            reach("kept");
            break;
        }
    }
    owner.end().await;
}
