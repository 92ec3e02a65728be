//! What the broker answers, and what follows from it.

use std::sync::Arc;
use std::time::Instant;

use mqb_core::control::schema::routing_flags;
use mqb_core::control::{Category, ControlBody, ControlMessage, Status};
use mqb_core::{PropertiesStyle, SubId, WireQueueId};

use super::{CloseReply, Key, Slot, Slots, State, Step};
use crate::ack::AckStatus;
use crate::connection::rejection;
use crate::error::Error;
use crate::event::SessionEvent;
use crate::inbox::{End, Inbox};
use crate::outbox::{Gate, Settled};
use crate::promise::{Promise, lock};
use crate::queue::{Queue, QueueInner};
use crate::transmit::Transmit;

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

    pub(super) fn on_opened(
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

    pub(super) fn on_configured(
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

    pub(super) fn forget_routes(&mut self, index: usize) {
        if let Some(slot) = self.slots[index].as_mut() {
            let routes = std::mem::take(&mut slot.routes);
            self.drop_routes(&routes);
        }
    }

    pub(super) fn finish_opening(
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

    pub(super) fn on_open_refused(
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
    pub(super) fn on_configure_refused(
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
    pub(super) fn fail(
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
