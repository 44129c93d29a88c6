//! What must hold for the clients of a hostile hub.

use super::{Attacker, SILENCE_BOUND};
use crate::client::Client;
use crate::contract::secrets::armoured;
use crate::error::{Context as _, Error, Result};
use crate::pool::Pool;
use crate::process::{Ended, Outcome, Run, wait_for};
use crate::scenario::{self, END_BOUND, folder};
use crate::scratch::copy_program;
use rustix::process::{Pid, Signal, WaitOptions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A hub, and a client of it alone.
struct Taken {
    hub: Attacker,
    client: Client,
}

impl Taken {
    fn start(pool: &Pool, manner: &str) -> Result<Self> {
        let hub = Attacker::start(pool, "hub", manner, &[manner])?;
        let token = wait_for(END_BOUND, || hub.said("token "));
        let token = token.ok_or_else(|| Error::Product(format!("no token: {}", hub.log())))?;
        let root = pool.scratch.path();
        let side = root.join(format!("taken-{manner}"));
        for inner in ["home", "run", "config", "state"] {
            let inner = side.join(inner);
            let made = std::fs::create_dir_all(&inner);
            let made = made.and_then(|()| std::fs::set_permissions(&inner, PermissionsExt::from_mode(0o700)));
            made.context(|| "cannot make a client's folders".to_owned())?;
        }
        let mut client = Client::new(&root.join("bin"), &side, root, 0);
        client.env.push(("GLEANER_PREFER".into(), "there".into()));
        client.gleaner(&["use", &token])?.expect_ok("gleaner use")?;
        Ok(Self { hub, client })
    }

    fn remrun(&self, pool: &Pool, words: &[&str]) -> Result<Command> {
        let mut command = self.client.remrun(words);
        command.current_dir(folder(pool, "taken")?);
        Ok(command)
    }

    fn run(&self, pool: &Pool, words: &[&str]) -> Result<Outcome> {
        Run::new(self.remrun(pool, words)?).within(SILENCE_BOUND * 2).run()
    }

    fn stop(self) -> Result<()> {
        self.client.gleaner(&["stop"])?.expect_ok("gleaner stop").map(drop)
    }
}

/// A command ends here, or with a clear error where it may not run here.
pub(super) fn silent(pool: &mut Pool) -> Result<Vec<String>> {
    let (mut wrong, mut slowest) = (Vec::new(), Duration::ZERO);
    for manner in ["silent", "silent-once-started"] {
        let taken = Taken::start(pool, manner)?;
        let outcome = taken.run(pool, &["--no-local", "true"])?;
        slowest = slowest.max(outcome.elapsed);
        let is_clear = outcome.ended == Ended::Code(125) && outcome.said().contains("said nothing");
        if !is_clear || outcome.elapsed > SILENCE_BOUND {
            wrong.push(format!("{manner}: {} after {:?}: {}", outcome.ended, outcome.elapsed, outcome.said()));
        }
        let outcome = taken.run(pool, &["sh", "-c", "echo ran here"])?;
        slowest = slowest.max(outcome.elapsed);
        if !outcome.ok() || outcome.text() != "ran here" || outcome.elapsed > SILENCE_BOUND {
            wrong.push(format!("{manner}, here: {} after {:?}: {}", outcome.ended, outcome.elapsed, outcome.said()));
        }
        taken.stop()?;
    }
    scenario::measured("a hub that says nothing: end of the command", slowest);
    Ok(wrong)
}

/// Nothing is committed, and the command fails clearly.
pub(super) fn unasked(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let taken = Taken::start(pool, "unasked")?;
    let outside = pool.scratch.path().join("taken-unasked/home/.profile");
    std::fs::write(&outside, "mine\n").context(|| "cannot write a file of the home".to_owned())?;
    for what in ["end", "object", "wrong-object", "outside", "signal", "change"] {
        let outcome = taken.run(pool, &["--no-local", "true", what, &outside.to_string_lossy()])?;
        let is_clear = outcome.ended == Ended::Code(125) && !outcome.stderr.is_empty();
        if !is_clear || outcome.elapsed > SILENCE_BOUND {
            wrong.push(format!("{what}: {} after {:?}: {}", outcome.ended, outcome.elapsed, outcome.said()));
        }
        if std::fs::read_to_string(&outside).ok().as_deref() != Some("mine\n") {
            wrong.push(format!("{what}: a file of the home has changed"));
        }
    }
    let left = std::fs::read_dir(folder(pool, "taken")?).map(Iterator::count);
    if left.as_ref().ok() != Some(&0) {
        wrong.push(format!("something was committed: {left:?}"));
    }
    taken.stop()?;
    Ok(wrong)
}

/// `remrun` goes on, and what the hub is called does nothing to a terminal.
pub(super) fn stops(pool: &mut Pool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let taken = Taken::start(pool, "stops")?;
    let mut command = taken.remrun(pool, &["--no-local", "true"])?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().context(|| "cannot start remrun".to_owned())?;
    let (pid, options) = (Pid::from_child(&child), WaitOptions::UNTRACED | WaitOptions::NOHANG);
    match wait_for(SILENCE_BOUND, || rustix::process::waitpid(Some(pid), options).ok().flatten()) {
        Some((_, status)) if status.exit_status() == Some(7) => {}
        other => {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            let _ = child.wait();
            wrong.push(format!("after words of stops: {other:?}"));
        }
    }
    for words in [&["status"][..], &["status", "--json"], &["doctor"], &["explain"], &["top", "--json"]] {
        let outcome = taken.client.gleaner(words)?;
        let all = [outcome.stdout, outcome.stderr].concat();
        wrong.extend(super::lies::taken(&all).map(|line| format!("{}: {line}", words.join(" "))));
    }
    taken.stop()?;
    Ok(wrong)
}

/// Its worker runs what is a launch, as often as it comes, refuses what is none, and goes on.
pub(super) fn commands(pool: &mut Pool) -> Result<Vec<String>> {
    let hub = Attacker::start(pool, "hub", "commands", &["commands"])?;
    let token = wait_for(END_BOUND, || hub.said("token "));
    let token = token.ok_or_else(|| Error::Product(format!("no token: {}", hub.log())))?;
    let index = pool.add_worker(&token)?;
    let mut wrong = hub.is_done();
    for sound in ["sound: ", "one: ", "two: ", "again: ", "sound afterwards: "] {
        if hub.said(sound).as_deref() != Some("started, exited 0: \"ran\\n\"") {
            wrong.push(format!("{sound}{:?}", hub.said(sound)));
        }
    }
    for forged in ["task", "command", "view", "words", "folder", "stdin", "stdout", "mounts", "path", "base"] {
        let said = hub.said(&format!("forged {forged}: "));
        if !said.as_ref().is_some_and(|said| said.starts_with("failed")) {
            wrong.push(format!("forged {forged}: {said:?}"));
        }
    }
    wrong.extend(pool.workers[index].check().err().map(|error| error.to_string()));
    wrong.extend(super::serves(pool)?);
    Ok(wrong)
}

/// It is told of no secret, and of nothing for a task that does not run.
pub(super) fn asks(pool: &mut Pool) -> Result<Vec<String>> {
    let taken = Taken::start(pool, "asks")?;
    let key = &armoured("OPENSSH PRIVATE KEY");
    let secret = pool.scratch.path().join("taken-asks/home/.ssh/id_ed25519");
    std::fs::create_dir_all(secret.parent().unwrap_or(&secret)).context(|| "cannot make a folder".to_owned())?;
    std::fs::write(&secret, key).context(|| "cannot write a key".to_owned())?;
    let outcome = taken.run(pool, &["--no-local", "true", key, &secret.to_string_lossy()])?;
    let mut wrong = Vec::new();
    if wait_for(END_BOUND, || taken.hub.log().contains("\nasked").then_some(())).is_none() {
        wrong.push(format!("it did not come to its end: {}, {}", outcome.ended, outcome.said()));
    }
    // Kind 1 is denied; 3 is a file, that has (3) a name for contents which nobody is given.
    let own = taken.hub.said("own path: ");
    if !["[(1, 0)], 0 objects", "[(3, 3)], 0 objects", "[], 0 objects"].contains(&own.as_deref().unwrap_or_default()) {
        wrong.push(format!("a secret: {own:?}"));
    }
    wrong.extend(taken.hub.said("own piece: ").filter(|bytes| bytes != "0 bytes"));
    for (what, want) in [
        ("own contents: ", "0 bytes"),
        ("other path: ", "[], 0 objects"),
        ("other contents: ", "0 bytes"),
        ("launch: ", "0 bytes"),
        ("ask: ", "0 bytes"),
        ("jobs: ", "0 bytes"),
    ] {
        if taken.hub.said(what).as_deref() != Some(want) {
            wrong.push(format!("{what}{:?}", taken.hub.said(what)));
        }
    }
    taken.stop()?;
    Ok(wrong)
}

/// The names of which the hub tells its worker something else, and why the results are refused.
const TOLD: [(&str, &str); 6] = [
    ("changed", "something else"),
    ("hidden", "something else"),
    ("refused", "refused what nobody here has refused"),
    ("unsent", "refused what nobody here has refused"),
    ("pieces", "other bytes"),
    ("old", "no more so when it was launched"),
];

/// No result rests on anything but the client's files: where it may, the command runs here.
pub(super) fn tells_of_other_files(pool: &mut Pool) -> Result<Vec<String>> {
    let taken = Taken::start(pool, "between")?;
    let token = taken.hub.said("token of a worker ").ok_or_else(|| Error::Product("no token of a worker".into()))?;
    pool.add_worker(&token)?;
    if wait_for(END_BOUND, || taken.hub.said("a worker is here")).is_none() {
        return Ok(vec![format!("no worker came: {}", taken.hub.log())]);
    }
    let mut wrong = Vec::new();
    let honest = Copied::new(pool, "honest", b"mine\n")?;
    wrong.extend(honest.is_made(&taken, &["--no-local"])?);
    for (name, why) in TOLD {
        // Larger ones are bound lazily.
        let text =
            if name == "pieces" { b"pieces\n".repeat(1 << 20) } else { format!("the file {name}\n").into_bytes() };
        let copied = Copied::new(pool, name, &text)?;
        if name == "old" {
            wrong.extend(copied.is_made(&taken, &["--no-local"])?);
            copied.write(b"changed\n")?;
        }
        let outcome = copied.run(&taken, &["--no-local"])?;
        let said = outcome.said();
        if outcome.ended != Ended::Code(125) || !said.contains(why) || !said.contains("does not count") {
            wrong.push(format!("{name}: {}, {said}", outcome.ended));
        }
        if copied.copy().is_ok() {
            wrong.push(format!("{name}: something was committed"));
        }
        wrong.extend(copied.is_made(&taken, &[])?);
    }
    taken.stop()?;
    Ok(wrong)
}

/// A folder with a file of this name and a shell that copies it, whose files no other command has used.
struct Copied {
    folder: PathBuf,
    name: String,
}

impl Copied {
    fn new(pool: &Pool, name: &str, text: &[u8]) -> Result<Self> {
        let copied = Self { folder: folder(pool, &format!("copied-{name}"))?, name: name.to_owned() };
        copy_program(Path::new("/bin/sh"), &copied.folder.join("sh"))?;
        copied.write(text)?;
        Ok(copied)
    }

    fn write(&self, text: &[u8]) -> Result<()> {
        std::fs::write(self.folder.join(&self.name), text).context(|| "cannot write a file".to_owned())
    }

    fn copy(&self) -> std::io::Result<Vec<u8>> {
        std::fs::read(self.folder.join("copy"))
    }

    /// Makes the copy, without a word: what was heard of a run elsewhere does not run here.
    fn run(&self, taken: &Taken, options: &[&str]) -> Result<Outcome> {
        let script = format!("cat {} > copy 2> /dev/null; exit 0", self.name);
        let mut command = taken.client.remrun(&[options, &["./sh", "-c", &script]].concat());
        command.current_dir(&self.folder);
        Run::new(command).within(SILENCE_BOUND * 2).run()
    }

    /// What is wrong with the copy that it makes; removes it.
    fn is_made(&self, taken: &Taken, options: &[&str]) -> Result<Option<String>> {
        let outcome = self.run(taken, options)?;
        let text = std::fs::read(self.folder.join(&self.name)).context(|| "cannot read a file".to_owned())?;
        let is_right = outcome.ok() && self.copy().is_ok_and(|copy| copy == text);
        let _ = std::fs::remove_file(self.folder.join("copy"));
        Ok((!is_right).then(|| format!("{} with {options:?}: {}, {}", self.name, outcome.ended, outcome.said())))
    }
}
