//! The client against a broker that does as told.

mod fake;

use std::sync::mpsc;
use std::time::Duration;

use fake::Fake;
use mqb_client::{
    AckStatus, Admin, ConsumerOptions, Error, Guid, OpenOptions, PropertiesBuilder, Put, Session,
    SessionEvent, SessionOptions,
};
use mqb_core::control::{Category, ControlBody, Encoding};
use mqb_core::{Compression, PropertiesStyle, wire};

const TIMEOUT: Duration = Duration::from_secs(10);
const URI: &str = "bmq://my.domain/queue";

fn options() -> SessionOptions {
    SessionOptions::new()
        .connect_timeout(TIMEOUT)
        .request_timeout(TIMEOUT)
        .reconnect_delay(Duration::from_millis(5), Duration::from_millis(20))
}

fn connect(fake: &Fake) -> Session {
    Session::connect(&fake.address, options()).unwrap()
}

/// A session whose events can be waited for.
fn connect_with_events(fake: &Fake) -> (Session, mpsc::Receiver<SessionEvent>) {
    let (send, events) = mpsc::channel();
    let session = Session::connect(
        &fake.address,
        options().on_event(move |event| send.send(event).unwrap_or(())),
    )
    .unwrap();
    assert_eq!(events.recv_timeout(TIMEOUT), Ok(SessionEvent::Connected));
    (session, events)
}

fn wait_for(
    events: &mpsc::Receiver<SessionEvent>,
    wanted: impl Fn(&SessionEvent) -> bool,
) -> SessionEvent {
    loop {
        let event = events
            .recv_timeout(TIMEOUT)
            .expect("the event comes in time");
        if wanted(&event) {
            return event;
        }
    }
}

fn guid(n: u8) -> Guid {
    Guid([n; 16])
}

#[test]
fn a_message_is_posted_acknowledged_received_and_confirmed() {
    for encoding in [Encoding::Ber, Encoding::Json] {
        let fake = Fake::start();
        fake.with(|state| (state.encoding, state.echo) = (encoding, true));
        let session = connect(&fake);
        let queue = session
            .open(URI, OpenOptions::new().write().read(ConsumerOptions::new()))
            .unwrap();
        let ack = queue.post_and_wait("hello", TIMEOUT).unwrap();
        assert_eq!(ack.status, AckStatus::Success);
        let message = queue.recv_timeout(TIMEOUT).unwrap().unwrap();
        assert_eq!(
            (message.guid(), &message.payload().unwrap()[..]),
            (ack.guid, &b"hello"[..])
        );
        queue.confirm(&message).unwrap();
        queue.close().unwrap();
        session.disconnect().unwrap();
        fake.with(|state| {
            assert_eq!(state.confirms, [(0, ack.guid, 0)]);
            let kinds: Vec<_> = state.requests.iter().map(std::mem::discriminant).collect();
            // Open, configure, empty configure, close, disconnect.
            assert_eq!(kinds.len(), 5);
            assert_eq!(kinds[1], kinds[2]);
            assert!(matches!(&state.requests[3], ControlBody::CloseQueue(close) if close.is_final));
        });
    }
}

#[test]
fn order_is_kept_through_batches_and_large_messages() {
    let fake = Fake::start();
    let session = connect(&fake);
    let queue = session.open(URI, OpenOptions::new().write()).unwrap();
    let payload = |n: usize| -> Vec<u8> {
        let size = if n % 50 == 7 { 100_000 } else { 1 + n % 300 };
        (0..size).map(|at| (n + at) as u8).collect()
    };
    for n in 0..2000 {
        let payload = payload(n);
        if n % 2 == 0 {
            queue.post_tagged(&payload, n as u64)
        } else {
            queue.post_tagged(payload, n as u64)
        }
        .unwrap();
    }
    assert!(session.flush(TIMEOUT).unwrap());
    assert_eq!(session.stats().acked, 2000);
    fake.with(|state| {
        assert_eq!(state.puts.len(), 2000);
        for (n, put) in state.puts.iter().enumerate() {
            assert_eq!(put.data, payload(n), "message {n}");
        }
    });
}

