//! Everything about a world that can be set by its name, with what it means and its bounds: for sweeps, and for whoever asks for other
//! worlds than the published ones.

use crate::bursts::Bursts;
use crate::cluster::{Manner, Setting, Source};
use crate::owners::Owners;
use sched::linger::Policy;
use sched::linger::foresight::Prices;

/// What worlds are made of, as numbers with names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    values: [f64; PARAMETERS.len()],
}

/// A parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it is, with its unit.
    pub about: &'static str,
    /// What it is if nobody says otherwise: of the published study.
    pub default: f64,
    /// Its bounds.
    pub bounds: (f64, f64),
    /// It counts something.
    pub is_whole: bool,
}

/// Why a parameter cannot be set.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParameterError {
    /// There is none of that name.
    #[error("there is no parameter `{0}`")]
    Unknown(String),
    /// The value is out of bounds.
    #[error("{name} is {} {least} to {most}, and not {value}", if *is_whole { "a whole number from" } else { "from" })]
    Bounds {
        /// Of which.
        name: &'static str,
        /// Its bounds.
        least: f64,
        /// See `least`.
        most: f64,
        /// Whether it counts something.
        is_whole: bool,
        /// What was asked for.
        value: f64,
    },
}

const fn count(name: &'static str, default: f64, most: f64, about: &'static str) -> Parameter {
    Parameter { name, about, default, bounds: (1.0, most), is_whole: true }
}

const fn part(name: &'static str, default: f64, about: &'static str) -> Parameter {
    Parameter { name, about, default, bounds: (0.0, 1.0), is_whole: false }
}

const fn number(name: &'static str, default: f64, bounds: (f64, f64), about: &'static str) -> Parameter {
    Parameter { name, about, default, bounds, is_whole: false }
}

/// Longest time span that can be asked for, in seconds.
const LONG_S: f64 = 1e8;
const LONG: (f64, f64) = (0.0, LONG_S);
/// Episodes are not shorter than a step of time.
const EPISODE: (f64, f64) = (2.0, LONG_S);
const SIGMA: (f64, f64) = (0.01, 5.0);

/// All of them.
pub const PARAMETERS: [Parameter; 31] = [
    count("machines", 64.0, 100_000.0, "machines"),
    count("jobs", 128.0, 10_000_000.0, "jobs that are submitted at once"),
    number("jobs-per-machine", 0.0, (0.0, 1_000.0), "jobs for each machine instead; 0: `jobs` are meant"),
    number("job-s", 600.0, (0.1, LONG_S), "processor time that a job needs, seconds: the mean"),
    number("job-sigma", 0.0, (0.0, 3.0), "deviation of its logarithm; 0: all are the same"),
    part("need-known", 0.0, "1: it is known what a job needs (FL alone asks)"),
    number("move-s", 22.4, LONG, "time that a job is on its way to another machine, seconds"),
    part("begin-again", 0.0, "1: jobs cannot be moved, and who leaves a machine begins again on the other one"),
    number("launch-s", 0.0, LONG, "time that it takes to begin again, besides what is done again, seconds"),
    number("wait-s", 60.0, LONG, "time that PM waits before it moves a job, seconds"),
    part("idle-use", 0.036, "part of the processor that LL takes an idle machine to use"),
    number("switch-us", 100.0, (0.0, 1e5), "context switch, microseconds"),
    number("run-ms", 20.0, (0.01, 1e5), "mean time that an owner's process runs before it rests, milliseconds"),
    number("burst-variation", 4.0, (1.0, 1e4), "square of deviation over mean of such times"),
    number("steady-s", 3_600.0, (2.0, LONG_S), "time over which throughput is measured, seconds"),
    number("watched-s", 3_600.0, (0.0, 1e7), "time for which machines were watched before, seconds"),
    number("give-up-s", 172_800.0, (2.0, LONG_S), "jobs that have not ended by then are given up, seconds"),
    number("idle-part", 0.0, (0.0, 0.999), "part of the time that owners are away; 0: as the medians have it"),
    number("away-median-s", 7_397.0, EPISODE, "how long owners are away: median, seconds"),
    number("away-sigma", 1.98, SIGMA, "deviation of its logarithm"),
    number("there-median-s", 12_724.0, EPISODE, "how long they are there: median, seconds"),
    number("there-sigma", 0.90, SIGMA, "deviation of its logarithm"),
    number("episode-max-s", 86_400.0, EPISODE, "no episode is longer, seconds"),
    part("away-use", 0.039, "mean part of the processor that a machine uses by itself"),
    part("low-use", 0.050, "mean part that owners use who read and write"),
    part("low-max", 0.10, "most of both of these"),
    part("high-from", 0.72, "least part that owners use who compute"),
    part("high-to", 1.0, "and most"),
    number("high-jitter", 0.025, (0.0, 1.0), "deviation of two seconds' use from that"),
    number("high-part", 0.24, (0.001, 0.999), "part of their presence in which they compute"),
    number("high-s", 53.0, EPISODE, "for how long at a time, seconds: the mean"),
];

impl Default for Parameters {
    fn default() -> Self {
        Self { values: PARAMETERS.map(|parameter| parameter.default) }
    }
}

