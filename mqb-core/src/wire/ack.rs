//! ACK: outcomes of PUTs, to a producer.
//!
//! ```text
//!  0         1                 4                  header words, words per message: may grow
//! +----+----+--------+--------+--------+
//! | 1  | 6  | flags 0|        0        |  then n x
//! +----+----+--------+--------+--------+
//! | 0  |stat|     correlation id       | GUID (16 bytes)              | queue id |   6 words
//! +----+----+--------------------------+--------- ... ----------------+----------+
//! ```

use crate::error::{EventFull, WireError};
use crate::limits::{CORRELATION_ID_MAX, OTHER_EVENT_BYTES_MAX};
use crate::wire::confirm::FixedIter;
use crate::wire::{Event, EventBuilder, EventKind};
use crate::{Guid, WireQueueId};

/// Outcome of a PUT.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum AckStatus {
    /// Stored as the domain promises.
    Success = 0,
    /// The queue has its maximum of messages.
    LimitMessages = 1,
    /// The queue has its maximum of bytes.
    LimitBytes = 2,
    /// Anything else.
    Unknown = 5,
    /// Could not be persisted.
    StorageFailure = 6,
    /// Nobody is in charge of the queue just now.
    NotReady = 7,
}

impl AckStatus {
    /// From the wire; numbers that may not be sent read as `Unknown`, as in the official SDKs.
    #[inline]
    pub const fn from_wire(number: u8) -> AckStatus {
        match number {
            0 => Self::Success,
            1 => Self::LimitMessages,
            2 => Self::LimitBytes,
            6 => Self::StorageFailure,
            7 => Self::NotReady,
            _ => Self::Unknown,
        }
    }

    /// Whether this is a success.
    #[inline]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }
}

/// One outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack {
    /// The producer's number for the queue.
    pub queue: WireQueueId,
    /// The message.
    pub guid: Guid,
    /// What a producer without GUIDs sent (24 bits); else 0.
    pub correlation: u32,
    /// The outcome.
    pub status: AckStatus,
}

impl Ack {
    const BYTES: usize = 24;

    #[inline]
    fn read(bytes: &[u8; Self::BYTES]) -> Ack {
        let first = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let mut guid = Guid::UNSET;
        guid.0.copy_from_slice(&bytes[4..20]);
        Ack {
            queue: WireQueueId(u32::from_be_bytes([
                bytes[20], bytes[21], bytes[22], bytes[23],
            ])),
            guid,
            correlation: first & CORRELATION_ID_MAX,
            status: AckStatus::from_wire((first >> 24 & 15) as u8),
        }
    }

    #[inline]
    fn bytes(&self) -> [u8; Self::BYTES] {
        let first = u32::from(self.status as u8) << 24 | self.correlation & CORRELATION_ID_MAX;
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&first.to_be_bytes());
        bytes[4..20].copy_from_slice(&self.guid.0);
        bytes[20..].copy_from_slice(&self.queue.0.to_be_bytes());
        bytes
    }
}

/// Walks the outcomes of an ACK event. After an error there is nothing more.
#[derive(Clone, Debug)]
pub struct AckIter<'a>(FixedIter<'a, { Ack::BYTES }>);

impl<'a> AckIter<'a> {
    /// Walks `event`, which should be an ACK.
    #[inline]
    pub fn new(event: &Event<'a>) -> Self {
        AckIter(FixedIter::new(event.body, "ack message"))
    }
}

impl Iterator for AckIter<'_> {
    type Item = Result<Ack, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(Ack::read))
    }
}

/// Writes an ACK event.
#[derive(Debug)]
#[must_use = "an event that is not finished has no length"]
pub struct AckBuilder(EventBuilder);

impl AckBuilder {
    /// Begins an event at the end of `out`.
    #[inline]
    pub fn begin(out: &mut Vec<u8>) -> AckBuilder {
        let event = EventBuilder::begin(EventKind::Ack, 0, OTHER_EVENT_BYTES_MAX, out);
        out.extend_from_slice(&[0x16, 0, 0, 0]);
        AckBuilder(event)
    }

    /// Appends one outcome.
    ///
    /// **Errors**: the event is full; nothing was written.
    #[inline]
    pub fn append(&mut self, out: &mut Vec<u8>, ack: &Ack) -> Result<(), EventFull> {
        if !self.0.fits(out, Ack::BYTES) {
            return Err(EventFull);
        }
        out.extend_from_slice(&ack.bytes());
        Ok(())
    }

    /// Completes the event; returns its length in bytes.
    #[inline]
    pub fn finish(self, out: &mut [u8]) -> usize {
        self.0.finish(out)
    }
}
