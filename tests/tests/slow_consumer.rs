//! A peer that does not read costs bounded memory and nobody else's time.

use std::io::Write;
use std::time::{Duration, Instant};

use mqb_tests::broker::{Broker, Setup};
use mqb_tests::load;
use mqb_tests::raw::{self, Peer, READ, Subscription, WRITE};
use mqb_tests::sdk::Script;
use mqb_tests::settings;
use mqb_tests::wire::{self, Put, kind};
use mqb_tests::with_processors;
use rustix::process::Signal;

/// What may be held for one connection that does not read, sockets' kernel buffers aside, plus the small block memory
/// that [`settings::SMALL_MEMORY`] allows.
const BOUND_BYTES: u64 = 96 << 20;

/// Another session's messages go there and back while something is stuck.
fn check_latency(broker: &Broker, rounds: u64) {
    let mut peer = Peer::connect(broker.address());
    peer.open("bmq://brisk/q", 0, READ | WRITE);
    peer.configure(0, &[Subscription::new(1)]);
    let mut slowest = Duration::ZERO;
    for id in 0..rounds {
        let start = Instant::now();
        let guid = peer.put(0, &load::payload(id, 200));
        assert_eq!(peer.ack_of(guid).status, 0);
        assert_eq!(load::verify(&peer.pushes(1)[0].data), id);
        peer.confirm(0, &[guid]);
        slowest = slowest.max(start.elapsed());
    }
    assert!(
        slowest < Duration::from_secs(2),
        "another session waited {slowest:?}"
    );
}

with_processors! {
    /// A consumer asks for everything and reads nothing.
    fn a_consumer_that_does_not_read(processors) {
        let broker = Setup::processors(processors).durability("flush").config(settings::SMALL_MEMORY).start();
        let uri = "bmq://unread/q";
        let mut producer = Peer::connect(broker.address());
        producer.open_write(uri, 0);
        let mut deaf = Peer::connect(broker.address());
        deaf.open(uri, 0, READ);
        deaf.configure(0, &[Subscription::new(1).messages(1 << 30).bytes(1 << 40)]);
        check_latency(&broker, 20);
        let before = broker.memory_bytes();
        let (count, size) = (3000, 64 * 1024);
        let mut in_flight = 0;
        for id in 0..count {
            producer.put(0, &load::payload(id, size));
            in_flight += 1;
            if in_flight == 50 {
                producer.acks(50);
                in_flight = 0;
            }
        }
        producer.acks(in_flight);
        check_latency(&broker, 50);
        let grown = broker.memory_bytes().saturating_sub(before);
        assert!(grown < BOUND_BYTES, "192 MB for a peer that does not read took {grown} bytes");
        // It reads at last: everything is there, in order.
        for id in 0..count / 10 {
            let push = deaf.one_push();
            assert_eq!(load::verify(&push.data), id);
        }
        // It dies: another gets all that is left, from the beginning.
        drop(deaf);
        let mut heir = Peer::connect(broker.address());
        heir.open_read(uri, 0);
        assert_eq!(load::verify(&heir.one_push().data), 0);
    }

    /// A producer sends on and on and reads no ACK: it is not read further, and all its ACKs come when it reads.
    fn a_producer_that_does_not_read(processors) {
        let broker = Setup::processors(processors).durability("flush").config(settings::SMALL_MEMORY).start();
        let mut producer = Peer::connect(broker.address());
        producer.open_write("bmq://unheard/q", 0);
        check_latency(&broker, 20);
        let before = broker.memory_bytes();
        let count = 400_000u64;
        let mut guids = Vec::new();
        for _ in 0..count {
            guids.push(producer.fresh_guid());
        }
        let mut writer = producer.stream().try_clone().expect("a socket can be cloned");
        let sent = guids.clone();
        let thread = std::thread::spawn(move || {
            for batch in sent.chunks(500) {
                let puts: Vec<Put<'_>> = batch.iter().map(|guid| Put::new(0, *guid, b"x")).collect();
                writer.write_all(&wire::put_event(&puts)).expect("the broker reads when it is read");
            }
        });
        check_latency(&broker, 100);
        let grown = broker.memory_bytes().saturating_sub(before);
        assert!(grown < BOUND_BYTES + 64 * count, "ACKs nobody reads took {grown} bytes");
        let acks = producer.acks(guids.len());
        assert!(acks.iter().zip(&guids).all(|(ack, guid)| ack.status == 0 && ack.guid == *guid), "one each, in order");
        thread.join().expect("the writer does not panic");
    }

    /// The official SDK, stopped in its tracks and woken again.
    fn a_stopped_sdk_process(processors) {
        let broker = Setup::processors(processors).durability("flush").config(settings::SMALL_MEMORY).start();
        let uri = "bmq://sleeping/q";
        let mut producer = Peer::connect(broker.address());
        producer.open_write(uri, 0);
        let mut script = Script::start("hold", &broker.uri(), &[uri]);
        script.expect("open");
        script.signal(Signal::STOP);
        for id in 0..800 {
            producer.put(0, &load::payload(id, 16 * 1024));
        }
        producer.acks(800);
        check_latency(&broker, 50);
        script.signal(Signal::CONT);
        script.command("wait 800");
        script.expect("received");
        script.finish();
    }
}

/// A consumer that stops reading in the middle of a configuration gets its answer in its place when it reads on.
#[test]
fn answers_wait_in_line() {
    let broker = Setup::processors(2).durability("flush").start();
    let uri = "bmq://line/q";
    let mut producer = Peer::connect(broker.address());
    producer.open_write(uri, 0);
    let mut consumer = Peer::connect(broker.address());
    consumer.open(uri, 0, READ);
    consumer.configure(0, &[Subscription::new(1).messages(1 << 30).bytes(1 << 40)]);
    for id in 0..500 {
        producer.put(0, &load::payload(id, 64 * 1024));
    }
    producer.acks(500);
    let (rid, request) = consumer.request(raw::configure_request(
        0,
        &[Subscription::new(2).messages(1 << 30).bytes(1 << 40)],
    ));
    consumer.send(&request).expect("the broker reads");
    let mut answered = false;
    let mut ids = Vec::new();
    while ids.len() < 500 || !answered {
        match consumer
            .next(mqb_tests::wait::PATIENCE)
            .expect("the broker goes on")
        {
            wire::Event::Control(message) => {
                assert_eq!(message["rId"], rid);
                answered = true;
            }
            wire::Event::Pushes(pushes) => {
                for push in pushes {
                    assert_eq!(push.subscriptions(), [if answered { 2 } else { 1 }]);
                    ids.push(load::verify(&push.data));
                    consumer
                        .send(&wire::confirm_event(kind::CONFIRM, &[(0, push.guid, 0)]))
                        .expect("the broker reads");
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ids, (0..500).collect::<Vec<u64>>());
}
