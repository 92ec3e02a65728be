//! What a partition promises its sessions.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::world::{Told, World, config, domain};
use crate::event::{AckStatus, Event, QueryRequest};
use crate::storage::Duty;

const SYNC: &str = "bmq://sync/q";
const FLUSH: &str = "bmq://flush/q";
const MEMORY: &str = "bmq://memory/q";

fn acks(numbers: impl IntoIterator<Item = u128>, status: AckStatus) -> Vec<Told> {
    numbers.into_iter().map(|n| Told::Ack(n, status)).collect()
}

fn pushes(told: &[Told]) -> Vec<u128> {
    let number = |told: &Told| {
        if let Told::Push { n, .. } = told {
            Some(*n)
        } else {
            None
        }
    };
    told.iter().filter_map(number).collect()
}

#[test]
fn a_sync_queue_is_answered_acknowledged_and_seen_after_the_sync_only() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(&dir, config());
    let mut peer = world.peer(None);
    let call = world.open_counts(&peer, SYNC, 1, 1);
    world.help(Duty::Tend);
    world.help(Duty::Write);
    assert_eq!(
        peer.told(),
        [],
        "the queue is in the file, not on the medium"
    );
    world.help(Duty::Sync);
    assert_eq!(peer.told(), [Told::Opened(call, Ok(()))]);
    world.configure(&peer, Some((1, 10)));
    peer.told();

    world.put(&mut peer, &[1, 2]);
    assert_eq!(peer.told(), []);
    world.help(Duty::Write);
    assert_eq!(peer.told(), []);
    assert_eq!(
        peer.released(),
        0,
        "what is not safe yet weighs on the connection"
    );
    world.help(Duty::Sync);
    let told = peer.told();
    assert_eq!(told[..2], acks([1, 2], AckStatus::Success));
    assert_eq!(pushes(&told), [1, 2]);
    assert_eq!(peer.released(), peer.charged);
}

#[test]
fn a_flush_queue_needs_the_file_and_a_memory_queue_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(&dir, config());
    let mut peer = world.peer(None);
    world.consume(&peer, FLUSH, 10);
    world.put(&mut peer, &[1]);
    assert_eq!(peer.told(), []);
    world.help(Duty::Write);
    let told = peer.told();
    assert_eq!(
        (&told[..1], pushes(&told)),
        (&acks([1], AckStatus::Success)[..], vec![1])
    );

    let mut other = world.peer(None);
    world.open_counts(&other, MEMORY, 1, 1);
    assert!(matches!(other.told()[..], [Told::Opened(_, Ok(()))]));
    world.configure(&other, Some((1, 10)));
    other.told();
    world.put(&mut other, &[2]);
    let told = other.told();
    assert_eq!(
        (&told[..1], pushes(&told)),
        (&acks([2], AckStatus::Success)[..], vec![2])
    );
    world.confirm(&other, &[2]);
    world.put(&mut other, &[2]);
    assert_eq!(
        other.told(),
        acks([2], AckStatus::Success),
        "sent again after its confirm: not stored twice"
    );
    assert_eq!(world.report(MEMORY).stored, 1);
}

#[test]
fn one_ack_per_put_and_connection_at_the_level_of_the_original() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(&dir, config());
    let (mut one, mut two) = (world.peer(None), world.peer(None));
    world.open(&one, SYNC);
    world.open(&two, SYNC);
    world.put(&mut one, &[1, 1]);
    world.put(&mut one, &[1]);
    world.put(&mut two, &[1]);
    world.help(Duty::Write);
    assert_eq!(
        (one.told(), two.told()),
        (vec![], vec![]),
        "the original is not safe yet"
    );
    world.settle();
    assert_eq!(one.told(), acks([1], AckStatus::Success));
    assert_eq!(two.told(), acks([1], AckStatus::Success));
    assert_eq!((one.released(), two.released()), (one.charged, two.charged));
    assert_eq!(world.report(SYNC).stored, 1);
    world.put(&mut two, &[1]);
    assert_eq!(
        two.told(),
        acks([1], AckStatus::Success),
        "safe already: at once"
    );
}

