//! What a partition needs of its log. Implemented by the real one, and by a scripted one in tests.

use mqb_core::{Guid, QueueId, Sequence};
use mqb_queue::{MessageStore, StoreError};

use crate::storage::{Fault, Marks, PartitionLog, StorageStats, WindowLimits};

use mqb_core::config::Durability;

/// How safe a record is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// In the file: survives the death of this process.
    Written,
    /// On the medium: survives loss of power.
    Synced,
}

impl Level {
    /// Both, weaker first.
    pub const ALL: [Level; 2] = [Level::Written, Level::Synced];

    /// The level that a domain waits for. A queue that is in the log although its domain promises nothing (it was made
    /// when the domain was configured otherwise) is treated as `flush`.
    pub fn of(durability: Durability) -> Self {
        match durability {
            Durability::Sync => Self::Synced,
            Durability::Flush | Durability::Memory => Self::Written,
        }
    }
}

impl Marks {
    /// The mark of a level.
    pub(super) fn at(&self, level: Level) -> Sequence {
        match level {
            Level::Written => self.written,
            Level::Synced => self.synced,
        }
    }
}

/// What the log's helpers have done since the last look.
#[derive(Clone, Debug, Default)]
pub struct News {
    /// Data was read back: stalled queues go on.
    pub fetched: bool,
    /// No space for new messages at the moment.
    pub is_full: bool,
    /// The log failed for good, or was found damaged: nothing new is taken.
    pub is_failed: bool,
    /// The end that `close` began is reached.
    pub is_closed: bool,
    /// What failed, if it was not damage found at the start.
    pub fault: Option<Fault>,
}

/// The log of a partition. Called on the partition's processor; nothing here waits for a disk.
pub trait Log: MessageStore + Send + 'static {
    /// Appends the creation of a queue.
    fn create_queue(&mut self, uri: &str) -> Result<(QueueId, Sequence), StoreError>;

    /// Sets how long and how many GUIDs of a queue are remembered.
    fn set_duplicate_window(&mut self, queue: QueueId, limits: WindowLimits);

    /// Where a message with this GUID was stored, if that was within the queue's window.
    fn duplicate(&self, queue: QueueId, guid: &Guid, now_ms: u64) -> Option<Sequence>;

    /// The last record appended.
    fn appended(&self) -> Sequence;

    /// How far the log has come.
    fn marks(&self) -> Marks;

    /// Asks, before `flush`, that everything appended is brought to `level` soon.
    fn want(&mut self, level: Level);

    /// End of the turn: hands what was appended to the writer.
    fn flush(&mut self);

    /// Looks at what the helpers have done; to be called after each wake.
    fn poll(&mut self) -> News;

    /// Periodic sync, checkpoints, cleaning, expiry of the duplicate window: a bounded step, called every few milliseconds.
    fn tick(&mut self, now_ms: u64);

    /// Begins the orderly end: all is to be synced and marked as complete. [`News::is_closed`] tells when.
    fn close(&mut self);

    /// Figures.
    fn stats(&self) -> StorageStats;
}

impl Log for PartitionLog {
    fn create_queue(&mut self, uri: &str) -> Result<(QueueId, Sequence), StoreError> {
        self.create_queue(uri)
    }

    fn set_duplicate_window(&mut self, queue: QueueId, limits: WindowLimits) {
        self.set_window(queue, limits);
    }

    fn duplicate(&self, queue: QueueId, guid: &Guid, now_ms: u64) -> Option<Sequence> {
        self.duplicate(queue, guid, now_ms)
    }

    fn appended(&self) -> Sequence {
        self.appended()
    }

    fn marks(&self) -> Marks {
        self.marks()
    }

    fn want(&mut self, level: Level) {
        // What is appended is written without being asked for.
        if level == Level::Synced {
            self.want_sync();
        }
    }

    fn flush(&mut self) {
        self.flush();
    }

    fn poll(&mut self) -> News {
        let progress = self.poll();
        News {
            fetched: progress.fetched,
            is_full: progress.full,
            is_failed: self.is_read_only(),
            is_closed: progress.closed,
            fault: progress.fault,
        }
    }

    fn tick(&mut self, now_ms: u64) {
        self.tick(now_ms);
    }

    fn close(&mut self) {
        self.close();
    }

    fn stats(&self) -> StorageStats {
        self.stats()
    }
}
