//! An open queue as the application holds it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqb_core::wire::Confirm;
use mqb_core::{Guid, PropertiesStyle, SubId, WireQueueId};

use crate::ack::{Ack, Completion, Receipt};
use crate::command::Command;
use crate::error::Error;
use crate::inbox::Inbox;
use crate::message::Message;
use crate::options::ConsumerOptions;
use crate::promise::promise;
use crate::put::Put;
use crate::shared::{Room, Shared};

pub(crate) struct QueueInner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) slot: usize,
    pub(crate) uri: String,
    pub(crate) wire: WireQueueId,
    pub(crate) sub_id: SubId,
    pub(crate) style: PropertiesStyle,
    pub(crate) write: bool,
    pub(crate) read: bool,
    /// Messages come at most once: there is nothing to confirm.
    pub(crate) at_most_once: bool,
    pub(crate) post_timeout: Option<Duration>,
    pub(crate) request_timeout: Duration,
    pub(crate) inbox: Inbox,
}

/// An open queue. Clones are handles to the same one.
///
/// Dropping the handles does not close the queue; [`Queue::close`] and the end of the session do.
///
/// **Thread**: any, also several at once.
#[derive(Clone)]
pub struct Queue {
    pub(crate) inner: Arc<QueueInner>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queue").field(&self.inner.uri).finish()
    }
}

impl Queue {
    /// The URI with which it was opened.
    pub fn uri(&self) -> &str {
        &self.inner.uri
    }

