//! What the words of a command say, for those who judge it by them at either end.

/// Programs that make lock files, and nothing else.
pub const LOCKERS: [&[u8]; 4] = [b"lockfile", b"dotlockfile", b"lockfile-create", b"shlock"];

/// The name of the program that a word names, with its path or without.
pub fn last_name(word: &[u8]) -> &[u8] {
    word.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Whether a word is one of these long options, or has one of these letters among its short ones.
pub fn is_option(word: &[u8], letters: &[u8], long: &[&[u8]]) -> bool {
    match word {
        [b'-', b'-', ..] => long.iter().any(|long| word.starts_with(long)),
        // What follows a mode is no letter.
        [b'-', short @ ..] => short.iter().take_while(|letter| **letter != b'm').any(|letter| letters.contains(letter)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_by_letter_and_by_word() {
        let is = |word: &str| is_option(word.as_bytes(), b"p", &[b"--parents"]);
        assert!(is("-p") && is("-vp") && is("--parents") && is("--parents=x"));
        assert!(!is("-v") && !is("p") && !is("--p") && !is("-vm755p") && !is("-"));
        assert_eq!((last_name(b"/usr/bin/sh"), last_name(b"sh"), last_name(b"")), (&b"sh"[..], &b"sh"[..], &b""[..]));
    }
}
