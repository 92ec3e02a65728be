//! Sessions over real sockets: what goes over the wire and what reaches the queues, with a fake in their place.

mod support;

use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

use mqb_broker::event::{AckStatus, Event};
use mqb_broker::session::SessionSettings;
use mqb_core::control::{
    AdminCommand, Authentication, AuthenticationRequest, Category, ClientIdentity, ClientKind,
    CloseQueue, ControlBody, ControlMessage, Empty, Encoding, GuidInfo, Negotiation, SdkLanguage,
    decode_event, encode_event,
};
use mqb_core::limits::{HANDSHAKE_EVENT_BYTES_MAX, MESSAGE_BYTES_MAX, PUT_EVENT_BYTES_MAX};
use mqb_core::wire::{ConfirmBuilder, EventKind, HEARTBEAT_REQUEST, PutBuilder, PutFlags, PutHead};
use mqb_core::{Guid, SubId, WireQueueId, checksum};
use support::{
    Broker, Script, Seen, configure, document_event, guid, handle, identity, open, pushed, put,
};

const READ: u64 = 2;
const WRITE: u64 = 4;

fn confirm(queue: u32, guids: &[Guid]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut builder = ConfirmBuilder::begin(&mut out);
    for guid in guids {
        let confirm = mqb_core::wire::Confirm {
            queue: WireQueueId(queue),
            guid: *guid,
            sub_id: SubId(0),
        };
        builder.append(&mut out, &confirm).unwrap();
    }
    builder.finish(&mut out);
    out
}

fn disconnect() -> ControlBody {
    ControlBody::Disconnect(Empty {})
}

#[test]
fn a_whole_life_from_negotiation_to_disconnect() {
    let script = Script {
        push_on_configure: vec![10, 100_000, 2 << 20, 11],
        ..Script::default()
    };
    let settings = SessionSettings {
        linger_timeout: Duration::from_millis(200),
        ..SessionSettings::default()
    };
    let broker = Broker::start(settings, script);
    let mut peer = broker.connect();
    peer.negotiate();
    peer.open("bmq://d/q", 0, READ | WRITE);
    // Three events in one segment become one batch and one ACK event.
    let burst: Vec<u8> = (1..=3)
        .flat_map(|number| put(0, guid(number), b"payload", number != 2))
        .collect();
    peer.write(&burst);
    let acks = peer.expect().acks();
    assert_eq!(
        acks.iter()
            .map(|ack| (ack.guid, ack.status))
            .collect::<Vec<_>>(),
        [(guid(1), AckStatus::Success), (guid(3), AckStatus::Success)]
    );
    peer.configure(0, 7);
    let mut sizes = Vec::new();
    while sizes.len() < 4 {
        sizes.extend(pushed(&peer.expect()));
    }
    assert_eq!(sizes, [(10, 7), (100_000, 7), (2 << 20, 7), (11, 7)]);
    peer.write(&confirm(0, &[Guid([1; 16]), Guid([2; 16])]));
    let close = CloseQueue {
        handle_parameters: handle("bmq://d/q", 0, READ | WRITE),
        is_final: true,
    };
    assert!(matches!(
        peer.call(ControlBody::CloseQueue(close)),
        ControlBody::CloseQueueResponse(_)
    ));
    assert!(matches!(
        peer.call(disconnect()),
        ControlBody::DisconnectResponse(_)
    ));
    // Nothing follows; a peer that does not close is cut off in the end.
    assert!(peer.is_closed());
    drop(peer);
    for seen in [
        Seen::Up(Some(
            "127.0.0.1\x000123456789AB\x00\x00peer\x001\x001".into(),
        )),
        Seen::Open("bmq://d/q".into()),
        Seen::Puts(3, 21),
        Seen::Configure(1),
        Seen::Confirms(2),
        Seen::Close,
        Seen::Ended { graceful: true },
        Seen::Down,
    ] {
        assert_eq!(broker.next(), seen);
    }
    broker.until_quiet();
}

