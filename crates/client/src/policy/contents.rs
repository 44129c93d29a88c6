//! What a file holds that never leaves this machine: private keys in the forms that programs keep them in, and passwords in files of
//! variables. By content, since a name tells little: a certificate is called `x.pem` as well, and a key `backup.txt`.
//!
//! It errs on the side of a secret: what reads one runs here, which costs time alone.

use super::Denial;
use super::environment::{has_password, looks_secret};
use super::file_names::{is_key_name, is_settings_file, is_variable_file};
use memchr::memmem;
use std::sync::LazyLock;

/// Bytes of a file that are looked at.
pub const LOOK_BYTES: usize = 1 << 20;
/// The same of a file that holds other files as they are.
pub const LOOK_BYTES_WITHIN: usize = 16 << 20;
/// What has a zero byte among its first bytes is no text.
const HEAD_BYTES: usize = 4096;
/// Larger files are not taken for settings.
const SETTINGS_BYTES_MAX: u64 = 256 << 10;
/// Letters of a key that follow on its first line, or on the next, if it is really there.
const KEY_LETTERS: usize = 20;
/// So many letters are counted.
const LETTERS_MAX: usize = 64;
/// Lines of comments in front of the first login of a list of such, and more.
const COMMENTS_MAX: usize = 256;
/// Words of the first login of a list of such, and more.
const LOGIN_WORDS: usize = 64;
/// How far before its kind a key's first line is looked at: what is in front is a program's or a setting's.
const LINE_BYTES: usize = 128;
/// Letters that follow a line which is nothing but a key's first line: a placeholder has none.
const BODY_LETTERS: usize = 4;

/// A file that is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Looked<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its permission bits.
    pub mode: u32,
    /// How large it is.
    pub size: u64,
    /// Its first bytes, [`LOOK_BYTES`] at most, or [`LOOK_BYTES_WITHIN`] if it [`holds_texts`].
    pub bytes: &'a [u8],
}

/// What the file holds that stays here, if it does.
pub fn secret_in(file: &Looked<'_>) -> Option<Denial> {
    if is_wide(file.bytes) {
        let narrow: Vec<u8> = file.bytes[2..].iter().copied().filter(|byte| *byte != 0).collect();
        return secret_in(&Looked { bytes: &narrow, ..*file });
    }
    let is_text = memchr::memchr(0, &file.bytes[..file.bytes.len().min(HEAD_BYTES)]).is_none();
    let has_texts = is_text || holds_texts(file.bytes);
    if is_encoded_key(file.bytes, file.size) || is_key_store(file.bytes) || (has_texts && has_key_in_text(file.bytes)) {
        return Some(Denial::Key);
    }
    if is_text && file.size <= SETTINGS_BYTES_MAX && has_passwords(file) {
        return Some(Denial::Passwords);
    }
    // Who closes a file of such a name to others means it.
    let is_closed = file.mode & 0o077 == 0;
    if is_closed && is_key_name(file.name) && !is_public(file.bytes) {
        return Some(Denial::Key);
    }
    (is_closed && is_variable_file(file.name)).then_some(Denial::Passwords)
}

/// Whether what begins so holds texts as they are, though it is none itself: archives without compression, images of a program's memory,
/// databases, text in UTF-16.
pub fn holds_texts(first: &[u8]) -> bool {
    const CORE: &[u8] = &[4, 0];
    let is_tar = first.get(257..262) == Some(b"ustar");
    let is_cpio = [&b"070701"[..], b"070702", b"070707", b"\xc7\x71"].iter().any(|magic| first.starts_with(magic));
    let is_core = first.starts_with(b"\x7fELF") && first.get(16..18) == Some(CORE);
    // What Vim keeps of a file that is being edited.
    let is_swap = first.starts_with(b"b0VIM ");
    is_tar || is_cpio || is_core || is_swap || is_wide(first) || first.starts_with(b"SQLite format 3\0")
}

/// Whether it is marked as text in UTF-16.
fn is_wide(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff])
}

