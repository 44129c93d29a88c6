//! Which program a command is: the key under which its profile (the paths that it uses) is kept, and the program's file
//! as the command's own environment finds it.

use crate::remote_ability;
use crate::snapshot::disk::walk;
use crate::views::closure::{first_line, open};
use base::TreePath;
use base::words::last_name;
use rustix::fs::{Access, AtFlags, CWD};

/// The key of a view: a program, and what it interprets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ViewKey {
    /// The program's file, links followed.
    pub program: TreePath,
    /// The path of the script, or what else tells its uses apart (`-m module`, the name under which a program of many
    /// names was called).
    pub variant: Option<Vec<u8>>,
}

/// A command's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Under which its profile is kept.
    pub key: ViewKey,
    /// Its path as found, before links are followed.
    pub path: TreePath,
    /// Its file, links followed.
    pub real: TreePath,
    /// The script that it is to interpret, as the arguments name it.
    pub script: Option<TreePath>,
}

/// There is no such program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// Nothing of this name.
    #[error("{0}: command not found")]
    Missing(String),
    /// It is there, but may not be executed.
    #[error("{0}: permission denied")]
    NotExecutable(String),
}

impl NotFound {
    /// What a shell exits with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Missing(_) => 127,
            Self::NotExecutable(_) => 126,
        }
    }
}

/// Commands that run commands that run commands.
const WRAPPERS_MAX: usize = 8;

const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// Finds a command's program as `execvp` would with this environment in this directory.
pub fn identify(argv: &[Vec<u8>], env: &[Vec<u8>], cwd: &TreePath) -> Result<Program, NotFound> {
    let name = argv.first().map_or(&b""[..], |name| name);
    let path = find(name, env, cwd)?;
    let real = walk(&path, &mut |_| {}).unwrap_or_else(|| path.clone());
    if let Some(inner) = remote_ability::inner(real.name(), argv) {
        // The key is the program's that env runs; what is executed is env.
        if let Ok(inner) = identify(inner, env, cwd) {
            return Ok(Program { key: inner.key, path, real, script: inner.script });
        }
    }
    let script = match is_interpreter(real.name()) {
        true => script_of(real.name(), argv.get(1..).unwrap_or_default()),
        false => Script::None,
    };
    let (variant, script) = match script {
        Script::Path(text) => {
            let script = cwd.resolve(text);
            (script.as_ref().map(|path| path.as_bytes().to_vec()), script)
        }
        Script::Module(module) => (Some([b"-m ", module].concat()), None),
        // gcc is gcc-12, but rustup is cargo as well: such a program of many names has a view for each.
        Script::None if !contains(real.name(), path.name()) => (Some(path.name().to_vec()), None),
        Script::None => (None, None),
    };
    Ok(Program { key: ViewKey { program: real.clone(), variant }, path, real, script })
}

/// A command, and what it runs (`env`, `nice`, `timeout`), which is judged as if it stood alone: from the outermost to the innermost, each
/// with its program.
pub fn layers<'a>(
    argv: &'a [Vec<u8>],
    program: &Program,
    env: &[Vec<u8>],
    cwd: &TreePath,
) -> Vec<(&'a [Vec<u8>], Program)> {
    let mut layers = vec![(argv, program.clone())];
    while let Some((argv, program)) = layers.last().filter(|_| layers.len() < WRAPPERS_MAX) {
        let Some(inner) = remote_ability::inner(program.real.name(), argv) else { break };
        let argv = remote_ability::unwrap(inner);
        let Ok(found) = identify(argv, env, cwd) else { break };
        layers.push((argv, found));
    }
    layers
}

/// The program called `name` in the usual folders, for scripts that begin with `#!/usr/bin/env name`.
pub(crate) fn find_in_default_path(name: &[u8]) -> Option<TreePath> {
    find(name, &[], &TreePath::root()).ok()
}

