//! What is asked of the broker: opening, configuring, closing.

use std::time::Instant;

use mqb_core::control::{
    self, CloseQueue, ConfigureQueueStream, ConfigureStream, ControlBody, ControlMessage, Encoding,
    OpenQueue, QueueStreamParameters, StreamParameters,
};

use super::delivery::hand_out_acks;
use super::{Canonical, CloseReply, Request, Slot, Slots, State, Step};
use crate::ack::AckStatus;
use crate::error::Error;
use crate::inbox::End;
use crate::options::{ConsumerOptions, OpenOptions};
use crate::outbox::{Gate, Settled};
use crate::promise::{Promise, lock};
use crate::queue::Queue;
use crate::transmit::Transmit;
use crate::uri::QueueUri;

impl Slots {
    pub(super) fn send(
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

    pub(super) fn send_open(&mut self, index: usize, transmit: &mut Transmit, now: Instant) {
        let Some(slot) = self.slots[index].as_ref() else {
            return;
        };
        let body = ControlBody::OpenQueue(OpenQueue {
            handle_parameters: slot.handle_parameters(),
        });
        self.send(index, Step::Open, body, transmit, now);
    }

    pub(super) fn send_configure(
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

    pub(super) fn start_closing(
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

    pub(super) fn send_close(&mut self, index: usize, transmit: &mut Transmit, now: Instant) {
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

    pub(super) fn finish_closing(&mut self, index: usize, settled: &mut Vec<Settled>) {
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
