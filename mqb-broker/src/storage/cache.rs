//! Blocks in memory. Whole blocks leave it: at once when nothing in them is live, oldest first when all partitions together are over budget.
//!
//! Owned by: the partition's processor.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use super::block::{Block, MemoryBudget};

/// A frame of a segment: id and number of the frame in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) struct BlockKey {
    pub(crate) segment: u64,
    pub(crate) frame: u32,
}

struct Cached {
    block: Block,
    live: u32,
    /// How often it may still be passed over: it was read back and nobody has looked at it yet.
    chances: Cell<u8>,
}

/// Rounds of trimming that a block survives between its arrival from disk and the first look at it. Without, a partition
/// whose neighbours hold the whole budget would read the same block for ever.
const CHANCES: u8 = 4;

/// See the module.
pub(crate) struct Cache {
    budget: Arc<MemoryBudget>,
    blocks: HashMap<BlockKey, Cached>,
    /// In order of arrival; may name blocks that are gone.
    order: VecDeque<BlockKey>,
}

impl Cache {
    pub(crate) fn new(budget: Arc<MemoryBudget>) -> Self {
        Cache {
            budget,
            blocks: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    pub(crate) fn get(&self, key: BlockKey) -> Option<&Block> {
        let cached = self.blocks.get(&key)?;
        cached.chances.set(0);
        Some(&cached.block)
    }

    pub(crate) fn contains(&self, key: BlockKey) -> bool {
        self.blocks.contains_key(&key)
    }

    /// Takes a block of which `live` messages are not settled. One without any is not kept.
    pub(crate) fn insert(&mut self, key: BlockKey, block: Block, live: u32) {
        self.put(key, block, live, 0);
    }

    /// The same for one that was read back because somebody waits for it.
    pub(crate) fn insert_read(&mut self, key: BlockKey, block: Block, live: u32) {
        self.put(key, block, live, CHANCES);
    }

    fn put(&mut self, key: BlockKey, block: Block, live: u32, chances: u8) {
        if live == 0 {
            return;
        }
        self.budget.add(block.large_bytes());
        if let Some(old) = self.blocks.insert(
            key,
            Cached {
                block,
                live,
                chances: Cell::new(chances),
            },
        ) {
            self.budget.sub(old.block.large_bytes());
        } else {
            self.order.push_back(key);
        }
    }

    /// A message of this block was settled.
    pub(crate) fn settled(&mut self, key: BlockKey) {
        if let Some(cached) = self.blocks.get_mut(&key) {
            cached.live = cached.live.saturating_sub(1);
            if cached.live == 0 {
                self.remove(key);
            }
        }
    }

    pub(crate) fn remove(&mut self, key: BlockKey) {
        if let Some(old) = self.blocks.remove(&key) {
            self.budget.sub(old.block.large_bytes());
        }
    }

    /// Lets blocks go while over budget, but none that `keep` still needs here: what is not in its file cannot be read back.
    pub(crate) fn trim(&mut self, keep: impl Fn(BlockKey) -> bool) {
        // Each is looked at once: what is passed over is not met again in this round.
        for _ in 0..self.order.len() {
            let Some(&front) = self.order.front() else {
                break;
            };
            if let Some(cached) = self.blocks.get(&front) {
                if !self.budget.is_over() || keep(front) {
                    break;
                }
                let chances = cached.chances.get();
                if chances > 0 {
                    cached.chances.set(chances - 1);
                    self.order.rotate_left(1);
                    continue;
                }
                self.remove(front);
            }
            self.order.pop_front();
        }
        // One old block that stays must not let the names of a million gone ones pile up behind it.
        if self.order.len() > 2 * self.blocks.len() + 1024 {
            let blocks = &self.blocks;
            self.order.retain(|key| blocks.contains_key(key));
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        for cached in self.blocks.values() {
            self.budget.sub(cached.block.large_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mqb_core::log::{EntryKind, Index, Term};

    fn block(budget: &Arc<MemoryBudget>, bytes: usize) -> Block {
        let header = mqb_core::log::EntryHeader {
            kind: EntryKind::Normal,
            term: Term(1),
            index: Index(1),
            records: 1,
            length: 0,
            crc: 0,
        };
        Block::from_bytes(header, budget.share(vec![0; bytes]), 1)
    }

    fn key(frame: u32) -> BlockKey {
        BlockKey { segment: 1, frame }
    }

    #[test]
    fn oldest_blocks_leave_first_and_pinned_bytes_stay_counted() {
        let budget = MemoryBudget::new(3750);
        let mut cache = Cache::new(Arc::clone(&budget));
        for frame in 0..5 {
            cache.insert(key(frame), block(&budget, 1000), 1);
        }
        let pinned = cache.get(key(0)).unwrap().clone();
        cache.trim(|_| false);
        assert_eq!(
            (0..5)
                .filter(|f| cache.contains(key(*f)))
                .collect::<Vec<_>>(),
            [3, 4],
            "the pinned one still counts"
        );
        assert_eq!(budget.used(), 3000);
        drop(pinned);
        assert_eq!(budget.used(), 2000);
    }

    #[test]
    fn a_block_read_back_stays_until_it_was_looked_at_but_not_for_ever() {
        let budget = MemoryBudget::new(0);
        let mut cache = Cache::new(Arc::clone(&budget));
        for frame in 0..2 {
            cache.insert_read(key(frame), block(&budget, 1000), 1);
        }
        cache.trim(|_| false);
        assert!(cache.contains(key(0)) && cache.contains(key(1)));
        assert!(cache.get(key(0)).is_some());
        cache.trim(|_| false);
        assert!(!cache.contains(key(0)) && cache.contains(key(1)));
        for _ in 0..CHANCES {
            cache.trim(|_| false);
        }
        assert!(!cache.contains(key(1)), "its reader has gone");
    }

    #[test]
    fn a_block_leaves_with_its_last_message_and_unwritten_ones_stay() {
        let budget = MemoryBudget::new(0);
        let mut cache = Cache::new(Arc::clone(&budget));
        cache.insert(key(0), block(&budget, 10), 2);
        cache.trim(|_| true);
        cache.settled(key(0));
        assert!(cache.contains(key(0)));
        cache.settled(key(0));
        assert!(!cache.contains(key(0)));
        assert_eq!(budget.used(), 0);
    }
}
