//! What trusted files of projects grant, and what environment and scripts name.

use super::*;

/// A project whose file grants these.
fn granting(write: &[&str], read: &[&str]) -> Scope {
    let mut scope = scope("/home/u", 1000, "/home/u/proj/src", "make", &[]);
    let (root, home) = (path("/home/u/proj"), path("/home/u"));
    let patterns = |list: &[&str]| list.iter().map(|text| Pattern::parse(text, &root, Some(&home)).unwrap()).collect();
    scope.granted = Granted { write: patterns(write), read: patterns(read), network: false };
    scope
}

#[test]
fn a_trusted_file_grants_what_it_names() {
    let policy =
        WritePolicy::new(granting(&["~/.bashrc", "~/.local/share/tool/**", "/srv/www/*.html"], &[]), Vec::new());
    for (text, want) in [
        ("/home/u/.bashrc", Becomes::Kept),
        ("/home/u/.local/share/tool/a/b", Becomes::Kept),
        ("/srv/www/index.html", Becomes::Kept),
        ("/srv/www/index.php", Becomes::Refused),
        ("/home/u/.profile", Becomes::Refused),
        ("/home/u/.local/share/other", Becomes::Refused),
    ] {
        assert_eq!(becomes(&policy, text, &OWN), want, "{text}");
    }
    let directory = WriteFacts { directory: true, ..NEW };
    assert_eq!(
        becomes(&policy, "/home/u/.local/share", &directory),
        Becomes::Kept,
        "made on the way to what is granted"
    );
    assert_eq!(becomes(&policy, "/home/u/.bashrc", &WriteFacts { may_write: false, ..OWN }), Becomes::Refused);
    let cache = WritePolicy::new(granting(&["~/.cache/ours"], &[]), Vec::new());
    assert_eq!(becomes(&cache, "/home/u/.cache/ours/x", &NEW), Becomes::Kept, "what was dropped otherwise");
    assert_eq!(becomes(&cache, "/home/u/.cache/theirs/x", &NEW), Becomes::Dropped);
}

#[test]
fn no_file_grants_secrets_nor_what_runs_later() {
    let wide = ["~/*", "~/.*", "**", "/etc", "/run", "/root", "/home/v"];
    let policy = WritePolicy::new(granting(&wide, &wide), Vec::new());
    for refused in [
        "/home/u/.ssh/authorized_keys",
        "/home/u/.ssh",
        "/home/u/.config/gh/hosts.yml",
        "/home/u/dotfiles/netrc",
        "/home/u/sub/.netrc",
        "/home/v/.ssh/config",
        "/root/.aws/credentials",
        "/etc/shadow",
        "/etc/sudoers.d/x",
        "/home/u/proj/.git/hooks/pre-commit",
        "/home/u/proj/.git/config",
        "/home/u/other/.GIT/config",
        "/home/u/proj/.gleaner.toml",
        "/home/u/other/.envrc",
        "/run/systemd/system/x.service",
    ] {
        assert_eq!(becomes(&policy, refused, &OWN), Becomes::Refused, "{refused}");
    }
    // Neither does it open them to be read.
    let read = ReadPolicy::new(granting(&wide, &wide));
    for secret in ["/home/u/.ssh/id_rsa", "/home/u/dotfiles/netrc", "/home/u/.config/gh/hosts.yml"] {
        assert_eq!(sees(&read, secret), Sees::Nothing, "{secret}");
    }
}

#[test]
fn what_a_file_may_grant_is_said_and_nothing_else() {
    let policy = WritePolicy::new(granting(&[], &[]), Vec::new());
    let may_be = |text: &str| match policy.decide(&path(text), &OWN) {
        WriteDecision::Refuse(why) => {
            policy.may_be_granted(&path(text), why.strip_prefix(&format!("{text} ")).unwrap())
        }
        other => panic!("{text}: {other:?}"),
    };
    assert!(may_be("/home/u/.bashrc") && may_be("/home/u/notes") && may_be("/srv/x"));
    for never in ["/home/u/.ssh/x", "/home/u/dotfiles/netrc", "/home/u/proj/.git/hooks/x", "/home/u", "/home"] {
        assert!(!may_be(never), "{never}");
    }
    let nowhere = WritePolicy::new(scope("/home/u", 1000, "/home/u", "make", &[]), Vec::new());
    assert!(!nowhere.may_be_granted(&path("/home/u/.bashrc"), "is outside the write policy"), "there is no project");
}

#[test]
fn a_trusted_file_opens_what_it_names_to_be_read() {
    let read = ReadPolicy::new(granting(&[], &["~/data/*/in"]));
    assert_eq!(sees(&read, "/home/u/data/a/in/x"), Sees::All);
    assert_eq!(sees(&read, "/home/u/data/"), Sees::Way);
    assert_eq!(sees(&read, "/home/u/data/a/"), Sees::Way);
    assert_eq!(sees(&read, "/home/u/data/a/out"), Sees::Nothing);
    let without = ReadPolicy::new(granting(&[], &[])).fingerprint();
    assert_ne!(read.fingerprint(), without, "tasks of the two share no view");
}

