//! Frames: what a node writes into its own files, one after the other.
//!
//! ```text
//! offset size
//!      0    4  magic "MQBf"
//!      4    1  kind
//!      5    1  0
//!      6    2  partition
//!      8    8  epoch: the segment's id; old bytes in a recycled file have another one
//!     16    8  committed: entries up to this index were known durable when the frame was written
//!     24    4  length of the content, without padding
//!     28    4  CRC32-C of the content (of an entry: the entry's own checksum)
//!     32    4  0
//!     36    4  CRC32-C of bytes 0..36
//!     40    .  content, then zeros up to a multiple of 8
//! ```

use super::{EntryHeader, LogError, crc, field, pad8};

/// **Units**: bytes.
pub const FRAME_HEADER_LEN: usize = 40;

const MAGIC: u32 = u32::from_le_bytes(*b"MQBf");

/// What a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// First frame of each segment: [`super::SegmentInfo`].
    Segment = 1,
    /// An entry of the log.
    Entry = 2,
    /// [`super::HardState`]: term, vote, commit.
    HardState = 3,
    /// Live records that the cleaner moved here, see [`super::carried_items`].
    Carried = 4,
    /// A run of the duplicate window, [`super::WindowRun`].
    Window = 5,
    /// The content of a checkpoint file.
    Checkpoint = 6,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<FrameKind> {
        use FrameKind::*;
        [Segment, Entry, HardState, Carried, Window, Checkpoint]
            .into_iter()
            .find(|k| *k as u8 == byte)
    }
}

/// The 40 bytes before each content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// What follows.
    pub kind: FrameKind,
    /// Whose file this is.
    pub partition: u16,
    /// Id of the segment the frame was written for.
    pub epoch: u64,
    /// Entries up to this index were durable when the frame was written.
    pub committed: u64,
    /// **Units**: bytes of content, without padding.
    pub length: u32,
    /// Checksum of the content.
    pub content_crc: u32,
}

impl FrameHeader {
    /// The header as bytes.
    pub fn encode(&self) -> [u8; FRAME_HEADER_LEN] {
        let mut b = [0; FRAME_HEADER_LEN];
        b[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        b[4] = self.kind as u8;
        b[6..8].copy_from_slice(&self.partition.to_le_bytes());
        b[8..16].copy_from_slice(&self.epoch.to_le_bytes());
        b[16..24].copy_from_slice(&self.committed.to_le_bytes());
        b[24..28].copy_from_slice(&self.length.to_le_bytes());
        b[28..32].copy_from_slice(&self.content_crc.to_le_bytes());
        let sum = crc(&b[..36]);
        b[36..40].copy_from_slice(&sum.to_le_bytes());
        b
    }

    /// Reads a header; the content is not looked at.
    ///
    /// **Errors**: too short, other magic, checksum, unknown kind.
    pub fn parse(bytes: &[u8]) -> Result<FrameHeader, LogError> {
        const WHAT: &str = "frame header";
        field::need(bytes, FRAME_HEADER_LEN, WHAT)?;
        if field::u32(bytes, 0) != MAGIC {
            return Err(LogError::Magic { what: WHAT });
        }
        let (found, expected) = (crc(&bytes[..36]), field::u32(bytes, 36));
        if found != expected {
            return Err(LogError::Checksum {
                what: WHAT,
                found,
                expected,
            });
        }
        let kind = FrameKind::from_byte(bytes[4]).ok_or(LogError::Field {
            what: WHAT,
            field: "kind",
            value: bytes[4].into(),
        })?;
        Ok(FrameHeader {
            kind,
            partition: field::u16(bytes, 6),
            epoch: field::u64(bytes, 8),
            committed: field::u64(bytes, 16),
            length: field::u32(bytes, 24),
            content_crc: field::u32(bytes, 28),
        })
    }

    /// **Units**: bytes from this header to the next one.
    pub fn frame_len(&self) -> usize {
        frame_len(self.length as usize)
    }

    /// Checks `content` against the header's checksum; an entry's is the one inside it, which covers all but itself.
    pub fn verify(&self, content: &[u8]) -> Result<(), LogError> {
        if self.kind == FrameKind::Entry {
            return EntryHeader::verify_as(content, self.content_crc);
        }
        let found = crc(content);
        if found != self.content_crc {
            return Err(LogError::Checksum {
                what: "frame content",
                found,
                expected: self.content_crc,
            });
        }
        Ok(())
    }
}

/// **Units**: bytes that a frame with that much content takes in its file.
pub const fn frame_len(content: usize) -> usize {
    FRAME_HEADER_LEN + pad8(content)
}

/// A verified frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Where the header starts.
    pub offset: usize,
    /// The header.
    pub header: FrameHeader,
    /// The content, checksum verified, without padding.
    pub content: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame at `offset`, if it is whole and was written for `epoch`.
    ///
    /// **Cost**: one pass over the content.
    pub fn parse(bytes: &'a [u8], offset: usize, epoch: u64) -> Result<Frame<'a>, LogError> {
        let rest = bytes.get(offset..).unwrap_or_default();
        let header = FrameHeader::parse(rest)?;
        if header.epoch != epoch {
            return Err(LogError::Field {
                what: "frame header",
                field: "epoch",
                value: header.epoch,
            });
        }
        let end = FRAME_HEADER_LEN + header.length as usize;
        field::need(rest, end, "frame")?;
        let content = &rest[FRAME_HEADER_LEN..end];
        header.verify(content)?;
        Ok(Frame {
            offset,
            header,
            content,
        })
    }
}

/// The frames of one file in order. After an error or the end it yields nothing more; `offset` tells where that was.
pub struct Frames<'a> {
    bytes: &'a [u8],
    epoch: u64,
    offset: usize,
    done: bool,
}

impl<'a> Frames<'a> {
    /// Frames of `epoch` from `offset` on.
    pub fn new(bytes: &'a [u8], epoch: u64, offset: usize) -> Self {
        Frames {
            bytes,
            epoch,
            offset,
            done: false,
        }
    }

    /// Where the next frame starts, or where the last attempt failed.
    pub fn offset(&self) -> usize {
        self.offset
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done || self.offset >= self.bytes.len() {
            return None;
        }
        match Frame::parse(self.bytes, self.offset, self.epoch) {
            Ok(frame) => {
                self.offset += frame.header.frame_len();
                Some(Ok(frame))
            }
            Err(error) => {
                self.done = true;
                Some(Err(error))
            }
        }
    }
}

/// The first whole frame of `epoch` at or after `from`: how reading goes on behind damage.
///
/// **Cost**: one comparison per 8 bytes, checksums only where the magic number stands.
pub fn find_frame(bytes: &[u8], epoch: u64, from: usize) -> Option<Frame<'_>> {
    let mut at = pad8(from);
    while at + FRAME_HEADER_LEN <= bytes.len() {
        if field::u32(bytes, at) == MAGIC
            && let Ok(frame) = Frame::parse(bytes, at, epoch)
        {
            return Some(frame);
        }
        at += 8;
    }
    None
}
