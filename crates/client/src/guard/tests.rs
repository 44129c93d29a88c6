//! Ways to hooks and settings that do not look like such, tried one by one.

mod everyday;
mod ways;

use crate::commit::WriteDecision;
use crate::policy::testing::Marked;
use crate::policy::{Pattern, Scope, ScopeInput, Trust};
use crate::write_rules::{Directories, WriteRules};
use base::delta::FileChange;
use base::{Action, Attr, Base, Change, Content, Delta, Seq, TreePath};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// A home with a project `p`, in which a script has run.
fn project(script: &str) -> (tempfile::TempDir, TreePath, WriteRules) {
    project_with(script, &[])
}

/// The same where the project's file grants these.
fn project_with(script: &str, grants: &[&str]) -> (tempfile::TempDir, TreePath, WriteRules) {
    let folder = tempfile::tempdir().expect("a folder");
    let home = folder.path().canonicalize().expect("is there").join("u");
    std::fs::create_dir_all(home.join("p")).expect("made");
    let text = format!("set -e; mkdir -p .git/hooks; echo ref > .git/HEAD; {script}");
    let done = Command::new("sh").args(["-c", &text]).current_dir(home.join("p")).env("HOME", &home).status();
    assert!(done.expect("runs").success(), "{script}");
    let path = |at: &Path| TreePath::parse(at.as_os_str().as_encoded_bytes()).expect("a path");
    let (home, root) = (path(&home), path(&home.join("p")));
    let argv = [b"make".to_vec()];
    let uid = rustix::process::geteuid().as_raw();
    let input =
        ScopeInput { home: Some(&home), uid, cwd: &root, argv: &argv, env: &[], program: &[], trust: Trust::Own };
    let mut scope = Scope::new(&input, &Marked { roots: &[&root.to_string()], secrets: &[] });
    let pattern = |text: &&str| Pattern::parse(text, &root, Some(&home)).expect("a pattern");
    scope.granted.write = grants.iter().map(pattern).collect();
    let rules = WriteRules::new(scope, Vec::new(), Arc::default());
    (folder, root, rules)
}

fn file() -> Action {
    let (attr, content) = (Attr::default(), Content::Empty);
    Action::File { attr, xattrs: Vec::new(), content, change: FileChange::Written }
}

/// Who keeps settings under version control has links to them in the home.
#[test]
fn what_dot_files_lead_to_is_guarded() {
    let links = "mkdir -p ssh vim ~/.config; echo x > bashrc; ln -s p/bashrc ~/.bashrc; ln -s ../p/vim ~/.config/nvim; \
                 ln -s p/zshrc ~/.zshrc; ln -s p ~/.dotfiles; ln -s p/tools ~/bin; mkdir tools; echo x > plain";
    for (at, is_let_through) in [
        ("bashrc", false),
        ("vim/init.lua", false),
        ("zshrc", false),
        ("tools/ls", false),
        ("plain", true),
        ("new", true),
    ] {
        let (_folder, root, rules) = project(links);
        let path = root.resolve(at.as_bytes()).expect("a path");
        let delta = Delta { changes: vec![Change { path: path.clone(), base: Base::Absent, action: file() }] };
        let decision = rules.decide(&path, &Directories::of(&delta));
        assert_eq!(decision == WriteDecision::Commit, is_let_through, "{at}: {decision:?}");
    }
}

#[test]
fn what_decides_in_a_folder_goes_with_it() {
    let (_folder, root, rules) = project(
        "mkdir -p clone/.git/hooks node_modules/a; echo x > clone/.git/config; echo x > node_modules/a/.travis.yml",
    );
    let decides = |paths: &[&str], at: &str| {
        let removed = |at: &&str| Change {
            path: root.resolve(at.as_bytes()).expect("a path"),
            base: Base::Bound(Seq(1)),
            action: Action::Remove,
        };
        let delta = Delta { changes: paths.iter().map(removed).collect() };
        rules.decide(&root.resolve(at.as_bytes()).expect("a path"), &Directories::of(&delta)) == WriteDecision::Commit
    };
    let all = ["clone", "clone/.git", "clone/.git/config", "clone/.git/hooks"];
    assert!(all.iter().all(|at| decides(&all, at)));
    assert!(!decides(&["clone/.git/config"], "clone/.git/config"));
    assert!(decides(&["node_modules/a/.travis.yml"], "node_modules/a/.travis.yml"), "nobody runs it there");
}

