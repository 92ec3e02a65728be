//! Single promises of a work queue, one test each.

use std::time::Duration;

use bytes::Bytes;
use mqb_core::{Guid, QueueId, Sequence, SessionId, SubId, SubscriptionId, WireQueueId};
use mqb_queue::{
    Accepted, Budget, CloseScope, Counters, DataFormat, Delivery, Fetch, Fill, HandleError,
    MemoryStore, MessageStore, NewMessage, Notice, OpenError, OpenRequest, Peer, Push, PutError,
    Queue, QueueSettings, RestoredMessage, Settled, Sink, StoreError, SubscriptionParameters,
    Target,
};

const STREAM: SubId = SubId(0);

#[derive(Default)]
struct Out(Vec<(u64, u32, u128, bool)>);

impl Sink for Out {
    fn push(&mut self, target: Target, push: Push<'_>) {
        self.0.push((
            target.peer.session.0,
            target.subscription.0,
            u128::from_be_bytes(push.guid.0),
            push.out_of_order,
        ));
    }
}

struct Bench<S> {
    queue: Queue,
    store: S,
    last: u128,
}

fn bench(settings: QueueSettings) -> Bench<MemoryStore> {
    Bench {
        queue: Queue::new(QueueId(1), settings),
        store: MemoryStore::new(),
        last: 0,
    }
}

fn peer(session: u64) -> Peer {
    Peer {
        session: SessionId(session),
        queue: WireQueueId(0),
    }
}

fn guid(n: u128) -> Guid {
    Guid(n.to_be_bytes())
}

fn window(id: u32, messages: u64, priority: i32, weight: u32) -> SubscriptionParameters {
    SubscriptionParameters {
        id: SubscriptionId(id),
        max_unconfirmed_messages: messages,
        max_unconfirmed_bytes: u64::MAX,
        priority,
        priority_count: weight,
    }
}

impl<S: MessageStore> Bench<S> {
    fn put_len(&mut self, len: usize, at_ms: u64) -> Result<Accepted, PutError> {
        let data = Bytes::from(vec![1; len]);
        self.last += 1;
        let message = NewMessage {
            guid: guid(self.last),
            format: DataFormat(0),
            accepted_at_ms: at_ms,
            data: &data,
            owner: &data,
        };
        let outcome = self.queue.put(&mut self.store, &message);
        if let Ok(Accepted::Stored(sequence)) = outcome {
            self.queue.set_deliverable(sequence);
        }
        outcome
    }

    fn put(&mut self, count: usize) {
        for _ in 0..count {
            self.put_len(10, 0).expect("within the quota");
        }
    }

    fn reader(&mut self, session: u64, subscriptions: &[SubscriptionParameters]) {
        let request = OpenRequest {
            peer: peer(session),
            token: 0,
            sub_id: STREAM,
            read_count: 1,
            write_count: 0,
        };
        self.queue.open(&request).expect("no limit");
        self.queue
            .configure(peer(session), STREAM, subscriptions)
            .expect("open");
    }

    fn deliver(&mut self) -> Vec<(u64, u32, u128, bool)> {
        let mut out = Out::default();
        let mut budget = Budget {
            messages: 1_000_000,
            bytes: usize::MAX,
        };
        self.queue.deliver(&mut budget, &mut self.store, &mut out);
        out.0
    }

    fn delivered(&mut self) -> Vec<u128> {
        self.deliver()
            .into_iter()
            .map(|(_, _, guid, _)| guid)
            .collect()
    }

    fn confirm(&mut self, session: u64, n: u128) -> bool {
        self.queue
            .confirm(&mut self.store, peer(session), STREAM, &guid(n))
    }
}

#[test]
fn four_equal_consumers_get_a_quarter_each() {
    let mut bench = bench(QueueSettings::default());
    (1..=4).for_each(|session| bench.reader(session, &[window(1, 100_000, 0, 1)]));
    bench.put(10_000);
    let out = bench.deliver();
    for session in 1..=4 {
        assert_eq!(out.iter().filter(|push| push.0 == session).count(), 2500);
    }
    assert!(
        out.iter().map(|push| push.2).eq(1..=10_000),
        "in order over all"
    );
}

#[test]
fn a_slow_consumer_holds_its_window_and_no_more() {
    let mut bench = bench(QueueSettings::default());
    (1..=4).for_each(|session| bench.reader(session, &[window(1, 20, 0, 1)]));
    bench.put(5000);
    let mut got = [0; 5];
    loop {
        let out = bench.deliver();
        if out.is_empty() {
            break;
        }
        for (session, _, n, _) in out {
            got[session as usize] += 1;
            if session != 1 {
                assert!(bench.confirm(session, n));
            }
        }
    }
    assert_eq!(got[1], 20);
    assert_eq!(got[1..].iter().sum::<i32>(), 5000);
    let others = &got[2..];
    assert!(
        others.iter().max().expect("three") - others.iter().min().expect("three") <= 20,
        "fair among the rest: {others:?}"
    );
}

