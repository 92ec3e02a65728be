//! PUSH: messages to a consumer.
//!
//! ```text
//!  0        4        8        12                                  28     30
//! +--------+--------+--------+---------------- ... --------------+------+------+
//! | sizes (data.rs) |queue id| GUID                              |schema|  0   |  8 words
//! +--------+--------+--------+---------------- ... --------------+------+------+
//! flags: 1 implicit payload (no data at all, between brokers), 2 properties, 4 out of order
//! ```
//! Then options ([`super::options`]) that name the subscriptions, then the same application data as in the PUT. No checksum.

use crate::error::{DataFault, EventFull, WireError};
use crate::format::{Compression, DataFormat};
use crate::limits;
use crate::wire::data::{announced_format, check_area, field, size_words, split_message};
use crate::wire::options::{Options, SUB_QUEUE_IDS_OLD, option_header};
use crate::wire::{Event, EventBuilder, EventKind, padding};
use crate::{Guid, SubscriptionId, WireQueueId};

const HEADER_BYTES: usize = 32;

/// Flags of a PUSH message, as on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PushFlags(pub u8);

impl PushFlags {
    /// There is no data area.
    pub const IMPLICIT_PAYLOAD: PushFlags = PushFlags(1);
    /// The data begins with properties.
    pub const PROPERTIES: PushFlags = PushFlags(2);
    /// Not in the order of arrival: delivered again, or put aside before.
    pub const OUT_OF_ORDER: PushFlags = PushFlags(4);

    /// Flags for a message of this format.
    #[inline]
    pub const fn of(format: DataFormat, out_of_order: bool) -> PushFlags {
        let properties = if format.properties().is_some() {
            Self::PROPERTIES.0
        } else {
            0
        };
        PushFlags(
            properties
                | if out_of_order {
                    Self::OUT_OF_ORDER.0
                } else {
                    0
                },
        )
    }

    /// Whether all of `other` are set.
    #[inline]
    pub const fn contains(self, other: PushFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// One received PUSH message, borrowed from its event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Push<'a> {
    /// The consumer's number for the queue.
    pub queue: WireQueueId,
    /// The message's GUID.
    pub guid: Guid,
    /// Flags.
    pub flags: PushFlags,
    /// Schema id as announced; 0 for old-style or no properties.
    pub schema: u16,
    /// Options, unparsed; see [`Push::options`].
    pub raw_options: &'a [u8],
    /// Application data without padding; empty if the padding is bad.
    pub data: &'a [u8],
    /// Where `data` begins in the frame. **Units**: bytes.
    pub data_offset: usize,
    compression: u8,
    bad_padding: Option<u8>,
}

impl<'a> Push<'a> {
    /// The options, parsed.
    ///
    /// **Errors**: an official SDK would drop the whole event.
    #[inline]
    pub fn options(&self) -> Result<Options<'a>, WireError> {
        Options::parse(self.raw_options)
    }

    /// The data's format, from the header alone. Empty data is allowed here.
    ///
    /// **Errors**: this message cannot be delivered to the application.
    #[inline]
    pub fn format(&self) -> Result<DataFormat, DataFault> {
        match check_area(self.data, self.bad_padding) {
            Ok(()) | Err(DataFault::Empty | DataFault::TooBig(_)) => {}
            Err(fault) => return Err(fault),
        }
        announced_format(self.flags.0, self.compression, self.schema)
    }
}

/// Walks the messages of a PUSH event. After an error there is nothing more.
#[derive(Clone, Debug)]
pub struct PushIter<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> PushIter<'a> {
    /// Walks `event`, which should be a PUSH.
    #[inline]
    pub fn new(event: &Event<'a>) -> Self {
        PushIter {
            rest: event.body,
            offset: event.body_offset,
        }
    }
}

impl<'a> Iterator for PushIter<'a> {
    type Item = Result<Push<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (message, rest) = match split_message(self.rest, "push message") {
            Ok(parts) => parts,
            Err(error) => {
                self.rest = &[];
                return Some(Err(error));
            }
        };
        let push = Push {
            queue: WireQueueId(u32::from_be_bytes(field(message.header, 8))),
            guid: Guid(field(message.header, 12)),
            flags: PushFlags(message.flags),
            schema: u16::from_be_bytes(field(message.header, 28)),
            raw_options: message.options,
            data: message.data,
            data_offset: self.offset + message.data_offset,
            compression: message.compression,
            bad_padding: message.bad_padding,
        };
        self.offset += self.rest.len() - rest.len();
        self.rest = rest;
        Some(Ok(push))
    }
}

impl std::iter::FusedIterator for PushIter<'_> {}

