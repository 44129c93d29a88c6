//! How a command is to run elsewhere: which program it is, which view it needs, what it may read and write, what its
//! standard streams are. Made before anything is launched; what cannot run elsewhere is found here.

use crate::ahead::Ahead;
use crate::choice::Choice;
use crate::daemon::Daemon;
use crate::endpoints;
use crate::formats;
use crate::grants::{self, Standing};
use crate::history::Kind;
use crate::link::Reach;
use crate::listening;
use crate::mounts;
use crate::policy::{Access, FileFacts, Gate, Pattern, ReadPolicy, Scope, ScopeInput, Trust};
use crate::profile::{self, NotFound, ViewKey};
use crate::remote_ability::{self, ReasonKind, Surroundings};
use crate::snapshot::{Disk, Snapshot, is_mirrored};
use crate::stdio;
use crate::unable;
use crate::views::closure::level_of;
use crate::views::{Held, JobViews, Launch, Swept, TRAVEL_BYTES, TRAVEL_BYTES_NEAR, View, Views, closure, compilers};
use crate::write_rules::WriteRules;
use base::door::Options;
use base::watch::{OutputFile, USES_NETWORK};
use base::{Command, Output, Stdin, Time, TreePath, Watch, WindowSize};
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use std::sync::Arc;
use wire::{Joined, now_nanos};

/// Files that a command names and that are looked at before it starts; it asks for others when it wants them.
const NAMED_MAX: usize = 512;

/// A umask with which nobody else may read what a user makes.
const CLOSES_ALL: u32 = 0o044;

/// A command that can run elsewhere.
#[derive(Clone)]
pub struct Plan {
    /// What is sent.
    pub command: Command,
    /// For whose workers it was planned: it goes to no others.
    pub trust: Trust,
    /// Names of the variables that stay here.
    pub withheld: Vec<Vec<u8>>,
    /// Standard input.
    pub stdin: Stdin,
    /// Standard output.
    pub stdout: Output,
    /// Standard error.
    pub stderr: Output,
    /// Somebody reads the output to its end, and so waits for processes that outlive the command.
    pub linger: bool,
    /// Size of the terminal.
    pub window: WindowSize,
    /// Number of the command's process.
    pub first_process: u32,
    /// The program's view.
    pub view: Arc<View>,
    /// What it says is remembered meanwhile.
    pub held: Arc<Held>,
    /// What may be read.
    pub gate: Arc<dyn Gate>,
    /// What may be written.
    pub write: WriteRules,
    /// The tree in which no other command of this kind may run meanwhile.
    pub alone_in: Option<TreePath>,
    /// It fails where what it makes is there already: that has to be so here, whatever others have made meanwhile.
    pub fails_if_there: bool,
    /// The mounts that it is shown.
    pub mounts: Vec<base::Mount>,
    /// Paths that are in the view whatever the profile says.
    include: Vec<TreePath>,
    /// Its project, or the working directory.
    tree: TreePath,
    /// It is not to run here.
    no_local: bool,
    /// By what its costs are known.
    kind: Kind,
    /// What calls it off.
    pub watch: Watch,
    /// By what it is known whether it can be done elsewhere.
    pub unable: unable::Kind,
    launched: Time,
}

/// Why a command does not run elsewhere.
#[derive(Debug, thiserror::Error)]
pub enum NotPlanned {
    /// There is no such program: as little here as elsewhere.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// It would not do there what it does here, or there is no pool.
    #[error("{0}")]
    Here(String),
    /// It could, and it is better to run it here.
    #[error("{1}")]
    Better(Kind, Choice),
}

