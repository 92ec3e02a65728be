//! Answers, and the ways they take back to the caller.

use std::time::Duration;

#[cfg(not(mqb_loom))]
use std::{fmt, sync::Arc};

use crate::calls::call::CallInfo;

/// Why a call was not started. None of these leaves a trace in the service: repeating the call is safe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// There is too much to do for this call to be done in time.
    #[error("not started: overloaded, retry after {} ms", retry_after.as_millis())]
    Overloaded {
        /// When it may be worth trying again; differs from call to call so that callers do not come back all at once.
        retry_after: Duration,
    },
    /// It waited, and had to make room for one that is more urgent.
    #[error("not started: gave way to more urgent calls, retry after {} ms", retry_after.as_millis())]
    Evicted {
        /// As for `Overloaded`.
        retry_after: Duration,
    },
    /// Its deadline passed, or came too close, before its turn.
    #[error("not started: its deadline passed before its turn")]
    Expired,
    /// The service is going down.
    #[error("not started: shutting down")]
    ShuttingDown,
}

impl Refusal {
    /// True if the same call may be sent to the same service again, after [`Refusal::retry_after`]. After `Expired` it may not with the
    /// same deadline; after `ShuttingDown` only to another instance or after a reconnect.
    pub fn is_retriable(&self) -> bool {
        self.retry_after().is_some()
    }

    /// The hint when to retry.
    pub fn retry_after(&self) -> Option<Duration> {
        match *self {
            Self::Overloaded { retry_after } | Self::Evicted { retry_after } => Some(retry_after),
            Self::Expired | Self::ShuttingDown => None,
        }
    }

    /// The reason as a label of a metric.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Overloaded { .. } => "overloaded",
            Self::Evicted { .. } => "evicted",
            Self::Expired => "expired",
            Self::ShuttingDown => "shutting_down",
        }
    }
}

/// What became of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer<T> {
    /// The handler's response.
    Done(T),
    /// It was not started.
    Refused(Refusal),
    /// The handler panicked or forgot the call; how far it came is not known.
    Failed,
}

/// The way of a reply. Exactly one of its methods is called, on the thread that has the call. A call that goes to a pool needs one
/// that is `Send`; one that is handled where it was received can hold an `Rc` of its connection.
pub trait Reply: Sized {
    /// What handlers respond with.
    type Response;

    /// Takes the answer to the caller. Must not block: the loop's thread may be calling.
    fn reply(self, call: CallInfo, answer: Answer<Self::Response>);

    /// The caller has gone and gets no answer: the place to give back what the call held.
    fn cancelled(self, call: CallInfo) {
        let _ = call;
    }
}

/// For callers that come from nowhere in particular, as HTTP does. Allocates; a connection uses [`PostTo`].
impl<T: Send + 'static> Reply for Box<dyn FnOnce(CallInfo, Answer<T>) + Send> {
    type Response = T;

    fn reply(self, call: CallInfo, answer: Answer<T>) {
        self(call, answer);
    }
}

#[cfg(not(mqb_loom))]
type MakeEvent<E, T> = fn(CallInfo, Answer<T>) -> E;

/// Replies by posting an event to a dispatcher client, usually the connection: its processor writes all replies of a turn at once.
///
/// 8 bytes, one allocation per connection. If the client has gone the reply is dropped and counted by the dispatcher.
#[cfg(not(mqb_loom))]
pub struct PostTo<E: Send + 'static, T: Send + 'static>(Arc<Target<E, T>>);

#[cfg(not(mqb_loom))]
struct Target<E: Send + 'static, T> {
    handle: crate::Handle<E>,
    event: MakeEvent<E, T>,
}

#[cfg(not(mqb_loom))]
impl<E: Send + 'static, T: Send + 'static> PostTo<E, T> {
    /// Replies to `handle` go as what `event` makes of them.
    pub fn new(handle: crate::Handle<E>, event: fn(CallInfo, Answer<T>) -> E) -> Self {
        Self(Arc::new(Target { handle, event }))
    }
}

#[cfg(not(mqb_loom))]
impl<E: Send + 'static, T: Send + 'static> Reply for PostTo<E, T> {
    type Response = T;

    fn reply(self, call: CallInfo, answer: Answer<T>) {
        self.0.handle.post((self.0.event)(call, answer));
    }
}

#[cfg(not(mqb_loom))]
impl<E: Send + 'static, T: Send + 'static> Clone for PostTo<E, T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[cfg(not(mqb_loom))]
impl<E: Send + 'static, T: Send + 'static> fmt::Debug for PostTo<E, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostTo({:?})", self.0.handle)
    }
}