#[test]
fn acknowledgements_reach_handlers_callbacks_and_receipts() {
    let fake = Fake::start();
    fake.with(|state| state.ack = Some(wire::AckStatus::LimitMessages));
    let session = connect(&fake);
    let (send, acks) = mpsc::channel();
    let by_handler = send.clone();
    let options = OpenOptions::new()
        .write()
        .on_acks(move |acks| acks.iter().for_each(|ack| by_handler.send(*ack).unwrap()));
    let queue = session.open(URI, options).unwrap();
    let first = queue.post_tagged("a", 17).unwrap();
    let ack = acks.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(
        (ack.guid, ack.tag, ack.status),
        (first, 17, AckStatus::LimitMessages)
    );
    let second = queue
        .post_with("b", move |ack| send.send(ack).unwrap())
        .unwrap();
    assert_eq!(acks.recv_timeout(TIMEOUT).unwrap().guid, second);
    assert_eq!(
        queue.post("c").unwrap().wait().unwrap().status,
        AckStatus::LimitMessages
    );
    assert_eq!(session.stats().refused, 3);
}

#[test]
fn the_window_pushes_back_and_opens_again() {
    let fake = Fake::start();
    fake.with(|state| state.ack = None);
    let session = Session::connect(&fake.address, options().max_in_flight(4, 1 << 20)).unwrap();
    let queue = session
        .open(
            URI,
            OpenOptions::new()
                .write()
                .post_timeout(Duration::from_millis(20)),
        )
        .unwrap();
    for n in 0..4u8 {
        queue.post_tagged(&[n], 0).unwrap();
    }
    assert!(matches!(queue.try_post_tagged(b"x", 0), Err(Error::Full)));
    assert!(matches!(queue.post_tagged(b"x", 0), Err(Error::Full)));
    fake.wait("the broker has all four", |state| state.puts.len() == 4);
    let poster = {
        std::thread::spawn({
            let queue = queue.clone();
            move || loop {
                match queue.post_tagged(b"late", 9) {
                    Err(Error::Full) => {}
                    other => break other,
                }
            }
        })
    };
    let guids: Vec<Guid> = fake.with(|state| state.puts.iter().map(|put| put.guid).collect());
    let mut bytes = Vec::new();
    let mut event = wire::AckBuilder::begin(&mut bytes);
    // In reverse: order of acknowledgements is the broker's affair.
    for guid in guids.iter().rev() {
        event
            .append(
                &mut bytes,
                &wire::Ack {
                    queue: mqb_core::WireQueueId(0),
                    guid: *guid,
                    correlation: 0,
                    status: wire::AckStatus::Success,
                },
            )
            .unwrap();
    }
    event.finish(&mut bytes);
    // Acknowledged twice: the second time changes nothing.
    fake.send(&bytes);
    fake.send(&bytes);
    poster.join().unwrap().unwrap();
    fake.wait("the late one arrives", |state| state.puts.len() == 5);
    assert_eq!((session.stats().acked, session.stats().in_flight), (4, 1));
}

#[test]
fn unacknowledged_messages_are_sent_again_with_their_guids_in_order() {
    let fake = Fake::start();
    fake.with(|state| state.ack = None);
    let (session, events) = connect_with_events(&fake);
    let queue = session.open(URI, OpenOptions::new().write()).unwrap();
    let guids: Vec<Guid> = (0..100u32)
        .map(|n| queue.post_tagged(&n.to_be_bytes(), 0).unwrap())
        .collect();
    let forgotten = queue.post_unacknowledged("once").unwrap();
    let large = queue.post_tagged(vec![5; 200_000], 0).unwrap();
    fake.wait("all are there", |state| state.puts.len() == 102);
    // Some are acknowledged in the middle of an event.
    fake.with(|state| state.ack = Some(wire::AckStatus::Success));
    let mut bytes = Vec::new();
    let mut event = wire::AckBuilder::begin(&mut bytes);
    for guid in guids.iter().step_by(3) {
        event
            .append(
                &mut bytes,
                &wire::Ack {
                    queue: mqb_core::WireQueueId(0),
                    guid: *guid,
                    correlation: 0,
                    status: wire::AckStatus::Success,
                },
            )
            .unwrap();
    }
    event.finish(&mut bytes);
    fake.send(&bytes);
    while session.stats().in_flight != 67 {
        std::thread::yield_now();
    }
    fake.cut();
    assert!(matches!(
        events.recv_timeout(TIMEOUT),
        Ok(SessionEvent::ConnectionLost { .. })
    ));
    let offline = queue.post_tagged("offline", 0).unwrap();
    wait_for(&events, |event| *event == SessionEvent::StateRestored);
    assert!(session.flush(TIMEOUT).unwrap());
    fake.with(|state| {
        let again: Vec<Guid> = state
            .puts
            .iter()
            .filter(|put| put.connection == 2)
            .map(|put| put.guid)
            .collect();
        let mut wanted: Vec<Guid> = guids
            .iter()
            .enumerate()
            .filter(|(n, _)| n % 3 != 0)
            .map(|(_, guid)| *guid)
            .collect();
        wanted.extend([large, offline]);
        assert_eq!(again, wanted);
        assert!(!again.contains(&forgotten));
        assert_eq!(
            state
                .puts
                .iter()
                .rfind(|put| put.guid == large)
                .unwrap()
                .data,
            vec![5; 200_000]
        );
        assert_eq!(state.identities[0], state.identities[1]);
    });
}

