//! Thread-affine event loops.
#![deny(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

pub mod gate;
pub mod inbox;
pub mod slots;
mod sync;
mod tag;
pub mod watermark;

#[cfg(not(mqb_loom))]
mod client;
#[cfg(not(mqb_loom))]
mod clock;
#[cfg(not(mqb_loom))]
mod config;
#[cfg(not(mqb_loom))]
mod current;
#[cfg(not(mqb_loom))]
mod dispatcher;
#[cfg(not(mqb_loom))]
mod group;
#[cfg(not(mqb_loom))]
mod handle;
#[cfg(not(mqb_loom))]
mod io;
#[cfg(not(mqb_loom))]
mod lanes;
#[cfg(not(mqb_loom))]
mod manual;
#[cfg(not(mqb_loom))]
mod names;
#[cfg(not(mqb_loom))]
mod poller;
#[cfg(not(mqb_loom))]
mod processor;
#[cfg(not(mqb_loom))]
mod registrar;
#[cfg(not(mqb_loom))]
mod stats;
#[cfg(not(mqb_loom))]
mod stop;
#[cfg(not(mqb_loom))]
mod timer;
#[cfg(not(mqb_loom))]
mod turn;
#[cfg(not(mqb_loom))]
mod watchdog;

pub use tag::{ClientCore, ClientKind, ProcessorId, ThreadTag};
pub use watermark::Level;

#[cfg(not(mqb_loom))]
pub use {
    client::{Client, Cx, MemberId, Pressure},
    clock::{Clock, Monotonic, SystemClock, TestClock},
    config::{
        Activity, DispatcherConfig, EventKind, HandlerReport, Hooks, Idle, OverflowReport,
        PanicReport, StuckReport,
    },
    dispatcher::{Dispatcher, DispatcherError, StopError},
    handle::{EventSource, Full, Handle},
    io::{IoToken, Readiness},
    manual::Manual,
    mio,
    processor::TurnReport,
    registrar::{Placement, RegisterError, Registrar},
    stats::{BUCKETS, DispatcherStats, Histogram, ProcessorStats},
    timer::TimerId,
};
