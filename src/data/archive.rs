//! The few files wanted out of a tar archive (POSIX ustar), with a bound on everything.

use std::collections::BTreeMap;
use std::io::{self, Read};

/// Entries after which an archive is no longer believed to be the one wanted.
const MOST_ENTRIES: usize = 1000;
const BLOCK: usize = 512;

/// Why an archive is not the one wanted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The archive, or its compression, cannot be read.
    #[error("cannot read the archive: {0}")]
    Io(#[from] io::Error),
    /// Not a tar header.
    #[error("entry {entry} of the archive: {problem}")]
    Header {
        /// Entry, from 0.
        entry: usize,
        /// What is wrong with its header.
        problem: &'static str,
    },
    /// A wanted file has another length.
    #[error("{name} in the archive: expected {expected} bytes, its header says {found}")]
    Length {
        /// The file.
        name: String,
        /// Bytes expected.
        expected: u64,
        /// Bytes by the header.
        found: u64,
    },
    /// A file that is not wanted is larger than all wanted ones together.
    #[error("entry {entry} of the archive has {found} bytes; no more than {most} expected")]
    TooLarge {
        /// Entry, from 0.
        entry: usize,
        /// Bytes by the header.
        found: u64,
        /// The bound.
        most: u64,
    },
    /// A wanted file is not there, or there twice.
    #[error("{name} is in the archive {times} times, expected once")]
    Times {
        /// The file.
        name: String,
        /// How often it is there.
        times: usize,
    },
}

/// Reads the `wanted` files (last path component, exact length) out of a tar stream. Everything
/// else is skipped; memory is bounded by the wanted lengths and time by them too.
///
/// # Errors
/// If the stream is no tar archive, ends early, or a wanted file is missing, doubled or of another
/// length.
pub fn read_members(
    mut reader: impl Read,
    wanted: &[(&str, u64)],
) -> Result<BTreeMap<String, Vec<u8>>, ArchiveError> {
    let most: u64 = wanted.iter().map(|(_, length)| length).sum();
    let mut skipped = 0;
    let mut members = BTreeMap::new();
    for entry in 0..MOST_ENTRIES {
        let mut header = [0; BLOCK];
        if !fill(&mut reader, &mut header)? || header.iter().all(|&byte| byte == 0) {
            break;
        }
        let problem = |problem| ArchiveError::Header { entry, problem };
        let sum: u64 = header
            .iter()
            .enumerate()
            .map(|(at, &byte)| {
                if (148..156).contains(&at) {
                    32
                } else {
                    u64::from(byte)
                }
            })
            .sum();
        if octal(&header[148..156]) != Some(sum) {
            return Err(problem("wrong header checksum, not a tar archive"));
        }
        let size =
            octal(&header[124..136]).ok_or_else(|| problem("a size that is no octal number"))?;
        let name = text(&header[..100]);
        let base = name.rsplit('/').next().unwrap_or(&name);
        let regular = matches!(header[156], b'0' | 0);
        let padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
        let Some((name, length)) = wanted.iter().find(|(wanted, _)| regular && *wanted == base)
        else {
            skipped += size;
            if skipped > most.max(1 << 20) {
                return Err(ArchiveError::TooLarge {
                    entry,
                    found: skipped,
                    most: most.max(1 << 20),
                });
            }
            skip(&mut reader, size + padding)?;
            continue;
        };
        if size != *length {
            return Err(ArchiveError::Length {
                name: (*name).to_owned(),
                expected: *length,
                found: size,
            });
        }
        let mut bytes = Vec::new();
        reader.by_ref().take(size).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != size {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        skip(&mut reader, padding)?;
        if members.insert((*name).to_owned(), bytes).is_some() {
            return Err(ArchiveError::Times {
                name: (*name).to_owned(),
                times: 2,
            });
        }
    }
    match wanted.iter().find(|(name, _)| !members.contains_key(*name)) {
        Some((name, _)) => Err(ArchiveError::Times {
            name: (*name).to_owned(),
            times: 0,
        }),
        None => Ok(members),
    }
}

/// Fills the block; `false` if the stream ended before it.
fn fill(reader: &mut impl Read, block: &mut [u8; BLOCK]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < BLOCK {
        match reader.read(&mut block[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn skip(reader: &mut impl Read, bytes: u64) -> io::Result<()> {
    let skipped = io::copy(&mut reader.by_ref().take(bytes), &mut io::sink())?;
    if skipped == bytes {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// A number as tar writes it: octal digits, ended by a space or a zero byte.
fn octal(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?;
    let digits = text.trim_matches(|c| c == ' ' || c == '\0');
    if digits.is_empty() {
        Some(0)
    } else {
        u64::from_str_radix(digits, 8).ok()
    }
}

fn text(field: &[u8]) -> String {
    let end = field
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}
