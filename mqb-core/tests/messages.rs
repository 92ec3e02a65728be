//! What readers of PUT, PUSH, ACK and CONFIRM make of odd messages, claim by claim.

use mqb_core::compress::Inflater;
use mqb_core::error::{DataFault, EventFull, WireError};
use mqb_core::limits;
use mqb_core::wire::*;
use mqb_core::{Guid, SubscriptionId, WireQueueId, checksum};

fn event(kind: u8, body: &[u8]) -> Vec<u8> {
    [
        &(8 + body.len() as u32).to_be_bytes()[..],
        &[0x40 | kind, 2, 0, 0],
        body,
    ]
    .concat()
}

/// A PUT message whose words and bytes are as given.
fn put(
    flags: u32,
    words: u32,
    options_words: u32,
    compression: u32,
    header_words: u32,
    rest: &[u8],
) -> Vec<u8> {
    let sizes = options_words << 8 | compression << 5 | header_words;
    [
        &(flags << 28 | words).to_be_bytes()[..],
        &sizes.to_be_bytes(),
        rest,
    ]
    .concat()
}

/// What follows the sizes in a header of today.
fn put_rest(schema: u16, padded: &[u8]) -> Vec<u8> {
    let data = &padded
        [..padded.len() - usize::from(padded.last().copied().unwrap_or(0)).min(padded.len())];
    let crc = checksum::crc32c(data).to_be_bytes();
    [
        &[0, 0, 0, 5][..],
        &[0x40; 16],
        &crc,
        &schema.to_be_bytes(),
        &[0, 0],
        padded,
    ]
    .concat()
}

/// A message's data and what is wrong with it.
type Outcome = (Vec<u8>, Option<DataFault>);

fn read(message: &[u8]) -> Vec<Result<Outcome, WireError>> {
    let frame = event(2, message);
    let event = Event::parse(&frame).unwrap();
    PutIter::new(&event)
        .map(|put| put.map(|put| (put.data.to_vec(), put.format().err())))
        .collect()
}

#[test]
fn a_bad_message_leaves_its_neighbours_alone() {
    let good = put(1, 10, 0, 0, 9, &put_rest(0, b"abc\x01"));
    for (bad, fault) in [
        (
            put(1, 10, 0, 0, 9, &put_rest(0, b"abc\x00")),
            DataFault::Padding(0),
        ),
        (
            put(1, 10, 0, 0, 9, &put_rest(0, b"abc\x05")),
            DataFault::Padding(5),
        ),
        (
            put(1, 10, 0, 0, 9, &put_rest(0, b"abc\xFF")),
            DataFault::Padding(255),
        ),
        (
            put(1, 10, 0, 0, 9, &put_rest(0, b"\x04\x04\x04\x04")),
            DataFault::Empty,
        ),
        (put(1, 9, 0, 0, 9, &put_rest(0, b"")), DataFault::Empty),
        (
            put(1, 10, 0, 2, 9, &put_rest(0, b"abc\x01")),
            DataFault::Compression(2),
        ),
        (
            put(1, 10, 0, 7, 9, &put_rest(0, b"abc\x01")),
            DataFault::Compression(7),
        ),
        (
            put(1, 10, 0, 0, 9, &put_rest(3, b"abc\x01")),
            DataFault::SchemaWithoutProperties(3),
        ),
    ] {
        let read = read(&[&good[..], &bad, &good].concat());
        assert_eq!(read.len(), 3);
        assert_eq!(read[0], Ok((b"abc".to_vec(), None)));
        assert_eq!(read[1].as_ref().unwrap().1, Some(fault));
        assert_eq!(read[2], Ok((b"abc".to_vec(), None)));
    }
}

