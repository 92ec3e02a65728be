//! Receive buffer of one connection.
//!
//! Grows with the data received, never by the length that a frame announces, and hands out whole frames in batches. The
//! memory of a batch is given away (so that message data can be kept as slices of it) or recycled, as its user decides. A
//! byte is copied at most once: when it belongs to a frame that a batch ends in the middle of.

use std::io;
use std::os::fd::AsFd;

use bytes::Bytes;
use mqb_core::error::FrameError;
use mqb_core::wire::{FrameLimits, frame_length};

/// Smallest and largest read. The size in force follows the traffic, so that an idle connection holds little memory and a
/// busy one needs few calls.
const READ_MIN: usize = 4 << 10;
const READ_MAX: usize = 256 << 10;
/// Frames above this may be kept by whoever stores messages; smaller ones are copied.
const KEPT_FRAME_MIN: usize = 4 << 10;
/// Largest memory kept for reuse.
const SPARE_MAX: usize = 2 * READ_MAX;

/// Outcome of [`InBuf::fill`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// Read so much, and all of the space offered was used: there may be more.
    Full(usize),
    /// Read so much, and the socket is empty now.
    Drained(usize),
    /// Nothing there.
    Empty,
    /// The peer closed its side.
    Eof,
}

/// Whole frames, back to back.
#[derive(Debug)]
pub struct Frames {
    /// The frames, and behind `end` perhaps the beginning of the next one.
    pub data: Vec<u8>,
    /// Where the last whole frame ends.
    pub end: usize,
    /// Length of the largest frame.
    largest: usize,
}

impl Frames {
    /// The memory, to be shared. `data` of large frames may be kept for long, so it must not drag much unused memory along.
    pub fn share(mut self) -> Bytes {
        if self.largest > KEPT_FRAME_MIN && self.data.capacity() / 2 > self.data.len() {
            self.data.shrink_to_fit();
        }
        Bytes::from(self.data)
    }
}

/// Receive buffer. Owned by: the session's processor.
#[derive(Debug)]
pub struct InBuf {
    data: Vec<u8>,
    /// The last batch whose memory its user kept: used again if it is free by the time it is needed.
    spare: Bytes,
    /// Frame boundaries before this were found: no frame is looked at twice.
    scanned: usize,
    /// Total length of the incomplete frame at `scanned`, once known.
    expected: Option<usize>,
    read_size: usize,
}

impl Default for InBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl InBuf {
    /// An empty buffer that holds no memory yet.
    pub fn new() -> Self {
        Self {
            data: Vec::new(),
            spare: Bytes::new(),
            scanned: 0,
            expected: None,
            read_size: READ_MIN,
        }
    }

