//! Recovery: one pass over a partition's files, in which everything that is in them is verified and folded.
//!
//! Only records decide; no clock is read. Where bytes are bad the question is whether anyone was told that they are durable: frames say in
//! their headers what was committed when they were written, and the checkpoint says how far it goes. Bad bytes that no one vouched for are the
//! torn tail of the last writes and are cut. Anything else is damage: it is reported, reading goes on behind it, and the partition comes
//! up read-only, with its files untouched. Running it again changes nothing.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use hashbrown::HashMap;
use mqb_core::log::{
    self, Checkpoint, EntryHeader, FRAME_HEADER_LEN, Frame, FrameHeader, FrameKind, HardState,
    Index, LogError, QueueCounters, Record, Records, SegmentInfo, SegmentRole, Term, WindowFile,
    carried_items, find_frame,
};
use mqb_core::{Guid, PartitionId, QueueId, Sequence};
use mqb_queue::DataFormat;

use super::chore::{
    CHECKPOINT, CHECKPOINT_TMP, Tending, WindowFileState, restore_reserve, window_name,
};
use super::disk::{DiskFile, OpenMode, read_full};
use super::error::{Damage, DamageKind, StorageError};
use super::ledger::{Ledger, QueueEntry};
use super::log::{EntryLog, LogState};
use super::places::{Places, Table, cold_name, hot_name};
use super::seam::Fold;
use super::shared::{Notify, Segment, Shared};
use super::window::Window;
use super::window_files::{LoadedWindows, WindowFiles};
use super::{Environment, StorageConfig};

/// How far recovery is. Units of `done` and `total`: bytes of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveryProgress {
    /// Which partition.
    pub partition: PartitionId,
    /// Read so far.
    pub done: u64,
    /// To be read.
    pub total: u64,
}

/// What an engine needs of a live message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveredMessage {
    /// Its place.
    pub sequence: Sequence,
    /// Its GUID.
    pub guid: Guid,
    /// Encoding of its data.
    pub format: DataFormat,
    /// **Units**: bytes of data.
    pub len: u32,
    /// **Units**: ms since the Unix epoch.
    pub accepted_at_ms: u64,
}

/// A queue that exists.
#[derive(Clone, Debug)]
pub struct RecoveredQueue {
    /// Its number.
    pub id: QueueId,
    /// Its name, as it was created.
    pub uri: Arc<str>,
    /// What is not settled, in order of sequence.
    pub live: Vec<RecoveredMessage>,
    /// What went through it since it was created.
    pub counters: QueueCounters,
}

/// What recovery found.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Queues by id.
    pub queues: Vec<RecoveredQueue>,
    /// Where durable bytes are bad. If there is any, the partition is read-only.
    pub damage: Vec<Damage>,
    /// **Units**: bytes of whole frames behind the torn one that were cut; nobody had been told that they are durable.
    pub cut_bytes: u64,
    /// **Units**: bytes of files read.
    pub bytes: u64,
    /// Entries folded.
    pub entries: u64,
}

/// The opened log and what was folded from it.
pub(crate) struct Found {
    pub(crate) log: EntryLog,
    pub(crate) ledger: Ledger,
    pub(crate) windows: HashMap<QueueId, Window>,
    pub(crate) recovered: Recovered,
    pub(crate) marked: bool,
    pub(crate) window_bytes: u64,
    pub(crate) checkpoint_index: Index,
}

/// See the module. Blocks.
pub(crate) fn recover(
    environment: &Environment,
    dir: &Path,
    id: PartitionId,
    config: &StorageConfig,
    notify: Notify,
    progress: &mut dyn FnMut(RecoveryProgress),
) -> Result<Found, StorageError> {
    let disk = &*environment.disk;
    disk.create_dir(dir)
        .map_err(StorageError::io("creating directory", dir))?;
    let mut superseded = HashSet::new();
    loop {
        let mut recovery = Recovery::new(environment, dir, id, config, progress);
        recovery.skip.clone_from(&superseded);
        let files = recovery.list()?;
        recovery.read_checkpoint(&files)?;
        recovery.find_missing(&files);
        let windows = recovery.window_files(&files);
        std::thread::scope(|scope| {
            let windows = scope.spawn(move || windows.load());
            recovery.read_cold(&files)?;
            recovery.read_hot(&files)?;
            let windows = windows
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            recovery.take_windows(windows?);
            Ok::<(), StorageError>(())
        })?;
        if recovery.superseded.is_empty() {
            return recovery.finish(&files, notify);
        }
        // Entries that a later one replaced were folded. All is read again without them: rare (a deposed primary), and simple to get right.
        superseded.extend(recovery.superseded);
    }
}

/// Names in the directory, by kind, in order.
struct Files {
    hot: Vec<u64>,
    cold: Vec<u64>,
    windows: Vec<u64>,
    checkpoint: bool,
    tmp: bool,
}

