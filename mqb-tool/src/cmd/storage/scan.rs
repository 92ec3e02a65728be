//! Reads one file of frames from its start to where it ends, and says how it ends.

use std::fs;
use std::path::Path;

use anyhow::Context;
use mqb_core::log::{Frame, FrameHeader, Frames, LogError, find_frame};

/// How a file's frames end.
pub(crate) struct Ending {
    /// **Units**: bytes of whole frames before it.
    pub(crate) offset: usize,
    /// What stands there instead of a frame; `None` at the end of the file.
    pub(crate) error: Option<LogError>,
    /// It looks like reserved space or what the file held in an earlier life. The only one who can know better is
    /// who knows that something was written there.
    pub(crate) is_unwritten: bool,
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
    let is_unwritten = resumes.is_none() && is_unwritten(&bytes[offset..], error);
    Ok(Ending {
        offset,
        error,
        is_unwritten,
        resumes,
    })
}

fn is_unwritten(rest: &[u8], error: Option<LogError>) -> bool {
    match error {
        // No frame starts here, or one of an earlier life.
        None | Some(LogError::Magic { .. } | LogError::Field { field: "epoch", .. }) => true,
        Some(LogError::Short { .. }) => rest.iter().all(|byte| *byte == 0),
        Some(_) => false,
    }
}