#[test]
fn sizes_that_contradict_each_other_end_the_event() {
    let good = put(1, 10, 0, 0, 9, &put_rest(0, b"abc\x01"));
    for bad in [
        put(1, 0, 0, 0, 9, &put_rest(0, b"abc\x01")),
        put(1, 8, 0, 0, 9, &put_rest(0, b"abc\x01")),
        put(1, 11, 0, 0, 9, &put_rest(0, b"abc\x01")),
        put(1, 0x0FFF_FFFF, 0, 0, 9, &put_rest(0, b"abc\x01")),
        put(1, 10, 2, 0, 9, &put_rest(0, b"abc\x01")),
        put(1, 10, 0x00FF_FFFF, 0, 9, &put_rest(0, b"abc\x01")),
        put(1, 10, 0, 0, 0, &put_rest(0, b"abc\x01")),
        put(1, 10, 0, 0, 1, &put_rest(0, b"abc\x01")),
        put(1, 10, 0, 0, 31, &put_rest(0, b"abc\x01")),
        vec![0x10, 0, 0, 10],
    ] {
        let tail = if bad.len() > 4 { &good[..0] } else { &[] };
        let read = read(&[&good[..], &bad, tail].concat());
        assert_eq!(read.len(), 2, "{bad:x?}");
        assert!(read[0].is_ok() && read[1].is_err());
    }
}

#[test]
fn headers_of_other_sizes_are_read() {
    // Without the schema id; without anything but the sizes; with words of the future; with options.
    let frame = event(
        2,
        &put(
            1,
            9,
            0,
            0,
            8,
            &put_rest(0, b"")[..24]
                .iter()
                .copied()
                .chain(*b"abc\x01")
                .collect::<Vec<_>>(),
        ),
    );
    let read = PutIter::new(&Event::parse(&frame).unwrap())
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(
        (read.queue, read.guid, read.schema, read.data),
        (WireQueueId(5), Guid([0x40; 16]), 0, &b"abc"[..])
    );

    let frame = event(2, &put(1, 3, 0, 0, 2, b"abc\x01"));
    let read = PutIter::new(&Event::parse(&frame).unwrap())
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(
        (read.queue, read.guid, read.data),
        (WireQueueId(0), Guid::UNSET, &b"abc"[..])
    );

    let rest = [&put_rest(0, b"")[..], &[0xEE; 88], b"abc\x01"].concat();
    let frame = event(2, &put(1, 32, 0, 0, 31, &rest));
    let read = PutIter::new(&Event::parse(&frame).unwrap())
        .next()
        .unwrap()
        .unwrap();
    assert_eq!((read.queue, read.data), (WireQueueId(5), &b"abc"[..]));

    let rest = [&put_rest(0, b"")[..], &[0xEE; 8], b"abc\x01"].concat();
    let frame = event(2, &put(1, 12, 2, 0, 9, &rest));
    let read = PutIter::new(&Event::parse(&frame).unwrap())
        .next()
        .unwrap()
        .unwrap();
    assert_eq!((read.options, read.data), (&[0xEE; 8][..], &b"abc"[..]));

    // An event header of three words.
    let mut frame = event(3, &[&[1, 2, 3, 4, 0x16, 0, 0, 0][..], &[7; 24]].concat());
    frame[5] = 3;
    let confirms: Vec<_> = ConfirmIter::new(&Event::parse(&frame).unwrap()).collect();
    assert_eq!(confirms.len(), 1);
    assert_eq!(confirms[0].unwrap().guid, Guid([7; 16]));

    // An ACK header of two words, messages of seven.
    let frame = event(
        5,
        &[&[0x27, 0, 0, 0, 9, 9, 9, 9][..], &[7; 28], &[8; 28]].concat(),
    );
    let acks: Vec<_> = AckIter::new(&Event::parse(&frame).unwrap())
        .map(Result::unwrap)
        .collect();
    assert_eq!(
        (acks.len(), acks[1].guid, acks[1].status),
        (2, Guid([8; 16]), AckStatus::Unknown)
    );
}

#[test]
fn checksums_are_checked() {
    let mut frame = event(2, &put(1, 10, 0, 0, 9, &put_rest(0, b"abc\x01")));
    let validate = |frame: &[u8]| {
        let put = PutIter::new(&Event::parse(frame).unwrap())
            .next()
            .unwrap()
            .unwrap();
        put.validate(&mut Inflater::new(), &mut Vec::new())
            .map(|_| ())
    };
    assert_eq!(validate(&frame), Ok(()));
    let at = frame.len() - 4;
    frame[at] ^= 1;
    assert!(matches!(validate(&frame), Err(DataFault::Checksum { .. })));
}

