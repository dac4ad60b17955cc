//! The record in the database. `load` reads runs that were taken, `begin` begins attempts, `write`
//! writes what came of them: each of many runs in one transaction.
//!
//! A transaction first locks the rows of its runs in `active_runs`, in the order of their keys, and
//! so finds out which turns still last. Orders about a run lock the same row first. Actions that
//! people were asked about are locked before: whoever looks at them for long holds up nobody else.

pub mod begin;
pub mod load;
mod rows;
pub mod trials;
pub mod write;

use letterbox_common::ids::{RunId, WorkspaceId};
use letterbox_database::{DatabaseError, FromRow, Row, RowError, Statement, statements, stores};

use self::rows::RunRow;

statements! {
    /// Locks runs for their turns: those that last, and whether the run is to be cancelled.
    fn hold_runs(turns: &[RunRow<'_>]) -> Vec<HeldTurn> = "
SELECT a.workspace_id, a.run_id, a.is_cancelled
FROM unnest($1::run_change[]) AS i
JOIN active_runs a ON a.workspace_id = ANY (ARRAY[i.workspace_id]) AND a.run_id = i.run_id
    AND a.state = 'taken' AND a.turn = i.turn
ORDER BY i.workspace_id, i.run_id FOR NO KEY UPDATE OF a";
}

type TurnKey = (WorkspaceId, RunId);

/// A run whose turn lasts.
#[derive(FromRow)]
struct HeldTurn {
    #[row(from = key)]
    key: TurnKey,
    is_cancelled: bool,
}

fn key(row: &Row) -> Result<TurnKey, RowError> {
    Ok((row.try_get("workspace_id")?, row.try_get("run_id")?))
}

/// Every statement of the record.
pub(super) fn statements() -> impl Iterator<Item = &'static [&'static Statement]> {
    [STATEMENTS]
        .into_iter()
        .chain(stores! { load begin trials write })
}

/// Asks about rows, if there are any: where there is nothing to ask, nothing is answered.
async fn unless_empty<'r, T, A: Default, F: Future<Output = Result<A, DatabaseError>>>(
    rows: &'r [T],
    ask: impl FnOnce(&'r [T]) -> F,
) -> Result<A, DatabaseError> {
    match rows {
        [] => Ok(A::default()),
        // Boxed, because of the many that are asked together few have rows.
        rows => Box::pin(ask(rows)).await,
    }
}
