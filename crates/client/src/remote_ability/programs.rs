//! Programs that stay at home by their names, or by what their arguments ask of them.

use super::ReasonKind::{Compilations, Daemon, Interactive, Keys, Machine, Network, Privilege};
use super::{Reason, ReasonKind, Surroundings};

/// Programs by name, separated by spaces, with the reason that each has.
const PROGRAMS: &[(ReasonKind, &str)] = &[
    (
        Privilege,
        "sudo sudoedit su doas pkexec runuser newgrp sg passwd chsh chfn useradd usermod userdel groupadd chroot \
        unshare nsenter bwrap setpriv capsh setcap fakeroot",
    ),
    (Compilations, "ccache sccache distcc icecc icerun buildcache fastbuild fbuild goma gomacc"),
    (
        Keys,
        "ssh scp sftp sshfs mosh ssh-add ssh-agent ssh-keygen ssh-copy-id ping ping6 traceroute tracepath mtr nmap tcpdump \
        gpg gpg2 gpg-agent gpgconf pass op gh glab aws gcloud az kubectl helm terraform rclone mail sendmail",
    ),
    (Network, "telnet ftp lftp nc ncat socat curl wget aria2c dig host nslookup whois youtube-dl yt-dlp"),
    (
        Machine,
        "ps top htop btop free df uptime vmstat iostat iotop mpstat sar pidstat lsof fuser lsblk blkid lscpu \
        lspci lsusb lsmem lshw lsattr chattr filefrag e4defrag btrfs xfs_info xfs_growfs xfs_quota zfs zpool lvs vgs pvs \
        tune2fs resize2fs quota repquota setquota edquota fstrim fsfreeze dmidecode sensors nvidia-smi rocm-smi dmesg journalctl mount umount findmnt \
        swapon swapoff losetup fdisk parted ip ifconfig route ss netstat iptables nft arp ethtool nmcli who w \
        last users arch loginctl timedatectl hostnamectl localectl sysctl modprobe insmod rmmod lsmod \
        pgrep pkill pidof kill killall pstree renice ionice chrt taskset numactl crontab at batch systemctl service initctl \
        shutdown reboot poweroff halt hwclock apt apt-get apt-cache aptitude dpkg yum dnf rpm zypper pacman apk \
        snap flatpak brew emerge nix-env nixos-rebuild update-alternatives ldconfig docker docker-compose \
        podman nerdctl crictl ctr buildah skopeo lxc lxd incus vagrant virsh virt-install VBoxManage machinectl \
        ipcs ipcrm tty logger gleaner",
    ),
    (
        Interactive,
        "vi vim nvim view vimdiff nano pico emacs emacsclient joe micro hx helix kak mcedit mc ranger less more \
        most man info screen tmux zellij byobu fzf dialog whiptail gdb lldb strace ltrace perf bpftrace bpftool \
        xterm gnome-terminal konsole firefox chromium google-chrome code gedit kate gimp xdg-open startx Xorg \
        xeyes glxgears feh eog evince okular mpv vlc ffplay aplay arecord script asciinema",
    ),
    (
        Daemon,
        "watch inotifywait inotifywatch entr watchman watchexec nodemon fswatch gradle gradlew bazel bazelisk \
        buck buck2 pants sshd nginx httpd apache2 redis-server postgres pg_ctl mysqld mariadbd mongod memcached \
        dockerd containerd cron crond cupsd dbus-daemon systemd pm2 supervisord gunicorn uvicorn",
    ),
];

/// The reason that a program of this name has, whatever its arguments.
pub(super) fn kind_of(name: &str) -> Option<ReasonKind> {
    let row = PROGRAMS.iter().find(|(_, names)| names.split(' ').any(|known| known == name))?;
    Some(row.0)
}

/// The sentence for a program of this name.
pub(super) fn sentence(kind: ReasonKind, name: &str) -> String {
    match kind {
        Privilege => format!("{name} takes on other rights, which it can only get on this machine"),
        Keys => format!("{name} needs the network or your keys, which commands elsewhere do not have"),
        Network => format!("{name} needs the network, which commands elsewhere do not have without --net"),
        Machine => format!("{name} is about this machine itself"),
        Interactive => format!("{name} works with your screen or with processes of this machine"),
        Compilations if name == "ccache" => base::door::CCACHE_HERE.to_owned(),
        Compilations => format!("{name} keeps what compilers made on this machine, or sends them elsewhere itself"),
        Daemon => format!("{name} keeps running, or talks to a process that does, on this machine"),
        _ => format!("{name} works only on this machine"),
    }
}

