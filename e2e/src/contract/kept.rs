//! What was not committed is kept, and comes back when its owner says so.

use crate::error::Result;
use crate::pool::Pool;
use crate::process::{Ended, Run};
use crate::scenario::{END_BOUND, edited_meanwhile, folder};
use std::path::Path;

/// A command that reads a number, thinks, and writes the next one; and changes other files.
const SLOW_INCREMENT: &str = "x=$(cat n); sleep 2.61; echo $((x + 1)) > n; echo made > made; rm gone; echo new >> log";

fn read(place: &Path, name: &str) -> String {
    std::fs::read_to_string(place.join(name)).unwrap_or_else(|_| "nothing".to_owned())
}

/// A file is edited here while a remote command reads, changes and writes it.
pub fn conflict(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "conflict")?;
    let mut wrong = Vec::new();
    let mut expect = |what: &str, good: bool, detail: String| {
        if !good {
            wrong.push(format!("{what}: {detail}"));
        }
    };
    let client = pool.client.clone();
    client.script(&place, "echo 1 > n; echo here > gone; echo old > log", "", END_BOUND)?.expect_ok("setup")?;
    let outcome = edited_meanwhile(pool, &place, SLOW_INCREMENT, "2.61", "echo 41 > n")?;

    let path = place.join("n").display().to_string();
    let said = outcome.said();
    expect("the end", matches!(outcome.ended, Ended::Code(code) if code != 0), outcome.ended.to_string());
    expect("the error names the path", said.contains(&path) && said.contains("gleaner recover"), said.clone());
    let state = |place: &Path| ["n", "made", "gone", "log"].map(|name| read(place, name)).concat();
    let edited = "41\nnothinghere\nold\n";
    expect("nothing is committed", state(&place) == edited, state(&place));

    let kept = client.json(&["recover", "--json"])?;
    let delta = &kept["kept"][0];
    let task = delta["task"].as_str().unwrap_or_default().chars().take(8).collect::<String>();
    expect("one is kept", kept["kept"].as_array().is_some_and(|kept| kept.len() == 1), kept.to_string());
    expect("the error names the task", said.contains(&task) && !task.is_empty(), task.clone());
    expect("it tells the command", delta["argv"][2] == SLOW_INCREMENT, delta["argv"].to_string());
    expect(
        "it tells why",
        delta["reason"].as_str().is_some_and(|why| why.contains(&path)),
        delta["reason"].to_string(),
    );
    let paths = delta["paths"].to_string();
    let all = ["n", "made", "gone", "log"].iter().all(|name| paths.contains(&place.join(name).display().to_string()));
    expect("it tells the paths", all, paths);
    let text = client.gleaner(&["recover"])?.text();
    expect("the list can be read", text.contains(&task) && text.contains(&path) && text.contains("ago"), text);

    let asked = client.gleaner(&["recover", &task])?;
    expect("without a terminal it does not commit unasked", !asked.ok() && state(&place) == edited, asked.said());
    let into = place.join("elsewhere");
    client.gleaner(&["recover", &task, "--into", &into.display().to_string()])?.expect_ok("recover --into")?;
    let elsewhere = read(&into, path.trim_start_matches('/'));
    expect("it is written elsewhere", elsewhere == "2\n", elsewhere);
    let committed = client.gleaner(&["recover", &task, "--commit", "--json"])?.expect_ok("recover --commit")?;
    expect("it wins", state(&place) == "2\nmade\nnothingold\nnew\n", state(&place));

    let answer: serde_json::Value = serde_json::from_slice(&committed.stdout).unwrap_or_default();
    let replaced = answer["replaced"].as_str().unwrap_or_default().to_owned();
    client.gleaner(&["recover", &replaced, "--commit"])?.expect_ok("undoing it")?;
    expect("what it replaced comes back", state(&place) == edited, state(&place));
    Ok(wrong)
}

/// A command writes a dot-file of the home, which it may not.
pub fn refusal(pool: &mut Pool) -> Result<Vec<String>> {
    let client = pool.client.clone();
    let home = pool.scratch.path().join("client/home");
    let place = home.join("project");
    std::fs::create_dir_all(place.join(".git")).ok();
    std::fs::write(home.join(".profile"), "mine\n").ok();
    let mut command = client.remrun(&["--no-local", "sh", "-c", "echo x >> ~/.profile; echo y > out"]);
    command.current_dir(&place);
    let outcome = Run::new(command).within(END_BOUND).run()?;
    let mut wrong = Vec::new();
    let said = outcome.said();
    if outcome.ended != Ended::Code(125) || !said.contains(".profile is outside the write policy") {
        wrong.push(format!("{}: {said}", outcome.ended));
    }
    if read(&home, ".profile") != "mine\n" || place.join("out").exists() {
        wrong.push("something was committed".to_owned());
    }
    let kept = client.json(&["recover", "--json"])?;
    let task = kept["kept"][0]["task"].as_str().unwrap_or_default().to_owned();
    if client.gleaner(&["recover", &task, "--commit"])?.ok() {
        wrong.push("the write policy counts for recover, too".to_owned());
    }
    let profile = home.join(".profile").display().to_string();
    client.gleaner(&["recover", &task, "--commit", "--allow-write", &profile])?.expect_ok("recover --allow-write")?;
    if (read(&home, ".profile"), read(&place, "out")) != ("mine\nx\n".to_owned(), "y\n".to_owned()) {
        wrong.push(format!("recovered: {:?} and {:?}", read(&home, ".profile"), read(&place, "out")));
    }
    Ok(wrong)
}
