//! The session client: life and end of one connection.
//!
//! ```text
//! Handshake -> Running -> Leaving -> Lingering -> gone        peer said disconnect, or the broker drains
//!           -> Admin                                          operator's tool
//!           -> Lingering                                      refused: told so, then cut off
//! any of them -> Lost -> gone                                 socket gone; partitions are told and answer
//! ```
//!
//! A session ends in steps, so that nothing of it is in flight when it is gone: pending opens are answered, then every
//! partition in use is told (`SessionEnded`) and answers (`SessionGone`), then the peer gets its disconnectResponse.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mio::net::TcpStream;
use mqb_core::control::{ControlBody, ControlMessage, Document, Empty, Encoding, encode_event};
use mqb_core::limits::PUSH_EVENT_BYTES_MAX;
use mqb_core::wire::{self, EventKind, FrameLimits};
use mqb_core::{GuidGenerator, SessionId};
use mqb_dispatcher::{Client, ClientCore, Cx, Handle, IoToken, Monotonic, Readiness, TimerId};

use super::negotiate::Peer;
use super::output::Output;
use super::put::{Inbound, Judge};
use super::requests::{Question, Requests};
use super::settings::SessionSettings;
use super::streams::Queues;
use crate::event::Event;
use crate::net::conn::Connection;
use crate::net::inbuf::Fill;
use crate::net::listener::{ConnectionPermit, ConnectionStats};

/// What all sessions share.
#[derive(Clone)]
pub struct SessionContext {
    /// Limits and identity.
    pub settings: Arc<SessionSettings>,
    /// Where opens go.
    pub registry: Handle<Event>,
    /// Figures.
    pub stats: Arc<ConnectionStats>,
}

/// Where in its life a session is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Nothing is known of the peer; `authenticated` if it sent credentials.
    Handshake { authenticated: bool },
    /// A producer or consumer at work.
    Running { authenticated: bool },
    /// An operator's tool.
    Admin,
    /// Being wound up with the peer still there: requests are ignored, heartbeats answered.
    Leaving,
    /// All was said; waiting for the peer to close, so that it reads what was said.
    Lingering,
    /// The socket is gone; waiting for the partitions.
    Lost,
}

/// Messages and frames that one turn handles for one connection, so that a flood of tiny ones does not hold up the
/// processor's other clients.
const MESSAGES_PER_TURN: usize = 1024;

/// Frames that were received and are not handled yet.
struct Backlog {
    batch: Bytes,
    at: usize,
    end: usize,
}

/// How far the farewell to the partitions is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Farewell {
    NotSaid,
    /// So many partitions have not answered.
    Said(usize),
}

/// One connection. Owned by: its processor.
pub struct Session {
    core: ClientCore,
    pub(super) id: SessionId,
    pub(super) context: SessionContext,
    pub(super) me: Handle<Event>,
    /// Counts the connection as open for as long as the session lives.
    _permit: Arc<ConnectionPermit>,
    pub(super) address: SocketAddr,
    pub(super) started_at: Monotonic,
    link: Option<Connection>,
    backlog: Option<Backlog>,
    /// Messages that this turn may still handle.
    pub(super) quantum: usize,
    pub(super) output: Output,
    pub(super) phase: Phase,
    pub(super) peer: Option<Peer>,
    pub(super) queues: Queues<Handle<Event>>,
    pub(super) requests: Requests,
    /// Commands of an admin session that wait for their answers.
    pub(super) questions: Vec<Question>,
    /// Partitions that this session has or had queues on.
    pub(super) partitions: Vec<Handle<Event>>,
    pub(super) inbound: Inbound,
    pub(super) judge: Judge,
    pub(super) guids: Option<GuidGenerator>,
    /// PUT data on its way. **Units**: bytes, as charged.
    pub(super) in_flight_bytes: usize,
    /// Partitions were told to push nothing.
    pub(super) is_paused: bool,
    is_draining: bool,
    /// Input waits for a queue that is being opened: a PUT was sent behind the open without waiting for its answer.
    is_stalled: bool,
    /// The disconnect was asked for by the peer and is to be answered, with this request id.
    pub(super) disconnect_rid: Option<i32>,
    farewell: Farewell,
    is_graceful: bool,
    /// Lingering for a peer that said goodbye itself.
    is_goodbye: bool,
    /// The registry knows of this session.
    pub(super) is_announced: bool,
    timer: Option<TimerId>,
    /// Heartbeat requests without anything received since.
    misses: u32,
    bytes_in_at_check: u64,
    /// At the last check the peer had closed and its last bytes could not be taken.
    was_closed_at_check: bool,
    /// Why the connection ends, once that is decided.
    cause: Option<Cow<'static, str>>,
    is_closing_logged: bool,
    /// Odd input was logged; once per connection is enough.
    pub(super) oddity_logged: bool,
}

