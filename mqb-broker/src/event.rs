//! The one event type of the broker: everything that travels between its dispatcher clients.
//!
//! Who sends what to whom:
//!
//! ```text
//! listener  -> session    Drain
//! session   -> registry   SessionUp, Open, SessionDown             registry -> session    Superseded, Opened (refusals)
//! registry  -> partition  Place
//! session   -> queue      Puts, Confirms, Configure, Close         partition -> session   Opened, Acks, Pushes, Configured, Closed
//! session   -> partition  Paused, Resumed, SessionEnded            partition -> session   SessionGone
//! anyone    -> registry, partition  Query
//! ```
//!
//! Order is FIFO per sender and receiver, and the rules of the protocol lean on it: a partition's `Configured` follows the
//! last push made under the old subscriptions and precedes the first one under the new; `Closed` follows the last ACK of
//! that queue. Batches are boxed: one allocation per batch, none per message.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use mqb_core::control::{Category, Status};
pub use mqb_core::wire::AckStatus;
use mqb_core::{DataFormat, Guid, PartitionId, SessionId, SubId, SubscriptionId, WireQueueId};
use mqb_dispatcher::{ClientKind, Handle};
pub use mqb_queue::{CloseScope, SubscriptionParameters};

use crate::domain::Domain;
use crate::storage::StorageStats;

/// Sessions: one per connection.
pub const SESSION: ClientKind = ClientKind::new(0, "session");
/// Queues: members of their partition.
pub const QUEUE: ClientKind = ClientKind::new(1, "queue");
/// Partitions: one log each.
pub const PARTITION: ClientKind = ClientKind::new(2, "partition");
/// The registry and the listener.
pub const CLUSTER: ClientKind = ClientKind::new(3, "cluster");

/// What a dispatcher client of the broker can receive.
pub enum Event {
    /// A negotiated connection announces itself. Session to registry, before anything else it sends there.
    SessionUp(Box<SessionUp>),
    /// The connection is over and its partitions were told. Session to registry.
    SessionDown {
        /// The connection.
        session: SessionId,
    },
    /// A newer connection of the same peer has come: this one is to end as lost. Registry to session.
    Superseded {
        /// The newer connection.
        by: SessionId,
    },
    /// Open a queue, or one more stream of it. Session to registry.
    Open(Box<OpenCall>),
    /// The same, its domain resolved and its partition chosen. Registry to partition.
    Place(Box<PlacedOpen>),
    /// Answer to `Open`. Partition (when the queue is durable) or registry (refused) to session.
    Opened(Box<Opened>),

    /// Messages to store. Session to queue.
    Puts(Box<PutBatch>),
    /// Messages done with. Session to queue.
    Confirms(Box<ConfirmBatch>),
    /// New subscriptions of a stream. Session to queue.
    Configure(Box<ConfigureCall>),
    /// End of a stream or of all streams of a queue. Session to queue.
    Close(Box<CloseCall>),

    /// Outcomes of PUTs and in-flight budget given back. Partition to session.
    Acks(Box<AckBatch>),
    /// Messages for the peer. Partition to session.
    Pushes(Box<PushBatch>),
    /// Answer to `Configure`: pushes behind it carry the new subscriptions. Partition to session.
    Configured(Box<Configured>),
    /// Answer to `Close`: nothing about the closed streams follows. Partition to session.
    Closed(Box<Closed>),

    /// The peer reads too slowly: push nothing to it for now. Session to partition.
    Paused {
        /// The connection.
        session: SessionId,
    },
    /// The peer caught up. Session to partition.
    Resumed {
        /// The connection.
        session: SessionId,
    },
    /// The connection is over; forget its handles and redeliver what it holds. Sent once, when no `Open` is pending any more.
    /// Session to partition.
    SessionEnded {
        /// The connection.
        session: SessionId,
        /// The peer said goodbye (`disconnect`), as opposed to a lost connection, which costs its messages a delivery attempt.
        graceful: bool,
    },
    /// Answer to `SessionEnded`: its confirms reached their level and nothing more follows. Partition to session.
    SessionGone {
        /// Who answers.
        partition: PartitionId,
    },

    /// A partition failed and is gone: whoever used it has to begin anew. Panic hook to registry, registry to sessions.
    PartitionLost {
        /// As in [`OpenedQueue::partition`].
        partition: Handle<Event>,
    },

