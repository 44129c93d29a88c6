//! What the scripts of a task do by their text: whether they make files, folders or links to lock something.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Of a longer script the beginning is looked at, bytes.
const TEXT_BYTES_MAX: u64 = 256 << 10;
/// By what a script takes away what it has made to lock something.
const TAKES_AWAY: [&[u8]; 4] = [b"rmdir", b"rm -", b"rm \"", b"unlink"];
/// By what it tries again while another has made it. Many scripts make a folder and take it away again, and lock nothing by that.
const TRIES_AGAIN: [&[u8]; 6] =
    [b"until mkdir", b"until ln ", b"while ! mkdir", b"while ! ln ", b"FileExistsError", b"EEXIST"];

/// Whether a process interprets a script, which makes a file that must not be there as a lock (`set -C`) more than for any other reason.
pub fn is_interpreted(process: u32) -> bool {
    const STARTS: [&[u8]; 8] = [b"sh", b"bash", b"dash", b"zsh", b"ksh", b"python", b"perl", b"ruby"];
    let program = std::fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
    program.file_name().is_some_and(|name| STARTS.iter().any(|start| name.as_bytes().starts_with(start)))
}

/// Whether the process makes a folder or link for a script that tries again where it is there, and takes it away again: it is the script's
/// own, or `mkdir NAME` or `ln` that it runs.
pub fn makes_locks(process: u32) -> bool {
    if is_interpreted(process) {
        return locks_by_names(process);
    }
    let words = words(process);
    let name = words.first().and_then(|word| word.rsplit(|byte| *byte == b'/').next());
    let may_fail = match name {
        Some(b"mkdir") => words.len() == 2,
        Some(b"ln") => !words.iter().any(|word| word.starts_with(b"-") && word.contains(&b'f')),
        _ => false,
    };
    may_fail && parent(process).is_some_and(|parent| is_interpreted(parent) && locks_by_names(parent))
}

fn words(process: u32) -> Vec<Vec<u8>> {
    let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    line.strip_suffix(b"\0").unwrap_or(&line).split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

fn parent(process: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// Whether the text that a process interprets has both.
fn locks_by_names(process: u32) -> bool {
    let has =
        |text: &[u8], words: &[&[u8]]| words.iter().any(|word| text.windows(word.len()).any(|part| part == *word));
    let says = |text: &[u8]| has(text, &TAKES_AWAY) && has(text, &TRIES_AGAIN);
    let words = words(process);
    if words.iter().any(|word| says(word)) {
        return true;
    }
    let script = words.iter().skip(1).find(|word| !word.starts_with(b"-"));
    script.is_some_and(|name| says(&beginning(process, name).unwrap_or_default()))
}

fn beginning(process: u32, name: &[u8]) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let path = Path::new(&format!("/proc/{process}/cwd")).join(std::ffi::OsString::from_vec(name.to_vec()));
    let file = std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let mut text = Vec::new();
    file.take(TEXT_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a shell");
        let mut said = [0];
        std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut said).expect("it has begun");
        child
    }

    #[test]
    fn a_script_that_tries_again_and_takes_away_what_it_makes() {
        for (script, want) in [
            ("echo; read y; until mkdir x; do :; done; rmdir x", true),
            ("echo; read y; rm -rf x; mkdir x", false),
            ("echo; read y; until mkdir x; do :; done", false),
        ] {
            let mut child = shell(script);
            assert_eq!(makes_locks(child.id()), want, "{script}");
            child.kill().expect("it runs");
            child.wait().expect("it ended");
        }
        assert!(!makes_locks(std::process::id()), "no script");
    }
}
