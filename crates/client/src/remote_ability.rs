//! Which commands cannot be run elsewhere as if here, and why; and what is taken off those that can.

use crate::profile::Program;
use base::path::printable;

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
    /// It needs the network, or a key agent.
    Network,
    /// It shows or changes the state of this machine.
    Machine,
    /// It is a conversation, or a screen.
    Interactive,
    /// It stays, waits for changes, or talks to a process that stays.
    Daemon,
    /// It uses a device or descriptor that does not travel.
    Descriptor,
    /// It asks what processor it runs on: a worker with the same model would do.
    NativeCpu,
    /// It looks at more of the file system than is worth sending.
    WholeTree,
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

use ReasonKind::{Daemon, Interactive, Machine, Network, Privilege};

/// Programs by name, with the reason that each has.
const PROGRAMS: &[(ReasonKind, &[&str])] = &[
    (
        Privilege,
        &[
            "sudo", "sudoedit", "su", "doas", "pkexec", "runuser", "newgrp", "sg", "passwd", "chsh", "chfn", "useradd",
            "usermod", "userdel", "groupadd", "chroot", "unshare", "nsenter", "bwrap", "setpriv", "capsh", "setcap",
            "fakeroot",
        ],
    ),
    (
        Network,
        &[
            "ssh",
            "scp",
            "sftp",
            "sshfs",
            "mosh",
            "ssh-add",
            "ssh-agent",
            "ssh-keygen",
            "ssh-copy-id",
            "telnet",
            "ftp",
            "lftp",
            "nc",
            "ncat",
            "socat",
            "curl",
            "wget",
            "aria2c",
            "ping",
            "ping6",
            "traceroute",
            "tracepath",
            "mtr",
            "dig",
            "host",
            "nslookup",
            "whois",
            "nmap",
            "tcpdump",
            "gpg",
            "gpg2",
            "gpg-agent",
            "gpgconf",
            "pass",
            "op",
            "gh",
            "glab",
            "aws",
            "gcloud",
            "az",
            "kubectl",
            "helm",
            "terraform",
            "rclone",
            "youtube-dl",
            "yt-dlp",
            "mail",
            "sendmail",
        ],
    ),
    (
        Machine,
        &[
            "ps",
            "top",
            "htop",
            "btop",
            "free",
            "df",
            "uptime",
            "vmstat",
            "iostat",
            "iotop",
            "mpstat",
            "sar",
            "pidstat",
            "lsof",
            "fuser",
            "lsblk",
            "blkid",
            "lscpu",
            "lspci",
            "lsusb",
            "lsmem",
            "lshw",
            "dmidecode",
            "sensors",
            "nvidia-smi",
            "rocm-smi",
            "dmesg",
            "journalctl",
            "mount",
            "umount",
            "findmnt",
            "swapon",
            "swapoff",
            "losetup",
            "fdisk",
            "parted",
            "ip",
            "ifconfig",
            "route",
            "ss",
            "netstat",
            "iptables",
            "nft",
            "arp",
            "ethtool",
            "nmcli",
            "who",
            "w",
            "last",
            "users",
            "uname",
            "arch",
            "loginctl",
            "timedatectl",
            "hostnamectl",
            "localectl",
            "sysctl",
            "modprobe",
            "insmod",
            "rmmod",
            "lsmod",
            "pgrep",
            "pkill",
            "pidof",
            "kill",
            "killall",
            "pstree",
            "renice",
            "ionice",
            "chrt",
            "crontab",
            "at",
            "batch",
            "systemctl",
            "service",
            "initctl",
            "shutdown",
            "reboot",
            "poweroff",
            "halt",
            "hwclock",
            "apt",
            "apt-get",
            "apt-cache",
            "aptitude",
            "dpkg",
            "yum",
            "dnf",
            "rpm",
            "zypper",
            "pacman",
            "apk",
            "snap",
            "flatpak",
            "brew",
            "emerge",
            "nix-env",
            "nixos-rebuild",
            "update-alternatives",
            "ldconfig",
            "docker",
            "docker-compose",
            "podman",
            "nerdctl",
            "crictl",
            "ctr",
            "buildah",
            "skopeo",
            "lxc",
            "lxd",
            "incus",
            "vagrant",
            "virsh",
            "virt-install",
            "VBoxManage",
            "machinectl",
            "ipcs",
            "ipcrm",
            "tty",
            "stty",
            "gleaner",
        ],
    ),
    (
        Interactive,
        &[
            "vi",
            "vim",
            "nvim",
            "view",
            "vimdiff",
            "nano",
            "pico",
            "emacs",
            "emacsclient",
            "joe",
            "micro",
            "hx",
            "helix",
            "kak",
            "mcedit",
            "mc",
            "ranger",
            "less",
            "more",
            "most",
            "man",
            "info",
            "screen",
            "tmux",
            "zellij",
            "byobu",
            "fzf",
            "dialog",
            "whiptail",
            "gdb",
            "lldb",
            "strace",
            "ltrace",
            "perf",
            "bpftrace",
            "bpftool",
            "xterm",
            "gnome-terminal",
            "konsole",
            "firefox",
            "chromium",
            "google-chrome",
            "code",
            "gedit",
            "kate",
            "gimp",
            "xdg-open",
            "startx",
            "Xorg",
            "xeyes",
            "glxgears",
            "feh",
            "eog",
            "evince",
            "okular",
            "mpv",
            "vlc",
            "ffplay",
            "aplay",
            "arecord",
            "script",
            "asciinema",
        ],
    ),
    (
        Daemon,
        &[
            "watch",
            "inotifywait",
            "inotifywatch",
            "entr",
            "watchman",
            "watchexec",
            "nodemon",
            "fswatch",
            "gradle",
            "gradlew",
            "bazel",
            "bazelisk",
            "buck",
            "buck2",
            "pants",
            "sshd",
            "nginx",
            "httpd",
            "apache2",
            "redis-server",
            "postgres",
            "pg_ctl",
            "mysqld",
            "mariadbd",
            "mongod",
            "memcached",
            "dockerd",
            "containerd",
            "cron",
            "crond",
            "cupsd",
            "dbus-daemon",
            "systemd",
            "pm2",
            "supervisord",
            "gunicorn",
            "uvicorn",
        ],
    ),
];

