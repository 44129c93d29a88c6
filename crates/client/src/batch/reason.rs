//! Why a task has no result that counts, in words: what the hub counted, and what is known here of its runs.
//!
//! Pure. A reason says what happened, how often, and which option allowed no more of it.

use base::Batch;
use std::time::Duration;

/// What is known of a task that ended without a result.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// As the hub says it: see [`wire::message::work::Ended::failure`].
    pub failure: u32,
    /// The statuses of its runs that were tried again: see [`wire::message::work::Ended::statuses`]. A hub that started again knows
    /// the later ones only.
    pub statuses: Vec<u32>,
    /// The status of the last run that had one, likewise.
    pub last_status: Option<u32>,
    /// How often it was sent to a worker.
    pub runs: u32,
    /// How many of these had a result that counts.
    pub results: u32,
    /// Its job is held.
    pub is_held: bool,
    /// How many of its runs took too long.
    pub too_long: u32,
    /// What went wrong last, otherwise.
    pub trouble: Option<String>,
}

/// Statuses from here on are signals.
pub const SIGNALS: u32 = 256;

/// The end of a run: `exit 7`, `signal 9`.
pub fn status_name(status: u32) -> String {
    match status {
        SIGNALS.. => format!("signal {}", status - SIGNALS),
        code => format!("exit {code}"),
    }
}

/// Why there is no result. Not for a task that was cancelled.
pub fn why(batch: &Batch, known: &Known) -> String {
    match known.failure {
        1 => too_many_errors(batch, known),
        2 | 3 if known.results > 0 => no_agreement(batch, known),
        2 => with_last(format!("it was run {}, and had no result", times(known.runs)), known),
        3 => with_last("its results do not agree".into(), known),
        4 if known.runs == 0 && known.is_held => {
            "it was not done by its deadline: it never ran, for its job was held".into()
        }
        4 if known.runs == 0 => "it was not done by its deadline: it never ran, for no worker had room for it".into(),
        4 => with_last("it was not done by its deadline".into(), known),
        _ => with_last("the hub has no result of it".into(), known),
    }
}

/// That a run took too long.
pub fn too_long(batch: &Batch, limit: Duration) -> String {
    let limit = span(limit);
    match batch.time_limit_ms {
        Some(_) => format!("it ran longer than --time-limit {limit}"),
        None => format!("it ran longer than {limit}, which is the limit without --time-limit"),
    }
}

/// It waited for longer than a run may take.
pub fn waited_too_long(batch: &Batch, what: &str) -> String {
    let limit = span(super::drive::time_limit(batch));
    match batch.time_limit_ms {
        Some(_) => format!("{what} for longer than --time-limit {limit}"),
        None => format!("{what} for longer than {limit}, which is the limit without --time-limit"),
    }
}

fn too_many_errors(batch: &Batch, known: &Known) -> String {
    let retries = batch.retries.map(|retries| match retries {
        1 => "1 retry".to_owned(),
        retries => format!("{retries} retries"),
    });
    let Some(retries) = retries else {
        return with_last(format!("it was lost {}", times(known.runs)), known);
    };
    let own = known.statuses.len() as u32;
    if own == 0 && known.too_long > 0 {
        let limit = Duration::from_millis(batch.time_limit_ms.unwrap_or_default());
        return format!("it ran longer than --time-limit {}, {} ({retries})", span(limit), times(known.too_long));
    }
    let Some(last) = known.statuses.last().copied().or(known.last_status) else {
        return with_last(format!("it was lost {} ({retries})", times(known.runs)), known);
    };
    let mut others: Vec<String> = Vec::new();
    for status in known.statuses.iter().rev().skip(1).filter(|status| **status != last) {
        let name = status_name(*status);
        if !others.contains(&name) {
            others.push(name);
        }
    }
    let lost = known.runs.saturating_sub(own + known.too_long);
    let why = match (own, others.is_empty()) {
        // A hub that has started again does not know how often.
        (0, _) => format!("{} in the last of {} runs ({retries})", status_name(last), known.runs),
        (own, true) if own == known.runs => format!("{}, {} ({retries})", status_name(last), times(own)),
        (_, true) => {
            let rest = rest(known.too_long, lost);
            format!("{} in {own} of {} runs, {rest} ({retries})", status_name(last), known.runs)
        }
        (_, false) => format!(
            "{} in the last of {} runs, {} before ({retries})",
            status_name(last),
            known.runs,
            others.into_iter().rev().collect::<Vec<String>>().join(" and ")
        ),
    };
    with_last(why, known)
}

/// What became of runs that came to no end of their own.
fn rest(too_long: u32, lost: u32) -> String {
    match (too_long, lost) {
        (0, lost) => format!("{lost} lost"),
        (too_long, 0) => format!("{too_long} beyond --time-limit"),
        (too_long, lost) => format!("{too_long} beyond --time-limit and {lost} lost"),
    }
}

