//! What carries a program's streams, and counts what it says.

use crate::demand::Awaited;
use crate::feeding::{Feeding, InputItem};
use crate::out::Out;
use crate::streams::{Terminal, next_output};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use wire::Receiver;
use wire::message::{InputKind, OutputKind, TaskInput, TaskOutput};
use wire::signed::Streams as Said;

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

    /// All processes are gone: what is left in the pipes is sent, however long its reader takes, unless it becomes `unwanted`. Whether it was
    /// sent.
    pub async fn drain(&mut self, unwanted: impl Future<Output = ()>) -> bool {
        let sent = async {
            let terminal = self.terminal.as_mut().map(|(_, pump)| pump);
            for pump in [self.stdout.as_mut(), self.stderr.as_mut(), terminal].into_iter().flatten() {
                let _ = pump.await;
            }
        };
        tokio::select! {
            () = sent => true,
            () = unwanted => false,
        }
    }
}

/// Until the client has called a task off, or is gone.
pub(crate) async fn unwanted(from_hub: &mut Receiver) {
    while let Ok(Some(input)) = from_hub.next::<TaskInput>().await {
        if let Some(InputKind::Cancel(_)) = input.kind {
            return;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::Sink;
    use crate::streams::Streams;
    use base::{Output, Stdin};
    use std::time::Duration;

    /// Its reader may be a person who looks at the first page.
    #[tokio::test(start_paused = true)]
    async fn what_a_program_has_said_waits_for_its_reader() {
        for is_read in [true, false] {
            let mut streams = Streams::new(&Stdin::Null, Output::Stream, Output::Null).expect("pipes");
            let Sink::Stream(program) = streams.stdout else { panic!("a pipe") };
            rustix::io::write(&program, &[b'x'; 50_000]).expect("room");
            drop(program);
            let (output, mut read) = mpsc::channel(1);
            let passing = Passing {
                output: output.clone(),
                said: Arc::default(),
                stream: Said::STDOUT,
                wrap: OutputKind::Stdout,
            };
            output.send(OutputKind::Stdout(Bytes::from_static(b"before")).into()).await.expect("room");
            let stdout = Some(tokio::spawn(pump_output(streams.output.take().expect("a pipe"), passing)));
            let mut pumps =
                Pumps { stdout, stderr: None, terminal: None, lingering: false, input: None, outputs: Vec::new() };
            drop(output);
            if !is_read {
                assert!(!pumps.drain(tokio::time::sleep(Duration::from_secs(600))).await, "nobody wants it");
                continue;
            }
            let reading = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(36_000)).await;
                let mut bytes = 0;
                while let Some(TaskOutput { kind: Some(OutputKind::Stdout(said)) }) = read.recv().await {
                    bytes += said.len();
                }
                bytes
            });
            assert!(pumps.drain(std::future::pending()).await);
            assert_eq!(reading.await.expect("no panic"), 50_006);
        }
    }
}
