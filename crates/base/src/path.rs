//! Absolute paths of a client's tree, as bytes: names need not be UTF-8.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// An absolute, normalised path: starts with `/`, holds no empty, `.` or `..` component and no NUL, and does not end in
/// `/` unless it is the root. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TreePath(Arc<[u8]>);

/// Where a distribution puts its files.
const SYSTEM_FOLDERS: [&[u8]; 7] = [b"/usr/", b"/bin/", b"/sbin/", b"/lib/", b"/lib32/", b"/lib64/", b"/opt/"];

/// Longest path that comes from others, in bytes.
pub const PATH_BYTES_MAX: usize = 1 << 16;
/// What the folders above such a path have in bytes, all together: who goes through them has each once. 4,096 folders of one letter have
/// as many.
pub const WAY_BYTES_MAX: usize = 16 << 20;

impl TreePath {
    /// The root, `/`.
    pub fn root() -> Self {
        Self(Arc::from(&b"/"[..]))
    }

    /// Accepts `bytes` only if they are already in normal form, and neither longer than [`PATH_BYTES_MAX`] nor in more folders than
    /// [`WAY_BYTES_MAX`] allows: for paths that come from others.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Self::accepts(bytes).then(|| Self(Arc::from(bytes)))
    }

    /// Whether [`Self::parse`] accepts these.
    pub fn accepts(bytes: &[u8]) -> bool {
        let Some(rest) = bytes.strip_prefix(b"/").filter(|_| bytes.len() <= PATH_BYTES_MAX) else { return false };
        let mut names = 0;
        let is_normal = rest.is_empty()
            || rest.split(|byte| *byte == b'/').all(|name| {
                names += 1;
                is_plain_name(name)
            });
        is_normal && way_bytes(names, bytes.len()) <= WAY_BYTES_MAX
    }

    /// What the paths of all folders above have in bytes, about.
    pub fn way_bytes(&self) -> usize {
        way_bytes(self.components().count(), self.0.len())
    }

    /// Resolves `bytes` against the absolute directory `self` by its text alone: `..` removes a component, whatever
    /// links there may be. Returns `None` for a NUL byte.
    pub fn resolve(&self, bytes: &[u8]) -> Option<Self> {
        if bytes.contains(&0) {
            return None;
        }
        let mut parts: Vec<&[u8]> = match bytes.first() {
            Some(b'/') => Vec::new(),
            _ => self.components().collect(),
        };
        for part in bytes.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => {
                    parts.pop();
                }
                name => parts.push(name),
            }
        }
        let mut joined = Vec::with_capacity(bytes.len() + self.0.len());
        for part in parts {
            joined.push(b'/');
            joined.extend_from_slice(part);
        }
        if joined.is_empty() {
            joined.push(b'/');
        }
        Some(Self(Arc::from(joined)))
    }

    /// The path of `name` in this directory. `name` must be a plain name (see [`is_plain_name`]).
    pub fn join(&self, name: &[u8]) -> Self {
        debug_assert!(is_plain_name(name), "not a plain name: {name:?}");
        let mut joined = Vec::with_capacity(self.0.len() + 1 + name.len());
        if !self.is_root() {
            joined.extend_from_slice(&self.0);
        }
        joined.push(b'/');
        joined.extend_from_slice(name);
        Self(Arc::from(joined))
    }

    /// The directory this path is in; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let at = self.0.iter().rposition(|byte| *byte == b'/')?;
        match (self.is_root(), at) {
            (true, _) => None,
            (false, 0) => Some(Self::root()),
            (false, at) => Some(Self(Arc::from(&self.0[..at]))),
        }
    }

    /// The directories this path is in, from the root down; each is made when it is asked for.
    pub fn way(&self) -> impl Iterator<Item = Self> {
        let slashes = self.0.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        slashes.filter(|_| !self.is_root()).map(|at| Self(Arc::from(&self.0[..at.max(1)])))
    }

    /// The last component; empty for the root.
    pub fn name(&self) -> &[u8] {
        let at = self.0.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        &self.0[at..]
    }

    /// The components from the root down.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|part| !part.is_empty())
    }

    /// Whether this is `/`.
    pub fn is_root(&self) -> bool {
        self.0.len() == 1
    }

    /// Whether this path is `ancestor` or lies beneath it.
    pub fn is_within(&self, ancestor: &TreePath) -> bool {
        ancestor.is_root() || self.0.strip_prefix(&*ancestor.0).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }

    /// The path relative to `ancestor`, without a leading slash; `None` if it does not lie within.
    pub fn relative_to(&self, ancestor: &TreePath) -> Option<&[u8]> {
        if !self.is_within(ancestor) {
            return None;
        }
        let rest = if ancestor.is_root() { &self.0[..] } else { &self.0[ancestor.0.len()..] };
        Some(rest.strip_prefix(b"/").unwrap_or(rest))
    }

    /// Whether it is where a distribution puts its files.
    pub fn is_in_system_folder(&self) -> bool {
        SYSTEM_FOLDERS.iter().any(|folder| self.as_bytes().starts_with(folder))
    }

    /// The bytes, starting with `/`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

