//! What needs real threads to be shown: identity across threads, waking, stopping, the watchdog.
#![cfg(not(mqb_loom))]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mqb_dispatcher::{
    Activity, Client, ClientCore, ClientKind, Cx, Dispatcher, DispatcherConfig, EventKind, Handle,
    Hooks, Idle, Placement, ProcessorId, StopError, ThreadTag,
};

const KIND: ClientKind = ClientKind::new(0, "counter");
const LONG: Duration = Duration::from_secs(20);

type Event = Box<dyn FnOnce(&mut Counter, &mut Cx<'_, Box<Task>>) + Send>;

/// An event that is a closure, boxed as all rare things are.
struct Task(Event);

struct Counter {
    core: ClientCore,
    count: u64,
    lingers: bool,
}

impl Client<Box<Task>> for Counter {
    fn core(&self) -> &ClientCore {
        &self.core
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Box<Task>>, event: Box<Task>) {
        assert!(self.core.in_dispatcher_thread());
        assert!(cx.handle().in_dispatcher_thread());
        self.count += 1;
        (event.0)(self, cx);
    }

    fn on_stop(&mut self, cx: &mut Cx<'_, Box<Task>>) {
        if !self.lingers {
            cx.unregister_self();
        }
    }
}

fn task(f: impl FnOnce(&mut Counter, &mut Cx<'_, Box<Task>>) + Send + 'static) -> Box<Task> {
    Box::new(Task(Box::new(f)))
}

fn start(processors: u16, hooks: Hooks<Box<Task>>) -> Dispatcher<Box<Task>> {
    let config = DispatcherConfig {
        processors,
        stuck_after: Duration::from_millis(20),
        ..DispatcherConfig::default()
    };
    Dispatcher::start(config, hooks).unwrap()
}

fn counter(dispatcher: &Dispatcher<Box<Task>>, at: u16, lingers: bool) -> Handle<Box<Task>> {
    let at = Placement::Processor(ProcessorId(at), KIND);
    dispatcher.registrar().register(at, move |core, _| {
        Box::new(Counter {
            core,
            count: 0,
            lingers,
        })
    })
}

#[test]
fn a_client_is_on_its_own_thread_and_on_no_other() {
    let dispatcher = start(2, Hooks::default());
    let (a, b) = (
        counter(&dispatcher, 0, false),
        counter(&dispatcher, 1, false),
    );
    assert!(!a.in_dispatcher_thread() && !b.in_dispatcher_thread());
    let (told, answers) = channel();
    let a_again = a.clone();
    a.post(task(move |me, _| {
        let core = me.core.clone();
        let elsewhere =
            std::thread::spawn(move || (ThreadTag::current(), core.in_dispatcher_thread())).join();
        told.send((
            a_again.in_dispatcher_thread(),
            b.in_dispatcher_thread(),
            elsewhere.unwrap(),
        ))
        .unwrap();
    }));
    assert_eq!(
        answers.recv_timeout(LONG).unwrap(),
        (true, false, (None, false))
    );
    dispatcher.stop(LONG).unwrap();
}

#[test]
fn two_dispatchers_do_not_confuse_their_processors() {
    let (one, two) = (start(1, Hooks::default()), start(1, Hooks::default()));
    let (a, b) = (counter(&one, 0, false), counter(&two, 0, false));
    let (told, answers) = channel();
    let back = told.clone();
    a.post(task(move |me, cx| {
        assert!(!b.in_dispatcher_thread());
        assert_ne!(b.processor().0, 7);
        // Straight to the other dispatcher.
        cx.post(
            &b,
            task(move |other, _| back.send(other.core.thread()).unwrap()),
        );
        told.send(me.core.thread()).unwrap();
    }));
    let tags = [
        answers.recv_timeout(LONG).unwrap(),
        answers.recv_timeout(LONG).unwrap(),
    ];
    assert_ne!(tags[0], tags[1]);
    one.stop(LONG).unwrap();
    two.stop(LONG).unwrap();
}

#[test]
fn an_event_wakes_a_sleeping_processor_and_costs_one_wake_per_sleep_at_most() {
    let dispatcher = start(2, Hooks::default());
    let handles = [
        counter(&dispatcher, 0, false),
        counter(&dispatcher, 1, false),
    ];
    for round in 0..2_000 {
        let (told, answer) = channel();
        handles[round % 2].post(task(move |_, _| told.send(()).unwrap()));
        answer.recv_timeout(LONG).unwrap();
    }
    for processor in dispatcher.stats().processors {
        assert!(processor.sleeps > 0);
        assert!(
            processor.wakes <= processor.sleeps + 1,
            "{} wakes, {} sleeps",
            processor.wakes,
            processor.sleeps
        );
    }
    dispatcher.stop(LONG).unwrap();
}

#[test]
fn producers_that_race_lose_nothing_in_any_idle_mode() {
    for idle in [Idle::Block, Idle::SpinThenBlock(Duration::from_micros(20))] {
        let config = DispatcherConfig {
            processors: 2,
            idle,
            ..DispatcherConfig::default()
        };
        let dispatcher = Dispatcher::start(config, Hooks::default()).unwrap();
        let handles = [
            counter(&dispatcher, 0, false),
            counter(&dispatcher, 1, false),
        ];
        std::thread::scope(|scope| {
            for producer in 0..3 {
                let (handles, registrar) = (&handles, dispatcher.registrar());
                scope.spawn(move || {
                    let mut source = registrar.event_source();
                    for round in 0..10_000 {
                        let to = &handles[round % 2];
                        match producer {
                            0 => to.post(task(|_, _| {})),
                            _ => source.post(to, task(|_, _| {})),
                        }
                    }
                });
            }
        });
        for handle in &handles {
            let (told, count) = channel();
            handle.post(task(move |me, _| told.send(me.count).unwrap()));
            assert_eq!(count.recv_timeout(LONG).unwrap(), 15_001);
        }
        dispatcher.stop(LONG).unwrap();
    }
}

#[test]
fn synchronize_waits_for_everything_sent_before() {
    let dispatcher = start(1, Hooks::default());
    let handle = counter(&dispatcher, 0, false);
    let seen = Arc::new(Mutex::new(0));
    for _ in 0..100 {
        let seen = Arc::clone(&seen);
        handle.post(task(move |_, _| *seen.lock().unwrap() += 1));
    }
    assert!(handle.synchronize());
    assert_eq!(*seen.lock().unwrap(), 100);
    handle.unregister();
    assert!(!handle.synchronize(), "it has gone");
    dispatcher.stop(LONG).unwrap();
}

#[test]
fn synchronize_on_a_processor_is_refused_as_it_could_never_end() {
    let dispatcher = start(
        2,
        Hooks {
            on_panic: Arc::new(|_| {}),
            ..Hooks::default()
        },
    );
    let (a, b) = (
        counter(&dispatcher, 0, false),
        counter(&dispatcher, 1, false),
    );
    let (told, answer) = channel();
    a.post(task(move |_, _| {
        let refused =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| b.synchronize())).is_err();
        told.send(refused).unwrap();
    }));
    assert!(answer.recv_timeout(LONG).unwrap());
    dispatcher.stop(LONG).unwrap();
}