    /// Posts a message and returns its pending acknowledgement. Blocks while the window is full.
    ///
    /// ```no_run
    /// # fn example(queue: &mqb_client::Queue) -> Result<(), mqb_client::Error> {
    /// let ack = queue.post("hello")?.wait()?;
    /// assert!(ack.status.is_success());
    /// # Ok(()) }
    /// ```
    ///
    /// **Cost**: one allocation; [`Queue::post_tagged`] has none.
    ///
    /// **Errors**: the message cannot be sent as it is, the queue or session is closed, or the window stayed full.
    pub fn post<'a>(&self, put: impl Into<Put<'a>>) -> Result<Receipt, Error> {
        let (give, take) = promise();
        self.send(&put.into(), Completion::Receipt(give), self.room())?;
        Ok(Receipt::new(take))
    }

    /// As [`Queue::post`], but fails with [`Error::Full`] instead of waiting for room.
    pub fn try_post<'a>(&self, put: impl Into<Put<'a>>) -> Result<Receipt, Error> {
        let (give, take) = promise();
        self.send(&put.into(), Completion::Receipt(give), Room::Now)?;
        Ok(Receipt::new(take))
    }

    /// Posts a message and calls `then` with the acknowledgement, on the session's thread: it must not block.
    ///
    /// **Errors**: as for [`Queue::post`].
    pub fn post_with<'a>(
        &self,
        put: impl Into<Put<'a>>,
        then: impl FnOnce(Ack) + Send + 'static,
    ) -> Result<Guid, Error> {
        self.send(&put.into(), Completion::Call(Box::new(then)), self.room())
    }

    /// Posts a message whose acknowledgement goes to the queue's handler ([`OpenOptions::on_acks`](crate::OpenOptions::on_acks))
    /// with `tag`. The fastest way.
    ///
    /// **Errors**: as for [`Queue::post`].
    pub fn post_tagged<'a>(&self, put: impl Into<Put<'a>>, tag: u64) -> Result<Guid, Error> {
        self.send(&put.into(), Completion::Tag(tag), self.room())
    }

    /// As [`Queue::post_tagged`], but fails with [`Error::Full`] instead of waiting for room.
    pub fn try_post_tagged<'a>(&self, put: impl Into<Put<'a>>, tag: u64) -> Result<Guid, Error> {
        self.send(&put.into(), Completion::Tag(tag), Room::Now)
    }

    /// Posts a message without asking for an acknowledgement: it may be lost with the connection or be refused unnoticed.
    ///
    /// **Errors**: as for [`Queue::post`].
    pub fn post_unacknowledged<'a>(&self, put: impl Into<Put<'a>>) -> Result<Guid, Error> {
        self.send(&put.into(), Completion::Unrequested, self.room())
    }

    /// Posts a message and blocks until the broker has answered.
    ///
    /// **Errors**: as for [`Queue::post`], and [`Error::Timeout`] (the message may be stored all the same).
    pub fn post_and_wait<'a>(
        &self,
        put: impl Into<Put<'a>>,
        timeout: Duration,
    ) -> Result<Ack, Error> {
        self.inner.shared.check_may_block()?;
        self.post(put)?.wait_timeout(timeout)
    }

    fn room(&self) -> Room {
        self.inner
            .post_timeout
            .map_or(Room::WaitForever, |timeout| {
                Room::WaitUntil(Instant::now() + timeout)
            })
    }

    fn send(&self, put: &Put<'_>, completion: Completion, room: Room) -> Result<Guid, Error> {
        let queue = &*self.inner;
        if !queue.write {
            return Err(Error::Options("the queue is not open for writing"));
        }
        put.with_prepared(
            queue.wire,
            queue.style,
            completion.wants_ack(),
            |prepared| queue.shared.post(queue.slot, prepared, completion, room),
        )
    }

    /// Blocks until a message arrives.
    ///
    /// **Errors**: the queue was closed or not reopened, the session ended, or messages go to a callback.
    pub fn recv(&self) -> Result<Message, Error> {
        loop {
            if let Some(message) = self.recv_until(None)? {
                return Ok(message);
            }
        }
    }

    /// Blocks for a message for at most `timeout`; `None` if none came.
    ///
    /// **Errors**: as for [`Queue::recv`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Message>, Error> {
        self.recv_until(Some(Instant::now() + timeout))
    }

    /// A message if one has arrived.
    ///
    /// **Errors**: as for [`Queue::recv`].
    pub fn try_recv(&self) -> Result<Option<Message>, Error> {
        self.check_reader()?;
        self.inner.inbox.try_pop()
    }

    /// Appends up to `max` messages to `out`, waiting for the first for at most `timeout`. Returns how many.
    /// Cheaper per message than [`Queue::recv`].
    ///
    /// **Errors**: as for [`Queue::recv`].
    pub fn recv_many(
        &self,
        out: &mut Vec<Message>,
        max: usize,
        timeout: Duration,
    ) -> Result<usize, Error> {
        self.check_reader()?;
        let deadline = Some(Instant::now() + timeout);
        loop {
            let count = self.inner.inbox.try_pop_many(max, out)?;
            if count > 0 || max == 0 || !self.await_arrival(deadline)? {
                return Ok(count);
            }
        }
    }

    fn recv_until(&self, deadline: Option<Instant>) -> Result<Option<Message>, Error> {
        self.check_reader()?;
        loop {
            if let Some(message) = self.inner.inbox.try_pop()? {
                return Ok(Some(message));
            }
            if !self.await_arrival(deadline)? {
                return Ok(None);
            }
        }
    }

    fn await_arrival(&self, deadline: Option<Instant>) -> Result<bool, Error> {
        self.inner.shared.check_may_block()?;
        self.inner.shared.flush_confirms();
        Ok(self.inner.inbox.wait(deadline))
    }

    fn check_reader(&self) -> Result<(), Error> {
        if self.inner.read {
            Ok(())
        } else {
            Err(Error::Options("the queue is not open for reading"))
        }
    }

    /// Tells the broker that a message is done with, so that it is never delivered again. Sent in batches; there is no answer.
    ///
    /// **Errors**: [`Error::NotConnected`] while the session reconnects: the message will be delivered again.
    pub fn confirm(&self, message: &Message) -> Result<(), Error> {
        self.confirm_all(std::slice::from_ref(message))
    }

    /// As [`Queue::confirm`] for several messages at once.
    ///
    /// **Errors**: as for [`Queue::confirm`].
    pub fn confirm_all(&self, messages: &[Message]) -> Result<(), Error> {
        self.confirm_guids(messages.iter().map(Message::guid))
    }

    /// As [`Queue::confirm`] for messages of which only the GUID was kept.
    ///
    /// **Errors**: as for [`Queue::confirm`].
    pub fn confirm_guids(&self, guids: impl IntoIterator<Item = Guid>) -> Result<(), Error> {
        let queue = &*self.inner;
        if queue.at_most_once {
            return Ok(());
        }
        queue.shared.confirm(guids.into_iter().map(|guid| Confirm {
            queue: queue.wire,
            guid,
            sub_id: queue.sub_id,
        }))
    }

    /// Replaces the consumer's options (one per subscription); none at all pauses delivery. Blocks until the broker has answered.
    ///
    /// **Errors**: the broker refused, the queue or session is closed.
    pub fn reconfigure(&self, consumers: Vec<ConsumerOptions>) -> Result<(), Error> {
        self.check_reader()?;
        self.request("configuring a queue", |reply| Command::Configure {
            slot: self.inner.slot,
            consumers,
            reply,
        })
    }

    /// Closes the queue: what was posted and confirmed before leaves first. Blocks until the broker has answered.
    /// Messages received and not confirmed go to other consumers; posts without an answer by then get [`AckStatus::Canceled`](crate::AckStatus::Canceled).
    ///
    /// **Errors**: the session is closed. The queue counts as closed in any case.
    pub fn close(&self) -> Result<(), Error> {
        self.request("closing a queue", |reply| Command::Close {
            slot: self.inner.slot,
            reply,
        })
    }

    fn request(
        &self,
        doing: &'static str,
        command: impl FnOnce(crate::promise::Promise<Result<(), Error>>) -> Command,
    ) -> Result<(), Error> {
        let shared = &self.inner.shared;
        shared.check_may_block()?;
        let (give, take) = promise();
        shared.command(command(give))?;
        let after = self.inner.request_timeout;
        match take.wait(Some(Instant::now() + after)) {
            Ok(result) => result,
            Err(crate::promise::Missing::Ended) => Err(Error::Closed),
            Err(crate::promise::Missing::Timeout) => Err(Error::Timeout { doing, after }),
        }
    }
}
