//! What a command may not change even in its project, since it decides what is run later by somebody else: hooks, what editors, shells
//! and debuggers do as soon as they see a folder, and what is run for continuous integration. What one runs oneself, sources, makefiles and scripts,
//! is not in it.

use base::TreePath;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Folders of the system's and users' services in `/run` by which they decide what runs, at whatever depth: users have theirs in
/// `/run/user`.
const RUN_BY_SYSTEM: &[&str] = &[
    "NetworkManager",
    "binfmt.d",
    "bus",
    "confexts",
    "containerd",
    "credentials",
    "credstore",
    "credstore.encrypted",
    "cryptsetup-keys.d",
    "dbus-1",
    "depmod.d",
    "docker",
    "environment.d",
    "extensions",
    "gleaner",
    "gnupg",
    "initctl",
    "initramfs",
    "issue.d",
    "keyring",
    "libvirt",
    "modprobe.d",
    "modules-load.d",
    "motd.d",
    "netplan",
    "network",
    "nologin",
    "podman",
    "polkit-1",
    "portables",
    "resolvconf",
    "runit",
    "s6",
    "s6-rc",
    "service",
    "sudo",
    "sysctl.d",
    "systemd",
    "sysusers.d",
    "tmpfiles.d",
    "udev",
    "userdb",
    "user-tmpfiles.d",
];
/// What is guarded, as the last components of a path; what lies beneath is guarded, too.
#[rustfmt::skip]
const GUARDED: &[&str] = &[
    // Version control, and what runs hooks for it.
    ".git/config", ".git/hooks", ".git/config.worktree", ".git/commondir", ".git/info/attributes", ".hg/hgrc", ".hg/hgrc-not-shared",
    ".hg/sharedpath", ".svn/hooks", ".jj/repo/config.toml", ".jj/config.toml", ".sl/config", "_darcs/prefs/defaults", ".bzr/branch/branch.conf", ".husky", ".githooks", ".git-hooks", ".pre-commit-config.yaml",
    "lefthook.yml", ".lefthook.yml", "lefthook.yaml", ".lefthook.yaml", "lefthook.toml", ".lefthook.toml", "lefthook-local.yml",
    ".lefthook-local.yml", ".lefthook", ".lefthook-local", ".overcommit.yml", "captainhook.json",
    // What shells do in a folder.
    ".envrc", ".mise.toml", "mise.toml", ".mise.local.toml", "mise.local.toml", ".mise", "mise/config.toml", ".config/mise",
    ".config/mise.toml", ".autoenv", ".autoenv.zsh", ".autoenv_leave.zsh", ".direnv", ".rvmrc",
    // What editors and debuggers do there.
    ".vscode", ".idea", ".zed", ".helix", ".fleet", ".vimrc", ".gvimrc", ".exrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".ycm_extra_conf.py",
    ".dir-locals.el", ".dir-locals-2.el", ".gdbinit", ".lldbinit", ".pdbrc", ".irbrc", ".pryrc", ".octaverc",
    ".Rprofile", ".Renviron", ".RData", ".psysh.php", ".ghci", ".ocamlinit", ".iex.exs", ".erlang", ".perldb", ".byebugrc", ".rdbgrc", ".local.vimrc", ".vim", ".vs",
    // What assistants may do there, and containers in which one works.
    ".claude", ".cursor", ".windsurf", ".gemini", ".codex", ".continue", ".mcp.json", ".aider.conf.yml", ".devcontainer", ".devcontainer.json",
    ".kiro/hooks", ".kiro/settings", ".amazonq", ".junie", ".roo", ".opencode", "opencode.json", "opencode.jsonc", ".gitpod.yml", ".replit",
    ".git/rebase-merge/git-rebase-todo",
    // What every command of a tool is told.
    ".cargo/config.toml", ".cargo/config", ".yarn/releases", ".yarn/plugins", ".yarnrc.yml", ".yarnrc", ".npmrc", ".pnpmfile.cjs", ".pnpmfile.mjs", "bunfig.toml", ".bundle/config",
    ".mvn/extensions.xml", ".mvn/jvm.config", ".mvn/maven.config", ".jvmopts", ".sbtopts", "rust-toolchain", "rust-toolchain.toml", ".gleaner.toml",
];

