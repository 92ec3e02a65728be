//! Records: the facts that queues are folded from. Each starts on an 8-byte boundary with an 8-byte head.
//!
//! ```text
//! offset size  every record
//!      0    1  kind: 1 PUT, 2 SETTLE, 3 QUEUE CREATED, 4 QUEUE REMOVED
//!      1    1  PUT: data format; SETTLE: why (1 confirmed, 2 expired, 3 purged, 4 removed); else 0
//!      2    2  0
//!      4    4  PUT: length of the data; QUEUE CREATED: length of the URI; else 0
//!
//!              PUT, 40 bytes and the data               SETTLE, 24 bytes
//!      8    4  queue                                    8    4  queue
//!     12    4  0                                       12    4  0
//!     16    8  accepted at, ms since the Unix epoch    16    8  sequence of the message
//!     24   16  GUID
//!     40    .  data, zeros up to a multiple of 8
//!
//!              QUEUE CREATED, 16 bytes and the URI      QUEUE REMOVED, 16 bytes
//!      8    4  queue                                    8    4  queue
//!     12    4  0                                       12    4  0
//!     16    .  URI in UTF-8, zeros up to a multiple of 8
//! ```

use super::{ENTRY_HEADER_LEN, LogError, field, pad8};
use crate::{Guid, QueueId, Sequence};

/// **Units**: bytes of a PUT before its data.
pub const PUT_HEADER_LEN: usize = 40;
/// **Units**: bytes of a SETTLE.
pub const SETTLE_LEN: usize = 24;
const QUEUE_HEADER_LEN: usize = 16;

const PUT: u8 = 1;
const SETTLE: u8 = 2;
const QUEUE_CREATED: u8 = 3;
const QUEUE_REMOVED: u8 = 4;

/// One fact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// A message came.
    Put(PutRecord<'a>),
    /// A message is done with.
    Settle {
        /// Its queue.
        queue: QueueId,
        /// 1 confirmed, 2 expired, 3 purged, 4 removed.
        why: u8,
        /// Which message.
        message: Sequence,
    },
    /// A queue exists from here on.
    QueueCreated {
        /// Its number, never used before.
        queue: QueueId,
        /// Its name.
        uri: &'a str,
    },
    /// A queue and all that is in it are gone.
    QueueRemoved {
        /// Which.
        queue: QueueId,
    },
}

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PutRecord<'a> {
    /// Its queue.
    pub queue: QueueId,
    /// Encoding of `data`, as the producer gave it.
    pub format: u8,
    /// **Units**: milliseconds since the Unix epoch; never smaller than that of an earlier record.
    pub accepted_at_ms: u64,
    /// Its GUID.
    pub guid: Guid,
    /// Application data without padding.
    pub data: &'a [u8],
}

/// The fixed part of a PUT. The data and `padding(data.len())` zeros follow it.
pub fn put_header(
    queue: QueueId,
    format: u8,
    accepted_at_ms: u64,
    guid: &Guid,
    len: u32,
) -> [u8; PUT_HEADER_LEN] {
    let mut b = [0; PUT_HEADER_LEN];
    b[0] = PUT;
    b[1] = format;
    b[4..8].copy_from_slice(&len.to_le_bytes());
    b[8..12].copy_from_slice(&queue.0.to_le_bytes());
    b[16..24].copy_from_slice(&accepted_at_ms.to_le_bytes());
    b[24..40].copy_from_slice(&guid.0);
    b
}

/// Appends a SETTLE.
pub fn push_settle(out: &mut Vec<u8>, queue: QueueId, why: u8, message: Sequence) {
    let mut b = [0; SETTLE_LEN];
    b[0] = SETTLE;
    b[1] = why;
    b[8..12].copy_from_slice(&queue.0.to_le_bytes());
    b[16..24].copy_from_slice(&message.0.to_le_bytes());
    out.extend_from_slice(&b);
}

/// Appends a QUEUE CREATED.
///
/// **Panics**: a URI of 4 GiB.
pub fn push_queue_created(out: &mut Vec<u8>, queue: QueueId, uri: &str) {
    let len = u32::try_from(uri.len())
        .expect("a URI was limited to some hundred bytes when it was parsed");
    let mut b = [0; QUEUE_HEADER_LEN];
    b[0] = QUEUE_CREATED;
    b[4..8].copy_from_slice(&len.to_le_bytes());
    b[8..12].copy_from_slice(&queue.0.to_le_bytes());
    out.extend_from_slice(&b);
    out.extend_from_slice(uri.as_bytes());
    out.resize(out.len() + pad8(uri.len()) - uri.len(), 0);
}

