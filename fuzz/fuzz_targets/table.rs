//! The hub's table of tasks beside a trivial model, driven by the fuzzer's bytes.

#![no_main]

#[path = "../../crates/tasks/tests/suite/model.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| model::compare_by(bytes));
