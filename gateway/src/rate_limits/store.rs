//! Counting hits: one statement for all requests of one moment, and a sweep of what nobody asks
//! about any more.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use deadpool_postgres::Pool;
use jiff::Timestamp;
use letterbox_common::database::{Checkout, DatabaseError, within};
use tokio_util::sync::CancellationToken;

use super::{Hit, Subject};
use crate::batcher::Work;

const DEADLINE: Duration = Duration::from_secs(5);
const SWEEP_PAGE: i64 = 5_000;

/// take_hits: for every key, in the keys' order, how many of the wanted requests pass and when one
/// more would
pub const TAKE_HITS: &str = "
SELECT wanted.ordinal, taken.granted, taken.next_in, taken.clock
FROM unnest($1::bytea[], $2::int[], $3::int[]) WITH ORDINALITY AS wanted (key, most, wanted, ordinal)
CROSS JOIN LATERAL take_hits(wanted.key, wanted.most, wanted.wanted) AS taken";

/// give_back_hits: for every key, in the keys' order, forgets one request
pub const GIVE_BACK: &str = "
SELECT give_back_hit(given.key, given.taken_at)
FROM unnest($1::bytea[], $2::timestamptz[]) AS given (key, taken_at)";

/// sweep_rate_limits: forgets keys without a hit in the last 60 seconds, without waiting for any
/// that are in use
pub const SWEEP: &str = "
DELETE FROM rate_limits WHERE key IN (
    SELECT key FROM rate_limits
    WHERE coalesce(hits[cardinality(hits)], '-infinity') <= clock_timestamp() - interval '60 seconds'
    LIMIT $1 FOR UPDATE SKIP LOCKED)";

/// The answer to one request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Taken {
    /// Noted at this time.
    Granted {
        at: Timestamp,
    },
    Refused {
        next_in: Duration,
    },
}

/// Counts requests by subject.
pub struct Hits {
    pub pool: Pool,
}

impl Work for Hits {
    type Item = Subject;
    type Output = Taken;
    type Error = DatabaseError;

    async fn run(&self, items: Vec<Subject>) -> Result<Vec<Taken>, DatabaseError> {
        let taken = within(DEADLINE, "counting requests", self.take(&items)).await;
        let mut taken =
            taken.inspect_err(|error| tracing::warn!(%error, "requests could not be counted"))?;
        Ok(items
            .iter()
            .map(|subject| {
                taken
                    .get_mut(&key(*subject))
                    .map_or(NOT_COUNTED, Share::next)
            })
            .collect())
    }
}

/// What a request hears that the database did not speak of; it never happens.
const NOT_COUNTED: Taken = Taken::Refused {
    next_in: Duration::from_secs(1),
};

/// What a batch's requests of one subject have got together.
struct Share {
    left: i32,
    next_in: Duration,
    at: Timestamp,
}

impl Share {
    fn next(&mut self) -> Taken {
        self.left -= 1;
        if self.left >= 0 {
            Taken::Granted { at: self.at }
        } else {
            Taken::Refused {
                next_in: self.next_in,
            }
        }
    }
}

impl Hits {
    async fn take(&self, items: &[Subject]) -> Result<HashMap<Vec<u8>, Share>, DatabaseError> {
        // Sorted, so that two batches can't wait for each other in a circle.
        let mut wanted: BTreeMap<Vec<u8>, (i32, i32)> = BTreeMap::new();
        for subject in items {
            wanted.entry(key(*subject)).or_insert((subject.most(), 0)).1 += 1;
        }
        let keys: Vec<&[u8]> = wanted.keys().map(Vec::as_slice).collect();
        let (most, counts): (Vec<i32>, Vec<i32>) = wanted.values().copied().unzip();

        let client = Checkout::get(&self.pool).await?;
        let statement = client.prepare_cached(TAKE_HITS).await?;
        let rows = client.query(&statement, &[&keys, &most, &counts]).await?;
        client.done();
        rows.iter()
            .map(|row| {
                let (ordinal, next_in): (i64, Option<f64>) = (row.try_get(0)?, row.try_get(2)?);
                let next_in =
                    Duration::try_from_secs_f64(next_in.unwrap_or_default()).unwrap_or_default();
                let share = Share {
                    left: row.try_get(1)?,
                    next_in,
                    at: row.try_get(3)?,
                };
                Ok((keys[ordinal as usize - 1].to_vec(), share))
            })
            .collect()
    }
}

/// Gives hits back.
pub struct Returns {
    pub pool: Pool,
}

impl Work for Returns {
    type Item = Hit;
    type Output = ();
    type Error = DatabaseError;

    async fn run(&self, items: Vec<Hit>) -> Result<Vec<()>, DatabaseError> {
        let mut hits: Vec<_> = items.iter().map(|hit| (key(hit.subject), hit.at)).collect();
        hits.sort_unstable();
        let returned = within(DEADLINE, "giving hits back", self.give_back(&hits)).await;
        returned.inspect_err(|error| tracing::warn!(%error, "hits could not be given back"))?;
        Ok(vec![(); items.len()])
    }
}

impl Returns {
    async fn give_back(&self, hits: &[(Vec<u8>, Timestamp)]) -> Result<(), DatabaseError> {
        let (keys, times): (Vec<&[u8]>, Vec<Timestamp>) =
            hits.iter().map(|(key, at)| (key.as_slice(), *at)).unzip();
        let client = Checkout::get(&self.pool).await?;
        let statement = client.prepare_cached(GIVE_BACK).await?;
        client.query(&statement, &[&keys, &times]).await?;
        client.done();
        Ok(())
    }
}

/// A subject as the table knows it.
fn key(subject: Subject) -> Vec<u8> {
    match subject {
        Subject::Client(address) => [b"c", address.bytes().as_slice()].concat(),
        Subject::Token(token) => [b"t", token.as_bytes().as_slice()].concat(),
    }
}

/// Sweeps once in every `period`, until `stop`.
pub async fn sweep(pool: Pool, period: Duration, stop: CancellationToken) {
    while stop
        .run_until_cancelled(tokio::time::sleep(period))
        .await
        .is_some()
    {
        if let Err(error) = sweep_once(&pool).await {
            tracing::warn!(%error, "old rate limits could not be swept");
        }
    }
}

async fn sweep_once(pool: &Pool) -> Result<(), DatabaseError> {
    loop {
        let client = Checkout::get(pool).await?;
        let statement = client.prepare_cached(SWEEP).await?;
        let swept = client.execute(&statement, &[&SWEEP_PAGE]).await?;
        client.done();
        if swept < SWEEP_PAGE as u64 {
            return Ok(());
        }
    }
}
