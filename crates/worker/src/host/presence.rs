//! Signs of this machine's owner: input devices, terminals, logind, and the load of what is not guests'. Nothing is polled hard, and of
//! what is typed only that something is.

use rustix::fs::{Mode, OFlags};
use sched::presence::Signs;
use sched::sense::parse;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use super::say::said;

/// Most input devices that are watched.
const DEVICES_MAX: usize = 64;
/// How often it is looked which devices there are.
const DEVICES_PERIOD: Duration = Duration::from_secs(60);

/// Looks for signs, again and again.
#[derive(Debug)]
pub struct Watcher {
    devices: Vec<OwnedFd>,
    devices_since: Option<Instant>,
    /// When something was typed or moved last.
    typed: Option<Instant>,
    load: Load,
    has_logind: bool,
}

impl Default for Watcher {
    fn default() -> Self {
        let has_logind = Path::new("/run/systemd/seats").exists();
        Self { devices: Vec::new(), devices_since: None, typed: None, load: Load::default(), has_logind }
    }
}

impl Watcher {
    /// What is seen. `ours`: processor time that guests and this worker have had so far.
    pub fn look(&mut self, ours: Duration) -> Signs {
        let now = Instant::now();
        if self.devices_since.is_none_or(|since| now - since >= DEVICES_PERIOD) {
            self.devices_since = Some(now);
            self.devices = devices();
        }
        // All of them are drained.
        if self.devices.iter().filter(|device| drain(device)).count() > 0 {
            self.typed = Some(now);
        }
        let typed_s = self.typed.map(|typed| (now - typed).as_secs_f64());
        let terminal_s = ["/dev/pts", "/dev"].iter().filter_map(|folder| terminals_idle_s(Path::new(folder)));
        let logind_s = if self.has_logind { logind_idle_s() } else { None };
        let input_s = terminal_s.chain(typed_s).chain(logind_s).reduce(f64::min);
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Signs { input_s, used: self.load.used(&stat, ours.as_secs_f64()) }
    }
}

/// Whether anything tells of somebody who types or moves something: an input device, a terminal, logind.
pub fn sees_input() -> bool {
    !devices().is_empty()
        || ["/dev/pts", "/dev"].iter().any(|folder| terminals_idle_s(Path::new(folder)).is_some())
        || logind_idle_s().is_some()
}

/// Opens keyboards, mice and the like, as far as that is allowed.
fn devices() -> Vec<OwnedFd> {
    let listed = fs::read_to_string("/proc/bus/input/devices").unwrap_or_default();
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = |name: &str| rustix::fs::open(format!("/dev/input/{name}"), flags, Mode::empty()).ok();
    device_names(&listed).into_iter().take(DEVICES_MAX).filter_map(open).collect()
}

/// Reads the list of input devices: those that people use have a keyboard's, mouse's or game controller's handler.
fn device_names(listed: &str) -> Vec<&str> {
    let handlers = listed.lines().filter_map(|line| line.strip_prefix("H: Handlers="));
    let of_people = handlers.filter(|handlers| {
        let is_one = |word: &str| word == "kbd" || word.starts_with("mouse") || word.starts_with("js");
        handlers.split_whitespace().any(is_one)
    });
    of_people.filter_map(|handlers| handlers.split_whitespace().find(|word| word.starts_with("event"))).collect()
}

/// Whether something came from a device since it was looked at last. What, is not kept.
fn drain(device: &OwnedFd) -> bool {
    let mut events = [0u8; 4096];
    let mut any = false;
    // The kernel keeps a bounded number of events.
    for _ in 0..16 {
        match rustix::io::read(device, &mut events) {
            Ok(count) if count > 0 => any = true,
            _ => break,
        }
    }
    events.fill(0);
    any
}

/// Seconds since something was read from a terminal in this folder, by whoever has it.
fn terminals_idle_s(folder: &Path) -> Option<f64> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let is_terminal = |name: &str| {
        let number = name.strip_prefix("tty").unwrap_or(name);
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let terminals = entries.filter(|entry| is_terminal(&entry.file_name().to_string_lossy()));
    let read = terminals.filter_map(|entry| Some(entry.metadata().ok()?.atime())).max()?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs() as i64;
    Some((now - read).max(0) as f64)
}

/// Seconds since logind last saw somebody at this machine.
fn logind_idle_s() -> Option<f64> {
    const NAME: &str = "org.freedesktop.login1";
    let manager = format!("{NAME}.Manager");
    let words = ["get-property", NAME, "/org/freedesktop/login1", &manager, "IdleHint", "IdleSinceHint"];
    let sessions = fs::read_dir("/run/systemd/sessions").is_ok_and(|mut entries| entries.next().is_some());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs_f64();
    sessions.then(|| said("busctl", &words)).flatten().and_then(|said| idle_of(&said, now))
}

