//! Where the commands of a job come from: the lines of a file or of standard input, read as they are wanted, and arguments.

use super::template::{Filled, Template};
use crate::error::{CliError, Result};
use base::path::printable;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Longest line, in bytes: as much as a command may have.
const LINE_BYTES_MAX: usize = 2 << 20;
/// Most bytes of the files behind `::::`, which are held in memory.
const ARGUMENT_BYTES_MAX: u64 = 64 << 20;

/// What a job is made of, as it was typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Typed {
    /// The words before the first `:::`.
    pub command: Vec<Vec<u8>>,
    /// The arguments behind each `:::`, and the files behind each `::::`.
    pub lists: Vec<List>,
}

/// Arguments behind one `:::` or `::::`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum List {
    /// The arguments.
    Given(Vec<Vec<u8>>),
    /// A file with an argument a line.
    File(Vec<u8>),
}

impl Typed {
    /// Divides what was typed at `:::` and `::::`.
    pub fn new(words: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut typed = Self::default();
        for word in words {
            match (word.as_slice(), typed.lists.last_mut()) {
                (b":::", _) => typed.lists.push(List::Given(Vec::new())),
                (b"::::", _) => typed.lists.push(List::File(Vec::new())),
                (_, None) => typed.command.push(word),
                (_, Some(List::Given(arguments))) => arguments.push(word),
                (_, Some(List::File(path))) if path.is_empty() => *path = word,
                // Further files of one `::::`.
                (_, Some(List::File(_))) => typed.lists.push(List::File(word)),
            }
        }
        typed
    }
}

/// A task of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its number from 1, as `{#}` has it and GNU parallel counts.
    pub number: u64,
    /// File and line that it comes from.
    pub origin: Option<String>,
    /// The command.
    pub command: Filled,
}

impl Item {
    /// Its number from 0, as all of `gleaner` says it.
    pub fn index(&self) -> u64 {
        self.number - 1
    }
}

/// The tasks of a job, one after the other.
pub struct Source {
    lines: Option<Lines>,
    /// The command that is filled in; `None`: each line is one.
    template: Option<Template>,
    lists: Vec<Vec<Vec<u8>>>,
    /// The line whose combinations with the lists are being made.
    line: Option<(Vec<u8>, u64)>,
    /// Which combination is next.
    combination: u64,
    number: u64,
    total: Option<u64>,
}

/// Lines of a file.
struct Lines {
    name: String,
    reader: Box<dyn BufRead + Send>,
    at: u64,
    /// Blank lines and comments are left out.
    commands: bool,
}

impl Source {
    /// The tasks of what was typed, with the lines of the file `job` (`-` for standard input).
    pub fn new(job: Option<&Path>, typed: Typed) -> Result<Self> {
        let commands = typed.command.is_empty();
        if commands && job.is_none() && typed.lists.is_empty() {
            return Err(CliError::user("no command given").hint("gleaner run --help"));
        }
        let template = match commands {
            false => Some(Template::words(&typed.command).with_place()),
            // As with parallel: the arguments themselves are the commands.
            true if job.is_none() => None,
            true => None,
        };
        let lists = typed.lists.into_iter().map(arguments).collect::<Result<Vec<_>>>()?;
        let combinations = lists.iter().try_fold(1u64, |product, list| product.checked_mul(list.len() as u64));
        let combinations = combinations.ok_or_else(|| CliError::user("too many combinations of arguments"))?;
        let opened = job.map(|path| Lines::open(path, commands)).transpose()?;
        let (lines, count) = match opened {
            Some((lines, count)) => (Some(lines), count),
            None => (None, Some(1)),
        };
        let total = count.and_then(|count| count.checked_mul(combinations));
        // Without a file there is one line, which stands for none.
        let line = lines.is_none().then(|| (Vec::new(), 0));
        Ok(Self { lines, template, lists, line, combination: 0, number: 0, total })
    }

