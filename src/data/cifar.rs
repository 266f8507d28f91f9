//! CIFAR-10 binary batches (Krizhevsky 2009): records of one label byte and the red, green and
//! blue planes of 32x32 bytes each.

use std::path::{Path, PathBuf};

use super::content::Content;
use super::{DataError, FileRecord};

/// Channels, height and width of an image.
pub const SHAPE: [usize; 3] = [3, 32, 32];
/// Classes.
pub const CLASSES: usize = 10;
const PIXELS: usize = 3 * 32 * 32;
const RECORD: usize = 1 + PIXELS;

/// The content of one batch file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Pixels, record by record: [records, 3, 32, 32].
    pub pixels: Vec<u8>,
    /// Labels, below 10.
    pub labels: Vec<u8>,
    /// Name, checksum and length of the file.
    pub record: FileRecord,
}

/// Reads one batch file, raw or gzip.
///
/// # Errors
/// If it is missing, empty, not a whole number of records, or has a label above 9.
pub fn read(path: &Path) -> Result<Batch, DataError> {
    parse(Content::open(path)?)
}

/// As [`read`], from content already opened.
///
/// # Errors
/// As [`read`].
pub fn parse(mut content: Content) -> Result<Batch, DataError> {
    let path = content.path().to_owned();
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    // One record at a time, so that a gzip file is never held twice and never trusted.
    let mut record = [0; RECORD];
    loop {
        let mut filled = 0;
        while filled < RECORD {
            match std::io::Read::read(&mut content, &mut record[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(content.failure(error)),
            }
        }
        match filled {
            0 => break,
            RECORD => {}
            partial => {
                return Err(DataError::format(
                    &path,
                    format!("a whole number of records of {RECORD} bytes"),
                    format!("{} records and {partial} bytes", labels.len()),
                ));
            }
        }
        if usize::from(record[0]) >= CLASSES {
            return Err(DataError::format(
                &path,
                "labels from 0 to 9",
                format!("label {} in record {}", record[0], labels.len()),
            ));
        }
        labels.push(record[0]);
        pixels.extend_from_slice(&record[1..]);
    }
    if labels.is_empty() {
        return Err(DataError::format(
            &path,
            "at least one record",
            "an empty file",
        ));
    }
    let record = content.finish()?;
    Ok(Batch {
        pixels,
        labels,
        record,
    })
}

/// The training batches of a folder in the order of their numbers, and the test batch.
pub(crate) fn files(dir: &Path) -> Result<(Vec<PathBuf>, PathBuf), DataError> {
    let fail = |source| DataError::io("list", dir, source);
    let mut train = Vec::new();
    let mut test = None;
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let name = name.strip_suffix(".gz").unwrap_or(name);
        let Some(stem) = name.strip_suffix(".bin") else {
            continue;
        };
        if stem == "test_batch" {
            test = Some(path);
        } else if let Some(number) = stem.strip_prefix("data_batch_") {
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            if let Some((_, other)) = train.iter().find(|(known, _)| *known == number) {
                return Err(DataError::Mismatch {
                    first: PathBuf::clone(other),
                    second: path,
                    expected: "one file for each batch".to_owned(),
                    found: "two for the same one".to_owned(),
                });
            }
            train.push((number, path));
        }
    }
    let missing = |file: &str| DataError::MissingFile {
        dir: dir.to_owned(),
        file: file.to_owned(),
        hint: "\nhint: a CIFAR binary folder holds data_batch_*.bin and test_batch.bin".to_owned(),
    };
    train.sort();
    if train.is_empty() {
        return Err(missing("data_batch_1.bin"));
    }
    let test = test.ok_or_else(|| missing("test_batch.bin"))?;
    Ok((train.into_iter().map(|(_, path)| path).collect(), test))
}
