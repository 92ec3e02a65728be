//! Messages and confirms from sessions.

use mqb_core::Sequence;
use mqb_queue::{Accepted, NewMessage, Peer, PutError, StoreError};

use super::acks::PendingAck;
use super::client::Partition;
use super::hosted::{Home, Hosted, QueueIndex};
use super::log::{Level, Log};
use super::outbox::ack_item;
use crate::event::{AckStatus, ConfirmBatch, PutBatch, PutItem};

/// What becomes of a PUT.
enum Outcome {
    /// Decided.
    Now(AckStatus),
    /// Stored; decided when the record reaches the level.
    Stored(Level, Sequence),
    /// Stored earlier and not yet at the level.
    Again(Level, Sequence),
}

impl<L: Log> Partition<L> {
    /// PUTs of one connection for one queue.
    pub(super) fn puts(&mut self, index: QueueIndex, batch: &PutBatch) {
        let Some(token) = self.sessions.find(batch.session) else {
            // A session has its queue's address only after its open was noted here.
            return tracing::error!(event = "partition.strange_put", session = batch.session.0);
        };
        let peer = Peer {
            session: batch.session,
            queue: batch.queue,
        };
        let may_write = self.queues.at(index).engine.may_write(peer);
        let mut nacks = 0;
        for item in &batch.puts {
            let outcome = match may_write {
                true if self.is_stopping => Outcome::Now(AckStatus::NotReady),
                true => self.put(index, batch, item),
                false => Outcome::Now(AckStatus::Unknown),
            };
            nacks +=
                u64::from(matches!(outcome, Outcome::Now(status) if status != AckStatus::Success));
            self.note_outcome(token, batch, item, &outcome);
        }
        let hosted = self.queues.at(index);
        hosted.puts += batch.puts.len() as u64;
        hosted.nacks += nacks;
        self.take_notices(index);
    }

    fn put(&mut self, index: QueueIndex, batch: &PutBatch, item: &PutItem) -> Outcome {
        let now_ms = self.now_ms;
        let hosted = self.queues.at(index);
        let message = NewMessage {
            guid: item.guid,
            format: item.format,
            accepted_at_ms: now_ms,
            data: &batch.frames[item.data.start as usize..item.data.end as usize],
            owner: &batch.frames,
        };
        let level = match hosted.home {
            Home::Memory => return self.put_in_memory(index, &message),
            Home::Log(level) => level,
        };
        if let Some(original) = self.log.duplicate(hosted.engine.id(), &item.guid, now_ms) {
            return self.again(level, original);
        }
        match hosted.engine.put(&mut self.log, &message) {
            Ok(Accepted::Stored(sequence)) => {
                hosted.last_put = sequence;
                if !hosted.is_fresh {
                    hosted.is_fresh = true;
                    self.fresh[level as usize].push(index);
                }
                self.wanted = self.wanted.max(Some(level));
                Outcome::Stored(level, sequence)
            }
            Ok(Accepted::Duplicate(original)) => self.again(level, original),
            Err(error) => Outcome::Now(refusal(error)),
        }
    }

    fn put_in_memory(&mut self, index: QueueIndex, message: &NewMessage<'_>) -> Outcome {
        let hosted = self.queues.at(index);
        let now_ms = message.accepted_at_ms;
        if hosted
            .window
            .as_ref()
            .is_some_and(|window| window.find(&message.guid, now_ms).is_some())
        {
            return Outcome::Now(AckStatus::Success);
        }
        match hosted.engine.put(&mut self.memory, message) {
            Ok(Accepted::Stored(sequence)) => {
                if let Some(window) = &mut hosted.window {
                    window.insert(message.guid, sequence, now_ms);
                }
                hosted.engine.set_deliverable(sequence);
                self.set_ready(index);
                Outcome::Now(AckStatus::Success)
            }
            Ok(Accepted::Duplicate(_)) => Outcome::Now(AckStatus::Success),
            Err(error) => Outcome::Now(refusal(error)),
        }
    }

