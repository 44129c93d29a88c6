//! The peers, in the same rounds on the same machine: outrun over ssh, icecc and distcc for C. Each is set up in the scratch folder
//! and taken down with it; one that cannot be had, started or trusted is reported as missing, with the reason.

mod distcc;
mod far_side;
mod icecc;
mod outrun;
pub(super) mod packages;
pub(super) mod site;

use super::launch::COMPILE;
use super::samples::{Figures, Samples};
use crate::error::{Context, Error, Result};
use crate::pool::Pool;
use crate::process::{Daemon, Ended, Run, shell, tail, wait_for};
use rustix::process::Signal;
use site::{Environment, Site};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testbed::Entrance;

/// How long the first launch of a peer may take: icecc gives no work to a machine without idle time.
const FIRST_LAUNCH: Duration = Duration::from_secs(180);
/// How long any other may take.
const LAUNCH: Duration = Duration::from_secs(60);
/// How long a build may take.
const BUILD: Duration = Duration::from_secs(600);
/// How long after a launch its trace may come into the log of the far side.
const TRACE: Duration = Duration::from_secs(5);

/// What there is.
const KINDS: [Kind; 4] = [
    Kind { name: "distcc", launches: &["gcc"], start: distcc::plain },
    Kind { name: "distcc_pump", launches: &["gcc"], start: distcc::pump },
    Kind { name: "icecc", launches: &["gcc"], start: icecc::start },
    Kind { name: "outrun", launches: &["true", "gcc"], start: outrun::start },
];

struct Kind {
    name: &'static str,
    /// What is launched in each round: `true`, or `gcc` of a medium file.
    launches: &'static [&'static str],
    start: fn(&Site) -> Result<Peer>,
}

/// A peer that serves.
#[derive(Debug)]
pub struct Peer {
    /// What stands before a command.
    prefix: Vec<String>,
    env: Environment,
    /// Where its commands are typed, if that is a host of its own.
    near: Option<Entrance>,
    build: Build,
    /// Where the far side leaves `mark` for each command that ran there.
    log: PathBuf,
    mark: &'static str,
    daemons: Vec<Daemon>,
}

/// How a peer builds a whole project.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Build {
    /// Each compilation goes through it.
    EachCompilation,
    /// `make` itself does, with these further options, and once only: it takes long.
    Whole(&'static str),
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Some have forked. All that they hold lies in the scratch folder.
        for daemon in &self.daemons {
            let _ = rustix::process::kill_process_group(daemon.pid(), Signal::KILL);
        }
    }
}

impl Peer {
    /// Launches one command, and returns how many milliseconds it took.
    pub fn launch(&self, words: &[&str], place: &Path, limit: Duration) -> Result<f64> {
        let before = self.served();
        let mut command = Command::new(&self.prefix[0]);
        self.near.iter().for_each(|near| near.run_here(&mut command));
        command.args(&self.prefix[1..]).args(words).current_dir(place);
        command.env_clear().envs(self.env.iter().map(|(name, value)| (name, value)));
        let outcome = Run::new(command).within(limit).run()?;
        let said = tail(&outcome.stderr, 2);
        if outcome.ended == Ended::TimedOut {
            return Err(Error::Missing(format!("a launch did not end within {limit:?} {said}")));
        }
        if !outcome.ok() || said.contains("locally") {
            return Err(Error::Missing(format!("a launch ended with {}, and said: {said}", outcome.ended)));
        }
        match wait_for(TRACE, || (self.served() > before).then_some(())) {
            Some(()) => Ok(outcome.elapsed.as_secs_f64() * 1000.0),
            None => Err(Error::Missing("a launch ran here, not on the far side".to_owned())),
        }
    }

    /// How many commands have run on the far side.
    fn served(&self) -> usize {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log).matches(self.mark).count()
    }

    /// Seconds of `make -j8` in a configured tree.
    fn build(&self, source: &Path) -> Result<f64> {
        let before = self.served();
        let prefix = self.prefix[1..].join(" ");
        let make = match &self.build {
            Build::EachCompilation => format!("make -j8 CC=\"{} {prefix} gcc\"", self.prefix[0]),
            Build::Whole(options) => format!("{} {options} {prefix} make -j8", self.prefix[0]),
        };
        let mut command = shell(&format!("{make} > log 2>&1 || {{ grep -m 3 rror log; exit 1; }}"));
        command.current_dir(source).env_clear().envs(self.env.iter().map(|(name, value)| (name, value)));
        let outcome = Run::new(command).within(BUILD).run()?;
        if !outcome.ok() {
            return Err(Error::Missing(format!("make: {} {}", outcome.ended, outcome.text())));
        }
        let log = std::fs::read(source.join("log")).at("read", &source.join("log"))?;
        let log = String::from_utf8_lossy(&log);
        let compiled = log.lines().filter(|line| line.starts_with("  CC  ")).count();
        let there = (self.served() - before).saturating_sub(log.matches("locally").count());
        match self.build == Build::EachCompilation && there * 10 < compiled * 9 {
            true => Err(Error::Missing(format!("only {there} of {compiled} compilations ran on the far side"))),
            false => Ok(outcome.elapsed.as_secs_f64()),
        }
    }
}

