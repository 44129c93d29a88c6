//! What one command is about: its project, the paths that its arguments name, the folders that its environment names.

use super::Trust;
use super::caches::Places;
use super::granted::{Granted, PROJECT_FILE};
use super::linked::{environments_of, folders_of_environment, git_folders};
use super::names::{home_of, is_services_place};
use super::reached::Reached;
use super::scripts::{mentioned, programs};
use base::TreePath;

/// What the file system says, for those who decide without looking at it themselves.
pub trait Lookup {
    /// Whether a directory holds one of these names.
    fn has_any(&self, directory: &TreePath, names: &[&str]) -> bool;

    /// The path with all links followed; of a path whose end does not exist yet, those on the way to it. `None` if it
    /// cannot be told.
    fn physical(&self, path: &TreePath) -> Option<TreePath>;

    /// Where the links are that are followed on the way to `path`.
    fn links_to(&self, path: &TreePath) -> Vec<TreePath>;

    /// Whether a result may have made the link at `path`.
    fn may_be_of_result(&self, _path: &TreePath) -> bool {
        true
    }

    /// The first bytes of a regular file; `None` if it cannot be read.
    fn text(&self, path: &TreePath) -> Option<Vec<u8>>;

    /// The names in a directory; none if it cannot be listed.
    fn names(&self, directory: &TreePath) -> Vec<Vec<u8>>;

    /// Where links lead that stand at the places of secrets in `home`: what is there is secret as well.
    fn secrets(&self, home: &TreePath) -> Vec<TreePath>;

    /// Whether it is a file that not everybody may read, or a folder.
    fn may_be_closed(&self, path: &TreePath) -> bool;
}

/// What marks the root of a project.
const MARKERS: &[&str] = &[".git", ".hg", ".svn", ".jj"];
/// Where nothing is under version control: what stands in the root of a tree that is built as one. The highest one counts.
const BUILD_ROOTS: &[&str] =
    &["Cargo.toml", "go.work", "pnpm-workspace.yaml", "settings.gradle", "settings.gradle.kts"];
/// Folders in which anybody may make one: what is there marks nothing.
const SHARED: [&[u8]; 3] = [b"/tmp", b"/var/tmp", b"/dev/shm"];
/// Paths that are taken from one command's arguments.
const NAMED_MAX: usize = 10_000;

/// A project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// Its root.
    pub root: TreePath,
    /// It has a version control folder or a `.gleaner.toml`: it is not just the working directory.
    pub marked: bool,
    /// The git folders of a submodule or of a further working tree, which are elsewhere.
    pub linked: Vec<TreePath>,
}

impl Project {
    /// All folders that belong to it.
    pub fn roots(&self) -> impl Iterator<Item = &TreePath> {
        std::iter::once(&self.root).chain(&self.linked)
    }
}

/// What a scope is made from.
#[derive(Clone, Copy, Debug)]
pub struct ScopeInput<'a> {
    /// `HOME`, if it is set and absolute.
    pub home: Option<&'a TreePath>,
    /// The user.
    pub uid: u32,
    /// Working directory, links followed.
    pub cwd: &'a TreePath,
    /// Program and arguments.
    pub argv: &'a [Vec<u8>],
    /// Environment, each `NAME=value`.
    pub env: &'a [Vec<u8>],
    /// The program's file, and the script that it interprets, as far as they are known.
    pub program: &'a [TreePath],
    /// Whose the workers are.
    pub trust: Trust,
}

/// What one command is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The user's home; `None` if there is none worth the name (unset, or `/`).
    pub home: Option<TreePath>,
    /// The user.
    pub uid: u32,
    /// Working directory.
    pub cwd: TreePath,
    /// The project; `None` in the home itself and above it.
    pub project: Option<Project>,
    /// What the arguments name, as written and with links followed that no result can have made; without the home and what is above it.
    pub named: Vec<TreePath>,
    /// What scripts in the arguments name, the same.
    pub mentioned: Vec<TreePath>,
    /// Of these, what is named to be run: it is read, and not written to.
    pub programs: Vec<TreePath>,
    /// The home itself is named in the arguments, or is the working directory: its listing may be seen.
    pub home_listed: bool,
    /// Folders that the environment names as places of programs and libraries.
    pub folders: Vec<TreePath>,
    /// The virtual environments that are active, or whose interpreter the command runs.
    pub environments: Vec<TreePath>,
    /// Those of them that are so by what no command elsewhere may change: these may be changed.
    pub own_environments: Vec<TreePath>,
    /// Places of caches, outputs and files of the moment that the environment names.
    pub places: Places,
    /// What variables name as settings by which something is run later, and these variables.
    pub settings: Vec<(TreePath, &'static str)>,
    /// What is secret because a link at the place of a secret leads there, or because it is this program's own.
    pub closed: Vec<TreePath>,
    /// Of what is named and of the folders in variables, outside homes and the project: what is open even if it is closed to others.
    pub opened: Vec<TreePath>,
    /// What the user makes is closed to others unless it is opened to them: that a file is closed tells nothing.
    pub closes_all: bool,
    /// Whose the workers are.
    pub trust: Trust,
    /// What the project's file grants, if its owner trusts it.
    pub granted: Granted,
    /// Why that file grants nothing, if there is one and it does not.
    pub grants_nothing: Option<String>,
}

