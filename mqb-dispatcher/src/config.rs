//! What a dispatcher is told at its start.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::tag::{ClientKind, ProcessorId};

/// What a processor does while it has no work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Idle {
    /// Sleeps at once. Right whenever there are not more cores than processors.
    #[default]
    Block,
    /// Looks for work for so long, then sleeps.
    SpinThenBlock(Duration),
    /// Never sleeps: needs a core to itself.
    Spin,
}

/// Bounds and choices of one dispatcher.
#[derive(Clone, Debug)]
pub struct DispatcherConfig {
    /// Number of processors, 1 to 1024. Default: one per core.
    pub processors: u16,
    /// Name of the threads; the processor's number is appended.
    pub thread_name: String,
    /// What to do without work.
    pub idle: Idle,
    /// Events that one turn runs at most before timers and sockets get their share.
    pub turn_events: usize,
    /// Time that one turn spends on events at most. Looked at every few events, so a long handler may exceed it.
    pub turn_time: Duration,
    /// Depth to which a processor must come back before its level is normal again.
    pub low_watermark: usize,
    /// Depth at which a processor's level becomes high: `try_post` refuses, subscribers are told.
    pub high_watermark: usize,
    /// Depth at which the level becomes hard and [`Hooks::on_overflow`] is called.
    pub hard_limit: usize,
    /// Clients and members on one processor at a time, at most.
    pub max_clients: u32,
    /// Which processors may have clients of a kind; a kind that is not listed may live on all.
    pub ranges: Vec<(ClientKind, Range<u16>)>,
    /// The order in which clients are told to stop; kinds that are not listed come last, together.
    pub stop_order: Vec<ClientKind>,
    /// A handler that takes longer is reported as stuck. Zero turns the watchdog off.
    pub stuck_after: Duration,
}

impl Default for DispatcherConfig {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            processors: u16::try_from(cores).unwrap_or(u16::MAX).min(1024),
            thread_name: "processor".into(),
            idle: Idle::Block,
            turn_events: 1024,
            turn_time: Duration::from_micros(500),
            low_watermark: 4 * 1024,
            high_watermark: 16 * 1024,
            hard_limit: 16 * 16 * 1024,
            max_clients: 1 << 20,
            ranges: Vec::new(),
            stop_order: Vec::new(),
            stuck_after: Duration::from_secs(1),
        }
    }
}

/// Names an event's variant in reports. Small numbers; the service that owns the event type decides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct EventKind(pub u16);

/// What was running on a processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activity {
    /// Nothing of a client's.
    Idle,
    /// [`Client::on_event`](crate::Client::on_event) or `on_member_event`.
    Event(EventKind),
    /// The closure that makes a client.
    Make,
    /// [`Client::on_ready`](crate::Client::on_ready).
    Ready,
    /// [`Client::on_timer`](crate::Client::on_timer).
    Timer,
    /// [`Client::flush`](crate::Client::flush).
    Flush,
    /// [`Client::on_pressure`](crate::Client::on_pressure).
    Pressure,
    /// [`Client::on_stop`](crate::Client::on_stop).
    Stop,
    /// A barrier's closure.
    Barrier,
    /// Dropping the client.
    Drop,
}

/// Whose handler panicked or is stuck, and in what.
#[derive(Clone, Debug)]
pub struct HandlerReport {
    /// Where.
    pub processor: ProcessorId,
    /// What the client is; `None` for work that belongs to no client.
    pub kind: Option<ClientKind>,
    /// The client's name, or its kind's.
    pub name: Arc<str>,
    /// What it was doing.
    pub activity: Activity,
    /// Name of the event kind, if it was handling an event.
    pub event: &'static str,
}

/// A handler panicked; its client has been dropped.
#[derive(Clone, Debug)]
pub struct PanicReport {
    /// Whose.
    pub handler: HandlerReport,
    /// The panic's message.
    pub message: String,
}

/// A handler has not returned for long.
#[derive(Clone, Debug)]
pub struct StuckReport {
    /// Whose.
    pub handler: HandlerReport,
    /// For how long its turn has been running.
    pub turn_for: Duration,
}

/// A processor's depth reached the hard limit.
#[derive(Clone, Copy, Debug)]
pub struct OverflowReport {
    /// Whose inbox.
    pub processor: ProcessorId,
    /// Events that wait in it.
    pub depth: usize,
}

type Hook<R> = Arc<dyn Fn(&R) + Send + Sync>;

/// What the embedding service wants to be told. Every default logs through `tracing`.
#[derive(Clone)]
pub struct Hooks<E> {
    /// Called on the processor, after the client was dropped.
    pub on_panic: Hook<PanicReport>,
    /// Called on the watchdog's thread: once per handler that is found stuck.
    pub on_stuck: Hook<StuckReport>,
    /// Called by the thread whose post reached the hard limit, once until the level is normal again. Must not post.
    pub on_overflow: Hook<OverflowReport>,
    /// Tells the variant of an event, for reports; called before each delivery, so it should be a `match` to constants.
    pub event_kind: Option<fn(&E) -> EventKind>,
    /// Names a variant.
    pub event_name: fn(EventKind) -> &'static str,
}

impl<E> Default for Hooks<E> {
    fn default() -> Self {
        Self {
            on_panic: Arc::new(|report| {
                let HandlerReport {
                    processor,
                    kind,
                    name,
                    activity,
                    event,
                } = &report.handler;
                tracing::error!(
                    event_name = "handler_panicked", %processor, ?kind, client = %name, ?activity, event, message = report.message,
                    "a handler panicked; its client was dropped"
                );
            }),
            on_stuck: Arc::new(|report| {
                let HandlerReport {
                    processor,
                    kind,
                    name,
                    activity,
                    event,
                } = &report.handler;
                tracing::warn!(
                    event_name = "handler_stuck", %processor, ?kind, client = %name, ?activity, event, turn_for = ?report.turn_for,
                    "a handler has not returned"
                );
            }),
            on_overflow: Arc::new(|report| {
                tracing::error!(
                    event_name = "inbox_overflow", processor = %report.processor, depth = report.depth,
                    "a processor's inbox reached its hard limit"
                );
            }),
            event_kind: None,
            event_name: |_| "event",
        }
    }
}

impl<E> fmt::Debug for Hooks<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}