    /// How many tasks there will be, if that is known.
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// The next task.
    pub fn take(&mut self) -> Result<Option<Item>> {
        loop {
            if self.line.is_none() {
                let Some(lines) = &mut self.lines else { return Ok(None) };
                self.line = lines.next()?;
                self.combination = 0;
            }
            let Some((line, at)) = &self.line else { return Ok(None) };
            let Some(mut arguments) = combination(&self.lists, self.combination) else {
                self.line = None;
                if self.lines.is_none() {
                    return Ok(None);
                }
                continue;
            };
            self.combination += 1;
            self.number += 1;
            let origin = self.lines.as_ref().map(|lines| format!("{}:{at}", lines.name));
            let command = match &self.template {
                Some(template) => {
                    if self.lines.is_some() {
                        arguments.insert(0, line.clone());
                    }
                    template.fill(&arguments, self.number)
                }
                None if self.lines.is_none() => Template::verbatim(&arguments.join(&b' ')).fill(&[], self.number),
                None if self.lists.is_empty() => Template::verbatim(line).fill(&[], self.number),
                None => Template::line(line).with_place().fill(&arguments, self.number),
            };
            return Ok(Some(Item { number: self.number, origin, command }));
        }
    }
}

/// The arguments of the combination with this number: the last list runs fastest.
fn combination(lists: &[Vec<Vec<u8>>], number: u64) -> Option<Vec<Vec<u8>>> {
    let mut rest = number;
    let mut arguments = Vec::with_capacity(lists.len());
    for list in lists.iter().rev() {
        let len = list.len() as u64;
        if len == 0 {
            return None;
        }
        arguments.push(list[(rest % len) as usize].clone());
        rest /= len;
    }
    arguments.reverse();
    (rest == 0).then_some(arguments)
}

fn arguments(list: List) -> Result<Vec<Vec<u8>>> {
    let path = match list {
        List::Given(arguments) => return Ok(arguments),
        List::File(path) if path.is_empty() => {
            return Err(CliError::user("`::::` wants a file").hint("gleaner run CMD :::: FILE"));
        }
        List::File(path) => PathBuf::from(std::ffi::OsStr::from_bytes(&path)),
    };
    let (mut lines, _) = Lines::open(&path, false)?;
    let (mut all, mut bytes) = (Vec::new(), 0);
    while let Some((line, at)) = lines.next()? {
        bytes += line.len() as u64 + 1;
        if bytes > ARGUMENT_BYTES_MAX {
            let what = format!("{}:{at}: more than 64 MiB of arguments", lines.name);
            return Err(CliError::user(what).hint("give the longest list by --job FILE, which is read as it is wanted"));
        }
        all.push(line);
    }
    Ok(all)
}

impl Lines {
    /// Opens a file, and counts its lines if it can be read twice.
    fn open(path: &Path, commands: bool) -> Result<(Self, Option<u64>)> {
        if path.as_os_str() == "-" {
            crate::inherited::check_input().map_err(|error| CliError::user(format!("standard input: {error}")))?;
            let reader = Box::new(BufReader::new(std::io::stdin()));
            return Ok((Self { name: "standard input".into(), reader, at: 0, commands }, None));
        }
        let name = printable(path.as_os_str().as_bytes());
        let failed = |error: std::io::Error| CliError::user(format!("{name}: {error}"));
        let file = File::open(path).map_err(failed)?;
        let is_file = file.metadata().map_err(failed)?.is_file();
        let mut lines = Self { name: name.clone(), reader: Box::new(BufReader::new(file)), at: 0, commands };
        if !is_file {
            return Ok((lines, None));
        }
        let mut count = 0;
        while lines.next()?.is_some() {
            count += 1;
        }
        let file = File::open(path).map_err(failed)?;
        Ok((Self { name, reader: Box::new(BufReader::new(file)), at: 0, commands }, Some(count)))
    }

