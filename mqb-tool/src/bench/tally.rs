//! What producers and consumers of one run have counted together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::clock::now_ns;
use super::{Mode, Plan};

/// One minute in microseconds; slower ones count as this.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// Latencies from a tenth of a microsecond, to three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(100, LATENCY_MAX_NS, 3).expect("the bounds are constants")
}

/// Adds a latency.
#[inline]
pub(crate) fn record(histogram: &mut Histogram<u64>, latency_ns: u64) {
    histogram.saturating_record(latency_ns.min(LATENCY_MAX_NS));
}

/// Counters are statistics of their own threads' work: relaxed order is enough, and the end of the run passes through a lock.
pub(crate) struct Tally {
    mode: Mode,
    target: u64,
    warmup: u64,
    pub(crate) posted: AtomicU64,
    pub(crate) acked: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) duplicates: AtomicU64,
    pub(crate) corrupt: AtomicU64,
    pub(crate) reordered: AtomicU64,
    /// Connections that consumers lost: what they had not confirmed came again.
    pub(crate) reconnects: AtomicU64,
    /// When the warm-up ended and how many messages were done then.
    pub(crate) warm_ns: AtomicU64,
    pub(crate) warm_done: AtomicU64,
    pub(crate) end_ns: AtomicU64,
    /// One bit per message of each producer.
    seen: Vec<Vec<AtomicU64>>,
    pub(crate) delivery: Mutex<Histogram<u64>>,
    pub(crate) acknowledgement: Mutex<Histogram<u64>>,
    finished: Mutex<bool>,
    changed: Condvar,
}

impl Tally {
    pub(crate) fn new(plan: &Plan) -> Tally {
        let bits = |messages: u64| {
            (0..messages.div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect()
        };
        Tally {
            mode: plan.args.mode,
            target: plan.args.messages,
            warmup: plan.warmup,
            posted: AtomicU64::new(0),
            acked: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            received: AtomicU64::new(0),
            duplicates: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
            reordered: AtomicU64::new(0),
            reconnects: AtomicU64::new(0),
            warm_ns: AtomicU64::new(0),
            warm_done: AtomicU64::new(0),
            end_ns: AtomicU64::new(0),
            seen: if plan.args.mode == Mode::Put {
                Vec::new()
            } else {
                (0..plan.args.producers)
                    .map(|p| bits(plan.share(p)))
                    .collect()
            },
            delivery: Mutex::new(histogram()),
            acknowledgement: Mutex::new(histogram()),
            finished: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// Messages that are done: received, or acknowledged if nobody receives.
    pub(crate) fn done(&self) -> u64 {
        match self.mode {
            Mode::Put => self.acked.load(Ordering::Relaxed) + self.refused.load(Ordering::Relaxed),
            Mode::Both | Mode::Get => self.received.load(Ordering::Relaxed),
        }
    }

    /// Marks a message as received; `None` if there is no such message, `false` if it was received before.
    #[inline]
    pub(crate) fn mark(&self, producer: u32, number: u64) -> Option<bool> {
        let word = self
            .seen
            .get(producer as usize)?
            .get(usize::try_from(number / 64).ok()?)?;
        let bit = 1 << (number % 64);
        Some(word.fetch_or(bit, Ordering::Relaxed) & bit == 0)
    }

    /// Counts received messages. `refused` ones will never come.
    pub(crate) fn add_received(&self, count: u64, now_ns: u64) {
        let before = self.received.fetch_add(count, Ordering::Relaxed);
        self.advance(before, before + count, now_ns);
    }

    pub(crate) fn add_acks(&self, acked: u64, refused: u64, now_ns: u64) {
        self.acked.fetch_add(acked, Ordering::Relaxed);
        self.refused.fetch_add(refused, Ordering::Relaxed);
        if self.mode == Mode::Put {
            let done = self.done();
            self.advance(done - acked - refused, done, now_ns);
        } else if refused > 0 {
            self.advance(0, self.done(), now_ns);
        }
    }

    fn advance(&self, before: u64, done: u64, now_ns: u64) {
        if before < self.warmup && done >= self.warmup {
            self.warm_done.store(done, Ordering::Relaxed);
            self.warm_ns.store(now_ns, Ordering::Relaxed);
        }
        let never = if self.mode == Mode::Put {
            0
        } else {
            self.refused.load(Ordering::Relaxed)
        };
        if done + never >= self.target {
            self.finish(now_ns);
        }
    }

    fn finish(&self, now_ns: u64) {
        let mut finished = self.finished.lock().expect("nothing panics under the lock");
        if !*finished {
            *finished = true;
            self.end_ns.store(now_ns, Ordering::Relaxed);
            self.changed.notify_all();
        }
    }

    /// Ends the run early: a producer cannot go on.
    pub(crate) fn give_up(&self) {
        self.finish(now_ns());
    }

    /// Waits for the end, at most that long.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let finished = self.finished.lock().expect("nothing panics under the lock");
        if *finished {
            true
        } else {
            *self
                .changed
                .wait_timeout(finished, timeout)
                .expect("nothing panics under the lock")
                .0
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        *self.finished.lock().expect("nothing panics under the lock")
    }

    /// Messages that were not received. Call at the end.
    pub(crate) fn missing(&self) -> u64 {
        if self.mode == Mode::Put {
            return 0;
        }
        let received: u64 = self
            .seen
            .iter()
            .flatten()
            .map(|word| u64::from(word.load(Ordering::Relaxed).count_ones()))
            .sum();
        self.target
            - received
            - self
                .refused
                .load(Ordering::Relaxed)
                .min(self.target - received)
    }

    pub(crate) fn describe(&self) -> String {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        format!(
            "{} posted, {} acknowledged, {} refused, {} received of {}",
            get(&self.posted),
            get(&self.acked),
            get(&self.refused),
            get(&self.received),
            self.target
        )
    }
}