fn sentence(kind: ReasonKind, name: &str) -> String {
    match kind {
        Privilege => format!("{name} takes on other rights, which it can only get on this machine"),
        Network => format!("{name} needs the network or your keys, which commands elsewhere do not have"),
        Machine => format!("{name} is about this machine itself"),
        Interactive => format!("{name} works with your screen or with processes of this machine"),
        Daemon => format!("{name} keeps running, or talks to a process that does, on this machine"),
        _ => format!("{name} works only on this machine"),
    }
}

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
        return reason(Privilege, sentence(Privilege, &called));
    }
    if surroundings.device {
        return reason(ReasonKind::Descriptor, "its input or output is a device of this machine".into());
    }
    let real = String::from_utf8_lossy(program.real.name()).into_owned();
    for name in [&called, &real] {
        let is_of = |(_, names): &&(ReasonKind, &[&str])| names.contains(&name.as_str());
        if let Some((kind, _)) = PROGRAMS.iter().find(is_of) {
            return reason(*kind, sentence(*kind, name));
        }
        if name.starts_with("mkfs") || name.starts_with("fsck") {
            return reason(Machine, sentence(Machine, name));
        }
    }
    let arguments = argv.get(1..).unwrap_or_default();
    by_arguments(&called, arguments, surroundings)
        .or_else(|| arguments.iter().find_map(|argument| of_this_machine(argument)))
        .or_else(|| native_cpu(arguments, env))
}

