//! What links of a result open to the next command: nothing.

use super::*;
use crate::snapshot::disk::walk_by;

/// A file system with these links, in which some folders have a mark of a project or of an environment.
struct Linked {
    links: &'static [(&'static str, &'static str)],
    marked: &'static [&'static str],
    /// The links are the user's own.
    are_own: bool,
}

impl Linked {
    fn target_of(&self, path: &TreePath) -> Option<Vec<u8>> {
        let found = self.links.iter().find(|(at, _)| at.as_bytes() == path.as_bytes());
        found.map(|(_, target)| target.as_bytes().to_vec())
    }
}

impl Lookup for Linked {
    fn has_any(&self, directory: &TreePath, names: &[&str]) -> bool {
        let has = |name: &&str| self.marked.contains(&format!("{directory}/{name}").as_str());
        names.iter().any(has)
    }
    fn physical(&self, path: &TreePath) -> Option<TreePath> {
        walk_by(path, &mut |_| {}, &mut |at| self.target_of(at))
    }
    fn links_to(&self, path: &TreePath) -> Vec<TreePath> {
        let mut links = Vec::new();
        walk_by(path, &mut |_| {}, &mut |at| {
            let target = self.target_of(at);
            links.extend(target.is_some().then(|| at.clone()));
            target
        });
        links
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
        true
    }
    fn may_be_of_result(&self, _path: &TreePath) -> bool {
        !self.are_own
    }
}

/// What becomes of a change at `text`, of a command in `/home/u/w/p` where these links are.
fn with_links(links: &'static [(&'static str, &'static str)], argv: &str, env: &[&str], text: &str) -> Becomes {
    with(links, false, argv, env, text)
}

fn with(
    links: &'static [(&'static str, &'static str)],
    are_own: bool,
    argv: &str,
    env: &[&str],
    text: &str,
) -> Becomes {
    let marked = &[
        "/home/u/w/p/.git",
        "/home/u/envs/x/pyvenv.cfg",
        "/home/u/.pyenv/versions/x/pyvenv.cfg",
        "/home/u/.pyenv/versions/3.12/envs/x/pyvenv.cfg",
        "/home/u/w/p/env/pyvenv.cfg",
    ];
    let argv: Vec<Vec<u8>> = argv.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let env: Vec<Vec<u8>> = env.iter().map(|entry| entry.as_bytes().to_vec()).collect();
    let (home, cwd, trust) = (path("/home/u"), path("/home/u/w/p"), Trust::Others);
    let input = ScopeInput { home: Some(&home), uid: 1000, cwd: &cwd, argv: &argv, env: &env, program: &[], trust };
    let policy = WritePolicy::new(Scope::new(&input, &Linked { links, marked, are_own }), Vec::new());
    becomes(&policy, text, &OWN)
}

