//! A hostile hub: a program that prints a client's token, lets in whoever comes, and treats each launch in its [`Manner`].

use super::client::{launch, outcome, show_files};
use super::failed;
use super::worker::{ESCAPES, STOPPING, exited};
use crate::error::{Error, Result};
use base::{Digest, NodeId};
use bytes::Bytes;
use std::time::Duration;
use tokio::time::sleep;
use wire::message::{
    Answer, Attr, BindReply, BindRequest, Bound, Change, Command, Control, ControlKind, Hello, Launch, Mount, Object,
    ObjectReply, ObjectsRequest, Offer, Open, OpenKind, OutputKind, PiecesRequest, Placed, Pong, Stdin, TaskOutput,
    Welcome, digest_bytes,
};
use wire::{Connection, Key, Listener, Receiver, Role, Sender, Token, now_nanos};

/// Connections that one client may have.
const CONNECTIONS_MAX: usize = 64;

/// A view that the client does not have.
const OTHER_VIEW: u64 = 1 << 40;

/// What it does with a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Nothing.
    Silent,
    /// Says where it runs and that it has started, and nothing more.
    SilentOnceStarted,
    /// Says that it was stopped, and then ends it with status 7.
    Stops,
    /// Sends what the command's second word names.
    Unasked,
    /// Asks for what the command's second and third word name, a path and contents, for this task and for others.
    Asks,
    /// Is a worker's hub, and commands what no client has asked for.
    Commands,
}

impl Manner {
    fn named(name: &str) -> Result<Self> {
        match name {
            "silent" => Ok(Self::Silent),
            "silent-once-started" => Ok(Self::SilentOnceStarted),
            "stops" => Ok(Self::Stops),
            "unasked" => Ok(Self::Unasked),
            "asks" => Ok(Self::Asks),
            "commands" => Ok(Self::Commands),
            other => Err(Error::Missing(format!(
                "no manner {other}: there are silent, silent-once-started, stops, unasked, asks, commands"
            ))),
        }
    }
}

/// Serves until it is killed.
pub(super) async fn run(manner: &str) -> Result<()> {
    let (manner, key) = (Manner::named(manner)?, Key::generate());
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), &key).map_err(failed)?;
    let addresses = vec![listener.address().map_err(failed)?];
    let role = if manner == Manner::Commands { Role::Worker } else { Role::Client };
    let token = Token { hub: key.node(), addresses, secret: rand::random(), role };
    println!("token {token}");
    let_in(listener, key.node(), move |connection, hello| async move {
        match manner {
            // `gleaner join`, before the worker itself.
            Manner::Commands if hello.asks => {}
            Manner::Commands => command(connection).await,
            _ => serve(connection, manner).await,
        }
    })
    .await;
    Ok(())
}

/// Greets whoever comes to the hub of this name, and has `each` do what it does with it.
pub(super) async fn let_in<F: Future<Output = ()> + Send + 'static>(
    listener: Listener,
    hub: NodeId,
    each: impl Fn(Connection, Hello) -> F + Clone + Send + 'static,
) {
    let guests = listener.guests();
    while let Some(attempt) = listener.accept().await {
        let (guests, each) = (guests.clone(), each.clone());
        tokio::spawn(async move {
            let Ok(connection) = attempt.finish().await else { return };
            let Some(_vouched) = guests.vouch_for(&connection, CONNECTIONS_MAX) else { return };
            connection.allow_streams();
            match greet(&connection, Bytes::copy_from_slice(&hub.0.0)).await {
                Ok((control, hello)) => drop(tokio::join!(answer_pings(control), each(connection, hello))),
                Err(error) => println!("a greeting: {error}"),
            }
        });
    }
}

async fn greet(connection: &Connection, hub: Bytes) -> Result<((Sender, Receiver), Hello)> {
    let (mut sender, mut receiver) = connection.accept_control().await.map_err(failed)?;
    let hello = receiver.next::<Hello>().await.map_err(failed)?.unwrap_or_default();
    let welcome = Welcome {
        version: wire::VERSION,
        clock: now_nanos(),
        name: format!("hostile{ESCAPES}"),
        instance: 1,
        store: Bytes::from_static(&[7; 16]),
        hubs: vec![hub],
        trust: 1,
        ..Welcome::default()
    };
    sender.send(&welcome).await.map_err(failed)?;
    Ok(((sender, receiver), hello))
}