/// What a command's arguments say, of programs that can run elsewhere otherwise.
fn by_arguments(name: &str, arguments: &[Vec<u8>], surroundings: &Surroundings) -> Option<Reason> {
    let has = |wanted: &[&str]| arguments.iter().any(|argument| wanted.iter().any(|text| text.as_bytes() == argument));
    let first = arguments.iter().find(|argument| !argument.starts_with(b"-")).map_or(&b""[..], |first| first);
    let reason = |kind, text: &str| Some(Reason { kind, text: format!("{name} {text}") });
    match name {
        "tail" if arguments.iter().any(|argument| follows(argument)) => {
            reason(Daemon, "waits for a file of this machine to grow")
        }
        "sh" | "bash" | "dash" | "zsh" | "ksh" | "fish" if surroundings.stdin_terminal && first.is_empty() => {
            reason(Interactive, "without a script is a conversation on this machine")
        }
        "git" => git(arguments, surroundings),
        "hg" | "svn"
            if matches!(first, b"clone" | b"pull" | b"push" | b"update" | b"up" | b"checkout" | b"co" | b"commit") =>
        {
            reason(Network, "may talk to another machine's repository")
        }
        "rsync" if arguments.iter().any(|argument| is_remote_place(argument)) => {
            reason(Network, "copies over the network")
        }
        "find" | "du" | "tree" | "locate" | "updatedb" | "ncdu"
            if has(&["/"]) || name.ends_with("db") || name == "locate" =>
        {
            reason(ReasonKind::WholeTree, "looks at the whole file system, which is not worth sending")
        }
        "grep" | "ls" | "rg" | "fd" if has(&["/"]) && arguments.iter().any(|argument| is_recursive(name, argument)) => {
            reason(ReasonKind::WholeTree, "looks at the whole file system, which is not worth sending")
        }
        "tsc" | "webpack" | "jest" | "vite" | "cargo" | "npm" | "yarn" | "pnpm" | "sass"
            if has(&["--watch", "watch", "--watchAll"]) =>
        {
            reason(Daemon, "waits for files of this machine to change")
        }
        "cargo" if matches!(first, b"login" | b"publish" | b"install" | b"owner" | b"search") => {
            reason(Network, "needs the network or your keys, which commands elsewhere do not have")
        }
        "npm" | "yarn" | "pnpm"
            if matches!(first, b"start" | b"login" | b"publish" | b"whoami" | b"dev" | b"serve") =>
        {
            reason(Network, "needs the network or your keys, which commands elsewhere do not have")
        }
        _ if name.starts_with("python") && has(&["http.server", "jupyter", "notebook"]) => {
            reason(Network, "serves others over the network")
        }
        _ => None,
    }
}

/// `git` commands that need the network, a conversation, or write what only this machine may.
fn git(arguments: &[Vec<u8>], surroundings: &Surroundings) -> Option<Reason> {
    let mut at = 0;
    while let Some(option) = arguments.get(at).filter(|argument| argument.starts_with(b"-")) {
        at += if matches!(option.as_slice(), b"-C" | b"-c" | b"--git-dir" | b"--work-tree") { 2 } else { 1 };
    }
    let command = String::from_utf8_lossy(arguments.get(at)?).into_owned();
    let rest = &arguments[at + 1..];
    let has = |wanted: &[&str]| rest.iter().any(|argument| wanted.iter().any(|text| text.as_bytes() == argument));
    let letters = |letter: u8| {
        rest.iter().any(|argument| {
            argument.len() > 1 && argument[0] == b'-' && argument[1] != b'-' && argument.contains(&letter)
        })
    };
    let reason = |kind, text: &str| Some(Reason { kind, text: format!("git {command} {text}") });
    match command.as_str() {
        "clone" | "fetch" | "pull" | "push" | "ls-remote" | "send-email" | "svn" | "credential" | "lfs" => {
            reason(Network, "needs the network or your keys, which commands elsewhere do not have")
        }
        "init" | "config" | "remote" | "submodule" | "worktree" | "maintenance" | "daemon" | "instaweb" => {
            reason(Machine, "writes what decides how git runs here, which only this machine may")
        }
        "commit" | "merge" | "tag" | "notes"
            if has(&["-S", "-s", "--gpg-sign"]) && command != "commit" || has(&["-S", "--gpg-sign"]) =>
        {
            reason(Network, "signs with your key")
        }
        "commit"
            if !letters(b'm')
                && !letters(b'F')
                && !letters(b'C')
                && !has(&["--no-edit"])
                && !long(rest, &["--message", "--file"]) =>
        {
            reason(Interactive, "opens your editor")
        }
        "rebase" | "add" | "checkout" | "reset" | "stash" if has(&["-i", "--interactive", "-p", "--patch", "-e"]) => {
            reason(Interactive, "asks you questions")
        }
        "difftool" | "mergetool" | "gui" | "citool" => reason(Interactive, "opens a program on your screen"),
        "log" | "diff" | "show" | "blame" if surroundings.stdin_terminal => {
            reason(Interactive, "shows its output page by page on your screen")
        }
        _ => None,
    }
}

