//! Completion scripts and man pages, made of the
//! same definitions as `--help`.

use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use serde_json::json;

use crate::{Failure, Output, file::FileError, output};

/// Prints the script by which a shell completes commands.
pub(crate) fn completion(mut command: Command, shell: Shell) -> Result<Output, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "letterbox", &mut script);
    output::bytes(&script).map_err(Failure::Output)?;
    Ok(Output::Nothing)
}

/// Writes a man page for each command.
pub(crate) fn man(command: Command, folder: &Path) -> Result<Output, Failure> {
    let written = clap_mangen::generate_to(command, folder);
    written.map_err(|cause| FileError::new(folder, cause))?;
    Ok(Output::one(&json!({ "folder": folder })))
}
