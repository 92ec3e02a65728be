//! The fold that storage itself keeps: which records are settled, what each segment still holds, which queues exist.
//!
//! Owned by: the partition's processor. Memory: a bit per 32 bytes of log where something is settled; nothing per message.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use mqb_core::QueueId;
use mqb_core::log::{Bitmap, Checkpoint, Index, QueueCounters, QueueState, SegmentState, Term};

use super::log::Settled;
use super::seam::{Fold, FoldImage};

/// What is known of one segment's messages.
#[derive(Clone, Default)]
pub(crate) struct SegmentLedger {
    pub(crate) settled: Bitmap,
    puts: u32,
    live: u32,
    put_bytes: u64,
}

impl SegmentLedger {
    pub(crate) fn live(&self) -> u32 {
        self.live
    }

    /// **Units**: bytes of the live records, by the segment's average.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.put_bytes * u64::from(self.live) / u64::from(self.puts.max(1))
    }
}

/// A queue as storage knows it.
#[derive(Clone)]
pub(crate) struct QueueEntry {
    pub(crate) uri: Arc<str>,
    pub(crate) counters: QueueCounters,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) segments: BTreeMap<u64, SegmentLedger>,
    pub(crate) queues: HashMap<QueueId, QueueEntry>,
    pub(crate) next_queue: QueueId,
    /// **Units**: ms since the Unix epoch: the latest time in a record.
    pub(crate) clock_ms: u64,
    /// What is folded in.
    pub(crate) index: Index,
    pub(crate) term: Term,
    live: u64,
}

impl Ledger {
    /// Messages came into a segment.
    pub(crate) fn add(&mut self, segment: u64, puts: u32, bytes: u64) {
        let s = self.segments.entry(segment).or_default();
        s.puts += puts;
        s.live += puts;
        s.put_bytes += bytes;
        self.live += u64::from(puts);
    }

    /// A message of a segment is done with; tells whether it was not before.
    pub(crate) fn settle(&mut self, segment: u64, offset: u64) -> bool {
        let Some(s) = self.segments.get_mut(&segment).filter(|s| s.live > 0) else {
            return false;
        };
        let new = s.settled.set(offset);
        if new {
            s.live -= 1;
            self.live -= 1;
        }
        new
    }

    pub(crate) fn is_settled(&self, segment: u64, offset: u64) -> bool {
        self.segments
            .get(&segment)
            .is_some_and(|s| s.settled.get(offset))
    }

    /// Live messages between two offsets of a segment, of which `puts` start there.
    pub(crate) fn live_between(&self, segment: u64, from: u64, to: u64, puts: u32) -> u32 {
        self.segments
            .get(&segment)
            .map_or(puts, |s| puts.saturating_sub(s.settled.count(from, to)))
    }

    pub(crate) fn live(&self) -> u64 {
        self.live
    }

    pub(crate) fn has_settled(&self, segment: u64) -> bool {
        self.segments
            .get(&segment)
            .is_some_and(|s| s.settled.chunks().next().is_some())
    }

    pub(crate) fn live_of(&self, segment: u64) -> u32 {
        self.segments.get(&segment).map_or(0, SegmentLedger::live)
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        self.segments.values().map(SegmentLedger::live_bytes).sum()
    }

    pub(crate) fn counters(&mut self, queue: QueueId) -> Option<&mut QueueCounters> {
        self.queues.get_mut(&queue).map(|q| &mut q.counters)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let segments: usize = self
            .segments
            .values()
            .map(|s| s.settled.memory_bytes() + size_of::<SegmentLedger>())
            .sum();
        segments
            + self
                .queues
                .values()
                .map(|q| q.uri.len() + size_of::<QueueEntry>() + 48)
                .sum::<usize>()
    }
}

impl Settled for Ledger {
    fn has_live(&self, segment: u64, _: u64, _: u64) -> bool {
        self.live_of(segment) > 0
    }
}

impl Fold for Ledger {
    /// **Cost**: a pointer per MiB of log and per queue. Lengths, roles and the window's files are for others to fill in.
    fn image(&self) -> FoldImage {
        let segments = self.segments.iter().map(|(id, s)| SegmentState {
            id: *id,
            role: mqb_core::log::SegmentRole::Hot,
            all_settled: s.live == 0,
            length: 0,
            settled: if s.live == 0 {
                Bitmap::default()
            } else {
                s.settled.clone()
            },
        });
        let queues = self.queues.iter().map(|(id, q)| QueueState {
            id: *id,
            uri: Arc::clone(&q.uri),
            counters: q.counters,
        });
        let mut queues: Vec<_> = queues.collect();
        queues.sort_unstable_by_key(|q| q.id);
        Checkpoint {
            index: self.index,
            term: self.term,
            clock_ms: self.clock_ms,
            next_queue: self.next_queue,
            queues,
            segments: segments.collect(),
            ..Checkpoint::default()
        }
    }

    /// Numbers of live messages are not in an image: they are counted from the segments as these are read.
    fn load(&mut self, image: FoldImage) {
        let segments = image.segments.into_iter().map(|s| {
            (
                s.id,
                SegmentLedger {
                    settled: s.settled,
                    ..Default::default()
                },
            )
        });
        let queues = image.queues.into_iter().map(|q| {
            (
                q.id,
                QueueEntry {
                    uri: q.uri,
                    counters: q.counters,
                },
            )
        });
        *self = Ledger {
            segments: segments.collect(),
            queues: queues.collect(),
            next_queue: image.next_queue,
            clock_ms: image.clock_ms,
            index: image.index,
            term: image.term,
            live: 0,
        };
    }
}
