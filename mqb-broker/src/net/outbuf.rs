//! Output of one connection: small pieces in one growing stretch of memory, large payloads as reference-counted slices
//! in between, written together with vectored I/O.
//!
//! ```text
//! small:  [ack event][push header, options][pad, push header, options][pad ...]
//!                                          ^ splice: 1 MiB payload    ^ splice: 64 KiB payload
//! ```
//!
//! In a steady state nothing is allocated: the small memory is reused once it is written.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use bytes::Bytes;

/// Slices per system call. Enough to fill a socket buffer; on the stack.
const SLICES: usize = 64;
/// Written bytes at the front of the small memory are given back when they exceed this.
const COMPACT: usize = 64 << 10;
/// Small memory kept for reuse.
const KEEP: usize = 256 << 10;

/// Outcome of [`OutBuf::write_to`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// All is written.
    Done,
    /// The socket takes no more for now; so much was written.
    Blocked(usize),
}

/// A shared slice that goes out when the small memory is written up to `at`.
#[derive(Debug)]
struct Splice {
    /// Position in the small memory, counted from the beginning of the connection.
    at: u64,
    bytes: Bytes,
}

/// Output buffer. Owned by: the session's processor.
#[derive(Debug, Default)]
pub struct OutBuf {
    small: Vec<u8>,
    /// Bytes at the front of `small` that are written.
    written: usize,
    /// Position, from the beginning of the connection, of the first byte of `small`.
    base: u64,
    splices: VecDeque<Splice>,
    /// Bytes in `splices`.
    spliced_bytes: usize,
}

impl OutBuf {
    /// Bytes that wait to be written.
    pub fn len(&self) -> usize {
        self.small.len() - self.written + self.spliced_bytes
    }

    /// Whether all is written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory to append small pieces to. Append only; positions in it hold until the next write.
    #[inline]
    pub fn small(&mut self) -> &mut Vec<u8> {
        &mut self.small
    }

    /// Puts a payload at position `at` of the small memory without copying it. `at` must not be before an earlier splice,
    /// and what stands behind it goes out behind the payload.
    pub fn splice(&mut self, at: usize, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        self.spliced_bytes += bytes.len();
        self.splices.push_back(Splice {
            at: self.base + at as u64,
            bytes,
        });
    }

    /// Writes until all is written or the socket would block. **Errors**: of the socket.
    pub fn write_to(&mut self, socket: &mut impl Write) -> io::Result<Progress> {
        let mut total = 0;
        while !self.is_empty() {
            match self.write_once(socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    total += count;
                    self.consume(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.compact();
                    return Ok(Progress::Blocked(total));
                }
                Err(error) => return Err(error),
            }
        }
        self.reset();
        Ok(Progress::Done)
    }

    fn write_once(&self, socket: &mut impl Write) -> io::Result<usize> {
        if self.splices.is_empty() {
            return socket.write(&self.small[self.written..]);
        }
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut count = 0;
        let mut from = self.written;
        for splice in &self.splices {
            if count + 2 > SLICES {
                return socket.write_vectored(&slices[..count]);
            }
            let to = (splice.at - self.base) as usize;
            if to > from {
                slices[count] = IoSlice::new(&self.small[from..to]);
                count += 1;
            }
            slices[count] = IoSlice::new(&splice.bytes);
            count += 1;
            from = to;
        }
        if from < self.small.len() && count < SLICES {
            slices[count] = IoSlice::new(&self.small[from..]);
            count += 1;
        }
        socket.write_vectored(&slices[..count])
    }

    fn consume(&mut self, mut count: usize) {
        while count > 0 {
            let small_end = match self.splices.front() {
                Some(splice) => (splice.at - self.base) as usize,
                None => self.small.len(),
            };
            let step = count.min(small_end - self.written);
            self.written += step;
            count -= step;
            if count == 0 {
                return;
            }
            let Some(splice) = self.splices.front_mut() else {
                debug_assert!(false, "more written than was there");
                return;
            };
            let step = count.min(splice.bytes.len());
            count -= step;
            self.spliced_bytes -= step;
            if step == splice.bytes.len() {
                self.splices.pop_front();
            } else {
                bytes::Buf::advance(&mut splice.bytes, step);
            }
        }
    }

    /// Moves what is left to the front, if that frees much.
    fn compact(&mut self) {
        if self.written > COMPACT && self.written >= self.small.len() / 2 {
            self.small.drain(..self.written);
            self.base += self.written as u64;
            self.written = 0;
        }
    }

    fn reset(&mut self) {
        self.base += self.small.len() as u64;
        self.written = 0;
        self.small.clear();
        if self.small.capacity() > KEEP {
            self.small.shrink_to(KEEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket that takes a few bytes per call and blocks now and then.
    struct Trickle {
        taken: Vec<u8>,
        step: usize,
        calls: usize,
    }

    impl Write for Trickle {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.write_vectored(&[IoSlice::new(buf)])
        }

        fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
            self.calls += 1;
            if self.calls.is_multiple_of(3) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let mut left = self.step;
            for buf in bufs {
                let count = left.min(buf.len());
                self.taken.extend_from_slice(&buf[..count]);
                left -= count;
            }
            Ok(self.step - left)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn drain(out: &mut OutBuf, socket: &mut Trickle) {
        while out.write_to(socket).unwrap() != Progress::Done {}
    }

    #[test]
    fn pieces_leave_in_order_whatever_the_socket_takes() {
        for step in [1, 2, 3, 7, 64, 1 << 20] {
            let mut out = OutBuf::default();
            let mut socket = Trickle {
                taken: Vec::new(),
                step,
                calls: 0,
            };
            let mut expected = Vec::new();
            for round in 0..200_u32 {
                out.small().extend_from_slice(&round.to_be_bytes());
                expected.extend_from_slice(&round.to_be_bytes());
                if round % 3 != 0 {
                    let payload = vec![round as u8; (round % 17) as usize];
                    expected.extend_from_slice(&payload);
                    let at = out.small().len();
                    out.splice(at, payload.into());
                }
                if round % 50 == 49 {
                    let _ = out.write_to(&mut socket).unwrap();
                }
            }
            drain(&mut out, &mut socket);
            assert_eq!(socket.taken, expected, "step {step}");
            assert!(out.is_empty());
        }
    }

    #[test]
    fn length_counts_both_kinds() {
        let mut out = OutBuf::default();
        out.small().extend_from_slice(b"abc");
        out.splice(3, Bytes::from_static(b"defgh"));
        out.splice(3, Bytes::new());
        assert_eq!(out.len(), 8);
        let mut socket = Trickle {
            taken: Vec::new(),
            step: 4,
            calls: 1,
        };
        assert_eq!(out.write_to(&mut socket).unwrap(), Progress::Blocked(4));
        assert_eq!(out.len(), 4);
    }

    #[test]
    fn written_memory_is_given_back_while_the_peer_is_slow() {
        let mut out = OutBuf::default();
        let mut socket = Trickle {
            taken: Vec::new(),
            step: 100 << 10,
            calls: 0,
        };
        out.small().extend_from_slice(&vec![1; 300 << 10]);
        assert!(matches!(
            out.write_to(&mut socket).unwrap(),
            Progress::Blocked(_)
        ));
        assert_eq!(out.small.len(), 100 << 10);
        out.small().extend_from_slice(b"tail");
        drain(&mut out, &mut socket);
        assert_eq!(socket.taken.len(), (300 << 10) + 4);
        assert!(socket.taken.ends_with(b"tail"));
    }
}