/// A project's file grants no way around the guard either.
#[test]
fn what_is_granted_is_guarded_all_the_same() {
    for (script, at, is_let_through) in [
        ("mkdir ~/out; echo x > .git/hooks/pre-commit; ln .git/hooks/pre-commit ~/out/second", "../out/second", false),
        ("mkdir ~/out; rmdir .git/hooks; ln -s ~/out .git/hooks", "../out/pre-commit", false),
        ("mkdir -p ~/out/repo/.git", "../out/repo/.git/config", false),
        ("mkdir ~/out", "../out/.gleaner.toml", false),
        ("mkdir ~/out; ln .git/HEAD .gleaner.toml; ln .gleaner.toml ~/out/second", "../out/second", false),
        ("mkdir ~/out", "../out/plain", true),
    ] {
        let (_folder, root, rules) = project_with(script, &["~/out"]);
        let path = root.resolve(at.as_bytes()).expect("a path");
        let delta = Delta { changes: vec![Change { path: path.clone(), base: Base::Bound(Seq(1)), action: file() }] };
        let decision = rules.decide(&path, &Directories::of(&delta));
        assert_eq!(decision == WriteDecision::Commit, is_let_through, "{script}: {at}: {decision:?}");
    }
}

/// Whether such a change at `at` of the project that `script` makes is let through.
fn passes(script: &str, at: &str, action: impl FnOnce(&TreePath) -> Action) -> bool {
    let (_folder, root, rules) = project(script);
    let path = root.resolve(at.as_bytes()).expect("a path");
    let delta =
        Delta { changes: vec![Change { path: path.clone(), base: Base::Bound(Seq(1)), action: action(&root) }] };
    rules.decide(&path, &Directories::of(&delta)) == WriteDecision::Commit
}

