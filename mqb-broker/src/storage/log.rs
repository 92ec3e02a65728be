//! The log of one partition as its processor holds it: where each entry is, what is in memory, and what goes to the helpers.
//!
//! Owned by: the partition's processor. Memory: 4 bytes per entry (a block), nothing per message.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashSet;
use mqb_core::Sequence;
use mqb_core::log::{
    self, EntryKind, FrameHeader, FrameKind, HardState, Index, SegmentInfo, SegmentRole, Term, crc,
    frame_len,
};
use mqb_queue::Fetch;

use super::block::{Block, BlockBuilder};
use super::cache::{BlockKey, Cache};
use super::chore::{CheckpointJob, Chore};
use super::error::Fault;
use super::places::{Place, Places, Table, hot_name};
use super::reader::{ReadDone, ReadJob};
use super::seam::{Bounds, FoldImage, LogMarks, Read, ReplicatedLog, Ticket};
use super::shared::{Segment, Shared};
use super::writer::{Content, WriteJob};

/// **Units**: bytes read at once when a block is not in memory; the blocks that follow it are likely to be next.
const READ_AHEAD: usize = 1 << 20;

/// The segment that follows the current one.
enum Spare {
    None,
    /// Being made, or ready if it has a file.
    Made(Arc<Segment>),
    /// There was no space for it.
    Failed(Arc<Segment>),
}

/// See the module.
pub(crate) struct EntryLog {
    pub(crate) shared: Arc<Shared>,
    pub(crate) capacity: u64,
    pub(crate) places: Places,
    current: u64,
    tail: u64,
    spare: Spare,
    /// Files of segments that the helper is asked to make.
    preparing: u32,
    /// There was no space for the file of a segment for which records wait in memory.
    starved: bool,
    pub(crate) next_segment: u64,
    pub(crate) start: Index,
    start_term: Term,
    last: Index,
    /// First index of each run of one term.
    terms: VecDeque<(Index, Term)>,
    /// Entries that are not plain records.
    special: BTreeMap<Index, EntryKind>,
    hard_state: HardState,
    released: Index,
    marks: LogMarks,
    next_ticket: u64,
    /// Index that each ticket in flight stands for.
    in_flight: VecDeque<(Ticket, Index)>,
    synced_behind: VecDeque<(Ticket, Index)>,
    outbox: Vec<WriteJob>,
    cache: Cache,
    reading: HashSet<BlockKey>,
    lost: HashSet<BlockKey>,
    /// To be kept although nothing in them is live: a replica reads them.
    whole: HashSet<BlockKey>,
    read_ahead: Option<(BlockKey, BlockKey)>,
}

/// What recovery found.
pub(crate) struct LogState {
    pub(crate) places: Places,
    pub(crate) spare: Option<Arc<Segment>>,
    pub(crate) next_segment: u64,
    pub(crate) last: Index,
    pub(crate) terms: VecDeque<(Index, Term)>,
    pub(crate) special: BTreeMap<Index, EntryKind>,
    pub(crate) hard_state: HardState,
}

impl EntryLog {
    pub(crate) fn new(shared: Arc<Shared>, capacity: u64, state: LogState) -> EntryLog {
        let current = state.places.hot.back().map_or(0, |h| h.1);
        let tail = state.places.tables.get(&current).map_or(0, |t| t.end);
        let cache = Cache::new(Arc::clone(&shared.budget));
        let (last, ticket) = (state.last, Ticket(shared.written()));
        // What came before the first entry that is here is not known; its term is at most this.
        let start_term = state.terms.front().map_or(state.hard_state.term, |t| t.1);
        let mut log = EntryLog {
            capacity,
            current,
            tail,
            spare: state.spare.map_or(Spare::None, Spare::Made),
            places: state.places,
            preparing: 0,
            starved: false,
            next_segment: state.next_segment,
            start: Index(0),
            start_term,
            last,
            terms: state.terms,
            special: state.special,
            hard_state: HardState {
                commit: last,
                ..state.hard_state
            },
            released: last,
            marks: LogMarks {
                written: last,
                synced: last,
                written_ticket: ticket,
                synced_ticket: ticket,
            },
            next_ticket: ticket.0,
            in_flight: VecDeque::new(),
            synced_behind: VecDeque::new(),
            outbox: Vec::new(),
            cache,
            reading: HashSet::new(),
            lost: HashSet::new(),
            whole: HashSet::new(),
            read_ahead: None,
            shared,
        };
        log.advance_start();
        log
    }

