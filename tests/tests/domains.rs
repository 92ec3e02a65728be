//! What a domain's settings promise: quotas, time to live, delivery attempts, durability by name.

use std::time::Duration;

use mqb_tests::broker::{Broker, Setup};
use mqb_tests::load;
use mqb_tests::raw::{self, End, Peer, READ, Subscription, WRITE};
use mqb_tests::settings::{domain, queue_books};
use mqb_tests::wait::{self, PATIENCE};
use mqb_tests::wire::{self, Put};
use mqb_tests::with_processors;

const SUCCESS: u8 = 0;
const LIMIT_MESSAGES: u8 = 1;
const LIMIT_BYTES: u8 = 2;

fn start(processors: usize, config: String) -> Broker {
    Setup::processors(processors).config(config).start()
}

with_processors! {
    fn a_message_quota(processors) {
        let mut broker = start(processors, domain("quota", &[("max_messages", "5")]));
        let uri = "bmq://quota/q";
        let mut peer = Peer::connect(broker.address());
        peer.open_write(uri, 0);
        let first = peer.put(0, b"0");
        assert_eq!(peer.ack_of(first).status, SUCCESS);
        for _ in 1..5 {
            assert_eq!(peer.put_and_wait(0, b"x"), SUCCESS);
        }
        assert_eq!(peer.put_and_wait(0, b"too many"), LIMIT_MESSAGES);
        // A duplicate takes no room.
        peer.send(&wire::put_event(&[Put::new(0, first, b"0")])).expect("the broker reads");
        assert_eq!(peer.ack_of(first).status, SUCCESS);
        // The quota is about what is there, also after a restart.
        broker.kill();
        broker.restart();
        let mut peer = Peer::connect(broker.address());
        peer.open_write(uri, 0);
        assert_eq!(peer.put_and_wait(0, b"too many"), LIMIT_MESSAGES);
        peer.open_read(uri, 1);
        let pushes = peer.pushes(5);
        peer.confirm(1, &[pushes[0].guid]);
        wait::until_true("room for one", PATIENCE, || peer.put_and_wait(0, b"fits") == SUCCESS);
    }

    fn a_byte_quota(processors) {
        let broker = start(processors, domain("quota", &[("max_bytes", "\"10KiB\"")]));
        let mut peer = Peer::connect(broker.address());
        peer.open_write("bmq://quota/q", 0);
        for _ in 0..9 {
            assert_eq!(peer.put_and_wait(0, &[7; 1024]), SUCCESS);
        }
        assert_eq!(peer.put_and_wait(0, &[7; 4096]), LIMIT_BYTES);
        assert_eq!(peer.put_and_wait(0, &[7; 100]), SUCCESS);
    }

    /// Messages expire without anyone looking, and a late confirm of one that did is no error.
    fn time_to_live(processors) {
        let broker = start(processors, domain("brief", &[("ttl", "\"1s\"")]));
        let uri = "bmq://brief/q";
        let mut peer = Peer::connect(broker.address());
        peer.open_write(uri, 0);
        let mut holder = Peer::connect(broker.address());
        holder.open(uri, 0, READ);
        holder.configure(0, &[Subscription::new(1).messages(2)]);
        for id in 0..10 {
            assert_eq!(peer.put_and_wait(0, &load::payload(id, 20)), SUCCESS);
        }
        let held = holder.pushes(2);
        wait::until_true("all messages to expire", PATIENCE, || {
            let books = queue_books(&broker.metrics(), uri);
            books.depth == 0.0 && books.expired == 10.0
        });
        // What is gone takes no room in the window of who held it.
        assert_eq!(peer.put_and_wait(0, &load::payload(10, 20)), SUCCESS);
        assert_eq!(load::verify(&holder.one_push().data), 10);
        holder.confirm(0, &[held[0].guid, held[1].guid]);
        holder.assert_quiet(3);
    }

    /// A message that takes its consumer down each time is taken out at the limit; the others stay.
    fn delivery_attempts(processors) {
        let broker = start(processors, domain("poison", &[("max_delivery_attempts", "3")]));
        let uri = "bmq://poison/q";
        let mut peer = Peer::connect(broker.address());
        peer.open_write(uri, 0);
        for id in 0..3 {
            assert_eq!(peer.put_and_wait(0, &load::payload(id, 20)), SUCCESS);
        }
        for _ in 0..3 {
            let mut victim = Peer::connect(broker.address());
            victim.open(uri, 0, READ);
            victim.configure(0, &[Subscription::new(1).messages(1)]);
            assert_eq!(load::verify(&victim.one_push().data), 0);
        }
        let mut survivor = Peer::connect(broker.address());
        survivor.open_read(uri, 0);
        let ids: Vec<u64> = survivor.pushes(2).iter().map(|push| load::verify(&push.data)).collect();
        assert_eq!(ids, [1, 2]);
        survivor.assert_quiet(3);
        let books = queue_books(&broker.metrics(), uri);
        assert_eq!((books.removed, books.depth), (1.0, 2.0));
    }

    /// Messages of a `memory` domain are served, and a restart has none of them; a durable neighbour keeps its own.
    fn memory_durability(processors) {
        let config = [domain("fleeting", &[("durability", "\"memory\"")]), domain("lasting", &[("durability", "\"sync\"")])];
        let mut broker = start(processors, config.concat());
        let mut peer = Peer::connect(broker.address());
        for (queue, uri) in ["bmq://fleeting/q", "bmq://lasting/q"].into_iter().enumerate() {
            peer.open(uri, queue as u32, READ | WRITE);
            peer.configure(queue as u32, &[Subscription::new(queue as u32 + 1)]);
            assert_eq!(peer.put_and_wait(queue as u32, b"hello"), SUCCESS);
            assert_eq!(peer.pushes(1)[0].data, b"hello");
        }
        broker.kill();
        broker.restart();
        let mut peer = Peer::connect(broker.address());
        peer.open_read("bmq://lasting/q", 0);
        assert_eq!(peer.pushes(1)[0].data, b"hello");
        peer.open_read("bmq://fleeting/q", 1);
        peer.assert_quiet(5);
    }
}

