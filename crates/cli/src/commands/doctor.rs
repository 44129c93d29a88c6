//! `gleaner doctor`: what is missing on this machine for each role, and what to do about it.
//!
//! [`look`] gathers facts, [`judge`] decides on them: only the first touches the machine.

mod holes;
mod keys;
mod priority;
mod roles;
mod sandbox;

use crate::args::Json;
use crate::config::{Config, Flags, Surroundings};
use crate::error::{CliError, Result};
use crate::render::{print, print_json};
use gleaner_client::door::Folder;
use holes::Kernel;
use priority::Priority;
use roles::Roles;
use sandbox::Sandbox;
use serde::Serialize;

/// How a finding bears on its roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It works, but less well.
    Weak,
    /// The roles cannot work.
    Missing,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What.
    pub subject: &'static str,
    /// For which roles it matters: `worker`, `hub`, `client`.
    pub roles: Vec<&'static str>,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do, unless it is as it should be or nothing can be done.
    pub remedy: Option<String>,
}

/// What is known of the machine.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The kernel, as it names itself.
    pub kernel: Kernel,
    /// What bounds guests.
    pub sandbox: Sandbox,
    /// Whether this is the superuser.
    pub is_root: bool,
    /// Error number of opening /dev/fuse for reading and writing, if it fails.
    pub fuse_error: Option<i32>,
    /// `/proc/sys/user/max_user_namespaces`; none if there is no such file.
    pub user_namespaces_max: Option<u64>,
    /// Whether a distribution's switch forbids user namespaces to ordinary users, and which.
    pub namespaces_forbidden_by: Option<&'static str>,
    /// `/proc/filesystems`.
    pub filesystems: String,
    /// Whether the unified cgroup hierarchy is mounted, with its controllers.
    pub cgroup_controllers: Option<String>,
    /// Whether this process may make groups there.
    pub cgroup_writable: bool,
    /// Subordinate user and group ids of this account.
    pub subordinate_ids: (u64, u64),
    /// Whether newuidmap and newgidmap are in PATH.
    pub has_idmap_tools: bool,
    /// What is wrong with the settings, and what to do about it, if something is.
    pub settings_problem: Option<(String, String)>,
    /// What is wrong with the runtime folder, if something is.
    pub runtime_problem: Option<String>,
    /// What spares the machine's owner.
    pub priority: Priority,
    /// Whether `remrun` lies beside this program or in PATH.
    pub has_remrun: bool,
    /// What this machine is.
    pub roles: Roles,
    /// Whether it is a container, whose kernel and devices are its host's to change.
    pub is_container: bool,
    /// What speaks for a key that was copied.
    pub copied_key: Option<String>,
}

/// Looks, and prints what was found. Fails if a role cannot work that this machine has.
pub fn run(arguments: Json) -> Result {
    let facts = look();
    let findings = judge(&facts);
    if arguments.json {
        print_json(&serde_json::json!({ "findings": findings }))?;
    } else {
        print(&text(&findings, facts.roles))?;
    }
    let is_missing = |finding: &&Finding| finding.verdict == Verdict::Missing && facts.roles.has(&finding.roles);
    let missing = findings.iter().filter(is_missing).count();
    match missing {
        0 => Ok(()),
        count => Err(CliError::environment(format!("{count} of {} findings must be mended", findings.len()))
            .hint("do what stands after `do:` above")),
    }
}

/// Gathers the facts.
pub fn look() -> Facts {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let is_root = rustix::process::geteuid().is_root();
    let fuse = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let switch = |path: &str, forbidding: &str| !is_root && read(path).trim() == forbidding;
    let controllers = std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").ok();
    let settings = Config::load(&Surroundings::of_process(), Flags::default());
    let settings_problem =
        settings.as_ref().err().map(|error| (on_one_line(error), error.hint.clone().unwrap_or_default()));
    let config = settings.ok();
    let access = |path: &str| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    Facts {
        kernel: Kernel::look(),
        sandbox: Sandbox::look(),
        is_root,
        fuse_error: fuse.err().and_then(|error| error.raw_os_error()),
        user_namespaces_max: read("/proc/sys/user/max_user_namespaces").trim().parse().ok(),
        namespaces_forbidden_by: if switch("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
            Some("kernel.apparmor_restrict_unprivileged_userns=0")
        } else if switch("/proc/sys/kernel/unprivileged_userns_clone", "0") {
            Some("kernel.unprivileged_userns_clone=1")
        } else {
            None
        },
        filesystems: read("/proc/filesystems"),
        cgroup_controllers: controllers,
        cgroup_writable: access(&own_cgroup(&read("/proc/self/cgroup"))),
        subordinate_ids: (subordinate(&read("/etc/subuid")), subordinate(&read("/etc/subgid"))),
        has_idmap_tools: in_path("newuidmap") && in_path("newgidmap"),
        settings_problem,
        runtime_problem: Folder::of_environment().secure().err().map(|error| error.to_string()),
        priority: priority::look(config.as_ref().map(|config| config.state_dir.value.join("worker")).as_deref()),
        roles: config.as_ref().map(Roles::look).unwrap_or_default(),
        is_container: roles::is_container(),
        copied_key: keys::look(config.as_ref()),
        has_remrun: std::env::current_exe().is_ok_and(|exe| exe.with_file_name("remrun").exists()) || in_path("remrun"),
    }
}

