//! What the application's threads and the session's thread share, and how the one wakes the other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::ack::Completion;
use crate::command::Command;
use crate::error::Error;
use crate::outbox::{Outbox, Prepared, Refusal, Settled};
use crate::promise::{lock, wait};

use mqb_core::Guid;
use mqb_core::wire::Confirm;

/// This many confirms are sent without waiting for more.
pub(crate) const CONFIRM_BATCH: usize = 256;
/// How long fewer may wait for more of them, unless the application has nothing else to do.
const CONFIRM_DELAY: Duration = Duration::from_micros(500);

/// What the session's thread wants to be woken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sleep {
    /// It will look by itself.
    Awake,
    /// The socket takes no more: only a request is worth waking for.
    ForCommands,
    ForAnything,
}

pub(crate) struct Inner {
    pub(crate) outbox: Outbox,
    pub(crate) commands: Vec<Command>,
    pub(crate) sleep: Sleep,
    /// Confirms should not wait any longer.
    pub(crate) flush_confirms: bool,
    /// When the oldest waiting confirm must leave.
    pub(crate) confirm_deadline: Option<Instant>,
    /// Threads in [`Shared::post`] that wait for room.
    room_waiters: usize,
    /// Threads in [`Shared::wait_answered`].
    answer_waiters: usize,
    ended: bool,
    thread: Option<ThreadId>,
}

/// One per session. The lock is held for the time of a short copy at most; no callback runs under it.
pub(crate) struct Shared {
    pub(crate) inner: Mutex<Inner>,
    room: Condvar,
    answered: Condvar,
    waker: mio::Waker,
    pub(crate) counters: Counters,
}

/// Counts since the session began.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) acked: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) connections: AtomicU64,
}

impl Counters {
    /// Statistics only: nothing is ordered by them.
    pub(crate) fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}

impl Shared {
    pub(crate) fn new(outbox: Outbox, waker: mio::Waker) -> Shared {
        Shared {
            inner: Mutex::new(Inner {
                outbox,
                commands: Vec::new(),
                sleep: Sleep::Awake,
                flush_confirms: false,
                confirm_deadline: None,
                room_waiters: 0,
                answer_waiters: 0,
                ended: false,
                thread: None,
            }),
            room: Condvar::new(),
            answered: Condvar::new(),
            waker,
            counters: Counters::default(),
        }
    }

    /// Names the session's thread, on which nothing may block.
    pub(crate) fn set_thread(&self, thread: ThreadId) {
        lock(&self.inner).thread = Some(thread);
    }

    /// **Errors**: the calling thread is the session's own.
    pub(crate) fn check_may_block(&self) -> Result<(), Error> {
        let on_own_thread = lock(&self.inner).thread == Some(std::thread::current().id());
        if on_own_thread {
            Err(Error::InCallback)
        } else {
            Ok(())
        }
    }

    /// Hands a request to the session's thread.
    pub(crate) fn command(&self, command: Command) -> Result<(), Error> {
        let mut inner = lock(&self.inner);
        if inner.ended {
            return Err(Error::Closed);
        }
        inner.commands.push(command);
        self.wake_unless_awake(inner, |sleep| sleep != Sleep::Awake);
        Ok(())
    }

    /// Takes a message into the window, waiting for room until the deadline if `wait_for_room`.
    pub(crate) fn post(
        &self,
        slot: usize,
        message: &Prepared<'_>,
        mut completion: Completion,
        room: Room,
    ) -> Result<Guid, Error> {
        let mut inner = lock(&self.inner);
        loop {
            match inner
                .outbox
                .put(slot, message, Instant::now(), &mut completion)
            {
                Ok(guid) => {
                    self.wake_unless_awake(inner, |sleep| sleep == Sleep::ForAnything);
                    return Ok(guid);
                }
                Err(Refusal::Full) => inner = self.wait_for_room(inner, room)?,
                Err(Refusal::Closed) => return Err(Error::QueueClosed),
                Err(Refusal::Failed) => return Err(Error::QueueFailed),
                Err(Refusal::Ended) => return Err(Error::Closed),
            }
        }
    }

