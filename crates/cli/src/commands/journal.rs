//! `gleaner journal`: the hub's journal, for its operator.

use crate::args::{self, Journal, JournalCommand, Upgrade, Verify};
use crate::config::{Config, Flags, Surroundings};
use crate::error::{CliError, Result};
use crate::render::{Facts, Table, bytes, print, print_json, say};
use hub::desk::DeskError;
use hub::desk::upkeep::{self, Examined, LOGIC_VERSION, SNAPSHOT_VERSION, Stage, Wrong};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use store::journal::JournalError;
use store::upkeep::Site;

/// The status of `verify` if something is wrong (EX_DATAERR).
const UNSOUND: u8 = 65;
/// How long it may take before a terminal is told how far it is, and how often that is told.
const PATIENCE: Duration = Duration::from_millis(700);
const TELL_INTERVAL: Duration = Duration::from_millis(100);

/// Looks after the journal.
pub fn run(arguments: Journal) -> Result<ExitCode> {
    match arguments.command {
        JournalCommand::Verify(arguments) => verify(&arguments),
        JournalCommand::Prune(site) => prune(&site).map(|()| ExitCode::SUCCESS),
        JournalCommand::Upgrade(arguments) => upgrade(&arguments).map(|()| ExitCode::SUCCESS),
    }
}

/// Where the hub with this state keeps its journal.
fn site(arguments: &args::Site) -> Result<Site> {
    let flags = Flags { state_dir: arguments.state.clone(), ..Flags::default() };
    let config = Config::load(&Surroundings::of_process(), flags)?;
    Ok(match config.journal {
        Some(place) => Site::Postgres(Box::new(place.value)),
        None => Site::Disk(config.state_dir.value.join("hub").join("journal")),
    })
}

fn failed(error: DeskError) -> CliError {
    let hint = match &error {
        DeskError::Journal(JournalError::Locked { .. } | JournalError::Held { .. }) => {
            Some("`gleaner stop` ends a hub of this machine, with --state DIR one whose state is elsewhere")
        }
        DeskError::NoJournal { .. } => {
            Some("`gleaner config` shows where the journal is looked for: node.state_dir, node.journal")
        }
        _ => None,
    };
    let failed = CliError::environment(error.to_string());
    hint.map_or_else(|| failed, |hint| CliError::environment(error.to_string()).hint(hint))
}

fn verify(arguments: &Verify) -> Result<ExitCode> {
    let site = site(&arguments.site)?;
    let mut progress = Progress::new();
    let seen = upkeep::examine(&site, |stage| progress.tell(stage));
    progress.end();
    let seen = seen.map_err(failed)?;
    let wrong = seen.wrong();
    if arguments.json {
        print_json(&as_json(&site, &seen, &wrong))?;
    } else {
        print(&as_text(&site, &seen, &wrong))?;
    }
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { UNSOUND.into() })
}

fn prune(arguments: &args::Site) -> Result {
    let site = site(arguments)?;
    let done = upkeep::prune(&site).map_err(failed)?;
    let (before, after) = done.bytes;
    say(&format!("the journal in {site} has a snapshot of all {} records, and nothing older", done.last));
    print(&format!("{} before, {} after\n", bytes(before), bytes(after)))
}

fn upgrade(arguments: &Upgrade) -> Result {
    let site = site(&arguments.site)?;
    let done = if arguments.check { upkeep::plan(&site) } else { upkeep::upgrade(&site) }.map_err(failed)?;
    print(&match done {
        upkeep::Upgrade::Needless => {
            "nothing to do: this version of gleaner starts from the journal as it is\n".to_owned()
        }
        upkeep::Upgrade::Snapshot { seq, found } if arguments.check => format!(
            "the snapshot of record {seq} would be written in format {SNAPSHOT_VERSION} instead of {found}; the version that wrote it \
             would not start from it any more\n"
        ),
        upkeep::Upgrade::Snapshot { seq, found } => format!(
            "the snapshot of record {seq} has format {SNAPSHOT_VERSION} now, and had {found}: start the hub with this version\n"
        ),
    })
}

