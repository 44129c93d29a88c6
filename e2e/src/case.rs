//! The cases of the differential suite, as text: one file per subject, many cases in each.
//!
//! ```text
//! # a comment
//! === copying keeps the mode
//! setup:
//!     echo hello > a; chmod 640 a
//! run:
//!     $R cp -p a b
//! ```
//!
//! A case begins with `===` and its name. `run:` holds the script. Where it says `$R`, that is nothing locally and the remote
//! prefix remotely; a script without `$R` is run whole, by `sh -c`, as one remote command. A block's lines are indented by four
//! spaces. Keys with one line each: `needs:` programs (`python3 git`), `status:` what the local run must end with (`3`, `signal
//! 9`; 0 if not given, so that a case that fails alike on both sides for a reason nobody thought of does not pass), `as: nobody`,
//! `shell: bash`, `streams: merged` or `terminal 24x80`, `stdin: closed` or `endless`, `ignore:` any of `stdout stderr status
//! tree mtime:PATH`, `sort: stdout`, `local: allowed` (remrun may choose to run it here), `limit:` seconds. Further blocks:
//! `setup:` (run locally before, on both sides), `input:` (bytes of a pipe on standard input), `stdout:` (what it must be, on both
//! sides), `type:` (lines `WAIT => TEXT`: once WAIT was seen in the terminal, TEXT is typed; `\n`, `\xNN`; `resize 30x90`).

use crate::error::{Context, Error, Result};
use crate::process::{Action, Ended, Input, Streams, Typed};
use crate::terminal::Size;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One command or script that must do the same remotely as locally.
#[derive(Clone, Debug)]
pub struct Case {
    /// The file without its extension, a slash, and what the case is called.
    pub name: String,
    /// Programs without which it cannot run.
    pub needs: Vec<String>,
    /// Script that makes the tree.
    pub setup: String,
    /// Script under test.
    pub run: String,
    /// How the local run must end.
    pub status: Ended,
    /// Whether it runs as an ordinary user.
    pub as_nobody: bool,
    /// Shell of the script.
    pub shell: String,
    /// Standard input.
    pub input: Input,
    /// Outputs.
    pub streams: Streams,
    /// What is typed.
    pub typed: Vec<Typed>,
    /// What standard output must be.
    pub stdout: Option<String>,
    /// What need not agree.
    pub ignore: Ignore,
    /// Whether `remrun` may run it here.
    pub local_allowed: bool,
    /// Limit of each side.
    pub limit: Duration,
}

/// Aspects that may differ.
#[derive(Clone, Debug, Default)]
pub struct Ignore {
    /// Standard output.
    pub stdout: bool,
    /// The order of lines in standard output.
    pub stdout_order: bool,
    /// Standard error.
    pub stderr: bool,
    /// Exit status.
    pub status: bool,
    /// The tree.
    pub tree: bool,
    /// Times of these paths.
    pub mtime: Vec<PathBuf>,
}

impl Case {
    fn new(name: String) -> Self {
        Self {
            name,
            needs: Vec::new(),
            setup: String::new(),
            run: String::new(),
            status: Ended::Code(0),
            as_nobody: false,
            shell: "sh".to_owned(),
            input: Input::Null,
            streams: Streams::Separate,
            typed: Vec::new(),
            stdout: None,
            ignore: Ignore::default(),
            local_allowed: false,
            limit: Duration::from_secs(60),
        }
    }

    /// A case from a script alone, for tests in code.
    pub fn script(name: &str, setup: &str, run: &str) -> Self {
        Self { setup: setup.to_owned(), run: run.to_owned(), ..Self::new(name.to_owned()) }
    }

    /// A program that it needs and that is not in PATH.
    pub fn missing(&self, path: &str) -> Option<&str> {
        let has = |program: &str| path.split(':').any(|folder| Path::new(folder).join(program).exists());
        self.needs.iter().map(String::as_str).find(|program| !has(program))
    }

    /// Whether the whole script is one remote command.
    pub fn whole(&self) -> bool {
        !self.run.contains("$R")
    }
}

/// Reads every `*.case` file of a folder, in order of their names.
pub fn read_folder(folder: &Path) -> Result<Vec<Case>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).at("list", folder)? {
        let path = entry.at("list", folder)?.path();
        if path.extension().is_some_and(|extension| extension == "case") {
            files.push(path);
        }
    }
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).at("read", &file)?;
        let subject = file.file_stem().map_or(String::new(), |stem| stem.to_string_lossy().into_owned());
        cases.extend(parse(&subject, &text)?);
    }
    Ok(cases)
}

/// Reads the cases in one text.
pub fn parse(subject: &str, text: &str) -> Result<Vec<Case>> {
    let mut cases: Vec<Case> = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        at += 1;
        let number = at;
        let wrong = |what: String| Error::Case { file: format!("{subject}.case"), line: number, what };
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("=== ") {
            cases.push(Case::new(format!("{subject}/{}", name.trim())));
            continue;
        }
        let Some(case) = cases.last_mut() else { return Err(wrong("a case begins with ===".to_owned())) };
        let Some((key, value)) = line.split_once(':').filter(|_| !line.starts_with(' ')) else {
            return Err(wrong(format!("neither a key nor inside a block: {line:?}")));
        };
        let mut block = String::new();
        while at < lines.len() && (lines[at].starts_with("    ") || (lines[at].is_empty() && continues(&lines[at..]))) {
            block.push_str(lines[at].strip_prefix("    ").unwrap_or(""));
            block.push('\n');
            at += 1;
        }
        set(case, key, value.trim(), block).map_err(wrong)?;
    }
    match cases.iter().find(|case| case.run.is_empty()) {
        Some(case) => Err(Error::Product(format!("case {:?} has no run: block", case.name))),
        None => Ok(cases),
    }
}

