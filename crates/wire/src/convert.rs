//! Between messages and the plain types of `base`. What comes in is checked here, once: paths in normal form, digests of
//! the right length, known kinds. Beyond this module only valid values exist.

use crate::message as proto;
use base::command::are_tags;
use base::watch::{DESCRIPTOR_NUMBERS, DESCRIPTORS_MAX, FORMATS_MAX, Format, OutputFile, Sign};
use base::{
    Accessed, Action, Attr, Base, Binding, Bound, Change, Command, Content, Delta, Digest, ExitStatus, Limit, Needs,
    NodeId, Output, Seq, Stdin, TaskId, Time, TreePath, Usage, Version, ViewId, ViewUpdate, Watch, WindowSize, Xattr,
    delta::FileChange,
};

/// A message holds a value that no sender of this protocol writes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid message: {0}")]
pub struct Invalid(pub &'static str);

type Parsed<T> = Result<T, Invalid>;

/// Among the ports of a watch: of others the client tells when it is asked.
const OTHER_PORTS: u32 = 0;

/// Reads a digest.
pub fn digest(bytes: &[u8]) -> Parsed<Digest> {
    Digest::from_slice(bytes).ok_or(Invalid("a digest that is not 32 bytes long"))
}

/// Reads a node id.
pub fn node(bytes: &[u8]) -> Parsed<NodeId> {
    digest(bytes).map(NodeId)
}

/// Reads a task id.
pub fn task(bytes: &[u8]) -> Parsed<TaskId> {
    let bytes: [u8; 16] = bytes.try_into().map_err(|_| Invalid("a task id that is not 16 bytes long"))?;
    Ok(TaskId(u128::from_be_bytes(bytes)))
}

/// The bytes of a task id.
pub fn task_bytes(task: TaskId) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(&task.0.to_be_bytes())
}

/// Reads a path.
pub fn path(bytes: &[u8]) -> Parsed<TreePath> {
    TreePath::parse(bytes).ok_or(Invalid("a path that is not absolute and normal"))
}

/// Mounts, in order of their paths.
pub fn mounts(mounts: Vec<proto::Mount>) -> Parsed<Vec<base::Mount>> {
    if mounts.len() > base::mount::MOUNTS_MAX {
        return Err(Invalid("too many mounts"));
    }
    let mount = |mount: proto::Mount| {
        Ok(base::Mount { at: path(&mount.at)?, read_only: mount.read_only, no_exec: mount.no_exec })
    };
    let mounts = mounts.into_iter().map(mount).collect::<Parsed<Vec<_>>>()?;
    match mounts.windows(2).all(|pair| pair[0].at < pair[1].at) {
        true => Ok(mounts),
        false => Err(Invalid("mounts out of order")),
    }
}

/// A terminal's size as one number.
pub fn window_number(window: WindowSize) -> u32 {
    u32::from(window.rows) << 16 | u32::from(window.columns)
}

/// A terminal's size from one number.
pub fn window(number: u32) -> WindowSize {
    WindowSize { rows: (number >> 16) as u16, columns: number as u16 }
}

/// Names of tags, as many as there may be.
pub fn tags(tags: &[String]) -> Parsed<Vec<String>> {
    if are_tags(tags) { Ok(tags.to_vec()) } else { Err(Invalid("tags that cannot be")) }
}

/// What a command needs.
pub fn needs(command: &proto::Command) -> Parsed<Needs> {
    let tags = tags(&command.tags)?;
    Ok(Needs { cpus: command.cpus.max(1), memory_mib: command.memory_mib, level: level(command.level), tags })
}

/// A level of x86-64.
pub fn level(number: u32) -> u8 {
    number.min(4) as u8
}