/// Appends a QUEUE REMOVED.
pub fn push_queue_removed(out: &mut Vec<u8>, queue: QueueId) {
    let mut b = [0; QUEUE_HEADER_LEN];
    b[0] = QUEUE_REMOVED;
    b[8..12].copy_from_slice(&queue.0.to_le_bytes());
    out.extend_from_slice(&b);
}

/// The fixed part of a PUT, for reading one whose data stands elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// Queue.
    pub queue: QueueId,
    /// Format of the data.
    pub format: u8,
    /// **Units**: bytes of data.
    pub len: u32,
}

impl RecordHeader {
    /// Reads the header of a PUT; `None` if something else starts here.
    #[inline]
    pub fn parse_put(bytes: &[u8]) -> Option<RecordHeader> {
        if bytes.len() < PUT_HEADER_LEN || bytes[0] != PUT {
            return None;
        }
        Some(RecordHeader {
            queue: QueueId(field::u32(bytes, 8)),
            format: bytes[1],
            len: field::u32(bytes, 4),
        })
    }
}

impl<'a> Record<'a> {
    /// Reads the record at the start of `bytes` and tells how many bytes it takes.
    pub fn parse(bytes: &'a [u8]) -> Result<(Record<'a>, usize), LogError> {
        field::need(bytes, QUEUE_HEADER_LEN, "record")?;
        let (len, queue) = (field::u32(bytes, 4) as usize, QueueId(field::u32(bytes, 8)));
        let (record, size) = match bytes[0] {
            PUT => {
                field::need(bytes, PUT_HEADER_LEN, "put record")?;
                let data = bytes[PUT_HEADER_LEN..].get(..len).ok_or(short(
                    "put record",
                    bytes,
                    PUT_HEADER_LEN + len,
                ))?;
                let guid = bytes[24..]
                    .first_chunk::<16>()
                    .map_or(Guid::UNSET, |g| Guid(*g));
                let put = PutRecord {
                    queue,
                    format: bytes[1],
                    accepted_at_ms: field::u64(bytes, 16),
                    guid,
                    data,
                };
                (Record::Put(put), PUT_HEADER_LEN + pad8(len))
            }
            SETTLE => {
                field::need(bytes, SETTLE_LEN, "settle record")?;
                (
                    Record::Settle {
                        queue,
                        why: bytes[1],
                        message: Sequence(field::u64(bytes, 16)),
                    },
                    SETTLE_LEN,
                )
            }
            QUEUE_CREATED => {
                let uri = bytes[QUEUE_HEADER_LEN..].get(..len).ok_or(short(
                    "queue record",
                    bytes,
                    QUEUE_HEADER_LEN + len,
                ))?;
                let bad = LogError::Field {
                    what: "queue record",
                    field: "URI",
                    value: len as u64,
                };
                let uri = std::str::from_utf8(uri).map_err(|_| bad)?;
                (
                    Record::QueueCreated { queue, uri },
                    QUEUE_HEADER_LEN + pad8(len),
                )
            }
            QUEUE_REMOVED => (Record::QueueRemoved { queue }, QUEUE_HEADER_LEN),
            other => {
                return Err(LogError::Field {
                    what: "record",
                    field: "kind",
                    value: other.into(),
                });
            }
        };
        field::need(bytes, size, "record")?;
        Ok((record, size))
    }
}

fn short(what: &'static str, bytes: &[u8], need: usize) -> LogError {
    LogError::Short {
        what,
        have: bytes.len(),
        need,
    }
}

/// The records of an entry in order, each with its offset in the entry (for [`super::sequence`]). Ends after the first error.
pub struct Records<'a> {
    entry: &'a [u8],
    offset: usize,
}

impl<'a> Records<'a> {
    /// Records of an entry, given with its header.
    pub fn new(entry: &'a [u8]) -> Self {
        Records {
            entry,
            offset: ENTRY_HEADER_LEN,
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(usize, Record<'a>), LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.entry.len() {
            return None;
        }
        let offset = self.offset;
        match Record::parse(&self.entry[offset..]) {
            Ok((record, size)) => {
                self.offset += size;
                Some(Ok((offset, record)))
            }
            Err(error) => {
                self.offset = self.entry.len();
                Some(Err(error))
            }
        }
    }
}
