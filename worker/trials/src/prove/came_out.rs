//! The events that came out: posted to an address, in a queue, or in a file.

use std::{collections::HashSet, net::SocketAddr, path::PathBuf, sync::Arc};

use clap::Args;
use letterbox_broker::{BrokerTarget, ReadMessage, has_queue, read_queue};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::numbers::Numbers;
use crate::{
    TrialError,
    receive::{OK, serve},
};

/// How the connection that reads a queue is called.
const NAME: &str = "letterbox prove";

/// The numbers that have come out, in their order.
#[derive(Clone)]
pub(super) struct CameOut {
    numbers: Numbers,
    /// Whether messages with one id are one.
    same_by_id: bool,
    arrivals: Arc<Mutex<Vec<u64>>>,
    /// The ids of the messages that were read.
    read: Arc<Mutex<HashSet<Vec<u8>>>>,
}

impl CameOut {
    pub(super) fn of(numbers: &Numbers, same_by_id: bool) -> Self {
        Self {
            same_by_id,
            numbers: numbers.clone(),
            arrivals: Arc::default(),
            read: Arc::default(),
        }
    }

    pub(super) fn arrivals(&self) -> Vec<u64> {
        self.arrivals.lock().clone()
    }

    fn note(&self, text: &str) {
        self.arrivals.lock().extend(self.numbers.found_in(text));
    }

    /// Notes a message, unless it is one that comes again because its acknowledgement was lost.
    fn note_message(&self, message: &ReadMessage<'_>) {
        let id = message.id.unwrap_or(message.body).to_vec();
        let is_new = self.read.lock().insert(id);
        if is_new || !(message.is_again || self.same_by_id) {
            self.note(&String::from_utf8_lossy(message.body));
        }
    }
}

/// Where it is seen what came out.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct CameOutFrom {
    /// Listen on this address: what the intake posts there has come out
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Read this queue of AMQP_URL, and take its messages out
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Read this file, in which each line is an event that has come out
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Where it is looked.
pub(super) enum Source {
    /// It comes by itself.
    Comes,
    /// This is read again and again.
    File(PathBuf),
}

impl Source {
    /// Begins to look.
    pub(super) async fn open(from: CameOutFrom, came_out: &CameOut) -> Result<Self, TrialError> {
        if let Some(address) = from.listen {
            let bound = TcpListener::bind(address).await;
            let listener = bound.map_err(|error| TrialError::Receive(address, error))?;
            let came_out = came_out.clone();
            tokio::spawn(serve(listener, move |_, body| {
                came_out.note(&String::from_utf8_lossy(&body?));
                Some(OK)
            }));
        }
        if let Some(queue) = from.queue {
            let target = BrokerTarget::from_environment()?;
            let came_out = came_out.clone();
            if !has_queue(&target, NAME, &queue).await? {
                return Err(TrialError::NoQueue(queue));
            }
            tokio::spawn(async move {
                read_queue(&target, NAME, &queue, |message| {
                    came_out.note_message(&message)
                })
                .await;
            });
        }
        Ok(from.file.map_or(Self::Comes, Self::File))
    }

    /// Reads again what does not come by itself.
    pub(super) fn look_again(&self, came_out: &CameOut) -> Result<(), TrialError> {
        if let Self::File(path) = self {
            let read = std::fs::read(path);
            let bytes = read.map_err(|cause| TrialError::File(path.clone(), cause))?;
            let text = String::from_utf8_lossy(&bytes);
            came_out.arrivals.lock().clear();
            // The last line may not be whole yet.
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            whole.lines().for_each(|line| came_out.note(line));
        }
        Ok(())
    }
}
