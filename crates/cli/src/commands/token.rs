//! `gleaner token`.

use crate::args::{Role, Token};
use crate::error::Result;
use crate::render;
use client::report::{self, Question};

/// Makes a token; prints it alone on standard output, so that it can be piped, and what it is for on standard error.
pub fn run(arguments: Token) -> Result {
    let question = Question::Token {
        role: arguments.role.name().into(),
        ttl_s: arguments.ttl.as_secs(),
        trust: arguments.trust.map(|trust| trust.name().into()).or(arguments.wait.then(|| "waiting".into())),
    };
    super::ask_and_print::<report::Token>(&question, arguments.json)?;
    if !arguments.json {
        let command = if arguments.role == Role::Worker { "join" } else { "use" };
        let minutes = arguments.ttl.as_secs().div_ceil(60);
        if arguments.role == Role::Worker && arguments.trust.is_none() {
            render::say(
                "a machine other than this one waits then for: gleaner approve NODE --trust own|site|volunteer",
            );
        }
        render::say(&format!("good once, for {minutes} min; as input of: gleaner {command} -"));
    }
    Ok(())
}
