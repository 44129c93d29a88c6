//! What programs really do in a project, as a delta would tell it: none of it is refused.

use super::*;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use std::collections::BTreeMap;

/// What is at a path: inode and time of birth tell one file from another, the rest whether it was changed.
#[derive(Clone, PartialEq, Eq, Debug)]
struct There {
    file: (u64, i64, u32),
    changed: (i64, u32, u64),
    kind: FileType,
}

/// All that is beneath `root`, by path.
fn tree(root: &TreePath) -> BTreeMap<TreePath, There> {
    let (mut found, mut ahead) = (BTreeMap::new(), vec![root.clone()]);
    while let Some(folder) = ahead.pop() {
        for name in crate::guard::entries(&folder, |_| true, usize::MAX) {
            let path = folder.join(&name);
            let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
            let stat = statx(CWD, path.as_bytes(), AtFlags::SYMLINK_NOFOLLOW, flags).expect("is there");
            let kind = FileType::from_raw_mode(stat.stx_mode.into());
            let (born, changed) = (stat.stx_btime, stat.stx_ctime);
            let there = There {
                file: (stat.stx_ino, born.tv_sec, born.tv_nsec),
                changed: (changed.tv_sec, changed.tv_nsec, stat.stx_size),
                kind,
            };
            if kind == FileType::Directory {
                ahead.push(path.clone());
            }
            found.insert(path, there);
        }
    }
    found
}

