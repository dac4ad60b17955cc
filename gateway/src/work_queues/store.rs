//! The row that says how many queues there are.

use letterbox_database::{Database, DatabaseError, statements};

statements! {
    /// Notes a number of queues, unless there have been more.
    ANNOUNCE_QUEUES = announce_work_queues "
UPDATE work_queues SET queues = greatest(queues, $1)";
}

/// Notes a number of queues.
///
/// # Errors
/// When the database did not answer.
pub(super) async fn announce(database: &Database, queues: u16) -> Result<(), DatabaseError> {
    let queues = i32::from(queues);
    database.execute(&ANNOUNCE_QUEUES, &[&queues]).await?;
    Ok(())
}
