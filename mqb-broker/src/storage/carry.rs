//! Carrying: live records of a mostly dead segment are copied to a cold one and keep their sequence. One bounded step per chore.
//!
//! The copy is durable before the processor hears of it; until then, and until a later checkpoint is durable, the original counts.

use std::io;
use std::sync::Arc;

use mqb_core::Sequence;
use mqb_core::log::{
    self, Bitmap, EntryHeader, FRAME_HEADER_LEN, Frame, FrameHeader, FrameKind, PUT_HEADER_LEN,
    Record, Records, SegmentInfo, SegmentRole, carried_items, crc,
};

use super::disk::{OpenMode, read_full, write_full};
use super::shared::{Segment, Shared};

/// A frame of carried records is closed at this size.
const FRAME_BYTES: usize = 64 << 10;

/// Part of a segment to be carried.
pub(crate) struct CarryJob {
    pub(crate) victim: Arc<Segment>,
    /// Frames of the victim to look at: offsets in the file, in order.
    pub(crate) frames: Vec<u64>,
    /// Where the last of them ends.
    pub(crate) end: u64,
    /// What was settled when the job was made.
    pub(crate) settled: Bitmap,
    /// Where to.
    pub(crate) cold: Arc<Segment>,
    pub(crate) cold_offset: u64,
    /// Known durable index, for the frames' headers.
    pub(crate) committed: u64,
}

/// A record that has a second place now.
pub(crate) struct Moved {
    pub(crate) sequence: Sequence,
    /// Offset in the victim.
    pub(crate) from: u64,
    /// Offset in the cold segment.
    pub(crate) to: u64,
    pub(crate) bytes: u32,
}

/// What a step did.
pub(crate) struct CarryDone {
    pub(crate) moved: Vec<Moved>,
    /// Frames written to the cold segment.
    pub(crate) frames: Vec<u64>,
    pub(crate) cold_end: u64,
    /// The victim does not read as written: it is left alone.
    pub(crate) damaged: bool,
}

/// Copies what is live. On an error nothing counts; the same step can be done again.
pub(crate) fn run(shared: &Shared, job: &CarryJob) -> io::Result<CarryDone> {
    let Some(&start) = job.frames.first() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut out = Output::new(shared, job);
    let mut bytes = vec![0; (job.end - start) as usize];
    let file = job.victim.file().ok_or(io::ErrorKind::NotFound)?;
    let have = read_full(&**file, &mut bytes, start)?;
    bytes.truncate(have);
    let mut damaged = false;
    for at in &job.frames {
        let at = (at - start) as usize;
        match Frame::parse(&bytes, at, job.victim.id) {
            Ok(frame) => out.frame(start, &frame, &job.settled),
            Err(error) => {
                tracing::error!(event = "storage.damage", partition = %shared.id, file = %job.victim.name,
                    offset = start + at as u64, %error, "found while cleaning");
                damaged = true;
            }
        }
    }
    out.close_frame();
    shared.stats.carried(out.bytes.len() as u64);
    let done = out.write(shared, job, damaged)?;
    Ok(done)
}

struct Output {
    partition: u16,
    epoch: u64,
    committed: u64,
    /// Where `bytes` goes.
    base: u64,
    bytes: Vec<u8>,
    content: Vec<u8>,
    moved: Vec<Moved>,
    /// The first of `moved` that is in `content`.
    open_from: usize,
    frames: Vec<u64>,
}

impl Output {
    fn new(shared: &Shared, job: &CarryJob) -> Output {
        let mut out = Output {
            partition: shared.id.0,
            epoch: job.cold.id,
            committed: job.committed,
            base: job.cold_offset,
            bytes: Vec::new(),
            content: Vec::new(),
            moved: Vec::new(),
            open_from: 0,
            frames: Vec::new(),
        };
        if job.cold_offset == 0 {
            let info = SegmentInfo {
                role: SegmentRole::Cold,
                first_index: log::Index(0),
                capacity: 0,
            };
            out.push_frame(FrameKind::Segment, &info.encode());
        }
        out
    }