async fn answer_pings((mut sender, mut receiver): (Sender, Receiver)) {
    while let Ok(Some(Control { kind })) = receiver.next::<Control>().await {
        if let Some(ControlKind::Ping(asked)) = kind {
            let pong = Pong { asked, answered: now_nanos(), ..Pong::default() };
            let _ = sender.send(&Control::from(ControlKind::Pong(pong))).await;
        }
    }
}

async fn serve(connection: Connection, manner: Manner) {
    while let Ok((mut sender, mut receiver)) = connection.accept_control().await {
        let connection = connection.clone();
        tokio::spawn(async move {
            while let Ok(Some(Open { kind })) = receiver.next::<Open>().await {
                match kind {
                    Some(OpenKind::Launch(launch)) => {
                        println!("launch");
                        let mut task = Task { connection, launch: *launch, out: sender };
                        task.treat(manner).await;
                        // The stream stays open.
                        while let Ok(Some(_)) = receiver.next_encoded().await {}
                        return;
                    }
                    Some(kind) if answers(&kind, &mut sender).await => return finish(sender).await,
                    _ => {}
                }
            }
        });
    }
}

/// Answers what every client asks; whether this was that.
pub(super) async fn answers(question: &OpenKind, sender: &mut Sender) -> bool {
    let _ = match question {
        OpenKind::Offer(_) => sender.send(&offer()).await,
        OpenKind::Ask(_) => sender.send(&Answer { json: status().into() }).await,
        _ => return false,
    };
    true
}

pub(super) async fn finish(mut sender: Sender) {
    sender.finish();
    sender.stopped().await;
}

/// What it says to whoever asks anything.
fn status() -> String {
    let worker = serde_json::json!({"name": ESCAPES, "state": ESCAPES, "cpus": 8, "platform": ESCAPES, "why": ESCAPES});
    serde_json::json!({"hub": ESCAPES, "workers": [worker]}).to_string()
}

fn offer() -> Offer {
    let name = format!("worker{ESCAPES}");
    Offer { share: 1_000, workers: 1, cpus: 8, is_free: true, name, trust: 1, ..Offer::default() }
}

/// Launches that are no launches, one that is, and that one again: while it runs, and when it has ended.
async fn command(connection: Connection) {
    show_files(&connection);
    let (run, null) = (["/bin/sh", "-c", "echo ran; sleep 1"], Stdin::default());
    let sound = |view| launch(view, &run, "/", null.clone());
    println!("sound: {}", outcome(&connection, sound(1), &[]).await);
    let with = |view, change: &dyn Fn(&mut Launch)| {
        let mut launch = sound(view);
        change(&mut launch);
        launch
    };
    let command = |launch: &mut Launch, change: &dyn Fn(&mut Command)| launch.command.iter_mut().for_each(change);
    let bound = |path: &[u8]| Bound { path: path.to_vec(), seq: 1, ..Bound::default() };
    let forged = [
        ("task", with(10, &|launch| launch.task = Bytes::from_static(b"short"))),
        ("command", with(11, &|launch| launch.command = None)),
        ("view", with(12, &|launch| launch.view = None)),
        ("words", with(13, &|launch| command(launch, &|command| command.argv.clear()))),
        ("folder", with(14, &|launch| command(launch, &|command| command.cwd = b"../..".to_vec()))),
        ("stdin", with(15, &|launch| launch.stdin = Some(Stdin { kind: 99, ..Stdin::default() }))),
        ("stdout", with(16, &|launch| launch.stdout = u32::MAX)),
        ("mounts", with(17, &|launch| launch.mounts = vec![Mount { at: b"/a/../..".to_vec(), ..Mount::default() }])),
        ("path", with(18, &|launch| launch.view.iter_mut().for_each(|view| view.set = vec![bound(b"/../etc")]))),
        ("base", with(19, &|launch| launch.view.iter_mut().for_each(|view| view.base = 7))),
    ];
    for (what, launch) in forged {
        println!("forged {what}: {}", outcome(&connection, launch, &[]).await);
    }
    let twice = sound(30);
    let (one, two) = tokio::join!(outcome(&connection, twice.clone(), &[]), outcome(&connection, twice.clone(), &[]));
    println!("one: {one}");
    println!("two: {two}");
    println!("again: {}", outcome(&connection, twice, &[]).await);
    println!("sound afterwards: {}", outcome(&connection, sound(40), &[]).await);
    println!("done");
    connection.closed().await;
}

/// A launch that it has.
struct Task {
    connection: Connection,
    launch: Launch,
    out: Sender,
}

impl Task {
    async fn say(&mut self, kind: OutputKind) {
        let _ = self.out.send(&TaskOutput::from(kind)).await;
    }

