//! Settings from files, environment and flags; what is wrong is told with its place.

use super::*;

const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn around(dir: &Path, variables: &[(&str, &str)]) -> Surroundings {
    let mut all: BTreeMap<_, _> = variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    all.insert("GLEANER_CONFIG_DIR".into(), dir.to_string_lossy().into_owned());
    all.insert("HOME".into(), "/home/u".into());
    Surroundings { variables: all, account_home: None, is_root: false, hostname: "desk".into(), cpus: 8 }
}

fn error(dir: &Path, variables: &[(&str, &str)]) -> CliError {
    Config::load(&around(dir, variables), Flags::default()).expect_err("a fault")
}

#[test]
fn flags_beat_environment_beats_file_beats_default() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let load = |variables: &[(&str, &str)], flags| Config::load(&around(dir.path(), variables), flags).expect("sound");
    let config = load(&[], Flags::default());
    assert_eq!((config.cpus.value, config.cpus.source), (8, Source::Default));
    assert_eq!(config.state_dir.value, Path::new("/home/u/.local/state/gleaner"));
    assert_eq!((config.name.value.as_str(), config.client_hub), ("desk", None));
    let path = dir.path().join(NODE_FILE);
    write(&path, &NodeFile { cpus: Some(3.into()), listen: Some("1.2.3.4:5".into()), ..NodeFile::default() })
        .expect("written");
    let config = load(&[], Flags::default());
    assert_eq!((config.cpus.value, config.cpus.source), (3, Source::File(path)));
    assert_eq!(config.listen.value.to_string(), "1.2.3.4:5");
    let config = load(&[("GLEANER_CPUS", "5")], Flags::default());
    assert_eq!((config.cpus.value, config.cpus.source), (5, Source::Environment("GLEANER_CPUS")));
    assert_eq!(config.metrics, None);
    let config = load(&[("GLEANER_METRICS", "127.0.0.1:9433")], Flags::default());
    let metrics = config.metrics.expect("some");
    assert_eq!((metrics.value.port(), metrics.source), (9433, Source::Environment("GLEANER_METRICS")));
    let config = load(&[("GLEANER_CPUS", "5")], Flags { cpus: "7".parse().ok(), ..Flags::default() });
    assert_eq!((config.cpus.value, config.cpus.source), (7, Source::Flag("--cpus")));
}

#[test]
fn a_part_of_the_machine_is_lent() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join(NODE_FILE);
    let load = |file: &str| {
        std::fs::write(&path, file).expect("written");
        Config::load(&around(dir.path(), &[]), Flags::default())
    };
    let config = load("cpus = '40%'\nmemory_reserve = '2G'\nmemory_max = '25%'\n").expect("sound");
    assert_eq!(config.cpus.value, 3, "of eight");
    let bytes = |setting: Option<Setting<Memory>>| setting.map(|setting| setting.value.bytes(1000 << 20));
    assert_eq!((bytes(config.memory_reserve), bytes(config.memory_max)), (Some(2 << 30), Some(250 << 20)));
    assert_eq!(load("cpus = '1%'").expect("sound").cpus.value, 1);
    for (file, said) in [
        ("cpus = 0", "cpus = `0`: not a number from 1 to 4096, or a part"),
        ("cpus = 1.5", "cpus = `1.5`: not"),
        ("cpus = '101%'", "cpus = `101%`: not"),
        ("memory_max = '0%'", "memory_max = `0%`: not a size such as 4G, or a part of all such as 25%"),
        ("memory_reserve = 'much'", "memory_reserve = `much`: not"),
    ] {
        let error = load(file).expect_err("a fault").message;
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn guests_may_have_parts_of_what_is_lent() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join(NODE_FILE);
    let load = |file: &str| {
        std::fs::write(&path, file).expect("written");
        Config::load(&around(dir.path(), &[]), Flags::default())
    };
    let lent = load("").expect("sound").guests.value.lent(1 << 40);
    assert_eq!((lent.disk_bytes, lent.files, lent.task_percent, lent.client_percent), (None, None, 75, 90));
    let config = load("[guests]\ndisk_max = '25%'\nfiles_max = 5000\ntask_max = '50%'\n").expect("sound");
    assert_eq!(config.guests.source, Source::File(path.clone()));
    let lent = config.guests.value.lent(1 << 40);
    assert_eq!((lent.disk_bytes, lent.files, lent.task_percent), (Some((1 << 40) / 100 * 25), Some(5_000), 50));
    assert_eq!(load("[guests]\ndisk_max = '7G'\n").expect("sound").guests.value.lent(0).disk_bytes, Some(7 << 30));
    for (file, said) in [
        ("[guests]\ndisk_max = 'much'", "guests.disk_max = `much`: not a size such as 50G"),
        ("[guests]\ntask_max = '4G'", "guests.task_max = `4G`: not a part such as 75%"),
        ("[guests]\nprocesses_max = 3", "guests.processes_max = `3`: not a number from 100"),
        ("[guests]\ndisc_max = '7G'", "unknown field `disc_max`"),
    ] {
        let error = load(file).expect_err("a fault").message;
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_hub_from_file_or_environment() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = ClientFile { hub: vec!["a:1".into()], hub_key: Some(KEY.into()), ..ClientFile::default() };
    write(&dir.path().join(CLIENT_FILE), &file).expect("written");
    let config = Config::load(&around(dir.path(), &[]), Flags::default()).expect("sound");
    assert_eq!(config.client_hub.expect("a hub").value.addresses, ["a:1"]);
    assert_eq!(config.worker_hub, None);
    let config = Config::load(&around(dir.path(), &[("GLEANER_HUB", "b:2, c:3")]), Flags::default());
    assert!(config.expect_err("no key").message.contains("$GLEANER_HUB: a hub is given, but not its key"));
    let both = [("GLEANER_HUB", "b:2, c:3"), ("GLEANER_HUB_KEY", KEY)];
    let config = Config::load(&around(dir.path(), &both), Flags::default()).expect("sound");
    let hub = config.client_hub.expect("a hub");
    assert_eq!((hub.value.addresses.join(" ").as_str(), hub.source.to_string().as_str()), ("b:2 c:3", "$GLEANER_HUB"));
}

#[test]
fn whose_the_workers_are_is_kept_with_the_hubs_key() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = |trust: &str| {
        let (hub, hub_key, trust) = (vec!["a:1".into()], Some(KEY.into()), Some(trust.into()));
        write(&dir.path().join(CLIENT_FILE), &ClientFile { hub, hub_key, trust, ..ClientFile::default() })
    };
    file("own").expect("written");
    let load = |variables: &[(&str, &str)]| Config::load(&around(dir.path(), variables), Flags::default());
    let class = |variables: &[(&str, &str)]| load(variables).expect("sound").client_trust.map(|trust| trust.value);
    assert_eq!(class(&[]), Some(Trust::Own));
    assert_eq!(class(&[("GLEANER_TRUST", "site")]), Some(Trust::Site));
    let other = KEY.replace("00", "11");
    let at = |key| [("GLEANER_HUB", "b:2"), ("GLEANER_HUB_KEY", key)];
    assert_eq!(class(&at(&other)), None, "another hub's workers are not one's own for that");
    assert_eq!(class(&at(KEY)), Some(Trust::Own), "the same hub at another address");
    file("mine").expect("written");
    assert!(error(dir.path(), &[]).message.contains("trust = `mine`: not own, site or volunteer"));
}

