//! What the scripts of a task do by their text: whether they make files, folders or links to lock something.
//!
//! Scripts make many folders and links that keep nobody out, and each that is taken for a lock costs a round trip to the client. So by any name
//! only those count whose script looks whether it has made them: [`attempts`] has the forms.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::attempts::{Attempt, Attempts};
use base::words::last_name;

/// Of a longer script the beginning is looked at, bytes.
const TEXT_BYTES_MAX: u64 = 256 << 10;
/// Scripts that a script reads in whose text counts as its own.
const READ_IN_MAX: usize = 8;
/// How far above a program its script is looked for: `timeout`, `env` and the like are between them.
const PARENTS_MAX: usize = 4;
/// Scripts that are kept in mind.
const KNOWN_MAX: usize = 256;

/// A process, and the words with which it was called.
type Called = (u32, Vec<Vec<u8>>);

/// What is known of the scripts of a task.
#[derive(Debug, Default)]
pub struct Scripts {
    /// By the words, too, for a process may have become another program.
    known: RefCell<HashMap<Called, Rc<Attempts>>>,
}

/// Interpreters, without their versions.
const INTERPRETERS: [&[u8]; 18] = [
    b"sh", b"bash", b"dash", b"zsh", b"ksh", b"mksh", b"yash", b"ash", b"fish", b"python", b"pypy", b"perl", b"ruby",
    b"php", b"lua", b"tclsh", b"wish", b"expect",
];

/// Whether a process interprets a script, which makes a file that must not be there as a lock (`set -C`) more than for any other reason.
fn is_interpreted(process: u32) -> bool {
    let name = program(process);
    INTERPRETERS.contains(&without_version(&name)) || name == b"busybox" && is_shell_of_busybox(&words(process))
}

fn without_version(name: &[u8]) -> &[u8] {
    let end = name.iter().position(u8::is_ascii_digit).unwrap_or(name.len());
    name[..end].strip_suffix(b"-").unwrap_or(&name[..end])
}

/// Whether `busybox` is a shell, by how it was called.
fn is_shell_of_busybox(words: &[Vec<u8>]) -> bool {
    let names = words.iter().map(|word| last_name(word)).take(2).skip_while(|name| *name == b"busybox");
    names.take(1).any(|name| matches!(name, b"sh" | b"ash"))
}

/// Whether a process is the engine of programs that are as often large tools: these make files by any name that are no locks.
fn is_engine(process: u32) -> bool {
    let engines = [&b"node"[..], b"nodejs", b"deno", b"bun"];
    engines.contains(&without_version(&program(process)))
}

impl Scripts {
    /// Whether a file of any name that a process opens, and that must not be there, is a lock.
    pub fn open_locks(&self, process: u32) -> bool {
        is_interpreted(process) || is_engine(process) && self.attempts(process).opens_new
    }

    /// Whether the process makes a folder or link of this name for a script that looks whether it was there: the process is the script's
    /// own, or `mkdir NAME`, `ln` or the like that it runs.
    pub fn makes_locks(&self, process: u32, name: &[u8]) -> bool {
        if is_interpreted(process) || is_engine(process) {
            return self.attempts(process).makes_itself;
        }
        let words = words(process);
        let Some(attempt) = Attempt::of(&words) else { return false };
        attempt.is_of_locker()
            || interpreter_above(process).is_some_and(|script| self.attempts(script).has(&attempt, name))
    }

    fn attempts(&self, process: u32) -> Rc<Attempts> {
        let key = (process, words(process));
        if let Some(known) = self.known.borrow().get(&key) {
            return known.clone();
        }
        let attempts = Rc::new(Attempts::in_text(&text(process, &key.1)));
        let mut known = self.known.borrow_mut();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(key, attempts.clone());
        attempts
    }
}

/// Whether a process renames only to where nothing is: `mv` asks for that first in any case, and replaces then what is there.
pub fn renames_to_new(process: u32) -> bool {
    match program(process).as_slice() {
        b"mv" | b"busybox" | b"coreutils" | b"install" => Attempt::of(&words(process)).is_some(),
        _ => true,
    }
}

/// The name of the file of a process's program.
fn program(process: u32) -> Vec<u8> {
    let program = std::fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
    program.file_name().unwrap_or_default().as_bytes().to_vec()
}

