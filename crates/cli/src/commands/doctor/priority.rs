//! What this machine's owner is spared: which of the means are in force at the worker that runs here, or would be at one that is started
//! as who asks.

use super::roles::Place;
use super::{Finding, Verdict, WORKER, finding};
use serde_json::{Value, json};
use std::path::Path;
use worker::host::control::ask;
use worker::sandbox::{Limits, possible_limits};

/// The means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Priority {
    /// Those of a worker that runs; otherwise what could be.
    pub is_in_force: bool,
    /// What control groups hold.
    pub limits: Limits,
    /// The kernel tells when memory is short.
    pub tells_shortage: bool,
    /// Something tells whether the owner types or moves anything.
    pub sees_input: bool,
}

/// Asks the worker whose folder this is, or tries.
pub fn look(worker: Option<&Path>) -> Priority {
    let told = worker.and_then(|folder| ask(folder, &json!({"ask": "guests"})).ok());
    if let Some(told) = told.filter(|told| told["priority"].is_object()) {
        return of(&told["priority"]);
    }
    Priority {
        is_in_force: false,
        limits: possible_limits(),
        tells_shortage: worker::host::memory::shortage().is_some(),
        sees_input: worker::host::presence::sees_input(),
    }
}

fn of(told: &Value) -> Priority {
    let is = |name: &str| told[name] == true;
    Priority {
        is_in_force: true,
        limits: Limits {
            cpu_idle: is("cpu_idle"),
            after_all: is("after_all"),
            memory: is("memory"),
            pids: true,
            freeze: is("freeze"),
        },
        tells_shortage: is("shortage"),
        sees_input: is("input"),
    }
}

/// Decides what that means, at such a place.
pub fn judge(priority: &Priority, place: Place) -> Vec<Finding> {
    let groups = place.groups();
    let top = match place {
        Place::Container => "run the worker outside of the container",
        Place::Root => "run the worker by a unit of its own: examples/systemd/gleaner-worker.service",
        Place::Account => "run the worker as root: examples/systemd/gleaner-worker.service",
    };
    let limits = priority.limits;
    let now = if priority.is_in_force { "in force" } else { "possible" };
    let judged = |subject, holds: bool, good: String, bad: &str, remedy: &str| match holds {
        true => finding(subject, WORKER, Verdict::Ok, good, ""),
        false => finding(subject, WORKER, Verdict::Weak, bad.into(), remedy),
    };
    vec![
        judged(
            "CPU priority",
            limits.cpu_idle && limits.after_all,
            format!("{now}: a group with cpu.idle, SCHED_IDLE in it"),
            if limits.cpu_idle {
                "guests come after what is in the same unit or container, and beside all others that takes its share"
            } else {
                "guests are SCHED_IDLE, but a group beside the owner's takes its share"
            },
            if limits.cpu_idle { top } else { groups },
        ),
        judged(
            "resting",
            limits.freeze,
            format!("{now}: guests are frozen; one that must leave is begun again elsewhere"),
            "guests cannot be frozen: they end instead",
            groups,
        ),
        judged(
            "owner's memory",
            limits.memory && priority.tells_shortage,
            format!("{now}: guests are bounded, use no swap, and end before it is short"),
            if limits.memory {
                "the kernel does not tell when it is short: it is polled"
            } else {
                "guests are not bounded"
            },
            if !limits.memory {
                groups
            } else if place == Place::Container {
                ""
            } else {
                "boot with psi=1"
            },
        ),
        judged(
            "owner's disk",
            limits.memory && limits.freeze,
            format!("{now}: what guests write is bounded and paced"),
            "guests' writes are of the idle class only, which spares no fsync",
            groups,
        ),
        judged(
            "owner's presence",
            priority.sees_input,
            format!("{now}: input is seen"),
            "only the load of other programs tells whether the owner is there",
            // Without input devices there is nothing to be seen.
            if place == Place::Account { "add the worker's account to the group input, or run it as root" } else { "" },
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Priority {
        let told = json!({"cpu_idle": true, "after_all": true, "memory": true, "freeze": true, "shortage": true, "input": true});
        of(&told)
    }

    #[test]
    fn all_means_are_fine_and_each_that_is_missing_is_told() {
        assert!(judge(&all(), Place::Root).iter().all(|finding| finding.verdict == Verdict::Ok));
        let without = |change: fn(&mut Priority)| {
            let mut priority = all();
            change(&mut priority);
            let weak = judge(&priority, Place::Root).into_iter().filter(|finding| finding.verdict == Verdict::Weak);
            weak.map(|finding| finding.subject).collect::<Vec<_>>()
        };
        assert_eq!(without(|priority| priority.limits.cpu_idle = false), ["CPU priority"]);
        assert_eq!(without(|priority| priority.limits.after_all = false), ["CPU priority"]);
        assert_eq!(without(|priority| priority.limits.freeze = false), ["resting", "owner's disk"]);
        assert_eq!(without(|priority| priority.limits.memory = false), ["owner's memory", "owner's disk"]);
        assert_eq!(without(|priority| priority.tells_shortage = false), ["owner's memory"]);
        assert_eq!(without(|priority| priority.sees_input = false), ["owner's presence"]);
    }

    #[test]
    fn looking_does_not_fail() {
        let priority = look(Some(Path::new("/nowhere")));
        assert!(!priority.is_in_force);
    }
}
