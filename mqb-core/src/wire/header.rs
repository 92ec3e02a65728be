//! Framing: the 8-byte event header, limits from it, and events under construction.
//!
//! ```text
//!  0        1        2        3        4        5        6        7
//! +--------+--------+--------+--------+--------+--------+--------+--------+
//! |F|        length (31 bits)         |V |kind |  words |specific|   0    |
//! +--------+--------+--------+--------+--------+--------+--------+--------+
//! F: fragment, always 0   length: bytes, this header included   V: version (2 bits), 1   kind: 6 bits
//! words: size of this header, may grow   specific: bits 7..5 = encoding of a control or authentication document
//! ```

use crate::error::{FrameError, WireError};
use crate::limits;

/// What an event is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EventKind {
    /// One negotiation or control document.
    Control,
    /// Messages to a broker.
    Put,
    /// Settled messages, to a broker.
    Confirm,
    /// Messages to a consumer.
    Push,
    /// Outcomes of PUTs, to a producer.
    Ack,
    /// "Are you there?"; no body.
    HeartbeatRequest,
    /// "Yes."; no body.
    HeartbeatResponse,
    /// Messages that used up their attempts; between brokers only.
    Reject,
    /// One authentication document.
    Authentication,
    /// Anything else, by its number; 0 is never valid.
    Other(u8),
}

impl EventKind {
    /// From the number on the wire (6 bits).
    #[inline]
    pub const fn from_wire(number: u8) -> Self {
        match number {
            1 => Self::Control,
            2 => Self::Put,
            3 => Self::Confirm,
            4 => Self::Push,
            5 => Self::Ack,
            11 => Self::HeartbeatRequest,
            12 => Self::HeartbeatResponse,
            13 => Self::Reject,
            15 => Self::Authentication,
            other => Self::Other(other),
        }
    }

    /// The number on the wire.
    #[inline]
    pub const fn to_wire(self) -> u8 {
        match self {
            Self::Control => 1,
            Self::Put => 2,
            Self::Confirm => 3,
            Self::Push => 4,
            Self::Ack => 5,
            Self::HeartbeatRequest => 11,
            Self::HeartbeatResponse => 12,
            Self::Reject => 13,
            Self::Authentication => 15,
            Self::Other(number) => number,
        }
    }
}

/// Largest event taken, by kind. **Units**: bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameLimits {
    /// PUT.
    pub put: usize,
    /// PUSH.
    pub push: usize,
    /// Heartbeats.
    pub heartbeat: usize,
    /// Any other kind.
    pub other: usize,
}

impl FrameLimits {
    /// Before the negotiation is done, on either side.
    pub const HANDSHAKE: FrameLimits = FrameLimits {
        put: limits::HANDSHAKE_EVENT_BYTES_MAX,
        push: limits::HANDSHAKE_EVENT_BYTES_MAX,
        heartbeat: limits::HEARTBEAT_EVENT_BYTES_MAX,
        other: limits::HANDSHAKE_EVENT_BYTES_MAX,
    };
    /// What a broker takes from a negotiated peer. Nobody has reason to send it a PUSH.
    pub const BROKER: FrameLimits = FrameLimits {
        put: limits::PUT_EVENT_BYTES_MAX,
        push: limits::OTHER_EVENT_BYTES_MAX,
        heartbeat: limits::HEARTBEAT_EVENT_BYTES_MAX,
        other: limits::OTHER_EVENT_BYTES_MAX,
    };
    /// What a client takes from a broker it negotiated with.
    pub const CLIENT: FrameLimits = FrameLimits {
        put: limits::OTHER_EVENT_BYTES_MAX,
        push: limits::PUSH_EVENT_BYTES_MAX_RECEIVED,
        heartbeat: limits::HEARTBEAT_EVENT_BYTES_MAX,
        other: limits::OTHER_EVENT_BYTES_MAX_RECEIVED,
    };

    /// The limit for `kind`.
    #[inline]
    pub const fn of(&self, kind: EventKind) -> usize {
        match kind {
            EventKind::Put => self.put,
            EventKind::Push => self.push,
            EventKind::HeartbeatRequest | EventKind::HeartbeatResponse => self.heartbeat,
            _ => self.other,
        }
    }
}

/// Length in bytes of the event that begins at `bytes[0]`, judged by at most its first 8 bytes; `None`: read more.
///
/// Nothing may be reserved by the length before that many bytes have arrived.
///
/// **Errors**: the length is not valid, or over the limit of its kind.
#[inline]
pub fn frame_length(bytes: &[u8], limits: &FrameLimits) -> Result<Option<usize>, FrameError> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let raw = u32::from_be_bytes(*length);
    if raw <= 4 || raw > i32::MAX as u32 {
        return Err(FrameError::Length(raw));
    }
    let length = raw as usize;
    if length < limits::EVENT_HEADER_BYTES {
        // Too short to have a kind: a whole event all the same, which `Event::parse` will refuse.
        return Ok(Some(length));
    }
    if rest.len() < 4 {
        return Ok(None);
    }
    let kind = rest[0] & 0x3F;
    let limit = limits.of(EventKind::from_wire(kind));
    if length > limit {
        return Err(FrameError::TooLong {
            kind,
            length,
            limit,
        });
    }
    Ok(Some(length))
}

/// The header of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventHeader {
    /// What the event is.
    pub kind: EventKind,
    /// **Units**: bytes, header included.
    pub length: usize,
    /// Protocol version; nobody checks it.
    pub version: u8,
    /// Size of the header. **Units**: words.
    pub header_words: u8,
    /// Meaning depends on the kind.
    pub type_specific: u8,
}