/// Whether these bytes are the key of a hub, worker or client of this program.
pub fn is_gleaner_key(bytes: &[u8]) -> bool {
    // PKCS #8 of Ed25519, with the public key or without.
    const ED25519: &[u8] = &[0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70];
    bytes.len() < 128 && is_encoded_key(bytes, bytes.len() as u64) && bytes.get(5..12) == Some(ED25519)
}

/// Certificates, requests for them, lists and public keys.
fn is_public(bytes: &[u8]) -> bool {
    const KINDS: [&[u8]; 9] = [
        b"-----BEGIN CERTIFICATE",
        b"-----BEGIN TRUSTED CERTIFICATE",
        b"-----BEGIN PUBLIC KEY",
        b"-----BEGIN X509 CRL",
        b"-----BEGIN DH PARAMETERS",
        b"-----BEGIN EC PARAMETERS",
        b"-----BEGIN NEW CERTIFICATE REQUEST",
        b"-----BEGIN PGP PUBLIC KEY",
        b"-----BEGIN PGP SIGNATURE",
    ];
    let is_certificate = |bytes: &[u8]| {
        let content = element(bytes).filter(|(tag, ..)| *tag == SEQUENCE).map(|(_, content, _)| content);
        content.and_then(element).is_some_and(|(tag, content, _)| tag == SEQUENCE && content.starts_with(&[0xa0]))
    };
    KINDS.iter().any(|kind| memmem::find(bytes, kind).is_some()) || is_certificate(bytes)
}

// --- Keys as text -------------------------------------------------------------------------------------------------------------------

/// What keys as text begin with, or have within.
struct Marks {
    private_key: memmem::Finder<'static>,
    age: memmem::Finder<'static>,
    open_ssh: memmem::Finder<'static>,
    putty: memmem::Finder<'static>,
    expression: memmem::Finder<'static>,
    wire_guard: memmem::Finder<'static>,
    kubernetes: memmem::Finder<'static>,
    web_key: memmem::Finder<'static>,
}

static MARKS: LazyLock<Marks> = LazyLock::new(|| Marks {
    private_key: memmem::Finder::new("PRIVATE KEY"),
    age: memmem::Finder::new("AGE-SECRET-KEY-"),
    // `openssh-key-v1` in base64.
    open_ssh: memmem::Finder::new("b3BlbnNzaC1rZXktdj"),
    putty: memmem::Finder::new("PuTTY-User-Key-File-"),
    expression: memmem::Finder::new("private-key"),
    wire_guard: memmem::Finder::new("PrivateKey"),
    kubernetes: memmem::Finder::new("client-key-data"),
    web_key: memmem::Finder::new("\"kty\""),
});

fn has_key_in_text(bytes: &[u8]) -> bool {
    let marks = &*MARKS;
    let any = |finder: &memmem::Finder<'_>, is_key: &dyn Fn(usize, &[u8]) -> bool| {
        finder.find_iter(bytes).any(|at| is_key(at, &bytes[at + finder.needle().len()..]))
    };
    any(&marks.private_key, &|at, after| is_armoured(&bytes[..at], after))
        || any(&marks.age, &|_, after| letters(after) >= KEY_LETTERS)
        || any(&marks.open_ssh, &|_, after| letters(after) >= KEY_LETTERS)
        || (memmem::find(bytes, b"Private-Lines").is_some() && any(&marks.putty, &|at, _| begins_line(&bytes[..at])))
        || any(&marks.expression, &|at, after| is_expression(&bytes[..at], after))
        || any(&marks.wire_guard, &|at, after| {
            begins_line(&bytes[..at]) && value(after).is_some_and(|value| letters(value) >= 40)
        })
        || any(&marks.kubernetes, &|_, after| value(after).is_some_and(|value| letters(value) >= KEY_LETTERS))
        || (marks.web_key.find(bytes).is_some() && has_private_number(bytes))
        || is_secret_of_signer(bytes)
}

