//! A queue in its partition: the engine, its address, its domain.

use std::sync::Arc;

use hashbrown::HashMap;
use mqb_core::Sequence;
use mqb_dispatcher::{Handle, MemberId};
use mqb_queue::{Fill, MemoryStore, MessageStore, Queue};
use slab::Slab;

use super::log::Level;
use crate::domain::Domain;
use crate::event::Event;
use crate::storage::Window;

/// Place of a queue in its partition's table.
pub(super) type QueueIndex = u32;

/// Where a queue's messages are. Decided when the queue is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Home {
    /// In the log, and what waits for which level.
    Log(Level),
    /// In memory.
    Memory,
}

/// One queue.
pub(super) struct Hosted {
    pub(super) engine: Queue,
    pub(super) uri: Box<str>,
    pub(super) domain: Arc<Domain>,
    pub(super) home: Home,
    pub(super) handle: Handle<Event>,
    pub(super) member: MemberId,
    /// The record that made it.
    pub(super) created: Sequence,
    /// The newest message.
    pub(super) last_put: Sequence,
    /// Listed as having messages that cannot be seen yet.
    pub(super) is_fresh: bool,
    /// Listed as having something to deliver.
    pub(super) is_ready: bool,
    /// Listed as being swept of expired messages.
    pub(super) is_expiring: bool,
    /// Use of the quota as last told.
    pub(super) fill: Fill,
    /// PUTs judged.
    pub(super) puts: u64,
    /// PUTs refused.
    pub(super) nacks: u64,
    /// Messages handed out.
    pub(super) pushes: u64,
    /// What was stored lately, of a queue in memory; the log remembers for the others.
    pub(super) window: Option<Window>,
}

impl Hosted {
    /// The store that holds its messages.
    pub(super) fn store<'a, L: MessageStore>(
        home: Home,
        log: &'a mut L,
        memory: &'a mut MemoryStore,
    ) -> &'a mut dyn MessageStore {
        match home {
            Home::Log(_) => log,
            Home::Memory => memory,
        }
    }
}

/// The queues of a partition.
#[derive(Default)]
pub(super) struct Queues {
    slots: Slab<Hosted>,
    by_uri: HashMap<Box<str>, QueueIndex>,
    by_member: HashMap<MemberId, QueueIndex>,
}

impl Queues {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn find(&self, uri: &str) -> Option<QueueIndex> {
        self.by_uri.get(uri).copied()
    }

    pub(super) fn of_member(&self, member: MemberId) -> Option<QueueIndex> {
        self.by_member.get(&member).copied()
    }

    pub(super) fn add(&mut self, hosted: Hosted) -> QueueIndex {
        let (uri, member) = (hosted.uri.clone(), hosted.member);
        let index = self.slots.insert(hosted) as QueueIndex;
        self.by_uri.insert(uri, index);
        self.by_member.insert(member, index);
        index
    }

    #[inline]
    pub(super) fn at(&mut self, index: QueueIndex) -> &mut Hosted {
        &mut self.slots[index as usize]
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Hosted> {
        self.slots.iter_mut().map(|(_, hosted)| hosted)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (QueueIndex, &Hosted)> {
        self.slots
            .iter()
            .map(|(index, hosted)| (index as QueueIndex, hosted))
    }
}
