//! What the last name of a path says of a file: that keys are kept in it, variables with their values, or what was typed.

/// Endings of names under which keys and passwords are kept. A name alone says nothing: certificates are called so as well.
const KEY_ENDINGS: &[&str] = &[".kdbx", ".p12", ".pfx", ".keytab", ".jks", ".ppk", ".pem", ".key", ".gpg", ".asc"];
/// Files of variables and of settings that are written as such, which may hold passwords.
#[rustfmt::skip]
const VARIABLE_FILES: &[&str] = &[
    ".envrc", ".npmrc", ".flaskenv", ".Renviron", ".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_aliases", ".zshrc", ".zshenv",
    ".zprofile", ".zlogin", ".kshrc", ".gitconfig", ".hgrc", ".wgetrc",
];
/// Settings of version control and of installers, which may have addresses with passwords in them.
const SETTINGS_FILES: &[&str] = &[
    "config",
    ".gitconfig",
    "hgrc",
    ".hgrc",
    "pip.conf",
    "pip.ini",
    ".condarc",
    ".wgetrc",
    "init.gradle",
    ".Rprofile",
];
/// What the name of such a file ends with that is there to be copied and filled in.
const TEMPLATES: &[&str] = &["example", "sample", "template", "tmpl", "dist", "defaults"];

/// Whether a file of this name has what was typed, passwords among it.
pub(super) fn is_history(name: &[u8]) -> bool {
    name.starts_with(b".") && name.ends_with(b"_history") && !is_history_of_interpreter(name)
}

/// Whether keys are kept in files of this name.
pub(super) fn is_key_name(name: &[u8]) -> bool {
    KEY_ENDINGS.iter().any(|ending| name.ends_with(ending.as_bytes()))
}

/// Whether a file of this name may have addresses with passwords in them.
pub(super) fn is_settings_file(name: &[u8]) -> bool {
    SETTINGS_FILES.iter().any(|file| name == file.as_bytes())
}

/// Whether a file of this name has variables with their values.
pub(super) fn is_variable_file(name: &[u8]) -> bool {
    let is_one = |file: &&str| name == file.as_bytes();
    const BEGINNINGS: [&[u8]; 4] = [b".env.", b".env-", b".env_", b".envrc."];
    // `env.py` is a program.
    const STAGES: [&[u8]; 7] = [b"production", b"prod", b"staging", b"development", b"dev", b"test", b"local"];
    let is_of_stage = BEGINNINGS.iter().any(|begin| name.starts_with(begin))
        || name.strip_prefix(b"env.").is_some_and(|stage| STAGES.contains(&stage))
        || [&b".env"[..], b".dev.vars"].iter().any(|end| name.ends_with(end));
    (VARIABLE_FILES.iter().any(is_one) || is_of_stage) && !TEMPLATES.iter().any(|end| name.ends_with(end.as_bytes()))
}

/// Whether a file of this name in a home has what was typed at an interpreter, which reads it whenever it starts.
pub(super) fn is_history_of_interpreter(name: &[u8]) -> bool {
    const NAMES: &[&[u8]] = &[
        b".python_history",
        b".node_repl_history",
        b".sqlite_history",
        b".irb_history",
        b".pry_history",
        b".Rhistory",
    ];
    NAMES.contains(&name)
}