/// Says on a terminal how far it is, once it takes long.
struct Progress {
    is_shown: bool,
    begun: Instant,
    told: Option<Instant>,
}

impl Progress {
    fn new() -> Self {
        Self { is_shown: std::io::stderr().is_terminal(), begun: Instant::now(), told: None }
    }

    fn tell(&mut self, stage: Stage) {
        let is_due = self.told.is_none_or(|told| told.elapsed() >= TELL_INTERVAL);
        if !self.is_shown || !is_due || self.begun.elapsed() < PATIENCE {
            return;
        }
        self.told = Some(Instant::now());
        let text = match stage {
            Stage::Checksums => "comparing with checksums".to_owned(),
            Stage::Snapshot(seq) => format!("loading the snapshot of record {seq}"),
            Stage::Records(done, all) => format!("{done} of {all} records done again"),
        };
        // A terminal that is gone hears nothing.
        let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
    }

    fn end(&self) {
        if self.told.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn as_json(site: &Site, seen: &Examined, wrong: &[Wrong]) -> Value {
    let report = &seen.report;
    let segments = report.segments.iter().map(|segment| {
        json!({
            "file": segment.path.to_string_lossy(), "first": segment.first.0, "last": segment.last.0,
            "logic_version": segment.logic_version, "epoch": segment.epoch, "bytes": segment.bytes,
        })
    });
    let snapshots = report.snapshots.iter().zip(&seen.formats).map(|(snapshot, format)| {
        json!({
            "file": snapshot.path.to_string_lossy(), "last": snapshot.seq.0, "format": format,
            "logic_version": snapshot.logic_version, "epoch": snapshot.epoch, "bytes": snapshot.bytes,
        })
    });
    let torn = report.torn.as_ref();
    let files =
        |paths: &[std::path::PathBuf]| paths.iter().map(|path| path.to_string_lossy().into()).collect::<Vec<String>>();
    let wrong = wrong.iter().map(|wrong| {
        json!({
            "message": wrong.message, "file": wrong.place.as_ref().map(|(path, _)| path.to_string_lossy()),
            "offset": wrong.place.as_ref().map(|(_, offset)| offset), "record": wrong.record.map(|seq| seq.0),
        })
    });
    let wrong: Vec<Value> = wrong.collect();
    json!({
        "journal": site.to_string(), "identity": report.identity, "epoch": report.epoch, "bytes": report.bytes,
        "first": report.first.0, "last": report.last.0, "replayed": seen.replayed,
        "segments": segments.collect::<Vec<_>>(), "segments_unused": report.segments_unused,
        "snapshots": snapshots.collect::<Vec<_>>(), "snapshots_aside": files(&report.snapshots_aside),
        "unfinished": files(&report.unfinished),
        "torn": torn.map(|torn| json!({"file": torn.path.to_string_lossy(), "offset": torn.offset, "records": torn.records})),
        "program": {"logic_version": LOGIC_VERSION, "snapshot_format": SNAPSHOT_VERSION},
        "sound": wrong.is_empty(), "wrong": wrong,
        "starts": seen.start.is_ok(), "starts_not": seen.start.as_ref().err().map(ToString::to_string),
    })
}

fn as_text(site: &Site, seen: &Examined, wrong: &[Wrong]) -> String {
    let report = &seen.report;
    let mut facts = Facts::default();
    facts
        .fact("journal", site.to_string())
        .fact("identity", &report.identity)
        .fact("epoch", report.epoch.to_string())
        .fact("records", records(seen))
        .fact("size", bytes(report.bytes))
        .fact("this version", format!("logic {LOGIC_VERSION}, snapshots of format {SNAPSHOT_VERSION}"));
    let mut text = facts.text().to_owned();
    let mut segments = Table::new(&["SEGMENT", "FIRST", "LAST", "LOGIC", "EPOCH", "SIZE"]);
    for segment in &report.segments {
        let (first, last) = (segment.first.0.to_string(), segment.last.0.to_string());
        let (logic, epoch) = (segment.logic_version.to_string(), segment.epoch.to_string());
        segments.row(vec![name(&segment.path), first, last, logic, epoch, bytes(segment.bytes)]);
    }
    if !report.segments.is_empty() {
        text += &format!("\n{}", segments.text(""));
    }
    let mut snapshots = Table::new(&["SNAPSHOT", "LAST", "FORMAT", "LOGIC", "EPOCH", "SIZE"]);
    for (snapshot, format) in report.snapshots.iter().zip(&seen.formats) {
        let is_whole = snapshot.damage.is_none();
        let shown =
            |number: Option<u64>| number.filter(|_| is_whole).map_or_else(|| "-".into(), |number| number.to_string());
        let format = shown(format.map(u64::from));
        let (logic, epoch) = (shown(Some(snapshot.logic_version.into())), shown(Some(snapshot.epoch)));
        snapshots.row(vec![
            name(&snapshot.path),
            snapshot.seq.0.to_string(),
            format,
            logic,
            epoch,
            bytes(snapshot.bytes),
        ]);
    }
    text += &format!("\n{}\n", snapshots.text("no snapshots"));
    for line in notes(seen) {
        text += &format!("note: {line}\n");
    }
    for wrong in wrong {
        text += &format!("WRONG: {}\n", wrong.message);
    }
    text + &verdict(seen, wrong)
}

fn records(seen: &Examined) -> String {
    let report = &seen.report;
    let newest = report.snapshots.iter().rfind(|snapshot| snapshot.damage.is_none()).map_or(0, |newest| newest.seq.0);
    let after = match (report.last.0.saturating_sub(newest), seen.replayed) {
        (_, done) if newest == 0 => format!("{done} of which were done again"),
        (0, _) => "none after the newest snapshot".to_owned(),
        (after, done) if after == done => format!("{after} after the newest snapshot, which were done again"),
        (after, done) => format!("{after} after the newest snapshot, {done} of which were done again"),
    };
    match (report.first.0, report.last.0) {
        (0, 0) => "none".to_owned(),
        (first, 0) => format!("from {first} on; what is wrong hides how many"),
        (0, last) => format!("up to {last}, {after}"),
        (first, last) => format!("{first} to {last}, {after}"),
    }
}

/// What is no damage and may be wondered at.
fn notes(seen: &Examined) -> Vec<String> {
    let report = &seen.report;
    let mut notes = Vec::new();
    if let Some(torn) = &report.torn {
        notes.push(format!(
            "a batch of {} records at {}, byte {}, is not whole: it was being written when the hub ended, or is now; nobody was told of it",
            torn.records,
            torn.path.display(),
            torn.offset
        ));
    }
    for path in &report.snapshots_aside {
        notes.push(format!("{} was damaged and was put aside; it is not needed", path.display()));
    }
    for path in &report.unfinished {
        notes.push(format!("{} is not finished; the hub's next start removes it if no hub does now", path.display()));
    }
    notes
}

fn verdict(seen: &Examined, wrong: &[Wrong]) -> String {
    match (&seen.start, wrong.is_empty()) {
        (Ok(()), true) => "sound: this version of gleaner starts from it\n".to_owned(),
        (Ok(()), false) => "not sound, but this version of gleaner starts from what is whole; then, with the hub stopped, `gleaner journal \
             prune` leaves nothing else\n"
            .to_owned(),
        (Err(error), true) => format!("sound, but this version of gleaner does not start from it: {error}\n"),
        (Err(_), false) => "not sound: this version of gleaner does not start from it\n".to_owned(),
    }
}