/// What a command's arguments say, of programs that can run elsewhere otherwise.
pub(super) fn by_arguments(name: &str, arguments: &[Vec<u8>], surroundings: &Surroundings) -> Option<Reason> {
    let has = |wanted: &[&str]| arguments.iter().any(|argument| wanted.iter().any(|text| text.as_bytes() == argument));
    let first = arguments.iter().find(|argument| !argument.starts_with(b"-")).map_or(&b""[..], |first| first);
    let reason = |kind, text: &str| Some(Reason { kind, text: format!("{name} {text}") });
    let of_kind = |kind| Some(Reason { kind, text: sentence(kind, name) });
    match name {
        "tail" if arguments.iter().any(|argument| follows(argument)) => {
            reason(Daemon, "waits for a file of this machine to grow")
        }
        "stat" if arguments.iter().any(|argument| asks_file_system(argument)) => {
            reason(Machine, "asks for a file system of this machine")
        }
        "sh" | "bash" | "dash" | "zsh" | "ksh" | "fish" if surroundings.stdin_terminal && first.is_empty() => {
            reason(Interactive, "without a script is a conversation on this machine")
        }
        "git" => git(arguments, surroundings),
        _ if fetches(name, arguments) => reason(Network, "fetches over the network"),
        _ if name.starts_with("python") && module(arguments).is_some_and(|(name, rest)| fetches(&name, rest)) => {
            reason(Network, "fetches over the network")
        }
        "uname" if arguments.iter().any(|argument| tells_release(argument)) => {
            reason(Machine, "tells which kernel this machine runs")
        }
        "hg" | "svn"
            if matches!(first, b"clone" | b"pull" | b"push" | b"update" | b"up" | b"checkout" | b"co" | b"commit") =>
        {
            reason(Keys, "may talk to another machine's repository")
        }
        "rsync" if arguments.iter().any(|argument| is_remote_place(argument)) => {
            reason(Keys, "copies over the network")
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
        "cargo" if matches!(first, b"login" | b"publish" | b"install" | b"owner" | b"search") => of_kind(Keys),
        "cargo" | "uv" if matches!(first, b"new" | b"init") => {
            reason(Machine, "makes a repository, whose settings only this machine may write")
        }
        "npm" | "yarn" | "pnpm"
            if matches!(first, b"start" | b"login" | b"publish" | b"whoami" | b"dev" | b"serve") =>
        {
            of_kind(Keys)
        }
        _ if name.starts_with("python") && has(&["http.server", "jupyter", "notebook"]) => {
            reason(Daemon, "serves others over the network")
        }
        _ => None,
    }
}

/// Whether a package manager is told to fetch what it installs. What it finds out later calls it off ([`base::Watch`]), but only
/// before it has said anything.
fn fetches(name: &str, arguments: &[Vec<u8>]) -> bool {
    let words: &[&str] = match name {
        "npx" | "bunx" | "pipx" | "uvx" => return true,
        _ if name.starts_with("pip") => &["install", "download", "wheel", "index", "search"],
        "npm" | "pnpm" | "yarn" | "bun" => &[
            "install", "i", "ci", "add", "update", "upgrade", "up", "outdated", "audit", "view", "info", "exec", "dlx",
            "create",
        ],
        "uv" => &["pip", "sync", "add", "lock", "tool"],
        "poetry" | "pipenv" | "pdm" => &["install", "add", "update", "lock", "sync"],
        "cargo" => &["fetch", "update", "add"],
        "go" => &["get", "install", "mod"],
        "gem" => &["install", "update", "fetch"],
        "bundle" | "bundler" | "composer" => &["install", "update", "require", "outdated"],
        "conda" | "mamba" | "micromamba" => &["install", "create", "update", "search"],
        "rustup" => &["update", "install", "toolchain", "component", "target"],
        _ => return false,
    };
    let stays = [&b"--no-index"[..], b"--offline"];
    let first = arguments.iter().find(|argument| !argument.starts_with(b"-"));
    first.is_some_and(|first| words.iter().any(|word| word.as_bytes() == first))
        && !arguments.iter().any(|argument| stays.contains(&argument.as_slice()))
}

/// The module that Python is to run, and its arguments.
fn module(arguments: &[Vec<u8>]) -> Option<(String, &[Vec<u8>])> {
    let at = arguments.iter().position(|argument| argument == b"-m")?;
    let name = String::from_utf8_lossy(arguments.get(at + 1)?).into_owned();
    Some((name, &arguments[at + 2..]))
}

/// `git` commands that need the network, a conversation, or write what only this machine may.
/// Whether an argument of `uname` asks for more than system, host name and kind of processor, which are the same elsewhere.
fn tells_release(argument: &[u8]) -> bool {
    match argument.strip_prefix(b"--") {
        Some(long) => !matches!(long, b"kernel-name" | b"nodename" | b"machine" | b"operating-system"),
        None => argument.iter().any(|letter| matches!(letter, b'a' | b'r' | b'v')),
    }
}

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
    let of_kind = |kind| Some(Reason { kind, text: sentence(kind, &format!("git {command}")) });
    match command.as_str() {
        "ls-remote" => of_kind(Network),
        "clone" | "fetch" | "pull" | "push" | "send-email" | "svn" | "credential" | "lfs" => of_kind(Keys),
        "init" | "config" | "remote" | "submodule" | "worktree" | "maintenance" | "daemon" | "instaweb" => {
            reason(Machine, "writes what decides how git runs here, which only this machine may")
        }
        "commit" | "merge" | "tag" | "notes"
            if has(&["-S", "-s", "--gpg-sign"]) && command != "commit" || has(&["-S", "--gpg-sign"]) =>
        {
            reason(Keys, "signs with your key")
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

/// Whether an argument of `stat` is `--file-system`, or has `-f` in it. What follows `-c` is a format.
fn asks_file_system(argument: &[u8]) -> bool {
    match argument {
        b"--file-system" => true,
        [b'-', letters @ ..] if !letters.starts_with(b"-") => {
            letters.iter().take_while(|letter| **letter != b'c').any(|letter| *letter == b'f')
        }
        _ => false,
    }
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
