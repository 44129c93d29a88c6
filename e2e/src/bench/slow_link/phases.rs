//! Where the time of a task went, as `gleaner explain` tells it.

use super::workload::{Task, Workload, output};
use crate::error::Result;
use crate::pool::Pool;
use crate::slow::moment;
use serde_json::Value;

/// Seconds of a task, one after the other: each phase's name, and how long it was.
pub type Phases = Vec<(&'static str, f64)>;

/// The ends of the phases, by how the time line calls them. What comes between the program's start and end is its computing,
/// and its waiting for what it reads.
const ENDS: [(&str, &str); 6] = [
    ("launch", "sent to the hub"),
    ("input", "worker: files ready"),
    ("start", "worker: program started"),
    ("run", "worker: process ended"),
    ("results", "result arrived"),
    ("commit", "answered"),
];

/// The phases of each task of a job that has just run; none of a task whose time line lacks a moment.
pub fn of(pool: &Pool, job: &Workload) -> Result<Vec<Option<Phases>>> {
    let listed = pool.client.json(&["tasks", "--json"])?;
    let listed = listed["tasks"].as_array().map_or(&[][..], Vec::as_slice);
    let one = |(number, task): (usize, &Task)| {
        let last_word = output(number);
        let is_its = |task: &&Value| task["argv"].as_array().and_then(|argv| argv.last()?.as_str()) == Some(&last_word);
        // The newest is first.
        let Some(id) = listed.iter().find(is_its).and_then(|task| task["task"].as_str()) else { return Ok(None) };
        Ok(phases(&pool.client.json(&["explain", "--json", id])?, task.seconds))
    };
    job.tasks.iter().enumerate().map(one).collect()
}

/// What each phase takes on average, in words.
pub fn on_average(all: &[Option<Phases>]) -> String {
    let known: Vec<&Phases> = all.iter().flatten().collect();
    let Some(first) = known.first() else { return "no time lines".to_owned() };
    let mean = |at: usize| known.iter().map(|phases| phases[at].1).sum::<f64>() / known.len() as f64;
    let words = first.iter().enumerate().map(|(at, (name, _))| format!("{name} {:.2}", mean(at)));
    words.collect::<Vec<_>>().join(", ")
}

fn phases(explained: &Value, compute: f64) -> Option<Phases> {
    let mut before = 0.0;
    let mut all = Vec::new();
    for (name, what) in ENDS {
        let end = moment(explained, what)?;
        let took = end - before;
        before = end;
        match name {
            "run" => all.extend([("compute", compute), ("late_input", took - compute)]),
            _ => all.push((name, took)),
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_follow_one_another() {
        let moments = ENDS
            .iter()
            .zip([1, 3, 4, 10, 12, 13])
            .map(|((_, what), second)| serde_json::json!({ "at_us": second * 1_000_000, "what": what }));
        let explained = serde_json::json!({ "timeline": moments.collect::<Vec<_>>() });
        let found = phases(&explained, 5.0).unwrap();
        let right = [
            ("launch", 1.0),
            ("input", 2.0),
            ("start", 1.0),
            ("compute", 5.0),
            ("late_input", 1.0),
            ("results", 2.0),
            ("commit", 1.0),
        ];
        assert_eq!(found, right);
        assert!(on_average(&[Some(found), None]).starts_with("launch 1.00, input 2.00"));
        assert_eq!(phases(&serde_json::json!({}), 5.0), None);
    }
}
