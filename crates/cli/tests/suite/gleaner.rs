//! `gleaner` as it is called.

use crate::fake::Place;
use base::door::{Reply, Request};
use std::process::Command;

/// `gleaner` that uses `place`, and nothing of the account that runs the tests.
pub fn gleaner(place: &Place) -> Command {
    let mut process = Command::new(env!("CARGO_BIN_EXE_gleaner"));
    place.set_environment(&mut process);
    process.env("GLEANER_CONFIG_DIR", place.path().join("config"));
    process.env("GLEANER_STATE_DIR", place.path().join("state"));
    process
        .env_remove("GLEANER_HUB")
        .env_remove("GLEANER_CPUS")
        .env_remove("GLEANER_LISTEN")
        .env_remove("GLEANER_METRICS");
    process
}

pub fn output(process: &mut Command) -> (Option<i32>, String, String) {
    let output = process.output().expect("gleaner starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Answers one question with `answer`, after checking it.
fn answering(place: &Place, question: &'static str, answer: &'static str) -> std::thread::JoinHandle<()> {
    place.daemon(1, move |_, mut caller| {
        assert_eq!(caller.request(), Some(Request::Ask(question.as_bytes().to_vec())));
        caller.reply(Reply::Answer(answer.as_bytes().to_vec()));
    })
}

const SUBCOMMANDS: [&str; 32] = [
    "up",
    "hub",
    "worker",
    "join",
    "use",
    "token",
    "run",
    "submit",
    "jobs",
    "hold",
    "release",
    "priority",
    "status",
    "top",
    "explain",
    "tasks",
    "cancel",
    "drain",
    "accounts",
    "limit",
    "approve",
    "audit",
    "revoke",
    "recover",
    "trust",
    "journal",
    "config",
    "stop",
    "doctor",
    "bundle",
    "completions",
    "man",
];

#[test]
fn manual_and_completions_know_every_subcommand() {
    let place = Place::new();
    let dir = place.path().join("man");
    assert_eq!(output(gleaner(&place).arg("man").arg(&dir)).0, Some(0));
    let (_, help, _) = output(gleaner(&place).arg("--help"));
    for name in SUBCOMMANDS {
        let page = std::fs::read_to_string(dir.join(format!("gleaner-{name}.1"))).expect(name);
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
        assert!(help.contains(&format!("\n  {name} ")), "{name}: {help}");
    }
    assert!(!dir.join("gleaner-daemon.1").exists() && !help.contains("\n  daemon "));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, script, _) = output(gleaner(&place).args(["completions", shell]));
        assert_eq!(code, Some(0));
        for name in SUBCOMMANDS {
            assert!(script.contains(name), "{shell}: {name}");
        }
    }
}

#[test]
fn remrun_has_a_manual_page_and_completions() {
    let place = Place::new();
    let dir = place.path().join("man");
    assert_eq!(output(gleaner(&place).arg("man").arg(&dir)).0, Some(0));
    let page = std::fs::read_to_string(dir.join("remrun.1")).expect("a page");
    let (code, help, _) = output(place.remrun().arg("-h"));
    assert_eq!(code, Some(0));
    assert_eq!(output(place.remrun().arg("--help")).1, help);
    for option in ["cpus", "memory", "tag", "no-local", "race", "allow-write", "verbose", "help", "version"] {
        assert!(help.contains(&format!("--{option}")), "{option}: {help}");
        assert!(page.contains(&option.replace('-', "\\-")), "{option}: {page}");
        for shell in ["bash", "zsh", "fish"] {
            let (code, script, _) = output(gleaner(&place).args(["completions", shell, "remrun"]));
            assert!(code == Some(0) && script.contains(option), "{shell}: {option}: {script}");
        }
    }
    assert_eq!(output(place.remrun().arg("-V")).1, output(place.remrun().arg("--version")).1);
    assert_eq!(output(gleaner(&place).args(["completions", "elvish", "remrun"])).0, Some(2));
}