#[test]
fn the_priority_count_is_a_weight() {
    let mut bench = bench(QueueSettings::default());
    bench.reader(1, &[window(1, 100, 0, 3)]);
    bench.reader(2, &[window(1, 100, 0, 1)]);
    bench.put(8);
    let sessions: Vec<u64> = bench.deliver().iter().map(|push| push.0).collect();
    assert_eq!(sessions, [1, 1, 1, 2, 1, 1, 1, 2]);
}

#[test]
fn a_full_top_priority_does_not_spill_over() {
    let mut bench = bench(QueueSettings::default());
    bench.reader(1, &[window(1, 1, 5, 1)]);
    bench.reader(2, &[window(1, 100, 0, 1)]);
    bench.put(3);
    assert_eq!(bench.deliver(), [(1, 1, 1, false)]);
    // Once the top consumer leaves, the lower one gets everything, what came back first.
    bench
        .queue
        .close(&mut bench.store, peer(1), CloseScope::Queue)
        .expect("open");
    assert_eq!(
        bench.deliver(),
        [(2, 1, 1, true), (2, 1, 2, false), (2, 1, 3, false)]
    );
}

#[test]
fn a_window_of_zero_pauses_and_holds_nobody_up() {
    let mut bench = bench(QueueSettings::default());
    bench.reader(1, &[window(1, 0, 5, 1)]);
    bench.put(2);
    assert_eq!(bench.deliver(), []);
    bench.reader(2, &[window(1, 10, 0, 1)]);
    assert_eq!(bench.deliver(), [(2, 1, 1, false), (2, 1, 2, false)]);
}

#[test]
fn what_two_lost_consumers_held_comes_back_in_log_order() {
    let mut bench = bench(QueueSettings::default());
    bench.reader(1, &[window(1, 3, 0, 1)]);
    bench.reader(2, &[window(1, 3, 0, 1)]);
    bench.put(6);
    assert_eq!(bench.delivered(), [1, 2, 3, 4, 5, 6]);
    bench
        .queue
        .drop_peer(&mut bench.store, peer(1), false)
        .expect("open");
    bench
        .queue
        .drop_peer(&mut bench.store, peer(2), false)
        .expect("open");
    bench.reader(3, &[window(1, 10, 0, 1)]);
    bench.put(1);
    let out = bench.deliver();
    assert!(out.iter().map(|push| push.2).eq(1..=7));
    assert!(
        out.iter()
            .map(|push| push.3)
            .eq([true, true, true, true, true, true, false])
    );
}

#[test]
fn repeated_losses_with_a_window_of_one_do_not_rotate_messages() {
    let mut bench = bench(QueueSettings::default());
    bench.put(3);
    for session in 1..50 {
        bench.reader(session, &[window(1, 1, 0, 1)]);
        assert_eq!(bench.delivered(), [1], "always the oldest");
        bench
            .queue
            .drop_peer(&mut bench.store, peer(session), false)
            .expect("open");
    }
}

#[test]
fn attempts_count_losses_only_and_the_last_one_removes() {
    let mut bench = bench(QueueSettings {
        max_delivery_attempts: 3,
        ..QueueSettings::default()
    });
    bench.put(2);
    for session in 1..=20 {
        bench.reader(session, &[window(1, 1, 0, 1)]);
        assert_eq!(bench.delivered(), [1]);
        match session % 2 {
            0 => bench
                .queue
                .close(&mut bench.store, peer(session), CloseScope::Queue)
                .expect("open"),
            _ => bench
                .queue
                .drop_peer(&mut bench.store, peer(session), true)
                .expect("open"),
        }
    }
    for session in 21..=23 {
        bench.reader(session, &[window(1, 1, 0, 1)]);
        assert_eq!(bench.delivered(), [1]);
        assert_eq!(bench.queue.take_notices(), []);
        bench
            .queue
            .drop_peer(&mut bench.store, peer(session), false)
            .expect("open");
    }
    assert_eq!(
        bench.queue.take_notices(),
        [Notice::Removed {
            guid: guid(1),
            attempts: 3
        }]
    );
    assert_eq!(bench.queue.stats().counters.removed, 1);
    bench.reader(24, &[window(1, 1, 0, 1)]);
    assert_eq!(bench.delivered(), [2], "the next one is not to blame");
}