/// End of the log.
struct Cut {
    segment: u64,
    offset: u64,
    /// Whole frames stand behind: they must go, or new frames could lead to them.
    wipe: bool,
}

struct Recovery<'a> {
    environment: &'a Environment,
    dir: &'a Path,
    id: PartitionId,
    config: &'a StorageConfig,
    progress: &'a mut dyn FnMut(RecoveryProgress),
    done: u64,
    total: u64,
    checkpoint: Checkpoint,
    /// Bytes of each segment that the checkpoint vouches for.
    vouched: HashMap<u64, u64>,
    /// Segments in which nothing is live by the checkpoint.
    all_settled: HashSet<u64>,
    ledger: Ledger,
    places: Places,
    messages: HashMap<QueueId, Vec<RecoveredMessage>>,
    cold_messages: BTreeMap<Sequence, (QueueId, RecoveredMessage)>,
    windows: HashMap<QueueId, Window>,
    /// Messages later than the checkpoint, for the windows.
    seen: Vec<(QueueId, Guid, Sequence, u64)>,
    window_files: Vec<WindowFileState>,
    damage: Vec<Damage>,
    files: HashMap<u64, Arc<dyn DiskFile>>,
    /// Segments that may hold bytes that are not durable yet.
    unsynced: Vec<u64>,
    next: Index,
    terms: std::collections::VecDeque<(Index, Term)>,
    special: BTreeMap<Index, log::EntryKind>,
    hard_state: HardState,
    /// Highest index that a frame read so far says is committed.
    committed: u64,
    marked: bool,
    settled_since: bool,
    /// Frames whose index a later frame takes: segment and offset.
    skip: HashSet<(u64, u64)>,
    /// Such frames that were found after they were folded.
    superseded: Vec<(u64, u64)>,
    unused: Vec<u64>,
    cut: Option<Cut>,
    wiped: Vec<u64>,
    cut_bytes: u64,
    entries: u64,
}

impl<'a> Recovery<'a> {
    fn new(
        environment: &'a Environment,
        dir: &'a Path,
        id: PartitionId,
        config: &'a StorageConfig,
        progress: &'a mut dyn FnMut(RecoveryProgress),
    ) -> Self {
        Recovery {
            environment,
            dir,
            id,
            config,
            progress,
            done: 0,
            total: 0,
            checkpoint: Checkpoint::default(),
            vouched: HashMap::new(),
            all_settled: HashSet::new(),
            ledger: Ledger::default(),
            places: Places::default(),
            messages: HashMap::new(),
            cold_messages: BTreeMap::new(),
            windows: HashMap::new(),
            seen: Vec::new(),
            window_files: Vec::new(),
            damage: Vec::new(),
            files: HashMap::new(),
            unsynced: Vec::new(),
            next: Index(1),
            terms: Default::default(),
            special: BTreeMap::new(),
            hard_state: HardState::default(),
            committed: 0,
            marked: false,
            settled_since: false,
            skip: HashSet::new(),
            superseded: Vec::new(),
            unused: Vec::new(),
            cut: None,
            wiped: Vec::new(),
            cut_bytes: 0,
            entries: 0,
        }
    }

    // Files.

    fn list(&mut self) -> Result<Files, StorageError> {
        let names = self
            .environment
            .disk
            .list(self.dir)
            .map_err(StorageError::io("listing", self.dir))?;
        let ids = |suffix: &str| {
            let id = |n: &String| {
                n.strip_suffix(suffix)
                    .filter(|s| s.len() == 16)
                    .and_then(|s| u64::from_str_radix(s, 16).ok())
            };
            let mut ids: Vec<u64> = names.iter().filter_map(id).collect();
            ids.sort_unstable();
            ids
        };
        let has = |name: &str| names.iter().any(|n| n == name);
        Ok(Files {
            hot: ids(".log"),
            cold: ids(".cold"),
            windows: ids(".window"),
            checkpoint: has(CHECKPOINT),
            tmp: has(CHECKPOINT_TMP),
        })
    }

    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>, StorageError> {
        let path = self.dir.join(name);
        self.environment
            .disk
            .open(&path, OpenMode::Write)
            .map_err(StorageError::io("opening", path))
    }

    fn progressed(&mut self, bytes: usize) {
        self.done += bytes as u64;
        let (done, total) = (self.done, self.total.max(self.done));
        (self.progress)(RecoveryProgress {
            partition: self.id,
            done,
            total,
        });
    }

    /// Reads a whole file into `buffer`, which is used again and again.
    fn read(
        &mut self,
        file: &dyn DiskFile,
        name: &str,
        buffer: &mut Vec<u8>,
    ) -> Result<(), StorageError> {
        read_file(file, buffer).map_err(StorageError::io("reading", self.dir.join(name)))?;
        self.progressed(buffer.len());
        Ok(())
    }