/// What bash offers for these words, the last of which is to be completed.
fn offered_by_bash(script: &str, words: &[&str]) -> String {
    let set = format!("COMP_WORDS=({}); COMP_CWORD={}", words.join(" "), words.len() - 1);
    let line = format!("compopt() {{ :; }}\n{script}\n{set}\n_remrun\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"");
    let ran = std::process::Command::new("bash").args(["--norc", "-c", &line]).output().expect("bash runs");
    String::from_utf8(ran.stdout).expect("text")
}

#[test]
fn bash_completes_options_commands_and_files() {
    let place = Place::new();
    let (_, script, _) = output(gleaner(&place).args(["completions", "bash", "remrun"]));
    let offered = |words: &[&str]| offered_by_bash(&script, words);
    assert_eq!(offered(&["remrun", "--no"]), "--no-local\n");
    assert!(offered(&["remrun", "-c", "2", "bas"]).lines().any(|line| line == "bash"));
    assert!(offered(&["remrun", "--cpus", "=", "2", "bas"]).lines().any(|line| line == "bash"));
    assert!(offered(&["remrun", "cat", "/etc/passw"]).lines().any(|line| line == "/etc/passwd"));
    assert!(offered(&["remrun", "--allow-write", "/et"]).lines().any(|line| line == "/etc"));
    assert_eq!(offered(&["remrun", "-c", ""]).trim(), "", "a number");
    assert!(!offered(&["remrun", "ls", "--no"]).contains("--no-local"), "the command's own");
}

#[test]
fn answers_as_text_and_as_json() {
    let place = Place::new();
    let answer = r#"{"tasks": [{"task": "8f3a1234", "argv": ["make"], "place": "local", "status": "exit 2"}]}"#;
    let daemon = answering(&place, r#"{"ask":"tasks"}"#, answer);
    let want = "TASK      STATUS  TIME  PLACE  COMMAND\n8f3a1234  exit 2  0 us  local  make\n";
    assert_eq!(output(gleaner(&place).arg("tasks")), (Some(0), want.into(), String::new()));
    daemon.join().expect("the daemon saw what it should");

    let place = Place::new();
    let question = r#"{"ask":"token","role":"client","ttl_s":120}"#;
    let daemon = answering(&place, question, r#"{"token": "secret", "role": "client", "expires_in_s": 120}"#);
    let (code, out, err) = output(gleaner(&place).args(["token", "--role", "client", "--ttl", "2m"]));
    assert_eq!((code, out.as_str()), (Some(0), "secret\n"));
    assert_eq!(err, "gleaner: good once, for 2 min; as input of: gleaner use -\n");
    daemon.join().expect("the daemon saw what it should");

    let place = Place::new();
    let daemon = answering(&place, r#"{"ask":"explain","task":null}"#, r#"{"task": "8f", "round_trips": 1}"#);
    let (code, out, _) = output(gleaner(&place).args(["explain", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &json["round_trips"], &json["conflicts"]), (Some(0), &1.into(), &serde_json::json!([])));
    daemon.join().expect("the daemon saw what it should");
}

#[test]
fn limits_are_asked_for_as_they_are_given() {
    let place = Place::new();
    let question =
        r#"{"ask":"limit","account":"ada","weight":null,"share_permille":125,"tasks":4294967295,"running":2}"#;
    let answer = r#"{"nodes": [{"name": "ada", "id": "4f0c11d2", "role": "client"}], "weight": 1, "share_permille": 125, "running_max": 2}"#;
    let daemon = answering(&place, question, answer);
    let arguments = ["limit", "ada", "--share", "12.5", "--running", "2", "--tasks", "none"];
    let (code, out, _) = output(gleaner(&place).args(arguments));
    assert_eq!(code, Some(0));
    assert!(out.contains("running       2 at most, 0 now") && out.contains("tasks         no limit, 0 now"), "{out}");
    daemon.join().expect("the daemon saw what it should");

    for wrong in [&["--share", "101"][..], &["--weight", "0"], &["--tasks", "few"]] {
        let (code, _, err) = output(gleaner(&place).args(["limit", "ada"]).args(wrong));
        assert!(code == Some(2) && err.contains(wrong[0]), "{err}");
    }

    let place = Place::new();
    let daemon = answering(&place, r#"{"ask":"accounts","page":2}"#, r#"{"accounts": [], "more": 0}"#);
    let (code, out, _) = output(gleaner(&place).args(["accounts", "--page", "2"]));
    assert_eq!((code, out.as_str()), (Some(0), "no accounts on this page\n"));
    daemon.join().expect("the daemon saw what it should");

    let place = Place::new();
    let answer =
        r#"{"jobs": [{"job": "8f3a1234", "account": "ada", "state": "held", "priority": "normal"}], "more": false}"#;
    let daemon = answering(&place, r#"{"ask":"everyone","page":1}"#, answer);
    let (code, out, _) = output(gleaner(&place).args(["jobs", "--everyone"]));
    assert!(code == Some(0) && out.contains("8f3a1234  ada      held"), "{out}");
    daemon.join().expect("the daemon saw what it should");
    assert_eq!(output(gleaner(&place).args(["jobs", "--everyone", "--all"])).0, Some(2));
}

#[test]
fn what_is_kept_wins_only_if_its_owner_says_so() {
    let place = Place::new();
    let question = r#"{"ask":"recover","task":"8f","into":null,"allow_write":["/h/.rc"]}"#;
    let daemon = answering(&place, question, r#"{"task": "8f3a", "paths": ["/h/.rc"], "changes_count": 1}"#);
    let (code, out, _) = output(gleaner(&place).args(["recover", "8f", "--commit", "--allow-write", "/h/.rc"]));
    assert_eq!((code, out.as_str()), (Some(0), "task          8f3a, committed\n1 paths       /h/.rc\n"));
    daemon.join().expect("the daemon saw what it should");

    let place = Place::new();
    let daemon = answering(&place, r#"{"ask":"kept"}"#, r#"{"kept": [{"task": "8f3a"}]}"#);
    let (code, out, err) = output(gleaner(&place).args(["recover", "8f"]));
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("there is no terminal on which to ask") && err.contains("--commit"), "{err}");
    daemon.join().expect("the daemon saw what it should");
}

#[test]
fn refusals_say_what_and_whose() {
    let place = Place::new();
    let answer = r#"{"error": {"kind": "user", "message": "there is no task 8f", "hint": "gleaner tasks lists them"}}"#;
    let daemon = answering(&place, r#"{"ask":"cancel","task":"8f"}"#, answer);
    let want = "gleaner: error: there is no task 8f\nhint: gleaner tasks lists them\n";
    assert_eq!(output(gleaner(&place).args(["cancel", "8f"])), (Some(2), String::new(), want.into()));
    daemon.join().expect("the daemon saw what it should");
    assert_eq!(output(gleaner(&place).arg("frob")).0, Some(2));
    let _ = std::fs::remove_file(place.path().join("run/door"));
    // A daemon without a folder for its state cannot start.
    let (code, _, err) = output(gleaner(&place).arg("status").env("GLEANER_STATE_DIR", "/dev/null/state"));
    assert_eq!(code, Some(69), "{err}");
    assert!(err.contains("the client daemon did not start") && err.contains("hint: "), "{err}");
}

#[test]
fn errors_are_json_for_a_program() {
    let wants = |line: &str| cli::args::may_want_json(line.split(' ').map(std::ffi::OsString::from));
    assert!(wants("gleaner jobs --json") && wants("gleaner submit --json -- x"));
    assert!(!wants("gleaner submit -- x --json") && !wants("gleaner run x --json"), "the command's own words");
    for asks in
        ["--json x", "--frob --json x", "-j 0 --json x", "-kj0 --json x", "--tag --job --json x", "--jobs=0 --json"]
    {
        assert!(wants(&format!("gleaner run {asks}")), "{asks}");
    }
    for own in ["-j 4 x --json", "-kj4 x --json", "-- x --json", "--job f x --json", "-k x -j --json"] {
        assert!(!wants(&format!("gleaner run {own}")), "{own}");
    }
    let place = Place::new();
    let answer = r#"{"error": {"kind": "user", "message": "no job `a\u001b[2J`", "hint": "gleaner jobs"}}"#;
    let daemon = answering(&place, r#"{"ask":"job","job":"9","first":0,"count":50,"wait_ms":0}"#, answer);
    let (status, stdout, stderr) = output(gleaner(&place).args(["jobs", "9", "--json"]));
    daemon.join().expect("the daemon");
    let error = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON")["error"].clone();
    assert_eq!((status, stderr.as_str(), stdout.contains('\u{1b}')), (Some(2), "", false));
    assert_eq!(
        (error(&stdout)["message"].as_str(), error(&stdout)["exit_status"].as_u64()),
        (Some("no job `a\u{1b}[2J`"), Some(2))
    );
    for wrong in [
        &["jobs", "--nosuch", "--json"][..],
        &["submit", "--json"],
        &["priority", "9", "what", "--json"],
        &["run", "-j", "0", "--json", "x"],
        &["run", "--json", "--frob", "x"],
        &["run", "--json", "x"],
        &["run", "--json", "--job", "/no/such/file"],
    ] {
        let (status, stdout, stderr) = output(gleaner(&place).args(wrong));
        assert_eq!(
            (status, stderr.as_str(), error(&stdout)["kind"].as_str()),
            (Some(2), "", Some("user")),
            "{wrong:?}"
        );
    }
}

#[test]
fn units_for_systemd_start_what_there_is() {
    use clap::Parser;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/systemd");
    let mut started = Vec::new();
    for entry in std::fs::read_dir(folder).expect("units") {
        let text = std::fs::read_to_string(entry.expect("a unit").path()).expect("text");
        let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/")).expect("a command");
        let arguments = cli::args::Arguments::try_parse_from(line.split(' ')).expect(line);
        started.push(format!("{:?}", arguments.command).split('(').next().unwrap_or_default().to_owned());
        let all =
            ["[Unit]", "[Service]", "[Install]", "Restart=on-failure", "PrivateMounts=yes", "ProtectSystem=strict"];
        for wanted in all.into_iter().chain(["StateDirectoryMode=0700", "NoNewPrivileges=yes"]) {
            assert!(text.lines().any(|line| line == wanted), "{wanted}: {text}");
        }
        match line.strip_prefix("gleaner ") {
            Some("worker") => worker_unit(&text),
            // It prints a token.
            _ => assert!(text.lines().any(|line| line == "StandardOutput=null"), "{text}"),
        }
    }
    started.sort();
    assert_eq!(started, ["Hub", "Worker"]);
}

/// A worker makes groups and mounts, has FUSE, and its guests have a /proc of their own.
fn worker_unit(text: &str) {
    let has = |wanted: &str| text.lines().any(|line| line.starts_with(wanted));
    for wanted in ["Delegate=yes", "DevicePolicy=closed", "DeviceAllow=/dev/fuse rw", "ConditionPathExists="] {
        assert!(has(wanted), "{wanted}: {text}");
    }
    let forbidding =
        ["ProtectKernelTunables", "ProtectKernelLogs", "ProtectControlGroups", "ProtectProc", "ProcSubset"];
    let inherited =
        ["ProtectHostname", "RestrictNamespaces", "RestrictSUIDSGID", "MemoryDenyWriteExecute", "SystemCallFilter"];
    for unwanted in forbidding.into_iter().chain(inherited).chain([
        "LockPersonality",
        "PrivateDevices",
        "ProtectClock",
        "SystemCallArchitectures",
    ]) {
        assert!(!has(&format!("{unwanted}=")), "{unwanted}: {text}");
    }
}

#[test]
fn systemd_understands_the_units() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/systemd");
    let place = tempfile::tempdir().expect("a folder");
    for entry in std::fs::read_dir(folder).expect("units") {
        let unit = entry.expect("a unit").path();
        let text = std::fs::read_to_string(&unit).expect("text");
        // It wants the program to be there.
        let text = text.replace("/usr/local/bin/gleaner", env!("CARGO_BIN_EXE_gleaner"));
        let name = unit.file_name().expect("a name").to_string_lossy().into_owned();
        let copy = place.path().join(&name);
        std::fs::write(&copy, text).expect("written");
        let mut verify = Command::new("systemd-analyze");
        let Ok(verified) = verify.args(["verify", "--man=no", "--recursive-errors=no"]).arg(&copy).output() else {
            println!("SKIPPED: there is no systemd-analyze");
            return;
        };
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        // It complains of the system's own units as well.
        assert!(verified.status.success() && !said.contains(&name), "{said}");
    }
}

#[test]
fn settings_and_their_sources() {
    let place = Place::new();
    std::fs::create_dir(place.path().join("config")).expect("a folder");
    std::fs::write(place.path().join("config/node.toml"), "cpus = 3\nname = \"desk\"\n").expect("written");
    let (code, out, _) = output(gleaner(&place).args(["config", "--json"]).env("GLEANER_CPUS", "5"));
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(code, Some(0));
    assert_eq!(json["settings"]["node.cpus"], serde_json::json!({"value": 5, "source": "$GLEANER_CPUS"}));
    assert_eq!(json["settings"]["node.name"]["value"], "desk");
    assert_eq!(json["settings"]["client.hub"], serde_json::json!({"value": null, "source": "default"}));
    let text = output(gleaner(&place).arg("config")).1;
    let row: Vec<&str> =
        text.lines().find(|line| line.starts_with("node.cpus")).expect("a row").split_whitespace().collect();
    assert_eq!((row[1], row[2].ends_with("node.toml")), ("3", true), "{text}");
    std::fs::write(place.path().join("config/node.toml"), "cpus = \"many\"\n").expect("written");
    let (code, _, err) = output(gleaner(&place).arg("config"));
    assert_eq!(code, Some(78));
    assert!(err.contains("node.toml") && err.contains("cpus") && err.contains("hint: "), "{err}");
}

#[test]
fn nothing_runs_that_could_be_stopped() {
    let place = Place::new();
    let (code, _, err) = output(gleaner(&place).arg("stop"));
    assert_eq!(code, Some(0));
    assert!(err.starts_with("gleaner: nothing runs here"), "{err}");
    let (code, _, err) = output(gleaner(&place).arg("worker"));
    assert_eq!((code, err.contains("hint: gleaner join TOKEN")), (Some(78), true), "{err}");
}

#[test]
fn run_is_remrun() {
    let place = Place::new();
    let (code, out, _) = output(gleaner(&place).args(["run", "--help"]));
    assert!(code == Some(0) && out.contains("gleaner run --job commands.txt"), "{out}");
    let daemon = place.daemon(1, |_, mut caller| {
        assert_eq!(caller.run().0.argv, [&b"x"[..], b"-c"]);
        caller.reply(Reply::Done(base::ExitStatus::Code(9)));
    });
    assert_eq!(output(gleaner(&place).args(["run", "-v", "x", "-c"])).0, Some(9));
    daemon.join().expect("the daemon saw what it should");
}
