//! Results that say they remove what they replace, and results that bend the way to what is guarded.

use super::*;

/// Changes as tasks make them, of paths relative to the project.
enum Does {
    Removes(&'static str),
    Makes(&'static str),
    Writes(&'static str),
    /// And the folder that was there is gone.
    Replaces(&'static str),
    Links(&'static str, &'static str),
    Moves(&'static str, &'static str),
    LastWrites(&'static str),
    /// The second is another name of the first.
    Names(&'static str, &'static str),
}
use Does::*;

fn change(root: &TreePath, does: &Does) -> Change {
    let at = |text: &str| root.resolve(text.as_bytes()).expect("a path");
    let folder = |replaces| Action::Directory { attr: Attr::default(), xattrs: Vec::new(), replaces };
    let (path, action) = match does {
        Removes(path) => (path, Action::Remove),
        Makes(path) => (path, folder(false)),
        Writes(path) => (path, file()),
        Replaces(path) => (path, folder(true)),
        Links(path, target) => (path, Action::Symlink { attr: Attr::default(), target: target.as_bytes().to_vec() }),
        Moves(from, path) => (path, Action::Rename { from: at(from) }),
        LastWrites(path) => {
            let (attr, content, change) = (Attr::default(), Content::Empty, FileChange::Written);
            (path, Action::LastWrite { attr, xattrs: Vec::new(), content, change })
        }
        Names(to, path) => (path, Action::HardLink { to: at(to) }),
    };
    Change { path: at(path), base: Base::Bound(Seq(1)), action }
}

/// What is refused of a result in the project that `script` makes.
fn refused(script: &str, does: &[Does]) -> Vec<String> {
    let (_folder, root, rules) = project(script);
    let delta = Delta { changes: does.iter().map(|does| change(&root, does)).collect() };
    refused_of(&rules, &delta)
}

pub(super) fn refused_of(rules: &WriteRules, delta: &Delta) -> Vec<String> {
    let directories = Directories::of(delta);
    let from = delta.changes.iter().filter_map(|change| match &change.action {
        Action::Rename { from: other } | Action::HardLink { to: other } => Some(other),
        _ => None,
    });
    let asked = delta.changes.iter().map(|change| &change.path).chain(from);
    asked.filter(|path| rules.decide(path, &directories) != WriteDecision::Commit).map(TreePath::to_string).collect()
}

#[test]
fn what_is_said_to_be_removed_is_not_made_by_that() {
    let app = "mkdir -p app/.vscode evil other/.git/hooks";
    for does in [
        &[
            Removes("app/.vscode/tasks.json"),
            Removes("app/.vscode"),
            Removes("app"),
            Makes("app"),
            Makes("app/.vscode"),
            Writes("app/.vscode/tasks.json"),
        ][..],
        &[
            Removes("x/.git/config"),
            Removes("x/.git"),
            Removes("x"),
            Makes("x"),
            Makes("x/.git"),
            Writes("x/.git/config"),
        ],
        &[
            Removes("x/.git/hooks/post-merge"),
            Removes("x/.git/hooks"),
            Removes("x/.git"),
            Removes("x"),
            Replaces("x"),
            Makes("x/.git"),
            Makes("x/.git/hooks"),
            Writes("x/.git/hooks/post-merge"),
        ],
        &[Removes(".envrc"), Removes("."), Moves(".", "."), Writes(".envrc")],
        &[Removes("app/.vscode"), Removes("app"), Replaces("app"), Links("app/.vscode", "../evil")],
        &[Removes("app/.envrc"), Removes("app"), Moves("evil", "app"), Writes("app/.envrc")],
        &[Removes("app/.envrc"), Removes("app"), Makes("app"), Names("evil", "app/.envrc")],
        &[Removes("app/.vscode"), Removes("app"), Makes("app")],
        &[Moves("app", "moved"), Removes("app/.vscode"), Removes("app")],
        &[
            LastWrites("other/.git/hooks/x"),
            Removes("other/.git/hooks/x"),
            Removes("other/.git/hooks"),
            Removes("other/.git"),
            Removes("other"),
        ],
        &[
            Removes("other/.git/hooks/x"),
            Removes("other/.git/hooks"),
            Removes("other/.git"),
            Removes("other"),
            Moves("evil", "other"),
        ],
        &[Removes("other/.git/hooks/x"), Removes("other/.git/hooks"), Removes("other/.git")],
    ] {
        assert!(!refused(app, does).is_empty(), "{}", delta_text(does));
    }
}

/// What commands do that remove whole folders, or move them.
#[test]
fn what_is_removed_or_moved_as_a_whole_is_let_through() {
    let script = "mkdir -p clone/.git/hooks clone/.vscode clone/sub/.git a/.cargo conf new b; echo x > clone/.git/config; \
                  echo x > clone/.git/HEAD; ln -s ../conf a/.cargo/x; rmdir a/.cargo 2>/dev/null || :";
    for does in [
        &[
            Removes("clone/.git/config"),
            Removes("clone/.git/hooks"),
            Removes("clone/.git/HEAD"),
            Removes("clone/.git"),
            Removes("clone/.vscode"),
            Removes("clone/sub/.git"),
            Removes("clone/sub"),
            Removes("clone"),
        ][..],
        // Beside it something else is made.
        &[
            Moves("clone/src", "src"),
            Removes("clone/.git/config"),
            Removes("clone/.git"),
            Removes("clone"),
            Writes("x"),
            Makes("new/clone"),
        ],
        // A new folder in the place of one that was a repository.
        &[
            Removes("clone/.git/config"),
            Removes("clone/.git/hooks"),
            Removes("clone/.git"),
            Removes("clone"),
            Replaces("clone"),
            Writes("clone/x"),
        ],
        // What is above is made again, and not the folder itself.
        &[
            Removes("clone/sub/.git/config"),
            Removes("clone/sub/.git"),
            Removes("clone/sub"),
            Replaces("clone"),
            Writes("clone/x"),
        ],
        &[Moves("clone", "moved"), Makes("moved"), Writes("moved/.git/index")],
        &[Removes("b"), Moves("clone", "b")],
        &[Moves("a", "c"), Writes("c/x")],
        &[Removes("node/x/.travis.yml"), Writes("node/x/index.js")],
    ] {
        assert_eq!(refused(script, does), Vec::<String>::new());
    }
}

/// Files of names that folders have in which something is guarded: a kernel's configuration, a program.
#[test]
fn a_file_is_no_folder_of_settings() {
    for script in
        [":", "echo x > .config; mkdir -p target/debug; echo x > target/debug/mise; echo x > old; echo x > mise"]
    {
        for does in [
            &[Writes(".config")][..],
            &[Removes(".config"), Writes(".config"), Writes(".config.old")],
            &[Moves("old", ".config")],
            &[Moves(".config", ".config.old"), Writes(".config")],
            &[Writes("target/debug/mise")],
            &[Names("old", "target/debug/mise")],
            &[Makes("mise"), Writes("mise/x")],
            &[Makes(".config"), Writes(".config/other.toml")],
        ] {
            assert_eq!(refused(script, does), Vec::<String>::new(), "{script}: {}", delta_text(does));
        }
    }
    assert_eq!(refused("mkdir -p home/.config", &[Moves("home/.config", "home/old")]), Vec::<String>::new());
    let home = "mkdir -p home/.config/app home/.bundle; echo x > home/.config/app/x";
    let again = &[
        Removes("home/.config/app/x"),
        Removes("home/.config/app"),
        Removes("home/.config"),
        Replaces("home"),
        Replaces("home/.config"),
        Writes("home/.config/y"),
    ];
    assert_eq!(refused(home, again), Vec::<String>::new(), "a home of tests");
}

/// What says that something decides goes with it.
#[test]
fn a_whole_project_goes_with_all_that_decides_in_it() {
    let script = "mkdir -p w/tools/hooks w/r.git/objects w/r.git/refs w/r.git/hooks w/.git/hooks w/conf; echo x > w/r.git/HEAD; \
                  echo x > w/tools/hooks/pre-commit; printf '[core]\\nhooksPath = tools/hooks\\n' > w/.git/config; \
                  ln -s ../../tools/x w/.git/hooks/x; echo x > w/tools/x; echo ref > w/.git/HEAD; ln -s conf w/.cargo";
    let repository = &[
        Removes("w/r.git/hooks"),
        Removes("w/r.git/HEAD"),
        Removes("w/r.git/config"),
        Removes("w/r.git/objects"),
        Removes("w/r.git/refs"),
        Removes("w/r.git"),
    ][..];
    let tools = &[
        Removes("w/tools/hooks/pre-commit"),
        Removes("w/tools/hooks"),
        Removes("w/tools/x"),
        Removes("w/tools"),
        Removes("w/conf/config.toml"),
        Removes("w/conf"),
        Removes("w/.cargo"),
    ][..];
    let rest = &[
        Removes("w/.git/hooks/x"),
        Removes("w/.git/hooks"),
        Removes("w/.git/config"),
        Removes("w/.git/HEAD"),
        Removes("w/.git"),
        Removes("w"),
    ][..];
    let all = |parts: &[&[Does]]| {
        let (_folder, root, rules) = project(script);
        let changes = parts.iter().flat_map(|part| part.iter().map(|does| change(&root, does))).collect();
        refused_of(&rules, &Delta { changes })
    };
    assert_eq!(all(&[repository]), Vec::<String>::new());
    assert_eq!(all(&[repository, tools, rest]), Vec::<String>::new());
    assert!(!all(&[tools]).is_empty(), "what says so stays");
    assert!(!all(&[repository, &[Makes("w/r.git"), Makes("w/r.git/hooks"), Writes("w/r.git/hooks/x")]]).is_empty());
    assert!(!all(&[repository, tools, rest, &[Makes("w"), Makes("w/tools"), Writes("w/tools/x")]]).is_empty());
}

/// A link or a folder comes to be above what is guarded, which is then found in another folder.
#[test]
fn no_way_to_what_is_guarded_is_bent() {
    const HOOKS: &str =
        "mkdir -p tools/git/hooks tools2/git evil; printf '[core]\\nhooksPath = tools/git/hooks\\n' > .git/config";
    const ABSENT: &str = "mkdir tools2; ln -s tools2 l; printf '[core]\\nhooksPath = l/git/hooks\\n' > .git/config";
    const DOTS: &str = "mkdir -p bash evil; echo x > bash/bashrc; ln -s p/bash/bashrc ~/.bashrc";
    const NOTHING: &str =
        "mkdir evil; printf '[core]\\nhooksPath = tools/git/hooks\\n' > .git/config; ln -s p/bash/bashrc ~/.bashrc";
    const DEEP: &str = "mkdir -p ~/.config/fish/conf.d fish evil; ln -s ~/p/fish/a.fish ~/.config/fish/conf.d/a.fish; \
                        ln -s ~/p/fish/config.fish ~/.config/fish/config.fish";
    const DATA: &str = "mkdir -p sub d/data/hooks evil; echo 'gitdir: ../d/data' > sub/.git; echo ref > d/data/HEAD";
    const GIT: &str =
        "mkdir -p .git/modules/a/hooks .git/rebase-merge .git/worktrees/w .git/info .git/logs .git/objects evil";
    for (script, does) in [
        (
            HOOKS,
            &[
                Moves("tools", "junk"),
                Links("tools", "tools2"),
                Makes("tools2/git/hooks"),
                Writes("tools2/git/hooks/pre-commit"),
            ][..],
        ),
        (HOOKS, &[Moves("tools/git", "junk"), Moves("tools2/git", "tools/git")]),
        (
            HOOKS,
            &[
                Moves("tools", "junk"),
                Makes("tools"),
                Makes("tools/git"),
                Makes("tools/git/hooks"),
                Writes("tools/git/hooks/pre-commit"),
            ],
        ),
        (HOOKS, &[Removes("tools"), Writes("tools")]),
        (ABSENT, &[Links("l", "evil")]),
        (ABSENT, &[Makes("l"), Makes("l/git"), Writes("l/git/x")]),
        (ABSENT, &[Links("tools2/git", "../evil")]),
        (ABSENT, &[Writes("tools2/git/hooks/pre-push")]),
        (DOTS, &[Moves("bash", "old"), Moves("evil", "bash")]),
        (DOTS, &[Links("bash", "evil")]),
        (DOTS, &[Moves("bash", "old"), Writes("old/bashrc")]),
        // Of what was moved away before, or was never there.
        (NOTHING, &[Makes("tools/git/hooks"), Writes("tools/git/hooks/pre-push")]),
        (NOTHING, &[Links("tools", "evil")]),
        (NOTHING, &[Moves("evil", "tools/git")]),
        (NOTHING, &[Writes("bash/bashrc")]),
        (NOTHING, &[Links("bash", "evil")]),
        (DEEP, &[Writes("fish/config.fish")]),
        (DEEP, &[Writes("fish/a.fish")]),
        (DEEP, &[Moves("evil", "fish")]),
        (DATA, &[Links("d", "evil")]),
        (DATA, &[Moves("evil", "d")]),
        (DATA, &[Moves("evil", "d/data/modules")]),
        (DATA, &[Links("d/data/modules", "../../evil")]),
        (DATA, &[Moves("d", "e"), Writes("e/data/hooks/pre-commit")]),
        ("mkdir evil", &[Makes("x/.git"), Links("x/.git/modules", "../../evil")]),
        (GIT, &[Links(".git/modules", "../evil")]),
        (GIT, &[Links(".git/modules/a", "../../evil")]),
        (GIT, &[Links(".git/info", "../evil")]),
        (GIT, &[Moves(".git/rebase-merge", "x"), Moves("evil", ".git/rebase-merge")]),
        (GIT, &[Moves(".git/modules", "x")]),
        (GIT, &[Moves(".git/modules/a", ".git/modules/b")]),
        (GIT, &[Writes(".git/modules/third_party/foo/commondir")]),
        ("mkdir -p cfg evil", &[Links(".config", "evil")]),
        ("mkdir -p cfg evil", &[Moves("evil", "sub/.bundle")]),
        ("mkdir -p repo/.git", &[Moves("repo", "y"), Writes("y/.github/workflows/ci.yml")]),
    ] {
        assert!(!refused(script, does).is_empty(), "{script}: {}", delta_text(does));
    }
}

fn delta_text(does: &[Does]) -> String {
    let root = TreePath::root();
    does.iter().map(|does| format!("{:?}\n", change(&root, does))).collect()
}

/// What git itself does in its folder, and what is moved near what is guarded.
#[test]
fn what_git_and_moves_do_is_let_through() {
    const GIT: &str = "mkdir -p .git/objects/pack .git/logs/refs/heads .git/refs/heads .git/rebase-merge .git/worktrees/w \
                       .git/modules/a/refs/heads .git/rr-cache; echo x > .git/objects/pack/tmp; echo x > .git/packed-refs.lock";
    const HOOKS: &str = "mkdir -p tools/git/hooks tools2 evil d; printf '[core]\\nhooksPath = tools/git/hooks\\n' > .git/config; \
                         echo x > tools/x; ln -s x tools/link";
    for (script, does) in [
        (
            GIT,
            &[
                Moves(".git/objects/pack/tmp", ".git/objects/pack/pack-1.pack"),
                Moves(".git/packed-refs.lock", ".git/packed-refs"),
            ][..],
        ),
        (
            GIT,
            &[
                Makes(".git/rebase-apply"),
                Writes(".git/rebase-apply/0001"),
                Makes(".git/sequencer"),
                Writes(".git/sequencer/todo"),
            ],
        ),
        (GIT, &[Removes(".git/rebase-merge"), Replaces(".git/rebase-merge"), Writes(".git/rebase-merge/done")]),
        (
            GIT,
            &[Makes(".git/worktrees/w/logs"), Writes(".git/worktrees/w/logs/HEAD"), Writes(".git/worktrees/w/index")],
        ),
        (
            GIT,
            &[
                Moves(".git/logs/refs/heads", ".git/logs/refs/old"),
                Writes(".git/refs/stash"),
                Writes(".git/logs/refs/stash"),
            ],
        ),
        (
            GIT,
            &[
                Writes(".git/modules/a/index"),
                Writes(".git/modules/a/FETCH_HEAD"),
                Writes(".git/modules/a/refs/heads/hooks"),
            ],
        ),
        (
            GIT,
            &[
                Makes(".git/rr-cache/ab"),
                Writes(".git/rr-cache/ab/preimage"),
                Writes(".git/gc.log"),
                Writes(".git/info/exclude"),
            ],
        ),
        (HOOKS, &[Moves("tools2", "tools3"), Moves("evil", "tools/evil")]),
        (HOOKS, &[Links("tools/other", "x"), Writes("tools/x"), Makes("tools/git/new"), Moves("tools/x", "tools/y")]),
        (HOOKS, &[Makes("tools"), Makes("tools/git")]),
        (HOOKS, &[Links("latest", "tools"), Links("d/l", "../tools/git")]),
    ] {
        assert_eq!(refused(script, does), Vec::<String>::new(), "{script}: {}", delta_text(does));
    }
}

/// Folders that a result makes are not looked into, and where there are too many that are there nothing is taken for harmless.
#[test]
fn after_many_folders_nothing_is_let_through_unseen() {
    let (_folder, root, rules) = project("mkdir -p deep/er conf; ln -s ../../conf deep/er/.cargo");
    let at = |text: &str| root.resolve(text.as_bytes()).expect("a path");
    let paths: Vec<TreePath> = (0..5000).map(|number| at(&format!("new/{number}/x"))).collect();
    let new = |path: &TreePath| Change { path: path.clone(), base: Base::Absent, action: file() };
    let delta = Delta { changes: paths.iter().chain([&at("conf/config.toml")]).map(new).collect() };
    let mut guard = crate::guard::Guard::default();
    for path in &paths {
        assert!(guard.meanings(path, None).is_empty());
    }
    guard.look_at(&at("deep/er"), None);
    assert!(!guard.meanings(&at("conf/config.toml"), None).is_empty());
    assert_eq!(refused_of(&rules, &delta), [at("conf/config.toml").to_string()]);
    let mut guard = crate::guard::Guard { left: Some(2), ..Default::default() };
    let folders: Vec<TreePath> = std::iter::successors(Some(at("deep/er")), TreePath::parent).collect();
    folders.iter().for_each(|folder| guard.look_at(folder, None));
    assert!(guard.is_exhausted());
    let directories = Directories::of(&delta);
    *wire::lock(&directories.guard) = Some(guard);
    assert!(matches!(rules.decide(&paths[0], &directories), WriteDecision::Refuse(_)), "nobody has looked");
}
