//! The messages of one queue: what is kept in memory for each, their order, and the way from GUID to message.
//!
//! A million waiting messages are an ordinary state of a queue, so a message costs 48 bytes here plus 5 to 10 bytes in
//! the GUID index; its data stays in the store. Slots are reused through a free list, so memory follows the number of
//! live messages and not the distance between the oldest and the newest: one message that nobody confirms pins 48 bytes.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use mqb_core::{Guid, Sequence};

use crate::store::DataFormat;

/// Place of a message in its [`MessageTable`]; reused after the message is removed.
pub(crate) type Slot = u32;

/// No slot.
pub(crate) const NO_SLOT: Slot = Slot::MAX;

/// Slots per page. Pages never move, so growing costs one page and not a copy of everything.
const PAGE_SLOTS: usize = 256;

/// Pages kept when the table runs empty, so that a queue which hovers around empty does not allocate.
const KEPT_PAGES: usize = 16;

/// Parts of the GUID index. Each grows alone, so the pause of a rehash is a thirty-second of what one table would need.
const INDEX_SHARDS: usize = 32;

/// One message.
#[derive(Clone, Copy)]
pub(crate) struct Message {
    /// As the producer gave it.
    pub(crate) guid: Guid,
    /// Place in the log.
    pub(crate) sequence: Sequence,
    /// **Layout**: bits 63..16 wall clock at acceptance in ms, 15..8 data format, 7..1 deliveries lost, 0 handed out before.
    packed: u64,
    /// Application data. **Units**: bytes.
    pub(crate) len: u32,
    /// Belongs to the engine; what it means is the engine's business.
    pub(crate) mark: u32,
    older: Slot,
    newer: Slot,
}

const _: () = assert!(size_of::<Message>() == 48);

impl Message {
    const LOSSES_MAX: u64 = 0x7F;

    /// Wall clock at acceptance, milliseconds since the Unix epoch.
    #[inline]
    pub(crate) fn accepted_at_ms(&self) -> u64 {
        self.packed >> 16
    }

    #[inline]
    pub(crate) fn format(&self) -> DataFormat {
        DataFormat((self.packed >> 8) as u8)
    }

    /// How often a consumer was lost with this message in hand; stops counting at 127.
    #[inline]
    pub(crate) fn losses(&self) -> u32 {
        ((self.packed >> 1) & Self::LOSSES_MAX) as u32
    }

    pub(crate) fn add_loss(&mut self) {
        if u64::from(self.losses()) < Self::LOSSES_MAX {
            self.packed += 2;
        }
    }

    /// Whether some consumer had it before, so that the next delivery is out of order.
    #[inline]
    pub(crate) fn was_delivered(&self) -> bool {
        self.packed & 1 != 0
    }

    pub(crate) fn set_delivered(&mut self) {
        self.packed |= 1;
    }
}

/// A message to be added.
pub(crate) struct NewEntry {
    pub(crate) guid: Guid,
    pub(crate) sequence: Sequence,
    pub(crate) accepted_at_ms: u64,
    pub(crate) format: DataFormat,
    pub(crate) len: u32,
    pub(crate) mark: u32,
}

/// All live messages of a queue, in the order of their sequence.
pub(crate) struct MessageTable {
    pages: Vec<Vec<Message>>,
    index: Box<[HashTable<Slot>; INDEX_SHARDS]>,
    hasher: DefaultHashBuilder,
    free: Slot,
    oldest: Slot,
    newest: Slot,
    count: usize,
    bytes: u64,
}

