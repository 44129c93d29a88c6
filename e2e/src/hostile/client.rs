//! A hostile client: a program that joins by a token, shows its workers this machine's files as they are, and wants what is not its own.

use super::worker::ESCAPES;
use super::{failed, join, join_as};
use crate::error::{Error, Result};
use base::Digest;
use bytes::Bytes;
use std::collections::HashMap;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use wire::message::{
    Answer, Attr, BindReply, Bound, Command, Hello, InputKind, Launch, ObjectReply, ObjectsRequest, Open, OpenKind,
    OutputKind, ServiceAnswer, Stdin, TaskInput, TaskOutput, ViewUpdate, digest_bytes,
};
use wire::{Connection, Hold, Joined, Sender, lock, now_nanos};

/// Longest wait for an end.
const LIMIT: Duration = Duration::from_secs(60);
/// Largest file that it shows.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Connections that it makes with one key.
pub(super) const CROWD: usize = 80;
/// Bytes of the name in its greeting.
const NAME_BYTES: usize = 1 << 20;
/// Signals that a task is sent at once.
const FLOOD: usize = 50_000;
/// Views that are tried of another's session.
pub(super) const VIEWS: u64 = 4;
/// Working folders by which a launch could leave the sandbox.
pub(super) const FOLDERS: [&str; 10] = [
    "/proc/self/fd/9",
    "/proc/self/fd/9/..",
    "/proc/self/fd/3",
    "/proc/self/root",
    "/proc/1/root",
    "/proc/self/cwd/..",
    "/proc/thread-self/fd/5",
    "/tmp/../proc/self/fd/9",
    "..",
    "",
];

/// Does what `manner` says; `word` is what it is about.
pub(super) async fn run(token: &str, manner: &str, word: &str) -> Result<()> {
    match manner {
        "paths" => paths(token).await,
        "mute" => mute(token).await,
        "questions" => questions(token, word).await,
        "greets" => greets(token).await,
        "crowd" => crowd(token).await,
        "signals" => signals(token).await,
        "session" => session(token, word).await,
        other => Err(Error::Missing(format!(
            "no manner {other}: there are paths, mute, questions, greets, crowd, signals, session"
        ))),
    }
}

async fn joined(token: &str) -> Result<Joined> {
    join(token, Hold::Long, Hello { name: "hostile client".into(), ..Hello::default() }).await
}

/// The contents that it has named, and the number of the next binding.
#[derive(Default)]
struct Shown {
    contents: Mutex<HashMap<Digest, Bytes>>,
    seq: AtomicU64,
}

impl Shown {
    /// What this machine has at a path.
    fn bound(&self, path: &[u8]) -> Bound {
        let seq = self.seq.fetch_add(1, Ordering::Relaxed) + 1;
        let (path, bound) =
            (Path::new(std::ffi::OsStr::from_bytes(path)), Bound { path: path.to_vec(), seq, ..Bound::default() });
        let Ok(meta) = std::fs::symlink_metadata(path) else { return bound };
        let attr = Attr {
            mode: meta.mode() & 0o7777,
            nlink: 1,
            size: meta.len(),
            blocks: meta.blocks(),
            ino: meta.ino(),
            mtime: meta.mtime() * 1_000_000_000,
            ctime: meta.ctime() * 1_000_000_000,
            ..Attr::default()
        };
        let bound = Bound { attr: Some(attr), ..bound };
        if meta.is_dir() {
            return Bound { kind: 2, ..bound };
        }
        if meta.is_symlink() {
            let target = std::fs::read_link(path).map(|target| target.into_os_string().into_vec());
            return Bound { kind: 4, target: target.unwrap_or_default(), ..bound };
        }
        let bytes = if meta.len() > FILE_BYTES_MAX { Vec::new() } else { std::fs::read(path).unwrap_or_default() };
        let digest = Digest::of(&bytes);
        let content = u32::from(!bytes.is_empty());
        lock(&self.contents).insert(digest, bytes.into());
        Bound { kind: 3, content, digest: digest.0.to_vec(), ..bound }
    }

