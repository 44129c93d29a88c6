//! A parser of bytes from elsewhere, driven by the fuzzer's bytes. Which one is named by the environment: one program serves all.

#![no_main]

use parsers::Target;
use parsers::bounds::Counting;
use std::sync::OnceLock;

/// Names the target.
const NAME: &str = "GLEANER_FUZZ";

#[global_allocator]
static HEAP: Counting = Counting;

fn target() -> &'static Target {
    static TARGET: OnceLock<&Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = std::env::var(NAME).unwrap_or_default();
        parsers::of_name(&name).unwrap_or_else(|| panic!("{NAME}={name}: there is no such target"))
    })
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| parsers::run(target(), bytes));
