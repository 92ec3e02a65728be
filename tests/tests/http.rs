//! Health and metrics over HTTP: what is there, zero included, and what HTTP peers may not do.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use mqb_tests::broker::{Broker, Setup};
use mqb_tests::raw::Peer;

/// Sends bytes and reads until the broker closes or has nothing more to say.
fn exchange(broker: &Broker, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(broker.http()).expect("the port is open");
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a valid timeout");
    // The broker may answer and close before it has read everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn zero_values_are_there_from_the_first_scrape() {
    let broker = Setup::processors(2).start();
    let scrape = broker.metrics();
    for name in [
        "mqb_connections",
        "mqb_queues",
        "mqb_draining",
        "mqb_connections_accepted_total",
        "mqb_put_rejected_total",
        "mqb_push_stale_total",
        "mqb_poison_messages_total",
    ] {
        assert_eq!(scrape.sum(name, &[]), Some(0.0), "{name}");
    }
    for kind in [
        "partition_readonly",
        "partition_full",
        "queue_full",
        "queue_high_watermark",
        "deduplication_shortened",
        "blocks_lost",
    ] {
        assert_eq!(
            scrape.sum("mqb_alarm", &[&format!("kind=\"{kind}\"")]),
            Some(0.0),
            "{kind}"
        );
    }
    assert_eq!(scrape.sum("mqb_ready", &[]), Some(1.0));
    for processor in ["processor=\"0\"", "processor=\"1\""] {
        assert!(
            scrape
                .sum("mqb_dispatcher_turns_total", &[processor])
                .is_some_and(|turns| turns > 0.0)
        );
        assert_eq!(
            scrape.sum("mqb_dispatcher_panics_total", &[processor]),
            Some(0.0)
        );
    }
    assert!(
        scrape
            .sum("mqb_storage_fsync_seconds_count", &["partition=\"0\""])
            .is_some()
    );
    assert!(
        scrape
            .sum("mqb_process_cpu_seconds_total", &[])
            .is_some_and(|seconds| seconds > 0.0)
    );
    assert!(
        scrape
            .sum("mqb_process_resident_memory_bytes", &[])
            .is_some_and(|bytes| bytes > 1e6)
    );
    assert!(
        scrape
            .sum("mqb_process_open_fds", &[])
            .is_some_and(|count| count > 5.0)
    );
}

#[test]
fn figures_of_a_queue_follow_its_messages() {
    let broker = Setup::processors(2).start();
    let uri = "bmq://figures.of/q";
    let mut peer = Peer::connect(broker.address());
    peer.open_write(uri, 0);
    for _ in 0..3 {
        assert_eq!(peer.put_and_wait(0, b"12345"), 0);
    }
    peer.open_read(uri, 1);
    let guids: Vec<_> = peer.pushes(3).iter().map(|push| push.guid).collect();
    peer.confirm(1, &guids[..1]);
    peer.round_trip();
    let labels = ["domain=\"figures.of\"", "queue=\"bmq://figures.of/q\""];
    let expected = [
        ("mqb_queue_put_total", 3.0),
        ("mqb_queue_nack_total", 0.0),
        ("mqb_queue_stored_total", 3.0),
        ("mqb_queue_push_total", 3.0),
        ("mqb_queue_confirmed_total", 1.0),
        ("mqb_queue_expired_total", 0.0),
        ("mqb_queue_purged_total", 0.0),
        ("mqb_queue_removed_total", 0.0),
        ("mqb_queue_depth_messages", 2.0),
        ("mqb_queue_depth_bytes", 10.0),
        ("mqb_queue_unconfirmed_messages", 2.0),
        ("mqb_queue_producers", 1.0),
        ("mqb_queue_consumers", 1.0),
    ];
    // The confirm has no answer of its own and may be a turn behind the request after it.
    mqb_tests::wait::until_true(
        "the confirm to be counted",
        mqb_tests::wait::PATIENCE,
        || broker.metrics().sum("mqb_queue_confirmed_total", &labels) == Some(1.0),
    );
    let scrape = broker.metrics();
    for (name, value) in expected {
        assert_eq!(scrape.sum(name, &labels), Some(value), "{name}");
    }
    assert!(
        scrape
            .sum("mqb_queue_oldest_message_age_seconds", &labels)
            .is_some_and(|age| age > 0.0)
    );
    assert_eq!(scrape.sum("mqb_connections", &[]), Some(1.0));
}

/// Whatever is documented exists, and the other way round.
#[test]
fn documented_names_are_the_names() {
    let broker = Setup::processors(1).start();
    let mut peer = Peer::connect(broker.address());
    peer.open_write("bmq://documented/q", 0);
    let document = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../docs/operations.md"
    ))
    .expect("docs/operations.md exists");
    let documented: std::collections::BTreeSet<&str> = document
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|text| text.starts_with("mqb_"))
        .map(|text| text.split('{').next().expect("split yields one part"))
        .collect();
    let scrape = broker.metrics();
    let real: std::collections::BTreeSet<&str> = scrape
        .names()
        .into_iter()
        .map(|name| {
            let stems = ["_bucket", "_count", "_sum"];
            stems
                .iter()
                .find_map(|stem| name.strip_suffix(stem))
                .unwrap_or(name)
        })
        .collect();
    let missing: Vec<_> = real.difference(&documented).collect();
    let invented: Vec<_> = documented.difference(&real).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "not documented: {missing:?}; not there: {invented:?}"
    );
}

#[test]
fn unknown_paths_and_methods_are_refused() {
    let broker = Setup::processors(1).start();
    assert_eq!(broker.get("/").expect("answers").status, 200);
    assert_eq!(broker.get("/nothing").expect("answers").status, 404);
    let answer = exchange(
        &broker,
        b"POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab",
    );
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
}

#[test]
fn malformed_and_oversized_requests_end_their_connection_only() {
    let broker = Setup::processors(1).start();
    let before = broker.memory_bytes();
    let mut large = b"GET /livez HTTP/1.1\r\nHost: x\r\n".to_vec();
    for line in 0..200_000 {
        large.extend_from_slice(format!("X-{line}: {}\r\n", "v".repeat(100)).as_bytes());
    }
    large.extend_from_slice(b"\r\n");
    let answer = exchange(&broker, &large);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
        "{answer}"
    );
    let answer = exchange(&broker, &[0xff; 4096]);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
        "{answer}"
    );
    assert!(
        broker.memory_bytes() < before + (16 << 20),
        "20 MB of headers are not kept"
    );
    assert_eq!(broker.get("/livez").expect("answers").status, 200);
    // Many that say nothing do not keep others out for good, nor the broker from its work.
    let silent: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect(broker.http()).expect("accepted or waiting"))
        .collect();
    assert_eq!(broker.get("/readyz").expect("answers").status, 200);
    drop(silent);
}
