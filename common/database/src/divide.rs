//! Batches that fail are divided, so that one tenant's trouble stays their own and an item at fault
//! stands alone.

use tokio_postgres::error::SqlState;

use crate::{DatabaseError, Fault};

/// Divides a batch that failed. If somebody may keep a row of one of its parties locked, each party
/// becomes a part: a lock takes its time once more for those who are concerned, and not for each of
/// their items. If the database refuses an item, in halves. A stack of the parts takes them in
/// their order. The batch comes back whole if that can't help.
///
/// # Errors
/// Gives the batch back that can't be divided.
pub fn divide<T, P: PartialEq>(
    mut batch: Vec<T>,
    error: &DatabaseError,
    party: impl Fn(&T) -> P,
) -> Result<Vec<Vec<T>>, Vec<T>> {
    if batch.len() < 2 {
        return Err(batch);
    }
    if error.fault == Fault::Permanent || is_too_much(error) {
        let second = batch.split_off(batch.len() / 2);
        return Ok(vec![second, batch]);
    }
    if !may_be_locked(error) {
        return Err(batch);
    }
    let mut parties: Vec<(P, Vec<T>)> = Vec::new();
    for item in batch {
        let of = party(&item);
        match parties.iter_mut().find(|(known, _)| *known == of) {
            Some((_, items)) => items.push(item),
            None => parties.push((of, vec![item])),
        }
    }
    let mut parts: Vec<Vec<T>> = parties.into_iter().map(|(_, items)| items).collect();
    match parts.len() {
        1 => Err(parts.remove(0)),
        _ => Ok(parts.into_iter().rev().collect()),
    }
}

/// Whether somebody may keep a row locked that the statement needs. Otherwise the database is
/// unavailable for all.
fn may_be_locked(error: &DatabaseError) -> bool {
    let locked = [SqlState::QUERY_CANCELED, SqlState::LOCK_NOT_AVAILABLE];
    let code = error.code.as_ref();
    code.is_some_and(|code| locked.contains(code))
}

/// Whether an item twice is too much for one statement.
fn is_too_much(error: &DatabaseError) -> bool {
    error.code == Some(SqlState::CARDINALITY_VIOLATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_FAULT: usize = 37;

    /// Tries a hundred items of ten parties, of which one fails each batch with this error: how
    /// many batches were tried, which items were done, and which failed.
    fn tried(error: &DatabaseError) -> (usize, Vec<usize>, Vec<usize>) {
        let mut parts: Vec<Vec<usize>> = vec![(0..100).collect()];
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        let mut batches = 0;
        while let Some(part) = parts.pop() {
            batches += 1;
            if !part.contains(&AT_FAULT) {
                done.extend(part);
                continue;
            }
            match divide(part, error, |item| item / 10) {
                Ok(smaller) => parts.extend(smaller),
                Err(whole) => failed.extend(whole),
            }
        }
        (batches, done, failed)
    }

    #[test]
    fn the_others_are_done_in_their_order() {
        let refused = DatabaseError::no_row("test");
        let others: Vec<_> = (0..100).filter(|one| *one != AT_FAULT).collect();
        assert_eq!(tried(&refused), (13, others, vec![AT_FAULT]));
    }

    #[test]
    fn a_lock_concerns_its_party_alone() {
        let mut locked = DatabaseError::rolled_back("test");
        locked.code = Some(SqlState::LOCK_NOT_AVAILABLE);
        let others: Vec<_> = (0..100).filter(|one| one / 10 != AT_FAULT / 10).collect();
        assert_eq!(tried(&locked), (11, others, (30..40).collect()));
    }

    #[test]
    fn nothing_is_divided_while_the_database_is_away() {
        let away = DatabaseError::rolled_back("test");
        assert_eq!(tried(&away), (1, vec![], (0..100).collect()));
    }
}
