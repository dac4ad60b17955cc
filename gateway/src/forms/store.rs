//! The look-up of live forms: one statement for all tokens that are asked for at one moment.

use letterbox_common::form::TokenHash;
use letterbox_database::{Database, DatabaseError, statements};
use tokio_postgres::Row;

use super::{LiveForm, LiveRelease};
use crate::batcher::LookUp;

statements! {
    /// The live form of every token that has one.
    FIND_FORMS = find_forms "
SELECT wanted.ordinal, l.workspace_id, l.workflow_id, l.release_id, l.form
FROM unnest($1::bytea[]) WITH ORDINALITY AS wanted (token_sha256, ordinal)
JOIN live_form_links l ON l.token_sha256 = wanted.token_sha256";
}

/// Looks up tokens.
pub(super) struct FormsByToken {
    pub(super) database: Database,
}

impl LookUp for FormsByToken {
    type Item = TokenHash;
    type Output = Option<LiveForm>;
    type Error = DatabaseError;

    async fn look_up(
        &self,
        tokens: Vec<TokenHash>,
    ) -> Result<Vec<Option<LiveForm>>, DatabaseError> {
        let hashes: Vec<&[u8]> = tokens.iter().map(|token| &token.as_bytes()[..]).collect();
        let rows = self.database.query(&FIND_FORMS, &[&hashes]).await?;
        let mut found = vec![None; tokens.len()];
        for row in &rows {
            let ordinal: i64 = row.try_get("ordinal")?;
            found[ordinal as usize - 1] = Some(decode(row)?);
        }
        Ok(found)
    }
}

fn decode(row: &Row) -> Result<LiveForm, tokio_postgres::Error> {
    let release = LiveRelease {
        workspace: row.try_get("workspace_id")?,
        workflow: row.try_get("workflow_id")?,
        release: row.try_get("release_id")?,
    };
    Ok(LiveForm {
        release,
        definition: row.try_get("form")?,
    })
}