    fn damaged(&mut self, file: String, offset: u64, index: Option<Index>, what: DamageKind) {
        self.damage.push(Damage {
            partition: self.id,
            file,
            offset,
            index,
            what,
        });
    }

    fn newer(&self, name: &str, found: u16) -> StorageError {
        StorageError::NewerFormat {
            path: self.dir.join(name),
            found: found.into(),
        }
    }

    // Checkpoint and windows.

    fn read_checkpoint(&mut self, files: &Files) -> Result<(), StorageError> {
        if files.checkpoint {
            let file = self.open(CHECKPOINT)?;
            let mut bytes = Vec::new();
            self.read(&*file, CHECKPOINT, &mut bytes)?;
            let parsed = Frame::parse(&bytes, 0, 0).and_then(|frame| match frame.header {
                FrameHeader {
                    kind: FrameKind::Checkpoint,
                    partition,
                    ..
                } if partition == self.id.0 => Checkpoint::parse(frame.content),
                header => Err(LogError::Field {
                    what: "checkpoint",
                    field: "partition",
                    value: header.partition.into(),
                }),
            });
            match parsed {
                Ok(checkpoint) => self.checkpoint = checkpoint,
                Err(LogError::Version { found, .. }) => return Err(self.newer(CHECKPOINT, found)),
                Err(error) => self.damaged(CHECKPOINT.into(), 0, None, error.into()),
            }
        } else if files.hot.first().is_some_and(|first| *first > 1) {
            // Segments have gone, which only a durable checkpoint allows.
            self.damaged(CHECKPOINT.into(), 0, None, DamageKind::Missing);
        }
        let checkpoint = &self.checkpoint;
        self.vouched = checkpoint
            .segments
            .iter()
            .map(|s| (s.id, s.length))
            .collect();
        self.all_settled = checkpoint
            .segments
            .iter()
            .filter(|s| s.all_settled)
            .map(|s| s.id)
            .collect();
        self.hard_state = HardState {
            term: checkpoint.term,
            vote: checkpoint.vote,
            commit: checkpoint.index,
        };
        self.committed = checkpoint.index.0;
        self.ledger.load(checkpoint.clone());
        self.ledger.next_queue = self.ledger.next_queue.max(QueueId(1));
        for segment in self.ledger.segments.keys().copied().collect::<Vec<_>>() {
            if !files.hot.contains(&segment) && !files.cold.contains(&segment) {
                self.ledger.segments.remove(&segment);
            }
        }
        Ok(())
    }

    fn find_missing(&mut self, files: &Files) {
        let missing = |s: &&log::SegmentState| {
            let there = if s.role == SegmentRole::Hot {
                &files.hot
            } else {
                &files.cold
            };
            !s.all_settled && s.length > 0 && there.binary_search(&s.id).is_err()
        };
        let missing: Vec<_> = self
            .checkpoint
            .segments
            .iter()
            .filter(missing)
            .map(|s| (s.id, s.role))
            .collect();
        for (id, role) in missing {
            let name = if role == SegmentRole::Hot {
                hot_name(id)
            } else {
                cold_name(id)
            };
            self.damaged(name, 0, None, DamageKind::Missing);
        }
    }

    fn window_files(&self, files: &Files) -> WindowFiles {
        WindowFiles {
            disk: Arc::clone(&self.environment.disk),
            dir: self.dir.to_owned(),
            partition: self.id,
            listed: self.checkpoint.windows.clone(),
            present: files.windows.clone(),
            queues: self.ledger.queues.keys().copied().collect(),
            limits: self.config.window,
        }
    }

    /// Takes the windows as of the checkpoint and adds what the log has since.
    fn take_windows(&mut self, loaded: LoadedWindows) {
        self.windows = loaded.windows;
        self.windows
            .retain(|queue, _| self.ledger.queues.contains_key(queue));
        self.window_files = loaded.files;
        self.damage.extend(loaded.damage);
        self.done += loaded.bytes;
        let limits = self.config.window;
        for (queue, guid, sequence, at_ms) in std::mem::take(&mut self.seen) {
            if self.ledger.queues.contains_key(&queue) {
                self.windows
                    .entry(queue)
                    .or_insert_with(|| Window::new(limits))
                    .insert(guid, sequence, at_ms);
            }
        }
    }

    // Cold segments.

