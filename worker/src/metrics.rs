//! The metrics of the worker.

letterbox_common::metrics! {
    /// How long ago the oldest entry was received that a worker has and that is not processed yet,
    /// by queue; 0 where there is none
    OLDEST_ENTRY: Gauge = "letterbox_oldest_entry_seconds" [queue];
    /// How long the oldest run has been due that was not handed over to the workers' queue, told by
    /// the worker that hands over; 0 where there is none
    OLDEST_DUE_RUN: Gauge = "letterbox_oldest_due_run_seconds" [];
    /// How long the oldest question has been waiting for a person; 0 where there is none
    OLDEST_APPROVAL: Gauge = "letterbox_oldest_approval_seconds" [];
    /// Questions that wait for a person; no more than 10,000 are counted
    APPROVALS: Gauge = "letterbox_pending_approvals" [];
    /// Runs that wait, by state: scheduled for later, ready for their turn, or handed_over to
    /// workers; no more than 10,000 of each are counted
    WAITING_RUNS: Gauge = "letterbox_waiting_runs" [state];
    /// Entries stored in one transaction, by queue
    CONSUMED_BATCH_SIZE: Sizes = "letterbox_consumed_batch_size" [queue];
    /// Tries to process an entry, by queue and outcome: done, retry or rejected (dead-lettered)
    ENTRIES: Counter = "letterbox_entries_total" [queue, outcome];
    /// Time from the receipt of a delivery or submission to its signal or run, by queue
    PROCESSING_DELAY: Delays = "letterbox_processing_delay_seconds" [queue];
    /// Entries that were dead-lettered, by queue and cause: malformed, unclaimed, refused by the
    /// database, or deadly to its workers
    DEAD_LETTERS: Counter = "letterbox_dead_letters_total" [queue, cause];
    /// Signals stored
    SIGNALS: Counter = "letterbox_signals_total" [];
    /// Signals that came again and were stored before
    SIGNALS_REPEATED: Counter = "letterbox_signals_repeated_total" [];
    /// Submissions recorded as runs, by outcome: queued, refused or repeated
    RUNS: Counter = "letterbox_runs_total" [outcome];
    /// Runs that workers have ended, by state: succeeded, failed, denied or cancelled
    RUNS_FINISHED: Counter = "letterbox_runs_finished_total" [state];
    /// Wakes of runs handed to the broker
    RUN_WAKES: Counter = "letterbox_run_wakes_total" [];
    /// Runs that workers execute at once at most
    PLACES: Gauge = "letterbox_run_places" [];
    /// Runs that workers execute now
    PLACES_TAKEN: Gauge = "letterbox_run_places_taken" [];
    /// Time of a request to a connected account, by outcome: done, failed, or retry (later)
    ACTION_DURATION: Seconds = "letterbox_action_duration_seconds" [outcome];
    /// Credentials of accounts that could not be opened with the sealing keys
    UNOPENED_CREDENTIALS: Counter = "letterbox_unopened_credentials_total" [];
}
