//! The log of one partition: what engines store into, and what the PARTITION client drives.
//!
//! Owned by: the partition's processor; no method waits for a disk. A turn is `put`/`settle`/`fetch`..., then `flush`. After a notification
//! the owner calls `poll`; it calls `tick` at least every `sync_interval`.

use std::path::Path;
use std::sync::Arc;

use hashbrown::HashMap;
use mqb_core::log::{
    self, Bitmap, ENTRY_HEADER_LEN, EntryKind, HardState, Index, PUT_HEADER_LEN, SegmentRole,
    SegmentState, Term,
};
use mqb_core::{Guid, PartitionId, QueueId, Sequence};
use mqb_queue::{Fetch, MessageStore, NewMessage, Settled, StoreError};

use super::block::BlockBuilder;
use super::carry::{CarryDone, CarryJob};
use super::chore::{CheckpointJob, Chore, ChoreDone};
use super::error::{Fault, StorageError};
use super::ledger::{Ledger, QueueEntry};
use super::log::EntryLog;
use super::places::{Place, Table, cold_name};
use super::recovery::{self, Recovered, RecoveryProgress};
use super::seam::{Fold, ReplicatedLog};
use super::shared::{Done, Notify, Segment};
use super::stats::StorageStats;
use super::window::{Window, WindowLimits};
use super::{Environment, StorageConfig};

/// How far a partition's records have come: all up to and with these are at that level. On one node `quorum_written` is `written` and
/// `committed` is `synced`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    /// In the file: survives `kill -9`.
    pub written: Sequence,
    /// Durable: survives the loss of power.
    pub synced: Sequence,
}

/// What `poll` found.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Watermarks. They stand still after a fault.
    pub marks: Marks,
    /// Blocks came back from disk: a `fetch` that said `Later` is worth another try.
    pub fetched: bool,
    /// New messages are refused for want of space.
    pub full: bool,
    /// The partition is finished: read-only until an operator restarts it. Told at each poll.
    pub fault: Option<Fault>,
    /// `close` is complete.
    pub closed: bool,
}

/// A checkpoint on its way.
enum CheckpointState {
    Idle,
    /// The picture is taken; what it shows is not durable yet.
    Waiting(Box<CheckpointJob>, Vec<u64>),
    /// Being written. Then these segments can go.
    Writing(Vec<u64>),
}

/// A segment being cleaned.
struct Carry {
    victim: u64,
    next_frame: usize,
    /// A step is with the helper. No picture for a checkpoint is taken meanwhile: it could say of a record that its first place is
    /// settled, and know nothing of the second.
    busy: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    Asked,
    Done,
}

/// See the module.
pub struct PartitionLog {
    id: PartitionId,
    config: StorageConfig,
    log: EntryLog,
    ledger: Ledger,
    windows: HashMap<QueueId, Window>,
    term: Term,
    builder: BlockBuilder,
    put_bytes: u64,
    /// Bytes to expect in the next block.
    expected: usize,
    /// Settlings of messages in the block being built.
    early: Vec<(Sequence, QueueId, u8)>,
    sync_asked: bool,
    read_only: bool,
    /// The last frame says that everything is committed.
    marked: bool,
    checkpoint: CheckpointState,
    carry: Option<Carry>,
    cold: Option<u64>,
    /// Segments that do not read as written: never cleaned.
    unclean: Vec<u64>,
    closing: Closing,
    now_ms: u64,
    last_sync_ms: u64,
    last_probe_ms: u64,
    last_append_ms: u64,
    /// No checkpoint and no cleaning before: the last one found no space.
    retry_at_ms: u64,
    window_bytes: u64,
    counted_tables: usize,
    counted_at_ms: u64,
    window_cursor: usize,
    checkpoints: u64,
    checkpoint_index: Index,
    done: Vec<Done>,
}

