//! What a project's `.gleaner.toml` grants to the commands that run in it: paths, as its owner wrote them, and the network.
//!
//! A path is meant by its text: no link in it is followed, since a task may make links in its project. What is secret or guarded is
//! never granted.

use super::guarded::guarded;
use super::names::{home_of, is_secret};
use base::TreePath;

/// The file's name, in the root of a project.
pub const PROJECT_FILE: &str = ".gleaner.toml";

/// What commands in a project may use beside what all commands may.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Granted {
    /// They may change these.
    pub write: Vec<Pattern>,
    /// They may read these, also on workers of others.
    pub read: Vec<Pattern>,
    /// They may use the network elsewhere.
    pub network: bool,
}

impl Granted {
    /// Whether changes at `path` are granted.
    pub fn writes(&self, path: &TreePath) -> bool {
        self.write.iter().any(|pattern| pattern.covers(path))
    }

    /// Whether the contents of `path` are granted to be read.
    pub fn reads(&self, path: &TreePath) -> bool {
        self.read.iter().any(|pattern| pattern.covers(path))
    }
}

/// Why changes at a path are not granted whatever a file says; `home` is the home it lies in, if any, and `closed` is where links at the
/// places of secrets lead.
pub(super) fn never(path: &TreePath, home: Option<&TreePath>, closed: &[TreePath]) -> Option<&'static str> {
    let secret = is_secret(path, home) || closed.iter().any(|closed| path.is_within(closed));
    match secret {
        true => Some("it is on the list of secrets, which no project may have"),
        false => guarded(path).map(|_| "it decides what is run here later; --allow-write allows it for one command"),
    }
}

/// The entries of a file that are without effect for a user with this home, each with the reason.
pub fn without_effect<'a>(
    granted: &'a Granted,
    own: Option<&TreePath>,
    closed: &[TreePath],
) -> Vec<(&'a Pattern, &'static str)> {
    let reason = |pattern: &Pattern| {
        let place = pattern.place();
        never(&place, home_of(&place, own).as_ref(), closed)
    };
    let writes = granted.write.iter().filter_map(|pattern| Some((pattern, reason(pattern)?)));
    let reads = granted.read.iter().filter(|pattern| guarded(&pattern.place()).is_none());
    writes.chain(reads.filter_map(|pattern| Some((pattern, reason(pattern)?)))).collect()
}

/// A path with all beneath it; `*` in it stands for any part of one name that does not begin with a dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// As it was written.
    text: String,
    /// The names of it, from the root down.
    names: Vec<Vec<u8>>,
}

impl Pattern {
    /// Reads one entry of a project's file: absolute, `~/…` beneath `home`, or relative to `root`; `/**` at its end adds nothing.
    ///
    /// # Errors
    /// Says what is wrong with it, as what follows the entry in a sentence.
    pub fn parse(text: &str, root: &TreePath, home: Option<&TreePath>) -> Result<Self, &'static str> {
        if text.chars().any(base::path::is_unseen) {
            return Err("has characters in it that nobody can see");
        }
        let plain = text.strip_suffix("/**").unwrap_or(if text == "**" { "." } else { text });
        let path = match plain.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                let home = home.ok_or("needs a home, and there is none")?;
                home.resolve(rest.trim_start_matches('/').as_bytes())
            }
            Some(_) => return Err("names the home of a user by ~NAME: write the path itself"),
            None if plain.is_empty() => return Err("is empty"),
            None => root.resolve(plain.as_bytes()),
        };
        let path = path.ok_or("is no path")?;
        let names: Vec<Vec<u8>> = path.components().map(<[u8]>::to_vec).collect();
        if names.iter().any(|name| !base::path::is_plain_name(name)) {
            return Err("has a name of more than 255 bytes in it");
        }
        if names.iter().any(|name| name.windows(2).any(|pair| pair == b"**")) {
            return Err("has ** within it, which may only end a path");
        }
        let pattern = Self { text: text.to_owned(), names };
        match home.is_some_and(|home| pattern.covers(home)) || pattern.names.is_empty() {
            true => Err("is a whole home or more: name what is in it"),
            false => Ok(pattern),
        }
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether `path` is what it names, or lies beneath.
    pub fn covers(&self, path: &TreePath) -> bool {
        self.matched(path) == self.names.len()
    }

    /// Whether `path` is a folder on the way to what it names.
    pub fn is_beneath(&self, path: &TreePath) -> bool {
        let depth = path.components().count();
        depth < self.names.len() && self.matched(path) == depth
    }

    /// The path as far as it has no `*`: all that it names lies within.
    pub fn place(&self) -> TreePath {
        let fixed = self.names.iter().take_while(|name| !name.contains(&b'*'));
        fixed.fold(TreePath::root(), |at, name| at.join(name))
    }

    /// How many of its names are those of `path`, from the root down.
    fn matched(&self, path: &TreePath) -> usize {
        self.names.iter().zip(path.components()).take_while(|(pattern, name)| is_match(pattern, name)).count()
    }
}

