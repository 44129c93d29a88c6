//! A task's standard input on its way into its pipe.
//!
//! The client may take back what the program has not read yet: others read the same pipe where the command was called.

use crate::demand;
use crate::streams::inode;
use bytes::{Buf as _, Bytes, BytesMut};
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, splice};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use wire::message::{OutputKind, TaskOutput};

/// First pause between two looks at what was read of the input; it doubles up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(2);
const PAUSE_LAST: Duration = Duration::from_millis(100);
/// Bytes of standard input that may be on their way at once.
pub const CREDIT_BYTES: usize = 256 << 10;

/// What goes to a task's standard input.
pub enum InputItem {
    /// Bytes.
    Bytes(Bytes),
    /// The end.
    End,
    /// What has not been read yet is wanted back.
    Back,
}

/// A task's input pipe, and what was written into it.
pub struct Fed {
    /// Its end for reading, so that what nobody has read is not lost before it is counted.
    pipe: OwnedFd,
    /// Where what is taken out of it goes.
    nowhere: File,
    written: Mutex<u64>,
}

impl Fed {
    /// Of the pipe with this end for reading.
    pub fn new(pipe: OwnedFd) -> io::Result<Self> {
        let nowhere = File::options().write(true).open("/dev/null")?;
        Ok(Self { pipe, nowhere, written: Mutex::new(0) })
    }

    /// How many bytes were read out of it.
    fn taken(&self) -> u64 {
        self.left(*wire::lock(&self.written))
    }

    fn left(&self, written: u64) -> u64 {
        written.saturating_sub(rustix::io::ioctl_fionread(&self.pipe).unwrap_or(0))
    }

