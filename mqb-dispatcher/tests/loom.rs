//! Models: every interleaving (up to a bound of preemptions) of the parts that threads share.
//!
//! ```sh
//! RUSTFLAGS="--cfg mqb_loom" LOOM_MAX_PREEMPTIONS=3 cargo test -p mqb-dispatcher --release --test loom
//! ```
//!
//! The types are the ones that ship, built on loom's atomics by `sync.rs`. A model that cannot fail proves nothing, so each shape has
//! its negative twin: the same hand-shake without the piece that makes it right, which loom must refute.
#![cfg(mqb_loom)]

use std::collections::VecDeque;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use mqb_dispatcher::gate::Gate;
use mqb_dispatcher::inbox::Inbox;
use mqb_dispatcher::slots::SlotAllocator;
use mqb_dispatcher::watermark::{Change, Level, Watermark};

/// An eventfd that the thread which makes it sleeps on: a write is remembered until the next wait. If it never comes, loom finds the
/// deadlock. When all is over it compares the writes with the sleeps.
///
/// The sleeper does not join the others: loom's `join` takes a late wake-up for the end of the thread. A model ends when all
/// threads have.
struct Eventfd {
    sleeper: thread::Thread,
    writes: AtomicUsize,
    sleeps: AtomicUsize,
}

impl Eventfd {
    fn new() -> Self {
        Self {
            sleeper: thread::current(),
            writes: AtomicUsize::new(0),
            sleeps: AtomicUsize::new(0),
        }
    }

    fn write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.sleeper.unpark();
    }

    fn wait(&self) {
        thread::park();
    }
}

impl Drop for Eventfd {
    fn drop(&mut self) {
        let (writes, sleeps) = (
            self.writes.load(Ordering::Relaxed),
            self.sleeps.load(Ordering::Relaxed),
        );
        assert!(writes <= sleeps, "more than one write per sleep");
    }
}

// ---- gate ----

/// `producers` bring one piece of work each; the sleeper wants them all. The queue is a counter, so that nothing but the gate orders.
fn gate(producers: usize, must_wake: fn(&Gate) -> bool) {
    let shared = Arc::new((Gate::new(), AtomicUsize::new(0), Eventfd::new()));
    for _ in 0..producers {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let (gate, work, eventfd) = &*shared;
            work.fetch_add(1, Ordering::Relaxed);
            if must_wake(gate) {
                eventfd.write();
            }
        });
    }
    let (gate, work, eventfd) = &*shared;
    let mut done = 0;
    while done < producers {
        eventfd.sleeps.fetch_add(1, Ordering::Relaxed);
        gate.announce();
        if work.load(Ordering::Relaxed) == done {
            eventfd.wait();
        }
        gate.awake();
        done = work.load(Ordering::Relaxed);
    }
}

#[test]
fn gate_loses_no_wake_up_of_one_producer() {
    loom::model(|| gate(1, Gate::must_wake));
}

#[test]
fn gate_loses_no_wake_up_of_two_producers() {
    loom::model(|| gate(2, Gate::must_wake));
}

#[test]
#[should_panic(expected = "deadlock")]
fn gate_without_the_producers_fence_loses_a_wake_up() {
    loom::model(|| gate(1, Gate::must_wake_unfenced));
}

// ---- shutdown ----

/// A producer against a processor that closes its inbox: every item is run or given back, once.
fn shutdown(close: fn(&Inbox<u32>) -> VecDeque<u32>) {
    let inbox = Arc::new(Inbox::new());
    let producer = {
        let inbox = Arc::clone(&inbox);
        thread::spawn(move || {
            let mut returned = usize::from(inbox.push(1).is_err());
            let mut batch = VecDeque::from([2, 3]);
            if !inbox.append(&mut batch) {
                returned += batch.len();
            }
            returned
        })
    };
    let mut run = VecDeque::new();
    inbox.take(&mut run);
    run.append(&mut close(&inbox));
    let returned = producer.join().unwrap();
    assert_eq!(
        run.len() + returned,
        3,
        "an event was neither run nor returned"
    );
    assert!(
        run.iter().copied().eq(1..=run.len() as u32),
        "the order was broken"
    );
}

#[test]
fn shutdown_runs_or_returns_every_item() {
    loom::model(|| shutdown(Inbox::close));
}

#[test]
#[should_panic(expected = "neither run nor returned")]
fn shutdown_that_only_takes_loses_items() {
    // The last look and the refusal must be one step.
    loom::model(|| {
        shutdown(|inbox| {
            let mut last = VecDeque::new();
            inbox.take(&mut last);
            last
        });
    });
}

// ---- an event source dropped while the processor goes away, and a sleeper that must hear of the exit ----

#[test]
fn an_order_to_exit_wakes_the_sleeper() {
    loom::model(|| {
        let shared = Arc::new((Gate::new(), AtomicBool::new(false), Eventfd::new()));
        let stopper = Arc::clone(&shared);
        thread::spawn(move || {
            let (gate, exit, eventfd) = &*stopper;
            exit.store(true, Ordering::Release);
            if gate.must_wake() {
                eventfd.write();
            }
        });
        let (gate, exit, eventfd) = &*shared;
        while !exit.load(Ordering::Acquire) {
            eventfd.sleeps.fetch_add(1, Ordering::Relaxed);
            gate.announce();
            if !exit.load(Ordering::Relaxed) {
                eventfd.wait();
            }
            gate.awake();
        }
    });
}