fn way_bytes(names: usize, bytes: usize) -> usize {
    names * bytes / 2
}

/// Whether `name` can name a directory entry: not empty, not `.` or `..`, no slash, no NUL, at most 255 bytes.
pub fn is_plain_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Shows the path with control characters and bytes that are not UTF-8 escaped, so that it can be printed on a terminal.
impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.0))
    }
}

/// Whether a character does something to a terminal or to the text around it, instead of being shown: control characters (C0, DEL, C1),
/// those that turn the direction of text, and those that have no width, but for joiners, which scripts and emoji need.
pub fn is_unseen(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn push_shown(text: &mut String, letter: char) {
    if is_unseen(letter) { text.extend(letter.escape_default()) } else { text.push(letter) }
}

/// Text that is safe to print on one line: what [`is_unseen`] is escaped.
pub fn shown(text: &str) -> Cow<'_, str> {
    shown_but(text, |_| false)
}

/// The same, in which line breaks and tabs stay.
pub fn shown_lines(text: &str) -> Cow<'_, str> {
    shown_but(text, |letter| matches!(letter, '\n' | '\t'))
}

/// A line of a log, which stays one line whatever is told in it; its end stays. `has_colours`: who writes the log has made all escape
/// sequences that are in it, and these stay as well.
pub fn logged(line: &str, has_colours: bool) -> Cow<'_, str> {
    let body = line.strip_suffix('\n').unwrap_or(line);
    match shown_but(body, |letter| letter == '\t' || has_colours && letter == '\u{1b}') {
        Cow::Borrowed(_) => Cow::Borrowed(line),
        Cow::Owned(shown) => Cow::Owned(shown + &line[body.len()..]),
    }
}

fn shown_but(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(|letter| is_unseen(letter) && !stays(letter)) {
        return Cow::Borrowed(text);
    }
    let mut all = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if stays(letter) { all.push(letter) } else { push_shown(&mut all, letter) }
    }
    Cow::Owned(all)
}

