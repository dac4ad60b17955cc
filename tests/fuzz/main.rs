//! Runs one fuzz target under libFuzzer, which looks for inputs that reach new code: the one that
//! `LETTERBOX_FUZZ_TARGET` names. `deploy/fuzz` builds this with coverage and runs it.

#![no_main]

mod targets;

use std::sync::LazyLock;

/// The target that was asked for.
static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let asked = std::env::var("LETTERBOX_FUZZ_TARGET").unwrap_or_default();
    let found = targets::TARGETS.iter().find(|(name, _)| *name == asked);
    let names = targets::TARGETS.map(|(name, _)| name).join(", ");
    found.map(|(_, target)| *target).unwrap_or_else(|| {
        eprintln!("LETTERBOX_FUZZ_TARGET must be one of {names}, not {asked:?}");
        std::process::exit(2)
    })
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| TARGET(input));