#[test]
fn queues_are_reopened_with_their_numbers_and_new_subscriptions() {
    let fake = Fake::start();
    let (session, events) = connect_with_events(&fake);
    let queue = session
        .open(
            URI,
            OpenOptions::new()
                .write()
                .read(ConsumerOptions::new().priority(3)),
        )
        .unwrap();
    fake.push(0, &[(guid(1), b"before")]);
    assert_eq!(
        queue.recv_timeout(TIMEOUT).unwrap().unwrap().guid(),
        guid(1)
    );
    fake.cut();
    wait_for(&events, |event| *event == SessionEvent::StateRestored);
    fake.push(0, &[(guid(2), b"after")]);
    assert_eq!(
        queue.recv_timeout(TIMEOUT).unwrap().unwrap().guid(),
        guid(2)
    );
    let subscriptions: Vec<(u32, u32, i32)> = fake.with(|state| {
        state
            .requests
            .iter()
            .filter_map(|request| match request {
                ControlBody::ConfigureStream(configure) => {
                    let subscription = &configure.stream_parameters.subscriptions[0];
                    Some((
                        configure.q_id,
                        subscription.s_id,
                        subscription.consumers[0].consumer_priority,
                    ))
                }
                _ => None,
            })
            .collect()
    });
    assert_eq!(subscriptions, [(0, 1, 3), (0, 2, 3)]);
}

#[test]
fn a_connection_that_flaps_while_queues_reopen_loses_nothing() {
    let fake = Fake::start();
    fake.with(|state| state.ack = None);
    let (session, events) = connect_with_events(&fake);
    let queue = session.open(URI, OpenOptions::new().write()).unwrap();
    let guids: Vec<Guid> = (0..10u8)
        .map(|n| queue.post_tagged(&[n], 0).unwrap())
        .collect();
    fake.wait("all are there", |state| state.puts.len() == 10);
    fake.with(|state| (state.drop_at_open, state.ack) = (3, Some(wire::AckStatus::Success)));
    fake.cut();
    wait_for(&events, |event| *event == SessionEvent::StateRestored);
    assert!(session.flush(TIMEOUT).unwrap());
    assert_eq!(session.stats().acked, 10);
    let again: Vec<Guid> = fake.with(|state| state.puts[10..].iter().map(|put| put.guid).collect());
    assert_eq!(again, guids);
}

#[test]
fn a_queue_that_cannot_be_reopened_says_so_and_can_be_opened_anew() {
    let fake = Fake::start();
    fake.with(|state| state.ack = None);
    let (session, events) = connect_with_events(&fake);
    let queue = session
        .open(URI, OpenOptions::new().write().read(ConsumerOptions::new()))
        .unwrap();
    let receipt = queue.post("waiting").unwrap();
    fake.wait("it is there", |state| state.puts.len() == 1);
    fake.with(|state| state.refuse_open = Some(Category::Refused));
    fake.cut();
    let failed = wait_for(&events, |event| {
        matches!(event, SessionEvent::QueueReopenFailed { .. })
    });
    let SessionEvent::QueueReopenFailed { uri, rejection } = failed else {
        unreachable!()
    };
    // Text of the broker is fit to be shown.
    assert_eq!(
        (
            uri.as_str(),
            rejection.category,
            rejection.code,
            rejection.message.as_str()
        ),
        (URI, "E_REFUSED", 7, "as told")
    );
    assert_eq!(receipt.wait().unwrap().status, AckStatus::Canceled);
    wait_for(&events, |event| *event == SessionEvent::StateRestored);
    assert!(matches!(queue.post("x"), Err(Error::QueueFailed)));
    assert!(matches!(queue.recv(), Err(Error::QueueFailed)));
    queue.close().unwrap();
    fake.with(|state| state.refuse_open = None);
    session.open(URI, OpenOptions::new().write()).unwrap();
}

