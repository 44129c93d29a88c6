//! Attempts of scripts to make a folder or link which must not be there, by their text: who looks whether it was made wants to have it alone.
//! An attempt is none that makes what may be there (`mkdir -p`, `ln -f`), or by a name of its own (`$$`).

use base::words::{LOCKERS, is_option, last_name};

/// What a command comes after whose end is looked at.
const LOOKS: [&[u8]; 7] = [b"until", b"while", b"if", b"elif", b"unless", b"until(", b"not"];
/// What a command may come after, and be judged by what is before that.
const BETWEEN: [&[u8]; 6] = [b"!", b"(", b"{", b"command", b"exec", b"then"];
/// What comes after `&&` or `||` where an end is looked at for more than whether to go on with what is made, or to complain.
const ACTS: [&[u8]; 10] =
    [b"break", b"continue", b"exit", b"return", b"sleep", b"echo", b"printf", b"{", b"(", b"exec"];
/// What ends a command.
const ENDS: [&[u8]; 11] = [b";", b"&&", b"||", b"|", b"&", b"\n", b"(", b")", b"{", b"}", b"`"];
/// By what a script takes away what it has made to lock something.
const TAKES_AWAY: [&[u8]; 8] =
    [b"rmdir", b"rm -", b"rm \"", b"unlink", b"os.remove", b"rmtree", b"file delete", b"rmSync"];
/// By what a program that makes something itself learns that another has made it. Many make a folder and take it away again, and lock nothing
/// by that.
const LEARNS: [&[u8]; 5] =
    [b"FileExistsError", b"EEXIST", b"except OSError", b"rescue SystemCallError", b"file exists"];
/// By what a program has a file opened that must not be there.
const OPENS_NEW: [&[u8]; 5] = [b"'wx", b"\"wx", b"`wx", b"O_EXCL", b"EEXIST"];

/// What a script attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attempts {
    commands: Vec<Attempt>,
    /// It makes folders or links itself, as Python and Perl do, and learns whether they were there.
    pub makes_itself: bool,
    /// It opens files that must not be there.
    pub opens_new: bool,
}

/// A command that fails where what it makes is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    program: Vec<u8>,
    /// As its words have them; in a script with what is put in for variables.
    names: Vec<Vec<u8>>,
}

impl Attempt {
    /// The attempt that a command with these words is; `None` if it is none.
    pub(super) fn of(words: &[Vec<u8>]) -> Option<Self> {
        let (first, arguments) = words.split_first()?;
        let program = last_name(first);
        if program == b"busybox" {
            return Self::of(arguments);
        }
        let has = |letters: &[u8], long: &[&[u8]]| arguments.iter().any(|word| is_option(word, letters, long));
        let names: Vec<&Vec<u8>> = arguments.iter().filter(|word| !word.starts_with(b"-")).collect();
        let names = match program {
            b"mkdir" if !has(b"p", &[b"--parents"]) => names,
            b"ln" if !has(b"fib", &[b"--force"]) => names.into_iter().rev().take(1).collect(),
            b"mv" if has(b"n", &[b"--no-clobber", b"--update=none"]) => names.into_iter().rev().take(1).collect(),
            b"link" => names.into_iter().rev().take(1).collect(),
            b"mkfifo" => names,
            program if LOCKERS.contains(&program) => names,
            _ => return None,
        };
        Some(Self { program: program.to_vec(), names: names.into_iter().map(|name| unquoted(name)).collect() })
    }

    /// Whether its program makes nothing but locks.
    pub(super) fn is_of_locker(&self) -> bool {
        LOCKERS.contains(&self.program.as_slice())
    }

    /// Whether it is by a name that another process would not use.
    fn is_own(&self) -> bool {
        self.names.iter().any(|name| [&b"$$"[..], b"$RANDOM", b"mktemp"].iter().any(|part| contains(name, part)))
    }
}

impl Attempts {
    /// Those in a script.
    pub(super) fn in_text(text: &[u8]) -> Self {
        let has = |words: &[&[u8]]| words.iter().any(|word| contains(text, word));
        let tokens = tokens(text);
        let commands = (0..tokens.len()).filter_map(|at| looked_at(&tokens, at)).collect();
        let looks = (0..tokens.len()).any(|at| makes_itself(tokens[at]) && is_looked_at_before(&tokens, at));
        Self { commands, makes_itself: looks || has(&TAKES_AWAY) && has(&LEARNS), opens_new: has(&OPENS_NEW) }
    }

    /// Whether it attempts what a command of it does, which makes this name.
    pub(super) fn has(&self, command: &Attempt, name: &[u8]) -> bool {
        let fits = |attempt: &Attempt| {
            attempt.program == command.program && attempt.names.iter().any(|pattern| is_of(name, pattern))
        };
        self.commands.iter().any(fits)
    }
}

