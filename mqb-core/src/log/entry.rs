//! Entries: one block of records as it stands in the log of every replica, byte for byte.
//!
//! ```text
//! offset size
//!      0    4  magic "MQBe"
//!      4    2  format version
//!      6    1  kind: 0 records, 1 configuration, 2 empty
//!      7    1  0
//!      8    8  term
//!     16    8  index
//!     24    4  number of records
//!     28    4  length of the records in bytes, a multiple of 8
//!     32    4  0
//!     36    4  CRC32-C of bytes 0..36 and the records
//!     40    .  records
//! ```

use super::{Crc, FORMAT_VERSION, Index, LogError, Term, field};

/// **Units**: bytes.
pub const ENTRY_HEADER_LEN: usize = 40;

const MAGIC: u32 = u32::from_le_bytes(*b"MQBe");

/// What an entry is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum EntryKind {
    /// Records.
    #[default]
    Normal = 0,
    /// A change of the replication group's members.
    Config = 1,
    /// Nothing: marks the start of a term.
    Empty = 2,
}

/// The 40 bytes before an entry's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryHeader {
    /// What it is for.
    pub kind: EntryKind,
    /// Leadership under which it was appended.
    pub term: Term,
    /// Place in the log.
    pub index: Index,
    /// How many records follow.
    pub records: u32,
    /// **Units**: bytes of records.
    pub length: u32,
    /// Checksum of everything but itself; 0 before [`EntryHeader::seal`].
    pub crc: u32,
}

impl EntryHeader {
    fn encode_unsealed(&self) -> [u8; ENTRY_HEADER_LEN] {
        let mut b = [0; ENTRY_HEADER_LEN];
        b[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        b[4..6].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        b[6] = self.kind as u8;
        b[8..16].copy_from_slice(&self.term.0.to_le_bytes());
        b[16..24].copy_from_slice(&self.index.0.to_le_bytes());
        b[24..28].copy_from_slice(&self.records.to_le_bytes());
        b[28..32].copy_from_slice(&self.length.to_le_bytes());
        b
    }

    /// Computes the checksum over the header and the records, given in pieces, and returns the final header bytes.
    ///
    /// **Cost**: one pass over the records.
    pub fn seal<'a>(
        &mut self,
        records: impl IntoIterator<Item = &'a [u8]>,
    ) -> [u8; ENTRY_HEADER_LEN] {
        let mut bytes = self.encode_unsealed();
        let mut sum = Crc::default();
        sum.update(&bytes[..36]);
        for piece in records {
            sum.update(piece);
        }
        self.crc = sum.value();
        bytes[36..40].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    /// Reads a header; checksums are the business of [`EntryHeader::verify`].
    pub fn parse(bytes: &[u8]) -> Result<EntryHeader, LogError> {
        const WHAT: &str = "entry header";
        field::need(bytes, ENTRY_HEADER_LEN, WHAT)?;
        if field::u32(bytes, 0) != MAGIC {
            return Err(LogError::Magic { what: WHAT });
        }
        let version = field::u16(bytes, 4);
        if version > FORMAT_VERSION {
            return Err(LogError::Version {
                what: WHAT,
                found: version,
            });
        }
        let kind = match bytes[6] {
            0 => EntryKind::Normal,
            1 => EntryKind::Config,
            2 => EntryKind::Empty,
            other => {
                return Err(LogError::Field {
                    what: WHAT,
                    field: "kind",
                    value: other.into(),
                });
            }
        };
        Ok(EntryHeader {
            kind,
            term: Term(field::u64(bytes, 8)),
            index: Index(field::u64(bytes, 16)),
            records: field::u32(bytes, 24),
            length: field::u32(bytes, 28),
            crc: field::u32(bytes, 36),
        })
    }

    /// Checks that `entry` (header and records) is exactly what was sealed.
    ///
    /// **Cost**: one pass.
    pub fn verify(&self, entry: &[u8]) -> Result<(), LogError> {
        Self::verify_as(entry, self.crc)
    }

    /// Checks that `entry` is what was sealed with this checksum. Nothing in it is believed before: a flipped bit is no newer version.
    pub(super) fn verify_as(entry: &[u8], expected: u32) -> Result<(), LogError> {
        const WHAT: &str = "entry";
        field::need(entry, ENTRY_HEADER_LEN, WHAT)?;
        let mut sum = Crc::default();
        sum.update(&entry[..36]);
        sum.update(&entry[ENTRY_HEADER_LEN..]);
        for found in [sum.value(), field::u32(entry, 36)] {
            if found != expected {
                return Err(LogError::Checksum {
                    what: WHAT,
                    found,
                    expected,
                });
            }
        }
        let header = EntryHeader::parse(entry)?;
        if entry.len() != ENTRY_HEADER_LEN + header.length as usize
            || !entry.len().is_multiple_of(8)
        {
            return Err(LogError::Field {
                what: WHAT,
                field: "length",
                value: entry.len() as u64,
            });
        }
        Ok(())
    }
}
