//! Receive buffer of one connection.
//!
//! Grows with the data received, never by the length that a frame announces, and hands out whole frames in batches. The
//! memory of a batch is given away (so that message data can be kept as slices of it) or recycled, as its user decides. A
//! byte is copied at most once: when it belongs to a frame that a batch ends in the middle of.

use std::io;
use std::os::fd::AsFd;

use mqb_core::error::FrameError;
use mqb_core::wire::{FrameLimits, frame_length};

/// Smallest and largest read. The size in force follows the traffic, so that an idle connection holds little memory and a
/// busy one needs few calls.
const READ_MIN: usize = 4 << 10;
const READ_MAX: usize = 256 << 10;

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
}

/// Receive buffer. Owned by: the session's processor.
#[derive(Debug)]
pub struct InBuf {
    data: Vec<u8>,
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
        while self.data.len() > self.scanned {
            match frame_length(&self.data[self.scanned..], limits) {
                Ok(Some(length)) if length <= self.data.len() - self.scanned => {
                    self.scanned += length;
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
            })),
        }
    }

    /// Goes on behind a batch whose memory its user keeps: only the unfinished rest is copied.
    pub fn keep_tail(&mut self, tail: &[u8]) {
        debug_assert!(
            self.data.is_empty(),
            "a batch is finished before the next read"
        );
        self.data = Vec::with_capacity(if tail.is_empty() {
            0
        } else {
            tail.len().max(self.read_size)
        });
        self.data.extend_from_slice(tail);
    }

    /// Goes on behind a batch whose memory is free again.
    pub fn recycle(&mut self, frames: Frames) {
        debug_assert!(
            self.data.is_empty(),
            "a batch is finished before the next read"
        );
        let Frames { mut data, end } = frames;
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
