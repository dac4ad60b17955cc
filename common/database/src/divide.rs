//! Batches that fail are divided, so that one tenant's trouble stays their own and an item at fault
//! stands alone.

use tokio_postgres::error::SqlState;

use crate::{DatabaseError, Fault};

/// Divides a batch that failed. If a row of one of its parties may be locked, each party becomes a
/// part: a lock takes its time once more for those who are concerned, and not for each of their
/// items. What one party's batch fails for otherwise (an item is refused, or it takes too long) is
/// found by halves. A stack of the parts takes them in their order.
///
/// # Errors
/// Gives the batch back if dividing can't help: the rows of its only party are locked, or the
/// database is unavailable for all.
pub fn divide<T, P: PartialEq>(
    mut batch: Vec<T>,
    error: &DatabaseError,
    party: impl Fn(&T) -> P,
) -> Result<Vec<Vec<T>>, Vec<T>> {
    let is_late = error.is_one_of(&[SqlState::QUERY_CANCELED]);
    let is_refused = error.fault == Fault::Permanent
        || error.is_one_of(&[SqlState::CARDINALITY_VIOLATION, SqlState::NO_DATA]);
    let is_of_many = batch.windows(2).any(|two| party(&two[0]) != party(&two[1]));
    if error.is_of_lock() && is_of_many {
        return Ok(by_party(batch, party));
    }
    if (is_refused || is_late) && batch.len() > 1 {
        let second = batch.split_off(batch.len() / 2);
        return Ok(vec![second, batch]);
    }
    Err(batch)
}

/// The items of each party, those of the first on top.
fn by_party<T, P: PartialEq>(batch: Vec<T>, party: impl Fn(&T) -> P) -> Vec<Vec<T>> {
    let mut parties: Vec<(P, Vec<T>)> = Vec::new();
    for item in batch {
        let of = party(&item);
        match parties.iter_mut().find(|(known, _)| *known == of) {
            Some((_, items)) => items.push(item),
            None => parties.push((of, vec![item])),
        }
    }
    parties.into_iter().rev().map(|(_, items)| items).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_FAULT: usize = 37;

    /// Tries a hundred items of ten parties, of which one fails each batch with this error: how
    /// many batches were tried, which items were done, and which failed.
    fn tried(error: &DatabaseError) -> (usize, Vec<usize>, Vec<usize>) {
        let mut parts: Vec<Vec<usize>> = vec![(0..100).collect()];
        let mut done = Vec::new();
        let mut failed = Vec::new();
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
        assert_eq!(tried(&refused), (13, others.clone(), vec![AT_FAULT]));
        let gone = DatabaseError::gone("test");
        assert_eq!(tried(&gone), (13, others, vec![AT_FAULT]));
    }

    #[test]
    fn a_lock_concerns_its_party_alone() {
        let mut locked = DatabaseError::rolled_back("test");
        locked.code = Some(SqlState::LOCK_NOT_AVAILABLE);
        let others: Vec<_> = (0..100).filter(|one| one / 10 != AT_FAULT / 10).collect();
        assert_eq!(tried(&locked), (11, others, (30..40).collect()));
    }

    /// First the others are done; then what of a party takes too long is done in parts.
    #[test]
    fn what_takes_too_long_is_found_by_halves() {
        let mut late = DatabaseError::rolled_back("test");
        late.code = Some(SqlState::QUERY_CANCELED);
        let (batches, done, failed) = tried(&late);
        assert_eq!((batches, done.len(), failed), (17, 99, vec![AT_FAULT]));
    }

    #[test]
    fn nothing_is_divided_while_the_database_is_away() {
        let away = DatabaseError::rolled_back("test");
        assert_eq!(tried(&away), (1, vec![], (0..100).collect()));
    }
}