impl Scope {
    /// Takes apart what the command says.
    pub fn new(input: &ScopeInput<'_>, lookup: &dyn Lookup) -> Self {
        // Paths of tasks have no links in them.
        let home = input.home.map(|home| lookup.physical(home).unwrap_or_else(|| home.clone()));
        let home = home.filter(|home| !home.is_root());
        let above = |path: &TreePath| path.is_root() || home.as_ref().is_some_and(|home| home.is_within(path));
        let project = project_of(input.cwd, home.as_ref(), lookup);
        let in_project = |path: &TreePath| project.iter().flat_map(Project::roots).any(|root| path.is_within(root));
        let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|name| variable(input.env, name));
        let active: Vec<TreePath> = active.filter_map(TreePath::parse).collect();
        let useful = |path: &TreePath| !above(path);
        let mut writable: Vec<TreePath> = project.iter().flat_map(Project::roots).cloned().collect();
        let places = Places::of(input.env, &|_, place| vec![place]);
        writable.extend(places.outputs.into_iter().chain(places.temporary).filter(useful));
        let (home, is_at_home) = (home.as_ref(), home.as_ref() == Some(input.cwd));
        let reached = Reached { lookup, home, is_at_home, writable, environments: &active };
        let all_of = |paths: Vec<TreePath>, led: &dyn Fn(TreePath) -> Vec<TreePath>| {
            tidy(paths.into_iter().flat_map(led).filter(useful).collect())
        };
        let named = named_paths(input.argv, input.cwd).into_iter();
        let named: Vec<TreePath> = named.flat_map(|path| reached.both(path)).collect();
        let home_listed = is_at_home || home.is_some_and(|home| named.contains(home));
        let named = tidy(named.into_iter().filter(useful).collect());
        let mentioned = all_of(mentioned(input.argv, input.cwd, home), &|path| reached.both(path));
        // What is only read, or closed by that, is meant wherever it is.
        let both = |path: TreePath| [lookup.physical(&path), Some(path)].into_iter().flatten().collect::<Vec<_>>();
        let programs = programs(input.argv, input.cwd, home).into_iter().flat_map(both).collect();
        let of_programs: Vec<&TreePath> = input.program.iter().chain(&named).collect();
        let [environments, own_environments] = active_environments(active.clone(), &of_programs, &in_project, lookup);
        let environments = all_of(environments, &|path| reached.environment_to_read(path));
        let own_environments = all_of(own_environments, &|path| reached.environment(path));
        let mut folders = folders_of(input.env);
        if input.trust != Trust::Own {
            let outside = environments.iter().filter(|root| !in_project(root));
            folders.extend(outside.flat_map(|root| folders_of_environment(root, lookup)));
        }
        let folders = all_of(folders, &|path| reached.both(path));
        let place = |is_cache, place| if is_cache { both(place) } else { reached.place(place) };
        let places = Places::of(input.env, &|is_cache, at| place(is_cache, at).into_iter().filter(useful).collect());
        let closed = home.into_iter().flat_map(|home| lookup.secrets(home)).filter(useful).collect();
        let (uid, cwd, trust, granted) = (input.uid, input.cwd.clone(), input.trust, Granted::default());
        let (opened, closes_all, grants_nothing) = Default::default();
        let scope = Self {
            home: home.cloned(),
            uid,
            cwd,
            project,
            named,
            mentioned,
            programs,
            home_listed,
            folders,
            environments,
            own_environments,
            places,
            settings: settings_of(input.env, &both),
            closed,
            opened,
            closes_all,
            trust,
            granted,
            grants_nothing,
        };
        Self { opened: scope.opened(lookup), ..scope }
    }

    /// What of the named paths and of the folders in variables can open closed files: nothing of the system, nor a folder of everybody's.
    fn opened(&self, lookup: &dyn Lookup) -> Vec<TreePath> {
        let is_shared = |path: &TreePath| path.components().nth(1).is_none() || path.as_bytes() == b"/var/tmp";
        // Of thousands of named paths most are the project's, which is soon known.
        let may_open = |path: &&TreePath| {
            !self.in_project(path) && !is_shared(path) && !is_services_place(path) && self.home_of(path).is_none()
        };
        let named = self.named.iter().filter(|path| !path.is_in_system_folder()).filter(may_open);
        let named = named.filter(|path| lookup.may_be_closed(path));
        let of_variables = self.folders.iter().chain(&self.environments).filter(may_open);
        let mut opened: Vec<TreePath> = named.chain(of_variables).cloned().collect();
        opened.sort();
        opened.dedup();
        opened
    }

    /// Whether `path` is in the project.
    pub fn in_project(&self, path: &TreePath) -> bool {
        self.project.iter().flat_map(Project::roots).any(|root| path.is_within(root))
    }

    /// Whether `path` is named in the arguments or a script in them, or lies in a directory that is.
    pub fn is_named(&self, path: &TreePath) -> bool {
        // A path's ancestors sort before it, but other paths may come between.
        std::iter::successors(Some(path.clone()), TreePath::parent).any(|at| self.is_named_itself(&at))
    }

    /// Whether `path` itself is named in the arguments, or a script in them.
    pub fn is_named_itself(&self, path: &TreePath) -> bool {
        self.named.binary_search(path).is_ok() || self.mentioned.binary_search(path).is_ok()
    }

    /// Whether `path` is called in a named folder as something else that is named.
    pub fn is_copy_of_named(&self, path: &TreePath) -> bool {
        let is_copy = || self.named.iter().any(|named| named.name() == path.name() && named != path);
        path.parent().is_some_and(|parent| self.is_named_itself(&parent)) && is_copy()
    }

    /// Whether `path` stands beside a named file and starts with its name less the ending: `paper.pdf` beside
    /// `paper.tex`, `a.txt.gz` beside `a.txt`.
    pub fn is_beside_named(&self, path: &TreePath) -> bool {
        self.named.iter().any(|named| {
            let name = named.name();
            let stem = name.iter().rposition(|byte| *byte == b'.').map_or(name, |dot| &name[..dot]);
            !stem.is_empty() && path.name().starts_with(stem) && path.parent() == named.parent()
        })
    }

    /// Whether the working directory is the home itself.
    pub fn at_home(&self) -> bool {
        self.home.as_ref() == Some(&self.cwd)
    }

    /// The home that `path` lies in.
    pub(super) fn home_of(&self, path: &TreePath) -> Option<TreePath> {
        home_of(path, self.home.as_ref())
    }
}

