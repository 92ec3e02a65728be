//! Random peers that come, put, read, confirm, close, vanish, and a broker that is killed now and then: no message that
//! was acknowledged is lost, none that was safely confirmed comes back, budgets and counters add up, everything drains.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::world::{Peer, Told, World, config};
use crate::event::{AckStatus, QueryAnswer, QueryRequest};
use crate::storage::Duty;

#[derive(Clone, Debug)]
enum Op {
    Come { slot: u8, uri: u8, window: u8 },
    Put { slot: u8, count: u8, again: bool },
    Confirm { slot: u8, count: u8 },
    Reconfigure { slot: u8, window: u8 },
    Close { slot: u8 },
    Vanish { slot: u8, graceful: bool },
    Help { duty: u8 },
    Pass { ms: u16 },
    Kill,
}

fn op() -> impl Strategy<Value = Op> {
    let slot = 0..4u8;
    prop_oneof![
        6 => (slot.clone(), 0..6u8, 0..20u8).prop_map(|(slot, uri, window)| Op::Come { slot, uri, window }),
        12 => (slot.clone(), 1..20u8, prop::bool::weighted(0.2)).prop_map(|(slot, count, again)| Op::Put { slot, count, again }),
        10 => (slot.clone(), 1..30u8).prop_map(|(slot, count)| Op::Confirm { slot, count }),
        3 => (slot.clone(), 0..20u8).prop_map(|(slot, window)| Op::Reconfigure { slot, window }),
        2 => slot.clone().prop_map(|slot| Op::Close { slot }),
        3 => (slot, any::<bool>()).prop_map(|(slot, graceful)| Op::Vanish { slot, graceful }),
        12 => (0..4u8).prop_map(|duty| Op::Help { duty }),
        2 => (1..300u16).prop_map(|ms| Op::Pass { ms }),
        1 => Just(Op::Kill),
    ]
}

const DOMAINS: [&str; 2] = ["sync", "flush"];

fn uri(number: u8) -> String {
    format!("bmq://{}/q{}", DOMAINS[usize::from(number) % 2], number / 2)
}

/// A connected peer and what it has in hand.
struct Active {
    peer: Peer,
    uri: String,
    held: Vec<u128>,
    /// What it confirmed.
    confirmed: Vec<u128>,
    waits: BTreeSet<u128>,
    subscription: u32,
}

#[derive(Default)]
struct Books {
    next: u128,
    /// By queue: messages acknowledged to their producer.
    acked: BTreeMap<String, BTreeSet<u128>>,
    /// Messages whose confirm was sent.
    confirmed: BTreeSet<u128>,
    /// Messages whose confirm was followed by an answered close or a gone session.
    safe: BTreeSet<u128>,
}

struct Soak {
    dir: tempfile::TempDir,
    world: Option<World>,
    active: BTreeMap<u8, Active>,
    books: Books,
}

impl Soak {
    fn world(&mut self) -> &mut World {
        self.world
            .as_mut()
            .expect("between restarts there is a world")
    }

