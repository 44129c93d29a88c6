//! `others`: how fast jobs of many tasks that do nothing go, here and by HyperQueue and Slurm, each with two processors of this
//! machine: from before they are submitted until all have ended and that is known.
//!
//! They do not do the same. Here each task has a sandbox, the user's files and a result that is committed, and what the hub
//! acknowledges is durable before. HyperQueue and Slurm start a process in the files of the machine that it runs on. HyperQueue is
//! the cluster of its Python package, which has no way to turn its journal on, and asks once a second whether a job has ended. Slurm
//! has its defaults, but for a scheduler that need not wait between its turns, and for authentication and accounting, of which it
//! has none here. It keeps its state on disk. Its job is a small one: about two tasks a second went when this was written.
//!
//! They are installed into the scratch folder. One that cannot be had or started is missing, with the reason.

use super::Options;
use crate::bench::peers::packages::Packages;
use crate::bench::peers::site::{Site, free_port};
use crate::bench::samples::Figures;
use crate::error::{Context, Error, Result};
use crate::pool::{self, Pool};
use crate::process::{Daemon, Run, wait_for};
use crate::scenario::folder;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Processors of each.
const CPUS: usize = 2;
/// Tasks of a job. The larger one is left out of who has taken longer than [`PATIENCE`] for the smaller one.
const SIZES: [usize; 2] = [1_000, 10_000];
const PATIENCE: Duration = Duration::from_secs(30);
/// Tasks before that, so that all is there.
const WARM: usize = 20;
/// Tasks of Slurm's job.
const SLURM_TASKS: usize = 60;
/// How long a job may take.
const LIMIT: Duration = Duration::from_secs(600);
/// How long a daemon may take until it serves.
const START: Duration = Duration::from_secs(30);
/// How long it may take to stop when asked.
const STOP: Duration = Duration::from_secs(10);

/// What is run with HyperQueue's package: a job for each number of tasks on its command line. Prints how long each took.
const HYPERQUEUE: &str = "\
import sys, time
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig
with LocalCluster(sys.argv[1], WorkerConfig(cores=int(sys.argv[2]))) as cluster:
    client = cluster.client()
    for count in map(int, sys.argv[3:]):
        job = Job()
        for _ in range(count):
            job.program(['true'], stdout=None, stderr=None)
        began = time.monotonic()
        client.wait_for_jobs([client.submit(job)])
        print('took', count, time.monotonic() - began, flush=True)
";

/// Each that can be had.
pub fn run(_options: &Options, figures: &mut Figures) -> Result<()> {
    let pool = Pool::start(pool::Options::new(1, CPUS)?)?;
    type Other = fn(&Pool, &mut Figures) -> Result<()>;
    let others: [(&str, Other); 3] = [("gleaner", gleaner), ("hyperqueue", hyperqueue), ("slurm", slurm)];
    for (name, other) in others {
        eprintln!("bench: {name}");
        if let Err(error) = other(&pool, figures) {
            eprintln!("bench: {name}: {error}");
            figures.missing(&format!("dispatch_{name}"), &error.to_string());
        }
    }
    let wrong = pool.stop(false)?;
    if wrong.is_empty() { Ok(()) } else { Err(Error::Product(format!("left behind: {}", wrong.join("; ")))) }
}

fn add(figures: &mut Figures, name: &str, tasks: usize, took: Duration) {
    figures.add(&format!("dispatch_{name}_{tasks}_s"), Some(took.as_secs_f64()));
    figures.add(&format!("dispatch_{name}_{tasks}_per_s"), Some(tasks as f64 / took.as_secs_f64()));
}

/// The smaller job, and the larger one unless there is no patience for it.
fn each_size(figures: &mut Figures, name: &str, mut take: impl FnMut(usize) -> Result<Duration>) -> Result<()> {
    for tasks in SIZES {
        let took = take(tasks)?;
        add(figures, name, tasks, took);
        if took > PATIENCE {
            break;
        }
    }
    Ok(())
}

fn gleaner(pool: &Pool, figures: &mut Figures) -> Result<()> {
    let place = folder(pool, "dispatch")?;
    submit(pool, &place, WARM)?;
    each_size(figures, "gleaner", |tasks| submit(pool, &place, tasks))
}

/// A job of so many tasks, to its end.
fn submit(pool: &Pool, place: &Path, tasks: usize) -> Result<Duration> {
    let file = place.join("commands");
    std::fs::write(&file, "true\n".repeat(tasks)).at("write", &file)?;
    let mut command = Command::new(pool.client.gleaner.clone().unwrap_or_else(|| "gleaner".into()));
    command.args(["submit", "--wait", "commands"]);
    pool.client.dress(&mut command);
    command.current_dir(place);
    Ok(Run::new(command).within(LIMIT).run()?.expect_ok("gleaner submit")?.elapsed)
}