    fn read_cold(&mut self, files: &Files) -> Result<(), StorageError> {
        let mut bytes: Vec<u8> = Vec::new();
        for &id in &files.cold {
            let name = cold_name(id);
            let file = self.open(&name)?;
            self.read(&*file, &name, &mut bytes)?;
            self.files.insert(id, Arc::clone(&file));
            let mut table = Table::new(
                Segment::with_file(id, name.clone(), file),
                SegmentRole::Cold,
                Index(0),
            );
            table.sealed = true;
            let vouched = self.vouched.get(&id).copied().unwrap_or(0);
            if id < self.checkpoint.next_segment && !self.vouched.contains_key(&id) {
                // Gone by an earlier checkpoint; only its removal was not durable.
                self.all_settled.insert(id);
            }
            let mut at = 0;
            loop {
                match Frame::parse(&bytes, at, id) {
                    Ok(frame) => {
                        at += frame.header.frame_len();
                        if frame.header.kind == FrameKind::Carried {
                            table.push_frame(frame.offset as u64);
                            self.carried_frame(id, &frame, &name);
                        }
                    }
                    Err(error) if (at as u64) < vouched => {
                        self.damaged(name.clone(), at as u64, None, error.into());
                        match find_frame(&bytes, id, at + 8) {
                            Some(frame) => at = frame.offset,
                            None => break,
                        }
                    }
                    // Carried later than the checkpoint and torn: the originals are still there.
                    Err(_) => break,
                }
            }
            (table.end, table.content_end) = (at as u64, at as u64);
            if at as u64 > vouched {
                self.unsynced.push(id);
            }
            self.places.tables.insert(id, table);
        }
        Ok(())
    }

    fn carried_frame(&mut self, id: u64, frame: &Frame<'_>, name: &str) {
        let base = (frame.offset + FRAME_HEADER_LEN) as u64;
        for item in carried_items(frame.content) {
            let (offset, sequence, put) = match item {
                Ok(item) => item,
                Err(error) => {
                    return self.damaged(name.to_owned(), frame.offset as u64, None, error.into());
                }
            };
            let at = base + offset as u64;
            if self.all_settled.contains(&id) || self.ledger.is_settled(id, at) {
                continue;
            }
            let message = RecoveredMessage {
                sequence,
                guid: put.guid,
                format: DataFormat(put.format),
                len: put.data.len() as u32,
                accepted_at_ms: put.accepted_at_ms,
            };
            self.ledger
                .add(id, 1, (log::PUT_HEADER_LEN + put.data.len()) as u64);
            if let Some((older, at)) = self.places.carried.insert(sequence, (id, at)) {
                self.ledger.settle(older, at);
            }
            self.cold_messages.insert(sequence, (put.queue, message));
        }
    }

    // Hot segments.

    fn read_hot(&mut self, files: &Files) -> Result<(), StorageError> {
        for &id in &files.hot {
            let file = self.open(&hot_name(id))?;
            self.total += file
                .len()
                .map_err(StorageError::io("reading", self.dir.join(hot_name(id))))?;
            self.files.insert(id, file);
        }
        self.total += self.done;
        let sources: Vec<_> = files
            .hot
            .iter()
            .map(|id| (*id, Arc::clone(&self.files[id])))
            .collect();
        std::thread::scope(|scope| {
            // One segment is read while the one before it is folded.
            let (to_fold, from_disk) = std::sync::mpsc::sync_channel::<std::io::Result<Vec<u8>>>(0);
            let (to_reader, buffers) = std::sync::mpsc::channel();
            for _ in 0..2.min(sources.len()) {
                to_reader.send(Vec::new()).expect("the receiver is here");
            }
            let read_from = &sources;
            scope.spawn(move || {
                for (_, file) in read_from {
                    let Ok(mut buffer) = buffers.recv() else {
                        return;
                    };
                    let read = read_file(&**file, &mut buffer).map(|()| buffer);
                    if to_fold.send(read).is_err() {
                        return;
                    }
                }
            });
            for (position, (id, file)) in sources.iter().enumerate() {
                let name = hot_name(*id);
                let bytes = from_disk
                    .recv()
                    .expect("the reader sends one for each")
                    .map_err(StorageError::io("reading", self.dir.join(&name)))?;
                self.progressed(bytes.len());
                if self.cut.is_none() {
                    self.hot_segment(&files.hot[position..], &name, Arc::clone(file), &bytes)?;
                } else if find_frame(&bytes, *id, 0).is_some() {
                    self.wiped.push(*id);
                } else {
                    self.unused.push(*id);
                }
                // The reader may have come to its end.
                let _ = to_reader.send(bytes);
            }
            Ok(())
        })
    }

