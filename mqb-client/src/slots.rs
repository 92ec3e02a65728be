//! The queues of a session: opening, configuring, reopening, closing, and where received messages go.
//!
//! ```text
//! Opening -> Open -> Closing -> (gone)
//!    |        |  ^
//!    v        v  |
//! (gone)  Restoring -> Failed     Restoring again at each new connection
//! ```
//!
//! Subscription ids become valid when the broker's answer to the configure request is processed, and the ones before them
//! invalid at the same moment; ids are never used twice.

mod answers;
mod delivery;
mod parameters;
mod reconnect;
mod requests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqb_core::features::Features;

use crate::error::Error;
use crate::message::Message;
use crate::options::{AckHandler, ConsumerOptions, MessageHandler};
use crate::promise::Promise;
use crate::queue::Queue;
use crate::shared::Shared;
use crate::uri::QueueUri;

enum State {
    /// Not open yet.
    Opening {
        reply: Promise<Result<Queue, Error>>,
    },
    Open,
    /// Was open on an earlier connection.
    Restoring,
    /// The broker refused to open it again.
    Failed,
    /// `outcome` is what the application hears when the broker has answered.
    Closing {
        reply: CloseReply,
        outcome: Result<(), Error>,
    },
}

/// Who hears of the end of a close.
enum CloseReply {
    Close(Promise<Result<(), Error>>),
    /// The open failed half-way; the queue is closed again first.
    Open(Promise<Result<Queue, Error>>),
}

struct Slot {
    uri: QueueUri,
    qid: u32,
    sub_id: u32,
    write: bool,
    consumers: Vec<ConsumerOptions>,
    post_timeout: Option<Duration>,
    on_messages: Option<MessageHandler>,
    on_acks: Option<AckHandler>,
    state: State,
    /// For the open as a whole, while there is no connection to ask on.
    deadline: Option<Instant>,
    at_most_once: bool,
    queue: Option<Queue>,
    /// Keys of its subscriptions in `Slots::routes`.
    routes: Vec<Key>,
    /// Reconfigurations that wait for the queue to be open again.
    configures: Vec<Promise<Result<(), Error>>>,
    /// A close that waits for the queue to be open again.
    close: Option<Promise<Result<(), Error>>>,
    /// The broker has been asked to close it.
    close_sent: bool,
}

/// A queue's number and a subscription's (or, in the old form of configuring, the sub-queue's).
type Key = (u32, u32);

/// What an unanswered request is a step of.
enum Step {
    Open,
    Configure {
        routes: Vec<Key>,
        reply: Option<Promise<Result<(), Error>>>,
    },
    /// Before a close.
    Deconfigure,
    Close,
}

struct Request {
    slot: usize,
    step: Step,
    deadline: Instant,
}

/// One number for all streams (app ids) of a queue.
struct Canonical {
    qid: u32,
    next_sub_id: u32,
    streams: usize,
}

/// Messages for one slot that have not been handed over.
#[derive(Default)]
struct Delivery {
    slot: usize,
    messages: Vec<Message>,
}

/// Owned by: the session's I/O thread.
pub(crate) struct Slots {
    shared: Arc<Shared>,
    request_timeout: Duration,
    /// By slot number; numbers are not used again, so that an old handle cannot reach a new queue.
    slots: Vec<Option<Box<Slot>>>,
    canonicals: HashMap<String, Canonical>,
    requests: HashMap<i32, Request>,
    next_rid: i32,
    next_qid: u32,
    next_subscription: u32,
    routes: HashMap<Key, (usize, u16)>,
    last_route: Option<(Key, (usize, u16))>,
    delivery: Delivery,
    new_style: bool,
    configure_stream: bool,
    next_deadline: Option<Instant>,
}

impl Slots {
    pub(crate) fn new(shared: Arc<Shared>, request_timeout: Duration) -> Slots {
        Slots {
            shared,
            request_timeout,
            slots: Vec::new(),
            canonicals: HashMap::new(),
            requests: HashMap::new(),
            next_rid: 0,
            next_qid: 0,
            next_subscription: 0,
            routes: HashMap::new(),
            last_route: None,
            delivery: Delivery::default(),
            new_style: false,
            configure_stream: false,
            next_deadline: None,
        }
    }

    /// What the broker can do on this connection.
    pub(crate) fn set_features(&mut self, text: &str) {
        let features = Features::parse(text);
        self.new_style = features.new_properties;
        self.configure_stream = features.configure_stream;
    }

    /// Request ids run over all requests of a session.
    pub(crate) fn next_rid(&mut self) -> i32 {
        self.next_rid = self.next_rid.checked_add(1).unwrap_or(1);
        self.next_rid
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.next_deadline
    }

    fn find_deadline(&mut self) {
        let requests = self.requests.values().map(|request| request.deadline);
        let opens = self.slots.iter().flatten().filter_map(|slot| slot.deadline);
        self.next_deadline = requests.chain(opens).min();
    }

    /// Ends what took too long. `Some`: an answer is missing, the connection cannot be trusted any more.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<String> {
        if self.next_deadline.is_none_or(|at| now < at) {
            return None;
        }
        let after = self.request_timeout;
        for index in 0..self.slots.len() {
            let late = self.slots[index]
                .as_ref()
                .is_some_and(|slot| slot.deadline.is_some_and(|at| now >= at));
            if late {
                self.give_up_opening(
                    index,
                    Error::Timeout {
                        doing: "opening a queue",
                        after,
                    },
                );
            }
        }
        let missing = self
            .requests
            .values()
            .any(|request| now >= request.deadline);
        self.find_deadline();
        missing.then(|| format!("a request was not answered within {after:?}"))
    }

    fn give_up_opening(&mut self, index: usize, error: Error) {
        if let Some(Slot {
            state: State::Opening { reply },
            ..
        }) = self.remove(index).map(|slot| *slot)
        {
            reply.fulfil(Err(error));
        }
    }

    /// Takes a slot out, with all that refers to it.
    fn remove(&mut self, index: usize) -> Option<Box<Slot>> {
        let slot = self.slots.get_mut(index)?.take()?;
        self.drop_routes(&slot.routes);
        if let Some(canonical) = self.canonicals.get_mut(slot.uri.canonical()) {
            canonical.streams -= 1;
            if canonical.streams == 0 {
                self.canonicals.remove(slot.uri.canonical());
            }
        }
        Some(slot)
    }

    fn drop_routes(&mut self, routes: &[Key]) {
        for key in routes {
            self.routes.remove(key);
        }
        self.last_route = None;
    }
}
