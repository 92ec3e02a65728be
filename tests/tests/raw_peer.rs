//! What an SDK sends but a Python program cannot provoke: other shapes of peers, pipelining, take-over, and the order of
//! events on the wire, seen event by event.

use std::net::SocketAddr;
use std::time::Duration;

use mqb_tests::broker::{Broker, Setup};
use mqb_tests::load;
use mqb_tests::raw::{self, End, Identity, Peer, READ, Subscription, WRITE};
use mqb_tests::wait::PATIENCE;
use mqb_tests::wire::{self, ACK_REQUESTED, Event, OUT_OF_ORDER, PROPERTIES, Property, Put, kind};
use mqb_tests::with_processors;
use serde_json::{Value, json};

const SUCCESS: u8 = 0;
const UNKNOWN: u8 = 5;

/// A status response's category.
fn category(response: &Value) -> &str {
    response["status"]["category"]
        .as_str()
        .unwrap_or("no status")
}

fn broker(processors: usize) -> Broker {
    Setup::processors(processors).start()
}

/// All events of a stretch of the wire, flattened: what came, in order.
#[derive(Debug, PartialEq)]
enum Step {
    Response(i64),
    Ack(u8),
    Push(u32),
}

fn steps(events: &[Event]) -> Vec<Step> {
    let mut steps = Vec::new();
    for event in events {
        match event {
            Event::Control(message) => {
                steps.push(Step::Response(message["rId"].as_i64().expect("a response")))
            }
            Event::Acks(acks) => steps.extend(acks.iter().map(|ack| Step::Ack(ack.status))),
            Event::Pushes(pushes) => steps.extend(
                pushes
                    .iter()
                    .map(|push| Step::Push(push.subscriptions()[0])),
            ),
            _ => {}
        }
    }
    steps
}

#[test]
fn negotiation_announces_what_sdks_look_for() {
    let broker = broker(1);
    let mut peer = Peer::dial(broker.address(), Identity::unique());
    let response = peer.negotiate();
    assert_eq!(response["result"]["category"], "E_SUCCESS");
    assert_eq!(response["protocolVersion"], 1);
    let identity = &response["brokerIdentity"];
    assert_eq!(identity["clientType"], "E_TCPBROKER");
    let features = identity["features"].as_str().expect("a string");
    assert!(features.contains("MPS:MESSAGE_PROPERTIES_EX"), "{features}");
    assert!(
        features.contains("SUBSCRIPTIONS:CONFIGURE_STREAM"),
        "{features}"
    );
    assert!(
        features.contains("PROTOCOL_ENCODING:BER,JSON"),
        "{features}"
    );
    let missed = response["maxMissedHeartbeats"].as_i64().expect("a number");
    assert!(
        missed <= 0 || response["heartbeatIntervalMs"].as_i64().expect("a number") > 0,
        "{response}"
    );
}

#[test]
fn answers_come_in_the_encoding_that_the_peer_lists() {
    let broker = broker(1);
    let features = [
        ("PROTOCOL_ENCODING:BER,JSON", true),
        ("", true),
        ("X:Y;PROTOCOL_ENCODING:JSON", false),
    ];
    for (features, ber) in features {
        let mut peer = Peer::dial(
            broker.address(),
            Identity::unique().with("features", json!(features)),
        );
        peer.send(&peer.identity().event())
            .expect("the broker reads");
        let answer = peer.next(PATIENCE).expect("an answer");
        assert_eq!(
            matches!(answer, Event::Ber(_)),
            ber,
            "{features:?}: {answer:?}"
        );
    }
}

#[test]
fn a_peer_with_an_unknown_type_or_data_before_its_identity_is_closed() {
    let broker = broker(1);
    let strange = Identity::unique()
        .with("clientType", json!("E_UNKNOWN"))
        .event();
    let early_put = wire::put_event(&[Put::new(0, [1; 16], b"x")]);
    let early_request = wire::json_event(kind::CONTROL, &json!({"rId": 1, "disconnect": {}}));
    for bytes in [
        strange,
        early_put,
        early_request,
        wire::heartbeat_request(),
        wire::ber_event(kind::CONTROL, &[0xff; 9]),
    ] {
        let mut peer = Peer::dial(broker.address(), Identity::unique());
        peer.send(&bytes).expect("the broker reads");
        let (events, end) = peer.collect(PATIENCE, |_| false);
        assert_eq!(
            (events, end),
            (vec![], Some(End::Closed)),
            "{:02x?}",
            &bytes[..8]
        );
    }
}

