//! What can go wrong, by what the caller can do about it.

use std::io;
use std::time::Duration;

use mqb_core::error::DataFault;
use mqb_core::uri::UriError;

/// A refusal by the broker, in its own words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// Category as the protocol names it, such as `E_REFUSED`.
    pub category: &'static str,
    /// A number that only the broker's documentation explains; often 0.
    pub code: i32,
    /// Text for people. Comes from the broker, control characters replaced.
    pub message: String,
}

impl std::fmt::Display for Rejection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} ({}, code {})",
            self.message, self.category, self.code
        )
    }
}

/// Why an operation did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The broker's address is not of the form `tcp://HOST:PORT`.
    #[error("address {address:?} is not of the form tcp://HOST:PORT")]
    Address {
        /// As given.
        address: String,
    },
    /// No connection to the broker could be made.
    #[error("cannot connect to {address}")]
    Connect {
        /// As given.
        address: String,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// The I/O thread could not be started.
    #[error("cannot start the session's thread")]
    Thread(#[source] io::Error),
    /// The broker refused the request.
    #[error("{doing}: the broker refused: {rejection}")]
    Rejected {
        /// What was asked for.
        doing: &'static str,
        /// The answer.
        rejection: Rejection,
    },
    /// No answer in time.
    #[error("no answer within {after:?} while {doing}")]
    Timeout {
        /// What was waited for.
        doing: &'static str,
        /// The time allowed.
        after: Duration,
    },
    /// There is no connection at the moment; the session is reconnecting.
    #[error("not connected to the broker at the moment")]
    NotConnected,
    /// The session has ended.
    #[error("the session is closed")]
    Closed,
    /// The queue has been closed.
    #[error("the queue is closed")]
    QueueClosed,
    /// After a reconnect the broker refused to open the queue again. Close it and open it anew.
    #[error("the broker refused to reopen the queue")]
    QueueFailed,
    /// The session has this queue open already.
    #[error("{uri} is already open in this session")]
    AlreadyOpen {
        /// The queue.
        uri: String,
    },
    /// Not a queue URI.
    #[error("{uri:?} is not a queue URI such as bmq://my.domain/queue: {source}")]
    Uri {
        /// As given.
        uri: String,
        /// What is wrong with it.
        source: UriError,
    },
    /// Options that cannot be.
    #[error("{0}")]
    Options(&'static str),
    /// The window of unacknowledged messages is full and the call was not to wait (any longer).
    #[error("too many messages wait for their acknowledgement")]
    Full,
    /// Messages have at least one byte.
    #[error("a message needs a payload")]
    EmptyPayload,
    /// The message is larger than the protocol allows.
    #[error("message of {have} bytes is over the limit of {limit} bytes")]
    TooBig {
        /// Its size, properties included.
        have: usize,
        /// What is allowed.
        limit: usize,
    },
    /// A received message whose properties are malformed or that does not decompress.
    #[error("message cannot be read: {0}")]
    Data(#[from] DataFault),
    /// A blocking call in a callback, which runs on the thread that would have to do the work.
    #[error("this call would block the session's own thread; do it outside of callbacks")]
    InCallback,
    /// The broker says something that the protocol does not allow.
    #[error("protocol error: {0}")]
    Protocol(&'static str),
}
