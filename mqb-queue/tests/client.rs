//! A queue on a dispatcher of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use bytes::Bytes;
use mqb_core::{DataFormat, Guid, QueueId, SessionId, SubId, SubscriptionId, WireQueueId};
use mqb_dispatcher::{ClientKind, Manual, Placement, ProcessorId};
use mqb_queue::{
    Accepted, MemoryStore, OpenRequest, Peer, Push, Queue, QueueClient, QueueClientConfig,
    QueueEvent, QueueSettings, Sink, SubscriptionParameters, Target,
};

static CLOCK: AtomicU64 = AtomicU64::new(5);

struct Out(Sender<(Peer, Guid, Bytes)>);

impl Sink for Out {
    fn push(&mut self, target: Target, push: Push<'_>) {
        let data = push.data.chunk.slice(push.data.range());
        self.0
            .send((target.peer, push.guid, data))
            .expect("the test listens");
    }
}

#[test]
fn a_queue_serves_from_a_processor_of_its_own_and_expires_by_its_timer() {
    let mut manual = Manual::<QueueEvent>::new(1).expect("an epoll");
    let (out, delivered) = channel();
    let settings = QueueSettings {
        ttl: Some(Duration::from_millis(1)),
        ..QueueSettings::default()
    };
    let at = Placement::Processor(ProcessorId(0), ClientKind::new(1, "queue"));
    let queue = manual.registrar().register(at, move |core, cx| {
        let config = QueueClientConfig {
            store: MemoryStore::new(),
            deliverable: MemoryStore::appended,
            wall_clock: || CLOCK.load(Ordering::Relaxed),
        };
        Box::new(QueueClient::new(
            core,
            cx,
            Queue::new(QueueId(1), settings),
            config,
            Out(out),
        ))
    });
    let peer = Peer {
        session: SessionId(1),
        queue: WireQueueId(0),
    };
    let request = OpenRequest {
        peer,
        token: 0,
        sub_id: SubId(0),
        read_count: 1,
        write_count: 1,
    };
    queue.post(QueueEvent::Open {
        request,
        reply: Box::new(|outcome| outcome.expect("no limit")),
    });
    let window = SubscriptionParameters {
        id: SubscriptionId(1),
        max_unconfirmed_messages: 10,
        max_unconfirmed_bytes: 1000,
        priority: 0,
        priority_count: 1,
    };
    let reply = Box::new(|outcome: Result<(), _>| outcome.expect("open"));
    queue.post(QueueEvent::Configure {
        peer,
        sub_id: SubId(0),
        subscriptions: vec![window],
        reply,
    });
    let data = Bytes::from_static(b"hello");
    let reply = Box::new(|outcome| assert!(matches!(outcome, Ok(Accepted::Stored(_)))));
    queue.post(QueueEvent::Put {
        guid: Guid([7; 16]),
        format: DataFormat(0),
        data: data.clone(),
        reply,
    });
    manual.run_until_idle(10);
    assert_eq!(delivered.try_recv(), Ok((peer, Guid([7; 16]), data)));
    queue.post(QueueEvent::Confirm {
        peer,
        sub_id: SubId(0),
        guid: Guid([7; 16]),
    });
    let reply = Box::new(|stats: mqb_queue::QueueStats| {
        assert_eq!((stats.messages, stats.counters.confirmed), (0, 1))
    });
    queue.post(QueueEvent::Stats { reply });
    manual.run_until_idle(10);

    // Delivered and never confirmed: its time runs out all the same.
    let reply = Box::new(|outcome: Result<_, _>| assert!(outcome.is_ok()));
    queue.post(QueueEvent::Put {
        guid: Guid([8; 16]),
        format: DataFormat(0),
        data: Bytes::new(),
        reply,
    });
    manual.run_until_idle(10);
    assert!(delivered.try_recv().is_ok());
    CLOCK.store(10, Ordering::Relaxed);
    manual.advance(Duration::from_secs(1), 100);
    let reply = Box::new(|stats: mqb_queue::QueueStats| {
        assert_eq!((stats.messages, stats.counters.expired), (0, 1))
    });
    queue.post(QueueEvent::Stats { reply });
    manual.run_until_idle(10);
}
