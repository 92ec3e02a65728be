//! The GUIDs that this client gives to its messages.
//!
//! Layout: wire protocol, "Message GUID". The 22-bit counter doubles as the message's place in the window of
//! unacknowledged messages, so that an ACK is found without hashing.

use std::time::Instant;

use mqb_core::Guid;

/// Bits of the counter within a GUID.
pub(crate) const COUNTER_BITS: u32 = 22;
/// Counters repeat after this many messages.
pub(crate) const COUNTER_SPAN: u64 = 1 << COUNTER_BITS;

/// Makes GUIDs: version 1, a counter from 0, the time since its own creation, the client id.
#[derive(Debug)]
pub(crate) struct GuidMaker {
    client_id: [u8; 6],
    created: Instant,
}

impl GuidMaker {
    pub(crate) fn new(client_id: [u8; 6], created: Instant) -> GuidMaker {
        GuidMaker { client_id, created }
    }

    /// **Units**: nanoseconds since the generator was made, modulo 2^56.
    pub(crate) fn timer(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.created).as_nanos();
        u64::try_from(elapsed).unwrap_or(u64::MAX) & ((1 << 56) - 1)
    }

    /// The GUID of the message with this ordinal, stamped with `timer`.
    #[inline]
    pub(crate) fn make(&self, ordinal: u64, timer: u64) -> Guid {
        let head = (1u128 << 126)
            | (u128::from(ordinal % COUNTER_SPAN) << 104)
            | (u128::from(timer) << 48);
        let mut bytes = head.to_be_bytes();
        bytes[10..].copy_from_slice(&self.client_id);
        Guid(bytes)
    }
}

/// The counter within a GUID of ours.
#[inline]
pub(crate) fn counter_of(guid: &Guid) -> u64 {
    let b = &guid.0;
    (u64::from(b[0] & 0x3F) << 16) | (u64::from(b[1]) << 8) | u64::from(b[2])
}

/// The 12 upper-case hexadecimal digits under which a client id is announced.
pub(crate) fn client_id_text(id: &[u8; 6]) -> String {
    use std::fmt::Write;
    id.iter().fold(String::with_capacity(12), |mut text, byte| {
        // Writing into a String does not fail.
        let _ = write!(text, "{byte:02X}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_has_version_counter_timer_and_client_id_in_their_places() {
        let maker = GuidMaker::new([1, 2, 3, 4, 5, 6], Instant::now());
        let guid = maker.make(COUNTER_SPAN + 0x2A_BBCC, 0x11_2233_4455_6677);
        assert_eq!(guid.to_string(), "6ABBCC11223344556677010203040506");
        assert_eq!(counter_of(&guid), 0x2A_BBCC);
        assert_eq!(&maker.make(0, 0).0[..3], &[0x40, 0, 0]);
        assert_eq!(client_id_text(&[0xAB, 0, 1, 2, 3, 0xFF]), "AB00010203FF");
    }
}
