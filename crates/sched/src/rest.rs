//! When guests rest on a machine, whatever there is to do: on battery, when it is hot, under a full-screen program, on a network
//! that is paid by volume, at hours that its owner has named, or as long as he is there.

use std::fmt;
use std::str::FromStr;

/// How much cooler than its limit a machine must be before guests go on, in degrees: else its fan goes up and down with them.
const COOLER: f64 = 8.0;
const DAY_MINUTES: u32 = 24 * 60;
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// What an owner wants.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Rest on battery.
    pub battery: bool,
    /// Rest from this temperature on, in degrees Celsius.
    pub celsius_max: Option<f64>,
    /// Rest under a full-screen program.
    pub full_screen: bool,
    /// Rest on a network that is paid by volume.
    pub metered: bool,
    /// Rest while the owner is there, rather than linger.
    pub presence: bool,
    /// Rest at these times.
    pub hours: Vec<Hours>,
}

impl Default for Rules {
    /// What most owners would want of a guest: it lingers, and rests where it would be noticed all the same.
    fn default() -> Self {
        let (battery, full_screen, metered) = (true, true, true);
        Self { battery, celsius_max: Some(90.0), full_screen, metered, presence: false, hours: Vec::new() }
    }
}

/// How a machine is. What is not known is no reason to rest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conditions {
    /// It runs on battery.
    pub on_battery: Option<bool>,
    /// Its hottest part, in degrees Celsius.
    pub celsius: Option<f64>,
    /// A program has the whole screen.
    pub is_full_screen: Option<bool>,
    /// Its network is paid by volume.
    pub is_metered: Option<bool>,
    /// Its owner is there.
    pub is_present: bool,
    /// Minutes since Monday 0:00, where it is.
    pub minute: u32,
}

/// Why guests rest.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// On battery.
    Battery,
    /// Too hot: how hot, and what its owner allows, in degrees Celsius.
    Hot(f64, f64),
    /// A program has the whole screen.
    FullScreen,
    /// The network is paid by volume.
    Metered,
    /// Its owner is there.
    Presence,
    /// It is that time.
    Hours(Hours),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Battery => f.write_str("the machine runs on battery"),
            Self::Hot(celsius, max) => write!(f, "the machine is hot: {celsius:.0} °C, and {max:.0} allowed"),
            Self::FullScreen => f.write_str("a program has the whole screen"),
            Self::Metered => f.write_str("the network is paid by volume"),
            Self::Presence => f.write_str("the machine's owner is there"),
            Self::Hours(hours) => write!(f, "its owner wants it for himself {hours}"),
        }
    }
}

/// Judges by rules, again and again.
#[derive(Clone, Debug, Default)]
pub struct Rest {
    rules: Rules,
    is_hot: bool,
}

impl Rest {
    /// By these rules.
    pub fn new(rules: Rules) -> Self {
        Self { rules, is_hot: false }
    }

    /// All reasons to rest now; none: guests may run.
    pub fn reasons(&mut self, now: &Conditions) -> Vec<Reason> {
        let rules = &self.rules;
        let mut reasons = Vec::new();
        let mut add = |rule: bool, is_so: Option<bool>, reason| {
            if rule && is_so == Some(true) {
                reasons.push(reason);
            }
        };
        add(rules.battery, now.on_battery, Reason::Battery);
        add(rules.full_screen, now.is_full_screen, Reason::FullScreen);
        add(rules.metered, now.is_metered, Reason::Metered);
        add(rules.presence, Some(now.is_present), Reason::Presence);
        if let (Some(max), Some(celsius)) = (rules.celsius_max, now.celsius) {
            self.is_hot = celsius >= if self.is_hot { max - COOLER } else { max };
            add(self.is_hot, Some(true), Reason::Hot(celsius, max));
        }
        if let Some(hours) = rules.hours.iter().find(|hours| hours.contain(now.minute)) {
            reasons.push(Reason::Hours(*hours));
        }
        reasons
    }
}

/// A time of some days of the week: `mon-fri 9:00-17:30`, `sat,sun 0:00-24:00`, or on all days `22:00-6:00`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    /// Bit n is day n, from Monday; the day on which it begins.
    days: u8,
    /// Minutes of the day. The end may be on the next day.
    from: u32,
    to: u32,
}

impl Hours {
    /// Whether they contain a minute of the week.
    pub fn contain(&self, minute: u32) -> bool {
        (0..7).filter(|day| self.days & 1 << day != 0).any(|day| {
            let week = 7 * DAY_MINUTES;
            let since = (minute + week - (day * DAY_MINUTES + self.from)) % week;
            since < self.length()
        })
    }

    fn length(&self) -> u32 {
        let length = (self.to + DAY_MINUTES - self.from) % DAY_MINUTES;
        if length == 0 { DAY_MINUTES } else { length }
    }
}

/// That is not a time of the week.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not days and hours such as `mon-fri 9:00-17:30`, `sat,sun 0:00-24:00` or `22:00-6:00`: {0}")]
pub struct NotHours(String);

impl FromStr for Hours {
    type Err = NotHours;

