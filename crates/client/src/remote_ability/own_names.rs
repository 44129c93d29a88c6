//! What the kernel tells of this machine by names below `/proc` and `/sys`: a script that reads it elsewhere is told of the worker.
//!
//! The text of a script is looked at, as an argument (`sh -c`) or a file. A name that is put together while it runs is not found, nor
//! what other programs read. Builds ask for processors and memory to choose how many jobs they run: those stay where they are.

use super::own_places::{is_in_name, is_systems};
use super::{Reason, ReasonKind, open_script, text_of_script};
use crate::profile::{Program, is_interpreter};

/// A longer script is not looked at: it is a `configure` or an installer that knows all systems, and names what it may not read.
const SCRIPT_BYTES_MAX: u64 = 64 << 10;
/// What stands for `/proc/` and `/sys/`, by what follows.
const NAMES: &[(&[u8], &str)] = &[
    (
        b"/proc/",
        "buddyinfo bus cmdline config.gz cpuinfo crypto devices diskstats driver filesystems fs interrupts iomem ioports kallsyms kcore \
        loadavg locks mdstat meminfo misc modules mounts net partitions pressure schedstat self/mountinfo self/mounts self/mountstats \
        self/net slabinfo softirqs stat swaps sys sysrq-trigger uptime version vmstat zoneinfo",
    ),
    (b"/sys/", "block bus class dev devices firmware fs hypervisor kernel module power"),
];
/// By these builds choose how many jobs they run.
const OF_JOBS: [&str; 3] = ["cpuinfo", "meminfo", "loadavg"];
/// By these they are known.
const BUILDERS: &str =
    "make gmake ninja samu cmake ctest meson cargo scons waf bazel bitbake configure colcon catkin_make";
/// A name that is another one each time, on every machine.
const RANDOM: &[u8] = b"/proc/sys/kernel/random/uuid";
/// What begins a pattern that all processes fit, or a name that is put together of the number of one.
const PATTERNS: [&[u8]; 8] =
    [b"/proc/[", b"/proc/*", b"/proc/?", b"/proc/{", b"/proc/$", b"/proc/%", b"/proc/'", b"/proc/\""];
/// The script's own numbers, and those of what it has begun.
const OWN_NUMBERS: [&[u8]; 3] = [b"/proc/$$", b"/proc/$!", b"/proc/$BASHPID"];
/// What a line has in which a number is put into a name that is the program's own.
const ASKS_OWN_NUMBER: [&str; 3] = ["getpid", "process.pid", "Process.pid"];
/// Programs that look for processes, where a script calls them.
const FINDERS: [&str; 7] = ["pgrep", "pkill", "pidof", "killall", "fuser", "lsof", "ps"];
/// What a script calls a program after, besides the begin of a line.
const BEFORE_CALLS: &[u8] = b"|;&(`!{'\"";
const WORDS_BEFORE_CALLS: [&[u8]; 8] = [b"if", b"while", b"until", b"then", b"do", b"else", b"elif", b"exec"];

/// Why a script runs here, if an argument is its text or it is a file. Looks at the file system.
pub fn names_of_this_machine(argv: &[Vec<u8>], program: &Program) -> Option<String> {
    let texts = if is_interpreter(program.real.name()) { argv.get(1..).unwrap_or_default() } else { &[] };
    let told = texts.iter().find_map(|text| in_text(text));
    told.or_else(|| in_text(&text_of(program)?)).map(|reason| reason.text)
}

/// What the script holds that is interpreted or executed.
fn text_of(program: &Program) -> Option<Vec<u8>> {
    let executed = || (!is_systems(&program.real)).then_some(&program.real);
    let script = program.script.as_ref().or_else(executed)?;
    let file = open_script(script)?;
    let is_short = file.metadata().ok()?.len() <= SCRIPT_BYTES_MAX;
    is_short.then(|| text_of_script(file, program, SCRIPT_BYTES_MAX)).flatten()
}