    /// Folds one segment; `ids` are it and those after it.
    fn hot_segment(
        &mut self,
        ids: &[u64],
        name: &str,
        file: Arc<dyn DiskFile>,
        bytes: &[u8],
    ) -> Result<(), StorageError> {
        let id = ids[0];
        let vouched = self.vouched.get(&id).copied().unwrap_or(0);
        let mut at = match self.segment_head(bytes, id, name)? {
            Head::Good(info, end) => {
                self.enter_segment(id, name, file, info.first_index);
                end
            }
            Head::Unused if vouched == 0 => {
                self.unused.push(id);
                return Ok(());
            }
            _ => {
                self.enter_segment(id, name, file, self.next);
                0
            }
        };
        loop {
            if !self.superseded.is_empty() {
                return Ok(());
            }
            let frame = Frame::parse(bytes, at, id);
            if self.skip.contains(&(id, at as u64))
                && let Ok(frame) = &frame
            {
                at += frame.header.frame_len();
                continue;
            }
            let error = match frame {
                Ok(frame) if frame.header.partition == self.id.0 => {
                    match self.frame(id, name, &frame) {
                        Ok(()) => {
                            at += frame.header.frame_len();
                            continue;
                        }
                        Err(error) => error,
                    }
                }
                Ok(frame) => DamageKind::Bytes(LogError::Field {
                    what: "frame",
                    field: "partition",
                    value: frame.header.partition.into(),
                }),
                Err(LogError::Version { found, .. }) => return Err(self.newer(name, found)),
                Err(error) => DamageKind::Bytes(error),
            };
            let later = find_frame(bytes, id, at + 8);
            let short = (at as u64) < vouched;
            if later.is_none() && !short && self.continues(&ids[1..])? {
                break;
            }
            if !short && !self.is_vouched(bytes, id, at, &ids[1..])? {
                self.cut = Some(Cut {
                    segment: id,
                    offset: at as u64,
                    wipe: later.is_some(),
                });
                self.cut_bytes += later.map_or(0, |f| (bytes.len() - f.offset) as u64);
                break;
            }
            let index = (self.next.0 > self.checkpoint.index.0 || short).then_some(self.next);
            self.damaged(name.to_owned(), at as u64, index, error);
            match later {
                Some(later) => {
                    self.leave_hole(id, &later, at as u64);
                    at = later.offset;
                }
                None => break,
            }
        }
        let table = self.places.tables.get_mut(&id);
        if let Some(table) = table {
            table.end = at as u64;
            table.sealed = true;
        }
        Ok(())
    }

    fn segment_head(&self, bytes: &[u8], id: u64, name: &str) -> Result<Head, StorageError> {
        let head = Frame::parse(bytes, 0, id).and_then(|f| match f.header.kind {
            FrameKind::Segment => {
                SegmentInfo::parse(f.content).map(|info| (info, f.header.frame_len()))
            }
            _ => Err(LogError::Magic {
                what: "segment head",
            }),
        });
        match head {
            Ok((info, end)) => Ok(Head::Good(info, end)),
            Err(LogError::Version { found, .. }) => Err(self.newer(name, found)),
            Err(_) if find_frame(bytes, id, 0).is_none() => Ok(Head::Unused),
            Err(_) => Ok(Head::Bad),
        }
    }

    fn enter_segment(&mut self, id: u64, name: &str, file: Arc<dyn DiskFile>, first: Index) {
        if first <= self.checkpoint.index && !self.vouched.contains_key(&id) {
            // Gone by an earlier checkpoint; only its removal was not durable. One that was merely prepared then begins later.
            self.all_settled.insert(id);
        }
        let permitted = Index(self.checkpoint.index.0 + 1);
        if first > self.next && !self.is_superseded(id) {
            // Up to the checkpoint, whole segments may be gone. Beyond it nothing may be.
            if first > permitted {
                let from = self.next.max(permitted);
                self.damaged(
                    name.to_owned(),
                    0,
                    Some(from),
                    DamageKind::Gap {
                        from,
                        to: Index(first.0 - 1),
                    },
                );
            }
            self.next = first;
        }
        let table = Table::new(
            Segment::with_file(id, name.to_owned(), file),
            SegmentRole::Hot,
            first,
        );
        self.places.tables.insert(id, table);
        self.places.hot.push_back((first, id));
    }

    /// A later frame for an index that was read takes its place; only what nobody was told is committed can be replaced.
    fn supersede(&mut self, header: &EntryHeader) -> Result<(), DamageKind> {
        if header.index.0 <= self.committed || self.terms.back().is_some_and(|t| t.1 > header.term)
        {
            return Err(DamageKind::Gap {
                from: header.index,
                to: Index(self.next.0 - 1),
            });
        }
        for (first, id) in &self.places.hot {
            let Some(table) = self.places.tables.get(id) else {
                continue;
            };
            let frames = header.index.0.saturating_sub(first.0) as usize..table.frames();
            self.superseded
                .extend(frames.map(|f| (*id, table.frame_offset(f))));
        }
        Ok(())
    }

    /// Whether frames of this segment were replaced: it may begin with some.
    fn is_superseded(&self, id: u64) -> bool {
        self.skip.iter().any(|(segment, _)| *segment == id)
    }

