//! Whether what was typed asks for JSON, also where it cannot be understood: its error is then for a program, too.

use super::Arguments;
use clap::{Arg, CommandFactory};
use std::ffi::OsString;

/// Whether words that may be no arguments ask for JSON. Those of a command that is run are its own.
pub fn may_want_json(words: impl Iterator<Item = OsString>) -> bool {
    let words: Vec<OsString> = words.skip(1).take_while(|word| word != "--").collect();
    match words.split_first() {
        Some((first, words)) if first == "run" => before_command(words).any(|word| word == "--json"),
        Some((_, words)) => words.iter().any(|word| word == "--json"),
        None => false,
    }
}

/// The options of `gleaner run` before its command, without their values. One that there is not counts as having none.
fn before_command(words: &[OsString]) -> impl Iterator<Item = &OsString> {
    let arguments = Arguments::command();
    let all: Vec<Arg> =
        arguments.find_subcommand("run").into_iter().flat_map(|run| run.get_arguments()).cloned().collect();
    let takes_value = move |is_it: &dyn Fn(&Arg) -> bool| {
        all.iter().any(|arg| is_it(arg) && !arg.is_positional() && arg.get_action().takes_values())
    };
    // Whether the next word is the value of this one.
    let wants_next = move |word: &str| match (word.strip_prefix("--"), word.strip_prefix('-')) {
        (Some(long), _) => takes_value(&|arg| arg.get_long() == Some(long)),
        (None, Some(shorts)) => {
            // What follows a letter with a value is that value.
            let valued = shorts.char_indices().find(|(_, short)| takes_value(&|arg| arg.get_short() == Some(*short)));
            valued.is_some_and(|(at, short)| at + short.len_utf8() == shorts.len())
        }
        (None, None) => false,
    };
    let mut is_value = false;
    let options = words.iter().map_while(move |word| {
        let text = word.to_string_lossy();
        let is_option = text.len() > 1 && text.starts_with('-');
        match std::mem::take(&mut is_value) {
            // An option is nobody's value.
            _ if is_option => {
                is_value = wants_next(&text);
                Some(Some(word))
            }
            true => Some(None),
            false => None,
        }
    });
    options.flatten()
}
