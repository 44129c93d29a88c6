//! Commands that also name the file into which their output goes. What they write or read there by its name, and what they say, is in one
//! order here; elsewhere nobody knows it.

use crate::profile::Program;
use crate::snapshot::disk::open_unseen;
use base::TreePath;
use base::path::printable;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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
    (is_named || script_of(program).is_some_and(|text| opens(&text, name)))
        .then(|| format!("it names {}, into which its output goes", printable(output.as_bytes())))
}

/// The text of the script that a program is, or runs.
fn script_of(program: &Program) -> Option<Vec<u8>> {
    let script = program.script.as_ref().unwrap_or(&program.real);
    let mut file = open_unseen(Path::new(std::ffi::OsStr::from_bytes(script.as_bytes()))).ok()?;
    let mut text = Vec::new();
    file.by_ref().take(2).read_to_end(&mut text).ok()?;
    if program.script.is_none() && text != b"#!" {
        return None;
    }
    file.take(SCRIPT_BYTES_MAX).read_to_end(&mut text).ok()?;
    Some(text)
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