    /// Answers a question of the hub's.
    async fn answer(&self, kind: OpenKind, mut sender: Sender) {
        match kind {
            OpenKind::Bind(request) => {
                let bounds = vec![self.bound(&request.path)];
                let _ = sender.send(&BindReply { bounds, ..BindReply::default() }).await;
            }
            OpenKind::Objects(request) => {
                for digest in request.digests {
                    let known =
                        Digest::from_slice(&digest).and_then(|digest| lock(&self.contents).get(&digest).cloned());
                    let error = if known.is_none() { "none of that name".to_owned() } else { String::new() };
                    let bytes = known.unwrap_or_default();
                    let _ = sender.answer_object(ObjectReply { digest, bytes, error, errno: 5 }).await;
                }
            }
            _ => return,
        }
        sender.finish();
        sender.stopped().await;
    }
}

/// Answers what the hub asks, until the connection ends.
pub(super) fn show_files(connection: &Connection) {
    let (connection, shown) = (connection.clone(), Arc::<Shown>::default());
    tokio::spawn(async move {
        while let Ok((sender, mut receiver)) = connection.accept_control().await {
            let shown = shown.clone();
            tokio::spawn(async move {
                if let Ok(Some(Open { kind: Some(kind) })) = receiver.next::<Open>().await {
                    shown.answer(kind, sender).await;
                }
            });
        }
    });
}

/// A launch of these words in this folder.
pub(super) fn launch(view: u64, argv: &[&str], cwd: &str, stdin: Stdin) -> Launch {
    let command = Command {
        argv: argv.iter().map(|word| word.as_bytes().to_vec()).collect(),
        env: vec![b"PATH=/usr/bin:/bin".to_vec()],
        cwd: cwd.as_bytes().to_vec(),
        umask: 0o22,
        hostname: b"hostile".to_vec(),
        cpus: 1,
        ..Command::default()
    };
    Launch {
        task: Bytes::copy_from_slice(&rand::random::<[u8; 16]>()),
        attempt: 1,
        command: Some(command),
        stdin: Some(stdin),
        stdout: 1,
        stderr: 1,
        view: Some(ViewUpdate { view, version: 1, ..ViewUpdate::default() }),
        launched: now_nanos(),
        // Somebody else's, as the hub would know it.
        client: Bytes::copy_from_slice(&[7; 40]),
        tenant_number: 1,
        ..Launch::default()
    }
}

/// How a launch comes out, in words: `started` is said if the program ran. It is told `words` then.
pub(super) async fn outcome(connection: &Connection, launch: Launch, words: &[InputKind]) -> String {
    let followed = async {
        let open = OpenKind::Launch(Box::new(launch));
        let (mut to_hub, mut from_hub) = connection.open(open).await.map_err(failed)?;
        let (mut started, mut said) = ("", Vec::new());
        loop {
            let output = from_hub.next::<TaskOutput>().await.map_err(failed)?;
            match output.and_then(|output| output.kind) {
                Some(OutputKind::Started(_)) => {
                    started = "started, ";
                    for word in words {
                        let _ = to_hub.send(&TaskInput::from(word.clone())).await;
                    }
                }
                Some(OutputKind::Stdout(bytes) | OutputKind::Stderr(bytes)) => said.extend_from_slice(&bytes),
                Some(OutputKind::Failed(failed)) => {
                    break Ok(format!("{started}failed {}: {}", failed.kind, failed.message));
                }
                Some(OutputKind::Exited(exited)) => {
                    let said = String::from_utf8_lossy(&said).into_owned();
                    break Ok(format!("{started}exited {}: {said:?}", exited.code));
                }
                Some(_) => {}
                None => break Ok::<_, Error>(format!("{started}nothing more")),
            }
        }
    };
    match timeout(LIMIT, followed).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => format!("error: {error}"),
        Err(_) => "no end".to_owned(),
    }
}

