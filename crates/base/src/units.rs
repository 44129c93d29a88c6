//! Quantities as people read them: one style for whatever is printed.

/// A number of bytes with a unit.
pub fn bytes(count: u64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 || value >= 99.5 {
        format!("{value:.0} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// A time span in microseconds with a unit, to two or three digits.
pub fn micros(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} us"),
        1_000..9_950 => format!("{:.1} ms", count as f64 / 1e3),
        9_950..99_500 => format!("{:.0} ms", count as f64 / 1e3),
        99_500..9_995_000 => format!("{:.2} s", count as f64 / 1e6),
        9_995_000..120_000_000 => format!("{:.1} s", count as f64 / 1e6),
        _ => format!("{} min {} s", count / 60_000_000, count / 1_000_000 % 60),
    }
}

/// A number of things: `1 path`, `2 paths`.
pub fn of(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_plain_units() {
        assert_eq!(
            [bytes(0), bytes(999), bytes(1000), bytes(123_456), bytes(999_999)].join(", "),
            "0 B, 999 B, 1.0 KB, 123 KB, 1.0 MB"
        );
        let spans = [7, 9_300, 9_960, 76_000, 99_600, 120_000, 2_500_000, 25_000_000, 125_000_000].map(micros);
        assert_eq!(spans.join(", "), "7 us, 9.3 ms, 10 ms, 76 ms, 0.10 s, 0.12 s, 2.50 s, 25.0 s, 2 min 5 s");
        assert_eq!([of(0, "path"), of(1, "path"), of(2, "path")].join(", "), "0 paths, 1 path, 2 paths");
    }
}
