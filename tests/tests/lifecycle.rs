//! Start and stop: exit codes, signals, what refuses to start and how it says so, and readiness while recovering.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mqb_tests::broker::{Broker, Setup};
use mqb_tests::ledger::{Consumer, Producer, Progress};
use mqb_tests::load;
use mqb_tests::metrics;
use mqb_tests::raw::{Identity, Peer, READ, Subscription};
use mqb_tests::settings;
use mqb_tests::wait::{self, PATIENCE};
use mqb_tests::with_processors;
use rustix::process::{Pid, Resource, Rlimit, Signal};

const RUNTIME: Option<i32> = Some(1);

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

with_processors! {
    /// SIGTERM and SIGINT end the process with 0, in the middle of load, and what was acknowledged is there afterwards.
    fn stopped_under_load(processors) {
        let mut broker = Setup::processors(processors).config(settings::QUICK_RESTART).start();
        let mut producer = Producer::new("bmq://stop/q", 1, (10, 500));
        let mut consumer = Consumer::new(&producer, 2);
        for signal in [Signal::TERM, Signal::INT] {
            let progress = Progress::default();
            let address = broker.address();
            let start = producer.acked.len() as u64;
            std::thread::scope(|scope| {
                let (producer, consumer, progress) = (&mut producer, &mut consumer, &progress);
                // The broker goes away under them; their books are what counts.
                scope.spawn(move || producer.run(address, 100, progress));
                scope.spawn(move || consumer.run(address, progress));
                wait::until_true("some load", PATIENCE, || progress.acked.load(Ordering::Relaxed) > 500);
                broker.signal(signal);
                let status = broker.wait_exit(PATIENCE);
                progress.stop.store(true, Ordering::Relaxed);
                assert_eq!(status.code(), Some(0), "{signal:?}");
            });
            assert!(producer.acked.len() as u64 > start);
            broker.restart();
        }
        // Drained completely: each acknowledged message was confirmed or comes now.
        let progress = Progress::default();
        let mut peer = producer.connect(broker.address()).expect("the broker is up");
        producer.settle(&mut peer, &progress).expect("the broker is up");
        let open: Vec<u64> = producer.acked.iter().copied()
            .filter(|id| !consumer.settled.contains(id) && !consumer.maybe.contains(id)).collect();
        let mut reader = Peer::connect(broker.address());
        reader.open(producer.uri(), 0, READ);
        reader.configure(0, &[Subscription::new(1).messages(1 << 30).bytes(1 << 40)]);
        let mut missing: std::collections::BTreeSet<u64> = open.into_iter().collect();
        while !missing.is_empty() {
            reader.some_pushes().iter().for_each(|push| _ = missing.remove(&load::verify(&push.data)));
        }
    }

    /// Confirms that were sent before the stop are kept by it.
    fn confirms_before_a_stop_are_kept(processors) {
        let uri = "bmq://kept/q";
        let mut broker = Setup::processors(processors).config(settings::QUICK_RESTART).start();
        let mut peer = Peer::connect(broker.address());
        peer.open_write(uri, 0);
        peer.open_read(uri, 1);
        for id in 0..100 {
            assert_eq!(peer.put_and_wait(0, &load::payload(id, 50)), 0);
        }
        let guids: Vec<_> = peer.pushes(100).iter().map(|push| push.guid).collect();
        peer.confirm(1, &guids[..60]);
        peer.round_trip();
        assert_eq!(broker.stop().code(), Some(0));
        broker.restart();
        let mut reader = Peer::connect(broker.address());
        reader.open_read(uri, 0);
        let ids: Vec<u64> = reader.pushes(40).iter().map(|push| load::verify(&push.data)).collect();
        assert_eq!(ids, (60..100).collect::<Vec<u64>>());
        reader.assert_quiet(3);
    }
}

/// A broker with a consumer that asked for everything and reads nothing.
fn with_a_stuck_consumer(config: &str) -> (Broker, Peer) {
    let broker = Setup::processors(2)
        .durability("flush")
        .config(config)
        .start();
    let mut producer = Peer::connect(broker.address());
    producer.open_write("bmq://stuck/q", 0);
    let mut stuck = Peer::connect(broker.address());
    stuck.open("bmq://stuck/q", 0, READ);
    stuck
        .send(&stuck_configuration())
        .expect("the broker reads");
    for id in 0..200 {
        producer.put(0, &load::payload(id, 100_000));
    }
    producer.acks(200);
    (broker, stuck)
}

/// A peer that reads nothing cannot hold up the stop beyond its deadline.
#[test]
fn a_stop_ends_at_its_deadline() {
    let (mut broker, _stuck) = with_a_stuck_consumer("[shutdown]\ndeadline = \"1s\"\n");
    broker.signal(Signal::TERM);
    assert_eq!(broker.wait_exit(Duration::from_secs(10)).code(), Some(0));
}