    /// A question from an operator, answered through the callback it carries. To registry or partition.
    Query(Box<Query>),
    /// An answer on its way back to the admin session that asked.
    Answer(Box<Answer>),
    /// Something that a helper thread or another client had done is there; look at your own sources. Coalesced by the sender.
    Wake,
    /// Stop taking work: finish what was accepted, flush, end. To the listener, and from it to each session.
    Drain,
}

const _: () = assert!(size_of::<Event>() <= 64);

/// A peer's negotiated identity.
pub struct SessionUp {
    /// The connection.
    pub session: SessionId,
    /// Where to send `Superseded`.
    pub handle: Handle<Event>,
    /// Equal for two connections exactly if the second is a reconnect of the first; `None` if the peer did not identify
    /// itself well enough to tell.
    pub identity: Option<String>,
    /// For people: process, pid, host.
    pub description: Arc<str>,
}

/// Opening a stream of a queue.
pub struct OpenCall {
    /// The connection.
    pub session: SessionId,
    /// Where the answer goes.
    pub reply: Handle<Event>,
    /// For people: process, pid, host.
    pub description: Arc<str>,
    /// Given back in [`Opened`].
    pub call: u64,
    /// Canonical URI, without query; syntax is valid.
    pub uri: String,
    /// The peer's number for the queue.
    pub queue: WireQueueId,
    /// The stream: 0 unless an app id was given.
    pub sub_id: SubId,
    /// `None`: the default stream.
    pub app_id: Option<String>,
    /// Readers that this adds; at least 0.
    pub read_count: u32,
    /// Writers that this adds; at least 0.
    pub write_count: u32,
}

/// An open on its way to the partition that holds the queue or is to make it.
pub struct PlacedOpen {
    /// As the session sent it.
    pub open: OpenCall,
    /// What the queue's domain promises.
    pub domain: Arc<Domain>,
}

/// Answer to [`OpenCall`].
pub struct Opened {
    /// From the call.
    pub call: u64,
    /// Where the queue is, or why not.
    pub result: Result<OpenedQueue, Refusal>,
}

/// Where an opened queue lives and what its domain promises.
pub struct OpenedQueue {
    /// The queue: receives `Puts`, `Confirms`, `Configure` and `Close`.
    pub queue: Handle<Event>,
    /// Its partition: receives `Paused`, `Resumed` and `SessionEnded`.
    pub partition: Handle<Event>,
    /// `routingConfiguration.flags` of the openQueueResponse.
    pub routing_flags: u64,
    /// `deduplicationTimeMs` of the openQueueResponse.
    pub deduplication_ms: i32,
}

/// Why a request was refused; becomes a `status` to the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Never success; never `E_CANCELED` for an open or its configure step, since the official SDK then hangs.
    pub category: Category,
    /// Detail for people, as the reference broker uses it.
    pub code: i32,
    /// Text for people.
    pub message: String,
}

impl Refusal {
    /// A refusal with code 0.
    pub fn new(category: Category, message: impl Into<String>) -> Self {
        Self {
            category,
            code: 0,
            message: message.into(),
        }
    }

    /// The same with another code.
    pub fn with_code(mut self, code: i32) -> Self {
        self.code = code;
        self
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        Status {
            category: refusal.category,
            code: refusal.code,
            message: refusal.message,
        }
    }
}

/// PUTs of one connection for one queue, in the order of arrival.
pub struct PutBatch {
    /// The connection.
    pub session: SessionId,
    /// The peer's number for the queue, given back in [`AckItem`].
    pub queue: WireQueueId,
    /// Memory that the items' data lies in; other batches may share it.
    pub frames: Bytes,
    /// The messages.
    pub puts: Vec<PutItem>,
}

impl PutBatch {
    /// What the batch takes of its session's in-flight budget; to be given back in [`AckBatch::released_bytes`], in one or
    /// several parts. **Units**: bytes. **Cost**: linear in the number of messages.
    pub fn charge(&self) -> usize {
        self.puts.iter().map(PutItem::charge).sum()
    }
}

