//! What the three jobs take: by link, workers, round trip, uplink, and with each part of the product left out.

use super::batch::{self, Batch, How};
use super::phases::{self, Phases};
use super::workload::{PLAY_SECONDS, Workload, preroll};
use super::{LINKS, sending, start, train};
use crate::bench::samples::{Figures, median};
use crate::bench::stop;
use crate::error::{Context, Result};
use crate::pool::{Options as PoolOptions, Pool};
use crate::slow::traffic_of;
use std::path::PathBuf;
use std::time::Duration;
use testbed::{Link, Traffic};

/// Workers, and tiles, of the render that has a target.
const RENDER_WORKERS: usize = 32;
/// Tiles of the render that workers share, few or many.
const SHARED_TILES: usize = 64;
/// Workers of the other jobs.
const WORKERS: usize = 64;
/// What can be left out of the product, and how the figures call it.
const SWITCHES: [(&str, &str); 6] = [
    ("", "nothing"),
    ("prethrow", "prethrow"),
    ("delta", "delta"),
    ("compression", "compression"),
    ("cache-sharing", "cache_sharing"),
    ("recipe-cache", "recipe_cache"),
];
/// Workers in processes of their own, each with so many CPUs, where they could share what one of them has.
const APART: (usize, usize) = (4, 8);

/// A pool at the far end of a link, and a job at the client.
struct Bed {
    pool: Pool,
    link: Link,
    job: Workload,
    how: How,
}

/// What a run of a job cost.
struct Cost {
    batch: Batch,
    passed: Traffic,
    phases: Vec<Option<Phases>>,
}

impl Bed {
    /// The job has run before, over a fast link, and the connection has learnt the slow one.
    fn used(options: PoolOptions, link: Link, make: impl FnOnce(PathBuf) -> Result<Workload>) -> Result<Self> {
        let pool = start(PoolOptions { link: Some(Link::NONE), ..options })?;
        let mut job = make(pool.place("job"))?;
        batch::run(&pool, &job, How::Job, true)?;
        job.edit()?;
        batch::run(&pool, &job, How::Job, true)?;
        let mut bed = Self { pool, link, job, how: How::Job };
        bed.relink(link)?;
        Ok(bed)
    }

    /// Gives the client this link, which a fresh connection learns; what that is told at first is not what a job costs.
    fn relink(&mut self, link: Link) -> Result<()> {
        self.link = link;
        train(&self.pool, link)?;
        batch::run(&self.pool, &self.job, self.how, true).map(drop)
    }

    /// Neither client nor pool knows anything of the job, or of the link.
    fn fresh(options: PoolOptions, link: Link, make: impl FnOnce(PathBuf) -> Result<Workload>) -> Result<Self> {
        let pool = start(PoolOptions { link: Some(link), ..options })?;
        let job = make(pool.place("job"))?;
        Ok(Self { pool, link, job, how: How::Job })
    }

    /// Runs the job as it is.
    fn run(&self) -> Result<Cost> {
        let (batch, passed) = traffic_of(&self.pool, || batch::run(&self.pool, &self.job, self.how, false))?;
        let Traffic { bytes_up, bytes_down, .. } = passed;
        let phases = phases::of(&self.pool, &self.job)?;
        eprintln!("bench:   {:.2} s, {bytes_up} bytes up, {bytes_down} down", batch.took);
        eprintln!("bench:   a task's seconds on average: {}", phases::on_average(&phases));
        Ok(Cost { batch, passed, phases })
    }

    /// Runs it after an edit, a few times.
    fn runs(&mut self, times: usize) -> Result<Vec<Cost>> {
        (0..times)
            .map(|_| {
                self.job.edit()?;
                self.run()
            })
            .collect()
    }

    /// Seconds of a run beyond what computing on so many workers, a round trip and the bytes take.
    fn over(&self, cost: &Cost, workers: usize) -> f64 {
        cost.batch.took
            - self.job.ideal(workers)
            - self.link.round_trip().as_secs_f64()
            - sending(self.link, cost.passed)
    }
}

