//! The ready queue: a ring per class, earliest deadline first over their heads, exact eviction of the latest.
//!
//! Pure data, without lock, clock and allocation: everything is reserved when it is made (a lane of a class that is never refused may
//! outgrow its share, and then doubles).
//!
//! Calls of one *chain* run one after the other: all but the first wait in a ring of their own, where they can still expire or be
//! evicted, and move to the ready ring when the one before them is finished or gone.

use std::collections::HashMap;

use crate::calls::ring::{Key, Ring};

const NIL: u32 = u32::MAX;

/// Names a chain: the session and its order key.
pub(crate) type Chain = (u64, u16);

/// One class in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneConfig {
    /// Its share of the queue relative to others, when somebody has to give way.
    pub weight: u32,
    /// Whether its calls may be evicted.
    pub is_evictable: bool,
    /// Calls for which room is reserved.
    pub capacity: usize,
}

/// Who gives way when the queue is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Eviction {
    /// The latest of all.
    Latest,
    /// The latest of the class that is furthest above its share.
    #[default]
    LatestOfLargest,
}

/// Shape of a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueConfig {
    /// By class.
    pub lanes: Vec<LaneConfig>,
    /// Each so many-th pop goes round the classes instead of by deadline, so that long deadlines do not starve. 0 is never.
    pub round_robin_every: u32,
    /// Who gives way.
    pub eviction: Eviction,
}

/// What the queue must know of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What it is ordered by: its deadline.
    pub order_ns: u64,
    /// Its class.
    pub class: u8,
    /// What it must not overtake.
    pub chain: Option<(u64, u16)>,
}

/// Who has to go for a newcomer.
#[derive(PartialEq, Eq, Debug)]
pub enum Victim<T> {
    /// It itself.
    Newcomer,
    /// This one, which is out of the queue now.
    Queued(Entry, T),
}

/// Calls that wait. One owner at a time: in the pool it is behind the exchange's lock.
#[derive(Debug)]
pub struct ReadyQueue<T> {
    lanes: Vec<Lane>,
    // A call stays in its slot; rings hold keys. Both vectors have the same length.
    items: Vec<Option<T>>,
    notes: Vec<Note>,
    free: Vec<u32>,
    chains: HashMap<Chain, Waiting>,
    arrivals: u64,
    pops: u32,
    next_lane: usize,
    ready: usize,
    round_robin_every: u32,
    eviction: Eviction,
}

#[derive(Debug)]
struct Lane {
    ready: Ring,
    blocked: Ring,
    weight: u64,
    is_evictable: bool,
}

impl Lane {
    fn len(&self) -> usize {
        self.ready.len() + self.blocked.len()
    }

    fn last(&self) -> Option<Key> {
        self.ready.last().max(self.blocked.last())
    }
}

/// Whatever of a queued call is not in the ring's key.
#[derive(Clone, Copy, Debug)]
struct Note {
    entry: Entry,
    arrival: u64,
    is_blocked: bool,
    // Neighbours among those that wait in the same chain.
    before: u32,
    after: u32,
}

/// Exists while a call of the chain is ready or runs; lists the others.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    first: u32,
    last: u32,
}

impl<T> ReadyQueue<T> {
    /// An empty queue.
    pub fn new(config: &QueueConfig) -> Self {
        let capacity = config.lanes.iter().map(|lane| lane.capacity).sum();
        let lane = |lane: &LaneConfig| Lane {
            ready: Ring::with_capacity(lane.capacity),
            blocked: Ring::with_capacity(lane.capacity),
            weight: u64::from(lane.weight.max(1)),
            is_evictable: lane.is_evictable,
        };
        Self {
            lanes: config.lanes.iter().map(lane).collect(),
            items: Vec::with_capacity(capacity),
            notes: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            // A map that is at most half full never rehashes into a new allocation.
            chains: HashMap::with_capacity(2 * capacity),
            arrivals: 0,
            pops: 0,
            next_lane: 0,
            ready: 0,
            round_robin_every: config.round_robin_every,
            eviction: config.eviction,
        }
    }

    /// Calls in it.
    pub fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// True if it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls that can be popped: those that wait for none of their chain.
    pub fn ready(&self) -> usize {
        self.ready
    }

    /// Calls of a class.
    pub fn len_of(&self, class: u8) -> usize {
        self.lanes[usize::from(class)].len()
    }

    /// Calls that may be evicted.
    pub fn evictable(&self) -> usize {
        let lanes = self.lanes.iter().filter(|lane| lane.is_evictable);
        lanes.map(Lane::len).sum()
    }

