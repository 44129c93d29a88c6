//! How this machine is, as far as it is a reason for guests to rest: power, heat, the screen, the network, the time.

use sched::rest::Conditions;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::say::said;

/// How often the network is asked about: that takes a program of its own.
const NETWORK_PERIOD: Duration = Duration::from_secs(60);
/// Names of sensors in processors (hwmon).
const PROCESSOR_SENSORS: [&str; 5] = ["coretemp", "k10temp", "zenpower", "cpu_thermal", "acpitz"];

/// Reads conditions, again and again.
#[derive(Debug, Default)]
pub struct Reader {
    /// Whether the network is paid by volume, and when that was asked.
    metered: Option<(Instant, Option<bool>)>,
}

impl Reader {
    /// How it is now; presence is somebody else's.
    pub fn read(&mut self) -> Conditions {
        let now = Instant::now();
        if self.metered.is_none_or(|(then, _)| now - then >= NETWORK_PERIOD) {
            self.metered = Some((now, is_metered()));
        }
        Conditions {
            on_battery: on_battery(Path::new("/sys/class/power_supply")),
            celsius: celsius(Path::new("/sys/class/hwmon")),
            is_full_screen: is_full_screen(),
            is_metered: self.metered.and_then(|(_, known)| known),
            is_present: false,
            minute: minute_of_week(),
        }
    }
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn folders(path: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Whether a battery feeds the machine; `None`: it has none. Batteries of mice and the like do not count.
fn on_battery(supplies: &Path) -> Option<bool> {
    let mut found = None;
    for supply in folders(supplies) {
        let is = |name: &str, value: &str| text(&supply.join(name)).as_deref() == Some(value);
        match text(&supply.join("type")).as_deref() {
            Some("Battery") if !is("scope", "Device") => {
                let discharges = is("status", "Discharging");
                found = Some(found.unwrap_or(false) || discharges);
            }
            Some("Mains") if is("online", "1") => return Some(false),
            _ => {}
        }
    }
    found
}

/// The hottest part of the processors, in degrees Celsius.
fn celsius(monitors: &Path) -> Option<f64> {
    let monitors = folders(monitors).into_iter();
    let of_processors =
        monitors.filter(|monitor| text(&monitor.join("name")).is_some_and(|name| PROCESSOR_SENSORS.contains(&&*name)));
    let inputs = of_processors.flat_map(|monitor| folders(&monitor)).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("temp") && name.ends_with("_input")
    });
    let milli = inputs.filter_map(|path| text(&path)?.parse::<f64>().ok());
    milli.map(|milli| milli / 1_000.0).reduce(f64::max)
}

/// Whether a program keeps the screen for itself: it forbids the machine to count as idle, as players and presentations do, or covers the
/// screen of the X server that this process may ask.
fn is_full_screen() -> Option<bool> {
    let inhibits = said("systemd-inhibit", &["--list", "--no-legend", "--mode=block"]);
    let inhibits = inhibits.map(|list| forbids_idling(&list));
    if inhibits == Some(true) || std::env::var_os("DISPLAY").is_none() {
        return inhibits;
    }
    let active = said("xprop", &["-root", "_NET_ACTIVE_WINDOW"]);
    let window = active.and_then(|active| active.split_whitespace().last().map(str::to_owned));
    let state = window.and_then(|window| said("xprop", &["-id", &window, "_NET_WM_STATE"]));
    state.map(|state| state.contains("_NET_WM_STATE_FULLSCREEN")).or(inhibits)
}

/// Reads what `systemd-inhibit --list` says: who, user ids, process, what, why, how.
fn forbids_idling(list: &str) -> bool {
    list.lines().any(|line| line.split_whitespace().any(|word| word.split(':').any(|what| what == "idle")))
}

/// Asks NetworkManager.
fn is_metered() -> Option<bool> {
    const NAME: &str = "org.freedesktop.NetworkManager";
    let words = ["get-property", NAME, "/org/freedesktop/NetworkManager", NAME, "Metered"];
    if !Path::new("/run/NetworkManager").exists() {
        return None;
    }
    metered_of(&said("busctl", &words)?)
}

/// Reads NMMetered: 1 yes, 2 no, 3 and 4 the same as a guess, 0 unknown.
fn metered_of(said: &str) -> Option<bool> {
    match said.trim().strip_prefix("u ")? {
        "1" | "3" => Some(true),
        "2" | "4" => Some(false),
        _ => None,
    }
}

/// Minutes since Monday 0:00, where this machine is.
fn minute_of_week() -> u32 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
    // SAFETY: both places are valid, and all zeroes is a valid value of this plain structure.
    let local = unsafe {
        let mut local: libc::tm = std::mem::zeroed();
        libc::localtime_r(&raw const now, &raw mut local);
        local
    };
    // There Sunday is the first day.
    let [day, hour, minute] = [(local.tm_wday + 6) % 7, local.tm_hour, local.tm_min].map(|value| value as u32);
    (day * 24 + hour) * 60 + minute
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, content) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, format!("{content}\n")).expect("a file");
        }
        folder
    }

    #[test]
    fn batteries_are_told_from_mains_and_mice() {
        let mouse = [("mouse/type", "Battery"), ("mouse/scope", "Device"), ("mouse/status", "Discharging")];
        assert_eq!(on_battery(tree(&mouse).path()), None);
        let portable = |status, online| {
            let own = [("BAT0/type", "Battery"), ("BAT0/status", status), ("AC/type", "Mains"), ("AC/online", online)];
            on_battery(tree(&[&own[..], &mouse[..]].concat()).path())
        };
        assert_eq!(portable("Discharging", "0"), Some(true));
        assert_eq!(portable("Not charging", "1"), Some(false));
        assert_eq!(portable("Discharging", "1"), Some(false), "a weak supply is one");
        assert_eq!(on_battery(Path::new("/nowhere")), None);
    }

    #[test]
    fn the_hottest_processor_counts() {
        let files = [
            ("hwmon0/name", "coretemp"),
            ("hwmon0/temp1_input", "61000"),
            ("hwmon0/temp2_input", "73500"),
            ("hwmon0/temp2_crit", "100000"),
            ("hwmon1/name", "nvme"),
            ("hwmon1/temp1_input", "90000"),
        ];
        assert_eq!(celsius(tree(&files).path()), Some(73.5));
        assert_eq!(celsius(tree(&files[4..]).path()), None);
    }

    #[test]
    fn what_other_programs_say_is_read() {
        // systemd 252.
        let player = "Firefox 1000 ada 4242 firefox idle video-playing block\n";
        let none = "ModemManager 0 root 801 ModemManager sleep ModemManager needs to reset devices delay\n\
            GNOME Shell 1000 ada 2000 gnome-shell handle-power-key:handle-lid-switch GNOME handles power block\n";
        assert!(forbids_idling(&[none, player].concat()) && !forbids_idling(none) && !forbids_idling(""));
        assert!(forbids_idling("a 1 b 2 c sleep:idle why block"));
        assert_eq!(
            ["u 1\n", "u 3", "u 4", "u 0", "b true", ""].map(metered_of),
            [Some(true), Some(true), Some(false), None, None, None]
        );
        assert!(minute_of_week() < 7 * 24 * 60);
    }
}