#[test]
fn a_stuck_handler_is_reported_by_name_and_event() {
    let (told, reports) = channel();
    let told = Mutex::new(told);
    let hooks = Hooks {
        on_stuck: Arc::new(move |report: &mqb_dispatcher::StuckReport| {
            told.lock().unwrap().send(report.clone()).unwrap()
        }),
        event_kind: Some(|_| EventKind(5)),
        event_name: |kind| if kind == EventKind(5) { "task" } else { "?" },
        ..Hooks::default()
    };
    let dispatcher = start(1, hooks);
    let handle = counter(&dispatcher, 0, false);
    handle.post(task(|_, cx| cx.set_name("slow coach")));
    assert!(handle.synchronize());
    let (release, held): (Sender<()>, Receiver<()>) = channel();
    // Ends when the test has seen the report, not after a time.
    handle.post(task(move |_, _| held.recv_timeout(LONG).unwrap()));
    let report = reports.recv_timeout(LONG).unwrap();
    release.send(()).unwrap();
    assert_eq!(
        (&*report.handler.name, report.handler.event),
        ("slow coach", "task")
    );
    assert_eq!(report.handler.activity, Activity::Event(EventKind(5)));
    assert_eq!(report.handler.kind, Some(KIND));
    assert!(report.turn_for >= Duration::from_millis(20));
    assert_eq!(dispatcher.stats().processors[0].stuck, 1);
    dispatcher.stop(LONG).unwrap();
}

