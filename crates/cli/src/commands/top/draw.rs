//! A frame of `gleaner top`, from what there is to show and the time alone.

use super::view::{Rates, View};
use crate::render::{age, bytes, micros};
use base::path::shown;
use client::report::{BatchLine, WorkerStatus, short};
use hub::figures::{Figures, Times};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Sparkline, Table};

/// No answer for so much longer than it is asked anew is said, in milliseconds.
const SILENCE_MS: u64 = 2_500;
/// Characters of a bar.
const BAR: usize = 10;
/// Times are shown on a terminal of so many lines.
const TIMES_FROM: u16 = 27;
/// Characters before a line of sparks.
const RATE_WIDTH: u16 = 22;
/// A line of sparks has so many steps.
const STEPS: f64 = 1000.0;

const HELP: &[&str] = &[
    "q, Ctrl-C   end",
    "c           the busiest workers first",
    "n           workers by name",
    "?           this",
    "",
    "waiting     tasks that want a place, held ones among them",
    "held        their job is held, or its client is away",
    "sparks      the last minute, each line for itself",
    "times       since the hub was started",
    "sync        a batch of records made durable",
    "told        a record taken, until its answer left",
    "placed      a launch asked for, until it had a place",
];

/// Draws everything as it is at `now_ms`.
pub fn draw(frame: &mut Frame<'_>, view: &View, now_ms: u64) {
    // On a low terminal workers and jobs matter more.
    let times_height = if frame.area().height < TIMES_FROM { 0 } else { 6 };
    let [head, queues, times, lists, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(8),
        Constraint::Length(times_height),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_head(frame, head, view, now_ms);
    let unknown = Figures::default();
    let figures = view.figures.as_ref().unwrap_or(&unknown);
    let [tasks, rates] = Layout::horizontal([Constraint::Length(30), Constraint::Min(0)]).areas(queues);
    draw_tasks(frame, tasks, figures);
    draw_rates(frame, rates, view);
    draw_times(frame, times, figures);
    let (workers, jobs) = (view.workers(), view.jobs());
    let room = if jobs.is_empty() { lists.height } else { 4.max(lists.height * 3 / 5) };
    let lines = workers.iter().map(|worker| lines_of(worker)).sum::<usize>().min(usize::from(u16::MAX));
    let wanted = (lines as u16).saturating_add(3).clamp(4, room.max(4));
    let [upper, lower] = Layout::vertical([Constraint::Length(wanted), Constraint::Min(0)]).areas(lists);
    draw_workers(frame, upper, &workers, view.by_name);
    if !jobs.is_empty() {
        draw_jobs(frame, lower, &jobs);
    }
    frame.render_widget(Line::from("q end   c busiest   n by name   ? help").dim(), keys);
    if view.helps {
        draw_help(frame);
    }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &View, now_ms: u64) {
    let mut first = vec![Span::from("gleaner top  ").dim()];
    match (&view.figures, &view.overview.status.hub) {
        (Some(figures), hub) => {
            let at = hub.as_ref().map(|hub| format!(" at {hub}")).unwrap_or_default();
            first.push(Span::from(shown(&figures.hub).into_owned()).bold());
            first.push(Span::from(format!("{at}, up {}", age(figures.uptime_ms / 1000))));
            let trip = view.overview.status.round_trip_us.map(|us| format!(", round trip {}", micros(us)));
            first.extend(trip.map(Span::from));
        }
        (None, _) => first.push(Span::from("no hub was heard of yet")),
    }
    let silent_ms = now_ms.saturating_sub(view.answered_ms);
    let is_silent = silent_ms > view.interval_ms + SILENCE_MS || view.problem.is_some();
    let mut second = Vec::new();
    if is_silent {
        let what = view.problem.as_ref().map(|problem| format!(": {}", shown(problem))).unwrap_or_default();
        second.push(Span::from(format!("no answer since {}{what}", age(silent_ms / 1000))).red().bold());
    } else if let Some(figures) = &view.figures {
        let (busy, lent) = (figures.cpus_busy, figures.cpus_lent);
        let away = match figures.hosts_away {
            0 => String::new(),
            away => format!(", {} away", count(away)),
        };
        let rest = format!(
            " {} of {} busy  workers {}  hosts {}{away}  clients {}",
            count(busy),
            count(lent),
            count(figures.workers),
            count(figures.hosts_here),
            count(figures.clients)
        );
        // The bar takes what the numbers leave.
        let room = usize::from(area.width).saturating_sub("CPUs ".len() + rest.chars().count());
        second.push(Span::from("CPUs "));
        second.push(Span::from(bar(busy, lent, room.min(2 * BAR))).green());
        second.push(Span::from(rest));
    }
    frame.render_widget(Paragraph::new(vec![Line::from(first), Line::from(second)]), area);
}

fn draw_tasks(frame: &mut Frame<'_>, area: Rect, figures: &Figures) {
    let totals = &figures.totals;
    let fact =
        |name: &'static str, value: String| Line::from(vec![Span::from(format!("{name:<11}")).dim(), value.into()]);
    let missed = format!("{} met, {} missed", count(totals.deadlines_met), count(totals.deadlines_missed));
    let lines = vec![
        fact("waiting", count(figures.tasks_waiting)),
        fact("running", count(figures.tasks_running)),
        fact("held", count(figures.tasks_held)),
        fact("jobs", count(figures.jobs)),
        fact("deadlines", missed),
        fact("lost", format!("{}, {} too late", count(totals.lost), count(totals.late))),
    ];
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" tasks ")), area);
}