    fn wait_for_room<'a>(
        &self,
        mut inner: MutexGuard<'a, Inner>,
        room: Room,
    ) -> Result<MutexGuard<'a, Inner>, Error> {
        let deadline = match room {
            Room::Now => return Err(Error::Full),
            Room::WaitForever => None,
            Room::WaitUntil(at) if Instant::now() >= at => return Err(Error::Full),
            Room::WaitUntil(at) => Some(at),
        };
        if inner.thread == Some(std::thread::current().id()) {
            return Err(Error::Full);
        }
        inner.room_waiters += 1;
        inner = wait(&self.room, inner, deadline);
        inner.room_waiters -= 1;
        Ok(inner)
    }

    /// Notes confirms.
    ///
    /// **Errors**: there is no session to send them in.
    pub(crate) fn confirm(&self, confirms: impl Iterator<Item = Confirm>) -> Result<(), Error> {
        let mut inner = lock(&self.inner);
        let before = inner.outbox.pending_confirms();
        for confirm in confirms {
            if !inner.outbox.confirm(&confirm) {
                return Err(if inner.ended {
                    Error::Closed
                } else {
                    Error::NotConnected
                });
            }
        }
        let now = inner.outbox.pending_confirms();
        if inner.thread == Some(std::thread::current().id()) {
            // In a callback: they leave when it is over.
            inner.flush_confirms = true;
        } else if before == 0 && now > 0 {
            // The first one starts the clock that bounds the wait of all.
            inner.confirm_deadline = Some(Instant::now() + CONFIRM_DELAY);
            self.wake_unless_awake(inner, |sleep| sleep == Sleep::ForAnything);
        } else if before < CONFIRM_BATCH && now >= CONFIRM_BATCH {
            self.wake_unless_awake(inner, |sleep| sleep == Sleep::ForAnything);
        }
        Ok(())
    }

    /// The application has nothing to do until more arrives: confirms leave at once.
    pub(crate) fn flush_confirms(&self) {
        let mut inner = lock(&self.inner);
        if inner.outbox.pending_confirms() > 0 {
            inner.flush_confirms = true;
            self.wake_unless_awake(inner, |sleep| sleep == Sleep::ForAnything);
        }
    }

    fn wake_unless_awake(
        &self,
        mut inner: MutexGuard<'_, Inner>,
        wanted: impl FnOnce(Sleep) -> bool,
    ) {
        if !wanted(inner.sleep) {
            return;
        }
        inner.sleep = Sleep::Awake;
        drop(inner);
        if let Err(error) = self.waker.wake() {
            // Cannot happen with an eventfd; the thread would look at its next deadline.
            tracing::warn!(%error, "cannot wake the session's thread");
        }
    }

    /// Counts `settled` and wakes whoever waits for room or for the last answer.
    pub(crate) fn after_settling(&self, inner: MutexGuard<'_, Inner>, settled: &[Settled]) {
        let wake_posters = inner.room_waiters > 0 && inner.outbox.has_room_for_many();
        let wake_answered = inner.answer_waiters > 0 && inner.outbox.in_flight() == 0;
        let good = settled
            .iter()
            .filter(|settled| settled.ack.status.is_success())
            .count() as u64;
        Counters::add(&self.counters.acked, good);
        Counters::add(&self.counters.refused, settled.len() as u64 - good);
        drop(inner);
        if wake_posters {
            self.room.notify_all();
        }
        if wake_answered {
            self.answered.notify_all();
        }
    }

    /// Blocks until every posted message has its answer; `false` if the deadline came first.
    pub(crate) fn wait_answered(&self, deadline: Option<Instant>) -> Result<bool, Error> {
        self.check_may_block()?;
        let mut inner = lock(&self.inner);
        while inner.outbox.in_flight() > 0 {
            if inner.ended {
                return Err(Error::Closed);
            }
            if deadline.is_some_and(|at| Instant::now() >= at) {
                return Ok(false);
            }
            inner.answer_waiters += 1;
            inner = wait(&self.answered, inner, deadline);
            inner.answer_waiters -= 1;
        }
        Ok(true)
    }

    /// The session's thread is leaving: nothing is taken any more. Returns what was never answered.
    pub(crate) fn end(&self) -> (Vec<Settled>, Vec<Command>) {
        let mut settled = Vec::new();
        let mut inner = lock(&self.inner);
        inner.ended = true;
        inner.outbox.end(&mut settled);
        let commands = std::mem::take(&mut inner.commands);
        drop(inner);
        self.room.notify_all();
        self.answered.notify_all();
        (settled, commands)
    }
}

/// What a post does when the window is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    Now,
    WaitForever,
    WaitUntil(Instant),
}