#[test]
fn no_way_leads_to_what_decides_later() {
    let ways = [
        (":", ".git/hooks/pre-commit"),
        (":", ".GIT/Hooks/pre-commit"),
        (":", ".git/hoo\u{212a}s/pre-commit"),
        (":", ".g\u{200d}it/config"),
        (":", "GIT~1/config"),
        (":", ".git/config.worktree"),
        (":", ".hg/sharedpath"),
        (":", "sub/.jj/repo/config.toml"),
        (":", "sub/.Mise.toml"),
        (":", ".zed/tasks.json"),
        (":", "a/b/.dir-locals.el"),
        (":", "lefthook.yml"),
        (":", ".mcp.json"),
        (":", ".yarn/releases/yarn-4.cjs"),
        (":", "BuildSpec.yml"),
        ("ln -s none a.json; mkdir -p deep/er; ln -s ../../a.json deep/er/.mcp.json", "none"),
        ("mkdir -p .git/worktrees/w; echo ../.. > .git/worktrees/w/commondir", ".git/worktrees/w/commondir"),
        ("mkdir conf; ln -s conf .cargo", "conf/config.toml"),
        ("mkdir -p a/conf; ln -s conf a/.cargo", "a/conf/config.toml"),
        ("mkdir -p a conf; ln -s ../conf a/.cargo", "conf/config.toml"),
        ("mkdir -p a/b/c conf; ln -s ../../../conf a/b/c/.cargo", "conf/config.toml"),
        ("mkdir -p a/b/c/.cargo conf; ln -s ../../../../conf/x a/b/c/.cargo/config.toml", "conf/x"),
        ("mkdir conf; ln -s conf/none .cargo", "conf/none/config.toml"),
        ("ln -s none .envrc", "none"),
        ("ln -s a .envrc; ln -s none a", "none"),
        ("mkdir -p a/b; echo x > env; ln -s ../../env a/b/.envrc", "env"),
        ("mkdir -p a/b data/hooks; echo 'gitdir: ../../data' > a/b/.git", "data/hooks/pre-push"),
        ("mkdir tools; rmdir .git/hooks; ln -s ../tools .git/hooks", "tools/pre-commit"),
        ("mkdir tools; echo x > tools/x; ln -s ../../tools/x .git/hooks/pre-commit", "tools/x"),
        ("echo x > .git/hooks/pre-commit; ln .git/hooks/pre-commit second", "second"),
        ("echo x > .git/config; ln .git/config second", "second"),
        ("echo x > other; ln -s other .envrc", "other"),
        ("mv .git data; echo 'gitdir: data' > .git", "data/hooks/pre-commit"),
        ("mv .git data; echo 'gitdir: data' > .git", "data/config"),
        ("mv .git data; ln -s data .git", "data/config"),
        ("mkdir -p sub data/hooks; echo 'gitdir: ../data' > sub/.git", "data/hooks/pre-push"),
        ("mkdir -p common/hooks; echo ../common > .git/commondir", "common/hooks/pre-commit"),
        ("mkdir -p common; echo ../common > .git/commondir", "common/config"),
        ("mkdir tools; printf '[core]\\n\\thooksPath = tools\\n' > .git/config", "tools/pre-commit"),
        ("mkdir tools; printf '[core] hookspath=\"tools\"\\n' > .git/config", "tools/pre-commit"),
        ("mkdir tools; printf '[core]\\nhooksPath = tools ; ours\\n' > .git/config", "tools/pre-commit"),
        ("mkdir tools; printf '[core]\\nhooksPath = to\\\\\\nols\\n' > .git/config", "tools/pre-commit"),
        ("printf '[core]\\nhooksPath = .\\n' > .git/config", "pre-commit"),
        ("echo x > post-merge; printf '[core]\\nhooksPath = ./\\n' > .git/config", "post-merge"),
        ("mkdir r r/common; echo x > r/HEAD; echo common > r/commondir", "r/common/config"),
        ("mkdir tools; printf '[core]\\nhooksPath = tools\\n' > ~/.gitconfig", "tools/pre-commit"),
        ("mkdir -p r.git/objects r.git/refs r.git/hooks; echo x > r.git/HEAD", "r.git/hooks/post-receive"),
        ("mkdir -p r.git/objects r.git/refs; echo x > r.git/HEAD", "r.git/config"),
        ("mkdir -p a/b/r/objects a/b/r/refs; echo x > a/b/r/HEAD", "a/b/r/hooks/pre-push"),
        ("echo x > more; printf '[include]\\npath = ../more\\n' > .git/config", "more"),
        (
            "mkdir tools; printf '[include]\\npath=x\\n' > .git/config; printf '[core]\\nhooksPath=tools' > .git/x",
            "tools/x",
        ),
    ];
    for (script, at) in ways {
        assert!(!passes(script, at, |_| file()), "{script}: {at}");
    }
}

/// By another name, in the project, all of it could be read elsewhere.
#[test]
fn what_may_not_be_read_gets_no_other_name() {
    let script = "mkdir -p ~/.cache/huggingface ~/.ssh ~/data/in; echo t > ~/.cache/huggingface/token; echo k > ~/.ssh/id; \
                  echo x > ~/data/x; ln -s ~/.ssh ~/data/in/link; echo y > y";
    for (from, is_let_through) in [
        ("../.cache/huggingface/token", false),
        ("../.ssh/id", false),
        ("../.cache", false),
        ("y", true),
        ("../data/x", true),
    ] {
        let (_folder, root, rules) = project_with(script, &["~/data"]);
        let source = root.resolve(from.as_bytes()).expect("a path");
        for action in [Action::HardLink { to: source.clone() }, Action::Rename { from: source.clone() }] {
            let delta = Delta { changes: vec![Change { path: root.join(b"z"), base: Base::Absent, action }] };
            let decision = rules.decide(&source, &Directories::of(&delta));
            let is_refused = matches!(decision, WriteDecision::Refuse(_));
            assert_eq!(!is_refused, is_let_through, "{from}: {decision:?}");
        }
    }
}