/// The same of continuous integration, which looks for it at the root of a repository.
#[rustfmt::skip]
const GUARDED_OF_INTEGRATION: &[&str] = &[
    ".github/workflows", ".github/actions", ".gitea", ".forgejo", ".gitlab-ci.yml", ".circleci", ".travis.yml", ".cirrus.yml", ".cirrus.star",
    ".woodpecker.yml", ".woodpecker.yaml", ".woodpecker", ".drone.yml", ".drone.yaml", ".drone.star", ".buildkite", ".semaphore", ".teamcity",
    ".tekton", ".harness", ".builds", ".build.yml", ".appveyor.yml", "appveyor.yml", ".zuul.yaml", "zuul.yaml", ".zuul.d", "Jenkinsfile",
    "azure-pipelines.yml", "azure-pipelines.yaml", ".azure-pipelines", "bitbucket-pipelines.yml", "cloudbuild.yaml", "cloudbuild.yml",
    "buildspec.yml", "buildspec.yaml", "bitrise.yml", "codemagic.yaml",
];

/// Those, by their first component in small letters.
static BY_FIRST: LazyLock<HashMap<Vec<u8>, Vec<&'static str>>> = LazyLock::new(|| {
    let mut by_first: HashMap<Vec<u8>, Vec<&'static str>> = HashMap::new();
    for name in guarded_places() {
        by_first.entry(first(name).to_ascii_lowercase().into()).or_default().push(name);
    }
    by_first
});

fn first(name: &str) -> &str {
    name.split('/').next().unwrap_or(name)
}

/// Folders, or files that stand for one, by which it is found what decides: where one of them leads is not changed either.
const GUARDED_WAYS: &[&str] = &[".git", ".hg", ".svn", ".jj", ".cargo", ".github", ".yarn", ".mvn"];

/// What a folder of a program's source may be called as well.
const COMMON_FOLDERS: [&str; 1] = ["mise"];

/// All folders in which something is guarded. A file of such a name is none: kernels are configured by one that is called `.config`.
static GUARDED_FOLDERS: LazyLock<HashMap<Vec<u8>, &'static str>> = LazyLock::new(|| {
    let folders = guarded_places().filter_map(|name| Some(name.split_once('/')?.0));
    let folders = folders.filter(|folder| !COMMON_FOLDERS.contains(folder));
    folders.map(|folder| (folder.to_ascii_lowercase().into(), folder)).collect()
});

/// The ending of files that are opened as a folder of an editor is, with its tasks.
const WORKSPACE: &str = ".code-workspace";
/// What git has of its own beneath a folder of data: a submodule may be called like one.
const NO_DATA: [&[u8]; 7] =
    [b"config", b"config.worktree", b"hooks", b"commondir", b"gitdir", b"modules", b"worktrees"];

/// The guarded places, relative to the folder that has them.
pub(crate) fn guarded_places() -> impl Iterator<Item = &'static str> {
    GUARDED.iter().chain(GUARDED_OF_INTEGRATION).copied()
}

/// Whether this guarded place is one of continuous integration.
pub(crate) fn is_of_integration(name: &str) -> bool {
    GUARDED_OF_INTEGRATION.contains(&name)
}

/// The folder in which `path` decides something, and what of what is guarded it is.
pub(crate) fn guarded_in(path: &TreePath) -> Option<(TreePath, &'static str)> {
    let name = guarded(path)?;
    if name == WORKSPACE {
        return path.parent().map(|folder| (folder, name));
    }
    let mut folders = std::iter::successors(path.parent(), TreePath::parent);
    // The nearest in which what is left of the path is still guarded, and begins with it.
    let first = first(name).as_bytes();
    let folder = folders.find(|folder| {
        let inner = path.relative_to(folder).unwrap_or_default();
        inner.split(|byte| *byte == b'/').next().is_some_and(|part| folded_name(part).eq_ignore_ascii_case(first))
    });
    folder.map(|folder| (folder, name))
}

/// Whether a guarded place, or a way to one, may begin with an entry of this name.
pub(crate) fn begins_guarded(name: &[u8]) -> bool {
    guarded_beginning(name).is_some()
}