    async fn started(&mut self) {
        let placed = Placed { name: "nowhere".into(), why: "it says so".into(), ..Placed::default() };
        self.say(OutputKind::Placed(placed)).await;
        self.say(OutputKind::Started(now_nanos())).await;
    }

    fn word(&self, number: usize) -> Vec<u8> {
        let word = self.launch.command.as_ref().and_then(|command| command.argv.get(number));
        word.cloned().unwrap_or_default()
    }

    async fn treat(&mut self, manner: Manner) {
        match manner {
            Manner::Silent | Manner::Commands => {}
            Manner::SilentOnceStarted => self.started().await,
            Manner::Stops => {
                self.started().await;
                for signal in STOPPING {
                    self.say(OutputKind::Stopped(signal)).await;
                }
                sleep(Duration::from_secs(1)).await;
                self.say(exited(7, 0, Vec::new())).await;
                self.say(OutputKind::End(true)).await;
            }
            Manner::Unasked => self.send_unasked().await,
            Manner::Asks => {
                self.started().await;
                self.ask().await;
                self.say(exited(0, 0, Vec::new())).await;
                self.say(OutputKind::End(true)).await;
            }
        }
    }

    /// Parts of results that belong to nothing.
    async fn send_unasked(&mut self) {
        self.started().await;
        let text = Object::new(Digest::of(b"taken\n"), &b"taken\n"[..]);
        match &self.word(1)[..] {
            b"end" => {}
            b"object" => self.say(OutputKind::Object(text)).await,
            b"wrong-object" => {
                let wrong = Object { digest: digest_bytes(&Digest::of(b"other")), ..text };
                self.say(OutputKind::Object(wrong)).await;
            }
            b"outside" => {
                let attr = Attr { mode: 0o644, nlink: 1, size: 6, mtime: now_nanos(), ..Attr::default() };
                let (path, digest) = (self.word(2), text.digest.to_vec());
                let change = Change { path, action: 4, attr: Some(attr), content: 1, digest, ..Change::default() };
                self.say(exited(0, 0, vec![change])).await;
                self.say(OutputKind::Object(text)).await;
            }
            b"signal" => self.say(exited(0, 19, Vec::new())).await,
            _ => self.say(exited(0, 0, vec![Change::default()])).await,
        }
        self.say(OutputKind::End(true)).await;
    }

    /// Asks for a path and for contents, for the task that runs and for one that does not.
    async fn ask(&mut self) {
        let view = self.launch.view.as_ref().map_or(0, |view| view.view);
        // Tasks of one view ask for one another.
        let other = (view + OTHER_VIEW, Bytes::from_static(&[9; 16]));
        for (whose, (view, task)) in [("own", (view, self.launch.task.clone())), ("other", other)] {
            let request = BindRequest { view, task: task.clone(), path: self.word(2), ..BindRequest::default() };
            let told = self.connection.request::<BindReply>(OpenKind::Bind(request)).await.unwrap_or_default();
            let stamps = told.bounds.iter().filter(|bound| bound.kind == 3 && bound.content == 3);
            for stamp in stamps.map(|bound| bound.digest.clone()) {
                let pieces =
                    PiecesRequest { stamp: stamp.into(), count: 1, task: task.clone(), ..PiecesRequest::default() };
                let told = self.connection.request::<ObjectReply>(OpenKind::Pieces(pieces)).await.unwrap_or_default();
                println!("{whose} piece: {} bytes", told.bytes.len());
            }
            let kinds: Vec<(u32, u32)> = told.bounds.iter().map(|bound| (bound.kind, bound.content)).collect();
            println!("{whose} path: {kinds:?}, {} objects", told.objects.len());
            let digests = vec![digest_bytes(&Digest::of(&self.word(1)))];
            let request = ObjectsRequest { digests, task, ..ObjectsRequest::default() };
            let told = self.connection.request::<ObjectReply>(OpenKind::Objects(request)).await.unwrap_or_default();
            println!("{whose} contents: {} bytes", told.bytes.len());
        }
        for (what, kind) in [
            ("launch", OpenKind::Launch(Box::new(self.launch.clone()))),
            ("ask", OpenKind::Ask(Bytes::from_static(br#"{"ask":"status"}"#))),
            ("jobs", OpenKind::Jobs(true)),
        ] {
            let told = self.connection.request::<Answer>(kind).await.unwrap_or_default();
            println!("{what}: {} bytes", told.json.len());
        }
        println!("asked");
    }
}
