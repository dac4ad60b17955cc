//! The metrics of the worker.

letterbox_common::metrics! {
    /// Age of the oldest entry that a worker holds and has not processed yet, by queue; 0 if there
    /// is none
    OLDEST_ENTRY: Gauge = "letterbox_oldest_entry_seconds" [queue];
    /// How long the oldest run that no worker has taken has been due, reported by one of the
    /// workers; 0 if there is none
    OLDEST_DUE_RUN: Gauge = "letterbox_oldest_due_run_seconds" [];
    /// Age of the oldest pending approval; 0 if there is none
    OLDEST_APPROVAL: Gauge = "letterbox_oldest_approval_seconds" [];
    /// Webhooks of which was told today or yesterday that they lose events, counted up to 10,000;
    /// reported by one of the workers
    DEAF_WEBHOOKS: Gauge = "letterbox_deaf_webhooks" [];
    /// Pending approvals, counted up to 10,000
    APPROVALS: Gauge = "letterbox_pending_approvals" [];
    /// Runs that are not over, by state: scheduled for later, ready for their turn, or taken by
    /// workers; each counted up to 10,000, reported by one of the workers
    WAITING_RUNS: Gauge = "letterbox_waiting_runs" [state];
    /// Claims that are not in the memory, about, by kind: deliveries or submissions; reported by
    /// one of the workers
    CLAIMS: Gauge = "letterbox_claims" [kind];
    /// Keys that the memory holds, reported by one of the workers
    REMEMBERED: Gauge = "letterbox_remembered_keys" [];
    /// Segments of the memory that every look-up asks, reported by one of the workers
    MEMORY_SEGMENTS: Gauge = "letterbox_memory_segments" [];
    /// Bytes of the memory on disk, reported by one of the workers
    MEMORY_BYTES: Gauge = "letterbox_memory_bytes" [];
    /// Entries stored in one transaction, by queue
    CONSUMED_BATCH_SIZE: Sizes = "letterbox_consumed_batch_size" [queue];
    /// Tries to process an entry, by queue and outcome: done, retry or rejected (dead-lettered)
    ENTRIES: Counter = "letterbox_entries_total" [queue, outcome];
    /// Time from the receipt of a delivery or submission to its stored signal or run, by queue
    PROCESSING_DELAY: Delays = "letterbox_processing_delay_seconds" [queue];
    /// Dead-lettered entries, by queue and cause: malformed, unclaimed, refused by the database, or
    /// deadly to its workers
    DEAD_LETTERS: Counter = "letterbox_dead_letters_total" [queue, cause];
    /// Signals stored
    SIGNALS: Counter = "letterbox_signals_total" [];
    /// Repeated signals that were already stored
    SIGNALS_REPEATED: Counter = "letterbox_signals_repeated_total" [];
    /// Signals that queues or URLs of subscriptions have taken; what they take twice counts twice
    SIGNALS_PUBLISHED: Counter = "letterbox_signals_published_total" [];
    /// Signals that a subscription has not looked at, counted up to 10,000, by its queue, or by its
    /// id if it is to a URL; reported by one of the workers
    SUBSCRIPTION_LAG: Gauge = "letterbox_subscription_lag_signals" [subscription];
    /// How long ago the first of them was stored; 0 if there is none, reported by one of the
    /// workers
    SUBSCRIPTION_LAG_SECONDS: Gauge = "letterbox_subscription_lag_seconds" [subscription];
    /// Submissions recorded as runs, by outcome: queued, refused or repeated
    RUNS: Counter = "letterbox_runs_total" [outcome];
    /// Runs that workers have finished, by state: succeeded, failed, denied or cancelled
    RUNS_FINISHED: Counter = "letterbox_runs_finished_total" [state];
    /// Runs taken by workers: turns that runs were given
    RUNS_TAKEN: Counter = "letterbox_runs_taken_total" [];
    /// Maximum number of runs that this worker executes at once
    PLACES: Gauge = "letterbox_run_places" [];
    /// Runs that this worker executes now
    PLACES_TAKEN: Gauge = "letterbox_run_places_taken" [];
    /// Duration of a request to a connected account, by outcome: done, failed, or retry (later)
    ACTION_DURATION: Seconds = "letterbox_action_duration_seconds" [outcome];
    /// Attempts at notices, by outcome: sent or failed
    LETTERS: Counter = "letterbox_letters_total" [outcome];
    /// Links to sign in that were sent by e-mail, by outcome: sent or failed
    SIGN_IN_LINKS: Counter = "letterbox_sign_in_links_total" [outcome];
    /// Tokens that were got for accounts by OAuth 2.0, by outcome: renewed, refused or failed
    TOKENS: Counter = "letterbox_tokens_total" [outcome];
    /// Account credentials that could not be opened with the sealing keys
    UNOPENED_CREDENTIALS: Counter = "letterbox_unopened_credentials_total" [];
}