    /// Where the record with this sequence is.
    #[inline]
    pub(crate) fn locate(&self, sequence: Sequence) -> Option<Place> {
        self.places.locate(sequence)
    }

    pub(crate) fn last(&self) -> Index {
        self.last
    }

    pub(crate) fn last_term(&self) -> Term {
        self.terms.back().map_or(self.start_term, |t| t.1)
    }

    pub(crate) fn current(&self) -> u64 {
        self.current
    }

    pub(crate) fn released(&self) -> Index {
        self.released
    }

    // Space.

    /// Whether the next segment could not be made, a write found no room, or the reserve is in use.
    pub(crate) fn is_full(&self) -> bool {
        self.starved
            || matches!(self.spare, Spare::Failed(_))
            || self.shared.is_write_full()
            || self
                .shared
                .reserve_missing
                .load(std::sync::atomic::Ordering::Relaxed)
    }

    /// **Units**: bytes left in the current segment; 0 while it has no file.
    pub(crate) fn room(&self) -> u64 {
        let has_file = self
            .places
            .tables
            .get(&self.current)
            .is_some_and(|t| t.segment.file().is_some());
        if has_file {
            self.capacity.saturating_sub(self.tail)
        } else {
            0
        }
    }

    pub(crate) fn has_spare(&self) -> bool {
        self.starved || !matches!(self.spare, Spare::None)
    }

