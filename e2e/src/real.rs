//! Heavy tests on real input: programs as people run them, whole trees compared.

use crate::case::Case;
use crate::client::Client;
use crate::differential::compare;
use crate::error::{Context, Error, Result};
use crate::pool::{Options, Pool};
use crate::report::{Report, Verdict};
use crate::several::several;
use crate::source;
use std::path::Path;
use std::time::{Duration, Instant};

/// Prepares what a test needs outside of the two trees and returns its case.
type Prepare = fn(&Path) -> Result<Case>;

const TESTS: [(&str, Prepare); 7] = [
    ("real/coreutils: configure and make -j8 CC=\"remrun gcc\"", coreutils),
    ("real/python: a virtual environment with a C extension", python_extension),
    ("real/povray: a scene in eight strips", povray),
    ("real/sort: 1 GB through pipes", sort),
    ("real/asciidoctor: a book", asciidoctor),
    ("real/git: a life of a repository", git),
    ("real/shell: a pipeline that writes, renames and removes", pipeline),
];

/// Runs the tests whose name contains `filter` on four workers with empty roots.
pub fn run(filter: &str, keep: bool, report: &Report) -> Result<()> {
    let tests: Vec<_> = TESTS.iter().filter(|(name, _)| name.contains(filter)).collect();
    if tests.is_empty() {
        return Ok(());
    }
    let pool = Pool::start(Options { guests: false, ..Options::new(4, 2)? })?;
    // The first takes as long as all others together, much of it alone with one processor.
    several(2, &tests, |_, (name, prepare)| {
        let started = Instant::now();
        report.add(name, one(name, *prepare, &pool), started.elapsed());
    });
    let wrong = pool.stop(keep)?;
    let verdict = if wrong.is_empty() { Verdict::Passed } else { Verdict::Failed(wrong) };
    report.add("real/pool stops and leaves nothing", verdict, Duration::ZERO);
    Ok(())
}

fn one(name: &str, prepare: Prepare, pool: &Pool) -> Verdict {
    let folder: String = name.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
    let (place, input) = (pool.place(&folder), pool.scratch.path().join(format!("input-{folder}")));
    let outcome = std::fs::create_dir_all(&input).at("create", &input).and_then(|()| {
        let mut case = prepare(&input)?;
        case.limit = Duration::from_secs(1500);
        checked(&case, &place, &pool.client)
    });
    let _ = crate::scratch::remove_all(&input);
    Verdict::of(outcome)
}

fn checked(case: &Case, place: &Path, client: &Client) -> Result<Vec<String>> {
    match case.missing(&client.path()) {
        Some(program) => Err(Error::Missing(format!("{program} is not installed"))),
        None => compare(case, place, client),
    }
}

fn case(name: &str, needs: &[&str], setup: &str, run: &str) -> Case {
    let mut case = Case::script(name, setup, run);
    case.needs = needs.iter().map(|name| (*name).to_owned()).collect();
    case
}

fn coreutils(input: &Path) -> Result<Case> {
    let source = source::fetch("coreutils", input)?;
    // The prefix itself lands in config.log, config.status and the Makefiles: those go, all that is built stays.
    let run = "set -e\ncd tree\nFORCE_UNSAFE_CONFIGURE=1 ./configure --quiet --disable-nls CC=\"$R gcc\" > /dev/null 2>&1\n\
               make -j8 CC=\"$R gcc\" > ../make.log 2>&1 || { tail -n 30 ../make.log; exit 1; }\ncd ..\nrm -f make.log\n\
               find tree -name 'config.log' -o -name config.status -o -name Makefile | xargs rm -f\n\
               find tree -name '*.o' | wc -l\n";
    let setup = format!("cp -a {} tree", source.display());
    Ok(case("coreutils", &["gcc", "make"], &setup, run))
}

fn python_extension(_: &Path) -> Result<Case> {
    let setup = r#"
mkdir src; cat > src/fastsum.c <<'END'
#include <Python.h>
static PyObject *sum(PyObject *self, PyObject *args) {
    long long n, total = 0;
    if (!PyArg_ParseTuple(args, "L", &n)) return NULL;
    for (long long i = 0; i < n; i++) total += i * i % 7;
    return PyLong_FromLongLong(total);
}
static PyMethodDef methods[] = {{"sum", sum, METH_VARARGS, "Sums."}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "fastsum", NULL, -1, methods};
PyMODINIT_FUNC PyInit_fastsum(void) { return PyModule_Create(&module); }
END
cat > use.py <<'END'
import fastsum, json, sys, csv, collections, decimal
words = collections.Counter(open(__file__).read().split())
json.dump({"sum": fastsum.sum(1000000), "words": words.most_common(3), "prefix": sys.prefix}, open("out.json", "w"))
with open("out.csv", "w", newline="") as out:
    csv.writer(out).writerows((i, decimal.Decimal(i).sqrt()) for i in range(1, 2000))
END
"#;
    let run = "set -e\nexport PYTHONDONTWRITEBYTECODE=1\n$R /usr/bin/python3 -m venv --without-pip venv\n\
               S=$($R venv/bin/python -c 'import sysconfig; print(sysconfig.get_path(\"platlib\"))')\n\
               I=$($R venv/bin/python -c 'import sysconfig; print(sysconfig.get_path(\"include\"))')\n\
               $R gcc -O2 -shared -fPIC -I$I src/fastsum.c -o $S/fastsum.so\n$R venv/bin/python use.py\ncat out.json\n";
    Ok(case("python", &["python3", "gcc"], setup, run))
}

