//! Peers over the same links: an edited file compiled through outrun and through icecc, which have done so before over a fast one.

use super::{LINKS, start};
use crate::bench::peers;
use crate::bench::samples::{Figures, median};
use crate::bench::stop;
use crate::error::Result;
use crate::pool::{CLIENT, Options as PoolOptions, Pool};
use crate::slow::Project;
use std::path::Path;
use std::time::Duration;
use testbed::Link;

const PEERS: [&str; 2] = ["outrun", "icecc"];
/// How long a launch may take: outrun's first reads the compiler, icecc's first sends one.
const LIMIT: Duration = Duration::from_secs(300);
/// What is launched.
const COMPILE: [&str; 5] = ["gcc", "-O1", "-c", "edited.c", "-pipe"];

/// Each peer on each link.
pub fn run(full: bool, figures: &mut Figures) -> Result<()> {
    let pool = start(PoolOptions::far(2, Link::NONE)?)?;
    for name in PEERS {
        let place = pool.place(name);
        eprintln!("bench:   {name}");
        if let Err(why) = measure(&pool, name, &place, if full { 5 } else { 2 }, figures) {
            let why = why.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
            eprintln!("bench:   without {name}: {why}");
            figures.missing(&format!("{name}_edit_compile_s"), &why);
        }
        pool.testbed().set_link(CLIENT, Link::NONE);
    }
    stop(pool)
}

fn measure(pool: &Pool, name: &str, place: &Path, rounds: usize, figures: &mut Figures) -> Result<()> {
    let made = |source| crate::error::Error::Io { what: format!("cannot create {}", place.display()), source };
    std::fs::create_dir_all(place).map_err(made)?;
    let mut project = Project::fresh(place.to_owned());
    let peer = peers::start(pool, name)?;
    let mut compile = || {
        project.edit()?;
        Ok(peer.launch(&COMPILE, place, LIMIT)? / 1e3)
    };
    // The second finds what the first brought.
    (0..2).try_for_each(|_| compile().map(drop))?;
    for (link, ending) in LINKS {
        pool.testbed().set_link(CLIENT, Link::preset(link)?);
        let times = (0..rounds).map(|_| compile()).collect::<Result<Vec<_>>>()?;
        figures.add(&format!("{name}_edit_compile_s{ending}"), median(times));
    }
    Ok(())
}