impl Session {
    /// Takes over an accepted socket.
    pub(crate) fn accept(
        core: ClientCore,
        cx: &mut Cx<'_, Event>,
        id: SessionId,
        stream: TcpStream,
        address: SocketAddr,
        context: SessionContext,
        permit: Arc<ConnectionPermit>,
    ) -> Self {
        let mut session = Self {
            core,
            id,
            me: cx.handle(),
            _permit: permit,
            address,
            started_at: cx.now(),
            link: None,
            backlog: None,
            quantum: 0,
            output: Output::default(),
            phase: Phase::Handshake {
                authenticated: false,
            },
            peer: None,
            queues: Queues::default(),
            requests: Requests::default(),
            questions: Vec::new(),
            partitions: Vec::new(),
            inbound: Inbound::default(),
            judge: Judge::default(),
            guids: None,
            in_flight_bytes: 0,
            is_paused: false,
            is_draining: false,
            is_stalled: false,
            disconnect_rid: None,
            farewell: Farewell::NotSaid,
            is_graceful: false,
            is_goodbye: false,
            is_announced: false,
            timer: None,
            misses: 0,
            bytes_in_at_check: 0,
            was_closed_at_check: false,
            cause: None,
            is_closing_logged: false,
            oddity_logged: false,
            context,
        };
        match Connection::new(stream, address, cx) {
            Ok(link) => {
                session.link = Some(link);
                session.arm(cx, session.settings().handshake_timeout);
            }
            Err(error) => session.lose(cx, error.to_string()),
        }
        session
    }

    pub(super) fn settings(&self) -> &SessionSettings {
        &self.context.settings
    }

    /// How the peer wants its control documents.
    pub(super) fn encoding(&self) -> Encoding {
        self.peer
            .as_ref()
            .map_or(Encoding::Ber, |peer| peer.encoding)
    }

    /// Appends a control document to the output, behind everything gathered so far.
    pub(super) fn send<D: Document>(&mut self, encoding: Encoding, document: &D) {
        if self.link.is_some() {
            self.output.event(|out| {
                encode_event(encoding, document, out);
            });
        }
    }

    /// Answers a request.
    pub(super) fn answer(&mut self, rid: i32, body: ControlBody) {
        self.send(
            self.encoding(),
            &ControlMessage {
                rid: Some(rid),
                body,
            },
        );
    }

    /// Whether input is taken. A session over its budget leaves it in the socket.
    fn may_read(&self) -> bool {
        match self.phase {
            Phase::Lost => false,
            Phase::Lingering | Phase::Leaving => true,
            _ => {
                !self.is_draining
                    && !self.is_stalled
                    && self.in_flight_bytes < self.settings().in_flight_bytes_max
                    // A peer that floods requests without reading answers is not listened to.
                    && self.output.len() < self.settings().output_bytes_max / 2
            }
        }
    }

    /// Works off what was received, or else reads, once, if it may be taken.
    pub(super) fn read(&mut self, cx: &mut Cx<'_, Event>) {
        if !self.may_read() || (self.backlog.is_none() && !self.fill(cx)) {
            return;
        }
        self.take_input(cx);
        let is_more = |link: &Connection| self.backlog.is_some() || link.is_readable();
        if let Some(link) = self
            .link
            .as_ref()
            .filter(|link| self.may_read() && is_more(link))
        {
            link.read_again(cx);
        }
    }