fn seconds(costs: &[Cost]) -> Option<f64> {
    median(costs.iter().map(|cost| cost.batch.took))
}

fn tiles(count: usize) -> impl FnOnce(PathBuf) -> Result<Workload> {
    move |place| Workload::render(place, count)
}

/// The render of 32 tiles on 32 workers: after an edit, and at first.
pub fn render(full: bool, figures: &mut Figures) -> Result<()> {
    for (name, ending) in LINKS {
        let link = Link::preset(name)?;
        let mut bed = Bed::used(PoolOptions::far(RENDER_WORKERS, link)?, link, tiles(RENDER_WORKERS))?;
        let costs = bed.runs(if full { 9 } else { 3 })?;
        let over = median(costs.iter().map(|cost| bed.over(cost, RENDER_WORKERS)));
        let slowest = bed.job.slowest();
        figures.add(&format!("render32_s{ending}"), seconds(&costs));
        figures.add(&format!("render32_overhead_s{ending}"), over);
        figures.add(&format!("render32_efficiency{ending}"), seconds(&costs).map(|took| slowest / took));
        costs.last().into_iter().for_each(|cost| breakdown(&bed, cost, ending, figures));
        let before = bed.job.edited()?;
        bed.job.edit()?;
        let after = bed.job.edited()?;
        let cost = bed.run()?;
        let patches: usize =
            before.iter().zip(&after).map(|(before, after)| patch_bytes(before, after)).sum::<Result<_>>()?;
        figures.add(&format!("upload_bytes{ending}"), Some(cost.passed.bytes_up as f64));
        figures.add(&format!("upload_ratio{ending}"), Some(cost.passed.bytes_up as f64 / patches as f64));
        stop(bed.pool)?;

        // On the slower link this takes long, and tells little more.
        if name != "cable" && !full {
            continue;
        }
        let bed = Bed::fresh(PoolOptions::far(RENDER_WORKERS, link)?, link, tiles(RENDER_WORKERS))?;
        let cost = bed.run()?;
        figures.add(&format!("render32_cold_s{ending}"), Some(cost.batch.took));
        figures.add(&format!("render32_cold_overhead_s{ending}"), Some(bed.over(&cost, RENDER_WORKERS)));
        stop(bed.pool)?;
    }
    Ok(())
}

/// What the time of the task goes to that ended last; its computing in two parts, as in UCop's paper: what a task takes on
/// average, and by how much this one takes longer.
fn breakdown(bed: &Bed, cost: &Cost, ending: &str, figures: &mut Figures) {
    let ends = cost.batch.ends.iter().zip(&cost.phases);
    let Some((_, Some(phases))) = ends.max_by(|(a, _), (b, _)| a.total_cmp(b)) else {
        figures.missing(&format!("breakdown{ending}"), "the last task's time line lacks a moment");
        return;
    };
    let mean = bed.job.work() / bed.job.tasks.len() as f64;
    for (phase, took) in phases {
        let parts = match *phase {
            "compute" => vec![("compute", mean), ("spread", took - mean)],
            phase => vec![(phase, *took)],
        };
        for (part, took) in parts {
            figures.add(&format!("breakdown_{part}_s{ending}"), Some(took));
        }
    }
}

/// What zstd makes of a changed file, given the file before.
fn patch_bytes(before: &[u8], after: &[u8]) -> Result<usize> {
    let mut compressor = zstd::bulk::Compressor::with_dictionary(zstd::DEFAULT_COMPRESSION_LEVEL, before)
        .context(|| "zstd".to_owned())?;
    Ok(compressor.compress(after).context(|| "zstd".to_owned())?.len())
}

