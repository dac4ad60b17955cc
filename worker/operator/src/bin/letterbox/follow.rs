//! Following a list: what is there, and from then on what is new in it or has changed.

use std::{collections::HashMap, hash::Hash, time::Duration};

use letterbox_operator::OperatorError;
use serde::Serialize;
use serde_json::json;

use crate::{Output, Result, output};

/// How many are looked at, the newest.
pub(crate) const MAX_FOLLOWED: u32 = 1_000;
/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// Prints the newest `limit`, oldest first, and goes on until standard output is closed. `read`
/// gives the newest ones first; `known` tells one from another and gives its state; ids sort by
/// time.
pub(crate) async fn follow<T: Serialize, Id: Copy + Eq + Hash + Ord, State: Eq>(
    limit: u32,
    json: bool,
    read: impl AsyncFn(u32) -> Result<Vec<T>, OperatorError>,
    known: impl Fn(&T) -> (Id, State),
    line: impl Fn(&T) -> String,
) -> Result<Output> {
    let mut printed: HashMap<Id, State> = HashMap::new();
    let mut limit = limit;
    let mut first = None;
    loop {
        let found = read(limit).await?;
        limit = MAX_FOLLOWED;
        // Older rows that weren't asked for are not new.
        let first = *first.get_or_insert_with(|| found.last().map(|one| known(one).0));
        for one in found.iter().rev() {
            let (id, state) = known(one);
            if first.is_some_and(|first| id < first) || printed.get(&id) == Some(&state) {
                continue;
            }
            let is_read = if json {
                output::line(&json!(one))
            } else {
                output::text_line(&line(one))
            };
            if !is_read {
                return Ok(Output::Nothing);
            }
        }
        printed = found.iter().map(&known).collect();
        tokio::time::sleep(PAUSE).await;
    }
}
