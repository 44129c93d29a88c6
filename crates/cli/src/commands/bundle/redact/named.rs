//! Values that stand behind a name which sounds secret: `password = …`, `"api_key": "…"`, `--token …`, `Bearer …`,
//! `user:password@host`.

use super::LEFT_OUT;
use client::policy::looks_secret;

/// Names that sound secret by themselves, but not as a part of another. `PWD` in capitals is a folder.
const ALONE: [&str; 13] = [
    "KEY",
    "PASS",
    "PW",
    "PIN",
    "OTP",
    "TOTP",
    "JWT",
    "COOKIE",
    "SESSION",
    "SESSIONID",
    "SIGNATURE",
    "PSK",
    "MNEMONIC",
];
/// What makes a name sound secret wherever it stands in it, beside what [`looks_secret`] knows.
const PARTS: [&str; 6] = ["COOKIE", "PRIVKEY", "SECRET", "PASSW", "PASSPHRASE", "BEARER"];
const ENDINGS: [&str; 5] = ["KEY", "_PW", "_PIN", "_JWT", "_SIG"];
/// Names that end like these and are no secret.
const HARMLESS: [&str; 5] = ["MONKEY", "HOTKEY", "TURKEY", "WHISKEY", "JOCKEY"];
/// Words in front of a value, as in `password hunter2`.
const INTRODUCING: [&str; 3] = ["token", "pass", "key"];
/// And those behind which any word is taken for a value.
const SCHEMES: [&str; 7] = ["bearer", "basic", "negotiate", "password", "passwd", "passphrase", "secret"];
/// Flags with `user:password`.
const USER_FLAGS: [&str; 3] = ["-u", "--user", "--proxy-user"];

/// Whether a name sounds as if its value were secret.
pub fn is_secret(name: &str) -> bool {
    if name == "PWD" || name == "OLDPWD" || name.len() > 200 {
        return false;
    }
    let name = words_of(name);
    let is_harmless = HARMLESS.iter().any(|harmless| name.ends_with(harmless));
    ALONE.contains(&name.as_str())
        || name == "PWD"
        || PARTS.iter().any(|part| name.contains(part))
        || (ENDINGS.iter().any(|ending| name.ends_with(ending)) && !is_harmless)
        || looks_secret(name.as_bytes(), b"")
}

/// A name in capitals with `_` between its words: `apiKey`, `api-key` and `API key` are `API_KEY`.
fn words_of(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 4);
    let mut was_lower = false;
    for letter in name.chars() {
        if was_lower && letter.is_uppercase() {
            words.push('_');
        }
        was_lower = letter.is_lowercase() || letter.is_ascii_digit();
        words.extend(if letter.is_alphanumeric() { letter.to_uppercase().next() } else { Some('_') });
    }
    words
}

/// The line without such values, and how many there were.
pub fn without(line: &str) -> (String, usize) {
    let (line, in_addresses) = without_passwords_in_addresses(line);
    let (line, assigned) = without_assigned(&line);
    let (line, introduced) = without_introduced(&line);
    (line, in_addresses + assigned + introduced)
}

/// The passwords of all `scheme://user:password@host` in a text, as they are written and as they are meant.
pub fn passwords_in_addresses(text: &str) -> Vec<String> {
    let addresses = text.split(|letter: char| letter.is_whitespace() || "\"'<>`".contains(letter));
    let users = addresses.filter_map(|address| Some(address.split_once("://")?.1.rsplit_once('@')?.0));
    let passwords = users.filter_map(|user| Some(user.split_once(':')?.1.to_owned()));
    passwords.flat_map(|password| [percent_decoded(&password), password]).collect()
}