#[test]
fn an_open_that_is_refused_reports_the_brokers_words() {
    let fake = Fake::start();
    fake.with(|state| state.refuse_open = Some(Category::InvalidArgument));
    let session = connect(&fake);
    let error = session.open(URI, OpenOptions::new().write()).unwrap_err();
    assert!(
        matches!(&error, Error::Rejected { rejection, .. } if rejection.category == "E_INVALID_ARGUMENT"),
        "{error}"
    );
    fake.with(|state| {
        (state.refuse_open, state.refuse_configure) = (None, Some(Category::Unknown))
    });
    assert!(matches!(
        session.open(URI, OpenOptions::new().read(ConsumerOptions::new())),
        Err(Error::Rejected { .. })
    ));
    fake.with(|state| {
        // The half-open queue was closed again.
        assert!(
            matches!(state.requests.last(), Some(ControlBody::CloseQueue(close)) if close.is_final)
        );
        state.refuse_configure = None;
    });
    session
        .open(URI, OpenOptions::new().read(ConsumerOptions::new()))
        .unwrap();
    assert!(matches!(
        session.open(URI, OpenOptions::new().write()),
        Err(Error::AlreadyOpen { .. })
    ));
}

#[test]
fn an_unanswered_open_times_out_and_the_connection_is_made_anew() {
    let fake = Fake::start();
    fake.with(|state| state.mute = true);
    let session = Session::connect(
        &fake.address,
        options().request_timeout(Duration::from_millis(50)),
    )
    .unwrap();
    assert!(matches!(
        session.open(URI, OpenOptions::new().write()),
        Err(Error::Timeout { .. })
    ));
    fake.with(|state| state.mute = false);
    session.open(URI, OpenOptions::new().write()).unwrap();
    fake.wait("the client has come again", |state| state.connections == 2);
}

#[test]
fn app_ids_share_a_queue_number_and_only_the_last_close_is_final() {
    let fake = Fake::start();
    let session = connect(&fake);
    let read = || OpenOptions::new().read(ConsumerOptions::new());
    let foo = session.open("bmq://d/q?id=foo", read()).unwrap();
    let bar = session.open("bmq://d/q?id=bar", read()).unwrap();
    let writer = session
        .open("bmq://d/q", OpenOptions::new().write())
        .unwrap();
    foo.confirm_guids([guid(1)]).unwrap();
    bar.confirm_guids([guid(2)]).unwrap();
    for queue in [&foo, &bar, &writer] {
        queue.close().unwrap();
    }
    fake.with(|state| {
        assert_eq!(state.confirms, [(0, guid(1), 1), (0, guid(2), 2)]);
        let finals: Vec<bool> = state
            .requests
            .iter()
            .filter_map(|request| match request {
                ControlBody::CloseQueue(close) => Some(close.is_final),
                _ => None,
            })
            .collect();
        assert_eq!(finals, [false, false, true]);
    });
}

#[test]
fn an_old_broker_gets_old_requests_and_old_properties() {
    let fake = Fake::start();
    fake.with(|state| (state.features, state.echo) = ("PROTOCOL_ENCODING:BER", true));
    let session = connect(&fake);
    let queue = session
        .open(
            "bmq://d/q",
            OpenOptions::new().write().read(ConsumerOptions::new()),
        )
        .unwrap();
    let mut properties = PropertiesBuilder::new();
    properties.set_string("name", "value").unwrap();
    let body = "text ".repeat(500);
    queue
        .post_tagged(Put::new(&body).properties(&properties).compressed(), 0)
        .unwrap();
    let message = queue.recv_timeout(TIMEOUT).unwrap().unwrap();
    assert_eq!(
        (
            message.format().properties(),
            message.format().compression()
        ),
        (Some(PropertiesStyle::Old), Compression::Zlib)
    );
    let contents = message.contents().unwrap();
    assert_eq!(contents.property("name").unwrap().value, b"value");
    assert_eq!(&contents.payload[..], body.as_bytes());
    assert!(fake.with(|state| matches!(state.requests[1], ControlBody::ConfigureQueueStream(_))));
}

