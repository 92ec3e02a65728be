//! What is on its way to the socket, in order.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use bytes::{Buf, Bytes};

/// Pieces per system call; beyond this more pieces do not make a call cheaper.
const PIECES_PER_WRITE: usize = 64;

/// One piece, and the PUT event that ends with it, if any.
#[derive(Debug)]
struct Piece {
    bytes: Bytes,
    ends_chunk: Option<u64>,
}

/// Output of one connection. Owned by: the session's I/O thread.
#[derive(Debug, Default)]
pub(crate) struct Transmit {
    pieces: VecDeque<Piece>,
    bytes: usize,
}

impl Transmit {
    /// Appends bytes that need no book-keeping.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        self.push_piece(bytes, None);
    }

    /// Appends a piece; `ends_chunk` is reported by [`Transmit::write_to`] once the piece is written.
    pub(crate) fn push_piece(&mut self, bytes: Bytes, ends_chunk: Option<u64>) {
        self.bytes += bytes.len();
        self.pieces.push_back(Piece { bytes, ends_chunk });
    }

    /// **Units**: bytes not yet accepted by the socket.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Forgets everything: the connection is gone.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.bytes = 0;
    }

    /// Writes until everything is out or the socket takes no more. Returns the number of the last chunk that left completely.
    ///
    /// **Errors**: those of the socket, but not `WouldBlock` and `Interrupted`.
    pub(crate) fn write_to(&mut self, socket: &mut impl Write) -> io::Result<Option<u64>> {
        let mut written_chunk = None;
        while !self.pieces.is_empty() {
            let mut slices = [IoSlice::new(&[]); PIECES_PER_WRITE];
            let mut offered = 0;
            let mut count = 0;
            for (slot, piece) in slices.iter_mut().zip(&self.pieces) {
                *slot = IoSlice::new(&piece.bytes);
                offered += piece.bytes.len();
                count += 1;
            }
            match socket.write_vectored(&slices[..count]) {
                Ok(0) if offered > 0 => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    if let Some(chunk) = self.advance(written) {
                        written_chunk = Some(chunk);
                    }
                    // A short write means a full socket buffer; asking again would only cost a system call.
                    if written < offered {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written_chunk)
    }

    fn advance(&mut self, mut written: usize) -> Option<u64> {
        let mut chunk = None;
        self.bytes -= written;
        while let Some(piece) = self.pieces.front_mut() {
            if piece.bytes.len() > written {
                piece.bytes.advance(written);
                break;
            }
            written -= piece.bytes.len();
            chunk = piece.ends_chunk.or(chunk);
            self.pieces.pop_front();
        }
        chunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `room` bytes, then would block.
    struct Narrow {
        room: usize,
        got: Vec<u8>,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let taken = bytes.len().min(self.room);
            self.room -= taken;
            self.got.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn order_and_chunk_ends_survive_every_split() {
        for step in 1..12 {
            let mut transmit = Transmit::default();
            transmit.push(Bytes::from_static(b"abc"));
            transmit.push_piece(Bytes::from_static(b"defg"), Some(7));
            transmit.push_piece(Bytes::from_static(b"hi"), Some(8));
            let mut socket = Narrow {
                room: 0,
                got: Vec::new(),
            };
            let mut last = None;
            while !transmit.is_empty() {
                socket.room = step;
                last = transmit.write_to(&mut socket).unwrap().or(last);
                assert_eq!(socket.got.len() >= 7, last.is_some(), "step {step}");
            }
            assert_eq!(
                (socket.got.as_slice(), last, transmit.len()),
                (&b"abcdefghi"[..], Some(8), 0)
            );
        }
    }
}
