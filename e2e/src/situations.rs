//! Situations: shell scripts in `e2e/situations`, each with the right outcome of something that went wrong once for somebody, here or with another
//! system. A script ends with 0 where all is right, 1 where it is not, and 77 where it cannot be tried.
//!
//! Each runs on a machine that is client, hub and worker, made by `gleaner up` as anybody makes it, and finds `gleaner` and `remrun` in its PATH,
//! and a token for another client in `TOKEN`. Those that lose machines make pools of their own, with `casepool.sh`; `ordinaryuser.sh` makes a user
//! who is not root.

use crate::client::Client;
use crate::error::{Context, Result};
use crate::leftovers::Before;
use crate::pool::{Options, WITHOUT};
use crate::process::{Ended, Run};
use crate::report::{Report, Verdict};
use crate::scenario::Work;
use crate::scratch::Scratch;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a script may take.
const LIMIT: Duration = Duration::from_secs(180);
/// How long what is left may take to go.
const END_LIMIT: Duration = Duration::from_secs(10);
/// What a script says that cannot be tried here.
const CANNOT: i32 = 77;
/// What is said of the machine itself.
const MACHINE: &str = "situations/the machine stops and leaves nothing";
/// What others are made of.
const HELPERS: [&str; 3] = ["casepool.sh", "everydaywork.sh", "ordinaryuser.sh"];

/// Those whose name contains `filter`: the scripts that make pools of their own, and the others.
pub fn works<'a>(options: &Options, filter: &str, report: &'a Report) -> Vec<Work<'a>> {
    let scripts = match scripts() {
        Ok(scripts) => scripts,
        Err(error) => {
            report.add("situations", Verdict::Failed(vec![error.to_string()]), Duration::from_millis(1));
            return Vec::new();
        }
    };
    let name_of = |path: &Path| format!("situation/{}", path.file_stem().unwrap_or_default().to_string_lossy());
    let chosen = scripts.into_iter().map(|path| (name_of(&path), path)).filter(|(name, _)| name.contains(filter));
    let (own, shared): (Vec<_>, Vec<_>) = chosen.partition(|(_, path)| makes_pool(path));
    let machines = [("situations/the machine of those with pools stops and leaves nothing", own), (MACHINE, shared)];
    let machines = machines.into_iter().filter(|(_, scripts)| !scripts.is_empty());
    let work = |(name, scripts): (&'static str, Vec<(String, PathBuf)>)| -> Work<'a> {
        let options = options.clone();
        Box::new(move || {
            let started = Instant::now();
            report.add(name, Verdict::of(machine(&options, &scripts, report)), started.elapsed());
        })
    };
    machines.map(work).collect()
}

fn makes_pool(script: &Path) -> bool {
    std::fs::read_to_string(script).is_ok_and(|text| text.contains(HELPERS[0]))
}

fn scripts() -> Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("situations");
    let entries = std::fs::read_dir(&folder).at("list", &folder)?;
    let mut scripts: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let is_helper = |path: &Path| HELPERS.iter().any(|helper| path.ends_with(helper));
    scripts.retain(|path| path.extension().is_some_and(|ending| ending == "sh") && !is_helper(path));
    scripts.sort();
    Ok(scripts)
}

/// Runs the scripts on one machine; returns what is left of it.
fn machine(options: &Options, scripts: &[(String, PathBuf)], report: &Report) -> Result<Vec<String>> {
    let before = Before::look();
    let scratch = Scratch::new()?;
    let root = scratch.path().to_path_buf();
    let client = client(options, &root)?;
    let listen = crate::pool::free_address();
    client.gleaner(&["up", "--listen", &listen, "--detach"])?.expect_ok("gleaner up")?;
    for (name, script) in scripts {
        let started = Instant::now();
        let verdict = one(&client, &root, script).unwrap_or_else(|error| Verdict::Failed(vec![error.to_string()]));
        report.add(name, verdict, started.elapsed());
    }
    client.gleaner(&["stop"])?.expect_ok("gleaner stop")?;
    let left = before.leftovers(&root, END_LIMIT);
    drop(scratch);
    Ok(left)
}

fn client(options: &Options, root: &Path) -> Result<Client> {
    use std::os::unix::fs::DirBuilderExt;
    let make = |name: &str| {
        let path = root.join(name);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).at("create", &path)
    };
    ["owner/home", "owner/run", "owner/config", "owner/state", "tmp"].into_iter().try_for_each(make)?;
    let mut client = Client::new(&options.programs, &root.join("owner"), root, 0);
    let open = |path: &Path| std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755));
    // Scripts make other users there.
    [root.to_path_buf(), root.join("tmp")].iter().try_for_each(|path| open(path).at("chmod", path))?;
    client.env.push(("TMPDIR".into(), root.join("tmp").into()));
    client.env.push(("GLEANER_BIN".into(), options.programs.clone().into()));
    client.env.push(("NO_COLOR".into(), "1".into()));
    if !options.guests {
        // A busy machine does not stop what other users run.
        client.env.push((WITHOUT.into(), "guests".into()));
    }
    Ok(client)
}

fn one(client: &Client, root: &Path, script: &Path) -> Result<Verdict> {
    let token = client.token("client")?;
    let mut command = Command::new("bash");
    command.arg(script);
    client.dress(&mut command);
    command.env("TOKEN", token).current_dir(root);
    let outcome = Run::new(command).within(LIMIT).run()?;
    Ok(match outcome.ended {
        Ended::Code(0) => Verdict::Passed,
        Ended::Code(CANNOT) => Verdict::Skipped(outcome.said()),
        _ => Verdict::Failed(vec![format!("{}\n{}{}", outcome.ended, outcome.text(), outcome.said())]),
    })
}
