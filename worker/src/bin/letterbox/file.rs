//! Files that commands take: by name, or `-` for standard input.

use std::{io::Read, path::Path};

/// Why a file could not be taken.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {why}")]
pub struct FileError {
    file: String,
    why: std::io::Error,
}

pub fn read(file: &Path) -> Result<Vec<u8>, FileError> {
    let bytes = if file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(file)
    };
    bytes.map_err(|why| FileError {
        file: file.display().to_string(),
        why,
    })
}

pub fn read_text(file: &Path) -> Result<String, FileError> {
    let not_text = |_| FileError {
        file: file.display().to_string(),
        why: std::io::ErrorKind::InvalidData.into(),
    };
    String::from_utf8(read(file)?).map_err(not_text)
}
