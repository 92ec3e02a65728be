//! The reader's duty: blocks that left memory, back from their files, verified before anyone sees them.

use std::sync::Arc;

use bytes::Bytes;
use mqb_core::log::{EntryHeader, Frame, FrameKind, Record, Records, carried_items};

use super::block::Block;
use super::cache::BlockKey;
use super::disk::read_full;
use super::shared::{Done, Segment, Shared};

/// Frames to be read from one stretch of a file.
pub(crate) struct ReadJob {
    pub(crate) segment: Arc<Segment>,
    pub(crate) offset: u64,
    pub(crate) len: usize,
    /// Which frames, and where they start in the stretch.
    pub(crate) frames: Vec<(BlockKey, usize)>,
}

/// What came of it.
pub(crate) struct ReadDone {
    /// In the order asked for; `None` where the bytes are not what was written.
    pub(crate) blocks: Vec<(BlockKey, Option<Block>)>,
}

/// Serves all queued reads.
pub(crate) fn run(shared: &Arc<Shared>) {
    for job in shared.take_reads() {
        shared.report(Done::Read(read(shared, job)));
    }
}

fn read(shared: &Shared, job: ReadJob) -> ReadDone {
    let mut buffer = vec![0; job.len];
    let have = job
        .segment
        .file()
        .map(|file| read_full(&**file, &mut buffer, job.offset));
    let have = have.and_then(Result::ok).unwrap_or(0);
    shared.stats.read(have as u64);
    buffer.truncate(have);
    let bytes = shared.budget.share(buffer);
    let blocks = job.frames.into_iter().map(|(key, at)| {
        let block = parse(&bytes, at, job.segment.id);
        if block.is_none() {
            shared.stats.lost();
            tracing::error!(event = "storage.block_lost", partition = %shared.id, file = %job.segment.name,
                offset = job.offset + at as u64, "a block cannot be read back");
        }
        (key, block)
    });
    ReadDone {
        blocks: blocks.collect(),
    }
}

fn parse(bytes: &Bytes, at: usize, epoch: u64) -> Option<Block> {
    let frame = Frame::parse(bytes, at, epoch).ok()?;
    let content = bytes.slice_ref(frame.content);
    match frame.header.kind {
        FrameKind::Entry => {
            let header = EntryHeader::parse(frame.content).ok()?;
            let puts = Records::new(frame.content)
                .filter(|r| matches!(r, Ok((_, Record::Put(_)))))
                .count();
            Some(Block::from_bytes(
                header,
                content,
                u32::try_from(puts).ok()?,
            ))
        }
        FrameKind::Carried => {
            let puts = carried_items(frame.content).filter(Result::is_ok).count();
            Some(Block::carried(content, u32::try_from(puts).ok()?))
        }
        _ => None,
    }
}
