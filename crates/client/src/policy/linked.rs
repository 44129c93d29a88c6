//! What belongs to a project or a program although it lies elsewhere: the git folder of a submodule or of a further
//! working tree, the environment of an interpreter that runs without being activated, what that environment names.

use super::Lookup;
use base::TreePath;

/// What marks the root of an environment: Python's, and conda's.
pub(super) const ENVIRONMENT_MARKERS: &[&str] = &["pyvenv.cfg", "conda-meta"];
/// Programs of one command at which an environment is looked for.
const PROGRAMS_MAX: usize = 64;
/// Folders with packages of one environment, and names in one that are looked at.
const PACKAGE_FOLDERS_MAX: usize = 8;
const PACKAGES_MAX: usize = 4096;

/// Where the git folder is, and the one that it shares with others, if `root` has a file called `.git` that says so.
pub(super) fn git_folders(root: &TreePath, lookup: &dyn Lookup) -> Vec<TreePath> {
    let Some(text) = lookup.text(&root.join(b".git")) else { return Vec::new() };
    let Some(named) = text.strip_prefix(b"gitdir:").and_then(first_line) else { return Vec::new() };
    // A file alone must not open whatever it names.
    let is_git = |folder: &TreePath| lookup.has_any(folder, &["HEAD"]);
    let Some(own) = root.resolve(named).and_then(|path| lookup.physical(&path)).filter(is_git) else {
        return Vec::new();
    };
    let common = lookup.text(&own.join(b"commondir"));
    let common = common.as_deref().and_then(first_line).and_then(|line| own.resolve(line));
    let common = common.and_then(|path| lookup.physical(&path)).filter(is_git);
    std::iter::once(own).chain(common).collect()
}

/// The roots of the environments that these programs and scripts belong to: that they lie in, or that their first line
/// names the interpreter of.
pub(super) fn environments_of<'a>(programs: impl Iterator<Item = &'a TreePath>, lookup: &dyn Lookup) -> Vec<TreePath> {
    let (mut roots, mut looked_at) = (Vec::new(), Vec::new());
    let is_program = |path: &&TreePath| matches!(parent_name(path), Some(name) if name == b"bin" || name == b"sbin");
    let (mut at, mut left) = (programs.collect::<Vec<_>>(), PROGRAMS_MAX);
    at.dedup();
    for program in at {
        let physical = lookup.physical(program);
        let mut places: Vec<TreePath> = std::iter::once(program.clone()).chain(physical.clone()).collect();
        // Only scripts in folders of programs, so that not each file that a command names is read for it.
        let is_script = places.iter().any(|path| is_program(&path) && !path.is_in_system_folder());
        if is_script && left > 0 {
            left -= 1;
            let interpreter = physical.and_then(|path| lookup.text(&path)).and_then(|text| interpreter(&text));
            places.extend(interpreter);
        }
        for path in places.iter().filter(is_program) {
            let root = path.parent().and_then(|folder| folder.parent());
            let Some(root) = root.filter(|root| !looked_at.contains(root)) else { continue };
            if lookup.has_any(&root, ENVIRONMENT_MARKERS) {
                roots.push(root.clone());
            }
            looked_at.push(root);
        }
    }
    roots
}

/// What an environment names beside itself: the interpreter that it was made from, and packages that are used where
/// they are written (`pip install --editable`).
pub(super) fn folders_of_environment(root: &TreePath, lookup: &dyn Lookup) -> Vec<TreePath> {
    let settings = lookup.text(&root.join(b"pyvenv.cfg")).unwrap_or_default();
    let home = lines(&settings).find_map(|line| value_of(line, b"home"));
    let mut folders: Vec<TreePath> = home.and_then(TreePath::parse).and_then(|bin| bin.parent()).into_iter().collect();
    let lib = root.join(b"lib");
    let versions = lookup.names(&lib).into_iter().filter(|name| name.starts_with(b"python"));
    for version in versions.take(PACKAGE_FOLDERS_MAX) {
        let packages = lib.join(&version).join(b"site-packages");
        for name in lookup.names(&packages).iter().take(PACKAGES_MAX) {
            let text = |inner: &TreePath| lookup.text(inner).unwrap_or_default();
            let file = packages.join(name);
            if name.ends_with(b".pth") || name.ends_with(b".egg-link") {
                folders.extend(lines(&text(&file)).filter(|line| line.starts_with(b"/")).filter_map(TreePath::parse));
            } else if name.starts_with(b"__editable__") && name.ends_with(b".py") {
                folders.extend(quoted_paths(&text(&file)));
            }
        }
    }
    folders.retain(|folder| !folder.is_root());
    folders
}

