//! The metrics of every process.

crate::metrics! {
    /// Always 1; what runs, by program and version
    BUILD_INFO: Gauge = "letterbox_build_info" [program, version];
    /// 1 where the process can do its work, as /readyz says
    READY: Gauge = "letterbox_ready" [];
    /// Longest time that an item has waited for its batch, by batcher
    BATCH_WAIT: Seconds = "letterbox_batch_wait_seconds" [batcher];
    /// Items handled at once, by batcher
    BATCH_SIZE: Sizes = "letterbox_batch_size" [batcher];
}