#[test]
fn deconfigured_consumers_keep_what_they_hold_and_may_confirm_it() {
    let mut bench = bench(QueueSettings::default());
    bench.reader(1, &[window(1, 2, 0, 1)]);
    bench.put(4);
    assert_eq!(bench.delivered(), [1, 2]);
    bench.queue.configure(peer(1), STREAM, &[]).expect("open");
    assert!(bench.confirm(1, 1));
    bench.reader(2, &[window(1, 10, 0, 1)]);
    assert_eq!(bench.delivered(), [3, 4], "2 stays with its consumer");
    // One of two is free: the window is not new with the new subscription id.
    bench
        .queue
        .configure(peer(1), STREAM, &[window(2, 2, 1, 1)])
        .expect("open");
    bench.put(2);
    assert_eq!(bench.deliver(), [(1, 2, 5, false)]);
}

#[test]
fn alternating_configurations_do_not_gain_windows() {
    let mut bench = bench(QueueSettings::default());
    bench.put(1000);
    bench.reader(1, &[]);
    let mut outstanding = 0;
    for round in 0..50 {
        let two = [window(2 * round, 5, 0, 1), window(2 * round + 1, 5, 0, 1)];
        bench
            .queue
            .configure(peer(1), STREAM, &two[..1 + round as usize % 2])
            .expect("open");
        outstanding += bench.deliver().len();
    }
    assert_eq!(outstanding, 10);
    assert_eq!(bench.queue.stats().outstanding, 10);
}

#[test]
fn two_subscriptions_of_one_consumer_have_windows_of_their_own() {
    let mut bench = bench(QueueSettings::default());
    bench.reader(1, &[window(1, 1, 0, 1), window(2, 2, 0, 1)]);
    bench.put(10);
    let subscriptions: Vec<u32> = bench.deliver().iter().map(|push| push.1).collect();
    assert_eq!(subscriptions, [1, 2, 2]);
}

#[test]
fn any_reader_may_confirm_and_only_readers() {
    let mut bench = bench(QueueSettings::default());
    bench.reader(1, &[window(1, 10, 0, 1)]);
    bench.put(2);
    bench.deliver();
    let writer = OpenRequest {
        peer: peer(2),
        token: 0,
        sub_id: STREAM,
        read_count: 0,
        write_count: 1,
    };
    bench.queue.open(&writer).expect("no limit");
    assert!(!bench.confirm(2, 1), "a writer confirms nothing");
    assert!(
        !bench.confirm(3, 1),
        "nor does one who has not opened the queue"
    );
    assert!(
        !bench
            .queue
            .confirm(&mut bench.store, peer(1), SubId(4), &guid(1)),
        "nor a stream that does not exist"
    );
    bench.reader(3, &[]);
    assert!(bench.confirm(3, 1), "another reader does");
    assert!(!bench.confirm(1, 1), "again is nothing");
    assert_eq!(bench.queue.stats().outstanding, 1);
}

#[test]
fn quotas_are_exact_and_name_what_is_full() {
    let mut bench = bench(QueueSettings {
        max_messages: 3,
        max_bytes: 100,
        ..QueueSettings::default()
    });
    assert_eq!(bench.put_len(101, 0), Err(PutError::LimitBytes));
    assert!(bench.put_len(100, 0).is_ok());
    assert_eq!(bench.put_len(1, 0), Err(PutError::LimitBytes));
    assert!(bench.put_len(0, 0).is_ok() && bench.put_len(0, 0).is_ok());
    assert_eq!(bench.put_len(0, 0), Err(PutError::LimitMessages));
    let stats = bench.queue.stats();
    assert_eq!(
        (stats.messages, stats.bytes, stats.fill),
        (3, 100, Fill::Full)
    );
    bench.queue.purge(bench.queue.purge_cut(), &mut bench.store);
    assert_eq!(
        bench.queue.take_notices(),
        [
            Notice::Fill(Fill::High),
            Notice::Fill(Fill::Full),
            Notice::Fill(Fill::Relaxed)
        ]
    );
}

#[test]
fn the_same_guid_is_stored_once_even_in_a_full_queue() {
    let mut bench = bench(QueueSettings {
        max_messages: 1,
        ..QueueSettings::default()
    });
    bench.put(1);
    bench.last = 0;
    assert_eq!(bench.put_len(10, 0), Ok(Accepted::Duplicate(Sequence(1))));
}