    /// Writes what there is room for; returns how much that was.
    fn write(&self, pipe: &pipe::Sender, bytes: &mut BytesMut) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let mut written = wire::lock(&self.written);
        match pipe.try_write(bytes) {
            Ok(count) => {
                *written += count as u64;
                bytes.advance(count);
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Its end for writing, once more: who reads it does not come to the end.
    fn open_again(&self) -> io::Result<pipe::Sender> {
        let name = format!("/proc/self/fd/{}", self.pipe.as_raw_fd());
        pipe::Sender::from_file(File::options().write(true).custom_flags(libc::O_NONBLOCK).open(name)?)
    }

    /// Takes out what nobody has read.
    fn empty(&self) {
        let mut written = wire::lock(&self.written);
        let mut left = rustix::io::ioctl_fionread(&self.pipe).unwrap_or(0);
        while left > 0 {
            // The program may read as well, so this must not wait for more than there is.
            match splice(&self.pipe, None, &self.nowhere, None, left as usize, SpliceFlags::NONBLOCK) {
                Ok(count) if count > 0 => {
                    *written = written.saturating_sub(count as u64);
                    left = left.saturating_sub(count as u64);
                }
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }
}

/// What waits for the pipe.
#[derive(Default)]
struct Waiting {
    items: Mutex<Items>,
    added: Notify,
}

#[derive(Default)]
struct Items {
    bytes: BytesMut,
    has_ended: bool,
    is_wanted_back: bool,
}

impl Waiting {
    /// Whether nothing comes any more.
    fn is_over(&self) -> bool {
        let items = wire::lock(&self.items);
        items.has_ended && items.bytes.is_empty()
    }

    fn is_empty(&self) -> bool {
        wire::lock(&self.items).bytes.is_empty()
    }

    fn is_wanted_back(&self) -> bool {
        wire::lock(&self.items).is_wanted_back
    }
}

/// What feeds a task's input pipe. Ends when this goes.
pub struct Feeding {
    waiting: Arc<Waiting>,
    fed: Arc<Fed>,
    task: AbortHandle,
}

impl Feeding {
    /// Begins, for the task with this init, whose client hears `words`.
    pub fn begin((pipe, fed): (pipe::Sender, Arc<Fed>), init: Option<u32>, words: mpsc::Sender<TaskOutput>) -> Self {
        let waiting = Arc::<Waiting>::default();
        let task = tokio::spawn(feed_pipe(pipe, (fed.clone(), init), waiting.clone(), words)).abort_handle();
        Self { waiting, fed, task }
    }

    /// Takes this, without waiting. What is sent beyond all credit is thrown away, and its end is the end.
    pub fn add(&self, item: InputItem) {
        let mut items = wire::lock(&self.waiting.items);
        match item {
            InputItem::Bytes(_) if items.has_ended => {}
            InputItem::Bytes(bytes) if items.bytes.len() + bytes.len() > 2 * CREDIT_BYTES => items.has_ended = true,
            InputItem::Bytes(bytes) => items.bytes.extend_from_slice(&bytes),
            InputItem::End => items.has_ended = true,
            InputItem::Back => items.is_wanted_back = true,
        }
        drop(items);
        self.waiting.added.notify_one();
    }

    /// How many bytes were read out of the pipe.
    pub fn taken(&self) -> u64 {
        self.fed.taken()
    }

    /// The pipe, by inode number, if nothing is in it and more may come.
    pub fn is_dry(&self) -> Option<u64> {
        let has_none = {
            let items = wire::lock(&self.waiting.items);
            items.bytes.is_empty() && !items.has_ended && !self.task.is_finished()
        };
        let is_dry = has_none && self.taken() == *wire::lock(&self.fed.written);
        is_dry.then(|| inode(&self.fed.pipe))
    }
}

impl Drop for Feeding {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Writes input to the pipe, grants credit as it drains, and says how much was read. `init`: the task's; `None`: it has ended already, so nothing may be taken from what the next command is to read.
async fn feed_pipe(
    pipe: pipe::Sender,
    (fed, init): (Arc<Fed>, Option<u32>),
    waiting: Arc<Waiting>,
    words: mpsc::Sender<TaskOutput>,
) {
    let Some(init) = init else { return };
    tokio::select! {
        () = demand::wait(init, inode(&fed.pipe)) => {}
        // No input comes before it was asked for: it has ended.
        () = waiting.added.notified() => return,
    }
    let (mut told, mut pause, mut pipe) = (0, PAUSE_FIRST, Some(pipe));
    let first = [OutputKind::StdinTaken(told), OutputKind::StdinCredit(CREDIT_BYTES as u32)];
    if !say(&words, first).await {
        return;
    }
    loop {
        // What is there when the last that was written is read is told as well: who sends it may have no room for more before.
        let is_all_told = told == *wire::lock(&fed.written);
        tokio::select! {
            () = waiting.added.notified() => {}
            () = has_room(pipe.as_ref()), if !waiting.is_empty() => {}
            () = tokio::time::sleep(pause), if !is_all_told => pause = (pause * 2).min(PAUSE_LAST),
        }
        if pipe.is_none() && waiting.is_wanted_back() {
            pipe = fed.open_again().ok();
        }
        let said = match &pipe {
            Some(pipe) => feed_what_has_room(pipe, &fed, &waiting),
            None => Ok(Vec::new()),
        };
        let Ok(said) = said else { return };
        let taken = fed.taken();
        let news = (taken != told).then_some(OutputKind::StdinTaken(taken));
        if news.is_some() {
            (told, pause) = (taken, PAUSE_FIRST);
        }
        if !say(&words, news.into_iter().chain(said)).await {
            return;
        }
        // Its end is the end for the program, unless what it has not read until then is wanted back.
        pipe = pipe.filter(|_| !waiting.is_over());
    }
}

async fn has_room(pipe: Option<&pipe::Sender>) {
    if let Some(pipe) = pipe {
        // Who cannot write is told so when it does.
        let _ = pipe.writable().await;
    }
}

/// Writes what there is room for, or gives back all that was not read. Returns what the client is to hear of it.
fn feed_what_has_room(pipe: &pipe::Sender, fed: &Fed, waiting: &Waiting) -> io::Result<Vec<OutputKind>> {
    let mut items = wire::lock(&waiting.items);
    let credit = |bytes: usize| (bytes > 0).then_some(OutputKind::StdinCredit(bytes as u32));
    if !std::mem::take(&mut items.is_wanted_back) {
        let written = fed.write(pipe, &mut items.bytes)?;
        return Ok(credit(written).into_iter().collect());
    }
    let waited = items.bytes.len();
    items.bytes.clear();
    items.has_ended = false;
    fed.empty();
    Ok(credit(waited).into_iter().chain([OutputKind::StdinBack(fed.taken())]).collect())
}

/// False: nobody hears it.
async fn say(words: &mpsc::Sender<TaskOutput>, said: impl IntoIterator<Item = OutputKind>) -> bool {
    for word in said {
        if words.send(word.into()).await.is_err() {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::Streams;
    use base::{Output, Stdin};
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::read;

    fn pipe_of_task() -> (pipe::Sender, Arc<Fed>) {
        let streams = Streams::new(&Stdin::Stream, Output::Null, Output::Null).expect("pipes");
        (streams.input.expect("a pipe"), streams.fed.expect("the same"))
    }

    fn in_runtime<T>(what: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(10), what).await.expect("it ends") })
    }

    #[test]
    fn what_a_task_leaves_in_its_pipe_is_not_counted_as_taken() {
        in_runtime(async {
            let (pipe, fed) = pipe_of_task();
            let reader = fed.pipe.try_clone().expect("a copy");
            pipe.writable().await.expect("room");
            assert_eq!(fed.write(&pipe, &mut BytesMut::from(&b"one two"[..])).expect("room"), 7);
            assert_eq!(fed.taken(), 0);
            read(&reader, &mut [0; 3]).expect("three bytes");
            drop((reader, pipe));
            assert_eq!(fed.taken(), 3, "also when nobody has it open any more");
        });
    }

    /// A short command may have ended before its input is looked after: what it was not asked for stays for the next one.
    #[test]
    fn a_task_that_has_ended_already_is_given_no_input() {
        in_runtime(async {
            let (to_program, fed) = pipe_of_task();
            let (words, mut granted) = mpsc::channel(1);
            feed_pipe(to_program, (fed, None), Arc::default(), words).await;
            assert_eq!(granted.recv().await, None);
        });
    }

    #[test]
    fn nobody_looks_for_demand_once_the_task_has_ended() {
        in_runtime(async {
            let (words, mut granted) = mpsc::channel(1);
            let feeding = Feeding::begin(pipe_of_task(), Some(u32::MAX), words);
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(!feeding.task.is_finished(), "it waits for demand");
            drop(feeding);
            assert_eq!(granted.recv().await, None, "it ends with the task");
        });
    }

    fn has_no_writer(pipe: &OwnedFd) -> bool {
        let mut fds = [PollFd::new(pipe, PollFlags::IN)];
        poll(&mut fds, Some(&rustix::event::Timespec::default())).expect("polled");
        fds[0].revents().contains(PollFlags::HUP)
    }

    /// A task that reads: this process, which has a child that waits for the pipe.
    #[test]
    fn what_was_not_read_can_be_had_back() {
        in_runtime(async {
            let (to_program, fed) = pipe_of_task();
            let reader = fed.pipe.try_clone().expect("a copy");
            let mut program = std::process::Command::new("head");
            let program = program.args(["-c", "4"]).stdin(reader.try_clone().expect("a copy"));
            let mut head = program.stdout(std::process::Stdio::null()).spawn().expect("spawned");
            let (words, mut said) = mpsc::channel(10);
            let feeding = Feeding::begin((to_program, fed), Some(std::process::id()), words);
            let mut next = async || said.recv().await.and_then(|said| said.kind).expect("it goes on");
            assert_eq!(next().await, OutputKind::StdinTaken(0));
            assert_eq!(next().await, OutputKind::StdinCredit(CREDIT_BYTES as u32));
            let much = Bytes::from(vec![b'x'; CREDIT_BYTES]);
            feeding.add(InputItem::Bytes(much.clone()));
            while feeding.taken() < 4 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            head.wait().expect("it has what it wants");
            // More than its pipe holds: some of it waits.
            feeding.add(InputItem::Back);
            let mut credit = 0;
            let back = loop {
                match next().await {
                    OutputKind::StdinCredit(more) => credit += more as usize,
                    OutputKind::StdinBack(taken) => break taken,
                    other => assert!(matches!(other, OutputKind::StdinTaken(_)), "{other:?}"),
                }
            };
            assert_eq!((back, credit, feeding.is_dry().is_some()), (feeding.taken(), CREDIT_BYTES, true));
            feeding.add(InputItem::Bytes(Bytes::from_static(b"more")));
            assert_eq!(next().await, OutputKind::StdinCredit(4));
            let mut after = [0; 10];
            assert_eq!((read(&reader, &mut after).expect("it is there"), &after[..4]), (4, &b"more"[..]));
            assert_eq!(next().await, OutputKind::StdinTaken(back + 4));
            feeding.add(InputItem::Bytes(Bytes::from_static(b"last")));
            feeding.add(InputItem::End);
            assert_eq!(next().await, OutputKind::StdinCredit(4));
            while !has_no_writer(&reader) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            feeding.add(InputItem::Back);
            assert_eq!(next().await, OutputKind::StdinBack(back + 4), "it has ended, and is as if it had not");
            assert!(!has_no_writer(&reader) && feeding.is_dry().is_some());
            feeding.add(InputItem::End);
            while !has_no_writer(&reader) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(read(&reader, &mut after).expect("the end"), 0);
        });
    }
}
