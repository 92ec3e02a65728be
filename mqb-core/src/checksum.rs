//! CRC32-C (Castagnoli), as in PUT headers and in the log.
//!
//! Computed by the machine's own instruction where there is one.

use crc_fast::{CrcAlgorithm, Digest};

/// Checksum of `data`. **Cost**: well below a copy of it.
#[inline]
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data)
}

/// A checksum of data that comes in pieces.
///
/// ```
/// let mut crc = mqb_core::checksum::Crc32c::new();
/// crc.update(b"ab");
/// crc.update(b"cd");
/// assert_eq!(crc.finish(), 0x92c8_0a31);
/// assert_eq!(mqb_core::checksum::crc32c(b"abcd"), 0x92c8_0a31);
/// ```
#[derive(Clone, Debug)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// Of nothing yet.
    #[inline]
    pub fn new() -> Self {
        Crc32c(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Takes the next piece.
    #[inline]
    pub fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    /// Checksum of all pieces so far.
    #[inline]
    pub fn finish(&self) -> u32 {
        // The algorithm has 32 bits; the library hands all results out as 64.
        self.0.finalize() as u32
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        for (text, crc) in [
            ("", 0),
            ("a", 0xc1d0_4330),
            ("abcd", 0x92c8_0a31),
            ("hello", 0x9a71_bb4c),
            ("123456789", 0xe306_9283),
        ] {
            assert_eq!(crc32c(text.as_bytes()), crc, "{text}");
        }
    }

    #[test]
    fn pieces_make_the_whole_at_every_split() {
        let data: Vec<u8> = (0..=255u8).cycle().take(700).collect();
        for split in 0..data.len() {
            let mut crc = Crc32c::new();
            crc.update(&data[..split]);
            crc.update(&data[split..]);
            assert_eq!(crc.finish(), crc32c(&data), "split at {split}");
        }
    }
}
