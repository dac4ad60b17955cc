//! What the consumer asks the database: the number of work queues, and whether workers have died.

use letterbox_database::statements;

statements! {
    /// The largest number of queues that a gateway has ever used.
    pub(super) fn count_work_queues() -> (i32,) = "SELECT queues FROM work_queues";

    /// Workers that have died lately: those that stop in order leave no row, and those that live
    /// report every five seconds.
    pub(super) fn count_dead_workers() -> (i64,) = "
SELECT count(*) AS dead FROM workers
WHERE NOT is_alive(seen_at, 7) AND seen_at > now() - interval '1 day'";
}