/// The same, and how that is written in small letters.
pub(crate) fn guarded_beginning(name: &[u8]) -> Option<Vec<u8>> {
    let name = folded_name(name).to_ascii_lowercase();
    (name == b".git" || BY_FIRST.contains_key(&name)).then_some(name)
}

/// What `path` is of the ways to what may not be changed: to have a link or another folder there changes all that is found by it.
pub(crate) fn guarded_way(path: &TreePath) -> Option<&'static str> {
    let name = folded_name(path.name());
    GUARDED_WAYS.iter().copied().find(|way| way.as_bytes() == &name[..])
}

/// What `path` is of the folders in which something is guarded: with a link there, or a folder that was elsewhere, that is something else.
pub(crate) fn guarded_folder(path: &TreePath) -> Option<&'static str> {
    GUARDED_FOLDERS.get(&folded_name(path.name()).to_ascii_lowercase()).copied()
}

/// A name as folders see it that do not tell letters by their case, and ignore what is not seen.
fn folded_name(name: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    let is_plain = name.iter().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase() && *byte != b'~');
    if is_plain {
        return name.into();
    }
    let Ok(text) = std::str::from_utf8(name) else { return name.to_ascii_lowercase().into() };
    let seen = text.chars().filter(|letter| !is_ignorable(*letter)).flat_map(char::to_uppercase);
    let folded: String = seen.flat_map(char::to_lowercase).collect();
    // The short name of `.git` where names have eight letters and three.
    let folded = if folded == "git~1" { ".git".to_owned() } else { folded };
    // Of a name of such letters alone nothing would be left.
    if folded.is_empty() { name.into() } else { folded.into_bytes().into() }
}

/// Letters that file systems which fold names leave out.
fn is_ignorable(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// What `path` is of what may not be changed even in the project.
pub(crate) fn guarded(path: &TreePath) -> Option<&'static str> {
    let folded = path.components().fold(TreePath::root(), |at, name| at.join(&folded_name(name)));
    let path = &folded;
    if let Some(name) = guarded_of_linked(path) {
        return Some(name);
    }
    let run = ["/run/", "/var/run/"].iter().find_map(|run| path.as_bytes().strip_prefix(run.as_bytes()));
    let mut parts = run.into_iter().flat_map(|rest| rest.split(|byte| *byte == b'/'));
    if let Some(name) =
        parts.find_map(|part| RUN_BY_SYSTEM.iter().copied().find(|name| name.as_bytes().eq_ignore_ascii_case(part)))
    {
        return Some(name);
    }
    let parts: Vec<&[u8]> = path.components().collect();
    if parts.last().is_some_and(|name| name.ends_with(WORKSPACE.as_bytes())) {
        return Some(WORKSPACE);
    }
    (0..parts.len()).find_map(|at| {
        let is_at = |name: &&&str| {
            let mut rest = parts[at..].iter();
            name.split('/').all(|part| rest.next().is_some_and(|found| found.eq_ignore_ascii_case(part.as_bytes())))
        };
        BY_FIRST.get(&parts[at].to_ascii_lowercase())?.iter().find(is_at).copied()
    })
}

/// The same wherever it is in a git folder: that of a submodule or of a further working tree is in the repository's.
fn guarded_of_linked(path: &TreePath) -> Option<&'static str> {
    let parts: Vec<&[u8]> = path.components().collect();
    match within_git(&parts)? {
        [_, .., b"config" | b"config.worktree"] => Some(".git/config"),
        [_, .., b"commondir" | b"gitdir"] => Some(".git/commondir"),
        [_, .., b"info", b"attributes"] => Some(".git/info/attributes"),
        [_, rest @ ..] if rest.contains(&&b"hooks"[..]) => Some(".git/hooks"),
        _ => None,
    }
}

/// Whether `path` lies in a git folder, and is none of its data: there git makes no links, and renames no folders.
pub(crate) fn is_within_git(path: &TreePath) -> bool {
    let folded: Vec<_> = path.components().map(folded_name).collect();
    let parts: Vec<&[u8]> = folded.iter().map(|name| &name[..]).collect();
    let is_data = |inner: &[&[u8]]| data_at(inner).is_some();
    let at = parts.iter().position(|part| *part == b".git");
    at.map(|at| &parts[at + 1..]).is_some_and(|inner| !inner.is_empty() && !is_data(inner))
}