#[test]
fn no_way_is_made() {
    let link = |_: &TreePath| Action::Symlink { attr: Attr::default(), target: b"evil".to_vec() };
    let other_name = |root: &TreePath| Action::HardLink { to: root.join(b"evil") };
    let moved = |root: &TreePath| Action::Rename { from: root.join(b"evil") };
    for at in [".git", ".cargo", ".github", ".hg", "sub/.git", ".GIT", "sub/.Cargo"] {
        let script = "mkdir -p evil/hooks sub";
        assert!(!passes(script, at, link), "a link at {at}");
        assert!(!passes(script, at, other_name), "another name at {at}");
        assert!(!passes(script, at, moved), "a folder at {at}");
        assert!(!passes(script, at, |_| file()), "a file at {at}");
    }
    assert!(!passes("mkdir -p evil/hooks .git/modules", ".git/modules/a", moved), "a folder in the repository");
    assert!(!passes("mkdir -p evil .git/info", ".git/info", moved), "a folder in the repository");
    assert!(!passes("mkdir conf evil; ln -s conf .cargo", "conf", moved), "a folder where a link leads");
    assert!(!passes("mkdir conf evil; ln -s conf .cargo", "conf", link), "a link where a link leads");
}

/// Git goes by what is there: settings that came as any file come to count when the rest of a repository comes.
#[test]
fn no_repository_is_made() {
    let folder = |_: &TreePath| Action::Directory { attr: Attr::default(), xattrs: Vec::new(), replaces: false };
    let elsewhere = |_: &TreePath| Action::Symlink { attr: Attr::default(), target: b"../o".to_vec() };
    for (script, at, is_let_through) in [
        ("mkdir -p r/objects r/refs; echo x > r/config", "r/HEAD", false),
        ("mkdir -p r; echo common > r/commondir", "r/HEAD", false),
        ("mkdir -p r/objects", "r/HEAD", true),
        ("mkdir -p r/objects r/refs; echo x > r/HEAD", "r/HEAD", true),
    ] {
        assert_eq!(passes(script, at, |_| file()), is_let_through, "{script}: {at}");
    }
    assert!(!passes("mkdir -p r/objects; echo x > r/HEAD", "r/refs", folder));
    assert!(!passes("mkdir -p o r/refs; echo x > r/HEAD", "r/objects", elsewhere));
    let (_folder, root, rules) = project(":");
    let new = |name: &str, action| {
        let path = root.resolve(name.as_bytes()).expect("a path");
        Change { path, base: Base::Absent, action }
    };
    let is_refused = |changes: Vec<Change>| {
        let delta = Delta { changes };
        let directories = Directories::of(&delta);
        delta.changes.iter().any(|change| rules.decide(&change.path, &directories) != WriteDecision::Commit)
    };
    let parts = ["r", "r/objects", "r/refs"].map(|name| new(name, folder(&root)));
    assert!(!is_refused(parts.to_vec()));
    for head in ["r/HEAD", "r/head"] {
        assert!(is_refused([&parts[..], &[new(head, file())]].concat()), "all at once");
    }
    let made = |name: &str| std::fs::create_dir_all(format!("{root}/{name}")).expect("made");
    ["some/objects", "some/sub"].into_iter().for_each(made);
    std::fs::write(format!("{root}/some/HEAD"), "x").expect("written");
    let moved = |from: &str| new("r", Action::Rename { from: root.join(from.as_bytes()) });
    assert!(is_refused(vec![moved("some"), new("r/refs", folder(&root))]), "what was begun elsewhere");
    assert!(!is_refused(vec![moved("some"), new("r/other", folder(&root))]));
}

