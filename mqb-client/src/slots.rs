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

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mqb_core::control::schema::{DEFAULT_APP_ID, NO_PRIORITY, queue_flags, routing_flags};
use mqb_core::control::{
    self, Category, CloseQueue, ConfigureQueueStream, ConfigureStream, ConsumerInfo, ControlBody,
    ControlMessage, Encoding, Expression, ExpressionVersion, OpenQueue, QueueHandleParameters,
    QueueStreamParameters, Status, StreamParameters, SubQueueIdInfo, Subscription,
};
use mqb_core::features::Features;
use mqb_core::wire::{Push, PushFlags};
use mqb_core::{PropertiesStyle, SubId, WireQueueId};

use crate::ack::{Ack, AckStatus};
use crate::connection::rejection;
use crate::error::Error;
use crate::event::SessionEvent;
use crate::inbox::{End, Inbox};
use crate::message::Message;
use crate::options::{AckHandler, ConsumerOptions, MessageHandler, OpenOptions};
use crate::outbox::{Gate, Settled};
use crate::promise::{Promise, lock};
use crate::queue::{Queue, QueueInner};
use crate::shared::Shared;
use crate::transmit::Transmit;
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

/// Requests.
impl Slots {
    fn send(
        &mut self,
        slot: usize,
        step: Step,
        body: ControlBody,
        transmit: &mut Transmit,
        now: Instant,
    ) {
        let rid = self.next_rid();
        let mut bytes = Vec::new();
        control::encode_event(
            Encoding::Ber,
            &ControlMessage {
                rid: Some(rid),
                body,
            },
            &mut bytes,
        );
        transmit.push(bytes.into());
        let deadline = now + self.request_timeout;
        self.requests.insert(
            rid,
            Request {
                slot,
                step,
                deadline,
            },
        );
        self.find_deadline();
    }

