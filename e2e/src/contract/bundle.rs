//! `gleaner bundle` on a pool at work: it tells what happened, and none of the pool's keys, tokens and variables.

use crate::error::{Context, Result};
use crate::pool::Pool;
use crate::process::Run;
use crate::scenario::END_BOUND;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The value of a variable, and an argument of a command.
const SECRET: &str = "s3cr3t-of-the-bundle";
const ARGUMENT: &str = "an-ordinary-looking-argument";

/// Clients and the hub's owner make bundles while they know of a token and have launched commands with secrets.
pub fn without_secrets(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let token =
        pool.owner.gleaner(&["token", "--role", "client"])?.expect_ok("gleaner token")?.text().trim().to_owned();
    let mut command = pool.client.remrun(&["--no-local", "sh", "-c", &format!("test -n $X # -p{ARGUMENT}")]);
    command.env("MY_API_TOKEN", SECRET);
    Run::new(command).within(END_BOUND).run()?.expect_ok("a command with a secret")?;
    let mut keys = Vec::new();
    find_keys(pool.scratch.path(), &mut keys);
    if keys.len() < 3 {
        wrong.push(format!("these keys were found, of a hub, a worker and a client: {keys:?}"));
    }
    for (name, client) in [("owner", &pool.owner), ("client", &pool.client)] {
        let file = pool.scratch.path().join(format!("bundle-of-{name}"));
        let mut bundle = Command::new(client.gleaner.as_deref().unwrap_or(Path::new("gleaner")));
        client.dress(bundle.arg("bundle").arg(&file));
        bundle.env("MY_API_TOKEN", SECRET);
        Run::new(bundle).within(END_BOUND * 3).run()?.expect_ok("gleaner bundle")?;
        let tar = Command::new("tar").args(["--zstd", "-xOf"]).arg(&file).output();
        let tar = tar.context(|| "cannot run tar".to_owned())?;
        let text = tar.stdout;
        let has = |bytes: &[u8]| text.windows(bytes.len()).any(|part| part == bytes);
        let wanted = ["\"connected\": true", "MY_API_TOKEN", "worker0"];
        let lacking = wanted.iter().filter(|part| !has(part.as_bytes()));
        wrong.extend(lacking.map(|part| format!("the {name}'s bundle lacks {part}")));
        if has(SECRET.as_bytes()) || has(token.as_bytes()) || has(ARGUMENT.as_bytes()) {
            wrong.push(format!("the {name}'s bundle holds a variable's value, an argument or the token"));
        }
        for key in &keys {
            let bytes = std::fs::read(key).at("read", key)?;
            // The last half is the secret, whatever stands before it.
            let secret = &bytes[bytes.len() / 2..];
            let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
            if has(secret) || has(hex.as_bytes()) {
                wrong.push(format!("the {name}'s bundle holds the key {}", key.display()));
            }
        }
    }
    Ok(wrong)
}

fn find_keys(folder: &Path, keys: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let kind = entry.file_type().ok();
        if kind.is_some_and(|kind| kind.is_dir()) && !path.ends_with("root") {
            find_keys(&path, keys);
        } else if kind.is_some_and(|kind| kind.is_file())
            && path.extension().is_some_and(|extension| extension == "key")
        {
            keys.push(path);
        }
    }
}