/// The header of a picture holds the date: only its 320 * 240 pixels of three bytes are compared.
fn povray(_: &Path) -> Result<Case> {
    let setup = r#"
cat > scene.pov <<'END'
#version 3.7;
global_settings { assumed_gamma 1.0 }
camera { location <0, 3, -8> look_at <0, 1, 0> }
light_source { <10, 20, -10> color rgb 1 }
plane { y, 0 pigment { checker color rgb 1, color rgb 0.2 } finish { reflection 0.2 } }
#declare I = 0;
#while (I < 40)
  sphere { <3 * cos(I * 0.6), 0.3 + I * 0.05, 3 * sin(I * 0.6)>, 0.35
    pigment { color rgb <I / 40, 0.5, 1 - I / 40> } finish { phong 1 reflection 0.3 } }
  #declare I = I + 1;
#end
END
"#;
    let run = "set -e\nfor i in 0 1 2 3 4 5 6 7; do\n  $R povray +W320 +H240 +SR$((i * 30 + 1)) +ER$((i * 30 + 30)) +A0.3 +WT1 -D \
               +Iscene.pov +Ostrip$i.ppm +FP > /dev/null 2>&1 &\ndone\nwait\n\
               for i in 0 1 2 3 4 5 6 7; do tail -c 230400 strip$i.ppm > pixels$i; done\nrm strip*.ppm\ncat pixels* | md5sum\n";
    Ok(case("povray", &["povray"], setup, run))
}

fn sort(_: &Path) -> Result<Case> {
    let run = "set -e\nseq 1 12000000 | awk '{ x = ($1 * 2654435761) % 4294967296; \
               printf \"%010d %010d line of a file that is one gigabyte long, for sorting: padding %010d\\n\", x, $1, x }' | \
               $R sort -S 200M --parallel=2 | $R md5sum > sum\n$R cat sum\n";
    Ok(case("sort", &["sort", "awk"], "", run))
}

fn asciidoctor(_: &Path) -> Result<Case> {
    let setup = r#"
{ echo "= A book"; echo ":toc:"; echo ":reproducible:"; for c in $(seq 1 40); do
    printf '\n== Chapter %s\n\nWords with *weight* and _grace_, see <<t%s>>.\n\n' $c $c
    printf '[[t%s]]\n.Table %s\n|===\n|a |b\n' $c $c; for r in $(seq 1 20); do echo "|$r |$((r * c))"; done; echo '|==='
    printf '\n[source,c]\n----\nint main(void) { return %s; }\n----\n' $c
  done; } > book.adoc
"#;
    Ok(case(
        "asciidoctor",
        &["asciidoctor"],
        setup,
        "$R asciidoctor -o book.html book.adoc\n$R asciidoctor -b docbook book.adoc\n",
    ))
}

fn git(_: &Path) -> Result<Case> {
    let run = r#"set -e
export GIT_AUTHOR_DATE=2021-02-03T04:05:06Z GIT_COMMITTER_DATE=2021-02-03T04:05:06Z
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org
git init -q -b main repo
cd repo
for i in 1 2 3 4 5; do echo "line $i" >> text; $R git add text; $R git commit -q -m "step $i"; done
$R git checkout -q -b side HEAD~2
echo other > other; $R git add other; $R git commit -q -m other
$R git checkout -q main
$R git merge -q --no-edit side
$R git tag -a v1 -m one
$R git log --oneline --graph
$R git diff HEAD~3 --stat
$R git stash list
echo dirty >> text; $R git status --short
$R git checkout -q -- text
$R git gc -q
$R git fsck --strict
$R git archive --prefix=x/ HEAD | tar tf -
$R git blame text | cut -c1-8 | sort -u | wc -l
$R git status
rm -f .git/index
"#;
    let mut case = case("git", &["git", "tar"], "", run);
    case.ignore.stderr = true;
    Ok(case)
}

fn pipeline(_: &Path) -> Result<Case> {
    let run = r#"set -e
mkdir -p in out
seq 1 20000 | $R split -l 500 - in/part-
for f in in/part-*; do $R sh -c 'sort -rn "$1" | gzip -n > "$1.gz" && rm "$1"' sh "$f"; done
for f in in/*.gz; do $R mv "$f" out/; done
$R rmdir in
$R sh -c 'for f in out/*.gz; do zcat "$f"; done | sort -n | tee all | md5sum'
$R tar cf all.tar --sort=name --mtime=@0 --owner=0 --group=0 out
$R rm -r out
$R sh -c 'mkdir again && tar xf all.tar -C again && find again -type f | sort | xargs cksum | tail -n 2'
$R ln -s all link; $R ln all hard; $R cp -a link hard again/
"#;
    Ok(case("pipeline", &["gzip", "tar"], "", run))
}