/// A PUT that is retransmitted after a crash is stored once, even when the first copy is long confirmed and its segment gone.
#[test]
fn the_duplicate_window_outlives_segments_and_restarts() {
    let uri = "bmq://window/q";
    let mut broker = Setup::processors(2)
        .durability("flush")
        .config(mqb_tests::settings::SMALL_SEGMENTS)
        .start();
    let mut producer = Peer::connect(broker.address());
    producer.open_write(uri, 0);
    let mut consumer = Peer::connect(broker.address());
    consumer.open_read(uri, 0);
    let first = producer.put(0, &load::payload(0, 5000));
    let mut last = first;
    for id in 1..2000 {
        last = producer.put(0, &load::payload(id, 5000));
        if id % 100 == 0 {
            let guids: Vec<_> = consumer.pushes(100).iter().map(|push| push.guid).collect();
            consumer.confirm(0, &guids);
        }
    }
    assert_eq!(producer.ack_of(last).status, SUCCESS);
    let guids: Vec<_> = consumer.pushes(100).iter().map(|push| push.guid).collect();
    consumer.confirm(0, &guids);
    consumer.close(uri, 0, READ);
    for restart in 0..2 {
        if restart == 0 {
            broker.kill();
        } else {
            assert!(broker.stop().success());
        }
        broker.restart();
        let mut again = Peer::connect(broker.address());
        again.open_write(uri, 0);
        for (guid, id) in [(first, 0), (last, 1999)] {
            again
                .send(&wire::put_event(&[Put::new(
                    0,
                    guid,
                    &load::payload(id, 5000),
                )]))
                .expect("the broker reads");
            assert_eq!(again.ack_of(guid).status, SUCCESS);
        }
        let mut reader = Peer::connect(broker.address());
        reader.open_read(uri, 0);
        reader.assert_quiet(3);
    }
}

/// A heartbeat is asked of a peer that is silent, and one that never answers is cut off; a Java peer is never asked.
#[test]
fn heartbeats() {
    let broker = Setup::processors(2)
        .config(mqb_tests::settings::FAST_HEARTBEATS)
        .start();
    let mut java = Peer::connect_as(broker.address(), mqb_tests::raw::Identity::java());
    let mut silent = Peer::connect(broker.address());
    let (events, end) = silent.collect(Duration::from_secs(10), |_| false);
    assert_eq!(end, Some(End::Closed), "{events:?}");
    assert!(
        !events.is_empty()
            && events
                .iter()
                .all(|event| *event == wire::Event::HeartbeatRequest),
        "{events:?}"
    );
    let (events, _) = java.collect(Duration::from_millis(500), |_| false);
    assert!(events.is_empty(), "{events:?}");
}

/// Domains come into being at their first use, up to a cap; a domain beyond it, or an unknown one where that is switched off,
/// is refused in words.
#[test]
fn domains_are_capped() {
    let broker = Setup::processors(2).config("[domains]\nmax = 3\n").start();
    let mut peer = Peer::connect(broker.address());
    for number in 0..3 {
        peer.open_write(&format!("bmq://domain{number}/q"), number);
    }
    peer.open_write("bmq://domain0/other", 3);
    let response = peer.call(raw::open_request("bmq://domain3/q", 4, WRITE));
    assert_eq!(response["status"]["category"], "E_REFUSED", "{response}");

    let config = ["[domains]\nauto_create = false\n", &domain("known", &[])].concat();
    let broker = Setup::processors(2).config(config).start();
    let mut peer = Peer::connect(broker.address());
    peer.open_write("bmq://known/q", 0);
    let response = peer.call(raw::open_request("bmq://unknown/q", 1, WRITE));
    assert!(
        ["E_REFUSED", "E_UNKNOWN"]
            .contains(&response["status"]["category"].as_str().expect("refused")),
        "{response}"
    );
}

/// Numbers of producers, consumers and queues have caps too, and closing makes room.
#[test]
fn producers_consumers_and_queues_are_capped() {
    let caps = [
        ("max_producers", "1"),
        ("max_consumers", "1"),
        ("max_queues", "2"),
    ];
    let broker = Setup::processors(2).config(domain("capped", &caps)).start();
    let mut first = Peer::connect(broker.address());
    first.open("bmq://capped/a", 0, READ | WRITE);
    first.configure(0, &[Subscription::new(1)]);
    let mut second = Peer::connect(broker.address());
    for flags in [READ, WRITE] {
        let response = second.call(raw::open_request("bmq://capped/a", 0, flags));
        assert_eq!(response["status"]["category"], "E_UNKNOWN", "{response}");
    }
    second.open_write("bmq://capped/b", 1);
    let response = second.call(raw::open_request("bmq://capped/c", 2, WRITE));
    assert_eq!(response["status"]["category"], "E_REFUSED", "{response}");
    first.close("bmq://capped/a", 0, READ | WRITE);
    second.open_read("bmq://capped/a", 3);
}
