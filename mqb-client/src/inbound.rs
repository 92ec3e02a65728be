//! Bytes received and not yet handed on, cut into whole events.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use bytes::Bytes;
use mqb_core::error::FrameError;
use mqb_core::wire::{FrameLimits, frame_length};
use rustix::net::RecvFlags;

/// Room offered to each read.
const READ_BYTES: usize = 256 * 1024;
/// Up to this size events are copied out of the buffer, so that a few small messages which the application keeps do not pin a large one.
const COPY_BYTES: usize = 8 * 1024;
/// Blocks watched for use again.
const LENT_BLOCKS: usize = 4;

/// The receive buffer of one connection. Owned by: the session's I/O thread.
///
/// It grows with what has arrived, never with what a header announces. Whole events leave as one reference-counted block,
/// of which messages keep slices; the memory is used again once all slices are dropped.
#[derive(Debug)]
pub(crate) struct Inbound {
    buffer: Vec<u8>,
    /// Blocks handed out lately.
    lent: VecDeque<Bytes>,
    limits: FrameLimits,
}

impl Inbound {
    pub(crate) fn new() -> Inbound {
        Inbound {
            buffer: Vec::new(),
            lent: VecDeque::with_capacity(LENT_BLOCKS),
            limits: FrameLimits::HANDSHAKE,
        }
    }

    /// Forgets everything, for a new connection.
    pub(crate) fn reset(&mut self) {
        self.buffer.clear();
        self.limits = FrameLimits::HANDSHAKE;
    }

    /// The negotiation is done.
    pub(crate) fn set_limits(&mut self, limits: FrameLimits) {
        self.limits = limits;
    }

    /// Reads once. Returns the number of bytes read (0: the peer closed) and the room there was.
    pub(crate) fn read_from(&mut self, socket: impl AsFd) -> rustix::io::Result<(usize, usize)> {
        if self.buffer.capacity() - self.buffer.len() < READ_BYTES / 4 {
            // Doubles for an event that spans many reads, so that its bytes are moved about once.
            self.buffer.reserve(READ_BYTES.max(self.buffer.len()));
        }
        let room = self.buffer.capacity() - self.buffer.len();
        let (read, _) = rustix::net::recv(
            socket,
            rustix::buffer::spare_capacity(&mut self.buffer),
            RecvFlags::empty(),
        )?;
        Ok((read, room))
    }

    /// Appends bytes as if they had been read.
    #[cfg(test)]
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes all whole events out, as one block; empty if there is none.
    ///
    /// **Errors**: the stream cannot be followed further; close the connection.
    pub(crate) fn take_events(&mut self) -> Result<Bytes, FrameError> {
        let mut end = 0;
        while let Some(length) = frame_length(&self.buffer[end..], &self.limits)? {
            if self.buffer.len() - end < length {
                break;
            }
            end += length;
            // The first event decides the limits for what follows it.
            if self.limits == FrameLimits::HANDSHAKE {
                break;
            }
        }
        if end == 0 {
            return Ok(Bytes::new());
        }
        if end <= COPY_BYTES {
            let whole = Bytes::copy_from_slice(&self.buffer[..end]);
            self.buffer.drain(..end);
            return Ok(whole);
        }
        let mut rest = self.spare_buffer();
        rest.extend_from_slice(&self.buffer[end..]);
        let mut whole = Bytes::from(std::mem::replace(&mut self.buffer, rest));
        self.lent.push_back(whole.clone());
        whole.truncate(end);
        Ok(whole)
    }

    /// The memory of an earlier block whose messages are gone, if there is one.
    fn spare_buffer(&mut self) -> Vec<u8> {
        let free = self.lent.iter().position(Bytes::is_unique);
        if let Some(block) = free.and_then(|index| self.lent.remove(index)) {
            return reuse(block);
        }
        if self.lent.len() == LENT_BLOCKS {
            self.lent.pop_front();
        }
        Vec::new()
    }
}

/// The memory of a block that nobody else holds, empty.
pub(crate) fn reuse(mut block: Bytes) -> Vec<u8> {
    // The conversion moves the block's bytes to the front of its memory: leave it little to move. Not nothing: that would let
    // go of the memory.
    block.truncate(1);
    let mut buffer = Vec::from(block);
    buffer.clear();
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARTBEAT: [u8; 8] = [0, 0, 0, 8, 0x4B, 2, 0, 0];

    #[test]
    fn events_come_out_whole_however_they_arrive() {
        let mut inbound = Inbound::new();
        inbound.set_limits(FrameLimits::CLIENT);
        for byte in &HEARTBEAT[..7] {
            inbound.append(&[*byte]);
            assert!(inbound.take_events().unwrap().is_empty());
        }
        inbound.append(&[0]);
        inbound.append(&HEARTBEAT);
        inbound.append(&HEARTBEAT[..5]);
        assert_eq!(inbound.take_events().unwrap().len(), 16);
        inbound.append(&HEARTBEAT[5..]);
        assert_eq!(inbound.take_events().unwrap(), &HEARTBEAT[..]);
    }

    #[test]
    fn before_the_negotiation_one_event_at_a_time_and_small_ones_only() {
        let mut inbound = Inbound::new();
        inbound.append(&HEARTBEAT);
        inbound.append(&HEARTBEAT);
        assert_eq!(inbound.take_events().unwrap().len(), 8);
        let mut inbound = Inbound::new();
        inbound.append(&[0, 0x10, 0, 0, 0x41, 2, 0, 0]);
        assert!(inbound.take_events().is_err());
    }

    #[test]
    fn memory_is_used_again() {
        for spare in [0, 1000] {
            let mut buffer = Vec::with_capacity(10_000 + spare);
            buffer.resize(10_000, 1);
            let at = buffer.as_ptr();
            let buffer = reuse(Bytes::from(buffer));
            assert_eq!((buffer.as_ptr(), buffer.len()), (at, 0));
            assert!(buffer.capacity() >= 10_000);
        }
    }

    #[test]
    fn a_block_that_is_still_held_is_not_overwritten() {
        let mut inbound = Inbound::new();
        inbound.set_limits(FrameLimits::CLIENT);
        let mut held = Vec::new();
        for n in 0..4u8 {
            let mut event = vec![n; COPY_BYTES * 2];
            event[..8].copy_from_slice(&[0, 0, 0x40, 0, 0x44, 2, 0, 0]);
            assert_eq!(event.len(), 0x4000);
            inbound.append(&event);
            held.push(inbound.take_events().unwrap());
        }
        for (n, block) in held.iter().enumerate() {
            assert!(block[8..].iter().all(|byte| usize::from(*byte) == n));
        }
    }
}