/// `bytes` as text for a program: as they are, but that bytes which are not UTF-8 are escaped.
pub fn faithful(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// `bytes` as text that is safe to print: what [`is_unseen`] and bytes that are not UTF-8 are escaped.
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            push_shown(&mut text, letter);
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// A text of another machine's, as it may be kept, logged and shown: one line, printable, and of so many bytes of the original at most. What
/// is not just a name is cut in the middle: a path is long, and what is wrong with it stands behind it.
pub fn told(text: &str, bytes_max: usize) -> String {
    let cut = |text: &str| printable(text.as_bytes());
    match text.len() > bytes_max && bytes_max >= ENDS_MIN {
        true => {
            let (head, tail) = (text.floor_char_boundary(bytes_max / 2), text.len() - (bytes_max / 2 - CUT.len()));
            [&cut(&text[..head]), CUT, &cut(&text[text.ceil_char_boundary(tail)..])].concat()
        }
        false => cut(&text[..text.floor_char_boundary(bytes_max)]),
    }
}

/// What stands where a text was cut, and the shortest that keep both ends.
const CUT: &str = "\u{2026}";
const ENDS_MIN: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_tell_is_cut_and_printable() {
        assert_eq!(told("b\u{fc}ro", 2), "b", "at a whole character");
        assert_eq!(told("a\n\u{1b}]0;x\u{7}", 100), "a\\n\\u{1b}]0;x\\u{7}");
        assert_eq!((told("", 9).as_str(), told(&"x".repeat(5000), 64).len()), ("", 64));
        let long = told(&format!("{} is too deep", "/\u{fc}".repeat(2000)), 1000);
        assert!(long.len() <= 1000 && long.starts_with("/\u{fc}") && long.ends_with("/\u{fc} is too deep"), "{long}");
    }

    #[test]
    fn what_is_not_seen_is_escaped() {
        assert_eq!(shown("b\u{fc}ro \u{1f468}\u{200d}\u{1f469}"), "b\u{fc}ro \u{1f468}\u{200d}\u{1f469}");
        assert_eq!(shown("a\u{1b}[31m\r\n\u{7f}\u{9b}2J"), "a\\u{1b}[31m\\r\\n\\u{7f}\\u{9b}2J");
        assert_eq!(shown("x\u{202e}fdp\u{200b}"), "x\\u{202e}fdp\\u{200b}");
        assert_eq!(shown_lines("a\n\tb\r\n"), "a\n\tb\\r\n");
        assert_eq!(logged("a\nb\u{1b}[1mc\r\n", false), "a\\nb\\u{1b}[1mc\\r\n");
        assert_eq!((logged("a\u{1b}[1m\n", true), logged("a\nb", true)), ("a\u{1b}[1m\n".into(), "a\\nb".into()));
        assert_eq!(printable(b"a\x1b\xff\n"), "a\\u{1b}\\xff\\n");
        assert_eq!(faithful(b"a\x1b\xff\n"), "a\u{1b}\\xff\n");
    }

    fn path(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).expect("a normal path")
    }

    #[test]
    fn parse_refuses_what_is_not_normal() {
        for bad in ["", "a", "//", "/a/", "/a//b", "/./a", "/a/..", "/a\0"] {
            assert_eq!(TreePath::parse(bad.as_bytes()), None, "{bad:?}");
        }
        assert!(TreePath::parse(b"/").is_some());
    }

    #[test]
    fn parse_refuses_what_nobody_could_go_through() {
        let parsed = |part: &str, count| TreePath::parse(part.repeat(count).as_bytes()).is_some();
        assert!(parsed("/a", 4096) && !parsed("/a", 4097));
        let long = format!("/{}", "n".repeat(255));
        assert!(parsed(&long, 256) && !parsed(&long, 257));
    }

    #[test]
    fn resolve_goes_by_text() {
        let at = path("/home/u");
        for (text, want) in
            [("a/b", "/home/u/a/b"), ("../x", "/home/x"), ("/", "/"), ("../../..", "/"), ("./", "/home/u")]
        {
            assert_eq!(at.resolve(text.as_bytes()), Some(path(want)), "{text}");
        }
    }

    #[test]
    fn within_is_by_component() {
        assert!(path("/a/b").is_within(&path("/a")));
        assert!(!path("/ab").is_within(&path("/a")));
        assert!(path("/a").is_within(&TreePath::root()));
        assert_eq!(path("/a/b/c").relative_to(&path("/a")), Some(&b"b/c"[..]));
        assert_eq!(path("/a").parent(), Some(TreePath::root()));
        assert_eq!(TreePath::root().parent(), None);
        assert_eq!(path("/a/b/c").way().collect::<Vec<_>>(), [path("/"), path("/a"), path("/a/b")]);
        assert_eq!(TreePath::root().way().count(), 0);
    }

    #[test]
    fn printing_escapes() {
        assert_eq!(printable(b"a\x1b[1m\xff"), "a\\u{1b}[1m\\xff");
    }
}
