//! What the hub may ask of this client: what a path is, and the bytes under a name. Only for tasks that run, only what
//! the read policy of the task's command allows, and only bytes that some binding named.

use crate::allowance::{Allowance, OVER};
use crate::basis::Said;
use crate::call_off::CallOff;
use crate::earlier::{Contents, Earlier, Outgoing};
use crate::kept_back::KeptBack;
use crate::link::Reach;
use crate::policy::{Gate, Trust};
use crate::read_ahead::read_ahead;
use crate::shadow::Shadow;
use crate::snapshot::{BindError, NotShown, ReadError, Snapshot};
use crate::views::{View, Views, bindings, named_only};
use base::{Binding, Bound, Content, Digest, TaskId, Time, TreePath, ViewId};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use wire::fetch::UNANSWERED;
use wire::message::{
    Answer, BindReply, BindRequest, ObjectReply, ObjectsRequest, OpenKind, PiecesRequest, digest_bytes,
};
use wire::{Sender, Turn, convert, lock};

const EIO: i32 = 5;
const EACCES: i32 = 13;
/// Said to who asks where no task runs.
const NO_TASK: &str = "no task runs that could need it";
/// Bytes of listings and contents that go with the answer to a question: who lists a tree wants no contents.
const FAULT_BYTES: usize = 64 << 10;
/// The same where the answer brings paths that will be wanted, and the hub is near.
const FAULT_BYTES_NEAR: usize = 2 << 20;
/// The same for a far hub: each header that a C file includes would cost a round trip.
const FAULT_BYTES_FAR: usize = 512 << 10;
/// Contents that were named without their bytes: so many are remembered, and one read of so many shows that bytes are wanted.
const UNSENT_MAX: usize = 16_384;
const UNSENT_FOR_A_READ: u32 = 4;
/// Files named ahead whose contents go along, at most.
const CONTENTS_AHEAD_MAX: usize = 64;
/// Paths that are remembered of those that a task asked for, to be shown.
const ASKED_MAX: usize = 1_000;
/// Most pieces of a file in one answer.
const PIECES_MAX: u32 = 64;

/// Answers the hub's questions.
pub struct Server {
    views: Arc<Views>,
    tasks: Mutex<HashMap<TaskId, Arc<Running>>>,
    shadow: Mutex<Shadow>,
    earlier: Earlier,
    unsent: Mutex<Unsent>,
    /// Contents that were asked for: who waits for them is not named.
    contents: AtomicU64,
    pub(crate) said: Mutex<Said>,
}

/// Bindings that are on their way over a connection.
struct Told {
    view: Arc<View>,
    connection: u64,
    bounds: Vec<Bound>,
}

/// A task that runs somewhere, as far as questions about files go.
pub struct Running {
    /// Its view, held while it runs.
    pub view: Arc<View>,
    /// What it may read.
    pub gate: Arc<dyn Gate>,
    /// Whose the workers are that it was planned for.
    pub trust: Trust,
    /// When it was launched.
    pub launched: Time,
    /// Over which connection.
    pub connection: u64,
    /// How far the hub is.
    pub reach: Reach,
    /// What was asked for it.
    pub asked: Mutex<Asked>,
    /// What may still be asked for it.
    pub allowance: Allowance,
    /// Told what it cannot be told, before the hub is.
    pub tainted: Option<Taint>,
    /// Whether it was called off.
    pub called_off: CallOff,
    /// Its working folder, if it may run here.
    pub may_run_here_in: Option<TreePath>,
}

/// Contents of files that were named ahead and did not go along, and how many such were asked for later.
#[derive(Default)]
struct Unsent {
    names: HashSet<Digest>,
    read: u64,
}

impl Unsent {
    fn add(&mut self, names: &HashSet<Digest>) {
        if self.names.len() > UNSENT_MAX {
            self.names.clear();
        }
        self.names.extend(names);
    }

    fn note_read(&mut self, name: &Digest) {
        self.read += u64::from(self.names.remove(name));
    }
}

/// Takes note of what a task cannot be told.
pub type Taint = Box<dyn Fn(&str) + Send + Sync>;