#[test]
fn limits_on_producers_and_consumers_are_exact() {
    let mut bench = bench(QueueSettings {
        max_producers: 1,
        max_consumers: 2,
        ..QueueSettings::default()
    });
    let request = |session, read_count, write_count| OpenRequest {
        peer: peer(session),
        token: 0,
        sub_id: STREAM,
        read_count,
        write_count,
    };
    bench
        .queue
        .open(&request(1, 2, 1))
        .expect("within the limits");
    assert_eq!(
        bench.queue.open(&request(2, 0, 1)),
        Err(OpenError::Producers { limit: 1 })
    );
    assert_eq!(
        bench.queue.open(&request(1, 1, 0)),
        Err(OpenError::Consumers { limit: 2 }),
        "its own further ones count"
    );
    assert!(
        !bench.queue.is_open(peer(2)),
        "a refused open leaves nothing"
    );
    let scope = CloseScope::Stream {
        sub_id: STREAM,
        read_count: 1,
        write_count: 1,
    };
    bench
        .queue
        .close(&mut bench.store, peer(1), scope)
        .expect("held");
    bench.queue.open(&request(2, 1, 1)).expect("room again");
}

#[test]
fn closing_what_is_not_there_is_refused_and_changes_nothing() {
    let mut bench = bench(QueueSettings::default());
    bench.reader(1, &[window(1, 10, 0, 1)]);
    let scope = |sub_id, read_count| CloseScope::Stream {
        sub_id: SubId(sub_id),
        read_count,
        write_count: 0,
    };
    assert_eq!(
        bench.queue.close(&mut bench.store, peer(1), scope(0, 2)),
        Err(HandleError::TooMany)
    );
    assert_eq!(
        bench.queue.close(&mut bench.store, peer(1), scope(3, 1)),
        Err(HandleError::UnknownStream)
    );
    assert_eq!(
        bench
            .queue
            .close(&mut bench.store, peer(2), CloseScope::Queue),
        Err(HandleError::UnknownQueue)
    );
    assert_eq!(
        bench.queue.configure(peer(2), STREAM, &[]),
        Err(HandleError::UnknownQueue)
    );
    bench
        .queue
        .close(&mut bench.store, peer(1), scope(0, 1))
        .expect("held");
    assert!(bench.queue.is_closed());
}

#[test]
fn expiry_needs_no_consumer_takes_delivered_ones_and_frees_the_window() {
    let mut bench = bench(QueueSettings {
        ttl: Some(Duration::from_secs(1)),
        ..QueueSettings::default()
    });
    bench.reader(1, &[window(1, 1, 0, 1)]);
    bench.put_len(1, 5000).expect("stored");
    bench.put_len(1, 5400).expect("stored");
    bench.put_len(1, 6500).expect("stored");
    assert_eq!(bench.delivered(), [1]);
    assert_eq!(bench.queue.expires_at_ms(), Some(6000));
    assert_eq!(bench.queue.expire(5999, &mut bench.store).messages, 0);
    assert_eq!(bench.queue.expire(6400, &mut bench.store).messages, 2);
    assert!(!bench.confirm(1, 1), "a late confirm is quietly nothing");
    assert_eq!(bench.delivered(), [3], "the window is free");
    assert_eq!(
        bench.queue.stats().counters,
        Counters {
            stored: 3,
            expired: 2,
            ..Counters::default()
        }
    );
}

#[test]
fn sweeping_is_bounded_and_says_so() {
    let mut bench = bench(QueueSettings::default());
    bench.put(Queue::SWEEP_STEP as usize + 10);
    let cut = bench.queue.purge_cut();
    bench.put(5);
    let first = bench.queue.purge(cut, &mut bench.store);
    assert!(
        first.more && first.messages == Queue::SWEEP_STEP && first.bytes == 10 * Queue::SWEEP_STEP
    );
    let second = bench.queue.purge(cut, &mut bench.store);
    assert!(!second.more && second.messages == 10);
    assert_eq!(
        bench.queue.stats().messages,
        5,
        "what came after the cut stays"
    );
}

#[test]
fn a_purge_takes_delivered_messages_and_they_never_return() {
    let mut bench = bench(QueueSettings::default());
    bench.reader(1, &[window(1, 10, 0, 1)]);
    bench.put(10);
    bench.deliver();
    bench.queue.purge(bench.queue.purge_cut(), &mut bench.store);
    bench
        .queue
        .drop_peer(&mut bench.store, peer(1), false)
        .expect("open");
    bench.reader(2, &[window(1, 10, 0, 1)]);
    assert_eq!(bench.deliver(), []);
    assert_eq!(
        bench.queue.stats().counters,
        Counters {
            stored: 10,
            purged: 10,
            ..Counters::default()
        }
    );
}