fn percent_decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, behind @ ..] = rest {
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `scheme://user:password@host`.
fn without_passwords_in_addresses(line: &str) -> (String, usize) {
    const SCHEME_END: &str = "://";
    let (mut done, mut rest, mut count) = (String::with_capacity(line.len()), line, 0);
    while let Some(at) = rest.find(SCHEME_END) {
        let (before, after) = rest.split_at(at + SCHEME_END.len());
        done.push_str(before);
        let end = after.find(|letter: char| letter.is_whitespace() || "\"'<>`".contains(letter)).unwrap_or(after.len());
        let user = after[..end].rfind('@').filter(|at| after[..*at].contains(':'));
        if user.is_some() {
            done.push_str(LEFT_OUT);
            count += 1;
        }
        rest = &after[user.unwrap_or(0)..];
    }
    (done + rest, count)
}

/// `name = value`, `name: value`, `"name": "value"`, `\"name\":\"value\"`.
fn without_assigned(line: &str) -> (String, usize) {
    let (mut done, mut rest, mut count) = (String::with_capacity(line.len()), line, 0);
    while let Some(at) = rest.find(['=', ':']) {
        let (before, after) = rest.split_at(at);
        let sign = after.len() - after.trim_start_matches(['=', ':', '>', ' ', '\t']).len();
        done.push_str(before);
        done.push_str(&after[..sign]);
        rest = &after[sign..];
        if rest.is_empty() || !is_secret(name_before(&done[..done.len() - sign])) {
            continue;
        }
        let (shown, behind) = value_at(rest);
        if let Some(shown) = shown {
            done.push_str(&shown);
            count += 1;
        }
        rest = behind;
    }
    (done + rest, count)
}

/// The name that a text ends with, without quotes behind it.
fn name_before(text: &str) -> &str {
    let text = text.trim_end_matches([' ', '\t']).trim_end_matches(['"', '\'', '`', '\\', ']', ')']);
    let is_of_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.');
    let start = text
        .rfind(|letter: char| !is_of_name(letter))
        .map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
    &text[start..]
}

/// What stands in place of the value that a text begins with, unless it is empty, and what is behind it. One without quotes goes to the
/// end of the line: where it ends cannot be known.
fn value_at(text: &str) -> (Option<String>, &str) {
    let escapes = text.len() - text.trim_start_matches('\\').len();
    let Some(quote) = text[escapes..].chars().next().filter(|letter| matches!(letter, '"' | '\'' | '`')) else {
        return (Some(LEFT_OUT.to_owned()), "");
    };
    let opening = &text[..escapes + quote.len_utf8()];
    let inner = &text[opening.len()..];
    if escapes == 0 && inner.starts_with(quote) {
        // Either nothing is between the quotes, or there are three of them.
        let is_empty = !inner[quote.len_utf8()..].starts_with(quote);
        return if is_empty { (None, text) } else { (Some(LEFT_OUT.to_owned()), "") };
    }
    let behind = closing(inner, quote, escapes).map_or("", |end| &inner[end..]);
    (Some(format!("{opening}{LEFT_OUT}")), behind)
}

/// Where the quote that is behind so many escapes comes again.
fn closing(inner: &str, quote: char, escapes: usize) -> Option<usize> {
    let mut before = 0;
    for (at, letter) in inner.char_indices() {
        match letter {
            '\\' => before += 1,
            letter if letter == quote && before == escapes => return Some(at - before),
            _ => before = 0,
        }
    }
    None
}

/// `--password value`, `password value`, `Bearer value`, `-u user:password`.
fn without_introduced(line: &str) -> (String, usize) {
    let (mut done, mut count) = (String::with_capacity(line.len()), 0);
    let (mut takes_any, mut takes_odd, mut takes_pair) = (false, false, false);
    for word in line.split_inclusive([' ', '\t']) {
        let bare = word.trim_end_matches([' ', '\t']);
        let plain = bare.trim_matches(|letter: char| !letter.is_alphanumeric() && letter != '-');
        let lower = plain.to_lowercase();
        let expects = takes_any || takes_odd || takes_pair;
        if expects && matches!(lower.as_str(), "is" | "was" | "") {
            done.push_str(word);
            continue;
        }
        let is_any = takes_any && !bare.starts_with('-');
        let is_value = is_any || (takes_odd && is_odd(plain)) || (takes_pair && bare.contains(':'));
        let is_left_out = bare.contains(LEFT_OUT);
        match is_value && !is_left_out {
            true => {
                done.push_str(LEFT_OUT);
                done.push_str(&word[bare.len()..]);
                count += 1;
            }
            false => done.push_str(word),
        }
        let is_flag = bare.starts_with('-') && !bare.contains('=') && is_secret(bare.trim_start_matches('-'));
        takes_any = !is_value && (is_flag || SCHEMES.contains(&lower.as_str()));
        takes_odd = !is_value && INTRODUCING.contains(&lower.as_str());
        takes_pair = USER_FLAGS.contains(&bare);
    }
    (done, count)
}

/// Whether something is no ordinary word of a sentence.
fn is_odd(word: &str) -> bool {
    let has_other = word.chars().any(|letter| !letter.is_alphabetic() && letter != '-');
    (has_other && word.chars().count() >= 4) || word.chars().skip(1).any(char::is_uppercase)
}