impl Running {
    /// Of a command that its caller waits for.
    pub fn of_command(
        (view, gate): (Arc<View>, Arc<dyn Gate>),
        trust: Trust,
        launched: Time,
        (connection, reach): (u64, Reach),
        may_run_here_in: Option<TreePath>,
    ) -> Self {
        let (asked, called_off) = Default::default();
        let allowance = Allowance::of(trust, view.len());
        Self {
            view,
            gate,
            trust,
            launched,
            connection,
            reach,
            asked,
            allowance,
            tainted: None,
            called_off,
            may_run_here_in,
        }
    }

    /// Why it is to run here, if for what is not shown of a path of which `uses` is true. What it may do without counts only for
    /// who may still run here, and is about it: where the path is `asked` for, or in the command's own folder.
    pub fn unshown(
        &self,
        not_shown: &NotShown,
        uses: impl Fn(&TreePath) -> bool,
        asked: Option<&TreePath>,
    ) -> Option<String> {
        let may_go_on = self.may_run_here_in.is_none() || self.called_off.is_noticed();
        let is_own = |path: &TreePath| self.may_run_here_in.as_ref().is_some_and(|folder| path.is_within(folder));
        not_shown.why_here(may_go_on, uses, |path| asked == Some(path) || is_own(path))
    }

    /// Ends the task where it is, for this reason, and has it run here: it does what cannot be done elsewhere. To be called before
    /// the question that shows it is answered.
    pub fn call_off(&self, why: impl Into<String>) {
        self.called_off.call(why);
    }

    pub(crate) fn taint(&self, why: &str) {
        self.tainted.iter().for_each(|note| note(why));
    }
}

/// What was asked of the client while a task ran.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Questions: each is a round trip that the task waited for.
    pub questions: u64,
    /// Paths bound at first use.
    pub paths: Vec<TreePath>,
    /// Of these, those that changed after the launch.
    pub late: Vec<TreePath>,
    /// Of a task of a job: what it could not be told, since it was no longer as at the job's start.
    pub late_in_job: Option<String>,
    /// What the read policy kept back when the task read it.
    pub kept_back: Vec<KeptBack>,
    /// Secrets that it was given, since it could not be run here any more.
    pub lent: Vec<TreePath>,
    /// Questions that were not answered since they went beyond [`Allowance`].
    pub over_budget: u64,
    /// The task reads what comes next in the order of folders, too.
    reads_ahead: bool,
    /// Of what went without its contents last, how much it was, and how much of such had been read before.
    unsent_last: u32,
    unsent_read: u64,
    /// A path whose bytes were asked for and could not be had any more: the task may have seen a failed read.
    pub unreadable: Option<TreePath>,
}

impl Server {
    /// Answers from `views`. `shadow`: what the hub has.
    pub fn new(views: Arc<Views>, shadow: Shadow) -> Arc<Self> {
        let (tasks, earlier, unsent, contents, said) = Default::default();
        Arc::new(Self { views, tasks, shadow: Mutex::new(shadow), earlier, unsent, contents, said })
    }

    /// The client's files.
    pub fn views(&self) -> &Arc<Views> {
        &self.views
    }

    fn snapshot(&self) -> &Arc<Snapshot> {
        self.views.snapshot()
    }

    /// Questions for `task` are answered from now on.
    pub fn begin(&self, task: TaskId, running: Running) -> Arc<Running> {
        let running = Arc::new(running);
        lock(&self.tasks).insert(task, running.clone());
        running
    }

    /// Questions for `task` are refused from now on.
    pub fn end(&self, task: TaskId) {
        let mut tasks = lock(&self.tasks);
        tasks.remove(&task);
        if tasks.is_empty() {
            self.snapshot().let_go();
        }
    }

    /// Lets go what is kept for tasks, if none runs.
    pub(crate) fn let_go_if_idle(&self) {
        if lock(&self.tasks).is_empty() {
            self.snapshot().let_go();
        }
    }

