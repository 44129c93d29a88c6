//! Commands that run a command: which one, what of it has to be known before it runs elsewhere; and what is taken off a command that
//! does: `remrun` in front of it, and make's jobserver.

use base::words::last_name;

/// The command without `remrun` in front of it.
pub fn unwrap(argv: &[Vec<u8>]) -> &[Vec<u8>] {
    let mut argv = argv;
    while let [wrapper, program, ..] = argv {
        // With an option first, `remrun` itself is meant.
        if last_name(wrapper) != b"remrun" || program.starts_with(b"-") || program.contains(&b'=') {
            break;
        }
        argv = &argv[1..];
    }
    argv
}

/// A command that runs another one.
struct Wrapper {
    name: &'static [u8],
    /// Options whose value is the next argument.
    with_value: &'static [&'static [u8]],
    /// Arguments of its own before the command.
    own: usize,
}

const fn wrapper(name: &'static [u8], with_value: &'static [&'static [u8]], own: usize) -> Wrapper {
    Wrapper { name, with_value, own }
}

const WRAPPERS: [Wrapper; 7] = [
    wrapper(b"env", &[b"-u", b"-C", b"--unset", b"--chdir"], 0),
    wrapper(b"nice", &[b"-n", b"--adjustment"], 0),
    wrapper(b"nohup", &[], 0),
    wrapper(b"setsid", &[], 0),
    wrapper(b"time", &[b"-f", b"-o", b"--format", b"--output"], 0),
    wrapper(b"timeout", &[b"-k", b"-s", b"--kill-after", b"--signal"], 1),
    wrapper(b"stdbuf", &[b"-i", b"-o", b"-e", b"--input", b"--output", b"--error"], 0),
];

/// Whether a program of this name runs the command that its arguments are.
pub(super) fn is_wrapper(name: &[u8]) -> bool {
    WRAPPERS.iter().any(|wrapper| wrapper.name == name)
}

/// The command that a command runs, of which `name` is the program's; `None` if it is none of these, or runs nothing.
pub fn inner<'a>(name: &[u8], argv: &'a [Vec<u8>]) -> Option<&'a [Vec<u8>]> {
    let wrapper = WRAPPERS.iter().find(|wrapper| wrapper.name == name)?;
    let (mut at, mut own) = (1, wrapper.own);
    while let Some(argument) = argv.get(at) {
        match argument.as_slice() {
            b"--" => at += 1,
            option if wrapper.with_value.contains(&option) => at += 2,
            option if option.starts_with(b"-") => at += 1,
            assignment if name == b"env" && assignment.contains(&b'=') => at += 1,
            _ if own > 0 => {
                own -= 1;
                at += 1;
            }
            _ => return argv.get(at..),
        }
    }
    None
}

/// The environment in which npm does not ask the network whether there is a newer npm, which it does by the way and would be called off for.
pub fn ask_for_no_news(argv: &[Vec<u8>], mut env: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    const NAME: &[u8] = b"npm_config_update_notifier=";
    let runs_npm = |word: &Vec<u8>| last_name(word) == b"npm" || word.windows(4).any(|part| part == b"npm ");
    let is_decided = |entry: &Vec<u8>| entry.len() >= NAME.len() && entry[..NAME.len()].eq_ignore_ascii_case(NAME);
    if argv.iter().any(runs_npm) && !env.iter().any(is_decided) {
        env.push([NAME, b"false"].concat());
    }
    env
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
    if !words[..end].iter().any(&of_server) {
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

    fn words(command: &str) -> Vec<Vec<u8>> {
        command.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn npm_asks_for_no_news() {
        let asks = |command: &str, env: &str| ask_for_no_news(&words(command), words(env)).len() == words(env).len();
        assert!(
            !asks("npm run build", "A=1") && !asks("/usr/bin/npm test", "A=1") && !asks("env B=2 npm run x", "A=1")
        );
        assert!(asks("make build", "A=1") && asks("npm run build", "A=1 NPM_CONFIG_UPDATE_NOTIFIER=true"));
        assert!(!ask_for_no_news(&[b"sh".to_vec(), b"-c".to_vec(), b"npm run x".to_vec()], Vec::new()).is_empty());
    }

    #[test]
    fn remrun_is_taken_off() {
        for (command, want) in [
            ("ccache gcc -c x.c", "ccache gcc -c x.c"),
            ("remrun remrun gcc x.c", "gcc x.c"),
            ("/usr/bin/remrun gcc x.c", "gcc x.c"),
            ("remrun --version", "remrun --version"),
            ("gcc x.c", "gcc x.c"),
        ] {
            assert_eq!(unwrap(&words(command)), words(want), "{command}");
        }
    }

    #[test]
    fn commands_in_commands() {
        for (command, want) in [
            ("env A=1 -u B python3 x.py", Some("python3 x.py")),
            ("env -i A=1 sudo x", Some("sudo x")),
            ("nice -n 5 ccache gcc x.c", Some("ccache gcc x.c")),
            ("nice -5 gcc", Some("gcc")),
            ("timeout -k 5 -s KILL 10 ssh host", Some("ssh host")),
            ("timeout --foreground 10s make -j2", Some("make -j2")),
            ("time -v -o log make", Some("make")),
            ("setsid -w -- x", Some("x")),
            ("stdbuf -oL grep x", Some("grep x")),
            ("nohup sleep 1", Some("sleep 1")),
            ("env", None),
            ("timeout 10", None),
            ("gcc -c x.c", None),
        ] {
            let argv = words(command);
            assert_eq!(inner(&argv[0], &argv), want.map(words).as_deref(), "{command}");
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
