//! IDX files (LeCun, Cortes and Burges: the MNIST database): a header of big-endian sizes, then
//! unsigned bytes. Nothing is allocated on the word of the header alone.

use std::path::Path;

use super::content::Content;
use super::{DataError, FileRecord};

/// The content of one IDX file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idx {
    /// Sizes, the number of examples first.
    pub sizes: Vec<usize>,
    /// Values in row-major order.
    pub values: Vec<u8>,
    /// Name, checksum and length of the file.
    pub record: FileRecord,
}

/// Reads an IDX file of unsigned bytes, raw or gzip.
///
/// # Errors
/// If it is missing, truncated, longer than its header says, of another element type, or if the
/// header declares more than a file of this length can hold.
pub fn read(path: &Path) -> Result<Idx, DataError> {
    parse(Content::open(path)?)
}

/// As [`read`], from content already opened.
///
/// # Errors
/// As [`read`].
pub fn parse(mut content: Content) -> Result<Idx, DataError> {
    let path = content.path().to_owned();
    let magic = content.exactly(4, "IDX header")?;
    if magic[0] != 0 || magic[1] != 0 {
        return Err(DataError::format(
            &path,
            "an IDX file (two zero bytes first)",
            format!("bytes {:02x} {:02x}", magic[0], magic[1]),
        ));
    }
    if magic[2] != 0x08 {
        return Err(DataError::format(
            &path,
            "IDX elements of type 0x08 (unsigned byte)",
            format!("type {:#04x}", magic[2]),
        ));
    }
    let dimensions = magic[3];
    if !(1..=4).contains(&dimensions) {
        return Err(DataError::format(
            &path,
            "1 to 4 IDX dimensions",
            dimensions.to_string(),
        ));
    }
    let header = content.exactly(4 * u64::from(dimensions), "IDX header")?;
    let sizes: Vec<u32> = header
        .chunks_exact(4)
        .map(|bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect();
    if sizes.contains(&0) {
        return Err(DataError::format(
            &path,
            "sizes above 0",
            format!("sizes {sizes:?}"),
        ));
    }
    // Four sizes below 2^32 cannot overflow 128 bits.
    let declared: u128 = sizes.iter().map(|&size| u128::from(size)).product();
    let most = content.most_left();
    let Some(count) = u64::try_from(declared).ok().filter(|&count| count <= most) else {
        return Err(DataError::LyingHeader {
            path,
            what: "values",
            declared,
            stored: content.stored(),
            most,
        });
    };
    let values = content.exactly(count, "values")?;
    let record = content.finish()?;
    Ok(Idx {
        sizes: sizes.into_iter().map(|size| size as usize).collect(),
        values,
        record,
    })
}

/// One pair of images and labels: shape [channels, height, width], pixels, labels.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) shape: Vec<usize>,
    pub(crate) pixels: Vec<u8>,
    pub(crate) labels: Vec<u8>,
    pub(crate) files: [FileRecord; 2],
}

/// Reads images (IDX3, or IDX4 as examples x channels x height x width) and their labels (IDX1).
pub(crate) fn read_pair(images: &Path, labels: &Path) -> Result<Pair, DataError> {
    let image = read(images)?;
    let shape = match image.sizes[..] {
        [_, height, width] => vec![1, height, width],
        [_, channels, height, width] => vec![channels, height, width],
        _ => {
            return Err(DataError::format(
                images,
                "images (3 dimensions, or 4 with channels)",
                format!("{} dimensions", image.sizes.len()),
            ));
        }
    };
    let label = read(labels)?;
    if label.sizes.len() != 1 {
        return Err(DataError::format(
            labels,
            "labels (1 dimension)",
            format!("{} dimensions", label.sizes.len()),
        ));
    }
    if label.sizes[0] != image.sizes[0] {
        return Err(DataError::Mismatch {
            first: images.to_owned(),
            second: labels.to_owned(),
            expected: format!("{} labels, one an image", image.sizes[0]),
            found: format!("{}", label.sizes[0]),
        });
    }
    Ok(Pair {
        shape,
        pixels: image.values,
        labels: label.values,
        files: [image.record, label.record],
    })
}
