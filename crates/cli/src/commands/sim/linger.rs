//! `gleaner sim linger`: guests on owners' machines, beside what was published.

use super::chart::{self, Bar, Content, Panel};
use super::{on_all_processors, owners, show, sweep};
use crate::answers::Render;
use crate::args::{Linger, Set};
use crate::commands::inputs::{self, Input};
use crate::error::{CliError, Result};
use crate::render::Table;
use serde::Serialize;
use sim::cluster::{Manner, Source};
use sim::parameters::{PARAMETERS, ParameterError, Parameters};
use sim::statistics::Mean;
use sim::study::{LOADS, Load, Measures, PUBLISHED, SLOWDOWN_PUBLISHED, replicate};

/// A measure, with its name.
pub type Measure = (&'static str, fn(&Measures) -> f64);

/// What is shown of a load.
pub const MEASURES: [Measure; 8] = [
    ("average job time, s", |measures| measures.average_s),
    ("95% of jobs end within, s", |measures| measures.p95_s),
    ("variation of execution time, %", |measures| measures.variation * 100.0),
    ("family time, s", |measures| measures.family_s),
    ("throughput, CPU-s a second", |measures| measures.throughput),
    ("slowest 5%, execution time, s", |measures| measures.slowest_s),
    ("owners slower by, %", |measures| measures.slowdown * 100.0),
    ("moves a job", |measures| measures.moves),
];
/// Of these it is told how far our policy is ahead.
const COMPARED: [Measure; 3] = [MEASURES[0], MEASURES[1], MEASURES[4]];
/// The policy that ours is compared with, and ours.
const PAIR: (&str, &str) = ("LL", "FL");

/// Simulates.
pub fn run(linger: &Linger) -> Result {
    let parameters = parameters(linger)?;
    if let Some(drawing) = &linger.draw {
        inputs::keep(linger.measured.trace.iter().map(|path| Input::File(path)), drawing)?;
    }
    let source = owners::read(&linger.measured)?;
    if let Some(swept) = &linger.sweep {
        return sweep::run(linger, &parameters, source.as_ref(), swept);
    }
    let study = study(linger, &parameters, source.as_ref());
    let drawing = linger.draw.as_deref().map(|path| (path, study.draw()));
    show(&study, linger.json, drawing)
}

/// All parameters but those of loads, as they were asked for.
fn parameters(linger: &Linger) -> Result<Parameters> {
    let mut parameters = Parameters::default();
    if let Some(machines) = linger.machines {
        set(&mut parameters, "machines", machines.into())?;
    }
    set_all(&mut parameters, &linger.set)?;
    Ok(parameters)
}

/// Sets parameters as they were asked for.
pub fn set_all(parameters: &mut Parameters, asked: &[Set]) -> Result {
    asked.iter().try_for_each(|asked| set(parameters, &asked.name, asked.value))
}

/// Sets a parameter; an error names those that there are.
pub fn set(parameters: &mut Parameters, name: &str, value: f64) -> Result {
    parameters.set(name, value).map_err(|error| {
        let names: Vec<&str> = PARAMETERS.iter().map(|parameter| parameter.name).collect();
        let hint = match &error {
            ParameterError::Unknown(_) => format!("there are {}", names.join(", ")),
            ParameterError::Bounds { .. } => "gleaner sim parameters tells what each is and its bounds".to_owned(),
        };
        CliError::user(error.to_string()).hint(hint)
    })
}

/// The loads that are asked for, on machines that are as asked for: whoever sets jobs himself has one of his own.
pub fn loads(linger: &Linger, parameters: &Parameters) -> Vec<(&'static str, Parameters)> {
    const OWN: [&str; 3] = ["jobs", "jobs-per-machine", "job-s"];
    let is_asked = |load: &&Load| linger.loads.iter().any(|asked| asked.eq_ignore_ascii_case(load.name));
    let is_swept = |name: &&str| linger.sweep.as_ref().is_some_and(|sweep| sweep.name == **name);
    let own = |name: &&str| is_swept(name) || parameters.get(name) != Parameters::default().get(name);
    let default = if linger.sweep.is_some() || OWN.iter().any(own) { 1 } else { LOADS.len() };
    let chosen: Vec<&Load> = match linger.loads.is_empty() {
        true => LOADS[..default].iter().collect(),
        false => LOADS.iter().filter(is_asked).collect(),
    };
    let with = |load: &Load| {
        let mut with = load.on(parameters);
        for name in OWN.iter().filter(|name| own(name)) {
            // It has been set before.
            let _ = with.set(name, parameters.get(name));
        }
        (load.name, with)
    };
    chosen.into_iter().map(with).collect()
}

/// The policies that are asked for.
pub fn manners(linger: &Linger, parameters: &Parameters) -> Vec<(&'static str, Manner)> {
    let is_asked = |name: &str| linger.policies.iter().any(|asked| asked.eq_ignore_ascii_case(name));
    let all = parameters.manners().into_iter();
    all.filter(|(name, _)| linger.policies.is_empty() || is_asked(name)).collect()
}

/// All replicates of a load, on all processors; `what` they are is shown on a terminal.
pub fn worlds(
    what: &str,
    linger: &Linger,
    parameters: &Parameters,
    manner: Manner,
    source: Option<&Source>,
) -> Vec<Measures> {
    on_all_processors(what, linger.replicates.into(), |number| {
        replicate(parameters, manner, source, linger.seed.wrapping_add(number))
    })
}

/// The mean of a measure over worlds.
pub fn mean(worlds: &[Measures], part: fn(&Measures) -> f64) -> Mean {
    Mean::of(&worlds.iter().map(part).collect::<Vec<f64>>())
}

#[derive(Clone, Debug, Serialize)]
struct Study {
    machines: u64,
    replicates: u32,
    /// Parameters that are not as they were published.
    changed: Vec<(&'static str, f64)>,
    /// Files of measured owners.
    traces: usize,
    figures: Vec<Figure>,
    comparisons: Vec<Comparison>,
    /// The largest part of jobs that were given up, of all figures.
    given_up: f64,
}

/// A measure of a load under a policy.
#[derive(Clone, Debug, Serialize)]
struct Figure {
    load: &'static str,
    policy: &'static str,
    measure: &'static str,
    mean: f64,
    /// The true mean is within so much, nineteen times in twenty.
    within: f64,
    /// And one world.
    one_within: f64,
    published: Option<f64>,
    /// Whether what was published lies where 95% of single worlds do.
    agrees: Option<bool>,
}

/// Our policy less the best published one, world by world.
#[derive(Clone, Debug, Serialize)]
struct Comparison {
    load: &'static str,
    measure: &'static str,
    difference: f64,
    within: f64,
}

fn study(linger: &Linger, parameters: &Parameters, source: Option<&Source>) -> Study {
    let (mut figures, mut comparisons, mut given_up) = (Vec::new(), Vec::new(), 0.0f64);
    let traces = if let Some(Source::Measured(traces)) = source { traces.len() } else { 0 };
    for (load, with) in loads(linger, parameters) {
        // What was published is of these machines, jobs and owners alone.
        let is_theirs = with.changed(&["jobs", "job-s"]).is_empty() && source.is_none();
        let published = LOADS.iter().position(|of| is_theirs && of.name == load && of.on(&with) == with);
        let mut pair = [None, None];
        for (at, (name, manner)) in with.manners().into_iter().enumerate() {
            if !manners(linger, &with).iter().any(|(asked, _)| *asked == name) {
                continue;
            }
            let worlds = worlds(&format!("{load}, {name}"), linger, &with, manner, source);
            let told = published.and_then(|load| PUBLISHED[load].get(at));
            figures.extend(MEASURES.iter().map(|measure| figure(load, name, *measure, &worlds, told)));
            given_up = worlds.iter().map(|world| world.given_up).fold(given_up, f64::max);
            if let Some(of) = [PAIR.0, PAIR.1].iter().position(|of| *of == name) {
                pair[of] = Some(worlds);
            }
        }
        if let [Some(theirs), Some(ours)] = &pair {
            comparisons.extend(COMPARED.iter().map(|(measure, part)| {
                let less: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| part(ours) - part(theirs)).collect();
                let mean = Mean::of(&less);
                Comparison { load, measure, difference: mean.value, within: mean.within }
            }));
        }
    }
    Study {
        machines: parameters.get("machines") as u64,
        replicates: linger.replicates,
        changed: parameters.changed(&["machines"]),
        traces,
        figures,
        comparisons,
        given_up,
    }
}

fn figure(
    load: &'static str,
    policy: &'static str,
    (measure, part): Measure,
    worlds: &[Measures],
    published: Option<&Measures>,
) -> Figure {
    let mean = mean(worlds, part);
    let published = published.map(part).filter(|value| *value > 0.0);
    Figure {
        load,
        policy,
        measure,
        mean: mean.value,
        within: mean.within,
        one_within: mean.one_within,
        published,
        agrees: published.map(|published| (published - mean.value).abs() <= mean.one_within),
    }
}

impl Study {
    fn of(&self, load: &str, policy: &str, measure: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| (figure.load, figure.policy, figure.measure) == (load, policy, measure))
    }

    /// Names in the order in which they come first.
    fn names(&self, part: fn(&Figure) -> &'static str) -> Vec<&'static str> {
        let mut names = Vec::new();
        for name in self.figures.iter().map(part) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    fn head(&self) -> String {
        let changed: Vec<String> = self.changed.iter().map(|(name, value)| format!(", {name}={value}")).collect();
        let traces = if self.traces > 0 { format!(", owners of {} traces", self.traces) } else { String::new() };
        format!("{} machines{traces}, {} worlds for each figure{}", self.machines, self.replicates, changed.concat())
    }

    fn draw(&self) -> String {
        let mut panels = Vec::new();
        for load in self.names(|figure| figure.load) {
            for (measure, _) in MEASURES.iter().take(6) {
                let figures = self.figures.iter().filter(|figure| (figure.load, figure.measure) == (load, *measure));
                let bar = |figure: &Figure| Bar {
                    name: figure.policy.to_owned(),
                    value: (figure.mean, figure.one_within),
                    published: figure.published,
                };
                let content = Content::Bars(figures.map(bar).collect());
                panels.push(Panel { title: format!("{load}: {measure}"), content });
            }
        }
        let legend = "grey: simulated here, with the interval in which 95% of single worlds lie; white: published";
        chart::page(&self.head(), legend, 3, &panels)
    }
}

impl Render for Study {
    fn render(&self) -> String {
        let mut text = format!("{}\n\n", self.head());
        let names = self.names(|figure| figure.policy);
        for load in self.names(|figure| figure.load) {
            let mut table = Table::new(&[&[load][..], &names].concat());
            for (measure, _) in MEASURES {
                let of = |name: &&str| self.of(load, name, measure);
                table.row(
                    [
                        vec![measure.to_owned()],
                        names.iter().map(|name| of(name).map(cell).unwrap_or_default()).collect(),
                    ]
                    .concat(),
                );
                let told: Vec<String> = names.iter().map(|name| of(name).map(told).unwrap_or_default()).collect();
                if told.iter().any(|cell| !cell.is_empty()) {
                    table.row([vec!["  published".to_owned()], told].concat());
                }
            }
            text.push_str(&table.text(""));
            let compared = self.comparisons.iter().filter(|comparison| comparison.load == load);
            for Comparison { measure, difference, within, .. } in compared {
                text.push_str(&format!(
                    "{} less {}, world by world: {measure} {difference:+.1} ± {within:.1}\n",
                    PAIR.1, PAIR.0
                ));
            }
            text.push('\n');
        }
        if self.figures.iter().any(|figure| figure.agrees == Some(false)) {
            text.push_str("*: not where 95% of single worlds are\n");
        }
        if self.figures.iter().any(|figure| figure.published.is_some()) {
            text.push_str(&format!(
                "published of owners beside lingering guests: slower by less than {:.0}%\n",
                SLOWDOWN_PUBLISHED * 100.0
            ));
        }
        if self.given_up > 0.0 {
            let part = self.given_up * 100.0;
            text.push_str(&format!(
                "up to {part:.1}% of a world's jobs were given up (give-up-s), and count as if they had ended then\n"
            ));
        }
        text
    }
}

fn digits(value: f64) -> usize {
    match value.abs() {
        0.0..1.0 => 2,
        1.0..100.0 => 1,
        _ => 0,
    }
}

/// A mean with its interval, as text.
pub fn with_interval(mean: f64, within: f64) -> String {
    let (digits, within_digits) = (digits(mean), digits(mean).max(1));
    format!("{mean:.digits$} ± {within:.within_digits$}")
}

fn cell(figure: &Figure) -> String {
    with_interval(figure.mean, figure.within)
}

fn told(figure: &Figure) -> String {
    let Some(published) = figure.published else { return String::new() };
    let digits = digits(published).min(1);
    let star = if figure.agrees == Some(false) { "*" } else { "" };
    format!("{published:.digits$}{star}")
}

#[cfg(test)]
mod tests {
    use super::super::tests::linger;
    use super::*;

    fn shown(line: &str) -> String {
        let linger = linger(line);
        let parameters = parameters(&linger).expect("sound");
        study(&linger, &parameters, None).render()
    }

    #[test]
    fn a_few_worlds_are_shown_beside_what_was_published() {
        let text = shown("--replicates 3");
        for part in [
            "64 machines, 3 worlds",
            "W1 ",
            "W2 ",
            "average job time, s",
            "  published",
            "1531",
            "0.9",
            "FL less LL, world by world: average job time, s -",
            "owners slower by",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(shown("--replicates 3"), text, "the same seeds, the same figures");
        assert!(!shown("--replicates 2 --machines 8").contains("published"), "that is of 64");
    }

    #[test]
    fn whoever_sets_jobs_has_a_load_of_his_own() {
        let text = shown("--replicates 2 --set jobs=20 --set job-sigma=0.5 --policy LL,fl");
        assert!(text.starts_with("64 machines, 2 worlds for each figure, jobs=20, job-sigma=0.5\n\nW1 "), "{text}");
        assert!(!text.contains("W2") && !text.contains("PM") && !text.contains("published"), "{text}");
        let both = linger("--load w1,W2 --set move-s=1");
        let names: Vec<&str> = loads(&both, &parameters(&both).expect("sound")).iter().map(|load| load.0).collect();
        assert_eq!(names, ["W1", "W2"]);
    }

    #[test]
    fn a_parameter_that_there_is_not_is_refused_with_those_that_there_are() {
        let error = parameters(&linger("--set speed=2")).expect_err("no such thing");
        assert_eq!(error.message, "there is no parameter `speed`");
        assert!(error.hint.expect("a hint").contains("there are machines, jobs, jobs-per-machine"));
        let error = parameters(&linger("--set idle-use=2")).expect_err("out of bounds");
        assert_eq!(error.message, "idle-use is from 0 to 1, and not 2");
    }

    #[test]
    fn bars_are_drawn_beside_what_was_published() {
        let linger = linger("--replicates 2 --load W1");
        let file = study(&linger, &parameters(&linger).expect("sound"), None).draw();
        assert_eq!((file.matches("#999999").count(), file.matches("W1: ").count()), (30, 6));
        assert!(!file.contains("NaN"), "{file}");
    }
}