impl MessageTable {
    pub(crate) fn new() -> Self {
        Self {
            pages: Vec::new(),
            index: Box::new(std::array::from_fn(|_| HashTable::new())),
            hasher: DefaultHashBuilder::default(),
            free: NO_SLOT,
            oldest: NO_SLOT,
            newest: NO_SLOT,
            count: 0,
            bytes: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Sum of the messages' data. **Units**: bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn oldest(&self) -> Option<Slot> {
        some(self.oldest)
    }

    pub(crate) fn newest(&self) -> Option<Slot> {
        some(self.newest)
    }

    /// The message after `slot` in the order of sequence.
    #[inline]
    pub(crate) fn newer(&self, slot: Slot) -> Option<Slot> {
        some(self.at(slot).newer)
    }

    #[inline]
    pub(crate) fn at(&self, slot: Slot) -> &Message {
        &self.pages[slot as usize / PAGE_SLOTS][slot as usize % PAGE_SLOTS]
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, slot: Slot) -> &mut Message {
        &mut self.pages[slot as usize / PAGE_SLOTS][slot as usize % PAGE_SLOTS]
    }

    pub(crate) fn find(&self, guid: &Guid) -> Option<Slot> {
        let (shard, hash) = self.place(guid);
        self.index[shard]
            .find(hash, |&slot| self.at(slot).guid == *guid)
            .copied()
    }

    /// Adds the newest message. The caller has checked that its GUID is not in the table.
    ///
    /// **Panics** if the sequence is not above all others: order is what everything else leans on.
    pub(crate) fn push(&mut self, new: NewEntry) -> Slot {
        let older = self.newest;
        assert!(
            older == NO_SLOT || self.at(older).sequence < new.sequence,
            "messages are added in the order of the log"
        );
        debug_assert!(self.find(&new.guid).is_none());
        let packed = (new.accepted_at_ms << 16) | (u64::from(new.format.0) << 8);
        let slot = self.take_slot(new.message(packed, older));
        match some(older) {
            Some(older) => self.at_mut(older).newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
        self.count += 1;
        self.bytes += u64::from(new.len);
        let (shard, hash) = self.place(&new.guid);
        let (pages, hasher) = (&self.pages, &self.hasher);
        self.index[shard].insert_unique(hash, slot, |&slot| {
            hash_of(
                hasher,
                &pages[slot as usize / PAGE_SLOTS][slot as usize % PAGE_SLOTS].guid,
            )
        });
        slot
    }

    /// Makes room in the index for that many more messages: growing step by step would move each of them again and again.
    pub(crate) fn reserve(&mut self, messages: usize) {
        let (pages, hasher) = (&self.pages, &self.hasher);
        for shard in self.index.iter_mut() {
            // An eighth more than its share: hashes are not spread evenly.
            shard.reserve(messages / INDEX_SHARDS * 9 / 8 + 1, |&slot| {
                hash_of(
                    hasher,
                    &pages[slot as usize / PAGE_SLOTS][slot as usize % PAGE_SLOTS].guid,
                )
            });
        }
    }

    /// Removes a message and returns what it was.
    pub(crate) fn remove(&mut self, slot: Slot) -> Message {
        let message = *self.at(slot);
        let (shard, hash) = self.place(&message.guid);
        match self.index[shard].find_entry(hash, |&other| other == slot) {
            Ok(entry) => drop(entry.remove()),
            Err(_) => unreachable!("every live message is in the index"),
        }
        match some(message.older) {
            Some(older) => self.at_mut(older).newer = message.newer,
            None => self.oldest = message.newer,
        }
        match some(message.newer) {
            Some(newer) => self.at_mut(newer).older = message.older,
            None => self.newest = message.older,
        }
        self.at_mut(slot).newer = self.free;
        self.free = slot;
        self.count -= 1;
        self.bytes -= u64::from(message.len);
        if self.count == 0 {
            self.reset();
        }
        message
    }

    /// Takes a free slot or the next never used one.
    fn take_slot(&mut self, message: Message) -> Slot {
        if let Some(slot) = some(self.free) {
            self.free = self.at(slot).newer;
            *self.at_mut(slot) = message;
            return slot;
        }
        // Only the first page that is not full is appended to: pages behind it are empty, kept from busier times.
        let used = self.pages.partition_point(|page| page.len() == PAGE_SLOTS);
        if used == self.pages.len() {
            self.pages.push(Vec::with_capacity(PAGE_SLOTS));
        }
        let slot = used * PAGE_SLOTS + self.pages[used].len();
        let slot = Slot::try_from(slot)
            .ok()
            .filter(|&slot| slot != NO_SLOT)
            .expect("the quota of a queue is below 2^32 messages");
        self.pages[used].push(message);
        slot
    }

    /// Returns memory once nothing lives here. Slots start from 0 again, so that order in memory is the log's order again.
    fn reset(&mut self) {
        self.pages.truncate(KEPT_PAGES);
        self.pages.iter_mut().for_each(Vec::clear);
        self.free = NO_SLOT;
        for shard in self
            .index
            .iter_mut()
            .filter(|shard| shard.capacity() > KEPT_PAGES * PAGE_SLOTS / INDEX_SHARDS * 4)
        {
            *shard = HashTable::new();
        }
    }

    fn place(&self, guid: &Guid) -> (usize, u64) {
        let hash = hash_of(&self.hasher, guid);
        // Neither the lowest nor the topmost bits: the tables use those.
        ((hash >> 32) as usize % INDEX_SHARDS, hash)
    }
}

impl NewEntry {
    fn message(&self, packed: u64, older: Slot) -> Message {
        Message {
            guid: self.guid,
            sequence: self.sequence,
            packed,
            len: self.len,
            mark: self.mark,
            older,
            newer: NO_SLOT,
        }
    }
}

fn hash_of(hasher: &DefaultHashBuilder, guid: &Guid) -> u64 {
    hasher.hash_one(u128::from_ne_bytes(guid.0))
}

fn some(slot: Slot) -> Option<Slot> {
    (slot != NO_SLOT).then_some(slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: u64) -> NewEntry {
        let guid = Guid(u128::from(n + 1).to_be_bytes());
        NewEntry {
            guid,
            sequence: Sequence(n + 1),
            accepted_at_ms: 1_700_000_000_000 + n,
            format: DataFormat(5),
            len: 10,
            mark: 7,
        }
    }

    fn order(table: &MessageTable) -> Vec<u64> {
        std::iter::successors(table.oldest(), |&slot| table.newer(slot))
            .map(|slot| table.at(slot).sequence.0)
            .collect()
    }

    #[test]
    fn order_survives_removal_from_anywhere_and_reuse_of_slots() {
        let mut table = MessageTable::new();
        let mut expected: Vec<u64> = Vec::new();
        for n in 0..2000 {
            table.push(entry(n));
            expected.push(n + 1);
            if n % 3 == 0 {
                let victim = expected.remove((n as usize * 7) % expected.len());
                let slot = table
                    .find(&Guid(u128::from(victim).to_be_bytes()))
                    .expect("it is there");
                assert_eq!(table.remove(slot).sequence, Sequence(victim));
            }
        }
        assert_eq!(order(&table), expected);
        assert_eq!(table.len(), expected.len());
        assert_eq!(table.bytes(), 10 * expected.len() as u64);
        for &sequence in &expected {
            let slot = table
                .find(&Guid(u128::from(sequence).to_be_bytes()))
                .expect("it is there");
            assert_eq!(
                table.at(slot).accepted_at_ms(),
                1_700_000_000_000 + sequence - 1
            );
            assert_eq!(table.at(slot).format(), DataFormat(5));
            table.remove(slot);
        }
        assert_eq!(order(&table), Vec::<u64>::new());
        assert!(table.find(&Guid(1u128.to_be_bytes())).is_none());
    }

    #[test]
    fn an_emptied_table_gives_memory_back_and_works_on() {
        let mut table = MessageTable::new();
        for round in 0..3u64 {
            for n in 0..20_000 {
                table.push(entry(round * 20_000 + n));
            }
            assert!(table.pages.len() >= 20_000 / PAGE_SLOTS);
            while let Some(slot) = table.oldest() {
                table.remove(slot);
            }
            assert_eq!(table.pages.len(), KEPT_PAGES);
        }
    }

    #[test]
    fn memory_follows_live_messages_not_their_span() {
        let mut table = MessageTable::new();
        table.push(entry(0));
        for n in 1..100_000 {
            let slot = table.push(entry(n));
            table.remove(slot);
        }
        assert_eq!(table.pages.len(), 1);
        assert_eq!(order(&table), [1]);
    }

    #[test]
    fn losses_and_delivery_do_not_disturb_their_neighbours() {
        let mut table = MessageTable::new();
        let slot = table.push(entry(3));
        let message = table.at_mut(slot);
        assert!(!message.was_delivered());
        message.set_delivered();
        for _ in 0..300 {
            message.add_loss();
        }
        assert_eq!(message.losses(), 127);
        assert!(message.was_delivered());
        assert_eq!(
            (message.format(), message.accepted_at_ms()),
            (DataFormat(5), 1_700_000_000_003)
        );
    }
}
