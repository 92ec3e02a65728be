//! The codec as a whole: what is written reads back, and nothing else does.

use proptest::prelude::*;

use super::*;
use crate::{Guid, QueueId};

#[derive(Clone, Debug)]
enum Fact {
    Put(u32, u8, u64, [u8; 16], Vec<u8>),
    Settle(u32, u8, u64),
    Created(u32, String),
    Removed(u32),
}

fn fact() -> impl Strategy<Value = Fact> {
    prop_oneof![
        (
            any::<u32>(),
            any::<u8>(),
            any::<u64>(),
            any::<[u8; 16]>(),
            prop::collection::vec(any::<u8>(), 0..100)
        )
            .prop_map(|(q, f, t, g, d)| Fact::Put(q, f, t, g, d)),
        (any::<u32>(), any::<u8>(), any::<u64>()).prop_map(|(q, w, s)| Fact::Settle(q, w, s)),
        (any::<u32>(), ".{0,20}").prop_map(|(q, uri)| Fact::Created(q, uri)),
        any::<u32>().prop_map(Fact::Removed),
    ]
}

fn entry(index: u64, facts: &[Fact]) -> Vec<u8> {
    let mut records = Vec::new();
    for fact in facts {
        match fact {
            Fact::Put(queue, format, at, guid, data) => {
                records.extend_from_slice(&put_header(
                    QueueId(*queue),
                    *format,
                    *at,
                    &Guid(*guid),
                    data.len() as u32,
                ));
                records.extend_from_slice(data);
                records.resize(pad8(records.len()), 0);
            }
            Fact::Settle(queue, why, message) => {
                push_settle(&mut records, QueueId(*queue), *why, Sequence(*message))
            }
            Fact::Created(queue, uri) => push_queue_created(&mut records, QueueId(*queue), uri),
            Fact::Removed(queue) => push_queue_removed(&mut records, QueueId(*queue)),
        }
    }
    let mut header = EntryHeader {
        kind: EntryKind::Normal,
        term: Term(3),
        index: Index(index),
        records: facts.len() as u32,
        length: records.len() as u32,
        crc: 0,
    };
    let mut out = header.seal([&records[..]]).to_vec();
    out.extend_from_slice(&records);
    out
}

fn framed(epoch: u64, content: &[u8]) -> Vec<u8> {
    let crc = EntryHeader::parse(content).unwrap().crc;
    let header = FrameHeader {
        kind: FrameKind::Entry,
        partition: 1,
        epoch,
        committed: 7,
        length: content.len() as u32,
        content_crc: crc,
    };
    let mut out = header.encode().to_vec();
    out.extend_from_slice(content);
    out
}

fn facts(entry: &[u8]) -> Vec<Fact> {
    let fact = |r: Record<'_>| match r {
        Record::Put(p) => Fact::Put(
            p.queue.0,
            p.format,
            p.accepted_at_ms,
            p.guid.0,
            p.data.to_vec(),
        ),
        Record::Settle {
            queue,
            why,
            message,
        } => Fact::Settle(queue.0, why, message.0),
        Record::QueueCreated { queue, uri } => Fact::Created(queue.0, uri.to_owned()),
        Record::QueueRemoved { queue } => Fact::Removed(queue.0),
    };
    Records::new(entry).map(|r| fact(r.unwrap().1)).collect()
}

