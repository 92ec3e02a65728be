//! Random histories of a work queue against a naive model, which knows each message's state and each consumer's account.
//!
//! Checked at every push: the message is the one that is due, its consumer is of the highest priority, open, not paused
//! and not full. Checked after every step: nothing is stuck, numbers agree, `stored = confirmed + expired + purged +
//! removed + depth`, the store holds exactly the live messages. At the end everything is drained.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use mqb_core::{Guid, QueueId, Sequence, SessionId, SubId, SubscriptionId, WireQueueId};
use mqb_queue::{
    Accepted, Budget, CloseScope, DataFormat, Delivery, Fetch, MemoryStore, MessageStore,
    NewMessage, Notice, OpenRequest, Peer, Push, PutError, Queue, QueueSettings, Settled, Sink,
    StoreError, SubscriptionParameters, Target,
};
use proptest::prelude::*;

const TTL_MS: u64 = 1000;
const MAX_MESSAGES: u64 = 40;
const MAX_BYTES: u64 = 4000;
const MAX_ATTEMPTS: u32 = 3;

#[derive(Clone, Debug)]
enum Op {
    Put {
        guid: u8,
        len: u16,
    },
    Deliverable,
    Open {
        session: u8,
        readers: u8,
    },
    Configure {
        session: u8,
        subscriptions: Vec<(u8, u16, i8, u8)>,
    },
    Pause {
        session: u8,
        paused: bool,
    },
    Close {
        session: u8,
    },
    CloseReader {
        session: u8,
    },
    Lose {
        session: u8,
    },
    Confirm {
        session: u8,
        pick: u8,
    },
    Deliver {
        messages: u8,
        stall_after: u8,
    },
    Time {
        ms: u16,
    },
    Purge,
}

fn op() -> impl Strategy<Value = Op> {
    let session = 0..4u8;
    let subscription = (0..7u8, 0..600u16, 0..3i8, 1..4u8);
    prop_oneof![
        12 => (any::<u8>(), 0..400u16).prop_map(|(guid, len)| Op::Put { guid, len }),
        6 => Just(Op::Deliverable),
        4 => (session.clone(), 1..3u8).prop_map(|(session, readers)| Op::Open { session, readers }),
        6 => (session.clone(), prop::collection::vec(subscription, 0..3))
            .prop_map(|(session, subscriptions)| Op::Configure { session, subscriptions }),
        2 => (session.clone(), any::<bool>()).prop_map(|(session, paused)| Op::Pause { session, paused }),
        2 => session.clone().prop_map(|session| Op::Close { session }),
        1 => session.clone().prop_map(|session| Op::CloseReader { session }),
        3 => session.clone().prop_map(|session| Op::Lose { session }),
        10 => (session, any::<u8>()).prop_map(|(session, pick)| Op::Confirm { session, pick }),
        10 => (1..30u8, any::<u8>()).prop_map(|(messages, stall_after)| Op::Deliver { messages, stall_after }),
        2 => (1..500u16).prop_map(|ms| Op::Time { ms }),
        1 => Just(Op::Purge),
    ]
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Waiting,
    Held { session: u8, account: usize },
    Returned,
}

struct Message {
    guid: Guid,
    len: u64,
    at_ms: u64,
    state: State,
    losses: u32,
    delivered: bool,
}

/// One subscription's account in the model; `id` tells accounts of one consumer apart for ever.
struct Account {
    id: usize,
    parameters: Option<SubscriptionParameters>,
    full: bool,
}

#[derive(Default)]
struct Consumer {
    readers: u32,
    paused: bool,
    accounts: Vec<Account>,
}

#[derive(Default)]
struct Model {
    messages: BTreeMap<Sequence, Message>,
    consumers: HashMap<u8, Consumer>,
    next_account: usize,
    deliverable: Sequence,
    stored: u64,
    confirmed: u64,
    expired: u64,
    purged: u64,
    removed: u64,
}

impl Model {
    fn usage(&self, session: u8, account: usize) -> (u64, u64) {
        let held = self
            .messages
            .values()
            .filter(|message| message.state == State::Held { session, account });
        held.fold((0, 0), |(messages, bytes), message| {
            (messages + 1, bytes + message.len)
        })
    }