/// Where it is wrong and how, without the picture of the line that a parser draws between the two.
fn on_one_line(error: &CliError) -> String {
    match error.message.trim().split_once('\n') {
        Some((place, rest)) => format!("{place}: {}", rest.lines().last().unwrap_or_default().trim()),
        None => error.message.clone(),
    }
}

fn own_cgroup(proc_self_cgroup: &str) -> String {
    let own = proc_self_cgroup.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    format!("/sys/fs/cgroup{own}")
}

/// Subordinate ids that a file gives to this account, by name or number.
fn subordinate(file: &str) -> u64 {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let user = std::env::var("USER").unwrap_or_default();
    let ranges = file.lines().filter_map(|line| {
        let mut parts = line.split(':');
        let owner = parts.next()?;
        (owner == uid || (!user.is_empty() && owner == user)).then(|| parts.nth(1)?.trim().parse::<u64>().ok())?
    });
    ranges.max().unwrap_or(0)
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .any(|dir: std::path::PathBuf| rustix::fs::access(dir.join(program), rustix::fs::Access::EXEC_OK).is_ok())
}

const WORKER: &[&str] = &["worker"];
const CLIENT: &[&str] = &["client"];

fn finding(subject: &'static str, roles: &[&'static str], verdict: Verdict, found: String, remedy: &str) -> Finding {
    let remedy = (verdict != Verdict::Ok && !remedy.is_empty()).then(|| remedy.to_owned());
    Finding { subject, roles: roles.to_vec(), verdict, found, remedy }
}

/// Decides what the facts mean.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut all = vec![kernel(facts)];
    all.extend(holes::judge(&facts.kernel));
    all.extend([fuse(facts), namespaces(facts), overlay(facts), cgroup(facts)]);
    all.extend(sandbox::judge(&facts.sandbox, facts.priority.limits, facts.is_root, roles::place(facts)));
    if !facts.is_root {
        all.push(subordinate_ids(facts));
    }
    all.extend(priority::judge(&facts.priority, roles::place(facts)));
    all.extend(keys::judge(facts.copied_key.as_deref()));
    if let Some((problem, remedy)) = &facts.settings_problem {
        all.push(finding("settings", &["client", "hub", "worker"], Verdict::Missing, problem.clone(), remedy));
    }
    let (verdict, found) = match &facts.runtime_problem {
        None => (Verdict::Ok, format!("{}", Folder::of_environment().path().display())),
        Some(problem) => (Verdict::Missing, problem.clone()),
    };
    all.push(finding("runtime folder", CLIENT, verdict, found, "mend it as said, or set GLEANER_RUNTIME_DIR"));
    let verdict = if facts.has_remrun { Verdict::Ok } else { Verdict::Missing };
    let found = if facts.has_remrun { "found" } else { "neither beside gleaner nor in PATH" };
    all.push(finding("remrun", CLIENT, verdict, found.into(), "install remrun beside gleaner"));
    all
}