    /// The tasks that run and have `path` in their views.
    pub(crate) fn tasks_with(&self, path: &TreePath) -> Vec<(TaskId, Arc<Running>)> {
        let tasks: Vec<(TaskId, Arc<Running>)> =
            lock(&self.tasks).iter().map(|(task, running)| (*task, running.clone())).collect();
        tasks.into_iter().filter(|(_, running)| running.view.has(path)).collect()
    }

    /// Whether a task runs.
    pub(crate) fn runs(&self, task: TaskId) -> bool {
        lock(&self.tasks).contains_key(&task)
    }

    /// Whether the hub has an object, as far as is known here.
    pub fn hub_has(&self, digest: &Digest) -> bool {
        lock(&self.shadow).has(digest)
    }

    /// Notes what was sent to the hub, or came from it.
    pub fn note_sent(&self, digests: impl IntoIterator<Item = Digest>) {
        lock(&self.shadow).note(digests);
    }

    /// A connection ended before all that was sent had arrived.
    pub fn forget_sent(&self) {
        lock(&self.shadow).clear();
    }

    /// The hub keeps what it is sent in the store of this name: what another one had counts for nothing.
    pub fn store_is(&self, name: &Bytes) {
        lock(&self.shadow).store_is(name);
    }

    /// Writes down what the hub has, if that is news.
    pub fn save_shadow(&self) -> std::io::Result<()> {
        let saved = lock(&self.shadow).to_save();
        saved.map_or(Ok(()), |saved| saved.write())
    }

