//! Real source code to build: a Debian or Ubuntu source package through a private set-up of apt, or a project made here.

use crate::error::{Context, Error, Result};
use crate::process::{Run, tail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Where fetched archives are kept between runs.
fn cache() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/sources")
}

/// Fetches the upstream source of a package and unpacks it below `into`; returns its folder.
pub fn fetch(package: &str, into: &Path) -> Result<PathBuf> {
    let cache = cache();
    std::fs::create_dir_all(&cache).at("create", &cache)?;
    let archive = match archive_of(package, &cache) {
        Some(archive) => archive,
        None => {
            download(package, &cache)?;
            archive_of(package, &cache)
                .ok_or_else(|| Error::Missing(format!("apt-get source {package} left no .orig.tar archive")))?
        }
    };
    let folder = into.join("unpacked");
    std::fs::create_dir_all(&folder).at("create", &folder)?;
    let mut tar = Command::new("tar");
    tar.arg("xf").arg(&archive).arg("-C").arg(&folder).arg("--no-same-owner");
    Run::new(tar).run()?.expect_ok("tar")?;
    let mut entries = std::fs::read_dir(&folder).at("list", &folder)?;
    let entry = entries.next().ok_or_else(|| Error::Missing(format!("{} is empty", archive.display())))?;
    Ok(entry.at("list", &folder)?.path())
}

fn archive_of(package: &str, folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    entries.map(|entry| entry.path()).find(|path| {
        let name = path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
        name.starts_with(&format!("{package}_")) && name.contains(".orig.tar.") && !name.ends_with(".asc")
    })
}

/// `apt-get source` with its own list of sources, state and cache: the system's are only read.
fn download(package: &str, cache: &Path) -> Result<()> {
    let private = cache.join("apt");
    for folder in ["state/lists/partial", "cache/archives/partial", "parts"] {
        let path = private.join(folder);
        std::fs::create_dir_all(&path).at("create", &path)?;
    }
    let list = private.join("sources.list");
    let lines = source_lines()?;
    std::fs::write(&list, lines).at("write", &list)?;
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.current_dir(cache).env("LC_ALL", "C");
        for (name, path) in [
            ("Dir::Etc::SourceList", list.clone()),
            ("Dir::Etc::SourceParts", private.join("parts")),
            ("Dir::State", private.join("state")),
            ("Dir::State::status", PathBuf::from("/var/lib/dpkg/status")),
            ("Dir::Cache", private.join("cache")),
        ] {
            command.arg("-o").arg(format!("{name}={}", path.display()));
        }
        command.args(["-o", "APT::Sandbox::User=root", "-q"]).args(arguments);
        Run::new(command).within(Duration::from_secs(180)).run()
    };
    for arguments in [vec!["update"], vec!["source", "--download-only", package]] {
        let outcome = apt(&arguments)?;
        if !outcome.ok() {
            let said = tail(&[outcome.stdout.as_slice(), &outcome.stderr].concat(), 8);
            return Err(Error::Missing(format!("apt-get {} failed: {}\n{said}", arguments.join(" "), outcome.ended)));
        }
    }
    Ok(())
}

/// `deb-src` lines for the distribution's own suites, read from the machine's lists of sources.
fn source_lines() -> Result<String> {
    let release = std::fs::read_to_string("/etc/os-release").at("read", Path::new("/etc/os-release"))?;
    let codename =
        release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).unwrap_or("").trim_matches('"');
    let mut texts = vec![std::fs::read_to_string("/etc/apt/sources.list").unwrap_or_default()];
    for entry in std::fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten() {
        texts.push(std::fs::read_to_string(entry.path()).unwrap_or_default());
    }
    let lines: String = texts.iter().flat_map(|text| convert(text, codename)).collect();
    match lines.is_empty() || codename.is_empty() {
        true => Err(Error::Missing("this machine's apt names no source of its own distribution".to_owned())),
        false => Ok(lines),
    }
}

/// Both forms of a list of sources, turned to `deb-src` lines of the suites that begin with `codename`.
fn convert(text: &str, codename: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |options: &str, uri: &str, suite: &str, components: &str| {
        let wanted = suite.starts_with(codename) && components.split_whitespace().any(|component| component == "main");
        if wanted {
            lines.push(format!("deb-src {options}{uri} {suite} main\n"));
        }
    };
    for line in text.lines().filter_map(|line| line.trim().strip_prefix("deb ")) {
        let (options, rest) = match line.trim().split_once(']') {
            Some((options, rest)) if options.starts_with('[') => (format!("{options}] "), rest),
            _ => (String::new(), line),
        };
        let words: Vec<&str> = rest.split_whitespace().collect();
        if let [uri, suite, components @ ..] = words.as_slice() {
            add(&options, uri, suite, &components.join(" "));
        }
    }
    for stanza in text.split("\n\n") {
        let field = |name: &str| {
            stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map_or("", str::trim)
        };
        let signed = field("Signed-By");
        let options = if signed.starts_with('/') { format!("[signed-by={signed}] ") } else { String::new() };
        for uri in field("URIs").split_whitespace() {
            for suite in field("Suites").split_whitespace() {
                add(&options, uri, suite, field("Components"));
            }
        }
    }
    lines
}

