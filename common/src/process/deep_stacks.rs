//! A stack that is deep enough for what others have nested.
//!
//! The client of the broker reads the headers of a message as deep as they nest, in a thread of its
//! own, for whose stack there is no setting but the one below. Out of stack, a thread takes the
//! process with it, and the message comes to the next one.

use std::{
    env, io,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
    thread,
};

use tokio::runtime::{Builder, Runtime};

/// What the standard library takes for the stacks of threads, read once before the first of them.
const SETTING: &str = "RUST_MIN_STACK";
/// More than what the most deeply nested headers take that fit in a frame of 128 KiB, RabbitMQ's
/// own limit: of a build for debugging, or of one for use.
const READING: usize = if cfg!(debug_assertions) { 160 } else { 64 } << 20;
/// The same for letting go of them, for the threads of the runtime.
const RELEASING: usize = if cfg!(debug_assertions) { 32 } else { 8 } << 20;

/// Starts this program once more in its own place, so that threads of libraries have deep stacks,
/// and then runs it, in a thread that has one.
pub fn with_deep_stacks(program: fn() -> ExitCode) -> ExitCode {
    #[allow(clippy::disallowed_methods, reason = "not a setting of ours")]
    let set = env::var(SETTING).ok().and_then(|set| set.parse().ok());
    let is_deep = set.is_some_and(|set: usize| set >= READING);
    if !is_deep && let Ok(path) = env::current_exe() {
        let mut arguments = env::args_os();
        let mut again = Command::new(path);
        if let Some(name) = arguments.next() {
            again.arg0(name);
        }
        // Where it can't be started, it goes on as it is.
        let _ = again
            .args(arguments)
            .env(SETTING, READING.to_string())
            .exec();
    }
    let deep = thread::Builder::new().stack_size(RELEASING);
    match deep.spawn(program).map(thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        // It has said why.
        Ok(Err(_)) => ExitCode::FAILURE,
        Err(_) => program(),
    }
}

/// A runtime with threads for what messages hold, and not for more.
///
/// # Errors
/// When the operating system gives no threads.
pub fn runtime() -> io::Result<Runtime> {
    let mut building = Builder::new_multi_thread();
    building.enable_all().thread_stack_size(RELEASING).build()
}
