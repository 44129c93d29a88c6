//! A program of the harness as plain data, and its text: what a person reads, keeps in a file, and runs again.
//!
//! A program is a list of steps; a step has words that say how it is run, and a list of operations. An operation is a verb with
//! words, and the operations of a child process for some. All is made of words, so that [`crate::differ::shrink`] need not know verbs.

/// One operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Op {
    /// The verb and its words.
    pub words: Vec<Vec<u8>>,
    /// What a child does.
    pub body: Vec<Op>,
}

/// What runs the operations of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Makes the first tree, here on both sides, as root.
    Setup,
    /// Changes the tree between two commands, here on both sides, as root.
    Edit,
    /// One command: the actor.
    Run,
    /// The same, at the same time as the step before it.
    With,
    /// One command: a shell, whose lines are the operations.
    Shell,
}

/// How the names of kinds are written.
const KINDS: [(&str, Kind); 5] =
    [("setup", Kind::Setup), ("edit", Kind::Edit), ("run", Kind::Run), ("with", Kind::With), ("sh", Kind::Shell)];

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What runs it.
    pub kind: Kind,
    /// How: `stdin=null`, `closed` or a number of bytes in a pipe; `report=each` or `end`.
    pub words: Vec<(String, String)>,
    /// What it does.
    pub ops: Vec<Op>,
}

/// A program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// How it is run: `user=root` or `nobody`; `mounts=yes` or `no`.
    pub words: Vec<(String, String)>,
    /// In order.
    pub steps: Vec<Step>,
}

impl Op {
    /// One without a body.
    pub fn new(words: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self { words: words.into_iter().collect(), body: Vec::new() }
    }

    /// The verb.
    pub fn verb(&self) -> String {
        String::from_utf8_lossy(self.words.first().map_or(b"", Vec::as_slice)).into_owned()
    }

    fn print(&self, depth: usize, raw: bool, text: &mut String) {
        text.push_str(&"  ".repeat(depth));
        let words: Vec<String> = self.words.iter().map(|word| escape(word, raw)).collect();
        text.push_str(&words.join(" "));
        if !self.body.is_empty() {
            text.push_str(" {\n");
            self.body.iter().for_each(|op| op.print(depth + 1, raw, text));
            text.push_str(&"  ".repeat(depth));
            text.push('}');
        }
        text.push('\n');
    }
}

impl Step {
    /// The value of a word.
    pub fn word(&self, name: &str) -> Option<&str> {
        find(&self.words, name)
    }

    /// The text of its operations: what the actor is given, or a script.
    pub fn body(&self) -> String {
        let mut text = String::new();
        self.ops.iter().for_each(|op| op.print(0, self.kind == Kind::Shell, &mut text));
        text
    }
}

impl Program {
    /// The value of a word.
    pub fn word(&self, name: &str) -> Option<&str> {
        find(&self.words, name)
    }

    /// Its text.
    pub fn print(&self) -> String {
        let mut text = format!("program{}\n", print_words(&self.words));
        for step in &self.steps {
            let name = KINDS.iter().find(|(_, kind)| *kind == step.kind).map_or("", |(name, _)| name);
            text.push_str(&format!("{name}{}\n", print_words(&step.words)));
            step.ops.iter().for_each(|op| op.print(1, step.kind == Kind::Shell, &mut text));
        }
        text
    }

    /// Reads a text; says what is wrong with which line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut program = Self::default();
        let mut lines =
            text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#')).peekable();
        while let Some((number, line)) = lines.next() {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap_or_default();
            let pairs = words.map(|word| word.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())));
            let pairs: Option<Vec<_>> = pairs.collect();
            let pairs = pairs.ok_or_else(|| format!("line {}: words are name=value", number + 1))?;
            if name == "program" {
                program.words = pairs;
                continue;
            }
            let kind = KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
            let kind = kind.ok_or_else(|| format!("line {}: no step is called {name}", number + 1))?;
            let mut own = Vec::new();
            while let Some((_, line)) = lines.next_if(|(_, line)| line.starts_with("  ")) {
                own.push(line);
            }
            let ops = match kind {
                Kind::Shell => own.iter().map(|line| Op::new([line.as_bytes()[2..].to_vec()])).collect(),
                _ => parse_ops(&mut own.into_iter())?,
            };
            program.steps.push(Step { kind, words: pairs, ops });
        }
        Ok(program)
    }

    /// How many operations it has.
    pub fn len(&self) -> usize {
        fn count(ops: &[Op]) -> usize {
            ops.iter().map(|op| 1 + count(&op.body)).sum()
        }
        self.steps.iter().map(|step| count(&step.ops)).sum()
    }

    /// Whether it does nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reads operations, up to the end of the block that they are in.
