//! Words that have the shape of a key or token: beginnings that their makers give them, long numbers in hexadecimal, and letters and
//! digits in an order that no word has.

use super::LEFT_OUT;

/// What tokens begin with, and how many characters follow at least.
const BEGINNINGS: [(&str, usize); 25] = [
    ("gleaner1-", 4),
    ("ghp_", 8),
    ("gho_", 8),
    ("ghu_", 8),
    ("ghs_", 8),
    ("ghr_", 8),
    ("github_pat_", 8),
    ("glpat-", 8),
    ("xoxa-", 8),
    ("xoxb-", 8),
    ("xoxp-", 8),
    ("xoxs-", 8),
    ("sk-", 12),
    ("sk_live_", 8),
    ("sk_test_", 8),
    ("rk_live_", 8),
    ("whsec_", 8),
    ("AKIA", 12),
    ("ASIA", 12),
    ("AIza", 16),
    ("eyJ", 12),
    ("npm_", 30),
    ("pypi-", 40),
    ("dop_v1_", 12),
    ("hf_", 30),
];
/// A number in hexadecimal with more digits is shown by its first ones, which name a task, a machine or a block as well.
const HEX_DIGITS_MAX: usize = 24;
const HEX_DIGITS_SHOWN: usize = 8;
/// A word with fewer characters is not judged by their order.
const MIXED_LENGTH_MIN: usize = 20;
const PLAIN_LENGTH_MIN: usize = 24;
const CAPITALS_LENGTH_MIN: usize = 16;
/// Bytes that are written one by one, as in `[48, 83, 2]`: so many are a key.
const NUMBERS_MIN: usize = 16;

/// The line without such words, and how many there were.
pub fn without(line: &str) -> (String, usize) {
    let (line, numbers) = without_numbers(line);
    let is_of_run = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '+' | '/' | '=');
    let (mut done, mut rest, mut count) = (String::with_capacity(line.len()), line.as_str(), numbers);
    while let Some(begin) = rest.find(is_of_run) {
        done.push_str(&rest[..begin]);
        let end = rest[begin..].find(|letter| !is_of_run(letter)).map_or(rest.len(), |end| begin + end);
        match run(&rest[begin..end]) {
            Some(shown) => {
                done.push_str(&shown);
                count += 1;
            }
            None => done.push_str(&rest[begin..end]),
        }
        rest = &rest[end..];
    }
    (done + rest, count)
}

/// What to show instead of a run of letters, digits and what is in between; none: itself.
fn run(run: &str) -> Option<String> {
    pieces(run, &['='], part)
}

/// The text with what is to be shown instead of its pieces between such letters; none: itself.
fn pieces(text: &str, between: &[char], instead_of: fn(&str) -> Option<String>) -> Option<String> {
    let (mut shown, mut is_changed) = (String::new(), false);
    for piece in text.split_inclusive(between) {
        let bare = piece.trim_end_matches(between);
        let instead = instead_of(bare);
        is_changed |= instead.is_some();
        shown.push_str(instead.as_deref().unwrap_or(bare));
        shown.push_str(&piece[bare.len()..]);
    }
    is_changed.then_some(shown)
}

/// The same of a part between signs of equality.
fn part(part: &str) -> Option<String> {
    let begun = BEGINNINGS.iter().find_map(|(beginning, length)| {
        let is_start = |at: usize| part[..at].chars().next_back().is_none_or(|before| !before.is_ascii_alphanumeric());
        let mut places = part.match_indices(beginning).map(|(at, _)| at);
        places.find(|at| is_start(*at) && part.len() - at - beginning.len() >= *length)
    });
    if let Some(at) = begun {
        return Some(format!("{}{LEFT_OUT}", &part[..at]));
    }
    let is_path = part.starts_with('/') || part.matches('/').count() > part.len() / 8;
    if !is_path && is_base64(part) {
        return Some(LEFT_OUT.to_owned());
    }
    pieces(part, &['/', '+'], word)
}

