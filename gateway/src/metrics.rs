//! The metrics of the gateway.

letterbox_common::metrics! {
    /// Time from the head of a request to its answer, by route and status
    REQUEST_DURATION: Seconds = "letterbox_request_duration_seconds" [route, status];
    /// Open connections
    CONNECTIONS: Gauge = "letterbox_connections" [];
    /// Items handled by one statement, by batcher
    BATCH_SIZE: Sizes = "letterbox_batch_size" [batcher];
    /// Accepted items that could not be published, by reason
    PUBLISH_FAILURES: Counter = "letterbox_publish_failures_total" [reason];
    /// Requests refused by a rate limit, by what was limited: client or token
    RATE_LIMITED: Counter = "letterbox_rate_limited_total" [subject];
    /// Webhook secrets that could not be opened with the sealing keys
    UNSEALING_FAILURES: Counter = "letterbox_unsealing_failures_total" [];
}
