//! Where records are: which segment, which frame, which byte.
//!
//! Owned by: the partition's processor. Memory: 4 bytes per entry or carried frame, a map entry per carried record, nothing else per message.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mqb_core::Sequence;
use mqb_core::log::{self, FRAME_HEADER_LEN, Index, SegmentRole};

use super::cache::BlockKey;
use super::shared::Segment;

/// The segments of a log.
#[derive(Default)]
pub(crate) struct Places {
    pub(crate) tables: BTreeMap<u64, Table>,
    /// Hot segments by first index.
    pub(crate) hot: VecDeque<(Index, u64)>,
    /// Second places of records that were carried: cold segment, offset in it.
    pub(crate) carried: BTreeMap<Sequence, (u64, u64)>,
}

impl Places {
    /// Where the record with this sequence is.
    #[inline]
    pub(crate) fn locate(&self, sequence: Sequence) -> Option<Place> {
        let (index, in_content) = log::place(sequence);
        // First: while its old segment is still there, the old place of a carried record counts as settled.
        if !self.carried.is_empty()
            && let Some(&(id, offset)) = self.carried.get(&sequence)
        {
            return self.cold_place(id, offset);
        }
        let at = self
            .hot
            .partition_point(|(first, _)| *first <= index)
            .checked_sub(1)?;
        let (first, id) = self.hot[at];
        let table = self.tables.get(&id).filter(|t| index < t.next_index())?;
        let frame = (index.0 - first.0) as usize;
        let offset = table.frame_offset(frame) + (FRAME_HEADER_LEN + in_content) as u64;
        Some(Place {
            key: BlockKey {
                segment: id,
                frame: frame as u32,
            },
            in_content,
            offset,
        })
    }

    fn cold_place(&self, id: u64, offset: u64) -> Option<Place> {
        let table = self.tables.get(&id)?;
        let frame = table.frame_at(offset);
        let in_content = (offset - table.frame_offset(frame)) as usize - FRAME_HEADER_LEN;
        Some(Place {
            key: BlockKey {
                segment: id,
                frame: frame as u32,
            },
            in_content,
            offset,
        })
    }
}

/// Name of a hot segment's file.
pub(crate) fn hot_name(id: u64) -> String {
    format!("{id:016x}.log")
}

/// Name of a cold segment's file.
pub(crate) fn cold_name(id: u64) -> String {
    format!("{id:016x}.cold")
}

/// A segment and where its frames are.
pub(crate) struct Table {
    pub(crate) segment: Arc<Segment>,
    pub(crate) role: SegmentRole,
    /// Index of the first frame; those of the others follow. 0 in a cold one.
    pub(crate) first: Index,
    /// Offset / 8 of each entry or carried frame.
    frames: Vec<u32>,
    /// **Units**: bytes in use.
    pub(crate) end: u64,
    /// **Units**: bytes up to the end of the last entry or carried frame.
    pub(crate) content_end: u64,
    /// Takes no more.
    pub(crate) sealed: bool,
}

impl Table {
    pub(crate) fn new(segment: Arc<Segment>, role: SegmentRole, first: Index) -> Table {
        Table {
            segment,
            role,
            first,
            frames: Vec::new(),
            end: 0,
            content_end: 0,
            sealed: false,
        }
    }

    pub(crate) fn push_frame(&mut self, offset: u64) {
        self.frames
            .push(u32::try_from(offset / 8).expect("segments are far below 32 GiB"));
    }

    pub(crate) fn frames(&self) -> usize {
        self.frames.len()
    }

    pub(crate) fn frame_offset(&self, frame: usize) -> u64 {
        u64::from(self.frames[frame]) * 8
    }

    pub(crate) fn truncate(&mut self, frames: usize) {
        self.frames.truncate(frames);
    }

    /// Where the frame ends, or a little later.
    pub(crate) fn frame_end(&self, frame: usize) -> u64 {
        self.frames
            .get(frame + 1)
            .map_or(self.end, |o| u64::from(*o) * 8)
    }

    /// Index of the entry after the last.
    pub(crate) fn next_index(&self) -> Index {
        Index(self.first.0 + self.frames.len() as u64)
    }

    fn frame_at(&self, offset: u64) -> usize {
        self.frames
            .partition_point(|o| u64::from(*o) * 8 <= offset)
            .saturating_sub(1)
    }

    /// **Units**: bytes of the file.
    pub(crate) fn file_bytes(&self, capacity: u64) -> u64 {
        match self.role {
            SegmentRole::Hot => self.end.max(capacity),
            SegmentRole::Cold => self.end,
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.frames.capacity() * 4 + size_of::<Table>() + 64
    }
}

/// Where a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) key: BlockKey,
    /// Within the frame's content.
    pub(crate) in_content: usize,
    /// Within the file.
    pub(crate) offset: u64,
}
