//! What the broker says about a posted message.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use mqb_core::{Guid, wire};

use crate::error::Error;
use crate::promise::{Missing, Promise, Promised};

/// The fate of a posted message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum AckStatus {
    /// Accepted at the durability level of its domain.
    Success,
    /// Refused: the queue or its domain holds as many messages as it may.
    LimitMessages,
    /// Refused: the queue or its domain holds as many bytes as it may.
    LimitBytes,
    /// Not stored: the broker's storage is full or failed.
    StorageFailure,
    /// Not stored: nobody is in charge of the queue at the moment.
    NotReady,
    /// Refused for another reason: invalid message, queue not open for writing.
    Unknown,
    /// Given up by this client before an answer came: the queue was closed or could not be reopened, or the session ended.
    /// The broker may have stored the message.
    Canceled,
}

impl AckStatus {
    /// Whether the message is stored.
    #[inline]
    pub fn is_success(self) -> bool {
        self == AckStatus::Success
    }
}

impl From<wire::AckStatus> for AckStatus {
    fn from(status: wire::AckStatus) -> AckStatus {
        match status {
            wire::AckStatus::Success => AckStatus::Success,
            wire::AckStatus::LimitMessages => AckStatus::LimitMessages,
            wire::AckStatus::LimitBytes => AckStatus::LimitBytes,
            wire::AckStatus::StorageFailure => AckStatus::StorageFailure,
            wire::AckStatus::NotReady => AckStatus::NotReady,
            wire::AckStatus::Unknown => AckStatus::Unknown,
        }
    }
}

impl fmt::Display for AckStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AckStatus::Success => "stored",
            AckStatus::LimitMessages => "refused: the queue is full (messages)",
            AckStatus::LimitBytes => "refused: the queue is full (bytes)",
            AckStatus::StorageFailure => "not stored: the broker's storage is full or failed",
            AckStatus::NotReady => "not stored: the queue has no active primary",
            AckStatus::Unknown => "refused by the broker",
            AckStatus::Canceled => "given up before the broker answered",
        })
    }
}

/// The answer to one posted message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack {
    /// The GUID under which the message was sent.
    pub guid: Guid,
    /// The fate of the message.
    pub status: AckStatus,
    /// The number given to [`Queue::post_tagged`](crate::Queue::post_tagged); 0 for other posts.
    pub tag: u64,
}

/// How an answer reaches the application.
pub(crate) enum Completion {
    /// None was asked for.
    Unrequested,
    /// The queue's acknowledgement handler.
    Tag(u64),
    /// A function of its own.
    Call(Box<dyn FnOnce(Ack) + Send>),
    /// A [`Receipt`].
    Receipt(Promise<Ack>),
    /// It has been given already.
    Done,
}

impl Completion {
    #[inline]
    pub(crate) fn wants_ack(&self) -> bool {
        !matches!(self, Completion::Unrequested | Completion::Done)
    }
}

/// The pending answer to a posted message: wait for it, poll it, or `.await` it.
///
/// Dropping it forgets the answer, not the message.
#[derive(Debug)]
#[must_use = "the message may be refused; use post_unacknowledged if that does not matter"]
pub struct Receipt(Promised<Ack>);

impl Receipt {
    pub(crate) fn new(promised: Promised<Ack>) -> Receipt {
        Receipt(promised)
    }

    /// Blocks until the broker has answered, however long that takes (a lost connection is restored meanwhile).
    ///
    /// **Errors**: [`Error::Closed`] if the session ended without an answer.
    pub fn wait(self) -> Result<Ack, Error> {
        self.0.wait(None).map_err(|_| Error::Closed)
    }

    /// Blocks for at most `timeout`. The receipt stays usable after a timeout.
    ///
    /// **Errors**: [`Error::Timeout`], [`Error::Closed`].
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Ack, Error> {
        self.0
            .wait(Some(Instant::now() + timeout))
            .map_err(|missing| match missing {
                Missing::Timeout => Error::Timeout {
                    doing: "waiting for an acknowledgement",
                    after: timeout,
                },
                Missing::Ended => Error::Closed,
            })
    }

    /// The answer if it is there already. It is given once.
    pub fn try_take(&self) -> Option<Ack> {
        self.0.take()
    }
}

impl Future for Receipt {
    type Output = Result<Ack, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map_err(|_| Error::Closed)
    }
}
