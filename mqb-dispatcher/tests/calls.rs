//! The service pool and the exchange under it: who is served, who is refused and why, and that everybody is answered once.
#![cfg(not(mqb_loom))]

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use mqb_dispatcher::calls::{
    Admission, Answer, Bound, CallHeader, CallInfo, Class, ClassConfig, Exchange, Frame,
    InboundCall, OnOverload, OrderKey, PoolConfig, PostTo, Refusal, Reply, ServeOrder, Service,
    ServicePool, Turn, Worker,
};
use mqb_dispatcher::{
    Client, ClientCore, ClientKind, Clock, Cx, Dispatcher, DispatcherConfig, Handle, Hooks,
    Monotonic, Placement, SystemClock, TestClock,
};

const LONG: Duration = Duration::from_secs(20);
const MS: u64 = 1_000_000;

#[derive(Clone, Debug)]
struct Route(Sender<(u32, Answer<u32>)>);

impl Reply for Route {
    type Response = u32;

    fn reply(self, call: CallInfo, answer: Answer<u32>) {
        // Only fails for calls that are left over when a test is done.
        let _ = self.0.send((call.request, answer));
    }
}

type Call = InboundCall<u32, Route>;

fn at_ms(ms: u64) -> Monotonic {
    Monotonic::from_nanos(ms * MS)
}

/// Brings calls with numbers as body, and hears the answers.
struct Caller {
    route: Route,
    answers: Receiver<(u32, Answer<u32>)>,
    next: u32,
}

impl Caller {
    fn new() -> Self {
        let (route, answers) = channel();
        Self {
            route: Route(route),
            answers,
            next: 0,
        }
    }

    fn call(&mut self, header: CallHeader, now: Monotonic) -> Call {
        self.next += 1;
        let header = CallHeader {
            request: self.next,
            ..header
        };
        InboundCall::receive(&header, self.next, self.route.clone(), now)
    }

    fn next_answer(&self) -> (u32, Answer<u32>) {
        self.answers.recv_timeout(LONG).expect("an answer comes")
    }

    fn answers_so_far(&self) -> Vec<(u32, Answer<u32>)> {
        self.answers.try_iter().collect()
    }
}

fn timeout(ms: u64) -> CallHeader {
    CallHeader {
        timeout: Some(Duration::from_millis(ms)),
        ..CallHeader::default()
    }
}

fn class(name: &'static str, on_overload: OnOverload) -> ClassConfig {
    ClassConfig {
        name,
        on_overload,
        may_block: false,
        ..ClassConfig::default()
    }
}

fn config(classes: Vec<ClassConfig>) -> PoolConfig {
    PoolConfig {
        workers: 1,
        classes,
        ..PoolConfig::default()
    }
}

fn one_class() -> Vec<ClassConfig> {
    vec![class("only", OnOverload::Refuse)]
}

/// An exchange whose one worker is this thread: nothing runs unless told to.
struct Bench {
    exchange: Exchange<u32, Route>,
    worker: Worker<u32, Route>,
    clock: TestClock,
    ran: Vec<u32>,
    last: Turn,
}

impl Bench {
    fn new(config: PoolConfig) -> Self {
        let exchange = Exchange::new(config).expect("a sensible configuration");
        Self {
            worker: exchange.attach(0),
            exchange,
            clock: TestClock::new(),
            ran: Vec::new(),
            last: Turn::Run,
        }
    }

    fn put(&self, call: Call) -> Admission {
        self.exchange.put(call, self.clock.now())
    }

    /// One turn of the worker, in which each handler takes `service`; false if there was nothing to do.
    fn turn(&mut self, service: Duration) -> bool {
        let now = self.clock.now();
        self.last = self.exchange.take(&mut self.worker, now);
        if self.last != Turn::Run {
            return false;
        }
        let (clock, ran) = (&self.clock, &mut self.ran);
        self.worker.run(&self.exchange, clock, now, |call| {
            clock.advance(service);
            ran.push(*call.body());
            let number = *call.body();
            call.respond(number);
        });
        true
    }
}

