//! The on-disk format of a partition's log as a pure codec: bytes in, typed values out, and back.
//!
//! ```text
//! segment file = frame*                      a file of preallocated space; the end is found by checksums, never by size
//! frame        = frame header, content       local: wraps whatever this node put into the file
//! entry        = entry header, record*       the content of an entry frame; the same bytes on every replica
//! record       = PUT | SETTLE | QUEUE | ...   what the state of the queues is folded from
//! ```
//!
//! The broker's storage and the offline tool both read through this module, so nothing here touches a file. Every parser
//! takes a slice that may hold anything, never panics, never allocates by a number it read, and says what is wrong and where.
//! All integers are little-endian; everything starts on an 8-byte boundary. Source: docs/storage-format.md.

mod bitmap;
mod checkpoint;
mod entry;
mod frame;
mod local;
mod record;
#[cfg(test)]
mod tests;

pub use bitmap::Bitmap;
pub use checkpoint::{Checkpoint, QueueCounters, QueueState, SegmentState, WindowFile};
pub use entry::{ENTRY_HEADER_LEN, EntryHeader, EntryKind};
pub use frame::{FRAME_HEADER_LEN, Frame, FrameHeader, FrameKind, Frames, find_frame, frame_len};
pub use local::{
    CARRIED_HEADER_LEN, HardState, SegmentInfo, SegmentRole, WindowItem, WindowRun, carried_items,
    push_carried_header,
};
pub use record::{
    PUT_HEADER_LEN, PutRecord, Record, RecordHeader, Records, SETTLE_LEN, push_queue_created,
    push_queue_removed, push_settle, put_header,
};

use crate::Sequence;

/// Version of everything in this module. A directory or segment with a higher one is refused.
pub const FORMAT_VERSION: u16 = 1;

/// Position of an entry in its partition's log, from 1; 0 is before all entries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Index(pub u64);

/// Number of a leadership. On a single node it rises by one at each start that writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Term(pub u64);

impl Index {
    /// The following index.
    pub fn next(self) -> Index {
        Index(self.0 + 1)
    }
}

impl std::fmt::Display for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::fmt::Display for Term {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Bits of a [`Sequence`] that say where in its entry a record starts.
pub const SLOT_BITS: u32 = 20;

/// A record must start below this offset in its entry (8 MiB), so that its slot fits.
pub const MAX_RECORD_START: usize = 8 << SLOT_BITS;

/// Sequence of the record that starts `offset` bytes into entry `index`. **Layout**: index in the upper 44 bits, offset / 8 in the lower 20.
///
/// The offset is the same on every replica (entries are), and finding the record needs no table.
#[inline]
pub fn sequence(index: Index, offset: usize) -> Sequence {
    debug_assert!(offset < MAX_RECORD_START && offset.is_multiple_of(8));
    Sequence((index.0 << SLOT_BITS) | (offset as u64 >> 3))
}

/// The highest sequence that a record of entry `index` can have: "all records up to and with this entry".
#[inline]
pub fn last_sequence(index: Index) -> Sequence {
    Sequence((index.0 << SLOT_BITS) | ((1 << SLOT_BITS) - 1))
}

/// Entry and offset in it of the record with this sequence.
#[inline]
pub fn place(sequence: Sequence) -> (Index, usize) {
    (
        Index(sequence.0 >> SLOT_BITS),
        ((sequence.0 & ((1 << SLOT_BITS) - 1)) << 3) as usize,
    )
}

/// Why bytes are not what they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// Fewer bytes than the structure needs.
    #[error("{what} cut off: {have} bytes of {need}")]
    Short {
        /// Which structure.
        what: &'static str,
        /// Bytes there are.
        have: usize,
        /// Bytes it takes.
        need: usize,
    },
    /// The magic number is another one: nothing was written here, or something else.
    #[error("not a {what}")]
    Magic {
        /// Which structure was looked for.
        what: &'static str,
    },
    /// Checksum does not match.
    #[error("checksum of {what} is {found:#010x}, expected {expected:#010x}")]
    Checksum {
        /// Of which structure.
        what: &'static str,
        /// What the bytes sum up to.
        found: u32,
        /// What was written with them.
        expected: u32,
    },
    /// Written by a newer version.
    #[error("{what} has format version {found}, this program knows {FORMAT_VERSION}")]
    Version {
        /// Which structure.
        what: &'static str,
        /// Its version.
        found: u16,
    },
    /// A field has a value that no writer produces.
    #[error("{what}: bad {field} {value}")]
    Field {
        /// Which structure.
        what: &'static str,
        /// Which field of it.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
}

/// Rounds up to the next multiple of 8.
#[inline]
pub(crate) const fn pad8(n: usize) -> usize {
    (n + 7) & !7
}

/// CRC32-C (Castagnoli) over several pieces, as one sum.
#[derive(Clone)]
pub struct Crc(crc_fast::Digest);

impl Default for Crc {
    fn default() -> Self {
        Crc(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The sum so far.
    pub fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}

/// CRC32-C of one piece.
#[inline]
pub fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Reads fixed-width fields from a slice whose length was checked by the caller's `get`.
pub(crate) mod field {
    use super::LogError;

    pub(crate) fn need(bytes: &[u8], n: usize, what: &'static str) -> Result<(), LogError> {
        if bytes.len() < n {
            return Err(LogError::Short {
                what,
                have: bytes.len(),
                need: n,
            });
        }
        Ok(())
    }

    macro_rules! reader {
        ($name:ident, $ty:ty, $n:literal) => {
            /// Zero when out of range: callers have checked with `need`.
            #[inline]
            pub(crate) fn $name(bytes: &[u8], at: usize) -> $ty {
                match bytes.get(at..at + $n).and_then(|b| b.first_chunk::<$n>()) {
                    Some(b) => <$ty>::from_le_bytes(*b),
                    None => 0,
                }
            }
        };
    }
    reader!(u16, u16, 2);
    reader!(u32, u32, 4);
    reader!(u64, u64, 8);
}