/// Whether `PRIVATE KEY`, between these, is in the first line of a key, and a key follows: `-----BEGIN RSA PRIVATE KEY-----`,
/// `-----BEGIN PGP PRIVATE KEY BLOCK-----`, `---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----`.
fn is_armoured(before: &[u8], after: &[u8]) -> bool {
    let near = &before[before.len().saturating_sub(LINE_BYTES)..];
    let line = &near[memchr::memrchr(b'\n', near).map_or(0, |at| at + 1)..];
    let Some(begin) = memmem::rfind(line, b"BEGIN ") else { return false };
    let kind = &line[begin..];
    let is_kind =
        kind.len() < 64 && kind.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b' ');
    let dashes = line[..begin].trim_ascii_end();
    let rest = after.strip_prefix(b" BLOCK").unwrap_or(after);
    let rest = rest.trim_ascii_start();
    if !is_kind || !dashes.ends_with(b"----") || !rest.starts_with(b"----") {
        return false;
    }
    let body = &rest[rest.iter().position(|byte| *byte != b'-').unwrap_or(rest.len())..];
    let is_line = dashes.iter().all(|byte| matches!(byte, b'-' | b' ' | b'\t'));
    let ends_line = matches!(body.first(), None | Some(b'\r' | b'\n'));
    match is_line && ends_line {
        // A header may come first. What is not there to be looked at may be a key.
        true => body.trim_ascii().is_empty() || longest_run(before_dashes(body)) >= BODY_LETTERS,
        false => letters(in_text(body)) >= KEY_LETTERS,
    }
}

/// What comes before the last line of a key, or as much of it as is worth a look.
fn before_dashes(body: &[u8]) -> &[u8] {
    let body = &body[..body.len().min(512)];
    &body[..memmem::find(body, b"----").unwrap_or(body.len())]
}

/// A key's letters in the text of a program or of settings: behind the ends of lines and of strings.
fn in_text(body: &[u8]) -> &[u8] {
    let mut rest = body;
    loop {
        let before = rest.len();
        rest = rest.trim_ascii_start();
        for way in [&b"\\n"[..], b"\\r", b"\\", b"\"", b"'", b"+", b"#", b"*"] {
            rest = rest.strip_prefix(way).unwrap_or(rest);
        }
        if rest.len() == before {
            return rest;
        }
    }
}

/// The longest run of letters that keys are written with.
fn longest_run(bytes: &[u8]) -> usize {
    let (mut longest, mut run) = (0, 0);
    for byte in bytes {
        run = if is_letter(*byte) { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'_')
}

/// How many letters of a key `bytes` begins with; more than enough are not counted.
fn letters(bytes: &[u8]) -> usize {
    bytes.iter().take(LETTERS_MAX).take_while(|byte| is_letter(**byte)).count()
}

/// Whether nothing but spaces stands in front on the same line.
fn begins_line(before: &[u8]) -> bool {
    matches!(before.iter().rfind(|byte| !matches!(byte, b' ' | b'\t')), None | Some(b'\n'))
}

/// What follows `=` or `:`, without spaces and quotes in front.
fn value(after: &[u8]) -> Option<&[u8]> {
    let rest = after.trim_ascii_start();
    let rest = rest.strip_prefix(b"\"").unwrap_or(rest).trim_ascii_start();
    let rest = rest.strip_prefix(b"=").or_else(|| rest.strip_prefix(b":"))?.trim_ascii_start();
    Some(rest.strip_prefix(b"\"").unwrap_or(rest))
}

/// GnuPG's: `(private-key`, `(21:protected-private-key`.
fn is_expression(before: &[u8], after: &[u8]) -> bool {
    let before =
        ["protected-", "shadowed-"].iter().find_map(|kind| before.strip_suffix(kind.as_bytes())).unwrap_or(before);
    let digits =
        before.strip_suffix(b":").map(|before| before.iter().rev().take_while(|byte| byte.is_ascii_digit()).count());
    let before = digits.map_or(before, |digits| &before[..before.len() - 1 - digits]);
    before.ends_with(b"(") && after.trim_ascii_start().starts_with(b"(")
}

/// A key as JSON that has its private number.
fn has_private_number(bytes: &[u8]) -> bool {
    let is_number = |value: &[u8]| {
        let letters = value.iter().take(LETTERS_MAX).take_while(|byte| is_letter(**byte) || **byte == b'-');
        letters.count() >= KEY_LETTERS
    };
    memmem::find_iter(bytes, b"\"d\"").any(|at| value(&bytes[at + 3..]).is_some_and(is_number))
}

/// Keys of minisign and signify: a comment, then base64.
fn is_secret_of_signer(bytes: &[u8]) -> bool {
    let Some(rest) = bytes.strip_prefix(b"untrusted comment:") else { return false };
    let comment = &rest[..memchr::memchr(b'\n', rest).unwrap_or(rest.len())];
    memmem::find(comment, b"secret key").is_some()
}

// --- Keys as bytes ------------------------------------------------------------------------------------------------------------------

const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OBJECT: u8 = 0x06;
const SEQUENCE: u8 = 0x30;

/// Where an element's length stands: it goes on until two zero bytes (BER).
const INDEFINITE: u8 = 0x80;

/// The first element of DER or BER: its tag, as much of its content as there is, and how long it is in all.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], u64)> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (u64::from(*first), rest),
        &INDEFINITE => (rest.len() as u64, rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (digits.iter().fold(0, |len, digit| (len << 8) | u64::from(*digit)), rest)
        }
        _ => return None,
    };
    let header = (bytes.len() - rest.len()) as u64;
    Some((*tag, &rest[..rest.len().min(len.try_into().ok()?)], header + len))
}

