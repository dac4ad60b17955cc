//! New sealing keys: seals everything again that is not sealed with the first key of its ring.

use letterbox_common::sealing::{KeyRing, SealedColumn};
use serde::Serialize;

use crate::{Operator, OperatorError, Reason, store};

/// Rows that a rotation loads at a time. Each is sealed again in a short statement of its own.
const PAGE: i64 = 500;

/// What a rotation did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Rotation {
    /// Values sealed again with the first key.
    pub resealed: u64,
    /// Values that were sealed with it already.
    pub current: u64,
}

/// The keys of every column that holds sealed values.
#[derive(Debug, Clone)]
pub struct KeyRings {
    /// Keys of webhook secrets.
    pub webhooks: KeyRing,
    /// Keys of account credentials.
    pub accounts: KeyRing,
}

impl KeyRings {
    fn of(&self, column: SealedColumn) -> &KeyRing {
        match column {
            SealedColumn::WebhookSecret => &self.webhooks,
            SealedColumn::AccountCredential | SealedColumn::ActionAnswer => &self.accounts,
        }
    }
}

impl Operator {
    /// Seals every secret, credential and answer again that is not sealed with the first key of its
    /// ring, or by an older version. Safe while everything runs, and safe to repeat: a value that
    /// changes meanwhile is left alone.
    ///
    /// # Errors
    /// When a value does not open. What was sealed until then stays so.
    pub async fn rotate_keys(&self, keys: &KeyRings) -> Result<Rotation, OperatorError> {
        let mut rotation = Rotation::default();
        for column in SealedColumn::ALL {
            let keys = keys.of(column);
            self.rotate_column(keys, column, &mut rotation).await?;
        }
        Ok(rotation)
    }

    async fn rotate_column(
        &self,
        keys: &KeyRing,
        column: SealedColumn,
        rotation: &mut Rotation,
    ) -> Result<(), OperatorError> {
        let mut after = None;
        loop {
            let page = store::sealed_values(&self.database, column, after, PAGE).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = Some(last.key());
            for value in &page {
                match reseal(keys, column, value)? {
                    None => rotation.current += 1,
                    Some(fresh) => {
                        let resealing =
                            store::replace_sealed(&self.database, column, value, &fresh);
                        rotation.resealed += resealing.await?;
                    }
                }
            }
        }
    }
}

/// The value sealed with the first key; none where it is already.
fn reseal(
    keys: &KeyRing,
    column: SealedColumn,
    sealed: &store::SealedValue,
) -> Result<Option<Vec<u8>>, Reason> {
    let resealed = keys.reseal(sealed.place(), &sealed.value);
    resealed.map_err(|error| Reason::SealedValue {
        table: column.table(),
        column: column.name(),
        id: sealed.id().to_string(),
        problem: error.to_string(),
    })
}
