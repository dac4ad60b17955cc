//! The look-up of live forms: one statement for all tokens that are asked for at one moment.

use std::time::Duration;

use deadpool_postgres::Pool;
use letterbox_common::{
    database::{Checkout, DatabaseError, within},
    form::TokenHash,
};
use tokio_postgres::Row;

use super::{Found, KeyHash, Known, LiveForm};
use crate::batcher::Work;

const DEADLINE: Duration = Duration::from_secs(5);

/// find_forms: the live form of every token that has one, and the state of the idempotency key that
/// was asked for with it
pub const FIND_FORMS: &str = "
SELECT wanted.ordinal, l.workspace_id, l.workflow_id, l.release_id, l.form,
       s.settled_at IS NOT NULL AS accepted, coalesce(s.lease_until > clock_timestamp(), false) AS held
FROM unnest($1::bytea[], $2::bytea[]) WITH ORDINALITY AS wanted (token_sha256, key_sha256, ordinal)
JOIN live_form_links l ON l.token_sha256 = wanted.token_sha256
LEFT JOIN form_submissions s
    ON s.workspace_id = l.workspace_id AND s.workflow_id = l.workflow_id AND s.key_sha256 = wanted.key_sha256";

/// Looks up tokens, each with or without an idempotency key.
pub struct Lookup {
    pub pool: Pool,
}

impl Work for Lookup {
    type Item = (TokenHash, Option<KeyHash>);
    type Output = Option<Found>;
    type Error = DatabaseError;

    async fn run(&self, items: Vec<Self::Item>) -> Result<Vec<Option<Found>>, DatabaseError> {
        let found = within(DEADLINE, "looking up forms", self.find(&items)).await;
        found.inspect_err(|error| tracing::warn!(%error, "forms could not be looked up"))
    }
}

impl Lookup {
    async fn find(
        &self,
        items: &[(TokenHash, Option<KeyHash>)],
    ) -> Result<Vec<Option<Found>>, DatabaseError> {
        let (tokens, keys): (Vec<&[u8]>, Vec<Option<&[u8]>>) = items
            .iter()
            .map(|(token, key)| {
                (
                    token.as_bytes().as_slice(),
                    key.as_ref().map(<[u8; 32]>::as_slice),
                )
            })
            .unzip();
        let client = Checkout::get(&self.pool).await?;
        let statement = client.prepare_cached(FIND_FORMS).await?;
        let rows = client.query(&statement, &[&tokens, &keys]).await?;
        client.done();
        let mut found = vec![None; items.len()];
        for row in &rows {
            let ordinal: i64 = row.try_get(0)?;
            found[ordinal as usize - 1] = Some(read(row)?);
        }
        Ok(found)
    }
}

fn read(row: &Row) -> Result<Found, tokio_postgres::Error> {
    let form = LiveForm {
        workspace: row.try_get(1)?,
        workflow: row.try_get(2)?,
        release: row.try_get(3)?,
        definition: row.try_get(4)?,
    };
    let known = match (row.try_get(5)?, row.try_get(6)?) {
        (true, _) => Known::Accepted,
        (false, true) => Known::InProgress,
        (false, false) => Known::New,
    };
    Ok(Found { form, known })
}
