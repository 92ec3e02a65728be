//! Chaos for a while: producers and consumers that come, go, vanish, change their minds, and a broker that is killed.
//! At each quiet moment the books balance; in the end everything drains.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mqb_tests::broker::{Broker, Setup};
use mqb_tests::ledger::{self, Producer, Progress};
use mqb_tests::load;
use mqb_tests::raw::{self, End, Identity, Peer, READ, Subscription};
use mqb_tests::rng::Rng;
use mqb_tests::settings;
use mqb_tests::wait::{self, PATIENCE};
use mqb_tests::wire::{self, Event, kind};
use mqb_tests::with_processors;

const QUEUES: usize = 3;
const CONSUMERS: usize = 4;
const PHASES: usize = 4;
const PHASE: Duration = Duration::from_secs(2);

fn uri(queue: usize) -> String {
    format!("bmq://soak/q{queue}")
}

/// What was received from a queue, by whom it does not matter.
type Received = Mutex<BTreeSet<u64>>;

/// One consumer's life: connect, consume under changing configurations, and leave in one of several ways.
fn consumer_life(
    address: SocketAddr,
    queue: usize,
    rng: &mut Rng,
    received: &Received,
    progress: &Progress,
) -> Result<(), End> {
    let mut peer = Peer::try_dial(address, Identity::unique()).map_err(|_| End::Closed)?;
    peer.try_negotiate()?;
    let expect =
        |response: serde_json::Value| assert!(response.get("status").is_none(), "{response}");
    expect(peer.try_call(raw::open_request(&uri(queue), 0, READ), PATIENCE)?);
    for _ in 0..1 + rng.below(4) {
        let windows = [1, 2, 10, 100, 1000];
        let subscription = Subscription::new(peer.fresh_subscription())
            .messages(windows[rng.below(5) as usize])
            .priority(rng.below(3) as i32);
        expect(peer.try_call(raw::configure_request(0, &[subscription]), PATIENCE)?);
        let mut held = Vec::new();
        let events = 1 + rng.below(40);
        for _ in 0..events {
            if progress.stopped() {
                break;
            }
            let pushes = match peer.try_wait_for(Duration::from_millis(20), |event| match event {
                Event::Pushes(pushes) => Some(pushes.clone()),
                _ => None,
            }) {
                Ok(pushes) => pushes,
                Err(End::Silent) => continue,
                Err(End::Closed) => return Err(End::Closed),
            };
            let mut confirms = Vec::new();
            let mut books = received.lock().expect("no holder panics");
            for push in pushes {
                books.insert(load::verify(&push.data));
                progress.received.fetch_add(1, Ordering::Relaxed);
                // Some at once, some later, some never.
                match rng.below(10) {
                    0 => {}
                    1 | 2 => held.push((0, push.guid, 0)),
                    _ => confirms.push((0, push.guid, 0)),
                }
            }
            drop(books);
            peer.send(&wire::confirm_event(kind::CONFIRM, &confirms))
                .map_err(|_| End::Closed)?;
        }
        peer.send(&wire::confirm_event(kind::CONFIRM, &held))
            .map_err(|_| End::Closed)?;
    }
    match rng.below(4) {
        // Vanishes.
        0 => return Ok(()),
        1 => {}
        // Closes without de-configuring, or properly.
        2 => expect(peer.try_call(raw::close_request(&uri(queue), 0, READ), PATIENCE)?),
        _ => {
            expect(peer.try_call(raw::configure_request(0, &[]), PATIENCE)?);
            expect(peer.try_call(raw::close_request(&uri(queue), 0, READ), PATIENCE)?);
        }
    }
    peer.try_call(serde_json::json!({"disconnect": {}}), PATIENCE)
        .map(|_| ())
}