impl EventHeader {
    /// Takes the fields apart.
    ///
    /// **Errors**: the length cannot be followed. Other oddities are for [`Event::parse`].
    #[inline]
    pub fn parse(bytes: &[u8; limits::EVENT_HEADER_BYTES]) -> Result<EventHeader, FrameError> {
        let raw = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if raw <= 4 || raw > i32::MAX as u32 {
            return Err(FrameError::Length(raw));
        }
        Ok(EventHeader {
            kind: EventKind::from_wire(bytes[4] & 0x3F),
            length: raw as usize,
            version: bytes[4] >> 6,
            header_words: bytes[5],
            type_specific: bytes[6],
        })
    }
}

/// One whole received event, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Its header.
    pub header: EventHeader,
    /// What follows the header.
    pub body: &'a [u8],
    /// Where `body` begins in the frame. **Units**: bytes.
    pub body_offset: usize,
}

impl<'a> Event<'a> {
    /// Takes a frame of exactly [`frame_length`] bytes apart.
    ///
    /// **Errors**: the event must be dropped (before the negotiation is done: the connection closed).
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Event<'a>, WireError> {
        let short = WireError::EventHeader {
            have: frame.len(),
            need: limits::EVENT_HEADER_BYTES,
        };
        let header = EventHeader::parse(frame.first_chunk().ok_or(short)?)
            .map_err(|_| WireError::BadEvent)?;
        if header.length != frame.len() || header.kind == EventKind::Other(0) {
            return Err(WireError::BadEvent);
        }
        let body_offset = usize::from(header.header_words) * limits::WORD_BYTES;
        if body_offset < limits::EVENT_HEADER_BYTES || body_offset > frame.len() {
            return Err(WireError::EventHeader {
                have: frame.len(),
                need: body_offset.max(limits::EVENT_HEADER_BYTES),
            });
        }
        Ok(Event {
            header,
            body: &frame[body_offset..],
            body_offset,
        })
    }
}

/// An event being written at the end of a buffer: header first, its length when finished.
///
/// Bytes may be left out of the buffer and counted instead ([`EventBuilder::gather`]) when they are sent from elsewhere.
/// Until [`EventBuilder::finish`], the buffer may only grow.
#[derive(Debug)]
#[must_use = "an event that is not finished has no length"]
pub struct EventBuilder {
    start: usize,
    gathered: usize,
    limit: usize,
}

impl EventBuilder {
    /// Appends a header of kind `kind`; the event may grow to `limit` bytes.
    #[inline]
    pub fn begin(
        kind: EventKind,
        type_specific: u8,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> EventBuilder {
        let start = out.len();
        out.extend_from_slice(&[0, 0, 0, 0, 0x40 | kind.to_wire(), 2, type_specific, 0]);
        EventBuilder {
            start,
            gathered: 0,
            limit,
        }
    }

    /// Length so far. **Units**: bytes.
    #[inline]
    pub fn length(&self, out: &[u8]) -> usize {
        out.len() - self.start + self.gathered
    }

    /// Whether `more` bytes still fit.
    #[inline]
    pub fn fits(&self, out: &[u8], more: usize) -> bool {
        self.length(out) + more <= self.limit
    }

    /// Whether there is nothing but the header.
    #[inline]
    pub fn is_empty(&self, out: &[u8]) -> bool {
        self.length(out) <= limits::EVENT_HEADER_BYTES
    }

    /// Counts bytes that belong to the event but are kept elsewhere.
    #[inline]
    pub fn gather(&mut self, bytes: usize) {
        self.gathered += bytes;
    }

    /// Takes back what [`EventBuilder::gather`] counted.
    #[inline]
    pub(crate) fn ungather(&mut self, bytes: usize) {
        self.gathered -= bytes;
    }

    /// Writes the length into the header and returns it.
    #[inline]
    pub fn finish(self, out: &mut [u8]) -> usize {
        let length = self.length(out);
        let wire = u32::try_from(length).expect("bounded by the event's limit");
        out[self.start..self.start + 4].copy_from_slice(&wire.to_be_bytes());
        length
    }

    /// Takes the event back, header included. Only valid while nothing but this event was appended.
    #[inline]
    pub fn cancel(self, out: &mut Vec<u8>) {
        out.truncate(self.start);
    }
}

/// A whole HEARTBEAT_REQ event.
pub const HEARTBEAT_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x4B, 2, 0, 0];
/// A whole HEARTBEAT_RSP event.
pub const HEARTBEAT_RESPONSE: [u8; 8] = [0, 0, 0, 8, 0x4C, 2, 0, 0];

/// Padding of `length` bytes to whole words, 1 to 4 bytes that each hold their number.
#[inline]
pub fn padding(length: usize) -> &'static [u8] {
    const PADDING: [&[u8]; 4] = [&[4; 4], &[3; 3], &[2; 2], &[1; 1]];
    PADDING[length % limits::WORD_BYTES]
}

/// `bytes` without its padding, or the bad count.
#[inline]
pub(crate) fn strip_padding(bytes: &[u8]) -> Result<&[u8], u8> {
    let count = bytes.last().copied().unwrap_or(0);
    match bytes.len().checked_sub(usize::from(count)) {
        Some(length) if (1..=4).contains(&count) => Ok(&bytes[..length]),
        _ => Err(count),
    }
}
