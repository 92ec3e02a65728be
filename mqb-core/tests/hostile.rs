//! Bytes that mean harm: cut short, flipped, made up, from the corpus. No parser panics, hangs or takes what it was not sent.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use mqb_core::error::FrameError;
use mqb_core::fuzz::{self, TARGETS};
use mqb_core::wire::{Event, FrameLimits, frame_length};
use proptest::prelude::*;
use serde_json::Value;

static VECTORS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let mut frames = Vec::new();
    for text in [
        include_str!("data/wire-vectors.json"),
        include_str!("data/wire-vectors-broker.json"),
    ] {
        let file: Value = serde_json::from_str(text).unwrap();
        for vector in file["vectors"].as_array().unwrap() {
            frames.push(
                vector["hex"]
                    .as_str()
                    .unwrap()
                    .as_bytes()
                    .chunks(2)
                    .map(byte)
                    .collect(),
            );
        }
    }
    frames
});

/// Writes the true length into a frame's header.
fn with_length(mut frame: Vec<u8>) -> Vec<u8> {
    let length = (frame.len() as u32).to_be_bytes();
    if let Some(start) = frame.get_mut(..4) {
        start.copy_from_slice(&length);
    }
    frame
}

#[test]
fn corpus() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    for (name, target) in TARGETS {
        let files: Vec<_> = fs::read_dir(root.join(name))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert!(files.len() >= 3, "corpus of {name} is missing");
        for file in files {
            let bytes = fs::read(&file).unwrap();
            eprintln!("{}", file.display());
            target(&bytes);
        }
    }
}

#[test]
fn vectors_cut_at_every_byte() {
    for frame in VECTORS.iter() {
        for length in 0..frame.len() {
            let cut = &frame[..length];
            assert!(Event::parse(cut).is_err(), "a cut event is not whole");
            match frame_length(cut, &FrameLimits::CLIENT) {
                Ok(announced) => {
                    assert!(announced.is_none_or(|announced| announced == frame.len()))
                }
                // Heavier PUSH than a broker takes and the like are not among the vectors.
                Err(error) => panic!("{error}"),
            }
            // The same with a header that fits, so that the body's own bounds are tried.
            fuzz::event(&with_length(cut.to_vec()));
        }
    }
}

#[test]
fn vectors_with_every_bit_flipped() {
    for frame in VECTORS.iter().filter(|frame| frame.len() <= 100) {
        for bit in 0..frame.len() * 8 {
            let mut flipped = frame.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if bit < 64 {
                fuzz::stream(&flipped);
            }
            fuzz::event(&with_length(flipped));
        }
    }
}

#[test]
fn limits_are_judged_from_the_first_8_bytes() {
    let header =
        |length: u32, kind: u8| [&length.to_be_bytes()[..], &[0x40 | kind, 2, 0, 0]].concat();
    let mib = 1 << 20;
    for (limits, kind, ok, over) in [
        (FrameLimits::HANDSHAKE, 1, 64 << 10, (64 << 10) + 1),
        (FrameLimits::HANDSHAKE, 2, 64 << 10, mib),
        (FrameLimits::BROKER, 1, mib, mib + 1),
        (FrameLimits::BROKER, 2, 66 * mib, 67 * mib),
        (FrameLimits::BROKER, 3, mib, mib + 1),
        (FrameLimits::BROKER, 4, mib, mib + 1),
        (FrameLimits::BROKER, 8, mib, mib + 1),
        (FrameLimits::BROKER, 11, 8, 1024),
        (FrameLimits::BROKER, 15, mib, mib + 1),
        (FrameLimits::CLIENT, 4, 512 * mib, 512 * mib + 1),
        (FrameLimits::CLIENT, 5, 16 * mib, 0x7FFF_FFFF),
    ] {
        assert_eq!(
            frame_length(&header(ok, kind), &limits),
            Ok(Some(ok as usize))
        );
        let error = frame_length(&header(over, kind), &limits);
        assert!(
            matches!(error, Err(FrameError::TooLong { .. })),
            "kind {kind}: {error:?}"
        );
        assert_eq!(frame_length(&header(over, kind)[..7], &limits), Ok(None));
    }
    for length in [0, 1, 4, 0x8000_0008, 0xFFFF_FFFF] {
        assert_eq!(
            frame_length(&header(length, 1)[..4], &FrameLimits::BROKER),
            Err(FrameError::Length(length))
        );
    }
    for length in 5..8 {
        // An event without room for its header: dropped, the stream goes on behind it.
        assert_eq!(
            frame_length(&header(length, 1)[..4], &FrameLimits::BROKER),
            Ok(Some(length as usize))
        );
        assert!(Event::parse(&header(length, 1)[..length as usize]).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        TARGETS.iter().for_each(|(_, target)| target(&bytes));
    }

    #[test]
    fn any_body(kind in 0u8..16, specific in prop::sample::select(vec![0u8, 0x20, 0x40]), body in prop::collection::vec(any::<u8>(), 0..256)) {
        fuzz::event(&with_length([&[0, 0, 0, 0, 0x40 | kind, 2, specific, 0], &body[..]].concat()));
    }

    #[test]
    fn vectors_with_some_bytes_changed(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut frame = which.get(VECTORS.as_slice()).clone();
        for (index, byte) in changes {
            *index.get_mut(&mut frame) = byte;
        }
        fuzz::stream(&frame);
        fuzz::event(&with_length(frame));
    }
}
