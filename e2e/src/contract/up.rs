//! A pool as `gleaner up` makes it: hub and worker in one process.

use crate::error::{Context, Result};
use crate::pool::Pool;
use crate::scenario::{END_BOUND, edited_meanwhile, folder};

/// A file that is read in pieces, and one that comes back, in bytes.
const LARGE: usize = 20 << 20;

/// A compiler, a chain of commands, and more bytes than any message holds, both ways.
pub fn commands(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "up")?;
    let noise: Vec<u8> = (0..LARGE as u64 / 8)
        .flat_map(|at| (at ^ (at << 17)).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect();
    std::fs::write(place.join("large"), noise).context(|| "cannot write a large file".to_owned())?;
    let remrun = format!("{} --no-local", pool.client.remrun.display());
    let mut wrong = Vec::new();
    let scripts = [
        "echo 'int main(void) { return 42; }' > x.c; $R gcc -c x.c && $R gcc x.o -o x; $R ./x; echo $?",
        "$R sha256sum large; $R cat large | sha256sum; $R sh -c 'tac -s a large > back; cat large large' | sha256sum; sha256sum back",
        "for i in 1 2 3; do echo $i | $R tee -a log; done; $R cat log; $R mv log moved; ls",
    ];
    for script in scripts {
        let here = pool.client.script(&place, &format!("{script} > here"), "", END_BOUND)?;
        let there = pool.client.script(
            &place,
            &format!("rm -rf x x.o log moved back; {script} > there"),
            &remrun,
            END_BOUND,
        )?;
        let compared =
            pool.client.script(&place, "sed s/there/here/ there | cmp - here; rm -f log moved x x.o", "", END_BOUND)?;
        if !here.ok() || !there.ok() || !compared.ok() {
            wrong.push(format!("{script}: {} {} {}", here.said(), there.said(), compared.text()));
        }
    }
    let explained = pool.client.json(&["explain", "--json"])?;
    if explained["worker"] != "worker0" {
        wrong.push(format!("the last command ran on {}", explained["worker"]));
    }
    Ok(wrong)
}

/// Hub and worker go at one moment: a command that may not run here fails, and nothing of it is committed.
pub fn killed(pool: &mut Pool) -> Result<Vec<String>> {
    let place = folder(pool, "up")?;
    let kill = format!("kill -9 {}", pool.hub.pid().as_raw_nonzero());
    let outcome = edited_meanwhile(pool, &place, "echo begun > begun; sleep 2.71; echo done > done", "2.71", &kill)?;
    pool.hub.kill();
    let committed = ["begun", "done"].iter().filter(|name| place.join(name).exists()).count();
    let mut wrong = Vec::new();
    if outcome.ok() || committed > 0 || outcome.said().is_empty() {
        wrong.push(format!("{} with {committed} of 2 files: {}", outcome.ended, outcome.said()));
    }
    println!("measured: gleaner up killed: end of the command: {:.1} s", outcome.elapsed.as_secs_f64());
    Ok(wrong)
}
