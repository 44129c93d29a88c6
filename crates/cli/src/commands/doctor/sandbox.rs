//! What the sandbox of guests lacks on this machine.

use super::roles::Place;
use super::{Finding, Verdict, WORKER, finding};
use worker::sandbox::Limits;

/// Where the kernel tells of holes of the processor.
const PROCESSOR: &str = "/sys/devices/system/cpu/vulnerabilities";

/// What decides on it, beside control groups.
#[derive(Clone, Debug, Default)]
pub struct Sandbox {
    /// What the kernel can do with a system call that a filter has stopped.
    pub filter_actions: String,
    /// Holes of the processor that the kernel does not close.
    pub open_holes: Vec<String>,
}

impl Sandbox {
    /// This machine's.
    pub fn look() -> Self {
        let filter_actions = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
        let entries = std::fs::read_dir(PROCESSOR).into_iter().flatten().flatten();
        let is_open = |entry: &std::fs::DirEntry| {
            std::fs::read_to_string(entry.path()).is_ok_and(|state| state.starts_with("Vulnerable"))
        };
        let open = entries.filter(is_open).map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut open_holes: Vec<String> = open.collect();
        open_holes.sort();
        Self { filter_actions, open_holes }
    }
}

/// Decides what that means for guests.
pub fn judge(sandbox: &Sandbox, limits: Limits, is_root: bool, place: Place) -> Vec<Finding> {
    vec![filter(sandbox), bounds(limits, place), users(is_root), processor(sandbox)]
}

fn filter(sandbox: &Sandbox) -> Finding {
    let wanted = ["errno", "user_notif", "allow"];
    let has = |wanted: &&str| sandbox.filter_actions.split_whitespace().any(|action| action == *wanted);
    match wanted.iter().all(has) {
        true => finding("guests' calls", WORKER, Verdict::Ok, "system calls of guests are filtered".into(), ""),
        false => finding(
            "guests' calls",
            WORKER,
            Verdict::Missing,
            "this kernel cannot filter system calls (seccomp) as guests need it".into(),
            "use a kernel with CONFIG_SECCOMP_FILTER=y",
        ),
    }
}

/// Without groups a guest can take all memory or all process numbers.
fn bounds(limits: Limits, place: Place) -> Finding {
    let lacking = [(limits.memory, "memory"), (limits.pids, "processes")];
    let lacking: Vec<&str> = lacking.into_iter().filter(|(has, _)| !has).map(|(_, what)| what).collect();
    match lacking.is_empty() {
        true => finding("guests' limits", WORKER, Verdict::Ok, "memory and processes of guests are bounded".into(), ""),
        false => {
            let found = format!("nothing bounds what all guests together take of {}", lacking.join(" and "));
            finding("guests' limits", WORKER, Verdict::Weak, found, place.groups())
        }
    }
}

fn users(is_root: bool) -> Finding {
    let found = match is_root {
        true => "each client's guests have user ids of their own",
        false => {
            "all guests have the same user ids, so one client at a time is served; a worker of root serves them side by side"
        }
    };
    finding("guests' users", WORKER, Verdict::Ok, found.into(), "")
}

/// A guest that shares a processor with others may read what these hold.
fn processor(sandbox: &Sandbox) -> Finding {
    let (verdict, found) = match sandbox.open_holes.as_slice() {
        [] => (Verdict::Ok, "the kernel closes those that it knows of".into()),
        open => (Verdict::Weak, format!("the kernel leaves these open: {}", open.join(", "))),
    };
    let remedy =
        "update microcode and kernel, and boot without mitigations=off; in a virtual machine that is its host's to do";
    finding("CPU holes", WORKER, verdict, found, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Limits = Limits { cpu_idle: true, after_all: true, memory: true, pids: true, freeze: true };

    fn sound() -> Sandbox {
        Sandbox {
            filter_actions: "kill_process trap errno user_notif trace log allow\n".into(),
            open_holes: Vec::new(),
        }
    }

    #[test]
    fn what_is_lacking_is_named() {
        let verdicts = |sandbox: &Sandbox, limits, is_root| {
            let findings = judge(sandbox, limits, is_root, Place::Root);
            let bad = findings.into_iter().filter(|finding| finding.verdict != Verdict::Ok);
            bad.map(|finding| (finding.subject, finding.found)).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&sound(), ALL, true), []);
        let no_filter = Sandbox { filter_actions: "kill errno allow".into(), ..sound() };
        assert_eq!(verdicts(&no_filter, ALL, true)[0].0, "guests' calls");
        let bounds = verdicts(&sound(), Limits { memory: false, pids: false, ..ALL }, true);
        assert!(bounds[0].0 == "guests' limits" && bounds[0].1.ends_with("memory and processes"), "{bounds:?}");
        let users =
            judge(&sound(), ALL, false, Place::Account).into_iter().find(|finding| finding.subject == "guests' users");
        assert!(users.is_some_and(|users| users.found.contains("one client at a time")));
        let open = Sandbox { open_holes: vec!["retbleed".into()], ..sound() };
        assert!(verdicts(&open, ALL, true)[0].1.contains("retbleed"));
    }

    #[test]
    fn looking_does_not_fail() {
        assert!(Sandbox::look().filter_actions.contains("errno"));
    }
}
