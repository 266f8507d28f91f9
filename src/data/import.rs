//! Takes the files of a named set from a folder: all are verified before one is written.

use std::path::{Path, PathBuf};

use super::archive;
use super::content::{Content, hex};
use super::sets::{self, CIFAR_ARCHIVE, KnownSet, Layout, SetFile};
use super::{DataError, FileRecord};
use crate::store;

use sha2::{Digest, Sha256};

/// Copies the files of the set `name` out of `from` into `<data_dir>/<name>`, uncompressed. Files
/// may be raw or .gz and named with `-` or `.` before `idx`; CIFAR-10 also as its `.tar.gz`.
/// Returns the folder.
///
/// # Errors
/// If a file is missing, damaged or not the published one (nothing is written then), or cannot be
/// written.
pub fn import(name: &str, from: &Path, data_dir: &Path) -> Result<PathBuf, DataError> {
    import_set(sets::find(name)?, from, data_dir)
}

/// As [`import`], for any set.
///
/// # Errors
/// As [`import`].
pub fn import_set(set: &KnownSet, from: &Path, data_dir: &Path) -> Result<PathBuf, DataError> {
    std::fs::read_dir(from).map_err(|source| DataError::io("read", from, source))?;
    let contents = gather(set, from)?;
    let target = data_dir.join(set.name);
    store::create_folder(&target)?;
    for (file, bytes) in contents {
        store::write_atomic(&target.join(file.name), &bytes)?;
    }
    Ok(target)
}

fn gather(set: &KnownSet, from: &Path) -> Result<Vec<(SetFile, Vec<u8>)>, DataError> {
    let folders = sets::folders(set, from);
    let archive = from.join(CIFAR_ARCHIVE);
    let none_unpacked = || {
        set.files
            .iter()
            .all(|file| sets::locate(&folders, file.name).is_none())
    };
    if set.layout == Layout::CifarBinary && archive.is_file() && none_unpacked() {
        return unpack(set, &archive);
    }
    let mut contents = Vec::new();
    for file in set.files {
        let path = sets::locate(&folders, file.name).ok_or_else(|| DataError::MissingFile {
            dir: from.to_owned(),
            file: file.name.to_owned(),
            hint: format!("\nhint: `{}` needs {}", set.name, names(set)),
        })?;
        contents.push((*file, sets::read_verified(&path, file)?));
    }
    Ok(contents)
}

fn names(set: &KnownSet) -> String {
    set.files
        .iter()
        .map(|file| file.name)
        .collect::<Vec<_>>()
        .join(", ")
}

/// The files of the set out of its archive, verified.
pub(super) fn unpack(set: &KnownSet, path: &Path) -> Result<Vec<(SetFile, Vec<u8>)>, DataError> {
    let wanted: Vec<(&str, u64)> = set
        .files
        .iter()
        .map(|file| (file.name, file.bytes))
        .collect();
    let mut members = archive::read_members(Content::open(path)?, &wanted).map_err(|error| {
        DataError::format(
            path,
            format!("an archive of {}", names(set)),
            error.to_string(),
        )
    })?;
    let mut contents = Vec::new();
    for file in set.files {
        // `read_members` returns every wanted file or an error.
        let bytes = members.remove(file.name).unwrap_or_default();
        let record = FileRecord {
            name: file.name.to_owned(),
            sha256: hex(&Sha256::digest(&bytes)),
            bytes: bytes.len() as u64,
        };
        sets::check(&path.join(file.name), file, &record)?;
        contents.push((*file, bytes));
    }
    Ok(contents)
}
