//! Who did what at the hub: joins, refusals, approvals, revocations, tokens and launches, a line of JSON each, in files of bounded size.
//! Written by a thread of its own; what it cannot take in time is counted, and nobody waits for it.

use base::NodeId;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use wire::lock;

/// A file of so many bytes becomes the one before; so many of those are kept.
const FILE_BYTES_MAX: u64 = 4 << 20;
const OLDER: usize = 3;
/// Lines that wait to be written.
const WAITING_MAX: usize = 4096;
/// Most lines of one answer.
const TOLD_MAX: usize = 1000;
/// Lines a second about those who are refused.
const LINES_A_SECOND: u32 = 10;
/// Longest text within a line, in bytes.
const TEXT_BYTES_MAX: usize = 128;

/// The log. Lines are dropped rather than waited for.
#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    lines: SyncSender<Value>,
    dropped: std::sync::Arc<AtomicU64>,
}

impl Audit {
    /// Writes to this file, and to `.1` and so on beside it.
    pub fn open(path: PathBuf) -> Self {
        let (lines, waiting) = sync_channel(WAITING_MAX);
        let dropped = std::sync::Arc::new(AtomicU64::new(0));
        let (at, lost) = (path.clone(), dropped.clone());
        let writing = std::thread::Builder::new().name("audit".into()).spawn(move || write(&at, &waiting, &lost));
        if let Err(error) = writing {
            tracing::error!(%error, "the audit log cannot be written: no thread for it");
        }
        Self { path, lines, dropped }
    }

    /// Notes that something happened now. `facts` is an object.
    pub fn note(&self, what: &str, mut facts: Value) {
        facts["what"] = what.into();
        facts["at_ms"] = wire::now_millis().into();
        if self.lines.try_send(facts).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that a machine was refused something. `more` is an object with what else there is to say of it.
    pub fn refused(&self, (node, name): (NodeId, &str), why: &str, mut more: Value) {
        (more["node"], more["name"], more["why"]) = (node.0.to_hex().into(), name.into(), why.into());
        self.note("refused", more);
    }

    /// The last lines, the oldest first.
    pub fn last(&self, count: usize) -> Vec<Value> {
        let count = count.min(TOLD_MAX);
        let mut found = Vec::new();
        let files = (0..=OLDER).map(|number| numbered(&self.path, number));
        for file in files {
            let Ok(file) = File::open(file) else { continue };
            let lines = BufReader::new(file).lines().map_while(Result::ok);
            let mut lines: Vec<Value> = lines.filter_map(|line| serde_json::from_str(&line).ok()).collect();
            lines.extend(found);
            found = lines.split_off(lines.len().saturating_sub(count));
            if found.len() >= count {
                break;
            }
        }
        found
    }
}

/// How many lines about those who are refused go into logs: so many that nobody fills them.
#[derive(Debug)]
pub(crate) struct FewLines(Mutex<(Instant, u32)>);

impl Default for FewLines {
    fn default() -> Self {
        Self(Mutex::new((Instant::now(), 0)))
    }
}

impl FewLines {
    /// Whether one more may go now.
    pub fn has_room(&self) -> bool {
        let mut logged = lock(&self.0);
        let (since, lines) = *logged;
        *logged = if since.elapsed() > Duration::from_secs(1) { (Instant::now(), 1) } else { (since, lines + 1) };
        logged.1 <= LINES_A_SECOND
    }
}

/// A text of somebody else's, cut and escaped.
pub(crate) fn text(bytes: &[u8]) -> String {
    base::path::printable(&bytes[..bytes.len().min(TEXT_BYTES_MAX)])
}

fn numbered(path: &Path, number: usize) -> PathBuf {
    if number == 0 { path.to_owned() } else { path.with_extension(format!("log.{number}")) }
}

/// Writes lines until nobody has any more.
fn write(path: &Path, waiting: &Receiver<Value>, dropped: &AtomicU64) {
    let mut file = None;
    while let Ok(line) = waiting.recv() {
        let lost = dropped.swap(0, Ordering::Relaxed);
        let lost = (lost > 0).then(|| json!({"what": "lost", "at_ms": wire::now_millis(), "lines": lost}));
        for line in lost.into_iter().chain([line]) {
            if let Err(error) = append(path, &mut file, &line) {
                tracing::error!(path = %path.display(), %error, "the audit log cannot be written");
                file = None;
            }
        }
    }
}

fn append(path: &Path, file: &mut Option<(File, u64)>, line: &Value) -> io::Result<()> {
    if file.as_ref().is_some_and(|(_, bytes)| *bytes >= FILE_BYTES_MAX) {
        *file = None;
        for number in (0..OLDER).rev() {
            match std::fs::rename(numbered(path, number), numbered(path, number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    let (file, bytes) = match file {
        Some(open) => open,
        None => {
            let opened = File::options().append(true).create(true).mode(0o600).open(path)?;
            let bytes = opened.metadata()?.len();
            file.insert((opened, bytes))
        }
    };
    let line = format!("{line}\n");
    *bytes += line.len() as u64;
    file.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_in_files_of_bounded_size_and_number() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("audit.log");
        let mut file = None;
        let long = "x".repeat(100_000);
        for number in 0..300 {
            append(&path, &mut file, &json!({"number": number, "text": long})).expect("written");
        }
        let sizes: Vec<u64> = std::fs::read_dir(folder.path())
            .expect("listed")
            .map(|entry| entry.expect("an entry").metadata().expect("there").len())
            .collect();
        assert!(sizes.len() == 1 + OLDER && sizes.iter().all(|size| *size < FILE_BYTES_MAX + 200_000), "{sizes:?}");
        let audit = Audit::open(path);
        let last = audit.last(60);
        let numbers: Vec<u64> = last.iter().filter_map(|line| line["number"].as_u64()).collect();
        assert_eq!(numbers, (240..300).collect::<Vec<u64>>(), "across files, in order");
    }

    #[test]
    fn what_is_noted_can_be_read_and_shows_nothing_to_a_terminal() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let audit = Audit::open(folder.path().join("audit.log"));
        audit.note("joined", json!({"name": text(b"a\x1b[31m")}));
        let begun = std::time::Instant::now();
        while audit.last(9).is_empty() && begun.elapsed().as_secs() < 20 {
            std::thread::yield_now();
        }
        let last = audit.last(9);
        assert_eq!((last.len(), &last[0]["what"], &last[0]["name"]), (1, &json!("joined"), &json!("a\\u{1b}[31m")));
        assert_eq!(text(&[b'x'; 5000]).len(), TEXT_BYTES_MAX);
    }
}
