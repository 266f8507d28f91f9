//! The environment variables batchlab reads; no other room reads any.

use std::path::PathBuf;

/// `BATCHLAB_DATA`: the folder of the named data sets, where `data.dir` is not given.
pub fn data_dir() -> Option<PathBuf> {
    read("BATCHLAB_DATA").map(PathBuf::from)
}

/// `BATCHLAB_MIRROR`: a base URL that `batchlab data fetch` asks instead of the public mirrors; it
/// holds `<set>/<file>`.
pub fn mirror() -> Option<String> {
    read("BATCHLAB_MIRROR").and_then(|value| value.into_string().ok())
}

#[expect(clippy::disallowed_methods, reason = "this is the one place")]
fn read(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
