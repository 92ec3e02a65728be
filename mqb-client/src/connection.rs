//! The client's side of the protocol as a state machine: events and time in, bytes and callbacks out.
//!
//! Sans-IO: [`crate::io`] moves the bytes, tests feed them by hand. What concerns one queue is in [`crate::slots`].
//!
//! ```text
//! Down -> (Authenticating ->) Negotiating -> Restoring -> Up -> Leaving -> Done
//!   ^                              |             |         |
//!   +------------------------------+-------------+---------+   connection lost
//! ```

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mqb_core::control::{
    self, Authentication, AuthenticationRequest, Category, ClientIdentity, ControlBody,
    ControlMessage, Empty, Encoding, Negotiation, Status,
};
use mqb_core::wire::{
    AckIter, Event, EventKind, FrameLimits, HEARTBEAT_REQUEST, HEARTBEAT_RESPONSE, PushIter,
    frame_length,
};

use crate::ack::{Ack, AckStatus, Completion};
use crate::command::Command;
use crate::error::{Error, Rejection};
use crate::event::SessionEvent;
use crate::heartbeat::{Beat, Heartbeat};
use crate::options::EventHandler;
use crate::outbox::Settled;
use crate::promise::{Promise, lock};
use crate::shared::{Counters, Shared};
use crate::slots::Slots;
use crate::transmit::Transmit;

/// What the driver is to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Continue,
    /// Close the connection and make a new one.
    Reset(String),
    /// The session is over.
    Stop,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Down,
    Authenticating,
    Negotiating,
    /// Queues are being reopened; data is held back.
    Restoring,
    Up,
    /// The disconnect request is out.
    Leaving,
    Done,
}

/// What `Session::connect` waits for.
pub(crate) struct FirstConnect {
    pub(crate) reply: Promise<Result<(), Error>>,
    pub(crate) wait_for_broker: bool,
    pub(crate) address: String,
}

/// What does not change over the life of a session.
pub(crate) struct Config {
    pub(crate) identity: ClientIdentity,
    pub(crate) credential: Option<(String, Vec<u8>)>,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) disconnect_timeout: Duration,
}

/// Owned by: the session's I/O thread.
pub(crate) struct Connection {
    pub(crate) transmit: Transmit,
    shared: Arc<Shared>,
    config: Config,
    phase: Phase,
    /// For the handshake, or for the answer to a disconnect.
    phase_deadline: Option<Instant>,
    first: Option<FirstConnect>,
    slots: Slots,
    heartbeat: Heartbeat,
    on_event: Option<EventHandler>,
    leaving: Vec<Promise<()>>,
    leave_rid: Option<i32>,
    settled: Vec<Settled>,
    acks: Vec<Ack>,
}

impl Connection {
    pub(crate) fn new(
        shared: Arc<Shared>,
        config: Config,
        first: FirstConnect,
        on_event: Option<EventHandler>,
        now: Instant,
    ) -> Connection {
        Connection {
            transmit: Transmit::default(),
            slots: Slots::new(shared.clone(), config.request_timeout),
            shared,
            phase: Phase::Down,
            phase_deadline: Some(now + config.connect_timeout),
            config,
            first: Some(first),
            heartbeat: Heartbeat::off(),
            on_event,
            leaving: Vec::new(),
            leave_rid: None,
            settled: Vec::new(),
            acks: Vec::new(),
        }
    }

    /// The broker has accepted the session on this connection.
    pub(crate) fn is_negotiated(&self) -> bool {
        matches!(self.phase, Phase::Restoring | Phase::Up | Phase::Leaving)
    }

