//! What the dispatcher promises, shown on processors turned by hand.
#![cfg(not(mqb_loom))]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mqb_dispatcher::{
    Client, ClientCore, ClientKind, Cx, Dispatcher, DispatcherConfig, Handle, Hooks, Level, Manual,
    MemberId, Placement, Pressure, ProcessorId, TimerId,
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
