//! Files that commands read and write: by name, or `-` for standard input.

use std::{
    fs::OpenOptions,
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use letterbox_common::sealing::Secret;

/// Why a file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {cause}")]
pub(crate) struct FileError {
    file: String,
    cause: std::io::Error,
}

impl FileError {
    pub(crate) fn new(file: &Path, cause: std::io::Error) -> Self {
        Self {
            file: file.display().to_string(),
            cause,
        }
    }
}

/// The bytes of a file.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>, FileError> {
    let bytes = if file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(file)
    };
    bytes.map_err(|cause| FileError::new(file, cause))
}

/// The text of a file, which must be UTF-8.
pub(crate) fn read_text(file: &Path) -> Result<String, FileError> {
    let invalid = |_| FileError::new(file, std::io::ErrorKind::InvalidData.into());
    String::from_utf8(read(file)?).map_err(invalid)
}

/// The secret in a file, without the white space around it.
pub(crate) fn read_secret(file: &Path) -> Result<Secret, FileError> {
    Ok(Secret::new(read(file)?.trim_ascii().to_vec()))
}

/// Writes a file that only its owner can read. A reader finds the old text or the new one, whole.
pub(crate) fn write_private(file: &Path, text: &str) -> Result<(), FileError> {
    let temporary = file.with_extension("new");
    let writing = || {
        // A file that was left behind may have other rights.
        let _ = std::fs::remove_file(&temporary);
        let mut options = OpenOptions::new();
        let mut opened = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        opened.write_all(text.as_bytes())?;
        std::fs::rename(&temporary, file)
    };
    writing().map_err(|cause| FileError::new(file, cause))
}
