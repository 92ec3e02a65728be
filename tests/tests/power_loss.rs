//! Power loss, process loss, full disk and failing syncs against the storage code itself, on a fake disk, over random histories.
//!
//! A failing run prints its seed; repeat it with `MQB_SEED=... cargo test -p mqb-tests --test power_loss`.

use std::path::Path;

use mqb_broker::storage::Disk;
use mqb_queue::StoreError;
use mqb_tests::rng::Rng;
use mqb_tests::storage_model::{World, tiny};

/// Runs one history per seed: from the environment, or a fixed range.
fn seeds(name: &str, count: u64, run: impl Fn(u64)) {
    let number = |name| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let (given, count) = (number("MQB_SEED"), number("MQB_SEEDS").unwrap_or(count));
    let range = given.map_or(0..count, |seed| seed..seed + 1);
    for seed in range {
        let guard = Announce(name, seed);
        run(seed);
        std::mem::forget(guard);
    }
}

/// Prints the seed if it is dropped by a panic.
struct Announce<'a>(&'a str, u64);

impl Drop for Announce<'_> {
    fn drop(&mut self) {
        eprintln!("{}: repeat with MQB_SEED={}", self.0, self.1);
    }
}

#[test]
fn every_acknowledged_message_survives_power_loss_and_settled_ones_stay_gone() {
    seeds("power loss", 16, |seed| {
        let mut rng = Rng::new(seed);
        let mut world = World::new(seed, tiny(), 16 << 10);
        world.disk.short_writes(rng.one_in(2));
        for _ in 0..12 {
            for _ in 0..rng.below(1500) {
                world.step(&mut rng);
            }
            world.disk.crash();
            world.restart();
            if rng.one_in(3) {
                world.read_all();
            }
        }
        world.settle_down();
        world.read_all();
    });
}

#[test]
fn what_was_written_survives_the_end_of_the_process() {
    seeds("kill", 10, |seed| {
        let mut rng = Rng::new(seed);
        let mut world = World::new(seed, tiny(), 16 << 10);
        for _ in 0..8 {
            for _ in 0..rng.below(1000) {
                world.step(&mut rng);
            }
            world.poll();
            let written = world.log.marks().written;
            for (sequence, message) in &mut world.messages {
                message.durable |= *sequence <= written;
                message.settled_durable |= message.settled_at.is_some_and(|at| at <= written);
            }
            world.disk.kill();
            world.restart();
        }
    });
}

#[test]
fn orderly_ends_lose_nothing_and_restarts_change_nothing() {
    seeds("orderly", 8, |seed| {
        let mut rng = Rng::new(seed);
        let mut world = World::new(seed, tiny(), 16 << 10);
        for _ in 0..4 {
            for _ in 0..rng.below(800) {
                world.step(&mut rng);
            }
            world.log.close();
            assert!(world.settle_down().closed);
            assert!(world.messages.values().all(|m| m.durable));
            world.disk.kill();
            world.restart();
            let after_one = world.disk.files();
            for _ in 0..4 {
                world.log.close();
                world.environment.helpers.run_until_idle();
                world.poll();
                world.disk.kill();
                world.restart();
            }
            assert!(
                world.disk.files() == after_one,
                "restarts without traffic change bytes"
            );
        }
    });
}

#[test]
fn a_full_disk_refuses_messages_only_and_recovers_by_itself() {
    seeds("full disk", 8, |seed| {
        let mut rng = Rng::new(seed);
        let mut world = World::new(seed, tiny(), 64 << 10);
        world.large = false;
        for _ in 0..6 {
            for _ in 0..rng.below(600) {
                world.step(&mut rng);
            }
            // Others fill the disk. What was promised space has it by then.
            world.settle_down();
            world
                .disk
                .set_capacity(world.disk.used() + rng.below(6 << 10));
            for _ in 0..rng.below(2500) {
                world.step(&mut rng);
                if rng.one_in(2) {
                    world.tick(20);
                    world.environment.helpers.run_until_idle();
                    world.poll();
                }
            }
            if rng.one_in(3) {
                world.disk.crash();
                world.restart();
                continue;
            }
            // Settling everything needs no new space, and makes room if much was stored.
            let live: Vec<_> = world
                .messages
                .iter()
                .filter(|(_, m)| m.settled_at.is_none())
                .map(|(s, _)| *s)
                .collect();
            for (n, sequence) in live.into_iter().enumerate() {
                world.settle(sequence);
                if n % 16 == 0 {
                    world.tick(20);
                    world.environment.helpers.run_until_idle();
                    world.poll();
                }
            }
            let progress = world.settle_down();
            assert_eq!(progress.fault, None);
            let free = world.disk.free_bytes(Path::new("/")).expect("known");
            if free < world.config.reserve_bytes + world.config.segment_bytes {
                // Others have the rest. They give some back, and nobody tells the log.
                world.disk.set_capacity(u64::MAX);
                world.settle_down();
            }
            let queue = world.queues[0];
            assert!(
                world.put(queue, 100).is_ok(),
                "still full: {:?}",
                world.log.stats()
            );
            let progress = world.settle_down();
            assert!(
                progress.fault.is_none() && world.messages.values().all(|m| m.durable),
                "{:?}",
                world.log.stats()
            );
            world.disk.set_capacity(u64::MAX);
        }
        world.disk.crash();
        world.restart();
        world.read_all();
    });
}

#[test]
fn a_failed_sync_ends_the_partition_and_nothing_is_acknowledged_after_it() {
    seeds("fsync error", 10, |seed| {
        let mut rng = Rng::new(seed);
        let mut world = World::new(seed, tiny(), 16 << 10);
        for _ in 0..rng.below(800) {
            world.step(&mut rng);
        }
        world.disk.fail_syncs(true);
        let queue = world.queues[0];
        world.put(queue, 10).expect("nothing is known yet");
        world.log.want_sync();
        world.log.flush();
        world.environment.helpers.run_until_idle();
        let progress = world.poll();
        assert!(progress.fault.is_some());
        // The device says that it works again. It is not believed.
        world.disk.fail_syncs(false);
        assert_eq!(world.put(queue, 10), Err(StoreError::ReadOnly));
        for _ in 0..100 {
            world.tick(50);
            world.environment.helpers.run_until_idle();
            let later = world.poll();
            assert_eq!(later.marks, progress.marks);
            assert_eq!(later.fault, progress.fault);
        }
        world.disk.crash();
        world.restart();
    });
}
