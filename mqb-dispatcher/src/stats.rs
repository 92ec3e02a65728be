//! Figures of each processor, readable from any thread at any time.
//!
//! Most have one writer, the processor, which stores its own counters once per turn: no locked instruction in the hot path.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::tag::ProcessorId;
use crate::watermark::Level;

/// Buckets of a histogram by powers of two: bucket `i` counts values of `2^(i-1) .. 2^i`, the first counts zero.
pub const BUCKETS: usize = 40;

/// Counts by magnitude.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Histogram(pub [u64; BUCKETS]);

impl Histogram {
    /// How many values were recorded.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// An upper bound of the value below which a share of `quantile` (0 to 1) of all values lies; exact to a factor of two.
    pub fn quantile(&self, quantile: f64) -> u64 {
        let rank = (self.count() as f64 * quantile).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.0.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return (1 << bucket) - 1;
            }
        }
        u64::MAX
    }
}

/// What one processor did since its start.
#[derive(Clone, Debug)]
pub struct ProcessorStats {
    /// Which one.
    pub processor: ProcessorId,
    /// Events delivered to clients and members.
    pub events: u64,
    /// Of those, posted on the processor itself.
    pub local_events: u64,
    /// Turns.
    pub turns: u64,
    /// Timers delivered.
    pub timers: u64,
    /// Readiness notifications delivered.
    pub ready: u64,
    /// Calls of `flush`.
    pub flushes: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// Times another thread had to wake it: at most one per sleep.
    pub wakes: u64,
    /// Events for clients that had gone.
    pub stale_drops: u64,
    /// Events that were given back or dropped because the processor had stopped, or that it could not run before its deadline.
    pub returned: u64,
    /// Batches published while it was over its high mark.
    pub overshoot: u64,
    /// Panics of handlers.
    pub panics: u64,
    /// Turns in which the watchdog found a handler stuck.
    pub stuck: u64,
    /// Events that wait.
    pub depth: usize,
    /// Most that ever waited at the start of a turn.
    pub depth_max: usize,
    /// How full it is.
    pub level: Level,
    /// Clients.
    pub clients: u32,
    /// Members of clients.
    pub members: u32,
    /// Timers that wait.
    pub timers_pending: u64,
    /// Events per turn, of turns that had any.
    pub batch: Histogram,
    /// Time in a handler, a sample of 1 in 64 or so. **Units**: nanoseconds.
    pub handler_ns: Histogram,
    /// The longest handler among those timed. **Units**: nanoseconds.
    pub handler_ns_max: u64,
}

/// Figures of all processors.
#[derive(Clone, Debug)]
pub struct DispatcherStats {
    /// By processor.
    pub processors: Vec<ProcessorStats>,
}

/// How many live on a processor.
pub(crate) struct Tenants {
    pub(crate) clients: u32,
    pub(crate) members: u32,
}

/// Written by the processor only, unless said otherwise.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// When the turn began that is running, plus one; 0 between turns.
    pub(crate) turn_started_ns: AtomicU64,
    /// What is running: see `current.rs`.
    pub(crate) current: AtomicU64,
    pub(crate) published: Published,
    pub(crate) sleeps: AtomicU64,
    /// Written by producers.
    pub(crate) wakes: AtomicU64,
    /// Written by producers.
    pub(crate) returned: AtomicU64,
    /// Written by producers.
    pub(crate) overshoot: AtomicU64,
    /// Written by the watchdog.
    pub(crate) stuck: AtomicU64,
}

/// Copies of [`Local`].
#[derive(Debug, Default)]
pub(crate) struct Published {
    events: AtomicU64,
    local_events: AtomicU64,
    turns: AtomicU64,
    timers: AtomicU64,
    ready: AtomicU64,
    flushes: AtomicU64,
    stale_drops: AtomicU64,
    panics: AtomicU64,
    depth_max: AtomicU64,
    timers_pending: AtomicU64,
    batch: AtomicHistogram,
    handler_ns: AtomicHistogram,
    handler_ns_max: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct AtomicHistogram([AtomicU64; BUCKETS]);

impl Default for AtomicHistogram {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl AtomicHistogram {
    /// By its one writer.
    fn record(&self, value: u64) {
        let bucket = (u64::BITS - value.leading_zeros()) as usize;
        add(&self.0[bucket.min(BUCKETS - 1)], 1);
    }

    fn read(&self) -> Histogram {
        Histogram(std::array::from_fn(|bucket| {
            self.0[bucket].load(Ordering::Relaxed)
        }))
    }
}

/// Adds to a counter that only the caller writes.
fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

/// What a turn counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnCounts {
    pub(crate) events: u64,
    pub(crate) local_events: u64,
    pub(crate) timers: u64,
    pub(crate) ready: u64,
    pub(crate) flushes: u64,
    pub(crate) stale_drops: u64,
}

impl Published {
    /// At the end of a turn.
    pub(crate) fn add_turn(&self, counts: &TurnCounts, timers_pending: usize) {
        add(&self.turns, 1);
        if counts.events > 0 {
            add(&self.events, counts.events);
            self.batch.record(counts.events);
        }
        for (counter, by) in [
            (&self.local_events, counts.local_events),
            (&self.timers, counts.timers),
            (&self.ready, counts.ready),
            (&self.flushes, counts.flushes),
            (&self.stale_drops, counts.stale_drops),
        ] {
            if by > 0 {
                add(counter, by);
            }
        }
        self.timers_pending
            .store(timers_pending as u64, Ordering::Relaxed);
    }

    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    pub(crate) fn see_depth(&self, depth: usize) {
        if depth as u64 > self.depth_max.load(Ordering::Relaxed) {
            self.depth_max.store(depth as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn record_handler(&self, nanos: u64) {
        self.handler_ns.record(nanos);
        self.see_handler(nanos);
    }

    pub(crate) fn see_handler(&self, nanos: u64) {
        if nanos > self.handler_ns_max.load(Ordering::Relaxed) {
            self.handler_ns_max.store(nanos, Ordering::Relaxed);
        }
    }

    pub(crate) fn count_panic(&self) {
        add(&self.panics, 1);
    }
}

impl Counters {
    pub(crate) fn read(
        &self,
        processor: ProcessorId,
        depth: usize,
        level: Level,
        tenants: Tenants,
    ) -> ProcessorStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let published = &self.published;
        ProcessorStats {
            processor,
            events: load(&published.events),
            local_events: load(&published.local_events),
            turns: load(&published.turns),
            timers: load(&published.timers),
            ready: load(&published.ready),
            flushes: load(&published.flushes),
            sleeps: load(&self.sleeps),
            wakes: load(&self.wakes),
            stale_drops: load(&published.stale_drops),
            returned: load(&self.returned),
            overshoot: load(&self.overshoot),
            panics: load(&published.panics),
            stuck: load(&self.stuck),
            depth,
            depth_max: load(&published.depth_max) as usize,
            level,
            clients: tenants.clients,
            members: tenants.members,
            timers_pending: load(&published.timers_pending),
            batch: published.batch.read(),
            handler_ns: published.handler_ns.read(),
            handler_ns_max: load(&published.handler_ns_max),
        }
    }
}
