//! Downloading and importing, against a server on loopback that stalls, cuts off and lies.

#![expect(
    clippy::disallowed_methods,
    reason = "tests lay out folders of their own"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use assert_cmd::Command;
use batchlab::data::DataError;
use batchlab::data::fetch::{Event, FetchOptions, fetch, fetch_set};
use batchlab::data::import::{import, import_set};
use batchlab::data::sets::{self, KnownSet, Layout, SetFile, State};
use batchlab::rng::Stream;
use batchlab::store;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// What a client asked.
#[derive(Debug, Clone, PartialEq)]
struct Request {
    path: String,
    /// First byte of the range asked for.
    range: Option<usize>,
    if_range: Option<String>,
}

struct Server {
    url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Answers each request by `answer`, given the number of requests before it; one a connection.
    fn new(answer: impl Fn(usize, &Request, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (answer, seen) = (Arc::new(answer), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
                std::thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let Some(request) = read_request(&stream) else {
                        return;
                    };
                    let number = {
                        let mut seen = seen.lock().unwrap();
                        seen.push(request.clone());
                        seen.len() - 1
                    };
                    answer(number, &request, &mut stream);
                });
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let path = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
    let mut request = Request {
        path,
        range: None,
        if_range: None,
    };
    for line in lines {
        let line = line.ok()?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(": ")?;
        match name.to_ascii_lowercase().as_str() {
            "range" => {
                request.range = value
                    .strip_prefix("bytes=")?
                    .strip_suffix('-')?
                    .parse()
                    .ok();
            }
            "if-range" => request.if_range = Some(value.to_owned()),
            _ => {}
        }
    }
    Some(request)
}

/// Sends; a client that has hung up is no fault of the server.
fn send(stream: &mut TcpStream, status: &str, headers: &[String], body: &[u8]) {
    let head = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\n{}\r\n",
        headers.concat()
    );
    let _ = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body));
}

fn length(n: usize) -> String {
    format!("content-length: {n}\r\n")
}

fn etag(tag: &str) -> String {
    format!("etag: \"{tag}\"\r\n")
}

/// A sound answer, ranges and all.
fn honest(request: &Request, stream: &mut TcpStream, content: &[u8]) {
    match request.range {
        Some(start) if start < content.len() => partial(stream, content, start, "1"),
        Some(_) => send(stream, "416 Range Not Satisfiable", &[length(0)], b""),
        None => send(
            stream,
            "200 OK",
            &[length(content.len()), etag("1")],
            content,
        ),
    }
}

fn partial(stream: &mut TcpStream, content: &[u8], start: usize, tag: &str) {
    let range = format!(
        "content-range: bytes {start}-{}/{}\r\n",
        content.len() - 1,
        content.len()
    );
    let headers = [length(content.len() - start), etag(tag), range];
    send(stream, "206 Partial Content", &headers, &content[start..]);
}

/// Announces all, sends `n` bytes, hangs up.
fn cut_off(stream: &mut TcpStream, content: &[u8], n: usize) {
    send(
        stream,
        "200 OK",
        &[length(content.len()), etag("1")],
        &content[..n],
    );
}

/// 40,000 bytes that no compression makes shorter.
fn content() -> Vec<u8> {
    let mut stream = Stream::new(0, "download", 0);
    (0..40_000).map(|_| stream.next_u64() as u8).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn leak(text: impl Into<String>) -> &'static str {
    Box::leak(text.into().into_boxed_str())
}

fn sum(bytes: &[u8]) -> String {
    use std::fmt::Write;
    Sha256::digest(bytes)
        .iter()
        .fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        })
}

fn set_file(name: &str, bytes: &[u8]) -> SetFile {
    SetFile {
        name: leak(name),
        bytes: bytes.len() as u64,
        sha256: leak(sum(bytes)),
    }
}

/// A set of one file, `file`, with these mirrors.
fn set(mirrors: &[&Server]) -> KnownSet {
    let mirrors: Vec<&'static str> = mirrors.iter().map(|server| leak(&server.url)).collect();
    KnownSet {
        name: "small",
        about: "for tests",
        layout: Layout::Idx,
        files: vec![set_file("file-idx1-ubyte", &content())].leak(),
        mirrors: mirrors.leak(),
    }
}

fn options() -> FetchOptions {
    FetchOptions {
        mirror: None,
        stall: Duration::from_millis(300),
        attempts: 3,
        pause: Duration::from_millis(1),
    }
}

