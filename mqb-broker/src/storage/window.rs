//! The duplicate window: which GUIDs a queue has seen lately. A PUT that is sent again, after a reconnect or a crash, is stored once.
//!
//! It counts from the first acceptance, is not refreshed, and is not cleared by settling or purging. It outlives the segments: whole chunks
//! go to their own files at each checkpoint. About 32 bytes of memory per GUID: 24 for the item, the rest for the table that finds it.
//!
//! Owned by: the partition's processor. Chunks are shared with the cleaner while it saves them.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use mqb_core::log::WindowItem;
use mqb_core::{Guid, QueueId, Sequence};

/// Items of a full chunk.
const CHUNK_ITEMS: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = 10;
/// Tables of one queue's window, so that one that grows moves only its share.
const TABLES: usize = 32;

/// How long and how many GUIDs a queue remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowLimits {
    /// **Units**: milliseconds from acceptance. At least that long, as far as `max_entries` allows.
    pub duration_ms: u64,
    /// Beyond that the oldest go early, and are counted.
    pub max_entries: usize,
}

impl Default for WindowLimits {
    /// Five minutes, a million messages.
    fn default() -> Self {
        WindowLimits {
            duration_ms: 300_000,
            max_entries: 1_000_000,
        }
    }
}

/// A part of a window on its way to its file.
#[derive(Clone, Debug)]
pub(crate) struct SavedRun {
    pub(crate) queue: QueueId,
    pub(crate) newest_ms: u64,
    pub(crate) items: Arc<Vec<WindowItem>>,
}

struct Chunk {
    items: Arc<Vec<WindowItem>>,
    oldest_ms: u64,
    newest_ms: u64,
    /// Taken for a file; takes no more items.
    closed: bool,
    /// In a durable file, or about to be.
    saved: bool,
}

/// One queue's window.
pub(crate) struct Window {
    limits: WindowLimits,
    chunks: VecDeque<Chunk>,
    /// Number of the first chunk, modulo 2^22.
    first: u32,
    tables: Box<[HashTable<u32>]>,
    hasher: DefaultHashBuilder,
    len: usize,
    shortened: u64,
}

const CHUNK_NUMBERS: u32 = 1 << (32 - CHUNK_BITS);

impl Window {
    pub(crate) fn new(limits: WindowLimits) -> Self {
        let tables = std::iter::repeat_with(HashTable::new)
            .take(TABLES)
            .collect();
        Window {
            limits,
            chunks: VecDeque::new(),
            first: 0,
            tables,
            hasher: DefaultHashBuilder::default(),
            len: 0,
            shortened: 0,
        }
    }

    pub(crate) fn set_limits(&mut self, limits: WindowLimits) {
        self.limits = limits;
    }

    fn item(chunks: &VecDeque<Chunk>, first: u32, position: u32) -> (&Chunk, WindowItem) {
        let chunk = (position >> CHUNK_BITS).wrapping_sub(first) % CHUNK_NUMBERS;
        let chunk = &chunks[chunk as usize];
        (chunk, chunk.items[(position as usize) % CHUNK_ITEMS])
    }

    fn table_of(hash: u64) -> usize {
        // Not the bits that the table itself uses: it takes the lowest and the highest.
        (hash >> 40) as usize % TABLES
    }

    /// Where a message with this GUID was stored, if that was within the window.
    pub(crate) fn find(&self, guid: &Guid, now_ms: u64) -> Option<Sequence> {
        let hash = self.hasher.hash_one(guid.0);
        let (chunks, first) = (&self.chunks, self.first);
        let position = self.tables[Self::table_of(hash)]
            .find(hash, |p| Self::item(chunks, first, *p).1.guid == *guid)?;
        let (chunk, item) = Self::item(chunks, first, *position);
        (chunk.newest_ms + self.limits.duration_ms >= now_ms).then_some(item.sequence)
    }

