//! Settings that hold from the next command on: their file is read again when it was changed, without a restart. One that cannot be
//! read changes nothing, and is told once.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::lock;

/// Where commands run that could run here as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefer {
    /// Where they are expected to end first.
    #[default]
    Auto,
    /// On the pool, whatever it costs.
    There,
}

/// What the user has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choices {
    /// How long commands that run wait for a link that is down; those that have run for longer wait for as long as that.
    pub link_wait: Duration,
    /// Where commands run that could run here as well.
    pub prefer: Prefer,
}

/// What a file holds now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What can be taken over at once.
    pub choices: Choices,
    /// The hub and the folders are still those that the daemon was started with.
    pub is_same_daemon: bool,
}

/// How the settings are read again.
#[derive(Clone)]
pub struct Source {
    /// The file.
    pub file: PathBuf,
    /// Reads it. The error says what is wrong, and where.
    pub read: Arc<dyn Fn() -> Result<Reading, String> + Send + Sync>,
}

impl fmt::Debug for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(out)
    }
}

/// What a look at the file found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing that concerns anybody but [`Settings`].
    Settled,
    /// What only another daemon can take over.
    Outdated,
    /// A file that was changed and cannot be used. Told once.
    Wrong(String),
}

/// The settings in force.
#[derive(Debug)]
pub(crate) struct Settings {
    source: Option<Source>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    choices: Choices,
    /// Of the file as it was read last.
    stamp: Option<Stamp>,
    is_outdated: bool,
    problem: Option<String>,
}

/// By what a changed file is known; of one that is not there, nothing.
type Stamp = Option<(u64, u64, i64, i64, u64)>;

fn stamp(file: &Path) -> Stamp {
    let found = std::fs::metadata(file).ok()?;
    Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
}

impl Settings {
    /// These, until `source` says something else.
    pub fn new(choices: Choices, source: Option<Source>) -> Self {
        let state = State { choices, stamp: None, is_outdated: false, problem: None };
        Self { source, state: Mutex::new(state) }
    }

    /// Those in force.
    pub fn choices(&self) -> Choices {
        lock(&self.state).choices
    }

    /// What is wrong with the file, if something is.
    pub fn problem(&self) -> Option<String> {
        lock(&self.state).problem.clone()
    }

    /// Reads the file again if it was changed.
    pub fn look(&self) -> Look {
        let Some(source) = &self.source else { return Look::Settled };
        let mut state = lock(&self.state);
        let found = stamp(&source.file);
        if state.stamp != Some(found) {
            state.stamp = Some(found);
            match (source.read)() {
                Ok(reading) => {
                    state.choices = reading.choices;
                    state.is_outdated = !reading.is_same_daemon;
                    state.problem = None;
                }
                Err(why) => {
                    let why = format!("{why}; the settings of before stay in force");
                    tracing::warn!(why, "the settings cannot be read");
                    state.problem = Some(why.clone());
                    return Look::Wrong(why);
                }
            }
        }
        if state.is_outdated { Look::Outdated } else { Look::Settled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_read_at_the_next_look_and_a_wrong_one_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("client.toml");
        let choices = |seconds| Choices { link_wait: Duration::from_secs(seconds), prefer: Prefer::Auto };
        let read = {
            let file = file.clone();
            move || match std::fs::read_to_string(&file) {
                Ok(text) => match text.strip_prefix("other ").unwrap_or(&text).parse() {
                    Ok(seconds) => {
                        Ok(Reading { choices: choices(seconds), is_same_daemon: !text.starts_with("other ") })
                    }
                    Err(_) => Err(format!("{}: no number", file.display())),
                },
                Err(_) => Ok(Reading { choices: choices(25), is_same_daemon: true }),
            }
        };
        let settings = Settings::new(choices(1), Some(Source { file: file.clone(), read: Arc::new(read) }));
        let write = |text: &str| {
            let fresh = file.with_extension("new");
            std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, &file)).expect("written");
        };
        assert_eq!((settings.look(), settings.choices()), (Look::Settled, choices(25)));
        write("7");
        assert_eq!(settings.choices(), choices(25), "nobody looked");
        assert_eq!((settings.look(), settings.choices()), (Look::Settled, choices(7)));
        write("odd");
        let Look::Wrong(why) = settings.look() else { panic!("it is wrong") };
        assert!(why.contains("client.toml: no number; the settings of before stay in force"), "{why}");
        assert_eq!((settings.look(), settings.choices()), (Look::Settled, choices(7)), "told once");
        assert!(settings.problem().is_some());
        write("other 8");
        assert_eq!((settings.look(), settings.look()), (Look::Outdated, Look::Outdated));
        std::fs::remove_file(&file).expect("removed");
        assert_eq!((settings.look(), settings.choices()), (Look::Settled, choices(25)));
        assert_eq!(settings.problem(), None);
    }
}
