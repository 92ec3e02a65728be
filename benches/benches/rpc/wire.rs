//! What goes over the socket: two numbers with a timeout, and their sum.

use std::io;

pub(crate) const REQUEST: usize = 24;
pub(crate) const REPLY: usize = 16;

/// **Layout**: length, id, timeout in ms, class, two operands; 4 bytes each, little-endian.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) id: u32,
    pub(crate) timeout_ms: u32,
    pub(crate) class: u32,
    pub(crate) operands: [u32; 2],
}

impl Request {
    pub(crate) fn new(id: u32) -> Self {
        Self {
            id,
            // As rpc-bench's proxies.
            timeout_ms: 10_000,
            class: 0,
            operands: [id, id.rotate_left(7)],
        }
    }

    pub(crate) fn encode(&self) -> [u8; REQUEST] {
        let words = [
            REQUEST as u32,
            self.id,
            self.timeout_ms,
            self.class,
            self.operands[0],
            self.operands[1],
        ];
        let mut bytes = [0; REQUEST];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Self {
        Self {
            id: word(bytes, 1),
            timeout_ms: word(bytes, 2),
            class: word(bytes, 3),
            operands: [word(bytes, 4), word(bytes, 5)],
        }
    }

    pub(crate) fn sum(&self) -> u32 {
        self.operands[0].wrapping_add(self.operands[1])
    }
}

/// **Layout**: length, id, 1 if done, sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Response {
    pub(crate) id: u32,
    pub(crate) sum: Option<u32>,
}

impl Response {
    pub(crate) fn encode(&self) -> [u8; REPLY] {
        let words = [
            REPLY as u32,
            self.id,
            u32::from(self.sum.is_some()),
            self.sum.unwrap_or(0),
        ];
        let mut bytes = [0; REPLY];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Self {
        Self {
            id: word(bytes, 1),
            sum: (word(bytes, 2) == 1).then(|| word(bytes, 3)),
        }
    }

    /// True if done and right. A refused call is not, and does not count.
    pub(crate) fn check(&self) -> bool {
        match self.sum {
            Some(sum) => {
                assert_eq!(sum, Request::new(self.id).sum(), "a wrong sum");
                true
            }
            None => false,
        }
    }
}

fn word(bytes: &[u8], index: usize) -> u32 {
    let at = index * 4;
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// A receive buffer that is filled with as much as there is, and emptied of whole frames.
pub(crate) struct Inbound {
    bytes: Vec<u8>,
    have: usize,
}

impl Inbound {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; 64 * 1024],
            have: 0,
        }
    }

    /// Stands in for one that is in use; allocates nothing.
    pub(crate) fn empty() -> Self {
        Self {
            bytes: Vec::new(),
            have: 0,
        }
    }

    /// Reads once; `None` at the end of the stream, else true if there may be more.
    pub(crate) fn fill(&mut self, stream: &mut impl io::Read) -> Option<bool> {
        let room = &mut self.bytes[self.have..];
        match stream.read(room) {
            Ok(0) => None,
            Ok(count) => {
                // A short read has emptied the socket.
                let is_full = count == room.len();
                self.have += count;
                Some(is_full)
            }
            Err(error) => (error.kind() == io::ErrorKind::WouldBlock).then_some(false),
        }
    }

    pub(crate) fn frames(&mut self, size: usize, mut on_frame: impl FnMut(&[u8])) {
        let whole = self.have / size * size;
        self.bytes[..whole]
            .chunks_exact(size)
            .for_each(&mut on_frame);
        self.bytes.copy_within(whole..self.have, 0);
        self.have -= whole;
    }
}
