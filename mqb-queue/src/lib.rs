//! Queue engines: delivery rules, consumers, windows, redelivery. No sockets, files or cluster.
//!
//! A [`Queue`] is a plain state machine. Its owner feeds it messages, confirms, opens and closes, tells it up to where
//! messages may be seen, and calls [`Queue::deliver`]; bytes live in a [`MessageStore`]. [`QueueClient`] makes a dispatcher
//! client of it.
//!
//! ```
//! use bytes::Bytes;
//! use mqb_core::{Guid, QueueId, SessionId, SubId, SubscriptionId, WireQueueId};
//! use mqb_queue::{Budget, DataFormat, Delivery, MemoryStore, NewMessage, OpenRequest, Peer, Push, Queue, QueueSettings,
//!     Sink, SubscriptionParameters, Target};
//!
//! struct Print(Vec<(Peer, Guid)>);
//! impl Sink for Print {
//!     fn push(&mut self, target: Target, push: Push<'_>) {
//!         assert_eq!(push.data.data(), b"hello");
//!         self.0.push((target.peer, push.guid));
//!     }
//! }
//!
//! let (mut store, mut out) = (MemoryStore::new(), Print(Vec::new()));
//! let mut queue = Queue::new(QueueId(1), QueueSettings::default());
//!
//! let peer = Peer { session: SessionId(1), queue: WireQueueId(0) };
//! queue.open(&OpenRequest { peer, token: 0, sub_id: SubId(0), read_count: 1, write_count: 1 })?;
//! let window = SubscriptionParameters { id: SubscriptionId(7), max_unconfirmed_messages: 100,
//!     max_unconfirmed_bytes: 1 << 20, priority: 0, priority_count: 1 };
//! queue.configure(peer, SubId(0), &[window])?;
//!
//! let data = Bytes::from_static(b"hello");
//! let guid = Guid([1; 16]);
//! queue.put(&mut store, &NewMessage { guid, format: DataFormat(0), accepted_at_ms: 0, data: &data, owner: &data })?;
//! queue.set_deliverable(store.appended());
//! let mut budget = Budget { messages: 100, bytes: 1 << 20 };
//! assert_eq!(queue.deliver(&mut budget, &mut store, &mut out), Delivery::Drained);
//! assert_eq!(out.0, [(peer, guid)]);
//! assert!(queue.confirm(&mut store, peer, SubId(0), &guid));
//! assert_eq!(queue.stats().messages, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod client;
mod consumer;
mod engine;
mod handles;
mod memory;
mod message;
mod queue;
mod rotation;
mod settings;
mod store;

pub use client::{QueueClient, QueueClientConfig, QueueEvent, Reply};
pub use consumer::{Peer, SubscriptionParameters, Target};
pub use engine::{Budget, Delivery, Push, Sink};
pub use handles::{CloseScope, HandleError, OpenError, OpenRequest};
pub use memory::MemoryStore;
pub use queue::{
    Accepted, Counters, Fill, MessageView, Notice, PutError, Queue, QueueStats, RestoredMessage,
    Swept,
};
pub use settings::QueueSettings;
pub use store::{DataFormat, Fetch, MessageStore, NewMessage, Settled, StoreError, Stored};
