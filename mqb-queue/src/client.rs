//! A queue as a dispatcher client of its own, for services that embed the engine without a broker around it.
//!
//! In the broker queues are members of their partition, which batches per connection; here each event is one operation.
//! Posts keep their order, everything runs on the queue's processor, and delivery happens once per turn.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use mqb_core::{DataFormat, Guid, Sequence, SubId};
use mqb_dispatcher::{Client, ClientCore, Cx, TimerId};

use crate::consumer::{Peer, SubscriptionParameters};
use crate::engine::{Budget, Delivery, Sink};
use crate::handles::{CloseScope, HandleError, OpenError, OpenRequest};
use crate::queue::{Accepted, PutError, Queue, QueueStats};
use crate::store::{MessageStore, NewMessage};

/// Called once with the outcome, on the queue's processor: it must only hand over.
pub type Reply<T> = Box<dyn FnOnce(T) + Send>;

/// What a queue that stands alone can receive.
pub enum QueueEvent {
    /// Store a message.
    Put {
        /// Unique per message.
        guid: Guid,
        /// Encoding of the data.
        format: DataFormat,
        /// The message.
        data: Bytes,
        /// Told when it is appended, which is not when it is durable.
        reply: Reply<Result<Accepted, PutError>>,
    },
    /// A consumer is done with a message.
    Confirm {
        /// Whose.
        peer: Peer,
        /// The stream.
        sub_id: SubId,
        /// The message.
        guid: Guid,
    },
    /// Open the queue.
    Open {
        /// By whom, for what.
        request: OpenRequest,
        /// The outcome.
        reply: Reply<Result<(), OpenError>>,
    },
    /// Replace the subscriptions of a stream.
    Configure {
        /// Whose.
        peer: Peer,
        /// The stream.
        sub_id: SubId,
        /// New subscriptions; none: deliver nothing more.
        subscriptions: Vec<SubscriptionParameters>,
        /// The outcome; pushes behind it are under the new subscriptions.
        reply: Reply<Result<(), HandleError>>,
    },
    /// Close what the peer has open.
    Close {
        /// Whose.
        peer: Peer,
        /// What.
        scope: CloseScope,
        /// The outcome.
        reply: Reply<Result<(), HandleError>>,
    },
    /// The peer is gone without a word: what it held has lost a delivery attempt.
    Lost {
        /// Whose.
        peer: Peer,
    },
    /// The queue in numbers.
    Stats {
        /// Told the numbers.
        reply: Reply<QueueStats>,
    },
    /// The store has read something back or has come further.
    Wake,
}

/// What a queue that stands alone needs beside the engine.
pub struct QueueClientConfig<S> {
    /// Holds the messages.
    pub store: S,
    /// Up to where the store's messages may be seen; asked once per turn.
    pub deliverable: fn(&S) -> Sequence,
    /// Wall clock, milliseconds since the Unix epoch.
    pub wall_clock: fn() -> u64,
}

/// A queue that stands alone. Owned by: its processor.
pub struct QueueClient<S, K> {
    core: ClientCore,
    queue: Queue,
    config: QueueClientConfig<S>,
    sink: K,
    timer: Option<TimerId>,
}

impl<S, K> fmt::Debug for QueueClient<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueClient")
            .field("queue", &self.queue.id())
            .finish_non_exhaustive()
    }
}

impl<S: MessageStore, K: Sink> QueueClient<S, K> {
    /// Deliveries of one turn.
    const BUDGET: Budget = Budget {
        messages: 1024,
        bytes: 4 << 20,
    };
    /// How often messages are looked at for their time to live.
    const EXPIRY_EVERY: Duration = Duration::from_millis(250);

    /// Makes a client of a queue; `sink` takes what it delivers, on its processor.
    pub fn new<E: Send + 'static>(
        core: ClientCore,
        cx: &mut Cx<'_, E>,
        queue: Queue,
        config: QueueClientConfig<S>,
        sink: K,
    ) -> Self {
        let timer = queue
            .settings()
            .ttl
            .map(|_| cx.schedule(Self::EXPIRY_EVERY));
        Self {
            core,
            queue,
            config,
            sink,
            timer,
        }
    }

    fn handle(&mut self, event: QueueEvent) {
        let store = &mut self.config.store;
        match event {
            QueueEvent::Put {
                guid,
                format,
                data,
                reply,
            } => {
                let accepted_at_ms = (self.config.wall_clock)();
                let message = NewMessage {
                    guid,
                    format,
                    accepted_at_ms,
                    data: &data,
                    owner: &data,
                };
                reply(self.queue.put(store, &message));
            }
            QueueEvent::Confirm { peer, sub_id, guid } => {
                self.queue.confirm(store, peer, sub_id, &guid);
            }
            QueueEvent::Open { request, reply } => reply(self.queue.open(&request)),
            QueueEvent::Configure {
                peer,
                sub_id,
                subscriptions,
                reply,
            } => {
                reply(self.queue.configure(peer, sub_id, &subscriptions));
            }
            QueueEvent::Close { peer, scope, reply } => reply(self.queue.close(store, peer, scope)),
            QueueEvent::Lost { peer } => {
                if let Err(error) = self.queue.drop_peer(store, peer, false) {
                    tracing::debug!(event = "queue.lost", ?peer, %error);
                }
            }
            QueueEvent::Stats { reply } => reply(self.queue.stats()),
            QueueEvent::Wake => {}
        }
    }
}

impl<E, S, K> Client<E> for QueueClient<S, K>
where
    E: Into<QueueEvent> + Send + 'static,
    S: MessageStore,
    K: Sink,
{
    fn core(&self) -> &ClientCore {
        &self.core
    }

    fn on_event(&mut self, _cx: &mut Cx<'_, E>, event: E) {
        self.handle(event.into());
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, E>, _timer: TimerId) {
        let swept = self
            .queue
            .expire((self.config.wall_clock)(), &mut self.config.store);
        let after = if swept.more {
            Duration::ZERO
        } else {
            Self::EXPIRY_EVERY
        };
        self.timer = Some(cx.schedule(after));
    }

    fn flush(&mut self, cx: &mut Cx<'_, E>) {
        self.queue
            .set_deliverable((self.config.deliverable)(&self.config.store));
        let mut budget = Self::BUDGET;
        if self
            .queue
            .deliver(&mut budget, &mut self.config.store, &mut self.sink)
            == Delivery::More
        {
            cx.link_flush();
        }
        for notice in self.queue.take_notices() {
            tracing::warn!(event = "queue.notice", queue = self.queue.id().0, ?notice);
        }
    }
}