/// A render of 64 tiles by few workers, and by many.
pub fn workers(full: bool, figures: &mut Figures) -> Result<()> {
    for (name, _) in LINKS {
        let link = Link::preset(name)?;
        let counts: &[usize] = match name {
            _ if full => &[1, 2, 4, 8, 16, 32, 64],
            "cable" => &[8, 16, 32, 64],
            _ => &[16, 64],
        };
        for count in counts {
            let mut bed = Bed::used(PoolOptions::far(*count, link)?, link, tiles(SHARED_TILES))?;
            let took = seconds(&bed.runs(1)?).unwrap_or_default();
            let (ideal, work) = (bed.job.ideal(*count), bed.job.work());
            figures.point(&format!("render64_s/{name}"), *count as f64, took);
            figures.point(&format!("speedup/{name}"), *count as f64, work / took);
            if name == "cable" {
                figures.point("render64_s/ideal", *count as f64, ideal);
                figures.point("speedup/ideal", *count as f64, work / ideal);
            }
            stop(bed.pool)?;
        }
    }
    Ok(())
}

/// The 32 tiles at the links' rates with other round trips: how much the time grows with it.
pub fn round_trips(full: bool, figures: &mut Figures) -> Result<()> {
    for (name, ending) in LINKS {
        // On the slower link this takes long, and tells little more.
        let (delays_ms, runs): (&[u64], _) = match name {
            _ if full => (&[20, 60, 100, 140, 180, 220, 260], 5),
            "cable" => (&[20, 140, 260], 3),
            _ => (&[20, 260], 2),
        };
        let link = Link::preset(name)?;
        let points = by_round_trip(link, delays_ms, runs)?;
        points.iter().for_each(|(seconds, took)| {
            figures.point(&format!("render32_s_by_round_trip_ms{ending}"), seconds * 1e3, *took);
        });
        figures.add(&format!("latency_slope{ending}"), slope(&points));
    }
    Ok(())
}

/// Round trips and how long the 32 tiles take, in seconds.
fn by_round_trip(link: Link, delays_ms: &[u64], runs: usize) -> Result<Vec<(f64, f64)>> {
    let mut bed = Bed::used(PoolOptions::far(RENDER_WORKERS, link)?, link, tiles(RENDER_WORKERS))?;
    let mut points = Vec::new();
    for delay_ms in delays_ms {
        bed.relink(link.with_round_trip(Duration::from_millis(*delay_ms)))?;
        points.push((*delay_ms as f64 / 1e3, seconds(&bed.runs(runs)?).unwrap_or_default()));
    }
    stop(bed.pool)?;
    Ok(points)
}

/// How steep a line through the points is, by least squares.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
    let (x_mean, y_mean) = (mean(|point| point.0), mean(|point| point.1));
    let square: f64 = points.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
    let product: f64 = points.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    (square > 0.0).then(|| product / square)
}

/// The 32 tiles over cable with other uplinks.
pub fn uplinks(full: bool, figures: &mut Figures) -> Result<()> {
    let rates: &[f64] = if full { &[0.5, 1.0, 2.0, 4.0, 8.0] } else { &[0.5, 2.0, 8.0] };
    let mut link = Link::preset("cable")?;
    let mut bed = Bed::used(PoolOptions::far(RENDER_WORKERS, link)?, link, tiles(RENDER_WORKERS))?;
    for rate in rates {
        link.up.rate = Some((rate * 1e6) as u64);
        bed.relink(link)?;
        let costs = bed.runs(if full { 5 } else { 1 })?;
        figures.point("render32_s_by_uplink_mbit", *rate, seconds(&costs).unwrap_or_default());
        let bytes_up = median(costs.iter().map(|cost| cost.passed.bytes_up as f64)).unwrap_or_default();
        let ideal = bed.job.slowest() + link.round_trip().as_secs_f64() + bytes_up * 8.0 / (rate * 1e6);
        figures.point("render32_s_by_uplink_mbit/ideal", *rate, ideal);
    }
    stop(bed.pool)
}

