//! The programs that the benchmark runs: the suite's own binary, with [`SUBCOMMAND`] first, then one of [`LOADS`] and what it takes.
//!
//! What an owner runs prints one line of JSON when it is done; a guest prints `ready` and never rests.

mod files;
mod guests;
mod owner;

pub use owner::cpu_ns;

use crate::error::{Context, Error, Result};
use rustix::thread::CpuSet;
use std::process::ExitCode;
use std::str::FromStr;

/// First argument with which the suite's binary is one of these programs.
pub const SUBCOMMAND: &str = "load";
/// What a guest says when it is there.
pub const READY: &str = "ready";

type Load = fn(&mut Words<'_>) -> Result<()>;

const LOADS: [(&str, Load); 13] = [
    ("spin", guests::spin),
    ("touch", guests::touch),
    ("stream", guests::stream),
    ("hold", guests::hold),
    ("calibrate", owner::calibrate),
    ("bursts", owner::bursts),
    ("probe", owner::probe),
    ("loops", owner::loops),
    ("hungry", owner::hungry),
    ("build", files::build),
    ("unit", files::unit),
    ("reads", files::reads),
    ("fsync", files::fsync),
];

/// Becomes the program that the arguments name.
pub fn main(arguments: &[String]) -> ExitCode {
    let mut words = Words(arguments.iter());
    let name = words.0.next().map_or("", String::as_str);
    let load = LOADS.iter().find(|(known, _)| *known == name);
    let done = load.map_or_else(|| Err(Error::Missing(format!("no load {name}"))), |(_, load)| load(&mut words));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Arguments, taken one by one.
struct Words<'a>(std::slice::Iter<'a, String>);

impl Words<'_> {
    fn next<T: FromStr>(&mut self) -> Result<T> {
        let word = self.0.next().map_or("", String::as_str);
        word.parse().map_err(|_| Error::Missing(format!("cannot read the argument `{word}`")))
    }

    fn rest<T: FromStr>(&mut self) -> Vec<T> {
        self.0.by_ref().filter_map(|word| word.parse().ok()).collect()
    }
}

/// This thread stays on that CPU, if it is not negative.
fn stay_on(cpu: i64) -> Result<()> {
    let Ok(cpu) = usize::try_from(cpu) else { return Ok(()) };
    let mut set = CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).context(|| "cannot stay on one CPU".to_owned())
}

/// Work of fixed size: random steps through 128 KiB, as long as a step takes.
#[derive(Debug)]
struct Work {
    at: u64,
    table: Vec<u64>,
}

impl Work {
    fn new() -> Self {
        Self { at: 0x9e37_79b9_7f4a_7c15, table: vec![1; 1 << 14] }
    }

    /// So many steps, each of which needs the one before.
    fn steps(&mut self, count: u64) {
        for _ in 0..count {
            self.at ^= self.at << 13;
            self.at ^= self.at >> 7;
            self.at ^= self.at << 17;
            let slot = &mut self.table[(self.at & 0x3fff) as usize];
            *slot = slot.wrapping_add(self.at);
            self.at ^= *slot & 0xff;
        }
        std::hint::black_box(self.at);
    }
}
