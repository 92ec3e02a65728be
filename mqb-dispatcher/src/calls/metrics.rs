//! Figures per class, readable from any thread.
//!
//! Each recorder has one writer at a time, so that counting is a load and a store; readers add the recorders up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::calls::call::{CallInfo, Class};
use crate::calls::reply::Refusal;
use crate::clock::Monotonic;
use crate::stats::{BUCKETS, Histogram};

/// Calls refused, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refused {
    /// Too much to do, on arrival or because the queue stood.
    pub overloaded: u64,
    /// Had to give way.
    pub evicted: u64,
    /// The deadline passed, or came too close, before the start.
    pub expired: u64,
    /// The service was going down.
    pub shutting_down: u64,
}

impl Refused {
    /// All reasons.
    pub fn total(&self) -> u64 {
        self.overloaded + self.evicted + self.expired + self.shutting_down
    }
}

/// What became of a class's calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassFigures {
    /// From the configuration.
    pub name: &'static str,
    /// Calls that arrived.
    pub received: u64,
    /// Handlers that began.
    pub started: u64,
    /// Handlers that returned.
    pub answered: u64,
    /// Handlers that panicked; not in `answered`.
    pub panicked: u64,
    /// Handlers that returned after the deadline, of those in `answered`.
    pub late: u64,
    /// Not started.
    pub refused: Refused,
    /// Forgotten, because the caller went.
    pub cancelled: u64,
    /// Wait now.
    pub queued: usize,
    /// Receipt to start. **Units**: nanoseconds.
    pub queue_delay_ns: Histogram,
    /// Start to return. **Units**: nanoseconds.
    pub service_ns: Histogram,
}

/// What a pool did since its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolFigures {
    /// By class.
    pub classes: Vec<ClassFigures>,
    /// How many calls may wait now.
    pub limit: usize,
    /// Mean service time by which the limit was set.
    pub service_mean: Duration,
    /// True if the queue is standing and old calls are shed.
    pub is_standing: bool,
    /// Workers that sleep now.
    pub idle: usize,
    /// Calls that went straight to an idle worker.
    pub handed_off: u64,
    /// Calls that were queued.
    pub queued: u64,
    /// Workers that had to be woken.
    pub wakes: u64,
    /// Calls for which an idle worker was left asleep, because a running one was about to come back.
    pub wakes_suppressed: u64,
}

/// Counts for one thread, or for one lock's holder: a worker of a pool, or a processor that handles calls itself.
#[derive(Debug)]
pub struct Recorder(Vec<Counts>);

#[derive(Debug)]
struct Counts {
    received: AtomicU64,
    started: AtomicU64,
    answered: AtomicU64,
    panicked: AtomicU64,
    late: AtomicU64,
    overloaded: AtomicU64,
    evicted: AtomicU64,
    expired: AtomicU64,
    shutting_down: AtomicU64,
    cancelled: AtomicU64,
    queue_delay_ns: [AtomicU64; BUCKETS],
    service_ns: [AtomicU64; BUCKETS],
}

impl Counts {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            received: zero(),
            started: zero(),
            answered: zero(),
            panicked: zero(),
            late: zero(),
            overloaded: zero(),
            evicted: zero(),
            expired: zero(),
            shutting_down: zero(),
            cancelled: zero(),
            queue_delay_ns: std::array::from_fn(|_| zero()),
            service_ns: std::array::from_fn(|_| zero()),
        }
    }
}

impl Recorder {
    /// A recorder for so many classes.
    pub fn new(classes: usize) -> Self {
        Self((0..classes).map(|_| Counts::new()).collect())
    }

    /// A call arrived.
    pub fn received(&self, class: Class) {
        add(&self.0[class.index()].received);
    }

    /// A call's handler begins.
    pub fn started(&self, call: &CallInfo, now: Monotonic) {
        let counts = &self.0[call.class.index()];
        add(&counts.started);
        record(&counts.queue_delay_ns, now.since(call.received));
    }

    /// A call's handler, which began at `started`, returned at `completed`.
    pub fn answered(&self, call: &CallInfo, started: Monotonic, completed: Monotonic) {
        let counts = &self.0[call.class.index()];
        add(&counts.answered);
        record(&counts.service_ns, completed.since(started));
        if call.is_late(completed) {
            add(&counts.late);
        }
    }

    /// A call's handler panicked.
    pub fn panicked(&self, class: Class) {
        add(&self.0[class.index()].panicked);
    }

    /// A call was not started.
    pub fn refused(&self, class: Class, why: &Refusal) {
        let counts = &self.0[class.index()];
        add(match why {
            Refusal::Overloaded { .. } => &counts.overloaded,
            Refusal::Evicted { .. } => &counts.evicted,
            Refusal::Expired => &counts.expired,
            Refusal::ShuttingDown => &counts.shutting_down,
        });
    }

    /// A call's caller went.
    pub fn cancelled(&self, class: Class) {
        add(&self.0[class.index()].cancelled);
    }

    /// Adds this recorder's counts to `figures`, class by class.
    pub fn add_to(&self, figures: &mut [ClassFigures]) {
        for (counts, figures) in self.0.iter().zip(figures) {
            let pairs = [
                (&counts.received, &mut figures.received),
                (&counts.started, &mut figures.started),
                (&counts.answered, &mut figures.answered),
                (&counts.panicked, &mut figures.panicked),
                (&counts.late, &mut figures.late),
                (&counts.overloaded, &mut figures.refused.overloaded),
                (&counts.evicted, &mut figures.refused.evicted),
                (&counts.expired, &mut figures.refused.expired),
                (&counts.shutting_down, &mut figures.refused.shutting_down),
                (&counts.cancelled, &mut figures.cancelled),
            ];
            for (counter, figure) in pairs {
                *figure += counter.load(Ordering::Relaxed);
            }
            add_histogram(&counts.queue_delay_ns, &mut figures.queue_delay_ns);
            add_histogram(&counts.service_ns, &mut figures.service_ns);
        }
    }
}

impl ClassFigures {
    /// All zero.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            received: 0,
            started: 0,
            answered: 0,
            panicked: 0,
            late: 0,
            refused: Refused::default(),
            cancelled: 0,
            queued: 0,
            queue_delay_ns: Histogram([0; BUCKETS]),
            service_ns: Histogram([0; BUCKETS]),
        }
    }
}

fn add(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

fn record(histogram: &[AtomicU64; BUCKETS], time: Duration) {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let bucket = (u64::BITS - nanos.leading_zeros()) as usize;
    add(&histogram[bucket.min(BUCKETS - 1)]);
}

fn add_histogram(from: &[AtomicU64; BUCKETS], to: &mut Histogram) {
    for (from, to) in from.iter().zip(&mut to.0) {
        *to += from.load(Ordering::Relaxed);
    }
}
