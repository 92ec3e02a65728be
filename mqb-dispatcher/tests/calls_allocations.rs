//! A call in the steady state allocates nothing: neither the thread that brings it, nor the lock's holder, nor the worker.
#![cfg(not(mqb_loom))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use mqb_dispatcher::calls::{
    Answer, CallHeader, CallInfo, Class, ClassConfig, Frame, InboundCall, OnOverload, OrderKey,
    PoolConfig, Reply, Service, ServicePool,
};
use mqb_dispatcher::{Clock, SystemClock};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: as `System`; the counter does not allocate.
#[expect(unsafe_code, reason = "counts what the system allocator is asked for")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

/// Counts answers and says when the expected number is there.
#[derive(Clone)]
struct Route(Arc<Tally>);

struct Tally {
    answered: AtomicU64,
    expected: AtomicU64,
    done: Barrier,
}

impl Reply for Route {
    type Response = usize;

    fn reply(self, _call: CallInfo, _answer: Answer<usize>) {
        let answered = self.0.answered.fetch_add(1, Ordering::AcqRel) + 1;
        if answered == self.0.expected.load(Ordering::Acquire) {
            self.0.done.wait();
        }
    }
}

struct Length;

impl Service for Length {
    type Body = Frame;
    type Route = Route;

    fn handle(&self, call: InboundCall<Frame, Route>) {
        let length = call.body().len();
        call.respond(length);
    }
}

// The only test in this binary: whatever else ran in it would be counted too.
#[test]
fn nothing_is_allocated_per_call() {
    let classes = vec![
        ClassConfig {
            may_block: false,
            ..ClassConfig::default()
        },
        ClassConfig {
            on_overload: OnOverload::Wait,
            reserve: 4096,
            ..ClassConfig::default()
        },
    ];
    let pool = ServicePool::start(
        PoolConfig {
            workers: 2,
            classes,
            ..PoolConfig::default()
        },
        Length,
    )
    .expect("a pool");
    let tally = Arc::new(Tally {
        answered: AtomicU64::new(0),
        expected: AtomicU64::new(0),
        done: Barrier::new(2),
    });
    let (handle, buffer) = (pool.handle(), Arc::new(vec![7_u8; 4096]));
    let burst = |calls: u64| {
        tally.expected.fetch_add(calls, Ordering::AcqRel);
        for number in 0..calls as u32 {
            let header = CallHeader {
                session: u64::from(number % 16),
                request: number,
                class: Class((number % 2) as u8),
                order: if number % 5 == 0 {
                    OrderKey::of(u64::from(number % 3))
                } else {
                    OrderKey::NONE
                },
                timeout: Some(Duration::from_millis(u64::from(20 + number % 7))),
            };
            let body = Frame::new(Arc::clone(&buffer), number % 4000, 64).expect("within");
            let now = SystemClock.now();
            let call = InboundCall::receive(&header, body, Route(Arc::clone(&tally)), now);
            handle.put(call, now);
        }
        tally.done.wait();
    };
    // Warm: rings, slots and threads have what they need.
    burst(2000);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..10 {
        burst(2000);
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert_eq!(allocations, 0, "in 20 000 calls");
    pool.stop(Duration::from_secs(20))
        .expect("nothing is stuck");
}
