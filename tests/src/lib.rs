//! What the workspace tests share: the real broker as a child process, the official SDK in its own process, and a raw
//! peer that speaks the wire protocol by its own, independent codec.
//!
//! Nothing here waits by sleeping for a fixed time: [`wait::until`] polls an observable condition against a deadline.

pub mod broker;
pub mod fake_disk;
pub mod ledger;
pub mod load;
pub mod metrics;
pub mod raw;
pub mod rng;
pub mod sdk;
pub mod settings;
pub mod small_disk;
pub mod storage_model;
pub mod wait;
pub mod wire;

/// Runs a test body once with one processor and once with three, as two tests.
///
/// The first processor hosts registry, sessions and partitions alike; with three, every message takes a hop. Hazards
/// that only one of the two shows are the reason for running both.
#[macro_export]
macro_rules! with_processors {
    ($($(#[$meta:meta])* fn $name:ident($processors:ident) $body:block)*) => {
        $(
            mod $name {
                #[allow(unused_imports, reason = "a body may need nothing from its file")]
                use super::*;

                fn run($processors: usize) $body

                $(#[$meta])*
                #[test]
                fn one_processor() {
                    run($crate::broker::processors_or(1));
                }

                $(#[$meta])*
                #[test]
                fn three_processors() {
                    run($crate::broker::processors_or(3));
                }
            }
        )*
    };
}
