//! Programs in other languages, with the packages that `deploy/test` installs for them.

use std::path::{Path, PathBuf};

use tokio::process::Command;

/// A file of the tree, by its path from `tests/providers`.
fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("providers")
        .join(path)
}

/// The command of a Python program.
pub fn python(path: &str) -> Command {
    let python = std::env::var_os("LETTERBOX_TEST_PYTHON").expect("deploy/test installs it");
    let mut command = Command::new(python);
    command.arg(file(path)).kill_on_drop(true);
    command
}

/// The command of a program for Node.js, copied to where its packages are; `None` where Node.js is
/// not installed.
pub fn node(path: &str) -> Option<Command> {
    let packages = PathBuf::from(std::env::var_os("LETTERBOX_TEST_NODE")?);
    let program = file(path);
    let name = program.file_name()?.to_str()?;
    let copy = packages.join(format!("{}-{name}", uuid::Uuid::new_v4().simple()));
    std::fs::copy(&program, &copy).unwrap();
    let mut command = Command::new("node");
    command.arg(copy).kill_on_drop(true);
    Some(command)
}