#[test]
fn a_journal_in_a_database_is_shown_without_its_password() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let around = around(dir.path(), &[("GLEANER_JOURNAL", "postgres://hub:geheim@db/site?schema=two")]);
    let config = Config::load(&around, Flags::default()).expect("sound");
    let shown = format!("{:?} {config:?}", config.table());
    assert!(shown.contains("postgres://hub@db:5432/site?schema=two") && !shown.contains("geheim"), "{shown}");
    let fault = error(dir.path(), &[("GLEANER_JOURNAL", "postgres://hub:geheim@db:x/site")]);
    assert!(fault.message.starts_with("$GLEANER_JOURNAL: journal: ") && !fault.message.contains("geheim"), "{fault}");
}

#[test]
fn faults_name_file_key_and_remedy() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join(NODE_FILE);
    std::fs::write(&path, "cpus = 0\n").expect("written");
    let fault = error(dir.path(), &[]);
    assert_eq!(
        fault.message,
        format!("{}: cpus = `0`: not a number from 1 to 4096, or a part of all such as 50%", path.display())
    );
    assert_eq!(fault.exit_status(), 78);
    assert!(fault.hint.is_some());
    std::fs::write(&path, "cpu = 1\n").expect("written");
    let fault = error(dir.path(), &[]);
    assert!(fault.message.contains("node.toml") && fault.message.contains("unknown field `cpu`"), "{fault}");
    std::fs::write(&path, "").expect("written");
    let fault = error(dir.path(), &[("GLEANER_LISTEN", "nowhere")]);
    assert!(fault.message.starts_with("$GLEANER_LISTEN is `nowhere`"), "{fault}");
    let fault = error(dir.path(), &[("GLEANER_METRICS", "9433")]);
    assert!(fault.message.starts_with("$GLEANER_METRICS is `9433`: not an address and port"), "{fault}");
    std::fs::write(dir.path().join(CLIENT_FILE), "prefer = \"here\"\n").expect("written");
    assert!(error(dir.path(), &[]).message.contains("prefer = `here`: not auto or there"));
    std::fs::write(dir.path().join(CLIENT_FILE), "hub = [\"x\"]\n").expect("written");
    assert!(error(dir.path(), &[]).message.contains("hub = `x`"));
}

#[test]
fn tags_are_names_from_any_source() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let tags = ["gpu", "big"].map(str::to_owned).to_vec();
    write(&dir.path().join(NODE_FILE), &NodeFile { tags, ..NodeFile::default() }).expect("written");
    let load = |variables: &[(&str, &str)], tags: &[&str]| {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        Config::load(&around(dir.path(), variables), Flags { tags, ..Flags::default() })
    };
    let loaded = |variables: &[(&str, &str)], tags: &[&str]| load(variables, tags).expect("sound").tags.value.0;
    assert_eq!(loaded(&[], &[]), ["gpu", "big"]);
    assert_eq!(loaded(&[("GLEANER_TAGS", "a, b")], &[]), ["a", "b"]);
    assert_eq!(loaded(&[("GLEANER_TAGS", "a")], &["c"]), ["c"]);
    let wrong = load(&[], &["not one"]).expect_err("a space").message;
    assert!(wrong.contains("--tag not one: not at most 16 names"), "{wrong}");
}
