//! What recovery makes of bytes that are not what was written: never a panic, never another message's data, never a silent loss.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mqb_broker::storage::{PartitionLog, Recovered};
use mqb_queue::{Fetch, MessageStore};
use mqb_tests::fake_disk::FakeDisk;
use mqb_tests::rng::Rng;
use mqb_tests::storage_model::{World, data, guid, open, tiny};

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// A log with a checkpoint, cold segments and some live messages, closed in an orderly way.
fn small_log(seed: u64, steps: u64) -> World {
    let mut rng = Rng::new(seed);
    let mut world = World::new(seed, tiny(), 1 << 20);
    for _ in 0..steps {
        world.step(&mut rng);
    }
    world.log.close();
    assert!(world.settle_down().closed);
    world
}

/// Opens what is on the disk and reads everything that it says is live. Whatever can be read must be right; tells how many could be read.
fn read_back(world: &World, disk: &FakeDisk) -> (Recovered, usize) {
    let (environment, mut log, recovered) =
        open(disk, &world.config, 1 << 20).expect("damage is no error");
    let mut readable = 0;
    for queue in &recovered.queues {
        for message in &queue.live {
            let known = world
                .messages
                .get(&message.sequence)
                .expect("a message that was never put");
            assert_eq!(
                (message.guid, message.len as usize, queue.id),
                (guid(known.number), known.len, known.queue)
            );
            if read(&mut log, queue.id, message.sequence, &environment.helpers)
                == Some(data(known.number, known.len))
            {
                readable += 1;
            }
        }
    }
    (recovered, readable)
}

fn read(
    log: &mut PartitionLog,
    queue: mqb_core::QueueId,
    sequence: mqb_core::Sequence,
    helpers: &mqb_broker::storage::Helpers,
) -> Option<Vec<u8>> {
    for _ in 0..3 {
        match log.fetch(queue, sequence) {
            Fetch::Ready(stored) => return Some(stored.data().to_vec()),
            Fetch::Lost => return None,
            Fetch::Later => {}
        }
        helpers.run_until_idle();
        log.poll();
    }
    panic!("{sequence:?} is never read back");
}

#[test]
fn a_flipped_bit_is_reported_or_meets_nothing_and_all_else_stays_readable() {
    let world = small_log(5, 700);
    let files = world.disk.files();
    let live = world.live();
    let mut rng = Rng::from_env("bit flips");
    let (mut reported, mut tried) = (0, 0);
    for (path, content) in &files {
        for at in (0..content.len())
            .filter(|_| rng.one_in(80))
            .collect::<Vec<_>>()
        {
            let mut damaged: Files = files.clone();
            damaged.get_mut(path).expect("there")[at] ^= 1 << rng.below(8);
            let disk = FakeDisk::with_files(1, &damaged);
            let (recovered, readable) = read_back(&world, &disk);
            tried += 1;
            if recovered.damage.is_empty() {
                assert_eq!(readable, live, "{path:?} byte {at}: lost without a word");
            } else {
                reported += 1;
                assert!(
                    disk.files() == damaged,
                    "nothing is changed on a damaged disk"
                );
                if path.extension().is_some_and(|e| e == "log" || e == "cold") {
                    // One entry is at most a block and a message.
                    let found: usize = recovered.queues.iter().map(|q| q.live.len()).sum();
                    assert!(
                        found + 80 >= live,
                        "{path:?} byte {at}: {found} of {live} left"
                    );
                }
            }
        }
    }
    assert!(
        reported > 40 && tried > reported,
        "{reported} of {tried} reported"
    );
}

#[test]
fn a_missing_or_emptied_file_is_reported() {
    let world = small_log(6, 700);
    let files = world.disk.files();
    let live = world.live();
    for (path, content) in &files {
        for damaged in [
            None,
            Some(Vec::new()),
            Some(content[..content.len() / 2].to_vec()),
        ] {
            let mut left = files.clone();
            match damaged {
                None => drop(left.remove(path)),
                Some(content) => drop(left.insert(path.clone(), content)),
            }
            let disk = FakeDisk::with_files(1, &left);
            let (recovered, readable) = read_back(&world, &disk);
            assert!(
                !recovered.damage.is_empty() || readable == live,
                "{path:?}: lost without a word"
            );
        }
    }
}

#[test]
fn every_truncation_of_the_unsynced_tail_is_a_legal_end() {
    let mut world = World::new(9, tiny(), 1 << 20);
    let queue = world.queues[0];
    for n in 0..20 {
        world.put(queue, n * 13).expect("space");
        world.log.flush();
    }
    world.settle_down();
    let durable = world.messages.len();
    let before = world.disk.files();
    // Written, and never synced.
    for n in 0..6 {
        world.put(queue, 5 + n * 40).expect("space");
        world.log.flush();
        world
            .environment
            .helpers
            .step(mqb_broker::storage::Duty::Write);
    }
    let after = world.disk.files();
    let mut ends = 0;
    for (path, content) in &after {
        let old = &before[path];
        let changed: Vec<usize> = (0..content.len())
            .filter(|i| old.get(*i) != content.get(*i))
            .collect();
        let (Some(first), Some(last)) = (changed.first(), changed.last()) else {
            continue;
        };
        let mut found_before = durable;
        for end in *first..=*last + 1 {
            let mut torn = after.clone();
            let content = torn.get_mut(path).expect("there");
            content[end..].fill(0);
            let disk = FakeDisk::with_files(1, &torn);
            let (recovered, readable) = read_back(&world, &disk);
            assert_eq!(recovered.damage, [], "cut at {end}");
            assert!(
                readable >= found_before && readable <= world.messages.len(),
                "cut at {end}"
            );
            found_before = readable;
            // Again, and it is the same.
            let once = disk.files();
            disk.kill();
            let (again, readable_again) = read_back(&world, &disk);
            assert_eq!((again.damage.len(), readable_again), (0, readable));
            assert!(disk.files() == once);
            ends += 1;
        }
        assert_eq!(found_before, world.messages.len(), "uncut, all is there");
    }
    assert!(ends > 500, "{ends}");
}

#[test]
fn every_prefix_of_a_short_history_opens() {
    // The log of twenty operations, as it is after each of them and after the loss of power behind each of them.
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let mut world = World::new(seed, tiny(), 1 << 20);
        for _ in 0..20 {
            world.step(&mut rng);
            world
                .environment
                .helpers
                .step(mqb_broker::storage::Duty::Write);
            let copy = FakeDisk::with_files(seed, &world.disk.files());
            let (recovered, _) = read_back(&world, &copy);
            assert_eq!(recovered.damage, []);
        }
    }
}
