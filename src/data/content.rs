//! The content of one file, raw or gzip (told by its first bytes, not by its name), hashed as it
//! is read, and never allowed to be larger than a file of that length can hold.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use sha2::{Digest, Sha256};

use super::{DataError, FileRecord};

/// Deflate cannot expand a byte to more than this (zlib's technical notes: 1032:1).
const MOST_EXPANSION: u64 = 1032;

/// A file being read.
pub struct Content {
    path: PathBuf,
    stored: u64,
    compressed: bool,
    reader: Box<dyn Read + Send>,
    hash: Sha256,
    read: u64,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Content")
            .field("path", &self.path)
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

impl Content {
    /// Opens a regular file.
    ///
    /// # Errors
    /// If it is missing, unreadable or not a regular file.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let fail = |source| DataError::io("read", path, source);
        // Before it is opened: opening a pipe waits for someone to write into it.
        let metadata = std::fs::metadata(path).map_err(fail)?;
        if !metadata.is_file() {
            return Err(DataError::NotAFile {
                path: path.to_owned(),
            });
        }
        let mut file = File::open(path).map_err(fail)?;
        let mut magic = Vec::new();
        file.by_ref()
            .take(2)
            .read_to_end(&mut magic)
            .map_err(fail)?;
        file.seek(SeekFrom::Start(0)).map_err(fail)?;
        let stored = metadata.len();
        Ok(Self::new(
            path,
            stored,
            &magic,
            BufReader::with_capacity(1 << 16, file.take(stored)),
        ))
    }

    /// The content of bytes in memory; `name` stands for the path in messages.
    pub fn from_bytes(name: &str, bytes: impl AsRef<[u8]> + Send + 'static) -> Self {
        let slice = bytes.as_ref();
        let (stored, magic) = (slice.len() as u64, slice[..slice.len().min(2)].to_vec());
        Self::new(
            Path::new(name),
            stored,
            &magic,
            BufReader::new(Cursor::new(bytes)),
        )
    }

    fn new(
        path: &Path,
        stored: u64,
        magic: &[u8],
        reader: impl io::BufRead + Send + 'static,
    ) -> Self {
        let compressed = magic == [0x1f, 0x8b];
        Self {
            path: path.to_owned(),
            stored,
            compressed,
            reader: if compressed {
                Box::new(MultiGzDecoder::new(reader))
            } else {
                Box::new(reader)
            },
            hash: Sha256::new(),
            read: 0,
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length as stored.
    pub fn stored(&self) -> u64 {
        self.stored
    }

    /// The most bytes that are still to come from a file of this length.
    pub fn most_left(&self) -> u64 {
        let most = if self.compressed {
            self.stored.saturating_mul(MOST_EXPANSION)
        } else {
            self.stored
        };
        most.saturating_sub(self.read)
    }

    /// Reads exactly `n` bytes. Memory grows with what truly arrives.
    ///
    /// # Errors
    /// If the file cannot hold that many, ends before, or is damaged.
    pub fn exactly(&mut self, n: u64, what: &'static str) -> Result<Vec<u8>, DataError> {
        if n > self.most_left() {
            return Err(if self.compressed {
                DataError::LyingHeader {
                    path: self.path.clone(),
                    what,
                    declared: u128::from(n),
                    stored: self.stored,
                    most: self.most_left(),
                }
            } else {
                self.truncated(n, self.most_left(), what)
            });
        }
        let mut bytes = Vec::new();
        if !self.compressed {
            bytes.reserve_exact(usize::try_from(n).unwrap_or(0));
        }
        let outcome = Read::by_ref(self).take(n).read_to_end(&mut bytes);
        let found = bytes.len() as u64;
        match outcome {
            Ok(_) if found == n => Ok(bytes),
            Ok(_) => Err(self.truncated(n, found, what)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.truncated(n, found, what))
            }
            Err(error) => Err(self.failure(error)),
        }
    }

    /// Ends the reading: the record of what was read, under the file's own name.
    ///
    /// # Errors
    /// If anything is left, or the gzip trailer is missing or wrong.
    pub fn finish(mut self) -> Result<FileRecord, DataError> {
        let mut one = [0];
        let (expected, read) = (self.read, &mut self);
        match read.read(&mut one) {
            Ok(0) => {}
            Ok(_) => {
                return Err(DataError::format(
                    &self.path,
                    format!("the end of the file after {expected} bytes of content"),
                    "more",
                ));
            }
            Err(error) => return Err(self.failure(error)),
        }
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        Ok(FileRecord {
            name: name.to_string_lossy().into_owned(),
            sha256: hex(&self.hash.finalize()),
            bytes: self.read,
        })
    }

    /// A reading error in the words of this room.
    pub(crate) fn failure(&self, error: io::Error) -> DataError {
        use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        if self.compressed && matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof) {
            return DataError::format(&self.path, "an undamaged gzip file", error.to_string());
        }
        DataError::io("read", &self.path, error)
    }

    fn truncated(&self, expected: u64, found: u64, what: &'static str) -> DataError {
        DataError::Truncated {
            path: self.path.clone(),
            what,
            expected,
            found,
        }
    }
}

impl Read for Content {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(buffer)?;
        self.hash.update(&buffer[..n]);
        self.read += n as u64;
        Ok(n)
    }
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}
