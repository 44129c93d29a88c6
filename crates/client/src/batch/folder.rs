//! A job's folder: what was submitted, and where its log and its tasks' outputs are.
//!
//! `tasks` has the tasks one after the other, each behind its length; `job` is written last, and a folder without it is of a submission
//! that was broken off. Where outputs are: `output/0/17.stdout`, a folder for each thousand.

use crate::commit;
use crate::small_file::{self, seal, unseal};
use base::batch::{AFTER_MAX, AFTER_OF_JOB_MAX, TASK_BYTES_MAX, TASKS_MAX};
use base::codec::{Encode, Malformed, Reader, Writer};
use base::{Batch, BatchTask, Digest, Digester, NodeId};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file with what of a job does not change, and the one with the digest of its tasks, which jobs of earlier versions do not have.
pub const JOB: &str = "job";
const TASKS_DIGEST: &str = "tasks.digest";
/// Begins a `job` file.
const MAGIC: &[u8] = b"gleaner batch 4\0";
const DIGEST_BYTES_MAX: u64 = 128;
/// Longest `job` file: an environment may take 2 MiB and more.
const JOB_BYTES_MAX: u64 = 16 << 20;
/// Outputs in one folder.
const OUTPUTS_IN_FOLDER: u32 = 1000;

/// What of a job does not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// What was submitted.
    pub batch: Batch,
    /// How many tasks it has.
    pub tasks: u32,
    /// How many earlier ones they come after, in all.
    pub after: u32,
    /// The hub that it is for.
    pub hub: NodeId,
    /// When it was submitted: milliseconds since 1970.
    pub submitted_ms: i64,
}

impl Encode for Spec {
    fn encode(&self, out: &mut Writer) {
        self.batch.encode(out);
        out.u32(self.tasks);
        out.u32(self.after);
        out.raw(&self.hub.0.0);
        out.i64(self.submitted_ms);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            batch: Batch::decode(from)?,
            tasks: from.u32()?,
            after: from.u32()?,
            hub: NodeId(Digest(from.array()?)),
            submitted_ms: from.i64()?,
        })
    }
}

/// The tasks of a job that is being submitted.
pub struct Draft {
    folder: PathBuf,
    tasks: BufWriter<File>,
    digest: Digester,
    count: u32,
    after: u32,
    /// Removed with all in it, if it does not become a job.
    is_done: bool,
}

impl Draft {
    /// Begins one in `folder`, in the place of any that was broken off.
    pub fn begin(folder: &Path) -> io::Result<Self> {
        remove(folder)?;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let file = File::options().write(true).create_new(true).mode(0o600).open(folder.join("tasks"))?;
        let (tasks, digest) = (BufWriter::new(file), Digester::default());
        Ok(Self { folder: folder.to_owned(), tasks, digest, count: 0, after: 0, is_done: false })
    }

    /// Adds tasks. The error is for a person.
    pub fn add(&mut self, tasks: &[BatchTask]) -> Result<(), String> {
        for task in tasks {
            let bytes = task.to_bytes();
            if task.argv.first().is_none_or(Vec::is_empty) {
                return Err(format!("task {} has no command", self.count));
            }
            if bytes.len() > TASK_BYTES_MAX {
                return Err(format!("task {} is longer than {} KiB", self.count, TASK_BYTES_MAX >> 10));
            }
            if self.count == TASKS_MAX {
                return Err(format!("a job has at most {TASKS_MAX} tasks"));
            }
            if let Some(other) = task.after.iter().find(|other| **other >= self.count) {
                return Err(format!("task {} cannot come after task {other}, which is not before it", self.count));
            }
            if task.after.len() > AFTER_MAX {
                return Err(format!("task {} comes after more than {AFTER_MAX} others", self.count));
            }
            self.after += task.after.len() as u32;
            if self.after > AFTER_OF_JOB_MAX {
                return Err(format!("the tasks of a job come after at most {AFTER_OF_JOB_MAX} others in all"));
            }
            for part in [&(bytes.len() as u32).to_le_bytes()[..], &bytes] {
                self.tasks.write_all(part).map_err(|error| error.to_string())?;
                self.digest.add(part);
            }
            self.count += 1;
        }
        Ok(())
    }

    /// How many it has.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// How many earlier ones they come after, in all.
    pub fn after(&self) -> u32 {
        self.after
    }

    /// Makes it a job: from now on it outlives everything.
    pub fn finish(mut self, spec: &Spec) -> io::Result<()> {
        self.tasks.flush()?;
        self.tasks.get_ref().sync_all()?;
        let digest = std::mem::take(&mut self.digest).digest();
        store::write_private(&self.folder.join(TASKS_DIGEST), digest.to_hex().as_bytes(), true)?;
        store::write_private(&self.folder.join(JOB), &seal(MAGIC, &spec.to_bytes()), true)?;
        if let Some(above) = self.folder.parent() {
            File::open(above)?.sync_all()?;
        }
        self.is_done = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_done
            && let Err(error) = remove(&self.folder)
        {
            tracing::info!(%error, "a submission that was broken off is removed later");
        }
    }
}

