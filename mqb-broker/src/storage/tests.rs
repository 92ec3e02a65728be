//! The log on a real directory.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use mqb_core::{DataFormat, Guid, PartitionId, QueueId, Sequence};
use mqb_queue::{Fetch, MessageStore, NewMessage, Settled};

use super::*;

fn guid(n: u64) -> Guid {
    let mut g = [7; 16];
    g[..8].copy_from_slice(&n.to_le_bytes());
    Guid(g)
}

fn environment(budget: usize) -> Environment {
    Environment {
        disk: Arc::new(RealDisk),
        helpers: Arc::new(Helpers::manual()),
        budget: MemoryBudget::new(budget),
    }
}

fn open(
    environment: &Environment,
    dir: &Path,
    config: &StorageConfig,
) -> (PartitionLog, Recovered) {
    let notify: Notify = Arc::new(|| {});
    PartitionLog::open(
        environment,
        dir,
        PartitionId(3),
        config.clone(),
        notify,
        &mut |_| {},
    )
    .unwrap()
}

fn put(log: &mut PartitionLog, queue: QueueId, n: u64, len: usize) -> Sequence {
    let owner = Bytes::from(vec![n as u8; len]);
    let message = NewMessage {
        guid: guid(n),
        format: DataFormat(0),
        accepted_at_ms: n,
        data: &owner,
        owner: &owner,
    };
    log.put(queue, &message).unwrap()
}

fn turn(environment: &Environment, log: &mut PartitionLog, now_ms: u64) -> Progress {
    log.tick(now_ms);
    environment.helpers.run_until_idle();
    log.poll();
    log.tick(now_ms);
    environment.helpers.run_until_idle();
    log.poll()
}

#[test]
fn what_was_stored_is_there_after_a_restart_and_what_was_settled_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let config = StorageConfig {
        segment_bytes: 64 << 10,
        block_bytes: 8 << 10,
        ..StorageConfig::default()
    };
    let mut expected = Vec::new();
    for round in 0..4u64 {
        let environment = environment(64 << 10);
        let (mut log, recovered) = open(&environment, dir.path(), &config);
        assert_eq!(recovered.damage, []);
        let queue = match recovered.queues.first() {
            Some(q) => {
                let found: Vec<_> = q.live.iter().map(|m| (m.sequence, m.guid, m.len)).collect();
                assert_eq!(found, expected, "round {round}");
                assert_eq!(q.counters.live() as usize, expected.len());
                q.id
            }
            None => log.create_queue("bmq://a.b/c").unwrap().0,
        };
        for n in round * 1000..round * 1000 + 400 {
            let len = (n % 97 * 60) as usize;
            let sequence = put(&mut log, queue, n, len);
            expected.push((sequence, guid(n), len as u32));
            if n % 10 == 0 {
                turn(&environment, &mut log, n);
                for (sequence, _, _) in expected.extract_if(.., |e| e.0.0 % 3 == 0) {
                    log.settle(queue, sequence, Settled::Confirmed);
                }
            }
        }
        log.close();
        for _ in 0..3 {
            turn(&environment, &mut log, round * 1000 + 500);
        }
        let progress = log.poll();
        assert!(progress.closed && progress.fault.is_none(), "{progress:?}");
        for (sequence, g, len) in &expected {
            let mut tries = 0;
            let n = u64::from_le_bytes(g.0[..8].try_into().unwrap());
            loop {
                match log.fetch(queue, *sequence) {
                    Fetch::Ready(stored) => {
                        assert_eq!(stored.data(), vec![n as u8; *len as usize]);
                        break;
                    }
                    Fetch::Later if tries < 3 => tries += 1,
                    Fetch::Later => panic!("never read back"),
                    Fetch::Lost => panic!("lost {sequence} of round {round}"),
                }
                environment.helpers.run_until_idle();
                log.poll();
            }
            assert_eq!(log.duplicate(queue, g, n), Some(*sequence));
        }
    }
}

#[test]
fn a_second_process_and_a_newer_format_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let held = DataDir::open(&disk, dir.path(), 4, || NodeId(5)).unwrap();
    let second = DataDir::open(&disk, dir.path(), 4, || NodeId(6))
        .err()
        .unwrap();
    assert!(matches!(second, StorageError::InUse { .. }), "{second}");
    drop(held);
    let again = DataDir::open(&disk, dir.path(), 9, || NodeId(7)).unwrap();
    assert_eq!((again.node(), again.partitions()), (NodeId(5), 4));
    drop(again);
    let format = std::fs::read_to_string(dir.path().join("FORMAT")).unwrap();
    std::fs::write(
        dir.path().join("FORMAT"),
        format.replace("format 1", "format 2"),
    )
    .unwrap();
    let newer = DataDir::open(&disk, dir.path(), 4, || NodeId(6))
        .err()
        .unwrap();
    assert!(
        matches!(newer, StorageError::NewerFormat { found: 2, .. }),
        "{newer}"
    );
}
