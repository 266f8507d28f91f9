use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

use super::StoreError;

/// Ending of temporary names. What ends in it was left by a process that was killed.
const TEMPORARY: &str = ".tmp";

/// Makes `path` hold exactly `bytes`, or leaves it as it was.
///
/// The bytes go to a temporary name in the same folder, are synced to disk, and take the name
/// `path` in one step; then the folder is synced. A reader never sees a part of them, and they
/// survive a loss of power after this returns.
///
/// # Errors
/// [`StoreError::Io`] where the system refuses (no such folder, no permission, a full disk). The
/// temporary file is removed.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let (temporary, mut file) = create_temporary(path)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, path));
    drop(file);
    if let Err(error) = written {
        // The write has failed already; what the removal says would only hide why.
        let _ = fs::remove_file(&temporary);
        return Err(StoreError::io("write", path, error));
    }
    sync_folder(folder_of(path))
}

/// [`write_atomic`], unless `path` holds exactly `bytes` already. Returns whether it wrote.
///
/// # Errors
/// As [`write_atomic`].
pub fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<bool, StoreError> {
    if fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(false);
    }
    write_atomic(path, bytes).map(|()| true)
}

/// The content of a file.
///
/// # Errors
/// [`StoreError::Io`] where it cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>, StoreError> {
    fs::read(path).map_err(|error| StoreError::io("read", path, error))
}

/// The content of a text file.
///
/// # Errors
/// [`StoreError::Io`] where it cannot be read, [`StoreError::NotText`] where it is not UTF-8.
pub fn read_to_string(path: &Path) -> Result<String, StoreError> {
    String::from_utf8(read(path)?).map_err(|error| StoreError::NotText {
        path: path.to_owned(),
        offset: error.utf8_error().valid_up_to(),
    })
}

/// Whether something has this name. What cannot be looked at is not there.
pub fn exists(path: &Path) -> bool {
    path.exists()
}

/// Length of a regular file; `None` where there is none.
pub fn length(path: &Path) -> Option<u64> {
    let data = fs::metadata(path).ok()?;
    data.is_file().then_some(data.len())
}

/// SHA-256 of a file's content, in hex.
///
/// # Errors
/// [`StoreError::Io`] where it cannot be read.
pub fn sha256(path: &Path) -> Result<String, StoreError> {
    let mut hash = Sha256::new();
    let hashed = File::open(path).and_then(|mut file| {
        let mut piece = vec![0; 1 << 16];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(()),
                n => hash.update(&piece[..n]),
            }
        }
    });
    hashed.map_err(|error| StoreError::io("read", path, error))?;
    let mut hex = String::new();
    for byte in hash.finalize() {
        let _ = write!(hex, "{byte:02x}");
    }
    Ok(hex)
}

/// When the file was last written; `None` where there is none.
pub fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|data| data.modified()).ok()
}

/// Makes a folder and those above it. A folder that is there already is fine.
///
/// # Errors
/// [`StoreError::Io`] where the system refuses, or where a file has the name.
pub fn create_folder(path: &Path) -> Result<(), StoreError> {
    fs::create_dir_all(path).map_err(|error| {
        let error = match error.kind() {
            ErrorKind::AlreadyExists => ErrorKind::NotADirectory.into(),
            _ => error,
        };
        StoreError::io("create the folder", path, error)
    })
}

/// The names in a folder, sorted. A folder that is not there has none.
///
/// # Errors
/// [`StoreError::Io`] where it cannot be read.
pub fn entries(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let listed = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.and_then(|entries| {
            entries
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<Result<Vec<_>, _>>()
        }),
    };
    let mut paths = listed.map_err(|error| StoreError::io("list", folder, error))?;
    paths.sort();
    Ok(paths)
}

/// Removes a file. One that is not there is fine.
///
/// # Errors
/// [`StoreError::Io`] where the system refuses.
pub fn remove_file(path: &Path) -> Result<(), StoreError> {
    absent_is_fine(path, fs::remove_file(path))
}

fn absent_is_fine(path: &Path, removed: std::io::Result<()>) -> Result<(), StoreError> {
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(StoreError::io("remove", path, error))
        }
        _ => Ok(()),
    }
}

/// Removes all that is in a folder, what is named `last` after all else; the folder stays.
///
/// # Errors
/// [`StoreError::Io`] where the system refuses.
pub fn empty_folder(folder: &Path, last: &str) -> Result<(), StoreError> {
    let mut paths = entries(folder)?;
    paths.sort_by_key(|path| path.ends_with(last));
    for path in paths {
        let removed = match fs::symlink_metadata(&path) {
            Ok(data) if data.is_dir() => fs::remove_dir_all(&path),
            _ => fs::remove_file(&path),
        };
        absent_is_fine(&path, removed)?;
    }
    sync_folder(folder)
}

/// Removes the temporary files that killed processes left in `folder` (not in those below it).
/// Only for a folder in which nobody else is writing: the caller holds its lock.
///
/// # Errors
/// [`StoreError::Io`] where the system refuses.
pub fn remove_temporaries(folder: &Path) -> Result<(), StoreError> {
    for path in entries(folder)? {
        let ours = path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with('.') && name.ends_with(TEMPORARY));
        if ours {
            remove_file(&path)?;
        }
    }
    Ok(())
}

fn create_temporary(path: &Path) -> Result<(PathBuf, File), StoreError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy())
        .unwrap_or_default();
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let temporary = folder_of(path).join(format!(".{name}.{process}-{count}{TEMPORARY}"));
        // A process of the same number, dead or on another machine, may have used this name.
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)
        {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(StoreError::io("write", path, error)),
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Makes a rename or a removal in `folder` survive a loss of power.
fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    if !cfg!(unix) {
        return Ok(()); // Elsewhere a folder cannot be opened as a file.
    }
    match File::open(folder).and_then(|handle| handle.sync_all()) {
        // Some network and user-space file systems cannot sync a folder; the rename stands.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        done => done.map_err(|error| StoreError::io("sync the folder", folder, error)),
    }
}
