//! Figures of a partition's storage.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the fdatasync histogram's buckets. **Units**: microseconds; the last bucket has none.
pub const SYNC_BUCKETS_US: [u64; 11] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 500_000, 2_500_000,
];

/// Counters that helpers raise. Read by anyone; nothing is published through them.
#[derive(Default, Debug)]
pub(crate) struct HelperStats {
    written_bytes: AtomicU64,
    writes: AtomicU64,
    syncs: AtomicU64,
    sync_ns: AtomicU64,
    sync_buckets: [AtomicU64; SYNC_BUCKETS_US.len() + 1],
    read_bytes: AtomicU64,
    carried_bytes: AtomicU64,
    lost_blocks: AtomicU64,
}

impl HelperStats {
    pub(crate) fn written(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn synced(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = SYNC_BUCKETS_US.partition_point(|b| *b < us);
        self.sync_buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.sync_ns.fetch_add(
            u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    pub(crate) fn read(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn carried(&self, bytes: u64) {
        self.carried_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn lost(&self) {
        self.lost_blocks.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn fill(&self, stats: &mut StorageStats) {
        let get = |a: &AtomicU64| a.load(Ordering::Relaxed);
        stats.written_bytes = get(&self.written_bytes);
        stats.writes = get(&self.writes);
        stats.syncs = get(&self.syncs);
        stats.sync_ns_total = get(&self.sync_ns);
        for (to, from) in stats.sync_buckets.iter_mut().zip(&self.sync_buckets) {
            *to = get(from);
        }
        stats.read_bytes = get(&self.read_bytes);
        stats.carried_bytes = get(&self.carried_bytes);
        stats.lost_blocks = get(&self.lost_blocks);
    }
}

/// A picture of a partition's storage.
#[derive(Clone, Default, Debug)]
pub struct StorageStats {
    /// Bytes written to segments, frames included.
    pub written_bytes: u64,
    /// Calls of pwritev.
    pub writes: u64,
    /// Calls of fdatasync on segments.
    pub syncs: u64,
    /// **Units**: nanoseconds in them.
    pub sync_ns_total: u64,
    /// Calls by duration, see [`SYNC_BUCKETS_US`]; not cumulative.
    pub sync_buckets: [u64; SYNC_BUCKETS_US.len() + 1],
    /// Bytes read back.
    pub read_bytes: u64,
    /// Bytes of live records that the cleaner moved.
    pub carried_bytes: u64,
    /// Blocks that could not be read back: damaged on disk.
    pub lost_blocks: u64,
    /// Files of the log, a prepared one included.
    pub segments: usize,
    /// **Units**: bytes of them.
    pub disk_bytes: u64,
    /// Messages not settled.
    pub live_messages: u64,
    /// **Units**: bytes of log that they take, estimated from each segment's average.
    pub live_bytes: u64,
    /// **Units**: bytes handed over and not yet written.
    pub unwritten_entries: u64,
    /// Entries not yet durable.
    pub unsynced_entries: u64,
    /// Checkpoints completed since the start.
    pub checkpoints: u64,
    /// Index that the last durable checkpoint holds.
    pub checkpoint_index: u64,
    /// GUIDs that the duplicate windows remember.
    pub window_entries: u64,
    /// GUIDs that left a window early because it was at its cap. Alarm when rising.
    pub window_shortened: u64,
    /// **Units**: bytes of memory held by tables, bitmaps and windows; not the block cache.
    pub table_bytes: u64,
    /// **Units**: bytes of memory of the blocks of all partitions.
    pub block_bytes: u64,
    /// Whether PUTs are refused for want of space.
    pub full: bool,
}
