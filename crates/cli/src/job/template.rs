//! Commands with places to be filled in, as GNU parallel has them: `{}` the argument, `{.}` without its extension, `{/}`
//! its last part, `{//}` its folder, `{/.}` its last part without extension, `{#}` the task's number; `{2}`, `{2.}` and
//! so on: the same of the second argument. All else in braces is left as it is.

use std::borrow::Cow;

/// A command to be filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Template {
    /// A line: a shell command, unless it is simple words. What is filled in is quoted.
    Line(Vec<Part>),
    /// Words: a program with its arguments, that no shell reads.
    Words(Vec<Vec<Part>>),
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text as it is.
    Text(Vec<u8>),
    /// `{#}`.
    Number,
    /// A form of the argument at this place, from 0; `None`: of all arguments, with spaces between.
    Argument(Option<usize>, Form),
}

/// What of an argument is filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `{}`
    Whole,
    /// `{.}`
    NoExtension,
    /// `{/}`
    Base,
    /// `{//}`
    Folder,
    /// `{/.}`
    BaseNoExtension,
}

/// A command as it is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filled {
    /// The words.
    pub argv: Vec<Vec<u8>>,
    /// As a person would type it.
    pub shown: Vec<u8>,
}

impl Template {
    /// A command line.
    pub fn line(text: &[u8]) -> Self {
        Self::Line(parts(text))
    }

    /// A command line in which nothing is filled in.
    pub fn verbatim(text: &[u8]) -> Self {
        Self::Line(vec![Part::Text(text.to_vec())])
    }

    /// A program and its arguments; a single word is a command line.
    pub fn words(words: &[Vec<u8>]) -> Self {
        match words {
            [line] => Self::line(line),
            words => Self::Words(words.iter().map(|word| parts(word)).collect()),
        }
    }

    /// Sees to it that arguments are filled in somewhere: at the end, if no place is said.
    pub fn with_place(mut self) -> Self {
        let has_place = |parts: &Vec<Part>| parts.iter().any(|part| matches!(part, Part::Argument(..)));
        let place = Part::Argument(None, Form::Whole);
        match &mut self {
            Self::Line(parts) if !has_place(parts) => parts.extend([Part::Text(b" ".to_vec()), place]),
            Self::Words(words) if !words.iter().any(has_place) => words.push(vec![place]),
            _ => {}
        }
        self
    }

    /// The command for these arguments. `number` is the task's, from 1.
    pub fn fill(&self, arguments: &[Vec<u8>], number: u64) -> Filled {
        match self {
            Self::Line(parts) => {
                let line = fill(parts, arguments, number, |value| quoted(value).into_owned());
                let argv =
                    simple_words(&line).unwrap_or_else(|| [b"/bin/sh".to_vec(), b"-c".to_vec(), line.clone()].to_vec());
                Filled { argv, shown: line }
            }
            Self::Words(words) => {
                let argv: Vec<Vec<u8>> =
                    words.iter().map(|word| fill(word, arguments, number, |value| value.to_vec())).collect();
                let shown = argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(&b' ');
                Filled { argv, shown }
            }
        }
    }
}

/// Reads a template.
fn parts(text: &[u8]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let place = text[at..].strip_prefix(b"{").and_then(|rest| {
            let end = rest.iter().take(8).position(|byte| *byte == b'}')?;
            Some((place(&rest[..end])?, end + 2))
        });
        match (place, parts.last_mut()) {
            (Some((part, len)), _) => {
                parts.push(part);
                at += len;
                continue;
            }
            (None, Some(Part::Text(before))) => before.push(text[at]),
            (None, _) => parts.push(Part::Text(vec![text[at]])),
        }
        at += 1;
    }
    parts
}

/// What stands between braces.
fn place(name: &[u8]) -> Option<Part> {
    if name == b"#" {
        return Some(Part::Number);
    }
    let digits = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let form = match &name[digits..] {
        b"" => Form::Whole,
        b"." => Form::NoExtension,
        b"/" => Form::Base,
        b"//" => Form::Folder,
        b"/." => Form::BaseNoExtension,
        _ => return None,
    };
    let which = match digits {
        0 => None,
        _ => Some(std::str::from_utf8(&name[..digits]).ok()?.parse::<usize>().ok()?.checked_sub(1)?),
    };
    Some(Part::Argument(which, form))
}

