//! Models of the hand-off: every interleaving of a few threads, on the code that ships.
//!
//! `RUSTFLAGS="--cfg mqb_loom" cargo test -p mqb-dispatcher --test loom_calls --release`
#![cfg(mqb_loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use mqb_dispatcher::calls::{
    Admission, Answer, CallHeader, CallInfo, Class, ClassConfig, Delivery, Exchange, InboundCall,
    OnOverload, PoolConfig, Refusal, Reply, Slot, Turn,
};
use mqb_dispatcher::{Monotonic, TestClock};

/// Counts the answers of each kind.
#[derive(Clone)]
struct Route(Arc<[AtomicU32; 3]>);

impl Route {
    fn new() -> Self {
        Self(Arc::new([
            AtomicU32::new(0),
            AtomicU32::new(0),
            AtomicU32::new(0),
        ]))
    }

    fn count(&self, kind: usize) -> u32 {
        self.0[kind].load(Ordering::SeqCst)
    }
}

impl Reply for Route {
    type Response = ();

    fn reply(self, _call: CallInfo, answer: Answer<()>) {
        let kind = match answer {
            Answer::Done(()) => 0,
            Answer::Refused(Refusal::ShuttingDown) => 1,
            _ => 2,
        };
        self.0[kind].fetch_add(1, Ordering::SeqCst);
    }
}

fn call(route: &Route, class: u8) -> InboundCall<(), Route> {
    let header = CallHeader {
        class: Class(class),
        ..CallHeader::default()
    };
    InboundCall::receive(&header, (), route.clone(), Monotonic::ZERO)
}

fn exchange(workers: u16, may_block: bool) -> Arc<Exchange<(), Route>> {
    let class = ClassConfig {
        may_block,
        reserve: 4,
        on_overload: OnOverload::Wait,
        ..ClassConfig::default()
    };
    let always = ClassConfig {
        on_overload: OnOverload::Run,
        ..class
    };
    let config = PoolConfig {
        workers,
        classes: vec![class, always],
        // So that a working one is always thought to come back sooner than a sleeping one.
        wake_latency: std::time::Duration::from_secs(1),
        bound: mqb_dispatcher::calls::Bound::Count(4),
        batch_max: 1,
        ..PoolConfig::default()
    };
    Arc::new(Exchange::new(config).expect("a sensible configuration"))
}

/// A worker as the pool has it.
fn work(exchange: &Exchange<(), Route>, index: u16) {
    let clock = TestClock::new();
    let mut worker = exchange.attach(index);
    loop {
        match exchange.take(&mut worker, Monotonic::ZERO) {
            Turn::Stop => return,
            Turn::Run => {}
            Turn::Wait => exchange.wait(&mut worker),
        }
        worker.run(exchange, &clock, Monotonic::ZERO, |call| call.respond(()));
    }
}

#[test]
fn a_slot_delivers_and_never_loses_the_wake_up() {
    loom::model(|| {
        let slot = Arc::new(Slot::new());
        let consumer = {
            let slot = Arc::clone(&slot);
            slot.attach();
            move || slot.wait(0)
        };
        let producer = thread::spawn(move || slot.post(Delivery::Item(7)));
        assert_eq!(consumer(), Delivery::Item(7));
        producer.join().expect("no panic");
    });
}

/// The slot with the producer's swap taken apart: between its look and its store the consumer falls asleep for ever.
#[test]
#[should_panic(expected = "deadlock")]
fn a_slot_without_the_swap_loses_the_wake_up() {
    loom::model(|| {
        let word = Arc::new(AtomicU32::new(0));
        let consumer = thread::current();
        let posted = Arc::clone(&word);
        let producer = thread::spawn(move || {
            let is_parked = posted.load(Ordering::Acquire) == 2;
            posted.store(1, Ordering::Release);
            if is_parked {
                consumer.unpark();
            }
        });
        if word
            .compare_exchange(0, 2, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            while word.load(Ordering::Acquire) != 1 {
                thread::park();
            }
        }
        producer.join().expect("no panic");
    });
}

