//! What the dispatcher promises, shown on processors turned by hand.
#![cfg(not(mqb_loom))]

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mqb_dispatcher::{
    Client, ClientCore, ClientKind, Cx, DispatcherConfig, Handle, Hooks, Level, Manual, MemberId,
    Placement, Pressure, ProcessorId, RegisterError, TimerId,
};

const KIND: ClientKind = ClientKind::new(1, "probe");
const P0: ProcessorId = ProcessorId(0);
const P1: ProcessorId = ProcessorId(1);

#[derive(Debug)]
enum Event {
    Note(u32),
    /// Post a note with this number to that handle.
    Pass(Handle<Event>, u32),
    Do(fn(&mut Probe, &mut Cx<'_, Event>)),
}

/// Writes down what happens to it.
struct Probe {
    core: ClientCore,
    log: Log,
}

type Log = Arc<Mutex<Vec<String>>>;

impl Probe {
    fn note(&self, what: impl Into<String>) {
        assert!(self.core.in_dispatcher_thread());
        self.log.lock().unwrap().push(what.into());
    }
}

impl Client<Event> for Probe {
    fn core(&self) -> &ClientCore {
        &self.core
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Event>, event: Event) {
        match event {
            Event::Note(number) => self.note(format!("{number}")),
            Event::Pass(to, number) => {
                cx.post(&to, Event::Note(number));
                self.note(format!("passed {number}"));
            }
            Event::Do(act) => act(self, cx),
        }
    }

    fn on_member_event(&mut self, _cx: &mut Cx<'_, Event>, member: MemberId, event: Event) {
        self.note(format!("member {} {event:?}", member.0));
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, Event>, _timer: TimerId) {
        self.note(format!("timer at {}", cx.now().as_millis()));
    }

    fn flush(&mut self, _cx: &mut Cx<'_, Event>) {
        self.note("flush");
    }

    fn on_pressure(&mut self, _cx: &mut Cx<'_, Event>, pressure: Pressure) {
        self.note(format!("{} is {:?}", pressure.processor, pressure.level));
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.log.lock().unwrap().push("drop".into());
    }
}

fn probe(manual: &Manual<Event>, at: ProcessorId) -> (Handle<Event>, Log) {
    let log = Log::default();
    let inner = Arc::clone(&log);
    let handle = manual
        .registrar()
        .register(Placement::Processor(at, KIND), |core, _cx| {
            Box::new(Probe { core, log: inner })
        });
    (handle, log)
}

fn taken(log: &Log) -> Vec<String> {
    std::mem::take(&mut *log.lock().unwrap())
}

#[test]
fn events_wait_for_the_client_to_be_made_and_are_followed_by_one_flush() {
    let mut manual = Manual::new(1).unwrap();
    let (handle, log) = probe(&manual, P0);
    handle.post(Event::Note(1));
    handle.post(Event::Note(2));
    assert!(taken(&log).is_empty(), "nothing runs before a turn");
    manual.turn(P0);
    assert_eq!(taken(&log), ["1", "2", "flush"]);
}

#[test]
fn a_post_to_the_own_processor_runs_in_the_same_turn() {
    let mut manual = Manual::new(1).unwrap();
    let (a, log_a) = probe(&manual, P0);
    let (b, log_b) = probe(&manual, P0);
    a.post(Event::Pass(b, 7));
    manual.turn(P0);
    assert_eq!(taken(&log_a), ["passed 7", "flush"]);
    assert_eq!(taken(&log_b), ["7", "flush"]);
}

fn act(handle: &Handle<Event>, act: fn(&mut Probe, &mut Cx<'_, Event>)) {
    handle.post(Event::Do(act));
}

#[test]
fn a_client_that_keeps_itself_busy_lets_others_run() {
    fn again(probe: &mut Probe, cx: &mut Cx<'_, Event>) {
        probe.note("again");
        let me = cx.handle();
        cx.post(&me, Event::Do(again));
    }
    let mut manual = Manual::new(1).unwrap();
    let (busy, _) = probe(&manual, P0);
    let (other, log) = probe(&manual, P0);
    act(&busy, again);
    manual.turn(P0);
    other.post(Event::Note(1));
    manual.turn(P0);
    assert_eq!(taken(&log), ["1", "flush"], "the inbox has its share");
    assert!(manual.turn(P0).has_more, "and the busy one goes on");
    assert_eq!(manual.turn(P0).events, 1024, "within the budget of a turn");
}

#[test]
fn posts_to_another_processor_arrive_after_the_turn() {
    let mut manual = Manual::new(2).unwrap();
    let (a, _) = probe(&manual, P0);
    let (b, log) = probe(&manual, P1);
    a.post(Event::Pass(b.clone(), 1));
    manual.turn(P1);
    manual.turn(P0);
    manual.turn(P1);
    assert_eq!(taken(&log), ["1", "flush"]);
}

#[test]
fn a_plain_post_within_a_turn_keeps_its_place_behind_posts_by_cx() {
    let mut manual = Manual::new(2).unwrap();
    let (b, log) = probe(&manual, P1);
    let (a, _) = probe(&manual, P0);
    let (c, log_c) = probe(&manual, P0);
    manual.run_until_idle(10);
    let both = Arc::new((b, c));
    a.barrier(move |cx| {
        for (number, target) in [&both.0, &both.1]
            .into_iter()
            .flat_map(|target| (0..200).map(move |n| (n, target)))
        {
            if number % 2 == 0 {
                cx.post(target, Event::Note(number));
            } else {
                target.post(Event::Note(number));
            }
        }
    });
    manual.run_until_idle(10);
    for log in [log, log_c] {
        let notes: Vec<_> = taken(&log)
            .into_iter()
            .filter(|note| note != "flush")
            .collect();
        assert_eq!(notes, (0..200).map(|n| n.to_string()).collect::<Vec<_>>());
    }
}

#[test]
fn members_have_addresses_of_their_own_and_go_with_their_owner() {
    let mut manual = Manual::new(1).unwrap();
    let (owner, log) = probe(&manual, P0);
    let (out, members) = channel();
    owner.barrier(move |cx| {
        for name in ["first", "second"] {
            let (id, core, handle) = cx.add_member(ClientKind::new(2, "part"), name);
            assert!(core.in_dispatcher_thread() && handle.in_dispatcher_thread());
            out.send((id, core, handle)).unwrap();
        }
    });
    manual.run_until_idle(10);
    let (first, core, first_handle) = members.recv().unwrap();
    let (second, _, second_handle) = members.recv().unwrap();
    assert!(
        !core.in_dispatcher_thread(),
        "this thread is no processor now"
    );
    assert_eq!(manual.stats().processors[0].members, 2);

    first_handle.post(Event::Note(1));
    second_handle.post(Event::Note(2));
    manual.run_until_idle(10);
    let expected = [
        format!("member {} Note(1)", first.0),
        format!("member {} Note(2)", second.0),
        "flush".into(),
    ];
    assert_eq!(taken(&log), expected);

    let removed = first;
    owner.barrier(move |cx| assert!(cx.remove_member(removed) && !cx.remove_member(removed)));
    first_handle.post(Event::Note(3));
    second_handle.post(Event::Note(4));
    manual.run_until_idle(10);
    assert_eq!(
        taken(&log),
        [format!("member {} Note(4)", second.0), "flush".into()]
    );
    assert_eq!(manual.stats().processors[0].stale_drops, 1);

    owner.unregister();
    second_handle.post(Event::Note(5));
    manual.run_until_idle(10);
    assert_eq!(taken(&log), ["drop"]);
    assert_eq!(manual.stats().processors[0].stale_drops, 2);
    assert_eq!(manual.stats().processors[0].members, 0);
}

#[test]
fn a_member_is_removed_by_its_owner_only() {
    let mut manual = Manual::new(1).unwrap();
    let (owner, _) = probe(&manual, P0);
    let (other, _) = probe(&manual, P0);
    let (out, members) = channel();
    owner.barrier(move |cx| out.send(cx.add_member(KIND, "part").0).unwrap());
    manual.run_until_idle(10);
    let member = members.recv().unwrap();
    other.barrier(move |cx| assert!(!cx.remove_member(member)));
    manual.run_until_idle(10);
    assert_eq!(manual.stats().processors[0].panics, 0);
    assert_eq!(manual.stats().processors[0].members, 1);
}

#[test]
fn timers_fire_in_order_never_early_and_not_after_cancel() {
    fn start(_: &mut Probe, cx: &mut Cx<'_, Event>) {
        cx.schedule(Duration::from_millis(70));
        let cancelled = cx.schedule(Duration::from_millis(6));
        cx.schedule(Duration::from_micros(5_500));
        cx.schedule(Duration::from_secs(3600));
        assert!(cx.cancel(cancelled) && !cx.cancel(cancelled));
    }
    let mut manual = Manual::new(1).unwrap();
    let (handle, log) = probe(&manual, P0);
    act(&handle, start);
    manual.run_until_idle(10);
    taken(&log);
    manual.advance(Duration::from_micros(5_999), 10);
    assert!(taken(&log).is_empty());
    manual.advance(Duration::from_micros(1), 10);
    assert_eq!(taken(&log), ["timer at 6", "flush"]);
    manual.advance(Duration::from_secs(3600), 10);
    assert_eq!(
        taken(&log),
        ["timer at 70", "flush", "timer at 3600000", "flush"]
    );
    assert_eq!(manual.next_timer(), None);
}

#[test]
fn a_timer_cancelled_in_the_turn_in_which_it_is_due_is_not_delivered() {
    struct Two(ClientCore, [Option<TimerId>; 2], Log);
    impl Client<Event> for Two {
        fn core(&self) -> &ClientCore {
            &self.0
        }
        fn on_event(&mut self, _: &mut Cx<'_, Event>, _: Event) {}
        fn on_timer(&mut self, cx: &mut Cx<'_, Event>, timer: TimerId) {
            self.2.lock().unwrap().push("fired".into());
            let other = self.1.iter().flatten().find(|id| **id != timer).copied();
            assert!(cx.cancel(other.unwrap()));
        }
    }
    let mut manual = Manual::new(1).unwrap();
    let log = Log::default();
    let inner = Arc::clone(&log);
    manual
        .registrar()
        .register(Placement::LeastLoaded(KIND), |core, cx| {
            let timers = [(); 2].map(|()| Some(cx.schedule(Duration::from_millis(1))));
            Box::new(Two(core, timers, inner))
        });
    manual.run_until_idle(10);
    manual.advance(Duration::from_millis(1), 10);
    assert_eq!(taken(&log), ["fired"]);
    assert_eq!(manual.stats().processors[0].timers_pending, 0);
}

#[test]
fn timers_go_with_their_client() {
    fn start(_: &mut Probe, cx: &mut Cx<'_, Event>) {
        for hours in 1..100 {
            cx.schedule(Duration::from_secs(3600 * hours));
        }
        cx.unregister_self();
    }
    let mut manual = Manual::new(1).unwrap();
    let (handle, _) = probe(&manual, P0);
    act(&handle, start);
    manual.run_until_idle(10);
    assert_eq!(manual.stats().processors[0].timers_pending, 0);
    assert_eq!(manual.next_timer(), None);
}

#[test]
fn unregistering_flushes_then_drops_and_later_events_are_counted_as_stale() {
    let mut manual = Manual::new(1).unwrap();
    let (handle, log) = probe(&manual, P0);
    handle.post(Event::Note(1));
    handle.unregister();
    handle.post(Event::Note(2));
    manual.run_until_idle(10);
    assert_eq!(taken(&log), ["1", "flush", "drop"]);
    assert_eq!(manual.stats().processors[0].stale_drops, 1);
    assert_eq!(manual.stats().processors[0].clients, 0);
}

#[test]
fn an_old_handle_never_reaches_the_next_tenant_of_its_slot() {
    let mut manual = Manual::new(1).unwrap();
    let (old, _) = probe(&manual, P0);
    old.unregister();
    manual.run_until_idle(10);
    let (new, log) = probe(&manual, P0);
    manual.run_until_idle(10);
    assert_ne!(old, new);
    old.post(Event::Note(1));
    old.unregister();
    new.post(Event::Note(2));
    manual.run_until_idle(10);
    assert_eq!(taken(&log), ["2", "flush"]);
}

#[test]
fn a_barrier_runs_after_everything_before_it_was_handled_and_flushed() {
    let mut manual = Manual::new(1).unwrap();
    let (a, log_a) = probe(&manual, P0);
    let (b, log_b) = probe(&manual, P0);
    a.post(Event::Note(1));
    b.post(Event::Note(2));
    let (seen_a, seen_b) = (Arc::clone(&log_a), Arc::clone(&log_b));
    b.barrier(move |cx| {
        assert_eq!(taken(&seen_a), ["1", "flush"]);
        assert_eq!(taken(&seen_b), ["2", "flush"]);
        cx.unregister_self();
    });
    a.post(Event::Note(3));
    manual.run_until_idle(10);
    assert_eq!(taken(&log_b), ["drop"]);
    assert_eq!(taken(&log_a), ["3", "flush"]);
    assert_eq!(manual.stats().processors[0].panics, 0);
}

#[test]
fn a_client_registered_in_a_handler_is_made_before_anything_reaches_it() {
    let mut manual = Manual::new(2).unwrap();
    let (a, _) = probe(&manual, P0);
    let (relay, _) = probe(&manual, P1);
    let registrar = manual.registrar();
    let log = Log::default();
    for at in [P0, P1] {
        let (registrar, relay, log) = (registrar.clone(), relay.clone(), Arc::clone(&log));
        a.barrier(move |cx| {
            let new = registrar.register(Placement::Processor(at, KIND), move |core, _| {
                Box::new(Probe { core, log })
            });
            cx.post(&relay, Event::Pass(new.clone(), 1));
            cx.post(&new, Event::Note(0));
        });
        manual.run_until_idle(10);
    }
    let mut seen = taken(&log);
    seen.retain(|note| note != "flush");
    seen.sort();
    assert_eq!(seen, ["0", "0", "1", "1"]);
    assert_eq!(
        manual
            .stats()
            .processors
            .iter()
            .map(|p| p.stale_drops)
            .sum::<u64>(),
        0
    );
}

#[test]
fn a_panic_costs_its_client_and_nobody_else() {
    fn panics(_: &mut Probe, cx: &mut Cx<'_, Event>) {
        cx.set_name("doomed one");
        panic!("out of luck {}", 7);
    }
    let reports = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&reports);
    let hooks = Hooks {
        on_panic: Arc::new(move |report: &mqb_dispatcher::PanicReport| {
            seen.lock().unwrap().push(report.clone())
        }),
        event_kind: Some(|event: &Event| {
            mqb_dispatcher::EventKind(u16::from(matches!(event, Event::Do(_))))
        }),
        event_name: |kind| ["quiet", "do"][usize::from(kind.0)],
        ..Hooks::default()
    };
    let config = DispatcherConfig {
        processors: 1,
        ..DispatcherConfig::default()
    };
    let mut manual = Manual::with_config(config, hooks).unwrap();
    let (a, log_a) = probe(&manual, P0);
    let (b, log_b) = probe(&manual, P0);
    a.post(Event::Note(1));
    act(&a, panics);
    a.post(Event::Note(2));
    b.post(Event::Note(3));
    manual.turn(P0);
    assert_eq!(
        taken(&log_a),
        ["1", "drop"],
        "not flushed: its state may be broken"
    );
    assert_eq!(taken(&log_b), ["3", "flush"], "in the same turn");
    let report = reports.lock().unwrap().pop().unwrap();
    assert_eq!(
        (report.message.as_str(), &*report.handler.name),
        ("out of luck 7", "doomed one")
    );
    assert_eq!(
        (report.handler.kind, report.handler.event),
        (Some(KIND), "do")
    );
    let stats = &manual.stats().processors[0];
    assert_eq!((stats.panics, stats.stale_drops, stats.clients), (1, 1, 1));
}

/// Panics wherever it is told to.
struct Fragile(ClientCore, &'static str, Log);

impl Fragile {
    fn at(&self, place: &'static str) {
        self.2.lock().unwrap().push(place.into());
        assert_ne!(self.1, place);
    }
}

impl Client<Event> for Fragile {
    fn core(&self) -> &ClientCore {
        &self.0
    }
    fn on_event(&mut self, _: &mut Cx<'_, Event>, _: Event) {
        self.at("event");
    }
    fn on_timer(&mut self, _: &mut Cx<'_, Event>, _: TimerId) {
        self.at("timer");
    }
    fn flush(&mut self, _: &mut Cx<'_, Event>) {
        self.at("flush");
    }
    fn on_stop(&mut self, cx: &mut Cx<'_, Event>) {
        self.at("stop");
        cx.unregister_self();
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        if self.1 == "drop" {
            self.at("drop");
        }
    }
}

#[test]
fn panics_anywhere_are_contained() {
    for place in ["make", "event", "timer", "flush", "stop", "drop"] {
        let mut manual = Manual::new(1).unwrap();
        let log = Log::default();
        let inner = Arc::clone(&log);
        let handle = manual
            .registrar()
            .register(Placement::LeastLoaded(KIND), move |core, cx| {
                cx.schedule(Duration::from_millis(1));
                assert_ne!(place, "make");
                Box::new(Fragile(core, place, inner))
            });
        let (other, other_log) = probe(&manual, P0);
        handle.post(Event::Note(1));
        other.post(Event::Note(2));
        manual.run_until_idle(10);
        manual.advance(Duration::from_millis(1), 10);
        // A barrier of another client flushes the fragile one; the order behind it must not be lost.
        handle.post(Event::Note(1));
        other.unregister();
        manual.run_until_idle(10);
        assert_eq!(taken(&other_log), ["2", "flush", "drop"], "{place}");
        let stats = manual.stats();
        assert_eq!(manual.stop(10), 0);
        let _ = stats;
        if place != "make" {
            assert!(
                log.lock().unwrap().iter().any(|note| note == place),
                "{place} was reached"
            );
        }
    }
}

#[test]
fn pressure_is_told_at_high_and_again_at_low_and_try_post_refuses_meanwhile() {
    fn subscribe(_: &mut Probe, cx: &mut Cx<'_, Event>) {
        cx.subscribe_pressure();
    }
    let config = DispatcherConfig {
        processors: 2,
        low_watermark: 2,
        high_watermark: 8,
        hard_limit: 16,
        turn_events: 4,
        ..DispatcherConfig::default()
    };
    let overflows = Arc::new(Mutex::new(0));
    let count = Arc::clone(&overflows);
    let hooks = Hooks {
        on_overflow: Arc::new(move |_| *count.lock().unwrap() += 1),
        ..Hooks::default()
    };
    let mut manual = Manual::with_config(config, hooks).unwrap();
    let (edge, edge_log) = probe(&manual, P0);
    let (target, _) = probe(&manual, P1);
    act(&edge, subscribe);
    manual.run_until_idle(10);
    taken(&edge_log);

    let mut accepted = 0;
    while target.try_post(Event::Note(accepted)).is_ok() {
        accepted += 1;
    }
    assert_eq!(accepted, 8);
    assert_eq!(target.level(), Level::High);
    manual.turn(P0);
    assert_eq!(taken(&edge_log), ["1 is High", "flush"]);
    for number in 8..20 {
        target.post(Event::Note(number));
    }
    assert_eq!(target.level(), Level::Hard);
    assert_eq!(*overflows.lock().unwrap(), 1, "reported once");
    manual.turn(P0);
    assert_eq!(taken(&edge_log), ["1 is Hard", "flush"]);

    for _ in 0..4 {
        manual.turn(P1);
        manual.turn(P0);
    }
    assert!(
        !taken(&edge_log).contains(&"1 is Normal".into()),
        "four still wait: over low"
    );
    manual.turn(P1);
    manual.turn(P0);
    assert_eq!(taken(&edge_log), ["1 is Normal", "flush"]);
    assert!(target.try_post(Event::Note(0)).is_ok());
    assert!(manual.stats().processors[1].overshoot >= 12);
    assert_eq!(manual.stats().processors[1].depth_max, 20);
}

#[test]
fn who_subscribes_late_is_told_of_the_pressure_there_is() {
    fn subscribe(_: &mut Probe, cx: &mut Cx<'_, Event>) {
        cx.subscribe_pressure();
    }
    let config = DispatcherConfig {
        processors: 2,
        low_watermark: 2,
        high_watermark: 8,
        hard_limit: 16,
        ..DispatcherConfig::default()
    };
    let mut manual = Manual::with_config(config, Hooks::default()).unwrap();
    let (target, _) = probe(&manual, P1);
    for number in 0..8 {
        target.post(Event::Note(number));
    }
    let (edge, edge_log) = probe(&manual, P0);
    act(&edge, subscribe);
    manual.turn(P0);
    manual.turn(P0);
    assert!(taken(&edge_log).contains(&"1 is High".into()));
}

#[test]
fn own_posts_that_pile_up_count_as_depth() {
    fn flood(_: &mut Probe, cx: &mut Cx<'_, Event>) {
        let me = cx.handle();
        for number in 0..100 {
            cx.post(&me, Event::Note(number));
        }
    }
    let config = DispatcherConfig {
        processors: 1,
        low_watermark: 2,
        high_watermark: 50,
        hard_limit: 64,
        turn_events: 10,
        ..DispatcherConfig::default()
    };
    let mut manual = Manual::with_config(config, Hooks::default()).unwrap();
    let (handle, _) = probe(&manual, P0);
    act(&handle, flood);
    manual.turn(P0);
    assert_eq!(handle.level(), Level::Hard);
    manual.run_until_idle(100);
    assert_eq!(handle.level(), Level::Normal);
    assert_eq!(manual.stats().processors[0].depth, 0);
}

#[test]
fn stopping_goes_kind_by_kind_and_waits_for_clients_that_take_their_time() {
    const EDGE: ClientKind = ClientKind::new(3, "edge");
    struct Slow(ClientCore, Log, &'static str);
    impl Client<Event> for Slow {
        fn core(&self) -> &ClientCore {
            &self.0
        }
        fn on_event(&mut self, _: &mut Cx<'_, Event>, _: Event) {}
        fn on_stop(&mut self, cx: &mut Cx<'_, Event>) {
            self.1.lock().unwrap().push(format!("{} stops", self.2));
            let me = cx.handle();
            cx.post(&me, Event::Note(0));
            me.barrier(|cx| cx.unregister_self());
        }
    }
    impl Drop for Slow {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(format!("{} gone", self.2));
        }
    }
    let config = DispatcherConfig {
        processors: 2,
        stop_order: vec![EDGE],
        ..DispatcherConfig::default()
    };
    let mut manual = Manual::with_config(config, Hooks::default()).unwrap();
    let log = Log::default();
    for (at, kind, name) in [(P0, KIND, "core"), (P1, EDGE, "edge")] {
        let log = Arc::clone(&log);
        manual
            .registrar()
            .register(Placement::Processor(at, kind), move |core, _| {
                Box::new(Slow(core, log, name))
            });
    }
    manual.run_until_idle(10);
    let registrar = manual.registrar();
    assert_eq!(manual.stop(10), 0);
    assert_eq!(
        taken(&log),
        ["edge stops", "edge gone", "core stops", "core gone"]
    );
    let late = registrar.try_register(Placement::LeastLoaded(KIND), |_, _| unreachable!());
    assert_eq!(late.unwrap_err(), RegisterError::Stopped);
}

#[test]
fn placement_follows_ranges_and_load() {
    const NARROW: ClientKind = ClientKind::new(4, "narrow");
    let config = DispatcherConfig {
        processors: 3,
        ranges: vec![(NARROW, 1..3)],
        ..DispatcherConfig::default()
    };
    let mut manual = Manual::<Event>::with_config(config, Hooks::default()).unwrap();
    let place = |at| {
        let log = Log::default();
        manual
            .registrar()
            .register(at, move |core, _| Box::new(Probe { core, log }))
            .processor()
            .0
    };
    let narrow: Vec<_> = (0..4)
        .map(|_| place(Placement::LeastLoaded(NARROW)))
        .collect();
    assert_eq!(narrow, [1, 2, 1, 2]);
    let wide: Vec<_> = (0..4)
        .map(|_| place(Placement::LeastLoaded(KIND)))
        .collect();
    assert_eq!(
        wide,
        [0, 1, 2, 0],
        "least of its kind first, then least of all"
    );
    manual.run_until_idle(10);
    assert_eq!(
        manual
            .stats()
            .processors
            .iter()
            .map(|p| p.clients)
            .collect::<Vec<_>>(),
        [2, 3, 3]
    );
}

#[test]
fn a_full_processor_and_one_that_is_not_there_refuse() {
    let config = DispatcherConfig {
        processors: 1,
        max_clients: 1,
        ..DispatcherConfig::default()
    };
    let manual = Manual::<Event>::with_config(config, Hooks::default()).unwrap();
    let _first = probe(&manual, P0);
    let refused = |at| {
        manual
            .registrar()
            .try_register(at, |_, _| unreachable!())
            .unwrap_err()
    };
    assert_eq!(
        refused(Placement::LeastLoaded(KIND)),
        RegisterError::Full {
            processor: P0,
            max_clients: 1
        }
    );
    assert_eq!(
        refused(Placement::Processor(P1, KIND)),
        RegisterError::NoProcessor {
            processor: P1,
            count: 1
        }
    );
}

#[test]
fn what_is_left_at_the_end_is_counted_as_returned() {
    let manual = Manual::new(1).unwrap();
    let (handle, log) = probe(&manual, P0);
    handle.post(Event::Note(1));
    let stats = manual.stats_reader();
    drop(manual);
    assert_eq!(
        stats().processors[0].returned,
        2,
        "the registration and the event"
    );
    handle.post(Event::Note(2));
    assert_eq!(stats().processors[0].returned, 3);
    let refused = handle.try_post(Event::Note(3)).unwrap_err();
    assert!(refused.is_stopped && matches!(refused.event, Event::Note(3)));
    assert!(taken(&log).is_empty());
}

#[test]
fn on_all_runs_on_each_processor_and_then_says_so_once() {
    let mut manual = Manual::<Event>::new(3).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (inner, at_end) = (Arc::clone(&seen), Arc::clone(&seen));
    manual.registrar().on_all(
        KIND,
        move |cx| inner.lock().unwrap().push(cx.processor().0),
        move || at_end.lock().unwrap().push(99),
    );
    manual.run_until_idle(10);
    assert_eq!(*seen.lock().unwrap(), [0, 1, 2, 99]);
}

#[test]
fn the_owner_of_an_event_source_sends_in_order_and_drop_flushes() {
    let mut manual = Manual::new(2).unwrap();
    let (a, log_a) = probe(&manual, P0);
    let (b, log_b) = probe(&manual, P1);
    let mut source = manual.registrar().event_source();
    for number in 0..100 {
        source.post(&a, Event::Note(number));
        source.post(&b, Event::Note(number));
    }
    drop(source);
    manual.run_until_idle(10);
    for log in [log_a, log_b] {
        let notes: Vec<_> = taken(&log)
            .into_iter()
            .filter(|note| note != "flush")
            .collect();
        assert_eq!(notes, (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
    }
}