/// Sets up one of them.
pub fn start(pool: &Pool, name: &str) -> Result<Peer> {
    let kind = KINDS.iter().find(|kind| kind.name == name);
    let kind = kind.ok_or_else(|| Error::Missing(format!("there is no peer {name}")))?;
    (kind.start)(&Site::new(pool, name)?)
}

/// All peers, each with why it is missing, if it is.
#[derive(Default)]
pub struct Peers {
    place: PathBuf,
    /// What `gcc` makes of the medium file here.
    object: Vec<u8>,
    all: Vec<(&'static Kind, std::result::Result<Peer, String>)>,
}

impl Peers {
    /// Sets up what can be set up. In `place` lies the medium file.
    pub fn start(pool: &Pool, place: &Path, say: &dyn Fn(&str)) -> Result<Self> {
        let mut gcc = Command::new("gcc");
        gcc.args(COMPILE).current_dir(place);
        pool.client.dress(&mut gcc);
        Run::new(gcc).run()?.expect_ok("gcc")?;
        let object = place.join("medium.o");
        let object = std::fs::read(&object).at("read", &object)?;
        let mut peers = Self { place: place.to_path_buf(), object, all: Vec::new() };
        for kind in &KINDS {
            say(&format!("setting up {}", kind.name));
            let site = Site::new(pool, kind.name)?;
            let started = (kind.start)(&site).and_then(|peer| {
                for launch in kind.launches {
                    peers.launch(&peer, launch, FIRST_LAUNCH)?;
                }
                Ok(peer)
            });
            peers.all.push((kind, started.map_err(|why| missing(kind, &why, say))));
        }
        Ok(peers)
    }

    fn launch(&self, peer: &Peer, launch: &str, limit: Duration) -> Result<f64> {
        if launch == "true" {
            return peer.launch(&["/bin/true"], &self.place, limit);
        }
        let object = self.place.join("medium.o");
        let _ = std::fs::remove_file(&object);
        let took = peer.launch(&[&["gcc"], &COMPILE[..]].concat(), &self.place, limit);
        let made = std::fs::read(&object).unwrap_or_default();
        match took.is_ok() && made != self.object {
            true => Err(Error::Missing("what it compiles is not what gcc makes here".to_owned())),
            false => took,
        }
    }

    /// One launch of each kind. A peer that fails is missing from then on.
    pub fn round(&mut self, samples: &mut Samples, say: &dyn Fn(&str)) {
        for index in 0..self.all.len() {
            let (kind, Ok(peer)) = &self.all[index] else { continue };
            for launch in kind.launches {
                match self.launch(peer, launch, LAUNCH) {
                    Ok(took) => samples.add(&format!("{}_{launch}", kind.name), took),
                    Err(why) => {
                        self.all[index].1 = Err(missing(kind, &why, say));
                        break;
                    }
                }
            }
        }
    }

    /// Medians of the launches.
    pub fn figures(&self, samples: &Samples, figures: &mut Figures) {
        for (kind, peer) in &self.all {
            for launch in kind.launches {
                let name = format!("{}_{launch}", kind.name);
                match peer {
                    Ok(_) => figures.add(&format!("{name}_ms_p50"), samples.median(&name)),
                    Err(why) => figures.missing(&format!("{name}_ms_p50"), why),
                }
            }
        }
    }

    /// One build with each peer, after `clean`, in a tree that is configured.
    pub fn build(
        &mut self,
        source: &Path,
        clean: &dyn Fn() -> Result<()>,
        times: &mut Samples,
        say: &dyn Fn(&str),
    ) -> Result<()> {
        for (kind, state) in &mut self.all {
            let Ok(peer) = state else { continue };
            let once = matches!(peer.build, Build::Whole(_));
            if once && times.median(kind.name).is_some() {
                continue;
            }
            clean()?;
            say(&format!("make -j8, {}", kind.name));
            match peer.build(source) {
                Ok(seconds) => times.add(kind.name, seconds),
                Err(why) => *state = Err(missing(kind, &why, say)),
            }
        }
        Ok(())
    }

    /// The builds, and their ratios to the local ones of the same rounds.
    pub fn build_figures(&self, times: &Samples, figures: &mut Figures) {
        for (kind, peer) in &self.all {
            match peer {
                Ok(_) => {
                    let ratio = times.median_of_pairs(kind.name, "local", |peer, local| peer / local);
                    figures.add(&format!("{}_build_s", kind.name), times.median(kind.name));
                    figures.add(&format!("{}_build_ratio", kind.name), ratio);
                }
                Err(why) => figures.missing(&format!("{}_build_ratio", kind.name), why),
            }
        }
    }
}

/// Says that a peer is missing, and returns why on one line.
fn missing(kind: &Kind, why: &Error, say: &dyn Fn(&str)) -> String {
    let why = why.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    say(&format!("without {}: {why}", kind.name));
    why
}
