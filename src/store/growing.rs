use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::StoreError;

/// A file that grows from front to back, such as a download that may be cut off. Nothing is
/// synced or renamed: whoever reads it verifies what it holds and writes that under its final name
/// with [`write_atomic`](super::write_atomic).
#[derive(Debug)]
pub struct GrowingFile {
    path: PathBuf,
    file: File,
}

impl GrowingFile {
    /// An empty file, whatever was there.
    ///
    /// # Errors
    /// [`StoreError::Io`] where the system refuses.
    pub fn start(path: &Path) -> Result<Self, StoreError> {
        Self::open(path, OpenOptions::new().write(true).truncate(true))
    }

    /// The file as it is, to grow at its end.
    ///
    /// # Errors
    /// [`StoreError::Io`] where the system refuses.
    pub fn resume(path: &Path) -> Result<Self, StoreError> {
        Self::open(path, OpenOptions::new().append(true))
    }

    fn open(path: &Path, options: &mut OpenOptions) -> Result<Self, StoreError> {
        let file = options.create(true).open(path);
        Ok(Self {
            path: path.to_owned(),
            file: file.map_err(|error| StoreError::io("write", path, error))?,
        })
    }

    /// Adds bytes at the end.
    ///
    /// # Errors
    /// [`StoreError::Io`] where the system refuses (a full disk).
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        (self.file.write_all(bytes)).map_err(|error| StoreError::io("write", &self.path, error))
    }
}