/// What the header of a PUSH message says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PushHead {
    /// The consumer's number for the queue.
    pub queue: WireQueueId,
    /// The message's GUID.
    pub guid: Guid,
    /// Flags.
    pub flags: PushFlags,
    /// Compression of the data.
    pub compression: Compression,
    /// Schema id: 0 for old-style or no properties, 1 for new style.
    pub schema: u16,
}

impl PushHead {
    /// For a stored message of format `format`.
    #[inline]
    pub const fn new(
        queue: WireQueueId,
        guid: Guid,
        format: DataFormat,
        out_of_order: bool,
    ) -> PushHead {
        PushHead {
            queue,
            guid,
            flags: PushFlags::of(format, out_of_order),
            compression: format.compression(),
            schema: format.schema_id(),
        }
    }
}

/// Writes a PUSH event.
#[derive(Debug)]
#[must_use = "an event that is not finished has no length"]
pub struct PushBuilder(EventBuilder);

impl PushBuilder {
    /// Begins an event at the end of `out`.
    #[inline]
    pub fn begin(out: &mut Vec<u8>) -> PushBuilder {
        Self::begin_limited(out, limits::PUSH_EVENT_BYTES_MAX)
    }

    /// Begins an event that may grow to `limit` bytes.
    #[inline]
    pub fn begin_limited(out: &mut Vec<u8>, limit: usize) -> PushBuilder {
        PushBuilder(EventBuilder::begin(
            EventKind::Push,
            0,
            limit.min(limits::PUSH_EVENT_BYTES_MAX),
            out,
        ))
    }

    /// Appends header, the subscription ids as the one option official SDKs always get (old sub-queue ids), and padding.
    /// The `data_length` bytes of data are sent from elsewhere, spliced into `out` at the returned position.
    ///
    /// **Errors**: it does not fit; nothing was written.
    #[inline]
    pub fn append(
        &mut self,
        out: &mut Vec<u8>,
        head: &PushHead,
        ids: &[SubscriptionId],
        data_length: usize,
    ) -> Result<usize, EventFull> {
        if ids.len() > limits::PUSH_IDS_MAX {
            return Err(EventFull);
        }
        let options_bytes = if ids.is_empty() { 0 } else { 4 + 4 * ids.len() };
        out.reserve(HEADER_BYTES + options_bytes + limits::WORD_BYTES);
        self.header(out, head, options_bytes, data_length)?;
        if !ids.is_empty() {
            out.extend_from_slice(&option_header(
                SUB_QUEUE_IDS_OLD,
                false,
                0,
                (1 + ids.len()) as u32,
            ));
            for id in ids {
                out.extend_from_slice(&id.0.to_be_bytes());
            }
        }
        Ok(self.close_message(out, data_length))
    }

    /// As [`PushBuilder::append`] with an options area that the caller wrote.
    ///
    /// **Errors**: it does not fit, or the area is not whole words; nothing was written.
    pub fn append_options(
        &mut self,
        out: &mut Vec<u8>,
        head: &PushHead,
        options: &[u8],
        data_length: usize,
    ) -> Result<usize, EventFull> {
        if !options.len().is_multiple_of(limits::WORD_BYTES) {
            return Err(EventFull);
        }
        self.header(out, head, options.len(), data_length)?;
        out.extend_from_slice(options);
        Ok(self.close_message(out, data_length))
    }

    /// Appends a whole message, its data copied.
    ///
    /// **Errors**: it does not fit; nothing was written.
    pub fn append_copy(
        &mut self,
        out: &mut Vec<u8>,
        head: &PushHead,
        ids: &[SubscriptionId],
        data: &[u8],
    ) -> Result<(), EventFull> {
        let at = self.append(out, head, ids, data.len())?;
        out.truncate(at);
        out.extend_from_slice(data);
        out.extend_from_slice(padding(data.len()));
        self.0.ungather(data.len());
        Ok(())
    }

    #[inline]
    fn header(
        &mut self,
        out: &mut Vec<u8>,
        head: &PushHead,
        options_bytes: usize,
        data_length: usize,
    ) -> Result<(), EventFull> {
        let (sizes, size) = size_words(
            head.flags.0,
            head.compression,
            HEADER_BYTES / 4,
            options_bytes,
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
        header[28..30].copy_from_slice(&head.schema.to_be_bytes());
        out.extend_from_slice(&header);
        Ok(())
    }

    #[inline]
    fn close_message(&mut self, out: &mut Vec<u8>, data_length: usize) -> usize {
        let at = out.len();
        out.extend_from_slice(padding(data_length));
        self.0.gather(data_length);
        at
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

    /// Takes the event back. Only valid while nothing but this event was appended.
    #[inline]
    pub fn cancel(self, out: &mut Vec<u8>) {
        self.0.cancel(out);
    }
}