impl PartitionLog {
    /// Opens or makes the partition's log in `dir` and folds it. Blocks: called on a start-up thread.
    ///
    /// **Errors**: the operating system's, or a newer format. Damage is no error: the partition comes up read-only, and `Recovered` lists it.
    /// **Cost**: one pass over all files of the partition.
    pub fn open(
        environment: &Environment,
        dir: &Path,
        id: PartitionId,
        config: StorageConfig,
        notify: Notify,
        progress: &mut dyn FnMut(RecoveryProgress),
    ) -> Result<(PartitionLog, Recovered), StorageError> {
        let found = recovery::recover(environment, dir, id, &config, notify, progress)?;
        let term = Term(
            found
                .log
                .last_term()
                .max(found.log.bounds().hard_state.term)
                .0
                + 1,
        );
        let log = PartitionLog {
            id,
            term,
            log: found.log,
            ledger: found.ledger,
            windows: found.windows,
            builder: BlockBuilder::new(0),
            put_bytes: 0,
            expected: 4096,
            early: Vec::new(),
            sync_asked: false,
            read_only: !found.recovered.damage.is_empty(),
            marked: found.marked,
            checkpoint: CheckpointState::Idle,
            carry: None,
            cold: None,
            unclean: Vec::new(),
            closing: Closing::No,
            now_ms: 0,
            last_sync_ms: 0,
            last_probe_ms: 0,
            last_append_ms: 0,
            retry_at_ms: 0,
            window_bytes: found.window_bytes,
            window_cursor: 0,
            counted_tables: 0,
            counted_at_ms: 0,
            checkpoints: 0,
            checkpoint_index: found.checkpoint_index,
            done: Vec::new(),
            config,
        };
        Ok((log, found.recovered))
    }

    // Appending.

    /// Creates a queue. Its open is answered when the sequence is durable.
    ///
    /// **Errors**: read-only, or no space.
    pub fn create_queue(&mut self, uri: &str) -> Result<(QueueId, Sequence), StoreError> {
        self.check_space(uri.len() + 64)?;
        let queue = QueueId(self.ledger.next_queue.0.max(1));
        self.ledger.next_queue = QueueId(queue.0 + 1);
        self.ledger.queues.insert(
            queue,
            QueueEntry {
                uri: uri.into(),
                counters: Default::default(),
            },
        );
        let sequence = self.next_sequence();
        self.builder.queue_created(queue, uri);
        Ok((queue, sequence))
    }

    /// Removes a queue whose messages were all settled.
    pub fn remove_queue(&mut self, queue: QueueId) {
        if !self.read_only && self.ledger.queues.remove(&queue).is_some() {
            self.windows.remove(&queue);
            self.builder.queue_removed(queue);
            self.seal_if_large();
        }
    }

    /// Sets how long and how much a queue's duplicate window remembers; default is the configuration's.
    pub fn set_window(&mut self, queue: QueueId, limits: WindowLimits) {
        let window = self
            .windows
            .entry(queue)
            .or_insert_with(|| Window::new(limits));
        window.set_limits(limits);
    }

    /// Where a message with this GUID was stored within the window; it may be settled since.
    #[inline]
    pub fn duplicate(&self, queue: QueueId, guid: &Guid, now_ms: u64) -> Option<Sequence> {
        self.windows.get(&queue)?.find(guid, now_ms)
    }

    /// Somebody waits for a record of this turn to be durable: sync as soon as it is written.
    #[inline]
    pub fn want_sync(&mut self) {
        self.sync_asked = true;
    }

    /// Sequence of the last record appended.
    pub fn appended(&self) -> Sequence {
        if self.builder.is_empty() {
            log::last_sequence(self.log.last())
        } else {
            Sequence(self.next_sequence().0 - 1)
        }
    }

    /// End of the turn: seals the block and hands it to the writer.
    ///
    /// **Cost**: one checksum pass over the block, one lock. Nothing if nothing was appended.
    pub fn flush(&mut self) {
        if !self.is_saving_space() {
            self.seal();
            if std::mem::take(&mut self.sync_asked) {
                self.last_sync_ms = self.now_ms;
                self.log.hand_over();
                return self.log.want_sync();
            }
        }
        self.log.hand_over();
    }

    /// On a full disk settlings are collected: each block costs 80 bytes of what is scarce. While blocks wait for space, in one block.
    fn is_saving_space(&self) -> bool {
        const COLLECT_MS: u64 = 20;
        self.log.is_full()
            && self.builder.len() < self.config.block_bytes
            && (self.log.is_stuck() || self.now_ms < self.last_append_ms + COLLECT_MS)
    }

    fn next_sequence(&self) -> Sequence {
        log::sequence(self.log.last().next(), self.builder.len())
    }