    /// What goes to the hub with what these paths are; notes it as sent.
    pub fn outgoing_with<'a>(
        &self,
        reach: Reach,
        set: impl Iterator<Item = &'a Bound> + Clone,
        blobs: Vec<(Digest, Bytes)>,
    ) -> Vec<Outgoing> {
        let read = |digest: &Digest| self.snapshot().read_block(digest).ok().flatten();
        let contents = Contents { read: &read, hub_has: &|digest| self.hub_has(digest), far: reach.far };
        let outgoing = self.earlier.outgoing(set, blobs, &contents);
        self.note_sent(outgoing.iter().map(|outgoing| outgoing.digest));
        outgoing
    }

    /// Answers one question on `sender`.
    pub async fn answer(self: Arc<Self>, question: OpenKind, mut sender: Sender) {
        let mut told = None;
        let sent = match question {
            OpenKind::Bind(request) => {
                let server = self.clone();
                let bound = blocking(move || {
                    let mut called_off = Vec::new();
                    let (reply, told) = server.bind(&request, &mut called_off);
                    server.note_refused(&request.path, &reply.error, reply.errno);
                    (reply, told, called_off)
                });
                let (reply, bound, called_off) = bound.await.unwrap_or_default();
                told = bound;
                // What a program says that was told of it must not be heard before it has ended.
                self.await_end(&called_off).await;
                sender.send(&reply).await
            }
            OpenKind::Objects(request) => self.objects(request, &mut sender).await,
            OpenKind::Pieces(request) => self.pieces(request, &mut sender).await,
            OpenKind::Give(_)
            | OpenKind::Coming(_)
            | OpenKind::Launch(_)
            | OpenKind::Ask(_)
            | OpenKind::Host(_)
            | OpenKind::Jobs(_)
            | OpenKind::Drive(_)
            | OpenKind::Collect(_)
            | OpenKind::Elsewhere(_)
            | OpenKind::Offer(_) => sender.send(&Answer::default()).await,
        };
        if sent.is_ok() {
            sender.finish();
            sender.stopped().await;
            // Not before it has arrived: a launch could overtake it that leaves this out.
            told.into_iter().for_each(|told: Told| told.view.note_told(told.connection, &told.bounds));
        }
    }

    /// The task, if it runs and has this view; else another that does. Tasks of one view and version share what the worker
    /// asks: the one that it names can have ended before another that waits for the answer.
    fn running(&self, task: TaskId, view: ViewId) -> Option<Arc<Running>> {
        let tasks = lock(&self.tasks);
        let of_view = |running: &&Arc<Running>| running.view.id() == view;
        tasks.get(&task).filter(of_view).or_else(|| tasks.values().find(of_view)).cloned()
    }

    /// The tasks that run and have this view.
    fn of_view(&self, view: ViewId) -> Vec<Arc<Running>> {
        lock(&self.tasks).values().filter(|running| running.view.id() == view).cloned().collect()
    }

    /// Calls off the tasks of a view that are to run here for what is not shown of a path of which `uses` is true. They share what is
    /// told; adds those that end by that.
    fn call_off_who_uses(
        &self,
        view: ViewId,
        (uses, asked): (impl Fn(&TreePath) -> bool, &TreePath),
        ended: &mut Vec<TaskId>,
    ) {
        let not_shown = self.snapshot().not_shown();
        if not_shown.is_empty() {
            return;
        }
        let of_view = |(_, running): &(&TaskId, &Arc<Running>)| running.view.id() == view;
        let tasks: Vec<(TaskId, Arc<Running>)> =
            lock(&self.tasks).iter().filter(of_view).map(|(task, running)| (*task, running.clone())).collect();
        for (task, running) in tasks {
            let Some(why) = running.unshown(not_shown, &uses, Some(asked)) else { continue };
            running.call_off(why);
            // Of a batch task nobody hears that, and it goes on.
            if running.tainted.is_none() && !running.called_off.is_noticed() {
                ended.push(task);
            }
        }
    }

    /// `called_off` gets the tasks that are called off by this.
    fn bind(&self, request: &BindRequest, called_off: &mut Vec<TaskId>) -> (BindReply, Option<Told>) {
        let refuse = |error: String, errno| (BindReply { error, errno, ..BindReply::default() }, None);
        let task = convert::task(&request.task).ok().and_then(|task| self.running(task, ViewId(request.view)));
        // It has ended, or it is of the daemon before this one, and does not know that.
        let Some(task) = task else { return refuse("the task has ended".into(), UNANSWERED) };
        let Some(path) = TreePath::parse(&request.path) else { return refuse("not a path".into(), EIO) };
        if !task.may_tell_path(&path) {
            return refuse(OVER.into(), EACCES);
        }
        let asked_for = path.clone();
        let faulted = match self.views.fault(&task.view, &path, &*task.gate, task.launched) {
            Ok(faulted) => faulted,
            Err(error) => {
                if let BindError::Late { .. } | BindError::TooMany { .. } = error {
                    // Tasks of a view share what they are told: nobody knows which of them had this.
                    for running in self.of_view(task.view.id()) {
                        lock(&running.asked).late_in_job.get_or_insert_with(|| error.to_string());
                        running.taint(&error.to_string());
                    }
                }
                return refuse(error.to_string(), EIO);
            }
        };
        {
            let mut asked = lock(&task.asked);
            asked.questions += 1;
            if asked.paths.len() < ASKED_MAX {
                asked.paths.push(path.clone());
            }
            if faulted.late && asked.late.len() < ASKED_MAX {
                asked.late.push(path);
            }
        }
        let mut bounds: Vec<Bound> = faulted.update.set;
        if !bounds.iter().any(|bound| bound.path == faulted.bound.path) {
            bounds.push(faulted.bound);
        }
        let is_ahead: HashSet<&TreePath> = faulted.ahead.iter().collect();
        let unsent = self.unsent_of(&task, bounds.iter().filter(|bound| is_ahead.contains(&bound.path)));
        let uses = |path: &TreePath| bounds.iter().any(|bound| bound.path == *path);
        self.call_off_who_uses(task.view.id(), (uses, &asked_for), called_off);
        let bytes_max = match (faulted.brings, task.reach.near) {
            (false, _) => FAULT_BYTES,
            (true, false) => FAULT_BYTES_FAR,
            (true, true) => FAULT_BYTES_NEAR,
        };
        let named = named_only(&bounds, task.reach.names_system);
        let objects = self.views.blobs_of(
            bindings(&bounds),
            &|digest| named.contains(digest) || unsent.contains(digest) || self.hub_has(digest),
            bytes_max,
        );
        let reply = BindReply {
            bounds: bounds.iter().map(Into::into).collect(),
            objects: Outgoing::pack_all(self.outgoing_with(task.reach, bounds.iter(), objects)).collect(),
            ..BindReply::default()
        };
        (reply, Some(Told { view: task.view.clone(), connection: task.connection, bounds }))
    }

    /// The contents of these files, which come next in the order of their folders, that do not go along with them: those of all, until
    /// the task is seen to read such files, where asking for them is cheap.
    fn unsent_of<'a>(&self, task: &Running, ahead: impl Iterator<Item = &'a Bound>) -> HashSet<Digest> {
        let contents = ahead.filter_map(|bound| match &bound.binding {
            Binding::File { content: Content::Block(name) | Content::Recipe(name), .. } => Some(*name),
            _ => None,
        });
        let contents: HashSet<Digest> = contents.filter(|name| !self.hub_has(name)).collect();
        if contents.is_empty() {
            return contents;
        }
        let (mut unsent, mut asked) = (lock(&self.unsent), lock(&task.asked));
        asked.reads_ahead |= asked.unsent_last > 0
            && unsent.read >= asked.unsent_read + u64::from(asked.unsent_last.div_ceil(UNSENT_FOR_A_READ));
        (asked.unsent_read, asked.unsent_last) = (unsent.read, contents.len() as u32);
        // Of what comes by the thousand only names and attributes are wanted.
        let sent = asked.reads_ahead || !task.reach.near;
        if sent && contents.len() <= CONTENTS_AHEAD_MAX {
            return HashSet::new();
        }
        unsent.add(&contents);
        contents
    }

    /// The task for which contents are asked, if it runs; else another that does: who waits for contents need not be who asked first.
    fn wants_contents(&self, task: &Bytes) -> Option<Arc<Running>> {
        let named = convert::task(task).ok();
        let tasks = lock(&self.tasks);
        named.and_then(|named| tasks.get(&named)).or_else(|| tasks.values().next()).cloned()
    }

    async fn objects(self: Arc<Self>, request: ObjectsRequest, sender: &mut Sender) -> Result<(), wire::WireError> {
        sender.set_turn(Turn::Contents);
        let server = self.clone();
        let task = self.wants_contents(&request.task);
        let mut arriving = read_ahead(request.digests, move |name| {
            let refuse = |name, error: &str, errno| ObjectReply {
                digest: name,
                bytes: Bytes::new(),
                error: error.into(),
                errno,
            };
            let Some(task) = &task else { return Some(refuse(name, NO_TASK, UNANSWERED)) };
            let reply = server.object(name);
            Some(if task.may_send(&reply.bytes) { reply } else { refuse(reply.digest, OVER, EACCES) })
        });
        while let Some(reply) = arriving.recv().await {
            let sent = Digest::from_slice(&reply.digest).filter(|_| reply.error.is_empty());
            self.note_refused(&reply.digest, &reply.error, reply.errno);
            sender.answer_object(reply).await?;
            self.note_content();
            self.note_sent(sent);
        }
        Ok(())
    }

    fn note_content(&self) {
        self.contents.fetch_add(1, Ordering::Relaxed);
    }

    /// How many contents were sent that were asked for: while that grows, a task that has not started may wait for its files.
    pub fn contents(&self) -> u64 {
        self.contents.load(Ordering::Relaxed)
    }

    fn object(&self, name: Bytes) -> ObjectReply {
        let found = convert::digest(&name).map_err(|error| (error.to_string(), 0));
        let read = |digest| {
            lock(&self.unsent).note_read(&digest);
            let read = self.snapshot().read_block(&digest).map_err(|error| self.not_read(&error));
            read.inspect(|bytes| bytes.iter().for_each(|bytes| self.keep_earlier(digest, bytes)))
        };
        let found = found.and_then(read);
        let (bytes, (error, errno)) = match found {
            Ok(Some(bytes)) => (bytes, Default::default()),
            // Nobody knows which tasks wanted it: what came of those that did is not to be trusted.
            Ok(None) => (Bytes::new(), ("the file that held it has changed".into(), UNANSWERED)),
            Err(error) => (Bytes::new(), error),
        };
        ObjectReply { digest: name, bytes, error, errno }
    }

    /// Whether [`Self::fill_earlier`] would have something to do.
    pub fn earlier_lacks(&self) -> bool {
        self.earlier.lacks()
    }

    /// Keeps what the hub has had of the user's files since before this daemon started. Blocks.
    pub fn fill_earlier(&self) {
        self.earlier.fill(&|digest| self.snapshot().read_block(digest).ok().flatten());
    }

    /// Keeps what the hub is sent of the user's files: a later version may go as its difference.
    pub fn keep_earlier(&self, digest: Digest, bytes: &Bytes) {
        if self.snapshot().is_users(&digest) {
            self.earlier.keep(digest, bytes);
        }
    }

    /// Notes for the tasks that may want them that these bytes cannot be had: what they leave behind is not to be trusted.
    /// Returns message and `errno` for the hub. Where it is not known what they are of, the worker is told that nobody can say.
    fn not_read(&self, error: &ReadError) -> (String, i32) {
        let mut errno = UNANSWERED;
        if let ReadError::ChangedUnderneath { path } | ReadError::Io { path, .. } = error {
            for (_, running) in self.tasks_with(path) {
                lock(&running.asked).unreadable.get_or_insert_with(|| path.clone());
                running.taint(&format!("{path} changed here while the task read it: run it again"));
                errno = 0;
            }
        }
        (error.to_string(), errno)
    }

    async fn pieces(self: Arc<Self>, request: PiecesRequest, sender: &mut Sender) -> Result<(), wire::WireError> {
        sender.set_turn(Turn::Contents);
        let name = request.stamp.clone();
        let refuse = move |error: String| ObjectReply { digest: name.clone(), bytes: Bytes::new(), error, errno: 0 };
        let stamp = match convert::digest(&request.stamp) {
            Ok(stamp) => stamp,
            Err(error) => return sender.send(&refuse(error.to_string())).await,
        };
        let kept_back = self.snapshot().kept_back(&stamp);
        if let Some(path) = kept_back.first().cloned()
            && !self.keep_back(&stamp, kept_back).await
        {
            self.note_refused(&stamp.0, "it is kept back", EACCES);
            return sender.send(&ObjectReply { errno: EACCES, ..refuse(format!("{path} is kept back")) }).await;
        }
        let Some(task) = self.wants_contents(&request.task) else {
            return sender.send(&ObjectReply { errno: UNANSWERED, ..refuse(NO_TASK.into()) }).await;
        };
        let numbers = request.first..request.first.saturating_add(request.count.clamp(1, PIECES_MAX).into());
        let server = self.clone();
        let mut arriving = read_ahead(numbers, move |number| match server.snapshot().read_piece(&stamp, number) {
            Ok(bytes) if !task.may_send(&bytes) => Some(ObjectReply { errno: EACCES, ..refuse(OVER.into()) }),
            Ok(bytes) => {
                let digest = Digest::of(&bytes);
                server.note_piece(stamp, number, digest);
                Some(ObjectReply { digest: digest_bytes(&digest), bytes: bytes.into(), error: String::new(), errno: 0 })
            }
            Err(ReadError::NoSuchPiece { .. }) if number > request.first => None,
            Err(error) => {
                let (error, errno) = server.not_read(&error);
                Some(ObjectReply { errno, ..refuse(error) })
            }
        });
        while let Some(reply) = arriving.recv().await {
            let is_last = !reply.error.is_empty();
            self.note_refused(&reply.digest, &reply.error, reply.errno);
            sender.answer_object(reply).await?;
            self.note_content();
            if is_last {
                break;
            }
        }
        Ok(())
    }
}

/// Runs file-system work where it may block; that it panicked is one error more.
pub async fn blocking_io<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    blocking(work).await.unwrap_or_else(|| Err(io::Error::other("the client daemon failed")))
}

/// Runs file-system work where it may block; `None` if it panicked.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}