#[test]
fn the_answer_to_a_configure_stands_between_old_and_new_pushes() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(&dir, config());
    let mut peer = world.peer(None);
    world.consume(&peer, MEMORY, 1000);
    // All in one turn: put, configure, put.
    let before = peer.queue();
    for n in 1..=3u128 {
        world.put(&mut peer, &[n]);
    }
    let call = world.configure(&peer, Some((2, 1000)));
    world.put(&mut peer, &[4]);
    let told = peer.told();
    let at = told
        .iter()
        .position(|told| *told == Told::Configured(call, Ok(())))
        .unwrap();
    let subscription = |told: &Told| {
        if let Told::Push { subscription, .. } = told {
            Some(*subscription)
        } else {
            None
        }
    };
    assert!(told[..at].iter().filter_map(subscription).all(|id| id == 1));
    assert!(told[at..].iter().filter_map(subscription).all(|id| id == 2));
    assert_eq!(pushes(&told), [1, 2, 3, 4]);
    // None after the answer to an empty one.
    world.configure(&peer, None);
    world.put(&mut peer, &[5]);
    assert_eq!(pushes(&peer.told()), []);
    assert_eq!(before, peer.queue());
}

#[test]
fn a_close_is_answered_behind_its_acks_and_when_its_confirms_are_safe() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(&dir, config());
    let mut peer = world.peer(None);
    world.consume(&peer, SYNC, 10);
    world.put(&mut peer, &[1]);
    world.settle();
    peer.told();
    world.confirm(&peer, &[1]);
    world.put(&mut peer, &[2, 3]);
    let call = world.close(&peer);
    world.help(Duty::Write);
    assert_eq!(
        peer.told(),
        [],
        "confirms are in the file, not on the medium"
    );
    world.settle();
    let told = peer.told();
    assert_eq!(told[..2], acks([2, 3], AckStatus::Success));
    assert_eq!(told[2..], [Told::Closed(call, Ok(()))]);

    let mut world = world.restart(&dir);
    let peer = world.peer(None);
    world.consume(&peer, SYNC, 10);
    world.settle();
    assert_eq!(
        pushes(&peer.told()),
        [2, 3],
        "what was confirmed before the answer does not come back"
    );
    assert_eq!(world.report(SYNC).stored, 3);
    assert_eq!(world.report(SYNC).confirmed, 1);
}

#[test]
fn a_lost_connection_gives_back_what_it_held_and_is_forgotten_when_all_is_safe() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(&dir, config());
    let (mut one, two) = (world.peer(None), world.peer(None));
    world.consume(&one, SYNC, 2);
    world.put(&mut one, &[1, 2, 3]);
    world.settle();
    assert_eq!(pushes(&one.told()), [1, 2]);
    world.consume(&two, SYNC, 10);
    assert_eq!(pushes(&two.told()), [3]);
    world.put(&mut one, &[4]);
    world.end(&one, false);
    assert_eq!(pushes(&two.told()), [1, 2], "at once, in order");
    assert_eq!(one.told(), [], "its PUT is not safe yet");
    world.settle();
    assert_eq!(one.told(), [Told::Ack(4, AckStatus::Success), Told::Gone]);
    assert_eq!(pushes(&two.told()), [4]);
    world.end(&two, true);
    world.settle();
    let crate::event::QueryAnswer::Partitions(reports) = world.ask(QueryRequest::Partitions) else {
        panic!()
    };
    assert_eq!(
        reports
            .iter()
            .map(|report| (report.sessions, report.pending_acks))
            .collect::<Vec<_>>(),
        [(0, 0), (0, 0)]
    );
}