#[test]
fn the_earliest_deadline_is_served_first_and_equals_in_order_of_arrival() {
    let mut bench = Bench::new(PoolConfig {
        order: ServeOrder::StrictDeadline,
        ..config(one_class())
    });
    let mut caller = Caller::new();
    for ms in [500, 300, 0, 400, 300, 0, 200] {
        let call = caller.call(timeout(ms), bench.clock.now());
        assert_eq!(bench.put(call), Admission::Queued);
    }
    while bench.turn(Duration::ZERO) {}
    assert_eq!(bench.ran, [7, 2, 5, 4, 1, 3, 6], "no timeout comes last");
}

#[test]
fn long_deadlines_get_their_share_when_short_ones_never_end() {
    let classes = vec![
        class("short", OnOverload::Refuse),
        class("long", OnOverload::Refuse),
    ];
    let mut bench = Bench::new(PoolConfig {
        bound: Bound::Count(1000),
        ..config(classes)
    });
    let mut caller = Caller::new();
    let mut put = |bench: &Bench, class: u8, ms: u64| {
        let header = CallHeader {
            class: Class(class),
            ..timeout(ms)
        };
        let call = caller.call(header, bench.clock.now());
        bench.put(call);
    };
    for _ in 0..8 {
        put(&bench, 1, 10_000);
    }
    for _ in 0..64 {
        put(&bench, 0, 1000);
    }
    for _ in 0..32 {
        put(&bench, 0, 1000);
        bench.turn(Duration::from_micros(60));
    }
    let long = bench.ran.iter().filter(|number| **number <= 8).count();
    assert_eq!(long, 4, "every eighth: each fourth turn, of two classes");
}

#[test]
fn a_full_queue_evicts_exactly_the_latest() {
    let mut bench = Bench::new(PoolConfig {
        bound: Bound::Count(3),
        order: ServeOrder::StrictDeadline,
        ..config(one_class())
    });
    let mut caller = Caller::new();
    for ms in [300, 500, 400] {
        let call = caller.call(timeout(ms), bench.clock.now());
        assert_eq!(bench.put(call), Admission::Queued);
    }
    let urgent = caller.call(timeout(100), bench.clock.now());
    assert_eq!(bench.put(urgent), Admission::Queued);
    let answers = caller.answers_so_far();
    assert!(
        matches!(answers[..], [(2, Answer::Refused(Refusal::Evicted { retry_after }))]
            if retry_after >= Duration::from_micros(500)),
        "{answers:?}"
    );
    let lax = caller.call(timeout(400), bench.clock.now());
    assert!(
        matches!(
            bench.put(lax),
            Admission::Refused(Refusal::Overloaded { .. })
        ),
        "an equal one that came first stays"
    );
    while bench.turn(Duration::ZERO) {}
    assert_eq!(bench.ran, [4, 1, 3]);
    let figures = bench.exchange.figures();
    assert_eq!(figures.classes[0].received, 5);
    assert_eq!(figures.classes[0].refused.evicted, 1);
    assert_eq!(figures.classes[0].refused.overloaded, 1);
    assert_eq!(figures.classes[0].answered, 3);
}

#[test]
fn who_gives_way_is_the_class_furthest_above_its_share() {
    let classes = vec![
        class("many", OnOverload::Refuse),
        class("few", OnOverload::Refuse),
    ];
    let mut bench = Bench::new(PoolConfig {
        bound: Bound::Count(4),
        ..config(classes)
    });
    let mut caller = Caller::new();
    let mut put = |bench: &Bench, class: u8, ms: u64| {
        let header = CallHeader {
            class: Class(class),
            ..timeout(ms)
        };
        let call = caller.call(header, bench.clock.now());
        bench.put(call)
    };
    for ms in [100, 300, 200, 100] {
        assert_eq!(put(&bench, 0, ms), Admission::Queued);
    }
    assert_eq!(put(&bench, 1, 9000), Admission::Queued, "evicts number 2");
    assert_eq!(put(&bench, 1, 9000), Admission::Queued, "evicts number 3");
    assert!(matches!(put(&bench, 1, 9000), Admission::Refused(_)));
    while bench.turn(Duration::ZERO) {}
    bench.ran.sort_unstable();
    assert_eq!(bench.ran, [1, 4, 5, 6]);
}