/// Whether after these empty lines the block goes on.
fn continues(lines: &[&str]) -> bool {
    lines.iter().find(|line| !line.is_empty()).is_some_and(|line| line.starts_with("    "))
}

fn set(case: &mut Case, key: &str, value: &str, block: String) -> std::result::Result<(), String> {
    match (key, value) {
        ("needs", names) => case.needs = names.split_whitespace().map(str::to_owned).collect(),
        ("setup", "") => case.setup = block,
        ("run", "") => case.run = block,
        ("input", "") => case.input = Input::Pipe(block.into_bytes()),
        ("stdout", "") => case.stdout = Some(block),
        ("type", "") => case.typed = block.lines().map(typed).collect::<std::result::Result<_, _>>()?,
        ("as", "nobody") => case.as_nobody = true,
        ("shell", shell) => case.shell = shell.to_owned(),
        ("stdin", "closed") => case.input = Input::Closed,
        ("stdin", "endless") => case.input = Input::Endless,
        ("streams", "merged") => case.streams = Streams::Merged,
        ("streams", other) => {
            let size = other.strip_prefix("terminal").and_then(Size::parse);
            case.streams = Streams::Terminal(size.ok_or("streams: merged, or terminal 24x80")?);
        }
        ("sort", "stdout") => case.ignore.stdout_order = true,
        ("local", "allowed") => case.local_allowed = true,
        ("limit", seconds) => {
            case.limit = Duration::from_secs(seconds.parse().map_err(|_| "limit: a number of seconds")?);
        }
        ("status", value) => case.status = status(value).ok_or("status: 3, or signal 9")?,
        ("ignore", what) => {
            for word in what.split_whitespace() {
                ignore(&mut case.ignore, word)?;
            }
        }
        _ => return Err(format!("unknown: {key}: {value}")),
    }
    Ok(())
}

fn status(value: &str) -> Option<Ended> {
    match value.strip_prefix("signal ") {
        Some(signal) => Some(Ended::Signal(signal.parse().ok()?)),
        None => Some(Ended::Code(value.parse().ok()?)),
    }
}

fn ignore(ignore: &mut Ignore, word: &str) -> std::result::Result<(), String> {
    match word {
        "stdout" => ignore.stdout = true,
        "stderr" => ignore.stderr = true,
        "status" => ignore.status = true,
        "tree" => ignore.tree = true,
        _ => match word.strip_prefix("mtime:") {
            Some(path) => ignore.mtime.push(PathBuf::from(path)),
            None => return Err(format!("ignore: stdout, stderr, status, tree or mtime:PATH, not {word}")),
        },
    }
    Ok(())
}

fn typed(line: &str) -> std::result::Result<Typed, String> {
    let (wait, text) = line.split_once(" => ").ok_or("type: lines WAIT => TEXT")?;
    let action = match text.strip_prefix("resize ") {
        Some(size) => Action::Resize(Size::parse(size).ok_or("resize 30x90")?),
        None => Action::Text(unescape(text)?),
    };
    Ok(Typed { wait: unescape(wait)?, action })
}

fn unescape(text: &str) -> std::result::Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'n') => bytes.push(b'\n'),
            Some(b'\\') => bytes.push(b'\\'),
            Some(b'x') => {
                let digits: String = rest.by_ref().take(2).map(char::from).collect();
                bytes.push(u8::from_str_radix(&digits, 16).map_err(|_| format!("not a byte: \\x{digits}"))?);
            }
            _ => return Err(format!("unknown escape in {text:?}")),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_with_everything() {
        let text = "# talk\n=== one\nneeds: a b\nstatus: signal 9\nas: nobody\nstreams: terminal 24x80\nignore: stderr \
                    mtime:x/y\nsetup:\n    echo 1\n\n      echo 2\nrun:\n    $R true\ntype:\n    > => a\\x03\\n\n\n=== two\nrun:\n    true\n";
        let cases = parse("t", text).unwrap();
        assert_eq!(cases.len(), 2);
        assert_eq!((cases[0].name.as_str(), cases[0].setup.as_str()), ("t/one", "echo 1\n\n  echo 2\n"));
        assert_eq!(cases[0].status, Ended::Signal(9));
        assert_eq!(cases[0].typed[0], Typed { wait: b">".into(), action: Action::Text(b"a\x03\n".into()) });
        assert!(!cases[0].whole() && cases[1].whole());
        assert_eq!(cases[1].status, Ended::Code(0));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for text in ["run:\n    x\n", "=== a\nruns:\n    x\n", "=== a\nstatus: much\nrun:\n    x\n", "=== a\n"] {
            assert!(parse("t", text).is_err(), "{text:?}");
        }
        let error = parse("t", "=== a\n\nnonsense\n").unwrap_err().to_string();
        assert!(error.starts_with("t.case:3:"), "{error}");
    }
}