with_processors! {
    fn authentication_may_come_first(processors) {
        let broker = broker(processors);
        let request = json!({"authenticationRequest": {"mechanism": "anonymous", "data": ""}});
        let request = wire::json_event(kind::AUTHENTICATION, &request);
        let mut peer = Peer::dial(broker.address(), Identity::unique());
        peer.send(&request).expect("the broker reads");
        let Ok(Event::Authentication(answer)) = peer.next(PATIENCE) else { panic!("an authentication response") };
        assert_eq!(answer["authenticationResponse"]["status"]["category"], "E_SUCCESS", "{answer}");
        assert_eq!(peer.negotiate()["result"]["category"], "E_SUCCESS");

        // A mechanism nobody knows is refused in words, then the connection ends.
        let mut peer = Peer::dial(broker.address(), Identity::unique());
        let unknown = json!({"authenticationRequest": {"mechanism": "MAGIC", "data": "YQ=="}});
        peer.send(&wire::json_event(kind::AUTHENTICATION, &unknown)).expect("the broker reads");
        let Ok(Event::Authentication(answer)) = peer.next(PATIENCE) else { panic!("an authentication response") };
        assert_eq!(answer["authenticationResponse"]["status"]["category"], "E_REFUSED", "{answer}");
        assert_ne!(answer["authenticationResponse"]["status"]["code"], 0, "{answer}");
        assert!(peer.is_closed_within(PATIENCE));

        // A second request before the negotiation is a protocol error.
        let mut peer = Peer::dial(broker.address(), Identity::unique());
        peer.send(&[request.clone(), request].concat()).expect("the broker reads");
        assert!(peer.is_closed_within(PATIENCE));
    }

    /// Authentication, identity, open, configure and a message in a single write: nothing waits for more bytes.
    fn everything_pipelined_in_one_segment(processors) {
        let broker = broker(processors);
        let uri = "bmq://pipelined/q";
        let mut peer = Peer::dial(broker.address(), Identity::unique());
        let authentication = json!({"authenticationRequest": {"mechanism": "ANONYMOUS"}});
        let mut bytes = wire::json_event(kind::AUTHENTICATION, &authentication);
        bytes.extend(peer.identity().event());
        let (open, request) = peer.request(raw::open_request(uri, 0, READ | WRITE));
        bytes.extend(request);
        let (configure, request) = peer.request(raw::configure_request(0, &[Subscription::new(9)]));
        bytes.extend(request);
        let guid = peer.fresh_guid();
        bytes.extend(wire::put_event(&[Put::new(0, guid, b"pipelined")]));
        peer.send(&bytes).expect("the broker reads");
        assert!(peer.response(open).get("openQueueResponse").is_some());
        assert!(peer.response(configure).get("configureStreamResponse").is_some());
        assert_eq!(peer.ack_of(guid).status, SUCCESS);
        let push = peer.pushes(1).remove(0);
        assert_eq!((push.subscriptions(), push.guid, push.data), (vec![9], guid, b"pipelined".to_vec()));
    }

    fn a_session_byte_by_byte(processors) {
        let broker = broker(processors);
        let mut peer = Peer::dial(broker.address(), Identity::unique());
        let mut bytes = peer.identity().event();
        let (open, request) = peer.request(raw::open_request("bmq://bytes/q", 0, READ | WRITE));
        bytes.extend(request);
        let (configure, request) = peer.request(raw::configure_request(0, &[Subscription::new(1)]));
        bytes.extend(request);
        let guid = peer.fresh_guid();
        bytes.extend(wire::put_event(&[Put::new(0, guid, b"byte by byte")]));
        for byte in bytes {
            peer.send(&[byte]).expect("the broker reads");
        }
        peer.response(open);
        peer.response(configure);
        assert_eq!(peer.ack_of(guid).status, SUCCESS);
        assert_eq!(peer.pushes(1)[0].data, b"byte by byte");
    }

    /// A batch for several queues in one event, and many events in one write.
    fn many_messages_in_one_segment(processors) {
        let broker = broker(processors);
        let mut peer = Peer::connect(broker.address());
        for queue in 0..3 {
            peer.open_write(&format!("bmq://batch/q{queue}"), queue);
        }
        let payloads: Vec<Vec<u8>> = (0..300).map(|id| load::payload(id, 20 + id as usize)).collect();
        let guids: Vec<wire::Guid> = payloads.iter().map(|_| peer.fresh_guid()).collect();
        let puts: Vec<Put<'_>> =
            payloads.iter().enumerate().map(|(i, data)| Put::new(i as u32 % 3, guids[i], data)).collect();
        let mut bytes = wire::put_event(&puts[..150]);
        puts[150..].iter().for_each(|put| bytes.extend(wire::put_event(std::slice::from_ref(put))));
        peer.send(&bytes).expect("the broker reads");
        let acks = peer.acks(300);
        assert!(acks.iter().all(|ack| ack.status == SUCCESS));
        for queue in 0..3 {
            // Per queue, in the order of the PUTs.
            let acked: Vec<wire::Guid> = acks.iter().filter(|ack| ack.queue == queue).map(|ack| ack.guid).collect();
            let sent: Vec<wire::Guid> = guids.iter().copied().skip(queue as usize).step_by(3).collect();
            assert_eq!(acked, sent);
            peer.open_read(&format!("bmq://batch/q{queue}"), 10 + queue);
            let ids: Vec<u64> = peer.pushes(100).iter().map(|push| load::verify(&push.data)).collect();
            assert_eq!(ids, (0..100).map(|i| i * 3 + u64::from(queue)).collect::<Vec<u64>>());
        }
    }

    /// JSON, correlation ids, GUIDs made by the broker, old-style properties.
    fn a_java_shaped_peer(processors) {
        let broker = broker(processors);
        let uri = "bmq://java/q";
        let mut peer = Peer::connect_as(broker.address(), Identity::java());
        peer.open(uri, 0, READ | WRITE);
        let id = peer.fresh_subscription();
        peer.configure(0, &[Subscription::new(id)]);
        let area = wire::properties(&[("x", Property::Text("y".into()))], true);
        let data = [area.as_slice(), b"from java"].concat();
        let mut with_ack = Put::new(0, wire::correlation(0x00ab_cdef), &data);
        (with_ack.flags, with_ack.schema) = (ACK_REQUESTED | PROPERTIES, 1);
        let mut without = Put::new(0, wire::correlation(0), b"no ack");
        without.flags = 0;
        peer.send(&wire::put_event(&[with_ack, without])).expect("the broker reads");
        let ack = peer.acks(1).remove(0);
        assert_eq!((ack.status, ack.correlation, ack.queue), (SUCCESS, 0x00ab_cdef, 0));
        let pushes = peer.pushes(2);
        assert_eq!(pushes[0].guid, ack.guid);
        assert_eq!((pushes[0].flags & PROPERTIES, pushes[0].data.as_slice()), (PROPERTIES, data.as_slice()));
        assert_ne!(pushes[1].guid, pushes[0].guid);
        for push in &pushes {
            assert_eq!(push.guid[0] >> 6, 1, "a GUID of version 1: {:02x?}", push.guid);
        }
        peer.confirm(0, &[pushes[0].guid, pushes[1].guid]);

        // A NACK carries the correlation id and no GUID.
        peer.send(&wire::put_event(&[Put::new(77, wire::correlation(5), b"unknown queue")])).expect("the broker reads");
        let nack = peer.acks(1).remove(0);
        assert_eq!((nack.status, nack.correlation, nack.guid, nack.queue), (UNKNOWN, 5, [0; 16], 77));
        peer.disconnect();
    }

    /// The same client connects again while its old socket hangs: it gets its messages at once, the old socket is closed.
    fn takeover_of_a_half_open_socket(processors) {
        let broker = broker(processors);
        let uri = "bmq://takeover/q";
        let mut producer = Peer::connect(broker.address());
        producer.open_write(uri, 0);
        let identity = Identity::unique();
        let mut old = Peer::connect_as(broker.address(), identity.clone());
        old.open_read(uri, 0);
        for id in 0..20 {
            assert_eq!(producer.put_and_wait(0, &load::payload(id, 64)), SUCCESS);
        }
        let held: Vec<wire::Guid> = old.pushes(20).iter().map(|push| push.guid).collect();
        let mut new = Peer::connect_as(broker.address(), identity);
        new.open_read(uri, 0);
        let pushes = new.pushes(20);
        assert_eq!(pushes.iter().map(|push| push.guid).collect::<Vec<_>>(), held, "all of them, in order");
        assert!(pushes.iter().all(|push| push.flags & OUT_OF_ORDER != 0), "marked as delivered before");
        assert!(old.is_closed_within(PATIENCE));
    }

    /// The older way to configure: the PUSH then carries the sub-queue id, 0 for the default stream.
    fn legacy_configure_queue_stream(processors) {
        let broker = broker(processors);
        let uri = "bmq://legacy/q";
        let mut peer = Peer::connect(broker.address());
        peer.open(uri, 0, READ | WRITE);
        let parameters = |messages: i64, priority: i32| json!({"configureQueueStream": {"qId": 0, "streamParameters": {
            "maxUnconfirmedMessages": messages, "maxUnconfirmedBytes": 1_000_000,
            "consumerPriority": priority, "consumerPriorityCount": u8::from(messages > 0)}}});
        let response = peer.call(parameters(2, 0));
        assert_eq!(response["configureQueueStreamResponse"]["request"]["qId"], 0, "{response}");
        for id in 0..3 {
            peer.put(0, &load::payload(id, 10));
        }
        let pushes = peer.pushes(2);
        assert!(pushes.iter().all(|push| push.subscriptions() == [0]));
        let response = peer.call(parameters(0, i32::MIN));
        assert!(response.get("configureQueueStreamResponse").is_some(), "{response}");
        peer.confirm(0, &[pushes[0].guid, pushes[1].guid]);
        peer.acks(3);
        peer.assert_quiet(5);
        peer.close(uri, 0, WRITE | READ);
    }

    /// Each subscription of a consumer has a window of its own; a message goes to one of them.
    fn explicit_subscriptions(processors) {
        let broker = broker(processors);
        let uri = "bmq://subscriptions/q";
        let mut producer = Peer::connect(broker.address());
        producer.open_write(uri, 0);
        let mut consumer = Peer::connect(broker.address());
        consumer.open(uri, 0, READ);
        consumer.configure(0, &[Subscription::new(70).messages(2), Subscription::new(71).messages(3)]);
        for id in 0..10 {
            assert_eq!(producer.put_and_wait(0, &load::payload(id, 10)), SUCCESS);
        }
        let mut pushes = consumer.pushes(5);
        consumer.assert_quiet(3);
        let count = |pushes: &[wire::Push], id: u32| pushes.iter().filter(|push| push.subscriptions() == [id]).count();
        assert_eq!((count(&pushes, 70), count(&pushes, 71)), (2, 3));
        let mut seen = Vec::new();
        while seen.len() < 10 {
            let guids: Vec<wire::Guid> = pushes.iter().map(|push| push.guid).collect();
            seen.extend(pushes.iter().map(|push| load::verify(&push.data)));
            consumer.confirm(0, &guids);
            if seen.len() < 10 {
                pushes = consumer.wait_for("more messages", |event| match event {
                    Event::Pushes(pushes) => Some(pushes.clone()),
                    _ => None,
                });
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<u64>>());

        // An expression that cannot be understood is an error, never a match of everything.
        let broken = json!({"configureStream": {"qId": 0, "streamParameters": {"appId": "__default", "subscriptions": [{
            "sId": 90, "expression": {"version": "E_VERSION_1", "text": "x > > 1"}, "consumers": [{
            "maxUnconfirmedMessages": 1, "maxUnconfirmedBytes": 1000, "consumerPriority": 0, "consumerPriorityCount": 1}]}]}}});
        let response = consumer.call(broken);
        assert!(["E_INVALID_ARGUMENT", "E_NOT_SUPPORTED"].contains(&category(&response)), "{response}");
    }

    /// One window never lets more through than it says, 0 pauses, and a full one resumes at four fifths.
    fn windows_hold(processors) {
        let broker = broker(processors);
        let uri = "bmq://windows/q";
        let mut producer = Peer::connect(broker.address());
        producer.open_write(uri, 0);
        for id in 0..30 {
            assert_eq!(producer.put_and_wait(0, &load::payload(id, 100)), SUCCESS);
        }
        let mut consumer = Peer::connect(broker.address());
        consumer.open(uri, 0, READ);
        consumer.configure(0, &[Subscription::new(1).messages(0)]);
        consumer.assert_quiet(5);
        consumer.configure(0, &[Subscription::new(2).messages(10)]);
        let first = consumer.pushes(10);
        consumer.assert_quiet(3);
        consumer.confirm(0, &[first[0].guid]);
        consumer.assert_quiet(3);
        consumer.confirm(0, &[first[1].guid]);
        consumer.pushes(2);
        // A new configuration does not forget what is outstanding: 1000 bytes are over a limit of 250, and 200 are not.
        consumer.configure(0, &[Subscription::new(3).bytes(250)]);
        consumer.assert_quiet(3);
        let rest: Vec<wire::Guid> = first[2..].iter().map(|push| push.guid).collect();
        consumer.confirm(0, &rest);
        consumer.pushes(1);
        consumer.assert_quiet(3);
    }

    /// The contract that SDKs crash on: a PUSH carries only ids of the configuration last answered.
    fn pushes_and_configurations_stay_in_step(processors) {
        let broker = broker(processors);
        let uri = "bmq://ordering/q";
        let address = broker.address();
        let total = 20_000u64;
        let producer = std::thread::spawn(move || post_all(address, uri, total));
        let mut consumer = Peer::connect(address);
        consumer.open(uri, 0, READ);
        let mut in_force: Option<u32> = None;
        let mut awaited: Option<(i64, Option<u32>)> = None;
        let mut next_subscription = 1;
        let mut received = 0u64;
        let mut configurations = 0;
        let mut pushed_between = 0;
        while received < total || configurations < 200 {
            if awaited.is_none() {
                // Every fifth configuration is empty: after its answer there is nothing until the next.
                let subscription = (configurations % 5 != 4).then(|| Subscription::new(next_subscription).messages(1 << 20).bytes(1 << 30));
                next_subscription += 1;
                let list: Vec<Subscription> = subscription.into_iter().collect();
                let rid = consumer.send_request(raw::configure_request(0, &list));
                awaited = Some((rid, subscription.map(|subscription| subscription.id)));
            }
            match consumer.next(PATIENCE).expect("the broker goes on") {
                Event::Control(message) => {
                    let (rid, id) = awaited.take().expect("one request at a time");
                    assert_eq!(message["rId"], rid);
                    assert!(message.get("configureStreamResponse").is_some(), "{message}");
                    in_force = id;
                    configurations += 1;
                    pushed_between = 0;
                }
                Event::Pushes(pushes) => {
                    for push in &pushes {
                        assert_eq!(Some(push.subscriptions()[0]), in_force, "after {pushed_between} pushes");
                        load::verify(&push.data);
                    }
                    received += pushes.len() as u64;
                    pushed_between += pushes.len();
                    let guids: Vec<wire::Guid> = pushes.iter().map(|push| push.guid).collect();
                    consumer.confirm(0, &guids);
                }
                other => panic!("{other:?}"),
            }
        }
        producer.join().expect("the producer got its ACKs");
        assert_eq!(received, total, "each message once");
    }

    /// All ACKs of a queue come before the answer to its close, and none after.
    fn acks_come_before_the_close_is_answered(processors) {
        let broker = broker(processors);
        let uri = "bmq://closing/q";
        let mut peer = Peer::connect(broker.address());
        peer.open_write(uri, 3);
        let mut bytes = Vec::new();
        for id in 0..300 {
            let guid = peer.fresh_guid();
            bytes.extend(wire::put_event(&[Put::new(3, guid, &load::payload(id, 50))]));
        }
        let (close, request) = peer.request(raw::close_request(uri, 3, WRITE));
        bytes.extend(request);
        peer.send(&bytes).expect("the broker reads");
        let (events, _) = peer.collect(PATIENCE, |events| steps(events).contains(&Step::Response(close)));
        let mut expected: Vec<Step> = (0..300).map(|_| Step::Ack(SUCCESS)).collect();
        expected.push(Step::Response(close));
        assert_eq!(steps(&events), expected);
        peer.assert_quiet(3);
        // Closed means closed.
        let guid = peer.put(3, b"late");
        assert_eq!(peer.ack_of(guid).status, UNKNOWN);
        peer.disconnect();
    }

    /// A retransmitted PUT is acknowledged again and stored once, whichever session sends it.
    fn a_retransmitted_put_is_stored_once(processors) {
        let broker = broker(processors);
        let uri = "bmq://duplicates/q";
        let identity = Identity::unique();
        let mut first = Peer::connect_as(broker.address(), identity.clone());
        first.open_write(uri, 0);
        let guid = first.put(0, b"once");
        assert_eq!(first.ack_of(guid).status, SUCCESS);
        first.send(&wire::put_event(&[Put::new(0, guid, b"once")])).expect("the broker reads");
        assert_eq!(first.ack_of(guid).status, SUCCESS);
        let mut second = Peer::connect(broker.address());
        second.open_write(uri, 0);
        second.send(&wire::put_event(&[Put::new(0, guid, b"once")])).expect("the broker reads");
        assert_eq!(second.ack_of(guid).status, SUCCESS);
        let mut consumer = Peer::connect(broker.address());
        consumer.open_read(uri, 0);
        assert_eq!(consumer.pushes(1)[0].guid, guid);
        consumer.confirm(0, &[guid]);
        // Also after it was confirmed: the window is about the GUID, not about the message.
        second.send(&wire::put_event(&[Put::new(0, guid, b"once")])).expect("the broker reads");
        assert_eq!(second.ack_of(guid).status, SUCCESS);
        consumer.assert_quiet(3);
    }

    /// A bad message costs itself: its neighbours in the same event are stored.
    fn bad_messages_are_refused_one_by_one(processors) {
        let broker = broker(processors);
        let uri = "bmq://bad/q";
        let mut peer = Peer::connect(broker.address());
        peer.open_write(uri, 0);
        let good_area = wire::properties(&[("a", Property::Int32(1))], true);
        let twice = wire::properties(&[("a", Property::Int32(1)), ("a", Property::Int32(2))], true);
        let ill_typed = wire::properties(&[("a", Property::Raw(4, vec![1, 2, 3]))], true);
        let unknown_type = wire::properties(&[("a", Property::Raw(9, vec![1]))], true);
        let nameless = wire::properties(&[("", Property::Int32(1))], true);
        let plain = |data: &[u8]| (data.to_vec(), Put::new(0, [0; 16], b""));
        let with_area = |area: &[u8], payload: &[u8]| {
            let mut put = Put::new(0, [0; 16], b"");
            (put.flags, put.schema) = (ACK_REQUESTED | PROPERTIES, 1);
            ([area, payload].concat(), put)
        };
        let mut garbage = plain(b"this is not zlib");
        garbage.1.compression = 1;
        let mut wrong_checksum = plain(b"abc");
        wrong_checksum.1.crc = Some(1);
        let cases = [
            ("no data at all", plain(b"")),
            ("wrong checksum", wrong_checksum),
            ("zlib garbage", garbage),
            ("the same property twice", with_area(&twice, b"payload")),
            ("an INT32 of three bytes", with_area(&ill_typed, b"payload")),
            ("an unknown property type", with_area(&unknown_type, b"payload")),
            ("a property without a name", with_area(&nameless, b"payload")),
            ("properties and no payload", with_area(&good_area, b"")),
        ];
        for (what, (data, template)) in cases {
            let guids: Vec<wire::Guid> = (0..3).map(|_| peer.fresh_guid()).collect();
            let bad = Put { guid: guids[1], data: &data, ..template };
            let puts = [Put::new(0, guids[0], b"before"), bad, Put::new(0, guids[2], b"after")];
            peer.send(&wire::put_event(&puts)).expect("the broker reads");
            let mut acks = peer.acks(3);
            acks.sort_by_key(|ack| guids.iter().position(|guid| *guid == ack.guid));
            let statuses: Vec<u8> = acks.iter().map(|ack| ack.status).collect();
            assert_eq!(statuses, [SUCCESS, UNKNOWN, SUCCESS], "{what}");
        }
        // A GUID of zeros from a peer that makes GUIDs.
        peer.send(&wire::put_event(&[Put::new(0, [0; 16], b"abc")])).expect("the broker reads");
        assert_eq!(peer.ack_of([0; 16]).status, UNKNOWN);
        // A refusal comes also when no ACK was asked for.
        let guid = peer.fresh_guid();
        let mut silent = Put::new(0, guid, b"abc");
        (silent.flags, silent.crc) = (0, Some(7));
        peer.send(&wire::put_event(&[silent])).expect("the broker reads");
        assert_eq!(peer.ack_of(guid).status, UNKNOWN);
        // A reader may not write.
        peer.open_read("bmq://bad/other", 4);
        let guid = peer.put(4, b"abc");
        assert_eq!(peer.ack_of(guid).status, UNKNOWN);
    }

    /// One byte too many is refused in words while the frame is within its limit; beyond, the connection is closed.
    fn oversized_messages(processors) {
        let broker = broker(processors);
        let mut peer = Peer::connect(broker.address());
        peer.open_write("bmq://oversized/q", 0);
        let data = vec![7u8; 64 * 1024 * 1024 + 1];
        let guids: Vec<wire::Guid> = (0..3).map(|_| peer.fresh_guid()).collect();
        peer.send(&wire::put_event(&[Put::new(0, guids[0], b"small")])).expect("the broker reads");
        peer.send(&wire::put_event(&[Put::new(0, guids[1], &data)])).expect("the broker reads");
        peer.send(&wire::put_event(&[Put::new(0, guids[2], b"small")])).expect("the broker reads");
        let mut acks = peer.acks(3);
        acks.sort_by_key(|ack| ack.guid);
        assert_eq!(acks.iter().map(|ack| ack.status).collect::<Vec<_>>(), [SUCCESS, UNKNOWN, SUCCESS]);
        // 80 MiB are announced, none is sent: refused from the header.
        let mut header = wire::put_event(&[]);
        header[..4].copy_from_slice(&(80u32 << 20).to_be_bytes());
        peer.send(&header).expect("the broker reads");
        assert!(peer.is_closed_within(PATIENCE));
        // A control event is small.
        let mut peer = Peer::connect(broker.address());
        let mut header = wire::ber_event(kind::CONTROL, &[]);
        header[..4].copy_from_slice(&(4u32 << 20).to_be_bytes());
        peer.send(&header[..8]).expect("the broker reads");
        assert!(peer.is_closed_within(PATIENCE));
    }

    /// Properties in both styles reach each consumer in a style that it knows.
    fn properties_are_converted_for_old_consumers(processors) {
        let broker = broker(processors);
        let uri = "bmq://properties/q";
        let list = [("alpha", Property::Int32(-5)), ("beta", Property::Text("text".into()))];
        let (new, old) = (wire::properties(&list, true), wire::properties(&list, false));
        let payload = vec![b'z'; 5000];
        let new_data = [new.as_slice(), payload.as_slice()].concat();
        let old_data = [old.as_slice(), payload.as_slice()].concat();
        let mut producer = Peer::connect(broker.address());
        producer.open_write(uri, 0);
        let guids: Vec<wire::Guid> = (0..2).map(|_| producer.fresh_guid()).collect();
        let mut put_new = Put::new(0, guids[0], &new_data);
        (put_new.flags, put_new.schema) = (ACK_REQUESTED | PROPERTIES, 3);
        let mut put_old = Put::new(0, guids[1], &old_data);
        put_old.flags |= PROPERTIES;
        producer.send(&wire::put_event(&[put_new, put_old])).expect("the broker reads");
        assert!(producer.acks(2).iter().all(|ack| ack.status == SUCCESS));

        let modern = Identity::unique();
        let ancient = Identity::unique().with("features", json!("PROTOCOL_ENCODING:JSON"));
        for (identity, knows_new) in [(modern, true), (ancient, false)] {
            let mut consumer = Peer::connect_as(broker.address(), identity);
            consumer.open_read(uri, 0);
            let pushes = consumer.pushes(2);
            assert!(pushes.iter().all(|push| push.flags & PROPERTIES != 0 && push.compression == 0));
            let schemas: Vec<u16> = pushes.iter().map(|push| push.schema).collect();
            if knows_new {
                assert_eq!(schemas, [1, 0], "new style without a schema, old style as it came");
                assert_eq!((&pushes[0].data, &pushes[1].data), (&new_data, &old_data));
            } else {
                assert_eq!(schemas, [0, 0]);
                assert_eq!((&pushes[0].data, &pushes[1].data), (&old_data, &old_data));
            }
            consumer.disconnect();
        }
    }

    /// Requests that make no sense are answered with the category that SDKs expect, and promptly.
    fn refused_requests(processors) {
        let broker = broker(processors);
        let mut peer = Peer::connect(broker.address());
        peer.open_write("bmq://refused/taken", 0);
        let mut cases = Vec::new();
        let mut open = |expected: &'static str, edit: &dyn Fn(&mut Value)| {
            let mut request = raw::open_request("bmq://refused/q", 5, READ);
            edit(&mut request["openQueue"]["handleParameters"]);
            cases.push((expected, request));
        };
        open("E_REFUSED", &|p| p["uri"] = json!("nonsense"));
        open("E_REFUSED", &|p| p["uri"] = json!("bmq://refused/a/b"));
        open("E_REFUSED", &|p| p["uri"] = json!("bmq://refused/../../etc"));
        open("E_REFUSED", &|p| p["uri"] = json!(format!("bmq://refused/{}", "n".repeat(65))));
        open("E_REFUSED", &|p| p["uri"] = json!("bmq://refused/with\u{1}control"));
        open("E_INVALID_ARGUMENT", &|p| p["readCount"] = json!(0));
        open("E_INVALID_ARGUMENT", &|p| p["adminCount"] = json!(1));
        open("E_INVALID_ARGUMENT", &|p| p["flags"] = json!(READ | 1));
        open("E_INVALID_ARGUMENT", &|p| p["flags"] = json!(WRITE));
        open("E_INVALID_ARGUMENT", &|p| p["readCount"] = json!(-1));
        open("E_INVALID_ARGUMENT", &|p| p["qId"] = json!(4_294_967_290u32));
        open("E_INVALID_ARGUMENT", &|p| p["qId"] = json!(0));
        open("E_UNKNOWN", &|p| p["subIdInfo"] = json!({"subId": 1, "appId": "foo"}));
        open("E_INVALID_ARGUMENT", &|p| {
            p["subIdInfo"] = json!({"subId": 1, "appId": "foo"});
            (p["flags"], p["readCount"], p["writeCount"]) = (json!(WRITE), json!(0), json!(1));
        });
        let stream = |edit: &dyn Fn(&mut Value)| {
            let mut request = raw::configure_request(9, &[Subscription::new(50), Subscription::new(51)]);
            edit(&mut request["configureStream"]);
            request
        };
        cases.push(("E_UNKNOWN", stream(&|p| p["qId"] = json!(1234))));
        cases.push(("E_UNKNOWN", stream(&|p| p["streamParameters"]["appId"] = json!("foo"))));
        cases.push(("E_INVALID_ARGUMENT", stream(&|p| p["streamParameters"]["subscriptions"][1]["sId"] = json!(50))));
        let consumer = |member: &'static str, value: i64| {
            stream(&|p| p["streamParameters"]["subscriptions"][0]["consumers"][0][member] = json!(value))
        };
        cases.push(("E_INVALID_ARGUMENT", consumer("maxUnconfirmedMessages", -1)));
        cases.push(("E_INVALID_ARGUMENT", consumer("maxUnconfirmedBytes", -1)));
        cases.push(("E_UNKNOWN", consumer("consumerPriority", i64::from(i32::MIN))));
        cases.push(("E_UNKNOWN", consumer("consumerPriorityCount", 0)));
        let mut close = raw::close_request("bmq://refused/q", 9, READ);
        close["closeQueue"]["handleParameters"]["readCount"] = json!(0);
        cases.push(("E_INVALID_ARGUMENT", close));
        cases.push(("E_UNKNOWN", raw::close_request("bmq://refused/q", 1234, READ)));
        let mut greedy = raw::close_request("bmq://refused/q", 9, READ);
        greedy["closeQueue"]["handleParameters"]["readCount"] = json!(3);
        cases.push(("E_UNKNOWN", greedy));
        peer.open_read("bmq://refused/reader", 9);
        for (expected, request) in cases {
            let text = request.to_string();
            let response = peer.call(request);
            assert_eq!(category(&response), expected, "{text}: {response}");
            assert!(response["status"]["message"].as_str().is_some_and(|words| !words.is_empty()), "{response}");
        }
        assert_eq!(peer.put_and_wait(0, b"the session goes on"), SUCCESS);
    }

    /// After disconnect the broker has said its last word; what comes later is ignored.
    fn disconnect_is_the_last_word(processors) {
        let broker = broker(processors);
        let uri = "bmq://disconnect/q";
        let mut peer = Peer::connect(broker.address());
        peer.open(uri, 0, READ | WRITE);
        let subscription = peer.fresh_subscription();
        peer.configure(0, &[Subscription::new(subscription)]);
        let mut bytes = Vec::new();
        for id in 0..100 {
            let guid = peer.fresh_guid();
            bytes.extend(wire::put_event(&[Put::new(0, guid, &load::payload(id, 50))]));
        }
        let (disconnect, request) = peer.request(json!({"disconnect": {}}));
        bytes.extend(request);
        let guid = peer.fresh_guid();
        bytes.extend(wire::put_event(&[Put::new(0, guid, b"too late")]));
        peer.send(&bytes).expect("the broker reads");
        let (events, _) = peer.collect(PATIENCE, |events| steps(events).contains(&Step::Response(disconnect)));
        assert_eq!(steps(&events).last(), Some(&Step::Response(disconnect)));
        peer.finish();
        let (events, end) = peer.collect(PATIENCE, |_| false);
        assert_eq!((steps(&events), end), (vec![], Some(End::Closed)));
        // What was accepted before is there for others, the latecomer is not.
        let mut heir = Peer::connect(broker.address());
        heir.open_read(uri, 0);
        let ids: Vec<u64> = heir.pushes(100).iter().map(|push| load::verify(&push.data)).collect();
        assert_eq!(ids, (0..100).collect::<Vec<u64>>());
        heir.assert_quiet(3);
    }
}

