//! The supervisor of a connection, whose session fails, is cut off and is stopped at any moment.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use common::process::readiness::{Component, Readiness};
use shuttle::rand::{Rng, thread_rng};
use shuttle_tokio::{select, spawn, task::yield_now};
use tokio_util::sync::CancellationToken;

use crate::{
    BrokerError, BrokerTarget, Connection, Session,
    broker::{Server, dawdle},
    reach, supervise,
};

/// Sessions that have begun, and those that have not ended.
#[derive(Clone, Default)]
struct Sessions {
    begun: Arc<AtomicUsize>,
    running: Arc<AtomicUsize>,
}

impl Session for Sessions {
    async fn run(
        &self,
        _: &Connection,
        component: &Component,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        assert_eq!(self.running.fetch_add(1, SeqCst), 0, "two sessions at once");
        let _ended = Ended(&self.running);
        self.begun.fetch_add(1, SeqCst);
        component.ready();
        let fails = thread_rng().gen_ratio(1, 3);
        let failing = async {
            dawdle(10).await;
            if !fails {
                std::future::pending::<()>().await;
            }
        };
        select! {
            () = failing => { reach("failed"); Err(BrokerError::Ended("as told".to_owned())) }
            () = stop.cancelled() => { reach("stopped"); Ok(()) }
        }
    }

    fn blocked(&self, _: &Component, _: Option<String>) {}
}

/// Counts a session as ended, however it ends.
struct Ended<'a>(&'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// However a session ends, another one begins, on a connection of its own, never two at once; and
/// none after the stop. Nothing says that it is ready meanwhile.
pub async fn what_ends_begins_again_until_it_is_stopped() {
    let (server, stop) = (Arc::<Server>::default(), CancellationToken::new());
    let (sessions, readiness) = (Sessions::default(), Readiness::default());
    server.ledger().refusing = thread_rng().gen_range(0..3);
    let target = BrokerTarget {
        declares: thread_rng().gen_bool(0.5),
        uri: server.clone(),
    };
    let component = readiness.component("sessions");
    assert!(readiness.waiting().contains_key("sessions"));
    let supervising = spawn(supervise(
        target,
        "test",
        component,
        sessions.clone(),
        stop.clone(),
    ));
    let wanted = thread_rng().gen_range(1..4);
    while sessions.begun.load(SeqCst) < wanted {
        yield_now().await;
        if server.is_asked() {
            assert!(
                !readiness.waiting().is_empty(),
                "ready without a connection"
            );
        }
        if sessions.running.load(SeqCst) == 1 && thread_rng().gen_ratio(1, 8) {
            reach("cut off");
            server.connection().expect("it has one").break_off();
        }
    }
    dawdle(20).await;
    stop.cancel();
    supervising.await.unwrap();
    assert_eq!(sessions.running.load(SeqCst), 0);
    assert_eq!(server.open(), 0, "a connection was left open");
    let begun = sessions.begun.load(SeqCst);
    dawdle(20).await;
    assert_eq!(
        sessions.begun.load(SeqCst),
        begun,
        "one begins after the stop"
    );
}