/// One phase of chaos. With `kill`, the broker dies once in the middle of it.
fn phase(
    broker: &mut Broker,
    producers: &mut [Producer],
    received: &[Received],
    rng: &mut Rng,
    kill: bool,
) {
    let progress = Progress::default();
    let address = broker.address();
    std::thread::scope(|scope| {
        for producer in producers.iter_mut() {
            let progress = &progress;
            scope.spawn(move || {
                while !progress.stopped() {
                    // Ends with the broker's death; then it tries again, and retransmits.
                    if producer.run(address, 64, progress).is_err() {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
            });
        }
        for number in 0..QUEUES * CONSUMERS {
            let (mut rng, progress) = (Rng::new(rng.bits()), &progress);
            scope.spawn(move || {
                let queue = number % QUEUES;
                while !progress.stopped() {
                    if consumer_life(address, queue, &mut rng, &received[queue], progress).is_err()
                    {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
            });
        }
        let start = Instant::now();
        if kill {
            wait::until_true("traffic", PATIENCE, || {
                progress.received.load(Ordering::Relaxed) > 500
            });
            broker.kill();
            broker.restart();
        }
        std::thread::sleep(PHASE.saturating_sub(start.elapsed()));
        progress.stop.store(true, Ordering::Relaxed);
    });
    // Whoever was cut off by the kill settles now; a quiet moment has nothing in doubt.
    for producer in producers {
        let mut peer = producer
            .connect(broker.address())
            .expect("the broker is up");
        producer
            .settle(&mut peer, &progress)
            .expect("the broker is up");
        peer.disconnect();
    }
}

/// `stored = confirmed + expired + purged + removed + depth`, for each queue, on the metrics page.
fn check_conservation(broker: &Broker) {
    for queue in 0..QUEUES {
        wait::until(
            &format!("the books of queue {queue} to balance"),
            PATIENCE,
            || {
                let books = settings::queue_books(&broker.metrics(), &uri(queue));
                (books.stored == books.gone() + books.depth).then_some(())
            },
        );
    }
}

with_processors! {
    fn chaos_drains_completely(processors) {
        let mut rng = Rng::from_env("chaos_drains_completely");
        let mut broker = Setup::processors(processors).durability("flush").config(settings::SMALL_SEGMENTS).start();
        let mut producers: Vec<Producer> =
            (0..QUEUES).map(|queue| Producer::new(&uri(queue), rng.bits(), (8, 2000))).collect();
        let received: Vec<Received> = (0..QUEUES).map(|_| Received::default()).collect();
        for number in 0..PHASES {
            phase(&mut broker, &mut producers, &received, &mut rng, number % 2 == 1);
            check_conservation(&broker);
        }
        // Everybody has left: nothing may be stuck with a consumer that is gone.
        for (queue, producer) in producers.iter().enumerate() {
            drain(&broker, queue, producer, &received[queue]);
        }
        check_conservation(&broker);
        for (queue, producer) in producers.iter().enumerate() {
            let books = settings::queue_books(&broker.metrics(), &uri(queue));
            assert_eq!(books.depth, 0.0);
            let seen = received[queue].lock().expect("no holder panics");
            let lost: Vec<&u64> = producer.acked.iter().filter(|id| !seen.contains(id)).collect();
            assert!(lost.is_empty(), "queue {queue}: {lost:?}");
        }
        assert!(broker.stop().success());
    }
}

/// Confirms all that is left, to the last message.
fn drain(broker: &Broker, queue: usize, producer: &Producer, received: &Received) {
    let mut peer = Peer::connect(broker.address());
    peer.open_read(&uri(queue), 0);
    let mut order: HashMap<u64, usize> = HashMap::new();
    wait::until("the queue to drain", PATIENCE * 2, || {
        match peer.next(Duration::from_millis(50)) {
            Ok(Event::Pushes(pushes)) => {
                let guids: Vec<_> = pushes.iter().map(|push| push.guid).collect();
                for push in pushes {
                    let id = load::verify(&push.data);
                    assert_eq!(push.guid, ledger::guid_of(producer.client_id(), id));
                    let position = order.len();
                    assert!(
                        order.insert(id, position).is_none(),
                        "message {id} came twice to the last consumer"
                    );
                    received.lock().expect("no holder panics").insert(id);
                }
                peer.confirm(0, &guids);
            }
            Ok(other) => panic!("{other:?}"),
            Err(End::Closed) => panic!("the broker closed a healthy session"),
            Err(End::Silent) => {}
        }
        (settings::queue_books(&broker.metrics(), &uri(queue)).depth == 0.0).then_some(())
    });
    peer.close(&uri(queue), 0, READ);
    peer.disconnect();
}