/// What a task would be said to have done that left `after` where `before` was.
fn delta(before: &BTreeMap<TreePath, There>, after: &BTreeMap<TreePath, There>) -> Delta {
    let stays = |path: &TreePath, there: &There| after.get(path).is_some_and(|now| now.file == there.file);
    let gone: Vec<(&TreePath, &There)> = before.iter().filter(|(path, there)| !stays(path, there)).collect();
    let came = |there: &There| {
        after
            .iter()
            .find(|(path, now)| now.file == there.file && before.get(*path).is_none_or(|was| was.file != now.file))
    };
    let (mut renames, mut removals, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    let base = Base::Bound(Seq(1));
    let mut moved: Vec<(TreePath, TreePath)> = Vec::new();
    for (path, there) in gone {
        if moved.iter().any(|(from, _)| path.is_within(from)) {
            continue;
        }
        match came(there) {
            Some((to, _)) => {
                moved.push((path.clone(), to.clone()));
                renames.push(Change { path: to.clone(), base, action: Action::Rename { from: path.clone() } });
            }
            None => removals.insert(0, Change { path: path.clone(), base, action: Action::Remove }),
        }
    }
    for (path, there) in after {
        let origin = moved.iter().find_map(|(from, to)| from.resolve(path.relative_to(to)?));
        let was = before.get(&origin.unwrap_or_else(|| path.clone()));
        if was == Some(there)
            || (was.is_some_and(|was| was.file == there.file) && moved.iter().any(|(_, to)| to == path))
        {
            continue;
        }
        let replaces = was.is_some_and(|was| was.kind == FileType::Directory && was.file != there.file);
        let action = match there.kind {
            FileType::Directory => Action::Directory { attr: Attr::default(), xattrs: Vec::new(), replaces },
            FileType::Symlink => Action::Symlink { attr: Attr::default(), target: b"x".to_vec() },
            _ => file(),
        };
        rest.push(Change { path: path.clone(), base, action });
    }
    Delta { changes: [renames, removals, rest].concat() }
}

fn run(root: &TreePath, script: &str) {
    let home = root.parent().expect("a home").to_string();
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(root.to_string()).env("HOME", home).env("GIT_EDITOR", "true");
    for name in ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"] {
        command.env(name, "someone");
    }
    let done = command.output().expect("runs");
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Runs each of these in turn in the project that `setup` makes, and says what would be refused of what it does.
fn refused_of_scripts(setup: &str, scripts: &[&str]) -> Vec<String> {
    let (_folder, root, rules) = project("rm -r .git");
    run(&root, setup);
    let mut refused = Vec::new();
    for script in scripts {
        let saved = format!("{root}.saved");
        run(&root, &format!("cp -a . '{saved}'"));
        let before = tree(&root);
        run(&root, script);
        let delta = delta(&before, &tree(&root));
        assert!(!delta.changes.is_empty(), "{script} does something");
        // The policy looks at what was there before.
        let done = format!("{root}.done");
        std::fs::rename(root.to_string(), &done).expect("moved");
        std::fs::rename(&saved, root.to_string()).expect("moved");
        refused.extend(super::ways::refused_of(&rules, &delta).into_iter().map(|path| format!("{script}: {path}")));
        std::fs::remove_dir_all(root.to_string()).expect("removed");
        std::fs::rename(&done, root.to_string()).expect("moved");
    }
    refused
}

fn has(program: &str) -> bool {
    let has = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !has {
        println!("SKIPPED: {program} is not here");
    }
    has
}

#[test]
fn what_git_does_is_let_through() {
    if !has("git") {
        return;
    }
    let setup = "git init -q -b main .; mkdir -p tools/hooks src/deep .cargo clone; echo '#!/bin/sh' > tools/hooks/pre-commit; \
                 git config core.hooksPath tools/hooks; echo a > a; echo b > src/deep/b; echo c > .cargo/config.toml; git add a src .cargo; \
                 git commit -qm one; git init -q clone; git -C clone commit -q --allow-empty -m one; ln -s p/a ~/.inputrc; \
                 mkdir -p side; git init -q side; printf 'clone\\nside\\nmoved\\ntools\\n' > .git/info/exclude; git worktree add -q ../tree; \
                 git init -q ../lib; git -C ../lib commit -q --allow-empty -m one; \
                 git -c protocol.file.allow=always submodule --quiet add ../lib third_party/logs; git commit -qm sub; \
                 git branch other; git checkout -q other; echo x > x; git add x; git commit -qm x; echo y > src/y; git add src/y; \
                 git commit -qm y; git checkout -q main";
    let scripts = [
        "echo d > src/d; git add src/d; git commit -qm two",
        "git checkout -q other",
        "git rebase -q main",
        "git checkout -q main; git merge -q --no-edit other",
        "echo e >> src/d; echo n > new; git stash -q -u",
        "git stash pop -q",
        "git add .; git reset -q; git clean -fdqx src new; git checkout -q -- .",
        "git gc -q --prune=now",
        "git repack -adq; git pack-refs --all; git reflog expire --expire=now --all",
        "git tag -a v1 -m v1; git notes add -m note; git branch -q another",
        "git mv src source; git commit -qm moved",
        "git revert --no-edit HEAD; git cherry-pick HEAD~1",
        "git rebase -q --apply HEAD~2; git reset -q --hard HEAD~1",
        "git commit -q --amend -m amended; git bisect start HEAD HEAD~1; git bisect reset",
        "git rm -rq src source 2>/dev/null || git rm -rq --ignore-unmatch src source; git commit -qm gone; git update-index --refresh",
        "git -C clone commit -q --allow-empty -m two; git -C clone gc -q",
        "cd third_party/logs; echo x > x; git add x; git commit -qm two; git checkout -q -b side; git stash list; git gc -q; git checkout -q -",
        "git add third_party; git commit -qm bumped; git checkout -q HEAD~1; git checkout -q main",
        "mv clone moved",
        "rm -rf moved",
        "rm -rf side; mkdir side; echo x > side/x",
        "mkdir a.d; mv a.d b.d; ln -s b.d c.d; mv tools/hooks/../../b.d tools/",
        "tar cf x.tar tools; mkdir out; tar xf x.tar -C out; cp -a out out2; rm -r out",
    ];
    let refused = refused_of_scripts(setup, &scripts);
    assert_eq!(refused, Vec::<String>::new());
}

#[test]
fn what_environments_and_builds_do_is_let_through() {
    if !has("python3") {
        return;
    }
    let setup = "git init -q . 2>/dev/null || mkdir -p .git; mkdir -p target/debug/deps node_modules/a/.bin; echo x > target/debug/deps/mise-1; \
                 echo CONFIG_X=y > .config; echo x > node_modules/a/package.json; echo x > node_modules/a/.travis.yml";
    let scripts = [
        "python3 -m venv --without-pip .venv",
        "mv .venv env; python3 -m venv --without-pip .venv; rm -rf env",
        "echo x > .config.tmp; mv .config .config.old; mv .config.tmp .config",
        "echo y > target/debug/deps/mise-2; ln -f target/debug/deps/mise-2 target/debug/mise; rm target/debug/deps/mise-1",
        "echo z > target/debug/deps/mise-3; ln -f target/debug/deps/mise-3 target/debug/mise",
        "rm -rf node_modules; mkdir -p node_modules/a node_modules/.bin; echo y > node_modules/a/package.json; ln -s ../a/package.json node_modules/.bin/a",
        "mkdir -p home/.config/app home/.cargo; echo x > home/.config/app/x",
        "rm -rf home; mkdir -p home/.config; echo x > home/.config/y",
        "rm -rf target; mkdir -p target/debug; echo x > target/debug/mise",
    ];
    assert_eq!(refused_of_scripts(setup, &scripts), Vec::<String>::new());
}