/// The attempt that begins at a token, if its end is looked at.
fn looked_at(tokens: &[&[u8]], at: usize) -> Option<Attempt> {
    let len = tokens[at..].iter().position(|token| ENDS.contains(token)).unwrap_or(tokens.len() - at);
    let is_word = |token: &&&[u8]| !token.contains(&b'>') && !token.contains(&b'<') && !matches!(**token, b"1" | b"2");
    // What comes after an arrow is no name.
    let words: Vec<Vec<u8>> = {
        let all = &tokens[at..at + len];
        let after_arrow = |index: usize| index > 0 && all[index - 1].ends_with(b">");
        let words = all.iter().enumerate().filter(|(index, token)| is_word(token) && !after_arrow(*index));
        words.map(|(_, token)| token.to_vec()).collect()
    };
    let attempt = Attempt::of(&words).filter(|attempt| !attempt.is_own())?;
    let after = &tokens[at + len..];
    let acts = matches!(after.first(), Some(&b"&&") | Some(&b"||"))
        && after[1..].iter().find(|token| **token != b"\n").is_some_and(|next| ACTS.contains(next));
    // Of `mv -n` that which is left where it was says as much as its end, and few use it for anything else.
    (acts || attempt.program == b"mv" || is_looked_at_before(tokens, at)).then_some(attempt)
}

/// Whether what is before a command looks at its end.
fn is_looked_at_before(tokens: &[&[u8]], at: usize) -> bool {
    let before = tokens[..at].iter().rev().find(|token| !BETWEEN.contains(token));
    before.is_some_and(|before| LOOKS.contains(before))
}

fn makes_itself(token: &[u8]) -> bool {
    [&b"mkdir"[..], b"symlink", b"link"].contains(&token)
}

/// The words of a text, and what is between commands.
fn tokens(text: &[u8]) -> Vec<&[u8]> {
    let mut tokens = Vec::new();
    let (mut at, mut start) = (0, 0);
    let mut quote = None;
    while at < text.len() {
        let byte = text[at];
        let len = match byte {
            b'\\' => {
                at = (at + 2).min(text.len());
                continue;
            }
            _ if quote == Some(byte) => {
                quote = None;
                0
            }
            // The script of another shell may be in quotes, so only what has no space in it is one word.
            b'"' | b'\'' if quote.is_none() && closes_in_word(&text[at + 1..], byte) => {
                quote = Some(byte);
                0
            }
            _ if quote.is_some() => 0,
            b'$' if matches!(text.get(at + 1), Some(b'{' | b'(')) => {
                at += 2;
                while at < text.len() && !matches!(text[at], b'}' | b')' | b'\n') {
                    at += 1;
                }
                at = (at + 1).min(text.len());
                continue;
            }
            b'&' | b'|' if text.get(at + 1) == Some(&byte) => 2,
            b'&' if at > 0 && text[at - 1] == b'>' => 0,
            b';' | b'|' | b'&' | b'\n' | b'(' | b')' | b'{' | b'}' | b'`' => 1,
            b'!' if start == at => 1,
            b' ' | b'\t' | b'\r' | b'"' | b'\'' => {
                if start < at {
                    tokens.push(&text[start..at]);
                }
                start = at + 1;
                0
            }
            _ => 0,
        };
        if len > 0 {
            if start < at {
                tokens.push(&text[start..at]);
            }
            tokens.push(&text[at..at + len]);
            start = at + len;
        }
        at += len.max(1);
    }
    if start < text.len() {
        tokens.push(&text[start..]);
    }
    tokens
}

/// Whether a quote closes before a space or the end of its line.
fn closes_in_word(rest: &[u8], quote: u8) -> bool {
    let end = rest.iter().position(|byte| *byte == quote || byte.is_ascii_whitespace());
    end.is_some_and(|end| rest[end] == quote)
}

fn unquoted(word: &[u8]) -> Vec<u8> {
    word.iter().copied().filter(|byte| !matches!(byte, b'"' | b'\'')).collect()
}

