//! More calls than can be served: an open loop at 0.8, 1.2 and 2 times the measured capacity, with a handler of 1 ms.
//!
//! Through the same pool with three policies: order of arrival and strict order of deadlines, both with a bound by count and calls
//! dropped when their turn comes too late; and the default. Without sockets. The handler sleeps: it stands for a disk, and leaves the CPU to the
//! generator.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mqb_benches::{median, thread_cpu_ns};
use mqb_dispatcher::calls::{
    Admission, Answer, Bound, CallHeader, CallInfo, Class, ClassConfig, InboundCall, PoolConfig,
    Reply, ServeOrder, Service, ServicePool,
};
use mqb_dispatcher::{Clock, SystemClock};

use crate::stats::{Cost, Usage};

const HANDLER: Duration = Duration::from_millis(1);
const COUNT_BOUND: usize = 5000;
const CLASSES: [(&str, u64); 3] = [("20 ms", 20), ("200 ms", 200), ("2 s", 2000)];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Policy {
    Fifo,
    DeadlineCount,
    Ours,
}

impl Policy {
    pub(crate) const ALL: [Self; 3] = [Self::Fifo, Self::DeadlineCount, Self::Ours];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo, count bound",
            Self::DeadlineCount => "deadline order, count bound",
            Self::Ours => "ours",
        }
    }
}

#[derive(Default)]
struct Tally {
    sent: [AtomicU64; 3],
    in_time: [AtomicU64; 3],
    late: AtomicU64,
    answered: AtomicU64,
    // Ages of refused calls in ms.
    refusals: Mutex<Vec<f64>>,
}

#[derive(Clone)]
struct Route(Arc<Tally>);

impl Reply for Route {
    type Response = ();

    fn reply(self, call: CallInfo, answer: Answer<()>) {
        let now = SystemClock.now();
        match answer {
            Answer::Done(()) if call.is_late(now) => {
                self.0.late.fetch_add(1, Ordering::Relaxed);
            }
            Answer::Done(()) => {
                self.0.in_time[call.class.index()].fetch_add(1, Ordering::Relaxed);
            }
            Answer::Refused(_) | Answer::Failed => {
                let age = now.since(call.received).as_secs_f64() * 1000.0;
                self.0.refusals.lock().expect("no panic").push(age);
            }
        }
        self.0.answered.fetch_add(1, Ordering::Release);
    }
}

struct Sleep;

impl Service for Sleep {
    type Body = ();
    type Route = Route;

    fn handle(&self, call: InboundCall<(), Route>) {
        std::thread::sleep(HANDLER);
        call.respond(());
    }
}

fn pool(policy: Policy, workers: u16) -> ServicePool<Sleep> {
    let classes = CLASSES
        .iter()
        .map(|(name, _)| ClassConfig {
            name,
            ..ClassConfig::default()
        })
        .collect();
    let ours = PoolConfig {
        workers,
        classes,
        ..PoolConfig::default()
    };
    let config = match policy {
        Policy::Ours => ours,
        Policy::Fifo | Policy::DeadlineCount => PoolConfig {
            bound: Bound::Count(COUNT_BOUND),
            order: if policy == Policy::Fifo {
                ServeOrder::Arrival
            } else {
                ServeOrder::StrictDeadline
            },
            refuse_infeasible: false,
            shed_after: Duration::ZERO,
            ..ours
        },
    };
    ServicePool::start(config, Sleep).expect("workers")
}

fn header(class: usize, timeout_ms: u64) -> CallHeader {
    CallHeader {
        class: Class(class as u8),
        timeout: Some(Duration::from_millis(timeout_ms)),
        ..CallHeader::default()
    }
}

