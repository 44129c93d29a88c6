//! Words that people paste and programs print: join tokens and paths.

use super::SMALL;
use crate::{Draw, Target};
use base::path::{is_plain_name, is_unseen, printable, shown, shown_lines};
use base::{Digest, NodeId, TreePath};
use std::net::{IpAddr, SocketAddr};
use wire::{Role, Token};

/// Join tokens.
pub const TOKEN: Target = Target { name: "token", check: check_token, draw: draw_token, heap };
/// Paths, and text on its way to a terminal.
pub const PATH: Target = Target { name: "path", check: check_path, draw: |draw| draw.path().as_bytes().to_vec(), heap };

/// An escaped byte has ten letters at most, in text that doubles its room.
fn heap(bytes: &[u8]) -> usize {
    SMALL + 64 * bytes.len()
}

fn check_token(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    match Token::parse(text) {
        Ok(token) => {
            assert_eq!(Token::parse(&token.to_string()).as_ref(), Ok(&token));
            true
        }
        Err(error) => {
            let said = error.to_string();
            assert!(said.len() < 200 && !said.contains(is_unseen), "an error that shows what was pasted: {said:?}");
            false
        }
    }
}

fn draw_token(draw: &mut Draw<'_>) -> Vec<u8> {
    let address = |draw: &mut Draw<'_>| match draw.flag() {
        true => SocketAddr::new(IpAddr::from(draw.name::<4>()), draw.word() as u16),
        false => SocketAddr::new(IpAddr::from(draw.name::<16>()), draw.word() as u16),
    };
    let token = Token {
        hub: NodeId(Digest(draw.name())),
        addresses: draw.list(4, address),
        secret: draw.name(),
        role: draw.of(&[Role::Client, Role::Worker, Role::Admin]),
    };
    token.to_string().into_bytes()
}

fn check_path(bytes: &[u8]) -> bool {
    check_text(bytes);
    let base = TreePath::parse(b"/home/u").expect("it is normal");
    let resolved = base.resolve(bytes);
    assert_eq!(resolved.is_none(), bytes.contains(&0));
    if let Some(resolved) = &resolved {
        // By its text alone a name may be longer than any that a file has.
        let is_long = resolved.components().any(|name| name.len() > 255);
        assert!(is_long || TreePath::parse(resolved.as_bytes()).as_ref() == Some(resolved));
        assert_eq!(base.resolve(resolved.as_bytes()).as_ref(), Some(resolved), "what is resolved stays as it is");
    }
    let Some(path) = TreePath::parse(bytes) else { return false };
    assert!(path.components().all(is_plain_name) && path.is_within(&TreePath::root()) && path.is_within(&path));
    let made = path.components().fold(TreePath::root(), |path, name| path.join(name));
    assert_eq!(made, path);
    if let Some(parent) = path.parent() {
        assert_eq!(path.relative_to(&parent), Some(path.name()));
        assert!(path.is_within(&parent) && !parent.is_within(&path) && parent.join(path.name()) == path);
    }
    assert_eq!(TreePath::root().resolve(bytes).as_ref(), Some(&path));
    true
}

/// Whatever it is, nothing of it does anything to a terminal.
fn check_text(bytes: &[u8]) {
    assert!(!printable(bytes).contains(is_unseen));
    let text = String::from_utf8_lossy(bytes);
    assert!(!shown(&text).contains(is_unseen));
    assert!(!shown_lines(&text).contains(|letter| is_unseen(letter) && !matches!(letter, '\n' | '\t')));
}
