//! What a partition needs of its log. Implemented by the real one, and by a scripted one in tests.

use mqb_core::{Guid, QueueId, Sequence};
use mqb_queue::{MessageStore, StoreError};

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

/// How far a log has come: all records up to these are at that level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    /// In the file.
    pub written: Sequence,
    /// On the medium.
    pub synced: Sequence,
}

impl Marks {
    /// The mark of a level.
    pub fn at(&self, level: Level) -> Sequence {
        match level {
            Level::Written => self.written,
            Level::Synced => self.synced,
        }
    }
}

/// What the log's helpers have done since the last look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct News {
    /// Data was read back: stalled queues go on.
    pub fetched: bool,
    /// No space for new messages at the moment.
    pub is_full: bool,
    /// The log failed for good: no mark moves any more, nothing new is taken.
    pub is_failed: bool,
}

/// The log of a partition. Called on the partition's processor; nothing here waits for a disk.
pub trait Log: MessageStore + Send + 'static {
    /// Appends the creation of a queue.
    fn create_queue(&mut self, uri: &str) -> Result<(QueueId, Sequence), StoreError>;

    /// Sets how long, in milliseconds, and how many GUIDs of a queue are remembered.
    fn set_duplicate_window(&mut self, queue: QueueId, duration_ms: u64, max_entries: usize);

    /// Where a message with this GUID was stored, if that was within the queue's window.
    fn duplicate(&self, queue: QueueId, guid: &Guid, now_ms: u64) -> Option<Sequence>;

    /// The last record appended.
    fn appended(&self) -> Sequence;

    /// How far the log has come.
    fn marks(&self) -> Marks;

    /// Asks that everything appended is brought to `level` soon. Cheap to repeat.
    fn want(&mut self, level: Level);

    /// Hands what was appended in this turn to the writer.
    fn flush(&mut self);

    /// Looks at what the helpers have done; to be called after each wake.
    fn poll(&mut self) -> News;

    /// Checkpoints, cleaning, expiry of the duplicate window: a bounded step, called a few times per second.
    fn tick(&mut self, now_ms: u64);

    /// Begins the orderly end: all is to be synced and a checkpoint written.
    fn close(&mut self);

    /// Whether the end that `close` began is reached.
    fn is_closed(&self) -> bool;
}
