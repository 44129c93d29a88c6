//! What carries a program's streams, and counts what it says.

use crate::demand::Awaited;
use crate::feeding::{Feeding, InputItem};
use crate::out::Out;
use crate::streams::{Terminal, next_output};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use wire::message::{OutputKind, TaskOutput};
use wire::signed::Streams as Said;

/// How long after its end a task's output may take to come out of its pipes.
const DRAIN_LIMIT: Duration = Duration::from_secs(60);

/// The tasks that carry a program's streams.
pub(crate) struct Pumps {
    pub stdout: Option<JoinHandle<()>>,
    pub stderr: Option<JoinHandle<()>>,
    pub terminal: Option<(Arc<Terminal>, JoinHandle<()>)>,
    /// The program has ended, and what outlives it is waited for until it lets go of the output.
    pub lingering: bool,
    pub input: Option<Feeding>,
    /// The pipes that take its output, by inode number.
    pub outputs: Vec<u64>,
}

impl Pumps {
    /// `is_seen`: called once something of it has been passed on.
    pub fn open_terminal(&mut self, terminal: Terminal, passing: Passing, is_seen: impl Fn() + Send + 'static) {
        let terminal = Arc::new(terminal);
        let shown = terminal.clone();
        let pump = tokio::spawn(async move {
            while let Some(bytes) = shown.read().await {
                is_seen();
                if !passing.pass(bytes).await {
                    return;
                }
            }
        });
        self.terminal = Some((terminal, pump));
    }

    /// Takes input, which its credit bounds.
    pub async fn feed(&self, item: InputItem) {
        if let Some(input) = &self.input {
            input.add(item);
        } else if let Some((terminal, _)) = &self.terminal {
            match item {
                InputItem::Bytes(bytes) => {
                    let _ = terminal.write(&bytes).await;
                }
                InputItem::End => terminal.end().await,
                InputItem::Back => {}
            }
        }
    }

    /// What the program may wait for now: input, where there is none, and those who take its output, where they do not.
    pub fn awaited(&self, out: &Out) -> Option<Awaited> {
        let outputs = if out.is_held_up() { self.outputs.clone() } else { Vec::new() };
        let input = self.input.as_ref().and_then(Feeding::is_dry);
        let awaited = Awaited { input, outputs, terminal: self.terminal.is_some() };
        (awaited.input.is_some() || awaited.terminal || !awaited.outputs.is_empty()).then_some(awaited)
    }

    /// Waits until no process holds standard output or error any more.
    pub async fn finished(&mut self) {
        for pump in [&mut self.stdout, &mut self.stderr] {
            if let Some(running) = pump {
                let _ = running.await;
                *pump = None;
            }
        }
    }

    /// Passes on no more output.
    pub fn silence(&self) {
        let terminal = self.terminal.as_ref().map(|(_, pump)| pump);
        [&self.stdout, &self.stderr].into_iter().flatten().chain(terminal).for_each(|pump| pump.abort());
    }

    /// All processes are gone: what is left in the pipes is sent, then they end.
    pub async fn drain(self) {
        let terminal = self.terminal.map(|(_, pump)| pump);
        for mut pump in [self.stdout, self.stderr, terminal].into_iter().flatten() {
            if tokio::time::timeout(DRAIN_LIMIT, &mut pump).await.is_err() {
                pump.abort();
            }
        }
    }
}

/// Where one of a task's streams goes.
pub(crate) struct Passing {
    output: mpsc::Sender<TaskOutput>,
    said: Arc<Said>,
    stream: usize,
    wrap: fn(Bytes) -> OutputKind,
}

impl Passing {
    /// To the client by `out`, each frame as `wrap` has it; counted as `stream` of what is said.
    pub fn new(out: &Out, said: &Arc<Said>, stream: usize, wrap: fn(Bytes) -> OutputKind) -> Self {
        Self { output: out.output.clone(), said: said.clone(), stream, wrap }
    }

    /// False: nobody takes it any more.
    async fn pass(&self, bytes: Bytes) -> bool {
        if self.output.send((self.wrap)(bytes.clone()).into()).await.is_err() {
            return false;
        }
        // Not before it is sent, where the pump may be ended: the client counts what comes.
        self.said.add(self.stream, &bytes);
        true
    }
}

/// Passes on what one of them says, until it ends.
pub(crate) async fn pump_output(reader: pipe::Receiver, passing: Passing) {
    let mut buffer = BytesMut::new();
    let mut reader = Some(reader);
    while let Some(bytes) = next_output(&mut reader, &mut buffer).await {
        if !passing.pass(bytes).await {
            return;
        }
    }
}
