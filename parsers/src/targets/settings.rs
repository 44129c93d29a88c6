//! `client.toml` and `node.toml`, as a person or a broken disk writes them.

use super::SMALL;
use crate::{Draw, Target};
use cli::config::{CLIENT_FILE, ClientFile, Config, Flags, NODE_FILE, NodeFile, Surroundings};
use std::path::Path;

/// The client's file.
pub const CLIENT: Target =
    Target { name: "client_toml", check: |bytes| check(CLIENT_FILE, bytes), draw: draw_client, heap };
/// The file of hub and worker.
pub const NODE: Target = Target { name: "node_toml", check: |bytes| check(NODE_FILE, bytes), draw: draw_node, heap };

const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn heap(bytes: &[u8]) -> usize {
    4 * SMALL + 400 * bytes.len()
}

fn check(name: &str, bytes: &[u8]) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join(name), bytes).expect("it is written");
    let around = Surroundings {
        variables: [("GLEANER_CONFIG_DIR".to_owned(), folder.path().to_string_lossy().into_owned())].into(),
        account_home: Some("/home/u".into()),
        hostname: "desk".into(),
        cpus: 8,
        ..Surroundings::default()
    };
    let Ok(config) = Config::load(&around, Flags::default()) else { return false };
    config.table();
    assert!(config.cpus.value >= 1 && (1..=600).contains(&config.link_wait_s.value));
    match name {
        CLIENT_FILE => again::<ClientFile>(&folder.path().join(name)),
        _ => again::<NodeFile>(&folder.path().join(name)),
    }
    true
}

/// What is read is written and read again as the same.
fn again<T>(path: &Path)
where
    T: serde::de::DeserializeOwned + serde::Serialize + Default + PartialEq + std::fmt::Debug,
{
    let settings: T = cli::config::read(path).expect("it was read before");
    cli::config::write(path, &settings).expect("it is written");
    // A temperature may be no number, which equals nothing.
    let read: T = cli::config::read(path).expect("what was written is read");
    assert_eq!(format!("{read:?}"), format!("{settings:?}"));
}

fn draw_client(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut text = format!("hub = [\"10.0.0.1:{}\"]\nhub_key = \"{KEY}\"\n", 1 + draw.below(65_535));
    if draw.flag() {
        text += &format!("link_wait_s = {}\n", 1 + draw.below(600));
    }
    if draw.flag() {
        text += &format!("prefer = \"{}\"\nstate_dir = \"/var/x\"\n", draw.of(&["auto", "there"]));
    }
    text.into_bytes()
}

fn draw_node(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut text = format!("cpus = {}\n", draw.of(&["1", "'50%'", "4096"]));
    for (flag, line) in [
        (draw.flag(), "listen = '[::1]:7433'\n"),
        (draw.flag(), "tags = ['gpu', 'site:a']\nname = 'desk'\n"),
        (draw.flag(), "memory_reserve = '4G'\nmemory_max = '25%'\n"),
        (draw.flag(), "hosts_max = 16\ntasks_max = 64\nown_work = 'guest'\n"),
        (draw.flag(), "journal = 'postgres://u:p@h:5432/d'\nmetrics = '127.0.0.1:9433'\n"),
        (draw.flag(), "[rest]\nbattery = true\ncelsius = 80.5\nhours = ['mon-fri 9:00-17:30']\n"),
    ] {
        text += if flag { line } else { "" };
    }
    text.into_bytes()
}