    /// Opens a queue, now if the session is `up`, else when it is.
    #[expect(
        clippy::too_many_arguments,
        reason = "the fields of one request, and where its bytes go"
    )]
    pub(crate) fn open(
        &mut self,
        uri: QueueUri,
        options: OpenOptions,
        deadline: Instant,
        reply: Promise<Result<Queue, Error>>,
        up: bool,
        transmit: &mut Transmit,
        now: Instant,
    ) {
        if self.slots.iter().flatten().any(|slot| slot.uri == uri) {
            return reply.fulfil(Err(Error::AlreadyOpen {
                uri: uri.to_string(),
            }));
        }
        let next_qid = &mut self.next_qid;
        let canonical = self
            .canonicals
            .entry(uri.canonical().to_owned())
            .or_insert_with(|| {
                let qid = *next_qid;
                *next_qid += 1;
                Canonical {
                    qid,
                    next_sub_id: 1,
                    streams: 0,
                }
            });
        canonical.streams += 1;
        let sub_id = if uri.app_id().is_some() {
            canonical.next_sub_id += 1;
            canonical.next_sub_id - 1
        } else {
            0
        };
        let slot = Slot {
            qid: canonical.qid,
            sub_id,
            uri,
            write: options.write,
            consumers: options.read,
            post_timeout: options.post_timeout,
            on_messages: options.on_messages,
            on_acks: options.on_acks,
            state: State::Opening { reply },
            deadline: Some(deadline),
            at_most_once: false,
            queue: None,
            routes: Vec::new(),
            configures: Vec::new(),
            close: None,
            close_sent: false,
        };
        let index = self.slots.len();
        self.slots.push(Some(Box::new(slot)));
        self.find_deadline();
        if up {
            self.send_open(index, transmit, now);
        }
    }

    fn send_open(&mut self, index: usize, transmit: &mut Transmit, now: Instant) {
        let Some(slot) = self.slots[index].as_ref() else {
            return;
        };
        let body = ControlBody::OpenQueue(OpenQueue {
            handle_parameters: slot.handle_parameters(),
        });
        self.send(index, Step::Open, body, transmit, now);
    }

    fn send_configure(
        &mut self,
        index: usize,
        reply: Option<Promise<Result<(), Error>>>,
        transmit: &mut Transmit,
        now: Instant,
    ) {
        let Some(slot) = self.slots[index].as_ref() else {
            return;
        };
        let (body, routes) = if self.configure_stream {
            let (parameters, routes) = slot.stream_parameters(&mut self.next_subscription);
            (
                ControlBody::ConfigureStream(ConfigureStream {
                    q_id: slot.qid,
                    stream_parameters: parameters,
                }),
                routes,
            )
        } else {
            let parameters = slot.queue_stream_parameters();
            (
                ControlBody::ConfigureQueueStream(ConfigureQueueStream {
                    q_id: slot.qid,
                    stream_parameters: parameters,
                }),
                vec![(slot.qid, slot.sub_id)],
            )
        };
        self.send(
            index,
            Step::Configure { routes, reply },
            body,
            transmit,
            now,
        );
    }

    /// Changes what a consumer takes.
    pub(crate) fn configure(
        &mut self,
        index: usize,
        consumers: Vec<ConsumerOptions>,
        reply: Promise<Result<(), Error>>,
        up: bool,
        transmit: &mut Transmit,
        now: Instant,
    ) {
        let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else {
            return reply.fulfil(Err(Error::QueueClosed));
        };
        match slot.state {
            State::Open if up => {
                slot.consumers = consumers;
                self.send_configure(index, Some(reply), transmit, now);
            }
            State::Open | State::Restoring => {
                slot.consumers = consumers;
                slot.configures.push(reply);
            }
            State::Failed => reply.fulfil(Err(Error::QueueFailed)),
            State::Opening { .. } | State::Closing { .. } => reply.fulfil(Err(Error::QueueClosed)),
        }
    }

    /// Closes a queue. Its posts have left already.
    pub(crate) fn close(
        &mut self,
        index: usize,
        reply: Promise<Result<(), Error>>,
        up: bool,
        transmit: &mut Transmit,
        settled: &mut Vec<Settled>,
        now: Instant,
    ) {
        let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else {
            return reply.fulfil(Err(Error::QueueClosed));
        };
        match slot.state {
            State::Open if up => {
                self.start_closing(index, CloseReply::Close(reply), Ok(()), transmit, now)
            }
            State::Restoring if up => slot.close = Some(reply),
            State::Closing { .. } => reply.fulfil(Err(Error::QueueClosed)),
            _ => {
                slot.state = State::Closing {
                    reply: CloseReply::Close(reply),
                    outcome: Ok(()),
                };
                self.finish_closing(index, settled);
            }
        }
    }

    fn start_closing(
        &mut self,
        index: usize,
        reply: CloseReply,
        outcome: Result<(), Error>,
        transmit: &mut Transmit,
        now: Instant,
    ) {
        let Some(slot) = self.slots[index].as_mut() else {
            return;
        };
        slot.state = State::Closing { reply, outcome };
        slot.deadline = None;
        if slot.routes.is_empty() {
            return self.send_close(index, transmit, now);
        }
        let app_id = slot.app_id().to_owned();
        let body = if self.configure_stream {
            let stream_parameters = StreamParameters {
                app_id,
                subscriptions: Vec::new(),
            };
            ControlBody::ConfigureStream(ConfigureStream {
                q_id: slot.qid,
                stream_parameters,
            })
        } else {
            let stream_parameters = QueueStreamParameters {
                sub_id_info: slot.sub_id_info(),
                ..QueueStreamParameters::default()
            };
            ControlBody::ConfigureQueueStream(ConfigureQueueStream {
                q_id: slot.qid,
                stream_parameters,
            })
        };
        self.send(index, Step::Deconfigure, body, transmit, now);
    }

    fn send_close(&mut self, index: usize, transmit: &mut Transmit, now: Instant) {
        let Some(slot) = self.slots[index].as_mut() else {
            return;
        };
        slot.close_sent = true;
        let (qid, handle_parameters) = (slot.qid, slot.handle_parameters());
        let others = self
            .slots
            .iter()
            .flatten()
            .filter(|slot| slot.qid == qid && slot.is_held())
            .count();
        let body = ControlBody::CloseQueue(CloseQueue {
            handle_parameters,
            is_final: others == 0,
        });
        self.send(index, Step::Close, body, transmit, now);
    }

    fn finish_closing(&mut self, index: usize, settled: &mut Vec<Settled>) {
        let mut inner = lock(&self.shared.inner);
        inner
            .outbox
            .cancel_queue(index, Gate::Closed, AckStatus::Canceled, settled);
        self.shared.after_settling(inner, settled);
        let Some(slot) = self.slots[index].as_ref() else {
            return;
        };
        if let Some(queue) = &slot.queue {
            queue.inner.inbox.clear();
            queue.inner.inbox.set_end(Some(End::QueueClosed));
        }
        // The handler must still get what was settled just now, so the slot goes when that is handed out.
        if let Some(slot) = self.remove(index) {
            let slot = *slot;
            if let Some(mut handler) = slot.on_acks {
                hand_out_acks(index, settled, &mut handler);
            }
            for reply in slot.configures {
                reply.fulfil(Err(Error::QueueClosed));
            }
            match slot.state {
                State::Closing {
                    reply: CloseReply::Close(reply),
                    outcome,
                } => reply.fulfil(outcome),
                State::Closing {
                    reply: CloseReply::Open(reply),
                    outcome,
                } => {
                    reply.fulfil(Err(outcome.err().unwrap_or(Error::QueueClosed)));
                }
                _ => {}
            }
        }
        self.find_deadline();
    }
}

