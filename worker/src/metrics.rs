//! The metrics of the worker.

letterbox_common::metrics! {
    /// Entries stored in one transaction, by queue
    CONSUMED_BATCH_SIZE: Sizes = "letterbox_consumed_batch_size" [queue];
    /// Tries to process an entry, by queue and outcome: done, retry or rejected (dead-lettered)
    ENTRIES: Counter = "letterbox_entries_total" [queue, outcome];
    /// Time from the receipt of a delivery or submission to its signal or run, by queue
    PROCESSING_DELAY: Delays = "letterbox_processing_delay_seconds" [queue];
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
}