/// These in order, each once.
fn tidy(mut paths: Vec<TreePath>) -> Vec<TreePath> {
    paths.sort();
    paths.dedup();
    paths
}

/// The environments that are active, with those that these programs and scripts belong to; and which of them are so by what no command elsewhere
/// may change. What lies in the project a result may have made: that names environments there alone.
fn active_environments(
    active: Vec<TreePath>,
    programs: &[&TreePath],
    in_project: &dyn Fn(&TreePath) -> bool,
    lookup: &dyn Lookup,
) -> [Vec<TreePath>; 2] {
    let (inner, outer): (Vec<&TreePath>, Vec<&TreePath>) = programs.iter().copied().partition(|path| in_project(path));
    let by_project = environments_of(inner.into_iter(), lookup);
    let inner = by_project.iter().filter(|root| in_project(root)).cloned();
    let own: Vec<_> = active.into_iter().chain(environments_of(outer.into_iter(), lookup)).chain(inner).collect();
    [own.iter().cloned().chain(by_project).collect(), own]
}

/// The project that `cwd` lies in: the nearest directory with a marker of version control, else the nearest with a project's file,
/// else the highest of those that are built as one, else `cwd`; never the home, nor what is above it, nor `/`.
pub fn project_of(cwd: &TreePath, home: Option<&TreePath>, lookup: &dyn Lookup) -> Option<Project> {
    let above = |path: &TreePath| path.is_root() || home.is_some_and(|home| home.is_within(path));
    let way = std::iter::successors(Some(cwd.clone()), TreePath::parent).take_while(|path| !above(path));
    let way: Vec<TreePath> = way.filter(|path| !SHARED.contains(&path.as_bytes())).collect();
    let marked = |markers: &[&str]| way.iter().find(|path| lookup.has_any(path, markers)).cloned();
    if let Some(root) = marked(MARKERS).or_else(|| marked(&[PROJECT_FILE])) {
        let mut linked = git_folders(&root, lookup);
        linked.retain(|folder| !above(folder));
        return Some(Project { root, marked: true, linked });
    }
    let built = way.iter().rev().find(|path| lookup.has_any(path, BUILD_ROOTS));
    let root = built.unwrap_or(cwd).clone();
    (!above(cwd)).then(|| Project { root, marked: false, linked: Vec::new() })
}

