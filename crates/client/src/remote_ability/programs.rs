//! Programs that stay at home by their names, or by what their arguments ask of them.

use super::ReasonKind::{Better, Compilations, Daemon, Interactive, Keys, Machine, Network, Privilege};
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
        snap flatpak brew emerge nix nix-env nix-build nix-shell nix-store nix-channel nix-collect-garbage nixos-rebuild guix update-alternatives ldconfig docker docker-compose \
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
        "watch inotifywait inotifywatch entr watchman watchexec nodemon fswatch gradle gradlew mvnd sbt bazel bazelisk \
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
        Privilege => base::watch::takes_rights(name),
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
        "tar" if is_incremental(arguments) => {
            reason(Machine, "notes the numbers of files, which are others on workers")
        }
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

/// Programs that fetch what they are told to install or to look up, with the first words by which they are told; `*`: whatever these
/// are. Goals of Maven and tasks of mix stand anywhere.
const FETCHERS: &[(&str, &str)] = &[
    ("npx bunx pnpx pipx uvx cpan cpanm cpanp wget2 axel http https xh nuget bower pacstrap debootstrap", "*"),
    ("pip", "install download wheel index search"),
    (
        "npm pnpm yarn bun",
        "install i ci add update upgrade up outdated audit view info exec dlx create init install-test it dedupe",
    ),
    ("deno", "install add cache update outdated upgrade"),
    ("uv", "pip sync add lock tool python self"),
    ("poetry pipenv pdm rye pixi hatch", "install add update lock sync self python toolchain search"),
    ("conda mamba micromamba", "install create update upgrade search env"),
    ("pyenv rbenv nodenv asdf mise fnm volta ghcup elan", "install update upgrade use plugin"),
    ("corepack", "install prepare use up"),
    ("pre-commit", "install-hooks autoupdate"),
    ("cargo", "fetch update add generate-lockfile vendor binstall info"),
    ("rustup", "update install toolchain component target default self"),
    ("go", "get install mod"),
    ("gem", "install update fetch search outdated"),
    ("bundle bundler composer", "install update require outdated add create-project global lock"),
    ("pod carthage", "install update bootstrap checkout repo outdated"),
    ("dotnet", "restore add tool workload new nuget"),
    ("mvn mvnw", "dependency: versions: archetype: wrapper: deploy"),
    ("lein", "deps ancient upgrade new"),
    ("cabal", "update install fetch get outdated v2-update v2-install new-update new-install"),
    ("stack", "update setup install upgrade new unpack"),
    ("mix", "deps.get deps.update hex. local.hex local.rebar archive.install escript.install"),
    ("rebar3", "get-deps update upgrade hex"),
    ("conan", "install download search upload config"),
    ("vcpkg", "install update upgrade search fetch"),
    ("spack", "install fetch mirror bootstrap"),
    ("meson", "subprojects wrap"),
    ("carton", "install update"),
    ("luarocks", "install download search"),
    ("opam", "install update upgrade init switch source pin reinstall"),
    ("raco", "pkg"),
    ("swift", "package"),
    ("dart flutter", "pub create upgrade precache"),
    ("elm spago nimble shards dub", "install fetch refresh update upgrade add"),
    ("tlmgr", "install update search"),
    ("ansible-galaxy", "install download collection role"),
    ("dvc", "pull fetch push get import import-url"),
    ("hf huggingface-cli", "download upload repo"),
];
/// What is in a line of code by which an interpreter is told to fetch.
const FETCHING_CODE: &[(&str, &str)] = &[
    (
        "Rscript R",
        "install.packages install_github install_cran update.packages renv::restore renv::install pak:: BiocManager::install \
        remotes::install devtools::install download.file",
    ),
    ("julia", "Pkg.add Pkg.update Pkg.instantiate Pkg.develop"),
    ("perl", "-MCPAN"),
];

