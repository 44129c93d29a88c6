//! Runs a program on one side and on the other, each from the same tree at the same path, and compares all that can be seen.

use super::grammar::{OTHER, TWICE};
use super::program::{Kind, Program, Step};
use crate::client::Client;
use crate::differential::{excerpt, streams};
use crate::error::{Context, Error, Result};
use crate::process::{Ended, Input, Outcome, Run};
use crate::scratch::remove_all;
use crate::tree::{self, Side, Tree, Window, now_of_files};
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Of scripts that complain in no order: pipes, and programs that go through folders.
const MIXING: [&str; 7] = ["|", "tar ", "cp -a", "cp -r", "rm -r", "chmod -R", "find "];

/// Who moves or copies a folder into itself fails when it meets that. What it has done by then goes by the order of the folder, which is
/// another elsewhere (SPECIFICATION.md).
const INTO_ITSELF: &str = "into itself";

/// How long a command may take remotely, and the actor where it prepares.
const LIMIT: Duration = Duration::from_secs(30);
/// How long a command may take locally, where it takes milliseconds: one that takes longer waits for ever, and its program is void.
const LOCAL_LIMIT: Duration = Duration::from_secs(4);
/// What `remrun` says of a command that turned out to be unable to run elsewhere when part of it was delivered. It runs here the next time.
const CALLED_OFF_LATE: &str = "run it again";
/// The same of one that read what may not leave this machine when part of it was delivered, and was refused it there.
const KEPT_BACK: [&str; 2] = ["so it cannot be sent", "was kept back by the read policy"];
/// The same of one that did not get its lock before somebody changed what it had seen.
const NOT_LOCKED: &str = "before it had its lock";

/// What is said of a program that the actor does not understand.
const NO_PROGRAM: &str = "is no program";

/// Who runs programs.
#[derive(Clone, Copy, Debug)]
pub struct Clients<'a> {
    /// As root.
    pub root: &'a Client,
    /// As an ordinary user.
    pub nobody: &'a Client,
    /// The actor's program.
    pub actor: &'a Path,
}

/// What came of a program on one side.
struct Half {
    before: Tree,
    /// Before each command but the first; looked at on this side alone.
    between: Vec<Tree>,
    after: Tree,
    outcomes: Vec<Outcome>,
    window: Window,
    /// Commands that were called off when part of them was delivered, and were run again.
    called_off_late: usize,
}

/// What came of a program.
#[derive(Debug, Default)]
pub struct Comparison {
    /// What differs, in words.
    pub found: Vec<String>,
    /// It is of no use: it hangs here as well.
    pub is_void: bool,
    /// Commands that were called off late.
    pub called_off_late: usize,
}

impl Comparison {
    /// Whether it differs, and is one at all.
    pub fn fails(&self) -> bool {
        !self.found.is_empty() && !self.found.iter().any(|text| text.contains(NO_PROGRAM))
    }
}

/// Runs `program` in `place` on both sides. `name` marks its commands, so that their records are found.
pub fn compare(program: &Program, name: &str, place: &Path, clients: Clients<'_>) -> Result<Comparison> {
    let is_nobody = program.word("user") == Some("nobody");
    let client = if is_nobody { clients.nobody } else { clients.root };
    // Each has a place of its own: a daemon looks again at what its user's commands have seen, and who does not own a file moves
    // the time of its last access by that.
    let place = &place.join(if is_nobody { "nobody" } else { "root" });
    let side = |is_remote: bool| {
        let stage = Stage { program, name, place, client, actor: clients.actor, root: clients.root, is_remote };
        stage.play()
    };
    // One that may not enter its own folder any more cannot be started here; if none could, too few would have run elsewhere.
    let Ok(local) = side(false) else { return Ok(Comparison { is_void: true, ..Comparison::default() }) };
    if local.outcomes.iter().any(|outcome| outcome.ended == Ended::TimedOut) {
        return Ok(Comparison { is_void: true, ..Comparison::default() });
    }
    let mut remote = side(true)?;
    let is_kept_back = |outcome: &Outcome| KEPT_BACK.iter().any(|text| outcome.said().contains(text));
    if remote.outcomes.iter().any(is_kept_back) {
        // Its caller was told, and such commands run here from then on.
        let late = remote.called_off_late + 1;
        remote = side(true)?;
        remote.called_off_late += late;
    }
    let mixes = |body: String| MIXING.iter().any(|word| body.contains(word));
    let shells = program.steps.iter().any(|step| step.kind == Kind::Shell && mixes(step.body()));
    let found = judge(&local, &remote, shells, &passed_times(program), client.user);
    let is_partial =
        [&local, &remote].into_iter().flat_map(|half| &half.outcomes).any(|ended| ended.said().contains(INTO_ITSELF));
    let is_known = is_partial || maps_what_it_only_reads(program) && remote.has_stale_map(&found);
    let is_void = !found.is_empty() && is_known;
    let found = if is_void { Vec::new() } else { found };
    Ok(Comparison { found, is_void, called_off_late: remote.called_off_late })
}

