//! The 16-byte message GUID that the producer's SDK (or, for Java, the broker) gives to each message.
//!
//! Source: wire protocol, "Message GUID". Opaque but for its layout when this process generates one.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A message GUID. All zeros means unset.
///
/// **Layout**: byte 0: version (2 bits, 1) and counter bits 21..16; bytes 1-2: counter bits 15..0; bytes 3-9: 56-bit
/// nanoseconds since the generator was made; bytes 10-15: the generator's client id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Guid(pub [u8; 16]);

const _: () = assert!(size_of::<Guid>() == 16);

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

/// Text that is not 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a GUID is 32 hexadecimal digits")]
pub struct NotAGuid;

impl FromStr for Guid {
    type Err = NotAGuid;

    fn from_str(text: &str) -> Result<Self, NotAGuid> {
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NotAGuid);
        }
        u128::from_str_radix(text, 16)
            .map(|value| Guid(value.to_be_bytes()))
            .map_err(|_| NotAGuid)
    }
}

/// Makes GUIDs. Unique among generators as far as their client ids are, within one by a counter and the caller's clock.
///
/// Owned by: whoever numbers the messages; it is cheap enough for one per producer.
#[derive(Clone, Debug)]
pub struct GuidGenerator {
    client_id: [u8; 6],
    counter: u32,
}

impl GuidGenerator {
    const COUNTER_BITS: u32 = 22;
    const VERSION: u8 = 1;

    /// A generator with an id of its own: random, or a hash of what tells this process and session from others.
    pub const fn new(client_id: [u8; 6]) -> Self {
        GuidGenerator {
            client_id,
            counter: 0,
        }
    }

    /// The client id as it goes into a [`crate::control::GuidInfo`]: 12 upper-case hex digits.
    pub fn client_id_hex(&self) -> String {
        self.client_id
            .iter()
            .map(|byte| format!("{byte:02X}"))
            .collect()
    }

    /// The next GUID at `elapsed_ns` nanoseconds since the generator was made.
    ///
    /// Two never repeat unless 2^22 are made at one value of the clock.
    #[inline]
    pub fn make(&mut self, elapsed_ns: u64) -> Guid {
        let mut guid = [0; 16];
        guid[2..10].copy_from_slice(&elapsed_ns.to_be_bytes());
        let [_, high, middle, low] = self.counter.to_be_bytes();
        guid[..3].copy_from_slice(&[Self::VERSION << 6 | high, middle, low]);
        guid[10..].copy_from_slice(&self.client_id);
        self.counter = (self.counter + 1) & ((1 << Self::COUNTER_BITS) - 1);
        Guid(guid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_the_official_one() {
        let mut generator = GuidGenerator::new([0x77, 0xA5, 0x2C, 0x71, 0x50, 0xEA]);
        assert_eq!(generator.client_id_hex(), "77A52C7150EA");
        // The first GUID of a session of the official SDK.
        assert_eq!(
            generator.make(0x1FA7_51F2).to_string(),
            "4000000000001FA751F277A52C7150EA"
        );
        assert_eq!(
            generator.make(u64::MAX).to_string(),
            "400001FFFFFFFFFFFFFF77A52C7150EA"
        );
    }

    #[test]
    fn counter_wraps_in_its_22_bits_and_leaves_the_version_alone() {
        let mut generator = GuidGenerator {
            client_id: [0; 6],
            counter: (1 << 22) - 1,
        };
        assert_eq!(generator.make(1).0[..3], [0x7F, 0xFF, 0xFF]);
        assert_eq!(generator.make(1).0[..3], [0x40, 0, 0]);
    }

    #[test]
    fn text_round_trips_and_nothing_else_is_taken() {
        let text = "40000000000000001FA751F277A52C71";
        assert_eq!(text.parse::<Guid>().unwrap().to_string(), text);
        for bad in [
            "",
            "40",
            "+0000000000000001FA751F277A52C71",
            "4000000000000000 FA751F277A52C71",
            "400000000000000000000000000000001",
        ] {
            assert_eq!(bad.parse::<Guid>(), Err(NotAGuid), "{bad}");
        }
    }
}
