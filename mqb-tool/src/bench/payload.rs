//! Message contents that can be checked: who sent it, which one it is, when it was meant to be sent, and bytes that must be right.
//!
//! ```text
//! offset size
//!      0    8  run: messages of other runs are not counted
//!      8    4  producer
//!     12    4  mix of the other fields, so that a damaged head is noticed
//!     16    8  number of the message among its producer's, from 0
//!     24    8  intended time of sending, ns of the monotonic clock
//!     32    .  pseudo-random bytes of the producer, compared one by one on arrival
//! ```

/// Smallest message.
pub(crate) const HEAD_BYTES: usize = 32;

/// The head of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) run: u64,
    pub(crate) producer: u32,
    pub(crate) number: u64,
    pub(crate) intended_ns: u64,
}

impl Head {
    pub(crate) fn write(&self, message: &mut [u8]) {
        message[0..8].copy_from_slice(&self.run.to_le_bytes());
        message[8..12].copy_from_slice(&self.producer.to_le_bytes());
        message[12..16].copy_from_slice(&self.mix().to_le_bytes());
        message[16..24].copy_from_slice(&self.number.to_le_bytes());
        message[24..32].copy_from_slice(&self.intended_ns.to_le_bytes());
    }

    /// The head, or `None` if these bytes are not one.
    #[inline]
    pub(crate) fn read(message: &[u8]) -> Option<Head> {
        let head: &[u8; HEAD_BYTES] = message.first_chunk()?;
        let long = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&head[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let pair = long(8);
        let found = Head {
            run: long(0),
            producer: pair as u32,
            number: long(16),
            intended_ns: long(24),
        };
        (found.mix() == (pair >> 32) as u32).then_some(found)
    }

    fn mix(&self) -> u32 {
        let mut mixed = self.run
            ^ u64::from(self.producer).rotate_left(40)
            ^ self.number.rotate_left(17)
            ^ self.intended_ns.rotate_left(41);
        mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 32) as u32
    }
}

/// A producer's message without its head filled in; consumers make the same one to compare with.
pub(crate) fn template(run: u64, producer: u32, size: usize) -> Vec<u8> {
    let mut state = run ^ (u64::from(producer) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state ^ (state >> 29)).to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_bit_in_the_head_is_noticed() {
        let head = Head {
            run: 77,
            producer: 3,
            number: 1 << 40,
            intended_ns: 123_456_789,
        };
        let mut message = template(77, 3, 100);
        head.write(&mut message);
        assert_eq!(Head::read(&message), Some(head));
        for bit in 0..HEAD_BYTES * 8 {
            message[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::read(&message), None, "bit {bit}");
            message[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(Head::read(&message[..31]), None);
        assert_ne!(template(77, 3, 64), template(77, 4, 64));
    }
}
