//! What looks secret is left out of a text. Every byte of a bundle passes here.
//!
//! Three kinds of rule: values that are known to be secret ([`Redactor::knows`]), values under a name that sounds secret
//! ([`named`]), and words that have the shape of a key, whatever stands before them ([`shapes`]). A value is left out
//! rather than kept where it is not clear.

mod named;
mod shapes;

use client::policy::looks_secret;
use serde_json::Value;
use std::collections::BTreeMap;

pub use named::passwords_in_addresses;

/// What stands in the place of a value that is left out.
pub const LEFT_OUT: &str = "[redacted]";
/// A known value that is shorter would be found in ordinary words.
const KNOWN_BYTES_MIN: usize = 6;
/// What begins and ends a key in text.
const PEM_BEGIN: &str = "-----BEGIN ";
const PEM_END: &str = "-----END ";
const PEM_DASHES: &str = "-----";
/// Members of JSON whose first word is a program, and whose others are a person's.
const ARGUMENTS: [&str; 2] = ["argv", "arguments"];

/// Whether a variable looks secret, by its name or its value.
pub fn is_secret_variable(name: &str, value: &str) -> bool {
    named::is_secret(name) || looks_secret(name.as_bytes(), value.as_bytes())
}

/// A text without the escapes by which terminals show colours: they would stand between a name and its value.
pub fn without_colours(text: &str) -> String {
    const ESCAPE: &str = "\u{1b}[";
    let (mut done, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(ESCAPE) {
        let (before, after) = (&rest[..at], &rest[at + ESCAPE.len()..]);
        done.push_str(before);
        let end = after.find(|letter: char| !letter.is_ascii_digit() && !matches!(letter, ';' | ':' | '?'));
        rest = end.map_or("", |end| &after[end + after[end..].chars().next().map_or(0, char::len_utf8)..]);
    }
    done + rest
}

/// How often each kind of thing was left out.
pub type Counts = BTreeMap<&'static str, u64>;

/// Leaves out what looks secret, and counts it.
#[derive(Debug, Default)]
pub struct Redactor {
    known: Vec<String>,
    names: Vec<(String, String)>,
    hides_homes: bool,
    counts: Counts,
}

impl Redactor {
    /// Has this value left out wherever it stands: as it is, escaped, and each of its lines.
    pub fn knows(&mut self, secret: &str) {
        let escaped = secret.escape_debug().to_string();
        let forms = secret.lines().map(str::to_owned).chain([secret.to_owned(), escaped]);
        let forms = forms.map(|form| form.trim().to_owned()).filter(|form| form.len() >= KNOWN_BYTES_MIN);
        self.known.extend(forms);
        // A value that holds another one goes first.
        self.known.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        self.known.dedup();
    }

    /// Has these bytes left out, written in hexadecimal digits or as the text that they are.
    pub fn knows_bytes(&mut self, secret: &[u8]) {
        let hex = base::digest::hex(secret);
        self.knows(&hex.to_uppercase());
        self.knows(&hex);
        if let Ok(text) = std::str::from_utf8(secret) {
            self.knows(text);
        }
    }

    /// Has users' names in the paths of homes replaced, and this account's wherever it stands as a word.
    pub fn hide_names(&mut self, own: Option<&str>) {
        self.hides_homes = true;
        if let Some(own) = own.filter(|own| !own.is_empty() && *own != "root") {
            self.stand_in(own);
        }
    }

    /// What has been left out since this was asked last.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    fn count(&mut self, what: &'static str, times: usize) {
        if times > 0 {
            *self.counts.entry(what).or_default() += times as u64;
        }
    }

    /// The text without what looks secret.
    pub fn text(&mut self, text: &str) -> String {
        let mut text = self.without_blocks(&without_colours(text));
        for known in std::mem::take(&mut self.known) {
            let times = text.matches(&known).count();
            if times > 0 {
                self.count("known values", times);
                text = text.replace(&known, LEFT_OUT);
            }
            self.known.push(known);
        }
        let mut done = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
            let (line, named) = named::without(line);
            self.count("values under a name that sounds secret", named);
            let (line, shaped) = shapes::without(&line);
            self.count("words with the shape of a key", shaped);
            done.push_str(&self.without_names(&line));
            done.push_str(end);
        }
        done
    }

    /// The same for JSON: of a command's words only the first stays, and nothing of a member whose name sounds secret.
    pub fn json(&mut self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.json(item)).collect(),
            Value::Object(members) => {
                let members = members.into_iter().map(|(name, value)| {
                    let value = match value {
                        Value::Array(words) if ARGUMENTS.contains(&name.as_str()) => self.arguments(words),
                        Value::Bool(_) | Value::Null => value,
                        value if named::is_secret(&name) => self.withheld(&value),
                        value => self.json(value),
                    };
                    (self.text(&name), value)
                });
                Value::Object(members.collect())
            }
            value => value,
        }
    }

    fn arguments(&mut self, words: Vec<Value>) -> Value {
        let others = words.len().saturating_sub(1);
        self.count("arguments of commands", others);
        let program = words.into_iter().next().map(|word| self.json(word));
        let rest = (others > 0).then(|| format!("[{others} arguments redacted]").into());
        program.into_iter().chain(rest).collect()
    }

    fn withheld(&mut self, value: &Value) -> Value {
        // What is empty tells nothing.
        if value.as_str().is_some_and(str::is_empty) {
            return value.clone();
        }
        self.count("values under a name that sounds secret", 1);
        LEFT_OUT.into()
    }

    /// Without keys that are written as text; one that is not ended goes to the end.
    fn without_blocks(&mut self, text: &str) -> String {
        let mut done = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(begin) = rest.find(PEM_BEGIN) {
            done.push_str(&rest[..begin]);
            done.push_str(LEFT_OUT);
            self.count("keys", 1);
            let block = &rest[begin + PEM_BEGIN.len()..];
            let after_end = block.find(PEM_END).map(|end| &block[end + PEM_END.len()..]);
            rest =
                after_end.map_or("", |after| after.find(PEM_DASHES).map_or("", |at| &after[at + PEM_DASHES.len()..]));
        }
        done + rest
    }

    fn stand_in(&mut self, name: &str) -> String {
        if let Some((_, stand_in)) = self.names.iter().find(|(known, _)| known == name) {
            return stand_in.clone();
        }
        let stand_in = format!("user{}", self.names.len() + 1);
        self.names.push((name.to_owned(), stand_in.clone()));
        stand_in
    }

    fn without_names(&mut self, line: &str) -> String {
        if !self.hides_homes {
            return line.to_owned();
        }
        const HOMES: &str = "/home/";
        let mut done = String::with_capacity(line.len());
        let mut rest = line;
        while let Some(at) = rest.find(HOMES) {
            let (before, after) = rest.split_at(at + HOMES.len());
            let end = after.find(|letter: char| !is_of_name(letter)).unwrap_or(after.len());
            done.push_str(before);
            if end > 0 {
                done.push_str(&self.stand_in(&after[..end]));
                self.count("users' names", 1);
            }
            rest = &after[end..];
        }
        done.push_str(rest);
        for (name, stand_in) in &self.names {
            done = with_word_replaced(&done, name, stand_in);
        }
        done
    }
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.' | '@' | '$')
}

/// The text with a word replaced where it stands alone.
fn with_word_replaced(text: &str, word: &str, by: &str) -> String {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let is_part = before.chars().next_back().is_some_and(char::is_alphanumeric)
            || after.chars().next().is_some_and(char::is_alphanumeric);
        done.push_str(before);
        done.push_str(if is_part { word } else { by });
        rest = after;
    }
    done + rest
}

#[cfg(test)]
mod tests;
