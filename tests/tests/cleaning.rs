//! Much passes through, little stays: the disk holds at most three times what is live and two segments, and a restart finds exactly what is live.

use mqb_broker::storage::StorageConfig;
use mqb_tests::rng::Rng;
use mqb_tests::storage_model::World;

/// A thousandth of the real thing: 10 MiB through segments of 64 KiB.
fn scaled_down() -> StorageConfig {
    StorageConfig {
        segment_bytes: 64 << 10,
        block_bytes: 16 << 10,
        carry_bytes: 16 << 10,
        reserve_bytes: 16 << 10,
        ..StorageConfig::default()
    }
}

/// **Units**: bytes of the log's files.
fn log_bytes(world: &World) -> u64 {
    let is_log = |p: &std::path::Path| p.extension().is_some_and(|e| e == "log" || e == "cold");
    world
        .disk
        .files()
        .iter()
        .filter(|(path, _)| is_log(path))
        .map(|(_, content)| content.len() as u64)
        .sum()
}

/// **Units**: bytes of live records.
fn live_bytes(world: &World) -> u64 {
    let record = |len: usize| (40 + len).next_multiple_of(8) as u64;
    world
        .messages
        .values()
        .filter(|m| m.settled_at.is_none())
        .map(|m| record(m.len))
        .sum()
}

fn turn(world: &mut World) {
    world.tick(10);
    world.environment.helpers.run_until_idle();
    world.poll();
}

fn pass_through(seed: u64, keep_one_in: u64, messages: u64, delay: usize) -> (World, u64) {
    let mut rng = Rng::new(seed);
    let mut world = World::new(seed, scaled_down(), 256 << 10);
    let segment = world.config.segment_bytes;
    let queue = world.queues[0];
    let mut waiting = std::collections::VecDeque::new();
    let mut worst = 0;
    for n in 0..messages {
        let sequence = world.put(queue, 1000).expect("space");
        if !rng.one_in(keep_one_in) {
            waiting.push_back(sequence);
        }
        if n % 8 == 7 {
            turn(&mut world);
            while waiting.len() > delay {
                let at = rng.below(waiting.len() as u64) as usize;
                let sequence = waiting.swap_remove_back(at).expect("in range");
                world.settle(sequence);
                // The model need not remember what nobody asks for again.
                world.messages.remove(&sequence);
            }
        }
        if n % 160 == 159 {
            // A quiet moment.
            (0..60).for_each(|_| turn(&mut world));
            let (disk, live) = (log_bytes(&world), live_bytes(&world));
            assert!(
                disk <= 3 * live + 2 * segment,
                "after {n}: {disk} bytes for {live} live ones: {:?}",
                world.log.stats()
            );
            worst = worst.max(disk);
        }
    }
    for sequence in waiting {
        world.settle(sequence);
        world.messages.remove(&sequence);
    }
    world.settle_down();
    (world, worst)
}

#[test]
fn one_in_a_hundred_stays() {
    let (mut world, _) = pass_through(1, 100, 10_000, 16);
    let stats = world.log.stats();
    assert!(
        stats.carried_bytes > 0 && stats.carried_bytes < stats.written_bytes / 10,
        "{stats:?}"
    );
    let live = world.live();
    assert_eq!(stats.live_messages as usize, live);
    world.read_all();
    world.disk.crash();
    let recovered = world.restart();
    assert_eq!(
        recovered.queues.iter().map(|q| q.live.len()).sum::<usize>(),
        live
    );
    world.read_all();
    let disk = log_bytes(&world);
    assert!(disk <= 3 * live_bytes(&world) + 2 * world.config.segment_bytes);
}

#[test]
fn a_long_backlog_consumed_at_random_stays_within_bounds() {
    let (mut world, _) = pass_through(2, 1000, 4_000, 1_000);
    world.read_all();
    world.disk.crash();
    world.restart();
}

#[test]
fn first_in_first_out_carries_nothing() {
    let mut world = World::new(3, scaled_down(), 256 << 10);
    let queue = world.queues[0];
    let mut waiting = std::collections::VecDeque::new();
    for n in 0..5_000 {
        waiting.push_back(world.put(queue, 1000).expect("space"));
        if n % 8 == 7 {
            turn(&mut world);
            while waiting.len() > 200 {
                let sequence = waiting.pop_front().expect("some");
                world.settle(sequence);
                world.messages.remove(&sequence);
            }
        }
    }
    let stats = world.log.stats();
    assert_eq!(
        stats.carried_bytes, 0,
        "write amplification without need: {stats:?}"
    );
    assert!(stats.checkpoints > 50);
}
