//! `cargo xtask package`: Debian packages of what was built, by `dpkg-deb` alone.
//!
//! `gleaner` has the programs, their manual and completions, and units for systemd of which none is enabled: nothing listens before
//! `gleaner join` or `gleaner up`. `libgleaner-dev` has the library for C. The same programs give the same bytes.

use crate::{need, run};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What it needs.
const NEEDS: [need::Need; 3] = [("dpkg-deb", "dpkg"), ("gzip", "gzip"), ("strip", "binutils")];
/// What the programs are linked with: no newer C library, as the tests of `cli` see to.
const DEPENDS: &str = "libc6 (>= 2.31), libgcc-s1 (>= 4.2)";
const MAINTAINER: &str = "The Gleaner developers <gleaner@localhost>";
/// Times of files in packages, unless the environment says another one: seconds since 1970.
const EPOCH_DEFAULT: &str = "1767225600";
const UNITS: [&str; 2] = ["gleaner-hub.service", "gleaner-worker.service"];
/// Shells: what completions are called, and where they go.
const SHELLS: [(&str, &str, [&str; 2]); 3] = [
    ("bash", "usr/share/bash-completion/completions", ["gleaner", "remrun"]),
    ("zsh", "usr/share/zsh/vendor-completions", ["_gleaner", "_remrun"]),
    ("fish", "usr/share/fish/vendor_completions.d", ["gleaner.fish", "remrun.fish"]),
];

const USAGE: &str = "usage: cargo xtask package [--programs FOLDER] [--to FOLDER] [--quick]";

type Outcome<T = ()> = Result<T, String>;
/// Puts a package's files into its tree, from the folder of programs.
type Fill = fn(&Tree, &Path) -> Outcome<Control>;

/// What is asked for.
struct Wanted {
    /// Folder with `gleaner`, `remrun` and `libgleaner.so`; none: they are built.
    programs: Option<PathBuf>,
    /// Where the packages go.
    to: PathBuf,
    /// Packs less closely.
    is_quick: bool,
}

/// Makes the packages, and prints their paths.
pub fn run(arguments: &[&str]) -> Outcome {
    let wanted = Wanted::read(arguments)?;
    need::programs(&NEEDS)?;
    let programs = wanted.programs.clone().map_or_else(|| run::build(true), Ok)?;
    fs::create_dir_all(&wanted.to).map_err(|error| format!("cannot create {}: {error}", wanted.to.display()))?;
    let (version, architecture) = (version()?, architecture()?);
    let packages: [(&str, Fill); 2] = [("gleaner", fill_programs), ("libgleaner-dev", fill_library)];
    for (name, fill) in packages {
        let tree = Tree::new(&wanted.to.join(format!("{name}.tree")))?;
        let control = fill(&tree, &programs)?;
        tree.control(name, &version, architecture, &control)?;
        let package = wanted.to.join(format!("{name}_{version}_{architecture}.deb"));
        tree.pack(&package, wanted.is_quick)?;
        println!("{}", package.display());
    }
    Ok(())
}

