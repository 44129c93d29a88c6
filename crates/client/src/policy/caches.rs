//! What programs keep of themselves: caches, histories and notes. Commands elsewhere may write there, and it is dropped.

use super::Dropped;
use super::names::{leads_to_any, under_any, within_any};
use base::TreePath;

/// Those in a home, relative to it.
const IN_HOME: &[&str] = &[
    ".aesara",
    ".android/build-cache",
    ".android/cache",
    ".astropy",
    ".babel.json",
    ".bundle/cache",
    ".cabal/logs",
    ".cabal/packages",
    ".cabal/store",
    ".cache",
    ".cargo/.crates.toml",
    ".cargo/.crates2.json",
    ".cargo/.global-cache",
    ".cargo/.package-cache",
    ".cargo/.package-cache-mutate",
    ".cargo/git",
    ".cargo/registry",
    ".ccache",
    ".cmake/packages",
    ".composer/cache",
    ".conan/data",
    ".conan2/p",
    ".config/GIMP",
    ".config/ImageMagick",
    ".config/QtProject",
    ".config/QtProject.conf",
    ".config/astropy",
    ".config/blender",
    ".config/configstore",
    ".config/dconf",
    ".config/go/telemetry",
    ".config/gtk-2.0",
    ".config/inkscape",
    ".config/libreoffice",
    ".config/matplotlib",
    ".config/octave",
    ".config/pulse",
    ".cpan/build",
    ".cupy",
    ".dart",
    ".dart-tool",
    ".dartServer",
    ".dbus",
    ".dotnet",
    ".fontconfig",
    ".gem/specs",
    ".ghcup/cache",
    ".gnuplot_history",
    ".gradle",
    ".ipython",
    ".ivy2/cache",
    ".java",
    ".julia/compiled",
    ".julia/logs",
    ".julia/scratchspaces",
    ".keras",
    ".lesshst",
    ".local/share/NuGet",
    ".local/share/gvfs-metadata",
    ".local/share/jupyter",
    ".local/share/octave",
    ".local/share/pnpm/store",
    ".local/share/recently-used.xbel",
    ".local/share/uv",
    ".local/share/virtualenv",
    ".local/state",
    ".m2/repository",
    ".matplotlib",
    ".node-gyp",
    ".node_repl_history",
    ".npm",
    ".nuget/packages",
    ".nv",
    ".octave_hist",
    ".pdfbox.cache",
    ".pki",
    ".pnpm-store",
    ".pub-cache",
    ".pylint.d",
    ".pytensor",
    ".python_history",
    ".recently-used",
    ".rnd",
    ".rustup/downloads",
    ".rustup/tmp",
    ".sbt/boot",
    ".sccache",
    ".sqlite_history",
    ".stack/pantry",
    ".stack/setup-exe-cache",
    ".stack/setup-exe-src",
    ".stack/snapshots",
    ".stack/stack.sqlite3",
    ".templateengine",
    ".terraform.d/checkpoint_cache",
    ".terraform.d/checkpoint_signature",
    ".texmf-var",
    ".theano",
    ".triton",
    ".viminfo",
    ".wget-hsts",
    ".yarn/berry",
    ".yarn/cache",
    ".yarnrc",
    "go/pkg",
];
/// Those of the system.
const OF_SYSTEM: &[&str] = &["/var/cache", "/var/lib/texmf", "/var/lib/apt", "/var/lib/dpkg"];
/// Variables that say where one is instead.
const CACHE_VARIABLES: &[&str] = &[
    "CCACHE_DIR",
    "CCACHE_TEMPDIR",
    "CUDA_CACHE_PATH",
    "CUPY_CACHE_DIR",
    "DENO_DIR",
    "GOCACHE",
    "GOMODCACHE",
    "GRADLE_USER_HOME",
    "HF_HOME",
    "IPYTHONDIR",
    "MPLCONFIGDIR",
    "NPM_CONFIG_CACHE",
    "NUGET_PACKAGES",
    "NUMBA_CACHE_DIR",
    "PIP_CACHE_DIR",
    "PRE_COMMIT_HOME",
    "PYTHONPYCACHEPREFIX",
    "RUFF_CACHE_DIR",
    "SCCACHE_DIR",
    "TEXMFVAR",
    "TORCH_HOME",
    "TRITON_CACHE_DIR",
    "UV_CACHE_DIR",
    "XDG_CACHE_HOME",
    "XDG_STATE_HOME",
    "YARN_CACHE_FOLDER",
    "npm_config_cache",
];
/// Variables that name what is a folder with a cache in it, and where in it that is.
const CACHES_WITHIN: &[(&str, &[&str])] = &[
    (
        "CARGO_HOME",
        &[
            "registry",
            "git",
            ".package-cache",
            ".package-cache-mutate",
            ".global-cache",
            ".crates.toml",
            ".crates2.json",
        ],
    ),
    ("GOPATH", &["pkg"]),
    ("RUSTUP_HOME", &["tmp", "downloads"]),
];
/// Variables that say where what is built goes.
const OUTPUT_VARIABLES: &[&str] = &["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR", "CARGO_BUILD_BUILD_DIR"];
/// Variables that say where files of the moment go.
const TEMPORARY_VARIABLES: &[&str] = &["TMPDIR", "TMP", "TEMP", "TEMPDIR", "GOTMPDIR"];

