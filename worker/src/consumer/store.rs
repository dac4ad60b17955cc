//! What the consumer asks the database: the number of work queues, and whether workers have died.

use letterbox_database::{Database, DatabaseError, statements};

statements! {
    /// The largest number of queues that a gateway has ever used.
    COUNT_QUEUES = count_work_queues "SELECT queues FROM work_queues";

    /// Workers that have died lately: those that stop in order leave no row, and those that live
    /// report every five seconds.
    COUNT_DEAD_WORKERS = count_dead_workers "
SELECT count(*) AS dead FROM workers
WHERE NOT is_alive(seen_at, 7) AND seen_at > now() - interval '1 day'";
}

/// Returns the number of work queues in each family.
pub(super) async fn count_queues(database: &Database) -> Result<u16, DatabaseError> {
    let row = database.query_one(&COUNT_QUEUES, &[]).await?;
    let queues: i32 = row.try_get("queues")?;
    Ok(u16::try_from(queues).unwrap_or(1))
}

/// Returns how many workers have died within a day.
pub(super) async fn count_dead_workers(database: &Database) -> Result<i64, DatabaseError> {
    let row = database.query_one(&COUNT_DEAD_WORKERS, &[]).await?;
    Ok(row.try_get("dead")?)
}
