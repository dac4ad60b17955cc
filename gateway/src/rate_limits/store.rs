//! Counting hits: one statement for all requests of one moment, and a sweep of what nobody asks
//! about any more.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use jiff::Timestamp;
use letterbox_database::{Database, DatabaseError, statements};
use tokio_util::sync::CancellationToken;

use super::{Hit, Subject};
use crate::batcher::BatchWork;

const SWEEP_PAGE: i64 = 5_000;

statements! {
    /// For every key, in the keys' order: how many of the wanted requests pass, and when one more
    /// would.
    TAKE_HITS = take_hits "
SELECT wanted.ordinal, taken.granted, taken.next_in, taken.clock
FROM unnest($1::bytea[], $2::int[], $3::int[])
     WITH ORDINALITY AS wanted (key, hit_limit, hits, ordinal)
CROSS JOIN LATERAL take_hits(wanted.key, wanted.hit_limit, wanted.hits) AS taken";

    /// For every key, in the keys' order: forgets one request.
    REFUND_HITS = refund_hits "
SELECT give_back_hit(refunded.key, refunded.taken_at)
FROM unnest($1::bytea[], $2::timestamptz[]) AS refunded (key, taken_at)";

    /// Forgets keys without a hit in the last 60 seconds, without waiting for any that are in use.
    SWEEP_RATE_LIMITS = sweep_rate_limits "
DELETE FROM rate_limits WHERE key IN (
    SELECT key FROM rate_limits
    WHERE coalesce(hits[cardinality(hits)], '-infinity')
        <= clock_timestamp() - interval '60 seconds'
    LIMIT $1 FOR UPDATE SKIP LOCKED)";
}

/// The answer to one request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Counted {
    /// It was counted at this time.
    Granted { at: Timestamp },
    /// It was not: the next one would pass after this time.
    Refused { next_in: Duration },
}

/// The answer if the statement gave no row for a key. Unreachable.
const NOT_COUNTED: Counted = Counted::Refused {
    next_in: Duration::from_secs(1),
};

/// Counts requests by subject.
pub(super) struct Hits {
    pub(super) database: Database,
}

/// What was granted to all requests of one subject in a batch.
struct Share {
    left: i32,
    next_in: Duration,
    at: Timestamp,
}

impl Share {
    fn next(&mut self) -> Counted {
        self.left -= 1;
        if self.left >= 0 {
            Counted::Granted { at: self.at }
        } else {
            Counted::Refused {
                next_in: self.next_in,
            }
        }
    }
}

impl BatchWork for Hits {
    type Item = Subject;
    type Output = Counted;
    type Error = DatabaseError;

    async fn run(&self, items: Vec<Subject>) -> Result<Vec<Counted>, DatabaseError> {
        let mut shares = self.take(&items).await?;
        let mut next = |subject: &Subject| shares.get_mut(&key(*subject)).map(Share::next);
        Ok(items
            .iter()
            .map(|subject| next(subject).unwrap_or(NOT_COUNTED))
            .collect())
    }
}

impl Hits {
    async fn take(&self, items: &[Subject]) -> Result<HashMap<Vec<u8>, Share>, DatabaseError> {
        // Sorted, so that two batches can't wait for each other in a circle.
        let mut wanted: BTreeMap<Vec<u8>, (i32, i32)> = BTreeMap::new();
        for subject in items {
            wanted
                .entry(key(*subject))
                .or_insert((subject.limit(), 0))
                .1 += 1;
        }
        let keys: Vec<&[u8]> = wanted.keys().map(Vec::as_slice).collect();
        let (limits, counts): (Vec<i32>, Vec<i32>) = wanted.values().copied().unzip();
        let rows = self
            .database
            .query(
                &TAKE_HITS,
                &[
                    /* $1 key */ &keys, /* $2 hit_limit */ &limits,
                    /* $3 hits */ &counts,
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let ordinal: i64 = row.try_get("ordinal")?;
                let next_in: Option<f64> = row.try_get("next_in")?;
                let next_in = Duration::try_from_secs_f64(next_in.unwrap_or_default());
                let share = Share {
                    left: row.try_get("granted")?,
                    next_in: next_in.unwrap_or_default(),
                    at: row.try_get("clock")?,
                };
                Ok((keys[ordinal as usize - 1].to_vec(), share))
            })
            .collect()
    }
}

/// Refunds hits.
pub(super) struct Refunds {
    pub(super) database: Database,
}

impl BatchWork for Refunds {
    type Item = Hit;
    type Output = ();
    type Error = DatabaseError;

    async fn run(&self, items: Vec<Hit>) -> Result<Vec<()>, DatabaseError> {
        let mut hits: Vec<_> = items.iter().map(|hit| (key(hit.subject), hit.at)).collect();
        hits.sort_unstable();
        let (keys, times): (Vec<&[u8]>, Vec<Timestamp>) =
            hits.iter().map(|(key, at)| (key.as_slice(), *at)).unzip();
        self.database.query(&REFUND_HITS, &[&keys, &times]).await?;
        Ok(vec![(); items.len()])
    }
}

/// A subject as the table's key.
fn key(subject: Subject) -> Vec<u8> {
    match subject {
        Subject::Client(address) => [b"c", address.bytes().as_slice()].concat(),
        Subject::Token(token) => [b"t", token.as_bytes().as_slice()].concat(),
    }
}

/// Sweeps once in every `period`, until `stop`.
pub(super) async fn sweep(database: Database, period: Duration, stop: CancellationToken) {
    while stop
        .run_until_cancelled(tokio::time::sleep(period))
        .await
        .is_some()
    {
        // A failure is logged where it happens; the next sweep catches up.
        while matches!(
            database.execute(&SWEEP_RATE_LIMITS, &[&SWEEP_PAGE]).await,
            Ok(swept) if swept == SWEEP_PAGE as u64
        ) {}
    }
}