#[test]
fn a_projects_root_is_found() {
    struct Tree;
    impl Lookup for Tree {
        fn has_any(&self, directory: &TreePath, names: &[&str]) -> bool {
            let there = [
                ("/w/repo", ".git"),
                ("/w/repo/sub", PROJECT_FILE),
                ("/w/plain", PROJECT_FILE),
                ("/tmp", ".git"),
                ("/w/crates", "Cargo.toml"),
                ("/w/crates/a/b", "Cargo.toml"),
                ("/tmp", "Cargo.toml"),
                ("/w/repo/sub/x", "Cargo.toml"),
            ];
            there.iter().any(|(at, name)| at.as_bytes() == directory.as_bytes() && names.contains(name))
        }
        fn physical(&self, path: &TreePath) -> Option<TreePath> {
            Some(path.clone())
        }
        fn links_to(&self, _path: &TreePath) -> Vec<TreePath> {
            Vec::new()
        }
        fn text(&self, _path: &TreePath) -> Option<Vec<u8>> {
            None
        }
        fn names(&self, _directory: &TreePath) -> Vec<Vec<u8>> {
            Vec::new()
        }
        fn secrets(&self, _home: &TreePath) -> Vec<TreePath> {
            Vec::new()
        }
        fn may_be_closed(&self, _path: &TreePath) -> bool {
            false
        }
    }
    for (cwd, root) in [
        ("/w/repo/sub/x", "/w/repo"),
        ("/w/plain/a/b", "/w/plain"),
        ("/w/other", "/w/other"),
        ("/tmp/x", "/tmp/x"),
        ("/w/crates/a/b/src", "/w/crates"),
    ] {
        let project = project_of(&path(cwd), None, &Tree).expect("a project");
        assert_eq!(project.root, path(root), "{cwd}");
    }
}

#[test]
fn what_the_environment_puts_elsewhere_is_what_it_is_for() {
    let env =
        ["TMPDIR=/home/u/.tmp", "CARGO_TARGET_DIR=/data/target", "CCACHE_DIR=/data/ccache", "CARGO_HOME=/data/cargo"];
    let policy = WritePolicy::new(scope("/home/u", 1000, "/home/u/proj", "cargo build", &env), Vec::new());
    for (text, facts, want) in [
        ("/home/u/.tmp/cc1.s", &NEW, Becomes::Kept),
        ("/home/u/.tmp/theirs", &WriteFacts { owner: Some(0), ..NEW }, Becomes::Refused),
        ("/data/target/debug/x", &OWN, Becomes::Kept),
        ("/data/target", &WriteFacts { directory: true, ..NEW }, Becomes::Kept),
        ("/data", &WriteFacts { directory: true, ..NEW }, Becomes::Kept),
        ("/data/ccache/0/1", &NEW, Becomes::Dropped),
        ("/data/cargo/registry/x", &NEW, Becomes::Dropped),
        ("/data/cargo/bin/x", &NEW, Becomes::Refused),
        ("/data/target/.git/hooks/x", &NEW, Becomes::Refused),
        ("/home/u/.tmp/.ssh/x", &NEW, Becomes::Refused),
    ] {
        assert_eq!(becomes(&policy, text, facts), want, "{text}");
    }
    let home = WritePolicy::new(
        scope("/home/u", 1000, "/home/u/proj", "make", &["TMPDIR=/home/u", "CCACHE_DIR=/"]),
        Vec::new(),
    );
    assert_eq!(becomes(&home, "/home/u/notes", &NEW), Becomes::Refused, "a home is no such place");
    assert_eq!(becomes(&home, "/srv/x", &NEW), Becomes::Refused);
    let cache = WritePolicy::new(scope("/home/u", 1000, "/home/u/proj", "make", &["CCACHE_DIR=/data/a/b"]), Vec::new());
    assert_eq!(becomes(&cache, "/data/a", &WriteFacts { directory: true, ..NEW }), Becomes::Dropped);
    assert_eq!(becomes(&cache, "/data/a", &NEW), Becomes::Refused, "a file");
}

#[test]
fn what_scripts_name_is_as_good_as_arguments() {
    let argv =
        ["sh", "-c", "gcc -o ~/Videos/x a.c; echo >> ~/.bashrc; cat $HOME/notes"].map(|word| word.as_bytes().to_vec());
    let (home, cwd) = (path("/home/u"), path("/home/u/proj"));
    let trust = Trust::Others;
    let input = ScopeInput { home: Some(&home), uid: 1000, cwd: &cwd, argv: &argv, env: &[], program: &[], trust };
    let scope = Scope::new(&input, &Marked { roots: &["/home/u/proj"], secrets: &[] });
    let policy = WritePolicy::new(scope.clone(), Vec::new());
    assert_eq!(becomes(&policy, "/home/u/Videos/x", &OWN), Becomes::Kept);
    assert_eq!(becomes(&policy, "/home/u/.bashrc", &OWN), Becomes::Refused, "dot-files are not");
    assert_eq!(becomes(&policy, "/home/u/Videos/y", &OWN), Becomes::Refused);
    assert_eq!(sees(&ReadPolicy::new(scope), "/home/u/notes"), Sees::All);
}
