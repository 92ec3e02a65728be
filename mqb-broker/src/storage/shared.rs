//! What a partition's processor and the helper threads share. Everything here is handed over whole; nobody waits for anybody.
//!
//! Locks (each held for a few pushes or a swap, never together, never across I/O): `writes`, `dirty`, `reads`, `chores`, `done`.
//! `tending` is the cleaner's own state: only the one helper that runs the partition's chores ever takes it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use mqb_core::PartitionId;

use super::block::MemoryBudget;
use super::chore::{Chore, Tending};
use super::disk::{Disk, DiskFile};
use super::error::Fault;
use super::reader::ReadJob;
use super::stats::HelperStats;
use super::writer::WriteJob;

/// Called by helper threads when a partition should `poll`. Coalesced: at most once per poll.
pub type Notify = Arc<dyn Fn() + Send + Sync>;

/// A file of the log. The file itself may still be in the making by a helper.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: u64,
    pub(crate) name: String,
    file: OnceLock<FileRef>,
}

#[derive(Clone)]
struct FileRef(Arc<dyn DiskFile>);

impl std::fmt::Debug for FileRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("file")
    }
}

impl Segment {
    pub(crate) fn new(id: u64, name: String) -> Arc<Self> {
        Arc::new(Segment {
            id,
            name,
            file: OnceLock::new(),
        })
    }

    pub(crate) fn with_file(id: u64, name: String, file: Arc<dyn DiskFile>) -> Arc<Self> {
        Arc::new(Segment {
            id,
            name,
            file: OnceLock::from(FileRef(file)),
        })
    }

    /// The open file, once it exists.
    pub(crate) fn file(&self) -> Option<&Arc<dyn DiskFile>> {
        self.file.get().map(|f| &f.0)
    }

    pub(crate) fn set_file(&self, file: Arc<dyn DiskFile>) {
        assert!(
            self.file.set(FileRef(file)).is_ok(),
            "a segment is prepared once"
        );
    }
}

/// One of the duties that helpers have for a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Duty {
    /// Write blocks.
    Write = 0,
    /// fdatasync.
    Sync = 1,
    /// Read blocks back.
    Read = 2,
    /// Prepare and remove segments, checkpoints, cleaning.
    Tend = 3,
}

pub(crate) const DUTIES: [Duty; 4] = [Duty::Write, Duty::Sync, Duty::Read, Duty::Tend];

/// Runs duties: threads, or a test step by step.
pub(crate) trait Scheduler: Send + Sync {
    /// Queues the duty. Not called again for it before it has started.
    fn enqueue(&self, partition: Arc<Shared>, duty: Duty);
}

/// Something a helper finished.
pub(crate) enum Done {
    /// Blocks were read back.
    Read(super::reader::ReadDone),
    /// A chore is over.
    Chore(super::chore::ChoreDone),
}

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const RUNNING_AGAIN: u8 = 3;

