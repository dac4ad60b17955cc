//! Senders and submitters at every door, at a steady pace, until they are told to stop. Each tries
//! a few times, at one gateway after the other, as a balancer would.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use letterbox_tests::{Form, Webhook};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::doors::{Door, Sent};

/// How often something is sent, and how long an answer may take.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(8);

/// Where things are sent: each door at each gateway, and then at each through its proxy.
pub struct Doors {
    pub webhooks: Vec<Webhook>,
    /// Of each door several forms.
    pub forms: HashMap<Door, Vec<Vec<Form>>>,
    /// Whether senders go through the proxies.
    pub are_harmed: AtomicBool,
}

impl Doors {
    /// One after the other, of those that are gone through now.
    fn at<'a, T>(&self, places: &'a [T], number: usize) -> &'a T {
        let (direct, through) = places.split_at(places.len() / 2);
        let places = if self.are_harmed.load(Relaxed) {
            through
        } else {
            direct
        };
        &places[number % places.len()]
    }
}

/// What was sent so far.
#[derive(Default)]
struct Record {
    sent: Mutex<HashMap<Door, Sent>>,
    accepted: Mutex<Vec<Instant>>,
    /// How requests ended that a gateway has taken, and did not accept.
    refused: Mutex<Vec<String>>,
}

/// The load of one trial.
pub struct Load {
    stop: CancellationToken,
    senders: TaskTracker,
    record: Arc<Record>,
    began: Instant,
}

/// What a load has come to.
pub struct Outcome {
    pub sent: HashMap<Door, Sent>,
    /// The longest time without an accepted request.
    pub silence: Duration,
    /// How requests ended that a gateway has taken, and did not accept.
    pub refused: Vec<String>,
}

impl Load {
    /// Begins to send things whose names begin with `prefix`.
    pub fn start(doors: &Arc<Doors>, prefix: &str) -> Self {
        let load = Self {
            stop: CancellationToken::new(),
            senders: TaskTracker::new(),
            record: Arc::default(),
            began: Instant::now(),
        };
        for door in Door::ALL {
            let Some(every) = door.pace() else { continue };
            let (doors, prefix) = (doors.clone(), prefix.to_owned());
            let (record, senders, stop) =
                (load.record.clone(), load.senders.clone(), load.stop.clone());
            load.senders.spawn(async move {
                let mut ticks = tokio::time::interval(every);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                for number in 0.. {
                    if stop.run_until_cancelled(ticks.tick()).await.is_none() {
                        return;
                    }
                    let name = format!("{prefix}-{}-{number}", door.name());
                    let (doors, record) = (doors.clone(), record.clone());
                    senders.spawn(send(doors, *door, name, number, record));
                }
            });
        }
        load
    }

    /// How many were accepted so far.
    pub fn accepted(&self) -> usize {
        self.record.accepted.lock().unwrap().len()
    }

    /// Waits for the last answers.
    pub async fn stop(self) -> Outcome {
        self.stop.cancel();
        self.senders.close();
        let stopped = Instant::now();
        self.senders.wait().await;
        let mut at = self.record.accepted.lock().unwrap().clone();
        at.retain(|at| *at < stopped);
        at.extend([self.began, stopped]);
        at.sort();
        let gaps = at.windows(2).map(|pair| pair[1] - pair[0]);
        Outcome {
            sent: self.record.sent.lock().unwrap().clone(),
            silence: gaps.max().unwrap_or_default(),
            refused: self.record.refused.lock().unwrap().clone(),
        }
    }
}

/// Sends one thing until it is accepted, or given up.
async fn send(doors: Arc<Doors>, door: Door, name: String, number: usize, record: Arc<Record>) {
    let mut is_accepted = false;
    for attempt in 0..TRIES {
        let gateway = number + attempt;
        let request = match door {
            Door::Webhook => {
                let webhook = doors.at(&doors.webhooks, gateway);
                webhook.request(json!({ "name": name }).to_string())
            }
            _ => {
                let forms = &doors.forms[&door];
                let at = &forms[number % forms.len()];
                submission(doors.at(at, gateway), &name)
            }
        };
        match request.timeout(PATIENCE).send().await {
            Ok(answer) if answer.status().is_success() => {
                is_accepted = true;
                record.accepted.lock().unwrap().push(Instant::now());
                break;
            }
            // A balancer asks the other one, and nobody notices.
            Err(error) if error.is_connect() => {}
            answer => {
                let ended =
                    answer.map_or_else(|why| format!("{why:?}"), |one| one.status().to_string());
                record.refused.lock().unwrap().push(ended);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    let mut sent = record.sent.lock().unwrap();
    sent.entry(door).or_default().insert(name, is_accepted);
}

fn submission(form: &Form, name: &str) -> reqwest::RequestBuilder {
    let payload: Value = json!({"name": name, "email": "ada@example.com", "message": name,
        "terms": true});
    let body = json!({"token": form.token, "idempotencyKey": name, "payload": payload});
    let request = form.request(reqwest::Method::POST, &form.submit_url());
    let request = request.header("content-type", "application/json");
    request.body(body.to_string())
}