/// Posts `total` messages in batches with a bounded number unacknowledged.
fn post_all(address: SocketAddr, uri: &str, total: u64) {
    let mut producer = Peer::connect(address);
    producer.open_write(uri, 0);
    let mut unacknowledged = 0;
    for first in (0..total).step_by(20) {
        let payloads: Vec<Vec<u8>> = (first..total.min(first + 20))
            .map(|id| load::payload(id, 100))
            .collect();
        let puts: Vec<(wire::Guid, &Vec<u8>)> = payloads
            .iter()
            .map(|data| (producer.fresh_guid(), data))
            .collect();
        let puts: Vec<Put<'_>> = puts
            .iter()
            .map(|(guid, data)| Put::new(0, *guid, data))
            .collect();
        producer
            .send(&wire::put_event(&puts))
            .expect("the broker reads");
        unacknowledged += puts.len();
        while unacknowledged > 400 {
            unacknowledged -= producer.wait_for("ACKs", all_good_acks);
        }
    }
    while unacknowledged > 0 {
        unacknowledged -= producer.wait_for("ACKs", all_good_acks);
    }
}

fn all_good_acks(event: &Event) -> Option<usize> {
    let Event::Acks(acks) = event else {
        return None;
    };
    assert!(acks.iter().all(|ack| ack.status == SUCCESS), "{acks:?}");
    Some(acks.len())
}

