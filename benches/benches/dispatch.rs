//! Question: what does an event cost from post to handler, and how long does it take to wake a processor?
//!
//! * *one thread*: both sides on one thread, processors turned by hand: the whole work of post, publish, take, dispatch and flush per
//!   event, in thread CPU time, so that other load does not enter. Batches of 1, 16 and 64 events of 64 bytes.
//! * *own processor*: the same for posts that stay on their processor.
//! * *two threads*: a processor posts to another from its handler, wall time, with credit that comes back every 1024 events.
//! * *wake*: a thread posts to a processor that sleeps, at a pace at which it falls asleep again each time.
//!   Time from before the post to the handler. And how often the eventfd was written per sleep: never more than once.

use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use mqb_benches::{machine, median, quantile, thread_cpu_ns, wall_ns};
use mqb_dispatcher::{
    Client, ClientCore, ClientKind, Cx, Dispatcher, DispatcherConfig, Handle, Hooks, Manual,
    Placement, ProcessorId,
};

const KIND: ClientKind = ClientKind::new(0, "bench");
const EVENTS: usize = 1 << 16;
const ROUNDS: usize = 31;
const WAKES: usize = 4_000;

/// 64 bytes, as large as an event may be.
enum Event {
    Data([u64; 7]),
    /// Post so many of `Data` to the next client, 1024 per credit.
    Start(u64),
    Credit,
    /// The time of the post.
    Wake(u64),
}

const _: () = assert!(size_of::<Event>() == 64);

struct Sink {
    core: ClientCore,
    sum: u64,
    left: u64,
    next: Option<Handle<Event>>,
    back: Option<Handle<Event>>,
    done: Option<Sender<u64>>,
    batch: usize,
}

impl Sink {
    fn new(core: ClientCore) -> Self {
        Self {
            core,
            sum: 0,
            left: 0,
            next: None,
            back: None,
            done: None,
            batch: 0,
        }
    }

    fn send(&mut self, cx: &mut Cx<'_, Event>, count: u64) {
        let count = count.min(self.left);
        self.left -= count;
        let next = self.next.as_ref().expect("the source has a target");
        for number in 0..count {
            cx.post(next, Event::Data([number; 7]));
        }
    }
}

impl Client<Event> for Sink {
    fn core(&self) -> &ClientCore {
        &self.core
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Event>, event: Event) {
        match event {
            Event::Data(data) => {
                self.sum = self.sum.wrapping_add(data[0]);
                self.count_data(cx);
            }
            Event::Start(count) => {
                self.left = count;
                self.send(cx, 8 * 1024);
            }
            Event::Credit => self.send(cx, 1024),
            Event::Wake(posted) => {
                let done = self.done.as_ref().expect("somebody measures");
                done.send(wall_ns() - posted)
                    .expect("the main thread waits");
            }
        }
    }
}

impl Sink {
    #[inline]
    fn count_data(&mut self, cx: &mut Cx<'_, Event>) {
        if let Some(back) = &self.back {
            self.batch += 1;
            self.left = self.left.saturating_sub(1);
            if self.batch == 1024 {
                self.batch = 0;
                cx.post(back, Event::Credit);
            }
            if self.left == 0 {
                let done = self.done.as_ref().expect("somebody measures");
                done.send(wall_ns()).expect("the main thread waits");
            }
        }
    }
}

fn config(processors: u16) -> DispatcherConfig {
    DispatcherConfig {
        processors,
        stuck_after: Duration::ZERO,
        ..DispatcherConfig::default()
    }
}

/// ns per event, both sides on one thread.
fn one_thread(batch: usize) -> f64 {
    let mut manual = Manual::with_config(config(1), Hooks::default()).expect("a processor");
    let sink = manual
        .registrar()
        .register(Placement::LeastLoaded(KIND), |core, _| {
            Box::new(Sink::new(core))
        });
    manual.run_until_idle(10);
    let mut source = manual.registrar().event_source();
    let mut round = || {
        let start = thread_cpu_ns();
        for number in 0..EVENTS / batch {
            for _ in 0..batch {
                source.post(&sink, Event::Data([number as u64; 7]));
            }
            source.flush();
            manual.turn(ProcessorId(0));
        }
        (thread_cpu_ns() - start) as f64 / EVENTS as f64
    };
    round();
    median(&mut (0..ROUNDS).map(|_| round()).collect::<Vec<_>>())
}

/// ns per event that a handler posts to a client of its own processor, in turns of 1024.
fn own_processor() -> f64 {
    let mut manual = Manual::with_config(config(1), Hooks::default()).expect("a processor");
    let registrar = manual.registrar();
    let sink = registrar.register(Placement::LeastLoaded(KIND), |core, _| {
        Box::new(Sink::new(core))
    });
    let target = sink.clone();
    let source = registrar.register(Placement::LeastLoaded(KIND), move |core, _| {
        Box::new(Sink {
            next: Some(target),
            ..Sink::new(core)
        })
    });
    manual.run_until_idle(10);
    let mut round = || {
        let start = thread_cpu_ns();
        for _ in 0..EVENTS / 1024 {
            source.post(Event::Start(1024));
            while manual.turn(ProcessorId(0)).has_more {}
        }
        (thread_cpu_ns() - start) as f64 / EVENTS as f64
    };
    round();
    median(&mut (0..ROUNDS).map(|_| round()).collect::<Vec<_>>())
}