/// Answers.
impl Slots {
    /// The broker answered a request. Returns what the application should hear of.
    pub(crate) fn on_answer(
        &mut self,
        message: ControlMessage,
        transmit: &mut Transmit,
        settled: &mut Vec<Settled>,
        now: Instant,
    ) -> Vec<SessionEvent> {
        let Some(request) = message.rid.and_then(|rid| self.requests.remove(&rid)) else {
            tracing::debug!(rid = ?message.rid, "answer to no request");
            return Vec::new();
        };
        self.find_deadline();
        let index = request.slot;
        let refusal = match &message.body {
            ControlBody::Status(status) if status.category != Category::Success => {
                Some(status.clone())
            }
            _ => None,
        };
        if self.slots[index].is_none() {
            // The application gave up on the open; what the broker opened is forgotten with the connection.
            return Vec::new();
        }
        let mut events = Vec::new();
        match (request.step, refusal) {
            (Step::Open, None) => self.on_opened(index, &message.body, transmit, &mut events, now),
            (Step::Open, Some(status)) => {
                self.on_open_refused(index, &status, settled, &mut events)
            }
            (Step::Configure { routes, reply }, None) => {
                self.on_configured(index, routes, reply, transmit, &mut events, now)
            }
            (Step::Configure { reply, .. }, Some(status)) => {
                self.on_configure_refused(
                    index,
                    reply,
                    &status,
                    transmit,
                    settled,
                    &mut events,
                    now,
                );
            }
            (Step::Deconfigure, _) => {
                self.forget_routes(index);
                self.send_close(index, transmit, now);
            }
            (Step::Close, refusal) => {
                if let (
                    Some(Slot {
                        state: State::Closing { outcome, .. },
                        ..
                    }),
                    Some(status),
                ) = (self.slots[index].as_deref_mut(), refusal)
                    && outcome.is_ok()
                {
                    *outcome = Err(Error::Rejected {
                        doing: "closing a queue",
                        rejection: rejection(&status),
                    });
                }
                self.finish_closing(index, settled);
            }
        }
        events
    }

    fn on_opened(
        &mut self,
        index: usize,
        body: &ControlBody,
        transmit: &mut Transmit,
        events: &mut Vec<SessionEvent>,
        now: Instant,
    ) {
        let Some(slot) = self.slots[index].as_mut() else {
            return;
        };
        if let ControlBody::OpenQueueResponse(response) = body {
            slot.at_most_once =
                response.routing_configuration.flags & routing_flags::AT_MOST_ONCE != 0;
        }
        if slot.consumers.is_empty() {
            self.finish_opening(index, transmit, events, now);
        } else {
            self.send_configure(index, None, transmit, now);
        }
    }

    fn on_configured(
        &mut self,
        index: usize,
        routes: Vec<Key>,
        reply: Option<Promise<Result<(), Error>>>,
        transmit: &mut Transmit,
        events: &mut Vec<SessionEvent>,
        now: Instant,
    ) {
        self.forget_routes(index);
        for (subscription, key) in routes.iter().enumerate() {
            // The schema bounds the number of subscriptions far below this.
            self.routes.insert(
                *key,
                (index, u16::try_from(subscription).unwrap_or(u16::MAX)),
            );
        }
        let Some(slot) = self.slots[index].as_mut() else {
            return;
        };
        slot.routes = routes;
        if let Some(reply) = reply {
            reply.fulfil(Ok(()));
        }
        if matches!(slot.state, State::Opening { .. } | State::Restoring) {
            self.finish_opening(index, transmit, events, now);
        }
    }

