//! Errors of what was typed, for a program: all that people are shown of them, as one message and a hint.

use super::Arguments;
use crate::error::CliError;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;

/// The error of these words with a suggestion, where clap has none: `submit` takes a command otherwise than `run` does.
pub fn with_tip(mut error: clap::Error, words: impl Iterator<Item = OsString>) -> clap::Error {
    let is_word = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) => !word.starts_with('-'),
        _ => false,
    };
    if is_word && error.kind() == ErrorKind::UnknownArgument && command(words) == "gleaner submit" {
        let tip = vec!["to submit one command, put `--` before it".into()];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tip));
    }
    error
}

/// The error of these words, which clap has refused. The hint leads to the help of the subcommand that was meant.
pub fn for_program(error: &clap::Error, words: impl Iterator<Item = OsString>) -> CliError {
    let text = error.render().to_string();
    let text = text.trim_start_matches("error: ");
    // What is wrong, then suggestions, then the usage; with empty lines between.
    let mut parts = text.split("\n\n");
    let message = joined(parts.next().unwrap_or_default());
    let tips: Vec<String> =
        parts.flat_map(str::lines).filter_map(|line| line.trim().strip_prefix("tip: ")).map(str::to_owned).collect();
    let help = format!("{} --help", command(words));
    let hint = if tips.is_empty() { help } else { format!("{}; see {help}", tips.join("; ")) };
    CliError::user(message).hint(hint)
}

/// Lines as one: what a colon announces is a list, all else goes on.
fn joined(lines: &str) -> String {
    let mut lines = lines.lines().map(str::trim);
    let first = lines.next().unwrap_or_default();
    let rest: Vec<&str> = lines.collect();
    let between = if first.ends_with(':') { ", " } else { " " };
    format!("{first} {}", rest.join(between)).trim_end().to_owned()
}

/// The subcommand that these words name, as far as there is one.
fn command(words: impl Iterator<Item = OsString>) -> String {
    let (mut name, mut command) = ("gleaner".to_owned(), Arguments::command());
    let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    for word in words.skip(1).take_while(|word| word != "--").filter(|word| !is_option(word)) {
        let Some(found) = command.find_subcommand(&word).cloned() else { break };
        name = format!("{name} {}", found.get_name());
        command = found;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn said(line: &str) -> (String, String) {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let error = Arguments::try_parse_from(&words).expect_err("it is wrong");
        let error = for_program(&with_tip(error, words.clone().into_iter()), words.into_iter());
        (error.message, error.hint.expect("a hint"))
    }

    #[test]
    fn the_message_is_whole_and_the_hint_is_of_the_subcommand() {
        let required = "the following required arguments were not provided:";
        let refused = "the argument '--list' cannot be used with";
        for (line, message, hint) in [
            ("gleaner cancel --json", &*format!("{required} <TASK>"), "gleaner cancel --help"),
            ("gleaner approve --json", &format!("{required} --trust <TRUST>, <NODE>"), "gleaner approve --help"),
            (
                "gleaner sim linger --policy XX --json",
                "invalid value 'XX' for '--policy <POLICY>' [possible values: LL, LF, IE, PM, FL]",
                "gleaner sim linger --help",
            ),
            ("gleaner recover --list --into x --json", &format!("{refused} '--into <DIR>'"), "gleaner recover --help"),
            (
                "gleaner submit sh x.sh --json",
                "unexpected argument 'x.sh' found",
                "to submit one command, put `--` before it; see gleaner submit --help",
            ),
            ("gleaner frob --json", "unrecognized subcommand 'frob'", "gleaner --help"),
            (
                "gleaner cancl --json",
                "unrecognized subcommand 'cancl'",
                "a similar subcommand exists: 'cancel'; see gleaner --help",
            ),
            (
                "gleaner cancel --jsn 1",
                "unexpected argument '--jsn' found",
                "a similar argument exists: '--json'; see gleaner cancel --help",
            ),
        ] {
            assert_eq!(said(line), (message.to_owned(), hint.to_owned()), "{line}");
        }
        assert_eq!(joined("--a cannot be used with:\n  --b\n  --c <C>"), "--a cannot be used with: --b, --c <C>");
    }
}