fn long(arguments: &[Vec<u8>], names: &[&str]) -> bool {
    arguments.iter().any(|argument| names.iter().any(|name| argument.starts_with(name.as_bytes())))
}

fn follows(argument: &[u8]) -> bool {
    argument.starts_with(b"--follow")
        || (argument.len() > 1
            && argument[0] == b'-'
            && argument[1] != b'-'
            && argument.iter().any(|byte| matches!(byte, b'f' | b'F')))
}

fn is_recursive(name: &str, argument: &[u8]) -> bool {
    let letters = argument.len() > 1 && argument[0] == b'-' && argument[1] != b'-';
    matches!(name, "rg" | "fd")
        || argument == b"--recursive"
        || (letters && argument.contains(&b'R'))
        || (letters && name == "grep" && argument.contains(&b'r'))
}

/// `host:path`, but not `a/b:c`.
fn is_remote_place(argument: &[u8]) -> bool {
    let Some(colon) = argument.iter().position(|byte| *byte == b':') else { return false };
    !argument.starts_with(b"-") && colon > 0 && !argument[..colon].contains(&b'/')
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

/// The command without wrappers in front of it that would cache or send it themselves, and without `remrun`.
pub fn unwrap(argv: &[Vec<u8>]) -> &[Vec<u8>] {
    const WRAPPERS: &[&[u8]] = &[
        b"ccache",
        b"icecc",
        b"icerun",
        b"distcc",
        b"sccache",
        b"buildcache",
        b"fastbuild",
        b"goma",
        b"gomacc",
        b"remrun",
    ];
    let mut argv = argv;
    while let [wrapper, program, ..] = argv {
        let name = wrapper.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        // With an option first, the wrapper itself is meant: ccache --show-stats.
        if !WRAPPERS.contains(&name) || program.starts_with(b"-") || program.contains(&b'=') {
            break;
        }
        argv = &argv[1..];
    }
    argv
}

/// The environment without make's jobserver, whose descriptors do not travel; the rest of `MAKEFLAGS` is kept.
pub fn drop_jobserver(env: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let cleaned = |entry: &Vec<u8>| {
        for name in ["MAKEFLAGS=", "MFLAGS=", "CARGO_MAKEFLAGS="] {
            if let Some(flags) = entry.strip_prefix(name.as_bytes()) {
                return [name.as_bytes(), &without_jobserver(flags)].concat();
            }
        }
        entry.clone()
    };
    env.iter().map(cleaned).collect()
}

fn without_jobserver(flags: &[u8]) -> Vec<u8> {
    let words = make_words(flags);
    let end = words.iter().position(|word| *word == b"--").unwrap_or(words.len());
    let of_server = |word: &&[u8]| word.starts_with(b"--jobserver-");
    if !words[..end].iter().any(|word| of_server(&word)) {
        return flags.to_vec();
    }
    let of_jobs = |word: &[u8]| {
        word == b"--jobs"
            || word.starts_with(b"--jobs=")
            || word.strip_prefix(b"-j").is_some_and(|count| count.iter().all(u8::is_ascii_digit))
    };
    let kept = words.iter().enumerate().filter(|(at, word)| *at >= end || !(of_server(word) || of_jobs(word)));
    let mut joined = kept.map(|(_, word)| *word).collect::<Vec<_>>().join(&b' ');
    // Make tells letters without a dash by there being no space in front.
    if flags.starts_with(b" ") && !joined.is_empty() {
        joined.insert(0, b' ');
    }
    joined
}

/// The words of `MAKEFLAGS`: a backslash keeps a space in its word.
fn make_words(flags: &[u8]) -> Vec<&[u8]> {
    let mut words = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, byte) in flags.iter().enumerate() {
        if *byte == b' ' && !escaped {
            words.push(&flags[start..at]);
            start = at + 1;
        }
        escaped = *byte == b'\\' && !escaped;
    }
    words.push(&flags[start..]);
    words.retain(|word| !word.is_empty());
    words
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
            ("sudo make install", Privilege),
            ("ssh host ls", Network),
            ("gpg -d x", Network),
            ("docker build .", Machine),
            ("ps aux", Machine),
            ("free -m", Machine),
            ("df -h", Machine),
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
            ("git clone x", Network),
            ("git -C a push", Network),
            ("git init", Machine),
            ("git commit", Interactive),
            ("git add -p", Interactive),
            ("rsync -a x host:y", Network),
            ("mkfs.ext4 x", Machine),
            ("curl http://x", Network),
            ("tsc --watch", Daemon),
            ("python3 -m http.server", Network),
            ("git commit -S -m x", Network),
            ("uname -r", Machine),
        ] {
            assert_eq!(kind(command, &[], Surroundings::default()), Some(want), "{command}");
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
            "ffmpeg -i a.mov b.mp4",
            "hostname",
            "id",
            "date",
            "nproc",
            "cp -r a b",
            "git add -A",
            "git checkout main",
            "bash script.sh",
            "tar cf x.tar y",
            "grep -r x .",
            "ls -R",
            "gcc -fast-math-x x.c",
            "cc -o /dev/null x.c",
            "git merge x",
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

    #[test]
    fn wrappers_are_taken_off() {
        for (command, want) in [
            ("ccache gcc -c x.c", "gcc -c x.c"),
            ("/usr/bin/icecc g++ x.c", "g++ x.c"),
            ("remrun remrun gcc x.c", "gcc x.c"),
            ("ccache distcc cc x.c", "cc x.c"),
            ("ccache -s", "ccache -s"),
            ("ccache", "ccache"),
            ("gcc x.c", "gcc x.c"),
        ] {
            assert_eq!(unwrap(&words(command)), words(want), "{command}");
        }
    }

    #[test]
    fn jobservers_are_dropped() {
        for (flags, want) in [
            ("kw -j8 --jobserver-auth=3,4", "kw"),
            ("kw -j8 --jobserver-auth=fifo:/tmp/GMfifo12 -- CC=gcc V=1", "kw -- CC=gcc V=1"),
            (" -j --jobserver-fds=3,4 -Otarget", " -Otarget"),
            ("-j8 --jobserver-auth=3,4", ""),
            (" --jobserver-auth=3,4 --jobserver-style=fifo -j2 -- A=a\\ -j3", " -- A=a\\ -j3"),
            ("k -j8", "k -j8"),
            ("w -- X=--jobserver-auth=3", "w -- X=--jobserver-auth=3"),
            ("", ""),
        ] {
            for name in ["MAKEFLAGS", "MFLAGS", "CARGO_MAKEFLAGS"] {
                let env = [format!("{name}={flags}").into_bytes(), b"OTHER=--jobserver-auth=1".to_vec()];
                let got = drop_jobserver(&env);
                assert_eq!(got, [format!("{name}={want}").into_bytes(), env[1].clone()], "{flags}");
            }
        }
    }
}
