//! How to connect, and how to open queues.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::ack::Ack;
use crate::event::SessionEvent;
use crate::message::Message;
use crate::queue::Queue;

pub(crate) type EventHandler = Box<dyn FnMut(SessionEvent) + Send>;
pub(crate) type MessageHandler = Box<dyn FnMut(&Queue, &mut Vec<Message>) + Send>;
pub(crate) type AckHandler = Box<dyn FnMut(&[Ack]) + Send>;

/// How a session connects and how much it holds.
///
/// ```
/// # use std::time::Duration;
/// let options = mqb_client::SessionOptions::new()
///     .connect_timeout(Duration::from_secs(5))
///     .max_in_flight(10_000, 64 << 20);
/// ```
pub struct SessionOptions {
    pub(crate) connect_timeout: Duration,
    pub(crate) wait_for_broker: bool,
    pub(crate) request_timeout: Duration,
    pub(crate) disconnect_timeout: Duration,
    pub(crate) reconnect_base: Duration,
    pub(crate) reconnect_limit: Duration,
    pub(crate) max_in_flight_messages: usize,
    pub(crate) max_in_flight_bytes: usize,
    pub(crate) process_name: Option<String>,
    pub(crate) credential: Option<(String, Vec<u8>)>,
    pub(crate) on_event: Option<EventHandler>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions {
            connect_timeout: Duration::from_secs(60),
            wait_for_broker: false,
            request_timeout: Duration::from_secs(60),
            disconnect_timeout: Duration::from_secs(30),
            reconnect_base: Duration::from_millis(500),
            reconnect_limit: Duration::from_secs(15),
            max_in_flight_messages: 65_536,
            max_in_flight_bytes: 128 << 20,
            process_name: None,
            credential: None,
            on_event: None,
        }
    }
}

impl SessionOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Time for connecting and negotiating. Default 60 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Whether the first connection is tried again until the connect timeout when nobody listens. Default: no, fail at once.
    /// Later connections are always tried again.
    pub fn wait_for_broker(mut self, wait: bool) -> Self {
        self.wait_for_broker = wait;
        self
    }

    /// Time for opening, configuring and closing a queue. Default 60 s. When it passes the connection is made anew,
    /// because a broker that leaves requests unanswered is not to be trusted with messages.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Time for the broker to answer a disconnect. Default 30 s.
    pub fn disconnect_timeout(mut self, timeout: Duration) -> Self {
        self.disconnect_timeout = timeout;
        self
    }

    /// Delays between attempts to reconnect: the first is immediate, the second up to `base`, then doubling up to `limit`, with jitter.
    /// Default 500 ms and 15 s.
    pub fn reconnect_delay(mut self, base: Duration, limit: Duration) -> Self {
        self.reconnect_base = base;
        self.reconnect_limit = limit;
        self
    }

    /// How much may wait for acknowledgements, also while there is no connection, before posts block. Default 65,536 messages and 128 MiB.
    pub fn max_in_flight(mut self, messages: usize, bytes: usize) -> Self {
        self.max_in_flight_messages = messages;
        self.max_in_flight_bytes = bytes;
        self
    }

    /// The name under which the broker lists this process. Default: the executable's.
    pub fn process_name(mut self, name: impl Into<String>) -> Self {
        self.process_name = Some(name.into());
        self
    }

    /// Authenticates at the start of each connection. Default: anonymous.
    pub fn credential(mut self, mechanism: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        self.credential = Some((mechanism.into(), data.into()));
        self
    }

    /// Called with each [`SessionEvent`], on the session's thread: it must not block.
    pub fn on_event(mut self, handler: impl FnMut(SessionEvent) + Send + 'static) -> Self {
        self.on_event = Some(Box::new(handler));
        self
    }
}

impl fmt::Debug for SessionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The credential stays out of logs.
        f.debug_struct("SessionOptions")
            .field("connect_timeout", &self.connect_timeout)
            .field("request_timeout", &self.request_timeout)
            .field("max_in_flight_messages", &self.max_in_flight_messages)
            .field("max_in_flight_bytes", &self.max_in_flight_bytes)
            .finish_non_exhaustive()
    }
}

/// What a consumer takes at a time, and which messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsumerOptions {
    pub(crate) max_unconfirmed_messages: u32,
    pub(crate) max_unconfirmed_bytes: u64,
    pub(crate) priority: i32,
    pub(crate) expression: Option<Arc<str>>,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        ConsumerOptions {
            max_unconfirmed_messages: 1000,
            max_unconfirmed_bytes: 32 << 20,
            priority: 0,
            expression: None,
        }
    }
}

impl ConsumerOptions {
    /// The defaults: 1000 messages, 32 MiB, priority 0, every message.
    pub fn new() -> Self {
        Self::default()
    }

    /// The broker stops delivering at this many unconfirmed messages and goes on when a fifth of them is confirmed. 0 pauses.
    pub fn max_unconfirmed_messages(mut self, messages: u32) -> Self {
        self.max_unconfirmed_messages = messages;
        self
    }

    /// The same in bytes of application data. 0 pauses.
    pub fn max_unconfirmed_bytes(mut self, bytes: u64) -> Self {
        self.max_unconfirmed_bytes = bytes;
        self
    }

    /// Only consumers of the highest priority that have room are served.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Takes only messages whose properties match this subscription expression.
    pub fn expression(mut self, expression: impl Into<Arc<str>>) -> Self {
        self.expression = Some(expression.into());
        self
    }
}

/// What a queue is opened for.
#[derive(Default)]
pub struct OpenOptions {
    pub(crate) write: bool,
    pub(crate) read: Vec<ConsumerOptions>,
    pub(crate) on_messages: Option<MessageHandler>,
    pub(crate) on_acks: Option<AckHandler>,
    pub(crate) post_timeout: Option<Duration>,
}

impl OpenOptions {
    /// Neither reads nor writes yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens for posting.
    pub fn write(mut self) -> Self {
        self.write = true;
        self
    }

    /// Opens for consuming. Calling it again adds another subscription with options of its own; a message tells which one
    /// it came for ([`Message::subscription`]).
    pub fn read(mut self, options: ConsumerOptions) -> Self {
        self.read.push(options);
        self
    }

    /// Called with each received message, on the session's thread: it must not block. Without a handler messages wait for
    /// [`Queue::recv`].
    pub fn on_message(self, mut handler: impl FnMut(&Queue, Message) + Send + 'static) -> Self {
        self.on_messages(move |queue, batch| {
            batch.drain(..).for_each(|message| handler(queue, message))
        })
    }

    /// As [`OpenOptions::on_message`], with all that arrived together. What the handler leaves in the vector is dropped.
    pub fn on_messages(
        mut self,
        handler: impl FnMut(&Queue, &mut Vec<Message>) + Send + 'static,
    ) -> Self {
        self.on_messages = Some(Box::new(handler));
        self
    }

    /// Called with the answers to [`Queue::post_tagged`], on the session's thread: it must not block.
    pub fn on_acks(mut self, handler: impl FnMut(&[Ack]) + Send + 'static) -> Self {
        self.on_acks = Some(Box::new(handler));
        self
    }

    /// How long a post may wait for room in the window. Default: without limit.
    pub fn post_timeout(mut self, timeout: Duration) -> Self {
        self.post_timeout = Some(timeout);
        self
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("write", &self.write)
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}