/// A private key as DER, the whole of a file of `size` bytes: PKCS #8, plain or encrypted, PKCS #1, SEC 1, or a PKCS #12 store.
fn is_encoded_key(bytes: &[u8], size: u64) -> bool {
    const OF_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01];
    let Some((SEQUENCE, content, length)) = element(bytes) else { return false };
    if length != size && bytes.get(1) != Some(&INDEFINITE) {
        return false;
    }
    let Some((tag, first, of_first)) = element(content) else { return false };
    let next = || content.get(of_first as usize..).and_then(element);
    let object = |bytes| element(bytes).filter(|(tag, ..)| *tag == OBJECT).map(|(_, object, _)| object);
    match (tag, first) {
        (INTEGER, [version]) => match (*version, next()) {
            (0 | 1, Some((SEQUENCE, algorithm, _))) => object(algorithm).is_some(),
            (0, Some((INTEGER, ..))) | (1, Some((OCTETS, ..))) => true,
            (3, Some((SEQUENCE, store, _))) => object(store).is_some_and(|object| object.starts_with(OF_RSA)),
            _ => false,
        },
        // Encrypted: the algorithm is one of passwords.
        (SEQUENCE, algorithm) => {
            let of_password = |object: &[u8]| matches!(object.strip_prefix(OF_RSA), Some([5, ..] | [12, 1, ..]));
            object(algorithm).is_some_and(of_password) && matches!(next(), Some((OCTETS, ..)))
        }
        _ => false,
    }
}

/// Stores of keys and of tickets, by what they begin with.
fn is_key_store(bytes: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 6] = [
        // Java's, two kinds.
        &[0xfe, 0xed, 0xfe, 0xed, 0, 0, 0],
        &[0xce, 0xce, 0xce, 0xce, 0, 0, 0],
        // KeePass.
        &[0x03, 0xd9, 0xa2, 0x9a],
        b"SSH PRIVATE KEY FILE FORMAT",
        b"openssh-key-v1\0",
        // Kerberos tickets, with a header.
        &[0x05, 0x04, 0x00, 0x0c, 0x00, 0x01],
    ];
    // Kerberos keys: a length after the version.
    let is_key_table =
        matches!(bytes, [5, 2, 0, 0, high, low, ..] if (16..2048).contains(&u16::from_be_bytes([*high, *low])));
    // A secret key of OpenPGP: packet 5 with a length, then the version, then the time of its making, then an algorithm.
    let is_algorithm = |number: u8| matches!(number, 1..=3 | 16..=22 | 25..=28);
    let is_open_pgp = match bytes {
        [0x94, _, 4, _, _, _, _, algorithm, ..]
        | [0x95, _, _, 4, _, _, _, _, algorithm, ..]
        | [0xc5, 0..=191, 4, _, _, _, _, algorithm, ..]
        | [0xc5, 192..=223, _, 4, _, _, _, _, algorithm, ..] => is_algorithm(*algorithm),
        _ => false,
    };
    BEGINNINGS.iter().any(|begin| bytes.starts_with(begin)) || is_key_table || is_open_pgp
}