/// Requests without an id are ignored, an id may be 0 or be used again, admin commands are not for clients.
#[test]
fn request_ids() {
    let broker = broker(1);
    let mut peer = Peer::connect(broker.address());
    let open = raw::open_request("bmq://ids/q", 0, WRITE);
    for id in [json!(-1), Value::Null] {
        let mut request = open.clone();
        if !id.is_null() {
            request["rId"] = id;
        }
        peer.send(&wire::json_event(kind::CONTROL, &request))
            .expect("the broker reads");
    }
    peer.assert_quiet(3);
    for id in [0, 7, 7] {
        let mut request = open.clone();
        request["rId"] = json!(id);
        peer.send(&wire::json_event(kind::CONTROL, &request))
            .expect("the broker reads");
        assert!(peer.response(id).get("openQueueResponse").is_some());
    }
}

/// The open's answer repeats the request and tells the mode and the duplicate window.
#[test]
fn open_response_is_complete() {
    let broker = broker(1);
    let mut peer = Peer::connect(broker.address());
    let request = raw::open_request("bmq://complete/q", 4, READ | WRITE);
    let response = peer.call(request.clone());
    let answer = &response["openQueueResponse"];
    let original = &answer["originalRequest"]["handleParameters"];
    for member in ["uri", "qId", "flags", "readCount", "writeCount"] {
        assert_eq!(
            original[member], request["openQueue"]["handleParameters"][member],
            "{response}"
        );
    }
    assert_eq!(
        answer["routingConfiguration"]["flags"], 2,
        "deliver by consumer priority: {response}"
    );
    assert!(
        answer["deduplicationTimeMs"]
            .as_i64()
            .is_some_and(|ms| ms > 0),
        "{response}"
    );
}

/// An identity silent for long before its negotiation is not kept; nothing has to be configured for that.
#[test]
fn a_silent_connection_ends() {
    let broker = broker(1);
    let mut peer = Peer::dial(broker.address(), Identity::unique());
    assert!(
        peer.is_closed_within(Duration::from_secs(20)),
        "a handshake has a deadline"
    );
}
