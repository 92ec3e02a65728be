//! A file system that loses power.
//!
//! Only what was synced survives [`FakeDisk::crash`] for sure. Of every write since, each 512-byte sector may or may not have reached the
//! disk, in any order; of the changes to a directory since its last sync, a prefix has. It can also be full, fail to sync, and write short.
//! One seed decides everything.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use mqb_broker::storage::{Disk, DiskFile, OpenMode};

use crate::rng::Rng;

const SECTOR: usize = 512;

enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

#[derive(Default)]
struct Inode {
    durable: Vec<u8>,
    current: Vec<u8>,
    pending: Vec<Change>,
}

enum DirChange {
    Link(PathBuf, u64),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
}

type Tree = BTreeMap<PathBuf, u64>;

struct State {
    rng: Rng,
    inodes: HashMap<u64, Inode>,
    next_inode: u64,
    tree: Tree,
    durable_tree: Tree,
    pending: Vec<(PathBuf, DirChange)>,
    /// Handles of an earlier generation are of a process that died.
    generation: u64,
    capacity: u64,
    fail_syncs: bool,
    short_writes: bool,
    locks: Vec<PathBuf>,
    syncs: u64,
}

/// See the module.
#[derive(Clone)]
pub struct FakeDisk(Arc<Mutex<State>>);

fn apply(tree: &mut Tree, change: &DirChange) {
    match change {
        DirChange::Link(path, inode) => {
            tree.insert(path.clone(), *inode);
        }
        DirChange::Unlink(path) => {
            tree.remove(path);
        }
        DirChange::Rename(from, to) => {
            if let Some(inode) = tree.remove(from) {
                tree.insert(to.clone(), inode);
            }
        }
    }
}

fn write(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if content.len() < offset + bytes.len() {
        content.resize(offset + bytes.len(), 0);
    }
    content[offset..offset + bytes.len()].copy_from_slice(bytes);
}

impl State {
    fn used(&self) -> u64 {
        self.tree
            .values()
            .map(|inode| self.inodes[inode].current.len() as u64)
            .sum()
    }

    fn inode(&self, path: &Path) -> io::Result<u64> {
        self.tree
            .get(path)
            .copied()
            .ok_or(ErrorKind::NotFound.into())
    }

    fn change_dir(&mut self, path: &Path, change: DirChange) {
        apply(&mut self.tree, &change);
        self.pending
            .push((path.parent().unwrap_or(path).to_owned(), change));
    }
}

