//! The `batchlab` program.

fn main() -> std::process::ExitCode {
    batchlab::cli::main()
}