    /// **Units**: bytes of all files of the log.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let spare = if matches!(self.spare, Spare::Made(_)) {
            self.capacity
        } else {
            0
        };
        self.places
            .tables
            .values()
            .map(|t| t.file_bytes(self.capacity))
            .sum::<u64>()
            + spare
    }

    /// Has the next segment made, out of `recycle` if given.
    pub(crate) fn prepare_spare(&mut self, recycle: Option<String>) {
        debug_assert!(matches!(self.spare, Spare::None));
        let segment = self.new_segment(hot_name);
        self.spare = Spare::Made(Arc::clone(&segment));
        self.push_prepare(segment, recycle);
    }

    fn push_prepare(&mut self, segment: Arc<Segment>, recycle: Option<String>) {
        // Records wait for it in memory: it may take the reserve, and what little space there is.
        let urgent = self.places.tables.contains_key(&segment.id);
        let capacity = self.capacity;
        self.preparing += 1;
        self.shared.push_chore(Chore::Prepare {
            segment,
            capacity,
            recycle,
            urgent,
        });
    }

    /// The segment whose file is missing most: one for which records wait, else the next one.
    fn missing_segment(&self) -> Option<Arc<Segment>> {
        let waiting = self
            .places
            .tables
            .values()
            .find(|t| t.role == SegmentRole::Hot && t.segment.file().is_none());
        match (waiting, &self.spare) {
            (Some(table), _) => Some(Arc::clone(&table.segment)),
            (None, Spare::Failed(segment)) => Some(Arc::clone(segment)),
            _ => None,
        }
    }

    /// Tries again to make the segment for which there was no space.
    pub(crate) fn probe_space(&mut self) {
        if self.preparing == 0
            && let Some(segment) = self.missing_segment()
        {
            self.push_prepare(segment, None);
        }
        if self.shared.is_write_full() {
            self.shared.push_chore(Chore::Release);
        }
    }

    /// With a file that became free, space need not come from elsewhere. Tells whether it is taken.
    pub(crate) fn probe_with(&mut self, recycle: &str) -> bool {
        let missing = self.missing_segment().filter(|_| self.preparing == 0);
        missing
            .map(|segment| self.push_prepare(segment, Some(recycle.to_owned())))
            .is_some()
    }

    /// Whether records wait in memory for space.
    pub(crate) fn is_stuck(&self) -> bool {
        self.is_full() && (self.shared.is_write_full() || self.room() == 0)
    }

    /// A segment's file was made, or there was no space for it.
    pub(crate) fn prepared(&mut self, id: u64, ok: bool) {
        self.preparing = self.preparing.saturating_sub(1);
        if self.places.tables.contains_key(&id) {
            self.starved = !ok;
            if ok
                && self.preparing == 0
                && let Some(next) = self.missing_segment()
            {
                self.push_prepare(next, None);
            }
            return;
        }
        self.spare = match std::mem::replace(&mut self.spare, Spare::None) {
            Spare::Made(s) if s.id == id && !ok => Spare::Failed(s),
            Spare::Failed(s) if s.id == id && ok => Spare::Made(s),
            other => other,
        };
    }

    pub(crate) fn new_segment(&mut self, name: fn(u64) -> String) -> Arc<Segment> {
        let id = self.next_segment;
        self.next_segment += 1;
        Segment::new(id, name(id))
    }

    /// Forgets a segment that is not needed any more; returns the name of its file and whether it can be used again.
    pub(crate) fn retire(&mut self, id: u64) -> Option<(String, bool)> {
        let table = self.places.tables.remove(&id)?;
        for frame in 0..table.frames() {
            let key = BlockKey {
                segment: id,
                frame: frame as u32,
            };
            self.cache.remove(key);
            self.lost.remove(&key);
        }
        if table.role == SegmentRole::Hot {
            self.places.hot.retain(|(_, h)| *h != id);
            self.advance_start();
        }
        let fits = table.role == SegmentRole::Hot
            && table.end <= self.capacity
            && table.segment.file().is_some();
        Some((table.segment.name.clone(), fits))
    }

    /// `start` is the last index below which something may be missing.
    fn advance_start(&mut self) {
        let mut start = self.last;
        for (first, id) in self.places.hot.iter().rev() {
            let Some(table) = self.places.tables.get(id) else {
                break;
            };
            if table.next_index().0 <= start.0 {
                break;
            }
            start = Index(first.0 - 1);
        }
        if start > self.start {
            self.start_term = self.term_of(start).unwrap_or(self.start_term);
            self.start = start;
            while self
                .terms
                .get(1)
                .is_some_and(|(first, _)| first.0 <= start.0 + 1)
            {
                self.terms.pop_front();
            }
        }
    }

    // Appending.

    fn roll(&mut self, first: Index) {
        let segment = match std::mem::replace(&mut self.spare, Spare::None) {
            Spare::Made(segment) => segment,
            Spare::Failed(segment) => {
                self.starved = true;
                segment
            }
            Spare::None => {
                self.prepare_spare(None);
                return self.roll(first);
            }
        };
        if let Some(table) = self.places.tables.get_mut(&self.current) {
            table.sealed = true;
        }
        let id = segment.id;
        self.places.tables.insert(
            id,
            Table::new(Arc::clone(&segment), SegmentRole::Hot, first),
        );
        self.places.hot.push_back((first, id));
        (self.current, self.tail) = (id, 0);
        let info = SegmentInfo {
            role: SegmentRole::Hot,
            first_index: first,
            capacity: self.capacity,
        };
        self.push_small(FrameKind::Segment, info.encode());
    }

    fn push_small(&mut self, kind: FrameKind, content: [u8; 24]) -> Ticket {
        let header = self.frame_header(kind, content.len(), crc(&content));
        self.push_job(header, Content::Small(content), content.len())
    }

    fn frame_header(&self, kind: FrameKind, length: usize, content_crc: u32) -> FrameHeader {
        let length = u32::try_from(length).expect("a block is sealed at 1 MiB and one message");
        let committed = self.hard_state.commit.0;
        FrameHeader {
            kind,
            partition: self.shared.id.0,
            epoch: self.current,
            committed,
            length,
            content_crc,
        }
    }

    fn push_job(&mut self, header: FrameHeader, content: Content, len: usize) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        let table = self
            .places
            .tables
            .get_mut(&self.current)
            .expect("the current segment has a table");
        self.outbox.push(WriteJob {
            segment: Arc::clone(&table.segment),
            offset: self.tail,
            header: header.encode(),
            content,
            index: ticket.0,
        });
        self.tail += frame_len(len) as u64;
        table.end = self.tail;
        ticket
    }

    /// Hands over what was appended. One lock, whatever it is.
    pub(crate) fn hand_over(&mut self) {
        if !self.outbox.is_empty() {
            self.shared.push_writes(&mut self.outbox);
        }
    }

    pub(crate) fn want_sync(&self) {
        self.shared.want_sync(self.next_ticket);
    }

    /// Whether everything that was appended is durable.
    pub(crate) fn is_quiet(&self) -> bool {
        self.marks.synced_ticket.0 == self.next_ticket && self.outbox.is_empty()
    }

    /// Looks at the helpers' watermarks, unless there is a fault: nothing counts that became so after it.
    pub(crate) fn update_marks(&mut self) -> LogMarks {
        let (written, synced) = (Ticket(self.shared.written()), Ticket(self.shared.synced()));
        if self.shared.fault().is_some() {
            return self.marks;
        }
        while let Some(&(ticket, index)) = self.in_flight.front().filter(|f| f.0 <= written) {
            self.marks.written = index;
            self.in_flight.pop_front();
            self.synced_behind.push_back((ticket, index));
        }
        while let Some(&(_, index)) = self.synced_behind.front().filter(|f| f.0 <= synced) {
            self.marks.synced = index;
            self.synced_behind.pop_front();
        }
        (self.marks.written_ticket, self.marks.synced_ticket) = (written, synced);
        self.marks
    }

    /// Everything that is synced is committed: there is nobody else.
    pub(crate) fn commit_synced(&mut self) {
        self.hard_state.commit = self.hard_state.commit.max(self.marks.synced);
        self.hard_state.term = self.hard_state.term.max(self.last_term());
        let commit = self.hard_state.commit;
        self.release(commit);
    }

    pub(crate) fn marks(&self) -> LogMarks {
        self.marks
    }

    /// Cuts index and all after it out of the tables; the frames stay in the files until recovery sees them superseded.
    fn supersede(&mut self, index: Index) {
        assert!(
            index > self.hard_state.commit && index > self.released,
            "a committed entry is never replaced"
        );
        while self
            .places
            .hot
            .back()
            .is_some_and(|(first, _)| *first >= index)
            && self.places.hot.len() > 1
        {
            let Some((_, id)) = self.places.hot.pop_back() else {
                break;
            };
            if let Some(table) = self.places.tables.get_mut(&id) {
                (table.sealed, table.first) = (true, index);
                table.truncate(0);
            }
        }
        if let Some((first, id)) = self.places.hot.back().copied()
            && let Some(table) = self.places.tables.get_mut(&id)
        {
            for frame in (index.0 - first.0) as usize..table.frames() {
                self.cache.remove(BlockKey {
                    segment: id,
                    frame: frame as u32,
                });
            }
            table.truncate((index.0 - first.0) as usize);
        }
        let before = Index(index.0 - 1);
        while self.terms.back().is_some_and(|(first, _)| *first >= index) {
            self.terms.pop_back();
        }
        self.special.retain(|i, _| *i < index);
        for flight in self.in_flight.iter_mut().chain(&mut self.synced_behind) {
            flight.1 = flight.1.min(before);
        }
        self.marks.written = self.marks.written.min(before);
        self.marks.synced = self.marks.synced.min(before);
        self.last = before;
    }

    // Reading.

    /// A message's data.
    pub(crate) fn fetch(
        &mut self,
        queue: mqb_core::QueueId,
        sequence: Sequence,
        settled: &dyn Settled,
    ) -> Fetch<'_> {
        let Some(place) = self.locate(sequence) else {
            // Still in the block being built: nobody may deliver it yet.
            return if log::place(sequence).0 > self.last {
                Fetch::Later
            } else {
                Fetch::Lost
            };
        };
        if !self.cache.contains(place.key) {
            if self.lost.contains(&place.key) {
                return Fetch::Lost;
            }
            self.request(place.key, settled);
            return Fetch::Later;
        }
        if let Some((trigger, next)) = self.read_ahead
            && place.key >= trigger
            && place.key.segment == trigger.segment
        {
            self.read_ahead = None;
            self.request(next, settled);
        }
        match self
            .cache
            .get(place.key)
            .and_then(|block| block.message(place.in_content))
        {
            Some((q, stored)) if q == queue => Fetch::Ready(stored),
            _ => Fetch::Lost,
        }
    }

    /// Has a frame and those behind it read, as far as they are not here.
    fn request(&mut self, key: BlockKey, settled: &dyn Settled) {
        let Some(table) = self.places.tables.get(&key.segment) else {
            return;
        };
        let first = key.frame as usize;
        if first >= table.frames() || self.reading.contains(&key) || !self.is_written(key) {
            return;
        }
        let offset = table.frame_offset(first);
        let (mut frames, mut end, mut frame) = (Vec::new(), offset, first);
        while frame < table.frames()
            && (frame == first || table.frame_end(frame) - offset <= READ_AHEAD as u64)
        {
            let next = BlockKey {
                segment: key.segment,
                frame: frame as u32,
            };
            let (from, to) = (table.frame_offset(frame), table.frame_end(frame));
            let skip = self.cache.contains(next)
                || self.reading.contains(&next)
                || self.lost.contains(&next);
            if frame != first && (skip || !self.is_written(next)) {
                break;
            }
            // What is settled is not worth memory, but reading on over it is what makes the next fetch a hit.
            if frame == first || settled.has_live(key.segment, from, to) {
                frames.push((next, (from - offset) as usize));
            }
            end = to;
            frame += 1;
        }
        if frame < table.frames() {
            self.read_ahead = Some((
                key,
                BlockKey {
                    segment: key.segment,
                    frame: frame as u32,
                },
            ));
        } else if let Some(next) = self.next_hot(key.segment) {
            self.read_ahead = Some((
                key,
                BlockKey {
                    segment: next,
                    frame: 0,
                },
            ));
        }
        self.reading.extend(frames.iter().map(|f| f.0));
        let segment = Arc::clone(&table.segment);
        self.shared.push_read(ReadJob {
            segment,
            offset,
            len: (end - offset) as usize,
            frames,
        });
    }

    fn next_hot(&self, id: u64) -> Option<u64> {
        let at = self.places.hot.iter().position(|(_, h)| *h == id)?;
        self.places.hot.get(at + 1).map(|(_, next)| *next)
    }

    fn is_written(&self, key: BlockKey) -> bool {
        match self.places.tables.get(&key.segment) {
            Some(t) if t.role == SegmentRole::Hot => {
                t.first.0 + u64::from(key.frame) <= self.marks.written.0
            }
            _ => true,
        }
    }

    /// Takes blocks that were read. `live` tells how many messages between two offsets of a segment are not settled, of so many.
    pub(crate) fn take_read(&mut self, done: ReadDone, live: impl Fn(u64, u64, u64, u32) -> u32) {
        for (key, block) in done.blocks {
            self.reading.remove(&key);
            let Some(table) = self.places.tables.get(&key.segment) else {
                continue;
            };
            match block {
                Some(block) => {
                    let (from, to) = (
                        table.frame_offset(key.frame as usize),
                        table.frame_end(key.frame as usize),
                    );
                    let live = live(key.segment, from, to, block.puts())
                        .max(self.whole.remove(&key).into());
                    self.cache.insert_read(key, block, live);
                }
                None => {
                    self.lost.insert(key);
                }
            }
        }
    }

    pub(crate) fn settled(&mut self, place: &Place) {
        self.cache.settled(place.key);
    }

    /// Puts the block just appended into memory for its `live` messages.
    pub(crate) fn keep(&mut self, block: Block, live: u32) {
        if let Some(place) = self.locate(log::sequence(block.header().index, 0)) {
            self.cache.insert(place.key, block, live);
        }
    }

    /// Lets blocks leave memory.
    pub(crate) fn trim_cache(&mut self) {
        let (tables, written) = (&self.places.tables, self.marks.written);
        self.cache.trim(|key| {
            tables.get(&key.segment).is_some_and(|t| {
                t.role == SegmentRole::Hot && t.first.0 + u64::from(key.frame) > written.0
            })
        });
    }

    /// **Units**: bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        // A map node of 11 slots, two thirds full, for each carried record.
        self.places
            .tables
            .values()
            .map(Table::memory_bytes)
            .sum::<usize>()
            + self.places.carried.len() * 36
    }
}