    /// Whether the log goes on in the next segment as if this one had ended here.
    fn continues(&self, later: &[u64]) -> Result<bool, StorageError> {
        for id in later {
            let mut head = [0; FRAME_HEADER_LEN + SegmentInfo::LEN];
            read_full(&*self.files[id], &mut head, 0)
                .map_err(StorageError::io("reading", self.dir.join(hot_name(*id))))?;
            let frame = Frame::parse(&head, 0, *id).and_then(|f| SegmentInfo::parse(f.content));
            if self.is_superseded(*id) {
                continue;
            }
            if let Ok(info) = frame {
                return Ok(info.first_index <= self.next
                    || info.first_index.0 <= self.checkpoint.index.0 + 1);
            }
        }
        Ok(false)
    }

    /// Whether somebody says that the entry missing at `at` was durable.
    fn is_vouched(
        &self,
        bytes: &[u8],
        id: u64,
        at: usize,
        later: &[u64],
    ) -> Result<bool, StorageError> {
        if self.next <= self.checkpoint.index || self.next.0 <= self.committed {
            return Ok(true);
        }
        let claims = |bytes: &[u8], id: u64, mut at: usize| {
            while let Some(frame) = find_frame(bytes, id, at) {
                if frame.header.committed >= self.next.0 {
                    return true;
                }
                at = frame.offset + frame.header.frame_len();
            }
            false
        };
        if claims(bytes, id, at + 8) {
            return Ok(true);
        }
        let mut other = Vec::new();
        for id in later {
            let file = &self.files[id];
            let io = |e| StorageError::io("reading", self.dir.join(hot_name(*id)))(e);
            other.resize(file.len().map_err(io)? as usize, 0);
            let have = read_full(&**file, &mut other, 0).map_err(io)?;
            if claims(&other[..have], *id, 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reading goes on at `later`: the entries in between keep their places, as lost ones.
    fn leave_hole(&mut self, id: u64, later: &Frame<'_>, at: u64) {
        const LARGEST: u64 = 1 << 20;
        if later.header.kind != FrameKind::Entry {
            return;
        }
        let Ok(header) = EntryHeader::parse(later.content) else {
            return;
        };
        let Some(table) = self.places.tables.get_mut(&id) else {
            return;
        };
        if table.frames() == 0 {
            table.first = header.index;
            if let Some(hot) = self.places.hot.back_mut() {
                hot.0 = header.index;
            }
            self.next = header.index;
        }
        if header.index.0.saturating_sub(self.next.0) < LARGEST {
            while self.next < header.index {
                table.push_frame(at);
                self.next = self.next.next();
            }
        }
    }

    fn frame(&mut self, id: u64, name: &str, frame: &Frame<'_>) -> Result<(), DamageKind> {
        match frame.header.kind {
            FrameKind::Entry => {
                let header = EntryHeader::parse(frame.content)?;
                if header.index > self.next {
                    return Err(DamageKind::Gap {
                        from: self.next,
                        to: Index(header.index.0 - 1),
                    });
                }
                if header.index < self.next {
                    return self.supersede(&header);
                }
                self.committed = self.committed.max(frame.header.committed);
                self.entry(id, name, frame, &header);
            }
            FrameKind::HardState => {
                self.committed = self.committed.max(frame.header.committed);
                let state = HardState::parse(frame.content)?;
                self.marked = state.commit.next() == self.next;
                if state.term >= self.hard_state.term {
                    self.hard_state = state;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn entry(&mut self, id: u64, name: &str, frame: &Frame<'_>, header: &EntryHeader) {
        let Some(table) = self.places.tables.get_mut(&id) else {
            return;
        };
        if table.frames() == 0 {
            table.first = header.index;
            if let Some(hot) = self.places.hot.back_mut() {
                hot.0 = header.index;
            }
        }
        table.push_frame(frame.offset as u64);
        (table.end, table.content_end) = (0, (frame.offset + frame.header.frame_len()) as u64);
        let after = header.index > self.checkpoint.index;
        if after && self.unsynced.last() != Some(&id) {
            self.unsynced.push(id);
        }
        if self.terms.back().is_none_or(|t| t.1 != header.term) {
            self.terms.push_back((header.index, header.term));
        }
        if header.kind != log::EntryKind::Normal {
            self.special.insert(header.index, header.kind);
        }
        (self.next, self.marked) = (header.index.next(), false);
        self.entries += 1;
        let base = (frame.offset + FRAME_HEADER_LEN) as u64;
        let mut segment = Fresh {
            id,
            after,
            dead: self.all_settled.contains(&id),
            has_settled: self.ledger.has_settled(id),
            puts: 0,
            bytes: 0,
        };
        for record in Records::new(frame.content) {
            match record {
                Ok((offset, record)) => {
                    let sequence = log::sequence(header.index, offset);
                    self.record(&mut segment, sequence, base + offset as u64, record);
                }
                Err(error) => {
                    self.damaged(name.to_owned(), base, Some(header.index), error.into());
                    break;
                }
            }
        }
        self.count(&mut segment);
        if after {
            (self.ledger.index, self.ledger.term) = (header.index, header.term);
        }
    }

    /// Counts the live messages found since the last time.
    fn count(&mut self, segment: &mut Fresh) {
        if segment.puts > 0 {
            self.ledger.add(segment.id, segment.puts, segment.bytes);
            (segment.puts, segment.bytes) = (0, 0);
        }
    }

    fn record(&mut self, segment: &mut Fresh, sequence: Sequence, at: u64, record: Record<'_>) {
        match record {
            Record::Put(put) => {
                if segment.after {
                    self.ledger.clock_ms = self.ledger.clock_ms.max(put.accepted_at_ms);
                    if let Some(counters) = self.ledger.counters(put.queue) {
                        counters.put += 1;
                        self.seen
                            .push((put.queue, put.guid, sequence, put.accepted_at_ms));
                    }
                }
                let settled =
                    segment.dead || (segment.has_settled && self.ledger.is_settled(segment.id, at));
                if settled || !self.ledger.queues.contains_key(&put.queue) {
                    return;
                }
                if let Some((cold, at)) = self.places.carried.remove(&sequence) {
                    // The original counts while it is there and not settled; it will be carried again.
                    self.ledger.settle(cold, at);
                    self.cold_messages.remove(&sequence);
                }
                segment.puts += 1;
                segment.bytes += (log::PUT_HEADER_LEN + put.data.len()) as u64;
                self.messages
                    .entry(put.queue)
                    .or_default()
                    .push(RecoveredMessage {
                        sequence,
                        guid: put.guid,
                        format: DataFormat(put.format),
                        len: put.data.len() as u32,
                        accepted_at_ms: put.accepted_at_ms,
                    });
                return;
            }
            _ if !segment.after => return,
            _ => self.count(segment),
        }
        match record {
            Record::Put(_) => {}
            Record::Settle {
                queue,
                why,
                message,
            } => {
                self.settled_since = true;
                if self.settle(message)
                    && let Some(counters) = self.ledger.counters(queue)
                {
                    counters.settled(why);
                }
            }
            Record::QueueCreated { queue, uri } => {
                self.ledger.queues.insert(
                    queue,
                    QueueEntry {
                        uri: uri.into(),
                        counters: QueueCounters::default(),
                    },
                );
                self.ledger.next_queue = self.ledger.next_queue.max(QueueId(queue.0 + 1));
            }
            Record::QueueRemoved { queue } => {
                self.ledger.queues.remove(&queue);
                for message in self.messages.remove(&queue).unwrap_or_default() {
                    self.settle(message.sequence);
                }
            }
        }
    }

    fn settle(&mut self, message: Sequence) -> bool {
        let Some(place) = self.places.locate(message) else {
            return false;
        };
        self.places.carried.remove(&message);
        self.cold_messages.remove(&message);
        self.ledger.settle(place.key.segment, place.offset)
    }

    // The end.

    fn finish(mut self, files: &Files, notify: Notify) -> Result<Found, StorageError> {
        let carried = !self.cold_messages.is_empty();
        for (sequence, (queue, message)) in std::mem::take(&mut self.cold_messages) {
            if self.ledger.queues.contains_key(&queue) {
                self.messages.entry(queue).or_default().push(message);
            } else {
                self.settle(sequence);
            }
        }
        let queues = self.recovered_queues(carried);
        let read_only = !self.damage.is_empty();
        if !read_only {
            self.make_durable(files)?;
        }
        let next_segment = files
            .hot
            .iter()
            .chain(&files.cold)
            .max()
            .map_or(1, |id| id + 1)
            .max(self.checkpoint.next_segment);
        let spare = if read_only { None } else { self.spare()? };
        if let Some((_, id)) = self.places.hot.back()
            && let Some(table) = self.places.tables.get_mut(id)
        {
            table.sealed = false;
        }
        // One whose entries were all superseded holds nothing, and would stand between the others by its first index.
        let current = self.places.hot.back().map(|h| h.1);
        let tables = &self.places.tables;
        self.places.hot.retain(|(_, id)| {
            Some(*id) == current || tables.get(id).is_some_and(|t| t.frames() > 0)
        });
        let last = Index(self.next.0 - 1);
        let window_bytes = self.window_files.iter().map(|w| w.file.length).sum();
        let next_window = files.windows.last().map_or(1, |id| id + 1);
        let reserve = self.config.reserve_bytes;
        let mut tending =
            Tending::new(std::mem::take(&mut self.window_files), next_window, reserve);
        let shared = Shared::new(
            self.id,
            self.dir.to_owned(),
            Arc::clone(&self.environment.disk),
            Arc::clone(&self.environment.budget),
            self.environment.helpers.scheduler(),
            notify,
            0,
            Tending::default(),
        );
        if !read_only {
            restore_reserve(&shared, &mut tending);
        }
        *shared.tending() = tending;
        let state = LogState {
            places: std::mem::take(&mut self.places),
            spare,
            next_segment,
            last,
            terms: std::mem::take(&mut self.terms),
            special: std::mem::take(&mut self.special),
            hard_state: HardState {
                commit: last,
                ..self.hard_state
            },
        };
        let recovered = Recovered {
            queues,
            damage: self.damage,
            cut_bytes: self.cut_bytes,
            bytes: self.done,
            entries: self.entries,
        };
        Ok(Found {
            log: EntryLog::new(shared, self.config.segment_bytes, state),
            ledger: self.ledger,
            windows: self.windows,
            recovered,
            marked: self.marked,
            window_bytes,
            checkpoint_index: self.checkpoint.index,
        })
    }

    fn recovered_queues(&mut self, carried: bool) -> Vec<RecoveredQueue> {
        let mut queues = Vec::new();
        for (id, entry) in &self.ledger.queues {
            let mut live = self.messages.remove(id).unwrap_or_default();
            if self.settled_since {
                let (places, ledger) = (&self.places, &self.ledger);
                live.retain(|m| {
                    places
                        .locate(m.sequence)
                        .is_some_and(|p| !ledger.is_settled(p.key.segment, p.offset))
                });
            }
            if carried {
                live.sort_unstable_by_key(|m| m.sequence);
            }
            queues.push(RecoveredQueue {
                id: *id,
                uri: Arc::clone(&entry.uri),
                live,
                counters: entry.counters,
            });
        }
        queues.sort_unstable_by_key(|q| q.id);
        queues
    }

    /// Cuts the tail, removes what was never in use, and syncs what was only in the page cache: nothing is built on it before.
    fn make_durable(&mut self, files: &Files) -> Result<(), StorageError> {
        let disk = &self.environment.disk;
        let remove = |name: String| {
            let path = self.dir.join(&name);
            disk.remove(&path)
                .map_err(StorageError::io("removing", path))
        };
        for id in &self.wiped {
            tracing::warn!(event = "storage.tail_cut", partition = %self.id, file = hot_name(*id));
            remove(hot_name(*id))?;
        }
        if let Some(cut) = self.cut.as_ref().filter(|c| c.wipe) {
            let name = hot_name(cut.segment);
            tracing::warn!(event = "storage.tail_cut", partition = %self.id, file = name, offset = cut.offset);
            let file = &self.files[&cut.segment];
            let wiped = file
                .truncate(cut.offset)
                .and_then(|()| file.allocate(self.config.segment_bytes))
                .and_then(|()| file.sync_data());
            wiped.map_err(StorageError::io("cutting", self.dir.join(name)))?;
        }
        let listed: Vec<WindowFile> = self.checkpoint.windows.clone();
        for id in files
            .windows
            .iter()
            .filter(|id| !listed.iter().any(|w| w.id == **id))
        {
            remove(window_name(*id))?;
        }
        if files.tmp {
            remove(CHECKPOINT_TMP.into())?;
        }
        self.unsynced
            .extend(self.places.hot.back().map(|(_, id)| *id));
        for id in &self.unsynced {
            self.files[id].sync_data().map_err(StorageError::io(
                "fdatasync of",
                self.dir.join(hot_name(*id)),
            ))?;
        }
        disk.sync_dir(self.dir)
            .map_err(StorageError::io("syncing", self.dir))
    }

    /// A segment that was prepared and not used is the next one; others of that kind are removed.
    fn spare(&mut self) -> Result<Option<Arc<Segment>>, StorageError> {
        let last = self.places.hot.back().map_or(0, |(_, id)| *id);
        let mut spare = None;
        for id in std::mem::take(&mut self.unused) {
            let (name, file) = (hot_name(id), Arc::clone(&self.files[&id]));
            let len = file
                .len()
                .map_err(StorageError::io("reading", self.dir.join(&name)))?;
            if spare.is_none() && id > last && len == self.config.segment_bytes {
                spare = Some(Segment::with_file(id, name, file));
            } else {
                let path = self.dir.join(&name);
                self.environment
                    .disk
                    .remove(&path)
                    .map_err(StorageError::io("removing", path))?;
            }
        }
        Ok(spare)
    }
}

/// What is known while the records of one entry are folded.
struct Fresh {
    id: u64,
    /// The entry is later than the checkpoint.
    after: bool,
    dead: bool,
    /// The checkpoint has settled records of this segment, or later entries have settled some.
    has_settled: bool,
    puts: u32,
    bytes: u64,
}

enum Head {
    Good(SegmentInfo, usize),
    /// No frame of this segment is in the file: prepared, never written.
    Unused,
    Bad,
}

fn read_file(file: &dyn DiskFile, buffer: &mut Vec<u8>) -> std::io::Result<()> {
    let len = usize::try_from(file.len()?).unwrap_or(usize::MAX);
    buffer.resize(len, 0);
    let have = read_full(file, buffer, 0)?;
    buffer.truncate(have);
    Ok(())
}
