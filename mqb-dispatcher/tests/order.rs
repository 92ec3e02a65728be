//! Random histories: order per source and client, and who gets what while clients come and go.
#![cfg(not(mqb_loom))]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use mqb_dispatcher::{
    Client, ClientCore, ClientKind, Cx, DispatcherConfig, EventSource, Handle, Hooks, Manual,
    MemberId, Placement, ProcessorId,
};
use proptest::prelude::*;

const KIND: ClientKind = ClientKind::new(0, "probe");
const PROCESSORS: u16 = 3;

#[derive(Clone)]
struct Stamped {
    source: usize,
    number: u64,
    /// Where the client that gets it sends a copy, stamped as its own.
    relay: Option<Handle<Stamped>>,
}

/// What each address received: (tenant, source, number).
type Log = Arc<Mutex<Vec<(u64, usize, u64)>>>;

struct Probe {
    core: ClientCore,
    tenant: u64,
    log: Log,
    relayed: u64,
}

impl Client<Stamped> for Probe {
    fn core(&self) -> &ClientCore {
        &self.core
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Stamped>, event: Stamped) {
        assert!(self.core.in_dispatcher_thread());
        self.log
            .lock()
            .unwrap()
            .push((self.tenant, event.source, event.number));
        if let Some(to) = event.relay {
            let copy = Stamped {
                source: 100 + self.tenant as usize,
                number: self.relayed,
                relay: None,
            };
            self.relayed += 1;
            // By turns through `Cx` and past it: the order must hold all the same.
            if self.relayed.is_multiple_of(2) {
                cx.post(&to, copy)
            } else {
                to.post(copy)
            }
        }
    }

    fn on_member_event(&mut self, _: &mut Cx<'_, Stamped>, _: MemberId, _: Stamped) {
        unreachable!("there are no members here");
    }
}

struct World {
    manual: Manual<Stamped>,
    log: Log,
    tenants: u64,
}

impl World {
    fn new(turn_events: usize) -> Self {
        let config = DispatcherConfig {
            processors: PROCESSORS,
            turn_events,
            ..DispatcherConfig::default()
        };
        let manual = Manual::with_config(config, Hooks::default()).unwrap();
        Self {
            manual,
            log: Log::default(),
            tenants: 0,
        }
    }