    /// Reads what peers were told.
    fn listen(&mut self) {
        for active in self.active.values_mut() {
            for told in active.peer.told() {
                match told {
                    Told::Ack(n, AckStatus::Success) => {
                        active.waits.remove(&n);
                        self.books
                            .acked
                            .entry(active.uri.clone())
                            .or_default()
                            .insert(n);
                    }
                    Told::Push {
                        n, subscription, ..
                    } => {
                        assert_eq!(
                            subscription, active.subscription,
                            "a message under a subscription that does not hold"
                        );
                        assert!(
                            !self.books.safe.contains(&n),
                            "{n} came back after its confirm was safe"
                        );
                        assert!(
                            !active.held.contains(&n),
                            "{n} was given twice to one consumer that holds it"
                        );
                        active.held.push(n);
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert!(active.peer.released() <= active.peer.charged);
        }
    }

    fn come(&mut self, slot: u8, number: u8, window: u8) {
        if self.active.contains_key(&slot) {
            return;
        }
        let world = self.world();
        let (peer, uri) = (world.peer(None), uri(number));
        world.open(&peer, &uri);
        let call = world.configure(&peer, Some((1, window.into())));
        let mut told = peer.told().into_iter();
        assert_eq!(told.next(), Some(Told::Configured(call, Ok(()))));
        let mut held = Vec::new();
        for told in told {
            let Told::Push { n, .. } = told else {
                panic!("{told:?}")
            };
            assert!(
                !self.books.safe.contains(&n),
                "{n} came back after its confirm was safe"
            );
            held.push(n);
        }
        self.active.insert(
            slot,
            Active {
                peer,
                uri,
                held,
                confirmed: Vec::new(),
                waits: BTreeSet::new(),
                subscription: 1,
            },
        );
        self.listen();
    }

    /// Waits for the last answers of a peer that goes. `answer` is the last of them.
    fn farewell(&mut self, mut active: Active, is_last: impl Fn(&Told) -> bool) {
        self.world().settle();
        let told = active.peer.told();
        assert!(told.last().is_some_and(is_last), "{told:?}");
        for told in told {
            if let Told::Ack(n, AckStatus::Success) = told {
                active.waits.remove(&n);
                self.books
                    .acked
                    .entry(active.uri.clone())
                    .or_default()
                    .insert(n);
            }
        }
        assert_eq!(
            active.waits,
            BTreeSet::new(),
            "every PUT is answered before the end"
        );
        assert_eq!(active.peer.released(), active.peer.charged);
        self.books.safe.extend(active.confirmed);
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Come { slot, uri, window } => self.come(slot, uri, window),
            Op::Put { slot, count, again } => self.put(slot, count, again),
            Op::Confirm { slot, count } => {
                let Some(mut active) = self.active.remove(&slot) else {
                    return;
                };
                let count = active.held.len().min(count.into());
                let numbers: Vec<u128> = active.held.drain(..count).collect();
                self.books.confirmed.extend(&numbers);
                active.confirmed.extend(&numbers);
                self.world().confirm(&active.peer, &numbers);
                self.active.insert(slot, active);
            }
            Op::Reconfigure { slot, window } => {
                let Some(active) = self.active.remove(&slot) else {
                    return;
                };
                self.reconfigure(slot, active, window);
            }
            Op::Close { slot } => {
                let Some(active) = self.active.remove(&slot) else {
                    return;
                };
                let call = self.world().close(&active.peer);
                let ends = move |told: &Told| *told == Told::Closed(call, Ok(()));
                let session = active.peer.session;
                let partitions = active.peer.partitions();
                self.farewell(active, ends);
                for partition in partitions {
                    partition.post(crate::event::Event::SessionEnded {
                        session,
                        graceful: true,
                    });
                }
            }
            Op::Vanish { slot, graceful } => {
                let Some(active) = self.active.remove(&slot) else {
                    return;
                };
                self.world().end(&active.peer, graceful);
                self.farewell(active, |told| *told == Told::Gone);
            }
            Op::Help { duty } => {
                let duty = [Duty::Write, Duty::Sync, Duty::Read, Duty::Tend][usize::from(duty)];
                self.world().help(duty);
            }
            Op::Pass { ms } => self.world().pass(Duration::from_millis(ms.into())),
            Op::Kill => {
                self.listen();
                self.active.clear();
                let world = self
                    .world
                    .take()
                    .expect("between restarts there is a world");
                self.world = Some(world.restart(&self.dir));
            }
        }
        self.listen();
    }

    fn put(&mut self, slot: u8, count: u8, again: bool) {
        let Some(mut active) = self.active.remove(&slot) else {
            return;
        };
        let numbers: Vec<u128> = match again {
            // Something that is on its way: one ACK for both.
            true => active.waits.iter().copied().take(count.into()).collect(),
            false => (0..u128::from(count))
                .map(|n| self.books.next + 1 + n)
                .collect(),
        };
        if !again {
            self.books.next += u128::from(count);
        }
        active.waits.extend(&numbers);
        self.world().put(&mut active.peer, &numbers);
        self.active.insert(slot, active);
    }

    fn reconfigure(&mut self, slot: u8, mut active: Active, window: u8) {
        let next = active.subscription + 1;
        let call = self
            .world()
            .configure(&active.peer, Some((next, window.into())));
        for told in active.peer.told() {
            match told {
                Told::Configured(answered, Ok(())) => {
                    assert_eq!(answered, call);
                    active.subscription = next;
                }
                Told::Push {
                    n, subscription, ..
                } => {
                    assert_eq!(subscription, active.subscription);
                    active.held.push(n);
                }
                Told::Ack(n, AckStatus::Success) => {
                    active.waits.remove(&n);
                    self.books
                        .acked
                        .entry(active.uri.clone())
                        .or_default()
                        .insert(n);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(active.subscription, next);
        self.active.insert(slot, active);
    }

    /// Everything that is left comes out, once, and the books agree.
    fn drain(&mut self) {
        for slot in 0..4 {
            self.apply(&Op::Vanish {
                slot,
                graceful: true,
            });
        }
        for number in 0..6 {
            self.come(0, number, 19);
            for _ in 0..10_000 {
                self.world().settle();
                self.listen();
                if self.active[&0].held.is_empty() {
                    break;
                }
                for &n in &self.active[&0].held {
                    if let Some(acked) = self.books.acked.get_mut(&self.active[&0].uri) {
                        acked.remove(&n);
                    }
                }
                self.apply(&Op::Confirm {
                    slot: 0,
                    count: u8::MAX,
                });
            }
            self.apply(&Op::Vanish {
                slot: 0,
                graceful: true,
            });
        }
        for (uri, acked) in &self.books.acked {
            let lost: Vec<_> = acked.difference(&self.books.confirmed).collect();
            assert!(
                lost.is_empty(),
                "{uri}: acknowledged, never confirmed, and gone: {lost:?}"
            );
        }
        let QueryAnswer::Queues(queues) = self.world().ask(QueryRequest::Queues { domain: None })
        else {
            panic!()
        };
        for queue in queues {
            assert_eq!(
                (queue.messages, queue.bytes, queue.unconfirmed),
                (0, 0, 0),
                "{}",
                queue.uri
            );
            assert_eq!(
                queue.stored,
                queue.confirmed + queue.expired + queue.purged + queue.removed
            );
        }
        let QueryAnswer::Partitions(reports) = self.world().ask(QueryRequest::Partitions) else {
            panic!()
        };
        assert!(
            reports
                .iter()
                .all(|report| report.sessions == 0 && report.pending_acks == 0)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_peers_and_crashes_lose_nothing(ops in prop::collection::vec(op(), 1..120)) {
        let dir = tempfile::tempdir().unwrap();
        let world = World::new(&dir, config());
        let mut soak = Soak { dir, world: Some(world), active: BTreeMap::new(), books: Books::default() };
        for op in &ops {
            soak.apply(op);
        }
        soak.drain();
    }
}