#[test]
fn nothing_is_seen_before_it_is_deliverable() {
    let mut bench = bench(QueueSettings::default());
    bench.reader(1, &[window(1, 10, 0, 1)]);
    let data = Bytes::from_static(b"x");
    for n in 1..=3 {
        let message = NewMessage {
            guid: guid(n),
            format: DataFormat(0),
            accepted_at_ms: 0,
            data: &data,
            owner: &data,
        };
        bench.queue.put(&mut bench.store, &message).expect("stored");
    }
    assert_eq!(bench.deliver(), []);
    bench.queue.set_deliverable(Sequence(2));
    bench.queue.set_deliverable(Sequence(1));
    assert_eq!(bench.delivered(), [1, 2]);
}

#[test]
fn a_paused_peer_gets_nothing_and_others_go_on() {
    let mut bench = bench(QueueSettings::default());
    bench.reader(1, &[window(1, 10, 0, 1)]);
    bench.reader(2, &[window(1, 10, 0, 1)]);
    bench.queue.set_paused(peer(1), true);
    bench.put(4);
    assert!(bench.deliver().iter().all(|push| push.0 == 2));
    // The pause outlives a re-configuration.
    bench
        .queue
        .configure(peer(1), STREAM, &[window(2, 10, 3, 1)])
        .expect("open");
    bench.put(1);
    assert_eq!(bench.deliver(), []);
    bench.queue.set_paused(peer(1), false);
    assert_eq!(bench.deliver(), [(1, 2, 5, false)]);
}

#[test]
fn restored_messages_are_in_order_and_not_flagged() {
    let mut queue = Queue::new(QueueId(1), QueueSettings::default());
    let mut store = MemoryStore::new();
    let data = Bytes::from_static(b"abc");
    for n in 1..=3 {
        let message = NewMessage {
            guid: guid(n),
            format: DataFormat(0),
            accepted_at_ms: 7,
            data: &data,
            owner: &data,
        };
        let sequence = store.put(QueueId(1), &message).expect("memory");
        queue.restore(RestoredMessage {
            sequence,
            guid: guid(n),
            format: DataFormat(0),
            len: 3,
            accepted_at_ms: 7,
        });
    }
    queue.restore_counters(Counters {
        stored: 90,
        confirmed: 60,
        expired: 20,
        purged: 7,
        removed: 0,
    });
    let mut bench = Bench {
        queue,
        store,
        last: 3,
    };
    bench.reader(1, &[window(1, 10, 0, 1)]);
    assert_eq!(
        bench.deliver(),
        [(1, 1, 1, false), (1, 1, 2, false), (1, 1, 3, false)]
    );
    assert_eq!(bench.queue.stats().counters.stored, 90);
}

/// Loses message 2, and has to read every message first.
struct Damaged {
    inner: MemoryStore,
    read: u64,
}

impl MessageStore for Damaged {
    fn put(&mut self, queue: QueueId, message: &NewMessage<'_>) -> Result<Sequence, StoreError> {
        self.inner.put(queue, message)
    }
    fn settle(&mut self, queue: QueueId, message: Sequence, why: Settled) {
        self.inner.settle(queue, message, why);
    }
    fn fetch(&mut self, queue: QueueId, message: Sequence) -> Fetch<'_> {
        if message.0 > self.read {
            Fetch::Later
        } else if message.0 == 2 {
            Fetch::Lost
        } else {
            self.inner.fetch(queue, message)
        }
    }
}

#[test]
fn reading_from_disk_keeps_the_order_and_damage_costs_one_message() {
    let store = Damaged {
        inner: MemoryStore::new(),
        read: 0,
    };
    let mut bench = Bench {
        queue: Queue::new(QueueId(1), QueueSettings::default()),
        store,
        last: 0,
    };
    bench.reader(1, &[window(1, 2, 0, 1)]);
    bench.put(4);
    let mut out = Out::default();
    let mut got = Vec::new();
    for read in 0..=4 {
        bench.store.read = read;
        let mut budget = Budget {
            messages: 100,
            bytes: 100,
        };
        let outcome = bench.queue.deliver(&mut budget, &mut bench.store, &mut out);
        got.push((outcome, out.0.len()));
    }
    use Delivery::{NoConsumer, Stalled};
    assert_eq!(
        got,
        [
            (Stalled, 0),
            (Stalled, 1),
            (Stalled, 1),
            (NoConsumer, 2),
            (NoConsumer, 2)
        ]
    );
    assert_eq!(bench.queue.stats().outstanding, 2);
    // The damaged one is still an operator's to purge, and counts until then.
    assert_eq!(bench.queue.purge(Sequence(2), &mut bench.store).messages, 2);
    assert_eq!(bench.queue.stats().messages, 2);
}