    /// Whether that many bytes of messages may still be appended.
    fn check_space(&self, bytes: usize) -> Result<(), StoreError> {
        if self.read_only {
            return Err(StoreError::ReadOnly);
        }
        if self.log.is_full() {
            // What is left of the current segment is for settling, but for what exceeds the reserve.
            let need = (self.builder.len() + bytes) as u64 + self.config.settling_reserve_bytes();
            if need > self.log.room() || self.log.shared.is_write_full() {
                return Err(StoreError::Full);
            }
        }
        Ok(())
    }

    fn seal_if_large(&mut self) {
        if self.builder.len() >= self.config.block_bytes {
            self.seal();
        }
    }

    fn seal(&mut self) {
        if self.builder.is_empty() {
            return;
        }
        // Falls slowly: a small block at the end of a busy turn says little of the next one.
        let expected = (self.builder.len() * 5 / 4).max(self.expected * 7 / 8);
        self.expected = expected.clamp(4096, self.config.block_bytes + (64 << 10));
        let next = BlockBuilder::reusing(self.expected, &self.log.shared.budget);
        let builder = std::mem::replace(&mut self.builder, next);
        let (index, puts) = (self.log.last().next(), builder.puts());
        let block = self
            .log
            .seal((self.term, index), EntryKind::Normal, builder);
        self.log.append(block.clone());
        let segment = self.log.current();
        if puts > 0 {
            self.ledger
                .add(segment, puts, std::mem::take(&mut self.put_bytes));
        }
        (self.ledger.index, self.ledger.term) = (index, self.term);
        (self.marked, self.last_append_ms) = (false, self.now_ms);
        self.log.keep(block, puts);
        for (message, queue, why) in std::mem::take(&mut self.early) {
            if let Some(place) = self.log.locate(message) {
                self.apply_settle(queue, message, why, &place);
            }
        }
        self.log.trim_cache();
    }

    fn apply_settle(&mut self, queue: QueueId, message: Sequence, why: u8, place: &Place) {
        if self.ledger.settle(place.key.segment, place.offset) {
            self.log.settled(place);
            if let Some(counters) = self.ledger.counters(queue) {
                counters.settled(why);
            }
            if self
                .log
                .places
                .tables
                .get(&place.key.segment)
                .is_some_and(|t| t.role == SegmentRole::Cold)
            {
                self.log.places.carried.remove(&message);
            }
        }
    }

    // Helpers' news.

    /// Takes what the helpers have finished. Called after the notification, or at any time.
    pub fn poll(&mut self) -> Progress {
        let mut done = std::mem::take(&mut self.done);
        self.log.shared.begin_poll(&mut done);
        let mut fetched = false;
        for done in done.drain(..) {
            match done {
                Done::Read(read) => {
                    fetched = true;
                    let ledger = &self.ledger;
                    self.log.take_read(read, |segment, from, to, puts| {
                        ledger.live_between(segment, from, to, puts)
                    });
                }
                Done::Chore(ChoreDone::Prepared { id, ok }) => self.log.prepared(id, ok),
                Done::Chore(ChoreDone::Checkpoint {
                    index,
                    window_bytes,
                }) => self.checkpoint_done(index, window_bytes),
                Done::Chore(ChoreDone::Carried(done)) => self.carried(done),
            }
        }
        self.done = done;
        self.log.update_marks();
        self.log.commit_synced();
        self.log.trim_cache();
        let fault = self.log.shared.fault().cloned();
        self.read_only |= fault.is_some();
        self.advance_checkpoint();
        self.advance_close();
        Progress {
            marks: self.marks(),
            fetched,
            full: self.log.is_full(),
            fault,
            closed: self.closing == Closing::Done,
        }
    }

    /// Watermarks as of the last `poll`.
    pub fn marks(&self) -> Marks {
        let marks = self.log.marks();
        Marks {
            written: log::last_sequence(marks.written),
            synced: log::last_sequence(marks.synced),
        }
    }

    // Housekeeping.

    /// Bounded housekeeping: the periodic sync, preparing segments, checkpoints, cleaning, the windows' expiry, probing for space.
    pub fn tick(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        if self.read_only {
            return;
        }
        self.flush();
        if !self.log.is_quiet() && self.now_ms - self.last_sync_ms >= self.config.sync_interval_ms {
            self.last_sync_ms = self.now_ms;
            self.log.want_sync();
        }
        self.probe();
        self.expire_windows();
        self.count_tables();
        if self.now_ms >= self.retry_at_ms {
            self.start_checkpoint_if_due();
            self.clean();
        }
        self.prepare();
        if self.now_ms - self.last_append_ms >= self.config.mark_after_ms {
            self.mark();
        }
        self.log.trim_cache();
    }

