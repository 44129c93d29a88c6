//! Suites under automake's harness: the tests are scripts, listed in the Makefile with the environment that they want.

use super::{Built, RUN_TEST, build, by_status, listed, shelf, unpack};
use crate::error::{Context, Result};
use std::path::Path;

/// A test's folder shows all that was built by links, so that tests see the layout of a build tree and write only beside it. Those in
/// Perl write beside themselves.
const LINKS: &str = "ln -s \"$TOP\"/* .; test ! -d tests || { rm tests; cp -Rs \"$TOP\"/tests .; }\n";

/// Prints, at the end of the package's own Makefile, what its harness would run.
const QUESTIONS: &str = "include Makefile\n\
    gleaner-asks:\n\
    \t$(info tests $(TESTS))\n\
    \t$(info before $(AM_TESTS_ENVIRONMENT) $(TESTS_ENVIRONMENT))\n\
    \t$(info sh $(SH_LOG_COMPILER))\n\
    \t$(info pl $(PL_LOG_COMPILER))\n\
    \t$(info xpl $(XPL_LOG_COMPILER))\n\
    \t@:\n";

/// The stream editor: some 70 tests.
pub fn sed() -> Result<Built> {
    prepare("sed", "--disable-nls", "sed")
}

/// The core utilities: some 600 tests.
pub fn coreutils() -> Result<Built> {
    prepare("coreutils", "--disable-nls --enable-no-install-program=stdbuf", "src")
}

/// Builds a package once; `programs` is the folder of its build tree that they are in.
fn prepare(package: &str, options: &str, programs: &str) -> Result<Built> {
    let folder = shelf(package).join("tree");
    let list = folder.join("tests.list");
    if !list.exists() {
        unpack(package, &folder)?;
        build(&folder, &format!("FORCE_UNSAFE_CONFIGURE=1 ./configure --quiet {options}"))?;
        build(&folder, "make -s -j2 SUBDIRS=. && make -s -j2 check TESTS= SUBDIRS=.")?;
        let asked = folder.join("gleaner-asks.mk");
        std::fs::write(&asked, QUESTIONS).at("write", &asked)?;
        build(&folder, "make -s -f gleaner-asks.mk gleaner-asks > gleaner-answers")?;
        let answers = folder.join("gleaner-answers");
        let answers = std::fs::read_to_string(&answers).at("read", &answers)?;
        let script = folder.join(RUN_TEST);
        std::fs::write(&script, script_of(&answers)).at("write", &script)?;
        build(
            &folder,
            "find . -name '*.o' -delete; rm -rf gnulib-tests doc po\n\
             find . -type f -perm -100 ! -name '*.sh' ! -name '*.pl' -exec strip {} + 2> /dev/null; :",
        )?;
        std::fs::write(&list, tests_of(&answers, &folder)).at("write", &list)?;
    }
    let setup_each = format!(
        "rm {programs}; mkdir {programs}\n\
         for file in \"$TOP\"/{programs}/*; do name=${{file##*/}}\n\
         if [ -f \"$file\" ] && [ -x \"$file\" ]; then\n\
         printf '#!/bin/sh\\nPATH=%s:$PATH exec remrun %s \"$@\"\\n' \"$TOP/{programs}\" \"$name\" > {programs}/$name\n\
         chmod 755 {programs}/$name; else ln -s \"$file\" {programs}/; fi; done\n"
    );
    let tests = listed(&list)?;
    Ok(Built { folder, tests, setup: LINKS, setup_each: Some(setup_each), judge: by_status })
}

/// One answer of the Makefile.
fn answer<'a>(answers: &'a str, name: &str) -> &'a str {
    answers.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap_or("")
}

/// A line each for the tests that are there: some are made by the harness as it runs.
fn tests_of(answers: &str, folder: &Path) -> String {
    let names = answer(answers, "tests").split_whitespace().filter(|name| folder.join(name).exists());
    names.map(|name| format!("{name}\n")).collect()
}

/// The script that runs a test as the harness does.
fn script_of(answers: &str) -> String {
    let before = answer(answers, "before");
    let mut script = String::from("f=$1; tst=./$1; srcdir=.; export srcdir\ncase $1 in\n");
    for ending in ["sh", "xpl", "pl"] {
        let program = answer(answers, ending);
        if !program.is_empty() {
            script.push_str(&format!("*.{ending}) {before} {program} \"$tst\" ;;\n"));
        }
    }
    script.push_str("*) exit 99 ;;\nesac\n");
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_and_the_list() {
        let answers = "tests tests/a.sh tests/none.sh\nbefore  x=1; export x  ; 9>&2\nsh /bin/sh\npl perl -w\n";
        let folder = crate::scratch::Scratch::new().unwrap();
        std::fs::create_dir(folder.path().join("tests")).unwrap();
        std::fs::write(folder.path().join("tests/a.sh"), "exit $((x + 76))\n").unwrap();
        assert_eq!(tests_of(answers, folder.path()), "tests/a.sh\n");
        std::fs::write(folder.path().join(RUN_TEST), script_of(answers)).unwrap();
        let mut run = std::process::Command::new("sh");
        run.args([RUN_TEST, "tests/a.sh"]).current_dir(folder.path());
        let outcome = crate::process::Run::new(run).run().unwrap();
        assert_eq!(by_status(&outcome), "SKIP", "{}", outcome.said());
    }
}
