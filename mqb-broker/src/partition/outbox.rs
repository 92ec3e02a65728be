//! What one turn collects for one connection: its ACKs and its messages, one batch of each.

use bytes::Bytes;
use mqb_core::Guid;
use mqb_queue::Push;

use super::sessions::Sessions;
use crate::event::{AckBatch, AckItem, AckStatus, PushBatch, PushItem};
use mqb_core::{SubscriptionId, WireQueueId};

/// Chunks looked at for the one that a message lies in: neighbours mostly share the last one.
const CHUNKS_LOOKED_AT: usize = 4;
/// Chunks of a batch: [`PushItem::chunk`] is 16 bits wide.
const CHUNKS_MAX: usize = 1 << 16;

/// Batches on their way to one connection.
#[derive(Default)]
pub(super) struct Outbox {
    pub(super) acks: Option<Box<AckBatch>>,
    pub(super) pushes: Vec<PushBatch>,
    /// Sizes of the last batches, as a guess for the next.
    acks_hint: usize,
    pushes_hint: usize,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.acks.is_none() && self.pushes.is_empty()
    }

    /// Notes the outcome of a PUT. Success is only told if it was asked for.
    pub(super) fn ack(&mut self, item: AckItem, is_wanted: bool, charge: usize) {
        let batch = self.release(charge);
        if is_wanted || item.status != AckStatus::Success {
            batch.acks.push(item);
        }
    }

    /// Gives budget back without an ACK.
    pub(super) fn release(&mut self, charge: usize) -> &mut AckBatch {
        let hint = self.acks_hint.min(1024);
        let batch = self.acks.get_or_insert_with(|| {
            Box::new(AckBatch {
                acks: Vec::with_capacity(hint),
                released_bytes: 0,
            })
        });
        batch.released_bytes += charge;
        batch
    }

    pub(super) fn take_acks(&mut self) -> Option<Box<AckBatch>> {
        let batch = self.acks.take()?;
        self.acks_hint = batch.acks.len();
        Some(batch)
    }

    pub(super) fn take_pushes(&mut self) -> Vec<PushBatch> {
        let batches = std::mem::take(&mut self.pushes);
        if let Some(batch) = batches.last() {
            self.pushes_hint = batch.pushes.len();
        }
        batches
    }

    fn push(&mut self, queue: WireQueueId, subscription: SubscriptionId, push: &Push<'_>) {
        if self
            .pushes
            .last()
            .is_none_or(|batch| batch.chunks.len() == CHUNKS_MAX)
        {
            let pushes = Vec::with_capacity(self.pushes_hint.min(1024));
            self.pushes.push(PushBatch {
                chunks: Vec::new(),
                pushes,
            });
        }
        let batch = self
            .pushes
            .last_mut()
            .expect("one was added if there was none");
        let chunk = chunk_of(&mut batch.chunks, push.data.chunk);
        let start =
            u32::try_from(push.data.start).expect("a chunk is a block or a frame, far below 4 GiB");
        let len = u32::try_from(push.data.len).expect("a message is below 4 GiB");
        batch.pushes.push(PushItem {
            queue,
            subscription,
            guid: push.guid,
            format: push.data.format,
            out_of_order: push.out_of_order,
            chunk,
            data: start..start + len,
        });
    }
}

fn chunk_of(chunks: &mut Vec<Bytes>, chunk: &Bytes) -> u16 {
    let same = |other: &Bytes| other.as_ptr() == chunk.as_ptr() && other.len() == chunk.len();
    let from = chunks.len().saturating_sub(CHUNKS_LOOKED_AT);
    let at = match chunks[from..].iter().rposition(same) {
        Some(at) => from + at,
        None => {
            chunks.push(chunk.clone());
            chunks.len() - 1
        }
    };
    u16::try_from(at).expect("a batch is closed at its maximum of chunks")
}

/// Outcome of a PUT as a session wants it.
pub(super) fn ack_item(
    queue: WireQueueId,
    guid: Guid,
    correlation: u32,
    status: AckStatus,
) -> AckItem {
    AckItem {
        queue,
        guid,
        correlation,
        status,
    }
}

impl mqb_queue::Sink for Sessions {
    fn push(&mut self, target: mqb_queue::Target, push: Push<'_>) {
        self.outbox(target.token)
            .push(target.peer.queue, target.subscription, &push);
    }
}
