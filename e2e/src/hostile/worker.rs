//! A hostile worker: a program that joins by a token, takes launches, and treats each in its [`Manner`].

use super::{failed, join};
use crate::error::{Error, Result};
use bytes::Bytes;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::sleep;
use wire::message::{
    Attr, BindReply, BindRequest, Change, Exited, FailedKind, Hello, InputKind, Launch, Moment, Object, ObjectReply,
    ObjectsRequest, Open, OpenKind, OutputKind, Progress, Resting, TaskInput, TaskOutput, digest_bytes,
};
use wire::{Hold, Joined, Receiver, Sender, lock, now_nanos};

/// Text that sets a terminal's title and colour, moves its cursor, and forges a line.
pub(super) const ESCAPES: &str = "\u{1b}]0;taken\u{7}\u{1b}[31m\u{9b}2J\r\nremrun: all is well\u{202e}";
/// Signals by which no caller is to stop, or end, because a worker says so.
pub(super) const STOPPING: [u32; 9] = [19, 20, 21, 22, 17, 9, 19 + 256, 65, u32::MAX];
/// Ends that there are not: `remrun` would stop by the first ones.
pub(super) const IMPOSSIBLE: [u32; 6] = [19, 20, 22, 65, 19 + 256, u32::MAX];
/// Paths that are asked for beyond what honest programs ask, and how many at a time.
pub(super) const QUESTIONS: usize = 25_000;
const AT_A_TIME: usize = 200;
/// From one sign of life to the next.
const BEAT: Duration = Duration::from_secs(1);

/// What it does with a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Takes it and says nothing.
    Silent,
    /// Says that it has started, and nothing more.
    SilentOnceStarted,
    /// Says that it lives, and that signals have reached the program, which never starts.
    NeverStarts,
    /// Says how it ended, and everything but the rest of the result.
    NeverDone,
    /// Says that signals have stopped it, and then ends it with status 7.
    Stops,
    /// Ends it by a signal by which nothing ends: each launch by the next one.
    Ends,
    /// Ends it twice.
    EndsTwice,
    /// Says something unprintable wherever there is text.
    Escapes,
    /// Sends the delta that the command's second word names, made at the place that the third one does.
    Lies,
    /// Asks for everything, for its task and for others.
    Asks,
}

impl Manner {
    const ALL: [(&'static str, Self); 10] = [
        ("silent", Self::Silent),
        ("silent-once-started", Self::SilentOnceStarted),
        ("never-starts", Self::NeverStarts),
        ("never-done", Self::NeverDone),
        ("stops", Self::Stops),
        ("ends", Self::Ends),
        ("ends-twice", Self::EndsTwice),
        ("escapes", Self::Escapes),
        ("lies", Self::Lies),
        ("asks", Self::Asks),
    ];

    fn named(name: &str) -> Result<Self> {
        let known = || Self::ALL.map(|(name, _)| name).join(", ");
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, manner)| *manner)
            .ok_or_else(|| Error::Missing(format!("no manner {name}: there are {}", known())))
    }
}