    /// On a full disk, looks from time to time whether there is space again.
    fn probe(&mut self) {
        if self.now_ms - self.last_probe_ms < self.config.probe_interval_ms {
            return;
        }
        if self.log.is_full() {
            self.last_probe_ms = self.now_ms;
            self.log.probe_space();
            self.log.shared.push_chore(Chore::Reserve);
        }
    }

    /// Tells the budget what the tables take, a few times a second.
    fn count_tables(&mut self) {
        const EVERY_MS: u64 = 200;
        if self.now_ms < self.counted_at_ms + EVERY_MS {
            return;
        }
        let bytes = self.table_bytes();
        self.log
            .shared
            .budget
            .tables_changed(self.counted_tables, bytes);
        (self.counted_tables, self.counted_at_ms) = (bytes, self.now_ms);
    }

    fn table_bytes(&self) -> usize {
        self.log.memory_bytes()
            + self.ledger.memory_bytes()
            + self
                .windows
                .values()
                .map(Window::memory_bytes)
                .sum::<usize>()
    }

    fn expire_windows(&mut self) {
        const AT_ONCE: usize = 16;
        let now = self.now_ms;
        self.windows
            .values_mut()
            .skip(self.window_cursor)
            .take(AT_ONCE)
            .for_each(|w| w.expire(now));
        self.window_cursor += AT_ONCE;
        if self.window_cursor >= self.windows.len() {
            self.window_cursor = 0;
        }
    }

    /// When idle, says in the log itself that all of it is committed: damage to its last entries can then be told from a torn tail.
    fn mark(&mut self) {
        let bounds = self.log.bounds();
        if !self.marked && bounds.last.0 > 0 && bounds.synced == bounds.last && self.log.is_quiet()
        {
            self.marked = true;
            self.log.set_hard_state(HardState {
                commit: bounds.last,
                term: self.log.last_term(),
                vote: 0,
            });
            self.log.hand_over();
            self.log.want_sync();
        }
    }

    /// Has the next segment made in time. If one is about to become free, that one is taken, unless time is short.
    fn prepare(&mut self) {
        let room = self.log.room();
        let soon_free = !matches!(self.checkpoint, CheckpointState::Idle) || self.carry.is_some();
        let limit = if soon_free {
            self.log.capacity / 4
        } else {
            self.log.capacity / 2
        };
        if !self.log.has_spare() && room < limit {
            self.log.prepare_spare(None);
        }
    }

    // Checkpoints.

    /// Segments that hold nothing live and take nothing more.
    fn dead(&self) -> Vec<u64> {
        let carrying = self.carry.as_ref().filter(|c| c.busy).map(|c| c.victim);
        let dead = |id: &u64, t: &Table| {
            t.sealed && self.ledger.live_of(*id) == 0 && Some(*id) != carrying
        };
        self.log
            .places
            .tables
            .iter()
            .filter(|(id, t)| dead(id, t))
            .map(|(id, _)| *id)
            .collect()
    }

    fn start_checkpoint_if_due(&mut self) {
        if !self.builder.is_empty()
            || !matches!(self.checkpoint, CheckpointState::Idle)
            || self.carry.as_ref().is_some_and(|c| c.busy)
        {
            return;
        }
        if let Some(cold) = self.cold
            && self.ledger.live_of(cold) == 0
        {
            self.seal_cold();
        }
        // Also once per segment: what the window's files lack stays small enough to be saved on a full disk.
        let begun =
            |t: &Table| t.role == SegmentRole::Hot && t.sealed && t.first > self.checkpoint_index;
        if !self.dead().is_empty() || self.log.places.tables.values().any(begun) {
            self.start_checkpoint();
        }
    }

