//! Emulated hosts and a client of theirs, over real QUIC, in a process of their own: what the hub is measured with.
//!
//! * [`plan`]: what is to be done, and what came of it, as JSON.
//! * [`hosts`]: thousands of hosts that ask or wait for tasks, take their time, and die now and then.
//! * [`client`]: submits tasks when they are due, whether or not the hub is ready for them, and collects what came of them.
//! * [`probe`]: a client that tells how long a hub is away.
//! * [`watch`]: the machine's own hiccups meanwhile.
//!
//! All come back by themselves when the hub ends and starts again.

mod client;
mod hosts;
mod plan;
mod probe;
mod watch;

pub use plan::{Outcome, Phase, Plan};
pub use probe::Probe;

use crate::error::{Context, Error, Result};
use std::path::Path;
use std::process::ExitCode;

/// First argument with which the suite's binary is a swarm: then the file of the plan.
pub const SUBCOMMAND: &str = "swarm";

/// Does what a plan says: a line of JSON when the hosts are there, and for each phase.
pub fn main(arguments: &[String]) -> ExitCode {
    let [file] = arguments else { return ExitCode::FAILURE };
    match run(Path::new(file)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("swarm: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(file: &Path) -> Result<()> {
    let plan: Plan = plan::read(file)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context(|| "cannot start an async runtime".to_owned())?;
    let done = runtime.block_on(async {
        let client = client::Client::join(&plan).await?;
        let hosts = hosts::Hosts::join(&plan).await?;
        println!("{}", serde_json::json!({"connected": hosts.count(), "connect_s": hosts.joined_in.as_secs_f64()}));
        for phase in &plan.phases {
            let outcome = client.run(phase, &hosts).await?;
            println!("{}", plan::line(&outcome)?);
        }
        hosts.leave().await;
        Ok::<_, Error>(())
    });
    runtime.shutdown_background();
    done
}