/// A small C project with a `configure` script, for machines without apt: `files` sources, a library and a program.
pub fn generate(into: &Path, files: usize) -> Result<PathBuf> {
    let root = into.join("project-1.0");
    std::fs::create_dir_all(&root).at("create", &root)?;
    let write = |name: &str, text: &str| std::fs::write(root.join(name), text).at("write", &root.join(name));
    let mut objects = String::new();
    let mut calls = String::new();
    for file in 0..files {
        let mut body =
            format!("#include \"config.h\"\n#include <stdio.h>\n#include <string.h>\nint part{file}(int x);\n");
        for function in 0..60 {
            body.push_str(&format!(
                "static int f{function}(int x) {{ return (x * {function} + {file}) ^ (x >> 3); }}\n"
            ));
        }
        body.push_str(&format!("int part{file}(int x) {{ char text[64]; snprintf(text, sizeof text, \"%d\", x);\n"));
        (0..60).for_each(|function| body.push_str(&format!("    x += f{function}(x);\n")));
        body.push_str("    return x + (int)strlen(text);\n}\n");
        write(&format!("part{file}.c"), &body)?;
        objects.push_str(&format!(" part{file}.o"));
        calls.push_str(&format!("    {{ int part{file}(int); sum += part{file}(sum); }}\n"));
    }
    write(
        "main.c",
        &format!(
            "#include <stdio.h>\nint main(void) {{ int sum = 1;\n{calls}    printf(\"%d\\n\", sum); return 0; }}\n"
        ),
    )?;
    write(
        "configure",
        "#!/bin/sh\nset -e\nCC=${CC:-gcc}\nfor a in \"$@\"; do case $a in CC=*) CC=${a#CC=};; esac; done\n: > config.h\n\
         for h in stdint unistd pthread linux/io_uring; do\n  echo \"#include <$h.h>\" > conftest.c\n  \
         n=$(echo $h | tr a-z/ A-Z_)\n  if $CC -c conftest.c -o conftest.o 2>/dev/null; then echo \"#define HAVE_$n 1\" >> \
         config.h; fi\ndone\nrm -f conftest.c conftest.o\necho \"CC = $CC\" > config.mk\n",
    )?;
    write(
        "Makefile",
        &format!(
            "include config.mk\nCFLAGS = -O2 -g\nOBJECTS = main.o{objects}\nprogram: $(OBJECTS)\n\t$(CC) -o $@ $(OBJECTS)\n\
             %.o: %.c config.h\n\t$(CC) $(CFLAGS) -c -o $@ $<\n"
        ),
    )?;
    let configure = root.join("configure");
    std::fs::set_permissions(&configure, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .at("chmod", &configure)?;
    Ok(root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::shell;
    use crate::scratch::Scratch;

    #[test]
    fn both_forms_of_apt_sources() {
        let text = "# x\ndeb [arch=amd64] http://a/debian trixie main contrib\ndeb http://b/x other main\n";
        assert_eq!(convert(text, "trixie"), ["deb-src [arch=amd64] http://a/debian trixie main\n"]);
        let text = "Types: deb\nURIs: http://c/debian\nSuites: trixie trixie-updates\nComponents: main\nSigned-By: /k.gpg\n\n\
                    Types: deb\nURIs: http://d\nSuites: nodistro\nComponents: main\n";
        assert_eq!(
            convert(text, "trixie"),
            [
                "deb-src [signed-by=/k.gpg] http://c/debian trixie main\n",
                "deb-src [signed-by=/k.gpg] http://c/debian trixie-updates main\n"
            ]
        );
    }

    #[test]
    fn the_generated_project_builds() {
        let scratch = Scratch::new().unwrap();
        let root = generate(scratch.path(), 2).unwrap();
        let mut build = shell("./configure CC=gcc && make -s CFLAGS=-O0 && ./program && grep -c HAVE config.h");
        build.current_dir(&root);
        Run::new(build).run().unwrap().expect_ok("build").unwrap();
    }
}
