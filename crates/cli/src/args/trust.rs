//! The arguments of `gleaner approve`, `gleaner audit`, and of commands that take a token.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// How far a worker is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Trust {
    /// A machine of one's own
    Own,
    /// Somebody's at the same site: variables that look secret and what is closed in the home do not go there
    Site,
    /// Anybody's: commands do not go there unasked
    Volunteer,
}

impl Trust {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Site => "site",
            Self::Volunteer => "volunteer",
        }
    }
}

/// `gleaner approve`.
#[derive(Clone, Debug, Args)]
pub struct Approve {
    /// The worker's name, or the first digits of its id
    pub node: String,
    /// How far it is trusted
    #[arg(long, value_enum)]
    pub trust: Trust,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `gleaner audit`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Audit {
    /// Show the last N entries
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub last: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `gleaner use`.
#[derive(Clone, Debug, Args)]
pub struct Use {
    /// `-` to read the token from standard input. The token itself works, too, but other users of this machine can see it
    #[arg(allow_hyphen_values = true, required_unless_present_any = ["token_file", "trust"])]
    pub token: Option<String>,
    /// Read the token from FILE
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    /// Say whose the pool's workers are, whatever its hub says of them. Without a token: of the pool in use
    ///
    /// Unsaid, they are taken for your own if the hub is of this account on this machine, else for the site's.
    #[arg(long, value_enum)]
    pub trust: Option<Trust>,
}

impl Use {
    /// The token, if one is given.
    pub fn token(&self) -> Option<TokenArgument> {
        let is_given = self.token.is_some() || self.token_file.is_some();
        is_given.then(|| TokenArgument { token: self.token.clone(), token_file: self.token_file.clone() })
    }
}

/// A token that is given to `join` or `use`.
#[derive(Clone, Debug, Args)]
pub struct TokenArgument {
    /// `-` to read the token from standard input. The token itself works, too, but other users of this machine can see it
    #[arg(allow_hyphen_values = true, required_unless_present = "token_file")]
    pub token: Option<String>,
    /// Read the token from FILE
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
}