impl From<&Command> for proto::Command {
    fn from(command: &Command) -> Self {
        let numbers = |limit: &Limit| [limit.resource.into(), limit.soft, limit.hard];
        Self {
            argv: command.argv.clone(),
            env: command.env.clone(),
            cwd: command.cwd.clone(),
            umask: command.umask,
            uid: command.uid,
            gid: command.gid,
            groups: command.groups.clone(),
            limits: command.limits.iter().flat_map(numbers).collect(),
            hostname: command.hostname.clone(),
            cpus: command.needs.cpus,
            ignored_signals: command.ignored_signals,
            memory_mib: command.needs.memory_mib,
            level: command.needs.level.into(),
            tags: command.needs.tags.clone(),
            blocked_signals: command.blocked_signals,
            nice: command.nice.into(),
        }
    }
}

impl TryFrom<proto::Command> for Command {
    type Error = Invalid;

    fn try_from(command: proto::Command) -> Parsed<Self> {
        if command.argv.is_empty() {
            return Err(Invalid("a command without a program"));
        }
        // A relative one would be looked up from wherever its worker is.
        if path(&command.cwd).is_err() {
            return Err(Invalid("a working directory that is not absolute and normal"));
        }
        if command.argv.iter().chain(&command.env).any(|text| text.contains(&0)) {
            return Err(Invalid("a command with a NUL byte"));
        }
        let limit = |numbers: &[u64]| {
            let resource = u32::try_from(numbers[0]).map_err(|_| Invalid("a resource limit without a number"))?;
            Ok(Limit { resource, soft: numbers[1], hard: numbers[2] })
        };
        let needs = needs(&command)?;
        let limits = command.limits.chunks_exact(3).map(limit).collect::<Parsed<_>>()?;
        Ok(Self {
            argv: command.argv,
            env: command.env,
            cwd: command.cwd,
            umask: command.umask,
            uid: command.uid,
            gid: command.gid,
            groups: command.groups,
            limits,
            hostname: command.hostname,
            needs,
            ignored_signals: command.ignored_signals,
            blocked_signals: command.blocked_signals,
            nice: command.nice.min(base::command::NICE_MAX.into()) as u8,
        })
    }
}

impl From<&Watch> for proto::Watch {
    fn from(watch: &Watch) -> Self {
        let format = |format: &Format| {
            let name = format.name.clone();
            match format.sign.clone() {
                Sign::Extension(extension) => {
                    proto::Format { name, extension: Some(extension), ..proto::Format::default() }
                }
                Sign::Magic { offset, magic, mask } => proto::Format { name, extension: None, offset, magic, mask },
            }
        };
        let others = watch.tells_ports.then_some(OTHER_PORTS);
        let ports = others.into_iter().chain(watch.ports.iter().map(|port| (*port).into())).collect();
        let output = |output: &OutputFile| proto::OutputFile { path: output.path.clone(), appends: output.appends };
        let [stdout, stderr] = watch.outputs.each_ref().map(|file| file.as_ref().map(output));
        Self {
            locks: watch.locks,
            lock_files: watch.lock_files,
            formats: watch.formats.iter().map(format).collect(),
            ports,
            descriptors: watch.descriptors.clone(),
            clones: watch.clones,
            network: watch.network,
            stdout,
            stderr,
        }
    }
}

impl TryFrom<proto::Watch> for Watch {
    type Error = Invalid;

    fn try_from(watch: proto::Watch) -> Parsed<Self> {
        if watch.formats.len() > FORMATS_MAX {
            return Err(Invalid("a watch for too many formats"));
        }
        if watch.descriptors.len() > DESCRIPTORS_MAX
            || watch.descriptors.iter().any(|number| !DESCRIPTOR_NUMBERS.contains(number))
        {
            return Err(Invalid("a watch for descriptors that cannot be watched"));
        }
        let format = |proto::Format { name, extension, offset, magic, mask }| {
            let sign = extension.map_or(Sign::Magic { offset, magic, mask }, Sign::Extension);
            Format { name, sign }
        };
        let port = |port| u16::try_from(port).map_err(|_| Invalid("a port beyond 65535"));
        let tells_ports = watch.ports.contains(&OTHER_PORTS);
        let listed = watch.ports.into_iter().filter(|port| *port != OTHER_PORTS);
        let ports = listed.map(port).collect::<Parsed<_>>()?;
        let output = |proto::OutputFile { path: named, appends }| {
            path(&named).map_err(|_| Invalid("an output with a path that is not absolute and normal"))?;
            Ok(OutputFile { path: named, appends })
        };
        let outputs = [watch.stdout.map(output).transpose()?, watch.stderr.map(output).transpose()?];
        Ok(Self {
            locks: watch.locks,
            lock_files: watch.lock_files,
            formats: watch.formats.into_iter().map(format).collect(),
            ports,
            tells_ports,
            descriptors: watch.descriptors,
            clones: watch.clones,
            network: watch.network,
            outputs,
        })
    }
}