pub fn parse_ops<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Result<Vec<Op>, String> {
    let mut ops = Vec::new();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        if line == "}" {
            return Ok(ops);
        }
        let (words, has_body) = line.strip_suffix('{').map_or((line, false), |words| (words, true));
        let words: Option<Vec<_>> = words.split_whitespace().map(unescape).collect();
        let words = words.ok_or_else(|| format!("not an escape: {line}"))?;
        let body = if has_body { parse_ops(lines)? } else { Vec::new() };
        ops.push(Op { words, body });
    }
    Ok(ops)
}

fn find<'a>(words: &'a [(String, String)], name: &str) -> Option<&'a str> {
    words.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

fn print_words(words: &[(String, String)]) -> String {
    words.iter().map(|(name, value)| format!(" {name}={value}")).collect()
}

/// A word in printable letters without a space; `raw`: as it is.
pub fn escape(word: &[u8], raw: bool) -> String {
    if raw {
        return String::from_utf8_lossy(word).into_owned();
    }
    if word.is_empty() {
        return "\\e".into();
    }
    let letter = |byte: &u8| match byte {
        b'\\' | b'{' | b'}' | b'#' => format!("\\{byte:02x}"),
        0x21..=0x7e => char::from(*byte).to_string(),
        _ => format!("\\{byte:02x}"),
    };
    // A name of one letter many times is short.
    match word {
        [first, rest @ ..] if word.len() > 20 && rest.iter().all(|byte| byte == first) => {
            format!("\\*{:02x}{}", first, word.len())
        }
        _ => word.iter().map(letter).collect(),
    }
}

fn unescape(word: &str) -> Option<Vec<u8>> {
    if word == "\\e" {
        return Some(Vec::new());
    }
    if let Some(repeated) = word.strip_prefix("\\*") {
        let byte = u8::from_str_radix(repeated.get(..2)?, 16).ok()?;
        return Some(vec![byte; repeated.get(2..)?.parse::<usize>().ok().filter(|count| *count <= 1 << 16)?]);
    }
    let mut bytes = Vec::new();
    let mut rest = word;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        bytes.push(u8::from_str_radix(rest.get(at + 1..at + 3)?, 16).ok()?);
        rest = &rest[at + 3..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_it_was_printed() {
        let word = |text: &[u8]| text.to_vec();
        let inner = Op::new([word(b"exit"), word(b"3")]);
        let fork = Op {
            words: vec![word(b"fork")],
            body: vec![inner, Op { words: vec![word(b"fork")], body: vec![Op::new([word(b"x")])] }],
        };
        let strange = Op::new([word(b"mkdir"), word(b"a\n \\{\xff}"), Vec::new(), vec![b'n'; 255]]);
        let line = Op::new([word(b"cp -a a b; echo \"x  y\" | cat")]);
        let program = Program {
            words: vec![("user".into(), "nobody".into())],
            steps: vec![
                Step { kind: Kind::Setup, words: Vec::new(), ops: vec![strange] },
                Step { kind: Kind::Run, words: vec![("stdin".into(), "17".into())], ops: vec![fork] },
                Step { kind: Kind::Shell, words: Vec::new(), ops: vec![line] },
            ],
        };
        assert_eq!(Program::parse(&program.print()).unwrap(), program, "{}", program.print());
        assert_eq!(program.len(), 6);
    }

    #[test]
    fn what_is_no_program_is_named_by_its_line() {
        assert!(Program::parse("program\nwalk\n").unwrap_err().contains("line 2"));
        assert!(Program::parse("run\n  mkdir a\\zz\n").unwrap_err().contains("a\\zz"));
    }
}
