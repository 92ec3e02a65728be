//! The deadline rule alone: one push and one pop of the most urgent at a steady number of calls that wait, in thread CPU time.

use std::collections::{BinaryHeap, VecDeque};
use std::hint::black_box;

use mqb_benches::thread_cpu_ns;
use mqb_dispatcher::calls::{Entry, Eviction, LaneConfig, QueueConfig, ReadyQueue};

use crate::reference::{Cached, Call, Deadline, Ordered, Recomputed, ThreeFunctions};
use crate::stats::{Ratio, ratio};
use crate::wire::Request;

const TIMEOUTS_MS: [u32; 4] = [20, 200, 2_000, 10_000];
const OPERATIONS: usize = 20_000;

/// Nanoseconds per push and pop.
fn time(mut operation: impl FnMut(usize)) -> f64 {
    let start = thread_cpu_ns();
    for number in 0..OPERATIONS {
        operation(number);
    }
    (thread_cpu_ns() - start) as f64 / OPERATIONS as f64
}

/// A call that arrives at `number` times 50 µs.
fn call(number: usize) -> Box<Call> {
    let class = number.wrapping_mul(0x9e37_79b1) >> 7 & 3;
    let request = Request {
        timeout_ms: TIMEOUTS_MS[class],
        class: class as u32,
        ..Request::new(number as u32)
    };
    Call::new(request, number as u64 * 50_000, None)
}

/// The binary heap of boxed calls.
struct Heap<D>(BinaryHeap<Ordered<D>>);

impl<D: Deadline> Structure for Heap<D> {
    fn with(count: usize) -> Self {
        let mut heap = BinaryHeap::with_capacity(count + 1);
        heap.extend((0..count).map(|number| Ordered::new(call(number))));
        Self(heap)
    }

    /// The box that comes out goes in again with a new time: the allocator is not what is asked about.
    fn cycle(&mut self, number: usize, next: &mut Option<Box<Call>>) {
        let mut incoming = next.take().unwrap_or_else(|| call(number));
        incoming.renew(number as u64 * 50_000);
        self.0.push(Ordered::new(incoming));
        *next = self.0.pop().map(|ordered| ordered.0);
    }
}

/// Lanes of boxed calls, as the ready queue has them, but asking the call for its deadline at each comparison.
struct Lanes<D> {
    lanes: [VecDeque<Box<Call>>; 4],
    rule: std::marker::PhantomData<D>,
}

impl<D: Deadline> Lanes<D> {
    fn push(&mut self, call: Box<Call>) {
        let lane = &mut self.lanes[call.class()];
        match lane.back() {
            Some(last) if D::of(last) > D::of(&call) => {
                let at = lane.partition_point(|other| D::of(other) <= D::of(&call));
                lane.insert(at, call);
            }
            _ => lane.push_back(call),
        }
    }
}

impl<D: Deadline> Structure for Lanes<D> {
    fn with(count: usize) -> Self {
        let mut lanes = Self {
            lanes: std::array::from_fn(|_| VecDeque::with_capacity(count + 1)),
            rule: std::marker::PhantomData,
        };
        (0..count).for_each(|number| lanes.push(call(number)));
        lanes
    }

    fn cycle(&mut self, number: usize, next: &mut Option<Box<Call>>) {
        let mut incoming = next.take().unwrap_or_else(|| call(number));
        incoming.renew(number as u64 * 50_000);
        self.push(incoming);
        let lane = self
            .lanes
            .iter()
            .enumerate()
            .filter_map(|(lane, calls)| Some((D::of(calls.front()?), lane)))
            .min()
            .expect("one was pushed")
            .1;
        *next = self.lanes[lane].pop_front();
    }
}

pub(crate) struct Row {
    pub(crate) structure: &'static str,
    pub(crate) waiting: usize,
    pub(crate) cached_ns: f64,
    pub(crate) recomputed_ns: f64,
    pub(crate) ratio: Ratio,
}

fn alternate(
    structure: &'static str,
    waiting: usize,
    mut cached: impl FnMut() -> f64,
    mut recomputed: impl FnMut() -> f64,
) -> Row {
    cached();
    recomputed();
    let pairs: Vec<_> = (0..31).map(|_| (recomputed(), cached())).collect();
    let middle = |side: fn(&(f64, f64)) -> f64| {
        mqb_benches::median(&mut pairs.iter().map(side).collect::<Vec<_>>())
    };
    Row {
        structure,
        waiting,
        cached_ns: middle(|pair| pair.1),
        recomputed_ns: middle(|pair| pair.0),
        ratio: ratio(&pairs),
    }
}

trait Structure {
    fn with(count: usize) -> Self;
    fn cycle(&mut self, number: usize, next: &mut Option<Box<Call>>);
}

/// A structure that goes on where its last round ended.
struct Side<S> {
    structure: S,
    next: Option<Box<Call>>,
    at: usize,
}

impl<S: Structure> Side<S> {
    fn new(waiting: usize) -> Self {
        Self {
            structure: S::with(waiting),
            next: None,
            at: waiting,
        }
    }

    fn round(&mut self) -> f64 {
        let at = self.at;
        self.at += OPERATIONS;
        time(|number| self.structure.cycle(at + number, &mut self.next))
    }
}

fn compare<A: Structure, B: Structure>(structure: &'static str, waiting: usize) -> Row {
    let (mut cached, mut recomputed) = (Side::<A>::new(waiting), Side::<B>::new(waiting));
    alternate(structure, waiting, || cached.round(), || recomputed.round())
}

const HEAP: &str = "binary heap of boxed calls";
pub(crate) const LANES: &str = "lanes of boxed calls";

pub(crate) fn run() -> Vec<Row> {
    let mut rows = Vec::new();
    for waiting in [50, 200, 2000] {
        rows.push(compare::<Heap<Cached>, Heap<Recomputed>>(HEAP, waiting));
    }
    for waiting in [50, 200, 2000] {
        rows.push(compare::<Heap<Cached>, Heap<ThreeFunctions>>(
            "same, as Kudu: three functions",
            waiting,
        ));
    }
    for waiting in [50, 200, 2000] {
        rows.push(compare::<Lanes<Cached>, Lanes<Recomputed>>(LANES, waiting));
    }
    rows
}

/// The queue that ships, with its slots and notes, ns per push and pop.
pub(crate) fn ready_queue(waiting: usize) -> f64 {
    let lane = LaneConfig {
        weight: 1,
        is_evictable: true,
        capacity: waiting + 1,
    };
    let mut queue = ReadyQueue::new(&QueueConfig {
        lanes: vec![lane; 4],
        round_robin_every: 4,
        eviction: Eviction::LatestOfLargest,
    });
    let entry = |number: usize| {
        let call = call(number);
        Entry {
            order_ns: Cached::of(&call),
            class: call.class() as u8,
            chain: None,
        }
    };
    // The entries of a round are made before the clock starts.
    for number in 0..waiting {
        queue.push(entry(number), number);
    }
    let mut at = waiting;
    let mut samples: Vec<_> = (0..31)
        .map(|_| {
            let entries: Vec<_> = (at..at + OPERATIONS).map(entry).collect();
            at += OPERATIONS;
            time(|number| {
                queue.push(entries[number], number);
                black_box(queue.pop());
            })
        })
        .collect();
    mqb_benches::median(&mut samples)
}
