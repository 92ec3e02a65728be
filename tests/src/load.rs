//! Messages whose content proves itself.

/// Bytes of the message numbered `id`: the number, then a stream that only it has.
pub fn payload(id: u64, size: usize) -> Vec<u8> {
    let size = size.max(8);
    let mut out = Vec::with_capacity(size + 8);
    out.extend_from_slice(&id.to_be_bytes());
    let mut state = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while out.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_be_bytes());
    }
    out.truncate(size);
    out
}

/// The number of a message made by [`payload`], once its whole content has been compared.
#[track_caller]
pub fn verify(data: &[u8]) -> u64 {
    let id = u64::from_be_bytes(
        data[..8]
            .try_into()
            .expect("a payload has at least eight bytes"),
    );
    assert!(
        payload(id, data.len()) == data,
        "message {id} of {} bytes was altered",
        data.len()
    );
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_differ_and_prove_themselves() {
        assert_eq!(verify(&payload(7, 1000)), 7);
        assert_ne!(payload(7, 100)[8..], payload(8, 100)[8..]);
        assert!(std::panic::catch_unwind(|| verify(&[0u8; 100])).is_err());
    }
}
