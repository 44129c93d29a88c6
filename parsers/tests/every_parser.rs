//! Every parser over its corpus and over some seconds of drawn and mutated inputs; and what was found once.

use parsers::bounds::{Counting, measure};
use parsers::{DRAWN, Draw, TARGETS, Target, passes, run};
use std::time::Duration;

#[global_allocator]
static HEAP: Counting = Counting;

/// Time for the inputs of each target: less than a minute for all together.
const TIME: Duration = Duration::from_millis(1200);
/// What is tried is the same each time. Looking for others is a fuzzer's work.
const SEED: u64 = 2026;

#[test]
fn whatever_the_bytes_are_every_parser_keeps_its_properties() {
    let mut wrong = Vec::new();
    passes::all(SEED, TIME, |target, outcome| match outcome {
        Ok(count) => assert!(count >= 8, "{}: {count} inputs alone", target.name),
        Err(found) => wrong.push(found),
    });
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn every_target_has_a_corpus_of_its_own_and_takes_what_it_draws() {
    for target in TARGETS {
        let corpus = passes::corpus(target);
        assert!(corpus.len() >= 4, "{}: `parsers seeds fuzz/corpus` writes its first inputs", target.name);
        assert!(corpus.iter().map(Vec::len).sum::<usize>() < 64 << 10, "{}: a corpus of some KB", target.name);
        assert!(corpus.iter().any(|input| input[0] == DRAWN), "{}: values are drawn from none", target.name);
    }
}

/// A parser that keeps nothing is seen: by what it holds, by the time that it takes, and by what it makes of its bytes.
#[test]
fn a_parser_without_bounds_is_caught() {
    const GREEDY: Target = Target {
        name: "greedy",
        check: |bytes| Vec::<u8>::with_capacity(1 << (bytes.len() % 30)).capacity() > 0,
        draw: |draw: &mut Draw<'_>| draw.blob(9),
        heap: |bytes| 1024 + bytes.len(),
    };
    let caught = std::panic::catch_unwind(|| run(&GREEDY, &[b'r'; 26]));
    let said = caught.expect_err("32 MiB for 25 bytes").downcast::<String>().expect("a message");
    assert!(said.contains("of heap"), "{said}");
    const REFUSES: Target = Target { name: "refuses", check: |_| false, heap: |_| 1 << 20, ..GREEDY };
    let caught = std::panic::catch_unwind(|| run(&REFUSES, &[DRAWN, 3, 1, 2, 3]));
    assert!(caught.is_err(), "what it writes it does not read");
    let (taken, ()) = measure(|| drop(vec![1u8; 1 << 20]));
    assert!((1 << 20..2 << 20).contains(&taken.heap), "{taken:?}");
}