    /// Takes the picture: a pointer per MiB of log, per queue and per thousand GUIDs.
    fn start_checkpoint(&mut self) {
        debug_assert!(self.builder.is_empty(), "a picture is taken between blocks");
        let covers = self.dead();
        let mut image = self.ledger.image();
        image.next_segment = self.log.next_segment;
        image.segments = self
            .log
            .places
            .tables
            .iter()
            .map(|(id, table)| self.segment_state(*id, table))
            .collect();
        let live: usize = self.windows.values().map(Window::len).sum();
        // Rewritten when most of the files is old. 26: an item and its share of the headers.
        let rewrite = !self.log.is_full() && self.window_bytes > 2 * 26 * live as u64 + (1 << 20);
        let mut runs = Vec::new();
        for (queue, window) in &mut self.windows {
            window.save(*queue, rewrite, &mut runs);
        }
        // One file serves all queues, in the order of the log.
        runs.sort_by_key(|r| r.items.first().map(|i| i.sequence));
        let longest = self
            .windows
            .values()
            .map(Window::duration_ms)
            .max()
            .unwrap_or(0);
        let window_floor_ms = self.now_ms.saturating_sub(longest);
        self.checkpoint = CheckpointState::Waiting(
            Box::new(CheckpointJob {
                image,
                runs,
                rewrite,
                window_floor_ms,
            }),
            covers,
        );
        self.log.want_sync();
        self.advance_checkpoint();
    }

    fn segment_state(&self, id: u64, table: &Table) -> SegmentState {
        let ledger = self.ledger.segments.get(&id);
        let live = ledger.map_or(0, |s| s.live());
        // The current segment takes more messages after this: "all settled" would include them.
        let all_settled = live == 0 && table.sealed;
        let settled = ledger
            .filter(|_| !all_settled)
            .map_or(Bitmap::default(), |s| s.settled.clone());
        SegmentState {
            id,
            role: table.role,
            all_settled,
            length: table.content_end,
            settled,
        }
    }

    fn advance_checkpoint(&mut self) {
        let synced = self.log.marks().synced;
        match std::mem::replace(&mut self.checkpoint, CheckpointState::Idle) {
            CheckpointState::Waiting(job, covers)
                if job.image.index <= synced && !self.read_only =>
            {
                self.log.start_checkpoint(*job);
                self.checkpoint = CheckpointState::Writing(covers);
            }
            other => self.checkpoint = other,
        }
    }

    fn checkpoint_done(&mut self, index: Index, window_bytes: Option<u64>) {
        let state = std::mem::replace(&mut self.checkpoint, CheckpointState::Idle);
        let (CheckpointState::Writing(covers), Some(bytes)) = (state, window_bytes) else {
            // No space. What was to be saved stays in memory and in the log; the next one is tried with the next tick.
            self.windows.values_mut().for_each(Window::unsave);
            self.retry_at_ms = self.now_ms + self.config.probe_interval_ms;
            return;
        };
        self.window_bytes = bytes;
        self.checkpoints += 1;
        self.checkpoint_index = index;
        let mut names = Vec::new();
        for id in covers {
            if let Some((name, fits)) = self.log.retire(id) {
                self.ledger.segments.remove(&id);
                if fits && self.log.probe_with(&name) {
                    continue;
                }
                if fits && !self.log.has_spare() {
                    self.log.prepare_spare(Some(name));
                } else {
                    names.push(name);
                }
            }
        }
        if !names.is_empty() {
            self.log.shared.push_chore(Chore::Remove { names });
        }
    }

    // Cleaning.

    /// **Units**: bytes by which the files exceed three times the live data and two segments, once the next segment is made and the dead ones are gone.
    fn excess(&self) -> u64 {
        let dead: u64 = self
            .dead()
            .iter()
            .filter_map(|id| self.log.places.tables.get(id))
            .map(|t| t.file_bytes(self.log.capacity))
            .sum();
        let next = if !self.log.has_spare() && self.log.room() < self.log.capacity / 2 {
            self.log.capacity
        } else {
            0
        };
        let allowed = 3 * self.ledger.live_bytes() + 2 * self.log.capacity;
        (self.log.disk_bytes() + next).saturating_sub(dead + allowed)
    }

    fn clean(&mut self) {
        if self.carry.is_none() && self.excess() > 0 {
            if self.pick_victim().is_none() {
                // What is open takes part once it is sealed.
                self.seal_cold();
            }
            self.carry = self.pick_victim().map(|victim| Carry {
                victim,
                next_frame: 0,
                busy: false,
            });
        }
        self.carry_step();
    }

