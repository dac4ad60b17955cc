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

use letterbox_common::ids::{RunId, WorkspaceId};
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
    turns: impl Iterator<Item = Turn>,
) -> BoundStatement<'p> {
    let (mut workspaces, mut runs, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
    for turn in turns {
        workspaces.push(turn.workspace);
        runs.push(turn.run);
        tokens.push(turn.token);
    }
    let (workspaces, runs): (Vec<WorkspaceId>, Vec<RunId>) = (workspaces, runs);
    BoundStatement::new(statement)
        .bind(/* $1 workspace_id */ workspaces)
        .bind(/* $2 run_id */ runs)
        .bind(/* $3 turn */ tokens)
}

/// Adds the columns that say which action is meant, `$4` to `$8`.
fn of_actions<'p>(
    statement: BoundStatement<'p>,
    keys: impl Iterator<Item = &'p ActionKey> + Clone,
) -> BoundStatement<'p> {
    let ids: Vec<&str> = keys.clone().map(|key| key.id.as_str()).collect();
    let kinds: Vec<&str> = keys.clone().map(|key| key.kind).collect();
    let agents: Vec<Option<&str>> = keys.clone().map(|key| key.part_of.as_deref()).collect();
    let untrusted: Vec<String> = keys.clone().map(|key| words(&key.taint.kinds())).collect();
    let steered: Vec<String> = keys.map(|key| words(&key.taint.steered.kinds())).collect();
    statement
        .bind(/* $4 action_id */ ids)
        .bind(/* $5 type */ kinds)
        .bind(/* $6 part_of */ agents)
        .bind(/* $7 untrusted */ untrusted)
        .bind(/* $8 steered_by */ steered)
}

/// Words of a closed set, as the server writes an array: arrays of arrays can't be unnested.
fn words(words: &[impl ToString]) -> String {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    format!("{{{}}}", words.join(","))
}
