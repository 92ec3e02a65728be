//! Each parser as a plain function of bytes that must return: no panic, no endless loop. What can be checked of the result is.
//!
//! Run over `tests/corpus/<target>/` by the tests, and by a fuzzer from outside (`fuzz/`).

use crate::compress::Inflater;
use crate::control::{self, Authentication, ControlMessage, Document, Encoding, Negotiation};
use crate::properties::Properties;
use crate::uri::Uri;
use crate::wire::{
    AckIter, ConfirmIter, Event, EventHeader, EventKind, FrameLimits, Options, PushIter, PutIter,
    frame_length,
};
use crate::{DataFormat, PropertiesStyle, data, features};

/// One target: a parser and what must hold of its result.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("stream", stream),
    ("event", event),
    ("ber", ber),
    ("json", json),
    ("options", options),
    ("properties", properties),
    ("data", message_data),
    ("text", text),
];

/// What inflating may cost a fuzzer's run.
const CAP: usize = 1 << 20;

/// A connection's bytes, cut into events as a session does, each parsed.
pub fn stream(mut bytes: &[u8]) {
    for limits in [
        FrameLimits::HANDSHAKE,
        FrameLimits::BROKER,
        FrameLimits::CLIENT,
    ] {
        let mut rest = bytes;
        while let Ok(Some(length)) = frame_length(rest, &limits) {
            assert!(length > 4);
            let Some((frame, after)) = rest.split_at_checked(length) else {
                break;
            };
            event(frame);
            rest = after;
        }
    }
    // A verdict, once given, does not change when more bytes arrive.
    bytes = &bytes[..bytes.len().min(64)];
    let verdicts: Vec<_> = (0..=bytes.len())
        .map(|n| frame_length(&bytes[..n], &FrameLimits::BROKER))
        .collect();
    let first = verdicts
        .iter()
        .position(|verdict| *verdict != Ok(None))
        .unwrap_or(verdicts.len());
    assert!(first <= 8 || first == verdicts.len());
    assert!(verdicts[first..].windows(2).all(|pair| pair[0] == pair[1]));
}

/// One frame, whatever its kind, and everything in it.
pub fn event(frame: &[u8]) {
    if let Some(header) = frame.first_chunk() {
        let _ = EventHeader::parse(header);
    }
    let Ok(event) = Event::parse(frame) else {
        return;
    };
    let bound = event.body.len() / 8 + 1;
    match event.header.kind {
        EventKind::Put => {
            let mut inflater = Inflater::new();
            let mut scratch = Vec::new();
            let count = PutIter::new(&event).map_while(Result::ok).inspect(|put| {
                assert_eq!(put.data, &frame[put.data_offset..][..put.data.len()]);
                let _ = put.correlation_id();
                let _ = put.validate(&mut inflater, &mut scratch);
            });
            assert!(count.count() <= bound);
        }
        EventKind::Push => {
            let count = PushIter::new(&event).map_while(Result::ok).inspect(|push| {
                assert_eq!(push.data, &frame[push.data_offset..][..push.data.len()]);
                let _ = push.format();
                options(push.raw_options);
            });
            assert!(count.count() <= bound);
        }
        EventKind::Ack => assert!(AckIter::new(&event).count() <= bound),
        EventKind::Confirm | EventKind::Reject => {
            assert!(ConfirmIter::new(&event).count() <= bound)
        }
        EventKind::Control | EventKind::Authentication => {
            if let Ok(encoding) = Encoding::from_type_specific(event.header.type_specific) {
                documents(encoding, event.body);
            }
        }
        EventKind::HeartbeatRequest | EventKind::HeartbeatResponse | EventKind::Other(_) => {}
    }
}

/// A document in BER.
pub fn ber(bytes: &[u8]) {
    documents(Encoding::Ber, bytes);
}

/// A document in JSON.
pub fn json(bytes: &[u8]) {
    documents(Encoding::Json, bytes);
}

fn documents(encoding: Encoding, bytes: &[u8]) {
    document::<Negotiation>(encoding, bytes);
    document::<Authentication>(encoding, bytes);
    document::<ControlMessage>(encoding, bytes);
}

/// What was understood can be written in either encoding and is understood as the same.
fn document<M: Document + PartialEq + std::fmt::Debug>(encoding: Encoding, bytes: &[u8]) {
    let Ok(document) = control::decode::<M>(encoding, bytes) else {
        return;
    };
    for encoding in [Encoding::Ber, Encoding::Json] {
        let mut again = Vec::new();
        control::encode(encoding, &document, &mut again);
        assert_eq!(
            control::decode::<M>(encoding, &again).as_ref(),
            Ok(&document)
        );
    }
}

/// An options area.
pub fn options(area: &[u8]) {
    if let Ok(options) = Options::parse(area) {
        assert!(options.subscriptions().count() <= area.len() / 4 + 1);
    }
}

/// A properties area, read in both styles; one that is valid converts into the other style and back to itself.
pub fn properties(bytes: &[u8]) {
    use PropertiesStyle::{New, Old};
    for (style, other) in [(Old, New), (New, Old)] {
        let Ok(properties) = Properties::parse(bytes, style) else {
            continue;
        };
        assert!(properties.area_length() <= bytes.len());
        let (mut there, mut back) = (Vec::new(), Vec::new());
        properties.write(other, &mut there);
        let converted = Properties::parse(&there, other).expect("what was valid stays so");
        assert!(converted.iter().eq(properties.iter()));
        converted.write(style, &mut back);
        let returned = Properties::parse(&back, style).expect("what was valid stays so");
        assert!(returned.iter().eq(properties.iter()));
    }
}

/// Application data: the first byte is its format.
pub fn message_data(bytes: &[u8]) {
    let Some((&format, bytes)) = bytes.split_first() else {
        return;
    };
    let format = DataFormat(format);
    let (mut inflater, mut scratch, mut out) = (Inflater::new(), Vec::new(), Vec::new());
    let valid = data::validate(format, bytes, &mut inflater, &mut scratch);
    let unpacked = data::unpack(format, bytes, CAP, &mut inflater, &mut scratch);
    assert!(valid.is_err() || unpacked.is_ok() || scratch.len() <= CAP);
    if valid.is_ok() {
        let old = data::to_old_style(format, bytes, &mut inflater, &mut out)
            .expect("valid data converts");
        assert_eq!(
            data::validate(old, &out, &mut inflater, &mut Vec::new()),
            Ok(())
        );
    }
}

/// Text that peers write: URIs, app ids, feature strings, GUIDs.
pub fn text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(uri) = Uri::parse(text) {
        assert_eq!(uri.to_string(), text);
        assert_eq!(
            Uri::parse(uri.canonical())
                .expect("a canonical URI is one")
                .canonical(),
            uri.canonical()
        );
    }
    features::Features::parse(text);
    if let Ok(guid) = text.parse::<crate::Guid>() {
        assert_eq!(guid.to_string(), text.to_ascii_uppercase());
    }
}