#[test]
fn what_builds_and_commits_do_is_let_through() {
    let bare = "mkdir -p r.git/objects r.git/refs r.git/hooks; echo x > r.git/HEAD";
    for at in ["r.git/objects/ab/cdef", "r.git/refs/heads/config", "r.git/packed-refs", "r.git/HEAD"] {
        assert!(passes(bare, at, |_| file()), "{at}");
    }
    for at in [
        ".git/index",
        ".git/COMMIT_EDITMSG",
        ".git/refs/heads/hooks/x",
        ".git/objects/ab/cdef",
        ".git/logs/HEAD",
        "target/debug/build/x",
        "Makefile",
        "config",
        "hooks/x",
        "src/config.toml",
        "B\u{fc}ro/KELVIN",
    ] {
        assert!(
            passes("mkdir -p src hooks target .git/objects .cargo; echo x > .cargo/config.toml", at, |_| file()),
            "{at}"
        );
    }
    let folder = |_: &TreePath| Action::Directory { attr: Attr::default(), xattrs: Vec::new(), replaces: false };
    assert!(passes(":", ".git", folder), "its time, as with each commit");
    assert!(passes("mkdir a", "b", |root| Action::Rename { from: root.join(b"a") }));
    assert!(passes("echo x > .git/index.lock", ".git/index", |root| Action::Rename {
        from: root.join(b".git").join(b"index.lock")
    }));
    assert!(passes("mkdir conf; ln -s conf .cargo", "conf/other", |_| file()), "beside the settings");
}

/// Among tests a secret is lent, and by another name some are not known for what they are.
#[test]
fn a_secret_of_the_project_gets_no_other_name_either() {
    let key = "printf -- '-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\\n-----END \
               PRIVATE KEY-----\\n' > own.key";
    let script = format!(
        "{key}; mkdir -p conf tests src; cp own.key conf/; echo DB_PASSWORD=hunter22x > .env; chmod 600 .env own.key; \
         echo x > plain; echo y > src/a.c; cp own.key tests/known.key"
    );
    for (from, to, is_let_through) in [
        ("own.key", "tests/own.key", false),
        ("own.key", "other", false),
        (".env", "notes", false),
        ("conf", "tests/conf", false),
        ("conf", "settings", true),
        ("src", "tests/src", true),
        ("plain", "tests/plain", true),
        ("tests", "spec", true),
    ] {
        let (_folder, root, rules) = project(&script);
        let [from, to] = [from, to].map(|at| root.resolve(at.as_bytes()).expect("a path"));
        let is_folder = std::fs::metadata(from.to_string()).expect("is there").is_dir();
        let again = Action::HardLink { to: from.clone() };
        let moved = Action::Rename { from: from.clone() };
        for action in [Some(again).filter(|_| !is_folder), Some(moved)].into_iter().flatten() {
            let delta = Delta { changes: vec![Change { path: to.clone(), base: Base::Absent, action }] };
            let decision = rules.decide(&from, &Directories::of(&delta));
            assert_eq!(decision == WriteDecision::Commit, is_let_through, "{from} to {to}: {decision:?}");
        }
    }
    for (at, mode, is_let_through) in
        [("own.key", 0o644, false), ("own.key", 0o700, true), ("plain", 0o644, true), ("conf/own.key", 0o644, true)]
    {
        let action = |_: &TreePath| {
            let (attr, content, change) = (Attr { mode, ..Attr::default() }, Content::Empty, FileChange::Attributes);
            Action::File { attr, xattrs: Vec::new(), content, change }
        };
        let script = format!("{script}; chmod 644 conf/own.key");
        assert_eq!(passes(&script, at, action), is_let_through, "{at} {mode:o}");
    }
}