/// Who knows what is settled.
pub(crate) trait Settled {
    /// Whether something between two offsets of a segment may be live.
    fn has_live(&self, segment: u64, from: u64, to: u64) -> bool;
}

impl ReplicatedLog for EntryLog {
    fn bounds(&self) -> Bounds {
        Bounds {
            start: self.start,
            start_term: self.start_term,
            last: self.last,
            synced: self.marks.synced,
            hard_state: self.hard_state,
        }
    }

    fn term_of(&self, index: Index) -> Option<Term> {
        if index == self.start {
            return Some(self.start_term);
        }
        if index < self.start || index > self.last {
            return None;
        }
        let at = self.terms.partition_point(|(first, _)| *first <= index);
        at.checked_sub(1).map(|at| self.terms[at].1)
    }

    fn kind_of(&self, index: Index) -> Option<EntryKind> {
        (index > self.start && index <= self.last)
            .then(|| self.special.get(&index).copied().unwrap_or_default())
    }

    fn seal(
        &mut self,
        (term, index): (Term, Index),
        kind: EntryKind,
        block: BlockBuilder,
    ) -> Block {
        block.seal(kind, term, index, &self.shared.budget)
    }

    fn append(&mut self, block: Block) -> Ticket {
        let header = *block.header();
        if header.index <= self.last {
            self.supersede(header.index);
        }
        assert_eq!(
            header.index,
            self.last.next(),
            "entries are appended in order"
        );
        assert!(header.term >= self.last_term(), "terms never fall");
        let behind = self
            .places
            .tables
            .get(&self.current)
            .is_none_or(|t| header.index < t.first || t.sealed);
        let used = self.tail > frame_len(SegmentInfo::LEN) as u64;
        if behind || (used && self.tail + frame_len(block.len()) as u64 > self.capacity) {
            self.roll(header.index);
        }
        if self.terms.back().is_none_or(|t| t.1 != header.term) {
            self.terms.push_back((header.index, header.term));
        }
        if header.kind != EntryKind::Normal {
            self.special.insert(header.index, header.kind);
        }
        let offset = self.tail;
        let table = self
            .places
            .tables
            .get_mut(&self.current)
            .expect("there is a current segment after a roll");
        if table.frames() == 0 {
            table.first = header.index;
            if let Some(hot) = self.places.hot.back_mut() {
                hot.0 = header.index;
            }
        }
        table.push_frame(offset);
        let frame = self.frame_header(FrameKind::Entry, block.len(), header.crc);
        let len = block.len();
        let ticket = self.push_job(frame, Content::Block(block), len);
        let tail = self.tail;
        if let Some(table) = self.places.tables.get_mut(&self.current) {
            table.content_end = tail;
        }
        self.last = header.index;
        self.in_flight.push_back((ticket, header.index));
        ticket
    }

