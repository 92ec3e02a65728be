//! The cleaner's duty: everything about files that is not writing, syncing or reading blocks. One chore at a time, in order.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mqb_core::log::{
    Checkpoint, FRAME_HEADER_LEN, FrameHeader, FrameKind, Index, WindowFile, WindowRun, crc,
};

use super::carry::{self, CarryDone, CarryJob};
use super::disk::{DiskFile, OpenMode, is_full, write_full};
use super::shared::{Done, Duty, Segment, Shared};
use super::window::SavedRun;

/// Name of the checkpoint file.
pub(crate) const CHECKPOINT: &str = "checkpoint";
/// Name of a checkpoint that is not complete.
pub(crate) const CHECKPOINT_TMP: &str = "checkpoint.tmp";
/// Name of the file whose space is given up when a checkpoint or the cleaner finds none.
pub(crate) const RESERVE: &str = "reserve";

/// A file of the window is followed by a new one at this size.
const WINDOW_FILE_BYTES: u64 = 8 << 20;

/// Work that blocks.
pub(crate) enum Chore {
    /// Makes the file of a segment, out of an old one if there is one. Urgent: records wait for it, so any space will do.
    Prepare {
        segment: Arc<Segment>,
        capacity: u64,
        recycle: Option<String>,
        urgent: bool,
    },
    /// Removes files that a durable checkpoint does not need.
    Remove { names: Vec<String> },
    /// Takes the reserve again.
    Reserve,
    /// Gives the reserve up for records that find no space in a segment made without.
    Release,
    /// Writes a checkpoint.
    Checkpoint(Box<CheckpointJob>),
    /// Moves live records.
    Carry(Box<CarryJob>),
}

/// A checkpoint to be written.
pub(crate) struct CheckpointJob {
    /// Everything but the window's files.
    pub(crate) image: Checkpoint,
    /// What the window's files lack, or all of the window.
    pub(crate) runs: Vec<SavedRun>,
    /// `runs` is all: older files go.
    pub(crate) rewrite: bool,
    /// Files of the window with nothing newer than this go.
    pub(crate) window_floor_ms: u64,
}

/// How a chore ended.
pub(crate) enum ChoreDone {
    /// `false`: no space.
    Prepared { id: u64, ok: bool },
    /// `window_bytes` is the size of the window's files; `None`: no space, try again later.
    Checkpoint {
        index: Index,
        window_bytes: Option<u64>,
    },
    /// `None`: no space.
    Carried(Option<CarryDone>),
}

/// A file of the duplicate window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowFileState {
    pub(crate) file: WindowFile,
    pub(crate) newest_ms: u64,
}

/// What the cleaner remembers from chore to chore.
#[derive(Default)]
pub(crate) struct Tending {
    pub(crate) windows: Vec<WindowFileState>,
    pub(crate) next_window: u64,
    pub(crate) window_file: Option<Arc<dyn DiskFile>>,
    pub(crate) reserve_bytes: u64,
    pub(crate) has_reserve: bool,
    queue: VecDeque<Chore>,
}

impl Tending {
    pub(crate) fn new(
        windows: Vec<WindowFileState>,
        next_window: u64,
        reserve_bytes: u64,
    ) -> Tending {
        Tending {
            windows,
            next_window,
            reserve_bytes,
            ..Tending::default()
        }
    }
}

/// Name of a file of the duplicate window.
pub(crate) fn window_name(id: u64) -> String {
    format!("{id:016x}.window")
}

/// One chore per run, so that partitions take turns.
pub(crate) fn run(shared: &Arc<Shared>) {
    let mut tending = shared.tending();
    tending.queue.extend(shared.take_chores());
    let Some(chore) = tending.queue.pop_front() else {
        return;
    };
    if shared.fault().is_none() {
        do_chore(shared, &mut tending, chore);
    }
    if !tending.queue.is_empty() {
        shared.schedule(Duty::Tend);
    }
}