/// See the module.
pub(crate) struct Shared {
    pub(crate) id: PartitionId,
    pub(crate) dir: PathBuf,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) stats: HelperStats,
    scheduler: Arc<dyn Scheduler>,
    duty: [AtomicU8; 4],
    writes: Mutex<Vec<WriteJob>>,
    dirty: Mutex<Vec<Arc<Segment>>>,
    reads: Mutex<Vec<ReadJob>>,
    chores: Mutex<Vec<Chore>>,
    tending: Mutex<Tending>,
    done: Mutex<Vec<Done>>,
    /// Last index in the files. Stored by the writer with Release after the write; pairs with the loads in `written`.
    written: AtomicU64,
    /// Last durable index. Stored by the syncer with Release after fdatasync; pairs with the loads in `synced`.
    synced: AtomicU64,
    /// Somebody waits for this index to be durable. Raised by the processor, read by writer and syncer.
    sync_wanted: AtomicU64,
    /// A write found no room. Set by the writer, cleared by it when a write succeeds.
    write_full: AtomicBool,
    /// The reserve file was given up. Set and cleared by the cleaner; the processor asks for it again when there may be space.
    pub(crate) reserve_missing: AtomicBool,
    fault: OnceLock<Fault>,
    notified: AtomicBool,
    notify: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A helper that panicked left at most a job out; what the lock guards is whole.
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Shared {
    #[expect(
        clippy::too_many_arguments,
        reason = "called once, by recovery, with what it found"
    )]
    pub(crate) fn new(
        id: PartitionId,
        dir: PathBuf,
        disk: Arc<dyn Disk>,
        budget: Arc<MemoryBudget>,
        scheduler: Arc<dyn Scheduler>,
        notify: Notify,
        last: u64,
        tending: Tending,
    ) -> Arc<Self> {
        Arc::new(Shared {
            id,
            dir,
            disk,
            budget,
            stats: HelperStats::default(),
            scheduler,
            duty: Default::default(),
            writes: Mutex::default(),
            dirty: Mutex::default(),
            reads: Mutex::default(),
            chores: Mutex::default(),
            tending: Mutex::new(tending),
            done: Mutex::default(),
            written: AtomicU64::new(last),
            synced: AtomicU64::new(last),
            sync_wanted: AtomicU64::new(last),
            write_full: AtomicBool::new(false),
            reserve_missing: AtomicBool::new(false),
            fault: OnceLock::new(),
            notified: AtomicBool::new(false),
            notify,
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    // Hand-over to helpers.

    pub(crate) fn push_writes(self: &Arc<Self>, jobs: &mut Vec<WriteJob>) {
        lock(&self.writes).append(jobs);
        self.schedule(Duty::Write);
    }

    pub(crate) fn take_writes(&self) -> Vec<WriteJob> {
        std::mem::take(&mut *lock(&self.writes))
    }

    /// Puts back what could not be written, before anything that came since.
    pub(crate) fn return_writes(&self, mut jobs: Vec<WriteJob>) {
        let mut writes = lock(&self.writes);
        jobs.append(&mut writes);
        *writes = jobs;
    }

    pub(crate) fn push_read(self: &Arc<Self>, job: ReadJob) {
        lock(&self.reads).push(job);
        self.schedule(Duty::Read);
    }

    pub(crate) fn take_reads(&self) -> Vec<ReadJob> {
        std::mem::take(&mut *lock(&self.reads))
    }

    pub(crate) fn push_chore(self: &Arc<Self>, chore: Chore) {
        lock(&self.chores).push(chore);
        self.schedule(Duty::Tend);
    }

    pub(crate) fn take_chores(&self) -> Vec<Chore> {
        std::mem::take(&mut *lock(&self.chores))
    }

    pub(crate) fn tending(&self) -> MutexGuard<'_, Tending> {
        lock(&self.tending)
    }

    // Watermarks.

    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    pub(crate) fn publish_written(&self, index: u64, segments: impl Iterator<Item = Arc<Segment>>) {
        {
            let mut dirty = lock(&self.dirty);
            for segment in segments {
                if !dirty.iter().any(|d| d.id == segment.id) {
                    dirty.push(segment);
                }
            }
        }
        // After the segments: a syncer that sees this index finds them in `dirty`, or an earlier sync has taken them and covers less.
        self.written.fetch_max(index, Ordering::Release);
    }

    pub(crate) fn take_dirty(&self) -> Vec<Arc<Segment>> {
        std::mem::take(&mut *lock(&self.dirty))
    }

    pub(crate) fn publish_synced(&self, index: u64) {
        self.synced.fetch_max(index, Ordering::Release);
    }

    /// Asks for everything up to `index` to be made durable as soon as it is written.
    pub(crate) fn want_sync(self: &Arc<Self>, index: u64) {
        let before = self.sync_wanted.fetch_max(index, Ordering::AcqRel);
        if before < index && self.written() > self.synced() {
            self.schedule(Duty::Sync);
        }
    }

    pub(crate) fn sync_is_wanted(&self) -> bool {
        self.sync_wanted.load(Ordering::Acquire) > self.synced()
    }

    // Trouble.

    pub(crate) fn fail(&self, what: &'static str, file: &str, error: &std::io::Error) {
        // The first fault is the one to report; later ones follow from it.
        let _ = self.fault.set(Fault {
            what,
            file: file.to_owned(),
            error: error.to_string(),
        });
        self.wake_owner();
    }

    pub(crate) fn fault(&self) -> Option<&Fault> {
        self.fault.get()
    }

    pub(crate) fn set_write_full(&self, full: bool) {
        if self.write_full.swap(full, Ordering::Relaxed) != full {
            self.wake_owner();
        }
    }

    pub(crate) fn is_write_full(&self) -> bool {
        self.write_full.load(Ordering::Relaxed)
    }

    // Back to the processor.

    pub(crate) fn report(&self, done: Done) {
        lock(&self.done).push(done);
        self.wake_owner();
    }

    pub(crate) fn wake_owner(&self) {
        if !self.notified.swap(true, Ordering::AcqRel) {
            (self.notify)();
        }
    }

    /// Called by the owner before it looks: what happens after is notified again.
    pub(crate) fn begin_poll(&self, into: &mut Vec<Done>) {
        self.notified.store(false, Ordering::Release);
        // The flag must be down before the state is read, or a helper's news in between would wake nobody.
        std::sync::atomic::fence(Ordering::SeqCst);
        into.append(&mut lock(&self.done));
    }

    // Scheduling: a duty is queued at most once and runs on at most one thread at a time.

    pub(crate) fn schedule(self: &Arc<Self>, duty: Duty) {
        let state = &self.duty[duty as usize];
        let mut now = state.load(Ordering::Acquire);
        loop {
            let next = match now {
                IDLE => QUEUED,
                RUNNING => RUNNING_AGAIN,
                _ => return,
            };
            match state.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(IDLE) => return self.scheduler.enqueue(Arc::clone(self), duty),
                Ok(_) => return,
                Err(seen) => now = seen,
            }
        }
    }

    /// Runs a duty that was queued. Queues it again if it was asked for meanwhile.
    pub(crate) fn run(self: &Arc<Self>, duty: Duty) {
        let state = &self.duty[duty as usize];
        state.store(RUNNING, Ordering::Release);
        match duty {
            Duty::Write => super::writer::run(self),
            Duty::Sync => super::syncer::run(self),
            Duty::Read => super::reader::run(self),
            Duty::Tend => super::chore::run(self),
        }
        if state
            .compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            state.store(QUEUED, Ordering::Release);
            self.scheduler.enqueue(Arc::clone(self), duty);
        }
    }
}
