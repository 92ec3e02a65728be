//! Reading the files of the duplicate window, on a thread of its own beside the segments: a million GUIDs take as long as a gibibyte of log.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use hashbrown::HashMap;
use mqb_core::log::{Frame, WindowFile, WindowRun, find_frame};
use mqb_core::{PartitionId, QueueId};

use super::chore::{WindowFileState, window_name};
use super::disk::{Disk, OpenMode, read_full};
use super::error::{Damage, DamageKind, StorageError};
use super::window::{Window, WindowLimits};

/// What is to be read.
pub(crate) struct WindowFiles {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) partition: PartitionId,
    /// By the checkpoint, in order.
    pub(crate) listed: Vec<WindowFile>,
    /// Ids of the files that are there, in order.
    pub(crate) present: Vec<u64>,
    pub(crate) queues: HashSet<QueueId>,
    pub(crate) limits: WindowLimits,
}

/// What was read.
pub(crate) struct LoadedWindows {
    pub(crate) windows: HashMap<QueueId, Window>,
    pub(crate) files: Vec<WindowFileState>,
    pub(crate) damage: Vec<Damage>,
    /// **Units**: bytes.
    pub(crate) bytes: u64,
}

impl WindowFiles {
    /// Reads and verifies all files and builds the windows.
    pub(crate) fn load(self) -> Result<LoadedWindows, StorageError> {
        let mut loaded = LoadedWindows {
            windows: HashMap::new(),
            files: Vec::new(),
            damage: Vec::new(),
            bytes: 0,
        };
        let mut runs = Vec::new();
        for listed in &self.listed {
            self.read_file(*listed, &mut runs, &mut loaded)?;
        }
        let mut total: HashMap<QueueId, usize> = HashMap::new();
        for run in &runs {
            *total.entry(run.queue).or_default() += run.items.len();
        }
        for run in runs {
            let limits = self.limits;
            let count = total.get_mut(&run.queue).expect("it was counted");
            let window = loaded.windows.entry(run.queue).or_insert_with(|| {
                let mut window = Window::new(limits);
                window.reserve((*count).min(limits.max_entries));
                window
            });
            // What the cap would drop again is not taken at all.
            *count -= run.items.len();
            if *count < limits.max_entries {
                window.load(run.newest_ms, &run.items);
            }
        }
        Ok(loaded)
    }

    fn read_file(
        &self,
        listed: WindowFile,
        runs: &mut Vec<WindowRun>,
        loaded: &mut LoadedWindows,
    ) -> Result<(), StorageError> {
        let name = window_name(listed.id);
        let mut damaged = |offset: u64, what: DamageKind| {
            loaded.damage.push(Damage {
                partition: self.partition,
                file: name.clone(),
                offset,
                index: None,
                what,
            });
        };
        if self.present.binary_search(&listed.id).is_err() {
            damaged(0, DamageKind::Missing);
            return Ok(());
        }
        let path = self.dir.join(&name);
        let file = self
            .disk
            .open(&path, OpenMode::Read)
            .map_err(StorageError::io("opening", &path))?;
        let len = file
            .len()
            .map_err(StorageError::io("reading", &path))?
            .min(listed.length);
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        let have = read_full(&*file, &mut bytes, 0).map_err(StorageError::io("reading", &path))?;
        bytes.truncate(have);
        let mut state = WindowFileState {
            file: listed,
            newest_ms: 0,
        };
        let mut at = 0;
        while (at as u64) < listed.length {
            match Frame::parse(&bytes, at, listed.id)
                .and_then(|f| WindowRun::parse(f.content).map(|run| (run, f.header)))
            {
                Ok((run, header)) => {
                    state.newest_ms = state.newest_ms.max(run.newest_ms);
                    if self.queues.contains(&run.queue) {
                        runs.push(run);
                    }
                    at += header.frame_len();
                }
                Err(error) => {
                    damaged(at as u64, error.into());
                    at = find_frame(&bytes, listed.id, at + 8).map_or(usize::MAX, |f| f.offset);
                }
            }
        }
        loaded.bytes += have as u64;
        loaded.files.push(state);
        Ok(())
    }
}
