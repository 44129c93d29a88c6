//! A hub's figures for Prometheus: `GET /metrics`, in its text format, version 0.0.4.
//!
//! Whoever reaches the address reads them: no names are among them but the hub's own. Bounded are the connections,
//! each one's time, and the bytes of a request; one too many is closed at once.

use crate::figures::{Figures, Times};
use crate::server::blocking;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Connections at a time.
const CONNECTIONS_MAX: usize = 8;
/// Bytes of a request's head; there is nothing to read behind it.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Headers of a request.
const HEADERS_MAX: usize = 64;
/// How long one connection may take: for one request.
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);
/// How long nobody is let in after the system has refused a connection.
const PAUSE: Duration = Duration::from_millis(200);
/// The text format.
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers whoever asks, for ever. `figures` may wait for the disk.
pub(crate) async fn serve(listener: TcpListener, figures: impl Fn() -> Figures + Clone + Send + 'static) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "metrics: no connection was accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = room.clone().try_acquire_owned() else { continue };
        let figures = figures.clone();
        tokio::spawn(async move {
            if let Err(error) = tokio::time::timeout(CONNECTION_LIMIT, serve_one(stream, figures)).await {
                tracing::debug!(%error, "metrics: a connection took too long");
            }
            drop(permit);
        });
    }
}

async fn serve_one(stream: TcpStream, figures: impl Fn() -> Figures + Clone + Send + 'static) {
    let service = service_fn(move |request: Request<Incoming>| {
        let figures = figures.clone();
        async move { Ok::<_, Infallible>(answer(request.method(), request.uri().path(), figures).await) }
    });
    let mut http = http1::Builder::new();
    // One time limit is for all.
    http.keep_alive(false).header_read_timeout(None).max_buf_size(REQUEST_BYTES_MAX).max_headers(HEADERS_MAX);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "metrics: a connection ended");
    }
}

async fn answer(method: &Method, path: &str, figures: impl FnOnce() -> Figures + Send + 'static) -> Response<String> {
    let mut response = Response::default();
    match (path, method) {
        ("/metrics", &Method::GET) => match blocking(figures).await {
            Ok(figures) => {
                response.headers_mut().insert(CONTENT_TYPE, FORMAT.parse().expect("letters of ASCII"));
                *response.body_mut() = text(&figures);
            }
            Err(error) => {
                tracing::warn!(%error, "metrics: there are no figures");
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            }
        },
        ("/metrics", _) => {
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            response.headers_mut().insert(ALLOW, "GET".parse().expect("letters of ASCII"));
        }
        _ => *response.status_mut() = StatusCode::NOT_FOUND,
    }
    response
}

