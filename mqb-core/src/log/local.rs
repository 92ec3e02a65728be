//! Contents of the frames that are a node's own business: segment head, hard state, carried records, runs of the duplicate window.
//!
//! ```text
//! SEGMENT, 24 bytes                     HARD STATE, 24 bytes
//!  0  2  format version                  0  8  term
//!  2  1  role: 0 hot, 1 cold             8  8  vote: replica id, 0 none
//!  3  5  0                              16  8  commit
//!  8  8  first index (cold: 0)
//! 16  8  nominal size of the file
//!
//! CARRIED: items                        WINDOW, 16 bytes and items
//!  0  8  sequence of the message         0  4  queue
//!  8  .  PUT record                      4  4  number of items
//!                                        8  8  time of the newest item, ms since the Unix epoch
//!                                       16  .  items of 24 bytes: GUID (16), sequence (8)
//! ```

use super::{FORMAT_VERSION, Index, LogError, PUT_HEADER_LEN, PutRecord, Record, Term, field};
use crate::{Guid, QueueId, Sequence};

/// What a segment is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SegmentRole {
    /// Entries of the log, in order.
    Hot = 0,
    /// Live records that the cleaner moved out of hot segments.
    Cold = 1,
}

/// First frame of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentInfo {
    /// What it is for.
    pub role: SegmentRole,
    /// Index of the first entry that can be in it; 0 in a cold one.
    pub first_index: Index,
    /// **Units**: bytes, without overlong entries.
    pub capacity: u64,
}

impl SegmentInfo {
    /// **Units**: bytes.
    pub const LEN: usize = 24;

    /// The frame's content.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        b[0..2].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        b[2] = self.role as u8;
        b[8..16].copy_from_slice(&self.first_index.0.to_le_bytes());
        b[16..24].copy_from_slice(&self.capacity.to_le_bytes());
        b
    }

    /// Reads the frame's content.
    pub fn parse(bytes: &[u8]) -> Result<Self, LogError> {
        const WHAT: &str = "segment head";
        field::need(bytes, Self::LEN, WHAT)?;
        let version = field::u16(bytes, 0);
        if version > FORMAT_VERSION {
            return Err(LogError::Version {
                what: WHAT,
                found: version,
            });
        }
        let role = match bytes[2] {
            0 => SegmentRole::Hot,
            1 => SegmentRole::Cold,
            other => {
                return Err(LogError::Field {
                    what: WHAT,
                    field: "role",
                    value: other.into(),
                });
            }
        };
        Ok(SegmentInfo {
            role,
            first_index: Index(field::u64(bytes, 8)),
            capacity: field::u64(bytes, 16),
        })
    }
}

/// What a replica must remember of its elections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HardState {
    /// Latest term heard of.
    pub term: Term,
    /// Replica voted for in it, 0 for none.
    pub vote: u64,
    /// Entries up to here are committed.
    pub commit: Index,
}

impl HardState {
    /// **Units**: bytes.
    pub const LEN: usize = 24;

    /// The frame's content.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        b[0..8].copy_from_slice(&self.term.0.to_le_bytes());
        b[8..16].copy_from_slice(&self.vote.to_le_bytes());
        b[16..24].copy_from_slice(&self.commit.0.to_le_bytes());
        b
    }

    /// Reads the frame's content.
    pub fn parse(bytes: &[u8]) -> Result<Self, LogError> {
        field::need(bytes, Self::LEN, "hard state")?;
        Ok(HardState {
            term: Term(field::u64(bytes, 0)),
            vote: field::u64(bytes, 8),
            commit: Index(field::u64(bytes, 16)),
        })
    }
}

/// **Units**: bytes before the PUT record of a carried item.
pub const CARRIED_HEADER_LEN: usize = 8;

/// Appends what stands before a carried PUT record.
pub fn push_carried_header(out: &mut Vec<u8>, sequence: Sequence) {
    out.extend_from_slice(&sequence.0.to_le_bytes());
}

/// Items of a CARRIED frame's content: where the PUT record starts in it, the message's sequence, the record. Ends after the first error.
pub fn carried_items(
    content: &[u8],
) -> impl Iterator<Item = Result<(usize, Sequence, PutRecord<'_>), LogError>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= content.len() {
            return None;
        }
        let start = at + CARRIED_HEADER_LEN;
        let item = field::need(
            &content[at..],
            CARRIED_HEADER_LEN + PUT_HEADER_LEN,
            "carried item",
        )
        .and_then(|()| Record::parse(&content[start..]))
        .and_then(|(record, size)| match record {
            Record::Put(put) => Ok((Sequence(field::u64(content, at)), put, size)),
            _ => Err(LogError::Field {
                what: "carried item",
                field: "kind",
                value: content[start].into(),
            }),
        });
        Some(match item {
            Ok((sequence, put, size)) => {
                at = start + size;
                Ok((start, sequence, put))
            }
            Err(error) => {
                at = content.len();
                Err(error)
            }
        })
    })
}

/// One message that the duplicate window remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowItem {
    /// Its GUID.
    pub guid: Guid,
    /// Where it was stored.
    pub sequence: Sequence,
}

/// A run of the duplicate window: messages of one queue that came in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WindowRun {
    /// Their queue.
    pub queue: QueueId,
    /// **Units**: ms since the Unix epoch, of the newest.
    pub newest_ms: u64,
    /// In order of sequence.
    pub items: Vec<WindowItem>,
}

impl WindowRun {
    const ITEM_LEN: usize = 24;
    const HEADER_LEN: usize = 16;

    /// The frame's content.
    ///
    /// **Panics**: more than 4 Gi items.
    pub fn encode(queue: QueueId, newest_ms: u64, items: &[WindowItem]) -> Vec<u8> {
        let count = u32::try_from(items.len()).expect("runs hold some thousand items");
        let mut out = Vec::with_capacity(Self::HEADER_LEN + items.len() * Self::ITEM_LEN);
        out.extend_from_slice(&queue.0.to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&newest_ms.to_le_bytes());
        for item in items {
            out.extend_from_slice(&item.guid.0);
            out.extend_from_slice(&item.sequence.0.to_le_bytes());
        }
        out
    }

    /// Reads the frame's content.
    pub fn parse(bytes: &[u8]) -> Result<Self, LogError> {
        const WHAT: &str = "window run";
        field::need(bytes, Self::HEADER_LEN, WHAT)?;
        let count = field::u32(bytes, 4);
        let (items, rest) = bytes[Self::HEADER_LEN..].as_chunks::<{ Self::ITEM_LEN }>();
        if items.len() as u64 != u64::from(count) || !rest.is_empty() {
            return Err(LogError::Field {
                what: WHAT,
                field: "count",
                value: count.into(),
            });
        }
        let items = items.iter().map(|b| WindowItem {
            guid: b.first_chunk::<16>().map_or(Guid::UNSET, |g| Guid(*g)),
            sequence: Sequence(field::u64(b, 16)),
        });
        Ok(WindowRun {
            queue: QueueId(field::u32(bytes, 0)),
            newest_ms: field::u64(bytes, 8),
            items: items.collect(),
        })
    }
}
