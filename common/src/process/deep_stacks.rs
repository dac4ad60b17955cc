//! Stacks that are deep enough for what others have nested.
//!
//! A broker's client reads the headers of a message as deep as they nest, in a thread of its own
//! whose stack nobody else can choose. Out of stack, a thread takes the process with it, and the
//! message comes to the next one.

use std::{
    env,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

/// What the standard library takes for the stacks of threads, read once before the first of them.
const SETTING: &str = "RUST_MIN_STACK";
/// Twice what the most deeply nested headers take that fit in a frame of 128 KiB, RabbitMQ's own
/// limit. Only what is used of it is memory.
const BYTES: &str = "134217728";

/// Starts this program once more in its own place, so that all of its threads have deep stacks, and
/// then runs it.
pub fn with_deep_stacks(program: impl FnOnce() -> ExitCode) -> ExitCode {
    #[allow(clippy::disallowed_methods, reason = "not a setting of ours")]
    let is_set = env::var_os(SETTING).is_some();
    if !is_set && let Ok(path) = env::current_exe() {
        let mut arguments = env::args_os();
        let mut again = Command::new(path);
        if let Some(name) = arguments.next() {
            again.arg0(name);
        }
        // Where it can't be started, it goes on as it is.
        let _ = again.args(arguments).env(SETTING, BYTES).exec();
    }
    program()
}