impl Plan {
    /// Plans a command of a caller with these descriptors 0, 1 and 2, in a job if one is given. Blocks on the file system.
    /// Of the options count what it may write, and whether it may use the network.
    pub fn new(
        daemon: &Daemon,
        mut command: Command,
        window: Option<WindowSize>,
        options: &Options,
        job: Option<&JobViews>,
        fds: &[Arc<OwnedFd>; 3],
    ) -> Result<Self, NotPlanned> {
        let here = |why: &str| NotPlanned::Here(why.to_owned());
        if daemon.link().is_none() {
            return Err(here("no pool is configured (gleaner up, or gleaner use TOKEN)"));
        }
        let cwd = TreePath::parse(&command.cwd).ok_or_else(|| here("the working directory has no path"))?;
        if let Some(kind) = daemon.server.views().snapshot().odd_file_system(&cwd) {
            return Err(NotPlanned::Here(format!("{cwd} is on {kind}, whose changes cannot be noticed reliably")));
        }
        if !is_mirrored(&cwd) {
            return Err(NotPlanned::Here(format!("{cwd} is in a folder that each machine has of its own")));
        }
        if let Some(why) = remote_ability::shared_memory(&command.argv, &command.env) {
            return Err(NotPlanned::Here(why));
        }
        let words = std::mem::take(&mut command.argv);
        command.argv = remote_ability::unwrap(&words).to_vec();
        let program = profile::identify(&command.argv, &command.env, &cwd)?;
        if !is_open(&program.real) {
            return Err(NotPlanned::Here(format!("{} may be executed and not read", program.real)));
        }
        let allow_write = &options.allow_write[..];
        let trust = daemon.trust();
        let scope = scope(&command, &cwd, Some(&program), trust, daemon);
        let unable = unable::Kind::new(&program, &command.argv, &command.cwd).on_machines_of(trust);
        let has_run_into = || daemon.unable.why(&unable, now_seconds());
        // Who can do it twice has nothing of what the project's file says.
        let may = options.net || (scope.granted.network && !options.race && options.job.is_none());
        let layers = profile::layers(&command.argv, &program, &command.env, &cwd);
        let fetches = only_here(&command, &layers, fds, may, options.no_local).map_err(NotPlanned::Here)?;
        let by_files = layers.last().is_some_and(|(argv, program)| remote_ability::may_lock_by_files(argv, program));
        let fails_if_there = remote_ability::fails_if_there(&command.argv);
        let is_alone = layers.iter().any(|(_, program)| remote_ability::wants_tree_alone(program));
        let is_wanted =
            || fetches || options.no_local || has_run_into().is_some_and(|why| why.starts_with(USES_NETWORK));
        let network = may && (options.net || is_wanted());
        let unable = if network { unable.with_network() } else { unable };
        let formats = daemon.formats.now().to_vec();
        let (locks, lock_files) = (true, by_files);
        let clones = daemon.clones.of(&cwd);
        let descriptors = Vec::new();
        let (ports, tells_ports) = (listening::ports(), true);
        let outputs = [None, None];
        let mut watch = Watch { locks, lock_files, formats, ports, tells_ports, descriptors, clones, network, outputs };
        if let Some(why) = formats::only_here(&program.path, &watch) {
            return Err(NotPlanned::Here(why));
        }
        if let Some(why) = daemon.unable.why(&unable, now_seconds()) {
            return Err(NotPlanned::Here(format!("{why} (as was seen of such a command before)")));
        }
        let mut include = vec![cwd.clone(), TreePath::root().join(b"tmp")];
        let (named, named_bytes) = named_files(&scope.named).map_err(NotPlanned::Here)?;
        include.extend(named);
        let kind = Kind::new(&program.key, &command.argv, &command.cwd, named_bytes);
        let tree = scope.project.as_ref().map_or_else(|| cwd.clone(), |project| project.root.clone());
        let alone_in = is_alone.then(|| tree.clone());
        let moves = matches!(program.real.name(), b"rm" | b"rmdir" | b"mv");
        let mounts = shown_mounts(&scope, &cwd, allow_write, moves).map_err(NotPlanned::Here)?;
        // Where the daemon's own state lies no command writes.
        let state = TreePath::parse(daemon.config.state_dir.as_os_str().as_encoded_bytes());
        let is_filled = |at: &&TreePath| !state.as_ref().is_some_and(|state| state.is_within(at));
        if let Some(why) = endpoints::lacks_room(mounts.iter().map(|mount| &mount.at).filter(is_filled).chain([&cwd])) {
            return Err(NotPlanned::Here(why));
        }
        include.extend(mounts.iter().map(|mount| mount.at.clone()));
        let write = rules(scope.clone(), &cwd, allow_write, daemon);
        let read = ReadPolicy::new(scope);
        let input = stdio::regular_file(&fds[0]);
        let path = input.as_ref().map(|(path, _)| &path[..]);
        if let Some(why) = secret_input(&fds[0], path, &read, daemon.server.views().snapshot()) {
            return Err(NotPlanned::Here(why));
        }
        let (stdin, stdout, stderr) = streams(fds, input, &read);
        watch.outputs = [&fds[1], &fds[2]].map(|fd| output_file(fd, &read));
        // They are looked at before they change by what the command says.
        let outputs: Vec<TreePath> =
            watch.outputs.iter().flatten().filter_map(|output| TreePath::parse(&output.path)).collect();
        let names = |output| {
            layers.iter().find_map(|(argv, program)| remote_ability::names_output(argv, program, &cwd, output))
        };
        if !options.no_local
            && let Some(why) = outputs.iter().find_map(names)
        {
            return Err(NotPlanned::Here(why));
        }
        include.extend(outputs);
        // All that a job uses is looked at when it begins.
        let links = job.is_some() || !compilers::links_nothing(&command.argv);
        let first_sight = || {
            let mut paths = closure::closure_of(&program.path, &cwd, &command.env, links);
            paths.extend(program.script.clone());
            paths.extend(searched(&command.env, &cwd));
            paths
        };
        let views = daemon.server.views();
        let view = views.open(&key_under(program.key.clone(), &read), first_sight);
        if links {
            expect_linking(views, &view, &program, (&cwd, &command.env));
        }
        let view = match job.filter(|job| job.binds(&words)) {
            Some(job) => views.open_in(job, view),
            None => view,
        };
        command.needs.level = level_of(&program.real);
        let env = crate::policy::environment(trust, &command.env);
        command.env = remote_ability::ask_for_no_news(&command.argv, remote_ability::drop_jobserver(&env.kept));
        Ok(Self {
            command,
            trust,
            withheld: env.withheld,
            stdin,
            stdout,
            stderr,
            linger: fds[1..].iter().any(|fd| stdio::is_pipe(fd)),
            window: window.unwrap_or_default(),
            first_process: daemon.process_numbers.next(),
            held: view.hold(),
            view,
            gate: Arc::new(read),
            write,
            alone_in,
            fails_if_there,
            mounts,
            include,
            tree,
            no_local: options.no_local,
            kind,
            watch,
            unable,
            launched: Time(now_nanos()),
        })
    }