#[test]
fn bytes_may_come_one_at_a_time_or_all_at_once() {
    let script = Script {
        push_on_configure: vec![5],
        ..Script::default()
    };
    let broker = Broker::start(SessionSettings::default(), script);
    let authentication = AuthenticationRequest {
        mechanism: "ANONYMOUS".into(),
        data: None,
    };
    let mut all = document_event(&Authentication::Request(authentication));
    all.extend(document_event(&Negotiation::ClientIdentity(identity("A"))));
    for (rid, body) in [
        (1, open("bmq://d/q", 0, READ | WRITE)),
        (2, configure(0, 1)),
    ] {
        all.extend(document_event(&ControlMessage {
            rid: Some(rid),
            body,
        }));
    }
    for step in [1, 3, all.len()] {
        let mut peer = broker.connect();
        for piece in all.chunks(step) {
            peer.write(piece);
        }
        assert!(matches!(
            decode_event(&peer.expect().event()).unwrap(),
            Authentication::Response(response) if response.status.category == Category::Success
        ));
        peer.expect_welcome();
        assert!(matches!(
            peer.expect().control().body,
            ControlBody::OpenQueueResponse(_)
        ));
        assert!(matches!(
            peer.expect().control().body,
            ControlBody::ConfigureStreamResponse(_)
        ));
        assert_eq!(pushed(&peer.expect()), [(5, 1)]);
        for byte in put(0, guid(1), b"x", true) {
            peer.write(&[byte]);
        }
        assert_eq!(peer.expect().acks().len(), 1);
    }
}

#[test]
fn lost_connections_are_told_to_the_partitions() {
    let broker = Broker::start(SessionSettings::default(), Script::default());
    let mut peer = broker.connect();
    peer.negotiate();
    peer.open("bmq://d/q", 0, WRITE);
    drop(peer);
    broker.until(&Seen::Ended { graceful: false });
    broker.until(&Seen::Down);
    broker.until_quiet();
}

#[test]
fn announced_lengths_are_judged_by_eight_bytes() {
    let broker = Broker::start(SessionSettings::default(), Script::default());
    let header = |length: usize, kind: u8| {
        let length = u32::try_from(length).unwrap().to_be_bytes();
        [
            length[0],
            length[1],
            length[2],
            length[3],
            0x40 | kind,
            2,
            0,
            0,
        ]
    };
    for bytes in [
        header(HANDSHAKE_EVENT_BYTES_MAX + 4, 1),
        header(0x7fff_ffff, 1),
        header(0x8000_0010, 1),
        header(4, 1),
        header(64, 2),
        HEARTBEAT_REQUEST,
    ] {
        let mut peer = broker.connect();
        peer.write(&bytes);
        peer.write(&[0; 56]);
        assert!(peer.is_closed(), "{bytes:?}");
    }
    for bytes in [
        header(PUT_EVENT_BYTES_MAX + 4, 2),
        header((1 << 20) + 4, 1),
        header(0x7fff_ffff, 3),
        header(0, 1),
    ] {
        let mut peer = broker.connect();
        peer.negotiate();
        peer.write(&bytes);
        assert!(peer.is_closed(), "{bytes:?}");
    }
    // Dropped, not fatal: no kind, header larger than the event, unknown kinds, a PUT that is no PUT, a document that is none.
    let mut peer = broker.connect();
    peer.negotiate();
    let mut large_header = header(8, 1);
    large_header[5] = 200;
    for bytes in [
        header(8, 0),
        large_header,
        header(8, 8),
        header(8, 5),
        header(8, 13),
        HEARTBEAT_REQUEST,
    ] {
        peer.write(&bytes);
    }
    peer.write(&[&header(16, 2)[..], &[0; 8]].concat());
    peer.write(&[&header(16, 1)[..], &[0x30; 8]].concat());
    peer.write(&[&header(16, 3)[..], &[0x10, 0, 0, 0, 1, 2, 3, 4]].concat());
    assert_eq!(peer.expect().kind(), EventKind::HeartbeatResponse);
    peer.open("bmq://d/q", 0, WRITE);
}