    /// A message that is there already gets its ACK at the level of the original.
    fn again(&mut self, level: Level, original: Sequence) -> Outcome {
        if self.marks.at(level) >= original {
            Outcome::Now(AckStatus::Success)
        } else if self.news.is_failed {
            Outcome::Now(AckStatus::StorageFailure)
        } else {
            self.wanted = self.wanted.max(Some(level));
            Outcome::Again(level, original)
        }
    }

    fn note_outcome(&mut self, token: u32, batch: &PutBatch, item: &PutItem, outcome: &Outcome) {
        let pending = |sequence| PendingAck {
            sequence,
            guid: item.guid,
            token,
            queue: batch.queue,
            correlation: item.correlation,
            charge: u32::try_from(item.charge()).expect("a message is far below 4 GiB"),
            ack: item.ack,
        };
        match *outcome {
            Outcome::Now(status) => {
                let ack = ack_item(batch.queue, item.guid, item.correlation, status);
                self.sessions
                    .outbox(token)
                    .ack(ack, item.ack, item.charge());
            }
            Outcome::Stored(level, sequence) => self.acks[level as usize].push(pending(sequence)),
            Outcome::Again(level, sequence) => {
                if !self.acks[level as usize].push_again(pending(sequence)) {
                    self.sessions.outbox(token).release(item.charge());
                }
            }
        }
    }

    /// Releases the ACKs of PUTs that have reached a level.
    pub(super) fn release_acks(&mut self, level: Level) {
        let mark = self.marks.at(level);
        while let Some(pending) = self.acks[level as usize].pop(mark) {
            self.decide(&pending, AckStatus::Success);
        }
    }

    /// The log has failed: what waits for it was not stored as promised.
    pub(super) fn fail_acks(&mut self, level: Level) {
        while let Some(pending) = self.acks[level as usize].pop(Sequence(u64::MAX)) {
            self.decide(&pending, AckStatus::StorageFailure);
        }
    }

    fn decide(&mut self, pending: &PendingAck, status: AckStatus) {
        let ack = ack_item(pending.queue, pending.guid, pending.correlation, status);
        self.sessions
            .outbox(pending.token)
            .ack(ack, pending.ack, pending.charge as usize);
    }

    /// Messages that have reached a level can be seen now.
    pub(super) fn release_messages(&mut self, level: Level) {
        let mark = self.marks.at(level);
        let mut fresh = std::mem::take(&mut self.fresh[level as usize]);
        fresh.retain(|&index| {
            let hosted = self.queues.at(index);
            hosted.engine.set_deliverable(mark);
            hosted.is_fresh = hosted.last_put > mark;
            let is_fresh = hosted.is_fresh;
            self.set_ready(index);
            is_fresh
        });
        self.fresh[level as usize] = fresh;
    }

    /// Confirms of one connection for one queue.
    pub(super) fn confirms(&mut self, index: QueueIndex, batch: &ConfirmBatch) {
        let peer = Peer {
            session: batch.session,
            queue: batch.queue,
        };
        let hosted = self.queues.at(index);
        let store = Hosted::store(hosted.home, &mut self.log, &mut self.memory);
        let mut any = false;
        for (sub_id, guid) in &batch.confirms {
            any |= hosted.engine.confirm(store, peer, *sub_id, guid);
        }
        if any {
            // A window may have opened.
            self.set_ready(index);
            self.take_notices(index);
        }
    }
}

fn refusal(error: PutError) -> AckStatus {
    match error {
        PutError::LimitMessages => AckStatus::LimitMessages,
        PutError::LimitBytes => AckStatus::LimitBytes,
        PutError::Store(StoreError::Full | StoreError::ReadOnly) => AckStatus::StorageFailure,
        _ => AckStatus::StorageFailure,
    }
}
