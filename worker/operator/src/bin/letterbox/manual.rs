//! Man pages, made of the same definitions as `--help`.

use std::path::Path;

use clap::Command;
use serde_json::json;

use crate::{Output, Result, file::FileError};

/// Writes a man page for each command.
pub(crate) fn man(command: Command, folder: &Path) -> Result<Output> {
    let written = clap_mangen::generate_to(command, folder);
    written.map_err(|cause| FileError::new(folder, cause))?;
    Ok(Output::one(&json!({ "folder": folder })))
}
