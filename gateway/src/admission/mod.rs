//! Admission to forms: finds the live form behind a token, and limits the requests of each client
//! and each token in any 60 seconds, exactly and across all gateways.
//!
//! One statement asks PostgreSQL for both, in batches, for every request, so a form that is paused
//! refuses the very next request on every gateway; only what a release says is kept. A request with
//! a live token counts against its client and its token or against neither, any other against its
//! client; no hit is ever given back. A client that was refused is refused here, without asking,
//! until its oldest hit has expired: a flood from one client costs the database nothing.

mod exhausted;
mod live_form;
mod store;
mod subject;

use std::time::Duration;

use letterbox_common::{form::TokenHash, process::client_address::ClientAddress};
use letterbox_database::Database;
use tokio_util::task::TaskTracker;

use self::{
    exhausted::Exhausted,
    store::{Admittance, Answer, Requests},
    subject::Subject,
};
pub(crate) use self::{
    live_form::{Definition, LiveForm, LiveRelease},
    store::STATEMENTS,
    store::definitions::STATEMENTS as DEFINITION_STATEMENTS,
    store::sweep::{STATEMENTS as SWEEPING_STATEMENTS, sweep},
};
use crate::metrics;
use letterbox_common::batcher::{BatchLimits, Batcher, LookUps};

/// One batch at a time, because two would wait for each other's rows.
const REQUESTS: BatchLimits = BatchLimits {
    max_queued: 8_192,
    ..BatchLimits::SMALL_ITEMS
};

/// Why a request is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotAdmitted {
    /// Too many requests. The next one would pass after this time.
    RateLimited {
        next_in: Duration,
        /// Whether too many came through one live link, whoever sent them.
        of_link: bool,
    },
    /// The database does not answer.
    Unavailable,
}

/// Admits requests.
pub(crate) struct Admission {
    requests: Batcher<LookUps<Requests>>,
    exhausted: Exhausted,
}

impl Admission {
    /// Starts admission as a task of `tasks`.
    pub(crate) fn start(database: Database, tasks: &TaskTracker) -> Self {
        let requests = LookUps(Requests::new(database));
        Self {
            requests: Batcher::start("admission", REQUESTS, requests, tasks),
            exhausted: Exhausted::default(),
        }
    }

    /// Refuses a client that is known to have exhausted its limit, without a query or a hit.
    ///
    /// # Errors
    /// [`NotAdmitted::RateLimited`].
    pub(crate) fn check(&self, client: ClientAddress) -> Result<(), NotAdmitted> {
        let client = Subject::Client(client);
        match self.exhausted.next_in(client) {
            Some(next_in) => Err(refuse(client, next_in)),
            None => Ok(()),
        }
    }

    /// Counts a request of a client that was refused without a query.
    pub(crate) fn count_refused(&self, client: ClientAddress) {
        self.exhausted.count_refused(Subject::Client(client));
    }

    /// Counts a request and returns the form behind its token; `None` without a token, or if it is
    /// unknown or not live. With `closed_too`, also returns a form that takes nothing new.
    ///
    /// # Errors
    /// See [`NotAdmitted`]. A refused request does not count.
    pub(crate) async fn admit(
        &self,
        client: ClientAddress,
        token: Option<TokenHash>,
        closed_too: bool,
    ) -> Result<Option<LiveForm>, NotAdmitted> {
        self.check(client)?;
        let exhausted = token.and_then(|token| {
            let token = Subject::Token(token);
            Some((token, self.exhausted.next_in(token)?))
        });
        // A dead token has no limit of its own, and must be answered like an unknown one.
        if let Some((subject, next_in)) = exhausted
            && self.ask(Admittance::Find { token }).await?.is_open
        {
            return Err(refuse(subject, next_in));
        }
        let counting = Admittance::Count {
            client,
            token,
            closed_too,
        };
        let admitted = self.ask(counting).await?;
        let client = Some(Subject::Client(client)).zip(admitted.client_next_in);
        let token = token.map(Subject::Token).zip(admitted.token_next_in);
        let refusing = [token, client].into_iter().flatten();
        for (subject, next_in) in refusing.clone() {
            self.exhausted.insert(subject, next_in);
        }
        // A retry passes only when both limits allow it.
        match refusing.max_by_key(|(_, next_in)| *next_in) {
            Some((subject, next_in)) => Err(refuse(subject, next_in)),
            None => Ok(admitted.form),
        }
    }

    async fn ask(&self, request: Admittance) -> Result<Answer, NotAdmitted> {
        let answer = self.requests.ask(request).await;
        answer.ok_or(NotAdmitted::Unavailable)
    }
}

fn refuse(subject: Subject, next_in: Duration) -> NotAdmitted {
    metrics::RATE_LIMITED.add([subject.kind()], 1);
    NotAdmitted::RateLimited {
        next_in,
        of_link: matches!(subject, Subject::Token(_)),
    }
}