/// What arguments may name: each as a path, and what follows `=`, a one-letter option, `@`, commas and colons.
fn named_paths(argv: &[Vec<u8>], cwd: &TreePath) -> Vec<TreePath> {
    let mut named = Vec::new();
    let mut add = |text: &[u8]| {
        if !text.is_empty() && named.len() < NAMED_MAX {
            named.extend(cwd.resolve(text));
        }
    };
    if let Some(program) = argv.first().filter(|program| program.contains(&b'/')) {
        add(program);
    }
    for argument in argv.iter().skip(1) {
        match argument.as_slice() {
            [b'-', b'-', rest @ ..] | [b'-', rest @ ..] if !rest.is_empty() => {
                let value = rest.iter().position(|byte| *byte == b'=').map(|at| &rest[at + 1..]);
                value.into_iter().for_each(&mut add);
                // -Ipath; not --option, whose letters would be names.
                if argument.get(1) != Some(&b'-') && rest.len() > 1 {
                    add(&rest[1..]);
                }
            }
            [b'@', rest @ ..] => add(rest),
            whole => {
                add(whole);
                whole.iter().position(|byte| *byte == b'=').into_iter().for_each(|at| add(&whole[at + 1..]));
            }
        }
        // -Wl,-rpath,/x and -cp /a:/b: only what is certainly a path.
        if argument.iter().any(|byte| matches!(byte, b',' | b':')) {
            let parts = argument.split(|byte| matches!(byte, b',' | b':' | b'='));
            parts.filter(|part| part.starts_with(b"/")).for_each(&mut add);
        }
    }
    named
}

fn variable<'a>(env: &'a [Vec<u8>], name: &str) -> Option<&'a [u8]> {
    env.iter().find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// Variables that name a file or folder of settings by which something is run later, or such files within a folder.
const SETTINGS: &[(&str, &[&str])] = &[
    ("BASH_ENV", &[]),
    ("CARGO_HOME", &["config", "config.toml", "env", "bin"]),
    ("CONDARC", &[]),
    ("ENV", &[]),
    ("GIT_CONFIG_GLOBAL", &[]),
    ("GIT_CONFIG_SYSTEM", &[]),
    ("GIT_TEMPLATE_DIR", &[]),
    ("INPUTRC", &[]),
    ("NPM_CONFIG_GLOBALCONFIG", &[]),
    ("NPM_CONFIG_USERCONFIG", &[]),
    ("PIP_CONFIG_FILE", &[]),
    ("PYTHONSTARTUP", &[]),
    ("R_ENVIRON_USER", &[]),
    ("R_PROFILE_USER", &[]),
    ("XDG_CONFIG_HOME", &["autostart", "environment.d", "direnv", "fish", "git", "mise", "nvim", "systemd"]),
    ("ZDOTDIR", &[".zlogin", ".zlogout", ".zprofile", ".zshenv", ".zshrc"]),
    ("npm_config_userconfig", &[]),
];

fn settings_of(env: &[Vec<u8>], both: &impl Fn(TreePath) -> Vec<TreePath>) -> Vec<(TreePath, &'static str)> {
    let mut settings = Vec::new();
    for (name, within) in SETTINGS {
        let Some(named) = variable(env, name).and_then(TreePath::parse) else { continue };
        let parts = within.iter().filter_map(|part| named.resolve(part.as_bytes()));
        let whole = within.is_empty().then(|| named.clone());
        settings.extend(parts.chain(whole).flat_map(both).map(|path| (path, *name)));
    }
    settings
}