/// Whether a package manager is told to fetch what it installs. What it finds out later calls it off ([`base::Watch`]), but only
/// before it has said anything.
fn fetches(name: &str, arguments: &[Vec<u8>]) -> bool {
    let is_of = |names: &str| names.split(' ').any(|known| known == name || known == "pip" && name.starts_with("pip"));
    let code = FETCHING_CODE.iter().find(|(names, _)| is_of(names));
    if let Some((_, words)) = code {
        return arguments.iter().any(|argument| words.split(' ').any(|word| has(argument, word.as_bytes())));
    }
    let Some((_, words)) = FETCHERS.iter().find(|(names, _)| is_of(names)) else { return false };
    let is_maven = matches!(name, "mvn" | "mvnw");
    let stays = |argument: &Vec<u8>| match argument.as_slice() {
        b"--no-index" | b"--offline" | b"--local" | b"--no-remote" => true,
        b"-o" => is_maven,
        _ => false,
    };
    if *words == "*" {
        return true;
    }
    let mut told = arguments.iter().filter(|argument| !argument.starts_with(b"-"));
    // One that ends so has a goal of it behind it.
    let fits = |argument: &[u8], word: &str| match word.ends_with([':', '.']) {
        true => argument.starts_with(word.as_bytes()),
        // mix takes several, divided by commas.
        false => argument.strip_suffix(b",").unwrap_or(argument) == word.as_bytes(),
    };
    let is_told = |argument: &Vec<u8>| words.split(' ').any(|word| fits(argument, word));
    let is_word = match is_maven || name == "mix" {
        true => told.any(is_told),
        false => match told.next() {
            Some(first) => is_told(first),
            // By themselves these install.
            None => matches!(name, "yarn" | "bundle" | "bundler") && arguments.is_empty(),
        },
    };
    is_word && !arguments.iter().any(stays)
}

fn has(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part == word)
}

/// The module that Python is to run, and its arguments.
fn module(arguments: &[Vec<u8>]) -> Option<(String, &[Vec<u8>])> {
    let at = arguments.iter().position(|argument| argument == b"-m")?;
    let name = String::from_utf8_lossy(arguments.get(at + 1)?).into_owned();
    Some((name, &arguments[at + 2..]))
}

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
        "init" | "config" | "remote" | "submodule" | "worktree" | "maintenance" | "daemon" | "instaweb"
        | "sparse-checkout" => reason(Machine, WRITES_SETTINGS),
        // The settings say which branch another one follows.
        "branch" if rest.iter().any(|argument| changes_branch(argument)) => reason(Machine, WRITES_SETTINGS),
        // The index holds when each file of the tree was changed, which for one that is written elsewhere is when it comes here.
        "stash" | "merge" | "rebase" | "cherry-pick" | "revert" | "am" | "restore" | "read-tree"
            if !(has(&["-S", "--gpg-sign", "-i", "--interactive", "-p", "--patch"])
                || command == "stash" && has(&["list", "show"])) =>
        {
            reason(Better, WRITES_TREE)
        }
        "reset" if has(&["--hard", "--merge", "--keep"]) => reason(Better, WRITES_TREE),
        "checkout" if has(&["--", "-f", "--force"]) => reason(Better, WRITES_TREE),
        "checkout" | "switch"
            if rest.iter().take_while(|argument| *argument != b"--").any(|argument| !argument.starts_with(b"-")) =>
        {
            reason(Better, WRITES_SETTINGS)
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

const WRITES_TREE: &str = "notes when the files that it writes were changed, which is told here";
const WRITES_SETTINGS: &str = "writes what decides how git runs here, which only this machine may";

/// Whether `tar` is asked for what has changed since a time before: by the letters of its first word, with or without a dash.
fn is_incremental(arguments: &[Vec<u8>]) -> bool {
    let first = arguments.first().map_or(&b""[..], Vec::as_slice);
    let letters = first.strip_prefix(b"-").unwrap_or(first);
    let has_letter = !letters.starts_with(b"-")
        && letters.iter().take_while(|letter| **letter != b'f').any(|letter| b"gG".contains(letter));
    has_letter || long(arguments, &["--listed-incremental", "--incremental"])
}

/// Whether with this argument `git branch` changes the settings of a branch: which one it follows, or that it is there no more.
fn changes_branch(argument: &[u8]) -> bool {
    const LONG: [&[u8]; 8] = [
        b"--set-upstream",
        b"--unset-upstream",
        b"--track",
        b"--move",
        b"--copy",
        b"--delete",
        b"--edit-description",
        b"--no-track",
    ];
    let letters = argument.strip_prefix(b"-").filter(|letters| !letters.starts_with(b"-")).unwrap_or_default();
    LONG.iter().any(|long| argument.starts_with(long)) || letters.iter().any(|letter| b"utmMcCdD".contains(letter))
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