/// By name: whose time a script gives to which other file.
fn passed_times(program: &Program) -> Vec<(OsString, OsString)> {
    let scripts = program.steps.iter().filter(|step| step.kind == Kind::Shell).map(|step| step.body());
    let passes = |body: String| -> Vec<(OsString, OsString)> {
        let words = body.lines().filter_map(|line| line.strip_prefix("touch -h -r ")).map(str::split_whitespace);
        words.filter_map(|mut words| Some((name_of(words.next()?)?, name_of(words.next()?)?))).collect()
    };
    scripts.flat_map(passes).collect()
}

fn name_of(path: impl AsRef<Path>) -> Option<OsString> {
    path.as_ref().file_name().map(OsStr::to_os_string)
}

/// Whether a command maps a file that it has open for reading alone. Known (SPECIFICATION.md): what others of the command write to it
/// after it was opened is not in the map.
fn maps_what_it_only_reads(program: &Program) -> bool {
    let bodies = program.steps.iter().map(|step| step.body());
    bodies.into_iter().any(|body| {
        let words = body.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let words: Vec<Vec<&str>> = words.collect();
        words.iter().any(|map| {
            let opens =
                |open: &&Vec<&str>| open.len() > 3 && open[0] == "open" && open[3].split('+').next() == Some("r");
            map.len() > 1 && map[0] == "mapread" && words.iter().filter(opens).any(|open| open[1] == map[1])
        })
    })
}

impl Half {
    /// Whether what differs comes of a map of what a file had before: other bytes in it, or none at all.
    fn has_stale_map(&self, found: &[String]) -> bool {
        self.outcomes.iter().any(|outcome| outcome.ended == Ended::Signal(libc::SIGBUS))
            || found.iter().any(|text| text.contains(" mapread ") || text.contains(" fork  = signal 7"))
    }
}

/// Where one side plays.
struct Stage<'a> {
    program: &'a Program,
    name: &'a str,
    place: &'a Path,
    client: &'a Client,
    actor: &'a Path,
    root: &'a Client,
    is_remote: bool,
}

impl Stage<'_> {
    fn work(&self) -> PathBuf {
        self.place.join("work")
    }

    fn play(&self) -> Result<Half> {
        // All of the place: `..` of a link to the tree's folder is outside of it.
        remove_all(self.place)?;
        std::fs::create_dir_all(self.place).at("create", self.place)?;
        let since = SystemTime::now();
        let mounts = Mounts::make(self)?;
        let half = self.steps(since);
        drop(mounts);
        remove_all(&self.work())?;
        half
    }

    /// `since`: when the tree's making began.
    fn steps(&self, since: SystemTime) -> Result<Half> {
        for step in self.program.steps.iter().filter(|step| step.kind == Kind::Setup) {
            self.here(step)?;
        }
        tree::settle_times(&self.work(), since)?;
        let before = Tree::read(&self.work())?;
        let start = now_of_files();
        let (mut outcomes, mut between) = (Vec::new(), Vec::new());
        let mut called_off_late = 0;
        let steps: Vec<(usize, &Step)> = self.program.steps.iter().enumerate().collect();
        let mut rest = steps.as_slice();
        while let Some((first, others)) = rest.split_first() {
            let beside = others.iter().take_while(|(_, step)| step.kind == Kind::With).count();
            match first.1.kind {
                Kind::Setup => {}
                Kind::Edit => self.here(first.1)?,
                _ => {
                    if !self.is_remote && !outcomes.is_empty() {
                        between.push(Tree::read(&self.work())?);
                    }
                    for (outcome, late) in self.at_once(&rest[..=beside])? {
                        outcomes.push(outcome);
                        called_off_late += usize::from(late);
                    }
                }
            }
            rest = &rest[1 + beside..];
        }
        let window = Window { start, end: SystemTime::now() };
        Ok(Half { before, between, after: Tree::read(&self.work())?, outcomes, window, called_off_late })
    }

    /// Has the actor change the tree, here on either side.
    fn here(&self, step: &Step) -> Result<()> {
        let mut command = Command::new(self.actor);
        command.args([OsStr::new("setup"), OsStr::new("end"), OsStr::from_bytes(step.body().as_bytes())]);
        command.current_dir(self.work());
        self.root.dress(&mut command);
        Run::new(command).within(LIMIT).run().map(drop)
    }

    /// Runs commands at the same time; for each, whether it had to be run again.
    fn at_once(&self, steps: &[(usize, &Step)]) -> Result<Vec<(Outcome, bool)>> {
        if let [(index, step)] = steps {
            return Ok(vec![self.command(*index, step)?]);
        }
        std::thread::scope(|scope| {
            let running: Vec<_> =
                steps.iter().map(|(index, step)| scope.spawn(move || self.command(*index, step))).collect();
            let panicked = |_| Error::Product("a runner panicked".into());
            running.into_iter().map(|one| one.join().map_err(panicked)?).collect()
        })
    }

    fn command(&self, index: usize, step: &Step) -> Result<(Outcome, bool)> {
        let outcome = self.attempt(index, step)?;
        let is_late = self.is_remote
            && outcome.ended == Ended::Code(125)
            && [CALLED_OFF_LATE, NOT_LOCKED].iter().any(|text| outcome.said().contains(text));
        if is_late { Ok((self.attempt(index, step)?, true)) } else { Ok((outcome, false)) }
    }

    fn attempt(&self, index: usize, step: &Step) -> Result<Outcome> {
        let tag = format!("={}-{index}", self.name);
        let body = step.body();
        let words: Vec<&OsStr> = match step.kind {
            Kind::Shell => vec![
                OsStr::new(step.word("shell").unwrap_or("sh")),
                OsStr::new("-c"),
                OsStr::new(&body),
                OsStr::new(&tag),
            ],
            _ => vec![
                self.actor.as_os_str(),
                OsStr::new(&tag),
                OsStr::new(step.word("report").unwrap_or("end")),
                OsStr::new(&body),
            ],
        };
        let mut command = if self.is_remote { Command::new(&self.client.remrun) } else { Command::new(words[0]) };
        command.args(&words[usize::from(!self.is_remote)..]);
        let folder = self.work().join(step.word("cwd").unwrap_or(""));
        command.current_dir(if folder.is_dir() { &folder } else { self.place });
        self.client.dress(&mut command);
        let input = match step.word("stdin") {
            None | Some("null") => Input::Null,
            Some("closed") => Input::Closed,
            Some(count) => Input::Pipe(lines(count.parse().unwrap_or(0))),
        };
        Run { input, ..Run::new(command).within(if self.is_remote { LIMIT } else { LOCAL_LIMIT }) }.run()
    }
}

