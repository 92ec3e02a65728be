//! Reads one file of frames from its start to where it ends, and says how it ends.

use std::fs;
use std::path::Path;

use anyhow::Context;
use mqb_core::log::{Frame, FrameHeader, Frames, LogError, find_frame};

/// How a file's frames end.
pub(crate) struct Ending {
    /// **Units**: bytes of whole frames before it.
    pub(crate) offset: usize,
    /// What stands there instead of a frame; `None` at the end of the file and where nothing was ever written.
    pub(crate) error: Option<LogError>,
    /// Where whole frames of the same file go on, if they do: damage in between, or a torn write.
    pub(crate) resumes: Option<(usize, FrameHeader)>,
}

/// Calls `visit` with each whole frame up to the first bad place.
pub(crate) fn scan(
    path: &Path,
    epoch: u64,
    mut visit: impl FnMut(&Frame<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<Ending> {
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let mut frames = Frames::new(&bytes, epoch, 0);
    let mut error = None;
    for frame in frames.by_ref() {
        match frame {
            Ok(frame) => visit(&frame)?,
            Err(found) => error = Some(found),
        }
    }
    let offset = frames.offset();
    let resumes = error
        .and_then(|_| find_frame(&bytes, epoch, offset + 8))
        .map(|frame| (frame.offset, frame.header));
    if resumes.is_none() && is_unwritten(&bytes, offset, error) {
        error = None;
    }
    Ok(Ending {
        offset,
        error,
        resumes,
    })
}

/// Whether nothing was written at `offset`: zeros of reserved space, or what the file held in an earlier life.
fn is_unwritten(bytes: &[u8], offset: usize, error: Option<LogError>) -> bool {
    match error {
        None => true,
        Some(LogError::Magic { .. }) => bytes[offset..].iter().take(4096).all(|byte| *byte == 0),
        Some(LogError::Field { field: "epoch", .. }) => true,
        Some(LogError::Short { .. }) => bytes[offset..].iter().all(|byte| *byte == 0),
        Some(_) => false,
    }
}