    /// Bytes received and not handed out.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// One read from a non-blocking socket. **Errors**: of the socket, except that it would block.
    pub fn fill(&mut self, socket: impl AsFd) -> io::Result<Fill> {
        self.make_room();
        let room = self.data.capacity() - self.data.len();
        loop {
            match rustix::io::read(
                socket.as_fd(),
                rustix::buffer::spare_capacity(&mut self.data),
            ) {
                Ok(0) => return Ok(Fill::Eof),
                Ok(count) => {
                    self.adapt(count);
                    return Ok(if count == room {
                        Fill::Full(count)
                    } else {
                        Fill::Drained(count)
                    });
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => return Ok(Fill::Empty),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes bytes as if read; for tests and for bytes that came by another way.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
    }

    /// Hands out whole frames: all there are, or only the first. `None` if there is none.
    ///
    /// **Errors**: a frame that `limits` does not allow, found from its first 8 bytes; frames before it are still handed
    /// out, the error comes again at the next call.
    pub fn take(
        &mut self,
        limits: &FrameLimits,
        only_first: bool,
    ) -> Result<Option<Frames>, FrameError> {
        let mut error = None;
        let mut largest = 0;
        while self.data.len() > self.scanned {
            match frame_length(&self.data[self.scanned..], limits) {
                Ok(Some(length)) if length <= self.data.len() - self.scanned => {
                    self.scanned += length;
                    largest = largest.max(length);
                    self.expected = None;
                    if only_first {
                        break;
                    }
                }
                Ok(length) => {
                    self.expected = length;
                    break;
                }
                Err(found) => {
                    error = Some(found);
                    break;
                }
            }
        }
        let end = std::mem::take(&mut self.scanned);
        match error {
            Some(error) if end == 0 => Err(error),
            _ if end == 0 => Ok(None),
            _ => Ok(Some(Frames {
                data: std::mem::take(&mut self.data),
                end,
                largest,
            })),
        }
    }

    /// Goes on behind a batch, of which the first `end` bytes were handled and whose memory may be referred to from
    /// elsewhere: only the unfinished rest is copied.
    pub fn go_on(&mut self, batch: Bytes, end: usize) {
        debug_assert!(
            self.data.is_empty(),
            "a batch is finished before the next read"
        );
        if batch.is_unique() {
            return self.recycle(Vec::from(batch), end);
        }
        let tail = &batch[end..];
        let mut spare = std::mem::take(&mut self.spare);
        if spare.is_unique() {
            spare.truncate(0);
            self.data = Vec::from(spare);
        }
        if !tail.is_empty() {
            self.data.reserve_exact(tail.len().max(self.read_size));
            self.data.extend_from_slice(tail);
        }
        if batch.len() <= SPARE_MAX {
            self.spare = batch;
        }
    }

    /// Goes on behind a batch whose memory is free again.
    fn recycle(&mut self, mut data: Vec<u8>, end: usize) {
        debug_assert!(
            self.data.is_empty(),
            "a batch is finished before the next read"
        );
        data.drain(..end);
        // Memory of a burst is not kept for a connection that became quiet.
        if data.is_empty() && data.capacity() > self.read_size.saturating_mul(2) {
            data = Vec::new();
        }
        self.data = data;
    }

    /// Room for one read: up to the end of a large frame that has begun, but at most as much again as was received.
    fn make_room(&mut self) {
        let room = match self.expected {
            Some(total) if total > self.data.len() + self.read_size => {
                (total - self.data.len()).min(self.data.len().max(self.read_size))
            }
            _ => self.read_size,
        };
        if self.data.capacity() - self.data.len() < room.min(READ_MIN) || self.data.is_empty() {
            self.data.reserve_exact(room);
        }
    }

    /// Doubles the read size when a read filled it and halves it when a read used a quarter of it or less.
    fn adapt(&mut self, count: usize) {
        if count >= self.read_size {
            self.read_size = (self.read_size * 2).min(READ_MAX);
        } else if count <= self.read_size / 4 {
            self.read_size = (self.read_size / 2).max(READ_MIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn frame(length: usize) -> Vec<u8> {
        let mut frame = u32::try_from(length).unwrap().to_be_bytes().to_vec();
        frame.extend_from_slice(&[0x42, 2, 0, 0]);
        frame.resize(length, length as u8);
        frame
    }

    /// Frames that come in pieces, taken as a session does: by turns kept and recycled.
    fn receive(pieces: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
        let mut input = InBuf::new();
        let mut received = Vec::new();
        let mut kept = Vec::new();
        for (index, piece) in pieces.enumerate() {
            input.extend(&piece);
            while let Some(frames) = input.take(&FrameLimits::BROKER, index % 3 == 0).unwrap() {
                let mut at = 0;
                while at < frames.end {
                    let length = frame_length(&frames.data[at..], &FrameLimits::BROKER)
                        .unwrap()
                        .unwrap();
                    received.push(frames.data[at..at + length].to_vec());
                    at += length;
                }
                assert_eq!(at, frames.end);
                let end = frames.end;
                let batch = frames.share();
                if index % 2 == 0 {
                    kept.push(batch.clone())
                }
                input.go_on(batch, end);
            }
        }
        assert!(input.is_empty());
        received
    }

    #[test]
    fn frames_are_found_however_they_are_cut() {
        let frames: Vec<_> = [8, 12, 300, 8, 70_000, 16, 8]
            .into_iter()
            .map(frame)
            .collect();
        let stream = frames.concat();
        for step in [1, 2, 7, 8, 9, 4096, stream.len()] {
            assert_eq!(
                receive(stream.chunks(step).map(<[u8]>::to_vec)),
                frames,
                "step {step}"
            );
        }
    }

    #[test]
    fn good_frames_before_a_bad_one_are_handed_out_first() {
        let mut input = InBuf::new();
        input.extend(&[frame(8), frame(12), vec![0; 4]].concat());
        let frames = input.take(&FrameLimits::BROKER, false).unwrap().unwrap();
        assert_eq!(frames.end, 20);
        let end = frames.end;
        input.go_on(frames.share(), end);
        assert!(input.take(&FrameLimits::BROKER, false).is_err());
        assert!(input.take(&FrameLimits::BROKER, false).is_err());
    }

    #[test]
    fn memory_grows_with_what_comes_not_with_what_is_announced() {
        let (mut far, near) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut input = InBuf::new();
        assert_eq!(input.fill(&near).unwrap(), Fill::Empty);
        far.write_all(&frame(60 << 20)[..1000]).unwrap();
        assert_eq!(input.fill(&near).unwrap(), Fill::Drained(1000));
        assert!(input.take(&FrameLimits::BROKER, false).unwrap().is_none());
        assert_eq!(input.fill(&near).unwrap(), Fill::Empty);
        assert!(
            input.data.capacity() <= 16 << 10,
            "{}",
            input.data.capacity()
        );
        drop(far);
        assert_eq!(input.fill(&near).unwrap(), Fill::Eof);
    }

    #[test]
    fn a_large_frame_is_received_in_few_steps_and_nearly_no_surplus() {
        let (mut far, near) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let length = 20 << 20;
        let writer = std::thread::spawn(move || far.write_all(&frame(length)).unwrap());
        let mut input = InBuf::new();
        let mut grown = 0;
        let mut capacity = 0;
        let frames = loop {
            if input.fill(&near).unwrap() == Fill::Empty {
                std::thread::yield_now();
                continue;
            }
            if input.data.capacity() != capacity {
                capacity = input.data.capacity();
                grown += 1;
            }
            if let Some(frames) = input.take(&FrameLimits::BROKER, false).unwrap() {
                break frames;
            }
        };
        writer.join().unwrap();
        assert_eq!(frames.end, length);
        assert!(grown < 40, "grown {grown} times");
        assert!(capacity < length + READ_MAX * 2, "{capacity}");
    }
}