/// So many bytes of text.
fn lines(count: usize) -> Vec<u8> {
    let text = (0..).flat_map(|number: usize| format!("line {number} of the input\n").into_bytes());
    text.take(count).collect()
}

/// A file system of its own and a folder seen twice, within the tree.
struct Mounts(Vec<PathBuf>);

impl Mounts {
    /// Makes the tree's folder, and mounts in it if the program wants them.
    fn make(stage: &Stage<'_>) -> Result<Self> {
        let (work, user) = (stage.work(), stage.client.user);
        let folder = |path: &Path| -> Result<()> {
            std::fs::create_dir(path).at("create", path)?;
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).at("chmod", path)?;
            std::os::unix::fs::chown(path, Some(user), Some(user)).at("chown", path)
        };
        folder(&work)?;
        let mut mounts = Self(Vec::new());
        if stage.program.word("mounts") == Some("yes") {
            let (other, twice, source) = (work.join(OTHER), work.join(TWICE), stage.place.join("source"));
            remove_all(&source)?;
            for path in [&other, &twice, &source] {
                folder(path)?;
            }
            let options =
                std::ffi::CString::new(format!("size=64m,mode=755,uid={user},gid={user}")).unwrap_or_default();
            rustix::mount::mount("tmpfs", &other, "tmpfs", MountFlags::empty(), options.as_c_str())
                .at("mount on", &other)?;
            mounts.0.push(other);
            rustix::mount::mount_bind(&source, &twice).at("bind on", &twice)?;
            mounts.0.push(twice);
        }
        Ok(mounts)
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = rustix::mount::unmount(path, UnmountFlags::DETACH);
        }
    }
}