    /// How many calls come before a newcomer by deadline. **Cost**: a binary search per class.
    pub fn count_before(&self, order_ns: u64) -> usize {
        let count =
            |lane: &Lane| lane.ready.count_until(order_ns) + lane.blocked.count_until(order_ns);
        self.lanes.iter().map(count).sum()
    }

    /// True if a call of the chain waits or runs.
    pub fn is_busy(&self, chain: (u64, u16)) -> bool {
        self.chains.contains_key(&chain)
    }

    /// Marks a chain as busy with a call that runs without having been here; end it with [`ReadyQueue::finish`].
    pub fn begin(&mut self, chain: (u64, u16)) {
        let before = self.chains.insert(
            chain,
            Waiting {
                first: NIL,
                last: NIL,
            },
        );
        debug_assert!(before.is_none(), "a chain runs one call at a time");
    }

    /// Adds a call; false if it has to wait for others of its chain. **Panics** if there is no such class.
    pub fn push(&mut self, entry: Entry, item: T) -> bool {
        self.arrivals += 1;
        let note = Note {
            entry,
            arrival: self.arrivals,
            is_blocked: entry.chain.is_some_and(|chain| self.is_busy(chain)),
            before: NIL,
            after: NIL,
        };
        let slot = self.store(note, item);
        let key = self.key(slot);
        if note.is_blocked {
            self.lanes[usize::from(entry.class)].blocked.insert(key);
            self.append_to_chain(slot);
            return false;
        }
        if let Some(chain) = entry.chain {
            self.begin(chain);
        }
        self.lanes[usize::from(entry.class)].ready.insert(key);
        self.ready += 1;
        true
    }

    /// The next call to run: the most urgent, or each so many-th time the most urgent of the next class. Its chain stays busy until
    /// [`ReadyQueue::finish`].
    pub fn pop(&mut self) -> Option<(Entry, T)> {
        if self.ready == 0 {
            return None;
        }
        self.pops = self.pops.wrapping_add(1);
        let goes_round =
            self.round_robin_every != 0 && self.pops.is_multiple_of(self.round_robin_every);
        let lane = if goes_round {
            self.next_in_turn()
        } else {
            self.most_urgent()
        };
        let key = self.lanes[lane]
            .ready
            .pop_first()
            .expect("the chosen lane has a head");
        self.ready -= 1;
        Some(self.release(key.slot))
    }

    /// The popped call of the chain is done: the next one may run.
    pub fn finish(&mut self, chain: (u64, u16)) {
        let Some(waiting) = self.chains.get_mut(&chain) else {
            debug_assert!(false, "only a busy chain is finished");
            return;
        };
        let slot = waiting.first;
        if slot == NIL {
            self.chains.remove(&chain);
            return;
        }
        let after = self.notes[slot as usize].after;
        waiting.first = after;
        if after == NIL {
            waiting.last = NIL;
        } else {
            self.notes[after as usize].before = NIL;
        }
        let key = self.key(slot);
        let note = &mut self.notes[slot as usize];
        note.is_blocked = false;
        note.after = NIL;
        let lane = &mut self.lanes[usize::from(note.entry.class)];
        lane.blocked.remove(key);
        lane.ready.insert(key);
        self.ready += 1;
    }

    /// Takes out one call, of those classes that `expires` names, whose deadline is not after `now_ns`.
    pub fn pop_expired(&mut self, now_ns: u64, expires: impl Fn(u8) -> bool) -> Option<(Entry, T)> {
        let slot = self
            .lanes
            .iter()
            .enumerate()
            .filter(|(class, _)| expires(*class as u8))
            .find_map(|(_, lane)| {
                [lane.ready.first(), lane.blocked.first()]
                    .into_iter()
                    .flatten()
                    .find(|key| key.order_ns <= now_ns)
            })?
            .slot;
        Some(self.remove(slot))
    }

    /// Finds who has to go so that a newcomer gets in, and takes it out. Calls of classes that cannot be evicted never go.
    pub fn evict_for(&mut self, newcomer: Entry) -> Victim<T> {
        let last = match self.eviction {
            Eviction::Latest => self
                .lanes
                .iter()
                .filter(|lane| lane.is_evictable)
                .filter_map(Lane::last)
                .max(),
            Eviction::LatestOfLargest => {
                let largest = self.largest_with(newcomer.class);
                let last = self.lanes[largest].last();
                if largest != usize::from(newcomer.class) {
                    return match last {
                        Some(key) => self.evict(key),
                        None => Victim::Newcomer,
                    };
                }
                last
            }
        };
        match last {
            // An equal one that came before stays.
            Some(key) if key.order_ns > newcomer.order_ns => self.evict(key),
            _ => Victim::Newcomer,
        }
    }

