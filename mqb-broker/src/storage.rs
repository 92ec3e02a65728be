//! Durable storage: one data directory per process, one segmented append-only log per partition.
//!
//! ```text
//! processor                                helper threads (storage::Helpers)
//!   PartitionLog  --- sealed blocks ------>  writer   pwritev, one batch for all that waits
//!     put, settle <-- written, synced -----  syncer   fdatasync, group commit
//!     fetch       <-- blocks read back ----  reader   with read-ahead
//!     tick        <-- done ----------------  cleaner  segments, checkpoints, carrying live records
//! ```
//!
//! Each partition's state belongs to its processor; what helpers see is immutable blocks and bitmaps, and `shared.rs`, which lists the locks.
//! The byte format is `mqb_core::log`; the reasons are in docs/storage-format.md.

mod block;
mod cache;
mod carry;
mod chore;
mod dir;
mod disk;
mod error;
mod helpers;
mod ledger;
mod log;
mod partition;
mod places;
mod reader;
mod recovery;
mod seam;
mod shared;
mod stats;
mod syncer;
#[cfg(test)]
mod tests;
mod window;
mod window_files;
mod writer;

use std::sync::Arc;

pub use mqb_core::log::QueueCounters;

pub use block::{Block, BlockBuilder, MAX_COPIED, MemoryBudget};
pub use dir::{DataDir, NodeId};
pub use disk::{Disk, DiskFile, OpenMode, RealDisk};
pub use error::{Damage, DamageKind, Fault, StorageError};
pub use helpers::Helpers;
pub use partition::{Marks, PartitionLog, Progress};
pub use recovery::{Recovered, RecoveredMessage, RecoveredQueue, RecoveryProgress};
pub use seam::{Bounds, Fold, FoldImage, LogMarks, Read, ReplicatedLog, Ticket};
pub use shared::{Duty, Notify};
pub use stats::{SYNC_BUCKETS_US, StorageStats};
pub(crate) use window::Window;
pub use window::WindowLimits;

/// What the partitions of a process have in common.
#[derive(Clone)]
pub struct Environment {
    /// Where files are.
    pub disk: Arc<dyn Disk>,
    /// Who does the blocking work.
    pub helpers: Arc<Helpers>,
    /// Memory for blocks.
    pub budget: Arc<MemoryBudget>,
}

/// Settings of a partition's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageConfig {
    /// **Units**: bytes of a segment.
    pub segment_bytes: u64,
    /// **Units**: bytes at which a block is sealed before the turn ends. At most 4 MiB.
    pub block_bytes: usize,
    /// **Units**: milliseconds after which what was written is made durable although nobody waits for it.
    pub sync_interval_ms: u64,
    /// Default duplicate window of a queue.
    pub window: WindowLimits,
    /// **Units**: milliseconds between two attempts to find space on a full disk.
    pub probe_interval_ms: u64,
    /// **Units**: milliseconds without a record after which the log is marked as complete.
    pub mark_after_ms: u64,
    /// **Units**: bytes of a segment that one step of the cleaner looks at.
    pub carry_bytes: u64,
    /// **Units**: bytes of a file that is given up when a checkpoint, the cleaner or settlings find no space on a full disk.
    pub reserve_bytes: u64,
}

impl Default for StorageConfig {
    fn default() -> Self {
        StorageConfig {
            segment_bytes: 64 << 20,
            block_bytes: 1 << 20,
            sync_interval_ms: 100,
            window: WindowLimits::default(),
            probe_interval_ms: 200,
            mark_after_ms: 1_000,
            carry_bytes: 4 << 20,
            reserve_bytes: 16 << 20,
        }
    }
}

impl StorageConfig {
    /// **Units**: bytes of the current segment that messages leave to settling while there is no space for another. To free a segment of
    /// the smallest messages takes half a segment of settlings.
    pub fn settling_reserve_bytes(&self) -> u64 {
        self.segment_bytes / 2
    }
}