impl From<&Stdin> for proto::Stdin {
    fn from(stdin: &Stdin) -> Self {
        match stdin {
            Stdin::Null => Self { kind: 0, ..Self::default() },
            Stdin::Stream => Self { kind: 1, ..Self::default() },
            Stdin::File { path, offset } => Self { kind: 2, path: path.clone(), offset: *offset },
            Stdin::Terminal => Self { kind: 3, ..Self::default() },
        }
    }
}

impl TryFrom<proto::Stdin> for Stdin {
    type Error = Invalid;

    fn try_from(stdin: proto::Stdin) -> Parsed<Self> {
        Ok(match stdin.kind {
            0 => Self::Null,
            1 => Self::Stream,
            2 if path(&stdin.path).is_err() => {
                return Err(Invalid("a standard input whose path is not absolute and normal"));
            }
            2 => Self::File { path: stdin.path, offset: stdin.offset },
            3 => Self::Terminal,
            _ => return Err(Invalid("an unknown kind of standard input")),
        })
    }
}

/// The number of an output kind.
pub fn output_number(output: Output) -> u32 {
    match output {
        Output::Null => 0,
        Output::Stream => 1,
        Output::SameAsStdout => 2,
        Output::Terminal => 3,
    }
}

/// An output kind from its number.
pub fn output(number: u32) -> Parsed<Output> {
    [Output::Null, Output::Stream, Output::SameAsStdout, Output::Terminal]
        .get(number as usize)
        .copied()
        .ok_or(Invalid("an unknown kind of output"))
}

impl From<&Attr> for proto::Attr {
    fn from(attr: &Attr) -> Self {
        Self {
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            nlink: attr.nlink,
            size: attr.size,
            blocks: attr.blocks,
            dev: attr.dev,
            ino: attr.ino,
            mtime: attr.mtime.0,
            ctime: attr.ctime.0,
            atime: attr.accessed.0.map(|time| time.0),
        }
    }
}

impl From<proto::Attr> for Attr {
    fn from(attr: proto::Attr) -> Self {
        Self {
            mode: attr.mode & 0o7777,
            uid: attr.uid,
            gid: attr.gid,
            nlink: attr.nlink,
            size: attr.size,
            blocks: attr.blocks,
            dev: attr.dev,
            ino: attr.ino,
            mtime: Time(attr.mtime),
            ctime: Time(attr.ctime),
            accessed: Accessed(attr.atime.map(Time)),
        }
    }
}

fn attr(attr: Option<proto::Attr>) -> Parsed<Attr> {
    attr.map(Attr::from).ok_or(Invalid("a file without attributes"))
}

fn xattr_bytes(xattrs: &[Xattr]) -> Vec<Vec<u8>> {
    xattrs.iter().flat_map(|xattr| [xattr.name.clone(), xattr.value.clone()]).collect()
}

fn xattrs(bytes: Vec<Vec<u8>>) -> Parsed<Vec<Xattr>> {
    let mut pairs = bytes.into_iter();
    let mut found = Vec::new();
    while let (Some(name), value) = (pairs.next(), pairs.next()) {
        let value = value.ok_or(Invalid("an extended attribute without a value"))?;
        if !name.starts_with(b"user.") || name.contains(&0) || name.len() > 255 || value.len() > 1 << 16 {
            return Err(Invalid("an extended attribute that is not mirrored"));
        }
        found.push(Xattr { name, value });
    }
    Ok(found)
}

