//! The metrics of this crate.

letterbox_common::metrics! {
    /// Time of a database call by statement or transaction, with waiting for a connection and
    /// retries
    STATEMENT_DURATION: Seconds = "letterbox_statement_duration_seconds" [statement];
    /// Failed database calls by statement or transaction; fault is transient or permanent
    STATEMENT_FAILURES: Counter = "letterbox_statement_failures_total" [statement, fault];
    /// Database connections that may be open
    POOL_SIZE: Gauge = "letterbox_database_connections_max" [];
    /// Database connections that are in use
    CONNECTIONS_IN_USE: Gauge = "letterbox_database_connections_in_use" [];
    /// Time that a database call waited for a connection
    CONNECTION_WAIT: Seconds = "letterbox_database_connection_wait_seconds" [];
}