    fn push_frame(&mut self, kind: FrameKind, content: &[u8]) {
        let header = FrameHeader {
            kind,
            partition: self.partition,
            epoch: self.epoch,
            committed: self.committed,
            length: u32::try_from(content.len())
                .expect("a frame is closed at 64 KiB and one message"),
            content_crc: crc(content),
        };
        self.bytes.extend_from_slice(&header.encode());
        self.bytes.extend_from_slice(content);
    }

    fn frame(&mut self, start: u64, frame: &Frame<'_>, settled: &Bitmap) {
        let content_at = start + (frame.offset + FRAME_HEADER_LEN) as u64;
        match frame.header.kind {
            FrameKind::Entry => {
                let Ok(header) = EntryHeader::parse(frame.content) else {
                    return;
                };
                for (offset, record) in Records::new(frame.content).map_while(Result::ok) {
                    if let Record::Put(put) = record {
                        let sequence = log::sequence(header.index, offset);
                        self.item(
                            frame.content,
                            offset,
                            sequence,
                            put.data.len(),
                            content_at,
                            settled,
                        );
                    }
                }
            }
            FrameKind::Carried => {
                for (offset, sequence, put) in carried_items(frame.content).map_while(Result::ok) {
                    self.item(
                        frame.content,
                        offset,
                        sequence,
                        put.data.len(),
                        content_at,
                        settled,
                    );
                }
            }
            _ => {}
        }
    }

    fn item(
        &mut self,
        content: &[u8],
        offset: usize,
        sequence: Sequence,
        data: usize,
        content_at: u64,
        settled: &Bitmap,
    ) {
        let from = content_at + offset as u64;
        if settled.get(from) {
            return;
        }
        let size = (PUT_HEADER_LEN + data).next_multiple_of(8);
        log::push_carried_header(&mut self.content, sequence);
        // Offset within the frame's content for now; the frame's place is added when it is closed.
        self.moved.push(Moved {
            sequence,
            from,
            to: self.content.len() as u64,
            bytes: size as u32,
        });
        self.content
            .extend_from_slice(&content[offset..offset + size]);
        if self.content.len() >= FRAME_BYTES {
            self.close_frame();
        }
    }

    fn close_frame(&mut self) {
        if self.content.is_empty() {
            return;
        }
        let at = self.base + self.bytes.len() as u64;
        let content = std::mem::take(&mut self.content);
        self.push_frame(FrameKind::Carried, &content);
        for moved in &mut self.moved[self.open_from..] {
            moved.to += at + FRAME_HEADER_LEN as u64;
        }
        self.open_from = self.moved.len();
        self.frames.push(at);
    }

    fn write(self, shared: &Shared, job: &CarryJob, damaged: bool) -> io::Result<CarryDone> {
        let cold_end = self.base + self.bytes.len() as u64;
        if !self.moved.is_empty() {
            let file = match job.cold.file() {
                Some(file) => Arc::clone(file),
                None => {
                    let file = shared
                        .disk
                        .open(&shared.path(&job.cold.name), OpenMode::Create)?;
                    shared.disk.sync_dir(shared.dir())?;
                    job.cold.set_file(Arc::clone(&file));
                    file
                }
            };
            if let Err(e) = write_full(&*file, &self.bytes, self.base) {
                // Best effort: half a step must not keep the space that the next attempt needs.
                let _ = file.truncate(self.base);
                return Err(e);
            }
            file.sync_data()?;
            return Ok(CarryDone {
                moved: self.moved,
                frames: self.frames,
                cold_end,
                damaged,
            });
        }
        Ok(CarryDone {
            moved: Vec::new(),
            frames: Vec::new(),
            cold_end: self.base,
            damaged,
        })
    }
}