/// Why a command runs here that interprets this text.
fn in_text(text: &[u8]) -> Option<Reason> {
    let mut builds = None;
    let mut counts = |name: &str| {
        !OF_JOBS.contains(&name) || !*builds.get_or_insert_with(|| lines(text).any(|line| words(line).any(is_builder)))
    };
    if let Some(name) = lines(text).find_map(finder_in) {
        return Some(Reason {
            kind: ReasonKind::Machine,
            text: format!("{name} is about the processes of this machine"),
        });
    }
    let named = lines(text).flat_map(named_in).find(|(_, name)| counts(name))?;
    let shown = match named {
        (_, "") => "what it looks for in /proc".to_owned(),
        (folder, name) => format!("{}{name}", String::from_utf8_lossy(folder)),
    };
    Some(Reason { kind: ReasonKind::Machine, text: format!("{shown} tells of this machine") })
}

/// The lines that are no comment.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_comment =
        |line: &[u8]| [&b"#"[..], b"//", b"--"].iter().any(|sign| line.trim_ascii_start().starts_with(sign));
    text.split(|byte| *byte == b'\n').filter(move |line| !is_comment(line))
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| !is_in_name(*byte)).filter(|word| !word.is_empty())
}

fn is_builder(word: &[u8]) -> bool {
    BUILDERS.split(' ').any(|builder| builder.as_bytes() == word)
}

/// A program of those that look for processes which a line calls, with arguments.
fn finder_in(line: &[u8]) -> Option<&'static str> {
    FINDERS.into_iter().find(|name| {
        let places = line.windows(name.len()).enumerate().filter(|(_, word)| *word == name.as_bytes());
        places.map(|(at, _)| at).any(|at| {
            let (before, after) = (&line[..at], &line[at + name.len()..]);
            let is_whole = before.last().is_none_or(|byte| !is_in_name(*byte) && *byte != b'/');
            let has_words =
                after.first() == Some(&b' ') && after.get(1).is_some_and(|byte| is_word_of_call(name, *byte));
            let before = before.trim_ascii_end();
            let last = before.rsplit(|byte| !is_in_name(*byte)).next().unwrap_or_default();
            let is_called = before.last().is_none_or(|byte| BEFORE_CALLS.contains(byte));
            is_whole && has_words && (is_called || WORDS_BEFORE_CALLS.contains(&last))
        })
    })
}

/// Whether a word behind a program's name is one for it, by how it begins: `ps` is a common word, and a kind of file.
fn is_word_of_call(name: &str, first: u8) -> bool {
    match name {
        "ps" => matches!(first, b'-' | b'a' | b'e' | b'p' | b'u' | b'x'),
        _ => first.is_ascii_alphanumeric() || b"-$\"'/:.".contains(&first),
    }
}