    /// One read. Returns whether something came.
    fn fill(&mut self, cx: &mut Cx<'_, Event>) -> bool {
        let Some(link) = self.link.as_mut().filter(|link| link.is_readable()) else {
            return false;
        };
        match link.fill() {
            Ok(Fill::Full(_) | Fill::Drained(_)) => return true,
            Ok(Fill::Empty) => {}
            Ok(Fill::Eof) => self.lose(cx, "closed by the peer"),
            Err(error) => self.lose(cx, error.to_string()),
        }
        false
    }

    /// Handles the whole frames that were received, as far as one turn goes.
    fn take_input(&mut self, cx: &mut Cx<'_, Event>) {
        self.quantum = MESSAGES_PER_TURN;
        loop {
            let (limits, only_first) = match self.phase {
                // What follows the negotiation in the same read may be larger than what precedes it.
                Phase::Handshake { .. } => (FrameLimits::HANDSHAKE, true),
                _ => (FrameLimits::BROKER, false),
            };
            let Some(link) = &mut self.link else { return };
            if self.phase == Phase::Lingering {
                self.backlog = None;
                return link.discard_input();
            }
            if self.backlog.is_none() {
                match link.take(&limits, only_first) {
                    Ok(Some(frames)) => {
                        self.backlog = Some(Backlog {
                            at: 0,
                            end: frames.end,
                            batch: frames.share(),
                        })
                    }
                    Ok(None) => return,
                    Err(error) => return self.lose(cx, error.to_string()),
                }
            }
            if !self.work_off(cx) {
                return;
            }
        }
    }

    /// Handles frames of the backlog. Returns false if some have to wait.
    fn work_off(&mut self, cx: &mut Cx<'_, Event>) -> bool {
        let Some(Backlog { batch, mut at, end }) = self.backlog.take() else {
            return true;
        };
        self.inbound.begin(&batch);
        while at < end && self.quantum > 0 && !self.is_stalled {
            let length = match wire::frame_length(&batch[at..end], &FrameLimits::BROKER) {
                Ok(Some(length)) => length,
                // Found whole and within limits when they were cut.
                Ok(None) | Err(_) => break,
            };
            self.quantum -= 1;
            if self
                .handle_frame(cx, &batch[at..at + length], at)
                .is_break()
            {
                self.is_stalled = true;
            } else {
                at += length;
            }
        }
        self.deliver(cx);
        self.inbound.end();
        let Some(link) = &mut self.link else {
            return false;
        };
        if at < end {
            self.backlog = Some(Backlog { batch, at, end });
            return false;
        }
        link.go_on(batch, end);
        true
    }

    /// `at` is where the frame lies in the memory of this read. Breaks off, with nothing done, if the frame and what is
    /// behind it have to wait.
    fn handle_frame(&mut self, cx: &mut Cx<'_, Event>, frame: &[u8], at: usize) -> ControlFlow<()> {
        let event = match wire::Event::parse(frame) {
            Ok(event) => event,
            Err(error) => {
                self.odd(cx, &error.to_string());
                return ControlFlow::Continue(());
            }
        };
        match (self.phase, event.header.kind) {
            (Phase::Handshake { authenticated }, _) => self.handshake(cx, &event, authenticated),
            (Phase::Lost | Phase::Lingering, _) => {}
            (_, EventKind::HeartbeatRequest) => self.output.heartbeat_response(),
            (_, EventKind::HeartbeatResponse) | (Phase::Leaving, _) => {}
            (Phase::Running { .. } | Phase::Admin, EventKind::Control) => self.control(cx, &event),
            (Phase::Running { .. }, EventKind::Put) => {
                if self.requests.has_open() && self.is_for_opening_queue(&event) {
                    return ControlFlow::Break(());
                }
                self.puts(cx, &event, at);
            }
            (Phase::Running { .. }, EventKind::Confirm) => self.confirms(cx, &event),
            (Phase::Running { authenticated }, EventKind::Authentication) => {
                self.reauthenticate(cx, &event, authenticated)
            }
            (_, kind) => self.odd(cx, &format!("unexpected event of kind {}", kind.to_wire())),
        }
        ControlFlow::Continue(())
    }

    /// Goes on with input that waited for a queue to be opened.
    pub(super) fn resume_input(&mut self, cx: &mut Cx<'_, Event>) {
        if std::mem::take(&mut self.is_stalled) {
            self.read(cx);
        }
    }