fn do_chore(shared: &Arc<Shared>, tending: &mut Tending, chore: Chore) {
    let done = match chore {
        Chore::Prepare {
            segment,
            capacity,
            recycle,
            urgent,
        } => {
            if !urgent && recycle.is_none() {
                restore_reserve(shared, tending);
            }
            let missing =
                !urgent && recycle.is_none() && !tending.has_reserve && tending.reserve_bytes > 0;
            // What the reserve gave up is not for new messages.
            let mut made = match missing {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => prepare(shared, &segment, capacity, recycle.as_deref()),
            };
            if urgent && made.as_ref().is_err_and(is_full) {
                release_reserve(shared, tending);
                made = prepare_without_space(shared, &segment);
            }
            let ok = settle_outcome(
                shared,
                "preparing",
                &segment.name,
                made.map(|file| segment.set_file(file)),
            );
            if ok == Some(true) {
                shared.schedule(Duty::Write);
            }
            ok.map(|ok| ChoreDone::Prepared { id: segment.id, ok })
        }
        Chore::Remove { names } => {
            let removed = names
                .iter()
                .try_for_each(|name| remove(shared, name))
                .and_then(|()| shared.disk.sync_dir(shared.dir()));
            restore_reserve(shared, tending);
            // Files that stay are removed after the next start; they are accounted for as settled.
            if let Err(error) = removed {
                tracing::warn!(event = "storage.remove_failed", partition = %shared.id, %error);
            }
            None
        }
        Chore::Release => {
            release_reserve(shared, tending);
            shared.schedule(Duty::Write);
            None
        }
        Chore::Reserve => {
            restore_reserve(shared, tending);
            None
        }
        Chore::Checkpoint(job) => {
            let index = job.image.index;
            let mut result = write_checkpoint(shared, tending, &job);
            if result.as_ref().is_err_and(is_full) && release_reserve(shared, tending) {
                result = write_checkpoint(shared, tending, &job);
            }
            if result.is_ok() {
                restore_reserve(shared, tending);
            }
            let bytes = tending.windows.iter().map(|w| w.file.length).sum();
            settle_outcome(shared, "writing", CHECKPOINT, result).map(|ok| ChoreDone::Checkpoint {
                index,
                window_bytes: ok.then_some(bytes),
            })
        }
        Chore::Carry(job) => {
            let mut result = carry::run(shared, &job);
            if result.as_ref().is_err_and(is_full) && release_reserve(shared, tending) {
                result = carry::run(shared, &job);
            }
            let mut carried = None;
            settle_outcome(
                shared,
                "cleaning into",
                &job.cold.name,
                result.map(|done| carried = Some(done)),
            )
            .map(|_| ChoreDone::Carried(carried))
        }
    };
    if let Some(done) = done {
        shared.report(Done::Chore(done));
    }
}

/// `Some(true)`: done, `Some(false)`: no space, `None`: the partition is finished.
fn settle_outcome(
    shared: &Shared,
    what: &'static str,
    file: &str,
    result: io::Result<()>,
) -> Option<bool> {
    match result {
        Ok(()) => Some(true),
        Err(e) if is_full(&e) => Some(false),
        Err(e) => {
            shared.fail(what, file, &e);
            None
        }
    }
}