/// What differs. `shells`: scripts mix what is said, and go by the order of folders. `passed`: whose time they give to which.
fn judge(local: &Half, remote: &Half, shells: bool, passed: &[(OsString, OsString)], user: u32) -> Vec<String> {
    let mut found = Vec::new();
    for (number, (here, there)) in local.outcomes.iter().zip(&remote.outcomes).enumerate() {
        let mut add = |text: String| found.push(format!("command {}: {text}", number + 1));
        if here.ended != there.ended {
            add(format!("ended locally with {}, remotely with {}", here.ended, there.ended));
        }
        // How much a shell's programs read at a time is a matter of what there is.
        if !shells && here.left != there.left {
            add(format!("leaves {} bytes of its input locally, {} remotely", here.left, there.left));
        }
        for (name, here, there) in
            [("standard output", &here.stdout, &there.stdout), ("standard error", &here.stderr, &there.stderr)]
        {
            let [here, there] = [here, there].map(|bytes| without_ages(bytes));
            let (here, there) = (&here, &there);
            // What the sides of a script's pipe complain of comes in either order, and mixed; who walks goes by each folder's order.
            if shells && name == "standard error" && sorted(here) == sorted(there) {
                continue;
            }
            if let Some(text) = lines_differ(here, there).or_else(|| streams(name, here, there, false)) {
                add(text);
            }
        }
        if here.stdout.windows(6).any(|part| part == b"WRONG:") {
            add(format!("{NO_PROGRAM}: {}", excerpt(&here.stdout, 0)));
        }
    }
    // Tools like tar keep times to the second: what was made within the window may bear the second in which that began.
    let side = |half: &Half| Window { start: half.window.start - Duration::from_secs(1), ..half.window };
    let here = Side { before: &local.before, after: &local.after, window: side(local) };
    let there = Side { before: &remote.before, after: &remote.after, window: side(remote) };
    let earlier: Vec<Side<'_>> = local.between.iter().map(|before| Side { before, ..here }).collect();
    let is_old = |path: &PathBuf| here.has_old_bytes(path) || earlier.iter().any(|side| side.has_old_bytes(path));
    let mut touched: Vec<PathBuf> = local.after.paths().filter(is_old).collect();
    let of_others: Vec<PathBuf> = if user == 0 { Vec::new() } else { local.after.paths_of_others(user).collect() };
    let in_trees = tree::differences(&here, &there, &[]);
    // What was given a time that is known to differ, also through others.
    for _ in passed {
        let is_later_here = |path: &&PathBuf| in_trees.iter().any(|text| is_later(text) && is_about(text, path));
        let known: Vec<OsString> = touched.iter().filter(is_later_here).filter_map(name_of).collect();
        let given: Vec<&OsString> = passed.iter().filter(|(from, _)| known.contains(from)).map(|(_, to)| to).collect();
        let is_given = |path: &PathBuf| name_of(path).is_some_and(|name| given.contains(&&name));
        touched.extend(local.after.paths().filter(is_given));
    }
    let is_unknown = |text: &String| !is_known(text, &touched, &of_others);
    found.extend(in_trees.into_iter().filter(is_unknown));
    found
}

/// What differs and is known (SPECIFICATION.md): a small file's holes, which are each file system's own way; and that a file whose
/// attributes or name a command set, and which it opened for writing afterwards, counts as written to, though its bytes are the same.
fn is_known(text: &str, touched: &[PathBuf], of_others: &[PathBuf]) -> bool {
    let is_time = is_later(text) && is_about_one(text, touched);
    // Nobody but its owner may read a file without moving that time, and a daemon reads ahead what its user's commands have seen.
    let is_access = text.contains(": time of last access locally ") && is_about_one(text, of_others);
    is_time || is_access || text.contains(": sparse locally ")
}

/// Whether it says that something was written to there and not here.
fn is_later(text: &str) -> bool {
    text.contains(": time of change locally ") && text.ends_with(", remotely During")
}

fn is_about_one(text: &str, paths: &[PathBuf]) -> bool {
    paths.iter().any(|path| is_about(text, path))
}

fn is_about(text: &str, path: &Path) -> bool {
    text.starts_with(&format!("{path:?}: "))
}

/// Without how far in the future a time is, which `tar` counts from now.
fn without_ages(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let is_age = line.ends_with(b" s in the future\n");
        let end = line.windows(4).rposition(|part| part == b" is ").filter(|_| is_age);
        text.extend_from_slice(&line[..end.unwrap_or(line.len())]);
    }
    text
}

fn sorted(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.sort_unstable();
    bytes
}

/// The first line that differs, whole: each is the result of one operation.
fn lines_differ(here: &[u8], there: &[u8]) -> Option<String> {
    let [here, there] = [here, there].map(|bytes| std::str::from_utf8(bytes).ok().filter(|text| text.len() < 1 << 16));
    let (here, there) = (here?, there?);
    let (one, other) = here.lines().zip(there.lines()).find(|(one, other)| one != other)?;
    let short = |line: &str| line.chars().take(300).collect::<String>();
    Some(format!("says differently\n  locally  {}\n  remotely {}", short(one), short(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_shown_whole() {
        let text = lines_differ(b"1 a = ok\n2 b = 3\n", b"1 a = ok\n2 b = 4\n").unwrap();
        assert!(text.contains("locally  2 b = 3") && text.contains("remotely 2 b = 4"), "{text}");
        assert_eq!(lines_differ(b"1\n", b"1\n"), None);
        assert_eq!(lines(20).len(), 20);
    }
}