struct Outcome {
    result: Result<PathBuf, DataError>,
    events: Vec<String>,
    dir: TempDir,
}

impl Outcome {
    fn folder(&self) -> PathBuf {
        self.dir.path().join("small")
    }

    /// Files in the folder of the set.
    fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.folder())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn is_sound(&self) {
        assert!(self.result.is_ok(), "{:?} {:?}", self.result, self.events);
        assert_eq!(self.files(), ["file-idx1-ubyte"], "{:?}", self.events);
        assert_eq!(
            std::fs::read(self.folder().join("file-idx1-ubyte")).unwrap(),
            content()
        );
    }

    /// The error, after a look that nothing stands under the final name.
    fn error(&self) -> String {
        assert!(!self.folder().join("file-idx1-ubyte").exists());
        self.result.as_ref().unwrap_err().to_string()
    }
}

fn fetch_into(dir: TempDir, set: &KnownSet) -> Outcome {
    let mut events = Vec::new();
    let result = fetch_set(set, dir.path(), &options(), &mut |event| {
        if !matches!(event, Event::Progress { .. }) {
            events.push(format!("{event:?}"));
        }
    });
    Outcome {
        result,
        events,
        dir,
    }
}

fn fetched(servers: &[&Server]) -> Outcome {
    fetch_into(TempDir::new().unwrap(), &set(servers))
}

#[test]
fn a_file_is_stored_uncompressed_and_not_fetched_twice() {
    let packed = gzip(&content());
    let server = Server::new(move |_, request, stream| honest(request, stream, &packed));
    let outcome = fetched(&[&server]);
    outcome.is_sound();
    assert_eq!(server.requests()[0].path, "/file-idx1-ubyte.gz");
    let again = fetch_into(outcome.dir, &set(&[&server]));
    again.is_sound();
    assert_eq!(server.requests().len(), 1);
    assert_eq!(again.events, ["Present { file: \"file-idx1-ubyte\" }"]);
}

#[test]
fn a_file_that_is_not_the_published_one_is_replaced() {
    let server = Server::new(|_, request, stream| honest(request, stream, &content()));
    let outcome = fetched(&[&server]);
    store::write_atomic(&outcome.folder().join("file-idx1-ubyte"), b"damaged").unwrap();
    let again = fetch_into(outcome.dir, &set(&[&server]));
    again.is_sound();
    assert_eq!(again.events[0], "Replacing { file: \"file-idx1-ubyte\" }");
}

#[test]
fn a_download_that_is_cut_off_resumes_where_it_stopped() {
    let server = Server::new(|number, request, stream| match number {
        0 => cut_off(stream, &content(), 10_000),
        1 => {
            let start = request.range.unwrap();
            let range = format!("content-range: bytes {start}-39999/40000\r\n");
            let headers = [length(40_000 - start), etag("1"), range];
            send(
                stream,
                "206 Partial Content",
                &headers,
                &content()[start..start + 5_000],
            );
        }
        _ => honest(request, stream, &content()),
    });
    fetched(&[&server]).is_sound();
    let requests = server.requests();
    let starts: Vec<Option<usize>> = requests.iter().map(|request| request.range).collect();
    assert_eq!(starts, [None, Some(10_000), Some(15_000)]);
    assert_eq!(requests[1].if_range.as_deref(), Some("\"1\""));
}

#[test]
fn a_download_resumes_in_a_later_run() {
    let server = Server::new(|number, request, stream| match number {
        0 => cut_off(stream, &content(), 10_000),
        1..3 => send(stream, "503 Service Unavailable", &[length(0)], b""),
        _ => honest(request, stream, &content()),
    });
    let outcome = fetched(&[&server]);
    assert!(
        outcome
            .error()
            .contains("503 Service Unavailable (3 times in a row)")
    );
    assert_eq!(
        outcome.files(),
        ["file-idx1-ubyte.gz.part", "file-idx1-ubyte.gz.part.json"]
    );
    fetch_into(outcome.dir, &set(&[&server])).is_sound();
    assert_eq!(server.requests()[3].range, Some(10_000));
}

#[test]
fn a_server_that_ignores_ranges_is_read_from_the_start() {
    let server = Server::new(|number, _, stream| match number {
        0 => cut_off(stream, &content(), 10_000),
        _ => send(stream, "200 OK", &[length(40_000), etag("1")], &content()),
    });
    fetched(&[&server]).is_sound();
}

