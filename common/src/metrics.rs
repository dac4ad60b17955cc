//! The metrics of every process.

crate::metrics! {
    /// Always 1; what runs, by program and version
    BUILD_INFO: Info = "letterbox_build_info" [program, version];
}
