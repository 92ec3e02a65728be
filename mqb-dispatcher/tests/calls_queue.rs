//! The ready queue against a model that sorts: order, exact eviction, chains, nothing lost and nothing twice.
#![cfg(not(mqb_loom))]

use std::collections::BTreeMap;

use mqb_dispatcher::calls::{Entry, Eviction, LaneConfig, QueueConfig, ReadyQueue, Victim};
use proptest::prelude::*;

const CLASSES: u8 = 3;

#[derive(Clone, Debug)]
enum Step {
    Push {
        entry: Entry,
    },
    Pop,
    /// Ends the oldest call that runs in some chain.
    Finish,
    Evict {
        newcomer: Entry,
    },
    Expire {
        now: u64,
    },
    Take {
        remainder: u32,
    },
}

/// All that is known of the calls that wait, by number; the number is the arrival.
struct Model {
    waiting: BTreeMap<u32, Entry>,
    running: Vec<(u32, (u64, u16))>,
    weights: Vec<u64>,
}

impl Model {
    /// Nothing of its chain runs or came before it.
    fn is_ready(&self, number: u32) -> bool {
        let Some(chain) = self.waiting[&number].chain else {
            return true;
        };
        let is_behind =
            |(other, entry): (&u32, &Entry)| *other < number && entry.chain == Some(chain);
        !self.running.iter().any(|(_, busy)| *busy == chain) && !self.waiting.iter().any(is_behind)
    }

    fn ready(&self) -> impl Iterator<Item = (u64, u32)> {
        self.waiting
            .iter()
            .filter(|(number, _)| self.is_ready(**number))
            .map(|(number, entry)| (entry.order_ns, *number))
    }

    fn len_of(&self, class: u8) -> u64 {
        self.waiting
            .values()
            .filter(|entry| entry.class == class)
            .count() as u64
    }

    /// Number of the call that has to go, or none if it is the newcomer.
    fn victim(&self, eviction: Eviction, newcomer: Entry) -> Option<u32> {
        let latest = |classes: &dyn Fn(u8) -> bool| {
            self.waiting
                .iter()
                .filter(|(_, entry)| classes(entry.class))
                .map(|(number, entry)| (entry.order_ns, *number))
                .max()
        };
        let later = |found: Option<(u64, u32)>| {
            found
                .filter(|(order, _)| *order > newcomer.order_ns)
                .map(|(_, number)| number)
        };
        match eviction {
            Eviction::Latest => later(latest(&|_| true)),
            Eviction::LatestOfLargest => {
                let mut largest = (newcomer.class, 0, 1);
                for class in 0..CLASSES {
                    let len = self.len_of(class) + u64::from(class == newcomer.class);
                    let weight = self.weights[usize::from(class)];
                    // The share len / weight, compared without dividing.
                    if len * largest.2 > largest.1 * weight {
                        largest = (class, len, weight);
                    }
                }
                let found = latest(&|class| class == largest.0);
                if largest.0 == newcomer.class {
                    later(found)
                } else {
                    found.map(|(_, number)| number)
                }
            }
        }
    }
}

fn entries() -> impl Strategy<Value = Entry> {
    let orders = prop_oneof![0..40_u64, Just(u64::MAX)];
    let chains = prop::option::weighted(0.5, (0..2_u64, 1..3_u16));
    (orders, 0..CLASSES, chains).prop_map(|(order_ns, class, chain)| Entry {
        order_ns,
        class,
        chain,
    })
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => entries().prop_map(|entry| Step::Push { entry }),
        3 => Just(Step::Pop),
        3 => Just(Step::Finish),
        1 => entries().prop_map(|newcomer| Step::Evict { newcomer }),
        1 => (0..40_u64).prop_map(|now| Step::Expire { now }),
        1 => (0..4_u32).prop_map(|remainder| Step::Take { remainder }),
    ]
}

fn queue(weights: &[u32], round_robin_every: u32, eviction: Eviction) -> ReadyQueue<u32> {
    let lane = |weight: &u32| LaneConfig {
        weight: *weight,
        is_evictable: true,
        capacity: 4,
    };
    ReadyQueue::new(&QueueConfig {
        lanes: weights.iter().map(lane).collect(),
        round_robin_every,
        eviction,
    })
}

