//! The row that holds the number of work queues.

use letterbox_database::{Database, DatabaseError, statements};

statements! {
    /// The largest number of queues that a gateway has ever used.
    COUNT_QUEUES = count_work_queues "SELECT queues FROM work_queues";
}

/// Returns the number of work queues in each family.
///
/// # Errors
/// When the database did not answer.
pub(super) async fn count_queues(database: &Database) -> Result<u16, DatabaseError> {
    let row = database.query_one(&COUNT_QUEUES, &[]).await?;
    let queues: i32 = row.try_get("queues")?;
    Ok(u16::try_from(queues).unwrap_or(1))
}
