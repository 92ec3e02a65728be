//! What parsers take from the heap: nothing on the hot path, and for documents no more than was sent plus a constant.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use mqb_core::compress::Inflater;
use mqb_core::control::{Authentication, ControlMessage, Document, Encoding, Negotiation, decode};
use mqb_core::wire::*;
use mqb_core::{DataFormat, Guid, PropertiesStyle, SubId, SubscriptionId, WireQueueId, checksum};

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: isize) {
    // A thread that is ending has no counters any more.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        PEAK.with(|peak| peak.set(peak.get().max(live.get())));
        COUNT.with(|count| count.set(count.get() + usize::from(bytes > 0)));
    });
}

// SAFETY: every call goes to the system allocator unchanged; the counters are plain thread-local numbers that allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Peak of live bytes and number of allocations during `f`.
fn measure(f: impl FnOnce()) -> (usize, usize) {
    let live = LIVE.get();
    PEAK.set(live);
    COUNT.set(0);
    f();
    ((PEAK.get() - live) as usize, COUNT.get())
}

/// Subscriptions and their consumers at their caps, with what growing vectors waste.
const DOCUMENT_CONSTANT: usize = 256 << 10;

fn check_document<M: Document>(encoding: Encoding, bytes: &[u8]) {
    let (peak, _) = measure(|| {
        let _ = black_box(decode::<M>(encoding, bytes));
    });
    let bound = bytes.len() + DOCUMENT_CONSTANT;
    assert!(
        peak <= bound,
        "{encoding:?}: {peak} bytes for {} of input",
        bytes.len()
    );
}

#[test]
fn documents_take_what_was_sent_and_a_constant() {
    let mib = 1 << 20;
    // One MiB of the smallest subscriptions, of consumers, of text, of escapes, of text that is not UTF-8, of nothing.
    let ber_list = |item: &[u8]| {
        let mut bytes = b"\x30\x80\xa1\x80\xb0\x80\xa1\x80\xa1\x80".to_vec();
        bytes.extend(item.repeat(mib / item.len()));
        bytes
    };
    let consumers = [&b"\x30\x80\xa2\x80"[..], &b"\x30\x00".repeat(16), &[0; 4]].concat();
    let text = |byte: u8| {
        [
            &b"\x30\x80\xa1\x80\xa7\x80\x80\x83\x0f\x00\x00"[..],
            &vec![byte; 0x0F_0000],
            &[0; 6],
        ]
        .concat()
    };
    for bytes in [
        ber_list(b"\x30\x00"),
        ber_list(&consumers),
        text(b'x'),
        text(0xFF),
        b"\x30\x80".repeat(mib / 2),
    ] {
        check_document::<ControlMessage>(Encoding::Ber, &bytes);
        check_document::<Negotiation>(Encoding::Ber, &bytes);
        check_document::<Authentication>(Encoding::Ber, &bytes);
    }
    let json_list = |item: &str| {
        let items = item.repeat(mib / item.len());
        format!(r#"{{"configureStream":{{"streamParameters":{{"subscriptions":[{items}{{}}]}}}}}}"#)
    };
    let consumers = format!(r#"{{"consumers":[{}{{}}]}},"#, "{},".repeat(15));
    let command = |text: &str| {
        format!(
            r#"{{"adminCommand":{{"command":"{}"}}}}"#,
            text.repeat(mib / text.len())
        )
    };
    for text in [
        json_list("{},"),
        json_list(&consumers),
        command("x"),
        command("\\u0041"),
        command("\\n"),
        "[".repeat(mib),
    ] {
        check_document::<ControlMessage>(Encoding::Json, text.as_bytes());
        check_document::<Negotiation>(Encoding::Json, text.as_bytes());
        check_document::<Authentication>(Encoding::Json, text.as_bytes());
    }
}

#[test]
fn announced_lengths_cost_nothing() {
    for bytes in [
        &b"\x30\x84\x7f\xff\xff\xff"[..],
        b"\x30\x80\x80\x84\x7f\xff\xff\xff",
        b"\x30\x80\xa1\x80\xa7\x80\x80\x84\xff\xff\xff\xff",
    ] {
        let (peak, _) =
            measure(|| assert!(decode::<ControlMessage>(Encoding::Ber, bytes).is_err()));
        assert_eq!(peak, 0);
    }
    let header = [0x7F, 0xFF, 0xFF, 0xFF, 0x44, 2, 0, 0];
    let (peak, _) = measure(|| assert!(frame_length(&header, &FrameLimits::BROKER).is_err()));
    assert_eq!(peak, 0);
}

#[test]
fn the_steady_path_allocates_nothing() {
    let data = [b'x'; 1000];
    let mut area = Vec::new();
    let mut builder = mqb_core::properties::PropertiesBuilder::new();
    builder.set_string("k", "v").unwrap();
    mqb_core::data::pack(
        &builder,
        PropertiesStyle::New,
        &data,
        Default::default(),
        &mut area,
    )
    .unwrap();
    let mut frame = Vec::with_capacity(1 << 16);
    let mut puts = PutBuilder::begin(&mut frame);
    for _ in 0..10 {
        let head = PutHead {
            guid: Guid([1; 16]),
            flags: PutFlags(1),
            crc: checksum::crc32c(&data),
            ..PutHead::default()
        };
        puts.append_copy(&mut frame, &head, &data).unwrap();
        let head = PutHead {
            flags: PutFlags(3),
            schema: 1,
            crc: checksum::crc32c(&area),
            ..head
        };
        puts.append_copy(&mut frame, &head, &area).unwrap();
    }
    puts.finish(&mut frame);
    let (mut inflater, mut scratch) = (Inflater::new(), Vec::new());
    let mut out = Vec::with_capacity(1 << 16);
    // The first checksum finds out what the machine can do.
    black_box(checksum::crc32c(&data));
    let (_, allocations) = measure(|| {
        let event = Event::parse(&frame).unwrap();
        let mut acks = AckBuilder::begin(&mut out);
        for put in PutIter::new(&event) {
            let put = put.unwrap();
            put.validate(&mut inflater, &mut scratch).unwrap();
            let ack = Ack {
                queue: put.queue,
                guid: put.guid,
                correlation: 0,
                status: AckStatus::Success,
            };
            acks.append(&mut out, &ack).unwrap();
        }
        acks.finish(&mut out);
        let mut pushes = PushBuilder::begin(&mut out);
        for put in PutIter::new(&event).map(Result::unwrap) {
            let head = PushHead::new(put.queue, put.guid, put.format().unwrap(), false);
            black_box(
                pushes
                    .append(&mut out, &head, &[SubscriptionId(1)], put.data.len())
                    .unwrap(),
            );
        }
        pushes.finish(&mut out);
        let mut confirms = ConfirmBuilder::begin(&mut out);
        let start = out.len() - 12;
        for _ in 0..10 {
            confirms
                .append(
                    &mut out,
                    &Confirm {
                        queue: WireQueueId(0),
                        guid: Guid([1; 16]),
                        sub_id: SubId(0),
                    },
                )
                .unwrap();
        }
        confirms.finish(&mut out);
        let event = Event::parse(&out[start..]).unwrap();
        assert_eq!(ConfirmIter::new(&event).map(Result::unwrap).count(), 10);
        black_box(DataFormat::PLAIN);
    });
    assert_eq!(allocations, 0);
}
