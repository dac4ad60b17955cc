//! The metrics of this crate.

letterbox_common::metrics! {
    /// Broker connections that failed or could not be opened, by connection
    CONNECTION_FAILURES: Counter = "letterbox_broker_connection_failures_total" [connection];
}
