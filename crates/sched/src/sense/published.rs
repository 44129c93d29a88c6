//! The three sensors of Wolski, Spring and Hayes (Predicting the CPU availability of time-shared Unix systems on the computational grid,
//! 1998, section 2), for comparison: they tell what a process of full priority gets of a host with one processor.
//!
//! With several processors, or if only some may be used, the same formulas go by these alone: load and running threads are counted per
//! processor.

use super::load::{Load, Used};

/// What a smoothed count of running threads keeps of the past at each reading.
const KEPT: f64 = 0.5;
/// How long a probe of the hybrid sensor spins, in seconds.
pub const PROBE_SECONDS: f64 = 1.5;
/// Readings from one probe to the next: a minute of readings every ten seconds.
pub const PROBE_EVERY: u32 = 6;

/// By the load average: one more shares with all.
pub fn load_average(load: &Load, cpus: usize) -> f64 {
    (cpus.max(1) as f64 / (load.load_average + 1.0)).min(1.0)
}

/// By what processors did: idle + user/(rp + 1) + w · system/(rp + 1), with w the user's part and rp the threads that run, smoothed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vmstat {
    running: Option<f64>,
}

impl Vmstat {
    /// One more reading, over these processors.
    pub fn observe(&mut self, load: &Load, cpus: &[u32]) -> f64 {
        let chosen = || load.cpus.iter().filter(|cpu| cpus.is_empty() || cpus.contains(&cpu.number));
        let count = chosen().count().max(1) as f64;
        let mean = |part: fn(&Used) -> f64| chosen().map(part).sum::<f64>() / count;
        let now = load.running / count;
        let running = self.running.map_or(now, |before| KEPT * before + (1.0 - KEPT) * now);
        self.running = Some(running);
        let (idle, user, system) = (mean(|cpu| cpu.idle), mean(|cpu| cpu.user), mean(|cpu| cpu.system));
        (idle + user / (running + 1.0) + user * system / (running + 1.0)).clamp(0.0, 1.0)
    }
}

/// Which of the two it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// [`load_average`].
    LoadAverage,
    /// [`Vmstat`].
    Vmstat,
}

/// By a probe that spins now and then: the method that was nearer to what the probe got is followed until the next one, and the difference
/// is added to what it says.
#[derive(Clone, Copy, Debug)]
pub struct Hybrid {
    method: Method,
    bias: f64,
}

impl Default for Hybrid {
    fn default() -> Self {
        Self { method: Method::Vmstat, bias: 0.0 }
    }
}

impl Hybrid {
    /// A probe got this part of a processor when the two methods said so.
    pub fn probed(&mut self, got: f64, by_load: f64, by_vmstat: f64) {
        let (method, said) = match (got - by_load).abs() < (got - by_vmstat).abs() {
            true => (Method::LoadAverage, by_load),
            false => (Method::Vmstat, by_vmstat),
        };
        (self.method, self.bias) = (method, got - said);
    }

    /// What it says when the two methods say so.
    pub fn says(&self, by_load: f64, by_vmstat: f64) -> f64 {
        let said = if self.method == Method::LoadAverage { by_load } else { by_vmstat };
        (said + self.bias).clamp(0.0, 1.0)
    }

    /// Which one it follows.
    pub fn method(&self) -> Method {
        self.method
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(idle: f64, user: f64, running: f64, load_average: f64) -> Load {
        let cpu = Used { number: 0, idle, taken: 0.0, user, system: 1.0 - idle - user };
        Load { seconds: 10.0, cpus: vec![cpu], running, load_average, ..Load::default() }
    }

    #[test]
    fn one_more_shares_with_all() {
        assert_eq!(load_average(&load(0.0, 1.0, 1.0, 3.0), 1), 0.25);
        assert_eq!(load_average(&load(1.0, 0.0, 0.0, 0.5), 2), 1.0);
        let mut vmstat = Vmstat::default();
        assert_eq!(vmstat.observe(&load(0.5, 0.5, 1.0, 0.0), &[]), 0.75);
        // The count is smoothed: it is 2 now.
        let said = vmstat.observe(&load(0.1, 0.6, 3.0, 0.0), &[0]);
        assert!((said - (0.1 + 0.2 + 0.6 * 0.3 / 3.0)).abs() < 1e-9, "{said}");
    }

    #[test]
    fn the_nearer_one_is_followed_with_what_it_lacks() {
        let mut hybrid = Hybrid::default();
        assert_eq!((hybrid.method(), hybrid.says(0.2, 0.4)), (Method::Vmstat, 0.4));
        hybrid.probed(0.9, 0.7, 0.4);
        assert_eq!(hybrid.method(), Method::LoadAverage);
        assert!((hybrid.says(0.6, 0.1) - 0.8).abs() < 1e-9);
        assert_eq!(hybrid.says(0.9, 0.1), 1.0, "there is no more than one processor");
    }
}