fn words(process: u32) -> Vec<Vec<u8>> {
    let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    line.strip_suffix(b"\0").unwrap_or(&line).split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

fn parent(process: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

fn parents(process: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(parent(process), |above| parent(*above)).take(PARENTS_MAX)
}

fn interpreter_above(process: u32) -> Option<u32> {
    parents(process).find(|above| is_interpreted(*above))
}

/// The text that a process interprets: its arguments, the file that these name or that is its input, and what that reads in.
fn text(process: u32, words: &[Vec<u8>]) -> Vec<u8> {
    let mut text = words.get(1..).unwrap_or_default().join(&b'\n');
    text.push(b'\n');
    let script = words.iter().skip(1).find(|word| !word.starts_with(b"-"));
    let folder = match script {
        Some(name) => {
            text.extend(script_text(process, name));
            Path::new(std::ffi::OsStr::from_bytes(name)).parent().map(Path::to_path_buf)
        }
        None => {
            text.extend(beginning(Path::new(&format!("/proc/{process}/fd/0"))).unwrap_or_default());
            None
        }
    };
    let read_in: Vec<Vec<u8>> = names_read_in(&text).take(READ_IN_MAX).map(<[u8]>::to_vec).collect();
    for name in read_in {
        // `$(dirname "$0")/NAME`, or what that is called: it is beside the script more often than not.
        let beside = folder.iter().map(|folder| folder.join(OsString::from_vec(last_name(&name).to_vec())));
        let places = [PathBuf::from(OsString::from_vec(name.clone()))].into_iter().chain(beside);
        let found =
            places.map(|place| script_text(process, place.as_os_str().as_bytes())).find(|text| !text.is_empty());
        text.push(b'\n');
        text.extend(found.unwrap_or_default());
    }
    text
}

/// What shells read in: `. NAME` and `source NAME`, at the beginning of a line.
fn names_read_in(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = text.split(|byte| matches!(byte, b'\n' | b';'));
    lines.filter_map(|line| {
        let line = line.trim_ascii_start();
        let name = line.strip_prefix(b". ").or_else(|| line.strip_prefix(b"source "))?;
        let quoted = |byte: &u8| matches!(byte, b'"' | b'\'');
        let name =
            name.trim_ascii().split(|byte| matches!(byte, b' ' | b'&' | b'|') && !name.contains(&b')')).next()?;
        let start = name.iter().position(|byte| !quoted(byte))?;
        let end = name.iter().rposition(|byte| !quoted(byte))? + 1;
        Some(&name[start..end])
    })
}

/// The text of a script of this name: as the process has it open (shells do), or as it is found from where the process is, or from where
/// those were who started it, for it may have gone elsewhere since.
fn script_text(process: u32, name: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(OsString::from_vec(name.to_vec()));
    let cwd = |process: u32| Path::new(&format!("/proc/{process}/cwd")).join(&path);
    let opened =
        std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_it = |fd: &PathBuf| std::fs::read_link(fd).is_ok_and(|to| to.file_name() == path.file_name());
    let places = opened.filter(is_it).chain([cwd(process)]).chain(parents(process).map(cwd));
    places.filter_map(|place| beginning(&place).ok()).next().unwrap_or_default()
}

fn beginning(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let mut text = Vec::new();
    if file.metadata()?.is_file() {
        file.take(TEXT_BYTES_MAX).read_to_end(&mut text)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A process that has begun.
    fn begun(command: &mut Command) -> Child {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut said = [0];
        std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut said).expect("it has begun");
        child
    }

    fn ended(mut child: Child) {
        child.kill().expect("it runs");
        child.wait().expect("it ended");
    }

    #[test]
    fn a_script_is_known_by_its_text_wherever_that_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("writes");
        std::fs::create_dir(folder.path().join("in")).expect("makes it");
        write("lib.sh", "get() { until mkdir \"$1\"; do :; done; }");
        write("there.sh", "echo; read y; until mkdir busy; do :; done");
        write("moved.sh", "cd in; echo; read y; until mkdir busy; do :; done");
        write("reads.sh", ". \"$(dirname \"$0\")/lib.sh\"\necho; read y; get busy");
        write("none.sh", "echo; read y; mkdir busy; ln -s a b");
        for (script, want) in [("there.sh", true), ("moved.sh", true), ("reads.sh", true), ("none.sh", false)] {
            let child = begun(Command::new("sh").arg(script).current_dir(folder.path()));
            let scripts = Scripts::default();
            let [mkdir, ln] = [&b"mkdir\0busy"[..], b"ln\0-s\0a\0b"].map(|line| {
                let words: Vec<Vec<u8>> = line.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
                Attempt::of(&words).expect("it makes something")
            });
            assert_eq!(scripts.attempts(child.id()).has(&mkdir, b"busy"), want, "{script}");
            assert!(!scripts.attempts(child.id()).has(&ln, b"b"), "{script}");
            assert!(scripts.open_locks(child.id()) && scripts.makes_locks(child.id(), b"busy") == want);
            ended(child);
        }
        let scripts = Scripts::default();
        assert!(
            !scripts.makes_locks(std::process::id(), b"busy") && !scripts.open_locks(std::process::id()),
            "no script"
        );
    }

    #[test]
    fn what_shells_read_in() {
        let text = b"a; . ./x.sh\n  source \"lib/y.sh\" || exit\n. $(dirname \"$0\")/z.sh\nx . no\n";
        let names: Vec<&[u8]> = names_read_in(text).collect();
        assert_eq!(names, [&b"./x.sh"[..], b"lib/y.sh", b"$(dirname \"$0\")/z.sh"]);
    }

    #[test]
    fn busybox_is_a_shell_by_its_name_or_first_word() {
        let is_shell = |line: &str| {
            let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            is_shell_of_busybox(&words)
        };
        assert!(
            is_shell("/bin/sh x")
                && is_shell("busybox ash x")
                && !is_shell("mkdir sh")
                && !is_shell("busybox mkdir sh")
        );
    }
}
