//! Commands that also name the file into which their output goes. What they write or read there by its name, and what they say, is in one
//! order here; elsewhere nobody knows it.

use super::{open_script, text_of_script};
use crate::profile::Program;
use base::TreePath;
use base::path::printable;

/// Of a longer script the beginning is looked at.
const SCRIPT_BYTES_MAX: u64 = 256 << 10;
/// What stands before the name of a file that is opened, but for spaces, quotes and folders.
const OPENERS: [&[u8]; 7] = [b">", b"<", b"of=", b"if=", b"open(", b"tee", b"tee -a"];

/// Why a command is run here whose output goes into this file, if it names the file as well: as an argument, or where its script opens
/// it. Looks at the file system.
pub fn names_output(argv: &[Vec<u8>], program: &Program, cwd: &TreePath, output: &TreePath) -> Option<String> {
    let is_it = |word: &&Vec<u8>| cwd.resolve(word).as_ref() == Some(output);
    let name = output.name();
    let words = argv.get(1..).unwrap_or_default();
    let is_named = words.iter().any(|word| is_it(&word) || opens(word, name));
    let script = program.script.as_ref().unwrap_or(&program.real);
    let text = || open_script(script).and_then(|file| text_of_script(file, program, SCRIPT_BYTES_MAX));
    (is_named || text().is_some_and(|text| opens(&text, name)))
        .then(|| format!("it names {}, into which its output goes", printable(output.as_bytes())))
}

/// Whether a script opens a file of this name, in some folder.
fn opens(text: &[u8], name: &[u8]) -> bool {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-+~%".contains(byte);
    // A folder or quotes may stand between.
    let ends_folder = |byte: &u8| byte.is_ascii_whitespace() || b"<>=(".contains(byte);
    memchr::memmem::find_iter(text, name).any(|at| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        if after.first().is_some_and(is_of_name) || before.last().is_some_and(is_of_name) {
            return false;
        }
        let folder = before.iter().rev().take_while(|byte| !ends_folder(byte)).count();
        let before = before[..before.len() - folder].trim_ascii_end();
        OPENERS.iter().any(|opener| before.ends_with(opener))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_script_opens() {
        for text in [
            "echo a > log",
            "echo a >>log; b",
            "echo a >> \"$HOME/x/log\"",
            "exec > \"$HOME\"/log",
            "cat <'log'",
            "make | tee -a log",
            "dd if=x of=./log",
            "with open('log', 'a') as f:",
        ] {
            assert!(opens(text.as_bytes(), b"log"), "{text}");
        }
        for text in ["echo log", "cat > log.txt", "echo > xlog", "git log > x", "a > dir/log-2", "", "log", ">"] {
            assert!(!opens(text.as_bytes(), b"log"), "{text}");
        }
    }
}
