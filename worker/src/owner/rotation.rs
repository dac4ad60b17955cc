//! New sealing keys: seals everything again that is not sealed with the first key of the ring.

use letterbox_common::{
    ids::WorkspaceId,
    sealing::{KeyRing, Place},
};
use serde::Serialize;
use uuid::Uuid;

use super::{Owner, OwnerError, store};

/// Rows that a rotation takes at a time: each is sealed again in a short statement of its own.
const PAGE: i64 = 500;

/// A column that holds sealed values.
#[derive(Debug, Clone, Copy)]
pub struct SealedColumn {
    pub table: &'static str,
    pub column: &'static str,
    /// Reads a page of sealed values behind a workspace and an id.
    pub page: &'static str,
    /// Replaces one sealed value that is still the same.
    pub replace: &'static str,
}

/// A sealed value and where it stands.
#[derive(Debug, Clone)]
pub struct Sealed {
    pub workspace: WorkspaceId,
    pub id: Uuid,
    pub value: Vec<u8>,
}

/// What a rotation did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Rotation {
    /// Values sealed again with the first key.
    pub resealed: u64,
    /// Values that were sealed with it already.
    pub current: u64,
}

impl Owner {
    /// Seals every secret and credential again that is not sealed with the first key. Safe while
    /// everything runs, and safe to repeat: a value that changes meanwhile is left alone.
    ///
    /// # Errors
    /// When a value does not open. What was sealed until then stays so.
    pub async fn rotate_keys(&self, keys: &KeyRing) -> Result<Rotation, OwnerError> {
        let mut rotation = Rotation::default();
        for column in store::SEALED {
            self.rotate_column(keys, column, &mut rotation).await?;
        }
        Ok(rotation)
    }

    async fn rotate_column(
        &self,
        keys: &KeyRing,
        column: SealedColumn,
        rotation: &mut Rotation,
    ) -> Result<(), OwnerError> {
        let mut after = None;
        loop {
            let page = store::sealed(&self.client, column, after, PAGE).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = Some((last.workspace, last.id));
            for Sealed {
                workspace,
                id,
                value,
            } in &page
            {
                let place = Place {
                    table: column.table,
                    column: column.column,
                    workspace: *workspace,
                    row: id.as_bytes(),
                };
                let failed = |error: &dyn std::fmt::Display| {
                    OwnerError::refused(format!(
                        "{}.{} of {id}: {error}",
                        column.table, column.column
                    ))
                };
                if keys.is_current(value).map_err(|error| failed(&error))? {
                    rotation.current += 1;
                    continue;
                }
                let secret = keys.open(place, value).map_err(|error| failed(&error))?;
                let fresh = keys
                    .seal(place, secret.expose())
                    .map_err(|error| failed(&error))?;
                rotation.resealed +=
                    store::reseal(&self.client, column, *workspace, *id, value, &fresh).await?;
            }
        }
    }
}