fn parent_name(path: &TreePath) -> Option<Vec<u8>> {
    Some(path.parent()?.name().to_vec())
}

/// The interpreter in a script's first line. Where that would be too long for the kernel, tools write a script for the
/// shell whose second line is `'''exec' INTERPRETER "$0" "$@"`.
fn interpreter(text: &[u8]) -> Option<TreePath> {
    let mut lines = lines(text);
    let first = lines.next()?.strip_prefix(b"#!")?;
    let second = lines.next().and_then(|line| line.strip_prefix(b"'''exec' "));
    let line = second.unwrap_or(first).trim_ascii();
    let word = match line.strip_prefix(b"\"") {
        Some(quoted) => quoted.split(|byte| *byte == b'"').next(),
        None => line.split(u8::is_ascii_whitespace).next(),
    };
    TreePath::parse(word?)
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii)
}

fn first_line(text: &[u8]) -> Option<&[u8]> {
    lines(text).next().filter(|line| !line.is_empty())
}

/// The value in `name = value`.
fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let at = line.iter().position(|byte| *byte == b'=')?;
    (line[..at].trim_ascii() == name).then(|| line[at + 1..].trim_ascii())
}

/// Absolute paths in quotes: the finder of an editable package has them in a dictionary.
fn quoted_paths(text: &[u8]) -> Vec<TreePath> {
    let parts = text.split(|byte| matches!(byte, b'\'' | b'"'));
    parts.filter(|part| part.len() > 1 && part.starts_with(b"/")).filter_map(TreePath::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Files and their texts.
    struct Tree(BTreeMap<&'static str, &'static str>);

    impl Lookup for Tree {
        fn has_any(&self, directory: &TreePath, names: &[&str]) -> bool {
            let has = |name: &&str| {
                let wanted = format!("{directory}/{name}");
                self.0.keys().any(|path| *path == wanted || path.starts_with(&format!("{wanted}/")))
            };
            names.iter().any(has)
        }
        fn physical(&self, path: &TreePath) -> Option<TreePath> {
            Some(path.clone())
        }
        fn links_to(&self, _path: &TreePath) -> Vec<TreePath> {
            Vec::new()
        }
        fn text(&self, path: &TreePath) -> Option<Vec<u8>> {
            self.0.get(path.to_string().as_str()).map(|text| text.as_bytes().to_vec())
        }
        fn names(&self, directory: &TreePath) -> Vec<Vec<u8>> {
            let start = format!("{directory}/");
            let inner = self.0.keys().filter_map(|path| path.strip_prefix(&start));
            let mut names: Vec<Vec<u8>> =
                inner.map(|rest| rest.split('/').next().unwrap_or_default().as_bytes().to_vec()).collect();
            names.dedup();
            names
        }
        fn secrets(&self, _home: &TreePath) -> Vec<TreePath> {
            Vec::new()
        }
        fn may_be_closed(&self, _path: &TreePath) -> bool {
            false
        }
    }

    fn path(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn git_folders_elsewhere() {
        let tree = Tree(BTreeMap::from([
            ("/h/main/.git/HEAD", ""),
            ("/h/main/.git/modules/sub/HEAD", ""),
            ("/h/main/sub/.git", "gitdir: ../.git/modules/sub\n"),
            ("/h/main/.git/worktrees/w/HEAD", ""),
            ("/h/main/.git/worktrees/w/commondir", "../..\n"),
            ("/h/w/.git", "gitdir: /h/main/.git/worktrees/w\n"),
            ("/h/evil/.git", "gitdir: /h/letters\n"),
        ]));
        assert_eq!(git_folders(&path("/h/main/sub"), &tree), [path("/h/main/.git/modules/sub")]);
        let of_worktree = git_folders(&path("/h/w"), &tree);
        assert_eq!(of_worktree, [path("/h/main/.git/worktrees/w"), path("/h/main/.git")]);
        assert!(git_folders(&path("/h/main"), &tree).is_empty());
        assert!(git_folders(&path("/h/evil"), &tree).is_empty(), "what it names is no git folder");
    }

    #[test]
    fn environments_by_interpreter_and_script() {
        let tree = Tree(BTreeMap::from([
            ("/h/envs/e/pyvenv.cfg", "home = /h/python/bin\nversion = 3.12\n"),
            ("/h/envs/e/bin/tool", "#!/h/envs/e/bin/python3\nimport x\n"),
            ("/h/bin/tool", "#!/h/envs/e/bin/python3\n"),
            ("/h/bin/long", "#!/bin/sh\n'''exec' \"/h/envs/e/bin/python3\" \"$0\" \"$@\"\n"),
            ("/h/conda/conda-meta/history", ""),
            ("/h/conda/bin/python", "\u{7f}ELF"),
            ("/usr/bin/tool", "#!/bin/sh\n"),
        ]));
        let of = |program: &str| environments_of([path(program)].iter(), &tree);
        assert_eq!(of("/h/envs/e/bin/python"), [path("/h/envs/e")]);
        assert!(of("/h/envs/e/bin/tool").contains(&path("/h/envs/e")));
        assert_eq!(of("/h/bin/tool"), [path("/h/envs/e")]);
        assert_eq!(of("/h/bin/long"), [path("/h/envs/e")]);
        assert_eq!(of("/h/conda/bin/python"), [path("/h/conda")]);
        assert!(of("/usr/bin/tool").is_empty() && of("/h/envs/e/lib/x.py").is_empty());
    }

    /// What lies in the project a result may have made: it gives itself no rights by that.
    #[test]
    fn what_the_project_names_may_not_be_changed() {
        use crate::policy::{Scope, ScopeInput, Trust};
        let tree = Tree(BTreeMap::from([
            ("/h/p/.git/HEAD", ""),
            ("/h/p/bin/t", "#!/h/envs/e/bin/python3\n"),
            ("/h/p/venv/pyvenv.cfg", "home = /h/docs/bin\n"),
            ("/h/p/venv/bin/t", "#!/h/p/venv/bin/python3\n"),
            ("/h/p/venv/lib/python3.12/site-packages/x.pth", "/h/docs\n"),
            ("/h/envs/e/pyvenv.cfg", "home = /h/python/bin\n"),
        ]));
        let (home, cwd) = (path("/h"), path("/h/p"));
        let scope = |argv: &str| {
            let argv: Vec<Vec<u8>> = argv.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            let input = ScopeInput {
                home: Some(&home),
                uid: 1000,
                cwd: &cwd,
                argv: &argv,
                env: &[],
                program: &[],
                trust: Trust::Others,
            };
            Scope::new(&input, &tree)
        };
        let by_script = scope("sh x.sh bin/t");
        assert!(by_script.environments.contains(&path("/h/envs/e")) && by_script.own_environments.is_empty());
        let of_project = scope("sh x.sh venv/bin/t");
        assert_eq!(of_project.own_environments, [path("/h/p/venv")]);
        assert!(!of_project.folders.contains(&path("/h/docs")));
        let by_itself = scope("/h/envs/e/bin/python3 x.py");
        assert_eq!(by_itself.own_environments, [path("/h/envs/e")]);
        assert!(by_itself.folders.contains(&path("/h/python")));
    }

    #[test]
    fn what_an_environment_names() {
        let tree = Tree(BTreeMap::from([
            ("/h/e/pyvenv.cfg", "home = /h/python/bin\n"),
            ("/h/e/lib/python3.12/site-packages/x.pth", "/h/src/x\nimport y\n"),
            ("/h/e/lib/python3.12/site-packages/__editable___z_finder.py", "MAPPING = {'z': '/h/src/z/z'}\n"),
            ("/h/e/lib/python3.12/site-packages/other.py", "'/h/secret'"),
        ]));
        let mut found = folders_of_environment(&path("/h/e"), &tree);
        found.sort();
        assert_eq!(found, [path("/h/python"), path("/h/src/x"), path("/h/src/z/z")]);
    }
}
