//! The writer's duty: everything that the processor handed over since last time, in order, in as few writes as possible.

use std::io::{ErrorKind, IoSlice};
use std::sync::Arc;

use mqb_core::log::FRAME_HEADER_LEN;
use smallvec::SmallVec;

use super::block::Block;
use super::disk::is_full;
use super::shared::{Duty, Segment, Shared};

/// A frame for a place in a segment.
pub(crate) struct WriteJob {
    pub(crate) segment: Arc<Segment>,
    pub(crate) offset: u64,
    /// The frame's header, checksum in it.
    pub(crate) header: [u8; FRAME_HEADER_LEN],
    pub(crate) content: Content,
    /// The log's last index when this was handed over: what `written` may become.
    pub(crate) index: u64,
}

/// What follows the header.
pub(crate) enum Content {
    Block(Block),
    /// A multiple of 8 bytes.
    Small([u8; 24]),
}

impl WriteJob {
    fn len(&self) -> u64 {
        let content = match &self.content {
            Content::Block(block) => block.len(),
            Content::Small(bytes) => bytes.len(),
        };
        (FRAME_HEADER_LEN + content) as u64
    }

    fn gather<'a>(&'a self, into: &mut Vec<&'a [u8]>) {
        into.push(&self.header);
        match &self.content {
            Content::Block(block) => into.extend(block.pieces()),
            Content::Small(bytes) => into.push(bytes),
        }
    }
}

/// Linux takes this many pieces in one call.
const MAX_PIECES: usize = 1024;

/// Writes what is queued. What finds no file yet or no room stays queued, in order.
pub(crate) fn run(shared: &Arc<Shared>) {
    if shared.fault().is_some() {
        return;
    }
    let mut jobs = shared.take_writes();
    let mut from = 0;
    while from < jobs.len() {
        let to = from + contiguous(&jobs[from..]);
        match write_run(shared, &jobs[from..to]) {
            Outcome::Written => {
                let index = jobs[to - 1].index;
                shared.publish_written(index, std::iter::once(Arc::clone(&jobs[from].segment)));
                shared.set_write_full(false);
                from = to;
            }
            Outcome::NotYet => break,
            Outcome::Failed => return,
        }
    }
    if from > 0 {
        if shared.sync_is_wanted() {
            shared.schedule(Duty::Sync);
        }
        shared.wake_owner();
    }
    if from < jobs.len() {
        jobs.drain(..from);
        shared.return_writes(jobs);
    }
}

/// How many of the first jobs stand one behind the other in one segment.
fn contiguous(jobs: &[WriteJob]) -> usize {
    let mut end = jobs[0].offset + jobs[0].len();
    let mut n = 1;
    while n < jobs.len() && jobs[n].segment.id == jobs[0].segment.id && jobs[n].offset == end {
        end += jobs[n].len();
        n += 1;
    }
    n
}

enum Outcome {
    Written,
    NotYet,
    Failed,
}

fn write_run(shared: &Arc<Shared>, jobs: &[WriteJob]) -> Outcome {
    let segment = &jobs[0].segment;
    let Some(file) = segment.file() else {
        return Outcome::NotYet;
    };
    let mut pieces = Vec::with_capacity(jobs.len() * 2);
    for job in jobs {
        job.gather(&mut pieces);
    }
    let mut offset = jobs[0].offset;
    let (mut first, mut skip) = (0, 0);
    while first < pieces.len() {
        let mut slices: SmallVec<[IoSlice<'_>; 64]> = SmallVec::new();
        slices.push(IoSlice::new(&pieces[first][skip..]));
        slices.extend(
            pieces[first + 1..]
                .iter()
                .take(MAX_PIECES - 1)
                .map(|p| IoSlice::new(p)),
        );
        match file.write_at(&slices, offset) {
            Ok(0) => {
                shared.fail("writing", &segment.name, &ErrorKind::WriteZero.into());
                return Outcome::Failed;
            }
            Ok(n) => {
                shared.stats.written(n as u64);
                offset += n as u64;
                let mut n = n;
                while first < pieces.len() && n >= pieces[first].len() - skip {
                    n -= pieces[first].len() - skip;
                    (first, skip) = (first + 1, 0);
                }
                skip += n;
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if is_full(&e) => {
                // Nothing of this run counts as written; it is written again, from its start, when there is room.
                shared.set_write_full(true);
                return Outcome::NotYet;
            }
            Err(e) => {
                shared.fail("writing", &segment.name, &e);
                return Outcome::Failed;
            }
        }
    }
    Outcome::Written
}