fn content_parts(content: &Content) -> (u32, Vec<u8>, i32) {
    match content {
        Content::Empty => (0, Vec::new(), 0),
        Content::Block(digest) => (1, digest.0.to_vec(), 0),
        Content::Recipe(digest) => (2, digest.0.to_vec(), 0),
        Content::Lazy(stamp) => (3, stamp.0.to_vec(), 0),
        Content::Unreadable(errno) => (4, Vec::new(), *errno),
    }
}

fn content(kind: u32, name: &[u8], errno: i32) -> Parsed<Content> {
    Ok(match kind {
        0 => Content::Empty,
        1 => Content::Block(digest(name)?),
        2 => Content::Recipe(digest(name)?),
        3 => Content::Lazy(digest(name)?),
        4 => Content::Unreadable(errno),
        _ => return Err(Invalid("an unknown kind of content")),
    })
}

impl From<&Bound> for proto::Bound {
    fn from(bound: &Bound) -> Self {
        let mut made = Self { path: bound.path.as_bytes().to_vec(), seq: bound.seq.0, ..Self::default() };
        made.attr = bound.binding.attr().map(Into::into);
        match &bound.binding {
            Binding::Absent => made.kind = 0,
            Binding::Denied => made.kind = 1,
            Binding::Directory { listing, xattrs, .. } => {
                made.kind = 2;
                made.content = listing.is_some().into();
                made.digest = listing.map_or_else(Vec::new, |digest| digest.0.to_vec());
                made.xattrs = xattr_bytes(xattrs);
            }
            Binding::File { content, xattrs, .. } => {
                made.kind = 3;
                (made.content, made.digest, made.errno) = content_parts(content);
                made.xattrs = xattr_bytes(xattrs);
            }
            Binding::Symlink { target, .. } => {
                made.kind = 4;
                made.target = target.clone();
            }
            Binding::Special { .. } => made.kind = 5,
        }
        made
    }
}

impl TryFrom<proto::Bound> for Bound {
    type Error = Invalid;

    fn try_from(bound: proto::Bound) -> Parsed<Self> {
        let binding = match bound.kind {
            0 => Binding::Absent,
            1 => Binding::Denied,
            2 => Binding::Directory {
                attr: attr(bound.attr)?,
                listing: if bound.content == 1 { Some(digest(&bound.digest)?) } else { None },
                xattrs: xattrs(bound.xattrs)?,
            },
            3 => Binding::File {
                attr: attr(bound.attr)?,
                content: content(bound.content, &bound.digest, bound.errno)?,
                xattrs: xattrs(bound.xattrs)?,
            },
            4 => Binding::Symlink { attr: attr(bound.attr)?, target: bound.target },
            5 => Binding::Special { attr: attr(bound.attr)? },
            _ => return Err(Invalid("an unknown kind of binding")),
        };
        Ok(Self { path: path(&bound.path)?, seq: Seq(bound.seq), binding })
    }
}

impl From<&ViewUpdate> for proto::ViewUpdate {
    fn from(update: &ViewUpdate) -> Self {
        Self {
            view: update.view.0,
            base: update.base.0,
            version: update.version.0,
            set: update.set.iter().map(Into::into).collect(),
            drop: update.drop.iter().map(|path| path.as_bytes().to_vec()).collect(),
        }
    }
}

impl TryFrom<proto::ViewUpdate> for ViewUpdate {
    type Error = Invalid;

    fn try_from(update: proto::ViewUpdate) -> Parsed<Self> {
        Ok(Self {
            view: ViewId(update.view),
            base: Version(update.base),
            version: Version(update.version),
            set: update.set.into_iter().map(Bound::try_from).collect::<Parsed<_>>()?,
            drop: update.drop.iter().map(|bytes| path(bytes)).collect::<Parsed<_>>()?,
        })
    }
}

