//! What replication will see of a partition's log, and what one node serves of it today.
//!
//! `Solo` takes the place of a group: every entry is committed once it is synced, and each start has a higher term than the one before.
//! Deliberately absent until the cluster work: pinning, staging and installing snapshots, and `reserve`/`revoke` of a fold, which only a
//! deposed primary needs.

use std::ops::Range;

use mqb_core::log::{Checkpoint, EntryKind, HardState, Index, Term};

use super::block::{Block, BlockBuilder};
use super::error::Fault;

/// Names one `append` or `set_hard_state`; later ones compare greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Ticket(pub u64);

/// Where a log begins and ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// Last index that may be gone; entries after it are all here.
    pub start: Index,
    /// Its term.
    pub start_term: Term,
    /// Last index appended.
    pub last: Index,
    /// Last index that is durable here.
    pub synced: Index,
    /// As last set.
    pub hard_state: HardState,
}

/// How far a log has come, by index and by ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogMarks {
    /// In the file: survives the end of the process.
    pub written: Index,
    /// Durable: survives the loss of power.
    pub synced: Index,
    /// Last ticket in the file.
    pub written_ticket: Ticket,
    /// Last durable ticket.
    pub synced_ticket: Ticket,
}

/// Answer to [`ReplicatedLog::read`].
#[derive(Debug)]
pub enum Read {
    /// Blocks from the start of the range on, as many as were asked for.
    Ready(Vec<Block>),
    /// Being read from disk; the owner is notified.
    Later,
    /// Below `Bounds::start`, or damaged.
    Gone,
}

/// State of a fold at one index; what a checkpoint file holds.
pub type FoldImage = Checkpoint;

/// One partition's log as replication sees it. Called on the owner's processor; nothing here waits for a disk.
pub trait ReplicatedLog {
    /// Begin, end, hard state.
    fn bounds(&self) -> Bounds;
    /// Term of an entry in `start..=last`, always from memory.
    fn term_of(&self, index: Index) -> Option<Term>;
    /// Kind of an entry in `start..=last`, always from memory.
    fn kind_of(&self, index: Index) -> Option<EntryKind>;
    /// Completes a block for this place. Its bytes are final.
    fn seal(&mut self, at: (Term, Index), kind: EntryKind, block: BlockBuilder) -> Block;
    /// Appends at `last + 1`, or at an index above the commit: then it supersedes what was there and after it.
    ///
    /// **Panics**: any other index, or a term below that of the entry before.
    fn append(&mut self, block: Block) -> Ticket;
    /// Records term, vote and commit, in order with the entries.
    ///
    /// **Panics**: a term or commit that goes back.
    fn set_hard_state(&mut self, state: HardState) -> Ticket;
    /// How far things have come. A fault is final.
    fn watermarks(&mut self) -> Result<LogMarks, Fault>;
    /// Entries of a range, at least one and then up to `max_bytes`.
    fn read(&mut self, range: Range<Index>, max_bytes: usize) -> Read;
    /// The cleaner may touch entries up to here, and none above.
    fn release(&mut self, upto: Index);
    /// Makes a fold's state durable: at most at `min(committed, synced)`. Told through the owner's notification.
    ///
    /// **Panics**: an image of entries that are not synced.
    fn checkpoint(&mut self, image: FoldImage);
}

/// What a partition's state is to a log: something that can be put aside at an index and taken up there again.
pub trait Fold {
    /// The state now.
    fn image(&self) -> FoldImage;
    /// Starts from a state.
    fn load(&mut self, image: FoldImage);
}