/// One validated message: CRC right, properties well-formed, compression decodable, GUID set, size within the limit.
#[derive(Clone, Debug)]
pub struct PutItem {
    /// From the producer, or made for it.
    pub guid: Guid,
    /// 24 bits, to be returned in the ACK; 0 for producers that make their own GUIDs.
    pub correlation: u32,
    /// Whether a success is to be acknowledged. A failure always is.
    pub ack: bool,
    /// Encoding of the data.
    pub format: DataFormat,
    /// Application data, without padding, within [`PutBatch::frames`].
    pub data: Range<u32>,
}

impl PutItem {
    /// What one message costs beyond its data: memory for its record, its pending ACK and its place in the duplicate
    /// window, and the time of its queue. Bounds the number of tiny messages that one connection can have queued ahead of
    /// everybody else's.
    const OVERHEAD_BYTES: usize = 1024;

    /// What this message takes of its session's in-flight budget. **Units**: bytes.
    #[inline]
    pub fn charge(&self) -> usize {
        (self.data.end - self.data.start) as usize + Self::OVERHEAD_BYTES
    }
}

/// Confirms of one connection for one queue, in the order of arrival. Unknown GUIDs are no error.
pub struct ConfirmBatch {
    /// The connection.
    pub session: SessionId,
    /// The peer's number for the queue.
    pub queue: WireQueueId,
    /// Stream and message.
    pub confirms: Vec<(SubId, Guid)>,
}

/// Replaces the subscriptions of one stream.
pub struct ConfigureCall {
    /// The connection.
    pub session: SessionId,
    /// The peer's number for the queue.
    pub queue: WireQueueId,
    /// The stream.
    pub sub_id: SubId,
    /// Given back in [`Configured`].
    pub call: u64,
    /// New subscriptions, ids unique within the queue and connection; empty: stop delivering.
    pub subscriptions: Vec<SubscriptionParameters>,
}

/// Answer to [`ConfigureCall`].
pub struct Configured {
    /// From the call.
    pub call: u64,
    /// Whether the new subscriptions are in force; if not, the old ones still are.
    pub result: Result<(), Refusal>,
}

/// Ends streams of one queue.
pub struct CloseCall {
    /// The connection.
    pub session: SessionId,
    /// The peer's number for the queue.
    pub queue: WireQueueId,
    /// Given back in [`Closed`].
    pub call: u64,
    /// What ends.
    pub scope: CloseScope,
}

/// Answer to [`CloseCall`], sent when that queue's earlier ACKs left and its confirms reached their level.
pub struct Closed {
    /// From the call.
    pub call: u64,
    /// Refused only if the partition does not know what was to be closed.
    pub result: Result<(), Refusal>,
}

/// Outcomes of PUTs.
#[derive(Default)]
pub struct AckBatch {
    /// In any order.
    pub acks: Vec<AckItem>,
    /// In-flight budget given back: the sum of [`PutItem::charge`] of PUTs that are decided, whether or not they are
    /// acknowledged. **Units**: bytes.
    pub released_bytes: usize,
}

/// Outcome of one PUT: [`PutBatch::queue`], and GUID and correlation id from its [`PutItem`]. A success is made only if it
/// was asked for.
pub type AckItem = mqb_core::wire::Ack;

/// Messages for one peer.
pub struct PushBatch {
    /// Memory that the messages' data lies in; a chunk is listed once.
    pub chunks: Vec<Bytes>,
    /// The messages, in the order of delivery.
    pub pushes: Vec<PushItem>,
}

/// One message for a peer.
#[derive(Clone, Debug)]
pub struct PushItem {
    /// The peer's number for the queue.
    pub queue: WireQueueId,
    /// Under which subscription; valid until the next `Configured` or `Closed` of its stream.
    pub subscription: SubscriptionId,
    /// The message.
    pub guid: Guid,
    /// Encoding of the data.
    pub format: DataFormat,
    /// Not in the order of arrival.
    pub out_of_order: bool,
    /// Index into [`PushBatch::chunks`].
    pub chunk: u16,
    /// Application data, without padding, within the chunk.
    pub data: Range<u32>,
}

/// A question of an operator.
pub struct Query {
    /// What is asked.
    pub request: QueryRequest,
    /// Called once with the answer, on a dispatcher thread: it must only hand over (post, or send on a channel).
    pub reply: Box<dyn FnOnce(QueryAnswer) + Send>,
}

