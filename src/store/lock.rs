use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::StoreError;

/// An exclusive lock between processes (and between threads of one), held until dropped. The
/// system frees it when its holder dies, by SIGKILL too.
///
/// The lock file is removed on release. That is safe because (1) only the holder removes it,
/// and (2) whoever gets a lock looks whether the name still leads to the file that was locked, and
/// starts over if it does not: the former holder had removed it in between.
#[derive(Debug)]
pub struct FileLock {
    path: PathBuf,
    file: File,
}

impl FileLock {
    /// Takes the lock if it is free; `None` if another holds it.
    ///
    /// # Errors
    /// [`StoreError::Io`] where the lock file cannot be made or the file system has no locks.
    pub fn try_exclusive(path: &Path) -> Result<Option<Self>, StoreError> {
        loop {
            let file = open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => {
                    return Err(StoreError::io("lock", path, error));
                }
            }
            if let Some(lock) = Self::confirm(path, file)? {
                return Ok(Some(lock));
            }
        }
    }

    /// Takes the lock, waiting until it is free.
    ///
    /// # Errors
    /// As [`FileLock::try_exclusive`].
    pub fn exclusive(path: &Path) -> Result<Self, StoreError> {
        loop {
            let file = open(path)?;
            file.lock()
                .map_err(|error| StoreError::io("lock", path, error))?;
            if let Some(lock) = Self::confirm(path, file)? {
                return Ok(lock);
            }
        }
    }

    /// Whether another holds the lock now. Writes nothing, and makes no lock file.
    ///
    /// Looks by taking a shared lock for a moment: a [`FileLock::try_exclusive`] in just that
    /// moment finds it held.
    pub fn is_held(path: &Path) -> bool {
        File::open(path)
            .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    fn confirm(path: &Path, file: File) -> Result<Option<Self>, StoreError> {
        match same_file(path, &file) {
            Ok(true) => Ok(Some(Self {
                path: path.to_owned(),
                file,
            })),
            Ok(false) => Ok(None),
            Err(error) => Err(StoreError::io("lock", path, error)),
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Removed while still held, see above. Failing that, an empty file stays: no harm.
        if cfg!(unix) && same_file(&self.path, &self.file).unwrap_or(false) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn open(path: &Path) -> Result<File, StoreError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|error| StoreError::io("lock", path, error))
}

/// Whether `path` leads to the open `file`.
#[cfg(unix)]
fn same_file(path: &Path, file: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let held = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (held.dev(), held.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Lock files are never removed here, so the name always leads to the file that was opened.
#[cfg(not(unix))]
fn same_file(_: &Path, _: &File) -> io::Result<bool> {
    Ok(true)
}
