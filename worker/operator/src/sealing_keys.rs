//! New sealing keys: seals everything again that is not sealed with the first key of the ring.

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

impl Operator {
    /// Seals every secret and credential again that is not sealed with the first key. Safe while
    /// everything runs, and safe to repeat: a value that changes meanwhile is left alone.
    ///
    /// # Errors
    /// When a value does not open. What was sealed until then stays so.
    pub async fn rotate_keys(&self, keys: &KeyRing) -> Result<Rotation, OperatorError> {
        let mut rotation = Rotation::default();
        for column in SealedColumn::ALL {
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
            after = Some((last.workspace, last.id));
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
    let failed = |problem: String| Reason::SealedValue {
        table: column.table(),
        column: column.name(),
        id: sealed.id.to_string(),
        problem,
    };
    if keys
        .is_current(&sealed.value)
        .map_err(|error| failed(error.to_string()))?
    {
        return Ok(None);
    }
    let place = column.place(sealed.workspace, sealed.id.as_bytes());
    let secret = keys
        .open(place, &sealed.value)
        .map_err(|error| failed(error.to_string()))?;
    let fresh = keys
        .seal(place, secret.expose())
        .map_err(|error| failed(error.to_string()))?;
    Ok(Some(fresh))
}
