//! The load generator: so many connections, one request at a time on each, for a warm-up and a
//! measurement. What was begun in the measurement counts.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use crate::{client::Client, requests::Requests};

/// How long something is measured.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub warm_up: Duration,
    pub measure: Duration,
}

/// The time in which what begins is measured.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub from: Instant,
    pub until: Instant,
}

impl Window {
    /// The window of a load that begins now.
    pub fn from_now(times: Times) -> Self {
        let from = Instant::now() + times.warm_up;
        Self {
            from,
            until: from + times.measure,
        }
    }
}

/// What is sent, and where to.
#[derive(Clone)]
pub struct Load {
    pub address: String,
    pub connections: usize,
    pub requests: Arc<dyn Requests>,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Measured {
    /// Of the requests that were begun in the window and answered as they should be. Sorted in the
    /// end.
    pub latencies: Vec<Duration>,
    /// How many requests were answered as they should be, those of the warm-up included.
    pub answered: u64,
    /// All other requests, those of the warm-up included, by what happened.
    pub failures: BTreeMap<String, u64>,
}

impl Measured {
    pub fn quantile(&self, q: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        let index = ((self.latencies.len() as f64 * q) as usize).min(last);
        self.latencies.get(index).copied().unwrap_or_default()
    }

    pub fn merge(mut self, other: Self) -> Self {
        self.latencies.extend(other.latencies);
        self.answered += other.answered;
        for (what, times) in other.failures {
            *self.failures.entry(what).or_default() += times;
        }
        self
    }

    fn failed(&mut self, what: String) {
        *self.failures.entry(what).or_default() += 1;
    }
}

/// A load that runs.
pub struct Running(JoinSet<Measured>);

impl Load {
    /// Begins to send, until the end of the window.
    pub fn start(&self, window: Window) -> Running {
        let mut senders = JoinSet::new();
        for _ in 0..self.connections {
            senders.spawn(send(self.clone(), window));
        }
        Running(senders)
    }

    /// Sends until so many requests are answered, by as many connections as there are.
    pub async fn send_each(&self, wanted: u64) -> Measured {
        let mut senders = JoinSet::new();
        let connections = self.connections as u64;
        for number in 0..connections {
            let share = wanted / connections + u64::from(number < wanted % connections);
            senders.spawn(send_some(self.clone(), share));
        }
        let measured = senders.join_all().await.into_iter();
        measured.fold(Measured::default(), Measured::merge)
    }
}

impl Running {
    /// Waits for the last answers.
    pub async fn finish(self) -> Measured {
        let measured = self.0.join_all().await.into_iter();
        let mut all = measured.fold(Measured::default(), Measured::merge);
        all.latencies.sort_unstable();
        all
    }
}

async fn send(load: Load, window: Window) -> Measured {
    let mut sender = Sender::new(load);
    loop {
        let began = Instant::now();
        if began >= window.until {
            return sender.measured;
        }
        if sender.send_one().await && began >= window.from {
            sender.measured.latencies.push(began.elapsed());
        }
    }
}

async fn send_some(load: Load, wanted: u64) -> Measured {
    let mut sender = Sender::new(load);
    for _ in 0..wanted {
        sender.send_one().await;
    }
    sender.measured
}

/// One connection, opened again when it breaks.
struct Sender {
    load: Load,
    client: Option<Client>,
    body: Vec<u8>,
    request: Vec<u8>,
    measured: Measured,
}

impl Sender {
    fn new(load: Load) -> Self {
        Self {
            load,
            client: None,
            body: Vec::new(),
            request: Vec::new(),
            measured: Measured::default(),
        }
    }

    /// Whether the answer was as it should be.
    async fn send_one(&mut self) -> bool {
        let client = match &mut self.client {
            Some(client) => client,
            unconnected => match Client::connect(&self.load.address).await {
                Ok(client) => unconnected.insert(client),
                Err(error) => {
                    self.measured
                        .failed(format!("not connected, {}", error.kind()));
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    return false;
                }
            },
        };
        self.request.clear();
        self.load.requests.write(&mut self.request, &mut self.body);
        match client.exchange(&self.request).await {
            Ok(answer) if self.load.requests.want(answer) => {
                self.measured.answered += 1;
                true
            }
            Ok(answer) => {
                self.measured
                    .failed(format!("other answer, {}", answer.status));
                false
            }
            Err(error) => {
                self.measured.failed(format!("no answer, {}", error.kind()));
                self.client = None;
                false
            }
        }
    }
}