fn find(name: &[u8], env: &[Vec<u8>], cwd: &TreePath) -> Result<TreePath, NotFound> {
    let printable = || base::path::printable(name);
    if name.is_empty() {
        return Err(NotFound::Missing(printable()));
    }
    let mut closed = false;
    let mut executable = |path: &TreePath| match execution(path) {
        Execution::Yes => true,
        Execution::Closed => {
            closed = true;
            false
        }
        Execution::No => false,
    };
    let found = if name.contains(&b'/') {
        cwd.resolve_physical(name).filter(&mut executable)
    } else {
        let list = env.iter().find_map(|entry| entry.strip_prefix(b"PATH=")).unwrap_or(DEFAULT_PATH);
        let mut folders = list.split(|byte| *byte == b':');
        folders.find_map(|folder| cwd.resolve(folder)?.resolve(name).filter(&mut executable))
    };
    found.ok_or_else(|| if closed { NotFound::NotExecutable(printable()) } else { NotFound::Missing(printable()) })
}

/// Resolving names as the kernel does, where `..` follows a link.
trait ResolvePhysical {
    fn resolve_physical(&self, bytes: &[u8]) -> Option<TreePath>;
}

impl ResolvePhysical for TreePath {
    fn resolve_physical(&self, bytes: &[u8]) -> Option<TreePath> {
        if !bytes.split(|byte| *byte == b'/').any(|part| part == b"..") {
            return self.resolve(bytes);
        }
        let mut at = if bytes.starts_with(b"/") { TreePath::root() } else { self.clone() };
        let parts: Vec<&[u8]> = bytes.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
        for part in parts {
            at = match part {
                b".." => walk(&at, &mut |_| {})?.parent().unwrap_or_else(TreePath::root),
                name if base::path::is_plain_name(name) => at.join(name),
                _ => return None,
            };
        }
        Some(at)
    }
}

enum Execution {
    Yes,
    Closed,
    No,
}

fn execution(path: &TreePath) -> Execution {
    use rustix::fs::FileType;
    let Ok(stat) = rustix::fs::stat(path.as_bytes()) else { return Execution::No };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Execution::Closed;
    }
    match rustix::fs::accessat(CWD, path.as_bytes(), Access::EXEC_OK, AtFlags::EACCESS) {
        Ok(()) => Execution::Yes,
        Err(_) => Execution::Closed,
    }
}

/// The name of the interpreter that the file of a program names in its first line, if it is a script.
pub(crate) fn interpreter_of(program: &TreePath) -> Option<Vec<u8>> {
    let (interpreter, argument) = first_line(&open(program)?)?;
    match (last_name(&interpreter), &argument) {
        (b"env", Some(argument)) => Some(last_name(argument).to_vec()),
        (name, _) => Some(name.to_vec()),
    }
}

/// Programs whose uses are as different as their scripts.
pub(crate) fn is_interpreter(name: &[u8]) -> bool {
    const NAMES: &[&[u8]] = &[
        b"sh", b"bash", b"dash", b"zsh", b"ksh", b"fish", b"busybox", b"node", b"nodejs", b"deno", b"bun", b"lua",
        b"luajit", b"php", b"Rscript", b"R", b"guile", b"java", b"awk", b"gawk", b"mawk", b"wish", b"expect", b"sbcl",
        b"julia", b"pypy3",
    ];
    const STARTS: &[&[u8]] = &[b"python", b"perl", b"ruby", b"lua5", b"tclsh", b"php8", b"php7", b"pypy"];
    NAMES.contains(&name) || STARTS.iter().any(|start| name.starts_with(start))
}