    /// The same plan for a caller with these descriptors above standard error. They do not travel.
    pub fn with_descriptors(mut self, daemon: &Daemon, descriptors: &[(u32, String)]) -> Result<Self, NotPlanned> {
        if descriptors.is_empty() {
            return Ok(self);
        }
        if let Some(why) = daemon.unable.why(&self.unable.with_descriptors(), now_seconds()) {
            return Err(NotPlanned::Here(format!("{why} (as was seen of such a command before)")));
        }
        self.watch.descriptors = descriptors.iter().map(|(number, _)| *number).collect();
        Ok(self)
    }

    /// Whether the task has a terminal.
    pub fn has_terminal(&self) -> bool {
        self.stdin == Stdin::Terminal || self.stdout == Output::Terminal || self.stderr == Output::Terminal
    }

    /// Its working folder.
    pub fn folder(&self) -> TreePath {
        TreePath::parse(&self.command.cwd).unwrap_or_else(TreePath::root)
    }

    /// Whether it names a path, or one beneath it. Where it may run here, what is in its tree and in folders that it names counts as well: to
    /// begin here is quicker than to be called off there.
    pub fn is_about(&self, path: &TreePath) -> bool {
        let is_near = || {
            let named = self.include.iter().filter(|named| named.as_bytes() != b"/tmp");
            named.chain([&self.tree]).any(|near| path.is_within(near))
        };
        self.include.iter().any(|named| named.is_within(path)) || !self.no_local && is_near()
    }

    /// By what its costs are known.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// When it was planned, by this machine's clock.
    pub fn launched(&self) -> Time {
        self.launched
    }

    /// Nothing came of a launch over this connection, and how much of it arrived is not known: the next one says all anew.
    pub fn forget_sent(&self, daemon: &Daemon, joined: &Joined) {
        self.view.forget_sent();
        joined.connection.forget_launches();
        if joined.connection.is_closed() {
            daemon.server.forget_sent();
        }
    }