/// Reads the two properties: whether all sessions are idle, and since when, in microseconds.
fn idle_of(said: &str, now_s: f64) -> Option<f64> {
    let mut lines = said.lines();
    match lines.next()?.trim() {
        "b true" => {
            let since_us: f64 = lines.next()?.trim().strip_prefix("t ")?.parse().ok()?;
            Some((now_s - since_us / 1e6).max(0.0))
        }
        "b false" => Some(0.0),
        _ => None,
    }
}

/// What processors did, from look to look.
#[derive(Debug, Default)]
pub(super) struct Load {
    last: Option<Counted>,
}

/// Seconds since the start of the machine, of all processors together.
#[derive(Debug)]
struct Counted {
    programs_s: f64,
    taken_s: f64,
    all_s: f64,
    ours_s: f64,
}

/// Seconds between two looks, of all processors together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spent {
    /// In all.
    pub all_s: f64,
    /// By interrupts, and by the hypervisor for others.
    pub taken_s: f64,
    /// By programs that are not ours.
    pub owner_s: f64,
}

impl Load {
    /// What was done since the last look, nothing at the first. `ours_s`: what was ours so far.
    pub fn look(&mut self, stat: &str, ours_s: f64) -> Option<Spent> {
        let all = parse::all(stat)?;
        let [programs_s, taken_s, idle_s] =
            [all.user + all.system, all.taken, all.idle].map(|ticks| ticks as f64 / parse::TICKS);
        let now = Counted { programs_s, taken_s, all_s: programs_s + taken_s + idle_s, ours_s };
        let since = |before: &Counted| Spent {
            all_s: now.all_s - before.all_s,
            taken_s: now.taken_s - before.taken_s,
            // Another worker that has ended takes what its guests had with it.
            owner_s: (now.programs_s - before.programs_s - (now.ours_s - before.ours_s).max(0.0)).max(0.0),
        };
        let spent = self.last.as_ref().map(since).filter(|spent| spent.all_s > 0.0);
        self.last = Some(now);
        spent
    }

    /// The part of all processors that was used since the last look and was not ours.
    fn used(&mut self, stat: &str, ours_s: f64) -> f64 {
        self.look(stat, ours_s).map_or(0.0, |spent| ((spent.owner_s + spent.taken_s) / spent.all_s).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From a laptop with a kernel 6.1, shortened.
    const DEVICES: &str = "I: Bus=0019 Vendor=0000 Product=0005 Version=0000\nN: Name=\"Lid Switch\"\nH: Handlers=event0\n\n\
        I: Bus=0011 Vendor=0001 Product=0001 Version=ab41\nN: Name=\"AT Translated Set 2 keyboard\"\n\
        H: Handlers=sysrq kbd event3 leds\n\nN: Name=\"SynPS/2 Synaptics TouchPad\"\nH: Handlers=mouse1 event5\n\n\
        N: Name=\"HDA Intel PCH Mic\"\nH: Handlers=event9\n";

    #[test]
    fn devices_that_people_use_are_found() {
        assert_eq!(device_names(DEVICES), ["event3", "event5"]);
        assert_eq!(device_names(""), [""; 0]);
    }

    #[test]
    fn logind_tells_since_when_nobody_was_there() {
        assert_eq!(idle_of("b true\nt 1700000000000000\n", 1_700_000_042.5), Some(42.5));
        assert_eq!(idle_of("b false\nt 0\n", 1.0), Some(0.0));
        assert_eq!(idle_of("", 1.0), None);
    }

    #[test]
    fn load_that_is_ours_is_not_the_owners() {
        let mut load = Load::default();
        assert_eq!(load.used("cpu  1000 0 500 8000 100 0 0 0 0 0\ncpu0 1 2\n", 3.0), 0.0);
        // Ten seconds of two processors: 12 s of work, 9 of them ours.
        let used = load.used("cpu  2000 100 600 8700 200 0 0 0 0 0\n", 12.0);
        assert!((used - 3.0 / 20.0).abs() < 1e-9, "{used}");
        assert_eq!(load.used("cpu  2000 100 600 9700 200 0 0 0 0 0\n", 14.0), 0.0, "what was counted late");
        assert_eq!(load.used("nonsense", 14.0), 0.0);
    }

    #[test]
    fn signs_are_looked_for_on_any_machine() {
        let mut watcher = Watcher::default();
        let signs = watcher.look(Duration::ZERO);
        assert!((0.0..=1.0).contains(&signs.used) && signs.input_s.is_none_or(|idle| idle >= 0.0));
    }
}