fn bounded(f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(f);
}

/// A worker that goes to sleep while a call comes: it is handed over, or queued and found.
#[test]
fn a_call_that_meets_a_worker_on_its_way_to_sleep_is_served() {
    for may_block in [false, true] {
        bounded(move || {
            let exchange = exchange(1, may_block);
            let route = Route::new();
            let worker = {
                let exchange = Arc::clone(&exchange);
                thread::spawn(move || work(&exchange, 0))
            };
            let answers = [0, 0].map(|class| exchange.put(call(&route, class), Monotonic::ZERO));
            // Those of the class that always runs are served in the shutdown too; so nothing here depends on when it comes.
            exchange.put(call(&route, 1), Monotonic::ZERO);
            exchange.close();
            worker.join().expect("no panic");
            assert!(!answers.iter().any(|a| matches!(a, Admission::Refused(_))));
            assert_eq!(route.count(0) + route.count(1), 3);
            assert!(route.count(0) >= 1, "the last is always run");
            assert_eq!(route.count(2), 0);
        });
    }
}

/// Nobody closes until all calls are served: if one were left with only sleepers to see it, this would never end.
#[test]
fn no_call_is_left_with_sleepers_only() {
    for may_block in [false, true] {
        bounded(move || {
            let exchange = exchange(2, may_block);
            let route = Route::new();
            let workers = [0, 1].map(|index| {
                let (exchange, route) = (Arc::clone(&exchange), route.clone());
                thread::spawn(move || {
                    let clock = TestClock::new();
                    let mut worker = exchange.attach(index);
                    loop {
                        match exchange.take(&mut worker, Monotonic::ZERO) {
                            Turn::Stop => return,
                            Turn::Run => {}
                            Turn::Wait => exchange.wait(&mut worker),
                        }
                        worker.run(&exchange, &clock, Monotonic::ZERO, |call| {
                            call.respond(());
                            // Whoever answers the last call ends the model.
                            if route.count(0) == 2 {
                                exchange.close();
                            }
                        });
                    }
                })
            });
            for _ in 0..2 {
                exchange.put(call(&route, 0), Monotonic::ZERO);
            }
            for worker in workers {
                worker.join().expect("no panic");
            }
            assert_eq!(route.count(0), 2);
        });
    }
}

/// Twin of the above: a worker that looks at the queue and goes on the stack in two critical sections sleeps on a call.
#[test]
#[should_panic(expected = "sleeps on a call")]
fn a_worker_that_looks_and_then_lies_down_sleeps_on_a_call() {
    loom::model(|| {
        // Calls that wait, and whether the worker is on the idle stack.
        let state = Arc::new(loom::sync::Mutex::new((0_u32, false)));
        let shared = Arc::clone(&state);
        let producer = thread::spawn(move || {
            let mut state = shared.lock().expect("no panic");
            state.0 += 1;
            // Whoever is on the stack is taken off it and woken.
            state.1 = false;
        });
        let waiting = state.lock().expect("no panic").0;
        if waiting == 0 {
            state.lock().expect("no panic").1 = true;
        }
        producer.join().expect("no panic");
        let is_asleep = state.lock().expect("no panic").1;
        assert!(!is_asleep, "sleeps on a call");
    });
}

/// A call that comes while the exchange closes is answered once, whatever happens first.
#[test]
fn closing_answers_everything_once() {
    bounded(|| {
        let exchange = exchange(1, true);
        let route = Route::new();
        let worker = {
            let exchange = Arc::clone(&exchange);
            thread::spawn(move || work(&exchange, 0))
        };
        let putter = {
            let (exchange, route) = (Arc::clone(&exchange), route.clone());
            thread::spawn(move || {
                for class in [0, 1] {
                    exchange.put(call(&route, class), Monotonic::ZERO);
                }
            })
        };
        exchange.close();
        putter.join().expect("no panic");
        worker.join().expect("no panic");
        assert_eq!(route.count(0) + route.count(1), 2);
        assert_eq!(route.count(2), 0);
    });
}