    fn set_hard_state(&mut self, state: HardState) -> Ticket {
        let now = self.hard_state;
        assert!(
            state.term >= now.term && state.commit >= now.commit && state.commit <= self.last,
            "a hard state never goes back"
        );
        self.hard_state = state;
        if self.tail + frame_len(HardState::LEN) as u64 > self.capacity || self.current == 0 {
            self.roll(self.last.next());
        }
        self.push_small(FrameKind::HardState, state.encode())
    }

    fn watermarks(&mut self) -> Result<LogMarks, Fault> {
        let marks = self.update_marks();
        self.shared
            .fault()
            .map_or(Ok(marks), |fault| Err(fault.clone()))
    }

    fn read(&mut self, range: Range<Index>, max_bytes: usize) -> Read {
        let (mut blocks, mut bytes) = (Vec::new(), 0);
        let mut index = range.start;
        while index < range.end && index <= self.last && (blocks.is_empty() || bytes < max_bytes) {
            let Some(place) = self
                .locate(log::sequence(index, 0))
                .filter(|_| index > self.start)
            else {
                return Read::Gone;
            };
            match self.cache.get(place.key) {
                Some(block) => {
                    bytes += block.len();
                    blocks.push(block.clone());
                }
                None if self.lost.contains(&place.key) => return Read::Gone,
                None if !blocks.is_empty() => break,
                None => {
                    self.whole.insert(place.key);
                    self.request(place.key, &Everything);
                    return Read::Later;
                }
            }
            index = index.next();
        }
        Read::Ready(blocks)
    }

    fn release(&mut self, upto: Index) {
        self.released = self.released.max(upto);
    }

    fn checkpoint(&mut self, image: FoldImage) {
        let job = CheckpointJob {
            image,
            runs: Vec::new(),
            rewrite: false,
            window_floor_ms: 0,
        };
        self.start_checkpoint(job);
    }
}

impl EntryLog {
    pub(crate) fn start_checkpoint(&mut self, job: CheckpointJob) {
        assert!(
            job.image.index <= self.marks.synced.min(self.hard_state.commit),
            "a checkpoint holds only what is durable"
        );
        self.shared.push_chore(Chore::Checkpoint(Box::new(job)));
    }
}

/// Nothing is skipped: a replica needs whole entries.
struct Everything;

impl Settled for Everything {
    fn has_live(&self, _: u64, _: u64, _: u64) -> bool {
        true
    }
}
