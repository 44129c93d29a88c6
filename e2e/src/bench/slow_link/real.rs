//! Real work over a slow link, beside the same work done here: a C project of two dozen files of which one is edited, rebuilt by
//! `make -j`; an image traced by povray in strips. Both sides share this machine's CPUs.

use super::{LINKS, start, train};
use crate::bench::samples::{Figures, median};
use crate::bench::stop;
use crate::error::{Context, Error, Result};
use crate::pool::{Options as PoolOptions, Pool};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testbed::Link;

/// Modules of the project, beside `main.c` and the header that all include.
const MODULES: usize = 24;
const STRIPS: usize = 8;
const STRIP_LINES: usize = 30;
const WIDTH: usize = 320;
/// CPUs that the far worker says it has.
const CPUS: usize = 8;
/// How long one build or image may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Builds and traces, on each link.
pub fn run(full: bool, figures: &mut Figures) -> Result<()> {
    let rounds = if full { 9 } else { 3 };
    for (name, ending) in LINKS {
        let pool = start(PoolOptions::far(CPUS, Link::NONE)?)?;
        let mut project = Project::new(&pool)?;
        let image = Image::new(&pool);
        project.build(&pool)?;
        if let Ok(image) = &image {
            image.trace(&pool)?;
        }
        train(&pool, Link::preset(name)?)?;
        for (what, edit) in [("one", Edit::Module), ("all", Edit::Header)] {
            let times = (0..rounds).map(|_| project.rebuild(&pool, edit)).collect::<Result<Vec<_>>>()?;
            figures.add(&format!("project_{what}_s{ending}"), median(times.iter().map(|(far, _)| *far)));
            figures.add(&format!("project_{what}_local_s{ending}"), median(times.iter().map(|(_, here)| *here)));
        }
        match &image {
            Ok(image) => {
                let times = (0..rounds).map(|round| image.retrace(&pool, round)).collect::<Result<Vec<_>>>()?;
                figures.add(&format!("povray_s{ending}"), median(times.iter().map(|(far, _)| *far)));
                figures.add(&format!("povray_local_s{ending}"), median(times.iter().map(|(_, here)| *here)));
            }
            Err(why) => figures.missing(&format!("povray_s{ending}"), &why.to_string()),
        }
        stop(pool)?;
    }
    Ok(())
}

/// Runs a script at the client, `$R` being what runs its commands elsewhere; seconds.
fn scripted(pool: &Pool, place: &Path, script: &str, remotely: bool) -> Result<f64> {
    let prefix = format!("{} --no-local", pool.client.remrun.display());
    let outcome = pool.client.script(place, script, if remotely { &prefix } else { "" }, LIMIT)?;
    Ok(outcome.expect_ok(script)?.elapsed.as_secs_f64())
}

fn write(path: PathBuf, text: &str) -> Result<()> {
    std::fs::write(&path, text).at("write", &path)
}

/// What is edited before a build.
#[derive(Clone, Copy)]
enum Edit {
    /// One module: it is compiled, and all are linked.
    Module,
    /// The header: all are compiled.
    Header,
}

/// The project, in two folders: one is built elsewhere, one here.
struct Project {
    far: PathBuf,
    here: PathBuf,
    edits: usize,
}

const MAKE: &str = "make -s -j8 CC=\"$R gcc\"";

impl Project {
    fn new(pool: &Pool) -> Result<Self> {
        let [far, here] = ["project", "here"].map(|name| pool.place(name));
        let mut project = Self { far, here, edits: 0 };
        for folder in [&project.far, &project.here] {
            std::fs::create_dir_all(folder).at("create", folder)?;
        }
        let objects: Vec<String> = (0..MODULES).map(|module| format!("module{module:02}.o")).collect();
        let calls = |before: &str, after: &str| -> String {
            (0..MODULES).map(|module| format!("{before}module{module:02}{after}")).collect()
        };
        project.write(
            "Makefile",
            &format!(
                "program: main.o {0}\n\t$(CC) -o $@ $^\n%.o: %.c common.h\n\t$(CC) -O1 -c $< -o $@\n",
                objects.join(" ")
            ),
        )?;
        let declared = calls("int ", "(int x);\n");
        project.write(
            "main.c",
            &format!(
                "#include \"common.h\"\n{declared}int main(void) {{\n    int sum = 0;\n{}    return sum == 42;\n}}\n",
                calls("    sum += ", "(sum);\n")
            ),
        )?;
        (0..MODULES).try_for_each(|module| project.write_module(module))?;
        project.edit(Edit::Header)?;
        Ok(project)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        [&self.far, &self.here].into_iter().try_for_each(|folder| write(folder.join(name), text))
    }