    /// The connection has proved good: the next loss starts with quick attempts again.
    pub(crate) fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Up | Phase::Leaving)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.phase == Phase::Done
    }

    /// When [`Connection::on_time`] has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        [
            self.phase_deadline,
            self.slots.deadline(),
            self.heartbeat.deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The time is `now`.
    pub(crate) fn on_time(&mut self, now: Instant) -> Next {
        if self.phase == Phase::Done {
            return Next::Stop;
        }
        if self.phase_deadline.is_some_and(|at| now >= at) {
            return self.on_phase_timeout();
        }
        if let Some(reason) = self.slots.expire(now) {
            return Next::Reset(reason);
        }
        match self.heartbeat.on_time(now) {
            Beat::Quiet => Next::Continue,
            Beat::Request => {
                self.transmit.push(Bytes::from_static(&HEARTBEAT_REQUEST));
                Next::Continue
            }
            Beat::Dead => Next::Reset("the broker does not answer heartbeats".to_owned()),
        }
    }

    fn on_phase_timeout(&mut self) -> Next {
        self.phase_deadline = None;
        if self.phase == Phase::Leaving {
            tracing::debug!("no answer to the disconnect");
            self.phase = Phase::Done;
            return Next::Stop;
        }
        let after = self.config.connect_timeout;
        if let Some(first) = self.first.take() {
            first.reply.fulfil(Err(Error::Timeout {
                doing: "connecting",
                after,
            }));
            self.phase = Phase::Done;
            return Next::Stop;
        }
        Next::Reset(format!("no answer to the negotiation within {after:?}"))
    }

    /// No connection could be made this time.
    pub(crate) fn on_connect_failed(&mut self, error: &io::Error) {
        if self
            .first
            .as_ref()
            .is_some_and(|first| !first.wait_for_broker)
        {
            if let Some(first) = self.first.take() {
                let source = io::Error::new(error.kind(), error.to_string());
                first.reply.fulfil(Err(Error::Connect {
                    address: first.address,
                    source,
                }));
            }
            self.phase = Phase::Done;
        }
        // A session that is being left does not connect any more.
        if !self.leaving.is_empty() {
            self.phase = Phase::Done;
        }
    }

    /// A connection is there: the client speaks first.
    pub(crate) fn on_connected(&mut self, now: Instant) {
        self.transmit.clear();
        if self.first.is_none() {
            self.phase_deadline = Some(now + self.config.connect_timeout);
        }
        let mut bytes = Vec::new();
        if let Some((mechanism, data)) = &self.config.credential {
            let request = AuthenticationRequest {
                mechanism: mechanism.clone(),
                data: Some(data.clone()),
            };
            control::encode_event(Encoding::Ber, &Authentication::Request(request), &mut bytes);
            self.phase = Phase::Authenticating;
            self.transmit.push(bytes.into());
        } else {
            self.send_identity();
        }
    }

    fn send_identity(&mut self) {
        let mut bytes = Vec::new();
        control::encode_event(
            Encoding::Ber,
            &Negotiation::ClientIdentity(self.config.identity.clone()),
            &mut bytes,
        );
        self.transmit.push(bytes.into());
        self.phase = Phase::Negotiating;
    }

    /// Whole events arrived.
    ///
    /// **Errors**: the connection is of no more use, and why.
    pub(crate) fn on_events(&mut self, block: Bytes, now: Instant) -> Result<(), String> {
        self.heartbeat.note_traffic();
        let mut start = 0;
        while let Ok(Some(length)) = frame_length(&block[start..], &FrameLimits::CLIENT) {
            let Some(frame) = block.get(start..start + length) else {
                break;
            };
            match Event::parse(frame) {
                Ok(event) => self.on_event(&event, &block, start, now)?,
                Err(error) if self.is_negotiated() => tracing::warn!(%error, "event dropped"),
                Err(error) => return Err(error.to_string()),
            }
            start += length;
        }
        self.slots.deliver();
        Ok(())
    }

    fn on_event(
        &mut self,
        event: &Event<'_>,
        block: &Bytes,
        start: usize,
        now: Instant,
    ) -> Result<(), String> {
        match (self.phase, event.header.kind) {
            (Phase::Authenticating, EventKind::Authentication) => self.on_authentication(event),
            (Phase::Negotiating, EventKind::Control) => self.on_negotiation(event, now),
            (Phase::Authenticating | Phase::Negotiating, kind) => {
                Err(format!("unexpected {kind:?} event during the negotiation"))
            }
            (Phase::Down | Phase::Done, _) => Ok(()),
            (_, EventKind::Push) => {
                self.on_push(event, block, start);
                Ok(())
            }
            (_, EventKind::Ack) => {
                self.on_acks(event);
                Ok(())
            }
            (_, EventKind::Control) => self.on_control(event, now),
            (_, EventKind::HeartbeatRequest) => {
                self.transmit.push(Bytes::from_static(&HEARTBEAT_RESPONSE));
                Ok(())
            }
            (_, EventKind::HeartbeatResponse) => Ok(()),
            (_, kind) => {
                tracing::debug!(?kind, "unexpected event ignored");
                Ok(())
            }
        }
    }

    fn on_authentication(&mut self, event: &Event<'_>) -> Result<(), String> {
        match control::decode_event::<Authentication>(event) {
            Ok(Authentication::Response(response))
                if response.status.category == Category::Success =>
            {
                self.send_identity();
                Ok(())
            }
            Ok(Authentication::Response(response)) => {
                self.refused("authenticating", &response.status);
                Err(format!(
                    "authentication refused: {}",
                    rejection(&response.status)
                ))
            }
            Ok(Authentication::Request(_)) => Err("unexpected authentication request".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn on_negotiation(&mut self, event: &Event<'_>, now: Instant) -> Result<(), String> {
        let response = match control::decode_event::<Negotiation>(event) {
            Ok(Negotiation::BrokerResponse(response)) => response,
            Ok(_) => return Err("the broker's first document is not a broker response".to_owned()),
            Err(error) => return Err(error.to_string()),
        };
        if response.result.category != Category::Success {
            self.refused("negotiating", &response.result);
            return Err(format!("session refused: {}", rejection(&response.result)));
        }
        if response.is_deprecated_sdk {
            tracing::warn!("the broker calls this client deprecated");
        }
        self.phase_deadline = None;
        self.heartbeat = Heartbeat::new(
            response.heartbeat_interval_ms,
            response.max_missed_heartbeats,
            now,
        );
        self.phase = Phase::Restoring;
        Counters::add(&self.shared.counters.connections, 1);
        match self.first.take() {
            Some(first) => {
                first.reply.fulfil(Ok(()));
                self.tell(SessionEvent::Connected);
                self.slots.set_features(&response.broker_identity.features);
                self.slots.restore(&mut self.transmit, now);
                self.resume();
            }
            None => {
                self.tell(SessionEvent::Reconnected);
                self.slots.set_features(&response.broker_identity.features);
                self.slots.restore(&mut self.transmit, now);
                self.finish_restoring();
            }
        }
        Ok(())
    }

    /// The first connect fails at once; a later one is tried again.
    fn refused(&mut self, doing: &'static str, status: &Status) {
        if let Some(first) = self.first.take() {
            first.reply.fulfil(Err(Error::Rejected {
                doing,
                rejection: rejection(status),
            }));
            self.phase = Phase::Done;
        }
    }

    fn finish_restoring(&mut self) {
        if self.phase == Phase::Restoring && !self.slots.is_restoring() {
            self.resume();
            self.tell(SessionEvent::StateRestored);
        }
    }

    fn resume(&mut self) {
        self.phase = Phase::Up;
        lock(&self.shared.inner).outbox.resume();
    }

    fn on_control(&mut self, event: &Event<'_>, now: Instant) -> Result<(), String> {
        let message = match control::decode_event::<ControlMessage>(event) {
            Ok(message) => message,
            Err(error) => {
                tracing::warn!(%error, "control event ignored");
                return Ok(());
            }
        };
        if self.phase == Phase::Leaving && message.rid.is_some() && message.rid == self.leave_rid {
            self.phase = Phase::Done;
            return Ok(());
        }
        // What is delivered so far belongs to the configuration before this answer.
        self.slots.deliver();
        let events = self
            .slots
            .on_answer(message, &mut self.transmit, &mut self.settled, now);
        self.dispatch_settled();
        for event in events {
            self.tell(event);
        }
        self.finish_restoring();
        Ok(())
    }

    fn on_push(&mut self, event: &Event<'_>, block: &Bytes, start: usize) {
        let mut count = 0;
        for push in PushIter::new(event) {
            match push {
                Ok(push) => {
                    let from = start + push.data_offset;
                    count += self
                        .slots
                        .on_push(&push, || block.slice(from..from + push.data.len()));
                }
                Err(error) => tracing::warn!(%error, "rest of a push event dropped"),
            }
        }
        Counters::add(&self.shared.counters.received, count);
    }

    fn on_acks(&mut self, event: &Event<'_>) {
        let mut inner = lock(&self.shared.inner);
        for ack in AckIter::new(event) {
            match ack {
                Ok(ack) => {
                    if !inner.outbox.acknowledge(
                        &ack.guid,
                        AckStatus::from(ack.status),
                        &mut self.settled,
                    ) {
                        tracing::debug!(guid = %ack.guid, "acknowledgement for no message that waits");
                    }
                }
                Err(error) => tracing::warn!(%error, "rest of an ack event dropped"),
            }
        }
        inner.outbox.drop_settled_front();
        self.shared.after_settling(inner, &self.settled);
        self.dispatch_settled();
    }

    /// The PUT events up to this one are written.
    pub(crate) fn on_chunk_written(&mut self, chunk: u64) {
        let mut inner = lock(&self.shared.inner);
        inner.outbox.chunk_written(chunk, &mut self.settled);
        self.shared.after_settling(inner, &self.settled);
        self.dispatch_settled();
    }

    /// Hands answers to the application. No lock is held.
    fn dispatch_settled(&mut self) {
        if self.settled.is_empty() {
            return;
        }
        let mut slot = usize::MAX;
        for settled in self.settled.drain(..) {
            match settled.completion {
                Completion::Tag(_) => {
                    if settled.slot != slot {
                        self.slots.give_acks(slot, &mut self.acks);
                        slot = settled.slot;
                    }
                    self.acks.push(settled.ack);
                }
                Completion::Call(call) => call(settled.ack),
                Completion::Receipt(promise) => promise.fulfil(settled.ack),
                Completion::Unrequested | Completion::Done => {}
            }
        }
        self.slots.give_acks(slot, &mut self.acks);
    }

    /// Requests of the application.
    pub(crate) fn on_commands(&mut self, commands: Vec<Command>, now: Instant) {
        for command in commands {
            match command {
                Command::Open {
                    uri,
                    options,
                    deadline,
                    reply,
                } => {
                    let up = self.is_negotiated();
                    self.slots
                        .open(uri, *options, deadline, reply, up, &mut self.transmit, now);
                }
                Command::Configure {
                    slot,
                    consumers,
                    reply,
                } => {
                    self.slots.configure(
                        slot,
                        consumers,
                        reply,
                        self.phase == Phase::Up,
                        &mut self.transmit,
                        now,
                    );
                }
                Command::Close { slot, reply } => {
                    self.slots.close(
                        slot,
                        reply,
                        self.is_negotiated(),
                        &mut self.transmit,
                        &mut self.settled,
                        now,
                    );
                    self.dispatch_settled();
                }
                Command::Disconnect { reply } => self.leave(Some(reply), now),
                Command::Abandon => self.leave(None, now),
            }
        }
    }

    fn leave(&mut self, reply: Option<Promise<()>>, now: Instant) {
        self.leaving.extend(reply);
        match self.phase {
            Phase::Up | Phase::Restoring => {
                let rid = self.slots.next_rid();
                let message = ControlMessage {
                    rid: Some(rid),
                    body: ControlBody::Disconnect(Empty {}),
                };
                let mut bytes = Vec::new();
                control::encode_event(Encoding::Ber, &message, &mut bytes);
                self.transmit.push(bytes.into());
                self.leave_rid = Some(rid);
                self.phase = Phase::Leaving;
                self.phase_deadline = Some(now + self.config.disconnect_timeout);
            }
            Phase::Leaving => {}
            Phase::Down | Phase::Authenticating | Phase::Negotiating | Phase::Done => {
                self.phase = Phase::Done
            }
        }
    }

    /// The connection is gone.
    pub(crate) fn on_lost(&mut self, reason: String) {
        tracing::debug!(%reason, "connection lost");
        let was_up = matches!(self.phase, Phase::Restoring | Phase::Up);
        self.transmit.clear();
        self.heartbeat = Heartbeat::off();
        lock(&self.shared.inner).outbox.suspend();
        match self.phase {
            Phase::Leaving | Phase::Done => self.phase = Phase::Done,
            _ => self.phase = Phase::Down,
        }
        self.slots.on_lost(&mut self.settled);
        self.dispatch_settled();
        if self.first.is_none() {
            self.phase_deadline = None;
        } else {
            let error = io::Error::new(io::ErrorKind::ConnectionAborted, reason.clone());
            self.on_connect_failed(&error);
        }
        if was_up {
            self.tell(SessionEvent::ConnectionLost { reason });
        }
    }

    fn tell(&mut self, event: SessionEvent) {
        if let Some(handler) = &mut self.on_event {
            handler(event);
        }
    }

    /// Gives everybody an answer. The driver leaves behind this call.
    pub(crate) fn end(&mut self) {
        self.phase = Phase::Done;
        let (settled, commands) = self.shared.end();
        self.settled.extend(settled);
        self.slots.deliver();
        self.dispatch_settled();
        self.slots.end();
        self.tell(SessionEvent::Disconnected);
        for promise in self.leaving.drain(..) {
            promise.fulfil(());
        }
        for command in commands {
            if let Command::Disconnect { reply } = command {
                reply.fulfil(());
            }
            // Promises of the others end when they are dropped.
        }
    }
}

/// A broker's refusal in a form that may be shown: its text could hold anything.
pub(crate) fn rejection(status: &Status) -> Rejection {
    const LONGEST: usize = 512;
    let message = status
        .message
        .chars()
        .take(LONGEST)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    Rejection {
        category: status.category.wire_name(),
        code: status.code,
        message,
    }
}