// --- Passwords ----------------------------------------------------------------------------------------------------------------------

fn has_passwords(file: &Looked<'_>) -> bool {
    is_login_list(file.bytes)
        || has_cloud_key(file.bytes)
        || (is_variable_file(file.name) && has_secret_variable(file.bytes))
        || (is_settings_file(file.name) && has_login_in_address(file.bytes))
}

/// Whether an address in settings, such as that of a repository, has a password in it, or a header does that goes with it.
fn has_login_in_address(bytes: &[u8]) -> bool {
    let is_header = |line: &str| {
        line.trim_start().to_lowercase().starts_with("extraheader") && line.to_lowercase().contains("authorization:")
    };
    let text = String::from_utf8_lossy(bytes);
    text.lines().any(|line| is_header(line) || line.split_whitespace().any(has_password))
}

/// As `.netrc` is, whatever it is called.
fn is_login_list(bytes: &[u8]) -> bool {
    let is_space = |byte: &u8| byte.is_ascii_whitespace();
    let mut lines = bytes.splitn(COMMENTS_MAX, |byte| *byte == b'\n');
    let is_said = |line: &&[u8]| !line.trim_ascii_start().starts_with(b"#") && !line.trim_ascii().is_empty();
    let first = lines.find(is_said).unwrap_or_default();
    let words = first.split(is_space).chain(lines.flat_map(|line| line.split(is_space)));
    let mut words = words.filter(|word| !word.is_empty());
    let is_first = match words.next() {
        Some(b"machine") => words.next().is_some(),
        first => first == Some(b"default"),
    };
    let is_next = |word: &[u8]| matches!(word, b"login" | b"user" | b"account" | b"password");
    let mut words = words.take(LOGIN_WORDS).peekable();
    is_first && words.peek().is_some_and(|word| is_next(word)) && words.any(|word| word == b"password")
}

/// As the files of cloud services have them.
fn has_cloud_key(bytes: &[u8]) -> bool {
    static KEY: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new("aws_secret_access_key"));
    KEY.find_iter(bytes).any(|at| value(&bytes[at + KEY.needle().len()..]).is_some_and(|value| letters(value) >= 30))
}

/// Whether a line gives a variable that looks secret a value.
fn has_secret_variable(bytes: &[u8]) -> bool {
    bytes.split(|byte| matches!(byte, b'\n' | b';' | b'&')).any(|line| {
        let line = line.trim_ascii();
        let line = line.strip_prefix(b"export ").unwrap_or(line);
        let Some(at) = line.iter().position(|byte| *byte == b'=').filter(|_| !line.starts_with(b"#")) else {
            return false;
        };
        let value = line[at + 1..].trim_ascii();
        let value = value.strip_prefix(b"\"").or_else(|| value.strip_prefix(b"'")).unwrap_or(value);
        let value = value.strip_suffix(b"\"").or_else(|| value.strip_suffix(b"'")).unwrap_or(value);
        !is_placeholder(value) && looks_secret(line[..at].trim_ascii(), value)
    })
}

/// What stands for a value that is to be filled in, or is none.
fn is_placeholder(value: &[u8]) -> bool {
    const WORDS: [&str; 9] = ["", "true", "false", "yes", "no", "on", "off", "none", "null"];
    const PARTS: [&str; 6] = ["changeme", "change_me", "change-me", "placeholder", "xxxx", "your"];
    let text = String::from_utf8_lossy(value).to_lowercase();
    let is_number = text.parse::<u8>().is_ok();
    is_number
        || WORDS.contains(&text.as_str())
        || PARTS.iter().any(|part| text.contains(part))
        || (text.starts_with('<') && text.ends_with('>'))
        || text.starts_with("$")
        || text.bytes().all(|byte| byte == b'*')
}

#[cfg(test)]
mod tests;
