//! Tasks that may use the network: what they reach, what not, and that they begin once.

use crate::error::{Context, Error, Result};
use crate::pool::{Options, Pool, SITE};
use crate::process::{Outcome, Run};
use crate::report::Report;
use crate::scenario::{self, Scenario, Work, folder};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testbed::Link;

const SCENARIOS: [Scenario; 4] = [
    ("net/a task reaches hosts, by name and in both directions", reaches),
    ("net/nothing near a worker is reached, and nothing without --net", refused),
    ("net/what may use the network is begun once", once),
    ("net/a project's file grants it once it is trusted", granted),
];
const GUESTS: Scenario = ("net/guests use it where their host's owner lets them", guests);

/// The worker's own address on the network that stands for the internet, and the only other host there.
const OWN: &str = "11.7.7.1";
const HOST: &str = "11.7.7.2";
const BITS: u8 = 24;
/// Longest that a command may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Tells what it was sent, sends much, answers datagrams, and knows all names. Says what it did.
const SERVER: &str = r#"
import socket, threading, hashlib, sys
def say(text): print(text, flush=True)
def told(c):
    h, n = hashlib.sha256(), 0
    while data := c.recv(65536): h.update(data); n += len(data)
    c.sendall(f'{n} {h.hexdigest()}'.encode()); c.close()
def much(c):
    c.sendall(b'x' * 5_000_000); c.close()
def stays(c):
    c.sendall(b'hello')
    try: c.recv(1)
    except ConnectionError: pass
def serve(port, answer):
    s = socket.create_server(('', port))
    while True:
        c, _ = s.accept(); say(f'connection {port}'); threading.Thread(target=answer, args=(c,), daemon=True).start()
def datagrams(port, answer):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', port))
    while True:
        data, peer = s.recvfrom(65536); s.sendto(answer(data), peer)
def name(q):
    at = 12
    while q[at]: at += 1 + q[at]
    kind = q[at + 1:at + 3]
    answer = b'\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4' + socket.inet_aton('11.7.7.2') if kind == b'\0\1' else b''
    return q[:2] + b'\x81\x80\0\1\0' + (b'\1' if answer else b'\0') + b'\0\0\0\0' + q[12:at + 5] + answer
for what in [(serve, 8080, told), (serve, 8081, much), (serve, 8082, stays), (datagrams, 7777, bytes.upper), (datagrams, 53, name)]:
    threading.Thread(target=what[0], args=what[1:], daemon=True).start()
say('ready')
sys.stdin.read()
"#;

/// The scenarios whose name contains `filter`.
pub fn works<'a>(options: &Options, filter: &str, report: &'a Report) -> Vec<Work<'a>> {
    let link = Link::preset("lan").expect("it is a preset");
    let far = Options { workers: 0, together: true, link: Some(link), ..options.clone() };
    let mut works = scenario::works(&SCENARIOS, &Options { guests: false, ..far.clone() }, filter, report);
    works.extend(scenario::works(&[GUESTS], &Options { guests: true, ..far }, filter, report));
    works
}

/// A network that stands for the internet, on which the pool's worker is, until this is dropped.
struct Internet {
    host: Child,
    said: Option<BufReader<std::process::ChildStdout>>,
}