    fn forget_routes(&mut self, index: usize) {
        if let Some(slot) = self.slots[index].as_mut() {
            let routes = std::mem::take(&mut slot.routes);
            self.drop_routes(&routes);
        }
    }

    fn finish_opening(
        &mut self,
        index: usize,
        transmit: &mut Transmit,
        events: &mut Vec<SessionEvent>,
        now: Instant,
    ) {
        let style = if self.new_style {
            PropertiesStyle::New
        } else {
            PropertiesStyle::Old
        };
        let Some(slot) = self.slots[index].as_mut() else {
            return;
        };
        slot.deadline = None;
        let queue = slot.queue.get_or_insert_with(|| Queue {
            inner: Arc::new(QueueInner {
                shared: self.shared.clone(),
                slot: index,
                uri: slot.uri.to_string(),
                wire: WireQueueId(slot.qid),
                sub_id: SubId(slot.sub_id),
                style,
                write: slot.write,
                read: !slot.consumers.is_empty(),
                at_most_once: slot.at_most_once,
                post_timeout: slot.post_timeout,
                request_timeout: self.request_timeout,
                inbox: Inbox::default(),
            }),
        });
        queue.inner.inbox.set_end(None);
        let queue = queue.clone();
        let closing = slot.close.take();
        let gate = if closing.is_some() {
            Gate::Closed
        } else {
            Gate::Open
        };
        lock(&self.shared.inner).outbox.set_gate(index, gate);
        for reply in slot.configures.drain(..) {
            reply.fulfil(Ok(()));
        }
        match std::mem::replace(&mut slot.state, State::Open) {
            State::Opening { reply } => reply.fulfil(Ok(queue)),
            _ => events.push(SessionEvent::QueueReopened {
                uri: slot.uri.to_string(),
            }),
        }
        if let Some(reply) = closing {
            self.start_closing(index, CloseReply::Close(reply), Ok(()), transmit, now);
        }
        self.find_deadline();
    }

    fn on_open_refused(
        &mut self,
        index: usize,
        status: &Status,
        settled: &mut Vec<Settled>,
        events: &mut Vec<SessionEvent>,
    ) {
        let refusal = rejection(status);
        if matches!(
            self.slots[index].as_deref(),
            Some(Slot {
                state: State::Restoring,
                ..
            })
        ) {
            return self.fail(index, status, settled, events);
        }
        self.give_up_opening(
            index,
            Error::Rejected {
                doing: "opening a queue",
                rejection: refusal,
            },
        );
        self.find_deadline();
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one answer and where its consequences go"
    )]
    fn on_configure_refused(
        &mut self,
        index: usize,
        reply: Option<Promise<Result<(), Error>>>,
        status: &Status,
        transmit: &mut Transmit,
        settled: &mut Vec<Settled>,
        events: &mut Vec<SessionEvent>,
        now: Instant,
    ) {
        let error = || Error::Rejected {
            doing: "configuring a queue",
            rejection: rejection(status),
        };
        if let Some(reply) = reply {
            reply.fulfil(Err(error()));
        }
        let Some(slot) = self.slots[index].as_mut() else {
            return;
        };
        match std::mem::replace(&mut slot.state, State::Failed) {
            State::Opening { reply } => {
                self.start_closing(index, CloseReply::Open(reply), Err(error()), transmit, now)
            }
            State::Restoring => {
                slot.state = State::Restoring;
                self.fail(index, status, settled, events);
            }
            state => slot.state = state,
        }
    }

    /// The queue could not be reopened: what waits for it is given up.
    fn fail(
        &mut self,
        index: usize,
        status: &Status,
        settled: &mut Vec<Settled>,
        events: &mut Vec<SessionEvent>,
    ) {
        let Some(slot) = self.slots[index].as_mut() else {
            return;
        };
        slot.state = State::Failed;
        let uri = slot.uri.to_string();
        let closing = slot.close.take();
        for reply in slot.configures.drain(..) {
            reply.fulfil(Err(Error::QueueFailed));
        }
        if let Some(queue) = &slot.queue {
            queue.inner.inbox.set_end(Some(End::QueueFailed));
        }
        let mut inner = lock(&self.shared.inner);
        inner
            .outbox
            .cancel_queue(index, Gate::Failed, AckStatus::Canceled, settled);
        self.shared.after_settling(inner, settled);
        events.push(SessionEvent::QueueReopenFailed {
            uri,
            rejection: rejection(status),
        });
        if let (Some(reply), Some(slot)) = (closing, self.slots[index].as_mut()) {
            slot.state = State::Closing {
                reply: CloseReply::Close(reply),
                outcome: Ok(()),
            };
            self.finish_closing(index, settled);
        }
    }
}