impl From<&Change> for proto::Change {
    fn from(change: &Change) -> Self {
        let base = match change.base {
            Base::Absent => 0,
            Base::Bound(seq) => seq.0,
        };
        let mut made = Self { path: change.path.as_bytes().to_vec(), base, ..Self::default() };
        let is_new = change.base == Base::Absent;
        let change_of = &change.action;
        match change_of {
            Action::Remove => made.action = 1,
            Action::Rename { from } => {
                made.action = 2;
                made.other = from.as_bytes().to_vec();
            }
            Action::Directory { attr, xattrs, replaces } => {
                made.action = 3;
                made.attr = Some(attr.into());
                made.xattrs = xattr_bytes(xattrs);
                made.how = (*replaces).into();
            }
            Action::File { attr, xattrs, content, change } | Action::LastWrite { attr, xattrs, content, change } => {
                made.action = if matches!(change_of, Action::File { .. }) { 4 } else { 8 };
                made.attr = Some(attr.into());
                made.xattrs = xattr_bytes(xattrs);
                (made.content, made.digest, _) = content_parts(content);
                made.is_added = is_new && matches!(change, FileChange::Appended { from: 0 });
                (made.how, made.appended_from) = match change {
                    _ if made.is_added => (0, 0),
                    FileChange::Written => (0, 0),
                    FileChange::Appended { from } => (1, *from),
                    FileChange::Attributes => (2, 0),
                };
            }
            Action::Symlink { attr, target } => {
                made.action = 5;
                made.attr = Some(attr.into());
                made.other = target.clone();
            }
            Action::HardLink { to } => {
                made.action = 6;
                made.other = to.as_bytes().to_vec();
            }
            Action::Fifo { attr } => {
                made.action = 7;
                made.attr = Some(attr.into());
            }
        }
        made
    }
}

impl TryFrom<proto::Change> for Change {
    type Error = Invalid;

    fn try_from(change: proto::Change) -> Parsed<Self> {
        let action = match change.action {
            1 => Action::Remove,
            2 => Action::Rename { from: path(&change.other)? },
            3 => Action::Directory {
                attr: attr(change.attr)?,
                xattrs: xattrs(change.xattrs)?,
                replaces: change.how == 1,
            },
            4 | 8 => file_action(change.action, &change)?,
            5 => Action::Symlink { attr: attr(change.attr)?, target: change.other },
            6 => Action::HardLink { to: path(&change.other)? },
            7 => Action::Fifo { attr: attr(change.attr)? },
            _ => return Err(Invalid("an unknown kind of change")),
        };
        let base = if change.base == 0 { Base::Absent } else { Base::Bound(Seq(change.base)) };
        Ok(Self { path: path(&change.path)?, base, action })
    }
}

/// The action of a file that was made or changed (4), or changed and lost the name (8).
fn file_action(action: u32, change: &proto::Change) -> Parsed<Action> {
    let (attr, xattrs) = (attr(change.attr)?, xattrs(change.xattrs.clone())?);
    // Of a file that has its bytes still, whatever is said of them is ignored.
    let content = match content(change.content, &change.digest, 0)? {
        _ if change.how == 2 => Content::Empty,
        Content::Lazy(_) | Content::Unreadable(_) => return Err(Invalid("a result without its bytes")),
        content => content,
    };
    let how = match change.how {
        0 if change.is_added => FileChange::Appended { from: 0 },
        0 => FileChange::Written,
        1 => FileChange::Appended { from: change.appended_from },
        2 => FileChange::Attributes,
        _ => return Err(Invalid("an unknown kind of file change")),
    };
    Ok(match action {
        4 => Action::File { attr, xattrs, content, change: how },
        _ => Action::LastWrite { attr, xattrs, content, change: how },
    })
}

/// The delta that an [`proto::Exited`] carries.
pub fn delta(changes: Vec<proto::Change>) -> Parsed<Delta> {
    Ok(Delta { changes: changes.into_iter().map(Change::try_from).collect::<Parsed<_>>()? })
}

impl proto::Exited {
    /// How the command ended.
    pub fn status(&self) -> ExitStatus {
        match self.signal {
            0 => ExitStatus::Code(self.code as u8),
            signal => ExitStatus::Signal((signal & 0x7f) as u8),
        }
    }

    /// What it took.
    pub fn usage(&self) -> Usage {
        Usage { user_us: self.user_us, system_us: self.system_us, max_rss_kib: self.max_rss_kib }
    }
}

#[cfg(test)]
mod tests;
