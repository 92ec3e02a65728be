//! PUT: messages from a producer.
//!
//! ```text
//!  0        4        8        12                                  28       32     34
//! +--------+--------+--------+---------------- ... --------------+--------+------+------+
//! | sizes (data.rs) |queue id| GUID, or correlation id in 13..16 | crc32c |schema|  0   |  9 words
//! +--------+--------+--------+---------------- ... --------------+--------+------+------+
//! flags: 1 ACK requested, 2 properties
//! ```
//! Older headers end before the schema id; shorter ones read as zeros.

use crate::checksum::crc32c;
use crate::compress::Inflater;
use crate::data;
use crate::error::{DataFault, EventFull, WireError};
use crate::format::{Compression, DataFormat};
use crate::limits;
use crate::wire::data::{announced_format, check_area, field, size_words, split_message};
use crate::wire::{Event, EventBuilder, EventKind, padding};
use crate::{Guid, WireQueueId};

const HEADER_BYTES: usize = 36;

/// Flags of a PUT message, as on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PutFlags(pub u8);

impl PutFlags {
    /// The producer wants an ACK.
    pub const ACK_REQUESTED: PutFlags = PutFlags(1);
    /// The data begins with properties.
    pub const PROPERTIES: PutFlags = PutFlags(2);

    /// Whether an ACK is wanted.
    #[inline]
    pub const fn ack_requested(self) -> bool {
        self.0 & Self::ACK_REQUESTED.0 != 0
    }

    /// Whether the data begins with properties.
    #[inline]
    pub const fn has_properties(self) -> bool {
        self.0 & Self::PROPERTIES.0 != 0
    }

    /// Flags for a message of this format.
    #[inline]
    pub const fn of(ack_requested: bool, format: DataFormat) -> PutFlags {
        PutFlags(
            ack_requested as u8
                | if format.properties().is_some() {
                    Self::PROPERTIES.0
                } else {
                    0
                },
        )
    }
}

/// One received PUT message, borrowed from its event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Put<'a> {
    /// The producer's number for the queue.
    pub queue: WireQueueId,
    /// The GUID, if the producer makes its own; otherwise see [`Put::correlation_id`].
    pub guid: Guid,
    /// Flags.
    pub flags: PutFlags,
    /// CRC32-C of `data`, as announced.
    pub crc: u32,
    /// Schema id as announced; 0 for old-style or no properties.
    pub schema: u16,
    /// Options, unparsed: nobody may send any today, and the reference ignores them.
    pub options: &'a [u8],
    /// Application data without padding; empty if the padding is bad.
    pub data: &'a [u8],
    /// Where `data` begins in the frame. **Units**: bytes.
    pub data_offset: usize,
    compression: u8,
    bad_padding: Option<u8>,
}

impl<'a> Put<'a> {
    /// The 24-bit correlation id that a producer without GUIDs (Java) puts in the GUID's place; 0 is none.
    #[inline]
    pub fn correlation_id(&self) -> u32 {
        u32::from_be_bytes([0, self.guid.0[1], self.guid.0[2], self.guid.0[3]])
    }

    /// The data's format, from the header alone, and whether there is data of an allowed size.
    ///
    /// **Errors**: this message must be refused; the ones behind it are not affected.
    #[inline]
    pub fn format(&self) -> Result<DataFormat, DataFault> {
        check_area(self.data, self.bad_padding)?;
        announced_format(self.flags.0, self.compression, self.schema)
    }

    /// Everything that can be checked of one message: format, checksum, properties, compressed data.
    /// See [`crate::data::validate`] for `scratch` and the cost.
    ///
    /// **Errors**: this message must be refused; the ones behind it are not affected.
    #[inline]
    pub fn validate(
        &self,
        inflater: &mut Inflater,
        scratch: &mut Vec<u8>,
    ) -> Result<DataFormat, DataFault> {
        let format = self.format()?;
        let want = crc32c(self.data);
        if want != self.crc {
            return Err(DataFault::Checksum {
                have: self.crc,
                want,
            });
        }
        if format != DataFormat::PLAIN {
            data::validate(format, self.data, inflater, scratch)?;
        }
        Ok(format)
    }
}