/// Wall ns per event from one processor's thread to another's, and wake-ups per 1000 events.
fn two_threads() -> (f64, f64) {
    const COUNT: u64 = 4 << 20;
    let dispatcher = Dispatcher::start(config(2), Hooks::default()).expect("two processors");
    let registrar = dispatcher.registrar();
    let (done, at_end) = channel();
    // Each knows the other: the source is made first and told by a barrier.
    let source = registrar.register(Placement::Processor(ProcessorId(0), KIND), |core, _| {
        Box::new(Source(Sink::new(core)))
    });
    let back = source.clone();
    let sink = registrar.register(
        Placement::Processor(ProcessorId(1), KIND),
        move |core, _| {
            Box::new(Sink {
                back: Some(back),
                done: Some(done),
                left: COUNT,
                ..Sink::new(core)
            })
        },
    );
    TARGET.set(sink).expect("set once");
    assert!(source.synchronize());
    let start = wall_ns();
    source.post(Event::Start(COUNT));
    let end = at_end.recv().expect("all events arrive");
    let wakes: u64 = dispatcher
        .stats()
        .processors
        .iter()
        .map(|processor| processor.wakes)
        .sum();
    dispatcher
        .stop(Duration::from_secs(5))
        .expect("nothing lingers");
    (
        (end - start) as f64 / COUNT as f64,
        wakes as f64 * 1000.0 / COUNT as f64,
    )
}

static TARGET: std::sync::OnceLock<Handle<Event>> = std::sync::OnceLock::new();

/// The sending side of `two_threads`.
struct Source(Sink);

impl Client<Event> for Source {
    fn core(&self) -> &ClientCore {
        &self.0.core
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Event>, event: Event) {
        if self.0.next.is_none() {
            self.0.next = TARGET.get().cloned();
        }
        self.0.on_event(cx, event);
    }
}

/// Latencies in µs, and eventfd writes per sleep.
fn wake() -> (Vec<f64>, f64) {
    let dispatcher = Dispatcher::start(config(1), Hooks::default()).expect("a processor");
    let (done, latencies) = channel();
    let sink = dispatcher
        .registrar()
        .register(Placement::LeastLoaded(KIND), move |core, _| {
            Box::new(Sink {
                done: Some(done),
                ..Sink::new(core)
            })
        });
    assert!(sink.synchronize());
    let mut samples = Vec::with_capacity(WAKES);
    for _ in 0..WAKES {
        // Long enough to be asleep again; how long does not enter the result.
        std::thread::sleep(Duration::from_micros(150));
        sink.post(Event::Wake(wall_ns()));
        samples.push(latencies.recv().expect("it answers") as f64 / 1000.0);
    }
    let stats = &dispatcher.stats().processors[0];
    let per_sleep = stats.wakes as f64 / stats.sleeps as f64;
    dispatcher
        .stop(Duration::from_secs(5))
        .expect("nothing lingers");
    (samples, per_sleep)
}

fn main() -> ExitCode {
    println!("{}", machine());
    let per_event = [1, 16, 64].map(|batch| (batch, one_thread(batch)));
    println!(
        "{:<44} {:>10} {:>14}",
        "post + dispatch, 64-byte events", "ns/event", "million/s"
    );
    for (batch, ns) in per_event {
        println!(
            "{:<44} {ns:>10.1} {:>14.1}",
            format!("one thread, batch {batch}"),
            1000.0 / ns
        );
    }
    let own = own_processor();
    println!(
        "{:<44} {own:>10.1} {:>14.1}",
        "own processor, from a handler",
        1000.0 / own
    );
    let (crossing, wakes) = two_threads();
    println!(
        "{:<44} {crossing:>10.1} {:>14.1}",
        "two threads, wall time",
        1000.0 / crossing
    );
    println!(
        "{:<44} {wakes:>10.3}",
        "two threads, wake-ups per 1000 events"
    );
    let (mut latencies, per_sleep) = wake();
    let (p50, p99) = (
        quantile(&mut latencies, 0.5),
        quantile(&mut latencies, 0.99),
    );
    println!(
        "{:<44} {p50:>10.1} {p99:>14.1}",
        "wake of a sleeping processor, p50 and p99 (µs)"
    );
    println!("{:<44} {per_sleep:>10.3}", "eventfd writes per sleep");
    let at_most_one = per_sleep <= 1.0;
    println!(
        "{} at most one eventfd write per sleep",
        if at_most_one { "holds:" } else { "FAILS:" }
    );
    println!(
        "{{\"bench\":\"dispatch\",\"batch1_ns\":{:.1},\"batch16_ns\":{:.1},\"batch64_ns\":{:.1},\"own_ns\":{own:.1},\
         \"two_threads_ns\":{crossing:.1},\"wakes_per_1000\":{wakes:.3},\"wake_p50_us\":{p50:.1},\"wake_p99_us\":{p99:.1},\
         \"eventfd_writes_per_sleep\":{per_sleep:.3}}}",
        per_event[0].1, per_event[1].1, per_event[2].1
    );
    if at_most_one {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
