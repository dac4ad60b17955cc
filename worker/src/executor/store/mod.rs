//! The record in the database. `load` reads runs that were taken, `begin` begins attempts, `write`
//! writes what came of them: each of many runs in one transaction.
//!
//! A transaction first locks the rows of its runs in `active_runs`, in the order of their keys, and
//! so finds out which turns still last. Orders about a run lock the same row first. Actions that
//! people were asked about are locked before: whoever looks at them for long holds up nobody else.

pub(super) mod begin;
pub(super) mod load;
mod rows;
pub(super) mod write;

use letterbox_database::{BoundStatement, Statement, statements};

use super::record::{ActionKey, Turn};

statements! {
    /// Locks runs for their turns: returns the places of those that last, and whether the run is
    /// to be cancelled.
    HOLD_RUNS = hold_runs "
SELECT i.place, a.is_cancelled
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[])
     WITH ORDINALITY AS i (workspace_id, run_id, turn, place)
JOIN active_runs a ON a.workspace_id = i.workspace_id AND a.run_id = i.run_id
    AND a.state = 'taken' AND a.turn = i.turn
ORDER BY a.workspace_id, a.run_id FOR NO KEY UPDATE OF a";
}

/// Every statement of the record.
pub(super) fn statements() -> impl Iterator<Item = &'static [&'static Statement]> {
    [
        STATEMENTS,
        load::STATEMENTS,
        begin::STATEMENTS,
        write::STATEMENTS,
    ]
    .into_iter()
}

/// A statement whose first arguments are the keys of turns, `$3` being their tokens.
fn of_turns<'p>(
    statement: &'static Statement,
    turns: impl Iterator<Item = Turn> + Clone,
) -> BoundStatement<'p> {
    BoundStatement::new(statement)
        .column(
            /* $1 workspace_id */ turns.clone().map(|turn| turn.workspace),
        )
        .column(/* $2 run_id */ turns.clone().map(|turn| turn.run))
        .column(/* $3 turn */ turns.map(|turn| turn.token))
}

/// Adds the columns that say which action is meant, `$4` to `$8`.
fn of_actions<'p>(
    statement: BoundStatement<'p>,
    keys: impl Iterator<Item = &'p ActionKey> + Clone,
) -> BoundStatement<'p> {
    statement
        .column(
            /* $4 action_id */ keys.clone().map(|key| key.id.as_str()),
        )
        .column(/* $5 type */ keys.clone().map(|key| key.kind))
        .column(
            /* $6 part_of */ keys.clone().map(|key| key.part_of.as_deref()),
        )
        .column(
            /* $7 untrusted */ keys.clone().map(|key| words(&key.taint.kinds())),
        )
        .column(
            /* $8 steered_by */ keys.map(|key| words(&key.taint.steered.kinds())),
        )
}

/// Words of a closed set, as the server writes an array: arrays of arrays can't be unnested.
fn words(words: &[impl ToString]) -> String {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    format!("{{{}}}", words.join(","))
}
