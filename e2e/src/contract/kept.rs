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
    let Some(task) = kept["kept"][0]["task"].as_str() else {
        wrong.push(format!("nothing is kept: {kept}; {}", client.gleaner(&["explain"])?.text()));
        return Ok(wrong);
    };
    if client.gleaner(&["recover", task, "--commit"])?.ok() {
        wrong.push("the write policy counts for recover, too".to_owned());
    }
    let profile = home.join(".profile").display().to_string();
    let recovered = client.gleaner(&["recover", task, "--commit", "--allow-write", &profile])?;
    if !recovered.ok() {
        wrong.push(format!("recover --allow-write: {} {}", recovered.ended, recovered.said()));
    }
    if (read(&home, ".profile"), read(&place, "out")) != ("mine\nx\n".to_owned(), "y\n".to_owned()) {
        wrong.push(format!("recovered: {:?} and {:?}", read(&home, ".profile"), read(&place, "out")));
    }
    Ok(wrong)
}

/// A command reads a secret once some of its output has been delivered, so that it cannot be run here any more.
pub fn kept_back(pool: &mut Pool) -> Result<Vec<String>> {
    let client = pool.client.clone();
    let home = pool.scratch.path().join("client/home");
    let place = home.join("late");
    std::fs::create_dir_all(&place).ok();
    std::fs::write(home.join(".netrc"), "secret\n").ok();
    let script = "ls -l ~/.netrc; sleep 1.3; cat ~/.netrc; echo $?";
    let run = |options: &[&str]| {
        let mut command = client.remrun(&[options, &["sh", "-c", script][..]].concat());
        command.current_dir(&place);
        Run::new(command).within(END_BOUND).run()
    };
    let mut wrong = Vec::new();
    let first = run(&[])?;
    let (printed, said) = (first.text(), String::from_utf8_lossy(&first.stderr).into_owned());
    let path = home.join(".netrc").display().to_string();
    let last = said.lines().last().unwrap_or_default();
    if first.ended != Ended::Code(0) || !printed.ends_with("\n1") || printed.contains("secret") {
        wrong.push(format!("{}: {printed}", first.ended));
    }
    if !last.starts_with(&format!("remrun: {path} was kept back by the read policy (")) {
        wrong.push(format!("the last line that it says: {last}"));
    }
    let report = client.json(&["explain", "--json"])?;
    let line = &report["kept_back"][0];
    let has = |name: &str| line[name].as_str().is_some_and(|text| text.len() > 10);
    if line["path"] != path.as_str() || !has("reason") || !has("remedy") {
        wrong.push(format!("explain: {}", report["kept_back"]));
    }
    let explained = client.gleaner(&["explain"])?.text();
    if !explained.contains("kept back") || !explained.contains(&path) {
        wrong.push(format!("explain: {explained}"));
    }
    let second = run(&[])?;
    if second.ended != Ended::Code(0) || !second.text().ends_with("secret\n0") {
        wrong.push(format!("the next time it is run here: {}: {}{}", second.ended, second.text(), second.said()));
    }
    let not_here = run(&["--no-local"])?;
    if not_here.ended != Ended::Code(125) || !not_here.said().contains(&path) {
        wrong.push(format!("with --no-local: {}: {}", not_here.ended, not_here.said()));
    }
    Ok(wrong)
}
