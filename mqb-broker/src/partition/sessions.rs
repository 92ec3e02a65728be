//! Connections as a partition knows them: where to answer, which queues they have open here, what is on its way to them.

use hashbrown::HashMap;
use mqb_core::{SessionId, WireQueueId};
use mqb_dispatcher::{Cx, Handle};
use slab::Slab;
use smallvec::SmallVec;

use super::hosted::QueueIndex;
use super::outbox::Outbox;
use crate::event::{Event, OpenCall};

/// A connection with queues open on this partition.
pub(super) struct Slot {
    pub(super) id: SessionId,
    pub(super) reply: Handle<Event>,
    /// It takes nothing at the moment.
    pub(super) is_paused: bool,
    /// It was told of this partition, so it will say when it ends.
    pub(super) is_known: bool,
    /// It had a queue whose domain is `sync`: its end waits for that level.
    pub(super) is_sync: bool,
    /// Its open queues.
    pub(super) open: SmallVec<[(QueueIndex, WireQueueId); 4]>,
    outbox: Outbox,
    is_touched: bool,
}

/// All of them, by a small number (*token*) that engines and pending ACKs carry.
#[derive(Default)]
pub(super) struct Sessions {
    slots: Slab<Slot>,
    by_id: HashMap<SessionId, u32>,
    /// Those with something in the outbox.
    touched: Vec<u32>,
}

impl Sessions {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn find(&self, id: SessionId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn slot(&mut self, token: u32) -> &mut Slot {
        &mut self.slots[token as usize]
    }

    /// The slot of the connection that an open comes from.
    pub(super) fn enter(&mut self, open: &OpenCall) -> u32 {
        *self.by_id.entry(open.session).or_insert_with(|| {
            self.slots.insert(Slot {
                id: open.session,
                reply: open.reply.clone(),
                is_paused: false,
                is_known: false,
                is_sync: false,
                open: SmallVec::new(),
                outbox: Outbox::default(),
                is_touched: false,
            }) as u32
        })
    }

    /// Notes that the connection has a queue open.
    pub(super) fn note_open(&mut self, token: u32, queue: QueueIndex, number: WireQueueId) {
        let open = &mut self.slot(token).open;
        if !open.contains(&(queue, number)) {
            open.push((queue, number));
        }
    }

    /// Notes that the connection has closed a queue.
    pub(super) fn note_closed(&mut self, token: u32, queue: QueueIndex, number: WireQueueId) {
        self.slot(token)
            .open
            .retain(|open| *open != (queue, number));
    }

    /// Forgets a connection that has nothing open here and was never told of this partition: it will not say goodbye.
    pub(super) fn forget_if_unused(&mut self, token: u32) {
        let slot = self.slot(token);
        if !slot.is_known && slot.open.is_empty() {
            self.remove(token);
        }
    }

    /// Forgets a connection whose outbox is empty. Nothing carries its token any more.
    pub(super) fn remove(&mut self, token: u32) -> Slot {
        let slot = self.slots.remove(token as usize);
        debug_assert!(
            slot.outbox.is_empty(),
            "what is said to a connection is sent before it is forgotten"
        );
        self.by_id.remove(&slot.id);
        self.touched.retain(|&other| other != token);
        slot
    }

    /// What is collected for a connection in this turn.
    #[inline]
    pub(super) fn outbox(&mut self, token: u32) -> &mut Outbox {
        let slot = &mut self.slots[token as usize];
        if !slot.is_touched {
            slot.is_touched = true;
            self.touched.push(token);
        }
        &mut slot.outbox
    }

    /// Sends what is collected for one connection, so that what is posted next comes behind it.
    pub(super) fn send(&mut self, cx: &mut Cx<'_, Event>, token: u32) {
        let slot = &mut self.slots[token as usize];
        if let Some(acks) = slot.outbox.take_acks() {
            cx.post(&slot.reply, Event::Acks(acks));
        }
        for pushes in slot.outbox.take_pushes() {
            cx.post(&slot.reply, Event::Pushes(Box::new(pushes)));
        }
    }

    /// Sends everything that is collected.
    pub(super) fn send_all(&mut self, cx: &mut Cx<'_, Event>) {
        let mut touched = std::mem::take(&mut self.touched);
        for token in touched.drain(..) {
            self.send(cx, token);
            self.slot(token).is_touched = false;
        }
        // Nothing was touched meanwhile; the list keeps its memory.
        self.touched = touched;
    }
}