#[test]
fn properties_and_compression_come_back_as_they_were() {
    let fake = Fake::start();
    fake.with(|state| state.echo = true);
    let session = connect(&fake);
    let queue = session
        .open(URI, OpenOptions::new().write().read(ConsumerOptions::new()))
        .unwrap();
    let mut properties = PropertiesBuilder::new();
    properties.set_int32("z", -5).unwrap();
    properties.set_binary("a", &[0, 255]).unwrap();
    let body = "z".repeat(3000);
    for put in [
        Put::new(&body),
        Put::new(&body).properties(&properties),
        Put::new(&body).compressed(),
        Put::new(&body).properties(&properties).compressed(),
    ] {
        queue.post_tagged(put, 0).unwrap();
        let message = queue.recv_timeout(TIMEOUT).unwrap().unwrap();
        assert_eq!(message.payload().unwrap(), body);
        let names: Vec<Vec<u8>> = message
            .contents()
            .unwrap()
            .properties()
            .map(|property| property.name.to_vec())
            .collect();
        assert!(names.is_empty() || names == [b"a".to_vec(), b"z".to_vec()]);
    }
    assert!(matches!(queue.post(""), Err(Error::EmptyPayload)));
    let sizes: Vec<usize> =
        fake.with(|state| state.puts.iter().map(|put| put.data.len()).collect());
    assert!(sizes[2] < 100 && sizes[3] < 200, "{sizes:?}");
}

#[test]
fn pushes_under_a_replaced_subscription_are_not_delivered() {
    let fake = Fake::start();
    let session = connect(&fake);
    let queue = session
        .open(URI, OpenOptions::new().read(ConsumerOptions::new()))
        .unwrap();
    queue
        .reconfigure(vec![ConsumerOptions::new().max_unconfirmed_messages(1)])
        .unwrap();
    let mut stale = Vec::new();
    let mut event = wire::PushBuilder::begin(&mut stale);
    let head = wire::PushHead::new(
        mqb_core::WireQueueId(0),
        guid(1),
        mqb_core::DataFormat::PLAIN,
        false,
    );
    event
        .append_copy(&mut stale, &head, &[mqb_core::SubscriptionId(1)], b"stale")
        .unwrap();
    event.finish(&mut stale);
    fake.send(&stale);
    fake.push(0, &[(guid(2), b"good")]);
    assert_eq!(
        queue.recv_timeout(TIMEOUT).unwrap().unwrap().guid(),
        guid(2)
    );
    queue.reconfigure(Vec::new()).unwrap();
    assert!(fake.with(|state| matches!(state.requests.last(), Some(ControlBody::ConfigureStream(c)) if c.stream_parameters.subscriptions.is_empty())));
}

#[test]
fn confirms_in_callbacks_are_batched_and_blocking_calls_are_refused_there() {
    let fake = Fake::start();
    let session = connect(&fake);
    let (send, results) = mpsc::channel();
    session
        .subscribe(URI, ConsumerOptions::new(), move |queue, message| {
            queue.confirm(&message).unwrap();
            send.send(queue.close()).unwrap();
        })
        .unwrap();
    let messages: Vec<(Guid, &[u8])> = (1..=100).map(|n| (guid(n), &b"x"[..])).collect();
    fake.push(0, &messages);
    for _ in 0..100 {
        assert!(matches!(
            results.recv_timeout(TIMEOUT).unwrap(),
            Err(Error::InCallback)
        ));
    }
    fake.wait("all are confirmed", |state| state.confirms.len() == 100);
}

#[test]
fn a_queue_that_is_delivered_at_most_once_is_not_confirmed() {
    let fake = Fake::start();
    fake.with(|state| state.routing = 7);
    let session = connect(&fake);
    let queue = session
        .open(URI, OpenOptions::new().read(ConsumerOptions::new()))
        .unwrap();
    fake.push(0, &[(guid(1), b"x")]);
    queue
        .confirm(&queue.recv_timeout(TIMEOUT).unwrap().unwrap())
        .unwrap();
    queue.close().unwrap();
    assert!(fake.with(|state| state.confirms.is_empty()));
}

#[test]
fn heartbeats_are_answered_and_a_silent_broker_is_left() {
    let fake = Fake::start();
    fake.with(|state| state.heartbeat = (20, 2));
    let (_session, events) = connect_with_events(&fake);
    fake.send(&wire::HEARTBEAT_REQUEST);
    fake.wait("the heartbeat is answered", |state| {
        state.heartbeats_answered == 1
    });
    // The fake never answers the client's own requests: it panics and the connection ends, or the client leaves.
    wait_for(&events, |event| {
        matches!(event, SessionEvent::ConnectionLost { .. })
    });
}