enum Script<'a> {
    Path(&'a [u8]),
    Module(&'a [u8]),
    None,
}

/// What an interpreter's arguments say of its script.
fn script_of<'a>(interpreter: &[u8], arguments: &'a [Vec<u8>]) -> Script<'a> {
    let starts = |text: &[u8]| interpreter.starts_with(text);
    // Options that have a value of their own, and those after which there is no script.
    let (with_value, without_script): (&[&[u8]], &[&[u8]]) = if starts(b"python") || starts(b"pypy") {
        (&[b"-W", b"-X", b"--check-hash-based-pycs"], &[b"-c"])
    } else if starts(b"perl") {
        (&[b"-I"], &[b"-e", b"-E"])
    } else if starts(b"ruby") {
        (&[b"-I", b"-r", b"-C"], &[b"-e"])
    } else if interpreter == b"node" || interpreter == b"nodejs" {
        (&[b"-r", b"--require", b"--import", b"--loader"], &[b"-e", b"-p", b"--eval", b"--print"])
    } else if interpreter == b"java" {
        (&[b"-cp", b"-classpath", b"--class-path", b"-p", b"--module-path"], &[])
    } else if matches!(interpreter, b"awk" | b"gawk" | b"mawk") {
        let file = arguments.iter().position(|argument| argument == b"-f").and_then(|at| arguments.get(at + 1));
        return file.map_or(Script::None, |file| Script::Path(file));
    } else {
        (&[b"-o", b"-O", b"+o", b"--rcfile", b"--init-file"], &[b"-c"])
    };
    let mut at = 0;
    while let Some(argument) = arguments.get(at).map(Vec::as_slice) {
        match argument {
            b"-m" if starts(b"python") || starts(b"pypy") => {
                return arguments.get(at + 1).map_or(Script::None, |module| Script::Module(module));
            }
            b"-jar" if interpreter == b"java" => {
                return arguments.get(at + 1).map_or(Script::None, |jar| Script::Path(jar));
            }
            b"--" => return arguments.get(at + 1).map_or(Script::None, |script| Script::Path(script)),
            option if with_value.contains(&option) => at += 2,
            option if without_script.contains(&option) || is_shell_command(option, without_script) => {
                return Script::None;
            }
            option if option.len() > 1 && matches!(option[0], b'-' | b'+') => at += 1,
            b"-" => return Script::None,
            class if interpreter == b"java" => return Script::Module(class),
            script => return Script::Path(script),
        }
    }
    Script::None
}