/// 86 tasks of uneven length.
pub fn search(full: bool, figures: &mut Figures) -> Result<()> {
    for (name, ending) in LINKS {
        let link = Link::preset(name)?;
        let mut bed = Bed::used(PoolOptions::far(WORKERS, link)?, link, Workload::search)?;
        let costs = bed.runs(if full { 5 } else { 1 })?;
        let ideal = bed.job.ideal(WORKERS);
        figures.add(&format!("search_s{ending}"), seconds(&costs));
        figures.add(&format!("search_overhead_s{ending}"), median(costs.iter().map(|cost| bed.over(cost, WORKERS))));
        figures.add(&format!("search_speedup{ending}"), seconds(&costs).map(|took| bed.job.work() / took));
        figures.add(&format!("search_efficiency{ending}"), seconds(&costs).map(|took| ideal / took));
        stop(bed.pool)?;
    }
    Ok(())
}

/// 29 MiB of clips, and what is made of them is played in order.
pub fn video(full: bool, figures: &mut Figures) -> Result<()> {
    for (name, ending) in LINKS {
        let link = Link::preset(name)?;
        let mut bed = Bed::used(PoolOptions::far(WORKERS, link)?, link, Workload::video)?;
        let costs = bed.runs(if full { 5 } else { 1 })?;
        figures.add(&format!("video_s{ending}"), seconds(&costs));
        let prerolls = costs.iter().map(|cost| preroll(&cost.batch.ends));
        figures.add(&format!("video_preroll_s{ending}"), median(prerolls));
        let ideal = preroll(&bed.job.ends(WORKERS));
        figures.add(&format!("video_preroll_ideal_s{ending}"), Some(ideal));
        for (number, end) in costs.iter().take(1).flat_map(|cost| &cost.batch.ends).enumerate() {
            figures.point(&format!("video_arrival_s/{name}"), number as f64 * PLAY_SECONDS, *end);
        }
        stop(bed.pool)?;
        if full {
            let bed = Bed::fresh(PoolOptions::far(WORKERS, link)?, link, Workload::video)?;
            let cost = bed.run()?;
            figures.add(&format!("video_cold_preroll_s{ending}"), Some(preroll(&cost.batch.ends)));
            stop(bed.pool)?;
        }
    }
    Ok(())
}

/// The 32 tiles over cable with each part of the product left out in turn, on workers that do not share a store. Jobs are left out
/// by calling the library for each task, and that by a `remrun` for each.
pub fn switches(full: bool, figures: &mut Figures) -> Result<()> {
    let rounds = if full { 5 } else { 1 };
    for (without, name) in SWITCHES {
        eprintln!("bench:   without {name}");
        let mut bed = apart(without)?;
        figures.add(&format!("render32_without_{name}_s"), seconds(&bed.runs(rounds)?));
        stop(bed.pool)?;
    }
    for (how, name) in [(How::Calls, "jobs"), (How::Each, "jobs_and_library")] {
        eprintln!("bench:   without {name}");
        let mut bed = apart("")?;
        bed.how = how;
        figures.add(&format!("render32_without_{name}_s"), seconds(&bed.runs(rounds)?));
        stop(bed.pool)?;
    }
    Ok(())
}

fn apart(without: &'static str) -> Result<Bed> {
    let link = Link::preset("cable")?;
    let (workers, cpus) = APART;
    Bed::used(PoolOptions { without, ..PoolOptions::new(workers, cpus)? }, link, tiles(RENDER_WORKERS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_of_a_line() {
        assert!((slope(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]).unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(slope(&[(1.0, 2.0)]), None);
    }

    #[test]
    fn a_patch_is_what_is_new() {
        let before: Vec<u8> = (0..50_000u32).flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let mut after = before.clone();
        after[1000..1400].fill(7);
        assert!(patch_bytes(&before, &after).unwrap() < 300);
    }
}
