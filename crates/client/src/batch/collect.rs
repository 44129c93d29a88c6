//! What comes of a job's tasks: taken from the hub, put where it belongs, written down, and only then said to be taken. What is told
//! once more after a crash is found in the log, or in the committer's.

use super::assimilate::assimilate;
use super::compare::compare;
use super::drive::{Broken, Way};
use super::job::Launched;
use super::log::{End, How, Own, shortened};
use super::reason;
use crate::arrivals::Arrivals;
use crate::plan::write_rules;
use crate::remote_ability;
use crate::serve::{blocking, blocking_io};
use crate::settle::{self, Trust, settle_ended};
use crate::signatures::IsSigned;
use crate::spool::Spool;
use crate::views::Seen;
use base::path::printable;
use base::{Digest, Time};
use bytes::Bytes;
use prost::Message;
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use wire::message::work::{Collect, Compared, Ended, Endings, LaunchResult, OUTPUT_BYTES_MAX, Taken};
use wire::message::{Exited, OpenKind};
use wire::now_nanos;
use wire::signed::{Claim, Streams};

/// Tasks that are told and not yet taken.
const AHEAD: u32 = 256;
/// Results that are put into place at once.
const AT_ONCE: usize = 8;
/// How often the hub is asked for a result that it should have.
const FETCH_TRIES: u32 = 6;
/// Pauses between tries: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Of a task that was cancelled: see [`Ended::failure`].
const CANCELLED: u32 = 5;

/// What those who take a job's results share.
pub(super) struct Collector {
    pub way: Arc<Way>,
    slots: Semaphore,
    /// Commands that run after tasks.
    pub hooks: Semaphore,
}

/// Takes what comes of a job's tasks, until the job has ended.
pub(super) async fn collect(way: &Arc<Way>) -> Result<(), Broken> {
    let wanted = Collect { job: way.number, ahead: AHEAD };
    let (mut sender, mut receiver) = way.joined.connection.open(OpenKind::Collect(wanted)).await?;
    let (slots, hooks) = (Semaphore::new(AT_ONCE), Semaphore::new(AT_ONCE / 2));
    let collector = Arc::new(Collector { way: way.clone(), slots, hooks });
    let (mut open, mut told) = (Open(JoinSet::new()), HashSet::new());
    loop {
        tokio::select! {
            Some(first) = open.0.join_next() => {
                let others = std::iter::from_fn(|| open.0.try_join_next());
                let done = std::iter::once(first).chain(others).filter_map(Result::ok);
                let mut taken = Taken::default();
                for done in done.flatten() {
                    match done {
                        Done::Taken(task) => {
                            told.remove(&task);
                            taken.tasks.push(task);
                        }
                        Done::Compared(compared) => taken.compared.push(compared),
                    }
                }
                sender.send(&taken).await?;
            }
            endings = receiver.next::<Endings>() => {
                let ended = || Broken::Later("the hub ended the stream of what has ended".into());
                let endings = endings?.ok_or_else(ended)?;
                if !endings.refusal.is_empty() {
                    return Err(Broken::Later(format!("the hub tells nothing of it: {}", endings.refusal)));
                }
                // What an earlier connection was told comes twice.
                for ended in endings.ended.into_iter().filter(|ended| told.insert(ended.task)) {
                    let collector = collector.clone();
                    open.0.spawn(async { take(collector, ended).await.map(Done::Taken) });
                }
                for asked in endings.compare {
                    let collector = collector.clone();
                    open.0.spawn(async { compare(collector, asked).await.map(Done::Compared) });
                }
                if endings.is_last {
                    return Ok(());
                }
            }
        }
    }
}

/// What the hub is told.
enum Done {
    /// This task's result is where it goes.
    Taken(u64),
    Compared(Compared),
}

/// Results on their way into place. When the connection ends they go on as far as they can: what is being written is not broken off.
struct Open(JoinSet<Option<Done>>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.detach_all();
    }
}

