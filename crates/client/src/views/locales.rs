//! What a program reads that speaks the user's language: the C library's files of a locale.

use super::closure::TRIPLETS;

/// What a locale has.
pub(super) const LOCALE_FILES: [&str; 12] = [
    "LC_ADDRESS",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_IDENTIFICATION",
    "LC_MEASUREMENT",
    "LC_MESSAGES/SYS_LC_MESSAGES",
    "LC_MONETARY",
    "LC_NAME",
    "LC_NUMERIC",
    "LC_PAPER",
    "LC_TELEPHONE",
    "LC_TIME",
];

/// The files that are read where `env` names a locale: none where it does not.
pub(super) fn files(env: &[Vec<u8>]) -> Vec<String> {
    let value = |name: &[u8]| {
        let value = env.iter().find_map(|entry| entry.strip_prefix(name)?.strip_prefix(b"="));
        value.filter(|value| !value.is_empty()).and_then(|value| std::str::from_utf8(value).ok())
    };
    let Some(name) = [&b"LC_ALL"[..], b"LC_CTYPE", b"LANG"].into_iter().find_map(value) else { return Vec::new() };
    if matches!(name, "C" | "POSIX") || name.contains('/') {
        return Vec::new();
    }
    let folder = format!("/usr/lib/locale/{}", with_plain_codeset(name));
    let of_locale = LOCALE_FILES.iter().map(|file| format!("{folder}/{file}"));
    let tables = TRIPLETS.iter().map(|triplet| format!("/usr/lib/{triplet}/gconv/gconv-modules.cache"));
    of_locale.chain(["/usr/share/locale/locale.alias".into()]).chain(tables).collect()
}

/// A locale's name as its folder has it: the codeset in small letters and digits.
fn with_plain_codeset(name: &str) -> String {
    let Some((language, rest)) = name.split_once('.') else { return name.to_owned() };
    let (codeset, modifier) = rest.split_at(rest.find('@').unwrap_or(rest.len()));
    let plain: String = codeset.chars().filter(char::is_ascii_alphanumeric).collect();
    format!("{language}.{}{modifier}", plain.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files_of(env: &[&str]) -> Vec<String> {
        files(&env.iter().map(|entry| entry.as_bytes().to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn the_first_variable_that_is_set_counts() {
        let found = files_of(&["LANG=de_DE.ISO-8859-15@euro", "LC_ALL=", "LC_CTYPE=C.UTF-8"]);
        assert!(found.contains(&"/usr/lib/locale/C.utf8/LC_CTYPE".to_owned()), "{found:?}");
        assert_eq!(with_plain_codeset("de_DE.ISO-8859-15@euro"), "de_DE.iso885915@euro");
        for none in [&["LANG=C"][..], &["LC_ALL=POSIX"], &["LANG=../../etc"], &[]] {
            assert_eq!(files_of(none), [""; 0], "{none:?}");
        }
    }
}