    /// Follows the windows after anything that changes usage or parameters.
    fn settle_windows(&mut self, configured: Option<u8>) {
        let usage: HashMap<(u8, usize), (u64, u64)> = self
            .consumers
            .iter()
            .flat_map(|(&session, consumer)| {
                consumer
                    .accounts
                    .iter()
                    .map(move |account| (session, account.id))
            })
            .map(|key| (key, self.usage(key.0, key.1)))
            .collect();
        for (&session, consumer) in &mut self.consumers {
            for account in &mut consumer.accounts {
                let Some(parameters) = account.parameters else {
                    continue;
                };
                let (messages, bytes) = usage[&(session, account.id)];
                let (max_messages, max_bytes) = (
                    parameters.max_unconfirmed_messages,
                    parameters.max_unconfirmed_bytes,
                );
                let at_limit = messages >= max_messages || bytes >= max_bytes;
                let relaxed = messages <= (max_messages * 4).div_ceil(5)
                    && bytes <= (max_bytes * 4).div_ceil(5);
                if at_limit {
                    account.full = true;
                } else if relaxed || configured == Some(session) {
                    account.full = false;
                }
            }
        }
    }

    fn top_priority(&self) -> Option<i32> {
        let all = self
            .consumers
            .values()
            .flat_map(|consumer| &consumer.accounts);
        all.filter_map(|account| account.parameters)
            .filter(SubscriptionParameters::is_consuming)
            .map(|p| p.priority)
            .max()
    }

    /// Accounts that may get a message now, as (session, account, subscription).
    fn eligible(&self) -> Vec<(u8, usize, SubscriptionId)> {
        let top = self.top_priority();
        let mut eligible = Vec::new();
        for (&session, consumer) in self
            .consumers
            .iter()
            .filter(|(_, consumer)| !consumer.paused)
        {
            for account in consumer.accounts.iter().filter(|account| !account.full) {
                if let Some(parameters) = account
                    .parameters
                    .filter(|p| p.is_consuming() && Some(p.priority) == top)
                {
                    eligible.push((session, account.id, parameters.id));
                }
            }
        }
        eligible
    }

    /// The message that is due: what came back first, oldest first, then the oldest new one that may be seen.
    fn due(&self) -> Option<Sequence> {
        let returned = self
            .messages
            .iter()
            .find(|(_, message)| message.state == State::Returned);
        let waiting = || {
            self.messages
                .iter()
                .find(|(at, message)| message.state == State::Waiting && **at <= self.deliverable)
        };
        returned.or_else(waiting).map(|(&sequence, _)| sequence)
    }

    fn release(&mut self, session: u8, lost: bool) {
        let mut dead = Vec::new();
        for (&sequence, message) in &mut self.messages {
            if matches!(message.state, State::Held { session: holder, .. } if holder == session) {
                message.state = State::Returned;
                message.losses += u32::from(lost);
                if lost && message.losses >= MAX_ATTEMPTS {
                    dead.push(sequence);
                }
            }
        }
        self.removed += dead.len() as u64;
        self.messages.retain(|sequence, _| !dead.contains(sequence));
    }

    /// New subscriptions take over accounts of the same id first, then the fullest ones.
    fn configure(&mut self, session: u8, new: &[SubscriptionParameters]) {
        let usage = |account: &Account| (account.id, self.usage(session, account.id));
        let usage: HashMap<usize, (u64, u64)> = self.consumers[&session]
            .accounts
            .iter()
            .map(usage)
            .collect();
        let consumer = self.consumers.get_mut(&session).expect("open");
        let mut old: Vec<Account> = std::mem::take(&mut consumer.accounts);
        let mut chosen: Vec<Option<Account>> = new
            .iter()
            .map(|subscription| {
                let same =
                    |account: &Account| account.parameters.is_some_and(|p| p.id == subscription.id);
                old.iter().position(same).map(|at| old.remove(at))
            })
            .collect();
        old.sort_by_key(|account| Reverse(usage[&account.id]));
        let mut old = old.into_iter();
        for (account, subscription) in chosen.iter_mut().zip(new) {
            let mut taken = account.take().or_else(|| old.next()).unwrap_or_else(|| {
                self.next_account += 1;
                Account {
                    id: self.next_account,
                    parameters: None,
                    full: false,
                }
            });
            taken.parameters = Some(*subscription);
            consumer.accounts.push(taken);
        }
        let left = old.filter(|account| usage[&account.id].0 > 0);
        consumer.accounts.extend(left.map(|account| Account {
            parameters: None,
            ..account
        }));
        self.settle_windows(Some(session));
    }
}

