//! Delivery rules, one file per mode. An engine decides who gets which message and knows what is outstanding with whom;
//! messages, quota, time to live, handles and counters are the same for all modes and live in [`crate::Queue`].

pub(crate) mod priority;

use mqb_core::{Guid, Sequence};

use crate::consumer::Target;
use crate::store::Stored;

/// A message on its way to a consumer.
pub struct Push<'a> {
    /// The message.
    pub guid: Guid,
    /// Its place in the log.
    pub sequence: Sequence,
    /// Some consumer had it before.
    pub out_of_order: bool,
    /// Its data, to be copied or referenced before the call returns.
    pub data: Stored<'a>,
}

/// Takes the messages that [`crate::Queue::deliver`] hands out.
pub trait Sink {
    /// The message is the target's now, until it confirms or goes.
    fn push(&mut self, target: Target, push: Push<'_>);
}

/// How much one call may hand out, so that one queue does not hold up its neighbours.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Messages left.
    pub messages: usize,
    /// May be overshot by one message. **Units**: bytes of application data.
    pub bytes: usize,
}

impl Budget {
    pub(crate) fn is_used_up(&self) -> bool {
        self.messages == 0 || self.bytes == 0
    }

    pub(crate) fn take(&mut self, len: u32) {
        self.messages -= 1;
        self.bytes = self.bytes.saturating_sub(len as usize);
    }
}

/// Why [`crate::Queue::deliver`] stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// Nothing is left to hand out.
    Drained,
    /// Messages wait, and every consumer of the highest priority is full or paused, or there is none.
    NoConsumer,
    /// The budget is used up: call again.
    More,
    /// The store is reading the next message: call again when it says so.
    Stalled,
}