fn draw_rates(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let block = Block::bordered().title(" per second, and the last minute ");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    type Of = fn(&Rates) -> f64;
    // And whether it is bad news.
    let all: [(&str, Of, bool); 4] = [
        ("submitted", |rates| rates.submitted, false),
        ("dispatched", |rates| rates.dispatched, false),
        ("ended", |rates| rates.ended, false),
        ("failed", |rates| rates.failed, true),
    ];
    let rows = Layout::vertical([Constraint::Length(1); 4]).split(inner);
    for ((name, of, is_bad), row) in all.into_iter().zip(rows.iter()) {
        let [label, sparks] = Layout::horizontal([Constraint::Length(RATE_WIDTH), Constraint::Min(0)]).areas(*row);
        let latest = view.rates().next_back().map(of);
        let latest_text = latest.map_or("-".to_owned(), rate);
        let name = Span::from(format!("{name:<11}")).dim();
        let number = Span::from(format!("{latest_text:>9} "));
        let number = if is_bad && latest.is_some_and(|rate| rate > 0.0) { number.red().bold() } else { number };
        frame.render_widget(Line::from(vec![name, number]), label);
        let most = view.rates().map(of).fold(0.0, f64::max);
        let step = |rates: &Rates| if most > 0.0 { (of(rates) / most * STEPS) as u64 } else { 0 };
        let shown = usize::from(sparks.width).min(view.rates().len());
        let steps: Vec<u64> = view.rates().skip(view.rates().len() - shown).map(step).collect();
        frame.render_widget(Sparkline::default().data(steps).max(STEPS as u64).style(Style::new().cyan()), sparks);
    }
}

fn draw_times(frame: &mut Frame<'_>, area: Rect, figures: &Figures) {
    let title = match &figures.journal {
        Some(journal) => {
            let buffered = bytes(journal.buffered_bytes);
            let (taken, max) = (bytes(journal.bytes), bytes(journal.bytes_max));
            let records = count(journal.records);
            format!(" journal: {taken} of {max}, {records} records, {buffered} buffered, epoch {} ", journal.epoch)
        }
        None => " times ".to_owned(),
    };
    let row = |name: &'static str, times: &Times| {
        let time = |us: u64| if times.count == 0 { "-".to_owned() } else { micros(us) };
        let cells = [time(times.p50_us), time(times.p99_us), time(times.max_us), count(times.count)];
        let cells = cells.map(right);
        Row::new(std::iter::once(Line::from(name).dim()).chain(cells))
    };
    let syncs = figures.journal.map(|journal| journal.syncs).unwrap_or_default();
    let rows = [row("sync", &syncs), row("told", &figures.record_waits), row("placed", &figures.place_waits)];
    let headings = ["half", "99 of 100", "longest", "times"].map(right);
    let widths = [
        Constraint::Length(8),
        Constraint::Length(11),
        Constraint::Length(11),
        Constraint::Length(13),
        Constraint::Length(13),
    ];
    let table = Table::new(rows, widths)
        .header(Row::new(std::iter::once(Line::from("")).chain(headings)).dim())
        .block(Block::bordered().title(title));
    frame.render_widget(table, area);
}