    /// Checks the files that the program uses, for a launch over the connection with this number, to a hub as far as that. Blocks.
    /// `ahead`: where contents go at once, if the hub is so near that much may be sent unasked.
    pub fn sweep(
        &self,
        daemon: &Daemon,
        (connection, reach): (u64, Reach),
        ahead: Option<&Ahead>,
    ) -> Result<Swept, String> {
        let send = ahead.map(|ahead| {
            move |digest, bytes: bytes::Bytes| {
                let sent = ahead.send(digest, bytes.clone());
                if sent {
                    daemon.server.keep_earlier(digest, &bytes);
                    daemon.server.note_sent([digest]);
                }
                sent
            }
        });
        let launch = Launch {
            connection,
            gate: &*self.gate,
            include: &self.include,
            is_about: &|path| self.is_about(path),
            hub_has: &|digest| daemon.server.hub_has(digest),
            travel_bytes: if ahead.is_some() { TRAVEL_BYTES_NEAR } else { TRAVEL_BYTES },
            names_system: reach.names_system,
            ahead: send.as_ref().map(|send| send as &dyn Fn(_, _) -> _),
        };
        daemon.server.views().sweep(&self.view, &launch).map_err(|error| error.to_string())
    }
}

/// Has a compiler driver's view have what it links with: its commands so far may have linked nothing.
fn expect_linking(views: &Views, view: &View, program: &profile::Program, (cwd, env): (&TreePath, &[Vec<u8>])) {
    // By the linker alone, of most launches, which need no look at the disk for it.
    if !compilers::is_driver(&program.real) || compilers::linker().is_some_and(|linker| view.has(&linker)) {
        return;
    }
    let linking = compilers::linking(&program.real);
    if !linking.is_empty() && !linking.iter().any(|path| view.has(path)) {
        views.expect(view, &closure::closure(&program.path, cwd, env));
    }
}

/// Seconds since the epoch.
pub(crate) fn now_seconds() -> u64 {
    now_nanos().max(0) as u64 / 1_000_000_000
}

/// Whether a command is known to want the network, by any of its `layers`. The error is why it cannot be run elsewhere as if here;
/// `has_network`: it may use the network there. `no_local`: it is not to run here.
fn only_here(
    command: &Command,
    layers: &[(&[Vec<u8>], profile::Program)],
    fds: &[Arc<OwnedFd>; 3],
    has_network: bool,
    no_local: bool,
) -> Result<bool, String> {
    let mut fetches = false;
    let mut surroundings = Surroundings {
        set_id: false,
        stdin_terminal: stdio::is_terminal(&fds[0]),
        device: fds.iter().any(|fd| stdio::is_device(fd)),
    };
    for (argv, program) in layers {
        surroundings.set_id = remote_ability::changes_rights(&program.real);
        let reason = remote_ability::cannot_run_remotely(argv, program, &command.env, &surroundings);
        match reason {
            Some(reason) if has_network && reason.kind == ReasonKind::Network => fetches = true,
            Some(reason) if no_local && reason.kind == ReasonKind::Better => {}
            Some(reason) => return Err(reason.text),
            None => {}
        }
        if let Some(why) = remote_ability::names_of_this_machine(argv, program)
            .or_else(|| remote_ability::script_in_shared_memory(program))
        {
            return Err(why);
        }
    }
    Ok(fetches)
}

/// What a command may change, where it is not to be planned. Looks at the file system.
pub(crate) fn write_rules(mut command: Command, allow_write: &[Vec<u8>], daemon: &Daemon) -> Option<WriteRules> {
    let cwd = TreePath::parse(&command.cwd)?;
    command.argv = remote_ability::unwrap(&command.argv).to_vec();
    let program = profile::identify(&command.argv, &command.env, &cwd).ok();
    Some(rules(scope(&command, &cwd, program.as_ref(), daemon.trust(), daemon), &cwd, allow_write, daemon))
}