#[test]
fn a_connection_that_is_paused_gets_nothing_until_it_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(&dir, config());
    let mut peer = world.peer(None);
    world.consume(&peer, MEMORY, 10);
    let partition = peer.partitions().remove(0);
    partition.post(Event::Paused {
        session: peer.session,
    });
    world.put(&mut peer, &[1]);
    assert_eq!(pushes(&peer.told()), []);
    partition.post(Event::Resumed {
        session: peer.session,
    });
    world.run();
    assert_eq!(pushes(&peer.told()), [1]);
}

#[test]
fn a_failed_sync_is_final_and_nobody_is_told_it_succeeded() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(&dir, config());
    let (mut peer, other) = (world.peer(None), world.peer(None));
    world.consume(&peer, SYNC, 10);
    world.put(&mut peer, &[1]);
    world.settle();
    peer.told();
    world.faults.sync.store(true, Ordering::Relaxed);
    world.put(&mut peer, &[2]);
    let call = world.open_counts(&other, SYNC, 1, 0);
    assert_eq!(
        other.told(),
        [Told::Opened(call, Ok(()))],
        "the queue was made before"
    );
    let close = world.close(&other);
    world.settle();
    assert_eq!(peer.told(), acks([2], AckStatus::StorageFailure));
    assert!(matches!(&other.told()[..], [Told::Closed(call, Err(_))] if *call == close));
    assert_eq!(peer.released(), peer.charged);
    // The disk works again: too late for this partition.
    world.faults.sync.store(false, Ordering::Relaxed);
    world.put(&mut peer, &[3]);
    world.settle();
    assert_eq!(peer.told(), acks([3], AckStatus::StorageFailure));
    // What is there can still be read, and a session can end.
    world.end(&peer, false);
    let reader = world.peer(None);
    world.consume(&reader, SYNC, 10);
    assert_eq!(pushes(&reader.told()), [1]);
    assert_eq!(peer.told(), [Told::Gone]);
    let crate::event::QueryAnswer::Partitions(reports) = world.ask(QueryRequest::Partitions) else {
        panic!()
    };
    assert_eq!(reports.iter().filter(|report| report.is_failed).count(), 1);
}

#[test]
fn a_full_disk_refuses_messages_takes_confirms_and_recovers_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(&dir, config());
    let mut peer = world.peer(None);
    world.consume(&peer, FLUSH, 1_000_000);
    world.faults.full.store(true, Ordering::Relaxed);
    let (mut stored, mut n) = (Vec::new(), 0);
    while stored.len() == n {
        n += 1;
        world.put_batch(&mut peer, &[n as u128], 4000);
        world.pass(Duration::from_millis(50));
        stored.extend(
            peer.told()
                .into_iter()
                .filter(|told| matches!(told, Told::Ack(_, AckStatus::Success))),
        );
        assert!(n < 10_000, "the disk has room for ever");
    }
    assert_eq!(world.report(FLUSH).messages, stored.len() as u64);
    let crate::event::QueryAnswer::Partitions(reports) = world.ask(QueryRequest::Partitions) else {
        panic!()
    };
    assert!(reports.iter().any(|report| report.is_full));
    let all: Vec<u128> = (1..n as u128).collect();
    world.confirm(&peer, &all);
    assert_eq!(world.report(FLUSH).messages, 0, "settling is never refused");
    world.faults.full.store(false, Ordering::Relaxed);
    world.pass(Duration::from_secs(2));
    peer.told();
    world.put(&mut peer, &[100_000]);
    world.settle();
    assert_eq!(peer.told()[0], Told::Ack(100_000, AckStatus::Success));
}

#[test]
fn a_message_sent_again_after_a_crash_is_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(&dir, config());
    let mut peer = world.peer(None);
    world.consume(&peer, SYNC, 1);
    world.put(&mut peer, &[1, 2]);
    world.settle();
    world.confirm(&peer, &[1]);
    world.settle();
    let mut world = world.restart(&dir);
    let mut peer = world.peer(None);
    world.consume(&peer, SYNC, 10);
    world.settle();
    let told = peer.told();
    assert_eq!(
        told,
        [Told::Push {
            n: 2,
            subscription: 1,
            out_of_order: false,
            len: 100
        }]
    );
    world.put(&mut peer, &[1, 2]);
    assert_eq!(peer.told(), acks([1, 2], AckStatus::Success));
    let report = world.report(SYNC);
    assert_eq!((report.stored, report.messages), (2, 1));
}