fn fill(parts: &[Part], arguments: &[Vec<u8>], number: u64, quote: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        match part {
            Part::Text(text) => out.extend_from_slice(text),
            Part::Number => out.extend_from_slice(number.to_string().as_bytes()),
            Part::Argument(None, form) => {
                let all: Vec<Vec<u8>> = arguments.iter().map(|argument| quote(of_form(argument, *form))).collect();
                out.extend(all.join(&b' '));
            }
            Part::Argument(Some(at), form) => {
                out.extend(arguments.get(*at).map(|argument| quote(of_form(argument, *form))).unwrap_or_default());
            }
        }
    }
    out
}

fn of_form(argument: &[u8], form: Form) -> &[u8] {
    match form {
        Form::Whole => argument,
        Form::NoExtension => without_extension(argument),
        Form::Base => base(argument),
        Form::Folder => folder(argument),
        Form::BaseNoExtension => without_extension(base(argument)),
    }
}

/// Up to the last dot, if that is in the last part and not at its beginning.
fn without_extension(argument: &[u8]) -> &[u8] {
    match argument.iter().rposition(|byte| *byte == b'.' || *byte == b'/') {
        Some(at) if argument[at] == b'.' && at > 0 && argument[at - 1] != b'/' => &argument[..at],
        _ => argument,
    }
}

fn base(argument: &[u8]) -> &[u8] {
    argument.iter().rposition(|byte| *byte == b'/').map_or(argument, |at| &argument[at + 1..])
}

/// As `dirname` says it.
fn folder(argument: &[u8]) -> &[u8] {
    match argument.iter().rposition(|byte| *byte == b'/') {
        None => b".",
        Some(0) => b"/",
        Some(at) => &argument[..at],
    }
}

/// Characters that no shell reads anything into.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-./:=@%+,^".contains(&byte)
}

/// A value as the shell must be told it.
pub fn quoted(value: &[u8]) -> Cow<'_, [u8]> {
    if !value.is_empty() && value.iter().all(|byte| is_plain(*byte)) {
        return Cow::Borrowed(value);
    }
    let mut out = b"'".to_vec();
    for byte in value {
        match byte {
            b'\'' => out.extend_from_slice(b"'\\''"),
            byte => out.push(*byte),
        }
    }
    out.push(b'\'');
    Cow::Owned(out)
}

/// Words that a shell treats in its own way although they look like programs.
const OF_THE_SHELL: &[&[u8]] = &[
    b".",
    b":",
    b"alias",
    b"bg",
    b"break",
    b"case",
    b"cd",
    b"command",
    b"continue",
    b"do",
    b"done",
    b"echo",
    b"elif",
    b"else",
    b"esac",
    b"eval",
    b"exec",
    b"exit",
    b"export",
    b"false",
    b"fg",
    b"fi",
    b"for",
    b"getopts",
    b"hash",
    b"if",
    b"jobs",
    b"kill",
    b"local",
    b"printf",
    b"pwd",
    b"read",
    b"readonly",
    b"return",
    b"set",
    b"shift",
    b"test",
    b"then",
    b"time",
    b"times",
    b"trap",
    b"true",
    b"type",
    b"ulimit",
    b"umask",
    b"unalias",
    b"unset",
    b"until",
    b"wait",
    b"while",
];

