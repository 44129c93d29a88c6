//! Secrets stay here: by what files hold, by where they are, and by whose the user says that the workers are.

use crate::error::{Context, Result};
use crate::pool::Pool;
use crate::process::{Ended, Outcome, Run};
use crate::scenario::END_BOUND;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What must not be printed by a command that runs elsewhere.
const MARK: &str = "MIIEmarkOfASecretThatStaysHere0123456789abcdef";

/// A file in the armour of keys and certificates. Put together, so that this file is none.
pub fn armoured(kind: &str) -> String {
    format!("-----BEGIN {kind}-----\n{MARK}\n-----END {kind}-----\n")
}

fn write(path: &Path, text: &str, mode: u32) -> Result<PathBuf> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).at("create", folder)?;
    }
    std::fs::write(path, text).at("write", path)?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).at("chmod", path)?;
    Ok(path.to_owned())
}

/// Runs a shell in `place` that prints a file which its arguments do not name.
fn print(pool: &Pool, place: &Path, (number, file): (usize, &Path), options: &[&str]) -> Result<Outcome> {
    write(&place.join("list"), &file.display().to_string(), 0o644)?;
    // Another script for each: of a kind that could not be done elsewhere the next one runs here.
    let script = format!(": {number}; cat \"$(cat list)\"");
    let mut command = pool.client.remrun(&[options, &["sh", "-c", &script]].concat());
    command.current_dir(place);
    Run::new(command).within(END_BOUND).run()
}

/// Private keys, passwords, closed files and what is this program's own, in an ordinary project on workers of one's own.
pub fn by_content(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let root = pool.scratch.path().to_path_buf();
    let (project, outside) = (root.join("client/home/project"), root.join("outside"));
    std::fs::create_dir_all(project.join(".git")).at("create", &project)?;
    let key = armoured("PRIVATE KEY");
    let bundle = armoured("CERTIFICATE") + &armoured("RSA PRIVATE KEY");
    let password = format!("PORT=3000\nDB_PASSWORD={MARK}\n");
    let kept = [
        write(&project.join("server.key"), &key, 0o644)?,
        write(&project.join("docs/notes.txt"), &armoured("OPENSSH PRIVATE KEY"), 0o644)?,
        write(&project.join("bundle.pem"), &bundle, 0o644)?,
        write(&project.join(".env"), &password, 0o644)?,
        write(&project.join("deploy/prod.env"), &password, 0o644)?,
        write(&root.join("client/home/backup/old"), &key, 0o644)?,
        write(&outside.join("closed.txt"), MARK, 0o600)?,
        write(&outside.join("read-only.txt"), MARK, 0o400)?,
        root.join("hub/state/hub/hub.key"),
        root.join("hub/state/hub/nodes.json"),
        root.join("client/state/client/client.key"),
        root.join("client/run/instance"),
        root.join("client/config/client.toml"),
    ];
    for (number, file) in kept.iter().enumerate() {
        let here = std::fs::read(file).at("read", file)?;
        let not_here = print(pool, &project, (number, file), &["--no-local"])?;
        let name = file.display().to_string();
        let is_named = not_here.said().contains(&name);
        if not_here.ended != Ended::Code(125) || !not_here.stdout.is_empty() || !is_named {
            wrong.push(format!("{name}: {}: {} {}", not_here.ended, not_here.text(), not_here.said()));
        }
        let run_here = print(pool, &project, (number, file), &[])?;
        if run_here.ended != Ended::Code(0) || run_here.stdout != here {
            wrong.push(format!("{name} where it may run here: {}: {}", run_here.ended, run_here.said()));
        }
    }
    let open = [
        write(&project.join("ca.pem"), &armoured("CERTIFICATE"), 0o644)?,
        write(&project.join("closed-ca.pem"), &armoured("CERTIFICATE"), 0o600)?,
        write(&project.join(".env.example"), &password, 0o644)?,
        write(&project.join("data.csv"), MARK, 0o600)?,
        write(&project.join("keys.rs"), "const BEGIN: &str = \"-----BEGIN PRIVATE KEY-----\";\n", 0o644)?,
        write(&root.join("client/home/slides.key"), "slides", 0o644)?,
        write(&outside.join("open.txt"), MARK, 0o644)?,
    ];
    for (number, file) in open.iter().enumerate() {
        let there = print(pool, &project, (100 + number, file), &["--no-local"])?;
        if there.ended != Ended::Code(0) || there.stdout != std::fs::read(file).at("read", file)? {
            wrong.push(format!("{} is open: {}: {}", file.display(), there.ended, there.said()));
        }
    }
    let naming = "$R cat ../../../outside/closed.txt ../../../outside/read-only.txt";
    let named = pool.client.script(&project, naming, "remrun --no-local", END_BOUND)?;
    if named.text() != format!("{MARK}{MARK}") {
        wrong.push(format!("closed files that are named: {}: {}", named.ended, named.said()));
    }
    for input in ["server.key", "../.ssh/id_rsa"] {
        write(&project.join(input), &key, 0o600)?;
        let script = format!("$R cat < {input}");
        let fed = pool.client.script(&project, &script, "remrun --no-local", END_BOUND)?;
        if fed.ended != Ended::Code(125) || !fed.stdout.is_empty() {
            wrong.push(format!("{input} as standard input: {}: {} {}", fed.ended, fed.text(), fed.said()));
        }
        let fed = pool.client.script(&project, &script, "remrun", END_BOUND)?;
        if fed.text() != key.trim_end() {
            wrong.push(format!("{input} as standard input, run here: {}: {}", fed.ended, fed.said()));
        }
    }
    Ok(wrong)
}