/// A second signal does not wait at all.
#[test]
fn a_second_signal_stops_at_once() {
    let (mut broker, _stuck) = with_a_stuck_consumer("[shutdown]\ndeadline = \"60s\"\n");
    broker.signal(Signal::TERM);
    // The kernel merges a signal with an equal one that is still pending: the first must have been taken.
    wait::until_true("the broker to say that it drains", PATIENCE, || {
        broker
            .get("/readyz")
            .is_ok_and(|response| response.status == 503)
    });
    broker.signal(Signal::TERM);
    broker.wait_exit(PATIENCE);
    broker.restart();
}

/// A configuration with an endless window, sent without waiting for its answer.
fn stuck_configuration() -> Vec<u8> {
    let mut request = mqb_tests::raw::configure_request(
        0,
        &[Subscription::new(1).messages(1 << 30).bytes(1 << 40)],
    );
    request["rId"] = serde_json::json!(1000);
    mqb_tests::wire::json_event(mqb_tests::wire::kind::CONTROL, &request)
}

#[test]
fn a_port_in_use_is_a_clear_error() {
    let broker = Broker::start();
    let exit = Setup::processors(1).start_expecting_exit(broker.address());
    assert_eq!(exit.status.code(), RUNTIME, "{}", exit.stderr);
    assert!(
        exit.stderr.contains(&broker.address().to_string()),
        "names the address: {}",
        exit.stderr
    );
    assert!(!exit.stderr.contains("panicked"), "{}", exit.stderr);
}

#[test]
fn a_second_process_on_the_same_directory_is_refused() {
    let mut broker = Broker::start();
    let dir = broker.data_dir().to_owned();
    let exit = Setup::processors(1)
        .data_dir(&dir)
        .start_expecting_exit(any_port());
    assert_eq!(exit.status.code(), RUNTIME, "{}", exit.stderr);
    assert!(
        exit.stderr.contains(&*dir.to_string_lossy()),
        "names the directory: {}",
        exit.stderr
    );
    // The first one was not disturbed, and once it is gone the directory is free, however it went.
    let mut peer = Peer::connect(broker.address());
    peer.open_write("bmq://first/q", 0);
    assert_eq!(peer.put_and_wait(0, b"still there"), 0);
    broker.kill();
    let mut second = Setup::processors(1).data_dir(&dir).start();
    let mut peer = Peer::connect(second.address());
    peer.open_read("bmq://first/q", 0);
    assert_eq!(peer.pushes(1)[0].data, b"still there");
    assert_eq!(second.stop().code(), Some(0));
}

#[test]
fn a_data_directory_that_cannot_be_is_a_clear_error() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let file = scratch.path().join("file");
    std::fs::write(&file, b"not a directory").expect("writable");
    let exit = Setup::processors(1)
        .data_dir(&file)
        .start_expecting_exit(any_port());
    assert!(
        matches!(exit.status.code(), Some(1 | 2)),
        "{}: {}",
        exit.status,
        exit.stderr
    );
    assert!(
        exit.stderr.contains(&*file.to_string_lossy()),
        "names it: {}",
        exit.stderr
    );
    assert!(!exit.stderr.contains("panicked"), "{}", exit.stderr);
    assert_eq!(
        std::fs::read(&file).expect("still there"),
        b"not a directory"
    );
}

/// Every file below a directory with its content.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(contents(&path));
        } else {
            files.insert(path.clone(), std::fs::read(&path).expect("readable"));
        }
    }
    files
}

/// Data of a newer program, or data that lost the file that says what it is: refused with the reason, and left as it is.
#[test]
fn data_that_is_not_understood_is_refused_and_kept() {
    let newer = |dir: &Path| {
        let path = dir.join("FORMAT");
        let text = std::fs::read_to_string(&path).expect("it says what it is");
        std::fs::write(&path, text.replace("format 1\n", "format 2\n")).expect("writable");
    };
    let nameless =
        |dir: &Path| std::fs::remove_file(dir.join("FORMAT")).expect("it says what it is");
    for (reason, spoil) in [
        ("format version 2", newer as fn(&Path)),
        ("FORMAT", nameless),
    ] {
        let mut broker = Setup::processors(1).start();
        let mut peer = Peer::connect(broker.address());
        peer.open_write("bmq://newer/q", 0);
        assert_eq!(peer.put_and_wait(0, b"precious"), 0);
        assert_eq!(broker.stop().code(), Some(0));
        spoil(broker.data_dir());
        let before = contents(broker.data_dir());
        let exit = Setup::processors(1)
            .data_dir(broker.data_dir())
            .start_expecting_exit(any_port());
        assert!(
            matches!(exit.status.code(), Some(1..=3)),
            "{}: {}",
            exit.status,
            exit.stderr
        );
        assert!(exit.stderr.contains(reason), "{}", exit.stderr);
        assert!(contents(broker.data_dir()) == before, "files were touched");
    }
}