#[test]
fn expired_calls_are_answered_in_one_sweep_and_never_run() {
    let mut bench = Bench::new(config(one_class()));
    let mut caller = Caller::new();
    for _ in 0..12 {
        let call = caller.call(timeout(10), bench.clock.now());
        bench.put(call);
    }
    let call = caller.call(timeout(10_000), bench.clock.now());
    bench.put(call);
    bench.clock.advance(Duration::from_millis(10));
    assert!(bench.turn(Duration::ZERO));
    assert_eq!(bench.ran, [13], "one look at the queue was enough");
    let answers = caller.answers_so_far();
    let expired = |(_, answer): &&(u32, Answer<u32>)| *answer == Answer::Refused(Refusal::Expired);
    assert_eq!(answers.iter().filter(expired).count(), 12);
    let late = caller.call(timeout(5), at_ms(0));
    assert_eq!(bench.put(late), Admission::Refused(Refusal::Expired));
    assert_eq!(bench.exchange.figures().classes[0].refused.expired, 13);
}

#[test]
fn a_tick_answers_what_expires_while_the_workers_are_busy() {
    let bench = Bench::new(config(one_class()));
    let mut caller = Caller::new();
    for ms in [10, 20] {
        let header = CallHeader {
            session: 1,
            order: OrderKey::of(5),
            ..timeout(ms)
        };
        let call = caller.call(header, bench.clock.now());
        bench.put(call);
    }
    bench.exchange.tick(at_ms(9));
    assert!(caller.answers_so_far().is_empty());
    bench.exchange.tick(at_ms(20));
    assert_eq!(caller.answers_so_far().len(), 2);
}

#[test]
fn what_cannot_be_done_in_time_is_refused_on_arrival() {
    let mut bench = Bench::new(config(one_class()));
    let mut caller = Caller::new();
    // Learns that a call takes 1 ms.
    for _ in 0..300 {
        let call = caller.call(timeout(0), bench.clock.now());
        bench.put(call);
        bench.turn(Duration::from_millis(1));
    }
    for _ in 0..10 {
        let call = caller.call(timeout(1000), bench.clock.now());
        assert_eq!(bench.put(call), Admission::Queued);
    }
    let call = caller.call(timeout(500), bench.clock.now());
    assert_eq!(bench.put(call), Admission::Queued, "it would be the first");
    let now = bench.clock.now();
    let late = caller.call(timeout(1), now);
    let Admission::Refused(why @ Refusal::Overloaded { .. }) = bench.put(late) else {
        panic!("1 ms is not enough for a call of 1 ms, however urgent");
    };
    assert!(why.is_retriable() && why.to_string().starts_with("not started"));
    let classes = bench.exchange.figures();
    assert!(classes.service_mean.as_micros().abs_diff(1000) < 50);
    assert_eq!(classes.limit, 16, "5 ms of 1 ms calls is below the minimum");
}

#[test]
fn a_standing_queue_is_shed_and_a_class_that_waits_is_not() {
    let classes = vec![
        class("retries", OnOverload::Refuse),
        class("waits", OnOverload::Wait),
    ];
    let mut bench = Bench::new(PoolConfig {
        bound: Bound::Time {
            target: Duration::from_millis(5),
            min: 200,
            max: 200,
        },
        order: ServeOrder::StrictDeadline,
        ..config(classes)
    });
    let mut caller = Caller::new();
    let mut put = |bench: &Bench, class: u8| {
        let header = CallHeader {
            class: Class(class),
            ..timeout(60_000)
        };
        let call = caller.call(header, bench.clock.now());
        bench.put(call)
    };
    for step in 0..800 {
        // Two calls arrive in the time of one.
        put(&bench, 0);
        if step % 2 == 0 {
            put(&bench, 1);
        }
        bench.turn(Duration::from_millis(1));
    }
    let figures = bench.exchange.figures();
    assert!(figures.is_standing);
    assert!(figures.classes[0].refused.overloaded > 100, "{figures:?}");
    assert_eq!(figures.classes[1].refused.total(), 0);
    while bench.turn(Duration::ZERO) {}
    assert_eq!(bench.exchange.figures().classes[1].answered, 400);
}