/// Loss and return of the connection.
impl Slots {
    /// Nothing that was on its way will be answered.
    pub(crate) fn on_lost(&mut self, settled: &mut Vec<Settled>) {
        for request in std::mem::take(&mut self.requests).into_values() {
            if let (
                Step::Configure {
                    reply: Some(reply), ..
                },
                Some(slot),
            ) = (request.step, self.slots[request.slot].as_mut())
            {
                slot.configures.push(reply);
            }
        }
        self.routes.clear();
        self.last_route = None;
        self.delivery.messages.clear();
        for index in 0..self.slots.len() {
            let Some(slot) = self.slots[index].as_mut() else {
                continue;
            };
            slot.routes.clear();
            if let Some(queue) = &slot.queue {
                queue.inner.inbox.clear();
            }
            if let Some(reply) = slot.close.take() {
                slot.state = State::Closing {
                    reply: CloseReply::Close(reply),
                    outcome: Ok(()),
                };
            }
            match slot.state {
                // The broker forgot the queue with the connection: that closed it.
                State::Closing { .. } => self.finish_closing(index, settled),
                State::Open | State::Failed => slot.state = State::Restoring,
                State::Opening { .. } | State::Restoring => {}
            }
        }
        self.find_deadline();
    }

    /// The session is there again: opens all queues, those of the past and those that have waited for it.
    pub(crate) fn restore(&mut self, transmit: &mut Transmit, now: Instant) {
        for index in 0..self.slots.len() {
            self.send_open(index, transmit, now);
        }
    }

    /// Whether a queue is still being reopened.
    pub(crate) fn is_restoring(&self) -> bool {
        self.slots
            .iter()
            .flatten()
            .any(|slot| matches!(slot.state, State::Restoring))
    }

    /// The session is over.
    pub(crate) fn end(&mut self) {
        for slot in self.slots.drain(..).flatten() {
            if let Some(queue) = &slot.queue {
                queue.inner.inbox.set_end(Some(End::SessionEnded));
            }
        }
        self.requests.clear();
    }
}

/// Messages and acknowledgements.
impl Slots {
    /// A message arrived; `data` makes its reference-counted slice. Returns for how many subscriptions it was.
    #[inline]
    pub(crate) fn on_push(&mut self, push: &Push<'_>, data: impl Fn() -> Bytes) -> u64 {
        let implicit = push.flags.contains(PushFlags::IMPLICIT_PAYLOAD);
        let (options, format) = match (push.options(), push.format()) {
            (Ok(options), Ok(format)) => (options, format),
            (Ok(options), Err(_)) if implicit => (options, mqb_core::DataFormat::PLAIN),
            (Err(error), _) => {
                tracing::warn!(guid = %push.guid, %error, "message dropped");
                return 0;
            }
            (_, Err(error)) => {
                tracing::warn!(guid = %push.guid, %error, "message dropped");
                return 0;
            }
        };
        let mut count = 0;
        for (id, _) in options.subscriptions() {
            let Some((slot, subscription)) = self.route((push.queue.0, id.0)) else {
                tracing::debug!(
                    queue = push.queue.0,
                    subscription = id.0,
                    "message for no subscription of this session"
                );
                continue;
            };
            if self.delivery.slot != slot {
                self.deliver();
                self.delivery.slot = slot;
            }
            let out_of_order = push.flags.contains(PushFlags::OUT_OF_ORDER);
            self.delivery.messages.push(Message::new(
                push.guid,
                data(),
                format,
                out_of_order,
                subscription,
            ));
            count += 1;
        }
        count
    }

    #[inline]
    fn route(&mut self, key: Key) -> Option<(usize, u16)> {
        match self.last_route {
            Some((last, route)) if last == key => Some(route),
            _ => {
                let route = *self.routes.get(&key)?;
                self.last_route = Some((key, route));
                Some(route)
            }
        }
    }

    /// Hands over what arrived.
    pub(crate) fn deliver(&mut self) {
        if self.delivery.messages.is_empty() {
            return;
        }
        let messages = &mut self.delivery.messages;
        let Some(slot) = self
            .slots
            .get_mut(self.delivery.slot)
            .and_then(Option::as_mut)
        else {
            return messages.clear();
        };
        match (&slot.queue, &mut slot.on_messages) {
            (Some(queue), Some(handler)) => handler(queue, messages),
            (Some(queue), None) => queue.inner.inbox.push(messages),
            (None, _) => {}
        }
        messages.clear();
    }

