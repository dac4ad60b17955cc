//! Sends the events, at a steady pace, each until it is acknowledged or given up.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Args;
use parking_lot::Mutex;
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep},
};
use url::Url;

use super::numbers::Numbers;
use crate::{Signer, TrialError, client};

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// How fast, how long, and how often again.
#[derive(Debug, Args, Clone, Copy)]
pub(super) struct Pace {
    /// Events in a second
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// How long to send
    #[arg(long, value_name = "S", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..=7_200))]
    seconds: u32,
    /// Requests under way at once
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(1..=1_024))]
    concurrency: u32,
    /// How often an event is sent that is not acknowledged
    #[arg(long, value_name = "N", default_value_t = 9,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    tries: u32,
}

/// What was sent.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// Every number, and whether it was acknowledged.
    pub(super) events: BTreeMap<u64, bool>,
    /// Requests, those that repeat an event as well.
    pub(super) requests: u64,
    /// The longest time in which nothing was acknowledged.
    pub(super) silence: Duration,
}

impl Sent {
    /// Whether all that was acknowledged is among these.
    pub(super) fn is_all_in(&self, arrived: &[u64]) -> bool {
        let arrived: std::collections::HashSet<_> = arrived.iter().collect();
        let mut acknowledged = self.events.iter().filter(|(_, is)| **is);
        acknowledged.all(|(number, _)| arrived.contains(number))
    }
}

/// State that the requests of one run share.
struct Shared {
    http: reqwest::Client,
    url: Url,
    sent: Mutex<Sent>,
    last: Mutex<Instant>,
}

/// Sends everything, and waits for the last answer.
pub(super) async fn send_all(
    url: &Url,
    signer: &Signer,
    numbers: &Numbers,
    pace: Pace,
) -> Result<Sent, TrialError> {
    let shared = Arc::new(Shared {
        http: client(PATIENCE)?,
        url: url.clone(),
        sent: Mutex::default(),
        last: Mutex::new(Instant::now()),
    });
    let places = Arc::new(Semaphore::new(pace.concurrency as usize));
    let mut ticks = interval(Duration::from_secs(1) / pace.rate);
    // Missed sends are not made up for: that would be a flood.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let began = Instant::now();
    let length = Duration::from_secs(pace.seconds.into());
    let mut sending = JoinSet::new();
    let mut number = 0;
    while began.elapsed() < length {
        ticks.tick().await;
        let Ok(place) = places.clone().acquire_owned().await else {
            break;
        };
        number += 1;
        let name = numbers.name(number);
        let shared = shared.clone();
        let body = format!(r#"{{"type":"letterbox.prove","eventId":"{name}"}}"#);
        let signed = signer.sign(&shared.url, body.as_bytes(), &name)?;
        sending.spawn(async move {
            send(&shared, number, &body, &signed.headers, pace.tries).await;
            drop(place);
        });
        while sending.try_join_next().is_some() {}
    }
    while sending.join_next().await.is_some() {}
    note_silence(&shared);
    let sent = std::mem::take(&mut *shared.sent.lock());
    Ok(sent)
}

async fn send(shared: &Shared, number: u64, body: &str, headers: &[(String, String)], tries: u32) {
    let mut pause = PAUSE;
    let mut is_acknowledged = false;
    for attempt in 0..tries {
        if attempt > 0 {
            sleep(pause).await;
            pause = MAX_PAUSE.min(pause * 2);
        }
        let mut request = shared.http.post(shared.url.clone()).body(body.to_owned());
        request = request.header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        shared.sent.lock().requests += 1;
        let answer = request.send().await.map(|answer| answer.status());
        if answer.is_ok_and(|status| status.is_success()) {
            is_acknowledged = true;
            note_silence(shared);
            break;
        }
    }
    shared.sent.lock().events.insert(number, is_acknowledged);
}

fn note_silence(shared: &Shared) {
    let silence = std::mem::replace(&mut *shared.last.lock(), Instant::now()).elapsed();
    let mut sent = shared.sent.lock();
    sent.silence = sent.silence.max(silence);
}
