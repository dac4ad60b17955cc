//! The metrics of this crate.

letterbox_common::metrics! {
    /// Time of a database call by statement or transaction, with waiting for a connection and
    /// retries
    STATEMENT_DURATION: Seconds = "letterbox_statement_duration_seconds" [statement];
    /// Failed database calls by statement or transaction; fault is transient or permanent
    STATEMENT_FAILURES: Counter = "letterbox_statement_failures_total" [statement, fault];
}
