//! The operating system's readiness, collected for the turn.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use mio::{Events, Poll, Registry, Waker};

use crate::io::{IoTable, IoToken, Readiness, WAKER};

/// Readiness notifications collected by one call.
const EVENTS: usize = 256;

/// One per processor.
pub(crate) struct Poller {
    poll: Poll,
    events: Events,
}

impl Poller {
    /// With the waker that reaches it. The eventfd behind it is edge-triggered and never read: three quarters of the cost of one that is.
    pub(crate) fn new() -> io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        Ok((
            Self {
                poll,
                events: Events::with_capacity(EVENTS),
            },
            waker,
        ))
    }

    pub(crate) fn registry(&self) -> io::Result<Registry> {
        self.poll.registry().try_clone()
    }

    /// Waits up to `timeout` (for ever if none) and appends what is ready.
    pub(crate) fn poll(
        &mut self,
        timeout: Option<Duration>,
        ready: &mut VecDeque<(IoToken, Readiness)>,
    ) {
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
            // EBADF, EINVAL: the descriptor that this struct owns is no epoll. Nothing can go on without it.
            Err(error) => panic!("the processor's poll is broken: {error}"),
        }
        let sockets = self.events.iter().filter(|event| event.token() != WAKER);
        ready.extend(sockets.map(|event| (IoTable::token(event.token()), Readiness::of(event))));
    }
}
