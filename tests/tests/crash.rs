//! `kill -9` under load, again and again on the same data.
//!
//! After each restart: every acknowledged, unconfirmed message is there, unaltered and once; a message whose confirm was
//! answered by the close of its queue is not; a PUT that was in flight at the kill and is retransmitted is stored once.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use mqb_tests::broker::{Broker, Setup};
use mqb_tests::ledger::{self, Consumer, Producer, Progress};
use mqb_tests::load;
use mqb_tests::raw::{Peer, READ, Subscription};
use mqb_tests::rng::Rng;
use mqb_tests::settings;
use mqb_tests::wait::{self, PATIENCE};
use mqb_tests::with_processors;

const ROUNDS: u64 = 25;
const WINDOW: usize = 256;

/// One queue with the books of its producer and its consumer.
struct Lane {
    producer: Producer,
    consumer: Consumer,
}

impl Lane {
    fn new(number: u64, rng: &mut Rng, sizes: (u64, u64)) -> Lane {
        let producer = Producer::new(&format!("bmq://crash/q{number}"), rng.bits(), sizes);
        let consumer = Consumer::new(&producer, rng.bits());
        Lane { producer, consumer }
    }

    /// Compares the books with what the broker still has.
    fn verify(&mut self, broker: &Broker) {
        let progress = Progress::default();
        let mut peer = self
            .producer
            .connect(broker.address())
            .expect("the broker is up");
        // The last one in the order of the queue: what has not come before it does not come.
        self.producer.post(&mut peer, 1).expect("the broker is up");
        self.producer
            .settle(&mut peer, &progress)
            .expect("the broker is up");
        let marker = self.producer.sent() - 1;

        let mut reader = Peer::connect(broker.address());
        reader.open(self.producer.uri(), 0, READ);
        reader.configure(0, &[Subscription::new(1).messages(1 << 30).bytes(1 << 40)]);
        let mut found = BTreeSet::new();
        while !found.contains(&marker) {
            for push in reader.some_pushes() {
                let id = load::verify(&push.data);
                assert_eq!(push.guid, ledger::guid_of(self.producer.client_id(), id));
                assert_eq!(push.data, self.producer.payload(id));
                assert!(found.insert(id), "message {id} is stored twice");
            }
        }
        let (settled, maybe) = (&self.consumer.settled, &self.consumer.maybe);
        let lost: Vec<&u64> = self
            .producer
            .acked
            .iter()
            .filter(|id| !found.contains(id) && !settled.contains(id) && !maybe.contains(id))
            .collect();
        assert!(
            lost.is_empty(),
            "{}: acknowledged and lost: {lost:?}",
            self.producer.uri()
        );
        let risen: Vec<&u64> = found.iter().filter(|id| settled.contains(id)).collect();
        assert!(
            risen.is_empty(),
            "{}: confirmed and back: {risen:?}",
            self.producer.uri()
        );
        reader.disconnect();
        peer.disconnect();
    }
}

/// Runs all lanes against the broker until `target` messages are acknowledged, then kills it.
fn load_and_kill(broker: &mut Broker, lanes: &mut [Lane], target: u64) {
    let progress = Progress::default();
    let address = broker.address();
    std::thread::scope(|scope| {
        for lane in lanes {
            let (producer, consumer, progress) =
                (&mut lane.producer, &mut lane.consumer, &progress);
            // Both end with the broker; how is of no interest, their books are.
            scope.spawn(move || producer.run(address, WINDOW, progress));
            scope.spawn(move || consumer.run(address, progress));
        }
        wait::until_true("the load to make progress", PATIENCE, || {
            progress.acked.load(Ordering::Relaxed) >= target
        });
        broker.kill();
        progress.stop.store(true, Ordering::Relaxed);
    });
}

fn crash_rounds(test: &str, setup: Setup, sizes: (u64, u64), target: u64) {
    let mut rng = Rng::from_env(test);
    let mut lanes: Vec<Lane> = (0..3)
        .map(|number| Lane::new(number, &mut rng, sizes))
        .collect();
    let mut broker = setup.start();
    let mut in_flight = 0;
    for _ in 0..ROUNDS {
        let target = 1 + rng.below(target);
        load_and_kill(&mut broker, &mut lanes, target);
        in_flight += u64::from(lanes.iter().any(|lane| !lane.producer.in_doubt.is_empty()));
        broker.restart();
        lanes.iter_mut().for_each(|lane| lane.verify(&broker));
    }
    assert!(
        in_flight > ROUNDS * 3 / 4,
        "only {in_flight} kills hit unacknowledged messages"
    );
    let settled: usize = lanes.iter().map(|lane| lane.consumer.settled.len()).sum();
    assert!(
        settled > 0,
        "no confirm was ever safe: the test has not tested resurrection"
    );
    assert!(broker.stop().success());
}

with_processors! {
    fn killed_at_sync(processors) {
        let setup = Setup::processors(processors).durability("sync").config(settings::QUICK_RESTART);
        crash_rounds("killed_at_sync", setup, (8, 600), 2000);
    }

    fn killed_at_flush(processors) {
        let setup = Setup::processors(processors).durability("flush").config(settings::QUICK_RESTART);
        crash_rounds("killed_at_flush", setup, (8, 600), 4000);
    }

    /// Small segments, so that kills fall into rolling, checkpoints and cleaning.
    fn killed_while_segments_come_and_go(processors) {
        let setup = Setup::processors(processors).durability("flush").config(settings::SMALL_SEGMENTS);
        crash_rounds("killed_while_segments_come_and_go", setup, (1000, 8000), 1500);
    }
}

/// Killed during its own recovery, a broker starts the next time as if nothing had been.
#[test]
fn killed_while_recovering() {
    let mut rng = Rng::from_env("killed_while_recovering");
    let mut lanes = vec![Lane::new(0, &mut rng, (100, 2000))];
    let mut broker = Setup::processors(2)
        .durability("flush")
        .config(settings::SMALL_SEGMENTS)
        .start();
    load_and_kill(&mut broker, &mut lanes, 5000);
    for _ in 0..10 {
        broker.restart_without_waiting();
        // Any moment of the start may be hit; spinning instead of sleeping keeps the moments short and different.
        (0..rng.below(2_000_000)).for_each(|_| std::hint::spin_loop());
        broker.kill();
    }
    broker.restart();
    lanes[0].verify(&broker);
}

/// Restarting without traffic changes nothing: the same messages come out, in the same order.
#[test]
fn restarts_are_idempotent() {
    let uri = "bmq://idempotent/q";
    let mut broker = Setup::processors(2)
        .durability("flush")
        .config(settings::QUICK_RESTART)
        .start();
    let mut producer = Peer::connect(broker.address());
    producer.open_write(uri, 0);
    let guids: Vec<_> = (0..500)
        .map(|id| producer.put(0, &load::payload(id, 100)))
        .collect();
    producer.acks(500);
    for restart in 0..5 {
        if restart % 2 == 0 {
            broker.kill();
        } else {
            assert!(broker.stop().success());
        }
        broker.restart();
        let mut reader = Peer::connect(broker.address());
        reader.open_read(uri, 0);
        let found: Vec<_> = reader.pushes(500).iter().map(|push| push.guid).collect();
        assert_eq!(found, guids);
    }
}