/// Whether a name is what a word of a script may stand for: with something for each of its variables.
fn is_of(name: &[u8], word: &[u8]) -> bool {
    let Some(first) = word.iter().position(|byte| matches!(byte, b'$' | b'*' | b'~')) else { return word == name };
    let last = word.iter().rposition(|byte| *byte == b'$').unwrap_or(first);
    let tail = &word[last..];
    let end = match tail.get(1) {
        Some(b'{') => tail.iter().position(|byte| *byte == b'}').map_or(tail.len(), |end| end + 1),
        Some(b'(') => tail.iter().rposition(|byte| *byte == b')').map_or(tail.len(), |end| end + 1),
        _ => 1 + tail[1..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count(),
    };
    name.starts_with(&word[..first]) && name.ends_with(&tail[end.min(tail.len())..])
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> Option<Attempt> {
        let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        Attempt::of(&words)
    }

    #[test]
    fn commands_that_fail_where_something_is() {
        for line in [
            "mkdir x",
            "/bin/mkdir -m 700 x",
            "ln -s a x",
            "ln a x",
            "mv -n a x",
            "link a x",
            "busybox mkdir x",
            "shlock -f x",
        ] {
            assert!(command(line).is_some(), "{line}");
        }
        for line in ["mkdir -p x", "ln -sf a x", "mv a x", "mv -f a x", "cp a x", "mkdirx y", ""] {
            assert!(command(line).is_none(), "{line}");
        }
    }

    #[test]
    fn a_script_that_looks_whether_it_has_made_something() {
        for (script, by) in [
            ("until mkdir busy; do :; done", "mkdir busy"),
            ("until ln -s x busy 2>/dev/null; do sleep 1; done", "ln -s x busy"),
            ("while ! mkdir \"busy\" 2> /dev/null; do sleep 1; done", "mkdir busy"),
            ("while :; do mkdir busy && break; sleep 1; done", "mkdir busy"),
            ("while :; do mkdir busy > /dev/null 2>&1 && break; done", "mkdir busy"),
            ("while true; do\n  if mkdir busy; then break; fi\ndone", "mkdir busy"),
            ("if ! mkdir busy; then echo busy; exit 1; fi", "mkdir busy"),
            ("mkdir busy || exit 1", "mkdir busy"),
            ("mkdir busy 2>/dev/null || { echo no; exit; }", "mkdir busy"),
            ("mkdir busy && echo got", "mkdir busy"),
            ("mkdir busy &&\n  exit 0", "mkdir busy"),
            ("if ( mkdir busy ) 2>/dev/null; then :; fi", "mkdir busy"),
            ("if command mkdir busy; then :; fi", "mkdir busy"),
            ("L=busy; until mkdir $L; do :; done", "mkdir busy"),
            ("until mkdir \"${DIR}/busy\"; do :; done", "mkdir /a/busy"),
            ("until mkdir a$1; do :; done", "mkdir ab"),
            ("until mv -n m.$$ busy; do :; done", "mv -n m.7 busy"),
            ("mv -n m busy; [ -e m ] || exit", "mv -n m busy"),
            ("bash -c 'until mkdir busy; do :; done'", "mkdir busy"),
            ("x = `mkdir busy || exit`", "mkdir busy"),
        ] {
            let attempt = command(by).expect("it makes something");
            let name = attempt.names.last().expect("a name").clone();
            let attempts = Attempts::in_text(script.as_bytes());
            assert!(attempts.has(&attempt, &name), "{script}: {attempts:?}");
            assert!(
                !attempts.has(&command("mkfifo busy").expect("it makes something"), &name),
                "another program: {script}"
            );
        }
    }

    #[test]
    fn a_script_that_only_makes_something() {
        for script in [
            "mkdir busy",
            "mkdir -p busy || exit 1",
            "test -d busy || mkdir busy",
            "mkdir busy && cd busy && make",
            "mkdir busy || true",
            "mkdir busy || :",
            "if mkdir -p busy; then :; fi",
            "if ln -s conf$$.file conf$$; then :; fi",
            "mkdir other || exit 1; mkdir busy",
            "rm -rf busy; mkdir busy; echo mkdir",
            "if test -x /bin/mkdir; then mkdir busy; fi",
        ] {
            let attempts = Attempts::in_text(script.as_bytes());
            for by in ["mkdir busy", "ln -s conf12.file conf12"] {
                let attempt = command(by).expect("it makes something");
                let name = attempt.names.last().expect("a name").clone();
                assert!(!attempts.has(&attempt, &name), "{script}: {attempts:?}");
            }
        }
    }

    #[test]
    fn a_program_that_makes_folders_itself() {
        for (text, want) in [
            ("try: os.mkdir(x)\nexcept FileExistsError: pass\nos.rmdir(x)", true),
            ("try: os.mkdir(x)\nexcept OSError: pass\nos.remove(x)", true),
            ("until (mkdir \"busy\") { sleep 1 }", true),
            ("while (!mkdir('busy')) { usleep(1); }", true),
            ("try: os.mkdir(x)\nexcept FileExistsError: pass", false),
            ("os.mkdir(x); os.rmdir(x)", false),
        ] {
            assert_eq!(Attempts::in_text(text.as_bytes()).makes_itself, want, "{text}");
        }
        assert!(Attempts::in_text(b"fs.openSync('x', 'wx')").opens_new && !Attempts::in_text(b"open(x)").opens_new);
    }

    #[test]
    fn names_are_those_of_their_words() {
        for (name, word, want) in [
            ("busy", "busy", true),
            ("busy", "other", false),
            ("/a/busy", "$D/busy", true),
            ("/a/other", "$D/busy", false),
            ("a.busy", "a.${NAME}", true),
            ("b.busy", "a.${NAME}", false),
            ("x", "$(name)", true),
        ] {
            assert_eq!(is_of(name.as_bytes(), word.as_bytes()), want, "{name} {word}");
        }
    }
}