#[test]
fn a_link_that_a_result_can_have_made_opens_nothing() {
    for (links, argv, env, text) in [
        // The environment, which is none.
        (
            &[("/home/u/w/p/.venv", "/home/u/.config")][..],
            "pip x",
            &["VIRTUAL_ENV=/home/u/w/p/.venv"][..],
            "/home/u/.config/autostart/x.desktop",
        ),
        (&[("/home/u/w/p/.venv", "../../envs/x")], "pip x", &["VIRTUAL_ENV=/home/u/w/p/.venv"], "/home/u/envs/x/bin/y"),
        (&[("/home/u/envs/y", "/home/u/docs")], "pip x", &["VIRTUAL_ENV=/home/u/envs/y"], "/home/u/docs/y"),
        (
            &[("/home/u/envs/y", "/home/u/.pyenv/versions/x")],
            "pip x",
            &["VIRTUAL_ENV=/home/u/envs/y"],
            "/home/u/.pyenv/versions/x/bin/y",
        ),
        (
            &[("/home/u/envs/x/lib", "/home/u/docs")],
            "pip /home/u/envs/x/lib/y",
            &["VIRTUAL_ENV=/home/u/envs/x"],
            "/home/u/docs/y",
        ),
        (&[("/home/u/w/p/.venv", "../../envs/x")], "/home/u/w/p/.venv/bin/python x", &[], "/home/u/envs/x/bin/y"),
        // Where what is built goes.
        (
            &[("/home/u/w/p/target", "/home/u/.config")],
            "cargo x",
            &["CARGO_TARGET_DIR=/home/u/w/p/target"],
            "/home/u/.config/autostart/x",
        ),
        (
            &[("/data/target", "/home/u/.config")],
            "cargo x",
            &["CARGO_TARGET_DIR=/data/target"],
            "/home/u/.config/autostart/x",
        ),
        (&[("/home/u/w/p/tmp", "/home/u/docs")], "cargo x", &["TMPDIR=/home/u/w/p/tmp"], "/home/u/docs/x"),
        // What is named.
        (&[("/home/u/w/p/sub", "..")], "make -C sub", &[], "/home/u/w/q/x"),
        (&[("/home/u/w/p/sub", "/home/u/docs")], "cp x sub/y", &[], "/home/u/docs/y"),
        (&[("/home/u/w/p/sub", "/home/u/docs")], "sh -c cat>~/w/p/sub/y", &[], "/home/u/docs/y"),
        (&[("/tmp/l", "/home/u/docs")], "cp x /tmp/l/y", &[], "/home/u/docs/y"),
        (&[("/mnt/l", "/home/u/w/p/k"), ("/home/u/w/p/k", "/home/u/docs")], "cp x /mnt/l/y", &[], "/home/u/docs/y"),
    ] {
        assert_eq!(with_links(links, argv, env, text), Becomes::Refused, "{links:?} {argv} {env:?}");
    }
}

#[test]
fn links_of_ones_own_are_followed() {
    for (links, argv, env, text) in [
        (&[("/home/u/w/p/.venv", "env")][..], "pip x", &["VIRTUAL_ENV=/home/u/w/p/.venv"][..], "/home/u/w/p/env/lib/x"),
        (&[("/home/u/envs/y", "x")], "pip x", &["VIRTUAL_ENV=/home/u/envs/y"], "/home/u/envs/x/lib/y"),
        (
            &[("/home/u/.pyenv/versions/x", "/home/u/.pyenv/versions/3.12/envs/x")],
            "pip x",
            &["VIRTUAL_ENV=/home/u/.pyenv/versions/x"],
            "/home/u/.pyenv/versions/3.12/envs/x/lib/y",
        ),
        (
            &[("/home/u/envs/x/lib64", "lib")],
            "cp x /home/u/envs/x/lib64/y",
            &["VIRTUAL_ENV=/home/u/envs/x"],
            "/home/u/envs/x/lib/y",
        ),
        (&[("/data", "/mnt/disk/data")], "cargo x", &["CARGO_TARGET_DIR=/data/target"], "/mnt/disk/data/target/x"),
        (&[("/home/u/Videos", "/mnt/disk")], "cp x /home/u/Videos/y", &[], "/mnt/disk/y"),
        (&[("/home/u/w/p/latest", "build/1")], "cp x latest/y", &[], "/home/u/w/p/build/1/y"),
    ] {
        assert_eq!(with_links(links, argv, env, text), Becomes::Kept, "{links:?} {argv} {env:?}");
    }
}

#[test]
fn a_link_of_the_user_s_own_leads_where_it_leads_also_out_of_the_project() {
    for (links, argv, env, text) in [
        (
            &[("/home/u/w/p/.venv", "../../envs/x")][..],
            "pip x",
            &["VIRTUAL_ENV=/home/u/w/p/.venv"][..],
            "/home/u/envs/x/bin/y",
        ),
        (&[("/home/u/w/p/data", "/mnt/data")], "cp x data/y", &[], "/mnt/data/y"),
        (&[("/home/u/w/p/out", "/home/u/docs")], "cc -o out/y x.c", &[], "/home/u/docs/y"),
    ] {
        assert_eq!(with(links, true, argv, env, text), Becomes::Kept, "{links:?} {argv}");
        assert_eq!(with(links, false, argv, env, text), Becomes::Refused, "{links:?} {argv}");
    }
    let settings = &[("/home/u/w/p/.venv", "/home/u/.config")];
    let text = "/home/u/.config/autostart/x";
    assert_eq!(with(settings, true, "pip x", &["VIRTUAL_ENV=/home/u/w/p/.venv"], text), Becomes::Refused);
}