    /// Takes out calls that `matches`, at most as many as `out` has room for. **Cost**: looks at all calls.
    pub fn take_matching(&mut self, matches: impl Fn(&T) -> bool, out: &mut Vec<T>) {
        for slot in 0..self.items.len() {
            if out.len() == out.capacity() {
                return;
            }
            if self.items[slot].as_ref().is_some_and(&matches) {
                let (_, item) = self.remove(slot as u32);
                out.push(item);
            }
        }
    }

    fn evict(&mut self, key: Key) -> Victim<T> {
        let (entry, item) = self.remove(key.slot);
        Victim::Queued(entry, item)
    }

    /// The class, of those that can be evicted from, that would be furthest above its share with the newcomer in it.
    fn largest_with(&self, newcomer: u8) -> usize {
        let mut largest = usize::from(newcomer);
        let mut size = 0;
        let mut weight = 1;
        for (class, lane) in self.lanes.iter().enumerate() {
            let is_newcomers = class == usize::from(newcomer);
            if !lane.is_evictable && !is_newcomers {
                continue;
            }
            let len = lane.len() as u64 + u64::from(is_newcomers);
            if len * weight > size * lane.weight {
                (largest, size, weight) = (class, len, lane.weight);
            }
        }
        largest
    }

    fn most_urgent(&self) -> usize {
        let heads = self.lanes.iter().enumerate();
        heads
            .filter_map(|(class, lane)| lane.ready.first().map(|key| (key, class)))
            .min()
            .map(|(_, class)| class)
            .expect("something is ready")
    }

    fn next_in_turn(&mut self) -> usize {
        let count = self.lanes.len();
        let lane = (0..count)
            .map(|step| (self.next_lane + step) % count)
            .find(|lane| self.lanes[*lane].ready.len() > 0)
            .expect("something is ready");
        self.next_lane = (lane + 1) % count;
        lane
    }

    /// Takes out a call that will not run.
    fn remove(&mut self, slot: u32) -> (Entry, T) {
        let key = self.key(slot);
        let note = self.notes[slot as usize];
        let lane = &mut self.lanes[usize::from(note.entry.class)];
        if note.is_blocked {
            lane.blocked.remove(key);
            self.unlink(&note);
        } else {
            lane.ready.remove(key);
            self.ready -= 1;
        }
        let released = self.release(slot);
        if let (false, Some(chain)) = (note.is_blocked, note.entry.chain) {
            self.finish(chain);
        }
        released
    }

    fn append_to_chain(&mut self, slot: u32) {
        let chain = self.notes[slot as usize].entry.chain;
        let waiting = chain
            .and_then(|chain| self.chains.get_mut(&chain))
            .expect("a blocked call has a busy chain");
        let last = std::mem::replace(&mut waiting.last, slot);
        if last == NIL {
            waiting.first = slot;
        } else {
            self.notes[last as usize].after = slot;
            self.notes[slot as usize].before = last;
        }
    }

    fn unlink(&mut self, note: &Note) {
        let waiting = note
            .entry
            .chain
            .and_then(|chain| self.chains.get_mut(&chain))
            .expect("a blocked call has a busy chain");
        match note.before {
            NIL => waiting.first = note.after,
            before => self.notes[before as usize].after = note.after,
        }
        match note.after {
            NIL => waiting.last = note.before,
            after => self.notes[after as usize].before = note.before,
        }
    }

    fn store(&mut self, note: Note, item: T) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.items[slot as usize] = Some(item);
            self.notes[slot as usize] = note;
            return slot;
        }
        self.items.push(Some(item));
        self.notes.push(note);
        (self.items.len() - 1) as u32
    }

    fn release(&mut self, slot: u32) -> (Entry, T) {
        let item = self.items[slot as usize]
            .take()
            .expect("a key in a ring names a full slot");
        self.free.push(slot);
        (self.notes[slot as usize].entry, item)
    }

    fn key(&self, slot: u32) -> Key {
        let note = &self.notes[slot as usize];
        Key {
            order_ns: note.entry.order_ns,
            arrival: note.arrival,
            slot,
        }
    }
}