    fn register(&mut self, processor: u16) -> (u64, Handle<Stamped>) {
        let (tenant, log) = (self.tenants, Arc::clone(&self.log));
        self.tenants += 1;
        let at = Placement::Processor(ProcessorId(processor), KIND);
        let make = move |core, _: &mut Cx<'_, Stamped>| -> Box<dyn Client<Stamped>> {
            Box::new(Probe {
                core,
                tenant,
                log,
                relayed: 0,
            })
        };
        (tenant, self.manual.registrar().register(at, make))
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A thread posts directly.
    Post {
        to: usize,
    },
    /// An event source collects.
    Collect {
        source: usize,
        to: usize,
    },
    Flush {
        source: usize,
    },
    /// A client is made to post to another.
    Relay {
        through: usize,
        to: usize,
    },
    Turn {
        processor: u16,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..6_usize).prop_map(|to| Step::Post { to }),
        (0..2_usize, 0..6_usize).prop_map(|(source, to)| Step::Collect { source, to }),
        (0..2_usize).prop_map(|source| Step::Flush { source }),
        (0..6_usize, 0..6_usize).prop_map(|(through, to)| Step::Relay { through, to }),
        (0..PROCESSORS).prop_map(|processor| Step::Turn { processor }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn each_client_sees_each_source_in_order_and_completely(
        steps in prop::collection::vec(step(), 1..400),
        turn_events in 1..20_usize,
    ) {
        let mut world = World::new(turn_events);
        let clients: Vec<_> = (0..6).map(|index| world.register(index % PROCESSORS)).collect();
        let mut sources: Vec<EventSource<Stamped>> = (0..2).map(|_| world.manual.registrar().event_source()).collect();
        // Numbers given out, by source; 0 and 1 are event sources, 2 is this thread.
        let mut numbers = [0_u64; 3];
        let mut relays = HashMap::<usize, u64>::new();
        for step in steps {
            match step {
                Step::Post { to } => {
                    clients[to].1.post(Stamped { source: 2, number: numbers[2], relay: None });
                    numbers[2] += 1;
                }
                Step::Relay { through, to } => {
                    let relay = Some(clients[to].1.clone());
                    clients[through].1.post(Stamped { source: 2, number: numbers[2], relay });
                    numbers[2] += 1;
                    *relays.entry(100 + through).or_default() += 1;
                }
                Step::Collect { source, to } => {
                    sources[source].post(&clients[to].1, Stamped { source, number: numbers[source], relay: None });
                    numbers[source] += 1;
                }
                Step::Flush { source } => sources[source].flush(),
                Step::Turn { processor } => drop(world.manual.turn(ProcessorId(processor))),
            }
        }
        drop(sources);
        world.manual.run_until_idle(10_000);
        let log = world.log.lock().unwrap();
        let mut last = HashMap::new();
        let mut received = HashMap::<usize, u64>::new();
        for &(tenant, source, number) in log.iter() {
            if let Some(before) = last.insert((tenant, source), number) {
                prop_assert!(before < number, "client {tenant} saw {number} of source {source} after {before}");
            }
            *received.entry(source).or_default() += 1;
        }
        for (source, sent) in numbers.into_iter().enumerate().chain(relays) {
            prop_assert_eq!(received.remove(&source).unwrap_or_default(), sent, "source {}", source);
        }
    }
}

#[derive(Clone, Debug)]
enum Change {
    Register { processor: u16 },
    Unregister { handle: usize },
    Post { handle: usize },
    Turn { processor: u16 },
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        2 => (0..PROCESSORS).prop_map(|processor| Change::Register { processor }),
        2 => any::<prop::sample::Index>().prop_map(|at| Change::Unregister { handle: at.index(1 << 16) }),
        6 => any::<prop::sample::Index>().prop_map(|at| Change::Post { handle: at.index(1 << 16) }),
        3 => (0..PROCESSORS).prop_map(|processor| Change::Turn { processor }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The model: a handle reaches its own client from registration to unregistration and nobody ever after.
    #[test]
    fn a_handle_reaches_its_own_client_or_nobody(changes in prop::collection::vec(change(), 1..400)) {
        let mut world = World::new(16);
        let mut handles = Vec::new();
        let mut gone = Vec::new();
        let mut expected = Vec::new();
        let mut stale = 0;
        for (number, change) in changes.into_iter().enumerate() {
            match change {
                Change::Register { processor } => {
                    handles.push(world.register(processor));
                    gone.push(false);
                }
                Change::Unregister { handle } if !handles.is_empty() => {
                    let index = handle % handles.len();
                    handles[index].1.unregister();
                    gone[index] = true;
                }
                Change::Post { handle } if !handles.is_empty() => {
                    let index = handle % handles.len();
                    let (tenant, handle) = &handles[index];
                    handle.post(Stamped { source: 0, number: number as u64, relay: None });
                    if gone[index] { stale += 1 } else { expected.push((*tenant, 0, number as u64)) }
                }
                Change::Turn { processor } => drop(world.manual.turn(ProcessorId(processor))),
                _ => {}
            }
        }
        world.manual.run_until_idle(10_000);
        let mut seen = std::mem::take(&mut *world.log.lock().unwrap());
        seen.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(seen, expected);
        let stats = world.manual.stats();
        prop_assert_eq!(stats.processors.iter().map(|p| p.stale_drops).sum::<u64>(), stale);
        let alive = gone.iter().filter(|gone| !**gone).count();
        prop_assert_eq!(stats.processors.iter().map(|p| p.clients as usize).sum::<usize>(), alive);
    }
}