    /// The next line that counts, and its number.
    fn next(&mut self) -> Result<Option<(Vec<u8>, u64)>> {
        loop {
            let mut line = Vec::new();
            let wrong = |name: &str, at: u64, what: &str| Err(CliError::user(format!("{name}:{at}: {what}")));
            let read = self.reader.by_ref().take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line);
            self.at += 1;
            match read {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) => return wrong(&self.name, self.at, &error.to_string()),
            }
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            if line.len() > LINE_BYTES_MAX {
                return wrong(&self.name, self.at, "a line of more than 2 MiB");
            }
            if line.contains(&0) {
                return wrong(&self.name, self.at, "a line with a NUL in it");
            }
            let text = line.trim_ascii_start();
            if !self.commands || !(text.is_empty() || text.starts_with(b"#")) {
                return Ok(Some((line, self.at)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str) -> Typed {
        Typed::new(line.split_whitespace().map(|word| word.as_bytes().to_vec()))
    }

    fn all(mut source: Source) -> Vec<String> {
        std::iter::from_fn(|| source.take().expect("sound"))
            .map(|item| {
                let shown = String::from_utf8_lossy(&item.command.shown).into_owned();
                format!("{} {} {shown}", item.number, item.origin.unwrap_or_default().rsplit('/').next().unwrap_or(""))
            })
            .collect()
    }

    fn file(text: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("job");
        std::fs::write(&path, text).expect("written");
        (folder, path)
    }

    #[test]
    fn arguments_are_combined() {
        let source = Source::new(None, typed("convert {} {.}.png ::: a.jpg b.jpg")).expect("sound");
        assert_eq!(source.total(), Some(2));
        assert_eq!(all(source), ["1  convert a.jpg a.png", "2  convert b.jpg b.png"]);
        let source = Source::new(None, typed("echo {2}-{1} ::: a b ::: 1 2")).expect("sound");
        assert_eq!(all(source), ["1  echo 1-a", "2  echo 2-a", "3  echo 1-b", "4  echo 2-b"]);
        assert_eq!(all(Source::new(None, typed("::: true false")).expect("sound")), ["1  true", "2  false"]);
        assert_eq!(all(Source::new(None, typed("echo :::")).expect("sound")), Vec::<String>::new());
    }

    #[test]
    fn lines_are_commands_or_arguments() {
        let (_folder, path) = file(b"# comment\n\ngcc -c a.c\n  # more\nwc {} x");
        let path = Some(path.as_path());
        let source = Source::new(path, Typed::default()).expect("sound");
        assert_eq!(source.total(), Some(2));
        assert_eq!(all(source), ["1 job:3 gcc -c a.c", "2 job:5 wc {} x"]);
        let source = Source::new(path, typed("::: 1 2")).expect("sound");
        assert_eq!(source.total(), Some(4));
        assert_eq!(all(source), ["1 job:3 gcc -c a.c 1", "2 job:3 gcc -c a.c 2", "3 job:5 wc 1 x", "4 job:5 wc 2 x"]);
        let (_other, lines) = file(b"a\n\n#b\n");
        let source = Source::new(Some(&lines), typed("echo {#} {}")).expect("sound");
        assert_eq!(all(source), ["1 job:1 echo 1 a", "2 job:2 echo 2 ''", "3 job:3 echo 3 '#b'"]);
        let name = lines.to_str().expect("text").to_owned();
        assert_eq!(all(Source::new(None, typed(&format!("x :::: {name}"))).expect("sound")).len(), 3);
    }

    #[test]
    fn what_is_wrong_is_said_with_file_and_line() {
        let (_folder, path) = file(b"true\na\0b\n");
        let said = Source::new(Some(&path), Typed::default()).err().expect("wrong").message;
        assert!(said.ends_with("job:2: a line with a NUL in it"), "{said}");
        let said = Source::new(Some(Path::new("/no/such/job")), Typed::default()).err().expect("wrong").message;
        assert_eq!(said, "/no/such/job: No such file or directory (os error 2)");
        assert_eq!(Source::new(None, Typed::default()).err().expect("wrong").message, "no command given");
        assert_eq!(Source::new(None, typed("x ::::")).err().expect("wrong").message, "`::::` wants a file");
    }
}
