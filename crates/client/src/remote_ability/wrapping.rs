//! What is taken off a command that runs elsewhere: compiler wrappers in front of it, and make's jobserver.

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