proptest! {
    #[test]
    fn entries_read_back(written in prop::collection::vec(fact(), 0..20)) {
        let bytes = framed(9, &entry(5, &written));
        let frame = Frame::parse(&bytes, 0, 9).unwrap();
        prop_assert_eq!(format!("{:?}", facts(frame.content)), format!("{written:?}"));
        prop_assert_eq!(frame.header.frame_len(), bytes.len());
        prop_assert!(Frame::parse(&bytes, 0, 8).is_err(), "another epoch's bytes");
        for (offset, _) in Records::new(frame.content).map(Result::unwrap) {
            prop_assert_eq!(place(sequence(Index(5), offset)), (Index(5), offset));
        }
    }

    #[test]
    fn no_flipped_bit_and_no_truncation_passes(written in prop::collection::vec(fact(), 1..6), at in any::<prop::sample::Index>(), bit in 0..8) {
        let bytes = framed(9, &entry(5, &written));
        let at = at.index(bytes.len());
        prop_assert!(Frame::parse(&bytes[..at], 0, 9).is_err());
        let mut flipped = bytes.clone();
        flipped[at] ^= 1u8 << bit;
        prop_assert!(Frame::parse(&flipped, 0, 9).is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = FrameHeader::parse(&bytes);
        let _ = Frame::parse(&bytes, 0, 0);
        let _ = find_frame(&bytes, 0, 0);
        let _ = EntryHeader::parse(&bytes).map(|h| h.verify(&bytes));
        let _ = Records::new(&bytes).count();
        let _ = carried_items(&bytes).count();
        let _ = Record::parse(&bytes);
        let _ = SegmentInfo::parse(&bytes);
        let _ = HardState::parse(&bytes);
        let _ = WindowRun::parse(&bytes);
        let _ = Checkpoint::parse(&bytes);
    }

    #[test]
    fn damaged_records_never_panic(written in prop::collection::vec(fact(), 1..6), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = entry(5, &written);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = Records::new(&bytes).count();
        let _ = carried_items(&bytes).count();
    }
}

#[test]
fn reading_goes_on_behind_damage() {
    let frames: Vec<Vec<u8>> = (1..=5)
        .map(|i| framed(2, &entry(i, &[Fact::Removed(i as u32)])))
        .collect();
    let mut bytes = frames.concat();
    bytes[frames[0].len() + 60] ^= 1;
    let whole: Vec<_> = Frames::new(&bytes, 2, 0).collect();
    assert_eq!((whole.len(), whole[1].is_err()), (2, true));
    let next = find_frame(&bytes, 2, frames[0].len() + 8).unwrap();
    assert_eq!(next.offset, frames[0].len() + frames[1].len());
    assert_eq!(Frames::new(&bytes, 2, next.offset).count(), 3);
    assert!(find_frame(&bytes, 3, 0).is_none());
}

#[test]
fn checkpoints_read_back() {
    let mut settled = Bitmap::default();
    assert!((0..1000u64).all(|i| settled.set(40 + i * 3000)));
    let counters = QueueCounters {
        put: 9,
        confirmed: 1,
        expired: 2,
        purged: 3,
        removed: 1,
    };
    assert_eq!(counters.live(), 2);
    let written = Checkpoint {
        index: Index(77),
        term: Term(4),
        clock_ms: 5,
        vote: 6,
        next_segment: 8,
        next_queue: QueueId(3),
        queues: vec![
            QueueState {
                id: QueueId(1),
                uri: "bmq://a.b/c".into(),
                counters,
            },
            QueueState {
                id: QueueId(2),
                uri: "bmq://a.b/dd/e".into(),
                counters: QueueCounters::default(),
            },
        ],
        segments: vec![
            SegmentState {
                id: 3,
                role: SegmentRole::Hot,
                all_settled: false,
                length: 99,
                settled,
            },
            SegmentState {
                id: 7,
                role: SegmentRole::Cold,
                all_settled: true,
                length: 1,
                settled: Bitmap::default(),
            },
        ],
        windows: vec![WindowFile { id: 1, length: 2 }],
    };
    let bytes = written.encode();
    assert_eq!(Checkpoint::parse(&bytes).unwrap(), written);
    for cut in 0..bytes.len() {
        assert!(Checkpoint::parse(&bytes[..cut]).is_err(), "{cut}");
    }
}

#[test]
fn window_runs_read_back() {
    let items: Vec<_> = (0..10)
        .map(|i| WindowItem {
            guid: Guid([i; 16]),
            sequence: Sequence(u64::from(i)),
        })
        .collect();
    let bytes = WindowRun::encode(QueueId(4), 12, &items);
    assert_eq!(
        WindowRun::parse(&bytes).unwrap(),
        WindowRun {
            queue: QueueId(4),
            newest_ms: 12,
            items
        }
    );
    assert!((0..bytes.len()).all(|cut| WindowRun::parse(&bytes[..cut]).is_err()));
}
