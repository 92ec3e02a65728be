//! The log on a real directory.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use mqb_core::log::{EntryKind, Index, Term};
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

#[test]
fn a_tail_above_the_commit_is_superseded_here_and_after_a_restart() {
    // Small segments, so that what is superseded stands in several.
    let config = StorageConfig {
        segment_bytes: 1 << 10,
        ..StorageConfig::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let environment = environment(1 << 20);
    let (mut log, _) = open(&environment, dir.path(), &config);
    let (queue, _) = log.create_queue("bmq://a.b/c").unwrap();
    log.flush();
    turn(&environment, &mut log, 200);
    let append = |log: &mut PartitionLog, term: u64, index: u64, n: u64| {
        let owner = Bytes::from(vec![n as u8; 200]);
        let message = NewMessage {
            guid: guid(n),
            format: DataFormat(0),
            accepted_at_ms: n,
            data: &owner,
            owner: &owner,
        };
        let mut builder = BlockBuilder::new(0);
        builder.put(queue, n, &message);
        let replica = log.replicated();
        let block = replica.seal((Term(term), Index(index)), EntryKind::Normal, builder);
        replica.append(block);
    };
    for index in 2..=12 {
        append(&mut log, 5, index, index);
    }
    log.flush();
    while environment.helpers.step(Duty::Write) || environment.helpers.step(Duty::Tend) {}
    assert_eq!(log.replicated().watermarks().unwrap().written, Index(12));
    for index in 4..=6 {
        append(&mut log, 6, index, 100 + index);
    }
    assert_eq!(log.replicated().bounds().last, Index(6));
    log.want_sync();
    log.flush();
    environment.helpers.run_until_idle();
    let marks = log.replicated().watermarks().unwrap();
    assert_eq!((marks.written, marks.synced), (Index(6), Index(6)));
    for _ in 0..3 {
        let check = |log: &mut PartitionLog| {
            let replica = log.replicated();
            let terms: Vec<_> = (2..=7).map(|i| replica.term_of(Index(i))).collect();
            assert_eq!(
                terms,
                [5, 5, 6, 6, 6]
                    .map(|t| Some(Term(t)))
                    .into_iter()
                    .chain([None])
                    .collect::<Vec<_>>()
            );
            for _ in 0..2 {
                if let Read::Ready(blocks) = log.replicated().read(Index(4)..Index(7), 1 << 20) {
                    let found: Vec<_> = blocks
                        .iter()
                        .map(|b| (b.header().index.0, b.header().term.0))
                        .collect();
                    return assert!(
                        [(4, 6), (5, 6), (6, 6)].starts_with(&found) && !found.is_empty()
                    );
                }
                environment.helpers.run_until_idle();
                log.poll();
            }
            panic!("not read");
        };
        check(&mut log);
        drop(log);
        let recovered;
        (log, recovered) = open(&environment, dir.path(), &config);
        assert_eq!(recovered.damage, []);
        let live: Vec<_> = recovered.queues[0].live.iter().map(|m| m.guid).collect();
        assert_eq!(live, [2, 3, 104, 105, 106].map(guid));
    }
}