/// Liveness is at once, readiness when recovery is done, and meanwhile the page says how far it is.
#[test]
fn readiness_while_recovering() {
    let mut broker = Setup::processors(2).durability("flush").start();
    assert_eq!(broker.get("/livez").expect("answers").status, 200);
    assert_eq!(broker.get("/readyz").expect("answers").status, 200);
    let mut producer = Producer::new("bmq://recovery/q", 3, (200, 400));
    let mut peer = producer
        .connect(broker.address())
        .expect("the broker is up");
    let progress = Progress::default();
    for _ in 0..400 {
        producer.post(&mut peer, 100).expect("the broker is up");
    }
    producer
        .settle(&mut peer, &progress)
        .expect("the broker is up");
    broker.kill();
    let http = broker.http();
    let start = Instant::now();
    broker.restart_without_waiting();
    let mut statuses = Vec::new();
    let mut first = None;
    wait::until_true("readiness", PATIENCE * 2, || {
        match metrics::get(http, "/readyz") {
            Ok(response) => {
                first.get_or_insert_with(|| (start.elapsed(), response.body.clone()));
                statuses.push(response.status);
                response.status == 200
            }
            Err(_) => false,
        }
    });
    broker.await_ready();
    assert!(
        statuses.iter().all(|status| [200, 503].contains(status)),
        "{statuses:?}"
    );
    let (after, body) = first.expect("it answered");
    assert!(
        after < Duration::from_secs(5),
        "the first answer came after {after:?}: {body}"
    );
    println!(
        "first /readyz after {after:?}, {} answers: {body}",
        statuses.len()
    );
    let mut reader = Peer::connect(broker.address());
    reader.open_read(producer.uri(), 0);
    assert!(!reader.some_pushes().is_empty());
}

/// SIGTERM in the middle of a start: an orderly end, and nothing is lost by it.
#[test]
fn stopped_while_starting() {
    let mut broker = Setup::processors(2).durability("flush").start();
    let mut producer = Peer::connect(broker.address());
    producer.open_write("bmq://early/q", 0);
    let guids: Vec<_> = (0..2000)
        .map(|id| producer.put(0, &load::payload(id, 500)))
        .collect();
    producer.acks(2000);
    broker.kill();
    let http = broker.http();
    for _ in 0..3 {
        broker.restart_without_waiting();
        // Once HTTP answers, signal handlers are in place; before that the default action would end the process.
        wait::until_true("the HTTP port", PATIENCE, || {
            metrics::get(http, "/livez").is_ok()
        });
        assert_eq!(broker.stop().code(), Some(0));
    }
    broker.restart();
    let mut reader = Peer::connect(broker.address());
    reader.open("bmq://early/q", 0, READ);
    reader.configure(0, &[Subscription::new(1).messages(5000)]);
    let found: Vec<_> = reader.pushes(2000).iter().map(|push| push.guid).collect();
    assert_eq!(found, guids);
}

/// Out of descriptors, the broker refuses connections, not work; when they are free again it serves.
#[test]
fn running_out_of_descriptors() {
    let mut broker = Setup::processors(2).start();
    let mut peer = Peer::connect(broker.address());
    peer.open_write("bmq://descriptors/q", 0);
    assert_eq!(peer.put_and_wait(0, b"before"), 0);
    let limit = Some(broker.descriptors() as u64 + 20);
    let pid = i32::try_from(broker.pid()).ok().and_then(Pid::from_raw);
    rustix::process::prlimit(
        pid,
        Resource::Nofile,
        Rlimit {
            current: limit,
            maximum: limit,
        },
    )
    .expect("the child is ours");
    let crowd: Vec<Peer> = (0..100)
        .map(|_| Peer::dial(broker.address(), Identity::unique()))
        .collect();
    for _ in 0..50 {
        assert_eq!(peer.put_and_wait(0, b"meanwhile"), 0);
    }
    drop(crowd);
    let mut late = Peer::connect(broker.address());
    late.open_read("bmq://descriptors/q", 0);
    assert_eq!(late.pushes(51).len(), 51);
    assert!(broker.is_alive());
}

/// Nothing to do costs nothing: no writes, hardly any CPU.
#[test]
fn an_idle_broker_is_idle() {
    let broker = Setup::processors(2).start();
    let mut peer = Peer::connect(broker.address());
    peer.open_write("bmq://idle/q", 0);
    peer.open_read("bmq://idle/q", 1);
    assert_eq!(peer.put_and_wait(0, b"one"), 0);
    let push = peer.pushes(1).remove(0);
    peer.confirm(1, &[push.guid]);
    // What the work before leaves to be done is done when two looks a second apart are equal.
    let look = || (broker.disk_bytes(), written_bytes(broker.pid()));
    let mut last = look();
    wait::until_true("the broker to write nothing for a second", PATIENCE, || {
        std::thread::sleep(Duration::from_secs(1));
        std::mem::replace(&mut last, look()) == last
    });
    let cpu = broker.cpu_time();
    let second = Duration::from_secs(1);
    std::thread::sleep(second);
    let used = broker.cpu_time() - cpu;
    assert!(used < second / 10, "an idle second cost {used:?}");
}

/// Bytes handed to the file system so far.
fn written_bytes(pid: u32) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).expect("the broker runs");
    let line = io
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "))
        .expect("Linux tells it");
    line.trim().parse().expect("a number")
}