    /// Hands acknowledgements to a queue's handler and empties `acks`.
    pub(crate) fn give_acks(&mut self, index: usize, acks: &mut Vec<Ack>) {
        if acks.is_empty() {
            return;
        }
        if let Some(handler) = self
            .slots
            .get_mut(index)
            .and_then(Option::as_mut)
            .and_then(|slot| slot.on_acks.as_mut())
        {
            handler(acks);
        }
        acks.clear();
    }
}

/// Takes the tagged answers of one queue out of `settled` and hands them over.
fn hand_out_acks(index: usize, settled: &mut Vec<Settled>, handler: &mut AckHandler) {
    let is_tagged = |settled: &Settled| {
        settled.slot == index && matches!(settled.completion, crate::ack::Completion::Tag(_))
    };
    let acks: Vec<Ack> = settled
        .iter()
        .filter(|settled| is_tagged(settled))
        .map(|settled| settled.ack)
        .collect();
    settled.retain(|settled| !is_tagged(settled));
    if !acks.is_empty() {
        handler(&acks);
    }
}

impl Slot {
    /// Whether the broker has, or may have, a stream open for it that no close is on its way for.
    fn is_held(&self) -> bool {
        !self.close_sent && !matches!(self.state, State::Failed)
    }

    fn app_id(&self) -> &str {
        self.uri.app_id().unwrap_or(DEFAULT_APP_ID)
    }

    fn sub_id_info(&self) -> Option<SubQueueIdInfo> {
        self.uri.app_id().map(|app_id| SubQueueIdInfo {
            sub_id: self.sub_id,
            app_id: app_id.to_owned(),
        })
    }

    fn handle_parameters(&self) -> QueueHandleParameters {
        // A reader stays one while it is paused.
        let read =
            !self.consumers.is_empty() || self.queue.as_ref().is_some_and(|queue| queue.inner.read);
        QueueHandleParameters {
            uri: self.uri.to_string(),
            q_id: self.qid,
            sub_id_info: self.sub_id_info(),
            flags: if read { queue_flags::READ } else { 0 }
                | if self.write { queue_flags::WRITE } else { 0 },
            read_count: i32::from(read),
            write_count: i32::from(self.write),
            admin_count: 0,
        }
    }

    fn stream_parameters(&self, next_subscription: &mut u32) -> (StreamParameters, Vec<Key>) {
        let mut routes = Vec::new();
        let subscriptions = self.consumers.iter().map(|consumer| {
            *next_subscription = next_subscription.wrapping_add(1);
            routes.push((self.qid, *next_subscription));
            consumer.subscription(*next_subscription)
        });
        let subscriptions = subscriptions.collect();
        (
            StreamParameters {
                app_id: self.app_id().to_owned(),
                subscriptions,
            },
            routes,
        )
    }

    /// The old form knows one subscription without an expression.
    fn queue_stream_parameters(&self) -> QueueStreamParameters {
        let info = self
            .consumers
            .first()
            .map(ConsumerOptions::info)
            .unwrap_or_default();
        QueueStreamParameters {
            sub_id_info: self.sub_id_info(),
            max_unconfirmed_messages: info.max_unconfirmed_messages,
            max_unconfirmed_bytes: info.max_unconfirmed_bytes,
            consumer_priority: if self.consumers.is_empty() {
                NO_PRIORITY
            } else {
                info.consumer_priority
            },
            consumer_priority_count: info.consumer_priority_count,
        }
    }
}

impl ConsumerOptions {
    fn info(&self) -> ConsumerInfo {
        ConsumerInfo {
            max_unconfirmed_messages: i64::from(self.max_unconfirmed_messages),
            max_unconfirmed_bytes: i64::try_from(self.max_unconfirmed_bytes).unwrap_or(i64::MAX),
            consumer_priority: self.priority,
            consumer_priority_count: 1,
        }
    }

    fn subscription(&self, id: u32) -> Subscription {
        let expression = match &self.expression {
            None => Expression::default(),
            Some(text) => Expression {
                version: ExpressionVersion::Version1,
                text: text.to_string(),
            },
        };
        Subscription {
            s_id: id,
            expression,
            consumers: vec![self.info()],
        }
    }
}
