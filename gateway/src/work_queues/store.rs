//! The row with the number of queues.

use letterbox_database::statements;

statements! {
    /// Raises the number of queues; a smaller number changes nothing.
    pub(super) fn announce_work_queues(queues: i32) = "
UPDATE work_queues SET queues = greatest(queues, $1)";
}