/// Takes one result, however often that has to be tried; gives the task's number, or nothing once the connection has ended.
async fn take(collector: Arc<Collector>, ended: Ended) -> Option<u64> {
    let (mut pause, mut tries) = (PAUSE_MIN, 0);
    let job = &collector.way.job;
    let (task, number) = (ended.task, ended.index);
    let Some(index) = job.index_of(number) else { return Some(task) };
    let ended = Ended { index, ..ended };
    let _turn = job.turn(index).await;
    // It may have been taken meanwhile, and not used.
    if job.index_of(number) != Some(index) {
        return Some(task);
    }
    while let Err(why) = take_once(&collector, &ended, tries).await {
        if collector.way.joined.connection.is_closed() {
            return None;
        }
        tracing::warn!(job = %job.id(), index = ended.index, why, "a result could not be taken, and is tried again");
        job.stuck(ended.index, &why);
        tries += 1;
        // Sooner, if the connection ends.
        let _ = tokio::time::timeout(pause, collector.way.joined.connection.closed()).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
    Some(task)
}

async fn take_once(collector: &Collector, ended: &Ended, tries: u32) -> Result<(), String> {
    let job = &collector.way.job;
    if job.is_done(ended.index) {
        return Ok(());
    }
    if !job.has_ended(ended.index) {
        let _slot = collector.slots.acquire().await.map_err(|error| error.to_string())?;
        let (job, index) = (job.clone(), ended.index);
        let end = end_of(&collector.way, ended, tries).await?;
        let is_end = end.is_some();
        let written = blocking_io(move || end.map_or_else(|| job.again(index), |end| job.ended(end))).await;
        written.map_err(|error| format!("writing a job's log: {error}"))?;
        if !is_end {
            return Ok(());
        }
    }
    assimilate(collector, ended.index).await
}

/// How a task ended, once all that came of it is in place; `None`: it is to be run again.
async fn end_of(way: &Arc<Way>, ended: &Ended, tries: u32) -> Result<Option<End>, String> {
    let index = ended.index;
    let mut end = End::of(index, How::Cancelled);
    let result = match LaunchResult::decode(&ended.result[..]) {
        Ok(result) if !ended.result.is_empty() => result,
        _ => {
            end.how = failure(way, ended, None);
            return Ok(Some(end));
        }
    };
    end.worker = printable(result.worker.as_bytes());
    end.is_cut = result.is_cut;
    end.own = result.exited.as_ref().map(|exited| exited.status().into());
    match put_in_place(way, ended, result, &mut end).await {
        Ok(true) if ended.failure == CANCELLED => end.own = None,
        Ok(true) if ended.failure != 0 => end.how = failure(way, ended, end.own),
        Ok(true) => {}
        Ok(false) => return Ok(None),
        // Who has it no more will not have it again.
        Err(why) if tries >= FETCH_TRIES => {
            end.how = How::Failed(shortened(&format!("what it made could not be put into place: {why}")));
            // The disk may be full: what was written stays.
            let written =
                [1, 2].map(|stream| std::fs::metadata(way.job.output(index, stream)).map_or(0, |file| file.len()));
            (end.said, end.is_cut) = (written, true);
        }
        Err(why) => return Err(why),
    }
    Ok(Some(end))
}

/// How a task ended of which the hub has no result that counts; its last run may have ended by itself.
fn failure(way: &Way, ended: &Ended, own: Option<Own>) -> How {
    if ended.failure == CANCELLED {
        return How::Cancelled;
    }
    let known = reason::Known {
        failure: ended.failure,
        statuses: ended.statuses.clone(),
        last_status: own.map(|own| match own {
            Own::Exit(code) => code.into(),
            Own::Signal(signal) => reason::SIGNALS + u32::from(signal),
        }),
        runs: ended.runs,
        results: ended.results,
        is_held: way.job.wanted().borrow().is_held == Some(true),
        too_long: way.job.count_too_long(ended.index),
        trouble: way.job.last_trouble(ended.index),
    };
    How::Failed(shortened(&reason::why(&way.job.spec.batch, &known)))
}

/// False: its changes are not, and it can be run again.
async fn put_in_place(way: &Arc<Way>, ended: &Ended, result: LaunchResult, end: &mut End) -> Result<bool, String> {
    let committed = way.daemon.committer.outcome(way.job.commit_task(ended.index));
    let said = [digests(&result.stdout)?, digests(&result.stderr)?];
    let at = (committed.is_none() && !result.exited_at.is_empty()).then_some(&result.exited_at);
    let at = digests(at.map(std::slice::from_ref).unwrap_or_default())?;
    let mut arrivals = arrivals(way);
    // All at once: the hub may be far.
    arrivals.fetch(&[&said[0][..], &said[1], &at].concat()).await?;
    let (arrivals, written, said) = write_outputs(way, ended.index, arrivals, said).await?;
    end.said = written.map(|(bytes, _)| bytes);
    end.is_cut |= written.iter().any(|(_, is_cut)| *is_cut);
    if ended.failure != 0 {
        end.own = exited(&arrivals, at.first(), result.exited)?.map(|exited| exited.status().into());
        return Ok(true);
    }
    end.how = match committed {
        // It was committed just before this daemon's predecessor died, or this one was cut off.
        Some(status) => How::of_status(status),
        None => match exited(&arrivals, at.first(), result.exited)? {
            Some(exited) => {
                end.own = Some(exited.status().into());
                if let Err(why) = check(way, ended, &exited, &said, &result.worker).await? {
                    end.how = How::NotCommitted(shortened(&format!("nothing committed: {why}")));
                    return Ok(true);
                }
                match commit(way, ended, exited, arrivals).await? {
                    Some(how) => how,
                    None => return Ok(false),
                }
            }
            None => How::Failed("the hub's result is no result".into()),
        },
    };
    if let Some(own) = end.ended_by_itself() {
        // What it did not see may be why it ended so: it does not count, as in a job that is waited for.
        let tainted = way.job.launched(ended.index, ended.number).and_then(|known| known.tainted);
        end.own = tainted.is_some().then_some(own);
        if let Some(why) = tainted {
            end.how = How::Failed(why);
        }
    }
    Ok(true)
}

/// What is to come of one result.
pub(super) fn arrivals(way: &Way) -> Arrivals {
    let spool = Spool::new(way.daemon.spool_folder());
    Arrivals::new(spool, way.daemon.server.clone(), way.joined.connection.clone())
}

pub(super) fn digests(names: &[Bytes]) -> Result<Vec<Digest>, String> {
    let named = |name: &Bytes| Digest::from_slice(name).ok_or_else(|| "a result has a name that is none".to_owned());
    names.iter().map(named).collect()
}

/// What the worker said at the end, in an object of its own or not; `None` if that cannot be understood.
pub(super) fn exited(
    arrivals: &Arrivals,
    at: Option<&Digest>,
    inline: Option<Exited>,
) -> Result<Option<Exited>, String> {
    let Some(name) = at else { return Ok(inline) };
    let bytes = arrivals.spool().get(name).map_err(|error| error.to_string())?;
    Ok(wire::decode::<Exited>(bytes.into()).ok())
}

/// Writes what a task said on standard output and standard error to its files; gives how much that is, and whether there was more, and all of
/// it as it is signed.
async fn write_outputs(
    way: &Arc<Way>,
    index: u32,
    arrivals: Arrivals,
    said: [Vec<Digest>; 2],
) -> Result<(Arrivals, [(u64, bool); 2], Streams), String> {
    let way = way.clone();
    let written = blocking_io(move || {
        let (mut written, signed) = ([(0, false); 2], Streams::up_to(OUTPUT_BYTES_MAX));
        for (at, (names, stream)) in said.iter().zip([Streams::STDOUT, Streams::STDERR]).enumerate() {
            if !names.is_empty() || way.job.spec.batch.assimilate.is_some() {
                let path = way.job.output(index, at as u8 + 1);
                written[at] = write(&path, arrivals.spool(), names, |bytes| signed.add(stream, bytes))?;
            }
        }
        Ok((arrivals, written, signed))
    });
    written.await.map_err(|error| format!("writing a task's output: {error}"))
}

/// Writes an output to its file, in the place of an earlier try's; gives how much that is, and whether there was more. `each` is told each
/// part of it.
pub(super) fn write(
    path: &Path,
    spool: &Spool,
    names: &[Digest],
    each: impl Fn(&[u8]),
) -> std::io::Result<(u64, bool)> {
    let folder = path.parent().ok_or(std::io::ErrorKind::InvalidFilename)?;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let mut bytes_written = 0;
    for name in names {
        let bytes = spool.get(name)?;
        each(&bytes);
        if bytes_written + bytes.len() as u64 > OUTPUT_BYTES_MAX {
            file.sync_all()?;
            return Ok((bytes_written, true));
        }
        file.write_all(&bytes)?;
        bytes_written += bytes.len() as u64;
    }
    file.sync_all()?;
    Ok((bytes_written, false))
}

/// Commits what a task changed, if what it saw is known not to have changed since. `None`: that is not known, and it is run again. So it
/// is with a task of an earlier daemon where tasks come after others: what this one replaces another has made just before it.
async fn commit(way: &Arc<Way>, ended: &Ended, exited: Exited, mut arrivals: Arrivals) -> Result<Option<How>, String> {
    let status = exited.status();
    if let Some(path) = way.job.locks.overtaken(ended.index) {
        let why = format!("another command made {path} while this task had it locked elsewhere");
        return Ok((!way.job.is_ordered()).then_some(How::NotCommitted(why)));
    }
    let argv = way.job.tasks.get(ended.index).map_err(|error| format!("reading a job's tasks: {error}"))?.argv;
    exited.objects.iter().try_for_each(|object| arrivals.take(object))?;
    let spool = arrivals.finish(&exited.changes).await?;
    // Held until it is committed: the view knows what was seen.
    let known = way.job.launched(ended.index, ended.number);
    let write = match known.as_ref().and_then(|known| known.view.as_ref()) {
        Some((_, write)) => write.clone(),
        None => {
            let (way, argv) = (way.clone(), argv.clone());
            let allowed = move || {
                let (command, allow_write) = (way.command(argv), &way.job.spec.batch.allow_write);
                write_rules(command, allow_write, &way.daemon)
            };
            let write = blocking(allowed);
            write.await.flatten().ok_or("the working directory has no path")?
        }
    };
    let fails_if_there = remote_ability::fails_if_there(&argv);
    let argv = argv.iter().map(|word| printable(word)).collect();
    let (trust, launch) = trust(known.as_ref());
    let task = way.job.commit_task(ended.index);
    let can_run_again = way.job.is_ordered() && matches!(trust, Trust::Since(_));
    let at_end = settle::AtEnd { may_run_here: false, locked: way.job.locks.locked(ended.index) };
    let (durable, keeps) = (true, !can_run_again);
    let settling = settle::Ended { task, argv, write, launch, trust, durable, keeps, at_end, fails_if_there };
    let settled = settle_ended(&way.daemon, settling, exited, spool).await;
    drop(known);
    Ok(match settled {
        Ok(report) => {
            report.iter().for_each(|report| way.sight.left(report));
            Some(How::of_status(status))
        }
        Err(error) => match way.daemon.committer.outcome(task) {
            // Another try of ours, that was cut off, was faster.
            Some(status) => Some(How::of_status(status)),
            None if can_run_again => None,
            None => Some(How::NotCommitted(shortened(&error.message))),
        },
    })
}

/// Whether this is what a worker says came of an instance, and rests on what the instance was to be told. The inner error: why it is not.
async fn check(
    way: &Way,
    ended: &Ended,
    exited: &Exited,
    said: &Streams,
    worker: &str,
) -> Result<Result<(), String>, String> {
    let known = way.job.launched(ended.index, ended.number);
    let (statement, node) = known.as_ref().map_or((None, None), |known| (known.statement, known.worker));
    let link = way.daemon.link().ok_or("no hub is known")?;
    let version = way.joined.welcome.version;
    // Where an earlier version has not noted what was said with the launch, nothing can be checked.
    let signer = statement.map_or(Ok(None), |statement| Claim::of_result(exited, &statement, said, node).check());
    let node = statement.and(node);
    match link.signatures().accept(signer, (node, &printable(worker.as_bytes())), version) {
        Err(why) => Ok(Err(why)),
        Ok(IsSigned(false)) => Ok(Ok(())),
        // What an earlier daemon has said of its files nobody knows.
        Ok(IsSigned(true)) => match known {
            Some(Launched { view: Some((view, _)), version: Some(version), since, .. }) => {
                Ok(way.daemon.server.check(&view, Seen::new(since, Some(version)), exited).await)
            }
            _ => Ok(Ok(())),
        },
    }
}

/// How what an instance saw is known, and when it was launched at the earliest.
fn trust(known: Option<&Launched>) -> (Trust, Time) {
    match known {
        Some(Launched { tainted: Some(why), since, .. }) => (Trust::NotTold(why.clone()), *since),
        Some(Launched { view: Some(_), since, .. }) => (Trust::Views, *since),
        Some(Launched { since, .. }) => (Trust::Since(*since), *since),
        // Nothing is known: only what replaces nothing is committed.
        None => (Trust::Since(Time(i64::MIN)), Time(now_nanos())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_written_whole_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(folder.path().to_owned());
        let names: Vec<Digest> = [&b"one "[..], b"two"].map(Digest::of).to_vec();
        spool.put(names[0], b"one ").unwrap();
        spool.put(names[1], b"two").unwrap();
        let path = folder.path().join("output/0/1.stdout");
        for _ in 0..2 {
            assert_eq!(write(&path, &spool, &names, |_| {}).unwrap(), (7, false));
            assert_eq!(std::fs::read(&path).unwrap(), b"one two");
        }
        assert!(write(&path, &spool, &[Digest::of(b"three")], |_| {}).is_err());
    }

    #[test]
    fn what_was_seen_is_trusted_as_far_as_it_is_known() {
        let launched = |tainted: Option<&str>| {
            let tainted = tainted.map(str::to_owned);
            Launched { tainted, ..Launched::earlier(Time(5)) }
        };
        assert!(matches!(trust(Some(&launched(Some("x")))).0, Trust::NotTold(why) if why == "x"));
        assert!(matches!(trust(Some(&launched(None))).0, Trust::Since(Time(5))));
        assert!(matches!(trust(None).0, Trust::Since(Time(i64::MIN))));
    }
}
