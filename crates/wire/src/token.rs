//! Join tokens: where a hub is, which key it holds, a secret that works once, and the role that it grants.
//!
//! Written as one word, `gleaner1-` and hexadecimal digits, so that it can be pasted anywhere.

use base::codec::{Encode, Malformed, Reader, Writer};
use base::digest::{Digest, hex, unhex};
use base::{NodeId, binding::read_digest};
use std::net::SocketAddr;

const PREFIX: &str = "gleaner1-";

/// What a machine is to a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// It launches tasks.
    Client,
    /// It runs tasks.
    Worker,
    /// It launches tasks, and may invite and revoke others.
    Admin,
}

impl Role {
    /// The number in messages and tokens.
    pub fn number(self) -> u8 {
        match self {
            Self::Client => 1,
            Self::Worker => 2,
            Self::Admin => 3,
        }
    }

    /// The role with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Client, Self::Worker, Self::Admin].into_iter().find(|role| u32::from(role.number()) == number)
    }

    /// The role of this name: `client`, `worker` or `admin`.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Client, Self::Worker, Self::Admin].into_iter().find(|role| role.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Worker => "worker",
            Self::Admin => "admin",
        }
    }

    /// Whether it may launch tasks.
    pub fn launches(self) -> bool {
        matches!(self, Self::Client | Self::Admin)
    }
}

/// An invitation to a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The hub's key.
    pub hub: NodeId,
    /// Where to find it; tried in order.
    pub addresses: Vec<SocketAddr>,
    /// 128 secret bits; the hub keeps their hash.
    pub secret: [u8; 16],
    /// What the joiner may be.
    pub role: Role,
}

/// A token that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a join token ({0}): copy the whole word that starts with `gleaner1-`")]
pub struct InvalidToken(&'static str);

impl Token {
    /// Reads a token; white space around it is ignored.
    pub fn parse(text: &str) -> Result<Self, InvalidToken> {
        let digits = text.trim().strip_prefix(PREFIX).ok_or(InvalidToken("it does not start with `gleaner1-`"))?;
        let bytes = unhex(digits).ok_or(InvalidToken("it holds something else than hexadecimal digits"))?;
        let (body, check) = bytes.split_at_checked(bytes.len().saturating_sub(4)).unwrap_or((&[], &[]));
        if Digest::of(body).0[..4] != *check {
            return Err(InvalidToken("part of it is missing or changed"));
        }
        Self::from_bytes(body).map_err(|Malformed(why)| InvalidToken(why))
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = self.to_bytes();
        write!(f, "{PREFIX}{}{}", hex(&body), hex(&Digest::of(&body).0[..4]))
    }
}

impl Encode for Token {
    fn encode(&self, out: &mut Writer) {
        out.raw(&self.hub.0.0);
        out.raw(&self.secret);
        out.u8(self.role.number());
        out.list(&self.addresses, |out, address| out.bytes(address.to_string().as_bytes()));
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let address = |from: &mut Reader<'_>| {
            let text = std::str::from_utf8(from.bytes()?).map_err(|_| Malformed("an address that is not text"))?;
            text.parse().map_err(|_| Malformed("an address that is none"))
        };
        Ok(Self {
            hub: NodeId(read_digest(from)?),
            secret: from.take(16)?.try_into().expect("take returns the length asked for"),
            role: Role::from_number(from.u8()?.into()).ok_or(Malformed("an unknown role"))?,
            addresses: from.list(address)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip_and_notice_damage() {
        let token = Token {
            hub: NodeId(Digest::of(b"hub")),
            addresses: vec!["127.0.0.1:4714".parse().expect("an address")],
            secret: [7; 16],
            role: Role::Worker,
        };
        let text = token.to_string();
        assert_eq!(Token::parse(&format!(" {text}\n")), Ok(token));
        assert!(Token::parse(&text[..text.len() - 2]).is_err());
        let mut damaged = text.clone().into_bytes();
        damaged[20] = if damaged[20] == b'0' { b'1' } else { b'0' };
        assert!(Token::parse(std::str::from_utf8(&damaged).expect("still text")).is_err());
        assert!(Token::parse("gleaner1-").is_err());
        assert!(Token::parse("hello").is_err());
    }
}
