//! The look-up of live forms: one statement for all tokens that are asked for at one moment.

use letterbox_common::form::TokenHash;
use letterbox_database::{Database, DatabaseError, statements};
use tokio_postgres::Row;

use super::{FormLookup, KeyHash, KeyState, LiveForm};
use crate::batcher::BatchWork;

statements! {
    /// The live form of every token that has one, and the state of the idempotency key that is
    /// asked for with it.
    FIND_FORMS = find_forms "
SELECT wanted.ordinal, l.workspace_id, l.workflow_id, l.release_id, l.form,
       s.settled_at IS NOT NULL AS accepted,
       coalesce(s.lease_until > clock_timestamp(), false) AS in_progress
FROM unnest($1::bytea[], $2::bytea[])
     WITH ORDINALITY AS wanted (token_sha256, key_sha256, ordinal)
JOIN live_form_links l ON l.token_sha256 = wanted.token_sha256
LEFT JOIN form_submissions s
    ON s.workspace_id = l.workspace_id AND s.workflow_id = l.workflow_id
    AND s.key_sha256 = wanted.key_sha256";
}

/// Looks up tokens, each with or without an idempotency key.
pub(super) struct FormsByToken {
    pub(super) database: Database,
}

impl BatchWork for FormsByToken {
    type Item = (TokenHash, Option<KeyHash>);
    type Output = Option<FormLookup>;
    type Error = DatabaseError;

    async fn run(&self, items: Vec<Self::Item>) -> Result<Vec<Option<FormLookup>>, DatabaseError> {
        let (tokens, keys): (Vec<&[u8]>, Vec<Option<&[u8]>>) = items
            .iter()
            .map(|(token, key)| {
                (
                    token.as_bytes().as_slice(),
                    key.as_ref().map(<[u8; 32]>::as_slice),
                )
            })
            .unzip();
        let rows = self.database.query(&FIND_FORMS, &[&tokens, &keys]).await?;
        let mut found = vec![None; items.len()];
        for row in &rows {
            let ordinal: i64 = row.try_get("ordinal")?;
            found[ordinal as usize - 1] = Some(decode(row)?);
        }
        Ok(found)
    }
}

fn decode(row: &Row) -> Result<FormLookup, tokio_postgres::Error> {
    let form = LiveForm {
        workspace: row.try_get("workspace_id")?,
        workflow: row.try_get("workflow_id")?,
        release: row.try_get("release_id")?,
        definition: row.try_get("form")?,
    };
    let key = match (row.try_get("accepted")?, row.try_get("in_progress")?) {
        (true, _) => KeyState::Accepted,
        (false, true) => KeyState::InProgress,
        (false, false) => KeyState::New,
    };
    Ok(FormLookup { form, key })
}