    /// Input that a correct peer does not send: ends a handshake, is dropped later.
    pub(super) fn odd(&mut self, cx: &mut Cx<'_, Event>, what: &str) {
        if matches!(self.phase, Phase::Handshake { .. }) {
            return self.lose(cx, format!("not a valid negotiation: {what}"));
        }
        if !std::mem::replace(&mut self.oddity_logged, true) {
            tracing::warn!(
                event = "session.odd_input",
                session = self.id.0,
                peer = self.description(),
                what,
                "input dropped"
            );
        }
    }

    /// Sends what this read brought to its queues.
    pub(super) fn deliver(&mut self, cx: &mut Cx<'_, Event>) {
        self.in_flight_bytes += self.inbound.deliver(cx, self.id);
    }

    /// For people: who the peer is.
    pub(super) fn description(&self) -> String {
        match &self.peer {
            Some(peer) => peer.description.to_string(),
            None => self.address.to_string(),
        }
    }

    /// Begins the orderly end: whatever is in work is finished, then the partitions are told.
    pub(super) fn leave(&mut self, cx: &mut Cx<'_, Event>, cause: &'static str) {
        if !matches!(self.phase, Phase::Running { .. }) {
            return;
        }
        self.deliver(cx);
        self.phase = Phase::Leaving;
        self.is_stalled = false;
        self.is_graceful = true;
        self.cause.get_or_insert(Cow::Borrowed(cause));
        self.arm(cx, self.settings().farewell_timeout);
        self.say_farewell(cx);
    }

    /// Sends what is gathered, says nothing more and waits for the peer to close.
    pub(super) fn linger(&mut self, cx: &mut Cx<'_, Event>, cause: &'static str) {
        self.phase = Phase::Lingering;
        self.cause.get_or_insert(Cow::Borrowed(cause));
        self.arm(cx, self.settings().linger_timeout);
        cx.link_flush();
    }

    /// The connection is over, whoever's fault it is.
    pub(super) fn lose(&mut self, cx: &mut Cx<'_, Event>, cause: impl Into<Cow<'static, str>>) {
        if self.phase == Phase::Lost {
            return;
        }
        self.cause.get_or_insert(cause.into());
        self.log_end(cx.now());
        if let Some(link) = self.link.take() {
            link.close(cx);
        }
        self.backlog = None;
        // What was handled before the end still counts.
        self.deliver(cx);
        self.output.clear();
        let was = std::mem::replace(&mut self.phase, Phase::Lost);
        match was {
            Phase::Running { .. } | Phase::Leaving => {
                self.requests.drop_waiting();
                self.arm(cx, self.settings().farewell_timeout);
                self.say_farewell(cx);
            }
            _ => self.finish(cx),
        }
    }

    /// Goes on with the end as far as it can: opens in work first, then the partitions, then the peer.
    pub(super) fn say_farewell(&mut self, cx: &mut Cx<'_, Event>) {
        let must_wait = match self.phase {
            Phase::Leaving => !self.requests.is_empty(),
            Phase::Lost => self.requests.has_open(),
            _ => return,
        };
        if must_wait {
            return;
        }
        if self.farewell == Farewell::NotSaid {
            for partition in &self.partitions {
                cx.post(
                    partition,
                    Event::SessionEnded {
                        session: self.id,
                        graceful: self.is_graceful,
                    },
                );
            }
            self.farewell = Farewell::Said(self.partitions.len());
        }
        if self.farewell == Farewell::Said(0) {
            self.farewell_done(cx);
        }
    }

    /// A partition answered the farewell.
    fn partition_gone(&mut self, cx: &mut Cx<'_, Event>) {
        if let Farewell::Said(left) = &mut self.farewell {
            *left = left.saturating_sub(1);
        }
        self.say_farewell(cx);
    }

    /// A partition is not there any more: what is in flight to it will never be answered, so the peer has to begin anew.
    fn partition_lost(&mut self, cx: &mut Cx<'_, Event>, partition: &Handle<Event>) {
        let Some(index) = self.partitions.iter().position(|known| known == partition) else {
            return;
        };
        self.partitions.swap_remove(index);
        if self.farewell == Farewell::NotSaid {
            self.lose(cx, "a partition failed");
        } else {
            self.partition_gone(cx);
        }
    }

