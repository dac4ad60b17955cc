//! Signals on their way to URLs: posted as their tools have sent them, each signed by Standard
//! Webhooks under the signal's id. What is not answered by a 2xx was not taken, and lets the cursor
//! stand. Nothing of the database is held while an answer is awaited.

use futures_util::future::join_all;
use http::Request;
use jiff::Timestamp;
use letterbox_common::{
    sealing::Place,
    webhook::{Keys, Rules, Tool},
};
use letterbox_workflow::actions::{RESERVED_HEADERS, TIMEOUT};
use tokio_util::sync::CancellationToken;

use super::{
    LEASE, NotTaken, Receiver, give_back,
    store::{self, Leased, NextSubscription, SubscriptionCursor, WantedSignals},
};
use crate::{
    egress::{Egress, EgressError, HttpResponse},
    leased::{Pace, Place as Room, work},
    worker::Worker,
};

/// Of those that fail, and as many of the others: a receiver that does not answer holds up only
/// others that fail.
const PACE: Pace = Pace {
    at_once: 32,
    ..super::queues::PACE
};
/// Maximum characters that are kept of an answer.
const MAX_RECEIVED: usize = 200;

// Otherwise another worker would post what this one waits for.
const _: () = assert!(TIMEOUT.as_secs() + 5 < LEASE.as_secs());

/// Posts signals for those who subscribe until `stop`, then awaits the answers that are to come.
pub(crate) async fn post_signals(worker: Worker, stop: CancellationToken) {
    let some = async |is_failing: Option<bool>| {
        let take = async |free: usize| {
            let database = &worker.database;
            let seconds = LEASE.as_secs_f64();
            let free = free as i64;
            store::take_subscriptions(database, free, seconds, true, is_failing).await
        };
        let serve = async |leased: Leased, _room: Room| {
            let served = match Url::of(&worker, &leased) {
                Ok(url) => super::serve(&worker, leased.clone(), &url, &stop).await,
                Err(why) => Ok(Some(NotTaken::because(why))),
            };
            give_back(&worker, &leased, served).await;
        };
        work(&PACE, &stop, take, serve).await;
    };
    tokio::join!(some(Some(false)), some(Some(true)));
}

/// The URL of a subscription, with what signs its posts.
struct Url<'a> {
    egress: &'a Egress,
    leased: &'a Leased,
    rules: Rules,
    keys: Keys,
}

impl Receiver for Url<'_> {
    const MAX_BYTES: i64 = 512 << 10;

    fn at_once(&self) -> usize {
        usize::try_from(self.leased.in_flight).unwrap_or(1)
    }

    /// Posts all of them at once, and waits for every answer.
    async fn hand_over(&self, lot: &[NextSubscription]) -> (usize, Option<NotTaken>) {
        let wanted = lot.iter();
        let posts = wanted.filter_map(|next| Some(self.post(next.cursor, next.wanted.as_ref()?)));
        let posted = join_all(posts).await;
        let taken = posted.iter().take_while(|one| one.is_ok()).count();
        (taken, posted.into_iter().find_map(Result::err))
    }
}

impl<'a> Url<'a> {
    fn of(worker: &'a Worker, leased: &'a Leased) -> Result<Self, String> {
        let place = Place::SubscriptionSecret {
            workspace: leased.workspace,
            subscription: leased.id,
            url: &leased.target,
        };
        let secret = worker.keys.open(place, &leased.secret_sealed);
        let secret = secret.map_err(|error| format!("its secret: {error}"))?;
        let rules = Tool::standard_webhooks().rules().ok_or("no such tool")?;
        let keys = rules.keys(&secret);
        let keys = keys.map_err(|error| error.to_string())?;
        Ok(Self {
            egress: &worker.egress,
            leased,
            rules,
            keys,
        })
    }

    /// Posts one signal, once, with the headers that were kept of its delivery.
    async fn post(
        &self,
        cursor: SubscriptionCursor,
        signal: &WantedSignals,
    ) -> Result<(), NotTaken> {
        let body = signal.body.clone().unwrap_or_default();
        let now = Timestamp::now().as_second().unsigned_abs();
        let id = cursor.signal.to_string();
        let target = &self.leased.target;
        let signed = self.rules.sign(&self.keys, target, &body, now, &id);
        let signed = signed.ok_or_else(|| NotTaken::because("it can't be signed".into()))?;
        let mut request = Request::post(&self.leased.target)
            .header("content-type", "application/json")
            // Also of an empty body, which would have none.
            .header("content-length", body.len().to_string())
            .header("letterbox-kind", signal.kind.as_str())
            .header("letterbox-webhook-id", signal.webhook.to_string())
            .header(
                "letterbox-received-at",
                format!("{:.6}", signal.received_at),
            );
        if signal.body.is_none() {
            request = request.header("letterbox-body-forgotten", "true");
        }
        for (name, value) in signal.headers.signed.iter().chain(&signal.headers.unsigned) {
            request = request.header(name_of_kept(name), value);
        }
        for (name, value) in signed.headers {
            request = request.header(name, value);
        }
        let request = request.body(body);
        let request = request.map_err(|error| NotTaken::because(error.to_string()))?;
        judge(self.egress.send_as_is(request).await)
    }
}

/// The name under which a kept header is sent: another one, if it would be taken for Letterbox's
/// own or make another request of this one.
fn name_of_kept(name: &str) -> String {
    let is_own = name.starts_with("webhook-") || name.starts_with("letterbox-");
    match is_own || RESERVED_HEADERS.contains(&name) {
        true => format!("original-{name}"),
        false => name.to_owned(),
    }
}

/// Only a 2xx says that a signal was taken.
fn judge(answer: Result<HttpResponse, EgressError>) -> Result<(), NotTaken> {
    let answer = answer.map_err(|error| NotTaken::because(error.to_string()))?;
    let status = answer.status;
    let why = match (status, &answer.location) {
        (200..300, _) => return Ok(()),
        (300..400, Some(_)) => format!("it answered {status}, a redirect"),
        _ => format!("it answered {status}"),
    };
    let body = String::from_utf8_lossy(&answer.body);
    // No letter says where it redirects to: a stranger may have written that.
    let to = answer.location.map(|to| format!("to {to} "));
    // PostgreSQL's text can't hold U+0000.
    let received = (to.unwrap_or_default() + &body).replace('\0', "\u{fffd}");
    let received: String = received.chars().take(MAX_RECEIVED).collect();
    Err(NotTaken {
        received: (!received.is_empty()).then_some(received),
        ..NotTaken::because(why)
    })
}