#[test]
fn only_the_bad_messages_of_an_event_are_refused() {
    let broker = Broker::start(SessionSettings::default(), Script::default());
    let mut peer = broker.connect();
    peer.negotiate();
    peer.open("bmq://d/q", 0, WRITE);
    peer.open("bmq://d/r", 1, READ);
    let mut out = Vec::new();
    let mut builder = PutBuilder::begin(&mut out);
    let good = PutHead {
        queue: WireQueueId(0),
        guid: guid(1),
        flags: PutFlags::ACK_REQUESTED,
        crc: checksum::crc32c(b"data"),
        ..PutHead::default()
    };
    let quiet = PutHead {
        flags: PutFlags::default(),
        ..good
    };
    for head in [
        good,
        PutHead {
            guid: guid(2),
            crc: 1,
            ..quiet
        },
        PutHead {
            guid: Guid::UNSET,
            ..good
        },
        PutHead {
            guid: guid(3),
            queue: WireQueueId(1),
            ..good
        },
        PutHead {
            guid: guid(4),
            queue: WireQueueId(99),
            ..quiet
        },
        PutHead {
            guid: guid(5),
            flags: PutFlags(3),
            ..good
        },
        PutHead {
            guid: guid(6),
            ..good
        },
    ] {
        builder.append_copy(&mut out, &head, b"data").unwrap();
    }
    builder
        .append_copy(
            &mut out,
            &PutHead {
                guid: guid(7),
                crc: 0,
                ..good
            },
            b"",
        )
        .unwrap();
    builder.finish(&mut out);
    peer.write(&out);
    let mut acks = peer.expect().acks();
    while acks.len() < 8 {
        acks.extend(peer.expect().acks());
    }
    acks.sort_by_key(|ack| ack.guid);
    let outcomes: Vec<_> = acks.iter().map(|ack| (ack.guid, ack.status)).collect();
    let (yes, no) = (AckStatus::Success, AckStatus::Unknown);
    assert_eq!(
        outcomes,
        [
            (Guid::UNSET, no),
            (guid(1), yes),
            (guid(2), no),
            (guid(3), no),
            (guid(4), no),
            (guid(5), no),
            (guid(6), yes),
            (guid(7), no),
        ]
    );
}