#[test]
fn a_source_that_is_dropped_delivers_or_returns_what_it_held() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new());
        let source = {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || {
                let mut pending = VecDeque::from([1, 2]);
                if inbox.append(&mut pending) {
                    0
                } else {
                    pending.len()
                }
            })
        };
        let mut run: VecDeque<u32> = VecDeque::new();
        if !inbox.is_empty() {
            inbox.take(&mut run);
        }
        run.append(&mut inbox.close());
        assert_eq!(run.len() + source.join().unwrap(), 2);
    });
}

// ---- slots ----

#[test]
fn slot_reuse_never_delivers_to_the_next_tenant() {
    loom::model(|| {
        let shared = Arc::new((SlotAllocator::new(1), Inbox::new()));
        let old = shared.0.reserve_raw().unwrap();
        // Holds a handle of the first tenant and posts by it, whenever.
        let poster = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.1.push(old).unwrap())
        };
        // Registers a client as soon as the slot is free.
        let registrar = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let next = shared.0.reserve_raw();
                if let Some(next) = next {
                    shared.1.push(next).unwrap();
                }
                next
            })
        };
        // The processor drops the first tenant, then sees what comes.
        let mut tenant = Some(old);
        let mut seen = VecDeque::new();
        shared.1.take(&mut seen);
        let early = seen.len();
        tenant.take();
        shared.0.release_raw(old);
        poster.join().unwrap();
        let next = registrar.join().unwrap();
        let mut late = VecDeque::new();
        shared.1.take(&mut late);
        assert!(early <= 1, "the slot cannot be taken before it is released");
        if let Some(next) = next {
            assert_eq!(next.0, old.0, "there is one slot");
            assert_ne!(next.1, old.1, "but another generation");
            let for_next = late.iter().filter(|address| **address == next).count();
            assert_eq!(
                for_next, 1,
                "what the old handle posted is not for the new tenant"
            );
        }
    });
}

#[test]
fn two_registrars_never_get_the_same_slot() {
    loom::model(|| {
        let slots = Arc::new(SlotAllocator::new(4));
        let first = slots.reserve_raw().unwrap();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let slots = Arc::clone(&slots);
                thread::spawn(move || slots.reserve_raw().unwrap())
            })
            .collect();
        slots.release_raw(first);
        let got: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        assert_ne!(got[0].0, got[1].0);
    });
}

// ---- watermarks ----

/// A producer fills beyond the high mark while the consumer drains; afterwards the level must be normal and somebody told of it, if
/// somebody was told of the rise.
fn watermark(mark: fn(&Watermark, usize) -> Change) {
    let shared = Arc::new((Watermark::new(0, 2, 8), Inbox::new(), AtomicUsize::new(0)));
    let producer = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let (watermark, inbox, announced) = &*shared;
            let depth = watermark.enter(2);
            assert!(inbox.append(&mut VecDeque::from([1, 2])));
            if mark(watermark, depth) == Change::Announce {
                announced.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let (watermark, inbox, announced) = &*shared;
    let mut drained = 0;
    while drained < 2 {
        let mut batch = VecDeque::new();
        inbox.take(&mut batch);
        if batch.is_empty() {
            thread::yield_now();
            continue;
        }
        drained += batch.len();
        if watermark.leave(batch.len()) == Change::Announce {
            announced.fetch_add(1, Ordering::Relaxed);
        }
    }
    producer.join().unwrap();
    assert_eq!(watermark.depth(), 0);
    assert_eq!(
        watermark.level(),
        Level::Normal,
        "the level stayed high over an empty queue"
    );
}

#[test]
fn watermark_never_stays_high_over_a_drained_queue() {
    loom::model(|| watermark(Watermark::after_enter));
}

#[test]
#[should_panic(expected = "stayed high")]
fn watermark_without_the_producers_second_look_stays_high() {
    loom::model(|| watermark(Watermark::after_enter_unchecked));
}

/// A client that stopped reading at the high mark sleeps until it hears that it may go on.
#[test]
fn watermark_resume_reaches_a_sleeping_subscriber() {
    loom::model(|| {
        let shared = Arc::new((
            Watermark::new(0, 1, 8),
            Gate::new(),
            Eventfd::new(),
            AtomicUsize::new(0),
        ));
        let (watermark, gate, eventfd, epoch) = &*shared;
        let depth = watermark.enter(1);
        assert_eq!(watermark.after_enter(depth), Change::Announce);
        let consumer = Arc::clone(&shared);
        thread::spawn(move || {
            let (watermark, gate, eventfd, epoch) = &*consumer;
            if watermark.leave(1) == Change::Announce {
                // As `Group::announce_pressure`.
                epoch.fetch_add(1, Ordering::Release);
                if gate.must_wake() {
                    eventfd.write();
                }
            }
        });
        let mut seen = 0;
        loop {
            let now = epoch.load(Ordering::Acquire);
            if now != seen {
                seen = now;
                if watermark.level() == Level::Normal {
                    break;
                }
            }
            eventfd.sleeps.fetch_add(1, Ordering::Relaxed);
            gate.announce();
            if epoch.load(Ordering::Acquire) == seen {
                eventfd.wait();
            }
            gate.awake();
        }
    });
}
