//! Work queue: each message goes to one consumer of the highest priority.
//!
//! Messages behind the *cursor* have not been handed out yet. Those before it are with a consumer, back and waiting to be
//! handed out again, or damaged. What is back goes first, oldest first whoever lost it: with the reference broker's list
//! in the order of loss, repeated losses rotate messages for ever.
//!
//! The `mark` of a message is the lane that holds it, or one of the constants below.

use std::collections::BTreeMap;

use mqb_core::{QueueId, Sequence};

use crate::consumer::{Peer, SubscriptionParameters};
use crate::engine::{Budget, Delivery, Push, Sink};
use crate::message::{Message, MessageTable, NO_SLOT, Slot};
use crate::rotation::Rotation;
use crate::store::{Fetch, MessageStore};

/// Not handed out yet.
const WAITING: u32 = u32::MAX;
/// Back from a consumer.
const RETURNED: u32 = u32::MAX - 1;
/// Cannot be read from the store.
const DAMAGED: u32 = u32::MAX - 2;

/// Delivery state of a work queue.
pub(crate) struct Priority {
    rotation: Rotation,
    /// Oldest message not handed out yet.
    cursor: Slot,
    /// Messages that came back, in the order of the log.
    returned: BTreeMap<Sequence, Slot>,
    /// Messages with consumers.
    outstanding: u64,
}

/// How a message stands, for whoever removes it.
enum Standing {
    Held(u32),
    Other,
}

impl Priority {
    /// `mark` of a new message.
    pub(crate) const NEW: u32 = WAITING;

    pub(crate) fn new() -> Self {
        Self {
            rotation: Rotation::new(),
            cursor: NO_SLOT,
            returned: BTreeMap::new(),
            outstanding: 0,
        }
    }

    /// A message was added to the table.
    pub(crate) fn appended(&mut self, slot: Slot) {
        if self.cursor == NO_SLOT {
            self.cursor = slot;
        }
    }

    /// A message is about to be removed from the table: confirmed, expired, purged, or out of attempts.
    pub(crate) fn forget(&mut self, table: &MessageTable, slot: Slot) {
        let message = table.at(slot);
        if self.cursor == slot {
            self.cursor = table.newer(slot).unwrap_or(NO_SLOT);
        }
        if message.mark == RETURNED {
            self.returned.remove(&message.sequence);
        } else if let Standing::Held(lane) = standing(message) {
            self.outstanding -= 1;
            self.rotation.give_back(lane, message.len);
        }
    }

    pub(crate) fn configure(
        &mut self,
        stream: u32,
        owner: (Peer, u32, bool),
        subscriptions: &[SubscriptionParameters],
    ) {
        self.rotation.configure(stream, owner, subscriptions);
    }

    pub(crate) fn set_paused(&mut self, peer: Peer, paused: bool) {
        self.rotation.set_paused(peer, paused);
    }

    /// A stream is gone: what it holds comes back. `lost` is told of each message, and whether the message goes for good.
    ///
    /// **Cost**: linear in what all consumers hold, from the oldest message to the last one of this stream.
    pub(crate) fn release(
        &mut self,
        table: &mut MessageTable,
        stream: u32,
        mut lost: impl FnMut(&mut Message) -> bool,
    ) -> Vec<Slot> {
        let mut left = self.rotation.outstanding(stream);
        let mut gone = Vec::new();
        let mut next = table.oldest();
        while let (Some(slot), true) = (next, left > 0) {
            next = table.newer(slot);
            let Standing::Held(lane) = standing(table.at(slot)) else {
                continue;
            };
            if self.rotation.stream_of(lane) != stream {
                continue;
            }
            left -= 1;
            let message = table.at_mut(slot);
            message.mark = RETURNED;
            if lost(message) {
                gone.push(slot);
            }
            let (sequence, len) = (message.sequence, message.len);
            self.returned.insert(sequence, slot);
            self.outstanding -= 1;
            self.rotation.give_back(lane, len);
        }
        debug_assert_eq!(left, 0, "what a stream holds lies before the cursor");
        self.rotation.remove(stream);
        gone
    }

    /// Hands out what can be handed out. Messages above `upto` are not to be seen yet.
    pub(crate) fn deliver<S: MessageStore + ?Sized>(
        &mut self,
        table: &mut MessageTable,
        queue: QueueId,
        upto: Sequence,
        budget: &mut Budget,
        store: &mut S,
        sink: &mut impl Sink,
    ) -> Delivery {
        loop {
            let Some(slot) = self.next_message(table, upto) else {
                return Delivery::Drained;
            };
            let Some(lane) = self.rotation.next() else {
                return Delivery::NoConsumer;
            };
            if budget.is_used_up() {
                return Delivery::More;
            }
            let message = *table.at(slot);
            let mark = match store.fetch(queue, message.sequence) {
                Fetch::Later => return Delivery::Stalled,
                Fetch::Lost => DAMAGED,
                Fetch::Ready(data) => {
                    let target = self.rotation.target(lane);
                    let out_of_order = message.was_delivered();
                    sink.push(
                        target,
                        Push {
                            guid: message.guid,
                            sequence: message.sequence,
                            out_of_order,
                            data,
                        },
                    );
                    lane
                }
            };
            self.leave(table, slot, mark);
            if mark == lane {
                self.rotation.take(lane, message.len);
                self.outstanding += 1;
                budget.take(message.len);
            }
        }
    }

    fn next_message(&self, table: &MessageTable, upto: Sequence) -> Option<Slot> {
        if let Some((_, &slot)) = self.returned.first_key_value() {
            return Some(slot);
        }
        (self.cursor != NO_SLOT && table.at(self.cursor).sequence <= upto).then_some(self.cursor)
    }

    /// The message is not next any more.
    fn leave(&mut self, table: &mut MessageTable, slot: Slot, mark: u32) {
        let message = table.at_mut(slot);
        if message.mark == RETURNED {
            self.returned.remove(&message.sequence);
        } else {
            self.cursor = table.newer(slot).unwrap_or(NO_SLOT);
        }
        let message = table.at_mut(slot);
        message.mark = mark;
        if mark != DAMAGED {
            message.set_delivered();
        }
    }

    /// Number of messages with consumers.
    pub(crate) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Number of messages that wait to be handed out again.
    pub(crate) fn returned(&self) -> u64 {
        self.returned.len() as u64
    }

    /// The oldest message that waits for a consumer.
    pub(crate) fn oldest_waiting(&self) -> Option<Slot> {
        let returned = self.returned.first_key_value().map(|(_, &slot)| slot);
        returned.or((self.cursor != NO_SLOT).then_some(self.cursor))
    }

    /// Whether the message is with a consumer.
    pub(crate) fn is_outstanding(message: &Message) -> bool {
        matches!(standing(message), Standing::Held(_))
    }
}

fn standing(message: &Message) -> Standing {
    match message.mark {
        WAITING | RETURNED | DAMAGED => Standing::Other,
        lane => Standing::Held(lane),
    }
}