#[test]
fn a_server_that_stalls_is_asked_again() {
    let server = Server::new(|number, request, stream| {
        if number == 0 {
            cut_off(stream, &content(), 10_000);
            std::thread::sleep(Duration::from_secs(20));
        }
        honest(request, stream, &content());
    });
    let outcome = fetched(&[&server]);
    outcome.is_sound();
    assert!(outcome.events[1].contains("cut off at byte 10000 of 40000: nothing came for 0.3 s"));
}

#[test]
fn a_server_that_always_stalls_is_given_up() {
    let server = Server::new(|_, _, _| std::thread::sleep(Duration::from_secs(20)));
    let outcome = fetched(&[&server]);
    let text = outcome.error();
    assert!(
        text.contains("nothing came for 0.3 s (3 times in a row)"),
        "{text}"
    );
    assert!(text.contains("hint: run it again to resume"), "{text}");
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn wrong_content_is_refused_with_both_checksums() {
    let mut wrong = content();
    wrong[5] ^= 1;
    let found = sum(&wrong);
    let server = Server::new(move |_, request, stream| honest(request, stream, &wrong));
    let outcome = fetched(&[&server]);
    let text = outcome.error();
    let expected = sum(&content());
    assert!(
        text.contains(&format!("expected sha256 {expected}, found {found}")),
        "{text}"
    );
    assert_eq!(server.requests().len(), 1);
    assert!(outcome.files().is_empty());
}

#[test]
fn a_page_instead_of_the_file_is_refused() {
    let server = Server::new(|_, request, stream| honest(request, stream, b"<html>Sign in</html>"));
    let outcome = fetched(&[&server]);
    assert!(
        outcome
            .error()
            .contains("is truncated: expected 40000 bytes of content, found 20")
    );
    assert!(outcome.files().is_empty());
}

#[test]
fn a_server_that_announces_more_than_it_sends_is_given_up() {
    let server = Server::new(|_, request, stream| match request.range {
        None => send(stream, "200 OK", &[length(50_000), etag("1")], &content()),
        Some(_) => send(stream, "416 Range Not Satisfiable", &[length(0)], b""),
    });
    let text = fetched(&[&server]).error();
    assert!(text.contains("3 times in a row"), "{text}");
}

#[test]
fn a_server_that_announces_less_than_the_file_is_refused() {
    let server = Server::new(|_, _, stream| {
        send(stream, "200 OK", &[length(30_000), etag("1")], &content());
    });
    let text = fetched(&[&server]).error();
    assert!(
        text.contains("expected 40000 bytes of content, found 30000"),
        "{text}"
    );
}

#[test]
fn a_length_that_cannot_be_true_is_refused_before_anything_is_read() {
    let server = Server::new(|_, _, stream| {
        send(stream, "200 OK", &[length(1 << 50)], b"");
    });
    let outcome = fetched(&[&server]);
    let text = outcome.error();
    assert!(
        text.contains("announces 1125899906842624 bytes, expected at most 105936"),
        "{text}"
    );
    assert!(outcome.files().is_empty());
}

#[test]
fn an_endless_answer_is_cut() {
    let server = Server::new(|_, _, stream| {
        send(stream, "200 OK", &[], b"");
        while stream.write_all(&[0; 4096]).is_ok() {}
    });
    let outcome = fetched(&[&server]);
    assert!(outcome.error().contains("sends more than the 105936 bytes"));
    assert!(outcome.files().is_empty());
}

#[test]
fn a_decompression_bomb_is_unpacked_no_further_than_expected() {
    let bomb = gzip(&vec![0; 100_000_000]);
    let server = Server::new(move |_, request, stream| honest(request, stream, &bomb));
    let text = fetched(&[&server]).error();
    assert!(
        text.contains("the end of the file after 40000 bytes of content, found more"),
        "{text}"
    );
}

#[test]
fn redirects_are_followed_but_not_in_circles() {
    let server = Server::new(|number, request, stream| match number {
        0 => send(
            stream,
            "302 Found",
            &["location: /elsewhere\r\n".to_owned(), length(0)],
            b"",
        ),
        _ => honest(request, stream, &content()),
    });
    fetched(&[&server]).is_sound();
    assert_eq!(server.requests()[1].path, "/elsewhere");

    let circle = Server::new(|_, _, stream| {
        send(
            stream,
            "302 Found",
            &["location: /again\r\n".to_owned(), length(0)],
            b"",
        );
    });
    assert!(fetched(&[&circle]).error().contains("too many redirects"));
}

#[test]
fn a_missing_file_is_asked_for_once_and_then_at_the_next_mirror() {
    let missing = Server::new(|_, _, stream| send(stream, "404 Not Found", &[length(0)], b""));
    let good = Server::new(|_, request, stream| honest(request, stream, &content()));
    let outcome = fetched(&[&missing, &good]);
    outcome.is_sound();
    assert_eq!((missing.requests().len(), good.requests().len()), (1, 1));
    assert!(
        outcome.events[0].contains("the server answered 404 Not Found"),
        "{:?}",
        outcome.events
    );

    let text = fetched(&[&missing, &missing]).error();
    let lines = text
        .lines()
        .filter(|line| line.contains("404 Not Found"))
        .count();
    assert_eq!(lines, 2, "every mirror is listed: {text}");
}

#[test]
fn a_part_of_one_mirror_is_not_continued_at_another() {
    let first = Server::new(|number, _, stream| match number {
        0 => cut_off(stream, &content(), 10_000),
        _ => send(stream, "410 Gone", &[length(0)], b""),
    });
    let second = Server::new(|_, request, stream| honest(request, stream, &content()));
    fetched(&[&first, &second]).is_sound();
    assert_eq!(second.requests()[0].range, None);
}

#[test]
fn a_part_of_unknown_origin_is_not_used() {
    let server = Server::new(|_, request, stream| honest(request, stream, &content()));
    let dir = TempDir::new().unwrap();
    std::fs::create_dir(dir.path().join("small")).unwrap();
    let part = dir.path().join("small/file-idx1-ubyte.gz.part");
    store::write_atomic(&part, &[7; 900]).unwrap();
    store::write_atomic(&part.with_extension("part.json"), b"{\"url\": 3}").unwrap();
    fetch_into(dir, &set(&[&server])).is_sound();
    assert_eq!(server.requests()[0].range, None);
}

#[test]
fn a_file_that_changed_on_the_server_is_read_anew() {
    let server = Server::new(|number, request, stream| match number {
        0 => cut_off(stream, &vec![7; 40_000], 10_000),
        1 => partial(stream, &content(), request.range.unwrap(), "2"),
        _ => honest(request, stream, &content()),
    });
    let outcome = fetched(&[&server]);
    outcome.is_sound();
    assert!(
        outcome.events[2].contains("the file on the server has changed"),
        "{:?}",
        outcome.events
    );
    assert_eq!(server.requests()[2].range, None);
}

#[test]
fn another_range_than_asked_for_is_not_appended() {
    let server = Server::new(|number, request, stream| match number {
        0 => cut_off(stream, &content(), 10_000),
        1 => partial(stream, &content(), 500, "1"),
        _ => honest(request, stream, &content()),
    });
    fetched(&[&server]).is_sound();
}

#[test]
fn wrong_content_pieced_together_is_read_once_more_whole() {
    let server = Server::new(|number, request, stream| match number {
        0 => cut_off(stream, &vec![7; 40_000], 10_000),
        _ => honest(request, stream, &content()),
    });
    let outcome = fetched(&[&server]);
    outcome.is_sound();
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn a_server_that_is_not_there_is_reported() {
    let nobody = Server {
        // Nothing listens on this port: the listener is gone.
        url: format!(
            "http://{}",
            TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap()
        ),
        requests: Arc::default(),
    };
    let text = fetched(&[&nobody]).error();
    assert!(text.to_lowercase().contains("refused"), "{text}");
}

#[test]
fn noise_instead_of_an_answer_is_reported() {
    let server = Server::new(|_, _, stream| {
        let _ = stream.write_all(b"220 smtp.example ready\r\n\r\n");
    });
    let text = fetched(&[&server]).error();
    assert!(
        text.contains("could not download file-idx1-ubyte.gz"),
        "{text}"
    );
}

#[test]
fn a_full_disk_ends_the_download() {
    let server = Server::new(|_, request, stream| honest(request, stream, &content()));
    let dir = TempDir::new().unwrap();
    std::fs::create_dir(dir.path().join("small")).unwrap();
    std::os::unix::fs::symlink(
        "/dev/full",
        dir.path().join("small/file-idx1-ubyte.gz.part"),
    )
    .unwrap();
    let outcome = fetch_into(dir, &set(&[&server]));
    let text = outcome.error();
    assert!(
        text.starts_with("cannot write") && text.contains("No space left"),
        "{text}"
    );
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_folder_that_cannot_be_made_is_reported() {
    let server = Server::new(|_, request, stream| honest(request, stream, &content()));
    let dir = TempDir::new().unwrap();
    store::write_atomic(&dir.path().join("small"), b"a file").unwrap();
    let result = fetch_set(&set(&[&server]), dir.path(), &options(), &mut |_| {});
    let text = result.unwrap_err().to_string();
    assert!(text.starts_with("cannot create the folder"), "{text}");
    assert!(server.requests().is_empty());
}

#[test]
fn two_downloads_into_one_folder_do_not_mix() {
    let server = Server::new(|_, request, stream| honest(request, stream, &content()));
    let dir = TempDir::new().unwrap();
    let mut inner = None;
    fetch_set(&set(&[&server]), dir.path(), &options(), &mut |event| {
        if matches!(event, Event::Started { .. }) {
            inner = Some(fetch_set(
                &set(&[&server]),
                dir.path(),
                &options(),
                &mut |_| {},
            ));
        }
    })
    .unwrap();
    let text = inner.unwrap().unwrap_err().to_string();
    assert!(text.contains("another process is downloading"), "{text}");
}

/// A ustar archive of files under `folder/`.
fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, content) in members {
        let name = format!("folder/{name}");
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
        header[148..156].fill(b' ');
        header[156] = b'0';
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bytes.extend(header);
        bytes.extend(*content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

#[test]
fn the_files_of_an_archive_are_stored_one_by_one() {
    let (first, second) = (content(), content()[..30_000].to_vec());
    let set = KnownSet {
        name: "small",
        about: "for tests",
        layout: Layout::CifarBinary,
        files: vec![
            set_file("data_batch_1.bin", &first),
            set_file("test_batch.bin", &second),
        ]
        .leak(),
        mirrors: &[],
    };
    let good = gzip(&tar(&[
        ("readme", b"hello"),
        ("data_batch_1.bin", &first),
        ("test_batch.bin", &second),
    ]));
    let lacking = gzip(&tar(&[("data_batch_1.bin", &first)]));
    let server = Server::new(move |_, request, stream| {
        let content = if request.path.starts_with("/good") {
            &good
        } else {
            &lacking
        };
        honest(request, stream, content);
    });
    let run = |mirror: &str, dir: &Path| {
        let options = FetchOptions {
            mirror: Some(format!("{}/{mirror}/", server.url)),
            ..options()
        };
        fetch_set(&set, dir, &options, &mut |_| {})
    };
    let dir = TempDir::new().unwrap();
    let text = run("lacking", dir.path()).unwrap_err().to_string();
    assert!(
        text.contains("test_batch.bin is in the archive 0 times"),
        "{text}"
    );
    assert_eq!(
        std::fs::read_dir(dir.path().join("small")).unwrap().count(),
        0
    );

    let folder = run("good", dir.path()).unwrap();
    assert_eq!(
        server.requests()[1].path,
        "/good/small/cifar-10-binary.tar.gz"
    );
    assert_eq!(
        std::fs::read(folder.join("data_batch_1.bin")).unwrap(),
        first
    );
    assert_eq!(
        std::fs::read(folder.join("test_batch.bin")).unwrap(),
        second
    );
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
    assert_eq!(sets::state(&set, dir.path()), State::Present);
}

// Import

fn import_from(name: &str, bytes: &[u8]) -> (Result<PathBuf, DataError>, TempDir) {
    let (from, to) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    store::write_atomic(&from.path().join(name), bytes).unwrap();
    (import_set(&set(&[]), from.path(), to.path()), to)
}

#[test]
fn import_takes_raw_and_gzip_files_of_either_naming() {
    let packed = gzip(&content());
    let files = [
        ("file-idx1-ubyte", content()),
        ("file.idx1-ubyte", content()),
        ("file-idx1-ubyte.gz", packed.clone()),
        ("file.idx1-ubyte.gz", packed.clone()),
        // Named wrongly, as browsers that unpack on the way do.
        ("file-idx1-ubyte.gz", content()),
    ];
    for (name, bytes) in files {
        let (result, _to) = import_from(name, &bytes);
        assert_eq!(
            std::fs::read(result.unwrap().join("file-idx1-ubyte")).unwrap(),
            content()
        );
    }
}

#[test]
fn import_refuses_other_content_and_writes_nothing() {
    let mut wrong = content();
    wrong[0] ^= 1;
    let (result, to) = import_from("file-idx1-ubyte", &wrong);
    let text = result.unwrap_err().to_string();
    assert!(
        text.contains("file-idx1-ubyte has the wrong checksum"),
        "{text}"
    );
    assert!(text.contains(&format!(
        "expected sha256 {}, found {}",
        sum(&content()),
        sum(&wrong)
    )));
    assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 0);

    let (result, to) = import_from("file-idx1-ubyte.gz", &gzip(&content())[..9_000]);
    assert!(
        result
            .unwrap_err()
            .to_string()
            .contains("is truncated: expected 40000 bytes")
    );
    assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 0);

    let (result, to) = import_from("other", b"");
    assert!(
        result
            .unwrap_err()
            .to_string()
            .contains("no file-idx1-ubyte (nor file-idx1-ubyte.gz)")
    );
    assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 0);
}

#[test]
fn an_unknown_set_is_refused_with_the_known_ones() {
    let dir = TempDir::new().unwrap();
    let expected = "there is no data set `emnist` to fetch or import\nhint: known sets are mnist, fashion-mnist, cifar10";
    let error = fetch("emnist", dir.path(), &options(), &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), expected);
    assert_eq!(
        import("emnist", dir.path(), dir.path())
            .unwrap_err()
            .to_string(),
        expected
    );
}

