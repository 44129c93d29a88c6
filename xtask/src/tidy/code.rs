//! Rust source with comments, strings and tests taken out, so that it can be searched for words; its imports; its functions.

/// The source with comments and the contents of literals replaced by spaces, line breaks kept.
pub fn without_text(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let len = text_len(rest, at.checked_sub(1).map(|before| bytes[before])).unwrap_or(0);
        if len == 0 {
            out.push(bytes[at]);
            at += 1;
            continue;
        }
        out.extend(rest[..len].iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
        at += len;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Length of the comment or literal that begins here.
fn text_len(rest: &[u8], before: Option<u8>) -> Option<usize> {
    let in_word = before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match rest {
        [b'/', b'/', ..] => Some(rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())),
        [b'/', b'*', ..] => Some(block_comment(rest)),
        [b'"', ..] => Some(string(rest, 1)),
        [b'b' | b'c', b'"', ..] if !in_word => Some(string(rest, 2)),
        [b'r', b'"' | b'#', ..] if !in_word => raw_string(rest, 1),
        [b'b' | b'c', b'r', b'"' | b'#', ..] if !in_word => raw_string(rest, 2),
        [b'\'', b'\\', _, tail @ ..] => {
            Some(3 + tail.iter().position(|byte| *byte == b'\'').map_or(tail.len(), |end| end + 1))
        }
        [b'\'', ..] => character(rest),
        _ => None,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string(rest: &[u8], start: usize) -> usize {
    let mut at = start;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_string(rest: &[u8], start: usize) -> Option<usize> {
    let hashes = rest[start..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(start + hashes) != Some(&b'"') {
        return None;
    }
    let end = [&b"\""[..], &b"#".repeat(hashes)].concat();
    let from = start + hashes + 1;
    Some(
        rest[from..].windows(end.len()).position(|window| window == end).map_or(rest.len(), |at| from + at + end.len()),
    )
}

/// A character literal, as opposed to a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    let width = match rest.get(1)? {
        byte if *byte < 0x80 => 1,
        byte if *byte < 0xe0 => 2,
        byte if *byte < 0xf0 => 3,
        _ => 4,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

/// Takes out the items under `#[cfg(test)]`; works on what [`without_text`] gives.
pub fn without_tests(code: &str) -> String {
    let mut out = code.to_owned();
    while let Some(start) = out.find("#[cfg(test)]") {
        let after = &out[start..];
        let brace = after.find('{');
        let semicolon = after.find(';');
        let end = match (brace, semicolon) {
            (Some(brace), semicolon) if semicolon.is_none_or(|at| brace < at) => brace + block_len(&after[brace..]),
            (_, Some(semicolon)) => semicolon + 1,
            (_, None) => after.len(),
        };
        let blank: String = after[..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        out.replace_range(start..start + end, &blank);
    }
    out
}

/// Length of the block that begins with a brace here.
fn block_len(text: &str) -> usize {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

/// Every path of every `use` item, written out, with its line: `use std::{fs, io::Read}` gives `std::fs` and `std::io::Read`.
pub fn imports(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let before = code[..at].bytes().next_back();
        if before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            continue;
        }
        let end = code[at..].find(';').map_or(code.len(), |end| at + end);
        let line = code[..at].matches('\n').count() + 1;
        let tree: String = code[at + 4..end].split_whitespace().collect();
        expand("", &tree, &mut |path| found.push((line, path)));
    }
    found
}

fn expand(prefix: &str, tree: &str, add: &mut impl FnMut(String)) {
    let Some(open) = tree.find('{') else {
        return add(format!("{prefix}{tree}"));
    };
    let inner_prefix = format!("{prefix}{}", &tree[..open]);
    let inner = &tree[open + 1..open + block_len(&tree[open..]) - 1];
    let (mut depth, mut start) = (0usize, 0);
    for (at, byte) in inner.bytes().chain([b',']).enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                if at > start {
                    expand(&inner_prefix, &inner[start..at], add);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// Functions with their first line and their length in lines.
pub fn functions(code: &str) -> Vec<(usize, String, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let before = code[..at].bytes().next_back();
        if before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            continue;
        }
        let name: String = code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let (brace, semicolon) = (code[at..].find('{'), code[at..].find(';'));
        let Some(brace) = brace.filter(|brace| semicolon.is_none_or(|semicolon| *brace < semicolon)) else { continue };
        let end = at + brace + block_len(&code[at + brace..]);
        if !name.is_empty() {
            found.push((code[..at].matches('\n').count() + 1, name, code[at..end].matches('\n').count() + 1));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_go_and_code_stays() {
        let source = "a /* std::fs /* x */ y */ b // std::net\nc \"std::\\\"env\" d r#\"\"tokio\"# 'x' '\\'' '\\u{41}' fn f<'a>(x: &'a str) b\"q\" e";
        let code = without_text(source);
        for gone in ["std", "tokio", "env", "q"] {
            assert!(!code.contains(gone), "{gone} in {code:?}");
        }
        assert!(code.contains("fn f<'a>(x: &'a str)") && code.contains('\n') && code.trim_end().ends_with('e'));
        assert_eq!(code.len(), source.len());
    }

    #[test]
    fn tests_go() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests {\n    use std::fs;\n    fn b() { if x { y } }\n}\nfn c() {}\n#[cfg(test)]\nuse std::env;\nfn d() {}";
        let rest = without_tests(code);
        assert!(!rest.contains("std") && rest.contains("fn a") && rest.contains("fn c") && rest.contains("fn d"));
    }

    #[test]
    fn imports_are_written_out() {
        let code = "pub use std::{fs::{self, File}, io as stream};\nuse a::b;\nlet reuse = 1;";
        let paths: Vec<String> = imports(code).into_iter().map(|(_, path)| path).collect();
        assert_eq!(paths, ["std::fs::self", "std::fs::File", "std::ioasstream", "a::b"]);
    }

    #[test]
    fn lengths_of_functions() {
        let code = "trait T { fn none(&self); }\nfn a() {\n    1\n}\nfn b() { 2 }\n";
        assert_eq!(functions(code), [(2, "a".to_owned(), 3), (5, "b".to_owned(), 1)]);
    }
}
