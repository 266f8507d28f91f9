//! The named sets: files, checksums, where they are published, where they are on this machine.

use std::path::{Path, PathBuf};

use super::content::Content;
use super::{DataError, FileRecord};

/// One file of a named set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetFile {
    /// Its name.
    pub name: &'static str,
    /// Length of the uncompressed content.
    pub bytes: u64,
    /// sha256 of the uncompressed content.
    pub sha256: &'static str,
}

/// How the files of a set are laid out, and hence published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// IDX files: training images and labels, test images and labels; each published as `.gz`.
    Idx,
    /// CIFAR binary batches, published as one `.tar.gz`.
    CifarBinary,
}

/// A data set that `batchlab data` can fetch and import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownSet {
    /// The name in TOML, on the command line and of its folder.
    pub name: &'static str,
    /// One line on what it is and whose.
    pub about: &'static str,
    /// Layout of the files.
    pub layout: Layout,
    /// The files.
    pub files: &'static [SetFile],
    /// Base URLs, in the order they are asked.
    pub mirrors: &'static [&'static str],
}

/// Archive of the CIFAR-10 batches.
pub(crate) const CIFAR_ARCHIVE: &str = "cifar-10-binary.tar.gz";

const fn file(name: &'static str, bytes: u64, sha256: &'static str) -> SetFile {
    SetFile {
        name,
        bytes,
        sha256,
    }
}

/// All named sets but the embedded digits.
pub const SETS: [KnownSet; 3] = [
    KnownSet {
        name: "mnist",
        about: "handwritten digits, 60,000 + 10,000 of 28x28 (LeCun, Cortes, Burges 1998)",
        layout: Layout::Idx,
        files: &[
            file(
                "train-images-idx3-ubyte",
                47_040_016,
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            ),
            file(
                "train-labels-idx1-ubyte",
                60_008,
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            ),
            file(
                "t10k-images-idx3-ubyte",
                7_840_016,
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            ),
            file(
                "t10k-labels-idx1-ubyte",
                10_008,
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
        ],
        mirrors: &[
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "https://storage.googleapis.com/cvdf-datasets/mnist",
        ],
    },
    KnownSet {
        name: "fashion-mnist",
        about: "clothes, 60,000 + 10,000 of 28x28 (Xiao, Rasul, Vollgraf 2017; MIT licence)",
        layout: Layout::Idx,
        files: &[
            file(
                "train-images-idx3-ubyte",
                47_040_016,
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            ),
            file(
                "train-labels-idx1-ubyte",
                60_008,
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            ),
            file(
                "t10k-images-idx3-ubyte",
                7_840_016,
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            ),
            file(
                "t10k-labels-idx1-ubyte",
                10_008,
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ),
        ],
        mirrors: &["http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"],
    },
    KnownSet {
        name: "cifar10",
        about: "colour photographs, 50,000 + 10,000 of 32x32 in 10 classes (Krizhevsky 2009)",
        layout: Layout::CifarBinary,
        files: &[
            file(
                "data_batch_1.bin",
                30_730_000,
                "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            ),
            file(
                "data_batch_2.bin",
                30_730_000,
                "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            ),
            file(
                "data_batch_3.bin",
                30_730_000,
                "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            ),
            file(
                "data_batch_4.bin",
                30_730_000,
                "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            ),
            file(
                "data_batch_5.bin",
                30_730_000,
                "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            ),
            file(
                "test_batch.bin",
                30_730_000,
                "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            ),
        ],
        mirrors: &["https://www.cs.toronto.edu/~kriz"],
    },
];

/// The set of this name.
///
/// # Errors
/// If there is none; the error lists the names there are.
pub fn find(name: &str) -> Result<&'static KnownSet, DataError> {
    SETS.iter()
        .find(|set| set.name == name)
        .ok_or_else(|| DataError::UnknownSet {
            name: name.to_owned(),
            known: SETS.map(|set| set.name).join(", "),
        })
}

/// The file in one of the folders, raw or .gz, with `-` or `.` before `idx`.
pub(crate) fn locate(dirs: &[PathBuf], name: &str) -> Option<PathBuf> {
    let names = [name.to_owned(), name.replace("-idx", ".idx")];
    dirs.iter()
        .flat_map(|dir| {
            names
                .iter()
                .flat_map(move |name| [dir.join(name), dir.join(format!("{name}.gz"))])
        })
        .find(|path| path.is_file())
}

/// The folders in which the files of a set may lie: a data folder as others lay it out, too.
pub(crate) fn folders(set: &KnownSet, dir: &Path) -> Vec<PathBuf> {
    let inner: &[&str] = match (set.layout, set.name) {
        (Layout::CifarBinary, _) => &["cifar-10-batches-bin"],
        (Layout::Idx, "mnist") => &["raw", "MNIST/raw"],
        (Layout::Idx, _) => &["raw", "FashionMNIST/raw"],
    };
    [dir.to_owned(), dir.join(set.name)]
        .into_iter()
        .chain(inner.iter().map(|name| dir.join(name)))
        .collect()
}

/// Refuses content other than the published one.
pub(crate) fn check(path: &Path, file: &SetFile, record: &FileRecord) -> Result<(), DataError> {
    if record.sha256 == file.sha256 {
        return Ok(());
    }
    Err(DataError::Checksum {
        path: path.to_owned(),
        expected: file.sha256.to_owned(),
        found: record.sha256.clone(),
        hint: "\nhint: for files of your own use `data.source.idx` or `data.source.cifar-binary`, which check no sums".to_owned(),
    })
}

/// Reads the uncompressed content of a file and checks length and checksum.
pub(crate) fn read_verified(path: &Path, file: &SetFile) -> Result<Vec<u8>, DataError> {
    let mut content = Content::open(path)?;
    let bytes = content.exactly(file.bytes, "content")?;
    check(path, file, &content.finish()?)?;
    Ok(bytes)
}

/// What there is of a set on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Every file, with the published checksums.
    Present,
    /// No file.
    Absent,
    /// Some files are missing.
    Incomplete {
        /// Which.
        missing: Vec<&'static str>,
    },
    /// Some files are not the published ones.
    Damaged {
        /// Which.
        files: Vec<PathBuf>,
    },
}

/// Looks at, and verifies, the files of a set in a data folder.
pub fn state(set: &KnownSet, data_dir: &Path) -> State {
    let folders = folders(set, &data_dir.join(set.name));
    let (mut missing, mut damaged) = (Vec::new(), Vec::new());
    for file in set.files {
        match locate(&folders, file.name) {
            None => missing.push(file.name),
            Some(path) => {
                if read_verified(&path, file).is_err() {
                    damaged.push(path);
                }
            }
        }
    }
    match (missing.len(), damaged.is_empty()) {
        (_, false) => State::Damaged { files: damaged },
        (0, true) => State::Present,
        (n, true) if n == set.files.len() => State::Absent,
        _ => State::Incomplete { missing },
    }
}
