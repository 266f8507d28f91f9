//! Downloads a named set: from one mirror after the other, resuming what was cut off, storing
//! nothing under its final name that is not complete and verified.
//!
//! A download grows in `<file>.part`, beside it `<file>.part.json` says what it is a part of. A part
//! is used again only for the same address, and only if the server confirms that its file is still
//! the same.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use ureq::http::{HeaderMap, Response, StatusCode};

use super::DataError;
use super::import::unpack;
use super::sets::{self, CIFAR_ARCHIVE, KnownSet, Layout, SetFile};
use crate::store::{self, FileLock, GrowingFile, StoreError};

/// Progress after which failures are counted anew: a slow line may cut off a large file often.
const PROGRESS: u64 = 1 << 20;

/// How to download.
#[derive(Debug, Clone)]
pub struct FetchOptions {
    /// A base URL asked instead of the public mirrors; it holds `<set>/<file>`.
    pub mirror: Option<String>,
    /// A server that sends nothing for this long has stalled.
    pub stall: Duration,
    /// Failures in a row after which a mirror is given up, at least 1.
    pub attempts: u32,
    /// Wait before the first retry; the k-th waits k times as long.
    pub pause: Duration,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            mirror: None,
            stall: Duration::from_secs(30),
            attempts: 4,
            pause: Duration::from_secs(1),
        }
    }
}

/// What happens during a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The file is there already, verified.
    Present {
        /// The file.
        file: &'a str,
    },
    /// The file is there but not the published one: it will be replaced.
    Replacing {
        /// The file.
        file: &'a str,
    },
    /// A server answers.
    Started {
        /// The file.
        file: &'a str,
        /// The address.
        url: &'a str,
        /// Bytes kept from before.
        have: u64,
        /// Bytes in all, where the server says.
        total: Option<u64>,
    },
    /// More has arrived.
    Progress {
        /// Bytes so far.
        have: u64,
    },
    /// An attempt failed; another follows at the same address.
    Retrying {
        /// The address.
        url: &'a str,
        /// What went wrong.
        why: &'a str,
    },
    /// A mirror is given up.
    GaveUp {
        /// The address.
        url: &'a str,
        /// What went wrong.
        why: &'a str,
    },
    /// The file is complete, verified and in place.
    Stored {
        /// The file.
        file: &'a str,
    },
}

/// One thing to download, and the files it holds.
struct Item {
    remote: String,
    files: &'static [SetFile],
}

