//! Errors of `gleaner`: whose they are, what is wrong, and what to do next. The kind decides the exit status.

use crate::config::{Config, Flags, Surroundings};
use base::path::shown_lines;
use client::report::{Problem, ProblemKind};
use gleaner_client::door::DoorError;
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

/// What a subcommand returns.
pub type Result<T = (), E = CliError> = std::result::Result<T, E>;

/// An error that a person is to read.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct CliError {
    /// Whose fault it is.
    pub kind: ProblemKind,
    /// What is wrong, and where.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
}

impl CliError {
    /// What was typed is wrong.
    pub fn user(message: impl Into<String>) -> Self {
        Self { kind: ProblemKind::User, message: message.into(), hint: None }
    }

    /// The configuration is wrong.
    pub fn config(message: impl Into<String>) -> Self {
        Self { kind: ProblemKind::Config, message: message.into(), hint: None }
    }

    /// Something is missing on this machine, or cannot be reached.
    pub fn environment(message: impl Into<String>) -> Self {
        Self { kind: ProblemKind::Environment, message: message.into(), hint: None }
    }

    /// A fault of this program.
    pub fn internal(message: impl Into<String>) -> Self {
        let hint = "this is a fault of gleaner; please report it with this message and the output of `gleaner doctor`";
        Self { kind: ProblemKind::Internal, message: message.into(), hint: Some(hint.into()) }
    }

    /// A system call on a file or folder failed.
    pub fn file(doing: &str, path: &std::path::Path, error: impl Display) -> Self {
        Self::environment(format!("{doing} {}: {error}", path.display()))
    }

    /// Says what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The exit status: 2 user, 78 configuration, 69 environment, 70 internal.
    pub fn exit_status(&self) -> u8 {
        match self.kind {
            ProblemKind::User => 2,
            ProblemKind::Config => 78,
            ProblemKind::Environment => 69,
            ProblemKind::Internal => 70,
        }
    }

    /// The text for standard error.
    pub fn text(&self) -> String {
        let kind = match self.kind {
            ProblemKind::User => "error",
            ProblemKind::Config => "configuration error",
            ProblemKind::Environment => "unavailable",
            ProblemKind::Internal => "internal error",
        };
        let hint = self.hint.as_ref().map(|hint| format!("hint: {hint}\n")).unwrap_or_default();
        shown_lines(&format!("gleaner: {kind}: {}\n{hint}", self.message)).into_owned()
    }

    /// The same for a program: `{"error": {"kind", "message", "hint", "exit_status"}}`.
    pub fn json(&self) -> Value {
        let Self { kind, message, hint } = self;
        json!({"error": {"kind": kind, "message": message, "hint": hint, "exit_status": self.exit_status()}})
    }

    /// Prints the error for a program, on standard output, and gives the status to exit with. On one line, as it may come
    /// after others that are each an object.
    pub fn report_json(&self) -> ExitCode {
        match crate::render::print_json_line(&self.json()) {
            Ok(()) => self.exit_status().into(),
            Err(_) => self.report(),
        }
    }

    /// Prints the error, and gives the status to exit with.
    pub fn report(&self) -> ExitCode {
        // Nothing is left to be done if standard error is closed.
        let _ = std::io::stderr().write_all(self.text().as_bytes());
        self.exit_status().into()
    }
}

impl From<Problem> for CliError {
    fn from(problem: Problem) -> Self {
        Self { kind: problem.kind, message: problem.message, hint: problem.hint }
    }
}

impl From<DoorError> for CliError {
    fn from(error: DoorError) -> Self {
        if let DoorError::NotStarted(_) = &error
            && let Err(settings) = Config::load(&Surroundings::of_process(), Flags::default())
        {
            // The daemon reads the same.
            return settings;
        }
        let hint = match error {
            DoorError::NotStarted(_) => {
                Some("`gleaner doctor` shows what is missing; `gleaner daemon` runs it in view")
            }
            _ => None,
        };
        Self { kind: ProblemKind::Environment, message: error.to_string(), hint: hint.map(String::from) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_status() {
        let error = CliError::config("/c/client.toml: hub_key: not a key").hint("run `gleaner use TOKEN` again");
        assert_eq!(
            error.text(),
            "gleaner: configuration error: /c/client.toml: hub_key: not a key\nhint: run `gleaner use TOKEN` again\n"
        );
        assert_eq!(error.exit_status(), 78);
        let json = error.json();
        assert_eq!((json["error"]["kind"].as_str(), json["error"]["exit_status"].as_u64()), (Some("config"), Some(78)));
        assert_eq!(CliError::user("a\u{1b}[2J\nb").text(), "gleaner: error: a\\u{1b}[2J\nb\n");
        assert_eq!(CliError::user("x").exit_status(), 2);
        assert_eq!(CliError::environment("x").exit_status(), 69);
        assert_eq!(CliError::internal("x").exit_status(), 70);
    }
}
