//! The 16-byte message GUID that the producer's SDK (or, for Java, the broker) gives to each message.
//!
//! Source: wire protocol, "Message GUID". Opaque but for its layout when this process generates one.

use std::fmt;

/// A message GUID. All zeros means unset.
///
/// **Layout**: byte 0: version (2 bits, 1) and counter bits 21..16; bytes 1-2: counter bits 15..0; bytes 3-9: 56-bit
/// nanoseconds since the generator was made; bytes 10-15: the generator's client id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Guid(pub [u8; 16]);

impl Guid {
    /// The unset GUID.
    pub const UNSET: Guid = Guid([0; 16]);

    /// Whether this is the unset GUID.
    #[inline]
    pub fn is_unset(&self) -> bool {
        *self == Self::UNSET
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02X}"))
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
