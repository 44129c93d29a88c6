//! What a command sees of files that change here while it runs.

use crate::error::{Context, Result};
use crate::pool::Pool;
use crate::process::{Outcome, Run, pause};
use crate::scenario::{END_BOUND, edited_meanwhile, folder};
use std::io::{Seek, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Lines of 64 bytes in a file that is asked for piece by piece (20 MB), and in one that goes along with a launch.
const LINES: [usize; 2] = [327_680, 600];
/// Commands run against each writer.
const READS: usize = 8;

/// How a writer changes its file, and how long it then leaves it alone.
#[derive(Clone, Copy, Debug)]
enum Writing {
    /// Another file takes its name.
    Renames(Duration),
    /// From front to back.
    InPlace(Duration),
}

/// The content of a file in its generation `number`: as many lines, all the same.
fn generation(number: usize, lines: usize) -> Vec<u8> {
    format!("{:.<63}\n", format!("generation {number:06} ")).repeat(lines).into_bytes()
}

fn write(path: &Path, how: Writing, content: &[u8]) -> std::io::Result<()> {
    match how {
        Writing::Renames(_) => {
            let new = path.with_extension("new");
            std::fs::write(&new, content)?;
            std::fs::rename(new, path)
        }
        Writing::InPlace(_) => {
            let mut file = std::fs::File::options().write(true).open(path)?;
            file.rewind()?;
            content.chunks(1 << 16).try_for_each(|chunk| file.write_all(chunk))
        }
    }
}

/// What is wrong with what `uniq -c` said of the file, if anything: it must be what the file was at one moment. Written from
/// front to back, it has lines of one generation and then of the one before.
fn torn(outcome: &Outcome, path: &Path, lines: usize) -> Option<String> {
    if !outcome.ok() {
        let named = outcome.said().contains(&*path.file_name()?.to_string_lossy());
        return (!named).then(|| format!("{} without naming the path: {}", outcome.ended, outcome.said()));
    }
    let runs: Vec<(usize, usize)> = outcome.text().lines().filter_map(run_of).collect();
    let whole = runs.iter().map(|(count, _)| count).sum::<usize>() == lines;
    let one_moment = match runs.as_slice() {
        [_] => true,
        [(_, newer), (_, older)] => *newer == older + 1,
        _ => false,
    };
    (!whole || !one_moment).then(|| format!("torn: {:?}", outcome.text()))
}

/// A line of `uniq -c`: how many lines of which generation.
fn run_of(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_whitespace();
    let count = words.next()?.parse().ok()?;
    Some((count, words.nth(1)?.parse().ok()?))
}

/// A writer rewrites a file all the time, while commands read it.
pub fn torn_files(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let ms = Duration::from_millis;
    let ways =
        [Writing::Renames(ms(50)), Writing::Renames(ms(800)), Writing::InPlace(ms(20)), Writing::InPlace(ms(800))];
    for (number, (how, lines)) in ways.into_iter().flat_map(|how| LINES.map(|lines| (how, lines))).enumerate() {
        let place = folder(pool, &format!("torn-{number}"))?;
        let found = read_while_written(pool, &place, how, lines)?;
        wrong.extend(found.into_iter().map(|what| format!("{how:?}, {lines} lines: {what}")));
    }
    Ok(wrong)
}

fn read_while_written(pool: &Pool, place: &Path, how: Writing, lines: usize) -> Result<Vec<String>> {
    let path = place.join("rewritten");
    std::fs::write(&path, generation(0, lines)).context(|| "cannot write the file".to_owned())?;
    let stop = AtomicBool::new(false);
    let mut wrong = Vec::new();
    std::thread::scope(|scope| -> Result<()> {
        let writer = scope.spawn(|| -> std::io::Result<()> {
            let (Writing::Renames(rest) | Writing::InPlace(rest)) = how;
            for number in 1.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                write(&path, how, &generation(number, lines))?;
                pause(rest);
            }
            Ok(())
        });
        let read = (0..READS).try_for_each(|number| {
            let mut command = pool.client.remrun(&["--no-local", "uniq", "-c", "rewritten"]);
            command.current_dir(place);
            wrong.extend(torn(&Run::new(command).within(END_BOUND).run()?, &path, lines));
            // One that does not care that it could not read all of it: then nothing of it may be committed.
            let script = format!("cat rewritten > copy{number}; true");
            let mut command = pool.client.remrun(&["--no-local", "sh", "-c", &script]);
            command.current_dir(place);
            let outcome = Run::new(command).within(END_BOUND).run()?;
            let size = std::fs::metadata(place.join(format!("copy{number}"))).map(|meta| meta.len()).ok();
            if size.is_some_and(|size| size != lines as u64 * 64) {
                wrong.push(format!("a part of the file was committed, with {}", outcome.ended));
            }
            Ok(())
        });
        stop.store(true, Ordering::SeqCst);
        let written = writer.join().unwrap_or_else(|_| Err(std::io::Error::other("the writer panicked")));
        written.context(|| "cannot rewrite the file".to_owned())?;
        read
    })?;
    Ok(wrong)
}

/// A file that a command has open goes on being that file when another takes its name, or when its name goes.
pub fn replaced(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (number, edit) in ["mv other big", "rm big", "mv big elsewhere"].into_iter().enumerate() {
        let place = folder(pool, &format!("replaced-{number}"))?;
        let write = |name: &str, generated| {
            std::fs::write(place.join(name), generation(generated, LINES[0]))
                .context(|| "cannot write the file".to_owned())
        };
        write("big", 1)?;
        write("other", 2)?;
        let script = "{ head -n 1; sleep 2.63; tail -n 1; } < big";
        let outcome = edited_meanwhile(pool, &place, script, "2.63", edit)?;
        let line = String::from_utf8_lossy(&generation(1, 1)).into_owned();
        if outcome.text().trim() != line.repeat(2).trim() || !outcome.ok() {
            wrong.push(format!("{edit}: {} with {:?} {}", outcome.ended, outcome.text(), outcome.said()));
        }
    }
    Ok(wrong)
}

/// Files that change while a command runs, before and after it first uses them.
pub fn late(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "late")?;
    let client = pool.client.clone();
    client.script(&place, "echo old > unread; echo old > read", "", END_BOUND)?.expect_ok("setup")?;
    let script = "cat read; sleep 2.57; cat read unread";
    let outcome = edited_meanwhile(pool, &place, script, "2.57", "echo new > unread; echo new > read")?;
    let mut wrong = Vec::new();
    if outcome.text() != "old\nold\nnew" {
        wrong.push(format!("a path means one thing for a task, from its first use: {:?}", outcome.text()));
    }
    let explained = client.json(&["explain", "--json"])?;
    let unread = place.join("unread").display().to_string();
    if explained["late"] != serde_json::json!([unread]) {
        wrong.push(format!("explain --json tells late: {}", explained["late"]));
    }
    let text = client.gleaner(&["explain"])?.text();
    if !text.lines().any(|line| line.starts_with("late") && line.contains(&unread)) {
        wrong.push(format!("explain does not tell what was late:\n{text}"));
    }
    Ok(wrong)
}
