//! A small generator for jitter and client ids. Not for secrets.

use std::hash::{BuildHasher, Hasher, RandomState};

/// SplitMix64.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    #[cfg(test)]
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Seeded from the operating system, through the keys of the standard library's hasher.
    pub(crate) fn from_system() -> Random {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        Random(hasher.finish())
    }

    /// The next 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0.0..1.0`.
    pub(crate) fn unit(&mut self) -> f64 {
        // 53 bits are what an f64 holds exactly.
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}