/// What an operator can ask.
#[derive(Clone, Debug)]
pub enum QueryRequest {
    /// The domains in use.
    Domains,
    /// The queues of one domain or of all, in the order of their URIs.
    Queues {
        /// `None`: all domains.
        domain: Option<String>,
    },
    /// One queue.
    Queue {
        /// Canonical URI.
        uri: String,
    },
    /// Waiting messages of a queue, oldest first, without taking them.
    Messages {
        /// Canonical URI.
        uri: String,
        /// How many to skip.
        skip: u64,
        /// How many at most; the answer may stop earlier, at about 1 MiB of data.
        count: u32,
    },
    /// Removes all messages that wait or are unconfirmed now.
    Purge {
        /// Canonical URI.
        uri: String,
        /// `None`: all apps.
        app_id: Option<String>,
    },
    /// The partitions, in the order of their numbers.
    Partitions,
}

/// Answer to a [`QueryRequest`].
#[derive(Clone, Debug)]
pub enum QueryAnswer {
    /// Names of domains, sorted.
    Domains(Vec<String>),
    /// Queues, sorted by URI.
    Queues(Vec<QueueReport>),
    /// Messages.
    Messages(Vec<MessageReport>),
    /// How much was removed.
    Purged {
        /// Number of messages.
        messages: u64,
        /// **Units**: bytes of application data.
        bytes: u64,
    },
    /// Partitions.
    Partitions(Vec<PartitionReport>),
    /// Cannot be answered, and why.
    Refused(String),
}

/// A [`QueryAnswer`] for an admin session.
#[derive(Clone, Debug)]
pub struct Answer {
    /// From the session's own table.
    pub call: u64,
    /// The answer.
    pub answer: QueryAnswer,
}

/// State of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueReport {
    /// Canonical URI.
    pub uri: String,
    /// Mode of its domain: `priority`, ...
    pub mode: &'static str,
    /// `sync`, `flush` or `memory`.
    pub durability: &'static str,
    /// Where it lives.
    pub partition: u16,
    /// Messages stored and not settled.
    pub messages: u64,
    /// **Units**: bytes of application data.
    pub bytes: u64,
    /// Messages handed to consumers and not confirmed.
    pub unconfirmed: u64,
    /// Handles that may write.
    pub producers: u32,
    /// Handles that may read.
    pub consumers: u32,
    /// Age of the oldest message.
    pub oldest_age_ms: u64,
    /// Since the queue was created or its partition recovered: stored, confirmed, expired, purged, removed.
    pub stored: u64,
    /// Messages that a consumer confirmed.
    pub confirmed: u64,
    /// Messages whose time to live passed.
    pub expired: u64,
    /// Messages that an operator purged.
    pub purged: u64,
    /// Messages out of delivery attempts.
    pub removed: u64,
    /// PUTs judged since the start, refused ones included.
    pub puts: u64,
    /// PUTs refused since the start.
    pub nacks: u64,
    /// Messages handed to consumers since the start, repeated ones included.
    pub pushes: u64,
}

/// State of a partition.
#[derive(Clone, Debug, Default)]
pub struct PartitionReport {
    /// Its number.
    pub partition: u16,
    /// Queues in it.
    pub queues: u64,
    /// Connections that use it.
    pub sessions: u64,
    /// Messages stored and not settled.
    pub messages: u64,
    /// **Units**: bytes of application data.
    pub bytes: u64,
    /// PUTs that wait for their durability level.
    pub pending_acks: u64,
    /// Alarm: no space for new messages.
    pub is_full: bool,
    /// Alarm: the log failed; the partition is read-only.
    pub is_failed: bool,
    /// Alarm: queues that refuse messages for want of quota.
    pub queues_full: u64,
    /// Alarm: queues above their high watermark, full ones not included.
    pub queues_high: u64,
    /// Alarm: messages removed because their consumers kept dying.
    pub poison_messages: u64,
    /// Figures of the log.
    pub storage: StorageStats,
}

/// A waiting message.
#[derive(Clone, Debug)]
pub struct MessageReport {
    /// The message.
    pub guid: Guid,
    /// Wall clock at acceptance, milliseconds since the Unix epoch.
    pub accepted_at_ms: u64,
    /// Encoding of the data.
    pub format: DataFormat,
    /// Length of all its application data. **Units**: bytes.
    pub size_bytes: u64,
    /// The data, or its beginning if it is long; `None` while it has to be read back from disk.
    pub data: Option<Bytes>,
}
