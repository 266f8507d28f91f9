//! What `tests/reference` holds for several tests.

use batchlab::data::{Data, Examples};
use safetensors::SafeTensors;

/// A file of `tests/reference`.
pub(crate) fn reference(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/reference/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).unwrap()
}

/// The examples of `tests/reference/batches.safetensors`, as training set.
pub(crate) fn examples(which: &str) -> Data {
    let bytes = reference("batches.safetensors");
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let inputs = file.tensor(&format!("{which}.inputs")).unwrap();
    let labels = file.tensor(&format!("{which}.labels")).unwrap();
    Data {
        name: which.to_owned(),
        shape: inputs.shape()[1..].to_vec(),
        classes: 10,
        train: Examples {
            features: inputs.data().iter().map(|&b| f32::from(b) / 16.0).collect(),
            labels: labels.data().iter().map(|&l| u32::from(l)).collect(),
        },
        validation: None,
        test: None,
        fresh: None,
        files: Vec::new(),
        notes: Vec::new(),
    }
}
