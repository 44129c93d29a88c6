//! `cargo xtask testbed --link cable -- CMD`: runs a command at the near end of a link.

use clap::Parser;
use rustix::process::{Pid, Signal};
use std::io::IsTerminal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use testbed::link::PRESETS;
use testbed::{Link, Shape, Testbed};

/// Run a command on a host of its own, joined to another host by a slow link.
///
/// The command runs on the host `near`, in the environment with TESTBED_NEAR and TESTBED_FAR, the addresses of both. The link is near's; up is from near to far. Both hosts have the files of this machine,
/// a loopback, and no other network. `ping`, TCP, UDP: all of IPv4 passes.
#[derive(Debug, Parser)]
#[command(name = "testbed", after_help = links())]
struct Arguments {
    /// Preset of the link
    #[arg(long, default_value = "cable")]
    link: String,
    /// Round trip in milliseconds, half of it each way
    #[arg(long, value_name = "MS")]
    rtt: Option<f64>,
    /// Rate from near to far, in Mbit/s
    #[arg(long, value_name = "MBIT")]
    up: Option<f64>,
    /// Rate from far to near, in Mbit/s
    #[arg(long, value_name = "MBIT")]
    down: Option<f64>,
    /// Room for what waits to be sent, each way, in KB (1,024 bytes)
    #[arg(long, value_name = "KB")]
    queue: Option<u64>,
    /// Packets lost, each way, in percent
    #[arg(long, value_name = "PERCENT")]
    loss: Option<f64>,
    /// Packets lost in a row, on average
    #[arg(long, value_name = "PACKETS")]
    burst: Option<f64>,
    /// Most that is added to the delay of a packet, each way, in milliseconds
    #[arg(long, value_name = "MS")]
    jitter: Option<f64>,
    /// The same seed loses the same packets
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A shell command that runs on the host `far` meanwhile, and is ended afterwards
    #[arg(long, value_name = "COMMAND")]
    far: Option<String>,
    /// Tell on stderr what has passed the link
    #[arg(long)]
    traffic: bool,
    /// The command
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<String>,
}

fn links() -> String {
    let lines = PRESETS.map(|(name, what)| format!("  {name:<8} {what}\n"));
    format!("Links:\n{}", lines.concat())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("testbed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode, testbed::Error> {
    let link = arguments.shape()?;
    let testbed = Testbed::start(&[("near", link), ("far", Link::NONE)], arguments.seed)?;
    let command = |program: &str, host: &str| {
        let mut command = Command::new(program);
        command.env("TESTBED_NEAR", testbed.host("near").address().to_string());
        command.env("TESTBED_FAR", testbed.host("far").address().to_string());
        testbed.host(host).run_here(&mut command);
        command
    };
    let failed = |what: &str| {
        let what = format!("cannot run {what}");
        move |source| testbed::Error::System { what, source }
    };
    let far = match &arguments.far {
        Some(text) => {
            let mut shell = command("/bin/sh", "far");
            let shell = shell.args(["-c", text]).stdin(Stdio::null()).process_group(0);
            Some(Far(shell.spawn().map_err(failed("the far command"))?))
        }
        None => None,
    };
    let program = &arguments.command[0];
    let ended = command(program, "near").args(&arguments.command[1..]).status().map_err(failed(program))?;
    drop(far);
    if arguments.traffic || std::io::stderr().is_terminal() {
        let passed = testbed.traffic("near");
        eprintln!(
            "testbed: {} packets, {} bytes up; {} packets, {} bytes down; {} dropped, {} lost; at most {:.1} ms late",
            passed.packets_up,
            passed.bytes_up,
            passed.packets_down,
            passed.bytes_down,
            passed.dropped,
            passed.lost,
            testbed.take_lateness().as_secs_f64() * 1e3
        );
    }
    Ok(ExitCode::from(ended.code().unwrap_or(128 + ended.signal().unwrap_or(0)) as u8))
}

/// The far command, until it is dropped: then it ends with all that it started.
struct Far(Child);

impl Drop for Far {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.0);
        // Who has ended already cannot be told to.
        let _ = rustix::process::kill_process_group(group, Signal::TERM);
        let _ = self.0.wait();
    }
}

impl Arguments {
    /// The preset, with what was said otherwise.
    fn shape(&self) -> Result<Link, testbed::Error> {
        let mut link = Link::preset(&self.link)?;
        if let Some(ms) = self.rtt {
            link = link.with_round_trip(millis("--rtt", ms)?);
        }
        for (shape, mbit) in [(&mut link.up, self.up), (&mut link.down, self.down)] {
            shape.rate = mbit.map(|mbit| (mbit * 1e6) as u64).or(shape.rate);
            self.change(shape)?;
        }
        link.check()?;
        Ok(link)
    }

    fn change(&self, shape: &mut Shape) -> Result<(), testbed::Error> {
        shape.queue_bytes = self.queue.map_or(shape.queue_bytes, |kb| kb << 10);
        shape.loss = self.loss.map_or(shape.loss, |percent| percent / 100.0);
        shape.loss_burst = self.burst.unwrap_or(shape.loss_burst);
        shape.jitter = self.jitter.map_or(Ok(shape.jitter), |ms| millis("--jitter", ms))?;
        Ok(())
    }
}

fn millis(option: &str, ms: f64) -> Result<Duration, testbed::Error> {
    Duration::try_from_secs_f64(ms / 1000.0)
        .map_err(|_| testbed::Error::Wrong(format!("{option} wants milliseconds, not {ms}")))
}
