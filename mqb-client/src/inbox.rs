//! Received messages that wait for the application to ask for them.
//!
//! Its size is bounded by the broker: it delivers no more than the consumer's window of unconfirmed messages.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::Instant;

use crate::error::Error;
use crate::message::Message;
use crate::promise::{lock, wait};

/// Why nothing more will come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    QueueClosed,
    QueueFailed,
    SessionEnded,
}

impl From<End> for Error {
    fn from(end: End) -> Error {
        match end {
            End::QueueClosed => Error::QueueClosed,
            End::QueueFailed => Error::QueueFailed,
            End::SessionEnded => Error::Closed,
        }
    }
}

#[derive(Default)]
struct State {
    messages: VecDeque<Message>,
    end: Option<End>,
    waiters: usize,
}

/// One per queue that is read without a callback.
#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    ready: Condvar,
}

impl Inbox {
    /// Adds what arrived. Called by the session's thread.
    pub(crate) fn push(&self, batch: &mut Vec<Message>) {
        let mut state = lock(&self.state);
        let several = batch.len() > 1;
        state.messages.extend(batch.drain(..));
        let waiters = state.waiters;
        drop(state);
        match waiters {
            0 => {}
            1 => self.ready.notify_one(),
            _ if several => self.ready.notify_all(),
            _ => self.ready.notify_one(),
        }
    }

    /// Forgets what was not asked for yet: the broker will deliver it again, here or elsewhere.
    pub(crate) fn clear(&self) {
        lock(&self.state).messages.clear();
    }

    /// Nothing more will come, or (`None`) something may come again.
    pub(crate) fn set_end(&self, end: Option<End>) {
        lock(&self.state).end = end;
        self.ready.notify_all();
    }

    /// One message if there is one.
    pub(crate) fn try_pop(&self) -> Result<Option<Message>, Error> {
        let mut state = lock(&self.state);
        match state.messages.pop_front() {
            Some(message) => Ok(Some(message)),
            None => state.end.map_or(Ok(None), |end| Err(end.into())),
        }
    }

    /// Up to `max` messages if there are any.
    pub(crate) fn try_pop_many(&self, max: usize, out: &mut Vec<Message>) -> Result<usize, Error> {
        let mut state = lock(&self.state);
        if state.messages.is_empty() {
            return state.end.map_or(Ok(0), |end| Err(end.into()));
        }
        let count = max.min(state.messages.len());
        out.extend(state.messages.drain(..count));
        Ok(count)
    }

    /// Blocks until there is something to take or an end; `false` if the deadline came first.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> bool {
        let mut state = lock(&self.state);
        while state.messages.is_empty() && state.end.is_none() {
            if deadline.is_some_and(|at| Instant::now() >= at) {
                return false;
            }
            state.waiters += 1;
            state = wait(&self.ready, state, deadline);
            state.waiters -= 1;
        }
        true
    }
}
