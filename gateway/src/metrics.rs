//! The metrics of the gateway.

letterbox_common::metrics! {
    /// Time from the head of a request to its answer, by route and status
    REQUEST_DURATION: Seconds = "letterbox_request_duration_seconds" [route, status];
    /// Open connections
    CONNECTIONS: Gauge = "letterbox_connections" [];
    /// Connections that were closed at once because their peer had its share
    CONNECTIONS_REFUSED: Counter = "letterbox_connections_refused_total" [];
    /// Deliveries and submissions that passed every check, by kind and outcome: first, repeat,
    /// in_progress, gone or unavailable
    INTAKE: Counter = "letterbox_intake_total" [kind, outcome];
    /// Messages that could not be published, by reason
    PUBLISH_FAILURES: Counter = "letterbox_publish_failures_total" [reason];
    /// Deliveries and submissions that were spilled because the broker was away
    SPILLED: Counter = "letterbox_spilled_total" [];
    /// Messages that wait in the spill, over all gateways
    SPILL_MESSAGES: Gauge = "letterbox_spill_messages" [];
    /// Bytes of the messages that wait in the spill, over all gateways
    SPILL_BYTES: Gauge = "letterbox_spill_bytes" [];
    /// How long the oldest message has been waiting in the spill
    OLDEST_SPILLED: Gauge = "letterbox_oldest_spilled_seconds" [];
    /// Requests refused by a rate limit, by what was limited: client or token
    RATE_LIMITED: Counter = "letterbox_rate_limited_total" [subject];
    /// Entries under a used idempotency key or sender's id with another payload than the first
    CHANGED_REPEATS: Counter = "letterbox_changed_repeats_total" [];
    /// Submissions that did not prove what their form wants proven, by what was wrong
    UNPROVEN: Counter = "letterbox_unproven_submissions_total" [reason];
    /// Webhook secrets that could not be opened with the sealing keys
    UNSEALING_FAILURES: Counter = "letterbox_unsealing_failures_total" [];
}
