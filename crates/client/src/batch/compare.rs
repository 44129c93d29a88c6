//! Which results of a task agree, where its owner's command says that: each result is laid out in a folder, and the command runs as a
//! task of its own over two of them, or over one where nothing needs to agree with it.

use super::collect::{Collector, arrivals, digests, exited, write};
use super::drive::{INSTANCES_MAX, Way};
use super::hook;
use super::job::Job;
use crate::program;
use crate::serve::blocking_io;
use crate::spool::Spool;
use base::delta::FileChange;
use base::path::printable;
use base::{Action, Content, Digest, ExitStatus, TreePath};
use bytes::Bytes;
use prost::Message;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use wire::message::Change;
use wire::message::work::{Compare, Compared, LaunchResult};

/// How often a comparison is tried; after that no result is good.
const TRIES_MAX: u32 = 4;
/// Pause before the second try; doubled each time.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// What all of them have said is here, in the job's folder.
const LOG: &str = "validate.log";

/// Compares a task's results, however often that has to be tried; nothing once the connection has ended.
pub(super) async fn compare(collector: Arc<Collector>, asked: Compare) -> Option<Compared> {
    let job = &collector.way.job;
    let none = Compared { task: asked.task, agree: 0 };
    let (index, line) = match (job.index_of(asked.index), &job.spec.batch.validate) {
        (Some(index), Some(line)) => (index, line),
        _ => return Some(none),
    };
    let asked = Compare { index, ..asked };
    let _turn = job.turn(index).await;
    let mut pause = PAUSE_MIN;
    for tried in 1..=TRIES_MAX {
        let why = match compare_once(&collector, line, &asked).await {
            Ok(agree) => return Some(Compared { agree, ..none }),
            Err(why) => why,
        };
        tracing::info!(job = %job.id(), index, why, "results could not be compared");
        job.trouble(index, &format!("--validate {why} (see {})", job.folder().join(LOG).display()));
        if job.wanted().borrow().cancelled.is_some() || tried == TRIES_MAX {
            break;
        }
        if tokio::time::timeout(pause, collector.way.joined.connection.closed()).await.is_ok() {
            return None;
        }
        pause *= 2;
    }
    Some(none)
}

/// A result that is laid out.
struct LaidOut {
    number: u32,
    folder: PathBuf,
    status: ExitStatus,
}

async fn compare_once(collector: &Collector, line: &[u8], asked: &Compare) -> Result<u32, String> {
    let _slot = collector.hooks.acquire().await.map_err(|error| error.to_string())?;
    let way = &collector.way;
    let folder = Folder::make(way.job.folder().join("compare").join(asked.index.to_string())).await?;
    let mut results = Vec::new();
    for candidate in asked.candidates.iter().filter(|candidate| candidate.number < INSTANCES_MAX) {
        let number = candidate.number;
        let at = folder.0.join(number.to_string());
        if let Some(status) = lay_out(way, at.clone(), &candidate.result).await? {
            results.push(LaidOut { number, folder: at, status });
        }
    }
    let validator = Validator { job: &way.job, line, index: asked.index, runner: program::remrun() };
    match way.job.spec.batch.quorum {
        0 | 1 => validator.good_one(&results).await,
        _ => validator.most_that_agree(&results).await,
    }
}

/// The owner's command, for one task.
struct Validator<'a> {
    job: &'a Job,
    line: &'a [u8],
    index: u32,
    /// What has it run elsewhere.
    runner: OsString,
}

impl Validator<'_> {
    async fn good_one(&self, results: &[LaidOut]) -> Result<u32, String> {
        for result in results {
            if self.accepts(&[&result.folder]).await? {
                return Ok(1 << result.number);
            }
        }
        Ok(0)
    }

    /// Agreeing is taken to be transitive: each result is compared with one of those that agree.
    async fn most_that_agree(&self, results: &[LaidOut]) -> Result<u32, String> {
        let mut classes: Vec<(&LaidOut, u32)> = Vec::new();
        'results: for result in results {
            for (first, mask) in classes.iter_mut().filter(|(first, _)| first.status == result.status) {
                if self.accepts(&[&first.folder, &result.folder]).await? {
                    *mask |= 1 << result.number;
                    continue 'results;
                }
            }
            classes.push((result, 1 << result.number));
        }
        // Of classes of one size the first.
        Ok(classes.iter().rev().map(|(_, mask)| *mask).max_by_key(|mask| mask.count_ones()).unwrap_or(0))
    }

    /// Whether the command exits with 0. The error: it exits with neither 0 nor 1.
    async fn accepts(&self, folders: &[&Path]) -> Result<bool, String> {
        let mut command = hook::command(self.job, self.index, &self.runner);
        command.args(["--", "/bin/sh", "-c"]).arg(OsStr::from_bytes(self.line)).arg("validate").args(folders);
        let status = hook::run(self.job, command, LOG).await?;
        match status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(format!("failed ({status})")),
        }
    }
}

/// A folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    /// In the place of one that was left by an earlier daemon.
    async fn make(path: PathBuf) -> Result<Self, String> {
        let folder = Self(path.clone());
        let made = blocking_io(move || {
            super::folder::remove(&path)?;
            make_folder(&path)
        });
        made.await.map_err(|error| format!("has no folder: {error}"))?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = super::folder::remove(&self.0) {
            tracing::info!(%error, "results that were compared are removed later");
        }
    }
}

fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Lays a result out in `folder`; gives its status, or nothing if it is no result.
async fn lay_out(way: &Arc<Way>, folder: PathBuf, result: &Bytes) -> Result<Option<ExitStatus>, String> {
    let result = match LaunchResult::decode(result.clone()) {
        Ok(decoded) if !result.is_empty() => decoded,
        _ => return Ok(None),
    };
    let said = [digests(&result.stdout)?, digests(&result.stderr)?];
    let at = (!result.exited_at.is_empty()).then_some(&result.exited_at);
    let at = digests(at.map(std::slice::from_ref).unwrap_or_default())?;
    let mut arrivals = arrivals(way);
    arrivals.fetch(&[&said[0][..], &said[1], &at].concat()).await?;
    let Some(exited) = exited(&arrivals, at.first(), result.exited)? else { return Ok(None) };
    let spool = arrivals.finish(&exited.changes).await?;
    let status = exited.status();
    let written = blocking_io(move || write_all(&folder, &spool, &said, status, &exited.changes));
    written.await.map_err(|error| format!("has no results to look at: {error}"))?;
    Ok(Some(status))
}

fn write_all(
    folder: &Path,
    spool: &Spool,
    said: &[Vec<Digest>; 2],
    status: ExitStatus,
    changes: &[Change],
) -> io::Result<()> {
    make_folder(folder)?;
    write(&folder.join("stdout"), spool, &said[0], |_| {})?;
    write(&folder.join("stderr"), spool, &said[1], |_| {})?;
    std::fs::write(folder.join("status"), format!("{}\n", status.shell_code()))?;
    let mut list = File::create(folder.join("changes"))?;
    make_folder(&folder.join("files"))?;
    for change in changes {
        // One that cannot be understood can never be committed either.
        let Ok(change) = base::Change::try_from(change.clone()) else { continue };
        writeln!(list, "{} {}", name(&change.action), printable(change.path.as_bytes()))?;
        if let Action::File { content, change: FileChange::Written | FileChange::Appended { .. }, .. } = change.action {
            write_file(&folder.join("files"), &change.path, &content, spool)?;
        }
    }
    Ok(())
}

fn name(action: &Action) -> &'static str {
    match action {
        Action::Remove => "remove",
        Action::Rename { .. } => "rename",
        Action::Directory { .. } => "directory",
        Action::File { .. } => "file",
        Action::LastWrite { .. } => "last write",
        Action::Symlink { .. } => "symlink",
        Action::HardLink { .. } => "link",
        Action::Fifo { .. } => "fifo",
    }
}

/// Links are not made: whoever made a result cannot have its files written elsewhere.
fn write_file(below: &Path, path: &TreePath, content: &Content, spool: &Spool) -> io::Result<()> {
    let relative = path.as_bytes().strip_prefix(b"/").unwrap_or(path.as_bytes());
    let at = below.join(OsStr::from_bytes(relative));
    make_folder(at.parent().unwrap_or(below))?;
    let file = File::options().write(true).create_new(true).mode(0o600).open(&at)?;
    spool.write_from(content, 0, &file)
}

#[cfg(test)]
mod tests {
    use super::super::folder::Draft;
    use super::super::folder::tests::{spec_of, task};
    use super::*;

    /// A job in `above`, and results that printed this, each with status 0 but for the last of them.
    fn laid_out(above: &Path, printed: &[&str]) -> (Arc<Job>, Vec<LaidOut>) {
        let folder = above.join("job");
        let mut draft = Draft::begin(&folder).unwrap();
        draft.add(&[task("a")]).unwrap();
        let mut spec = spec_of(1);
        spec.batch.surroundings.cwd = above.as_os_str().as_bytes().to_vec();
        draft.finish(&spec).unwrap();
        let results = printed.iter().enumerate().map(|(number, text)| {
            let (mut spool, at) = (Spool::new(above.to_owned()), above.join(number.to_string()));
            let name = Digest::of(text.as_bytes());
            spool.put(name, text.as_bytes()).unwrap();
            let status = ExitStatus::Code(u8::from(number + 1 == printed.len()));
            write_all(&at, &spool, &[vec![name], Vec::new()], status, &[]).unwrap();
            LaidOut { number: number as u32, folder: at, status }
        });
        let results = results.collect();
        (Job::load(&folder).unwrap(), results)
    }

    #[test]
    fn a_result_is_laid_out_beneath_its_folder() {
        let above = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(above.path().to_owned());
        let name = Digest::of(b"made");
        spool.put(name, b"made").unwrap();
        let path = TreePath::parse(b"/work/out").unwrap();
        let below = above.path().join("files");
        write_file(&below, &path, &Content::Block(name), &spool).unwrap();
        assert_eq!(std::fs::read(below.join("work/out")).unwrap(), b"made");
        assert!(write_file(&below, &path, &Content::Block(name), &spool).is_err(), "nothing is written twice");
    }

    #[tokio::test]
    async fn the_most_that_agree_are_found() {
        let above = tempfile::tempdir().unwrap();
        let (job, results) = laid_out(above.path(), &["1\n", "2\n", "02\n", "1\n", "002\n", "2\n"]);
        let with = |line| Validator { job: &job, line, index: 0, runner: "/usr/bin/env".into() };
        let equal = with(b"read a <$1/stdout; read b <$2/stdout; [ $a -eq $b ]");
        assert_eq!(equal.most_that_agree(&results).await, Ok(0b1_0110), "the last one has another status");
        assert_eq!(with(b"exit 1").most_that_agree(&results).await, Ok(1), "none agree");
        assert_eq!(with(b"grep -q 2 $1/stdout").good_one(&results).await, Ok(2));
        let failed = with(b"echo broken; exit 3").good_one(&results).await.unwrap_err();
        assert!(failed.contains("exit status: 3"), "{failed}");
        assert_eq!(std::fs::read_to_string(job.folder().join(LOG)).unwrap(), "broken\n");
    }
}