fn hyperqueue(pool: &Pool, figures: &mut Figures) -> Result<()> {
    let site = Site::new(pool, "hyperqueue")?;
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "venv"]);
    site.run("python3 -m venv", venv)?;
    let mut pip = Command::new(site.folder.join("venv/bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "hyperqueue==0.27.0"]);
    site.run("pip install hyperqueue", pip)?;
    let script = site.write("run.py", HYPERQUEUE)?;
    each_size(figures, "hyperqueue", |tasks| {
        let mut python = Command::new(site.folder.join("venv/bin/python"));
        python.arg(&script).arg(site.inner("state", 0o700)?).arg(CPUS.to_string());
        python.args([WARM, tasks].map(|count| count.to_string())).current_dir(&site.folder);
        let said = Run::new(python).within(LIMIT).run()?.expect_ok("HyperQueue's cluster")?.text();
        let took = said.lines().find_map(|line| line.strip_prefix(&format!("took {tasks} "))?.parse().ok());
        let took = took.ok_or_else(|| Error::Missing(format!("HyperQueue did not say how long it took: {said}")))?;
        Ok(Duration::from_secs_f64(took))
    })
}

/// Slurm's programs, with what they need to find each other.
struct Slurm<'a> {
    site: Site<'a>,
    packages: Packages,
    conf: PathBuf,
}

impl Slurm<'_> {
    /// A program of Slurm's.
    fn command(&self, name: &str) -> Result<Command> {
        let mut command = Command::new(self.packages.program(name)?);
        let (name, folders) = self.packages.libraries();
        let own = self.packages.file("usr/lib/x86_64-linux-gnu/slurm-wlm");
        command.env(name, format!("{}:{folders}", own.display())).env("SLURM_CONF", &self.conf);
        command.current_dir(&self.site.folder);
        Ok(command)
    }

    fn daemon(&self, name: &str, program: &str, arguments: &[&str]) -> Result<Daemon> {
        let mut command = self.command(program)?;
        command.arg("-D").arg("-f").arg(&self.conf).args(arguments);
        Daemon::start(name, command, &self.site.folder.join(format!("{name}.log")))
    }

    /// What a program of Slurm's prints.
    fn ask(&self, name: &str, arguments: &[&str]) -> Result<String> {
        let mut command = self.command(name)?;
        command.args(arguments);
        Ok(self.site.run(name, command)?.text())
    }
}

fn slurm(pool: &Pool, figures: &mut Figures) -> Result<()> {
    let site = Site::new(pool, "slurm")?;
    let names = ["slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "libhwloc15"];
    let packages = Packages::fetch(&site, &names)?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let conf = site.write("slurm.conf", &configuration(&site, &packages, &host)?)?;
    let slurm = Slurm { site, packages, conf };
    let stepd = slurm.packages.program("slurmstepd-wlm")?.display().to_string();
    let mut daemons = vec![slurm.daemon("slurmctld", "slurmctld-wlm", &[])?];
    daemons.push(slurm.daemon("slurmd", "slurmd-wlm", &["-N", &host, "-d", &stepd])?);
    let done = slurm_jobs(&slurm, &mut daemons);
    for daemon in &mut daemons {
        daemon.stop(STOP);
    }
    add(figures, "slurm", SLURM_TASKS, done?);
    Ok(())
}

fn slurm_jobs(slurm: &Slurm<'_>, daemons: &mut [Daemon]) -> Result<Duration> {
    let is_idle = || slurm.ask("sinfo", &["-h", "-o", "%t"]).is_ok_and(|state| state == "idle").then_some(());
    let started = wait_for(START, is_idle);
    daemons.iter_mut().try_for_each(Daemon::check)?;
    started.ok_or_else(|| Error::Missing(format!("Slurm's node was not idle within {START:?}")))?;
    let job = slurm.site.write("job.sh", "#!/bin/sh\nexec true\n")?;
    let clock = Instant::now();
    let all = format!("--array=1-{SLURM_TASKS}");
    slurm.ask("sbatch", &[&all, "-o", "/dev/null", "-e", "/dev/null", &job.display().to_string()])?;
    let is_over = || slurm.ask("squeue", &["-h"]).is_ok_and(|jobs| jobs.is_empty()).then_some(());
    let ended = wait_for(LIMIT, is_over).ok_or_else(|| Error::Missing("Slurm's job did not end".to_owned()));
    ended.map(|()| clock.elapsed())
}

fn configuration(site: &Site<'_>, packages: &Packages, host: &str) -> Result<String> {
    let folder = |name: &str| site.inner(name, 0o700).map(|path| path.display().to_string());
    let (state, spool, ports) = (folder("state")?, folder("spool")?, [free_port()?, free_port()?]);
    let (plugins, own) = (packages.file("usr/lib/x86_64-linux-gnu/slurm-wlm"), site.folder.display());
    let [plugins, own] = [plugins.display().to_string(), own.to_string()];
    Ok(format!(
        "ClusterName=bench\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\nSlurmdPort={}\n\
         AuthType=auth/none\nCredType=cred/none\nSlurmUser=root\nSlurmdUser=root\n\
         StateSaveLocation={state}\nSlurmdSpoolDir={spool}\nSlurmctldPidFile={own}/slurmctld.pid\n\
         SlurmdPidFile={own}/slurmd.pid\nPluginDir={plugins}\nProctrackType=proctrack/pgid\nTaskPlugin=task/none\n\
         SchedulerType=sched/builtin\nSchedulerParameters=batch_sched_delay=0,sched_min_interval=0\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nJobAcctGatherType=jobacct_gather/none\n\
         AccountingStorageType=accounting_storage/none\nMpiDefault=none\nReturnToService=2\n\
         NodeName={host} NodeAddr=127.0.0.1 CPUs={CPUS} State=UNKNOWN\n\
         PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
        ports[0], ports[1],
    ))
}
