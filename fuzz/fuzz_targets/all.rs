//! One libFuzzer binary for all targets of `mqb_core::fuzz`; `MQB_FUZZ` names the one to run.
//!
//! `MQB_FUZZ=json cargo +nightly fuzz run all mqb-core/tests/corpus/json`
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use mqb_core::fuzz::{TARGETS, Target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("MQB_FUZZ").unwrap_or_default();
    let found = TARGETS.iter().find(|(target, _)| *target == name);
    found.unwrap_or_else(|| panic!("MQB_FUZZ must be one of {:?}", TARGETS.iter().map(|(name, _)| name).collect::<Vec<_>>())).1
});

fuzz_target!(|bytes: &[u8]| TARGET(bytes));
