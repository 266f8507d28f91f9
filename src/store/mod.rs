//! Files on disk: atomic writes, tables, locks, and the clock.
//!
//! The only room that writes files and the only one that reads a clock. Nothing here knows what
//! a trial or a study is. Every write goes to a temporary name in the same folder, is synced, and
//! is renamed, so that a reader sees the old file or the new one and never a part of one; only a
//! download grows in place, under a name that says so ([`GrowingFile`]).

#![expect(
    clippy::disallowed_methods,
    reason = "the one room that writes files and reads clocks"
)]

mod atomic;
pub mod clock;
mod error;
mod growing;
mod lock;
pub mod memory;
mod table;

pub use atomic::{
    create_folder, empty_folder, entries, exists, length, modified, read, read_to_string,
    remove_file, remove_temporaries, sha256, write_atomic, write_if_changed,
};
pub use error::StoreError;
pub use growing::GrowingFile;
pub use lock::FileLock;
pub use table::{Table, ToCell};