/// The words of a line that means the same without a shell; `None` if it may not.
fn simple_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    if !line.iter().all(|byte| is_plain(*byte) || b" \t".contains(byte)) {
        return None;
    }
    let words = line.split(|byte| b" \t".contains(byte)).filter(|word| !word.is_empty());
    let words: Vec<Vec<u8>> = words.map(<[u8]>::to_vec).collect();
    let first = words.first()?;
    let is_plain_program = !first.contains(&b'=') && !OF_THE_SHELL.contains(&first.as_slice());
    is_plain_program.then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, arguments: &[&str]) -> String {
        let arguments: Vec<Vec<u8>> = arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect();
        String::from_utf8(Template::line(text.as_bytes()).with_place().fill(&arguments, 7).shown).expect("text")
    }

    fn words(words: &[&str], arguments: &[&str]) -> Vec<String> {
        let bytes = |all: &[&str]| all.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        let filled = Template::words(&bytes(words)).with_place().fill(&bytes(arguments), 7);
        filled.argv.into_iter().map(|word| String::from_utf8(word).expect("text")).collect()
    }

    /// The examples of GNU parallel's manual, "replacement strings".
    #[test]
    fn places_are_filled_as_parallel_fills_them() {
        for (template, want) in [
            ("echo {}", "echo A/B.C"),
            ("echo", "echo A/B.C"),
            ("echo {.}", "echo A/B"),
            ("echo {/}", "echo B.C"),
            ("echo {//}", "echo A"),
            ("echo {/.}", "echo B"),
            ("echo {#} {}", "echo 7 A/B.C"),
            ("cp {} {.}.png", "cp A/B.C A/B.png"),
            ("echo {1/.}", "echo B"),
        ] {
            assert_eq!(line(template, &["A/B.C"]), want, "{template}");
        }
        assert_eq!(line("echo {1} {2} {2//}", &["a", "b/c"]), "echo a b/c b");
        assert_eq!(line("echo {}", &["a", "b c"]), "echo a 'b c'");
        assert_eq!(line("awk '{print}' {}", &["x"]), "awk '{print}' x", "other braces stay");
        assert_eq!(line("echo {3}{}", &["x"]), "echo x", "an argument that is not there is empty");
    }

    #[test]
    fn extensions_and_folders_at_the_edges() {
        for (argument, no_extension, base, folder, base_no_extension) in [
            ("foo", "foo", "foo", ".", "foo"),
            ("sub.dir/foo", "sub.dir/foo", "foo", "sub.dir", "foo"),
            ("/foo.c", "/foo", "foo.c", "/", "foo"),
            (".profile", ".profile", ".profile", ".", ".profile"),
            ("a/.profile", "a/.profile", ".profile", "a", ".profile"),
            ("x.tar.gz", "x.tar", "x.tar.gz", ".", "x.tar"),
        ] {
            assert_eq!(line("a {.}", &[argument]), format!("a {no_extension}"));
            assert_eq!(line("a {/}", &[argument]), format!("a {base}"));
            assert_eq!(line("a {//}", &[argument]), format!("a {folder}"));
            assert_eq!(line("a {/.}", &[argument]), format!("a {base_no_extension}"));
        }
    }

    #[test]
    fn what_is_filled_into_a_line_is_one_word_of_it() {
        assert_eq!(line("wc {}", &["a b"]), "wc 'a b'");
        assert_eq!(line("wc {}", &["it's; rm -rf $HOME"]), r"wc 'it'\''s; rm -rf $HOME'");
        assert_eq!(line("wc {}", &[""]), "wc ''");
        assert_eq!(words(&["sh", "-c", "echo $1", "sh", "{}"], &["a b"]), ["sh", "-c", "echo $1", "sh", "a b"]);
        assert_eq!(words(&["convert", "-v"], &["a b.jpg"]), ["convert", "-v", "a b.jpg"]);
        assert_eq!(words(&["gzip -9 <{} >{}.gz"], &["a b"]), ["/bin/sh", "-c", "gzip -9 <'a b' >'a b'.gz"]);
    }

    #[test]
    fn simple_words_need_no_shell() {
        let argv = |text: &str| Template::line(text.as_bytes()).fill(&[], 1).argv;
        assert_eq!(argv("gcc -c  a.c\t-o=b"), [&b"gcc"[..], b"-c", b"a.c", b"-o=b"]);
        for line in ["a | b", "a > b", "a; b", "A=1 b", "a $B", "a *", "a 'b'", "cd x", "exit 3", "echo x", "a # b"] {
            assert_eq!(argv(line), [&b"/bin/sh"[..], b"-c", line.as_bytes()], "{line}");
        }
        assert_eq!(argv("a ~/b")[0], b"/bin/sh", "a tilde is the shell's");
    }
}