/// Calls per second when there is always something to do, but hardly a queue.
pub(crate) fn capacity(workers: u16) -> f64 {
    let pool = pool(Policy::Ours, workers);
    let (handle, tally) = (pool.handle(), Arc::new(Tally::default()));
    let mut sent = 0;
    let start = SystemClock.now();
    let end = start + Duration::from_secs(2);
    loop {
        let now = SystemClock.now();
        if now >= end {
            break;
        }
        while sent < tally.answered.load(Ordering::Acquire) + 8 * u64::from(workers) {
            sent += 1;
            handle.put(
                InboundCall::receive(&header(0, 0), (), Route(Arc::clone(&tally)), now),
                now,
            );
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let served: u64 = tally
        .in_time
        .iter()
        .map(|c| c.load(Ordering::Relaxed))
        .sum();
    let seconds = SystemClock.now().since(start).as_secs_f64();
    pool.stop(Duration::from_secs(5)).expect("nothing is stuck");
    served as f64 / seconds
}

pub(crate) struct Row {
    pub(crate) is_mixed: bool,
    pub(crate) load: f64,
    pub(crate) goodput: f64,
    pub(crate) late: u64,
    pub(crate) on_time: [f64; 3],
    pub(crate) refused: usize,
    pub(crate) refusal_age_ms: f64,
    pub(crate) cpu_us_per_served: f64,
}

pub(crate) fn run(policy: Policy, is_mixed: bool, load: f64, capacity: f64, workers: u16) -> Row {
    let pool = pool(policy, workers);
    let (handle, tally) = (pool.handle(), Arc::new(Tally::default()));
    let before = Usage::now();
    let gap = Duration::from_secs_f64(1.0 / (capacity * load));
    let start = SystemClock.now();
    // The first half second fills the queue and teaches the estimates; it is not counted.
    let (counted_from, end) = (
        start + Duration::from_millis(500),
        start + Duration::from_millis(2500),
    );
    let (mut due, mut number, mut tick) = (start, 0_usize, start);
    let mut served_before = [0; 3];
    let mut is_counting = false;
    loop {
        let now = SystemClock.now();
        if now >= end {
            break;
        }
        if !is_counting && now >= counted_from {
            is_counting = true;
            served_before = std::array::from_fn(|class| {
                tally.sent[class].store(0, Ordering::Relaxed);
                tally.in_time[class].load(Ordering::Relaxed)
            });
            tally.refusals.lock().expect("no panic").clear();
        }
        if now >= tick {
            handle.tick(now);
            tick = now + Duration::from_millis(2);
        }
        while due <= now {
            due = due + gap;
            number += 1;
            let class = match number.wrapping_mul(0x9e37_79b1) >> 7 & 15 {
                _ if !is_mixed => 0,
                0..8 => 0,
                8..13 => 1,
                _ => 2,
            };
            tally.sent[class].fetch_add(1, Ordering::Relaxed);
            let call = InboundCall::receive(
                &header(class, CLASSES[class].1),
                (),
                Route(Arc::clone(&tally)),
                now,
            );
            handle.put(call, now);
        }
        std::thread::sleep(due.since(SystemClock.now()));
    }
    let seconds = SystemClock.now().since(counted_from).as_secs_f64();
    let served: [u64; 3] =
        std::array::from_fn(|c| tally.in_time[c].load(Ordering::Relaxed) - served_before[c]);
    let sent: [u64; 3] = std::array::from_fn(|c| tally.sent[c].load(Ordering::Relaxed));
    let late = tally.late.load(Ordering::Relaxed);
    let all = served_before.iter().sum::<u64>() + served.iter().sum::<u64>() + late;
    let cost = Cost::between(before, Usage::now(), all);
    let mut ages = std::mem::take(&mut *tally.refusals.lock().expect("no panic"));
    // What waits is refused now, and not counted.
    pool.stop(Duration::from_secs(5)).expect("nothing is stuck");
    Row {
        is_mixed,
        load,
        goodput: served.iter().sum::<u64>() as f64 / seconds / capacity,
        late,
        on_time: std::array::from_fn(|class| match sent[class] {
            0 => f64::NAN,
            sent => served[class] as f64 / sent as f64,
        }),
        refused: ages.len(),
        refusal_age_ms: if ages.is_empty() {
            0.0
        } else {
            median(&mut ages)
        },
        cpu_us_per_served: cost.cpu_us(),
    }
}

/// CPU of a call that is refused on arrival, µs, on the thread that brings it: made, refused, answered.
pub(crate) fn refusal_us() -> f64 {
    const CALLS: u32 = 20_000;
    let pool = ServicePool::start(
        PoolConfig {
            workers: 1,
            bound: Bound::Count(1),
            refuse_infeasible: false,
            ..PoolConfig::default()
        },
        Wait,
    )
    .expect("a worker");
    let (handle, tally) = (pool.handle(), Arc::new(Tally::default()));
    tally
        .refusals
        .lock()
        .expect("no panic")
        .reserve(CALLS as usize * 32);
    let put = || {
        let now = SystemClock.now();
        handle.put(
            InboundCall::receive(&header(0, 60_000), (), Route(Arc::clone(&tally)), now),
            now,
        )
    };
    // One is in the handler, one waits; when the handler is slower than the round, all others are refused.
    let mut samples: Vec<_> = (0..9)
        .map(|_| {
            put();
            put();
            let start = thread_cpu_ns();
            let mut refused = 0;
            for _ in 0..CALLS {
                refused += u32::from(matches!(put(), Admission::Refused(_)));
            }
            assert!(
                refused > CALLS * 9 / 10,
                "{refused} of {CALLS} were refused"
            );
            (thread_cpu_ns() - start) as f64 / 1000.0 / f64::from(CALLS)
        })
        .collect();
    drop(pool);
    median(&mut samples)
}

struct Wait;

impl Service for Wait {
    type Body = ();
    type Route = Route;

    fn handle(&self, call: InboundCall<(), Route>) {
        std::thread::sleep(Duration::from_millis(50));
        call.respond(());
    }
}
