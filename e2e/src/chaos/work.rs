//! The commands beneath which things go wrong, and what each does where nothing does: that is tried once, here.

use crate::client::Client;
use crate::error::{Context, Result};
use crate::process::{Ended, Run, shell};
use crate::scenario::COMMAND;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The input that changes or vanishes.
pub const INPUT: &str = "in3";
/// What it changes to.
const CHANGED: &str = "changed\n";
/// Lines of the filter's input.
const LINES: usize = 20_000;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Writes files all along for a second.
    Write,
    /// Reads its standard input, and prints.
    Filter,
    /// Reads files, and writes one of what they hold.
    Hash,
    /// Moves, removes, links and makes.
    Tree,
    /// Ends with a status of its own.
    Status,
    /// Appends a line to a file to which others append, too.
    Append,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Write, Self::Filter, Self::Hash, Self::Tree, Self::Status, Self::Append];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Filter => "filter",
            Self::Hash => "hash",
            Self::Tree => "tree",
            Self::Status => "status",
            Self::Append => "append",
        }
    }

    /// The script. `$1` is the command's own word.
    pub fn script(self) -> &'static str {
        match self {
            Self::Write => COMMAND,
            Self::Filter => "sleep 0.2; sort -r",
            Self::Hash => "cat in1 in2; sleep 0.4; cat in1 in2 in3 in4 > out; sleep 0.2; wc -c < out",
            Self::Tree => {
                "mv a b2; rm -r d; mkdir e; for i in 1 2 3; do echo $i > e/$i; done; ln b2 c; chmod 700 e; sleep 0.4; echo moved"
            }
            Self::Status => "echo seven > seven; sleep 0.3; exit 7",
            Self::Append => "sleep 0.2; echo $1 >> log",
        }
    }

    /// What it reads from its standard input.
    pub fn input(self) -> Vec<u8> {
        match self {
            Self::Filter => {
                (0..LINES).map(|line| format!("{}\n", line * 7919 % LINES)).collect::<String>().into_bytes()
            }
            _ => Vec::new(),
        }
    }

    /// Makes what is there before it, in an empty folder.
    pub fn prepare(self, place: &Path) -> Result<()> {
        let put = |name: &str, text: &str| {
            let path = place.join(name);
            std::fs::write(&path, text).at("write", &path)
        };
        match self {
            Self::Hash => [("in1", "one\n"), ("in2", "two\n"), (INPUT, "three\n"), ("in4", "four\n")]
                .iter()
                .try_for_each(|(name, text)| put(name, text)),
            Self::Tree => {
                let folder = place.join("d");
                std::fs::create_dir_all(&folder).at("create", &folder)?;
                put("a", "moved\n")?;
                (0..20).try_for_each(|number| put(&format!("d/{number}"), "gone\n"))
            }
            Self::Write | Self::Filter | Self::Status | Self::Append => Ok(()),
        }
    }
}

/// What is in a folder: of each path its kind, rights and contents.
pub type Files = BTreeMap<PathBuf, String>;

/// Looks at a folder, but for the input that others change.
pub fn look(place: &Path) -> Files {
    let (mut found, mut open) = (Files::new(), vec![place.to_path_buf()]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            let path = entry.path();
            let inner = path.strip_prefix(place).unwrap_or(&path).to_path_buf();
            let body = match meta.is_dir() {
                true => String::new(),
                false => std::fs::read(&path).map_or_else(
                    |error| error.to_string(),
                    |bytes| format!("{} {:?}", meta.nlink(), String::from_utf8_lossy(&bytes)),
                ),
            };
            if meta.is_dir() {
                open.push(path);
            }
            if inner != Path::new(INPUT) {
                found.insert(inner, format!("{:o} {body}", meta.mode()));
            }
        }
    }
    found
}

/// Something that a command may come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// How it ends.
    pub ended: Ended,
    /// What it prints.
    pub stdout: Vec<u8>,
    /// What is in its folder then.
    pub files: Files,
}

/// What commands of one kind come to here.
#[derive(Clone, Debug)]
pub struct Reference {
    /// What is there before.
    pub before: Files,
    /// With the inputs as they are; changed; without one of them.
    pub after: Vec<Expected>,
}

impl Reference {
    /// Tries a kind here, below `place`.
    pub fn of(kind: Kind, client: &Client, place: &Path) -> Result<Self> {
        let mut before = Files::new();
        let mut after = Vec::new();
        for (round, edit) in ["true", "echo changed > in3", "rm in3"].iter().enumerate() {
            if round > 0 && kind != Kind::Hash {
                break;
            }
            let folder = place.join(format!("{}-{round}", kind.name()));
            std::fs::create_dir_all(&folder).at("create", &folder)?;
            kind.prepare(&folder)?;
            before = look(&folder);
            client.script(&folder, edit, "", Duration::from_secs(9))?.expect_ok("the edit")?;
            let mut command = shell(kind.script());
            command.arg("sh").arg("here").current_dir(&folder);
            client.dress(&mut command);
            let mut run = Run::new(command);
            run.input = crate::process::Input::Pipe(kind.input());
            let outcome = run.run()?;
            after.push(Expected { ended: outcome.ended, stdout: outcome.stdout, files: look(&folder) });
        }
        Ok(Self { before, after })
    }
}

/// Does to the input of commands that have one what others may do meanwhile.
pub fn disturb(places: &[PathBuf], vanishes: bool) {
    for file in places.iter().map(|place| place.join(INPUT)).filter(|file| file.exists()) {
        // In one step, as editors do: a reader sees the one or the other.
        let fresh = file.with_extension("new");
        let _ = match vanishes {
            true => std::fs::remove_file(&file),
            false => std::fs::write(&fresh, CHANGED).and_then(|()| std::fs::rename(&fresh, &file)),
        };
    }
}