fn check(
    steps: Vec<Step>,
    weights: [u32; 3],
    round_robin_every: u32,
    eviction: Eviction,
) -> Result<(), TestCaseError> {
    let mut queue = queue(&weights, round_robin_every, eviction);
    let mut model = Model {
        waiting: BTreeMap::new(),
        running: Vec::new(),
        weights: weights.map(u64::from).to_vec(),
    };
    let mut next = 0;
    let mut pops = 0;
    for step in steps {
        match step {
            Step::Push { entry } => {
                next += 1;
                model.waiting.insert(next, entry);
                prop_assert_eq!(queue.push(entry, next), model.is_ready(next));
            }
            Step::Pop => {
                let popped = queue.pop();
                let Some((entry, number)) = popped else {
                    prop_assert_eq!(model.ready().count(), 0);
                    continue;
                };
                pops += 1;
                prop_assert!(model.is_ready(number));
                if round_robin_every == 0 || pops % round_robin_every != 0 {
                    prop_assert_eq!(model.ready().min(), Some((entry.order_ns, number)));
                } else {
                    let of_class =
                        |(_, other): &(u64, u32)| model.waiting[other].class == entry.class;
                    prop_assert_eq!(
                        model.ready().filter(of_class).min(),
                        Some((entry.order_ns, number))
                    );
                }
                prop_assert_eq!(model.waiting.remove(&number), Some(entry));
                model
                    .running
                    .extend(entry.chain.map(|chain| (number, chain)));
            }
            Step::Finish => {
                if !model.running.is_empty() {
                    let (_, chain) = model.running.remove(0);
                    queue.finish(chain);
                }
            }
            Step::Evict { newcomer } => match queue.evict_for(newcomer) {
                Victim::Newcomer => prop_assert_eq!(model.victim(eviction, newcomer), None),
                Victim::Queued(entry, number) => {
                    prop_assert_eq!(model.victim(eviction, newcomer), Some(number));
                    prop_assert_eq!(model.waiting.remove(&number), Some(entry));
                }
            },
            Step::Expire { now } => {
                while let Some((entry, number)) = queue.pop_expired(now, |class| class != 2) {
                    prop_assert!(entry.order_ns <= now && entry.class != 2);
                    prop_assert_eq!(model.waiting.remove(&number), Some(entry));
                }
                let is_left = |entry: &Entry| entry.order_ns <= now && entry.class != 2;
                prop_assert!(!model.waiting.values().any(is_left));
            }
            Step::Take { remainder } => {
                let mut out = Vec::with_capacity(64);
                queue.take_matching(|number| number % 4 == remainder, &mut out);
                for number in out {
                    prop_assert!(model.waiting.remove(&number).is_some());
                }
                prop_assert!(!model.waiting.keys().any(|number| number % 4 == remainder));
            }
        }
        prop_assert_eq!(queue.len(), model.waiting.len());
        prop_assert_eq!(queue.ready(), model.ready().count());
        let before = model.waiting.values().filter(|entry| entry.order_ns <= 20);
        prop_assert_eq!(queue.count_before(20), before.count());
    }
    // Whatever is left comes out, each once.
    loop {
        while let Some((_, chain)) = model.running.pop() {
            queue.finish(chain);
        }
        let Some((entry, number)) = queue.pop() else {
            break;
        };
        prop_assert_eq!(model.waiting.remove(&number), Some(entry));
        model
            .running
            .extend(entry.chain.map(|chain| (number, chain)));
    }
    prop_assert!(model.waiting.is_empty() && queue.is_empty());
    Ok(())
}

proptest! {
    #[test]
    fn strict_order_and_eviction_of_the_latest_of_all(steps in prop::collection::vec(steps(), 1..120)) {
        check(steps, [1, 1, 1], 0, Eviction::Latest)?;
    }

    #[test]
    fn shares_of_pops_and_eviction_from_the_largest_class(
        steps in prop::collection::vec(steps(), 1..120),
        weights in [1..4_u32, 1..4, 1..4],
    ) {
        check(steps, weights, 4, Eviction::LatestOfLargest)?;
    }
}