    fn from_str(text: &str) -> Result<Self, NotHours> {
        let wrong = || NotHours(text.to_owned());
        let (days, times) = match text.trim().split_once(' ') {
            Some((days, times)) => (days_of(days).ok_or_else(wrong)?, times),
            None => (0x7f, text.trim()),
        };
        let (from, to) = times.trim().split_once('-').ok_or_else(wrong)?;
        let (from, to) = (minute_of(from).ok_or_else(wrong)?, minute_of(to).ok_or_else(wrong)?);
        if from == DAY_MINUTES {
            return Err(wrong());
        }
        Ok(Self { days, from, to: to % DAY_MINUTES })
    }
}

fn days_of(text: &str) -> Option<u8> {
    let day = |name: &str| DAYS.iter().position(|day| day.eq_ignore_ascii_case(name));
    text.split(',').try_fold(0, |days, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        let count = (last + 7 - first) % 7 + 1;
        Some((0..count).fold(days, |days, at| days | 1 << ((first + at) % 7)))
    })
}

fn minute_of(text: &str) -> Option<u32> {
    let (hour, minute) = text.trim().split_once(':')?;
    let is_plain = |part: &str| matches!(part.len(), 1 | 2) && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain(hour) || !is_plain(minute) {
        return None;
    }
    let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
    let at = hour * 60 + minute;
    (minute < 60 && at <= DAY_MINUTES).then_some(at)
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days: Vec<&str> = (0..7).filter(|day| self.days & 1 << day != 0).map(|day| DAYS[day]).collect();
        if days.len() < 7 {
            write!(f, "{} ", days.join(","))?;
        }
        let to = if self.to == 0 { DAY_MINUTES } else { self.to };
        write!(f, "{}:{:02}-{}:{:02}", self.from / 60, self.from % 60, to / 60, to % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(text: &str) -> Hours {
        text.parse().expect("hours")
    }

    const fn minute(day: u32, hour: u32, minute: u32) -> u32 {
        (day * 24 + hour) * 60 + minute
    }

    #[test]
    fn hours_are_read_and_told() {
        for (text, told) in [
            ("mon-fri 9:00-17:30", "mon,tue,wed,thu,fri 9:00-17:30"),
            ("Sat,SUN 0:00-24:00", "sat,sun 0:00-24:00"),
            (" fri-mon  22:00-06:00", "mon,fri,sat,sun 22:00-6:00"),
            ("22:00-6:00", "22:00-6:00"),
        ] {
            assert_eq!(hours(text).to_string(), told);
            assert_eq!(hours(told), hours(text));
        }
        for wrong in [
            "",
            "9-17",
            "mon",
            "mon 9:00",
            "someday 9:00-17:00",
            "9:60-10:00",
            "24:01-1:00",
            "24:00-1:00",
            "+9:00-10:00",
        ] {
            assert!(wrong.parse::<Hours>().is_err_and(|error| error.to_string().ends_with(wrong)), "{wrong}");
        }
    }

    #[test]
    fn hours_may_go_over_midnight_and_the_end_of_the_week() {
        let work = hours("mon-fri 9:00-17:30");
        assert!(work.contain(minute(0, 9, 0)) && work.contain(minute(4, 17, 29)));
        assert!(!work.contain(minute(0, 8, 59)) && !work.contain(minute(4, 17, 30)) && !work.contain(minute(5, 12, 0)));
        let night = hours("sun 22:00-6:00");
        assert!(night.contain(minute(6, 22, 0)) && night.contain(minute(0, 5, 59)) && !night.contain(minute(0, 6, 0)));
        assert!((0..7 * 24).all(|hour| hours("0:00-24:00").contain(hour * 60)));
    }

    #[test]
    fn guests_rest_for_the_reasons_that_their_host_has_named() {
        let hot = Conditions { celsius: Some(91.0), ..Conditions::default() };
        let now = Conditions { on_battery: Some(true), is_metered: Some(true), is_present: true, ..hot };
        let rules = Rules { presence: true, hours: vec![hours("mon 0:00-1:00")], ..Rules::default() };
        let told = [Reason::Battery, Reason::Metered, Reason::Presence, Reason::Hot(91.0, 90.0)];
        let reasons = Rest::new(rules.clone()).reasons(&now);
        assert_eq!(reasons[..4], told);
        assert_eq!(reasons[4].to_string(), "its owner wants it for himself mon 0:00-1:00");
        let none =
            Rules { battery: false, metered: false, celsius_max: None, presence: false, hours: Vec::new(), ..rules };
        assert_eq!(Rest::new(none).reasons(&now), []);
        assert_eq!(Rest::default().reasons(&Conditions::default()), []);
    }

    #[test]
    fn a_hot_machine_cools_before_guests_go_on() {
        let mut rest = Rest::default();
        let mut at =
            |celsius: f64| !rest.reasons(&Conditions { celsius: Some(celsius), ..Conditions::default() }).is_empty();
        assert_eq!([89.0, 90.0, 85.0, 82.0, 81.9, 85.0].map(&mut at), [false, true, true, true, false, false]);
    }
}