/// The folders in variables that are lists of folders, or a tool's home.
fn folders_of(env: &[Vec<u8>]) -> Vec<TreePath> {
    const NOT: &[&[u8]] = &[b"HOME", b"PWD", b"OLDPWD", b"DBUS_SYSTEM_BUS_ADDRESS", b"MAILPATH", b"GNUPGHOME"];
    const ENDINGS: &[&[u8]] = &[
        b"PATH",
        b"_HOME",
        b"HOME",
        b"_PREFIX",
        b"_ROOT",
        b"ROOT",
        b"_DIRS",
        b"_DIR",
        b"LIB",
        b"INPUTS",
        b"VIRTUAL_ENV",
    ];
    let mut folders = Vec::new();
    for entry in env {
        let Some(at) = entry.iter().position(|byte| *byte == b'=') else { continue };
        let (name, value) = (&entry[..at], &entry[at + 1..]);
        let is_list = ENDINGS.iter().any(|ending| name.ends_with(ending)) && !NOT.contains(&name);
        // XDG_CONFIG_HOME and the like name all of a user's settings, and ours our own state.
        let of_settings = (name.starts_with(b"XDG_") && !name.ends_with(b"_DIRS")) || name.starts_with(b"GLEANER_");
        if is_list && !of_settings {
            let absolute = value.split(|byte| *byte == b':').filter(|part| part.starts_with(b"/"));
            folders.extend(absolute.filter_map(|part| TreePath::root().resolve(part)));
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::super::testing::Marked;
    use super::*;

    fn path(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn projects() {
        let home = path("/home/u");
        let marked = Marked { roots: &["/home/u", "/home/u/p", "/srv/x", "/home"], secrets: &[] };
        for (cwd, root, is_marked) in [
            ("/home/u/p", "/home/u/p", true),
            ("/home/u/p/a/b", "/home/u/p", true),
            ("/home/u/q/a", "/home/u/q/a", false),
            ("/srv/x/y", "/srv/x", true),
            ("/srv/z", "/srv/z", false),
            ("/tmp", "/tmp", false),
        ] {
            let project = project_of(&path(cwd), Some(&home), &marked);
            assert_eq!(project, Some(Project { root: path(root), marked: is_marked, linked: Vec::new() }), "{cwd}");
        }
        for cwd in ["/home/u", "/home", "/"] {
            assert_eq!(project_of(&path(cwd), Some(&home), &marked), None, "{cwd}");
        }
    }

    #[test]
    fn arguments_name_paths() {
        for (argument, wanted) in [
            ("a.c", "/w/a.c"),
            ("../x", "/x"),
            ("/abs", "/abs"),
            ("--out=b/c", "/w/b/c"),
            ("-Iinclude", "/w/include"),
            ("-L/lib", "/lib"),
            ("-Wl,-rpath,/opt/x", "/opt/x"),
            ("of=/y", "/y"),
            ("@args", "/w/args"),
            ("/a:/b", "/b"),
            ("DESTDIR=out", "/w/out"),
        ] {
            let argv = [b"prog".to_vec(), argument.into()];
            assert!(named_paths(&argv, &path("/w")).contains(&path(wanted)), "{argument}");
        }
        assert!(named_paths(&[b"prog".to_vec(), b"--long".to_vec(), b"-".to_vec()], &path("/w")).len() <= 1);
    }

    #[test]
    fn the_home_is_never_named() {
        let (home, cwd) = (path("/home/u"), path("/home/u"));
        let argv = [&b"ls"[..], b"/home/u", b"/", b".", b"/home", b"x"].map(<[u8]>::to_vec);
        let env = [&b"PATH=/home/u:/home/u/bin:/usr/bin"[..], b"XDG_CONFIG_HOME=/home/u/.config"].map(<[u8]>::to_vec);
        let input = ScopeInput {
            home: Some(&home),
            uid: 1,
            cwd: &cwd,
            argv: &argv,
            env: &env,
            program: &[],
            trust: Trust::Others,
        };
        let scope = Scope::new(&input, &Marked { roots: &[], secrets: &[] });
        assert_eq!(scope.named, [path("/home/u/x")]);
        assert!(scope.home_listed && scope.project.is_none());
        assert_eq!(scope.folders, [path("/home/u/bin"), path("/usr/bin")]);
    }
}
