//! `gleaner bundle`: secrets are planted wherever it looks, and looked for in what it wrote.

use crate::fake::Place;
use crate::gleaner::{gleaner, output};
use base::door::{Reply, Request};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// What must not be in a bundle, each planted below.
const SECRETS: [&str; 12] = [
    "plantedenvironment",
    "plantedbyvalue",
    "plantedjournal",
    "plantedjournal@x",
    "plantedlog",
    "plantedheader",
    "planted argument",
    "plantedanswer",
    "plantedpem",
    "plantedraw",
    "gleaner1-00112233445566778899aabbccddeeff",
    "302e020100300506032b657004220420",
];

/// The files of an archive, by name.
fn unpacked(bytes: &[u8]) -> BTreeMap<String, String> {
    let mut tar = Vec::new();
    zstd::Decoder::new(bytes).expect("a frame").read_to_end(&mut tar).expect("whole");
    let mut files = BTreeMap::new();
    let mut rest = &tar[..];
    while let Some((header, after)) = rest.split_at_checked(512).filter(|(header, _)| header[0] != 0) {
        let text =
            |from: usize, to: usize| String::from_utf8_lossy(&header[from..to]).trim_end_matches('\0').to_owned();
        let len = usize::from_str_radix(&text(124, 135), 8).expect("a length");
        files.insert(text(0, 100), String::from_utf8(after[..len].to_vec()).expect("text"));
        rest = &after[len.next_multiple_of(512)..];
    }
    files
}

fn plant(place: &Path) {
    let state = place.join("state");
    for folder in ["config", "state", "state/hub", "state/client"] {
        std::fs::create_dir(place.join(folder)).expect("a folder");
    }
    let node = "name = \"desk\"\njournal = \"postgres://g:plantedjournal%40x@db/g\"\n";
    std::fs::write(place.join("config/node.toml"), node).expect("written");
    // A key as the product keeps it: PKCS#8, as bytes.
    let mut key = vec![0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    key.extend(b"plantedraw-plantedraw-plantedraw");
    std::fs::write(state.join("hub/hub.key"), &key).expect("written");
    let hex = base::digest::hex(&key);
    let log = format!(
        "2026-11-27T09:00:00Z  INFO hub: joined name=\"desk\" password=\"plantedlog\"\n\
         GET / Authorization: Bearer plantedheader\n\
         connecting to postgres://g:plantedjournal%40x@db/g (plantedjournal@x)\n\
         {} is redeemed, {hex}, {key:?}\n\
         -----BEGIN PRIVATE KEY-----\nplantedpem\n-----END PRIVATE KEY-----\n\
         the variable was plantedenvironment and {{plantedbyvalue}}\n\
         the last line of the log\n",
        SECRETS[10]
    );
    std::fs::write(state.join("gleaner.log"), log).expect("written");
    std::fs::write(place.join("run/daemon.log"), "password: plantedlog\nthe daemon's last line\n").expect("written");
}

/// A daemon whose every answer holds secrets.
const ANSWER: &str = r#"{
    "tasks": [{"task": "8f3a1234000000000000000000000001", "argv": ["mysql", "planted argument"], "why": "token=plantedanswer"}],
    "token": "plantedanswer", "entries": [{"what": "launch", "why": "a Bearer plantedanswer came"}]
}"#;

#[test]
fn no_secret_is_in_it() {
    let place = Place::new();
    plant(place.path());
    // `doctor` asks once as well.
    let daemon = place.daemon(8, |_, mut caller| {
        assert!(matches!(caller.request(), Some(Request::Ask(_))));
        caller.reply(Reply::Answer(ANSWER.into()));
    });
    let file = place.path().join("bundle");
    let mut process = gleaner(&place);
    process.arg("bundle").arg(&file).arg("--json").env("MY_API_TOKEN", "plantedenvironment");
    process.env("HARMLESS", "https://user:plantedbyvalue@host/").env("GLEANER_LOG", "token=plantedlog");
    let (code, out, err) = output(&mut process);
    assert_eq!(code, Some(0), "{err}");
    daemon.join().expect("all was asked");
    assert_eq!(std::fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
    let files = unpacked(&std::fs::read(&file).expect("read"));
    for (name, text) in &files {
        for secret in SECRETS {
            assert!(!text.contains(secret), "{secret} is in {name}: {text}");
        }
        assert!(!text.contains("48, 46, 2, 1"), "the key is in {name}, byte by byte");
    }
    let entry =
        |name: &str| files.get(&format!("gleaner-bundle/{name}")).unwrap_or_else(|| panic!("no {name}: {files:?}"));
    for name in
        ["versions", "doctor", "config", "environment", "status", "top", "tasks", "jobs", "kept", "audit", "guests"]
    {
        serde_json::from_str::<Value>(entry(&format!("{name}.json"))).expect(name);
    }
    assert!(entry("logs/gleaner.log").ends_with("the last line of the log\n"));
    assert!(entry("logs/daemon.log").ends_with("the daemon's last line\n"));
    assert!(entry("tasks.json").contains("\"8f3a1234…\"") && entry("tasks.json").contains("mysql"));
    assert!(entry("environment.json").contains("MY_API_TOKEN") && entry("config.json").contains("\"desk\""));
    assert!(entry("kernel.txt").contains("MemTotal") && entry("state.txt").contains("hub/hub.key"));
    let left_out: Value = serde_json::from_str(entry("left-out.json")).expect("JSON");
    assert!(left_out["logs/gleaner.log"].as_object().is_some_and(|counts| counts.len() >= 3), "{left_out}");
    let told: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&told["left_out"], told["file"].as_str()), (&left_out, file.to_str()));
}

#[test]
fn it_is_made_where_nothing_runs_and_the_settings_are_wrong() {
    let place = Place::new();
    std::fs::create_dir(place.path().join("config")).expect("a folder");
    std::fs::write(place.path().join("config/node.toml"), "pasword = \"planted\"\npassword = \"planted\"\n")
        .expect("written");
    let process = gleaner(&place).args(["bundle", "-", "--hide-names"]).output().expect("gleaner starts");
    assert_eq!(process.status.code(), Some(0), "{}", String::from_utf8_lossy(&process.stderr));
    let files = unpacked(&process.stdout);
    let config = &files["gleaner-bundle/config.json"];
    assert!(config.contains("node.toml") && !config.contains("planted"), "{config}");
    assert!(files["gleaner-bundle/status.json"].contains("no client daemon runs"), "{files:?}");
    assert!(!place.path().join("starts").exists(), "nothing is started");
    let (code, _, err) = output(gleaner(&place).arg("bundle").arg(place.path().join("config/node.toml")));
    assert_eq!((code, err.contains("hint: name another file")), (Some(69), true), "{err}");
}