/// What a command is about.
fn scope(
    command: &Command,
    cwd: &TreePath,
    program: Option<&profile::Program>,
    trust: Trust,
    daemon: &Daemon,
) -> Scope {
    let home = command.env.iter().find_map(|entry| TreePath::parse(entry.strip_prefix(b"HOME=")?));
    let programs: Vec<TreePath> = program
        .into_iter()
        .flat_map(|program| [Some(program.path.clone()), program.script.clone()])
        .flatten()
        .collect();
    let input = ScopeInput {
        home: home.as_ref(),
        uid: command.uid,
        cwd,
        argv: &command.argv,
        env: &command.env,
        program: &programs,
        trust,
    };
    let mut scope = Scope::new(&input, &Disk::of(&daemon.committer));
    scope.closed.extend_from_slice(&daemon.config.closed);
    scope.closes_all = command.umask & CLOSES_ALL == CLOSES_ALL;
    if let Some(project) = &scope.project {
        match grants::standing(&project.root, scope.home.as_ref(), &daemon.pins) {
            Standing::Absent => {}
            Standing::Trusted(granted) => scope.granted = granted,
            Standing::Idle(why) => scope.grants_nothing = Some(why),
        }
    }
    scope
}

fn rules(scope: Scope, cwd: &TreePath, allow_write: &[Vec<u8>], daemon: &Daemon) -> WriteRules {
    WriteRules::new(scope, allow_write.iter().filter_map(|path| cwd.resolve(path)).collect(), daemon.walks.clone())
}

/// The files that a command names, and their bytes in all: it will most likely want them. The error is why it is kept here: the other end of
/// what it names is a process or a device of this machine.
fn named_files(named: &[TreePath]) -> Result<(Vec<TreePath>, u64), String> {
    use rustix::fs::FileType;
    let (mut files, mut bytes) = (Vec::new(), 0u64);
    // A worker has the usual devices of its own.
    for path in named.iter().filter(|path| !path.is_within(&TreePath::root().join(b"dev"))) {
        let Ok(stat) = rustix::fs::stat(path.as_bytes()) else { continue };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Fifo => "a named pipe",
            FileType::Socket => "a socket",
            FileType::CharacterDevice | FileType::BlockDevice => "a device",
            FileType::RegularFile if files.len() < NAMED_MAX => {
                files.push(path.clone());
                bytes = bytes.saturating_add(stat.st_size as u64);
                continue;
            }
            _ => continue,
        };
        return Err(format!("{path} is {kind}, and what is at its other end is on this machine"));
    }
    Ok((files, bytes))
}

/// The folders in which a command's program is looked for, with all on the way to them, and the worker's own mount points.
pub(crate) fn searched(env: &[Vec<u8>], cwd: &TreePath) -> Vec<TreePath> {
    let list = env.iter().find_map(|entry| entry.strip_prefix(b"PATH=")).unwrap_or_default();
    let folders = list.split(|byte| *byte == b':').filter_map(|folder| cwd.resolve(folder));
    let own = [&b"proc"[..], b"sys", b"dev"].map(|name| TreePath::root().join(name));
    let with_way = |folder: TreePath| std::iter::successors(Some(folder), TreePath::parent);
    let mut paths: Vec<TreePath> = folders.chain(own).flat_map(with_way).collect();
    paths.sort();
    paths.dedup();
    paths
}

/// A program has a view for each read policy that it is run under: what one may see must not reach a task of another.
fn key_under(key: ViewKey, read: &ReadPolicy) -> ViewKey {
    let mut variant = key.variant.unwrap_or_default();
    variant.extend_from_slice(format!("\0{:x}", read.fingerprint()).as_bytes());
    ViewKey { variant: Some(variant), ..key }
}

/// What kind of streams the caller's descriptors are. `input`: path and offset of a standard input that is a file.
fn streams(fds: &[Arc<OwnedFd>; 3], input: Option<(Vec<u8>, u64)>, read: &ReadPolicy) -> (Stdin, Output, Output) {
    let stdin = match &fds[0] {
        fd if stdio::is_null(fd) => Stdin::Null,
        fd if stdio::is_terminal(fd) => Stdin::Terminal,
        // Of a file that the policy keeps here, and that is no secret, the bytes may go and the name not: the caller opened it.
        _ => match input {
            Some((path, offset)) if is_mirrored_file(&path) && is_readable(&path, read) => Stdin::File { path, offset },
            _ => Stdin::Stream,
        },
    };
    let output = |fd: &OwnedFd| match fd {
        fd if stdio::is_null(fd) => Output::Null,
        fd if stdio::is_terminal(fd) => Output::Terminal,
        _ => Output::Stream,
    };
    let stdout = output(&fds[1]);
    let stderr = match output(&fds[2]) {
        Output::Stream if stdio::is_same_file(&fds[1], &fds[2]) => Output::SameAsStdout,
        other => other,
    };
    (stdin, stdout, stderr)
}