/// Whether these are letters of a shell with `c` among them: `-ec`, `-xec`.
fn is_shell_command(option: &[u8], without_script: &[&[u8]]) -> bool {
    without_script.contains(&&b"-c"[..])
        && option.len() > 2
        && option[0] == b'-'
        && option[1..].iter().all(u8::is_ascii_lowercase)
        && option.ends_with(b"c")
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len().max(1)).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Tree {
        folder: tempfile::TempDir,
        root: TreePath,
    }

    impl Tree {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let root = TreePath::parse(fs::canonicalize(folder.path()).unwrap().as_os_str().as_bytes()).unwrap();
            fs::create_dir_all(folder.path().join("bin")).unwrap();
            for (name, mode) in
                [("gcc-12", 0o755), ("python3.11", 0o755), ("bash", 0o755), ("rustup", 0o755), ("data", 0o644)]
            {
                let path = folder.path().join("bin").join(name);
                fs::write(&path, b"").unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
            for (name, target) in
                [("gcc", "gcc-12"), ("cc", "gcc"), ("python3", "python3.11"), ("cargo", "rustup"), ("sh", "bash")]
            {
                symlink(target, folder.path().join("bin").join(name)).unwrap();
            }
            Self { folder, root }
        }

        fn identify(&self, command: &str) -> Result<Program, NotFound> {
            let argv: Vec<Vec<u8>> = command.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            let env = [format!("PATH=/none:{}/bin:/usr/bin:/bin", self.folder.path().display()).into_bytes()];
            identify(&argv, &env, &self.root)
        }

        fn at(&self, name: &str) -> TreePath {
            self.root.resolve(name.as_bytes()).unwrap()
        }
    }

    #[test]
    fn links_are_followed_for_the_key_only() {
        let tree = Tree::new();
        let program = tree.identify("cc -c x.c").unwrap();
        assert_eq!((program.path, program.real), (tree.at("bin/cc"), tree.at("bin/gcc-12")));
        assert_eq!(program.key, ViewKey { program: tree.at("bin/gcc-12"), variant: None });
        assert_eq!(tree.identify("cargo build").unwrap().key.variant.as_deref(), Some(&b"cargo"[..]));
        assert_eq!(tree.identify("bin/gcc").unwrap().path, tree.at("bin/gcc"));
        assert_eq!(tree.identify("./bin/../bin/gcc").unwrap().path, tree.at("bin/gcc"));
    }

    #[test]
    fn scripts_have_views_of_their_own() {
        let tree = Tree::new();
        for (command, script) in [
            ("python3 tool.py x", Some("tool.py")),
            ("python3 -u -W ignore tool.py", Some("tool.py")),
            ("python3 -c print()", None),
            ("sh run.sh", Some("run.sh")),
            ("bash -o pipefail -e run.sh", Some("run.sh")),
            ("sh -c ls", None),
            ("bash -ec ls", None),
            ("bash -- run.sh", Some("run.sh")),
            ("python3", None),
        ] {
            let program = tree.identify(command).unwrap();
            assert_eq!(program.script, script.map(|name| tree.at(name)), "{command}");
        }
        assert_eq!(tree.identify("python3 -m pip list").unwrap().key.variant.as_deref(), Some(&b"-m pip"[..]));
        let key = tree.identify("python3 tool.py").unwrap().key;
        assert_eq!(tree.identify("env A=1 -u B python3 tool.py").unwrap().key, key);
        assert_eq!(tree.identify("nice -n 3 timeout 9 python3 tool.py").unwrap().key, key);
    }

    #[test]
    fn what_a_command_runs_stands_alone() {
        let tree = Tree::new();
        let layers = |command: &str| {
            let argv: Vec<Vec<u8>> = command.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            let env = [format!("PATH={}/bin:/usr/bin:/bin", tree.folder.path().display()).into_bytes()];
            let program = identify(&argv, &env, &tree.root).unwrap();
            let layers = layers(&argv, &program, &env, &tree.root);
            layers.iter().map(|(argv, program)| (argv.len(), program.path.name().to_vec())).collect::<Vec<_>>()
        };
        let names = |found: &[(usize, &str)]| -> Vec<(usize, Vec<u8>)> {
            found.iter().map(|(len, name)| (*len, name.as_bytes().to_vec())).collect()
        };
        assert_eq!(layers("cargo build"), names(&[(2, "cargo")]));
        assert_eq!(layers("env A=1 timeout 60 cargo build"), names(&[(6, "env"), (4, "timeout"), (2, "cargo")]));
        assert_eq!(layers("nice no-such-program"), names(&[(2, "nice")]));
    }

    #[test]
    fn a_script_is_its_interpreters() {
        let tree = Tree::new();
        for (head, want) in [
            ("#!/bin/sh\n", Some("sh")),
            ("#! /usr/bin/env -S python3 -u\n", Some("python3")),
            ("#!/usr/bin/env bash\n", Some("bash")),
            ("\x7fELF", None),
        ] {
            fs::write(tree.folder.path().join("tool"), head).unwrap();
            assert_eq!(interpreter_of(&tree.at("tool")), want.map(|name| name.as_bytes().to_vec()), "{head}");
        }
    }

    #[test]
    fn what_cannot_be_run() {
        let tree = Tree::new();
        assert_eq!(tree.identify("nothing-of-this-name").unwrap_err().exit_code(), 127);
        assert_eq!(tree.identify("data").unwrap_err().exit_code(), 126);
        assert_eq!(tree.identify("./bin/data").unwrap_err().to_string(), "./bin/data: permission denied");
        assert_eq!(tree.identify("bin").unwrap_err().exit_code(), 127);
        assert!(identify(&[], &[], &tree.root).is_err());
    }
}