#[test]
fn stop_runs_what_was_accepted_and_gives_back_the_rest() {
    let dispatcher = start(2, Hooks::default());
    let handles = [
        counter(&dispatcher, 0, false),
        counter(&dispatcher, 1, false),
    ];
    let ran = Arc::new(Mutex::new(0_u64));
    let stats = dispatcher.stats_reader();
    let sent: u64 = std::thread::scope(|scope| {
        let producers: Vec<_> = (0..2)
            .map(|_| {
                let (handles, ran) = (handles.clone(), Arc::clone(&ran));
                scope.spawn(move || {
                    let mut sent = 0;
                    loop {
                        let ran = Arc::clone(&ran);
                        let event = task(move |_, _| *ran.lock().unwrap() += 1);
                        sent += 1;
                        if handles[sent % 2]
                            .try_post(event)
                            .is_err_and(|full| full.is_stopped)
                        {
                            return sent as u64 - 1;
                        }
                    }
                })
            })
            .collect();
        while *ran.lock().unwrap() == 0 {
            std::thread::yield_now();
        }
        dispatcher.stop(LONG).unwrap();
        producers
            .into_iter()
            .map(|producer| producer.join().unwrap())
            .sum()
    });
    // Refusals for being over the mark are counted by nobody but the sender, so the sum is an upper bound for those that ran.
    let after: Vec<_> = stats().processors;
    let (stale, returned): (u64, u64) = (
        after.iter().map(|p| p.stale_drops).sum(),
        after.iter().map(|p| p.returned).sum(),
    );
    let ran = *ran.lock().unwrap();
    assert!(
        ran > 0 && ran + stale <= sent + 2 && returned >= 2,
        "{ran} ran, {stale} stale, {returned} returned of {sent}"
    );
    assert!(after.iter().all(|processor| processor.depth == 0));
}

#[test]
fn every_event_is_run_or_returned_exactly_once() {
    // An event that knows when it is dropped, and whether it was run.
    struct Counted(Arc<Mutex<[u64; 2]>>, bool);
    impl Counted {
        fn run(&mut self) {
            self.1 = true;
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.lock().unwrap()[usize::from(self.1)] += 1;
        }
    }
    let dispatcher = start(2, Hooks::default());
    let handles = [
        counter(&dispatcher, 0, false),
        counter(&dispatcher, 1, false),
    ];
    let counts = Arc::new(Mutex::new([0_u64; 2]));
    let stats = dispatcher.stats_reader();
    let sent: u64 = std::thread::scope(|scope| {
        let producers: Vec<_> = (0..2)
            .map(|_| {
                let (handles, counts, stats) =
                    (handles.clone(), Arc::clone(&counts), stats.clone());
                scope.spawn(move || {
                    for sent in 1.. {
                        let mut counted = Counted(Arc::clone(&counts), false);
                        handles[sent % 2].post(task(move |_, _| counted.run()));
                        if sent % 64 == 0 && stats().processors.iter().all(|p| p.returned > 0) {
                            return sent as u64;
                        }
                    }
                    unreachable!()
                })
            })
            .collect();
        dispatcher.stop(LONG).unwrap();
        producers
            .into_iter()
            .map(|producer| producer.join().unwrap())
            .sum()
    });
    let [not_run, run] = *counts.lock().unwrap();
    assert_eq!(not_run + run, sent);
    let lost: u64 = stats()
        .processors
        .iter()
        .map(|p| p.stale_drops + p.returned)
        .sum();
    assert_eq!(not_run, lost, "what was not run was counted");
}

#[test]
fn a_client_that_does_not_finish_is_dropped_at_the_deadline() {
    let dispatcher = start(1, Hooks::default());
    let handle = counter(&dispatcher, 0, true);
    assert!(handle.synchronize());
    assert_eq!(
        dispatcher.stop(Duration::from_millis(10)),
        Err(StopError::Unfinished { clients: 1 })
    );
}

#[test]
fn a_stuck_processor_does_not_hold_up_stop_for_ever() {
    let dispatcher = start(
        2,
        Hooks {
            on_stuck: Arc::new(|_| {}),
            ..Hooks::default()
        },
    );
    let handle = counter(&dispatcher, 1, true);
    let (release, held): (Sender<()>, Receiver<()>) = channel();
    let (entered, inside) = channel();
    handle.post(task(move |_, _| {
        entered.send(()).unwrap();
        // An error: the test is over.
        let _ = held.recv();
    }));
    inside.recv_timeout(LONG).unwrap();
    let stopped = dispatcher.stop(Duration::from_millis(10));
    assert_eq!(
        stopped,
        Err(StopError::Stuck {
            processors: vec![ProcessorId(1)]
        })
    );
    drop(release);
}

#[test]
fn a_timer_wakes_a_sleeping_processor() {
    struct Alarm(ClientCore, Sender<()>);
    impl Client<Box<Task>> for Alarm {
        fn core(&self) -> &ClientCore {
            &self.0
        }
        fn on_event(&mut self, _: &mut Cx<'_, Box<Task>>, _: Box<Task>) {}
        fn on_timer(&mut self, _: &mut Cx<'_, Box<Task>>, _: mqb_dispatcher::TimerId) {
            self.1.send(()).unwrap();
        }
    }
    let dispatcher = start(1, Hooks::default());
    let (told, rang) = channel();
    dispatcher
        .registrar()
        .register(Placement::LeastLoaded(KIND), |core, cx| {
            cx.schedule(Duration::from_millis(5));
            Box::new(Alarm(core, told))
        });
    rang.recv_timeout(LONG).unwrap();
    dispatcher.stop(LONG).unwrap();
}