/// Whether `name` is one that `pattern` stands for.
fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    if name.starts_with(b".") && !pattern.starts_with(b".") {
        return false;
    }
    let (mut at, mut from) = (0, 0);
    // Where to go on if what follows the last star does not fit: the star takes one byte more.
    let mut last: Option<(usize, usize)> = None;
    while from < name.len() {
        match (pattern.get(at), last) {
            (Some(b'*'), _) => {
                last = Some((at + 1, from));
                at += 1;
            }
            (Some(byte), _) if *byte == name[from] => {
                (at, from) = (at + 1, from + 1);
            }
            (_, Some((after, taken))) => {
                last = Some((after, taken + 1));
                (at, from) = (after, taken + 1);
            }
            (_, None) => return false,
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).expect("a normal path")
    }

    fn pattern(text: &str) -> Result<Pattern, &'static str> {
        Pattern::parse(text, &path("/home/u/p"), Some(&path("/home/u")))
    }

    #[test]
    fn a_pattern_is_a_path_with_all_beneath_it() {
        for (text, inside, outside) in [
            ("~/.bashrc", "/home/u/.bashrc", "/home/u/.bashrc2"),
            ("out/**", "/home/u/p/out/a/b", "/home/u/p/outer"),
            ("out", "/home/u/p/out", "/home/u/out"),
            ("**", "/home/u/p/x", "/home/u/q"),
            ("../data", "/home/u/data/x", "/home/u/p/data"),
            ("/srv/x/", "/srv/x/y", "/srv/y"),
            ("~/Videos/*.mp4", "/home/u/Videos/a.mp4", "/home/u/Videos/a.mov"),
            ("~/*", "/home/u/notes/x", "/home/u/.profile"),
            ("~/.conf*", "/home/u/.config/x", "/home/u/.profile"),
            ("~/d/*", "/home/u/d/a", "/home/u/d/.a"),
            ("~/a*b*c", "/home/u/aXbXbc", "/home/u/aXbXb"),
            ("~/a**", "", ""),
        ] {
            let Ok(read) = pattern(text) else {
                assert!(inside.is_empty(), "{text} can be read");
                continue;
            };
            assert!(read.covers(&path(inside)) && !read.covers(&path(outside)), "{text}");
        }
        let deep = pattern("~/a/*/c").expect("a pattern");
        assert!(deep.is_beneath(&path("/home/u/a")) && deep.is_beneath(&path("/home/u/a/b")));
        assert!(!deep.is_beneath(&path("/home/u/a/b/c")) && !deep.is_beneath(&path("/home/u/b")));
        assert_eq!(deep.place(), path("/home/u/a"));
    }

    #[test]
    fn no_pattern_is_a_home_or_more() {
        for text in ["/", "~", "~/", "~/**", "/**", "/home", "/home/*", "/*", "/h*", "..", "../*/../", "/home/u/p/.."] {
            assert!(pattern(text).is_err(), "{text}");
        }
        for text in ["", "~root/x", "a/**/b", "x\0y", "x\ny", "x\u{202e}y"] {
            assert!(pattern(text).is_err(), "{text:?}");
        }
        assert!(Pattern::parse("~/x", &path("/srv/p"), None).is_err());
    }

    #[test]
    fn stars_take_their_time_and_no_more() {
        let stars = "*a".repeat(120);
        let read = pattern(&format!("~/x{stars}")).expect("a pattern");
        assert!(!read.covers(&path(&format!("/home/u/x{}b", "a".repeat(250)))));
    }
}