impl Parameters {
    /// Sets one.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), ParameterError> {
        let place = PARAMETERS.iter().position(|parameter| parameter.name == name);
        let at = place.ok_or_else(|| ParameterError::Unknown(name.to_owned()))?;
        let Parameter { name, bounds: (least, most), is_whole, .. } = PARAMETERS[at];
        if !(least..=most).contains(&value) || (is_whole && value.fract() != 0.0) {
            return Err(ParameterError::Bounds { name, least, most, is_whole, value });
        }
        self.values[at] = value;
        Ok(())
    }

    /// One of them; 0 if there is none of that name.
    pub fn get(&self, name: &str) -> f64 {
        let values = PARAMETERS.iter().zip(self.values);
        values.filter(|(parameter, _)| parameter.name == name).map(|(_, value)| value).sum()
    }

    /// Those that are not as they were published, or only `but`, which is looked over.
    pub fn changed(&self, but: &[&str]) -> Vec<(&'static str, f64)> {
        let values = PARAMETERS.iter().zip(self.values);
        let is_changed =
            |(parameter, value): &(&Parameter, f64)| *value != parameter.default && !but.contains(&parameter.name);
        values.filter(is_changed).map(|(parameter, value)| (parameter.name, value)).collect()
    }

    /// The policies that are compared, with their short names.
    pub fn manners(&self) -> [(&'static str, Manner); 5] {
        [
            ("LL", Manner::Rule(Policy::LingerLonger)),
            ("LF", Manner::Rule(Policy::LingerForever)),
            ("IE", Manner::Rule(Policy::ImmediateEviction)),
            ("PM", Manner::Rule(Policy::PauseAndMigrate(self.get("wait-s")))),
            ("FL", Manner::Foresight),
        ]
    }

    /// What owners are like.
    pub fn owners(&self) -> Owners {
        let of = |name| self.get(name);
        let (from, to) = (of("high-from"), of("high-to"));
        let owners = Owners {
            away: (of("away-median-s"), of("away-sigma")),
            present: (of("there-median-s"), of("there-sigma")),
            episode_s_max: of("episode-max-s"),
            away_use: of("away-use"),
            low_use: of("low-use"),
            low_max: of("low-max"),
            high_use: (from.min(to), from.max(to)),
            high_jitter: of("high-jitter"),
            high_part: of("high-part"),
            high_s: of("high-s"),
        };
        let idle_part = of("idle-part");
        if idle_part > 0.0 { owners.with_idle_part(idle_part) } else { owners }
    }

    /// A world, with owners as these say, or as `source` does.
    pub fn setting(&self, manner: Manner, source: Option<&Source>) -> Setting {
        let of = |name| self.get(name);
        let per_machine = of("jobs-per-machine");
        let jobs = if per_machine > 0.0 { (per_machine * of("machines")).ceil() } else { of("jobs") };
        Setting {
            machines: of("machines") as usize,
            source: source.cloned().unwrap_or_else(|| Source::Drawn(self.owners())),
            bursts: Bursts {
                run_s: of("run-ms") / 1e3,
                variation: of("burst-variation"),
                switch_s: of("switch-us") / 1e6,
            },
            manner,
            jobs: jobs.max(1.0) as usize,
            job_s: of("job-s"),
            job_sigma: of("job-sigma"),
            prices: Prices { move_s: (of("begin-again") < 0.5).then(|| of("move-s")), launch_s: of("launch-s") },
            idle_use: of("idle-use"),
            watched_s: of("watched-s"),
            is_need_known: of("need-known") >= 0.5,
            steady_s: None,
            give_up_s: of("give-up-s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_set_by_name_and_within_bounds() {
        let mut parameters = Parameters::default();
        assert_eq!(parameters.owners(), Owners::default());
        assert_eq!(parameters.setting(Manner::Foresight, None).bursts, Bursts::default());
        parameters.set("move-s", 5.0).expect("sound");
        assert_eq!((parameters.get("move-s"), parameters.changed(&[])), (5.0, vec![("move-s", 5.0)]));
        assert_eq!(parameters.changed(&["move-s"]), []);
        let error = |name, value| Parameters::default().set(name, value).expect_err("not sound").to_string();
        assert_eq!(error("speed", 1.0), "there is no parameter `speed`");
        assert_eq!(error("idle-use", 2.0), "idle-use is from 0 to 1, and not 2");
        assert_eq!(error("machines", 1.5), "machines is a whole number from 1 to 100000, and not 1.5");
        assert!(error("job-s", f64::NAN).contains("not NaN"));
    }

    #[test]
    fn owners_are_away_for_the_part_that_is_asked_for() {
        let mut parameters = Parameters::default();
        for part in [0.2, 0.55, 0.9] {
            parameters.set("idle-part", part).expect("sound");
            assert!((parameters.owners().idle_part() - part).abs() < 0.005, "{}", parameters.owners().idle_part());
        }
        parameters.set("jobs-per-machine", 0.25).expect("sound");
        assert_eq!(parameters.setting(Manner::Foresight, None).jobs, 16);
    }
}