impl Sink for Model {
    fn push(&mut self, target: Target, push: Push<'_>) {
        let session = u8::try_from(target.peer.session.0).expect("small");
        assert_eq!(target.token, u32::from(session) + 100);
        assert_eq!(
            Some(push.sequence),
            self.due(),
            "the message that is due is handed out"
        );
        let eligible = self.eligible();
        let chosen = eligible
            .iter()
            .find(|(who, _, subscription)| (*who, *subscription) == (session, target.subscription));
        let &(_, account, _) =
            chosen.unwrap_or_else(|| panic!("{target:?} is not among {eligible:?}"));
        let message = self.messages.get_mut(&push.sequence).expect("live");
        assert_eq!(
            (push.guid, push.data.len as u64),
            (message.guid, message.len)
        );
        assert_eq!(push.out_of_order, message.delivered);
        message.state = State::Held { session, account };
        message.delivered = true;
        self.settle_windows(None);
    }
}

/// Answers "later" once in a while, as a store does that has to read.
#[derive(Default)]
struct Store {
    inner: MemoryStore,
    fetches_left: u8,
}

impl MessageStore for Store {
    fn put(&mut self, queue: QueueId, message: &NewMessage<'_>) -> Result<Sequence, StoreError> {
        self.inner.put(queue, message)
    }

    fn settle(&mut self, queue: QueueId, message: Sequence, why: Settled) {
        self.inner.settle(queue, message, why);
    }

    fn fetch(&mut self, queue: QueueId, message: Sequence) -> Fetch<'_> {
        match self.fetches_left.checked_sub(1) {
            None => Fetch::Later,
            Some(left) => {
                self.fetches_left = left;
                self.inner.fetch(queue, message)
            }
        }
    }
}

struct World {
    queue: Queue,
    store: Store,
    model: Model,
    now_ms: u64,
    next_subscription: u32,
}

fn peer(session: u8) -> Peer {
    Peer {
        session: SessionId(session.into()),
        queue: WireQueueId(9),
    }
}

fn guid(n: u8) -> Guid {
    Guid([n.max(1); 16])
}

const STREAM: SubId = SubId(0);

impl World {
    fn new() -> Self {
        let settings = QueueSettings {
            max_messages: MAX_MESSAGES,
            max_bytes: MAX_BYTES,
            ttl: Some(Duration::from_millis(TTL_MS)),
            max_delivery_attempts: MAX_ATTEMPTS,
            ..QueueSettings::default()
        };
        let queue = Queue::new(QueueId(1), settings);
        Self {
            queue,
            store: Store::default(),
            model: Model::default(),
            now_ms: 1_700_000_000_000,
            next_subscription: 0,
        }
    }

    fn put(&mut self, guid: Guid, len: u16) {
        let data = Bytes::from(vec![0xAB; len.into()]);
        let message = NewMessage {
            guid,
            format: DataFormat(0),
            accepted_at_ms: self.now_ms,
            data: &data,
            owner: &data,
        };
        let outcome = self.queue.put(&mut self.store, &message);
        let model = &mut self.model;
        let bytes: u64 = model.messages.values().map(|message| message.len).sum();
        let expected = if let Some((&sequence, _)) = model
            .messages
            .iter()
            .find(|(_, message)| message.guid == guid)
        {
            Ok(Accepted::Duplicate(sequence))
        } else if model.messages.len() as u64 == MAX_MESSAGES {
            Err(PutError::LimitMessages)
        } else if bytes + u64::from(len) > MAX_BYTES {
            Err(PutError::LimitBytes)
        } else {
            let sequence = self.store.inner.appended();
            model.stored += 1;
            let message = Message {
                guid,
                len: len.into(),
                at_ms: self.now_ms,
                state: State::Waiting,
                losses: 0,
                delivered: false,
            };
            model.messages.insert(sequence, message);
            Ok(Accepted::Stored(sequence))
        };
        assert_eq!(outcome, expected);
    }

