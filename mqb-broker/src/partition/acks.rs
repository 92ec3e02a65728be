//! PUTs that were stored and wait for their durability level. One pending ACK per PUT and connection.

use std::collections::{BTreeMap, VecDeque};

use mqb_core::{Guid, Sequence, WireQueueId};

/// A PUT that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingAck {
    /// The record that has to reach the level.
    pub(super) sequence: Sequence,
    pub(super) guid: Guid,
    /// The connection's slot. It is not reused before this is released.
    pub(super) token: u32,
    pub(super) queue: WireQueueId,
    pub(super) correlation: u32,
    /// Given back to the connection's budget. **Units**: bytes.
    pub(super) charge: u32,
    /// Whether the producer wants to hear of success.
    pub(super) ack: bool,
}

/// The PUTs that wait for one level.
#[derive(Default)]
pub(super) struct PendingAcks {
    /// In the order of the log.
    new: VecDeque<PendingAck>,
    /// PUTs sent again, under the record of the original.
    again: BTreeMap<(Sequence, u32), PendingAck>,
}

impl PendingAcks {
    pub(super) fn len(&self) -> usize {
        self.new.len() + self.again.len()
    }

    /// A message was appended; its sequence is the highest.
    pub(super) fn push(&mut self, pending: PendingAck) {
        debug_assert!(
            self.new
                .back()
                .is_none_or(|last| last.sequence < pending.sequence)
        );
        self.new.push_back(pending);
    }

    /// A message was sent again while the original waits. Returns false, and keeps nothing, if an ACK to this connection
    /// is already on its way: it stands for both.
    pub(super) fn push_again(&mut self, pending: PendingAck) -> bool {
        let at = self
            .new
            .partition_point(|other| other.sequence < pending.sequence);
        if let Some(original) = self.new.get_mut(at)
            && original.sequence == pending.sequence
            && original.token == pending.token
        {
            original.ack |= pending.ack;
            return false;
        }
        match self.again.entry((pending.sequence, pending.token)) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(pending);
                true
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                entry.get_mut().ack |= pending.ack;
                false
            }
        }
    }

    /// Takes the next PUT that has reached the level.
    #[inline]
    pub(super) fn pop(&mut self, mark: Sequence) -> Option<PendingAck> {
        if let Some(entry) = self.again.first_entry()
            && entry.key().0 <= mark
        {
            return Some(entry.remove());
        }
        self.new.front().filter(|first| first.sequence <= mark)?;
        self.new.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(sequence: u64, token: u32, ack: bool) -> PendingAck {
        let guid = Guid(u128::from(sequence).to_be_bytes());
        PendingAck {
            sequence: Sequence(sequence),
            guid,
            token,
            queue: WireQueueId(0),
            correlation: 0,
            charge: 1,
            ack,
        }
    }

    fn released(acks: &mut PendingAcks, mark: u64) -> Vec<(u64, u32, bool)> {
        std::iter::from_fn(|| acks.pop(Sequence(mark)))
            .map(|p| (p.sequence.0, p.token, p.ack))
            .collect()
    }

    #[test]
    fn one_ack_per_put_and_connection() {
        let mut acks = PendingAcks::default();
        acks.push(pending(1, 7, false));
        acks.push(pending(3, 7, true));
        assert!(
            !acks.push_again(pending(1, 7, true)),
            "the same connection: one for both, and now it is wanted"
        );
        assert!(
            acks.push_again(pending(3, 8, true)),
            "another connection gets its own"
        );
        assert!(!acks.push_again(pending(3, 8, false)));
        assert!(
            acks.push_again(pending(2, 7, true)),
            "the original was another connection's that has gone"
        );
        assert_eq!(acks.len(), 4);
        assert_eq!(released(&mut acks, 0), []);
        assert_eq!(released(&mut acks, 2), [(2, 7, true), (1, 7, true)]);
        assert_eq!(released(&mut acks, 9), [(3, 8, true), (3, 7, true)]);
        assert_eq!(acks.len(), 0);
    }
}
