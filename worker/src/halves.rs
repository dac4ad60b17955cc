//! Batches that fail are divided until the item at fault stands alone.

use letterbox_database::{DatabaseError, Fault};
use tokio_postgres::error::SqlState;

/// Divides a batch that failed: in halves, or into its items if one of them may be locked, as a
/// lock takes its time each time. A stack of the parts takes them in their order. The batch comes
/// back whole if that can't help.
pub(crate) fn divide<T>(mut batch: Vec<T>, error: &DatabaseError) -> Result<Vec<Vec<T>>, Vec<T>> {
    if batch.len() < 2 || !may_be_one_of(error) {
        return Err(batch);
    }
    if error.fault == Fault::Transient {
        return Ok(batch.into_iter().rev().map(|one| vec![one]).collect());
    }
    let second = batch.split_off(batch.len() / 2);
    Ok(vec![second, batch])
}

/// Whether one item of a batch may be at fault: the database refuses it, it is too much for one
/// statement, or somebody keeps its row locked. Otherwise the database is unavailable for all.
fn may_be_one_of(error: &DatabaseError) -> bool {
    let of_an_item = [
        SqlState::QUERY_CANCELED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::CARDINALITY_VIOLATION,
    ];
    error.fault == Fault::Permanent
        || error
            .code
            .as_ref()
            .is_some_and(|code| of_an_item.contains(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_FAULT: usize = 37;

    /// Tries a hundred items, of which one fails each batch with this error: how many batches were
    /// tried, which items were done, and which failed.
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
            match divide(part, error) {
                Ok(smaller) => parts.extend(smaller),
                Err(whole) => failed.extend(whole),
            }
        }
        (batches, done, failed)
    }

    #[test]
    fn the_others_are_done_in_their_order() {
        let refused = DatabaseError::no_row("test");
        let mut locked = DatabaseError::rolled_back("test");
        locked.code = Some(SqlState::LOCK_NOT_AVAILABLE);
        let others: Vec<_> = (0..100).filter(|one| *one != AT_FAULT).collect();
        for (error, batches) in [(refused, 13), (locked, 101)] {
            assert_eq!(
                tried(&error),
                (batches, others.clone(), vec![AT_FAULT]),
                "{error}"
            );
        }
    }

    #[test]
    fn nothing_is_divided_while_the_database_is_away() {
        let away = DatabaseError::rolled_back("test");
        assert_eq!(tried(&away), (1, vec![], (0..100).collect()));
    }
}