    fn deliver(&mut self, messages: usize, stall_after: u8) {
        self.store.fetches_left = stall_after;
        let mut budget = Budget {
            messages,
            bytes: usize::MAX,
        };
        let outcome = self
            .queue
            .deliver(&mut budget, &mut self.store, &mut self.model);
        let (due, eligible) = (self.model.due(), self.model.eligible());
        match outcome {
            Delivery::Drained => assert_eq!(due, None),
            Delivery::NoConsumer => assert!(
                due.is_some() && eligible.is_empty(),
                "stuck: {due:?} {eligible:?}"
            ),
            Delivery::More => {
                assert!(budget.messages == 0 && due.is_some() && !eligible.is_empty())
            }
            Delivery::Stalled => {
                assert!(self.store.fetches_left == 0 && due.is_some() && !eligible.is_empty())
            }
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Put { guid: n, len } => self.put(guid(n), len),
            Op::Deliverable => {
                self.model.deliverable = self.store.inner.appended();
                self.queue.set_deliverable(self.model.deliverable);
            }
            Op::Open { session, readers } => {
                let readers = u32::from(readers);
                let token = u32::from(session) + 100;
                let request = OpenRequest {
                    peer: peer(session),
                    token,
                    sub_id: STREAM,
                    read_count: readers,
                    write_count: 0,
                };
                self.queue.open(&request).expect("no limit is set");
                self.model.consumers.entry(session).or_default().readers += readers;
            }
            Op::Configure {
                session,
                ref subscriptions,
            } => self.configure(session, subscriptions),
            Op::Pause { session, paused } => {
                self.queue.set_paused(peer(session), paused);
                if let Some(consumer) = self.model.consumers.get_mut(&session) {
                    consumer.paused = paused;
                }
            }
            Op::Close { session } => self.end(session, true),
            Op::Lose { session } => self.end(session, false),
            Op::CloseReader { session } => self.close_reader(session),
            Op::Confirm { session, pick } => self.confirm(session, pick),
            Op::Deliver {
                messages,
                stall_after,
            } => self.deliver(messages.into(), stall_after),
            Op::Time { ms } => self.pass(ms.into()),
            Op::Purge => self.purge(),
        }
    }

    fn configure(&mut self, session: u8, subscriptions: &[(u8, u16, i8, u8)]) {
        let mut new = Vec::new();
        for &(messages, bytes, priority, weight) in subscriptions {
            // Sometimes the same id again, mostly a fresh one, as different clients do.
            self.next_subscription += u32::from(bytes % 3 != 0 || !new.is_empty());
            new.push(SubscriptionParameters {
                id: SubscriptionId(self.next_subscription),
                max_unconfirmed_messages: messages.into(),
                max_unconfirmed_bytes: bytes.into(),
                priority: priority.into(),
                priority_count: weight.into(),
            });
        }
        let outcome = self.queue.configure(peer(session), STREAM, &new);
        assert_eq!(outcome.is_ok(), self.model.consumers.contains_key(&session));
        if outcome.is_ok() {
            self.model.configure(session, &new);
        }
    }

    fn end(&mut self, session: u8, graceful: bool) {
        let outcome = match graceful {
            true => self
                .queue
                .close(&mut self.store, peer(session), CloseScope::Queue),
            false => self.queue.drop_peer(&mut self.store, peer(session), false),
        };
        assert_eq!(outcome.is_ok(), self.model.consumers.contains_key(&session));
        self.model.release(session, !graceful);
        self.model.consumers.remove(&session);
    }

    fn close_reader(&mut self, session: u8) {
        let scope = CloseScope::Stream {
            sub_id: STREAM,
            read_count: 1,
            write_count: 0,
        };
        let outcome = self.queue.close(&mut self.store, peer(session), scope);
        let Some(consumer) = self.model.consumers.get_mut(&session) else {
            return assert!(outcome.is_err());
        };
        outcome.expect("it has a reader");
        consumer.readers -= 1;
        if consumer.readers == 0 {
            self.model.release(session, false);
            self.model.consumers.remove(&session);
        }
    }