#[test]
fn calls_with_the_same_key_run_in_order_and_one_at_a_time() {
    let exchange: Exchange<u32, Route> = Exchange::new(PoolConfig {
        workers: 2,
        ..config(one_class())
    })
    .expect("a sensible configuration");
    let (mut first, mut second) = (exchange.attach(0), exchange.attach(1));
    let (clock, mut caller) = (TestClock::new(), Caller::new());
    let mut put = |session: u64, key: OrderKey, ms: u64| {
        let header = CallHeader {
            session,
            order: key,
            ..timeout(ms)
        };
        exchange.put(caller.call(header, clock.now()), clock.now())
    };
    // The later ones are more urgent, and still have to wait.
    put(1, OrderKey::of(7), 900);
    put(1, OrderKey::of(7), 800);
    put(1, OrderKey::of(7), 700);
    put(2, OrderKey::of(7), 1000);
    let take = |worker: &mut Worker<u32, Route>| {
        let mut ran = Vec::new();
        match exchange.take(worker, clock.now()) {
            Turn::Run => worker.run(&exchange, &clock, clock.now(), |call| {
                ran.push(*call.body());
                call.respond(0);
            }),
            _ => Monotonic::ZERO,
        };
        ran
    };
    // The first worker has run number 1, but not come back to say so: for all that is known it still runs.
    assert_eq!(take(&mut first), [1]);
    assert_eq!(take(&mut second), [4], "another session does not wait");
    assert_eq!(take(&mut first), [2]);
    assert_eq!(take(&mut first), [3]);
}

#[test]
fn a_session_that_goes_takes_its_queued_calls_with_it() {
    let mut bench = Bench::new(config(one_class()));
    let mut caller = Caller::new();
    for session in [1, 2, 1, 2, 1] {
        let header = CallHeader {
            session,
            order: OrderKey::of(3),
            ..timeout(1000)
        };
        let call = caller.call(header, bench.clock.now());
        bench.put(call);
    }
    assert_eq!(bench.exchange.cancel_session(1), 3);
    while bench.turn(Duration::ZERO) {}
    assert_eq!(bench.ran, [2, 4]);
    assert_eq!(caller.answers_so_far().len(), 2, "the others find nobody");
    assert_eq!(bench.exchange.figures().classes[0].cancelled, 3);
}

#[test]
fn closing_answers_what_waits_and_runs_what_always_runs() {
    let classes = vec![
        class("open", OnOverload::Wait),
        class("close", OnOverload::Run),
    ];
    let mut bench = Bench::new(config(classes));
    let mut caller = Caller::new();
    let mut put = |bench: &Bench, class: u8, ms| {
        let header = CallHeader {
            class: Class(class),
            ..timeout(ms)
        };
        let call = caller.call(header, bench.clock.now());
        bench.put(call)
    };
    put(&bench, 0, 1000);
    put(&bench, 1, 1);
    put(&bench, 0, 1000);
    bench.exchange.close();
    assert_eq!(
        put(&bench, 0, 1000),
        Admission::Refused(Refusal::ShuttingDown)
    );
    bench.clock.advance(Duration::from_millis(5));
    while bench.turn(Duration::ZERO) {}
    assert_eq!(bench.ran, [2], "late, in a shutdown, and run all the same");
    let answers: HashMap<_, _> = caller.answers_so_far().into_iter().collect();
    for request in [1, 3, 4] {
        assert_eq!(
            answers[&request],
            Answer::Refused(Refusal::ShuttingDown),
            "request {request}"
        );
    }
    assert_eq!(bench.last, Turn::Stop);
}