#[test]
fn requests_about_one_queue_are_answered_in_order_whatever_they_are() {
    let broker = Broker::start(
        SessionSettings::default(),
        Script {
            refuse: Some("bad"),
            ..Script::default()
        },
    );
    let mut peer = broker.connect();
    peer.negotiate();
    let close = |uri| {
        ControlBody::CloseQueue(CloseQueue {
            handle_parameters: handle(uri, 0, READ),
            is_final: true,
        })
    };
    let bodies = [
        configure(0, 1),
        open("bmq://d/bad", 0, READ),
        configure(0, 2),
        open("bmq://d/q", 0, READ),
        configure(0, 3),
        open("bmq://d/other", 0, READ),
        close("bmq://d/q"),
        close("bmq://d/q"),
        open("bmq://d/other", 0, READ),
    ];
    let count = bodies.len();
    for body in bodies {
        peer.request(body);
    }
    let answers: Vec<_> = (0..count).map(|_| peer.expect().control()).collect();
    let rids: Vec<_> = answers.iter().map(|answer| answer.rid.unwrap()).collect();
    assert_eq!(rids, (1..=9).collect::<Vec<_>>());
    let kinds: Vec<_> = answers
        .into_iter()
        .map(|answer| match answer.body {
            ControlBody::Status(status) => format!("{:?} {}", status.category, status.code),
            ControlBody::OpenQueueResponse(_) => "opened".into(),
            ControlBody::ConfigureStreamResponse(_) => "configured".into(),
            ControlBody::CloseQueueResponse(_) => "closed".into(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "Unknown 0",
            "Unknown -1",
            "Unknown 0",
            "opened",
            "configured",
            "InvalidArgument -1",
            "closed",
            "Unknown 0",
            "opened"
        ]
    );
}

#[test]
fn requests_without_a_number_and_answers_are_ignored() {
    let broker = Broker::start(SessionSettings::default(), Script::default());
    let mut peer = broker.connect();
    peer.negotiate();
    for rid in [None, Some(-1)] {
        peer.send(&ControlMessage {
            rid,
            body: open("bmq://d/q", 0, READ),
        });
    }
    peer.request(ControlBody::DisconnectResponse(Empty {}));
    peer.request(ControlBody::Unknown);
    peer.send(&Negotiation::ClientIdentity(identity("A")));
    peer.send(&ControlMessage {
        rid: Some(0),
        body: open("bmq://d/q", 0, READ),
    });
    assert_eq!(peer.expect().control().rid, Some(0));
}

#[test]
fn a_session_over_its_budget_is_not_read_and_its_end_is_noticed() {
    let settings = SessionSettings {
        in_flight_bytes_max: 1 << 20,
        heartbeat_interval: Duration::from_millis(100),
        ..SessionSettings::default()
    };
    let broker = Broker::start(
        settings,
        Script {
            hold_puts: usize::MAX,
            ..Script::default()
        },
    );
    let event = put(0, guid(1), &vec![7; 1 << 20], true);
    let mut flooding = broker.connect();
    flooding.negotiate();
    flooding.open("bmq://d/q", 0, WRITE);
    flooding
        .socket
        .set_write_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    // The socket fills up: what the broker does not read it does not hold.
    let mut written = 0;
    while written < 64 << 20 {
        match flooding.socket.write(&event) {
            Ok(count) if count == event.len() => written += count,
            _ => break,
        }
    }
    assert!(written < 64 << 20, "everything was taken");
    // The end of a connection is seen as long as it fits the socket behind what was not read.
    let mut leaving = broker.connect();
    leaving.send(&Negotiation::ClientIdentity(identity("B")));
    leaving.expect_welcome();
    leaving.open("bmq://d/q", 0, WRITE);
    leaving.write(&event);
    broker.until(&Seen::Puts(1, 1 << 20));
    leaving.write(&put(0, guid(2), b"not read", true));
    drop(leaving);
    broker.until(&Seen::Ended { graceful: false });
}

#[test]
fn the_largest_message_passes_and_a_larger_one_does_not() {
    let broker = Broker::start(
        SessionSettings::default(),
        Script {
            echo: true,
            ..Script::default()
        },
    );
    let mut peer = broker.connect();
    peer.negotiate();
    peer.open("bmq://d/q", 0, READ | WRITE);
    peer.configure(0, 1);
    let data = vec![b'x'; MESSAGE_BYTES_MAX];
    peer.write(&put(0, guid(1), &data, true));
    let frames = [peer.expect(), peer.expect()];
    assert!(frames.iter().any(
        |frame| frame.kind() == EventKind::Ack && frame.acks()[0].status == AckStatus::Success
    ));
    assert!(
        frames
            .iter()
            .any(|frame| frame.kind() == EventKind::Push
                && pushed(frame) == [(MESSAGE_BYTES_MAX, 1)])
    );
    drop(data);
    peer.write(&put(0, guid(2), &vec![b'x'; MESSAGE_BYTES_MAX + 1], true));
    assert_eq!(peer.expect().acks()[0].status, AckStatus::Unknown);
    peer.write(&put(0, guid(3), b"small", false));
    assert_eq!(pushed(&peer.expect()), [(5, 1)]);
}

#[test]
fn a_consumer_that_does_not_read_pauses_its_queues_and_catches_up() {
    let settings = SessionSettings {
        output_high_bytes: 1 << 20,
        output_low_bytes: 64 << 10,
        ..SessionSettings::default()
    };
    let script = Script {
        push_on_configure: vec![1 << 20; 32],
        ..Script::default()
    };
    let broker = Broker::start(settings, script);
    let mut peer = broker.connect();
    peer.negotiate();
    peer.open("bmq://d/q", 0, READ);
    peer.request(configure(0, 1));
    broker.until(&Seen::Paused);
    assert!(matches!(
        peer.expect().control().body,
        ControlBody::ConfigureStreamResponse(_)
    ));
    let mut count = 0;
    while count < 32 {
        count += pushed(&peer.expect()).len();
    }
    broker.until(&Seen::Resumed);
}

#[test]
fn a_consumer_that_never_reads_is_cut_off() {
    let settings = SessionSettings {
        heartbeat_interval: Duration::from_millis(50),
        heartbeat_misses: u32::MAX,
        write_stall_timeout: Duration::from_millis(200),
        ..SessionSettings::default()
    };
    let script = Script {
        push_on_configure: vec![1 << 20; 32],
        ..Script::default()
    };
    let broker = Broker::start(settings, script);
    let mut peer = broker.connect();
    peer.negotiate();
    peer.open("bmq://d/q", 0, READ);
    peer.request(configure(0, 1));
    broker.until(&Seen::Ended { graceful: false });
}

#[test]
fn silent_peers_are_asked_and_then_cut_off() {
    let settings = SessionSettings {
        heartbeat_interval: Duration::from_millis(50),
        heartbeat_misses: 3,
        ..SessionSettings::default()
    };
    let broker = Broker::start(settings.clone(), Script::default());
    let mut peer = broker.connect();
    peer.negotiate();
    let mut asked = 0;
    while let Some(frame) = peer.frame() {
        assert_eq!(frame.kind(), EventKind::HeartbeatRequest);
        asked += 1;
    }
    assert_eq!(asked, 3);
    // Never a Java peer, which does not know the question.
    let mut java = broker.connect();
    let said = ClientIdentity {
        sdk_language: SdkLanguage::Java,
        ..identity("B")
    };
    java.send(&Negotiation::ClientIdentity(said));
    java.expect_welcome();
    java.socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let error = std::io::Read::read(&mut java.socket, &mut [0; 8]).unwrap_err();
    assert!(
        matches!(
            error.kind(),
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
        ),
        "{error}"
    );
}

#[test]
fn peers_that_do_not_negotiate_are_cut_off() {
    let settings = SessionSettings {
        handshake_timeout: Duration::from_millis(100),
        ..SessionSettings::default()
    };
    let broker = Broker::start(settings, Script::default());
    let mut silent = broker.connect();
    let mut slow = broker.connect();
    slow.write(b"GET /index.html HTTP/1.1\r\n\r\n"[..3].as_ref());
    assert!(silent.is_closed() && slow.is_closed());
    broker.until_quiet();
}

#[test]
fn a_reconnect_ends_the_connection_that_hangs() {
    let broker = Broker::start(SessionSettings::default(), Script::default());
    let mut old = broker.connect();
    old.negotiate();
    old.open("bmq://d/q", 0, WRITE);
    let mut new = broker.connect();
    new.negotiate();
    assert!(old.is_closed());
    broker.until(&Seen::Ended { graceful: false });
    new.open("bmq://d/q", 0, WRITE);
}

#[test]
fn connections_over_the_limit_are_refused_and_places_come_back() {
    let broker = Broker::start_capped(SessionSettings::default(), Script::default(), 2);
    let mut first = broker.connect();
    first.negotiate();
    let mut second = broker.connect();
    second.send(&Negotiation::ClientIdentity(identity("B")));
    second.expect_welcome();
    assert!(broker.connect().is_closed());
    drop((first, second));
    broker.until_quiet();
    broker.connect().negotiate();
}

#[test]
fn draining_finishes_what_was_accepted() {
    let broker = Broker::start(
        SessionSettings::default(),
        Script {
            hold_puts: 2,
            ..Script::default()
        },
    );
    let mut peer = broker.connect();
    peer.negotiate();
    peer.open("bmq://d/q", 0, WRITE);
    peer.open("bmq://d/q", 1, WRITE);
    let mut idle = broker.connect();
    peer.write(&put(0, guid(1), b"one", true));
    broker.until(&Seen::Puts(1, 3));
    peer.write(&put(1, guid(2), b"two", true));
    broker.until(&Seen::Puts(1, 3));
    broker.listener.post(Event::Drain);
    assert_eq!(peer.expect().acks().len(), 2);
    assert!(peer.is_closed() && idle.is_closed());
    drop((peer, idle));
    broker.until(&Seen::Ended { graceful: true });
    broker.until_quiet();
    assert!(std::net::TcpStream::connect(broker.address).is_err());
}

#[test]
fn credentials_other_than_none_are_refused() {
    let broker = Broker::start(SessionSettings::default(), Script::default());
    let basic = AuthenticationRequest {
        mechanism: "BASIC".into(),
        data: Some(b"a:b".to_vec()),
    };
    let mut peer = broker.connect();
    peer.send(&Authentication::Request(basic.clone()));
    match decode_event(&peer.expect().event()).unwrap() {
        Authentication::Response(response) => {
            assert_eq!(response.status.category, Category::Refused)
        }
        other => panic!("{other:?}"),
    }
    assert!(peer.is_closed());
    // Only who began with credentials renews them.
    let mut peer = broker.connect();
    peer.negotiate();
    peer.send(&Authentication::Request(basic));
    assert!(peer.is_closed());
}

#[test]
fn a_java_peer_gets_json_and_its_correlation_ids() {
    let broker = Broker::start(SessionSettings::default(), Script::default());
    let mut peer = broker.connect();
    let said = ClientIdentity {
        sdk_language: SdkLanguage::Java,
        features: "PROTOCOL_ENCODING:JSON;MPS:MESSAGE_PROPERTIES_EX".into(),
        guid_info: GuidInfo::default(),
        ..identity("")
    };
    let mut out = Vec::new();
    encode_event(Encoding::Json, &Negotiation::ClientIdentity(said), &mut out);
    let opening = ControlMessage {
        rid: Some(1),
        body: open("bmq://d/q", 0, WRITE),
    };
    encode_event(Encoding::Json, &opening, &mut out);
    peer.write(&out);
    for _ in 0..2 {
        assert_eq!(
            peer.expect().event().header.type_specific,
            Encoding::Json.type_specific()
        );
    }
    let mut correlation = Guid::UNSET;
    correlation.0[1..4].copy_from_slice(&[1, 2, 3]);
    // Correlation ids decide, not the flag.
    peer.write(&put(0, correlation, b"one", false));
    peer.write(&put(0, Guid::UNSET, b"two", true));
    peer.write(&put(9, correlation, b"three", true));
    let mut acks = peer.expect().acks();
    while acks.len() < 2 {
        acks.extend(peer.expect().acks());
    }
    acks.sort_by_key(|ack| ack.queue);
    assert_eq!(
        (acks[0].correlation, acks[0].status),
        (0x01_0203, AckStatus::Success)
    );
    assert!(!acks[0].guid.is_unset());
    assert_eq!(
        (acks[1].correlation, acks[1].status, acks[1].guid),
        (0x01_0203, AckStatus::Unknown, Guid::UNSET)
    );
}

#[test]
fn operators_ask_and_are_answered() {
    let broker = Broker::start(SessionSettings::default(), Script::default());
    let mut peer = broker.connect();
    peer.send(&Negotiation::ClientIdentity(ClientIdentity {
        kind: ClientKind::Admin,
        ..identity("")
    }));
    peer.expect_welcome();
    peer.request(open("bmq://d/q", 0, WRITE));
    let mut ask = |line: &str| match peer.call(ControlBody::AdminCommand(AdminCommand {
        command: line.into(),
    })) {
        ControlBody::AdminResponse(response) => response.text,
        other => panic!("{other:?}"),
    };
    assert!(ask("HELP").contains("DOMAINS"));
    assert!(ask("DOMAINS INFOS").starts_with("bmq://d/q messages=0"));
    assert!(ask("ENCODING JSON DOMAINS INFOS").starts_with("{\"queues\":["));
    assert!(ask("MAKE COFFEE").contains("unknown command"));
}

#[test]
fn what_was_sent_before_the_end_of_the_stream_counts() {
    let broker = Broker::start(SessionSettings::default(), Script::default());
    let mut peer = broker.connect();
    peer.negotiate();
    peer.open("bmq://d/q", 0, WRITE);
    let burst: Vec<u8> = (0..10_000)
        .flat_map(|number| put(0, guid(number), &[1; 100], false))
        .collect();
    peer.write(&burst);
    peer.socket.shutdown(Shutdown::Write).unwrap();
    let mut count = 0;
    loop {
        match broker.next() {
            Seen::Puts(puts, _) => count += puts,
            Seen::Ended { graceful: false } => break,
            _ => {}
        }
    }
    assert_eq!(count, 10_000);
}
