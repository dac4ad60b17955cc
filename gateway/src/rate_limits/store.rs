//! Counting hits: one statement for all requests of one moment, and a sweep of what nobody asks
//! about any more.

use std::{collections::BTreeMap, time::Duration};

use letterbox_common::form::TokenHash;
use letterbox_database::{Database, DatabaseError, statements};
use tokio_util::sync::CancellationToken;

use super::Subject;
use crate::{batcher::LookUp, client_address::ClientAddress};

const SWEEP_PAGE: i64 = 5_000;

statements! {
    /// For every request, in their order: which limit refuses it, if one does, and when it would
    /// pass.
    TAKE_HITS = take_hits "
SELECT refused_by, next_in FROM take_hits($1::bytea[], $2::int[], $3::int[], $4::int[])";

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
    /// It was counted.
    Granted,
    /// It was not: the limit of `by` refuses it, and would let it pass after this time.
    Refused { by: Subject, next_in: Duration },
}

/// Counts requests by client and token.
pub(super) struct Requests {
    pub(super) database: Database,
}

impl LookUp for Requests {
    type Item = (ClientAddress, Option<TokenHash>);
    type Output = Counted;
    type Error = DatabaseError;

    async fn look_up(&self, requests: Vec<Self::Item>) -> Result<Vec<Counted>, DatabaseError> {
        // Sorted, so that two batches can't wait for each other in a circle.
        let subjects = requests.iter().flat_map(|(client, token)| {
            let client = Some(Subject::Client(*client));
            [client, token.map(Subject::Token)].into_iter().flatten()
        });
        let subjects: BTreeMap<Vec<u8>, Subject> =
            subjects.map(|subject| (key(subject), subject)).collect();
        let (keys, subjects): (Vec<_>, Vec<_>) = subjects.into_iter().unzip();
        let limits: Vec<i32> = subjects.iter().map(|subject| subject.limit()).collect();
        let place = |subject| {
            keys.binary_search(&key(subject))
                .map_or(0, |index| index as i32 + 1)
        };
        let (clients, tokens): (Vec<i32>, Vec<Option<i32>>) = requests
            .iter()
            .map(|(client, token)| {
                let token = token.map(|token| place(Subject::Token(token)));
                (place(Subject::Client(*client)), token)
            })
            .unzip();
        let rows = self
            .database
            .query(
                &TAKE_HITS,
                &[
                    /* $1 key */ &keys, /* $2 limit */ &limits,
                    /* $3 client */ &clients, /* $4 token */ &tokens,
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let refused_by: Option<i32> = row.try_get("refused_by")?;
                let next_in: Option<f64> = row.try_get("next_in")?;
                let next_in = Duration::try_from_secs_f64(next_in.unwrap_or_default());
                Ok(
                    refused_by.map_or(Counted::Granted, |place| Counted::Refused {
                        by: subjects[place as usize - 1],
                        next_in: next_in.unwrap_or_default(),
                    }),
                )
            })
            .collect()
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