impl Wanted {
    fn read(arguments: &[&str]) -> Outcome<Self> {
        let mut wanted = Self { programs: None, to: run::target().join("package"), is_quick: false };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().map(PathBuf::from).ok_or(USAGE);
            match *argument {
                "--programs" => wanted.programs = Some(value()?),
                "--to" => wanted.to = value()?,
                "--quick" => wanted.is_quick = true,
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(wanted)
    }
}

/// What is said of a package.
struct Control {
    description: &'static str,
    fields: &'static str,
    /// Names and texts of scripts.
    scripts: &'static [(&'static str, &'static str)],
}

/// The programs, their manual and completions, and units.
fn fill_programs(tree: &Tree, programs: &Path) -> Outcome<Control> {
    for program in ["gleaner", "remrun"] {
        tree.program(&programs.join(program), &format!("usr/bin/{program}"))?;
    }
    let gleaner = programs.join("gleaner");
    let pages = tree.folder.join("man");
    said_by(Command::new(&gleaner).arg("man").arg(&pages))?;
    tree.pages(&pages, "1")?;
    remove(&pages)?;
    for (shell, folder, names) in SHELLS {
        for (program, name) in ["gleaner", "remrun"].into_iter().zip(names) {
            let script = said_by(Command::new(&gleaner).args(["completions", shell, program]))?;
            tree.file(&format!("{folder}/{name}"), &script, 0o644)?;
        }
    }
    for unit in UNITS {
        let text = read(&run::root().join("examples/systemd").join(unit))?;
        let text = text.replace("/usr/local/bin/", "/usr/bin/");
        tree.file(&format!("usr/lib/systemd/system/{unit}"), text.as_bytes(), 0o644)?;
    }
    tree.documents("gleaner")?;
    Ok(Control {
        description: "run commands on other machines' spare cycles as if they ran here\n\
                      `remrun COMMAND` runs it on a machine of the pool, with this machine's files; `gleaner up`\n\
                      makes a pool, `gleaner join` lends a machine to one. Nothing is started at installation.",
        fields: "Section: net\nRecommends: uidmap, zstd\n",
        scripts: &[
            ("postinst", include_str!("postinst")),
            ("prerm", include_str!("prerm")),
            ("postrm", include_str!("postrm")),
        ],
    })
}

/// The library for C.
fn fill_library(tree: &Tree, programs: &Path) -> Outcome<Control> {
    let library = format!("usr/lib/{}-linux-gnu/libgleaner.so", std::env::consts::ARCH);
    tree.program(&programs.join("libgleaner.so"), &library)?;
    // A library is not executed.
    tree.chmod(&library, 0o644)?;
    let source = run::root().join("crates/libgleaner");
    tree.file("usr/include/gleaner.h", read(&source.join("include/gleaner.h"))?.as_bytes(), 0o644)?;
    tree.pages(&source.join("man"), "3")?;
    tree.documents("libgleaner-dev")?;
    Ok(Control {
        description: "run commands on other machines from C\n\
                      The library libgleaner, its header and its manual page.",
        fields: "Section: libdevel\nRecommends: gleaner\n",
        scripts: &[],
    })
}

/// The files of a package, in a folder of their own that is removed at the end.
struct Tree {
    folder: PathBuf,
}

impl Drop for Tree {
    fn drop(&mut self) {
        // What stays is removed before the next package is made.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Tree {
    fn new(folder: &Path) -> Outcome<Self> {
        if folder.exists() {
            remove(folder)?;
        }
        let folder = folder.to_owned();
        fs::create_dir_all(folder.join("DEBIAN")).map_err(|error| failed("create", &folder, &error))?;
        Ok(Self { folder })
    }

    fn chmod(&self, path: &str, mode: u32) -> Outcome {
        let path = self.folder.join(path);
        let changed = fs::set_permissions(&path, fs::Permissions::from_mode(mode));
        changed.map_err(|error| failed("chmod", &path, &error))
    }

    fn file(&self, path: &str, bytes: &[u8], mode: u32) -> Outcome {
        let file = self.folder.join(path);
        let folder = file.parent().unwrap_or(&file);
        fs::create_dir_all(folder).map_err(|error| failed("create", folder, &error))?;
        fs::write(&file, bytes).map_err(|error| failed("write", &file, &error))?;
        self.chmod(path, mode)
    }

    /// A program without what only a debugger reads.
    fn program(&self, from: &Path, path: &str) -> Outcome {
        self.file(path, &[], 0o755)?;
        said_by(Command::new("strip").arg("--strip-debug").arg("-o").arg(self.folder.join(path)).arg(from))?;
        self.chmod(path, 0o755)
    }

    /// The manual pages of a section that lie in a folder.
    fn pages(&self, folder: &Path, section: &str) -> Outcome {
        let entries = fs::read_dir(folder).map_err(|error| failed("list", folder, &error))?;
        for entry in entries {
            let path = entry.map_err(|error| failed("list", folder, &error))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.extension().is_some_and(|extension| extension == section) {
                self.packed(&format!("usr/share/man/man{section}/{name}.gz"), &path)?;
            }
        }
        Ok(())
    }

    fn packed(&self, path: &str, from: &Path) -> Outcome {
        let packed = said_by(Command::new("gzip").args(["-9", "-n", "-c"]).arg(from))?;
        self.file(path, &packed, 0o644)
    }

    fn documents(&self, package: &str) -> Outcome {
        let folder = format!("usr/share/doc/{package}");
        self.packed(&format!("{folder}/changelog.gz"), &run::root().join("CHANGELOG.md"))?;
        let licence = read(&run::root().join("LICENSE-MIT"))?;
        let copyright = format!(
            "Gleaner may be used under the MIT licence below, or under the Apache License, version 2.0, which is in\n\
             /usr/share/common-licenses/Apache-2.0.\n\n{licence}"
        );
        self.file(&format!("{folder}/copyright"), copyright.as_bytes(), 0o644)
    }

    fn control(&self, name: &str, version: &str, architecture: &str, control: &Control) -> Outcome {
        let Control { description, fields, scripts } = control;
        let size = size_kib(&self.folder)?;
        let description = description.replace('\n', "\n ");
        let text = format!(
            "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {MAINTAINER}\n\
             Installed-Size: {size}\nDepends: {DEPENDS}\nPriority: optional\n{fields}Description: {description}\n"
        );
        self.file("DEBIAN/control", text.as_bytes(), 0o644)?;
        scripts.iter().try_for_each(|(name, text)| self.file(&format!("DEBIAN/{name}"), text.as_bytes(), 0o755))
    }

    fn pack(&self, package: &Path, is_quick: bool) -> Outcome {
        let epoch = std::env::var("SOURCE_DATE_EPOCH").unwrap_or_else(|_| EPOCH_DEFAULT.to_owned());
        let mut pack = Command::new("dpkg-deb");
        pack.args(["--root-owner-group", "-Zxz", if is_quick { "-z0" } else { "-z6" }, "--build"]);
        said_by(pack.arg(&self.folder).arg(package).env("SOURCE_DATE_EPOCH", epoch)).map(drop)
    }
}

/// How much the files take, in KiB.
fn size_kib(folder: &Path) -> Outcome<u64> {
    let mut all = 0;
    for entry in fs::read_dir(folder).map_err(|error| failed("list", folder, &error))? {
        let entry = entry.map_err(|error| failed("list", folder, &error))?;
        let found = entry.metadata().map_err(|error| failed("look at", &entry.path(), &error))?;
        all += if found.is_dir() { size_kib(&entry.path())? + 1 } else { found.len().div_ceil(1024) };
    }
    Ok(all)
}

/// The version of the workspace.
fn version() -> Outcome<String> {
    let text = read(&run::root().join("Cargo.toml"))?;
    let table: toml::Table = text.parse().map_err(|error| format!("Cargo.toml: {error}"))?;
    let version = table.get("workspace").and_then(|table| table.get("package")?.get("version")?.as_str());
    version.map(str::to_owned).ok_or_else(|| "Cargo.toml has no workspace.package.version".to_owned())
}

/// Debian's name of this machine's architecture.
fn architecture() -> Outcome<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => Err(format!("packages are made for x86_64 and aarch64, not for {other}")),
    }
}

