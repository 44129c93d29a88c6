//! The lists that the policies go by: what is secret, what is a toolchain, what is a cache, what is never to be changed
//! by a command.

use base::TreePath;

/// Components that are secret wherever they are.
const SECRET_ANYWHERE: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".kube",
    ".azure",
    ".netrc",
    ".pypirc",
    ".git-credentials",
    ".vault-token",
    ".password-store",
    ".pgpass",
    ".my.cnf",
    ".s3cfg",
    ".boto",
    ".htpasswd",
    ".kaggle",
    ".oci",
    ".terraform.d",
    ".mozilla",
    ".thunderbird",
    ".gleaner-keys",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
];
/// What is secret in a home, relative to it.
const SECRET_IN_HOME: &[&str] = &[
    ".docker/config.json",
    ".config/gcloud",
    ".config/gh",
    ".config/hub",
    ".config/glab-cli",
    ".config/git/credentials",
    ".config/gleaner",
    ".local/state/gleaner",
    ".local/share/gleaner",
    ".cache/gleaner",
    ".config/google-chrome",
    ".config/google-chrome-beta",
    ".config/google-chrome-unstable",
    ".config/microsoft-edge-dev",
    ".config/microsoft-edge-beta",
    ".local/share/qutebrowser",
    ".librewolf",
    ".waterfox",
    ".floorp",
    ".zen",
    ".tor-browser",
    ".var/app",
    "snap/firefox",
    "snap/chromium",
    "snap/thunderbird",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/opera",
    ".config/vivaldi",
    ".config/op",
    ".config/rclone",
    ".config/doctl",
    ".config/containers/auth.json",
    ".config/Signal",
    ".config/Slack",
    ".config/keepassxc",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".local/share/TelegramDesktop",
    ".npmrc",
    ".yarnrc.yml",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".sbt/.credentials",
    ".sbt/credentials",
    ".sbt/0.13/credentials.sbt",
    ".sbt/1.0/credentials.sbt",
    ".sbt/1.0/plugins/credentials.sbt",
    ".conan2/credentials.json",
    ".conan2/remotes.json.credentials",
    ".nuget/NuGet/NuGet.Config",
    ".config/NuGet/NuGet.Config",
    ".local/share/pnpm/auth.ini",
    ".config/pnpm/auth.ini",
    ".config/pnpm/rc",
    ".bundle/config",
    ".databrickscfg",
    ".terraformrc",
    ".dbt/profiles.yml",
    ".snowsql/config",
    ".authinfo",
    ".authinfo.gpg",
    ".mbsyncrc",
    ".msmtprc",
    ".fetchmailrc",
    ".offlineimaprc",
    ".muttrc",
    ".mutt",
    ".config/neomutt",
    ".config/msmtp",
    ".local/share/fish/fish_history",
    ".config/fish/fish_history",
    ".zhistory",
    ".histfile",
    ".ivy2/.credentials",
    ".Xauthority",
    ".ICEauthority",
    ".lesshst",
    ".viminfo",
    ".cache/mozilla",
    ".cache/google-chrome",
    ".cache/chromium",
    ".cache/thunderbird",
    ".cache/keyring",
    ".huggingface/token",
    ".cache/huggingface/token",
    ".cache/huggingface/stored_tokens",
    ".huggingface/stored_tokens",
];
/// What is secret of the system.
const SECRET_OF_SYSTEM: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/krb5.keytab",
    "/etc/NetworkManager/system-connections",
    "/etc/wireguard",
    "/etc/letsencrypt",
    "/etc/gleaner",
    "/etc/security/opasswd",
    "/run/secrets",
    "/run/credentials",
    "/run/gleaner",
    "/var/lib/gleaner",
    "/etc/kubernetes",
];
/// Toolchains, libraries and fonts in a home: readable.
const TOOLCHAINS: &[&str] = &[
    ".cargo",
    ".rustup",
    ".pyenv",
    ".rbenv",
    ".rvm",
    ".nvm",
    ".nodenv",
    ".asdf",
    ".local/bin",
    ".local/lib",
    ".local/share/mise",
    ".local/share/uv",
    ".local/share/fonts",
    ".local/share/pnpm",
    ".sdkman",
    "go",
    ".go",
    ".gvm",
    ".ghcup",
    ".stack",
    ".cabal",
    ".opam",
    ".elan",
    ".julia",
    ".juliaup",
    ".deno",
    ".bun",
    ".volta",
    ".fnm",
    ".conda",
    "miniconda3",
    "miniconda",
    "anaconda3",
    "miniforge3",
    "mambaforge",
    "micromamba",
    ".nix-profile",
    ".nix-defexpr",
    ".linuxbrew",
    "texmf",
    ".texmf",
    ".texmf-var",
    ".texmf-config",
    ".fonts",
    ".fonts.conf",
    ".npm-global",
    ".npm",
    ".yarn",
    ".pnpm-store",
    ".m2",
    ".gradle",
    ".ivy2",
    ".sbt",
    ".cpan",
    "perl5",
    "R",
    ".dotnet",
    ".nuget",
    ".vcpkg",
    ".conan",
    ".conan2",
    ".platformio",
    ".arduino15",
    ".emscripten",
    ".gem",
    ".bundle",
    ".pub-cache",
    "bin",
];
/// Settings of tools that hold no secrets by convention: without them `git`, for one, refuses to run.
const SETTINGS: &[&str] = &[
    ".gitconfig",
    ".gitignore",
    ".gitignore_global",
    ".gitattributes",
    ".config/git",
    ".config/go",
    ".config/fontconfig",
    ".condarc",
    ".config/pip",
    ".pip",
    ".config/matplotlib",
    ".config/uv",
    ".config/ccache",
    ".latexmkrc",
    ".config/latexmk",
    ".indent.pro",
    ".clang-format",
    ".gdbinit",
    ".inputrc",
    ".profile",
    ".bashrc",
    ".bash_profile",
    ".bash_aliases",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".vimrc",
    ".ghci",
    ".irbrc",
    ".Rprofile",
    ".Renviron",
    ".sqliterc",
    ".perltidyrc",
    ".perlcriticrc",
    ".pylintrc",
    ".config/flake8",
    ".config/black",
    ".povray",
    ".magick",
    ".config/ImageMagick",
    ".asoundrc",
    ".terminfo",
    ".tool-versions",
    ".python-version",
    ".ruby-version",
    ".node-version",
    ".editorconfig",
    ".wgetrc",
    ".hgrc",
];
/// Parts of `.cache` that tools can make use of elsewhere.
const READABLE_CACHES: &[&str] = &[
    "pip",
    "uv",
    "go-build",
    "ccache",
    "fontconfig",
    "matplotlib",
    "npm",
    "yarn",
    "pnpm",
    "deno",
    "zig",
    "bazel",
    "bazelisk",
    "huggingface",
    "torch",
    "typescript",
    "node",
    "node-gyp",
    "pypoetry",
    "pre-commit",
    "black",
    "mypy",
    "ruff",
    "pylint",
    "golangci-lint",
    "composer",
    "ImageMagick",
    "mesa_shader_cache",
    "texlive",
    "luatex-cache",
    "electron",
    "Cypress",
];
/// Folders whose entries are homes.
const HOME_PARENTS: &[&str] = &["/home", "/Users", "/users", "/var/home", "/export/home"];