/// Removes a job's folder, if there is one.
pub fn remove(folder: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (folder.parent(), folder.file_name()) else { return Ok(()) };
    match File::open(above) {
        Ok(above) => commit::remove_all(&above, name.as_encoded_bytes()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// What was submitted; `NotFound` of a submission that was broken off.
pub fn spec(folder: &Path) -> io::Result<Spec> {
    let bytes = small_file::read(&folder.join(JOB), JOB_BYTES_MAX)?;
    let invalid = |error: Malformed| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
    Spec::from_bytes(unseal(MAGIC, &bytes).map_err(invalid)?).map_err(invalid)
}

/// Where a task's standard output (1) or error (2) is.
pub fn output(folder: &Path, index: u32, stream: u8) -> PathBuf {
    let name = format!("{index}.{}", if stream == 1 { "stdout" } else { "stderr" });
    folder.join("output").join((index / OUTPUTS_IN_FOLDER).to_string()).join(name)
}

/// The tasks of a job, read as they are wanted.
#[derive(Debug)]
pub struct Tasks {
    file: File,
    /// Where each begins, behind its length.
    starts: Vec<u64>,
    end: u64,
}

/// What was submitted is not what is there.
fn others(_: io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its tasks are not those that were submitted")
}

impl Tasks {
    /// Those in `folder`.
    pub fn open(folder: &Path, count: u32) -> io::Result<Self> {
        let file = File::open(folder.join("tasks"))?;
        let end = file.metadata()?.len();
        let (mut starts, mut at) = (Vec::with_capacity(count as usize), 0);
        let (mut reader, mut bytes, mut digest) = (BufReader::new(&file), Vec::new(), Digester::default());
        for _ in 0..count {
            let mut head = [0; 4];
            reader.read_exact(&mut head).map_err(others)?;
            let length = u32::from_le_bytes(head) as usize;
            if length > TASK_BYTES_MAX {
                return Err(others(io::ErrorKind::InvalidData.into()));
            }
            bytes.resize(length, 0);
            reader.read_exact(&mut bytes).map_err(others)?;
            [&head[..], &bytes].into_iter().for_each(|part| digest.add(part));
            starts.push(at + 4);
            at += 4 + length as u64;
        }
        let noted = small_file::read(&folder.join(TASKS_DIGEST), DIGEST_BYTES_MAX);
        let is_noted = |noted: Vec<u8>| noted == digest.digest().to_hex().as_bytes();
        let is_sound = match noted {
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            noted => is_noted(noted?),
        };
        if at != end || !is_sound {
            return Err(others(io::ErrorKind::InvalidData.into()));
        }
        Ok(Self { file, starts, end })
    }

    fn bytes(&self, index: u32) -> io::Result<Vec<u8>> {
        let at = index as usize;
        let start = *self.starts.get(at).ok_or(io::ErrorKind::NotFound)?;
        let end = self.starts.get(at + 1).map_or(self.end, |next| next - 4);
        let mut bytes = vec![0; (end - start) as usize];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes)
    }

    /// One of them.
    pub fn get(&self, index: u32) -> io::Result<BatchTask> {
        let invalid = |error: Malformed| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
        BatchTask::from_bytes(&self.bytes(index)?).map_err(invalid)
    }

    /// Which of them come after which, in pairs: the earlier one first.
    pub fn edges(&self) -> io::Result<Vec<(u32, u32)>> {
        let invalid = |error: Malformed| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
        let (mut reader, mut bytes, mut edges) = (BufReader::new(&self.file), Vec::new(), Vec::new());
        reader.rewind()?;
        for index in 0..self.starts.len() as u32 {
            let mut head = [0; 4];
            reader.read_exact(&mut head)?;
            bytes.resize(u32::from_le_bytes(head) as usize, 0);
            reader.read_exact(&mut bytes)?;
            let after = BatchTask::from_bytes(&bytes).map_err(invalid)?.after;
            if after.iter().any(|before| *before >= index) {
                return Err(invalid(Malformed("a task after one that is not before it")));
            }
            edges.extend(after.into_iter().map(|before| (before, index)));
        }
        Ok(edges)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use base::{BatchId, Command, Priority};

    pub(crate) fn spec_of(tasks: u32) -> Spec {
        let batch = Batch {
            id: BatchId(7),
            name: "night".into(),
            surroundings: Command { argv: vec![b"-".to_vec()], cwd: b"/".to_vec(), ..Command::default() },
            allow_write: Vec::new(),
            priority: Priority::Normal,
            is_held: false,
            quorum: 1,
            deadline_ms: None,
            takes_ms: None,
            time_limit_ms: None,
            retries: None,
            failures_max: None,
            assimilate: None,
            validate: None,
            after: Vec::new(),
        };
        Spec { batch, tasks, after: 0, hub: NodeId(Digest::of(b"hub")), submitted_ms: 9 }
    }

    #[test]
    fn what_is_not_what_was_submitted_is_not_run() {
        let above = tempfile::tempdir().unwrap();
        for at in [0.1, 0.5, 0.95] {
            let folder = above.path().join(at.to_string());
            let mut draft = Draft::begin(&folder).unwrap();
            draft.add(&[task("one"), task("another"), task("last")]).unwrap();
            draft.finish(&spec_of(3)).unwrap();
            assert_eq!(Tasks::open(&folder, 3).unwrap().get(2).unwrap(), task("last"));
            let path = folder.join("tasks");
            let mut bytes = std::fs::read(&path).unwrap();
            let byte = (bytes.len() as f64 * at) as usize;
            bytes[byte] ^= 0x55;
            std::fs::write(&path, &bytes).unwrap();
            assert!(Tasks::open(&folder, 3).is_err(), "byte {byte}");
            bytes[byte] ^= 0x55;
            std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
            assert!(Tasks::open(&folder, 3).is_err(), "cut");
            // As a version before wrote it.
            std::fs::write(&path, &bytes).unwrap();
            std::fs::remove_file(folder.join(TASKS_DIGEST)).unwrap();
            assert!(Tasks::open(&folder, 3).is_ok());
        }
    }

    pub(crate) fn task(word: &str) -> BatchTask {
        BatchTask { argv: vec![word.into()], ..BatchTask::default() }
    }

    /// A job in `folder`, each of whose tasks comes after these.
    pub(crate) fn make_ordered(folder: &Path, after: &[&[u32]], change: impl FnOnce(&mut Batch)) {
        let mut draft = Draft::begin(folder).unwrap();
        let task = |after: &&[u32]| BatchTask { after: after.to_vec(), ..task("a") };
        draft.add(&after.iter().map(task).collect::<Vec<_>>()).unwrap();
        let mut spec = Spec { after: draft.after(), ..spec_of(draft.count()) };
        change(&mut spec.batch);
        draft.finish(&spec).unwrap();
    }

    #[test]
    fn a_job_is_there_once_it_is_whole() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("job");
        let mut draft = Draft::begin(&folder).unwrap();
        draft.add(&[task("a")]).unwrap();
        assert_eq!(super::spec(&folder).unwrap_err().kind(), io::ErrorKind::NotFound);
        drop(draft);
        assert!(!folder.exists(), "what was broken off is removed");
        let mut draft = Draft::begin(&folder).unwrap();
        draft.add(&[task("a"), task("bcd")]).unwrap();
        draft.add(&[task("e")]).unwrap();
        assert!(draft.add(&[BatchTask::default()]).unwrap_err().contains("task 3 has no command"));
        draft.finish(&spec_of(3)).unwrap();
        assert_eq!(super::spec(&folder).unwrap(), spec_of(3));
        let tasks = Tasks::open(&folder, 3).unwrap();
        let all: Vec<BatchTask> = (0..3).map(|index| tasks.get(index).unwrap()).collect();
        assert_eq!(all, [task("a"), task("bcd"), task("e")]);
        assert!(tasks.get(3).is_err() && Tasks::open(&folder, 2).is_err());
    }

    #[test]
    fn tasks_come_after_earlier_ones() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("job");
        make_ordered(&folder, &[&[], &[0], &[], &[1, 2]], |_| {});
        let spec = super::spec(&folder).unwrap();
        assert_eq!((spec.tasks, spec.after), (4, 3));
        assert_eq!(Tasks::open(&folder, 4).unwrap().edges().unwrap(), [(0, 1), (1, 3), (2, 3)]);
        let mut draft = Draft::begin(&folder).unwrap();
        let after = |after: Vec<u32>| BatchTask { after, ..task("a") };
        let said = draft.add(&[task("a"), after(vec![0, 1])]).unwrap_err();
        assert_eq!(said, "task 1 cannot come after task 1, which is not before it");
        assert!(draft.add(&[after(vec![0; AFTER_MAX + 1])]).unwrap_err().contains("more than 10000 others"));
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let above = tempfile::tempdir().unwrap();
        let mut draft = Draft::begin(&above.path().join("job")).unwrap();
        assert!(draft.add(&[task(&"x".repeat(TASK_BYTES_MAX))]).unwrap_err().contains("64 KiB"));
    }
}
