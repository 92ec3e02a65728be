//! A real file system that fills up: PUTs are refused in words, everything that frees space goes on, and writing resumes
//! by itself. Where no file system can be mounted the storage's own tests on a fake disk cover the same ground.

use std::collections::BTreeSet;

use mqb_tests::broker::{Broker, Setup};
use mqb_tests::load;
use mqb_tests::raw::{Peer, READ, Subscription, WRITE};
use mqb_tests::settings;
use mqb_tests::small_disk::SmallDisk;
use mqb_tests::wait::{self, PATIENCE};
use mqb_tests::with_processors;

const SUCCESS: u8 = 0;
const STORAGE_FAILURE: u8 = 6;
const URI: &str = "bmq://full/q";
const SIZE: usize = 32 * 1024;

/// Posts until the broker refuses, and returns the ids that it took.
fn post_until_refused(producer: &mut Peer, first: u64) -> BTreeSet<u64> {
    let mut taken = BTreeSet::new();
    for id in first..first + 100_000 {
        match producer.put_and_wait(0, &load::payload(id, SIZE)) {
            SUCCESS => assert!(taken.insert(id)),
            status => {
                assert_eq!(status, STORAGE_FAILURE);
                return taken;
            }
        }
    }
    panic!("the disk never got full");
}

fn start(disk: &SmallDisk, processors: usize) -> Broker {
    Setup::processors(processors)
        .durability("flush")
        // One partition: each keeps a reserve, and several would leave little of a small disk.
        .config(settings::SMALL_SEGMENTS.to_owned() + "partitions = 1\n")
        .data_dir(disk.path().join("data"))
        .start()
}

with_processors! {
    fn a_full_disk_refuses_puts_only(processors) {
        let Some(disk) = SmallDisk::mount(96) else { return };
        let mut broker = start(&disk, processors);
        let mut producer = Peer::connect(broker.address());
        producer.open_write(URI, 0);
        for id in 0..50 {
            assert_eq!(producer.put_and_wait(0, &load::payload(id, SIZE)), SUCCESS);
        }
        // Somebody else fills the disk.
        let ballast = disk.fill(4 << 20);
        let mut taken = post_until_refused(&mut producer, 50);
        taken.extend(0..50);

        // Alive, answering, and saying what is wrong.
        assert_eq!(broker.get("/livez").expect("answers").status, 200);
        let alarms = |broker: &Broker| broker.metrics().sum("mqb_alarm", &[]).expect("alarms are always listed");
        // The refusal may reach the producer before the gauge and the log line are out.
        wait::until_true("the alarm to be raised", PATIENCE, || alarms(&broker) > 0.0);
        wait::until_true("the log to say so", PATIENCE, || broker.log().contains("no space"));

        // Connections come and go while writing is refused.
        for _ in 0..30 {
            drop(Peer::connect(broker.address()));
        }

        // Deliveries and confirms go on, and confirms last.
        let mut consumer = Peer::connect(broker.address());
        consumer.open_read(URI, 0);
        let confirmed: Vec<_> = consumer.pushes(20);
        let guids: Vec<_> = confirmed.iter().map(|push| push.guid).collect();
        confirmed.iter().for_each(|push| assert!(taken.remove(&load::verify(&push.data))));
        consumer.confirm(0, &guids);
        consumer.close(URI, 0, READ);
        consumer.disconnect();

        // Space returns: writing resumes by itself.
        std::fs::remove_file(ballast).expect("the ballast is ours");
        let mut id = 1_000_000;
        wait::until_true("a PUT to be taken again", PATIENCE, || {
            id += 1;
            let stored = producer.put_and_wait(0, &load::payload(id, SIZE)) == SUCCESS;
            if stored {
                taken.insert(id);
            }
            stored
        });
        wait::until_true("the alarm to end", PATIENCE, || alarms(&broker) == 0.0);

        // All of that survives a kill.
        broker.kill();
        broker.restart();
        let mut reader = Peer::connect(broker.address());
        reader.open(URI, 0, READ);
        reader.configure(0, &[Subscription::new(1).messages(1 << 20).bytes(1 << 40)]);
        let found: BTreeSet<u64> = reader.pushes(taken.len()).iter().map(|push| load::verify(&push.data)).collect();
        assert_eq!(found, taken);
        reader.assert_quiet(3);
    }

    /// Killed while full: it starts, serves what it has, and confirming all of it makes room.
    fn a_full_broker_starts_and_drains(processors) {
        let Some(disk) = SmallDisk::mount(48) else { return };
        let mut broker = start(&disk, processors);
        let mut producer = Peer::connect(broker.address());
        producer.open_write(URI, 0);
        let taken = post_until_refused(&mut producer, 0);
        broker.kill();
        broker.restart();
        let mut peer = Peer::connect(broker.address());
        peer.open(URI, 0, READ | WRITE);
        peer.configure(0, &[Subscription::new(1)]);
        let mut found = BTreeSet::new();
        while found.len() < taken.len() {
            let push = peer.one_push();
            assert!(found.insert(load::verify(&push.data)));
            peer.confirm(0, &[push.guid]);
        }
        assert_eq!(found, taken);
        let mut id = 2_000_000;
        wait::until_true("room for new messages", PATIENCE, || {
            id += 1;
            peer.put_and_wait(0, &load::payload(id, SIZE)) == SUCCESS
        });
        assert!(broker.is_alive());
    }
}