#[test]
fn a_worker_that_may_sleep_does_not_keep_others_asleep() {
    // Both workers are idle. The first call goes to one of them; for the second it depends on whether that one may sleep.
    for may_block in [false, true] {
        let exchange: Exchange<u32, Route> = Exchange::new(PoolConfig {
            workers: 2,
            wake_latency: LONG,
            classes: vec![ClassConfig {
                may_block,
                ..ClassConfig::default()
            }],
            ..PoolConfig::default()
        })
        .expect("a sensible configuration");
        let (clock, mut caller) = (TestClock::new(), Caller::new());
        let mut workers = [exchange.attach(0), exchange.attach(1)];
        for worker in &mut workers {
            assert_eq!(exchange.take(worker, clock.now()), Turn::Wait);
        }
        let mut put = || exchange.put(caller.call(timeout(0), clock.now()), clock.now());
        assert_eq!(put(), Admission::HandedOff);
        let expected = if may_block {
            Admission::HandedOff
        } else {
            Admission::Queued
        };
        assert_eq!(put(), expected, "may block: {may_block}");
        assert_eq!(
            exchange.figures().wakes_suppressed,
            u64::from(!may_block),
            "may block: {may_block}"
        );
        exchange.wait(&mut workers[1]);
        workers[1].run(&exchange, &clock, clock.now(), |call| call.respond(0));
        if may_block {
            exchange.wait(&mut workers[0]);
            workers[0].run(&exchange, &clock, clock.now(), |call| call.respond(0));
        } else {
            assert_eq!(exchange.take(&mut workers[1], clock.now()), Turn::Run);
            workers[1].run(&exchange, &clock, clock.now(), |call| call.respond(0));
        }
    }
}

/// Runs the closure that is the service.
struct Run<F>(F);

impl<F: Fn(Call) + Send + Sync + 'static> Service for Run<F> {
    type Body = u32;
    type Route = Route;

    fn handle(&self, call: Call) {
        (self.0)(call);
    }
}