#[test]
fn correlation_ids_have_24_bits() {
    let mut rest = put_rest(0, b"abc\x01");
    rest[4..20].copy_from_slice(&[0, 0x12, 0x34, 0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let frame = event(2, &put(1, 10, 0, 0, 9, &rest));
    let put = PutIter::new(&Event::parse(&frame).unwrap())
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(put.correlation_id(), 0x0012_3456);
    let mut out = Vec::new();
    let mut builder = AckBuilder::begin(&mut out);
    let ack = Ack {
        queue: put.queue,
        guid: Guid::UNSET,
        correlation: 0xFF12_3456,
        status: AckStatus::LimitBytes,
    };
    builder.append(&mut out, &ack).unwrap();
    builder.finish(&mut out);
    let read = AckIter::new(&Event::parse(&out).unwrap())
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(
        (read.correlation, read.status),
        (0x0012_3456, AckStatus::LimitBytes)
    );
}

#[test]
fn a_cut_or_impossible_list_ends_with_an_error() {
    for (body, whole) in [
        (vec![], 0),
        (vec![0x16, 0, 0], 0),
        ([&[0x06, 0, 0, 0][..], &[0; 24]].concat(), 0),
        ([&[0xF6, 0, 0, 0][..], &[0; 24]].concat(), 0),
        ([&[0x10, 0, 0, 0][..], &[0; 24]].concat(), 0),
        ([&[0x15, 0, 0, 0][..], &[0; 24]].concat(), 0),
        ([&[0x16, 0, 0, 0][..], &[0; 23]].concat(), 0),
        ([&[0x16, 0, 0, 0][..], &[0; 40]].concat(), 1),
    ] {
        for kind in [3, 5, 13] {
            let frame = event(kind, &body);
            let event = Event::parse(&frame).unwrap();
            let results: Vec<_> = match kind {
                5 => AckIter::new(&event).map(|ack| ack.is_ok()).collect(),
                _ => ConfirmIter::new(&event)
                    .map(|confirm| confirm.is_ok())
                    .collect(),
            };
            assert_eq!(results.len(), whole + 1, "{body:x?}");
            assert_eq!(results.iter().filter(|ok| **ok).count(), whole, "{body:x?}");
        }
    }
    // A header and nothing else is an empty list.
    assert_eq!(
        AckIter::new(&Event::parse(&event(5, &[0x16, 0, 0, 0])).unwrap()).count(),
        0
    );
}

fn options(words: &[u32]) -> Result<Vec<(u32, u8)>, WireError> {
    let area: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    Options::parse(&area).map(|options| {
        options
            .subscriptions()
            .map(|(id, attempts)| (id.0, attempts.0))
            .collect()
    })
}

#[test]
fn options_name_subscriptions() {
    assert_eq!(options(&[]), Ok(vec![(0, 0x80)]));
    assert_eq!(options(&[0x0400_0002, 1]), Ok(vec![(1, 0x80)]));
    assert_eq!(
        options(&[0x0400_0003, 1, 2]),
        Ok(vec![(1, 0x80), (2, 0x80)])
    );
    assert_eq!(options(&[0x0C40_0003, 1, 0x8000_0000]), Ok(vec![(1, 0x80)]));
    assert_eq!(
        options(&[0x0C40_0005, 1, 0x0500_0000, 2, 0x4100_0000]),
        Ok(vec![(1, 5), (2, 0x41)])
    );
    assert_eq!(
        options(&[0x0C60_0004, 1, 0x0500_0000, 0xFFFF_FFFF]),
        Ok(vec![(1, 5)]),
        "items may grow"
    );
    assert_eq!(options(&[0x0E00_0080]), Ok(vec![(0, 0x80)]));
    assert_eq!(
        options(&[0x0800_0002, 0x6162_6301, 0x0400_0002, 9]),
        Ok(vec![(9, 0x80)])
    );
    assert_eq!(
        options(&[0xFC00_0002, 7, 0x0400_0002, 9]),
        Ok(vec![(9, 0x80)]),
        "kinds of the future are skipped"
    );
    assert_eq!(RemainingAttempts(0x80).count(), None);
    assert_eq!(RemainingAttempts(0x45).count(), Some(5));
}

#[test]
fn bad_options_are_errors() {
    for words in [
        &[0x0000_0002, 1][..],
        &[0x0400_0000],
        &[0x0400_0001],
        &[0x0400_0003, 1],
        &[0x0400_0002, 1, 0x0400_0002, 1],
        &[0x0400_0002, 1, 0x0E00_0080],
        &[0x0600_0001],
        &[0x0C00_0003, 1, 0],
        &[0x0C20_0003, 1, 0],
        &[0x0C40_0004, 1, 0, 0],
        &[0x0800_0002, 0x6162_6300],
        &[0x0800_0002, 0x6162_6305],
        &[0xFE00_0000; limits::OPTIONS_MAX + 1],
    ] {
        assert!(options(words).is_err(), "{words:x?}");
    }
    assert!(options(&[0xFE00_0000; limits::OPTIONS_MAX]).is_ok());
    let mut out = Vec::new();
    write_group_id(&mut out, b"group");
    assert_eq!(Options::parse(&out).unwrap().group_id, Some(&b"group"[..]));
}

#[test]
fn a_push_with_bad_padding_is_not_an_empty_one() {
    let push = |last: u8| {
        let header = [
            &9u32.to_be_bytes()[..],
            &[0, 0, 0, 8],
            &[0; 24],
            b"abc",
            &[last],
        ]
        .concat();
        let frame = event(4, &header);
        let push = PushIter::new(&Event::parse(&frame).unwrap())
            .next()
            .unwrap()
            .unwrap();
        push.format().map(|_| push.data.len())
    };
    assert_eq!(push(1), Ok(3));
    assert_eq!(push(0), Err(DataFault::Padding(0)));
    assert_eq!(push(5), Err(DataFault::Padding(5)));
    // No data area at all: an implicit payload.
    let frame = event(
        4,
        &[&(1 << 28 | 8u32).to_be_bytes()[..], &[0, 0, 0, 8], &[0; 24]].concat(),
    );
    let push = PushIter::new(&Event::parse(&frame).unwrap())
        .next()
        .unwrap()
        .unwrap();
    assert!(push.flags.contains(PushFlags::IMPLICIT_PAYLOAD) && push.format().is_ok());
}

#[test]
fn builders_stop_at_the_limit_of_their_event_and_leave_it_whole() {
    let mut out = Vec::new();
    let mut acks = AckBuilder::begin(&mut out);
    let ack = Ack {
        queue: WireQueueId(1),
        guid: Guid::UNSET,
        correlation: 0,
        status: AckStatus::Success,
    };
    let mut count = 0;
    while acks.append(&mut out, &ack).is_ok() {
        count += 1;
    }
    assert_eq!(count, (limits::OTHER_EVENT_BYTES_MAX - 12) / 24);
    let length = acks.finish(&mut out);
    assert_eq!(length, out.len());
    assert_eq!(frame_length(&out, &FrameLimits::BROKER), Ok(Some(length)));
    assert_eq!(AckIter::new(&Event::parse(&out).unwrap()).count(), count);

    let mut out = Vec::new();
    let mut pushes = PushBuilder::begin(&mut out);
    let ids = [SubscriptionId(1)];
    let head = PushHead::default();
    pushes
        .append(&mut out, &head, &ids, limits::MESSAGE_BYTES_MAX)
        .unwrap();
    let before = out.clone();
    assert_eq!(
        pushes.append(&mut out, &head, &ids, limits::MESSAGE_BYTES_MAX),
        Err(EventFull)
    );
    assert_eq!(out, before);
    assert_eq!(
        pushes.append_copy(
            &mut out,
            &head,
            &[SubscriptionId(1); limits::PUSH_IDS_MAX + 1],
            b"x"
        ),
        Err(EventFull)
    );
    assert_eq!(out, before);
    pushes.append_copy(&mut out, &head, &ids, b"x").unwrap();
    assert_eq!(
        pushes.finish(&mut out),
        out.len() + limits::MESSAGE_BYTES_MAX
    );

    // The largest message that an official SDK sends.
    let mut out = Vec::new();
    let mut puts = PutBuilder::begin(&mut out);
    puts.append(&mut out, &PutHead::default(), limits::MESSAGE_BYTES_MAX)
        .unwrap();
    assert_eq!(puts.finish(&mut out), 67_108_912);
    assert_eq!(
        frame_length(&out, &FrameLimits::BROKER),
        Ok(Some(67_108_912))
    );
}