/// Launches that name what leads out of the sandbox.
async fn paths(token: &str) -> Result<()> {
    let joined = joined(token).await?;
    show_files(&joined.connection);
    let run = &["/bin/sh", "-c", "echo ran; cat"];
    let (null, file) = (Stdin::default(), |path: &str| Stdin { kind: 2, path: path.as_bytes().to_vec(), offset: 0 });
    println!("plain: {}", outcome(&joined.connection, launch(1, run, "/", null.clone()), &[]).await);
    for (at, folder) in FOLDERS.iter().enumerate() {
        println!(
            "folder {folder}: {}",
            outcome(&joined.connection, launch(10 + at as u64, run, folder, null.clone()), &[]).await
        );
    }
    for (at, path) in ["/proc/self/fd/9", "/proc/1/environ", "/proc/self/root/etc/shadow", ".."].iter().enumerate() {
        println!(
            "stdin {path}: {}",
            outcome(&joined.connection, launch(40 + at as u64, run, "/", file(path)), &[]).await
        );
    }
    for (at, program) in ["/proc/self/exe", "/proc/1/exe", "/proc/self/fd/9"].iter().enumerate() {
        println!(
            "program {program}: {}",
            outcome(&joined.connection, launch(60 + at as u64, &[program], "/", null.clone()), &[]).await
        );
    }
    println!("done");
    Ok(())
}

/// A launch whose files nobody tells of.
async fn mute(token: &str) -> Result<()> {
    let joined = joined(token).await?;
    let connection = joined.connection.clone();
    tokio::spawn(async move {
        let mut unanswered = Vec::new();
        while let Ok(streams) = connection.accept_control().await {
            println!("asked");
            unanswered.push(streams);
        }
    });
    let begun = Instant::now();
    let outcome =
        outcome(&joined.connection, launch(1, &["/bin/sh", "-c", "echo ran"], "/", Stdin::default()), &[]).await;
    println!("mute: {} s, {outcome}", begun.elapsed().as_secs());
    println!("done");
    Ok(())
}

