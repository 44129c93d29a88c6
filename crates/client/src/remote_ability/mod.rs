//! Which commands cannot be run elsewhere as if here, and why; and what is taken off those that can.

mod locking;
mod own_names;
mod own_output;
mod own_places;
mod programs;
mod wrapping;

pub use locking::{fails_if_there, may_lock_by_files};
pub use own_names::names_of_this_machine;
pub use own_output::names_output;
pub use own_places::{script_in_shared_memory, shared_memory};
pub use wrapping::{ask_for_no_news, drop_jobserver, inner, unwrap};

use crate::profile::Program;
use crate::snapshot::disk::open_unseen;
use base::TreePath;
use base::path::printable;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Why a command runs here: a sentence for `gleaner explain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// What sort of reason.
    pub kind: ReasonKind,
    /// The sentence.
    pub text: String,
}

/// What sort of reason keeps a command here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasonKind {
    /// It needs rights that only this machine gives.
    Privilege,
    /// It needs the network.
    Network,
    /// It needs keys of its user's, or a network that a worker does not have.
    Keys,
    /// It shows or changes the state of this machine.
    Machine,
    /// It is a conversation, or a screen.
    Interactive,
    /// It stays, waits for changes, or talks to a process that stays.
    Daemon,
    /// It keeps what compilers made in a cache here, or sends them elsewhere itself.
    Compilations,
    /// It uses a device or descriptor that does not travel.
    Descriptor,
    /// It asks what processor it runs on: a worker with the same model would do.
    NativeCpu,
    /// It looks at more of the file system than is worth sending.
    WholeTree,
    /// Elsewhere it does the same, or is refused something; here it does more. With `--no-local` it runs elsewhere.
    Better,
}

/// What is known of the command's surroundings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Surroundings {
    /// The program's file changes user or group when it is executed, or has capabilities.
    pub set_id: bool,
    /// Standard input is a terminal.
    pub stdin_terminal: bool,
    /// Standard input, output or error is a device that is neither a terminal nor `/dev/null`.
    pub device: bool,
}

use ReasonKind::{Machine, Privilege};

/// Why this command cannot be run elsewhere as if here; `None` if it can, as far as one can tell.
pub fn cannot_run_remotely(
    argv: &[Vec<u8>],
    program: &Program,
    env: &[Vec<u8>],
    surroundings: &Surroundings,
) -> Option<Reason> {
    let reason = |kind, text: String| Some(Reason { kind, text });
    let called = String::from_utf8_lossy(program.path.name()).into_owned();
    if surroundings.set_id {
        return reason(Privilege, programs::sentence(Privilege, &called));
    }
    if surroundings.device {
        return reason(ReasonKind::Descriptor, "its input or output is a device of this machine".into());
    }
    let real = String::from_utf8_lossy(program.real.name()).into_owned();
    for name in [&called, &real] {
        if let Some(kind) = programs::kind_of(name) {
            return reason(kind, programs::sentence(kind, name));
        }
        if name.starts_with("mkfs") || name.starts_with("fsck") {
            return reason(Machine, programs::sentence(Machine, name));
        }
    }
    let arguments = argv.get(1..).unwrap_or_default();
    programs::by_arguments(&called, arguments, surroundings)
        .or_else(|| arguments.iter().find_map(|argument| of_this_machine(argument)))
        .or_else(|| arguments.iter().find_map(|argument| own_places::mentioned(argument)))
        .or_else(|| native_cpu(arguments, env))
}

/// Paths that mean something else on every machine.
fn of_this_machine(argument: &[u8]) -> Option<Reason> {
    const DEVICES: &[&str] = &[
        "null", "zero", "full", "random", "urandom", "tty", "stdin", "stdout", "stderr", "ptmx", "fd/0", "fd/1", "fd/2",
    ];
    let value = argument.iter().position(|byte| *byte == b'=').map(|at| &argument[at + 1..]);
    for text in [Some(argument), value].into_iter().flatten() {
        let shown = printable(text);
        let of = |kind, why: &str| Some(Reason { kind, text: format!("{shown} {why}") });
        if let Some(name) = text.strip_prefix(b"/dev/") {
            if DEVICES.iter().any(|device| device.as_bytes() == name) || name.is_empty() {
                continue;
            }
            return match name.starts_with(b"fd/") {
                true => of(ReasonKind::Descriptor, "is an open descriptor of this machine, which does not travel"),
                false => of(ReasonKind::Descriptor, "is a device of this machine"),
            };
        }
        if text.starts_with(b"/proc/self/fd/") {
            return of(ReasonKind::Descriptor, "is an open descriptor of this machine, which does not travel");
        }
        if ["/proc/", "/sys/"].iter().any(|folder| text.starts_with(folder.as_bytes()))
            || matches!(text, b"/proc" | b"/sys" | b"/dev")
        {
            return of(Machine, "shows this machine's own state");
        }
    }
    None
}

fn native_cpu(arguments: &[Vec<u8>], env: &[Vec<u8>]) -> Option<Reason> {
    const NATIVE: &[&str] =
        &["-march=native", "-mtune=native", "-mcpu=native", "target-cpu=native", "-xHost", "-xhost", "-fast"];
    const VARIABLES: &[&str] = &[
        "CFLAGS",
        "CXXFLAGS",
        "CPPFLAGS",
        "FFLAGS",
        "FCFLAGS",
        "LDFLAGS",
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_BUILD_RUSTFLAGS",
        "CGO_CFLAGS",
        "CC",
        "CXX",
        "NVCC_APPEND_FLAGS",
    ];
    let find = |text: &[u8]| {
        let text = String::from_utf8_lossy(text).into_owned();
        // The last two only as whole words.
        let is = |native: &&&str| match native.starts_with("-x") || **native == "-fast" {
            true => text.split_whitespace().any(|word| word == **native),
            false => text.contains(**native),
        };
        NATIVE.iter().find(is).copied()
    };
    let in_variable = |entry: &Vec<u8>| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        VARIABLES.iter().any(|name| name.as_bytes() == &entry[..at]).then(|| find(&entry[at + 1..]))?
    };
    let native = arguments.iter().find_map(|argument| find(argument)).or_else(|| env.iter().find_map(in_variable))?;
    Some(Reason {
        kind: ReasonKind::NativeCpu,
        text: format!("{native} makes code for this machine's processor, and another may have a different one"),
    })
}

/// Whether the program at `path` (links followed) changes user or group, or has capabilities, when it is executed here.
pub fn changes_rights(path: &base::TreePath) -> bool {
    let Ok(stat) = rustix::fs::stat(path.as_bytes()) else { return false };
    stat.st_mode & 0o6000 != 0
        || rustix::fs::getxattr(path.as_bytes(), "security.capability", &mut [0u8; 64][..]).is_ok()
}

/// Whether two of this command must not run in one tree at once: its lock files would not be seen by the other.
pub fn wants_tree_alone(program: &Program) -> bool {
    const ALONE: &[&[u8]] =
        &[b"git", b"hg", b"svn", b"jj", b"cargo", b"npm", b"yarn", b"pnpm", b"pip", b"pip3", b"poetry"];
    ALONE.contains(&program.path.name()) || ALONE.contains(&program.real.name())
}

/// Opens what a program interprets or is.
fn open_script(script: &TreePath) -> Option<File> {
    open_unseen(Path::new(OsStr::from_bytes(script.as_bytes()))).ok()
}

/// The text of an opened script, so many bytes of it; `None`: the program interprets none, and the file begins with no `#!`.
fn text_of_script(mut file: File, program: &Program, bytes_max: u64) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    file.by_ref().take(2).read_to_end(&mut text).ok()?;
    if program.script.is_none() && text != b"#!" {
        return None;
    }
    file.take(bytes_max).read_to_end(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ViewKey;
    use base::TreePath;

    fn words(command: &str) -> Vec<Vec<u8>> {
        command.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    fn program(name: &str) -> Program {
        let path = TreePath::parse(b"/usr/bin").unwrap().join(name.as_bytes());
        Program { key: ViewKey { program: path.clone(), variant: None }, path: path.clone(), real: path, script: None }
    }

    fn kind(command: &str, env: &[&str], surroundings: Surroundings) -> Option<ReasonKind> {
        let argv = words(command);
        let env: Vec<Vec<u8>> = env.iter().map(|entry| entry.as_bytes().to_vec()).collect();
        let program = program(&String::from_utf8_lossy(&argv[0]));
        let reason = cannot_run_remotely(&argv, &program, &env, &surroundings)?;
        assert!(reason.text.len() > 10 && !reason.text.ends_with('.'), "{}", reason.text);
        Some(reason.kind)
    }

    #[test]
    fn commands_that_stay() {
        use ReasonKind::*;
        for (command, want) in [
            ("ccache gcc -c x.c", Compilations),
            ("ccache -s", Compilations),
            ("distcc gcc -c x.c", Compilations),
            ("taskset -c 1 make", Machine),
            ("sudo make install", Privilege),
            ("ssh host ls", Keys),
            ("gpg -d x", Keys),
            ("docker build .", Machine),
            ("ps aux", Machine),
            ("free -m", Machine),
            ("df -h", Machine),
            ("lsattr x", Machine),
            ("stat -fc %T .", Machine),
            ("stat --file-system .", Machine),
            ("vim x", Interactive),
            ("gdb a.out", Interactive),
            ("tail -f log", Daemon),
            ("tail -n1 --follow=name log", Daemon),
            ("watch ls", Daemon),
            ("gradle build", Daemon),
            ("bazel build //x", Daemon),
            ("apt-get install x", Machine),
            ("systemctl status", Machine),
            ("diff /dev/fd/63 /dev/fd/62", Descriptor),
            ("cat /proc/self/fd/5", Descriptor),
            ("dd if=/dev/sda of=x", Descriptor),
            ("cat /proc/cpuinfo", Machine),
            ("gcc -O2 -march=native -c x.c", NativeCpu),
            ("rustc -Ctarget-cpu=native x.rs", NativeCpu),
            ("cc -mtune=native x.c", NativeCpu),
            ("find / -name x", WholeTree),
            ("du -sh /", WholeTree),
            ("grep -rn x /", WholeTree),
            ("git clone x", Keys),
            ("git -C a push", Keys),
            ("git init", Machine),
            ("git checkout main", Better),
            ("git -C a switch -c x", Better),
            ("git branch -u origin/x", Machine),
            ("git sparse-checkout set x", Machine),
            ("git merge x", Better),
            ("git stash", Better),
            ("git reset --hard", Better),
            ("tar -cg snap -f x.tar d", Machine),
            ("tar --listed-incremental=s -cf x.tar d", Machine),
            ("cargo new x", Machine),
            ("git commit", Interactive),
            ("git add -p", Interactive),
            ("rsync -a x host:y", Keys),
            ("mkfs.ext4 x", Machine),
            ("nix build", Machine),
            ("mvnd package", Daemon),
            ("tsc --watch", Daemon),
            ("python3 -m http.server", Daemon),
            ("git commit -S -m x", Keys),
            ("uname -r", Machine),
        ] {
            assert_eq!(kind(command, &[], Surroundings::default()), Some(want), "{command}");
        }
    }

    #[test]
    fn commands_that_fetch_stay() {
        for command in [
            "curl http://x",
            "pip install x",
            "python3 -m pip install -r x",
            "npm ci",
            "go get x",
            "mvn -q dependency:resolve",
            "dotnet restore",
            "cabal update",
            "stack setup",
            "mix do deps.get, compile",
            "conan install .",
            "cpanm Try::Tiny",
            "Rscript -e install.packages('x')",
            "bundle",
            "yarn",
            "composer require x",
            "luarocks install x",
            "opam install x",
            "vcpkg install zlib",
            "meson subprojects download",
            "micromamba create -n x",
            "julia -e Pkg.add(\"x\")",
        ] {
            assert_eq!(kind(command, &[], Surroundings::default()), Some(ReasonKind::Network), "{command}");
        }
    }

    #[test]
    fn commands_that_travel() {
        for command in [
            "gcc -c x.c -o x.o",
            "make -j8",
            "tail -n5 log",
            "tail -5 log",
            "python3 x.py",
            "sh -c ls",
            "diff a b",
            "cat /dev/null",
            "cat /dev/stdin",
            "git status",
            "git commit -m x",
            "git commit -am x",
            "git log",
            "git diff",
            "find . -name x",
            "du -sh .",
            "sort x",
            "gcc -march=x86-64-v3 x.c",
            "rsync -a x y",
            "cargo build",
            "go build",
            "npm run x",
            "mvn -o package",
            "mvn -o dependency:tree",
            "dotnet build --no-restore",
            "cabal build",
            "mix compile",
            "Rscript x.R",
            "bundle exec rake",
            "gem install --local x.gem",
            "yarn build",
            "stack build",
            "swift build",
            "meson setup build",
            "perl x.pl",
            "pip install --no-index x.whl",
            "python3 -m pytest x",
            "ffmpeg -i a.mov b.mp4",
            "hostname",
            "id",
            "date",
            "nproc",
            "stat -c %f x",
            "stat -Lc %f x",
            "cp -r a b",
            "git add -A",
            "git diff --stat x",
            "bash script.sh",
            "tar cf x.tar y",
            "grep -r x .",
            "ls -R",
            "gcc -fast-math-x x.c",
            "cc -o /dev/null x.c",
            "env",
        ] {
            assert_eq!(kind(command, &[], Surroundings::default()), None, "{command}");
        }
    }

    #[test]
    fn surroundings_decide() {
        let of = |surroundings| kind("prog x", &[], surroundings);
        assert_eq!(of(Surroundings { set_id: true, ..Surroundings::default() }), Some(ReasonKind::Privilege));
        assert_eq!(of(Surroundings { device: true, ..Surroundings::default() }), Some(ReasonKind::Descriptor));
        let terminal = Surroundings { stdin_terminal: true, ..Surroundings::default() };
        assert_eq!(kind("bash -l", &[], terminal), Some(ReasonKind::Interactive));
        assert_eq!(kind("bash x.sh", &[], terminal), None);
        assert_eq!(kind("make", &["CFLAGS=-O2 -march=native"], terminal), Some(ReasonKind::NativeCpu));
        assert_eq!(kind("make", &["RUSTFLAGS=-C target-cpu=native"], terminal), Some(ReasonKind::NativeCpu));
        assert_eq!(kind("make", &["NOTES=-march=native"], terminal), None);
    }

    #[test]
    fn programs_that_change_rights() {
        let sudo = TreePath::parse(b"/usr/bin/passwd").unwrap();
        if rustix::fs::stat(sudo.as_bytes()).is_err() {
            println!("SKIPPED: no /usr/bin/passwd here");
            return;
        }
        assert!(changes_rights(&sudo));
        assert!(!changes_rights(&TreePath::parse(b"/usr/bin/env").unwrap()));
    }
}