#[test]
fn every_call_of_many_threads_is_answered_once() {
    const THREADS: u32 = 4;
    const CALLS: u32 = 3000;
    let pool = ServicePool::start(
        PoolConfig {
            workers: 3,
            ..config(vec![
                class("refused", OnOverload::Refuse),
                class("waits", OnOverload::Wait),
            ])
        },
        Run(|call: Call| {
            let number = *call.body();
            call.respond(number);
        }),
    )
    .expect("a pool");
    let totals: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let pool = pool.handle();
                scope.spawn(move || {
                    let mut caller = Caller::new();
                    for number in 0..CALLS {
                        let header = CallHeader {
                            session: u64::from(thread),
                            class: Class((number % 2) as u8),
                            order: if number % 3 == 0 {
                                OrderKey::of(u64::from(number % 5))
                            } else {
                                OrderKey::NONE
                            },
                            timeout: Some(Duration::from_millis(u64::from(number % 7) * 100)),
                            ..CallHeader::default()
                        };
                        let now = SystemClock.now();
                        pool.put(caller.call(header, now), now);
                    }
                    let mut seen = vec![0_u32; CALLS as usize + 1];
                    let mut done = 0;
                    for _ in 0..CALLS {
                        let (request, answer) = caller.next_answer();
                        seen[request as usize] += 1;
                        match answer {
                            Answer::Done(number) => {
                                assert_eq!(number, request);
                                done += 1;
                            }
                            Answer::Refused(_) => {}
                            Answer::Failed => panic!("nothing failed"),
                        }
                    }
                    assert!(seen[1..].iter().all(|times| *times == 1));
                    drop(caller.route);
                    assert!(caller.answers.recv_timeout(LONG).is_err(), "no more come");
                    done
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    // A reply is on its way before it is counted, so the figures are exact only after the end.
    let handle = pool.handle();
    pool.stop(LONG).expect("nothing is stuck");
    let figures = handle.figures();
    let answered: u64 = figures.classes.iter().map(|class| class.answered).sum();
    let refused: u64 = figures
        .classes
        .iter()
        .map(|class| class.refused.total())
        .sum();
    assert_eq!(answered, totals.iter().sum::<u64>());
    assert_eq!(answered + refused, u64::from(THREADS * CALLS));
    assert!(figures.handed_off + figures.queued >= answered);
}

#[test]
fn a_panicking_handler_costs_its_call_only() {
    let pool = ServicePool::start(
        config(one_class()),
        Run(|call: Call| {
            assert!(*call.body() != 1, "the first one, on purpose");
            call.respond(5);
        }),
    )
    .expect("a pool");
    let mut caller = Caller::new();
    for expected in [(1, Answer::Failed), (2, Answer::Done(5))] {
        let now = SystemClock.now();
        pool.handle().put(caller.call(timeout(0), now), now);
        assert_eq!(caller.next_answer(), expected);
    }
    let handle = pool.handle();
    pool.stop(LONG).expect("nothing is stuck");
    let class = &handle.figures().classes[0];
    assert_eq!((class.panicked, class.answered), (1, 1));
    let now = SystemClock.now();
    assert_eq!(
        handle.put(caller.call(timeout(0), now), now),
        Admission::Refused(Refusal::ShuttingDown)
    );
}

#[test]
fn stopping_answers_the_queue_at_once_and_reports_who_is_stuck() {
    let (entered, leave) = (Arc::new(Barrier::new(2)), Arc::new(Mutex::new(())));
    let blocked = leave.lock().expect("not poisoned");
    let (entered_too, leave_too) = (Arc::clone(&entered), Arc::clone(&leave));
    let pool = ServicePool::start(
        config(one_class()),
        Run(move |call: Call| {
            entered_too.wait();
            drop(leave_too.lock());
            call.respond(1);
        }),
    )
    .expect("a pool");
    let mut caller = Caller::new();
    let now = SystemClock.now();
    pool.handle().put(caller.call(timeout(0), now), now);
    entered.wait();
    pool.handle().put(caller.call(timeout(0), now), now);
    let stuck = pool.stop(Duration::ZERO).expect_err("one does not return");
    assert_eq!(stuck.workers, 1);
    assert_eq!(
        caller.next_answer(),
        (2, Answer::Refused(Refusal::ShuttingDown))
    );
    drop(blocked);
    assert_eq!(caller.next_answer(), (1, Answer::Done(1)));
}

// Replies through a dispatcher: a client that counts what comes back.

const KIND: ClientKind = ClientKind::new(0, "connection");

struct Replied(CallInfo, Answer<u32>);

struct Connection {
    core: ClientCore,
    replies: Sender<(u32, Answer<u32>, bool)>,
}

impl Client<Replied> for Connection {
    fn core(&self) -> &ClientCore {
        &self.core
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Replied>, event: Replied) {
        let is_mine = self.core.in_dispatcher_thread();
        self.replies
            .send((event.0.request, event.1, is_mine))
            .expect("the test listens");
        if event.0.request == 99 {
            cx.unregister_self();
        }
    }
}

struct Double;

impl Service for Double {
    type Body = Frame;
    type Route = PostTo<Replied, u32>;

    fn handle(&self, call: InboundCall<Frame, PostTo<Replied, u32>>) {
        let doubled = u32::from(call.body()[0]) * 2;
        call.respond(doubled);
    }
}

#[test]
fn replies_come_back_on_the_processor_of_the_connection() {
    let dispatcher = Dispatcher::start(
        DispatcherConfig {
            processors: 1,
            ..DispatcherConfig::default()
        },
        Hooks::default(),
    )
    .expect("a dispatcher");
    let (replies, received) = channel();
    let connection: Handle<Replied> = dispatcher
        .registrar()
        .register(Placement::LeastLoaded(KIND), move |core, _| {
            Box::new(Connection { core, replies })
        });
    let pool = ServicePool::start(config(one_class()), Double).expect("a pool");
    let route = PostTo::new(connection, Replied);
    let buffer = Arc::new(vec![20, 21, 22]);
    let put = |index: u32, request: u32| {
        let header = CallHeader {
            request,
            ..timeout(0)
        };
        let frame = Frame::new(Arc::clone(&buffer), index, 1).expect("within");
        let now = SystemClock.now();
        let call = InboundCall::receive(&header, frame, route.clone(), now);
        pool.handle().put(call, now);
        received.recv_timeout(LONG).expect("a reply")
    };
    assert_eq!(put(1, 1), (1, Answer::Done(42), true));
    assert_eq!(put(2, 99), (99, Answer::Done(44), true));
    // The connection has gone: the reply of a running call finds nobody.
    let now = SystemClock.now();
    let frame = Frame::new(buffer, 0, 1).expect("within");
    let call = InboundCall::receive(&timeout(0), frame, route, now);
    pool.handle().put(call, now);
    pool.stop(LONG).expect("nothing is stuck");
    assert!(received.recv_timeout(LONG).is_err());
    dispatcher.stop(LONG).expect("nothing lingers");
}