    /// Remembers a message. Older ones leave if their time is over or there are too many.
    pub(crate) fn insert(&mut self, guid: Guid, sequence: Sequence, now_ms: u64) {
        if self.limits.max_entries == 0 || self.limits.duration_ms == 0 {
            return;
        }
        self.push(WindowItem { guid, sequence }, now_ms);
        if self.len > self.limits.max_entries {
            let early = self
                .chunks
                .front()
                .is_some_and(|c| c.newest_ms + self.limits.duration_ms >= now_ms);
            let gone = self.drop_oldest();
            if early {
                self.shortened += gone as u64;
            }
        }
    }

    fn push(&mut self, item: WindowItem, now_ms: u64) {
        // A chunk leaves as a whole: one that spans much time would keep its oldest for too long.
        let span = self.limits.duration_ms / 16;
        let room =
            |c: &Chunk| !c.closed && c.items.len() < CHUNK_ITEMS && now_ms <= c.oldest_ms + span;
        if !self.chunks.back().is_some_and(room) {
            self.chunks.push_back(Chunk {
                items: Arc::default(),
                oldest_ms: now_ms,
                newest_ms: now_ms,
                closed: false,
                saved: false,
            });
        }
        let number = self.first.wrapping_add(self.chunks.len() as u32 - 1) % CHUNK_NUMBERS;
        let chunk = self
            .chunks
            .back_mut()
            .expect("one was pushed if there was none");
        let position = (number << CHUNK_BITS) | chunk.items.len() as u32;
        Arc::make_mut(&mut chunk.items).push(item);
        chunk.newest_ms = chunk.newest_ms.max(now_ms);
        let (chunks, first, hasher) = (&self.chunks, self.first, &self.hasher);
        let hash = hasher.hash_one(item.guid.0);
        self.tables[Self::table_of(hash)].insert_unique(hash, position, |p| {
            hasher.hash_one(Self::item(chunks, first, *p).1.guid.0)
        });
        self.len += 1;
    }

    fn drop_oldest(&mut self) -> usize {
        let Some(chunk) = self.chunks.front() else {
            return 0;
        };
        let items = Arc::clone(&chunk.items);
        for (i, item) in items.iter().enumerate() {
            let position = (self.first << CHUNK_BITS) | i as u32;
            let hash = self.hasher.hash_one(item.guid.0);
            if let Ok(found) =
                self.tables[Self::table_of(hash)].find_entry(hash, |p| *p == position)
            {
                found.remove();
            }
        }
        self.chunks.pop_front();
        self.first = (self.first + 1) % CHUNK_NUMBERS;
        self.len -= items.len();
        items.len()
    }

    /// Lets go of what is over time, at most one chunk.
    pub(crate) fn expire(&mut self, now_ms: u64) {
        if self
            .chunks
            .front()
            .is_some_and(|c| c.newest_ms + self.limits.duration_ms < now_ms)
        {
            self.drop_oldest();
            if self.chunks.is_empty() {
                for table in &mut self.tables {
                    *table = HashTable::new();
                }
            }
        }
    }

    /// Chunks for the window's files: those not in one yet, or `all`. They take no more items.
    pub(crate) fn save(&mut self, queue: QueueId, all: bool, into: &mut Vec<SavedRun>) {
        // Saved ones are at the front.
        let from = if all {
            0
        } else {
            self.chunks.partition_point(|c| c.saved)
        };
        for chunk in self.chunks.range_mut(from..) {
            (chunk.closed, chunk.saved) = (true, true);
            into.push(SavedRun {
                queue,
                newest_ms: chunk.newest_ms,
                items: Arc::clone(&chunk.items),
            });
        }
    }

    /// The last `save` came to nothing: all of it is to be saved again.
    pub(crate) fn unsave(&mut self) {
        self.chunks.iter_mut().for_each(|c| c.saved = false);
    }

    /// Makes room in the tables for that many items: growing step by step would move each of them again and again.
    pub(crate) fn reserve(&mut self, items: usize) {
        let (chunks, first, hasher) = (&self.chunks, self.first, &self.hasher);
        for table in &mut self.tables {
            // An eighth more than its share: hashes are not spread evenly.
            table.reserve(items / TABLES + items / TABLES / 8 + 1, |p| {
                hasher.hash_one(Self::item(chunks, first, *p).1.guid.0)
            });
        }
    }

