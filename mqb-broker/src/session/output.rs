//! What a session sends: events gathered over a turn and written once at its end.
//!
//! ACKs are collected apart and become one event per turn; PUSHes share an event of up to 1 MiB. Both are completed before
//! any control response, so a response never overtakes what was decided before it.

use bytes::Bytes;
use mqb_core::SubscriptionId;
use mqb_core::wire::{
    Ack, AckBuilder, HEARTBEAT_REQUEST, HEARTBEAT_RESPONSE, PushBuilder, PushHead,
};

use crate::net::outbuf::OutBuf;

/// Payloads up to this are copied behind their header; larger ones go out from where they are. Below, a copy is cheaper
/// than one more slice in the system call and one more reference to give back.
const COPY_BYTES_MAX: usize = 4 << 10;
/// PUSHes gathered into one event.
const PUSH_EVENT_BYTES: usize = 1 << 20;

/// Output under construction. Owned by: the session's processor.
#[derive(Debug, Default)]
pub struct Output {
    buffer: OutBuf,
    acks: Vec<Ack>,
    push: Option<PushBuilder>,
}

impl Output {
    /// Bytes that wait, ACKs that are not written yet included (roughly).
    pub fn len(&self) -> usize {
        self.buffer.len() + self.acks.len() * 24
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds the outcome of a PUT.
    #[inline]
    pub fn ack(&mut self, ack: Ack) {
        self.acks.push(ack);
    }

    /// Adds a message with its one subscription id. **Cost**: a copy of `data` up to 4 KiB, a reference beyond.
    ///
    /// Returns false if the message can never fit an event.
    pub fn push(
        &mut self,
        head: &PushHead,
        subscription: SubscriptionId,
        chunk: &Bytes,
        data: &[u8],
    ) -> bool {
        let ids = [subscription];
        if self.try_push(PUSH_EVENT_BYTES, head, ids, chunk, data) {
            return true;
        }
        self.seal_push();
        if self.try_push(PUSH_EVENT_BYTES, head, ids, chunk, data) {
            return true;
        }
        // Alone it is larger than a batch may be.
        self.seal_push();
        let fits = self.try_push(usize::MAX, head, ids, chunk, data);
        self.seal_push();
        fits
    }

    fn try_push(
        &mut self,
        limit: usize,
        head: &PushHead,
        ids: [SubscriptionId; 1],
        chunk: &Bytes,
        data: &[u8],
    ) -> bool {
        let small = self.buffer.small();
        let builder = self
            .push
            .get_or_insert_with(|| PushBuilder::begin_limited(small, limit));
        if data.len() <= COPY_BYTES_MAX {
            return builder.append_copy(small, head, &ids, data).is_ok();
        }
        match builder.append(small, head, &ids, data.len()) {
            Ok(at) => {
                self.buffer.splice(at, chunk.slice_ref(data));
                true
            }
            Err(_) => false,
        }
    }

    fn seal_push(&mut self) {
        if let Some(builder) = self.push.take() {
            let small = self.buffer.small();
            if builder.is_empty(small) {
                builder.cancel(small);
            } else {
                builder.finish(small);
            }
        }
    }

    fn seal_acks(&mut self) {
        let small = self.buffer.small();
        let mut acks = self.acks.drain(..).peekable();
        while acks.peek().is_some() {
            let mut builder = AckBuilder::begin(small);
            while let Some(ack) = acks.peek() {
                if builder.append(small, ack).is_err() {
                    break;
                }
                acks.next();
            }
            builder.finish(small);
        }
        drop(acks);
        // Memory of a burst is not kept.
        if self.acks.capacity() > 16_384 {
            self.acks = Vec::new();
        }
    }

    /// Completes what was gathered and lets `encode` append a whole event behind it.
    pub fn event(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        encode(self.sealed().small());
    }

    /// Asks the peer whether it is there.
    pub fn heartbeat_request(&mut self) {
        self.event(|out| out.extend_from_slice(&HEARTBEAT_REQUEST));
    }

    /// Tells the peer that we are here.
    pub fn heartbeat_response(&mut self) {
        self.event(|out| out.extend_from_slice(&HEARTBEAT_RESPONSE));
    }

    /// Completes what was gathered, for writing.
    pub fn sealed(&mut self) -> &mut OutBuf {
        self.seal_push();
        if !self.acks.is_empty() {
            self.seal_acks();
        }
        &mut self.buffer
    }

    /// Throws everything away.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
