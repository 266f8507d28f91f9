//! The store room: what reaches the disk is whole, and what is read is checked.

#![expect(
    clippy::disallowed_methods,
    reason = "tests lay out folders of their own"
)]

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use batchlab::store::{self, FileLock, StoreError, Table};
use proptest::prelude::*;

#[test]
fn a_written_file_holds_the_bytes_and_no_temporary_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.txt");
    store::write_atomic(&path, b"one").expect("written");
    store::write_atomic(&path, b"two").expect("written over");
    assert_eq!(store::read(&path).expect("read"), b"two");
    assert_eq!(store::entries(folder.path()).expect("listed"), [path]);
}

#[test]
fn a_failed_write_leaves_the_old_file_and_no_temporary() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("occupied");
    fs::create_dir(&path).expect("a folder in the way");
    let error = store::write_atomic(&path, b"bytes").expect_err("a folder has the name");
    assert!(error.to_string().starts_with("cannot write "), "{error}");
    assert_eq!(store::entries(folder.path()).expect("listed"), [path]);
}

#[test]
fn a_file_where_a_folder_is_needed_is_named_with_a_hint() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("results");
    store::write_atomic(&file, b"").expect("written");
    for path in [file.clone(), file.join("below")] {
        let error = store::create_folder(&path).expect_err("a file is in the way");
        let text = error.to_string();
        assert!(text.contains(&path.display().to_string()), "{text}");
        assert!(
            text.contains("\nhint: a file stands where a folder is needed"),
            "{text}"
        );
    }
}

/// /dev/full refuses every write as a full disk does.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said_with_a_hint() {
    let refused = std::io::Write::write_all(
        &mut fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .expect("Linux has it"),
        b"x",
    )
    .expect_err("it is full");
    let error = StoreError::Io {
        action: "write",
        path: "steps.csv".into(),
        error: refused,
    };
    let text = error.to_string();
    assert!(
        text.starts_with("cannot write steps.csv: No space left"),
        "{text}"
    );
    assert!(
        text.ends_with("\nhint: the disk is full: free some space and run the same command again")
    );
}

#[test]
fn only_the_temporaries_of_killed_writers_are_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in [".steps.csv.17-0.tmp", "mine.tmp", ".hidden", "steps.csv"] {
        store::write_atomic(&folder.path().join(name), b"").expect("written");
    }
    store::remove_temporaries(folder.path()).expect("removed");
    let names = [".hidden", "mine.tmp", "steps.csv"].map(|name| folder.path().join(name));
    assert_eq!(store::entries(folder.path()).expect("listed"), names);
}

#[test]
fn a_lock_excludes_others_until_dropped_and_leaves_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.lock");
    assert!(!FileLock::is_held(&path));
    let held = FileLock::try_exclusive(&path)
        .expect("no error")
        .expect("free");
    assert!(FileLock::is_held(&path));
    assert!(FileLock::try_exclusive(&path).expect("no error").is_none());
    drop(held);
    assert!(!path.exists());
    // A file left by a killed holder is no lock.
    store::write_atomic(&path, b"").expect("written");
    assert!(!FileLock::is_held(&path));
    assert!(FileLock::try_exclusive(&path).expect("no error").is_some());
}

/// Every release removes the file, so this also shows that removal never lets two in.
#[test]
fn eight_threads_are_never_inside_one_lock_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.lock");
    let (inside, entered) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (path, inside, entered) = (&path, &inside, &entered);
            scope.spawn(move || {
                for _ in 0..200 {
                    let lock = if thread % 2 == 0 {
                        Some(FileLock::exclusive(path).expect("no error"))
                    } else {
                        FileLock::try_exclusive(path).expect("no error")
                    };
                    if lock.is_some() {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        entered.fetch_add(1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert!(
        entered.into_inner() >= 800,
        "the waiting half always enters"
    );
    assert!(!path.exists());
}

fn cell() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        Just(None),
        any::<f64>().prop_map(|x| store::ToCell::to_cell(&x)),
        "[a-z,\"\r\n é]{1,8}".prop_map(Some),
    ]
}

fn table() -> impl Strategy<Value = Table> {
    (1usize..5).prop_flat_map(|width| {
        prop::collection::vec(prop::collection::vec(cell(), width), 0..6).prop_map(move |rows| {
            let columns = (0..width).map(|index| format!("column {index}"));
            let mut table = Table::new("t.csv", columns).expect("names differ");
            for row in &rows {
                let cells: Vec<&dyn store::ToCell> =
                    row.iter().map(|cell| cell as &dyn store::ToCell).collect();
                table.push(&cells).expect("of this width");
            }
            table
        })
    })
}

/// Reads and uses every column: nothing here may panic.
fn use_all(bytes: &[u8]) {
    if let Ok(table) = Table::from_csv("t.csv", bytes) {
        for column in table.columns() {
            let _ = (
                table.texts(column),
                table.numbers(column),
                table.integers(column),
            );
        }
        let again = Table::from_csv("t.csv", &table.to_csv()).expect("what was written is read");
        assert_eq!(again.rows(), table.rows());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 10_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_table_reads_back_as_it_was_written(table in table()) {
        let back = Table::from_csv("t.csv", &table.to_csv()).expect("a table");
        prop_assert_eq!(back.columns(), table.columns());
        prop_assert_eq!(back.rows(), table.rows());
    }

    #[test]
    fn mutated_tables_are_read_or_refused_without_panic(
        table in table(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..8),
    ) {
        let mut bytes = table.to_csv();
        for (at, byte, kind) in edits {
            let at = at.index(bytes.len() + 1);
            match kind {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => bytes[at] = byte,
                2 if at < bytes.len() => drop(bytes.remove(at)),
                _ => bytes.truncate(at),
            }
        }
        use_all(&bytes);
    }
}

#[test]
fn a_table_written_to_disk_is_read_from_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.csv");
    let mut table = Table::new(&path, ["name", "n"]).expect("columns");
    table.push(&[&"a, b", &3u64]).expect("two cells");
    table.write().expect("written");
    let back = Table::read(&path).expect("read");
    assert_eq!(back, table);
    assert_eq!(back.integers("n").expect("integers"), [Some(3)]);
    let missing = Table::read(Path::new("nowhere/t.csv")).expect_err("not there");
    assert!(
        missing
            .to_string()
            .starts_with("cannot read nowhere/t.csv: ")
    );
}