fn draw_workers(frame: &mut Frame<'_>, area: Rect, workers: &[&WorkerStatus], by_name: bool) {
    let order = if by_name { "by name" } else { "busiest first" };
    let mut room = usize::from(area.height.saturating_sub(3));
    let fits = |worker: &&&WorkerStatus| {
        let left = room.checked_sub(lines_of(worker));
        room = left.unwrap_or(0);
        left.is_some()
    };
    let fitting = &workers[..workers.iter().take_while(fits).count()];
    let title = match workers.len() - fitting.len() {
        0 => format!(" workers, {order} "),
        more => format!(" workers, {order}: {more} more "),
    };
    let longest = fitting.iter().map(|worker| worker.state.chars().count()).max().unwrap_or(0);
    let state = (longest as u16).clamp(10, 30);
    let row = |worker: &&WorkerStatus| {
        Row::new([
            Line::from(shown(&worker.name).into_owned()),
            right(worker.cpus.to_string()),
            right(worker.busy.to_string()),
            Line::from(bar(worker.busy.into(), worker.cpus.into(), BAR)).green(),
            Line::from(worker.state.clone()),
        ])
        .height(lines_of(worker) as u16)
    };
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(5),
        Constraint::Length(5),
        Constraint::Length(BAR as u16),
        Constraint::Length(state),
    ];
    let table = Table::new(fitting.iter().map(row), widths)
        .header(Row::new(["NAME".into(), right("CPUS"), right("BUSY"), "".into(), "STATE".into()]).dim())
        .block(Block::bordered().title(title));
    frame.render_widget(table, area);
    // A reason has a line of its own below its worker, since no cell has room for it.
    let mut below = 2;
    for worker in fitting {
        below += lines_of(worker) as u16;
        if let Some(reason) = reason(worker) {
            let line = Rect { x: area.x + 1, y: area.y + below - 1, width: area.width.saturating_sub(2), height: 1 };
            let text = cut(&format!("  {reason}"), line.width.into());
            frame.render_widget(Line::from(text).yellow(), line.intersection(area));
        }
    }
}

/// Why a worker gives nothing, or less, if that is known.
fn reason(worker: &WorkerStatus) -> Option<String> {
    let troubles = worker.troubles.map(|troubles| troubles.in_words());
    let all: Vec<String> = worker.why.clone().into_iter().chain(troubles).collect();
    (!all.is_empty()).then(|| shown(&all.join("; ")).into_owned())
}

/// Lines that a worker takes.
fn lines_of(worker: &WorkerStatus) -> usize {
    if worker.why.is_some() || worker.troubles.is_some() { 2 } else { 1 }
}

/// As much of a text as has room, and a sign that there is more.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn draw_jobs(frame: &mut Frame<'_>, area: Rect, jobs: &[&BatchLine]) {
    let room = usize::from(area.height.saturating_sub(3));
    let title = match jobs.len().saturating_sub(room) {
        0 => " my batch jobs ".to_owned(),
        more => format!(" my batch jobs: {more} more "),
    };
    let row = |job: &&BatchLine| {
        let (ended, all) = (u64::from(job.done) + u64::from(job.failed), u64::from(job.tasks));
        let failed = right(count(job.failed.into()));
        Row::new([
            Line::from(short(&job.job)),
            Line::from(job.state.clone()),
            Line::from(bar(ended, all, BAR)).green(),
            right(format!("{} of {}", count(ended), count(all))),
            if job.failed > 0 { failed.red() } else { failed },
            Line::from(shown(&job.name).into_owned()),
        ])
    };
    let widths = [
        Constraint::Length(8),
        Constraint::Length(10),
        Constraint::Length(BAR as u16),
        Constraint::Length(18),
        Constraint::Length(9),
        Constraint::Fill(1),
    ];
    let table = Table::new(jobs.iter().take(room).map(row), widths)
        .header(
            Row::new(["ID".into(), "STATE".into(), "".into(), right("ENDED"), right("FAILED"), "NAME".into()]).dim(),
        )
        .block(Block::bordered().title(title));
    frame.render_widget(table, area);
}

fn draw_help(frame: &mut Frame<'_>) {
    let all = frame.area();
    let (width, height) = (64.min(all.width), (HELP.len() as u16 + 2).min(all.height));
    let area = Rect { x: (all.width - width) / 2, y: (all.height - height) / 2, width, height };
    frame.render_widget(Clear, area);
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(format!(" {line}"))).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" help: ? closes it ")), area);
}

fn right<'a>(text: impl Into<Line<'a>>) -> Line<'a> {
    text.into().alignment(Alignment::Right)
}