/// What a program writes to standard output; an error if it fails.
fn said_by(command: &mut Command) -> Outcome<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("cannot run {name}: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => {
            Err(format!("{name} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim_end()))
        }
    }
}

fn read(path: &Path) -> Outcome<String> {
    fs::read_to_string(path).map_err(|error| failed("read", path, &error))
}

fn remove(folder: &Path) -> Outcome {
    fs::remove_dir_all(folder).map_err(|error| failed("remove", folder, &error))
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        let wanted = Wanted::read(&["--programs", "/p", "--quick"]).unwrap();
        assert_eq!((wanted.programs, wanted.is_quick), (Some("/p".into()), true));
        assert!(Wanted::read(&["--to"]).is_err() && Wanted::read(&["x"]).is_err());
        assert!(version().unwrap().starts_with(|digit: char| digit.is_ascii_digit()));
    }

    /// Scripts of packages are run by `sh`, and end at the first fault.
    #[test]
    fn scripts_are_sound() {
        for text in [include_str!("postinst"), include_str!("prerm"), include_str!("postrm")] {
            assert!(text.starts_with("#!/bin/sh\nset -e\n"), "{text}");
            let checked = Command::new("sh").args(["-n", "-c", text]).status().unwrap();
            assert!(checked.success(), "{text}");
        }
    }
}