    fn farewell_done(&mut self, cx: &mut Cx<'_, Event>) {
        self.queues.clear();
        if self.phase == Phase::Lost {
            return self.finish(cx);
        }
        self.session_down(cx);
        if let Some(rid) = self.disconnect_rid.take() {
            // The peer closes when it has read this; it is used to the broker's side staying open until then.
            self.is_goodbye = true;
            self.answer(rid, ControlBody::DisconnectResponse(Empty {}));
        }
        self.linger(cx, "disconnect");
    }

    /// The session is gone after this turn.
    fn finish(&mut self, cx: &mut Cx<'_, Event>) {
        self.session_down(cx);
        if let Some(timer) = self.timer.take() {
            cx.cancel(timer);
        }
        cx.unregister_self();
    }

    fn session_down(&mut self, cx: &mut Cx<'_, Event>) {
        if std::mem::take(&mut self.is_announced) {
            cx.post(
                &self.context.registry,
                Event::SessionDown { session: self.id },
            );
        }
    }

    /// Each connection has exactly one such line.
    fn log_end(&mut self, now: Monotonic) {
        if std::mem::replace(&mut self.is_closing_logged, true) {
            return;
        }
        let cause: &str = self.cause.as_deref().unwrap_or("unknown");
        let cause = cause.escape_debug();
        let seconds = now.since(self.started_at).as_secs();
        let address = self.address;
        match &self.peer {
            Some(peer) => {
                tracing::info!(event = "session.closed", session = self.id.0, peer = %peer.description, %address, %cause, seconds)
            }
            // Health checks and port scanners come by the thousand.
            None => {
                tracing::debug!(event = "connection.closed", session = self.id.0, %address, %cause, seconds)
            }
        }
    }

    /// Sets the one timer of the session.
    pub(super) fn arm(&mut self, cx: &mut Cx<'_, Event>, after: Duration) {
        if let Some(timer) = self.timer.take() {
            cx.cancel(timer);
        }
        self.timer = Some(cx.schedule(after));
    }

    /// How often a running session looks after itself.
    pub(super) fn check_interval(&self) -> Duration {
        let interval = self.settings().heartbeat_interval;
        if interval.is_zero() {
            Duration::from_secs(3)
        } else {
            interval
        }
    }

    /// Heartbeats, deadlines and stalls of a running session.
    fn check(&mut self, cx: &mut Cx<'_, Event>) {
        let now = cx.now();
        let stall_limit = self.settings().write_stall_timeout;
        let Some(link) = &self.link else { return };
        if link
            .stalled_since()
            .is_some_and(|since| now.since(since) >= stall_limit)
        {
            return self.lose(cx, "the peer does not read");
        }
        if link.is_peer_closed() && !self.may_read() {
            // What it sent before is still wanted, but not for ever.
            if std::mem::replace(&mut self.was_closed_at_check, true) {
                return self.lose(cx, "closed by the peer");
            }
        }
        self.expire_requests(cx);
        if !self.is_alive() {
            return self.lose(cx, "the peer does not answer heartbeats");
        }
        self.arm(cx, self.check_interval());
    }

    /// Counts a miss and asks, if nothing came since the last time.
    fn is_alive(&mut self) -> bool {
        let Some(link) = &self.link else { return true };
        let may_read = self.may_read();
        let is_silent = link.bytes_in == self.bytes_in_at_check;
        self.bytes_in_at_check = link.bytes_in;
        // What we do not read we cannot miss.
        if !is_silent
            || !may_read
            || !self
                .peer
                .as_ref()
                .is_some_and(|peer| peer.answers_heartbeats)
        {
            self.misses = 0;
            return true;
        }
        if self.misses >= self.settings().heartbeat_misses {
            return false;
        }
        self.misses += 1;
        // A question behind output that the peer does not read would only add to it.
        if !link.is_blocked() {
            self.output.heartbeat_request();
        }
        true
    }