    /// The sealed segment with the least live data for its size. One that is mostly live is never moved: that bounds the write amplification.
    fn pick_victim(&self) -> Option<u64> {
        let released = self.log.released();
        let share = |id: u64, t: &Table| {
            self.ledger
                .segments
                .get(&id)
                .map_or(0, |s| s.live_bytes() * 1000)
                / t.end.max(1)
        };
        let eligible = self.log.places.tables.iter().filter(|(id, t)| {
            let released = t.role == SegmentRole::Cold || t.next_index().0 <= released.0 + 1;
            t.sealed && released && self.ledger.live_of(**id) > 0 && !self.unclean.contains(id)
        });
        eligible
            .map(|(id, t)| (share(*id, t), *id))
            .min()
            .filter(|(share, _)| *share < 500)
            .map(|(_, id)| id)
    }

    /// Sends the next piece of the victim to the helper.
    fn carry_step(&mut self) {
        let step = self.config.carry_bytes;
        let Some(Carry {
            victim,
            next_frame,
            busy: false,
        }) = self.carry
        else {
            return;
        };
        let Some(table) = self.log.places.tables.get(&victim) else {
            self.carry = None;
            return;
        };
        if next_frame >= table.frames() || self.ledger.live_of(victim) == 0 {
            self.carry = None;
            return;
        }
        let start = table.frame_offset(next_frame);
        let more =
            (next_frame + 1..table.frames()).take_while(|f| table.frame_end(*f) - start <= step);
        let last = more.last().unwrap_or(next_frame);
        let (frames, end) = (
            (next_frame..=last).map(|f| table.frame_offset(f)).collect(),
            table.frame_end(last),
        );
        let (source, settled) = (
            Arc::clone(&table.segment),
            self.ledger.segments.get(&victim).map(|s| s.settled.clone()),
        );
        let (cold, cold_offset) = self.cold_segment();
        let job = CarryJob {
            victim: source,
            frames,
            end,
            settled: settled.unwrap_or_default(),
            cold,
            cold_offset,
            committed: self.log.bounds().hard_state.commit.0,
        };
        self.carry = Some(Carry {
            victim,
            next_frame: last + 1,
            busy: true,
        });
        self.log.shared.push_chore(Chore::Carry(Box::new(job)));
    }

    /// The segment that takes carried records, and where they go in it.
    fn cold_segment(&mut self) -> (Arc<Segment>, u64) {
        let open = self
            .cold
            .filter(|id| Some(*id) != self.carry.as_ref().map(|c| c.victim));
        if let Some(table) = open
            .and_then(|id| self.log.places.tables.get(&id))
            .filter(|t| t.end < self.log.capacity)
        {
            return (Arc::clone(&table.segment), table.end);
        }
        self.seal_cold();
        let segment = self.log.new_segment(cold_name);
        self.log.places.tables.insert(
            segment.id,
            Table::new(Arc::clone(&segment), SegmentRole::Cold, Index(0)),
        );
        self.cold = Some(segment.id);
        (segment, 0)
    }

    fn seal_cold(&mut self) {
        if let Some(table) = self
            .cold
            .take()
            .and_then(|id| self.log.places.tables.get_mut(&id))
        {
            table.sealed = true;
        }
    }

    /// A piece was carried: its live records have a new place from here on.
    fn carried(&mut self, done: Option<CarryDone>) {
        let Some(carry) = &mut self.carry else { return };
        carry.busy = false;
        let victim = carry.victim;
        let (Some(done), Some(cold)) = (done, self.cold) else {
            // No space, not even in the reserve: later, from the start.
            self.carry = None;
            self.retry_at_ms = self.now_ms + self.config.probe_interval_ms;
            return;
        };
        if done.damaged {
            self.unclean.push(victim);
        }
        let Some(table) = self.log.places.tables.get_mut(&cold) else {
            return;
        };
        done.frames
            .iter()
            .for_each(|offset| table.push_frame(*offset));
        (table.end, table.content_end) = (done.cold_end, done.cold_end);
        let (count, bytes) = (
            done.moved.len() as u32,
            done.moved.iter().map(|m| u64::from(m.bytes)).sum(),
        );
        self.ledger.add(cold, count, bytes);
        for moved in &done.moved {
            // Settled meanwhile: the copy is settled from the start.
            let place = if self.ledger.settle(victim, moved.from) {
                (cold, moved.to)
            } else {
                (0, 0)
            };
            if place.0 == 0 {
                self.ledger.settle(cold, moved.to);
            } else {
                self.log.places.carried.insert(moved.sequence, place);
            }
        }
        self.carry_step();
    }

