//! The row with the number of queues.

use letterbox_database::{Database, DatabaseError, statements};

statements! {
    /// Raises the number of queues.
    ANNOUNCE_QUEUES = announce_work_queues "
UPDATE work_queues SET queues = greatest(queues, $1)";
}

/// Raises the number of queues; a smaller number changes nothing.
pub(super) async fn announce(database: &Database, queues: u16) -> Result<(), DatabaseError> {
    let queues = i32::from(queues);
    database.execute(&ANNOUNCE_QUEUES, &[&queues]).await?;
    Ok(())
}