/// How much of it: as long as `width` characters.
fn bar(part: u64, whole: u64, width: usize) -> String {
    let eighths = match whole {
        0 => 0,
        whole => (u128::from(part.min(whole)) * 8 * width as u128 / u128::from(whole)) as usize,
    };
    // A little is not nothing.
    let eighths = if part > 0 && whole > 0 && width > 0 { eighths.max(1) } else { eighths };
    let partial = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let mut text = "█".repeat(eighths / 8);
    if eighths % 8 > 0 {
        text.push(partial[eighths % 8]);
    }
    let drawn = text.chars().count();
    text.extend(std::iter::repeat_n('·', width - drawn));
    text
}

/// A number with its thousands apart.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn rate(per_second: f64) -> String {
    if per_second < 99.95 { format!("{per_second:.1}") } else { count(per_second.round() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::report::Overview;
    use hub::figures::JournalFigures;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(view: &View, now_ms: u64, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
        terminal.draw(|frame| draw(frame, view, now_ms)).expect("drawn");
        let text = terminal.backend().to_string();
        // Each line stands in quotation marks.
        text.lines().map(|line| line.trim_matches('"').trim_end().to_owned() + "\n").collect()
    }

    fn answer(uptime_ms: u64, submitted: u64) -> Result<Overview, String> {
        let times = Times { count: 1_204, sum_us: 2_000_000, p50_us: 1_250, p99_us: 4_100, max_us: 20_000 };
        let mut figures = Figures {
            hub: "rack".into(),
            uptime_ms,
            workers: 2,
            hosts_here: 12,
            hosts_away: 3,
            clients: 1,
            cpus_lent: 64,
            cpus_busy: 33,
            jobs: 3,
            tasks_waiting: 1_204,
            tasks_running: 33,
            tasks_held: 7,
            record_waits: times,
            journal: Some(JournalFigures {
                bytes: 12_300_000,
                bytes_max: 4_294_967_296,
                records: 9_876,
                epoch: 2,
                syncs: times,
                ..JournalFigures::default()
            }),
            ..Figures::default()
        };
        (figures.totals.submitted, figures.totals.failed) = (submitted, submitted / 10);
        (figures.totals.deadlines_met, figures.totals.deadlines_missed) = (12, 1);
        let mut overview = Overview { figures: serde_json::to_value(figures).expect("data"), ..Overview::default() };
        overview.status.hub = Some("rack:7433".into());
        let worker = |name: &str, busy| WorkerStatus {
            name: name.into(),
            busy,
            cpus: 16,
            state: "ready".into(),
            ..WorkerStatus::default()
        };
        overview.status.workers = vec![worker("desk", 1), worker("rack", 16)];
        let (name, state) = ("night".to_owned(), "running".to_owned());
        let job = "8f3a1234000000000000000000000001".to_owned();
        overview.jobs.jobs =
            vec![BatchLine { job, name, state, tasks: 60, done: 29, failed: 1, ..BatchLine::default() }];
        Ok(overview)
    }

    fn view() -> View {
        let mut view = View::default();
        view.take(answer(10_800_000, 100), 0);
        view.take(answer(10_801_000, 120), 1_000);
        view.take(answer(10_802_000, 160), 2_000);
        view
    }

    #[test]
    fn a_frame() {
        let want = "\
gleaner top  rack at rack:7433, up 3 h
CPUs ██████████▎········· 33 of 64 busy  workers 2  hosts 12, 3 away  clients 1
┌ tasks ─────────────────────┐┌ per second, and the last minute ───────────────┐
│waiting    1,204            ││submitted       40.0  ▄█                        │
│running    33               ││dispatched       0.0                            │
│held       7                ││ended            4.0  ▄█                        │
│jobs       3                ││failed           4.0  ▄█                        │
│deadlines  12 met, 1 missed ││                                                │
│lost       0, 0 too late    ││                                                │
└────────────────────────────┘└────────────────────────────────────────────────┘
┌ journal: 12.3 MB of 4.3 GB, 9,876 records, 0 B buffered, epoch 2 ────────────┐
│                half   99 of 100       longest         times                  │
│sync          1.2 ms      4.1 ms         20 ms         1,204                  │
│told          1.2 ms      4.1 ms         20 ms         1,204                  │
│placed             -           -             -             0                  │
└──────────────────────────────────────────────────────────────────────────────┘
┌ workers, busiest first ──────────────────────────────────────────────────────┐
│NAME                                          CPUS  BUSY            STATE     │
│rack                                            16    16 ██████████ ready     │
│desk                                            16     1 ▋········· ready     │
└──────────────────────────────────────────────────────────────────────────────┘
┌ my batch jobs ───────────────────────────────────────────────────────────────┐
│ID       STATE                              ENDED    FAILED NAME              │
│8f3a1234 running    █████·····           30 of 60         1 night             │
│                                                                              │
└──────────────────────────────────────────────────────────────────────────────┘
q end   c busiest   n by name   ? help
";
        let found = drawn(&view(), 2_100, 80, 27);
        assert_eq!(found, want, "\n{found}");
    }

    #[test]
    fn a_terminal_of_80_by_24_shows_workers_and_jobs() {
        let mut view = view();
        view.overview.status.workers[0].state = "ready, key used twice".into();
        if let Some(figures) = &mut view.figures {
            (figures.cpus_lent, figures.cpus_busy, figures.hosts_here) = (123_456, 100_000, 12_345);
        }
        let found = drawn(&view, 2_100, 80, 24);
        for wanted in ["rack  ", "desk  ", "ready, key used twice", "30 of 60", "night", "clients 1\n", "q end"] {
            assert!(found.contains(wanted), "{wanted}:\n{found}");
        }
        view.overview.jobs.jobs.clear();
        assert!(!drawn(&view, 2_100, 80, 24).contains("my batch jobs"));
    }

    #[test]
    fn a_worker_that_gives_nothing_says_why_within_80_columns() {
        let mut view = view();
        let worker = &mut view.overview.status.workers[0];
        (worker.state, worker.cpus, worker.busy) = ("resting".into(), 0, 0);
        worker.why = Some("guests rest: paused by its owner".into());
        let found = drawn(&view, 2_100, 80, 24);
        let lines: Vec<&str> = found.lines().collect();
        let at = lines.iter().position(|line| line.contains("desk")).expect("it is shown");
        assert!(lines[at].ends_with("resting   │"), "{found}");
        assert_eq!(lines[at + 1], format!("│  {:<76}│", "guests rest: paused by its owner"), "{found}");
        assert!(lines[at + 2].starts_with('└'), "the other one stands above it:\n{found}");
        view.overview.status.workers[0].why = Some("its owner is at work ".repeat(9));
        let found = drawn(&view, 2_100, 80, 24);
        assert!(found.contains("owner is…│\n") && found.lines().all(|line| line.chars().count() <= 80), "{found}");
        view.overview.status.workers = vec![view.overview.status.workers[0].clone(); 30];
        assert!(drawn(&view, 2_100, 80, 24).contains("more ─"));
    }

    #[test]
    fn silence_is_told_and_what_was_known_stays() {
        let mut view = view();
        view.take(Err("the client daemon is gone".into()), 3_000);
        let found = drawn(&view, 9_000, 100, 40);
        assert!(found.contains("no answer since 7 s: the client daemon is gone"), "{found}");
        assert!(found.contains("│waiting    1,204"), "{found}");
        let mut seldom = View::with_interval(10_000);
        seldom.take(answer(10_800_000, 100), 0);
        assert!(!drawn(&seldom, 12_000, 100, 40).contains("no answer"), "it was not asked since");
        assert!(drawn(&seldom, 12_600, 100, 40).contains("no answer since 12 s"));
        let found = drawn(&View::default(), 0, 100, 40);
        assert!(found.contains("no hub was heard of yet"), "{found}");
    }

    #[test]
    fn help_is_shown_over_the_rest() {
        let mut view = view();
        view.helps = true;
        assert!(drawn(&view, 2_100, 80, 30).contains("the busiest workers first"));
    }

    #[test]
    fn every_size_will_do() {
        let mut view = view();
        for helps in [false, true] {
            view.helps = helps;
            for (width, height) in [(1, 1), (3, 50), (200, 2), (20, 9), (40, 17), (300, 100)] {
                drawn(&view, 2_100, width, height);
            }
        }
    }

    #[test]
    fn what_others_call_themselves_moves_no_cursor() {
        let mut view = view();
        view.overview.status.workers[0].name = "\u{1b}[2Jx\ny".into();
        assert!(!drawn(&view, 2_100, 80, 27).contains('\u{1b}'));
    }

    #[test]
    fn numbers() {
        assert_eq!([count(0), count(999), count(1_000), count(1_234_567)].join(" "), "0 999 1,000 1,234,567");
        assert_eq!([rate(0.0), rate(99.94), rate(1234.4)].join(" "), "0.0 99.9 1,234");
        assert_eq!([bar(0, 0, 2), bar(1, 100, 2), bar(9, 8, 2), bar(3, 4, 2)].join(" "), "·· ▏· ██ █▌");
    }
}