    // The end.

    /// Begins an orderly end: everything becomes durable and is marked as committed. `Progress::closed` tells when.
    pub fn close(&mut self) {
        if self.closing == Closing::No {
            self.closing = Closing::Asked;
            self.seal();
            self.log.hand_over();
            self.log.want_sync();
            self.advance_close();
        }
    }

    fn advance_close(&mut self) {
        if self.closing != Closing::Asked {
            return;
        }
        if !self.read_only {
            self.mark();
        }
        let idle = !matches!(self.checkpoint, CheckpointState::Writing(_))
            && !self.carry.as_ref().is_some_and(|c| c.busy);
        if self.read_only || (self.log.is_quiet() && idle) {
            self.closing = Closing::Done;
        }
    }

    /// Whether the partition takes nothing more, after a fault or because it is damaged.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Which partition this is.
    pub fn id(&self) -> PartitionId {
        self.id
    }

    /// The log below, as replication sees it.
    pub fn replicated(&mut self) -> &mut impl ReplicatedLog {
        &mut self.log
    }

    /// Figures. **Cost**: some microseconds per hundred segments and queues.
    pub fn stats(&self) -> StorageStats {
        let mut stats = StorageStats::default();
        self.log.shared.stats.fill(&mut stats);
        let marks = self.log.marks();
        let windows = || self.windows.values();
        StorageStats {
            segments: self.log.places.tables.len() + usize::from(self.log.has_spare()),
            disk_bytes: self.log.disk_bytes(),
            live_messages: self.ledger.live(),
            live_bytes: self.ledger.live_bytes(),
            unwritten_entries: self.log.last().0 - marks.written.0,
            unsynced_entries: self.log.last().0 - marks.synced.0,
            checkpoints: self.checkpoints,
            checkpoint_index: self.checkpoint_index.0,
            window_entries: windows().map(|w| w.len() as u64).sum(),
            window_shortened: windows().map(Window::shortened).sum(),
            table_bytes: self.table_bytes() as u64,
            block_bytes: self.log.shared.budget.used() as u64,
            full: self.log.is_full(),
            ..stats
        }
    }
}

impl Drop for PartitionLog {
    fn drop(&mut self) {
        self.log
            .shared
            .budget
            .tables_changed(self.counted_tables, 0);
    }
}

impl MessageStore for PartitionLog {
    fn put(&mut self, queue: QueueId, message: &NewMessage<'_>) -> Result<Sequence, StoreError> {
        let bytes = (PUT_HEADER_LEN + message.data.len()).next_multiple_of(8);
        self.check_space(bytes)?;
        // Times in the log never go back, whatever the wall clock does.
        let accepted_at_ms = message.accepted_at_ms.max(self.ledger.clock_ms);
        self.ledger.clock_ms = accepted_at_ms;
        let sequence = self.next_sequence();
        self.builder.put(queue, accepted_at_ms, message);
        self.put_bytes += bytes as u64;
        if let Some(counters) = self.ledger.counters(queue) {
            counters.put += 1;
        }
        let limits = self.config.window;
        self.windows
            .entry(queue)
            .or_insert_with(|| Window::new(limits))
            .insert(message.guid, sequence, accepted_at_ms);
        self.seal_if_large();
        Ok(sequence)
    }

    fn settle(&mut self, queue: QueueId, message: Sequence, why: Settled) {
        if self.read_only {
            return;
        }
        if log::place(message).0 > self.log.last() {
            self.early.push((message, queue, why as u8));
        } else {
            let Some(place) = self.log.locate(message) else {
                return;
            };
            if self.ledger.is_settled(place.key.segment, place.offset) {
                return;
            }
            self.apply_settle(queue, message, why as u8, &place);
        }
        self.builder.settle(queue, why as u8, message);
        self.seal_if_large();
    }

    fn fetch(&mut self, queue: QueueId, message: Sequence) -> Fetch<'_> {
        self.log.fetch(queue, message, &self.ledger)
    }
}

const _: () = assert!(ENTRY_HEADER_LEN.is_multiple_of(8) && PUT_HEADER_LEN.is_multiple_of(8));