/// What an output is that goes into a file which the command may see.
fn output_file(fd: &OwnedFd, read: &ReadPolicy) -> Option<OutputFile> {
    let path = stdio::named_file(fd).filter(|path| is_mirrored_file(path) && is_readable(path, read))?;
    let appends = rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::APPEND));
    Some(OutputFile { path, appends })
}

/// Why a command is kept here whose standard input is a file that holds a secret: its bytes would go as any input's.
/// `path`: where that file is.
fn secret_input(fd: &OwnedFd, path: Option<&[u8]>, read: &ReadPolicy, snapshot: &Snapshot) -> Option<String> {
    let Some(path) = path else {
        let denial = Snapshot::secret_in_open(fd)?;
        return Some(format!("its standard input is a file without a name, which stays here: {}", denial.reason()));
    };
    let (path, stat) = (TreePath::parse(path)?, rustix::fs::stat(path).ok()?);
    let facts = FileFacts { uid: stat.st_uid, mode: stat.st_mode & 0o7777, directory: false };
    // What the policy lets out is looked at when it is bound.
    let Access::Deny(denial) = read.decide(&path, &facts) else { return None };
    let denial = if denial.is_of_secret() { denial } else { snapshot.secret_at(&path)? };
    Some(format!("its standard input is {path}, which stays here: {}", denial.reason()))
}

/// The mounts of this machine that a command about `scope` must be shown. The error is why it is kept here.
fn shown_mounts(
    scope: &Scope,
    cwd: &TreePath,
    allow_write: &[Vec<u8>],
    moves: bool,
) -> Result<Vec<base::Mount>, String> {
    let known = mounts::visible().map_err(|error| format!("the mounts of this machine cannot be listed: {error}"))?;
    if known.iter().all(|mount| mount.at.is_root() || mount.is_machines_own()) && !known[..].is_empty() {
        // The root alone: only its flags matter.
        return mounts::shown(&known, &mounts::Places { trees: &[cwd], folders: &[] }, moves);
    }
    let allowed: Vec<TreePath> = allow_write.iter().filter_map(|path| cwd.resolve(path)).collect();
    let project = scope.project.as_ref().map(|project| &project.root);
    let granted: Vec<TreePath> = scope.granted.write.iter().map(Pattern::place).collect();
    let trees = [cwd].into_iter().chain(project).chain(&scope.named).chain(&scope.environments);
    let trees = trees.chain(&scope.mentioned).chain(&scope.places.outputs).chain(&scope.places.temporary);
    let trees: Vec<&TreePath> = trees.chain(&allowed).chain(&granted).collect();
    let temporary = [&b"/tmp"[..], b"/var/tmp"].into_iter().filter_map(TreePath::parse).collect::<Vec<_>>();
    mounts::shown(&known, &mounts::Places { trees: &trees, folders: &temporary }, moves)
}

fn is_mirrored_file(path: &[u8]) -> bool {
    TreePath::parse(path).is_some_and(|path| is_mirrored(&path))
}

/// Whether this user may read a program, as is needed to send it.
fn is_open(program: &TreePath) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    accessat(CWD, program.as_bytes(), Access::READ_OK, AtFlags::EACCESS).is_ok()
}

fn is_readable(path: &[u8], read: &ReadPolicy) -> bool {
    let (Some(tree_path), Ok(stat)) = (TreePath::parse(path), rustix::fs::stat(path)) else { return false };
    let facts = FileFacts { uid: stat.st_uid, mode: stat.st_mode & 0o7777, directory: false };
    read.decide(&tree_path, &facts) == Access::Allow
}
