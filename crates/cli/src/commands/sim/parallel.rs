//! `gleaner sim parallel`: a parallel job on machines of which some are in use.

use super::chart::{self, Content, Curve, Panel};
use super::{bursts, on_all_processors, show};
use crate::answers::Render;
use crate::args::Parallel;
use crate::error::{CliError, Result};
use crate::render::Table;
use serde::Serialize;
use sim::parallel::{SHAPES, Shape, explicit};
use sim::statistics::Mean;

#[derive(Clone, Debug, Serialize)]
struct Answer {
    nodes: u32,
    used: f64,
    rows: Vec<Row>,
}

/// How many times longer a job takes with so many of its machines in use.
#[derive(Clone, Debug, Serialize)]
struct Row {
    shape: &'static str,
    in_use: u32,
    /// In closed form.
    lingering: f64,
    /// Burst by burst, and within how much the true mean lies nineteen times in twenty.
    lingering_explicit: f64,
    within: f64,
    /// On the machines that are free; none: it never ends.
    fewer: Option<f64>,
    /// On the largest power of two of these.
    power_of_two: Option<f64>,
}

/// Simulates.
pub fn run(arguments: &Parallel) -> Result {
    let answer = answer(arguments)?;
    let drawing = arguments.draw.as_deref().map(|path| (path, answer.draw()));
    show(&answer, arguments.json, drawing)
}

fn answer(arguments: &Parallel) -> Result<Answer> {
    let bursts = bursts::of(&arguments.owners)?;
    let used = arguments.used;
    if !(0.001..=0.99).contains(&used) {
        return Err(CliError::user(format!("--used is from 0.001 to 0.99, and not {used}")));
    }
    let all = arguments.nodes;
    let mut rows = Vec::new();
    for shape in shapes(arguments)? {
        for in_use in 0..=all {
            let runs =
                on_all_processors(&format!("{}, {in_use} in use", shape.name), arguments.replicates.into(), |number| {
                    explicit(&shape, all, in_use, &bursts, used, arguments.phases, arguments.seed.wrapping_add(number))
                });
            let found = Mean::of(&runs);
            let free = all - in_use;
            let power = free.checked_ilog2().map(|power| 1 << power);
            rows.push(Row {
                shape: shape.name,
                in_use,
                lingering: shape.lingering(all, in_use, all, &bursts, used),
                lingering_explicit: found.value,
                within: found.within,
                fewer: shape.fewer(free, all),
                power_of_two: power.and_then(|power| shape.fewer(power, all)),
            });
        }
    }
    Ok(Answer { nodes: all, used, rows })
}

fn shapes(arguments: &Parallel) -> Result<Vec<Shape>> {
    let is_asked = |shape: &Shape| arguments.shapes.iter().any(|asked| asked.eq_ignore_ascii_case(shape.name));
    let mut shapes: Vec<Shape> =
        SHAPES.into_iter().filter(|shape| arguments.shapes.is_empty() || is_asked(shape)).collect();
    for shape in &mut shapes {
        for (name, asked, least, time_s) in [
            ("--compute-ms", arguments.compute_ms, 0.1, &mut shape.compute_s),
            ("--exchange-ms", arguments.exchange_ms, 0.0, &mut shape.exchange_s),
        ] {
            let Some(asked_ms) = asked else { continue };
            if !(least..=1e5).contains(&asked_ms) {
                return Err(CliError::user(format!("{name} is from {least} to 100000, and not {asked_ms}")));
            }
            *time_s = asked_ms / 1e3;
        }
    }
    Ok(shapes)
}

impl Answer {
    fn shapes(&self) -> Vec<&[Row]> {
        self.rows.chunk_by(|one, other| one.shape == other.shape).collect()
    }

    fn draw(&self) -> String {
        let panel = |rows: &&[Row]| {
            type Part = fn(&Row) -> Option<(f64, f64)>;
            let parts: [(&str, Part); 4] = [
                ("linger", |row| Some((row.lingering, 0.0))),
                ("bursts", |row| Some((row.lingering_explicit, row.within))),
                ("fewer", |row| Some((row.fewer?, 0.0))),
                ("2^n", |row| Some((row.power_of_two?, 0.0))),
            ];
            let curve = |(name, part): (&str, Part)| {
                let points =
                    rows.iter().filter_map(|row| part(row).map(|(y, within)| (f64::from(row.in_use), y, within)));
                Curve { name: name.to_owned(), points: points.collect() }
            };
            let content = Content::Curves("machines in use".into(), parts.map(curve).to_vec());
            Panel { title: format!("{}: times longer", rows.first().map_or("", |row| row.shape)), content }
        };
        let panels: Vec<Panel> = self.shapes().iter().map(panel).collect();
        let title =
            format!("A parallel job on {} machines, owners use {}% of those in use", self.nodes, self.used * 100.0);
        let legend =
            "linger: closed form; bursts: burst by burst; fewer: on the free machines; 2^n: on a power of two of them";
        chart::page(&title, legend, panels.len().max(1), &panels)
    }
}

impl Render for Answer {
    fn render(&self) -> String {
        let mut text = format!(
            "{} machines, owners use {}% of those in use; how many times longer the job takes\n",
            self.nodes,
            self.used * 100.0
        );
        for rows in self.shapes() {
            text.push_str(&format!("\n{}\n", rows.first().map_or("", |row| row.shape)));
            let mut table = Table::new(&["IN USE", "LINGERING", "BURST BY BURST", "FEWER", "POWER OF TWO", "BEST"]);
            for row in rows {
                let of = |value: Option<f64>| value.map_or_else(|| "never".to_owned(), |value| format!("{value:.2}"));
                table.row(vec![
                    row.in_use.to_string(),
                    of(Some(row.lingering)),
                    format!("{:.2} ± {:.2}", row.lingering_explicit, row.within),
                    of(row.fewer),
                    of(row.power_of_two),
                    if row.fewer.is_some_and(|fewer| fewer < row.lingering) { "fewer" } else { "linger" }.to_owned(),
                ]);
            }
            text.push_str(&table.text(""));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Command, SimCommand};
    use clap::Parser;

    fn parallel(line: &str) -> Parallel {
        let words = ["gleaner", "sim", "parallel"].into_iter().chain(line.split_whitespace());
        match Arguments::try_parse_from(words).expect("sound").command {
            Command::Sim(crate::args::Sim { what: SimCommand::Parallel(parallel) }) => parallel,
            _ => panic!("another command"),
        }
    }

    #[test]
    fn lingering_is_shown_beside_fewer_machines() {
        let answer = answer(&parallel("--shape fft --replicates 2 --phases 200")).expect("sound");
        assert_eq!(answer.rows.len(), 9);
        assert_eq!((answer.rows[0].lingering, answer.rows[8].fewer), (1.0, None));
        let text = answer.render();
        assert!(text.contains("\nfft\n  IN USE") || text.contains("\nfft\nIN USE"), "{text}");
        assert!(text.contains("never") && text.contains("linger"), "{text}");
        assert!(answer.draw().contains("fft: times longer"));
    }

    #[test]
    fn bounds_are_told() {
        let error = |line: &str| answer(&parallel(line)).expect_err("out of bounds").message;
        assert_eq!(error("--used 1.5"), "--used is from 0.001 to 0.99, and not 1.5");
        assert_eq!(error("--compute-ms 0"), "--compute-ms is from 0.1 to 100000, and not 0");
        assert_eq!(error("--switch-us=-1"), "--switch-us is from 0 to 100000, and not -1");
    }
}
