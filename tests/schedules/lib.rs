//! Concurrent parts of the services in random schedules of their tasks (shuttle). What is compiled
//! here are the very files of the services; what they import is shuttle's tokio, and a broker and
//! a database that are a few lines each, because sockets can't be scheduled.

extern crate lapin as amqp;
extern crate letterbox_common as common;
extern crate self as async_rs;
extern crate self as lapin;
extern crate self as letterbox_common;
extern crate self as letterbox_database;
extern crate self as tokio;
extern crate shuttle_tokio_util as tokio_util;

mod broker;
mod database;
mod intake;
pub mod intake_runs;
pub mod publisher_runs;
pub mod supervisor_runs;
pub mod time;

#[allow(dead_code, unused_imports, reason = "look-ups are not used")]
#[path = "../../common/src/batcher/mod.rs"]
mod batcher;
#[path = "../../common/broker/src/metrics.rs"]
mod broker_metrics;
#[allow(dead_code, reason = "what needs no broker is not used")]
#[path = "../../common/broker/src/connection.rs"]
mod connection;
#[allow(dead_code, reason = "nobody asks here why there was an error")]
#[path = "../../common/broker/src/error.rs"]
mod error;
#[allow(dead_code, reason = "a process has more")]
#[path = "../../common/src/metrics.rs"]
mod process_metrics;
#[allow(
    dead_code,
    reason = "whoever waits for a connection is no subject here"
)]
#[path = "../../common/broker/src/publisher/mod.rs"]
mod publisher;

#[path = "../../gateway/src/acceptance/group.rs"]
mod group;
#[path = "../../gateway/src/acceptance/item.rs"]
mod item;
#[path = "../../gateway/src/acceptance/lane.rs"]
mod lane;
#[allow(dead_code, unreachable_pub, reason = "as the gateway has it")]
#[path = "../../gateway/src/open_batches/settlements.rs"]
mod settlements;
#[allow(dead_code, reason = "a batcher starts its tasks itself")]
#[path = "../../common/src/process/vital.rs"]
mod vital;

mod metrics {
    pub(crate) use crate::{broker_metrics::*, process_metrics::*};
}

mod process {
    pub(crate) use crate::vital;
    pub(crate) use common::process::readiness;
}

/// As `letterbox_common` has it; by the same name there is a module, too.
macro_rules! declare_metrics {
    ($($metrics:tt)*) => { common::metrics! { $($metrics)* } };
}

// What the files import of `tokio`, `lapin`, `async_rs` and the crates of the services.
use amqp::{BasicProperties, ConnectionProperties, Error, ErrorKind, Event, Result};
use amqp::{Confirmation, options, protocol};
use broker::{Channel, Connection, PublisherConfirm};
use common::{fail_point, ids};
use connection::{Session, supervise};
use database::{Database, DatabaseError, divide};
use declare_metrics as metrics;
use error::BrokerError;
use intake::{claims, open_batches, work_queues};
use letterbox_broker::Message;
use open_batches::{BatchId, store};
use publisher::{PublishError, Publisher, publisher};
use shuttle_tokio::{join, select, sync, task};

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

thread_local! {
    /// What the schedules of a scenario have come to: they all run on one thread.
    static REACHED: RefCell<BTreeMap<&'static str, usize>> = RefCell::default();
}

/// Notes what a schedule has come to.
fn reach(what: &'static str) {
    REACHED.with_borrow_mut(|reached| *reached.entry(what).or_default() += 1);
}

/// Runs a scenario in many schedules, which must come to all of `expected`. One that fails is
/// printed, with the seed that repeats it.
pub fn check<S, F>(schedules: usize, scenario: S, expected: &[&str])
where
    S: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    // Nobody waits for ever.
    config.max_steps = shuttle::MaxSteps::FailAfter(200_000);
    let scheduler = shuttle::scheduler::RandomScheduler::new(schedules);
    let runner = shuttle::Runner::new(scheduler, config);
    let run = runner.run(move || {
        // Pauses are jittered, and a seed is to repeat them, too.
        fastrand::seed(0);
        shuttle::future::block_on(time::passing(scenario()));
    });
    let reached = REACHED.take();
    println!("{run} schedules: {reached:?}");
    assert_eq!(run, schedules);
    for what in expected {
        assert!(reached.contains_key(what), "no schedule comes to {what:?}");
    }
}

/// The runtime of lapin, which needs none here.
struct Runtime;

impl Runtime {
    fn tokio_current() -> Self {
        Self
    }
}

/// Where the broker is.
#[derive(Clone)]
pub(crate) struct BrokerTarget {
    declares: bool,
    uri: Arc<broker::Server>,
}

impl BrokerTarget {
    fn node(&self, _: usize) -> &Self {
        self
    }

    fn nodes(&self) -> usize {
        1
    }

    fn tls(&self) {}
}

mod topology {
    //! The topology is there.
    use crate::{BrokerError, broker::Connection};

    pub(crate) struct QueueLength;

    pub(crate) struct WorkQueue;

    pub(crate) fn work_queues(_: u16) -> [WorkQueue; 1] {
        [WorkQueue]
    }

    pub(crate) async fn declare_on(_: &Connection, _: &[WorkQueue]) -> Result<(), BrokerError> {
        Ok(())
    }

    pub(crate) async fn find_on(_: &Connection) -> Result<(), BrokerError> {
        Ok(())
    }

    pub(crate) async fn lengths_on(
        _: &Connection,
        _: u16,
    ) -> Result<Vec<QueueLength>, BrokerError> {
        Ok(Vec::new())
    }
}