impl FakeDisk {
    /// An empty disk without end.
    pub fn new(seed: u64) -> Self {
        FakeDisk(Arc::new(Mutex::new(State {
            rng: Rng::new(seed),
            inodes: HashMap::new(),
            next_inode: 1,
            tree: Tree::new(),
            durable_tree: Tree::new(),
            pending: Vec::new(),
            generation: 0,
            capacity: u64::MAX,
            fail_syncs: false,
            short_writes: false,
            locks: Vec::new(),
            syncs: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The power fails. Open files are of no use any more.
    pub fn crash(&self) {
        let mut state = self.state();
        let State {
            rng,
            inodes,
            tree,
            durable_tree,
            pending,
            ..
        } = &mut *state;
        // Numbers are drawn in a fixed order: a map's would differ from run to run.
        let mut ids: Vec<u64> = inodes.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let Some(inode) = inodes.get_mut(&id) else {
                continue;
            };
            let mood = rng.below(4);
            for change in inode.pending.drain(..) {
                match change {
                    Change::Length(len) if rng.one_in(2) => inode.durable.resize(len, 0),
                    Change::Length(_) => {}
                    Change::Write(offset, bytes) => {
                        let mut at = 0;
                        while at < bytes.len() {
                            let end = bytes
                                .len()
                                .min((offset + at) / SECTOR * SECTOR + SECTOR - offset);
                            let reached = match mood {
                                0 => false,
                                1 => true,
                                2 => rng.one_in(2),
                                _ => !rng.one_in(8),
                            };
                            if reached {
                                write(&mut inode.durable, offset + at, &bytes[at..end]);
                            }
                            at = end;
                        }
                    }
                }
            }
            inode.current.clone_from(&inode.durable);
        }
        let reached = rng.below(pending.len() as u64 + 1) as usize;
        for (_, change) in pending.drain(..).take(reached) {
            apply(durable_tree, &change);
        }
        tree.clone_from(durable_tree);
        state.generation += 1;
        state.locks.clear();
        (state.fail_syncs, state.short_writes, state.capacity) = (false, false, u64::MAX);
    }

    /// The process dies, the machine does not: everything written stays.
    pub fn kill(&self) {
        let mut state = self.state();
        state.generation += 1;
        state.locks.clear();
    }

    /// **Units**: bytes; writes beyond fail with ENOSPC.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// **Units**: bytes of all files.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// Syncs fail with EIO and make nothing durable.
    pub fn fail_syncs(&self, fail: bool) {
        self.state().fail_syncs = fail;
    }

    /// Writes take only a part, now and then.
    pub fn short_writes(&self, short: bool) {
        self.state().short_writes = short;
    }

    /// Syncs of files so far.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// All files with their content.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = self.state();
        state
            .tree
            .iter()
            .map(|(path, inode)| (path.clone(), state.inodes[inode].current.clone()))
            .collect()
    }

    /// A disk that holds these files, durably.
    pub fn with_files(seed: u64, files: &BTreeMap<PathBuf, Vec<u8>>) -> Self {
        let disk = FakeDisk::new(seed);
        {
            let mut state = disk.state();
            for (path, content) in files {
                let id = state.next_inode;
                state.next_inode += 1;
                state.inodes.insert(
                    id,
                    Inode {
                        durable: content.clone(),
                        current: content.clone(),
                        pending: Vec::new(),
                    },
                );
                state.tree.insert(path.clone(), id);
                state.durable_tree.insert(path.clone(), id);
            }
        }
        disk
    }
}

impl Disk for FakeDisk {
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        let names = state
            .tree
            .keys()
            .filter(|p| p.parent() == Some(dir))
            .filter_map(|p| p.file_name()?.to_str().map(str::to_owned));
        Ok(names.collect())
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        let inode = match (state.inode(path), mode) {
            (Ok(inode), OpenMode::Create) => {
                let file = state.inodes.get_mut(&inode).expect("linked");
                file.current.clear();
                file.pending.push(Change::Length(0));
                inode
            }
            (Err(_), OpenMode::Create) => {
                let id = state.next_inode;
                state.next_inode += 1;
                state.inodes.insert(id, Inode::default());
                state.change_dir(path, DirChange::Link(path.to_owned(), id));
                id
            }
            (found, _) => found?,
        };
        Ok(Arc::new(FakeFile {
            disk: self.clone(),
            inode,
            generation: state.generation,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.inode(from)?;
        state.change_dir(to, DirChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.inode(path)?;
        state.change_dir(path, DirChange::Unlink(path.to_owned()));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.fail_syncs {
            return Err(io::Error::from_raw_os_error(5));
        }
        let State {
            durable_tree,
            pending,
            ..
        } = &mut *state;
        pending.retain(|(of, change)| {
            if of == dir {
                apply(durable_tree, change);
            }
            of != dir
        });
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let mut state = self.state();
        if state.locks.iter().any(|l| l == path) {
            return Ok(None);
        }
        state.locks.push(path.to_owned());
        Ok(Some(Box::new(FakeLock {
            disk: self.clone(),
            path: path.to_owned(),
            generation: state.generation,
        })))
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        let state = self.state();
        Ok(state.capacity.saturating_sub(state.used()))
    }
}

struct FakeLock {
    disk: FakeDisk,
    path: PathBuf,
    generation: u64,
}

impl Drop for FakeLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.generation == self.generation {
            state.locks.retain(|l| *l != self.path);
        }
    }
}

struct FakeFile {
    disk: FakeDisk,
    inode: u64,
    generation: u64,
}

impl FakeFile {
    /// Runs `f` on the file, unless its process is dead.
    fn with<T>(&self, f: impl FnOnce(&mut State, u64) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.state();
        if state.generation != self.generation {
            return Err(ErrorKind::BrokenPipe.into());
        }
        f(&mut state, self.inode)
    }
}

fn file(state: &mut State, inode: u64) -> &mut Inode {
    state.inodes.get_mut(&inode).expect("inodes are kept")
}

impl DiskFile for FakeFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|state, inode| {
            let content = &file(state, inode).current;
            let rest = content.get(offset as usize..).unwrap_or_default();
            let n = rest.len().min(buf.len());
            buf[..n].copy_from_slice(&rest[..n]);
            Ok(n)
        })
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.with(|state, inode| {
            let mut bytes: Vec<u8> = bufs.iter().flat_map(|b| b.iter().copied()).collect();
            if state.short_writes && bytes.len() > 1 && state.rng.one_in(2) {
                let n = 1 + state.rng.below(bytes.len() as u64 - 1) as usize;
                bytes.truncate(n);
            }
            let (used, capacity) = (state.used(), state.capacity);
            let now = file(state, inode).current.len();
            let end = (offset as usize + bytes.len()).max(now);
            let room = now + capacity.saturating_sub(used).min(usize::MAX as u64 / 2) as usize;
            if end > room {
                // As much as fits, then nothing.
                let fits = room.saturating_sub(offset as usize).min(bytes.len());
                if fits == 0 {
                    return Err(ErrorKind::StorageFull.into());
                }
                bytes.truncate(fits);
            }
            let file = file(state, inode);
            write(&mut file.current, offset as usize, &bytes);
            let n = bytes.len();
            file.pending.push(Change::Write(offset as usize, bytes));
            Ok(n)
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(|state, inode| {
            if state.fail_syncs {
                return Err(io::Error::from_raw_os_error(5));
            }
            state.syncs += 1;
            let file = file(state, inode);
            file.pending.clear();
            file.durable.clone_from(&file.current);
            Ok(())
        })
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.with(|state, inode| {
            let (used, capacity) = (state.used(), state.capacity);
            let file = file(state, inode);
            let more = (len as usize).saturating_sub(file.current.len());
            if more == 0 {
                return Ok(());
            }
            if used + more as u64 > capacity {
                return Err(ErrorKind::StorageFull.into());
            }
            file.current.resize(len as usize, 0);
            file.pending.push(Change::Length(len as usize));
            Ok(())
        })
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.with(|state, inode| {
            let file = file(state, inode);
            file.current.resize(len as usize, 0);
            file.pending.push(Change::Length(len as usize));
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|state, inode| Ok(file(state, inode).current.len() as u64))
    }
}
