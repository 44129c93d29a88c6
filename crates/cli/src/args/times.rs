//! Times, as they are written in arguments.

use std::time::Duration;

/// Reads a number of seconds, which may have a fraction.
pub fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("not a number of seconds: {text}"))?;
    let is_sane = (0.1..=3600.0).contains(&seconds);
    if is_sane { Ok(Duration::from_secs_f64(seconds)) } else { Err(format!("{text}: from 0.1 to 3600 seconds")) }
}

/// Reads how long a token is good for. A hub grants no more.
pub fn lifetime(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_secs(15 * 60);
    let time = duration(text)?;
    if time > LONGEST {
        Err(format!("{text}: a token is good for at most 15m; make one when it is needed"))
    } else {
        Ok(time)
    }
}

/// Reads a number of seconds, minutes or hours.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("not a time such as 90s, 15m or 2h: {text}");
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let seconds = number.checked_mul(unit).filter(|seconds| (1..=7 * 24 * 3600).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| format!("{text}: at least 1s and at most 168h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_and_a_bound() {
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        for wrong in ["0s", "m", "5", "200h", "-1s", "15 m", "\u{e9}"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert!(lifetime("900s").is_ok() && lifetime("901s").is_err_and(|why| why.contains("at most 15m")));
        assert!(interval("0.5").is_ok() && interval("0").is_err() && interval("NaN").is_err());
    }
}
