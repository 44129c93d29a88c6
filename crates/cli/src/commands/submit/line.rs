//! Lines of JSON: commands that have names, and come after earlier ones.

use base::BatchTask;
use base::batch::{AFTER_MAX, AFTER_OF_JOB_MAX};
use serde::Deserialize;
use std::collections::HashMap;

/// A task, as a line has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    argv: Vec<String>,
    #[serde(default)]
    name: String,
    #[serde(default)]
    after: Vec<Earlier>,
}

/// An earlier task.
#[derive(Deserialize)]
#[serde(untagged, expecting = "the name or the number of an earlier task")]
enum Earlier {
    Number(u32),
    Name(String),
}

/// What came before a line.
#[derive(Default)]
pub struct Before {
    tasks: u32,
    names: HashMap<String, Named>,
    /// After how many others all of them come.
    after: u32,
}

/// Whom a name means.
#[derive(Clone, Copy)]
enum Named {
    One(u32),
    /// These, and perhaps more.
    Several(u32, u32),
}

impl Before {
    /// Takes note of a task that has no name.
    pub fn unnamed(&mut self) {
        self.tasks += 1;
    }

    /// The task of the next line. The error is for a person.
    pub fn line(&mut self, text: &[u8]) -> Result<BatchTask, String> {
        let line: Line = serde_json::from_slice(text).map_err(|error| format!("not a task: {error}"))?;
        if line.argv.first().is_none_or(String::is_empty) {
            return Err("`argv` names no program".into());
        }
        if line.argv.iter().any(|word| word.contains('\0')) {
            return Err("no command can have a NUL in it".into());
        }
        let mut after = line.after.iter().map(|earlier| self.find(earlier)).collect::<Result<Vec<u32>, _>>()?;
        after.sort_unstable();
        after.dedup();
        if after.len() > AFTER_MAX {
            return Err(format!(
                "a task comes after at most {AFTER_MAX} others: have some of them come before one in between"
            ));
        }
        self.after += after.len() as u32;
        if self.after > AFTER_OF_JOB_MAX {
            return Err(format!(
                "the tasks of a job come after at most {AFTER_OF_JOB_MAX} others in all: submit several jobs"
            ));
        }
        if !line.name.is_empty() {
            let this = self.tasks;
            let known = self.names.entry(line.name.clone()).or_insert(Named::One(this));
            if let Named::One(first) = *known
                && first != this
            {
                *known = Named::Several(first, this);
            }
        }
        self.tasks += 1;
        Ok(BatchTask { name: line.name, argv: line.argv.into_iter().map(String::into_bytes).collect(), after })
    }

    fn find(&self, earlier: &Earlier) -> Result<u32, String> {
        match earlier {
            Earlier::Number(number) if *number < self.tasks => Ok(*number),
            Earlier::Number(number) => Err(format!(
                "`after` has the number {number}, and this is task {}: a task comes after tasks of earlier lines, counted from 0",
                self.tasks
            )),
            Earlier::Name(name) => match (self.names.get(name), name.parse()) {
                (Some(Named::One(index)), _) => Ok(*index),
                (Some(Named::Several(first, second)), _) => Err(format!(
                    "`after` has the name `{name}`, which tasks {first} and {second} have: give each a name of its own, or the number"
                )),
                (None, Ok(number)) => self.find(&Earlier::Number(number)),
                (None, Err(_)) => Err(format!(
                    "`after` has the name `{name}`, which no earlier line has: move that line before this one, or correct the name"
                )),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(before: &mut Before, text: &str) -> Result<Vec<u32>, String> {
        before.line(text.as_bytes()).map(|task| task.after)
    }

    #[test]
    fn tasks_come_after_earlier_ones_by_name_or_number() {
        let mut before = Before::default();
        assert_eq!(after(&mut before, r#"{"argv": ["a"], "name": "one"}"#), Ok(vec![]));
        before.unnamed();
        assert_eq!(after(&mut before, r#"{"argv": ["a"], "name": "3", "after": ["one", 1, "1", 0]}"#), Ok(vec![0, 1]));
        assert_eq!(after(&mut before, r#"{"argv": ["a"], "after": ["3", "0"]}"#), Ok(vec![0, 2]), "a name goes first");
    }

    #[test]
    fn what_is_not_before_is_an_error() {
        let mut before = Before::default();
        before.unnamed();
        let mut said = |text: &str| after(&mut before, text).unwrap_err();
        let number = said(r#"{"argv": ["a"], "after": [1]}"#);
        assert!(number.starts_with("`after` has the number 1, and this is task 1: a task comes after"), "{number}");
        assert_eq!(said(r#"{"argv": ["a"], "after": ["7"]}"#), number.replace("number 1", "number 7"));
        let name = said(r#"{"argv": ["a"], "name": "own", "after": ["own"]}"#);
        assert!(name.starts_with("`after` has the name `own`, which no earlier line has: move that"), "{name}");
        let kind = said(r#"{"argv": ["a"], "after": [-1]}"#);
        assert!(kind.contains("the name or the number of an earlier task"), "{kind}");
        for _ in 0..2 {
            before.line(br#"{"argv": ["a"], "name": "twin"}"#).unwrap();
        }
        let twins = after(&mut before, r#"{"argv": ["a"], "after": ["twin"]}"#).unwrap_err();
        assert!(twins.contains("`twin`, which tasks 1 and 2 have: give each"), "{twins}");
    }
}
