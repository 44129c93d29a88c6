//! Counts where commands ran, by the kinds of operations in them: a harness whose commands all ran here would compare nothing.

use super::program::{Kind, Op, Program};
use crate::client::Client;
use crate::error::Result;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

/// Reasons that are looked up after each round.
const REASONS_MAX: usize = 12;
/// Reasons and kinds that are printed.
const SHOWN_MAX: usize = 12;

/// Commands by where they ran.
#[derive(Clone, Copy, Debug, Default)]
pub struct Places {
    /// On a worker.
    pub elsewhere: usize,
    /// Here.
    pub here: usize,
}

impl Places {
    /// The part that ran elsewhere, of a hundred.
    pub fn percent(&self) -> f64 {
        100.0 * self.elsewhere as f64 / (self.elsewhere + self.here).max(1) as f64
    }

    fn add(&mut self, is_elsewhere: bool) {
        *(if is_elsewhere { &mut self.elsewhere } else { &mut self.here }) += 1;
    }
}

/// What was counted.
#[derive(Debug, Default)]
pub struct Tally {
    /// Programs that were compared.
    pub programs: usize,
    /// Programs that hang here as well.
    pub void: usize,
    /// Commands by where they ran.
    pub commands: Places,
    /// Commands that failed once with a message since it was too late to run them here, and ran then.
    pub called_off_late: usize,
    kinds: BTreeMap<String, Places>,
    reasons: BTreeMap<String, usize>,
}

impl Tally {
    /// Looks up where the commands of these programs ran.
    pub fn add(&mut self, programs: &[(String, Program)], clients: [&Client; 2]) -> Result<()> {
        let mut places: HashMap<String, (String, String)> = HashMap::new();
        for (number, client) in clients.iter().enumerate() {
            let tasks = client.json(&["tasks", "--json"])?;
            // Newest first: the last attempt counts.
            for task in tasks["tasks"].as_array().into_iter().flatten() {
                let (tag, place) = (tag_of(task), task["place"].as_str().unwrap_or_default().to_owned());
                let id = format!("{number}{}", task["task"].as_str().unwrap_or_default());
                if let Some(tag) = tag {
                    places.entry(tag).or_insert((place, id));
                }
            }
        }
        let mut asked = 0;
        for (name, program) in programs {
            for (index, step) in program.steps.iter().enumerate() {
                if matches!(step.kind, Kind::Setup | Kind::Edit) {
                    continue;
                }
                let Some((place, id)) = places.get(&format!("={name}-{index}")) else { continue };
                let is_elsewhere = place == "remote";
                self.commands.add(is_elsewhere);
                kinds_of(step.kind, &step.ops)
                    .into_iter()
                    .for_each(|kind| self.kinds.entry(kind).or_default().add(is_elsewhere));
                if !is_elsewhere && asked < REASONS_MAX {
                    asked += 1;
                    let client = clients[usize::from(id.starts_with('1'))];
                    let explained = client.json(&["explain", &id[1..], "--json"])?;
                    *self.reasons.entry(reason(&explained)).or_default() += 1;
                }
            }
        }
        Ok(())
    }

    /// Kinds of operations that ran here mostly, as far as that can be told: those whose commands ran elsewhere least.
    fn least(&self) -> Vec<(&String, &Places)> {
        let mut kinds: Vec<_> = self.kinds.iter().filter(|(_, places)| places.elsewhere + places.here >= 5).collect();
        kinds.sort_by(|one, other| one.1.percent().total_cmp(&other.1.percent()));
        kinds
    }

    /// For people.
    pub fn print(&self) {
        let Places { elsewhere, here } = self.commands;
        println!(
            "{} programs, {} commands: {elsewhere} elsewhere ({:.0}%), {here} here; {} ran at the second try; {} programs were void",
            self.programs,
            elsewhere + here,
            self.commands.percent(),
            self.called_off_late,
            self.void
        );
        let least: Vec<String> = self
            .least()
            .iter()
            .take(SHOWN_MAX)
            .map(|(kind, places)| format!("{kind} {:.0}%", places.percent()))
            .collect();
        println!("least elsewhere: {}", least.join(", "));
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        reasons.iter().take(SHOWN_MAX).for_each(|(why, count)| println!("  here {count:4} of those asked: {why}"));
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let kinds: BTreeMap<&String, Value> = self
            .kinds
            .iter()
            .map(|(kind, places)| (kind, json!({"elsewhere": places.elsewhere, "here": places.here})))
            .collect();
        json!({
            "programs": self.programs,
            "void": self.void,
            "commands_elsewhere": self.commands.elsewhere,
            "commands_here": self.commands.here,
            "called_off_late": self.called_off_late,
            "kinds": kinds,
            "reasons": self.reasons,
        })
    }
}

fn tag_of(task: &Value) -> Option<String> {
    let words = task["argv"].as_array()?;
    words.iter().filter_map(Value::as_str).find(|word| word.starts_with('=')).map(str::to_owned)
}

/// Without names and numbers, so that alike ones are one.
fn reason(explained: &Value) -> String {
    let why = explained["why"].as_str().unwrap_or("unknown");
    let words = why.split(' ').map(|word| if word.contains('/') { "PATH" } else { word });
    words.collect::<Vec<_>>().join(" ").chars().take(160).collect()
}

fn kinds_of(kind: Kind, ops: &[Op]) -> Vec<String> {
    fn add(kind: Kind, ops: &[Op], all: &mut Vec<String>) {
        for op in ops {
            let verb = op.verb();
            let first = verb.split_whitespace().next().unwrap_or_default();
            all.push(if kind == Kind::Shell { format!("sh:{first}") } else { verb });
            add(kind, &op.body, all);
        }
    }
    let mut all = Vec::new();
    add(kind, ops, &mut all);
    all.sort();
    all.dedup();
    all
}
