//! What can go wrong in the harness itself, as opposed to in what it tests.

use std::path::Path;

/// A fault of the harness or its surroundings.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, with the path.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A case file cannot be read as one.
    #[error("{file}:{line}: {what}")]
    Case {
        /// The file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong and what would be right.
        what: String,
    },
    /// The product did not do what the harness builds on.
    #[error("{0}")]
    Product(String),
    /// Something that the machine lacks, and what to do.
    #[error("{0}")]
    Missing(String),
}

impl From<testbed::Error> for Error {
    fn from(error: testbed::Error) -> Self {
        match error {
            testbed::Error::System { what, source } => Self::Io { what, source },
            testbed::Error::Wrong(what) => Self::Product(what),
        }
    }
}

/// Result of the harness.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds to an I/O error what was tried.
pub trait Context<T> {
    /// Says what was tried.
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;

    /// Says what was tried on which path.
    fn at(self, verb: &str, path: &Path) -> Result<T>
    where
        Self: Sized,
    {
        self.context(|| format!("cannot {verb} {}", path.display()))
    }
}

impl<T, E: Into<std::io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { what: what(), source: source.into() })
    }
}