/// The same of a word of letters, digits, `_` and `-`.
fn word(word: &str) -> Option<String> {
    // Names of the form `prefix-<number>-suffix` keep what is readable.
    let hex = word.split(['-', '_']).find(|part| is_long_hex(part));
    if let Some(hex) = hex {
        let short = format!("{}…", &hex[..HEX_DIGITS_SHOWN]);
        return Some(word.replace(hex, &short));
    }
    let digits: String = word.chars().filter(|letter| *letter != '-').collect();
    if word.contains('-') && is_long_hex(&digits) {
        return Some(format!("{}…", &digits[..HEX_DIGITS_SHOWN]));
    }
    let parts = word.split(['-', '_']);
    (is_mixed(word) || parts.clone().any(is_mixed) || parts.clone().any(is_plain) || parts.clone().any(is_capitals))
        .then(|| LEFT_OUT.to_owned())
}

fn is_long_hex(word: &str) -> bool {
    word.len() >= HEX_DIGITS_MAX && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Upper case, lower case, digits.
fn kinds(word: &str) -> [usize; 3] {
    let count = |is: fn(&u8) -> bool| word.as_bytes().iter().filter(|byte| is(byte)).count();
    [count(u8::is_ascii_uppercase), count(u8::is_ascii_lowercase), count(u8::is_ascii_digit)]
}

/// How often one kind of character follows another one.
fn changes(word: &str) -> usize {
    let kind = |byte: u8| match byte {
        b'A'..=b'Z' => 0,
        b'a'..=b'z' => 1,
        b'0'..=b'9' => 2,
        _ => 3,
    };
    word.as_bytes().windows(2).filter(|pair| kind(pair[0]) != kind(pair[1])).count()
}

/// Letters of both cases and digits, in no order.
fn is_mixed(word: &str) -> bool {
    word.len() >= MIXED_LENGTH_MIN && kinds(word).iter().all(|count| *count >= 2) && changes(word) >= word.len() / 4
}

/// Letters of one case and digits, or letters of both cases, in no order. A name of several words changes less often.
fn is_plain(word: &str) -> bool {
    let [upper, lower, digits] = kinds(word);
    let has_digits = digits >= 3 && upper.max(lower) >= 3 && changes(word) * 3 >= word.len();
    let has_both = upper.min(lower) >= 3 && changes(word) * 20 >= word.len() * 9;
    word.len() >= PLAIN_LENGTH_MIN && (has_digits || has_both)
}

/// Capitals with digits among them, as in base32.
fn is_capitals(word: &str) -> bool {
    let [upper, lower, digits] = kinds(word);
    word.len() >= CAPITALS_LENGTH_MIN && lower == 0 && upper >= 4 && digits >= 2 && changes(word) >= 4
}

/// Long, with `+` or `/` in it.
fn is_base64(part: &str) -> bool {
    part.len() >= MIXED_LENGTH_MIN
        && part.contains(['+', '/'])
        && kinds(part).iter().all(|count| *count >= 1)
        && changes(part) * 5 >= part.len() * 2
}

/// `[48, 83, 2, …]`.
fn without_numbers(line: &str) -> (String, usize) {
    let (mut done, mut rest, mut count) = (String::with_capacity(line.len()), line, 0);
    while let Some(begin) = rest.find('[') {
        let (before, after) = rest.split_at(begin + 1);
        done.push_str(before);
        let end = after.find(|letter: char| !letter.is_ascii_hexdigit() && !matches!(letter, ',' | ' ' | 'x'));
        let inner = &after[..end.unwrap_or(after.len())];
        if inner.split(',').filter(|number| !number.trim().is_empty()).count() >= NUMBERS_MIN {
            done.push_str(LEFT_OUT);
            count += 1;
            rest = &after[inner.len()..];
        } else {
            rest = after;
        }
    }
    (done + rest, count)
}