/// Whether `path` is secret wherever it is; `home` is the home it lies in, if any.
pub(super) fn is_secret(path: &TreePath, home: Option<&TreePath>) -> bool {
    let secret = |name: &[u8]| {
        SECRET_ANYWHERE.iter().any(|secret| secret.as_bytes() == name)
            || (name.starts_with(b"ssh_host_") && name.ends_with(b"_key"))
    };
    if path.components().any(secret) || is_runtime_folder(path) {
        return true;
    }
    match home {
        Some(home) => within_any(path, home, SECRET_IN_HOME),
        None => under_any(path, SECRET_OF_SYSTEM),
    }
}

/// Whether `path` is in the folder of a client daemon's door, or what a hub knows its own account by: who has the number or the secret that
/// is in it is taken for the daemon or the account.
fn is_runtime_folder(path: &TreePath) -> bool {
    let parts: Vec<&[u8]> = path.components().take(4).collect();
    match parts[..] {
        [b"run", b"user", _, name, ..] => name == b"gleaner",
        [b"dev", b"shm", name, ..] | [b"tmp", name, ..] => {
            let is = |begin: &[u8], digit: fn(&u8) -> bool| {
                name.strip_prefix(begin).is_some_and(|rest| !rest.is_empty() && rest.iter().all(digit))
            };
            is(b"gleaner-", u8::is_ascii_digit) || is(b".gleaner-", u8::is_ascii_hexdigit)
        }
        _ => false,
    }
}

