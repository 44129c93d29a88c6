//! What a task says, on its way to the hub: words at once, output as the link takes it.

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use wire::Sender;
use wire::message::{OutputKind, TaskOutput};

/// Frames of output that wait for the link; then the task waits.
const FRAMES_WAITING: usize = 8;

/// The way.
pub(crate) struct Out {
    /// Words, which are few.
    pub words: mpsc::UnboundedSender<TaskOutput>,
    /// Output.
    pub output: mpsc::Sender<TaskOutput>,
}

impl Out {
    /// Begins, over this stream.
    pub fn start(to_hub: Sender) -> (Self, JoinHandle<()>) {
        // Words are few: a start, stops, credit for input that was asked for.
        let (words, word_queue) = mpsc::unbounded_channel();
        let (output, output_queue) = mpsc::channel(FRAMES_WAITING);
        (Self { words, output }, tokio::spawn(write_out(to_hub, word_queue, output_queue)))
    }

    /// Says a word.
    pub fn say(&self, kind: OutputKind) {
        let _ = self.words.send(kind.into());
    }

    /// These signals have reached the task.
    pub fn answer(&self, signals: impl IntoIterator<Item = u32>) {
        signals.into_iter().for_each(|signal| self.say(OutputKind::Signalled(signal)));
    }
}

async fn write_out(
    mut to_hub: Sender,
    mut words: mpsc::UnboundedReceiver<TaskOutput>,
    mut output: mpsc::Receiver<TaskOutput>,
) {
    loop {
        let frame = tokio::select! {
            biased;
            Some(word) = words.recv() => word,
            Some(frame) = output.recv() => frame,
            else => break,
        };
        if to_hub.send(&frame).await.is_err() {
            // Nobody listens. The reading side of the stream learns it and ends the task.
            return;
        }
    }
    to_hub.finish();
    to_hub.stopped().await;
}