#[test]
fn quotas_refuse_with_their_own_status_and_free_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut small = config();
    small.domains.push(domain("small", |config| {
        config.max_messages = 2;
        config.max_bytes = mqb_core::config::Size::new(250);
    }));
    let mut world = World::new(&dir, small);
    let mut peer = world.peer(None);
    world.consume(&peer, "bmq://small/q", 10);
    world.put(&mut peer, &[1]);
    world.put_batch(&mut peer, &[2], 151);
    world.put(&mut peer, &[3]);
    world.put(&mut peer, &[4]);
    world.settle();
    let told = peer.told();
    let status = |n| {
        told.iter().find_map(|told| {
            if let Told::Ack(m, status) = told {
                (*m == n).then_some(*status)
            } else {
                None
            }
        })
    };
    assert_eq!(
        [1, 2, 3, 4].map(status).map(Option::unwrap),
        [
            AckStatus::Success,
            AckStatus::LimitBytes,
            AckStatus::Success,
            AckStatus::LimitMessages
        ]
    );
    world.confirm(&peer, &[1]);
    world.put(&mut peer, &[4]);
    world.settle();
    assert_eq!(peer.told()[0], Told::Ack(4, AckStatus::Success));
    let report = world.report("bmq://small/q");
    assert_eq!((report.puts, report.nacks, report.stored), (5, 2, 3));
}

#[test]
fn messages_expire_without_consumers_and_the_counters_follow() {
    let dir = tempfile::tempdir().unwrap();
    let mut short = config();
    short.domains.push(domain("short", |config| {
        config.ttl = Duration::from_secs(2)
    }));
    let mut world = World::new(&dir, short);
    let mut peer = world.peer(None);
    world.open(&peer, "bmq://short/q");
    let numbers: Vec<u128> = (1..=10_000).collect();
    world.put_batch(&mut peer, &numbers, 0);
    world.pass(Duration::from_millis(1500));
    assert_eq!(world.report("bmq://short/q").messages, 10_000);
    world.pass(Duration::from_millis(1000));
    let report = world.report("bmq://short/q");
    assert_eq!(
        (report.messages, report.expired, report.stored),
        (0, 10_000, 10_000)
    );
    let mut world = world.restart(&dir);
    assert_eq!(world.report("bmq://short/q").expired, 10_000);
}

#[test]
fn a_queue_larger_than_memory_is_read_back_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(&dir, config());
    let mut peer = world.peer(None);
    world.open(&peer, FLUSH);
    for n in 1..=400 {
        world.put_batch(&mut peer, &[n], 3000);
        world.pass(Duration::from_millis(50));
    }
    peer.told();
    let reader = world.peer(None);
    world.consume(&reader, FLUSH, 1_000_000);
    world.settle();
    let told = reader.told();
    assert!(pushes(&told).into_iter().eq(1..=400), "{:?}", pushes(&told));
}

#[test]
fn a_stop_waits_until_everything_is_safe() {
    for is_quiet in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut world = World::new(&dir, config());
        let mut peer = world.peer(None);
        world.open(&peer, FLUSH);
        world.put(&mut peer, &[1, 2, 3]);
        world.help(Duty::Write);
        assert_eq!(peer.told(), acks([1, 2, 3], AckStatus::Success));
        world.end(&peer, true);
        if is_quiet {
            world.pass(Duration::from_secs(2));
        }
        // The helpers stand still: what is not synced now will not be.
        let left = world.manual.stop(10_000);
        assert_eq!(left == 0, is_quiet, "{left} clients did not go");
    }
}