/// Whether `path` is where the system keeps its programs, its settings, and its services their data.
pub(super) fn is_system_place(path: &TreePath) -> bool {
    path.is_in_system_folder() || is_services_place(path)
}

/// Whether `path` is where settings and the data of services are: who may read there is no accident.
pub(super) fn is_services_place(path: &TreePath) -> bool {
    const PLACES: &[&str] =
        &["/etc", "/run", "/boot", "/var/lib", "/var/log", "/var/spool", "/var/mail", "/var/backups", "/var/run"];
    under_any(path, PLACES)
}

/// Whether `path` is what programs make for a moment: all such files are closed to others, whatever is in them.
pub(super) fn is_made_for_a_moment(path: &TreePath) -> bool {
    let rest = [&b"/tmp/"[..], b"/var/tmp/"].iter().find_map(|folder| path.as_bytes().strip_prefix(*folder));
    rest.is_some_and(|name| name.starts_with(b"tmp") && !name.contains(&b'/'))
}

/// Where secrets are in `home` by convention, and the folders of secrets whose entries may lead elsewhere: who keeps
/// such files under version control has links there.
pub(crate) fn secret_places(home: &TreePath) -> (Vec<TreePath>, Vec<TreePath>) {
    const FOLDERS: &[&str] = &[".ssh", ".gnupg", ".aws", ".kube", ".azure", ".docker", ".config/gh"];
    let dotted = SECRET_ANYWHERE.iter().filter(|name| name.starts_with('.'));
    let at = |name: &&str| home.resolve(name.as_bytes());
    (dotted.chain(SECRET_IN_HOME).filter_map(at).collect(), FOLDERS.iter().filter_map(at).collect())
}

/// Whether `path` is a toolchain or a tool's settings in `home`, or a cache there that commands may read.
pub(super) fn is_tool(path: &TreePath, home: &TreePath) -> bool {
    if within_any(path, home, TOOLCHAINS) || within_any(path, home, SETTINGS) {
        return true;
    }
    let cache = path.relative_to(home).and_then(|rest| rest.strip_prefix(b".cache/"));
    let first = cache.and_then(|rest| rest.split(|byte| *byte == b'/').next());
    first.is_some_and(|first| READABLE_CACHES.iter().any(|name| name.as_bytes() == first))
}

/// Whether `path` is a directory on the way to a toolchain or to settings in `home`.
pub(super) fn leads_to_tool(path: &TreePath, home: &TreePath) -> bool {
    leads_to_any(path, home, TOOLCHAINS)
        || leads_to_any(path, home, SETTINGS)
        || path.relative_to(home).is_some_and(|rest| rest == b".cache")
}

pub(super) fn leads_to_any(path: &TreePath, home: &TreePath, list: &[&str]) -> bool {
    let Some(rest) = path.relative_to(home) else { return false };
    list.iter().any(|known| known.as_bytes().strip_prefix(rest).is_some_and(|tail| tail.starts_with(b"/")))
}

/// The home that `path` lies in: the user's own, or another's.
pub(super) fn home_of(path: &TreePath, own: Option<&TreePath>) -> Option<TreePath> {
    if let Some(own) = own.filter(|own| path.is_within(own)) {
        return Some(own.clone());
    }
    let root_home = TreePath::root().join(b"root");
    if path.is_within(&root_home) {
        return Some(root_home);
    }
    for parent in HOME_PARENTS {
        let parent = TreePath::parse(parent.as_bytes())?;
        let first = path.relative_to(&parent).and_then(|rest| rest.split(|byte| *byte == b'/').next());
        if let Some(first) = first.filter(|first| !first.is_empty()) {
            return Some(parent.join(first));
        }
    }
    None
}

/// The first component of `path` beneath `home`.
pub(super) fn first_in_home<'a>(path: &'a TreePath, home: &TreePath) -> &'a [u8] {
    path.relative_to(home).and_then(|rest| rest.split(|byte| *byte == b'/').next()).unwrap_or_default()
}

pub(super) fn within_any(path: &TreePath, home: &TreePath, list: &[&str]) -> bool {
    let Some(rest) = path.relative_to(home) else { return false };
    let starts = |known: &&str| {
        rest.strip_prefix(known.as_bytes()).is_some_and(|tail| tail.is_empty() || tail.starts_with(b"/"))
    };
    list.iter().any(starts)
}

pub(super) fn under_any(path: &TreePath, list: &[&str]) -> bool {
    within_any(path, &TreePath::root(), &list.iter().map(|known| &known[1..]).collect::<Vec<_>>())
}