    /// Takes a run from a file, in the order of the files. Items that are here already are skipped: sequences rise.
    pub(crate) fn load(&mut self, newest_ms: u64, items: &[WindowItem]) {
        let last = self
            .chunks
            .back()
            .and_then(|c| c.items.last())
            .map(|i| i.sequence);
        for item in items
            .iter()
            .filter(|i| last.is_none_or(|last| i.sequence > last))
        {
            self.push(*item, newest_ms);
        }
        for chunk in self.chunks.iter_mut().rev().take_while(|c| !c.saved) {
            (chunk.closed, chunk.saved) = (true, true);
        }
        while self.len > self.limits.max_entries {
            self.drop_oldest();
        }
    }

    pub(crate) fn duration_ms(&self) -> u64 {
        self.limits.duration_ms
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn shortened(&self) -> u64 {
        self.shortened
    }

    /// **Units**: bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let items: usize = self
            .chunks
            .iter()
            .map(|c| c.items.capacity() * size_of::<WindowItem>() + size_of::<Chunk>())
            .sum();
        items
            + self
                .tables
                .iter()
                .map(|t| t.allocation_size() + size_of::<HashTable<u32>>())
                .sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guid(n: u64) -> Guid {
        let mut g = [0; 16];
        g[..8].copy_from_slice(&n.to_le_bytes());
        Guid(g)
    }

    #[test]
    fn remembers_for_its_time_and_not_much_longer() {
        let mut w = Window::new(WindowLimits {
            duration_ms: 1600,
            max_entries: 1000,
        });
        for n in 0..100 {
            w.insert(guid(n), Sequence(n), n * 100);
        }
        let now = 99 * 100;
        assert!((84..100).all(|n| w.find(&guid(n), now) == Some(Sequence(n))));
        assert_eq!(w.find(&guid(70), now), None);
        for _ in 0..100 {
            w.expire(now);
        }
        assert!(w.len() <= 20, "{}", w.len());
        assert_eq!(w.shortened(), 0);
    }

    #[test]
    fn the_cap_takes_the_oldest_and_counts_them() {
        let mut w = Window::new(WindowLimits {
            duration_ms: 1 << 40,
            max_entries: 5000,
        });
        for n in 0..20_000 {
            w.insert(guid(n), Sequence(n), 0);
        }
        assert!(w.len() <= 5000 && w.len() > 3900);
        assert_eq!(w.shortened() as usize, 20_000 - w.len());
        assert!((16_000..20_000).all(|n| w.find(&guid(n), 0).is_some()));
        assert_eq!(w.find(&guid(0), 0), None);
    }

    #[test]
    fn chunk_numbers_wrap() {
        let mut w = Window::new(WindowLimits {
            duration_ms: 1 << 40,
            max_entries: 2500,
        });
        w.first = CHUNK_NUMBERS - 2;
        for n in 0..10_000 {
            w.insert(guid(n), Sequence(n), 0);
            assert_eq!(w.find(&guid(n), 0), Some(Sequence(n)));
        }
        let kept = (0..10_000)
            .filter(|n| w.find(&guid(*n), 0).is_some())
            .count();
        assert_eq!(kept, w.len());
    }

    #[test]
    fn a_saved_window_loads_again_and_memory_per_guid_is_small() {
        let mut w = Window::new(WindowLimits::default());
        for n in 0..300_000 {
            w.insert(guid(n), Sequence(n), n / 1000);
        }
        assert!(w.memory_bytes() < 300_000 * 40, "{}", w.memory_bytes());
        let mut runs = Vec::new();
        w.save(QueueId(1), false, &mut runs);
        let mut again = Vec::new();
        w.save(QueueId(1), false, &mut again);
        assert!(again.is_empty());
        let mut copy = Window::new(WindowLimits::default());
        for run in runs {
            copy.load(run.newest_ms, &run.items);
        }
        assert!(
            (0..300_000)
                .step_by(997)
                .all(|n| copy.find(&guid(n), 1000) == Some(Sequence(n)))
        );
    }
}
