//! Thread-affine event loops: processors that own their clients.
//!
//! # The model on one page
//!
//! A **processor** is one thread with an inbox, a timer wheel, an epoll and the **clients** that live on it. A client is plain
//! mutable state: only its processor ever calls it, one call at a time, so it needs no lock and may hold `Rc`, `Cell` and
//! sockets. It is made *on* its processor by a closure and never leaves it. Everybody else holds a [`Handle`]: `Send`, cheap to clone, and
//! harmless when the client has gone (what is sent then is dropped and counted).
//!
//! ```text
//!  thread A ── Handle::post ──┐            processor 0                      processor 1
//!  thread B ── EventSource ───┤      ┌─────────────────────┐          ┌─────────────────────┐
//!                             └────► │ inbox               │          │ inbox               │
//!                                    │  clients  timers    │ outbox   │  clients  timers    │
//!                                    │  sockets  own posts │ ───────► │  sockets  own posts │
//!                                    └─────────────────────┘          └─────────────────────┘
//! ```
//!
//! **A turn.** Take the inbox; deliver events, own posts first; due timers; ready sockets; own posts again; flush every client
//! that was called; publish what was posted to other processors. A turn has a budget of events and time; what is left waits for the
//! next, so sockets and timers always get their share. Then, without work, the processor sleeps until an eventfd, a socket or a timer
//! wakes it. Waking is the most expensive thing here, so there is at most one eventfd write per sleep.
//!
//! **Order.** Events from one source (a processor, an [`EventSource`], a thread that posts directly) reach one client in the order in
//! which they were sent. Nothing else is promised. A post never runs its target within the call: there is no recursion.
//!
//! **Who runs here?** [`ClientCore::in_dispatcher_thread`] is one load and one compare, inlined: usable in every method. A thread that
//! is no processor, and a client that was never placed, answer "no"; no value matches everything. What must run in a turn asks for
//! a [`Cx`], which only the loop makes, which cannot leave its thread and cannot be kept:
//! the compiler sees to it (`tests/ui`).
//!
//! **Members.** A client may give parts of itself addresses of their own ([`Cx::add_member`]): others post to the part, the owner gets
//! the event and calls the part as plain `&mut` code.
//!
//! **Pressure.** Posting never blocks and is never refused, so that confirms and control always get through. A processor whose
//! depth reaches the high mark turns its level [`Level::High`] until it is back at the low mark: [`Handle::try_post`] gives data back, and
//! clients that subscribed are told, to stop reading their sockets and to resume. Over the hard limit a hook is called, and who
//! brings the work should be cut off.
//!
//! **Panics** cost their client: it is dropped, its handles go stale, a hook is told, everybody else goes on. **Stuck handlers** are
//! reported by a watchdog with the names of client and event. **Stopping** goes kind by kind with a deadline; every event
//! that was accepted is run or counted as returned.
//!
//! # An example
//!
//! ```
//! use mqb_dispatcher::{Client, ClientCore, ClientKind, Cx, Dispatcher, DispatcherConfig, Hooks, Placement};
//! use std::sync::mpsc::Sender;
//! use std::time::Duration;
//!
//! enum Event {
//!     Add(u64),
//!     Report(Sender<u64>),
//! }
//!
//! struct Sum {
//!     core: ClientCore,
//!     total: u64,
//! }
//!
//! impl Client<Event> for Sum {
//!     fn core(&self) -> &ClientCore {
//!         &self.core
//!     }
//!
//!     fn on_event(&mut self, _cx: &mut Cx<'_, Event>, event: Event) {
//!         assert!(self.core.in_dispatcher_thread());
//!         match event {
//!             Event::Add(number) => self.total += number,
//!             Event::Report(to) => to.send(self.total).expect("somebody waits"),
//!         }
//!     }
//! }
//!
//! const SUM: ClientKind = ClientKind::new(0, "sum");
//!
//! let dispatcher = Dispatcher::start(DispatcherConfig::default(), Hooks::default())?;
//! let sum = dispatcher.registrar().register(Placement::LeastLoaded(SUM), |core, _cx| Box::new(Sum { core, total: 0 }));
//! assert!(!sum.in_dispatcher_thread());
//! for number in 1..=10 {
//!     sum.post(Event::Add(number));
//! }
//! let (to, total) = std::sync::mpsc::channel();
//! sum.post(Event::Report(to));
//! assert_eq!(total.recv()?, 55);
//! dispatcher.stop(Duration::from_secs(1))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Tests and proof
//!
//! [`Manual`] turns the same processors by hand under a test's clock. The parts that threads share (gate, inbox, slots,
//! watermarks) are modelled with loom; the crate has no `unsafe`, so miri has nothing of its own to find here, but runs the tests that make
//! no system calls: `MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p mqb-dispatcher --lib`.
//!
//! # Limits
//!
//! Linux with epoll is what is measured; mio carries it to other systems. A process that forks without `exec` must not use a
//! dispatcher in the child. Inside a `cdylib` that is loaded at run time, the thread check becomes a call (a few ns).
#![forbid(unsafe_code)]
// The models use the shared parts only.
#![cfg_attr(mqb_loom, allow(dead_code))]
#![warn(missing_docs, missing_debug_implementations)]

pub mod calls;
#[doc(hidden)]
pub mod gate;
#[doc(hidden)]
pub mod inbox;
#[doc(hidden)]
pub mod slots;
mod sync;
mod tag;
#[doc(hidden)]
pub mod watermark;

#[cfg(not(mqb_loom))]
mod budget;
#[cfg(not(mqb_loom))]
mod client;
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
mod stats;
#[cfg(not(mqb_loom))]
mod stop;
#[cfg(not(mqb_loom))]
mod timer;
#[cfg(not(mqb_loom))]
mod turn;
#[cfg(not(mqb_loom))]
mod watchdog;

pub use clock::{Clock, Monotonic, SystemClock, TestClock};
pub use stats::{BUCKETS, DispatcherStats, Histogram, ProcessorStats};
pub use tag::{ClientCore, ClientKind, ProcessorId, ThreadTag};
pub use watermark::Level;

#[cfg(not(mqb_loom))]
pub use {
    client::{Client, Cx, MemberId, Pressure},
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
    timer::TimerId,
};