/// A test that reads the repository's own key after it has printed something, and what is not the repository's.
pub fn read_late(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let place = pool.scratch.path().join("client/home/tested");
    let (tracked, untracked) = (place.join("keys/server.key"), place.join("keys/other.key"));
    let of_tests = place.join("tests/own.key");
    write(&of_tests, &armoured("PRIVATE KEY"), 0o644)?;
    write(&tracked, &armoured("PRIVATE KEY"), 0o644)?;
    write(&untracked, &armoured("EC PRIVATE KEY"), 0o644)?;
    let git = pool.client.script(&place, "git init -q . && git add keys/server.key", "", END_BOUND)?;
    if !git.ok() {
        return Err(crate::error::Error::Missing(format!("git does not work here: {}", git.said())));
    }
    let makefile = "test:\n\t@echo testing\n\t@sleep 1.3\n\t@cat \"$$(cat list)\"\n";
    write(&place.join("Makefile"), makefile, 0o644)?;
    let make = |options: &[&str], file: &Path, goal: &str| {
        write(&place.join("list"), &file.display().to_string(), 0o644)?;
        let mut command = pool.client.remrun(&[options, &["make", "-s", goal, "test"]].concat());
        command.current_dir(&place);
        Run::new(command).within(END_BOUND).run()
    };
    let first = make(&["--no-local"], &tracked, "-j1")?;
    if first.ended != Ended::Code(0) || first.text() != format!("testing\n{}", armoured("PRIVATE KEY").trim_end()) {
        wrong.push(format!("the repository's own key: {}: {} {}", first.ended, first.text(), first.said()));
    }
    let report = pool.client.json(&["explain", "--json"])?;
    if report["lent"][0] != tracked.display().to_string() {
        wrong.push(format!("explain does not say that it was lent: {report}"));
    }
    let second = make(&[], &tracked, "-j1")?;
    let report = pool.client.json(&["explain", "--json"])?;
    if !second.ok() || report["place"] == "remote" {
        wrong.push(format!("the next one of the kind runs here: {}: {report}", second.ended));
    }
    let of_tests = make(&["--no-local"], &of_tests, "-j3")?;
    if of_tests.ended != Ended::Code(0) || !of_tests.text().contains(MARK) {
        wrong.push(format!("a key of the project's tests: {}: {}", of_tests.ended, of_tests.said()));
    }
    let other = make(&["--no-local"], &untracked, "-j2")?;
    let name = untracked.display().to_string();
    if other.ok() || other.text().contains(MARK) || !other.said().contains(&name) {
        wrong.push(format!("a key that is not the repository's: {}: {} {}", other.ended, other.text(), other.said()));
    }
    Ok(wrong)
}

/// The user's own word on whose the workers are, where the hub calls them the user's own.
pub fn by_class(pool: &mut Pool) -> Result<Vec<String>> {
    const SECRET: &str = "GLEANER_TEST_API_TOKEN";
    let mut wrong = Vec::new();
    let home = pool.scratch.path().join("client/home");
    let project = home.join("project");
    std::fs::create_dir_all(&project).at("create", &project)?;
    let elsewhere = write(&home.join("letters/one.txt"), MARK, 0o644)?;
    for (number, class) in ["own", "site", "volunteer", "own"].into_iter().enumerate() {
        pool.client.gleaner(&["use", "--trust", class])?.expect_ok("gleaner use --trust")?;
        pool.wait_for_workers(1)?;
        let status = pool.client.json(&["status", "--json"])?;
        if status["trust"] != class || !pool.client.gleaner(&["status"])?.text().contains(&format!("({class})")) {
            wrong.push(format!("status says {} and not {class}", status["trust"]));
        }
        let is_own = class == "own";
        let mut command =
            pool.client.remrun(&["--no-local", "/bin/sh", "-c", &format!(": {number}; echo ${{{SECRET}-none}}")]);
        command.env(SECRET, "s3cr3t").current_dir(&project);
        let printed = Run::new(command).within(END_BOUND).run()?;
        if printed.text() != if is_own { "s3cr3t" } else { "none" } {
            wrong.push(format!("{class}: a variable that looks secret: {} {}", printed.text(), printed.said()));
        }
        let explained = pool.client.gleaner(&["explain"])?.text();
        if explained.contains("s3cr3t") || explained.contains("since they look secret") == is_own {
            wrong.push(format!("{class}: explain: {explained}"));
        }
        let withheld = pool.client.json(&["explain", "--json"])?["withheld"].to_string();
        if withheld.contains(SECRET) == is_own {
            wrong.push(format!("{class}: kept here: {withheld}"));
        }
        let read = print(pool, &project, (number, &elsewhere), &["--no-local"])?;
        if (read.ended == Ended::Code(0)) != is_own || read.text().contains(MARK) != is_own {
            wrong.push(format!("{class}: the home: {}: {} {}", read.ended, read.text(), read.said()));
        }
    }
    if pool.client.gleaner(&["use", "--trust", "mine"])?.ok() {
        wrong.push("a class that there is not was taken".to_owned());
    }
    Ok(wrong)
}