fn remove(shared: &Shared, name: &str) -> io::Result<()> {
    match shared.disk.remove(&shared.path(name)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn prepare(
    shared: &Shared,
    segment: &Segment,
    capacity: u64,
    recycle: Option<&str>,
) -> io::Result<Arc<dyn DiskFile>> {
    let path = shared.path(&segment.name);
    let file = match recycle {
        Some(old) => {
            shared.disk.rename(&shared.path(old), &path)?;
            let file = shared.disk.open(&path, OpenMode::Write)?;
            if file.len()? < capacity {
                // Made when there was no space. If there is still none, writes will find out.
                let _ = file.allocate(capacity);
            }
            file
        }
        None => {
            let file = shared.disk.open(&path, OpenMode::Create)?;
            if let Err(e) = file.allocate(capacity).and_then(|()| file.sync_data()) {
                drop(file);
                remove(shared, &segment.name)?;
                return Err(e);
            }
            file
        }
    };
    shared.disk.sync_dir(shared.dir())?;
    Ok(file)
}

/// A file that takes what space there is as it is written.
fn prepare_without_space(shared: &Shared, segment: &Segment) -> io::Result<Arc<dyn DiskFile>> {
    let file = shared
        .disk
        .open(&shared.path(&segment.name), OpenMode::Create)?;
    shared.disk.sync_dir(shared.dir())?;
    Ok(file)
}

/// Gives up the space that was kept for this moment; tells whether there was any.
fn release_reserve(shared: &Shared, tending: &mut Tending) -> bool {
    let had = std::mem::take(&mut tending.has_reserve);
    shared.reserve_missing.store(true, Ordering::Relaxed);
    // If it cannot be removed there is no space; the caller finds that out.
    had && remove(shared, RESERVE).is_ok()
}

/// Takes the reserve again once there is space. Tried again with the next segment if there is not.
pub(crate) fn restore_reserve(shared: &Shared, tending: &mut Tending) {
    if tending.has_reserve || tending.reserve_bytes == 0 {
        return;
    }
    let made = shared
        .disk
        .open(&shared.path(RESERVE), OpenMode::Create)
        .and_then(|f| f.allocate(tending.reserve_bytes));
    tending.has_reserve = made.is_ok();
    shared
        .reserve_missing
        .store(made.is_err(), Ordering::Relaxed);
    if made.is_err() {
        // A part of it would only take space that others can use.
        let _ = remove(shared, RESERVE);
    }
}

fn write_checkpoint(shared: &Shared, tending: &mut Tending, job: &CheckpointJob) -> io::Result<()> {
    let (first_new, open) = (tending.next_window, tending.window_file.clone());
    let result = try_checkpoint(shared, tending, job);
    if result.is_err() {
        // Best effort: what was written must not keep the space that the next attempt needs. The next one starts a new file of the window.
        tending.window_file = None;
        for id in first_new..tending.next_window {
            let _ = remove(shared, &window_name(id));
        }
        let _ = remove(shared, CHECKPOINT_TMP);
        if let (Some(file), Some(last)) = (open, tending.windows.last()) {
            let _ = file.truncate(last.file.length);
        }
    }
    result
}

fn try_checkpoint(shared: &Shared, tending: &mut Tending, job: &CheckpointJob) -> io::Result<()> {
    let old: Vec<WindowFileState> = tending.windows.clone();
    let mut kept = old.clone();
    if job.rewrite {
        kept.clear();
        tending.window_file = None;
    }
    append_runs(shared, tending, &mut kept, job)?;
    kept.retain(|w| w.newest_ms >= job.window_floor_ms);
    let image = Checkpoint {
        windows: kept.iter().map(|w| w.file).collect(),
        ..job.image.clone()
    };
    let content = image.encode();
    let length =
        u32::try_from(content.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    let header = FrameHeader {
        kind: FrameKind::Checkpoint,
        partition: shared.id.0,
        epoch: 0,
        committed: image.index.0,
        length,
        content_crc: crc(&content),
    };
    let (tmp, path) = (shared.path(CHECKPOINT_TMP), shared.path(CHECKPOINT));
    let file = shared.disk.open(&tmp, OpenMode::Create)?;
    write_full(&*file, &header.encode(), 0)?;
    write_full(&*file, &content, FRAME_HEADER_LEN as u64)?;
    file.sync_data()?;
    shared.disk.rename(&tmp, &path)?;
    shared.disk.sync_dir(shared.dir())?;
    // From here on the old files are not needed.
    for gone in old
        .iter()
        .filter(|o| !kept.iter().any(|k| k.file.id == o.file.id))
    {
        remove(shared, &window_name(gone.file.id))?;
    }
    if kept.last().map(|k| k.file.id) != Some(tending.next_window.wrapping_sub(1)) {
        // The file that is open was dropped, or is not the last: the next run starts a new one.
        tending.window_file = None;
    }
    tending.windows = kept;
    Ok(())
}

/// Appends the runs to the last file or to new ones, and makes them durable. Nothing counts before the checkpoint that names it.
fn append_runs(
    shared: &Shared,
    tending: &mut Tending,
    kept: &mut Vec<WindowFileState>,
    job: &CheckpointJob,
) -> io::Result<()> {
    let mut file = tending.window_file.clone();
    let mut made = false;
    for run in &job.runs {
        if file.is_none()
            || kept
                .last()
                .is_none_or(|w| w.file.length >= WINDOW_FILE_BYTES)
        {
            if let Some(full) = file.take() {
                full.sync_data()?;
            }
            let id = tending.next_window;
            tending.next_window += 1;
            file = Some(
                shared
                    .disk
                    .open(&shared.path(&window_name(id)), OpenMode::Create)?,
            );
            kept.push(WindowFileState {
                file: WindowFile { id, length: 0 },
                newest_ms: 0,
            });
            made = true;
        }
        let (Some(file), Some(state)) = (&file, kept.last_mut()) else {
            continue;
        };
        let content = WindowRun::encode(run.queue, run.newest_ms, &run.items);
        let header = FrameHeader {
            kind: FrameKind::Window,
            partition: shared.id.0,
            epoch: state.file.id,
            committed: job.image.index.0,
            length: content.len() as u32,
            content_crc: crc(&content),
        };
        write_full(&**file, &header.encode(), state.file.length)?;
        write_full(
            &**file,
            &content,
            state.file.length + FRAME_HEADER_LEN as u64,
        )?;
        state.file.length += header.frame_len() as u64;
        state.newest_ms = state.newest_ms.max(run.newest_ms);
    }
    if let Some(file) = &file
        && !job.runs.is_empty()
    {
        file.sync_data()?;
    }
    if made {
        shared.disk.sync_dir(shared.dir())?;
    }
    tending.window_file = file;
    Ok(())
}
