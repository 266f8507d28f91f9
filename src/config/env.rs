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

/// How many processes a launcher of MPI programs started, if it says so (Open MPI, MPICH and Slurm,
/// MVAPICH).
pub fn launched() -> Option<usize> {
    number(&["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"])
}

/// Which of them this is, from 0.
pub fn launched_rank() -> Option<usize> {
    number(&["OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK"])
}

/// Whether a launcher of MPI programs started this process.
pub fn is_launched() -> bool {
    launched().is_some() || read("PMIX_RANK").is_some()
}

fn number(names: &[&str]) -> Option<usize> {
    let said = names.iter().find_map(|name| read(name))?;
    said.to_str()?.parse().ok()
}