/// Places that a command's environment names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Caches.
    pub caches: Vec<TreePath>,
    /// Where what is built goes.
    pub outputs: Vec<TreePath>,
    /// Where files of the moment go.
    pub temporary: Vec<TreePath>,
}

impl Places {
    /// Those in `env`, a variable `NAME=value` each; `meant` says by which paths a place is met, if it counts, and is told whether it is a
    /// cache.
    pub(super) fn of(env: &[Vec<u8>], meant: &dyn Fn(bool, TreePath) -> Vec<TreePath>) -> Self {
        let mut named = Self::default();
        for entry in env {
            let Some(at) = entry.iter().position(|byte| *byte == b'=') else { continue };
            let (name, value) = (&entry[..at], &entry[at + 1..]);
            let is = |list: &[&str]| list.iter().any(|known| known.as_bytes() == name);
            let within = CACHES_WITHIN.iter().find(|(known, _)| known.as_bytes() == name);
            let (list, is_cache) = match within {
                None if is(OUTPUT_VARIABLES) => (&mut named.outputs, false),
                None if is(TEMPORARY_VARIABLES) => (&mut named.temporary, false),
                None if !is(CACHE_VARIABLES) => continue,
                _ => (&mut named.caches, true),
            };
            if !value.starts_with(b"/") {
                continue;
            }
            let Some(place) = TreePath::root().resolve(value) else { continue };
            match within {
                Some((_, inner)) => {
                    let places = inner.iter().filter_map(|inner| place.resolve(inner.as_bytes()));
                    list.extend(places.flat_map(|place| meant(is_cache, place)));
                }
                None => list.extend(meant(is_cache, place)),
            }
        }
        named
    }

    /// Why a change at `path` is dropped for what the environment says.
    pub(super) fn drops(&self, path: &TreePath) -> Option<Dropped> {
        self.caches.iter().any(|cache| path.is_within(cache)).then_some(Dropped::NamedCache)
    }

    /// Whether `path` is a directory on the way to a cache.
    pub(super) fn leads_to_cache(&self, path: &TreePath) -> bool {
        self.caches.iter().any(|cache| cache.is_within(path))
    }
}

/// Whether `path` is a directory on the way to a cache in `home`.
pub(super) fn leads_to_cache(path: &TreePath, home: &TreePath) -> bool {
    leads_to_any(path, home, IN_HOME) || tex_year(path, home).is_some_and(|rest| rest.is_empty())
}

/// Whether `path` is a cache in `home`: what is written there is dropped.
pub(super) fn is_cache(path: &TreePath, home: &TreePath) -> bool {
    let is_of_tex = |rest: &[u8]| rest == b"texmf-var" || rest.starts_with(b"texmf-var/");
    within_any(path, home, IN_HOME) || tex_year(path, home).is_some_and(is_of_tex)
}

/// Whether `path` is a cache outside homes.
pub(super) fn is_system_cache(path: &TreePath) -> bool {
    under_any(path, OF_SYSTEM)
}

/// What follows `.texlive2024` and the like in `home`.
fn tex_year<'a>(path: &'a TreePath, home: &TreePath) -> Option<&'a [u8]> {
    let year = path.relative_to(home)?.strip_prefix(b".texlive")?;
    let end = year.iter().position(|byte| *byte == b'/').unwrap_or(year.len());
    year[..end].iter().all(u8::is_ascii_digit).then(|| year.get(end + 1..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).expect("a path")
    }

    #[test]
    fn caches_are_known_by_name_and_by_year() {
        let home = path("/home/u");
        for cache in
            [".cache/x", ".nv/ComputeCache/a", ".texlive2024/texmf-var/luatex-cache/x", ".local/share/virtualenv/wheel"]
        {
            assert!(is_cache(&home.resolve(cache.as_bytes()).expect("a path"), &home), "{cache}");
        }
        for other in [".texlive2024/texmf-config/x", ".texlivemine/texmf-var", ".bashrc", "texmf-var", ".cachet"] {
            assert!(!is_cache(&home.resolve(other.as_bytes()).expect("a path"), &home), "{other}");
        }
        assert!(leads_to_cache(&path("/home/u/.texlive2024"), &home) && !leads_to_cache(&path("/home/u/.tex"), &home));
    }

    #[test]
    fn variables_name_places() {
        let env = [
            "CCACHE_DIR=/data/ccache",
            "CARGO_HOME=/data/cargo",
            "CARGO_TARGET_DIR=/data/target",
            "TMPDIR=/data/tmp",
            "GOCACHE=off",
            "PATH=/data",
        ];
        let env = env.map(|entry| entry.as_bytes().to_vec());
        let named = Places::of(&env, &|_, place| vec![place]);
        assert!(named.caches.contains(&path("/data/ccache")) && named.caches.contains(&path("/data/cargo/registry")));
        assert_eq!((named.outputs, named.temporary), (vec![path("/data/target")], vec![path("/data/tmp")]));
        assert_eq!(Places::of(&env, &|_, _| Vec::new()), Places::default(), "as of a place that is a home");
        assert!(!named.caches.iter().any(|cache| path("/data/cargo/bin/x").is_within(cache)));
    }
}