    fn confirm(&mut self, session: u8, pick: u8) {
        // Mostly something that is outstanding with anybody, sometimes anything.
        let held: Vec<Guid> = self
            .model
            .messages
            .values()
            .filter(|m| matches!(m.state, State::Held { .. }))
            .map(|m| m.guid)
            .collect();
        let guid = if pick.is_multiple_of(5) || held.is_empty() {
            guid(pick)
        } else {
            held[pick as usize % held.len()]
        };
        let confirmed = self
            .queue
            .confirm(&mut self.store, peer(session), STREAM, &guid);
        let known = self
            .model
            .messages
            .iter()
            .find(|(_, message)| message.guid == guid)
            .map(|(&sequence, _)| sequence);
        let expected = known.filter(|_| self.model.consumers.contains_key(&session));
        assert_eq!(confirmed, expected.is_some());
        assert!(
            !confirmed
                || !self
                    .queue
                    .confirm(&mut self.store, peer(session), STREAM, &guid),
            "once is enough"
        );
        if let Some(sequence) = expected {
            self.model.messages.remove(&sequence);
            self.model.confirmed += 1;
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        let swept = self.queue.expire(self.now_ms, &mut self.store);
        let before = self.model.messages.len();
        let now_ms = self.now_ms;
        self.model
            .messages
            .retain(|_, message| message.at_ms + TTL_MS > now_ms);
        let gone = (before - self.model.messages.len()) as u64;
        assert_eq!((swept.messages, swept.more), (gone, false));
        self.model.expired += gone;
    }

    fn purge(&mut self) {
        let swept = self.queue.purge(self.queue.purge_cut(), &mut self.store);
        assert_eq!(swept.messages, self.model.messages.len() as u64);
        self.model.purged += swept.messages;
        self.model.messages.clear();
    }

    fn check(&mut self) {
        self.model.settle_windows(None);
        let (stats, model) = (self.queue.stats(), &self.model);
        let count = |wanted: fn(&State) -> bool| {
            model
                .messages
                .values()
                .filter(|message| wanted(&message.state))
                .count() as u64
        };
        assert_eq!(stats.messages, model.messages.len() as u64);
        assert_eq!(
            stats.bytes,
            model
                .messages
                .values()
                .map(|message| message.len)
                .sum::<u64>()
        );
        assert_eq!(
            stats.outstanding,
            count(|state| matches!(state, State::Held { .. }))
        );
        assert_eq!(stats.returned, count(|state| *state == State::Returned));
        assert_eq!(
            stats.consumers,
            model
                .consumers
                .values()
                .map(|consumer| consumer.readers)
                .sum::<u32>()
        );
        let counters = stats.counters;
        assert_eq!(
            counters.stored,
            counters.confirmed
                + counters.expired
                + counters.purged
                + counters.removed
                + stats.messages
        );
        assert_eq!(
            (
                counters.stored,
                counters.confirmed,
                counters.expired,
                counters.purged,
                counters.removed
            ),
            (
                model.stored,
                model.confirmed,
                model.expired,
                model.purged,
                model.removed
            )
        );
        assert!(
            self.queue
                .messages()
                .map(|view| view.sequence)
                .eq(model.messages.keys().copied())
        );
        assert_eq!(
            self.store.inner.len(),
            model.messages.len(),
            "the store keeps the live messages and no others"
        );
        let removed = self
            .queue
            .take_notices()
            .iter()
            .filter(|notice| matches!(notice, Notice::Removed { .. }))
            .count();
        assert!(removed as u64 <= model.removed);
    }

    /// Confirming consumers empty the queue, whatever happened before.
    fn drain(&mut self) {
        self.apply(&Op::Deliverable);
        for session in 0..4 {
            self.end(session, true);
        }
        self.apply(&Op::Open {
            session: 0,
            readers: 1,
        });
        self.configure(0, &[(1, 599, 0, 1)]);
        for _ in 0..=MAX_MESSAGES {
            self.deliver(1, 1);
            let held = self
                .model
                .messages
                .values()
                .find(|m| matches!(m.state, State::Held { .. }))
                .map(|m| m.guid);
            if let Some(guid) = held {
                assert!(self.queue.confirm(&mut self.store, peer(0), STREAM, &guid));
                self.model
                    .messages
                    .retain(|_, message| message.guid != guid);
                self.model.confirmed += 1;
            }
            self.check();
        }
        assert_eq!(self.queue.stats().messages, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_agree_with_the_model(ops in prop::collection::vec(op(), 1..150)) {
        let mut world = World::new();
        for op in &ops {
            world.apply(op);
            world.check();
        }
        world.drain();
    }
}
