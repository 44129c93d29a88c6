//! `parsers`: the targets by hand, without a fuzzer.

use parsers::{TARGETS, Target, bounds::Counting, of_name, passes, run};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

#[global_allocator]
static HEAP: Counting = Counting;

const USAGE: &str = "usage: parsers list                              the targets
       parsers seeds FOLDER                      write inputs to begin with, a folder for each target
       parsers check [TARGET] [SECONDS] [SEED]   the corpus, then inputs drawn and mutated, of one target or of all
       parsers replay TARGET FILE                one input";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["list"] => {
            TARGETS.iter().for_each(|target| println!("{}", target.name));
            Ok(())
        }
        ["seeds", folder] => TARGETS.iter().try_for_each(|target| seed(Path::new(folder), target)),
        ["check", rest @ ..] => check(rest),
        ["replay", name, file] => replay(name, Path::new(file)),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("parsers: {message}");
            ExitCode::FAILURE
        }
    }
}

fn target(name: &str) -> Result<&'static Target, String> {
    of_name(name).ok_or_else(|| format!("there is no target {name}: `parsers list` names them"))
}

fn seed(folder: &Path, target: &Target) -> Result<(), String> {
    let folder = folder.join(target.name);
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    for (number, input) in passes::seeds(target).iter().enumerate() {
        let file = folder.join(format!("seed-{number}"));
        std::fs::write(&file, input).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    Ok(())
}

fn check(rest: &[&str]) -> Result<(), String> {
    let number = |text: Option<&&str>, default: u64| {
        text.map_or(Ok(default), |text| text.parse().map_err(|_| format!("`{text}` is no number")))
    };
    let (only, numbers) = match rest {
        [name, numbers @ ..] if name.parse::<u64>().is_err() => (Some(target(name)?), numbers),
        numbers => (None, numbers),
    };
    let time = Duration::from_secs(number(numbers.first(), 2)?);
    let seed = number(numbers.get(1), 1)?;
    let mut found = Vec::new();
    let mut each = |target: &'static Target, outcome: Result<usize, passes::Found>| match outcome {
        Ok(count) => println!("{}: {count} inputs", target.name),
        Err(input) => found.push(input),
    };
    match only {
        Some(target) => each(target, passes::pass(target, seed, time)),
        None => passes::all(seed, time, each),
    }
    for find in &found {
        let file = std::env::temp_dir().join(format!("gleaner-found-{}-{}", find.target, std::process::id()));
        std::fs::write(&file, &find.input).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        println!("{} failed; again: `parsers replay {} {}`", find.target, find.target, file.display());
    }
    if found.is_empty() { Ok(()) } else { Err(format!("{} of the targets failed", found.len())) }
}

fn replay(name: &str, file: &Path) -> Result<(), String> {
    let input = std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    run(target(name)?, &input);
    Ok(())
}