/// Works for the token's hub until that ends the connection.
pub(super) async fn run(token: &str, manner: &str) -> Result<()> {
    let (name, manner) = (manner, Manner::named(manner)?);
    let called = if manner == Manner::Escapes { format!("{name}{ESCAPES}") } else { name.to_owned() };
    let hello = Hello {
        name: called.clone(),
        platform: called,
        cpus: 64,
        memory_bytes: 1 << 40,
        level: 4,
        tags: vec![name.into()],
        answers_signals: true,
        ..Hello::default()
    };
    let joined = join(token, Hold::Short, hello).await?;
    println!("joined");
    if manner == Manner::Asks {
        tell_others(&joined).await;
    }
    let mut launches = 0;
    while let Ok((out, mut input)) = joined.connection.accept_control().await {
        let Ok(Some(Open { kind: Some(OpenKind::Launch(launch)) })) = input.next::<Open>().await else { continue };
        launches += 1;
        println!("launch {launches}");
        println!("client {}", hex(&launch.client));
        let mut task = Task { joined: joined.clone(), launch: *launch, number: launches, out, input };
        tokio::spawn(async move {
            task.treat(manner).await;
            task.listen(false).await;
            println!("over {}", task.number);
        });
    }
    println!("the hub has closed the connection");
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What it said of a task, to be said of another.
static KEPT: Mutex<Vec<Change>> = Mutex::new(Vec::new());

/// A launch that it has.
struct Task {
    joined: Joined,
    launch: Launch,
    number: usize,
    out: Sender,
    input: Receiver,
}

impl Task {
    async fn treat(&mut self, manner: Manner) {
        match manner {
            Manner::Silent => {}
            Manner::SilentOnceStarted => self.started().await,
            Manner::NeverStarts => self.listen(true).await,
            Manner::NeverDone => {
                self.started().await;
                let change = self.file("made", &Object::new(base::Digest::of(b"never"), &b""[..]), 5);
                self.say(exited(0, 0, vec![change])).await;
                self.listen(true).await;
            }
            Manner::Stops => {
                self.started().await;
                for signal in STOPPING {
                    self.say(OutputKind::Stopped(signal)).await;
                }
                sleep(BEAT).await;
                self.end(7, 0, Vec::new()).await;
            }
            Manner::Ends => {
                self.started().await;
                self.end(0, IMPOSSIBLE[(self.number - 1) % IMPOSSIBLE.len()], Vec::new()).await;
            }
            Manner::EndsTwice => {
                self.started().await;
                self.say(exited(0, 0, Vec::new())).await;
                self.end(1, 0, Vec::new()).await;
                self.say(OutputKind::End(true)).await;
            }
            Manner::Escapes => self.say_escapes().await,
            Manner::Lies => self.lie().await,
            Manner::Asks => self.ask().await,
        }
    }

    async fn say(&mut self, kind: OutputKind) {
        let _ = self.out.send(&TaskOutput::from(kind)).await;
    }

    async fn started(&mut self) {
        self.say(OutputKind::Started(now_nanos())).await;
    }

    async fn end(&mut self, code: u32, signal: u32, changes: Vec<Change>) {
        self.say(exited(code, signal, changes)).await;
        self.say(OutputKind::End(true)).await;
    }

    /// Hears what it is told until nothing more comes; `beats`: it says that it lives and that signals have arrived.
    async fn listen(&mut self, beats: bool) {
        loop {
            tokio::select! {
                input = self.input.next::<TaskInput>() => match input {
                    Ok(Some(TaskInput { kind: Some(InputKind::Signal(signal)) })) => {
                        println!("told: signal {signal}");
                        if beats {
                            self.say(OutputKind::Signalled(signal)).await;
                        }
                    }
                    Ok(Some(TaskInput { kind: Some(InputKind::Cancel(_)) })) => println!("told: cancel"),
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => return,
                },
                () = sleep(BEAT), if beats => {
                    self.say(OutputKind::Alive(true)).await;
                    self.say(OutputKind::Progress(Progress { ran_us: 1, cpu_us: 1, ..Progress::default() })).await;
                }
            }
        }
    }

    async fn say_escapes(&mut self) {
        let text = || format!("it said{ESCAPES}");
        self.say(OutputKind::Progress(Progress { rests: text(), ..Progress::default() })).await;
        self.say(OutputKind::Resting(Resting { why: text(), ..Resting::default() })).await;
        sleep(BEAT).await;
        if self.number % 2 == 1 {
            let failed = FailedKind::Refused.because(format!("{}{}", text(), "y".repeat(1 << 20)));
            return self.say(OutputKind::Failed(failed)).await;
        }
        self.started().await;
        let (left, skipped) = (vec![text()], vec![format!("/{}", text()).into_bytes()]);
        let timeline = vec![Moment { what: text(), at_ns: 1 }];
        let exited = Exited { left, skipped, timeline, ..Exited::default() };
        self.say(OutputKind::Exited(Box::new(exited))).await;
        self.say(OutputKind::End(true)).await;
    }

    /// A word of the command.
    fn word(&self, number: usize) -> String {
        let word = self.launch.command.as_ref().and_then(|command| command.argv.get(number));
        word.map_or(String::new(), |word| String::from_utf8_lossy(word).into_owned())
    }

    /// A change that makes a file below the command's folder, or at an absolute path.
    fn file(&self, path: &str, content: &Object, size: u64) -> Change {
        let cwd = self
            .launch
            .command
            .as_ref()
            .map_or(String::new(), |command| String::from_utf8_lossy(&command.cwd).into_owned());
        let path = if path.starts_with('/') { path.to_owned() } else { format!("{cwd}/{path}") };
        let now = now_nanos();
        let attr = Attr { mode: 0o644, nlink: 1, size, mtime: now, ctime: now, ..Attr::default() };
        let digest = content.digest.to_vec();
        Change { path: path.into_bytes(), action: 4, attr: Some(attr), content: 1, digest, ..Change::default() }
    }

    async fn lie(&mut self) {
        let text = Object::new(base::Digest::of(b"taken\n"), &b"taken\n"[..]);
        let large = vec![b'x'; 2 << 20];
        let large = Object::new(base::Digest::of(&large), large);
        let plain = |task: &Self, path: &str| task.file(path, &text, 6);
        let (changes, object) = match self.word(1).as_str() {
            "short" => (vec![self.file("made", &large, 10)], large),
            "long" => (vec![self.file("made", &text, 1 << 40)], text.clone()),
            "outside" => (vec![plain(self, &self.word(2))], text.clone()),
            "absent" => (vec![plain(self, "there")], text.clone()),
            "upwards" => (vec![plain(self, "../upwards")], text.clone()),
            "dot" => (vec![plain(self, "./made")], text.clone()),
            "doubled" => (vec![plain(self, "made"), plain(self, "made")], text.clone()),
            "missing" => {
                let nobodys = Object::new(base::Digest::of(b"nobody has this"), &b""[..]);
                (vec![self.file("made", &nobodys, 15)], large)
            }
            "hook" => (vec![plain(self, ".git/hooks/pre-commit")], text.clone()),
            "action" => (vec![Change { action: 99, ..plain(self, "made") }], text.clone()),
            "wrong" => {
                let wrong = Object { digest: digest_bytes(&base::Digest::of(b"other")), ..text.clone() };
                (vec![self.file("made", &wrong, 6)], wrong)
            }
            "through" => {
                let outside = self.word(2);
                let (folder, name) = outside.rsplit_once('/').unwrap_or_default();
                let link = Change { action: 5, other: folder.as_bytes().to_vec(), ..plain(self, "way") };
                (vec![link, plain(self, &format!("way/{name}"))], text.clone())
            }
            "moved" => {
                (vec![Change { action: 2, other: self.word(2).into_bytes(), ..plain(self, "made") }], text.clone())
            }
            "linked" => {
                (vec![Change { action: 6, other: self.word(2).into_bytes(), ..plain(self, "made") }], text.clone())
            }
            "set-id" => {
                let mut change = plain(self, "made");
                change.attr.iter_mut().for_each(|attr| attr.mode = 0o6755);
                (vec![change], text.clone())
            }
            "kept" => {
                *lock(&KEPT) = vec![plain(self, "made")];
                (Vec::new(), text.clone())
            }
            "swapped" => (lock(&KEPT).clone(), text.clone()),
            "recipe" => {
                let pieces = vec![base::Piece { len: 1 << 50, block: None }];
                let recipe = base::codec::Encode::to_bytes(&base::Recipe { size: 1 << 50, pieces });
                let recipe = Object::new(base::Digest::of(&recipe), recipe);
                (vec![Change { content: 2, ..self.file("made", &recipe, 10) }], recipe)
            }
            other => return println!("no lie {other}"),
        };
        self.started().await;
        self.say(exited(0, 0, changes)).await;
        self.say(OutputKind::Object(object)).await;
        self.say(OutputKind::End(true)).await;
    }

    /// Asks for its task, for others, and once it has ended.
    async fn ask(&mut self) {
        let (view, task) = (self.launch.view.as_ref().map_or(0, |view| view.view), self.launch.task.clone());
        let own = BindRequest { client: self.launch.client.clone(), view, task, path: Vec::new() };
        let paths =
            |from: usize, count: usize| (from..from + count).map(|at| format!("/nowhere/{at}")).collect::<Vec<_>>();
        // Who goes through the folders above these, one by one, has used up all memory.
        println!("answered deep: {}", self.answered(&own, vec!["/a".repeat(300_000); 4]).await);
        println!("answered own: {}", self.answered(&own, paths(0, QUESTIONS)).await);
        println!("secret: {}", self.secret(&own).await);
        let other_view = BindRequest { view: view.wrapping_add(1), ..own.clone() };
        println!("answered view: {}", self.answered(&other_view, paths(0, 50)).await);
        let mut client = own.client.to_vec();
        client.iter_mut().for_each(|byte| *byte ^= 0x55);
        let other_client = BindRequest { client: client.into(), ..own.clone() };
        println!("answered client: {}", self.answered(&other_client, paths(0, 50)).await);
        self.started().await;
        self.end(0, 0, Vec::new()).await;
        self.listen(false).await;
        sleep(BEAT).await;
        println!("answered after: {}", self.answered(&own, paths(QUESTIONS * 2, 50)).await);
        println!("asked");
    }

    /// How many of these paths it is told.
    async fn answered(&self, request: &BindRequest, paths: Vec<String>) -> usize {
        let mut count = 0;
        for some in paths.chunks(AT_A_TIME) {
            let mut asking = tokio::task::JoinSet::new();
            for path in some {
                let connection = self.joined.connection.clone();
                let request = BindRequest { path: path.clone().into_bytes(), ..request.clone() };
                asking.spawn(async move { connection.request::<BindReply>(OpenKind::Bind(request)).await });
            }
            while let Some(reply) = asking.join_next().await {
                count += usize::from(matches!(reply, Ok(Ok(reply)) if reply.error.is_empty()));
            }
        }
        count
    }

    /// What it is told of the file that the command's second word names, and of its contents, which the third one does.
    async fn secret(&self, own: &BindRequest) -> String {
        let request = BindRequest { path: self.word(1).into_bytes(), ..own.clone() };
        let reply = self.joined.connection.request::<BindReply>(OpenKind::Bind(request)).await;
        let told =
            reply.map(|reply| (reply.bounds.iter().map(|bound| bound.kind).collect::<Vec<_>>(), reply.objects.len()));
        let digests = vec![digest_bytes(&base::Digest::of(self.word(2).as_bytes()))];
        let request = ObjectsRequest { client: own.client.clone(), digests, task: own.task.clone() };
        let object = self.joined.connection.request::<ObjectReply>(OpenKind::Objects(request)).await;
        let bytes = object.map_or(0, |object| object.bytes.len());
        format!("{told:?}, {bytes} bytes")
    }
}

pub(super) fn exited(code: u32, signal: u32, changes: Vec<Change>) -> OutputKind {
    OutputKind::Exited(Box::new(Exited { code, signal, changes, ..Exited::default() }))
}

/// Opens streams that are for clients and hosts.
async fn tell_others(joined: &Joined) {
    let kinds = [
        ("launch", OpenKind::Launch(Box::default())),
        ("ask", OpenKind::Ask(Bytes::from_static(br#"{"ask":"status"}"#))),
        ("token", OpenKind::Ask(Bytes::from_static(br#"{"ask":"token","role":"client"}"#))),
        ("jobs", OpenKind::Jobs(true)),
        ("host", OpenKind::Host(Default::default())),
        ("collect", OpenKind::Collect(Default::default())),
        ("drive", OpenKind::Drive(Default::default())),
    ];
    for (name, kind) in kinds {
        let answer = async {
            let mut answers = joined.connection.ask(kind).await.map_err(failed)?;
            answers.next_encoded().await.map_err(failed)
        };
        let answer = tokio::time::timeout(Duration::from_secs(3), answer).await;
        if let Ok(Ok(Some(bytes))) = answer {
            println!("answered {name}: {}", bytes.len());
        }
    }
}