/// The figures in Prometheus's text format: times in seconds, each with its unit and what it means.
fn text(figures: &Figures) -> String {
    let mut page = Page(String::with_capacity(8 << 10));
    let labels = format!("{{hub=\"{}\",version=\"{}\"}}", escaped(&figures.hub), escaped(&figures.version));
    page.family("info", "gauge", "The hub.").sample("info", &labels, 1);
    page.gauge("uptime_seconds", "How long this process has been the hub.", seconds(figures.uptime_ms * 1000));
    page.gauge("clients", "Clients that are connected.", figures.clients);
    page.gauge("workers", "Workers that are connected.", figures.workers);
    page.family("hosts", "gauge", "Hosts that ask for workunits or wait for them, by where they are.")
        .sample("hosts", "{state=\"here\"}", figures.hosts_here)
        .sample("hosts", "{state=\"away\"}", figures.hosts_away);
    page.gauge("cpus_lent", "CPUs that workers and hosts lend.", figures.cpus_lent);
    page.gauge("cpus_busy", "CPUs of these that tasks have.", figures.cpus_busy);
    page.expected(figures);
    page.family("launches", "gauge", "Launches of remrun, by whether they have a place.")
        .sample("launches", "{state=\"running\"}", figures.launches_running)
        .sample("launches", "{state=\"waiting\"}", figures.launches_waiting);
    page.gauge("jobs", "Jobs that are known, launches among them.", figures.jobs);
    page.gauge("tasks", "Tasks that are known, also those whose results wait to be taken.", figures.tasks);
    page.gauge("tasks_max", "Room for tasks.", figures.tasks_max);
    page.gauge("tasks_waiting", "Tasks that want a place, held ones among them.", figures.tasks_waiting);
    page.gauge("tasks_running", "Tasks that have a place.", figures.tasks_running);
    page.gauge("tasks_held", "Tasks of jobs that are held or whose client is away.", figures.tasks_held);
    page.gauge("instances_out", "Instances of tasks that are at hosts.", figures.instances_out);
    page.totals(figures);
    page.refusals(figures);
    page.troubles(figures);
    page.times("place_wait_seconds", "How long launches waited for their places.", &figures.place_waits);
    page.times("record_wait_seconds", "How long answers and orders waited for the disk.", &figures.record_waits);
    page.journal(figures);
    page.0
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// The value of a label, between its quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

struct Page(String);

impl Page {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Memory takes everything.
        let _ = self.0.write_fmt(line);
        self.0.push('\n');
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) -> &mut Self {
        self.line(format_args!("# HELP gleaner_hub_{name} {help}"));
        self.line(format_args!("# TYPE gleaner_hub_{name} {kind}"));
        self
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl Display) -> &mut Self {
        self.line(format_args!("gleaner_hub_{name}{labels} {value}"));
        self
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help).sample(name, "", value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help).sample(name, "", value);
    }

    fn times(&mut self, name: &str, help: &str, times: &Times) {
        self.family(name, "summary", help)
            .sample(name, "{quantile=\"0.5\"}", seconds(times.p50_us))
            .sample(name, "{quantile=\"0.99\"}", seconds(times.p99_us))
            .sample(name, "{quantile=\"1\"}", seconds(times.max_us))
            .sample(&format!("{name}_sum"), "", seconds(times.sum_us))
            .sample(&format!("{name}_count"), "", times.count);
    }

    fn expected(&mut self, figures: &Figures) {
        let Some(expected) = figures.expected else { return };
        let parts = |permille: u64| permille as f64 / 1e3;
        self.family("cpus_expected", "gauge", "CPUs that workers expect to give in the next minutes, by bound.")
            .sample("cpus_expected", "{bound=\"low\"}", parts(expected.cpus_low))
            .sample("cpus_expected", "{bound=\"mean\"}", parts(expected.cpus))
            .sample("cpus_expected", "{bound=\"high\"}", parts(expected.cpus_high));
        self.gauge("forecast_error_cpus", "Mean absolute error of such forecasts, of one CPU.", parts(expected.error));
        self.gauge("forecast_coverage", "Those of them in whose interval it was.", parts(expected.covered));
    }

    fn totals(&mut self, figures: &Figures) {
        let totals = &figures.totals;
        self.counter("tasks_submitted_total", "Tasks that were submitted.", totals.submitted);
        self.counter("instances_dispatched_total", "Instances of tasks that were dispatched.", totals.dispatched);
        self.family("tasks_ended_total", "counter", "Tasks that ended and were taken, by whether they had a result.")
            .sample("tasks_ended_total", "{result=\"done\"}", totals.done)
            .sample("tasks_ended_total", "{result=\"failed\"}", totals.failed);
        self.counter("instances_lost_total", "Instances lost with their hosts or in time.", totals.lost);
        self.counter("instances_late_total", "Instances lost in time.", totals.late);
        self.counter("instances_speculated_total", "Instances more, for a deadline was near.", totals.speculated);
        self.family("deadlines_total", "counter", "Tasks with deadlines that ended, by whether in time.")
            .sample("deadlines_total", "{result=\"met\"}", totals.deadlines_met)
            .sample("deadlines_total", "{result=\"missed\"}", totals.deadlines_missed);
        self.counter("submissions_too_late_total", "Refused: the deadline could not be met.", totals.too_late);
        self.counter("refusals_total", "Whatever was asked of the table and refused.", totals.refused);
        self.counter("host_back_offs_total", "Hosts that were sent back for a while.", totals.back_offs);
    }

    fn refusals(&mut self, figures: &Figures) {
        let families = [
            ("launches_failed_total", "Launches that came to nothing, by kind.", &figures.launches_failed),
            ("joins_refused_total", "Joins that were refused, by reason.", &figures.joins_refused),
        ];
        for (name, help, counts) in families {
            self.family(name, "counter", help);
            for (reason, count) in counts {
                self.sample(name, &format!("{{reason=\"{}\"}}", escaped(reason)), count);
            }
        }
    }

    fn troubles(&mut self, figures: &Figures) {
        let troubles = &figures.troubles;
        self.gauge("workers_in_trouble", "Workers that have trouble with one of the next three.", troubles.workers);
        let oldest = troubles.oldest_request_s;
        self.gauge(
            "oldest_request_seconds",
            "How long a guest has waited for a file, in steps of powers of two.",
            oldest,
        );
        self.gauge(
            "tasks_unkillable",
            "Tasks that were told to end some seconds ago and have not.",
            troubles.unkillable,
        );
        let skew = troubles.clock_skew_ms as f64 / 1e3;
        self.gauge("clock_skew_seconds", "How far a worker's clock is off, of all the most, in steps of 0.2 s.", skew);
    }

    fn journal(&mut self, figures: &Figures) {
        let Some(journal) = &figures.journal else { return };
        self.gauge("journal_bytes", "Bytes that the journal takes.", journal.bytes);
        self.gauge("journal_max_bytes", "The bound on that.", journal.bytes_max);
        self.gauge("journal_after_snapshot_bytes", "Bytes that a start would read.", journal.bytes_after_snapshot);
        self.counter("journal_records_total", "Records that the journal took.", journal.records);
        self.counter("journal_records_durable_total", "Records that are durable.", journal.records_durable);
        self.gauge("journal_buffered_bytes", "Bytes of records that are not durable.", journal.buffered_bytes);
        self.gauge("journal_buffered_max_bytes", "The bound on that.", journal.buffered_bytes_max);
        self.gauge("journal_epoch", "Which hub this is, of those that replaced one another.", journal.epoch);
        self.times("journal_sync_seconds", "How long it took to make a batch of records durable.", &journal.syncs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::ExpectedFigures;
    use crate::testing::{LIMIT, hello, serve_journalled};
    use std::collections::{HashMap, HashSet};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use wire::Role;

    async fn asked(address: std::net::SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        // One that is refused may be cut off.
        let _ = tokio::time::timeout(LIMIT, stream.read_to_string(&mut answer)).await.expect("in time");
        answer
    }

    /// Each sample with its labels, after a look at the format.
    fn samples(page: &str) -> HashMap<&str, f64> {
        let (mut families, mut samples, mut family) = (HashSet::new(), HashMap::new(), "");
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                family = rest.split(' ').next().expect("a name");
                assert!(families.insert(family), "{family} twice");
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a kind");
                assert_eq!(name, family);
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                continue;
            }
            let (name, value) = line.rsplit_once(' ').expect("a value");
            assert!(name.starts_with(family) && family.starts_with("gleaner_hub_"), "{line} in {family}");
            samples.insert(name, value.parse().expect("a number"));
        }
        samples
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_hub_is_scraped() {
        let folder = tempfile::tempdir().expect("a folder");
        let hub = serve_journalled(folder.path());
        let _worker = hub.join(7, hello(Role::Worker, 3)).await;
        hub.lends(3).await;
        let page = asked(hub.metrics, "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n").await;
        let (head, page) = page.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
        let samples = samples(page);
        assert_eq!(samples["gleaner_hub_cpus_lent"], 3.0, "{page}");
        assert_eq!((samples["gleaner_hub_workers"], samples["gleaner_hub_hosts{state=\"away\"}"]), (1.0, 0.0));
        assert!(samples["gleaner_hub_journal_records_total"] > 0.0, "{page}");
        assert_eq!(samples["gleaner_hub_tasks_max"], 1024.0);
        assert_eq!(samples["gleaner_hub_launches_failed_total{reason=\"no_worker\"}"], 0.0, "{page}");
        for quiet in ["workers_in_trouble", "oldest_request_seconds", "tasks_unkillable", "clock_skew_seconds"] {
            assert_eq!(samples[format!("gleaner_hub_{quiet}").as_str()], 0.0, "{quiet}");
        }
        let status = |answer: &str| answer.split(' ').nth(1).unwrap_or_default().to_owned();
        let of = async |request: &str| status(&asked(hub.metrics, request).await);
        assert_eq!(of("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await, "404");
        assert_eq!(of("POST /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n").await, "405");
        assert_eq!(of("nonsense\r\n\r\n").await, "400");
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(REQUEST_BYTES_MAX));
        assert_eq!(of(&long).await, "431");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_connection_too_many_is_closed() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let serving = tokio::spawn(serve(listener, Figures::default));
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            idle.push(TcpStream::connect(address).await.expect("connected"));
        }
        assert_eq!(asked(address, "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n").await, "");
        drop(idle);
        let served = async {
            while asked(address, "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n").await.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LIMIT, served).await.expect("there is room again");
        serving.abort();
    }

    #[test]
    fn labels_are_escaped_and_times_are_seconds() {
        let times = Times { count: 4, sum_us: 2_500_000, p50_us: 500, p99_us: 1_000_000, max_us: 1_500_000 };
        let expected = Some(ExpectedFigures { cpus: 1_500, cpus_low: 250, cpus_high: 2_000, error: 40, covered: 912 });
        let figures = Figures { hub: "a\"b\\c\nd".into(), place_waits: times, expected, ..Figures::default() };
        let page = text(&figures);
        let told = samples(&page);
        assert_eq!(told["gleaner_hub_cpus_expected{bound=\"low\"}"], 0.25);
        assert_eq!((told["gleaner_hub_forecast_error_cpus"], told["gleaner_hub_forecast_coverage"]), (0.04, 0.912));
        assert!(page.contains("gleaner_hub_info{hub=\"a\\\"b\\\\c\\nd\",version=\"\"} 1\n"), "{page}");
        let want = "\
# TYPE gleaner_hub_place_wait_seconds summary
gleaner_hub_place_wait_seconds{quantile=\"0.5\"} 0.0005
gleaner_hub_place_wait_seconds{quantile=\"0.99\"} 1
gleaner_hub_place_wait_seconds{quantile=\"1\"} 1.5
gleaner_hub_place_wait_seconds_sum 2.5
gleaner_hub_place_wait_seconds_count 4
";
        assert!(page.contains(want), "{page}");
        assert!(!page.contains("journal"), "there is none");
    }
}
