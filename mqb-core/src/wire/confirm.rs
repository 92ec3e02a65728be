//! CONFIRM and REJECT: messages that a consumer is done with, or a broker gave up on. One layout.
//!
//! ```text
//! +----+----+--------------------------+          header words, words per message: may grow
//! | 1  | 6  |            0             |  then n x
//! +----+----+--------------------------+
//! |     queue id      | GUID (16 bytes)              |   sub-queue id    |   6 words
//! +-------------------+--------- ... ----------------+-------------------+
//! ```

use crate::error::{EventFull, WireError};
use crate::limits::{OTHER_EVENT_BYTES_MAX, WORD_BYTES};
use crate::wire::{Event, EventBuilder, EventKind};
use crate::{Guid, SubId, WireQueueId};

/// One message that is done with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Confirm {
    /// The consumer's number for the queue.
    pub queue: WireQueueId,
    /// The message.
    pub guid: Guid,
    /// The sub-stream of the queue, from its open (not the subscription); 0 is the default.
    pub sub_id: SubId,
}

impl Confirm {
    const BYTES: usize = 24;

    #[inline]
    fn read(bytes: &[u8; Self::BYTES]) -> Confirm {
        let mut guid = Guid::UNSET;
        guid.0.copy_from_slice(&bytes[4..20]);
        Confirm {
            queue: WireQueueId(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
            guid,
            sub_id: SubId(u32::from_be_bytes([
                bytes[20], bytes[21], bytes[22], bytes[23],
            ])),
        }
    }

    #[inline]
    fn bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.queue.0.to_be_bytes());
        bytes[4..20].copy_from_slice(&self.guid.0);
        bytes[20..].copy_from_slice(&self.sub_id.0.to_be_bytes());
        bytes
    }
}

/// Walks the messages of a CONFIRM or REJECT event. After an error there is nothing more.
#[derive(Clone, Debug)]
pub struct ConfirmIter<'a>(FixedIter<'a, { Confirm::BYTES }>);

impl<'a> ConfirmIter<'a> {
    /// Walks `event`, which should be a CONFIRM or REJECT.
    #[inline]
    pub fn new(event: &Event<'a>) -> Self {
        ConfirmIter(FixedIter::new(event.body, "confirm message"))
    }
}

impl Iterator for ConfirmIter<'_> {
    type Item = Result<Confirm, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(Confirm::read))
    }
}

/// Writes a CONFIRM or REJECT event.
#[derive(Debug)]
#[must_use = "an event that is not finished has no length"]
pub struct ConfirmBuilder(EventBuilder);

impl ConfirmBuilder {
    /// Begins a CONFIRM event at the end of `out`.
    #[inline]
    pub fn begin(out: &mut Vec<u8>) -> ConfirmBuilder {
        Self::begin_kind(EventKind::Confirm, out)
    }

    /// Begins a REJECT event at the end of `out`.
    #[inline]
    pub fn begin_reject(out: &mut Vec<u8>) -> ConfirmBuilder {
        Self::begin_kind(EventKind::Reject, out)
    }

    #[inline]
    fn begin_kind(kind: EventKind, out: &mut Vec<u8>) -> ConfirmBuilder {
        let event = EventBuilder::begin(kind, 0, OTHER_EVENT_BYTES_MAX, out);
        out.extend_from_slice(&[0x16, 0, 0, 0]);
        ConfirmBuilder(event)
    }

    /// Appends one message.
    ///
    /// **Errors**: the event is full; nothing was written.
    #[inline]
    pub fn append(&mut self, out: &mut Vec<u8>, confirm: &Confirm) -> Result<(), EventFull> {
        if !self.0.fits(out, Confirm::BYTES) {
            return Err(EventFull);
        }
        out.extend_from_slice(&confirm.bytes());
        Ok(())
    }

    /// Completes the event; returns its length in bytes.
    #[inline]
    pub fn finish(self, out: &mut [u8]) -> usize {
        self.0.finish(out)
    }
}

/// Walks messages of a fixed size behind a header that announces both sizes; shared with ACK.
#[derive(Clone, Debug)]
pub(crate) struct FixedIter<'a, const N: usize> {
    rest: &'a [u8],
    step: usize,
    /// Found in the body's header, told at the first step.
    error: Option<WireError>,
    what: &'static str,
}

impl<'a, const N: usize> FixedIter<'a, N> {
    #[inline]
    pub(crate) fn new(body: &'a [u8], what: &'static str) -> Self {
        let first = body.first().copied().unwrap_or(0);
        let (header, step) = (
            usize::from(first >> 4) * WORD_BYTES,
            usize::from(first & 15) * WORD_BYTES,
        );
        let error = if header < WORD_BYTES || header > body.len() {
            Some(WireError::Truncated {
                what,
                have: body.len(),
                need: header.max(WORD_BYTES),
            })
        } else if step < N && body.len() > header {
            Some(WireError::TooSmall {
                what,
                words: step / WORD_BYTES,
            })
        } else {
            None
        };
        let rest = if error.is_some() {
            &[]
        } else {
            &body[header..]
        };
        FixedIter {
            rest,
            step,
            error,
            what,
        }
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Option<Result<&'a [u8; N], WireError>> {
        if self.rest.is_empty() {
            return self.error.take().map(Err);
        }
        let Some((message, rest)) = self.rest.split_at_checked(self.step) else {
            let error = WireError::Truncated {
                what: self.what,
                have: self.rest.len(),
                need: self.step,
            };
            self.rest = &[];
            return Some(Err(error));
        };
        self.rest = rest;
        Some(Ok(message
            .first_chunk()
            .expect("a step is at least one message, checked in new")))
    }
}