/// The names of the list in a line: the folder, and what follows; the latter is empty for a pattern.
fn named_in(line: &[u8]) -> impl Iterator<Item = (&'static [u8], &'static str)> {
    let has = |text: &&str| line.windows(text.len()).any(|part| part == text.as_bytes());
    let asks_own = ASKS_OWN_NUMBER.iter().any(has);
    let slashes = line.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let starts = slashes.filter(|at| *at == 0 || !(is_in_name(line[*at - 1]) || line[*at - 1] == b'/'));
    starts.filter_map(move |at| {
        let rest = &line[at..];
        if OWN_NUMBERS.iter().any(|own| rest.starts_with(own)) {
            return None;
        }
        if !asks_own && PATTERNS.iter().any(|pattern| rest.starts_with(pattern)) {
            return Some((&b"/proc/"[..], ""));
        }
        if rest.starts_with(RANDOM) {
            return None;
        }
        NAMES.iter().find_map(|(folder, names)| {
            let rest = rest.strip_prefix(*folder)?;
            let is_it = |name: &&str| {
                let after = rest.strip_prefix(name.as_bytes());
                after.is_some_and(|after| after.first().is_none_or(|next| !is_in_name(*next)))
            };
            Some((*folder, names.split(' ').find(is_it)?))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    fn why(text: &str) -> Option<String> {
        in_text(text.as_bytes()).map(|reason| reason.text)
    }

    #[test]
    fn names_in_scripts() {
        let meminfo = Some("/proc/meminfo tells of this machine".to_owned());
        assert_eq!(why("cat /proc/meminfo /proc/mounts /proc/loadavg"), meminfo);
        assert_eq!(why("open('/proc/meminfo').read()"), meminfo);
        for text in [
            "x=$(cut -d' ' -f1 </proc/loadavg)",
            "cat /proc/net/dev",
            "awk '{print}' /proc/stat",
            "read v < \"/proc/version\"",
            "ls /sys/module/kvm",
            "for p in /proc/[0-9]*; do :; done",
            "cat /proc/self/mountinfo",
            "grep x /proc/mounts; make",
            "cat /sys/class/net/*/address",
            "cat /proc/sys/kernel/osrelease",
            "[ -d /proc/$(cat d.pid) ] && echo running",
            "[ -e \"/proc/$pid/status\" ]",
            "os.path.exists('/proc/%d' % pid)",
            "os.path.isdir('/proc/' + str(pid))",
            "pgrep -x server || ./server",
            "if ps -p $(cat d.pid) > /dev/null; then",
            "ps ax | grep server",
            "x=$(pidof server)",
            "pkill -f server",
            "subprocess.run('lsof -i :80', shell=True)",
        ] {
            assert!(why(text).is_some(), "{text}");
        }
        for text in [
            "cat /proc/self/status",
            "cat /proc/$$/stat",
            "cat /proc/self/stat",
            "id=$(cat /proc/sys/kernel/random/uuid)",
            "cat ./proc/meminfo root/proc/stat",
            "cat /proc/statistics",
            "# as /proc/meminfo has it\ntrue",
            "#include </proc/stat>",
            "cat /proc/$!/status /proc/$BASHPID/stat",
            "open('/proc/%d/status' % os.getpid()).read()",
            "open(f'/proc/{os.getpid()}/status').read()",
            "gs -o out.ps in.pdf; convert a.ps a.png",
            "echo ps is a program",
            "./pgrep.sh x; my-pidof y",
            "pidof = 3",
        ] {
            assert_eq!(why(text), None, "{text}");
        }
    }

    #[test]
    fn builds_may_count_processors() {
        for text in [
            "make -j$(grep -c ^processor /proc/cpuinfo)",
            "n=`grep -c processor /proc/cpuinfo`\ncmake --build . -j $n",
            "awk '/MemFree/' /proc/meminfo; ./configure",
            "ninja -l $(cut -d. -f1 /proc/loadavg)",
        ] {
            assert_eq!(why(text), None, "{text}");
        }
        assert!(why("grep -c ^processor /proc/cpuinfo").is_some());
        assert!(why("# then make\ngrep -c ^processor /proc/cpuinfo").is_some());
    }

    #[test]
    fn files_are_looked_at_that_are_scripts() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report");
        let path = base::TreePath::parse(file.as_os_str().as_bytes()).unwrap();
        let sh = crate::profile::identify(&[b"sh".to_vec()], &[], &base::TreePath::root()).unwrap();
        let why = |text: &str, is_executed: bool| {
            std::fs::write(&file, text).unwrap();
            let program = match is_executed {
                true => Program { real: path.clone(), script: None, ..sh.clone() },
                false => Program { script: Some(path.clone()), ..sh.clone() },
            };
            names_of_this_machine(&[b"sh".to_vec(), file.as_os_str().as_bytes().to_vec()], &program)
        };
        assert!(why("#!/bin/sh\ncat /proc/uptime\n", true).is_some() && why("cat /proc/uptime\n", false).is_some());
        assert_eq!(why("\x7fELF /proc/uptime", true), None, "a program");
        let configure = format!("#!/bin/sh\ncat /proc/uptime\n{}", "# x\n".repeat(20_000));
        assert_eq!(why(&configure, true), None, "it is too long to be about this machine");
        let words = [b"sh".to_vec(), b"-c".to_vec(), b"cat /proc/swaps".to_vec()];
        assert!(names_of_this_machine(&words, &sh).is_some());
        let gcc = Program { real: base::TreePath::parse(b"/usr/bin/gcc").unwrap(), ..sh };
        assert_eq!(names_of_this_machine(&[b"gcc".to_vec(), b"-DX=\"/proc/stat\"".to_vec()], &gcc), None);
    }
}