fn kernel(facts: &Facts) -> Finding {
    let mut numbers =
        facts.kernel.release.split(|letter: char| !letter.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (verdict, remedy) = match version {
        (0..=4, _) | (5, 0..=10) => {
            (Verdict::Missing, "use Linux 5.11 or newer: overlayfs in user namespaces, close_range")
        }
        (5, _) | (6, 0..=12) => {
            (Verdict::Weak, "Linux 6.13 or newer has fine-grained change times; older ones hash recent files again")
        }
        _ => (Verdict::Ok, ""),
    };
    finding("kernel", &["worker", "client"], verdict, facts.kernel.release.clone(), remedy)
}

fn fuse(facts: &Facts) -> Finding {
    let (verdict, found, remedy) = match facts.fuse_error {
        None => (Verdict::Ok, "/dev/fuse opens", ""),
        Some(libc::ENOENT) => (
            Verdict::Missing,
            "/dev/fuse is not there",
            match facts.is_container {
                true => "start the container with --device /dev/fuse --cap-add SYS_ADMIN",
                false => "as root: modprobe fuse",
            },
        ),
        Some(libc::EACCES | libc::EPERM) => (
            Verdict::Missing,
            "/dev/fuse may not be opened",
            match facts.is_container {
                true => "start the container with --device /dev/fuse --cap-add SYS_ADMIN",
                false => "as root: chmod 666 /dev/fuse",
            },
        ),
        Some(_) => {
            (Verdict::Missing, "/dev/fuse does not open", "as root, on the host if this is a container: modprobe fuse")
        }
    };
    finding("/dev/fuse", WORKER, verdict, found.into(), remedy)
}

fn namespaces(facts: &Facts) -> Finding {
    if let Some(switch) = facts.namespaces_forbidden_by {
        let remedy = format!("as root: sysctl -w {switch}; or run the worker as root");
        let found = "user namespaces are forbidden to ordinary users".into();
        return finding("namespaces", WORKER, Verdict::Missing, found, &remedy);
    }
    match facts.user_namespaces_max {
        Some(0) | None => finding(
            "namespaces",
            WORKER,
            Verdict::Missing,
            "this kernel allows no user namespaces".into(),
            "as root: sysctl -w user.max_user_namespaces=15000",
        ),
        Some(max) => finding("namespaces", WORKER, Verdict::Ok, format!("at most {max} user namespaces"), ""),
    }
}

fn overlay(facts: &Facts) -> Finding {
    let known = facts.filesystems.lines().any(|line| line.split_whitespace().last() == Some("overlay"));
    let (verdict, found) = match known {
        true => (Verdict::Ok, "the kernel has it"),
        false => (Verdict::Missing, "the kernel does not have it (loaded)"),
    };
    finding("overlayfs", WORKER, verdict, found.into(), "as root: modprobe overlay, and add `overlay` to /etc/modules")
}

fn cgroup(facts: &Facts) -> Finding {
    let Some(controllers) = &facts.cgroup_controllers else {
        let limits = facts.priority.limits;
        if limits.cpu_idle && limits.memory && limits.pids {
            return finding("cgroups", WORKER, Verdict::Ok, "version 1, which does as well".into(), "");
        }
        let remedy = match facts.is_container {
            true => "start the container with its own control groups (--cgroupns=private, /sys/fs/cgroup writable)",
            false => "boot with systemd.unified_cgroup_hierarchy=1; without it tasks have no memory limits",
        };
        return finding("cgroup v2", WORKER, Verdict::Weak, "not mounted at /sys/fs/cgroup".into(), remedy);
    };
    let has = |name: &str| controllers.split_whitespace().any(|controller| controller == name);
    let lacking: Vec<&str> = ["cpu", "memory", "pids"].into_iter().filter(|name| !has(name)).collect();
    let (verdict, found) = match (lacking.is_empty(), facts.cgroup_writable) {
        (true, true) => (Verdict::Ok, controllers.trim().to_owned()),
        (false, _) => (Verdict::Weak, format!("lacks {}", lacking.join(", "))),
        (true, false) => (Verdict::Weak, "this process may make no groups".into()),
    };
    let remedy = roles::place(facts).groups();
    finding("cgroup v2", WORKER, verdict, found, remedy)
}

fn subordinate_ids(facts: &Facts) -> Finding {
    let (uids, gids) = facts.subordinate_ids;
    if !facts.has_idmap_tools {
        let remedy = "install the package uidmap (Debian, Ubuntu) or shadow-utils (Fedora)";
        let found = "newuidmap and newgidmap are not installed".into();
        return finding("subordinate ids", WORKER, Verdict::Missing, found, remedy);
    }
    let verdict = if uids >= 65_536 && gids >= 65_536 { Verdict::Ok } else { Verdict::Missing };
    let account = std::env::var("USER").unwrap_or_else(|_| "USER".into());
    let remedy = format!(
        "as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {account}; or run the worker as root"
    );
    finding("subordinate ids", WORKER, verdict, format!("{uids} user ids, {gids} group ids (65536 wanted)"), &remedy)
}

/// The findings as text. Of a role that this machine does not have a line tells what it would lack.
fn text(findings: &[Finding], has: Roles) -> String {
    let mut text = String::new();
    for finding in findings.iter().filter(|finding| has.has(&finding.roles)) {
        let verdict = match finding.verdict {
            Verdict::Ok => "ok",
            Verdict::Weak => "weak",
            Verdict::Missing => "MISSING",
        };
        let roles = finding.roles.join(", ");
        text.push_str(&format!("{verdict:8}{:17}{} (for: {roles})\n", finding.subject, finding.found));
        if let Some(remedy) = &finding.remedy {
            text.push_str(&format!("{:8}do: {remedy}\n", ""));
        }
    }
    if !has.worker {
        let lacks = findings.iter().filter(|finding| !has.has(&finding.roles) && finding.verdict == Verdict::Missing);
        let lacks: Vec<&str> = lacks.map(|finding| finding.subject).collect();
        let what = match lacks.is_empty() {
            true => "it could: gleaner join TOKEN".to_owned(),
            false => format!("to do so it lacks {}", lacks.join(", ")),
        };
        text.push_str(&format!("{:8}{:17}this machine lends nothing; {what}\n", "", "worker"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn kernel(release: &str) -> Kernel {
        Kernel { release: release.into(), ..Kernel::default() }
    }

    /// A machine that has everything.
    fn sound() -> Facts {
        Facts {
            kernel: kernel("6.18.44"),
            sandbox: Sandbox { filter_actions: "errno user_notif allow".into(), open_holes: Vec::new() },
            is_root: true,
            user_namespaces_max: Some(1000),
            filesystems: "nodev\toverlay\n\text4\n".into(),
            cgroup_controllers: Some("cpuset cpu io memory pids\n".into()),
            cgroup_writable: true,
            priority: Priority {
                limits: worker::sandbox::Limits {
                    cpu_idle: true,
                    after_all: true,
                    memory: true,
                    pids: true,
                    freeze: true,
                },
                tells_shortage: true,
                sees_input: true,
                ..Priority::default()
            },
            has_remrun: true,
            ..Facts::default()
        }
    }

    #[test]
    fn a_sound_machine() {
        assert!(judge(&sound()).iter().all(|finding| finding.verdict == Verdict::Ok && finding.remedy.is_none()));
    }

    #[test]
    fn each_fault_has_a_remedy() {
        let faults = [
            ("kernel", Facts { kernel: kernel("5.4.0-generic"), ..sound() }),
            ("/dev/fuse", Facts { fuse_error: Some(libc::ENOENT), ..sound() }),
            ("/dev/fuse", Facts { fuse_error: Some(libc::EPERM), ..sound() }),
            ("namespaces", Facts { user_namespaces_max: Some(0), ..sound() }),
            ("overlayfs", Facts { filesystems: "nodev\toverlayish\n".into(), ..sound() }),
            (
                "subordinate ids",
                Facts { is_root: false, has_idmap_tools: true, subordinate_ids: (65_536, 1), ..sound() },
            ),
            ("runtime folder", Facts { runtime_problem: Some("belongs to user 7".into()), ..sound() }),
            ("settings", Facts { settings_problem: Some(("client.toml: no".into(), "mend it".into())), ..sound() }),
            ("remrun", Facts { has_remrun: false, ..sound() }),
        ];
        for (subject, facts) in faults {
            let findings = judge(&facts);
            let bad: Vec<_> = findings.iter().filter(|finding| finding.verdict != Verdict::Ok).collect();
            assert_eq!(bad.len(), 1, "{subject}: {findings:?}");
            assert_eq!((bad[0].subject, bad[0].verdict, bad[0].remedy.is_some()), (subject, Verdict::Missing, true));
        }
        let weak = judge(&Facts { cgroup_writable: false, ..sound() });
        let text = text(&weak, Roles::default());
        let want = "weak    cgroup v2        this process may make no groups (for: worker)\n        do: ";
        assert!(text.contains(want), "{text}");
    }

    #[test]
    fn a_machine_that_only_sends_is_told_nothing_of_what_workers_need() {
        let lacking = Facts { fuse_error: Some(libc::ENOENT), filesystems: String::new(), ..sound() };
        let client = Roles { worker: false };
        let findings = judge(&Facts { roles: client, ..lacking });
        let text = text(&findings, client);
        assert!(!text.contains("do: ") && !text.contains("MISSING"), "{text}");
        let want = "worker           this machine lends nothing; to do so it lacks /dev/fuse, overlayfs\n";
        assert!(text.contains(want), "{text}");
        let counts =
            |has: Roles| findings.iter().any(|found| found.verdict == Verdict::Missing && has.has(&found.roles));
        assert!(!counts(client) && counts(Roles::default()));
    }

    #[test]
    fn a_copied_key_is_told() {
        let findings = judge(&Facts { copied_key: Some("worker.key was made on another machine".into()), ..sound() });
        let found: Vec<_> = findings.iter().filter(|finding| finding.verdict != Verdict::Ok).collect();
        assert_eq!((found.len(), found[0].subject), (1, "keys"));
    }

    #[test]
    fn looking_does_not_fail() {
        assert!(!look().kernel.release.is_empty());
        assert_eq!(own_cgroup("1:name=x:/y\n0::/a/b\n"), "/sys/fs/cgroup/a/b");
        assert!(Path::new(&own_cgroup("")).is_absolute());
    }
}
