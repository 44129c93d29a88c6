//! Git's settings, as far as they say where hooks and further settings are.

/// The values in a file, each with its section and name in small letters. A section's name is what comes before a space or a quoted part.
pub fn assignments(text: &str) -> Vec<(String, String, String)> {
    let mut section = String::new();
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut line = line.trim_start();
        if let Some((head, rest)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let name = head.split(|letter: char| letter.is_whitespace() || letter == '"' || letter == '.').next();
            section = name.unwrap_or_default().to_lowercase();
            line = rest.trim_start();
        }
        if line.starts_with(['#', ';']) {
            continue;
        }
        if let Some((name, text)) = line.split_once('=') {
            found.push((section.clone(), name.trim().to_lowercase(), value(text, &mut lines)));
        }
    }
    found
}

/// What follows an equals sign: to a comment, with quotes, escapes and lines that go on.
fn value<'a>(first: &'a str, lines: &mut impl Iterator<Item = &'a str>) -> String {
    let (mut value, mut is_quoted, mut kept) = (String::new(), false, 0);
    let mut line = first.trim_start();
    loop {
        let mut letters = line.chars();
        let goes_on = loop {
            match letters.next() {
                None => break false,
                Some('"') => is_quoted = !is_quoted,
                Some('#' | ';') if !is_quoted => break false,
                Some('\\') => match letters.next() {
                    None => break true,
                    Some('n') => value.push('\n'),
                    Some('t') => value.push('\t'),
                    Some(letter) => value.push(letter),
                },
                Some(letter) if letter.is_whitespace() && !is_quoted => {
                    value.push(letter);
                    continue;
                }
                Some(letter) => value.push(letter),
            }
            kept = value.len();
        };
        match lines.next().filter(|_| goes_on) {
            Some(next) => line = next,
            None => break,
        }
    }
    // Spaces at the end count where they are quoted.
    value.truncate(kept);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_git_does() {
        for (text, value) in [
            ("[core]\nhooksPath = x", "x"),
            ("[core]\n\tHooksPath=x ; a comment", "x"),
            ("[core] hookspath = \"x # y\" # z", "x # y"),
            ("[Core]\nhooksPath = a b \t", "a b"),
            ("[core]\nhooksPath = a\\\nb\n", "ab"),
            ("[core]\nhooksPath = \"a \"", "a "),
            ("[core \"x\"]\nhooksPath = \"a\\\"b\\\\c\"d", "a\"b\\cd"),
            ("[core]\n; hooksPath = y\nhooksPath =", ""),
        ] {
            assert_eq!(assignments(text), [("core".into(), "hookspath".into(), value.into())], "{text}");
        }
    }
}