impl Internet {
    fn around(pool: &Pool) -> Result<Self> {
        let mut command = Command::new("unshare");
        command.args(["--net", "python3", "-c", SERVER]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut host = command.spawn().context(|| "cannot start a server".to_owned())?;
        let mut said = BufReader::new(host.stdout.take().ok_or_else(|| Error::Product("no output".into()))?);
        let mut line = String::new();
        said.read_line(&mut line).context(|| "the server said nothing".to_owned())?;
        let pid = host.id().to_string();
        let internet = Self { host, said: Some(said) };
        let at_worker = pool.testbed().host(SITE).entrance();
        let ip = |words: &[&str], is_there: bool| -> Result<()> {
            let mut command = Command::new(if is_there { "nsenter" } else { "ip" });
            if is_there {
                command.args(["--net", "--target", &pid, "ip"]);
            } else {
                at_worker.run_here(&mut command);
            }
            Run::new(command_with(command, words)).within(LIMIT).run()?.expect_ok(&words.join(" ")).map(drop)
        };
        ip(&["link", "add", "pub0", "type", "veth", "peer", "name", "pub1", "netns", &pid], false)?;
        for (device, address, is_there) in [("pub0", OWN, false), ("pub1", HOST, true)] {
            ip(&["address", "add", &format!("{address}/{BITS}"), "dev", device], is_there)?;
            ip(&["link", "set", device, "up"], is_there)?;
        }
        let worker = pool.first_worker().pid().as_raw_nonzero();
        let resolvers = format!("/proc/{worker}/root/etc/resolv.conf");
        std::fs::write(&resolvers, format!("nameserver {HOST}\n")).at("write", resolvers.as_ref())?;
        Ok(internet)
    }

    /// How many connections there were since it was listened to.
    fn connections(mut self) -> Result<usize> {
        drop(self.host.stdin.take());
        let lines = self.said.take().map(|said| said.lines().map_while(std::io::Result::ok).collect::<Vec<_>>());
        Ok(lines.unwrap_or_default().iter().filter(|line| line.starts_with("connection")).count())
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        let _ = self.host.kill();
        let _ = self.host.wait();
    }
}

fn command_with(mut command: Command, words: &[&str]) -> Command {
    command.args(words);
    command
}

fn python(pool: &Pool, options: &[&str], script: &str) -> Result<Outcome> {
    let mut command = pool.client.remrun(&[options, &["python3", "-c", script]].concat());
    command.current_dir(folder(pool, "net")?);
    Run::new(command).within(LIMIT).run()
}

fn reaches(pool: &mut Pool) -> Result<Vec<String>> {
    let internet = Internet::around(pool)?;
    let script = "
import socket, hashlib
data = bytes(range(256)) * 12000
s = socket.create_connection(('server.test', 8080)); s.sendall(data); s.shutdown(socket.SHUT_WR)
n, h = s.recv(200).decode().split(); print(int(n) == len(data) and h == hashlib.sha256(data).hexdigest())
s = socket.create_connection(('server.test', 8081)); n = 0
while d := s.recv(65536): n += len(d)
print(n)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(10); u.sendto(b'abc', ('11.7.7.2', 7777)); print(u.recv(99))
try: socket.create_connection(('11.7.7.2', 9), 10)
except ConnectionRefusedError: print('refused')
open('made', 'w').write('by a task')
";
    let outcome = python(pool, &["--net", "--no-local"], script)?;
    let mut wrong = Vec::new();
    let want = "True\n5000000\nb'ABC'\nrefused";
    if !outcome.ok() || outcome.text() != want {
        wrong.push(format!("wanted {want:?}: {} {:?} {}", outcome.ended, outcome.text(), outcome.said()));
    }
    if !pool.place("net/made").exists() {
        wrong.push("its file was not committed".into());
    }
    if internet.connections()? != 2 {
        wrong.push("there were other than two connections".into());
    }
    // Another task in the same network namespace has nothing of it.
    let outcome =
        python(pool, &["--no-local"], "import os; print(open('/proc/%d/net/dev' % os.getpid()).read().count('eth'))")?;
    if outcome.text() != "0" {
        wrong.push(format!("a task without --net: {:?} {}", outcome.text(), outcome.said()));
    }
    Ok(wrong)
}

fn refused(pool: &mut Pool) -> Result<Vec<String>> {
    let internet = Internet::around(pool)?;
    let site = pool.testbed().host(SITE).address().to_string();
    let script = format!(
        "
import socket
for place in [('{OWN}', 4433), ('{site}', 4433), ('10.0.2.2', 80), ('192.168.0.1', 80), ('169.254.169.254', 80), ('127.0.0.1', 1)]:
    try: socket.create_connection(place, 5); print('reached', place)
    except ConnectionRefusedError: print('refused')
"
    );
    let mut wrong = Vec::new();
    let outcome = python(pool, &["--net", "--no-local"], &script)?;
    if outcome.text() != ["refused"; 6].join("\n") {
        wrong.push(format!("{} {:?} {}", outcome.ended, outcome.text(), outcome.said()));
    }
    // Noticed too late to be run here, it names the remedy.
    let late = "import socket, sys, time; print('begun', flush=True); time.sleep(0.5)\nsocket.create_connection(('11.7.7.2', 8082), 5)";
    let outcome = python(pool, &["--no-local"], late)?;
    if outcome.ok() || !outcome.said().contains("--net") {
        wrong.push(format!("without --net: {} {}", outcome.ended, outcome.said()));
    }
    if internet.connections()? != 0 {
        wrong.push("somebody reached the host".into());
    }
    Ok(wrong)
}

fn once(pool: &mut Pool) -> Result<Vec<String>> {
    let mut internet = Internet::around(pool)?;
    let script =
        "import socket; s = socket.create_connection(('11.7.7.2', 8082)); s.recv(5); open('got', 'w'); s.recv(1)";
    let mut command = pool.client.remrun(&["--net", "python3", "-c", script]);
    command.current_dir(folder(pool, "net")?);
    let runner = std::thread::spawn(move || Run::new(command).within(LIMIT).run());
    let mut wrong = Vec::new();
    // It runs, and has used the network; now its worker is gone.
    let mut line = String::new();
    internet.said.as_mut().map(|said| said.read_line(&mut line));
    pool.hub.kill();
    let outcome = runner.join().map_err(|_| Error::Product("the runner panicked".to_owned()))??;
    if outcome.ok() || !outcome.said().contains("begun once only") {
        wrong.push(format!("its worker was lost: {} {}", outcome.ended, outcome.said()));
    }
    if pool.place("net/got").exists() {
        wrong.push("part of it was committed".into());
    }
    let connections = internet.connections()?;
    if line.trim() != "connection 8082" || connections != 0 {
        wrong.push(format!("it said {line:?}, and then connected {connections} times"));
    }
    Ok(wrong)
}

fn granted(pool: &mut Pool) -> Result<Vec<String>> {
    let _internet = Internet::around(pool)?;
    let place = folder(pool, "net")?;
    let file = place.join(".gleaner.toml");
    let write = |text: &str| std::fs::write(&file, text).at("write", &file);
    write("network = true\n")?;
    let reads = "import socket; print(socket.create_connection(('11.7.7.2', 8082), 5).recv(5))";
    let mut wrong = Vec::new();
    let mut expect = |what: &str, options: &[&str], is_there: bool| -> Result<()> {
        let outcome = python(pool, options, reads)?;
        if (outcome.text() == "b'hello'") != is_there {
            wrong.push(format!("{what}: {} {:?} {}", outcome.ended, outcome.text(), outcome.said()));
        }
        Ok(())
    };
    expect("nobody has trusted it", &["--no-local"], false)?;
    pool.client.gleaner(&["trust", &place.to_string_lossy()])?.expect_ok("gleaner trust")?;
    expect("trusted", &["--no-local"], true)?;
    // It was seen to want the network.
    expect("where it may run here as well", &[], true)?;
    write("network = true\n# and more\n")?;
    expect("changed since", &["--no-local"], false)?;
    Ok(wrong)
}

fn guests(pool: &mut Pool) -> Result<Vec<String>> {
    let _internet = Internet::around(pool)?;
    let outcome = python(pool, &["-v", "--net", "--no-local"], "print('ran')")?;
    match outcome.ok() || !outcome.said().contains("`network = true`") {
        true => Ok(vec![format!("a guest had a network: {} {} {}", outcome.ended, outcome.text(), outcome.said())]),
        false => Ok(Vec::new()),
    }
}