    fn write_module(&self, module: usize) -> Result<()> {
        let functions: String = (0..60)
            .map(|at| {
                let number = if at == 30 { self.edits * 31 } else { at * module };
                format!("static int step{at}(int x) {{\n    return (x ^ {number}) * COMMON + x / {};\n}}\n", at + 1)
            })
            .collect();
        let calls: String = (0..60).map(|at| format!("    x = step{at}(x);\n")).collect();
        let text = format!(
            "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include \"common.h\"\n{functions}\
             int module{module:02}(int x) {{\n{calls}    return x;\n}}\n"
        );
        self.write(&format!("module{module:02}.c"), &text)
    }

    fn edit(&mut self, edit: Edit) -> Result<()> {
        self.edits += 1;
        match edit {
            Edit::Module => self.write_module(self.edits % MODULES),
            Edit::Header => self.write("common.h", &format!("#define COMMON {}\n", self.edits)),
        }
    }

    /// Builds it elsewhere and here; seconds of both.
    fn build(&self, pool: &Pool) -> Result<(f64, f64)> {
        let far = scripted(pool, &self.far, MAKE, true)?;
        let here = scripted(pool, &self.here, MAKE, false)?;
        let [made, right] = [&self.far, &self.here].map(|folder| std::fs::read(folder.join("program")).ok());
        match made.is_some() && made == right {
            true => Ok((far, here)),
            false => {
                Err(Error::Product("the program that was built elsewhere is not the one that was built here".into()))
            }
        }
    }

    fn rebuild(&mut self, pool: &Pool, edit: Edit) -> Result<(f64, f64)> {
        self.edit(edit)?;
        self.build(pool)
    }
}

/// A scene for povray.
struct Image {
    place: PathBuf,
}

impl Image {
    fn new(pool: &Pool) -> Result<Self> {
        if !Path::new("/usr/bin/povray").exists() {
            return Err(Error::Missing("there is no povray (Debian package povray)".to_owned()));
        }
        let place = pool.place("image");
        std::fs::create_dir_all(&place).at("create", &place)?;
        let image = Self { place };
        image.write(0)?;
        Ok(image)
    }

    fn write(&self, shade: usize) -> Result<()> {
        write(
            self.place.join("scene.pov"),
            &format!(
                "#version 3.7;\nglobal_settings {{ assumed_gamma 1 }}\n\
             camera {{ location <0, 4, -14> look_at <0, 0, 0> }}\n\
             light_source {{ <8, 12, -10> color rgb 1 }}\n\
             plane {{ y, -1 pigment {{ checker color rgb 0.9 color rgb 0.{shade}2 }} finish {{ reflection 0.2 }} }}\n\
             #declare N = 0;\n#while (N < 150)\n  sphere {{ <7*sin(N*1.3), sin(N*2.1), 7*cos(N*0.7)>, 0.5\n    \
             pigment {{ color rgb <sin(N)*0.5+0.5, cos(N)*0.5+0.5, 0.5> }} finish {{ reflection 0.3 phong 0.8 }} }}\n  \
             #declare N = N + 1;\n#end\n"
            ),
        )
    }

    /// Traces it in strips, all at the same time; seconds.
    fn trace(&self, pool: &Pool) -> Result<f64> {
        self.strips(pool, "far", true)
    }

    fn strips(&self, pool: &Pool, name: &str, remotely: bool) -> Result<f64> {
        let height = STRIPS * STRIP_LINES;
        let strip = |number: usize| {
            let (first, last) = (number * STRIP_LINES + 1, (number + 1) * STRIP_LINES);
            format!(
                "$R povray +Iscene.pov +O{name}{number}.ppm +FP +W{WIDTH} +H{height} +SR{first} +ER{last} -A +WT1 -D -GA \
                 > {name}{number}.log 2>&1 &\n"
            )
        };
        let script: String = (0..STRIPS).map(strip).collect();
        scripted(pool, &self.place, &format!("{script}wait"), remotely)
    }

    /// After an edit, elsewhere and here; seconds of both.
    fn retrace(&self, pool: &Pool, round: usize) -> Result<(f64, f64)> {
        self.write(round + 1)?;
        let times = (self.trace(pool)?, self.strips(pool, "here", false)?);
        for number in 0..STRIPS {
            if self.pixels("far", number)? != self.pixels("here", number)? {
                return Err(Error::Product(format!("strip {number} is not what it is here")));
            }
        }
        Ok(times)
    }

    /// What a strip shows: the header before it has the date.
    fn pixels(&self, name: &str, number: usize) -> Result<Vec<u8>> {
        let path = self.place.join(format!("{name}{number}.ppm"));
        let mut file = std::fs::read(&path).at("read", &path)?;
        let header = file.len().saturating_sub(WIDTH * STRIPS * STRIP_LINES * 3);
        Ok(file.split_off(header))
    }
}