fn no_agreement(batch: &Batch, known: &Known) -> String {
    let (results, quorum) = (known.results, batch.quorum.max(1));
    let counted = if results == 1 { "its only result".to_owned() } else { format!("its {results} results") };
    match (quorum, batch.validate.is_some()) {
        (1, true) if results == 1 => with_last("--validate did not accept its only result".into(), known),
        (1, _) => with_last(format!("--validate accepted none of {counted}"), known),
        (quorum, _) if results < quorum => with_last(
            format!("--quorum {quorum} needs {quorum} results that agree, and {} runs gave {results}", known.runs),
            known,
        ),
        (quorum, true) => format!("by --validate no {quorum} of {counted} agree (--quorum {quorum})"),
        (quorum, false) => format!("its results do not agree: no {quorum} of {counted} are equal (--quorum {quorum})"),
    }
}

fn with_last(why: String, known: &Known) -> String {
    known.trouble.as_ref().map_or_else(|| why.clone(), |trouble| format!("{why}; last: {trouble}"))
}

/// `once`, `twice`, `3 times`.
fn times(count: u32) -> String {
    match count {
        1 => "once".into(),
        2 => "twice".into(),
        count => format!("{count} times"),
    }
}

/// A time as options have it: `5 s`.
fn span(time: Duration) -> String {
    let ms = time.as_millis() as u64;
    match ms {
        _ if !ms.is_multiple_of(1_000) => format!("{ms} ms"),
        _ if ms.is_multiple_of(3_600_000) => format!("{} h", ms / 3_600_000),
        _ if ms.is_multiple_of(60_000) => format!("{} min", ms / 60_000),
        _ => format!("{} s", ms / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::super::folder::tests::spec_of;
    use super::*;

    fn batch(change: impl FnOnce(&mut Batch)) -> Batch {
        let mut batch = spec_of(1).batch;
        change(&mut batch);
        batch
    }

    fn errors(statuses: &[u32], runs: u32, too_long: u32) -> Known {
        let last_status = statuses.last().copied();
        Known { failure: 1, statuses: statuses.to_vec(), last_status, runs, too_long, ..Known::default() }
    }

    #[test]
    fn retries_tell_how_the_runs_ended() {
        let once = batch(|batch| batch.retries = Some(1));
        assert_eq!(why(&once, &errors(&[7, 7], 2, 0)), "exit 7, twice (1 retry)");
        assert_eq!(
            why(&batch(|batch| batch.retries = Some(0)), &errors(&[SIGNALS + 9], 1, 0)),
            "signal 9, once (0 retries)"
        );
        let three = batch(|batch| (batch.retries, batch.time_limit_ms) = (Some(3), Some(5_000)));
        assert_eq!(
            why(&three, &errors(&[3, 3, 5, 7], 4, 0)),
            "exit 7 in the last of 4 runs, exit 3 and exit 5 before (3 retries)"
        );
        assert_eq!(why(&three, &errors(&[], 4, 4)), "it ran longer than --time-limit 5 s, 4 times (3 retries)");
        assert_eq!(
            why(&three, &errors(&[7, 7], 4, 1)),
            "exit 7 in 2 of 4 runs, 1 beyond --time-limit and 1 lost (3 retries)"
        );
        let forgotten = Known { last_status: Some(7), ..errors(&[], 4, 0) };
        assert_eq!(why(&three, &forgotten), "exit 7 in the last of 4 runs (3 retries)");
        let lost = Known { failure: 1, runs: 12, trouble: Some("the worker has left".into()), ..Known::default() };
        assert_eq!(why(&batch(|_| {}), &lost), "it was lost 12 times; last: the worker has left");
    }

    #[test]
    fn results_that_differ_are_counted() {
        let known = |failure, results, runs| Known { failure, results, runs, ..Known::default() };
        let two = batch(|batch| batch.quorum = 2);
        assert_eq!(
            why(&two, &known(3, 6, 6)),
            "its results do not agree: no 2 of its 6 results are equal (--quorum 2)"
        );
        assert_eq!(why(&two, &known(2, 1, 9)), "--quorum 2 needs 2 results that agree, and 9 runs gave 1");
        let good = batch(|batch| batch.validate = Some(b"x".to_vec()));
        assert_eq!(why(&good, &known(2, 1, 1)), "--validate did not accept its only result");
        assert_eq!(why(&good, &known(3, 5, 5)), "--validate accepted none of its 5 results");
    }

    #[test]
    fn deadlines_and_limits_are_named() {
        let known = |runs| Known { failure: 4, runs, ..Known::default() };
        assert!(why(&batch(|_| {}), &known(0)).contains("never ran, for no worker"));
        assert!(why(&batch(|_| {}), &Known { is_held: true, ..known(0) }).contains("its job was held"));
        assert_eq!(why(&batch(|_| {}), &known(2)), "it was not done by its deadline");
        let limited = batch(|batch| batch.time_limit_ms = Some(90_000));
        assert_eq!(too_long(&limited, Duration::from_secs(90)), "it ran longer than --time-limit 90 s");
        assert_eq!(
            too_long(&batch(|_| {}), Duration::from_secs(3_600)),
            "it ran longer than 1 h, which is the limit without --time-limit"
        );
    }
}