/// Downloads what is missing of the set `name` into `<data_dir>/<name>` and returns that folder.
///
/// # Errors
/// If the name is unknown, no mirror has the right content, or the folder cannot be written.
pub fn fetch(
    name: &str,
    data_dir: &Path,
    options: &FetchOptions,
    report: &mut dyn FnMut(Event<'_>),
) -> Result<PathBuf, DataError> {
    fetch_set(sets::find(name)?, data_dir, options, report)
}

/// As [`fetch`], for any set.
///
/// # Errors
/// As [`fetch`].
pub fn fetch_set(
    set: &KnownSet,
    data_dir: &Path,
    options: &FetchOptions,
    report: &mut dyn FnMut(Event<'_>),
) -> Result<PathBuf, DataError> {
    let dir = data_dir.join(set.name);
    store::create_folder(&dir)?;
    let lock = FileLock::try_exclusive(&dir.join(".fetch.lock"))?;
    if lock.is_none() {
        return Err(DataError::Busy { dir });
    }
    let items: Vec<Item> = match set.layout {
        Layout::Idx => (set.files.iter())
            .map(|file| Item {
                remote: format!("{}.gz", file.name),
                files: std::slice::from_ref(file),
            })
            .collect(),
        Layout::CifarBinary => vec![Item {
            remote: CIFAR_ARCHIVE.to_owned(),
            files: set.files,
        }],
    };
    for item in &items {
        if missing(set, item, &dir, report) {
            fetch_item(set, item, &dir, options, report)?;
        }
    }
    Ok(dir)
}

fn missing(set: &KnownSet, item: &Item, dir: &Path, report: &mut dyn FnMut(Event<'_>)) -> bool {
    let folders = sets::folders(set, dir);
    let mut missing = false;
    for file in item.files {
        match sets::locate(&folders, file.name) {
            None => missing = true,
            Some(path) if sets::read_verified(&path, file).is_ok() => {
                report(Event::Present { file: file.name });
            }
            Some(_) => {
                report(Event::Replacing { file: file.name });
                missing = true;
            }
        }
    }
    missing
}

fn fetch_item(
    set: &KnownSet,
    item: &Item,
    dir: &Path,
    options: &FetchOptions,
    report: &mut dyn FnMut(Event<'_>),
) -> Result<(), DataError> {
    let bases: Vec<String> = match &options.mirror {
        Some(mirror) => vec![format!("{}/{}", mirror.trim_end_matches('/'), set.name)],
        None => set
            .mirrors
            .iter()
            .map(|&mirror| mirror.to_owned())
            .collect(),
    };
    let content: u64 = item.files.iter().map(|file| file.bytes).sum();
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .user_agent(concat!("batchlab/", env!("CARGO_PKG_VERSION")))
        .timeout_resolve(Some(options.stall))
        .timeout_connect(Some(options.stall))
        .timeout_recv_response(Some(options.stall))
        .timeout_per_read(Some(options.stall))
        .build()
        .into();
    let mut attempts = Vec::new();
    for base in bases {
        let mut download = Download {
            agent: &agent,
            url: format!("{base}/{}", item.remote),
            file: &item.remote,
            part: dir.join(format!("{}.part", item.remote)),
            state: dir.join(format!("{}.part.json", item.remote)),
            // No compression makes random bytes much longer; tar adds a kilobyte a file.
            most: content + content / 100 + (1 << 16),
            options,
            report,
            reused: false,
        };
        match download.complete(set, item) {
            Ok(contents) => {
                for (file, bytes) in contents {
                    store::write_atomic(&dir.join(file.name), &bytes)?;
                    report(Event::Stored { file: file.name });
                }
                remove(&dir.join(format!("{}.part", item.remote)));
                remove(&dir.join(format!("{}.part.json", item.remote)));
                return Ok(());
            }
            Err(Failure::Fatal(error)) => return Err(error),
            Err(Failure::Retry(why) | Failure::GiveUp(why)) => {
                let url = format!("{base}/{}", item.remote);
                report(Event::GaveUp {
                    url: &url,
                    why: &why,
                });
                attempts.push((url, why));
            }
        }
    }
    Err(DataError::Download {
        file: item.remote.clone(),
        attempts,
        hint: format!(
            "\nhint: run it again to resume, or get the files elsewhere and use `batchlab data import {} --from DIR`",
            set.name
        ),
    })
}

/// Why an attempt ended.
enum Failure {
    /// Worth another attempt at the same address.
    Retry(String),
    /// This address will not do.
    GiveUp(String),
    /// No address will do.
    Fatal(DataError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Fatal(error.into())
    }
}

/// What a part is a part of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PartState {
    url: String,
    /// Strong ETag, else the date of last modification: for `If-Range`.
    validator: Option<String>,
    total: Option<u64>,
}

struct Download<'a> {
    agent: &'a ureq::Agent,
    url: String,
    file: &'a str,
    part: PathBuf,
    state: PathBuf,
    most: u64,
    options: &'a FetchOptions,
    report: &'a mut dyn FnMut(Event<'_>),
    /// Whether the part holds bytes of more than one answer.
    reused: bool,
}

impl Download<'_> {
    /// Downloads and verifies; a pieced-together file that is wrong is downloaded once more whole.
    fn complete(
        &mut self,
        set: &KnownSet,
        item: &Item,
    ) -> Result<Vec<(SetFile, Vec<u8>)>, Failure> {
        loop {
            self.retrieve()?;
            let outcome = match item.files {
                [file] => sets::read_verified(&self.part, file).map(|bytes| vec![(*file, bytes)]),
                _ => unpack(set, &self.part),
            };
            let error = match outcome {
                Ok(contents) => return Ok(contents),
                Err(error) => error,
            };
            self.discard();
            // The hints of readers are not about downloads.
            let text = error.to_string();
            let why = format!("wrong content: {}", text.lines().next().unwrap_or_default());
            if !self.reused {
                return Err(Failure::GiveUp(why));
            }
            self.reused = false;
            (self.report)(Event::Retrying {
                url: &self.url,
                why: &why,
            });
        }
    }

    /// Attempts until the part is whole.
    fn retrieve(&mut self) -> Result<(), Failure> {
        let mut failures = 0;
        loop {
            let before = self.length();
            match self.attempt() {
                Err(Failure::Retry(why)) => {
                    if self.length() >= before + PROGRESS {
                        failures = 0;
                    }
                    failures += 1;
                    if failures >= self.options.attempts {
                        return Err(Failure::GiveUp(format!(
                            "{why} ({failures} times in a row)"
                        )));
                    }
                    (self.report)(Event::Retrying {
                        url: &self.url,
                        why: &why,
                    });
                    std::thread::sleep(self.options.pause * failures);
                }
                outcome => return outcome,
            }
        }
    }

    fn attempt(&mut self) -> Result<(), Failure> {
        let known = self.known();
        let kept = known.as_ref().map_or(0, |_| self.length());
        if kept > 0
            && known
                .as_ref()
                .is_some_and(|state| state.total == Some(kept))
        {
            self.reused = true;
            return Ok(());
        }
        let mut request = self
            .agent
            .get(&self.url)
            .header("accept-encoding", "identity");
        if kept > 0 {
            request = request.header("range", format!("bytes={kept}-"));
            if let Some(validator) = known.as_ref().and_then(|state| state.validator.as_ref()) {
                request = request.header("if-range", validator);
            }
        }
        let mut response = request.call().map_err(|error| match error {
            ureq::Error::BadUri(_)
            | ureq::Error::Http(_)
            | ureq::Error::TooManyRedirects
            | ureq::Error::RequireHttpsOnly(_) => Failure::GiveUp(error.to_string()),
            error => Failure::Retry(self.explain(&error)),
        })?;
        let start = match response.status() {
            StatusCode::OK => None,
            StatusCode::PARTIAL_CONTENT if kept > 0 => Some(kept),
            StatusCode::RANGE_NOT_SATISFIABLE => {
                self.discard();
                return Err(Failure::Retry("the server has no such range".to_owned()));
            }
            status @ (StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS) => {
                return Err(Failure::Retry(format!("the server answered {status}")));
            }
            status if status.is_server_error() => {
                return Err(Failure::Retry(format!("the server answered {status}")));
            }
            status => return Err(Failure::GiveUp(format!("the server answered {status}"))),
        };
        let state = PartState {
            url: self.url.clone(),
            validator: validator(response.headers()),
            total: total(&response, start),
        };
        if start.is_some() {
            let same = known.is_some_and(|known| {
                known.validator == state.validator
                    && (known.total.is_none() || known.total == state.total)
            });
            if !same || range_start(response.headers()) != start {
                self.discard();
                return Err(Failure::Retry(
                    "the file on the server has changed".to_owned(),
                ));
            }
        }
        if let Some(total) = state.total.filter(|&total| total > self.most) {
            self.discard();
            return Err(Failure::GiveUp(format!(
                "the server announces {total} bytes, expected at most {}",
                self.most
            )));
        }
        self.receive(&mut response, &state, start.unwrap_or(0))
    }

    /// Appends the body to the part, from byte `start` on.
    fn receive(
        &mut self,
        response: &mut Response<ureq::Body>,
        state: &PartState,
        start: u64,
    ) -> Result<(), Failure> {
        let mut file = if start > 0 {
            GrowingFile::resume(&self.part)?
        } else {
            // Before the state, so that an old part is never taken for one of this answer.
            let file = GrowingFile::start(&self.part)?;
            let text = serde_json::to_vec(state).unwrap_or_default();
            store::write_atomic(&self.state, &text)?;
            file
        };
        self.reused = start > 0;
        let mut have = start;
        (self.report)(Event::Started {
            file: self.file,
            url: &self.url,
            have,
            total: state.total,
        });
        let mut body = response.body_mut().as_reader();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let n = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    let why = self.explain(&ureq::Error::from(error));
                    let total = state
                        .total
                        .map(|total| format!(" of {total}"))
                        .unwrap_or_default();
                    return Err(Failure::Retry(format!(
                        "cut off at byte {have}{total}: {why}"
                    )));
                }
            };
            have += n as u64;
            if have > self.most {
                self.discard();
                return Err(Failure::GiveUp(format!(
                    "the server sends more than the {} bytes expected at most",
                    self.most
                )));
            }
            file.append(&buffer[..n])?;
            (self.report)(Event::Progress { have });
        }
        match state.total {
            Some(total) if have < total => {
                Err(Failure::Retry(format!("cut off at byte {have} of {total}")))
            }
            _ => Ok(()),
        }
    }

    fn explain(&self, error: &ureq::Error) -> String {
        match error {
            ureq::Error::Timeout(_) => {
                format!("nothing came for {} s", self.options.stall.as_secs_f64())
            }
            error => error.to_string(),
        }
    }

    /// The state of a part of this very address.
    fn known(&self) -> Option<PartState> {
        let text = std::fs::read(&self.state).ok()?;
        let state: PartState = serde_json::from_slice(&text).ok()?;
        let length = self.length();
        let fits = length <= self.most && state.total.is_none_or(|total| length <= total);
        (state.url == self.url && fits).then_some(state)
    }

    fn length(&self) -> u64 {
        std::fs::metadata(&self.part).map_or(0, |metadata| metadata.len())
    }

    fn discard(&self) {
        remove(&self.state);
        remove(&self.part);
    }
}

/// Removes a file of ours that may not be there; one left over does no harm.
fn remove(path: &Path) {
    let _ = store::remove_file(path);
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn validator(headers: &HeaderMap) -> Option<String> {
    let strong = text(headers, "etag").filter(|tag| !tag.starts_with("W/"));
    strong
        .or_else(|| text(headers, "last-modified"))
        .map(str::to_owned)
}

/// Length of the whole file as the answer states it.
fn total(response: &Response<ureq::Body>, start: Option<u64>) -> Option<u64> {
    let headers = response.headers();
    match start {
        None => text(headers, "content-length")?.parse().ok(),
        Some(_) => text(headers, "content-range")?
            .rsplit_once('/')?
            .1
            .parse()
            .ok(),
    }
}

/// First byte of `content-range: bytes FIRST-LAST/TOTAL`.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let range = text(headers, "content-range")?.strip_prefix("bytes ")?;
    range.split_once('-')?.0.trim().parse().ok()
}
