//! The metrics of this crate.

letterbox_common::metrics! {
    /// Broker connections that failed or could not be opened, by connection
    CONNECTION_FAILURES: Counter = "letterbox_broker_connection_failures_total" [connection];
    /// 1 where a connection to the broker is open, by connection
    CONNECTED: Gauge = "letterbox_broker_connected" [connection];
    /// Open channels that messages are published on
    CHANNELS: Gauge = "letterbox_broker_channels" [];
    /// Time from the hand-over of a message to the broker's confirm
    PUBLISH_DURATION: Seconds = "letterbox_publish_duration_seconds" [];
}