/// What follows `.git` in a path, as far as it is no data.
fn within_git<'a, 'b>(parts: &'a [&'b [u8]]) -> Option<&'a [&'b [u8]]> {
    let at = parts.iter().position(|part| *part == b".git")?;
    let inner = &parts[at + 1..];
    Some(&inner[..data_at(inner).unwrap_or(inner.len())])
}

/// Where in a path in a git folder its data begin, whose names others choose: a branch may be called "hooks". The name of a submodule
/// may have slashes, and be that of such a folder: then what git looks for is in it.
fn data_at(inner: &[&[u8]]) -> Option<usize> {
    let is_named = |at: usize| at > 0 && matches!(inner[at - 1], b"modules" | b"worktrees");
    let has_own = |at: usize| match inner[at + 1..] {
        [b"info", b"attributes", ..] => true,
        [next, ..] => NO_DATA.contains(&next),
        [] => false,
    };
    let is_data = |at: &usize| matches!(inner[*at], b"refs" | b"logs" | b"objects");
    (0..inner.len()).find(|at| is_data(at) && !is_named(*at) && !has_own(*at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).expect("a path")
    }

    #[test]
    fn what_decides_in_git_folders_is_found_at_any_depth() {
        for at in [
            "modules/third_party/foo/commondir",
            "modules/third_party/foo/worktrees/w/gitdir",
            "modules/a/info/attributes",
            "modules/logs/hooks/post-merge",
            "modules/refs/config",
            "modules/src/logs/hooks/pre-commit",
            "modules/src/refs/config",
            "modules/x/objects/hooks/y",
            "worktrees/logs/config.worktree",
            "other/hooks/x",
        ] {
            assert!(guarded(&path(&format!("/p/.git/{at}"))).is_some(), "{at}");
        }
        for at in [
            "refs/heads/hooks/x",
            "logs/refs/heads/config",
            "logs/HEAD",
            "objects/info/commit-graphs/x",
            "modules/a/refs/heads/hooks/config",
            "modules/third_party/foo/refs/remotes/origin/config",
            "modules/third_party/foo/HEAD",
            "modules/logs/logs/refs/heads/hooks",
            "worktrees/w/logs/HEAD",
            "info/exclude",
            "rebase-merge/done",
        ] {
            assert_eq!(guarded(&path(&format!("/p/.git/{at}"))), None, "{at}");
        }
    }

    #[test]
    fn ways_are_what_folders_of_guarded_places_are_called() {
        for folder in [".git", ".cargo", ".config", ".bundle", ".github", ".kiro", ".GIT", ".Config"] {
            assert!(guarded_folder(&path(&format!("/p/{folder}"))).is_some(), "{folder}");
        }
        for other in ["config", ".vscode", "git", "src"] {
            assert_eq!(guarded_folder(&path(&format!("/p/{other}"))), None, "{other}");
        }
        let ways = GUARDED_WAYS.iter().map(|way| path(&format!("/p/{way}")));
        assert!(ways.into_iter().all(|way| guarded_folder(&way).is_some()), "each is one of the folders");
    }

    #[test]
    fn what_assistants_and_editors_run_is_guarded() {
        for at in [
            ".kiro/hooks/x.kiro.hook",
            ".amazonq/mcp.json",
            ".junie/mcp/mcp.json",
            "opencode.json",
            "app.code-workspace",
            "mise/config.toml",
            ".config/mise/config.toml",
            "sub/.opencode/plugin/x.js",
        ] {
            assert!(guarded(&path(&format!("/p/{at}"))).is_some(), "{at}");
        }
        let (folder, _) = guarded_in(&path("/p/a/app.code-workspace")).expect("guarded");
        assert_eq!(folder, path("/p/a"));
        for at in [".bazelrc", ".kiro/specs/x.md", "mise/config.yml", "code-workspace", "\u{200b}\u{feff}/x"] {
            assert_eq!(guarded(&path(&format!("/p/{at}"))), None, "{at}");
        }
    }
}