    /// Tells the partitions when the output crosses a watermark, and ends a connection whose output has no bound.
    fn watch_output(&mut self, cx: &mut Cx<'_, Event>) {
        let waiting = self.output.len();
        let settings = self.settings();
        if waiting > settings.output_bytes_max + PUSH_EVENT_BYTES_MAX {
            return self.lose(cx, "too much output waits for the peer to read");
        }
        let crossed = if self.is_paused {
            waiting < settings.output_low_bytes
        } else {
            waiting > settings.output_high_bytes
        };
        if crossed {
            self.is_paused = !self.is_paused;
            let session = self.id;
            for partition in &self.partitions {
                let event = if self.is_paused {
                    Event::Paused { session }
                } else {
                    Event::Resumed { session }
                };
                cx.post(partition, event);
            }
        }
    }

    /// Takes no more work; ends when what was accepted is done.
    fn drain(&mut self, cx: &mut Cx<'_, Event>) {
        self.is_draining = true;
        match self.phase {
            Phase::Handshake { .. } => self.lose(cx, "the broker is stopping"),
            Phase::Admin => self.linger(cx, "the broker is stopping"),
            Phase::Running { .. } => self.drain_further(cx),
            Phase::Leaving | Phase::Lingering | Phase::Lost => {}
        }
    }

    /// Ends a draining session once its PUTs are decided.
    pub(super) fn drain_further(&mut self, cx: &mut Cx<'_, Event>) {
        if self.is_draining && self.in_flight_bytes == 0 {
            self.leave(cx, "the broker is stopping");
        }
    }

    fn write(&mut self, cx: &mut Cx<'_, Event>) -> io::Result<()> {
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        let buffer = self.output.sealed();
        link.flush(buffer, cx.now())?;
        if self.phase == Phase::Lingering && !self.is_goodbye && buffer.is_empty() {
            link.shut_down_writing();
        }
        Ok(())
    }
}

impl Client<Event> for Session {
    fn core(&self) -> &ClientCore {
        &self.core
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Event>, event: Event) {
        match event {
            Event::Acks(batch) => self.acks(cx, &batch),
            Event::Pushes(batch) => self.pushes(cx, &batch),
            Event::Opened(answer) => self.opened(cx, *answer),
            Event::Configured(answer) => self.configured(cx, *answer),
            Event::Closed(answer) => self.closed(cx, *answer),
            Event::SessionGone { .. } => self.partition_gone(cx),
            Event::PartitionLost { partition } => self.partition_lost(cx, &partition),
            Event::Superseded { by } => {
                self.lose(cx, format!("replaced by session {by} of the same peer"))
            }
            Event::Answer(answer) => self.admin_answer(&answer),
            Event::Drain => self.drain(cx),
            _ => debug_assert!(false, "not an event for a session"),
        }
    }

    fn on_ready(&mut self, cx: &mut Cx<'_, Event>, _token: IoToken, ready: Readiness) {
        let Some(link) = &mut self.link else { return };
        link.note(ready);
        self.read(cx);
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, Event>, timer: TimerId) {
        if self.timer != Some(timer) {
            return;
        }
        self.timer = None;
        match self.phase {
            Phase::Handshake { .. } => self.lose(cx, "no negotiation within the time for it"),
            Phase::Running { .. } | Phase::Admin => self.check(cx),
            Phase::Lingering => self.lose(cx, "the peer does not close"),
            Phase::Leaving => self.lose(cx, "a partition does not answer"),
            Phase::Lost => {
                tracing::warn!(
                    event = "session.farewell_timeout",
                    session = self.id.0,
                    "a partition does not answer"
                );
                self.finish(cx);
            }
        }
    }

    fn flush(&mut self, cx: &mut Cx<'_, Event>) {
        if self.link.is_none() {
            return;
        }
        match self.write(cx) {
            Ok(()) => self.watch_output(cx),
            Err(error) => self.lose(cx, error.to_string()),
        }
    }

    fn on_stop(&mut self, cx: &mut Cx<'_, Event>) {
        self.drain(cx);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A panic in a handler drops the session without its last line.
        if !self.is_closing_logged {
            let cause = self.cause.as_deref().unwrap_or("dropped");
            tracing::info!(
                event = "session.closed",
                session = self.id.0,
                peer = self.description(),
                cause
            );
        }
    }
}