/// Walks the messages of a PUT event. After an error there is nothing more.
#[derive(Clone, Debug)]
pub struct PutIter<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> PutIter<'a> {
    /// Walks `event`, which should be a PUT.
    #[inline]
    pub fn new(event: &Event<'a>) -> Self {
        PutIter {
            rest: event.body,
            offset: event.body_offset,
        }
    }
}

impl<'a> Iterator for PutIter<'a> {
    type Item = Result<Put<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (message, rest) = match split_message(self.rest, "put message") {
            Ok(parts) => parts,
            Err(error) => {
                self.rest = &[];
                return Some(Err(error));
            }
        };
        let put = Put {
            queue: WireQueueId(u32::from_be_bytes(field(message.header, 8))),
            guid: Guid(field(message.header, 12)),
            flags: PutFlags(message.flags),
            crc: u32::from_be_bytes(field(message.header, 28)),
            schema: u16::from_be_bytes(field(message.header, 32)),
            options: message.options,
            data: message.data,
            data_offset: self.offset + message.data_offset,
            compression: message.compression,
            bad_padding: message.bad_padding,
        };
        self.offset += self.rest.len() - rest.len();
        self.rest = rest;
        Some(Ok(put))
    }
}

impl std::iter::FusedIterator for PutIter<'_> {}

/// What the header of a PUT message says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PutHead {
    /// The producer's number for the queue.
    pub queue: WireQueueId,
    /// Made by the producer; kept for retransmission.
    pub guid: Guid,
    /// Flags.
    pub flags: PutFlags,
    /// Compression of the data.
    pub compression: Compression,
    /// Schema id: 0 for old-style or no properties, 1 for new style.
    pub schema: u16,
    /// CRC32-C of the data.
    pub crc: u32,
}

/// Writes a PUT event.
#[derive(Debug)]
#[must_use = "an event that is not finished has no length"]
pub struct PutBuilder(EventBuilder);

impl PutBuilder {
    /// Begins an event at the end of `out`.
    #[inline]
    pub fn begin(out: &mut Vec<u8>) -> PutBuilder {
        PutBuilder(EventBuilder::begin(
            EventKind::Put,
            0,
            limits::PUT_EVENT_BYTES_MAX,
            out,
        ))
    }

    /// Appends a message's header and padding; its `data_length` bytes of data are sent from elsewhere, spliced into
    /// `out` at the returned position.
    ///
    /// **Errors**: it does not fit; nothing was written.
    #[inline]
    pub fn append(
        &mut self,
        out: &mut Vec<u8>,
        head: &PutHead,
        data_length: usize,
    ) -> Result<usize, EventFull> {
        let (sizes, size) = size_words(
            head.flags.0,
            head.compression,
            HEADER_BYTES / 4,
            0,
            data_length,
        )
        .ok_or(EventFull)?;
        if !self.0.fits(out, size) {
            return Err(EventFull);
        }
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&sizes);
        header[8..12].copy_from_slice(&head.queue.0.to_be_bytes());
        header[12..28].copy_from_slice(&head.guid.0);
        header[28..32].copy_from_slice(&head.crc.to_be_bytes());
        header[32..34].copy_from_slice(&head.schema.to_be_bytes());
        out.extend_from_slice(&header);
        let at = out.len();
        out.extend_from_slice(padding(data_length));
        self.0.gather(data_length);
        Ok(at)
    }

    /// Appends a whole message, its data copied.
    ///
    /// **Errors**: it does not fit; nothing was written.
    pub fn append_copy(
        &mut self,
        out: &mut Vec<u8>,
        head: &PutHead,
        data: &[u8],
    ) -> Result<(), EventFull> {
        let at = self.append(out, head, data.len())?;
        out.truncate(at);
        out.extend_from_slice(data);
        out.extend_from_slice(padding(data.len()));
        self.0.ungather(data.len());
        Ok(())
    }

    /// Length so far, spliced data included. **Units**: bytes.
    #[inline]
    pub fn length(&self, out: &[u8]) -> usize {
        self.0.length(out)
    }

    /// Whether no message was appended.
    #[inline]
    pub fn is_empty(&self, out: &[u8]) -> bool {
        self.0.is_empty(out)
    }

    /// Completes the event; returns its length in bytes, spliced data included.
    #[inline]
    pub fn finish(self, out: &mut [u8]) -> usize {
        self.0.finish(out)
    }
}