/// Asks what only the hub's owner may, and for contents that another client has shown.
async fn questions(token: &str, contents: &str) -> Result<()> {
    let joined = joined(token).await?;
    for (what, question) in [
        ("token", r#"{"ask":"token","role":"admin"}"#),
        ("approve", r#"{"ask":"approve","node":"worker0","trust":"own"}"#),
        ("drain", r#"{"ask":"drain","node":"worker0"}"#),
        ("revoke", r#"{"ask":"revoke","node":"worker0"}"#),
        ("audit", r#"{"ask":"audit"}"#),
        ("none", "{"),
    ] {
        let asked = joined.connection.request::<Answer>(OpenKind::Ask(Bytes::from_static(question.as_bytes()))).await;
        let answer = asked.map(|answer| String::from_utf8_lossy(&answer.json).into_owned());
        let is_refused = answer.as_ref().map_or(true, |answer| answer.contains("\"error\""));
        println!("question {what}: {}", if is_refused { "refused".to_owned() } else { format!("{answer:?}") });
    }
    let digests = vec![digest_bytes(&Digest::of(contents.as_bytes()))];
    let request = ObjectsRequest { digests, ..ObjectsRequest::default() };
    let told = joined.connection.request::<ObjectReply>(OpenKind::Objects(request)).await;
    println!("contents: {} bytes", told.map_or(0, |told| told.bytes.len()));
    show_files(&joined.connection);
    // By their name, as if they were its own.
    let digest = Digest::of(contents.as_bytes()).0.to_vec();
    let attr = Attr { mode: 0o644, nlink: 1, size: contents.len() as u64, ..Attr::default() };
    let bound = Bound {
        path: b"/stolen".to_vec(),
        seq: 1 << 40,
        kind: 3,
        content: 1,
        digest,
        attr: Some(attr),
        ..Bound::default()
    };
    let mut stealing = launch(90, &["/bin/sh", "-c", "cat /stolen; echo ran"], "/", Stdin::default());
    stealing.view.iter_mut().for_each(|view| view.set = vec![bound.clone()]);
    let outcome = outcome(&joined.connection, stealing, &[]).await;
    println!("stolen: {}", if outcome.contains(contents) { "its contents" } else { "nothing" });
    println!("stealing: {outcome}");
    println!("done");
    Ok(())
}

/// A greeting of a megabyte, then one that is small and unprintable.
async fn greets(token: &str) -> Result<()> {
    let large = Hello { name: ESCAPES.repeat(NAME_BYTES / ESCAPES.len()), ..Hello::default() };
    let told = join(token, Hold::Long, large).await.map(drop);
    println!("large: {}", if told.is_err() { "refused" } else { "let in" });
    let small = Hello { name: format!("hostile client{ESCAPES}"), ..Hello::default() };
    let told = join(token, Hold::Long, small).await;
    println!("small: {}", if told.is_err() { "refused" } else { "let in" });
    println!("done");
    tokio::time::sleep(LIMIT).await;
    Ok(())
}

/// As many connections as it gets with one key.
async fn crowd(token: &str) -> Result<()> {
    let parsed = wire::Token::parse(token).map_err(failed)?;
    let endpoint = wire::Endpoint::new(&wire::Key::generate(), Hold::Long).map_err(failed)?;
    let mut all = Vec::new();
    for number in 0..CROWD {
        let secret = if number == 0 { Bytes::copy_from_slice(&parsed.secret) } else { Bytes::new() };
        let hello = Hello { role: parsed.role.number().into(), secret, instance: rand::random(), ..Hello::default() };
        all.extend(wire::dial(&endpoint, &parsed.addresses, parsed.hub, |_| Default::default(), hello).await.ok());
    }
    println!("connections: {}", all.iter().filter(|joined| !joined.connection.is_closed()).count());
    println!("done");
    Ok(())
}

/// Words to a task that mean nothing, and more signals than anybody sends. As a byte some of the numbers would be others.
async fn signals(token: &str) -> Result<()> {
    const SIGWINCH: u32 = 28;
    let joined = joined(token).await?;
    show_files(&joined.connection);
    let numbers = [0, 65, 128, 256 + 9, 256 + 19, 1 << 31, u32::MAX];
    let mut words: Vec<InputKind> = numbers.into_iter().map(InputKind::Signal).collect();
    words.extend([InputKind::Resize(u32::MAX), InputKind::OutputClosed(u32::MAX), InputKind::Locked(u64::MAX)]);
    words.push(InputKind::Service(ServiceAnswer { number: u64::MAX, is_there: true }));
    words.extend(std::iter::repeat_n(InputKind::Signal(SIGWINCH), FLOOD));
    let run = &["/bin/sh", "-c", "sleep 2; echo ran"];
    let launch = launch(1, run, "/", Stdin::default());
    println!("signals: {}", outcome(&joined.connection, launch, &words).await);
    println!("done");
    Ok(())
}

/// Launches in the name of another's session, whose number (in hexadecimal digits) it has from a worker, and with views as that one has.
async fn session(token: &str, number: &str) -> Result<()> {
    let digits = |at: usize| number.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let number: Vec<u8> = (0..number.len()).step_by(2).filter_map(digits).collect();
    let instance = number.last_chunk().map_or(0, |last| u64::from_be_bytes(*last));
    let hello = Hello { name: "hostile client".into(), instance, ..Hello::default() };
    let joined = join_as(token, Hold::Long, hello).await?;
    show_files(&joined.connection);
    for view in 1..=VIEWS {
        let mut launch = launch(view, &["/bin/sh", "-c", "cat shown; echo ran"], "/", Stdin::default());
        launch.client = Bytes::from(number.clone());
        // What that one has of this view already, nothing new.
        launch.view.iter_mut().for_each(|view| (view.base, view.version) = (1, 1));
        println!("view {view}: {}", outcome(&joined.connection, launch, &[]).await);
    }
    println!("done");
    Ok(())
}