#[test]
fn garbage_ends_the_connection_and_not_the_process() {
    let fake = Fake::start();
    let (session, events) = connect_with_events(&fake);
    let queue = session
        .open(URI, OpenOptions::new().read(ConsumerOptions::new()))
        .unwrap();
    // Dropped with a log line: unknown kind, truncated bodies, undecodable control documents.
    for harmless in [
        &[0, 0, 0, 8, 0x49, 2, 0, 0][..],
        &[0, 0, 0, 12, 0x44, 2, 0, 0, 0, 0, 0, 9],
        &[0, 0, 0, 12, 0x45, 2, 0, 0, 0x16, 0, 0, 0],
        &[0, 0, 0, 16, 0x45, 2, 0, 0, 0x16, 0, 0, 0, 1, 2, 3, 4],
        &[0, 0, 0, 12, 0x41, 2, 0, 0, 1, 2, 3, 4],
        &[0, 0, 0, 12, 0x41, 2, 0x40, 0, 1, 2, 3, 4],
        &[0, 0, 0, 6, 0x41, 2],
    ] {
        fake.send(harmless);
    }
    fake.push(0, &[(guid(3), b"still here")]);
    assert_eq!(
        queue.recv_timeout(TIMEOUT).unwrap().unwrap().guid(),
        guid(3)
    );
    fake.send(&[0x80, 0, 0, 8, 0x44, 2, 0, 0]);
    wait_for(&events, |event| {
        matches!(event, SessionEvent::ConnectionLost { .. })
    });
    wait_for(&events, |event| *event == SessionEvent::StateRestored);
}

#[test]
fn nobody_listening_is_told_at_once_unless_waiting_is_wanted() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    drop(listener);
    assert!(matches!(
        Session::connect(&address, options()),
        Err(Error::Connect { .. })
    ));
    let patient = options()
        .wait_for_broker(true)
        .connect_timeout(Duration::from_millis(100));
    assert!(matches!(
        Session::connect(&address, patient),
        Err(Error::Timeout { .. })
    ));
}

#[test]
fn credentials_are_sent_first_when_given() {
    let fake = Fake::start();
    let session = Session::connect(
        &fake.address,
        options().credential("BASIC", "user:password"),
    )
    .unwrap();
    assert_eq!(
        fake.with(|state| (state.authentications, state.identities.len())),
        (1, 1)
    );
    assert!(!format!("{:?}", options().credential("BASIC", "secret")).contains("secret"));
    session.disconnect().unwrap();
}

#[test]
fn the_end_of_a_session_answers_everybody() {
    let fake = Fake::start();
    fake.with(|state| state.ack = None);
    let session = connect(&fake);
    let queue = session
        .open(URI, OpenOptions::new().write().read(ConsumerOptions::new()))
        .unwrap();
    let receipt = queue.post("x").unwrap();
    let reader = std::thread::spawn({
        let queue = queue.clone();
        move || queue.recv()
    });
    session.disconnect().unwrap();
    assert_eq!(receipt.wait().unwrap().status, AckStatus::Canceled);
    assert!(matches!(reader.join().unwrap(), Err(Error::Closed)));
    assert!(matches!(queue.post("y"), Err(Error::Closed)));
    assert!(matches!(queue.close(), Err(Error::Closed)));
}

#[test]
fn dropping_a_session_still_sends_what_was_posted() {
    let fake = Fake::start();
    let session = connect(&fake);
    let queue = session.open(URI, OpenOptions::new().write()).unwrap();
    for n in 0..100u8 {
        queue.post_tagged(&[n], 0).unwrap();
    }
    drop(session);
    fake.wait("everything arrives", |state| state.puts.len() == 100);
    fake.wait("the client says good-bye", |state| {
        matches!(state.requests.last(), Some(ControlBody::Disconnect(_)))
    });
}

#[test]
fn an_operator_asks_and_gets_text() {
    let fake = Fake::start();
    let mut admin = Admin::connect(&fake.address, TIMEOUT).unwrap();
    assert_eq!(admin.command("help").unwrap(), "you said help");
    assert_eq!(admin.command("stats").unwrap(), "you said stats");
}