// The command

fn batchlab() -> Command {
    let mut command = Command::cargo_bin("batchlab").unwrap();
    command
        .env_remove("BATCHLAB_DATA")
        .env_remove("BATCHLAB_MIRROR")
        .env("NO_PROXY", "127.0.0.1");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_command_lists_the_sets() {
    let dir = TempDir::new().unwrap();
    let output = batchlab()
        .args(["data", "list"])
        .env("BATCHLAB_DATA", dir.path())
        .output()
        .unwrap();
    let stdout = text(&output.stdout);
    assert!(output.status.success());
    for line in [
        "digits         embedded",
        "mnist          absent",
        "fashion-mnist  absent",
        "cifar10        absent",
    ] {
        assert!(stdout.contains(line), "{stdout}");
    }
    assert!(text(&output.stderr).contains(&dir.path().display().to_string()));
}

#[test]
fn the_command_reports_a_lying_mirror_and_leaves_nothing() {
    let server = Server::new(|_, request, stream| honest(request, stream, &content()));
    let dir = TempDir::new().unwrap();
    let output = batchlab()
        .args(["data", "fetch", "mnist", "--dir"])
        .arg(dir.path())
        .env("BATCHLAB_MIRROR", &server.url)
        .output()
        .unwrap();
    let stderr = text(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(
        stderr.contains("could not download train-images-idx3-ubyte.gz"),
        "{stderr}"
    );
    assert!(stderr.contains("hint: "), "{stderr}");
    assert_eq!(
        server.requests()[0].path,
        "/mnist/train-images-idx3-ubyte.gz"
    );
    assert_eq!(
        std::fs::read_dir(dir.path().join("mnist")).unwrap().count(),
        0
    );
}

#[test]
fn a_download_killed_in_the_middle_leaves_only_a_part_and_resumes() {
    let server = Server::new(|_, _, stream| {
        send(
            stream,
            "200 OK",
            &[length(9_000_000), etag("1")],
            &vec![0x1f; 1_000_000],
        );
        std::thread::sleep(Duration::from_secs(20));
    });
    let dir = TempDir::new().unwrap();
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("batchlab"))
        .args(["data", "fetch", "mnist", "--mirror", &server.url, "--dir"])
        .arg(dir.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let part = dir.path().join("mnist/train-images-idx3-ubyte.gz.part");
    for _ in 0..500 {
        if std::fs::metadata(&part).is_ok_and(|metadata| metadata.len() == 1_000_000) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let mut stdout = String::new();
    child.stdout.unwrap().read_to_string(&mut stdout).unwrap();
    assert_eq!(stdout, "");
    assert_eq!(std::fs::metadata(&part).unwrap().len(), 1_000_000);
    assert!(!dir.path().join("mnist/train-images-idx3-ubyte").exists());

    let options = FetchOptions {
        mirror: Some(server.url.clone()),
        attempts: 1,
        ..options()
    };
    assert!(fetch("mnist", dir.path(), &options, &mut |_| {}).is_err());
    assert_eq!(server.requests().last().unwrap().range, Some(1_000_000));
}

#[test]
fn the_command_says_that_digits_need_no_fetching() {
    let output = batchlab()
        .args(["data", "fetch", "digits"])
        .output()
        .unwrap();
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("embedded in the program"));
}
