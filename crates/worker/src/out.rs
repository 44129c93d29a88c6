//! What a task says, on its way to the hub: words at once, output as the link takes it, and where there is neither, that it lives.

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use wire::Sender;
use wire::message::{OutputKind, TaskOutput};
use wire::quiet::SAY_EVERY;

/// Words that wait for the link.
const WORDS_WAITING: usize = 1024;
/// Frames of output that wait for the link; then the task waits.
const FRAMES_WAITING: usize = 8;

/// The way.
pub(crate) struct Out {
    /// Words, which are few.
    pub words: mpsc::Sender<TaskOutput>,
    /// Output.
    pub output: mpsc::Sender<TaskOutput>,
}

impl Out {
    /// Begins, over this stream.
    pub fn start(to_hub: Sender) -> (Self, JoinHandle<()>) {
        let (words, word_queue) = mpsc::channel(WORDS_WAITING);
        let (output, output_queue) = mpsc::channel(FRAMES_WAITING);
        (Self { words, output }, tokio::spawn(write_out(to_hub, word_queue, output_queue)))
    }

    /// Says a word: a start, a stop, the answer to a signal. Of a task or a client that floods them, and reads none, some are dropped; of
    /// how far it is, which is said again and again, all that would take the room of the others.
    pub fn say(&self, kind: OutputKind) {
        let is_said_again = matches!(kind, OutputKind::Progress(_) | OutputKind::Resting(_));
        if is_said_again && self.words.capacity() <= WORDS_WAITING / 2 {
            return;
        }
        let _ = self.words.try_send(kind.into());
    }

    /// Whether as much output waits for the link as may.
    pub fn is_held_up(&self) -> bool {
        self.output.capacity() == 0
    }

    /// These signals have reached the task.
    pub fn answer(&self, signals: impl IntoIterator<Item = u32>) {
        signals.into_iter().for_each(|signal| self.say(OutputKind::Signalled(signal)));
    }
}

async fn write_out(mut to_hub: Sender, mut words: mpsc::Receiver<TaskOutput>, mut output: mpsc::Receiver<TaskOutput>) {
    loop {
        let next = async {
            tokio::select! {
                biased;
                Some(word) = words.recv() => Some(word),
                Some(frame) = output.recv() => Some(frame),
                else => None,
            }
        };
        let sent = match tokio::time::timeout(SAY_EVERY, next).await {
            Ok(Some(frame)) => to_hub.send(&frame).await,
            Ok(None) => break,
            Err(_) => to_hub.say_alive().await,
        };
        if sent.is_err() {
            // Nobody listens. The reading side of the stream learns it and ends the task.
            return;
        }
    }
    to_hub.finish();
    to_hub.stopped().await;
}
