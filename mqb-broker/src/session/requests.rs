//! Requests of a peer: judged, sent where they belong, answered.
//!
//! Requests about one queue number are worked off one at a time, in order; different queue numbers do not wait for each
//! other. So answers about one queue come in the order of the requests, and a request that was sent behind an open (or a
//! close) without waiting for its answer finds the state it expects.

use std::collections::VecDeque;

use hashbrown::HashMap;
use mqb_core::WireQueueId;
use mqb_core::control::{
    AdminResponse, Category, CloseQueue, ConfigureQueueStream, ConfigureQueueStreamResponse,
    ConfigureStream, ConfigureStreamResponse, ControlBody, ControlMessage, Empty, OpenQueue,
    OpenQueueResponse, RoutingConfiguration, Status, decode_event,
};
use mqb_core::wire::Event as WireEvent;
use mqb_dispatcher::{Cx, Handle, Monotonic};

use super::client::{Phase, Session};
use super::streams::{ClosePlan, ConfigurePlan, OpenPlan};
use crate::admin::command::{self, Command, Style};
use crate::event::{
    Answer, CloseCall, CloseScope, Closed, ConfigureCall, Configured, Event, OpenCall, Opened,
    OpenedQueue, Query, QueryRequest, Refusal,
};

/// What waiting requests of one connection may hold. **Units**: bytes, as received.
const WAITING_BYTES_MAX: usize = 8 << 20;
/// Commands of one admin session that may wait for their answers.
const QUESTIONS_MAX: usize = 64;

/// A request about one queue number.
#[derive(Debug)]
enum Request {
    Open(OpenQueue),
    Configure(ConfigureStream),
    ConfigureLegacy(ConfigureQueueStream),
    Close(CloseQueue),
}

impl Request {
    fn queue(&self) -> WireQueueId {
        WireQueueId(match self {
            Self::Open(request) => request.handle_parameters.q_id,
            Self::Configure(request) => request.q_id,
            Self::ConfigureLegacy(request) => request.q_id,
            Self::Close(request) => request.handle_parameters.q_id,
        })
    }
}

/// A request that was received.
#[derive(Debug)]
struct Asked {
    rid: i32,
    request: Request,
    /// Set once, at reception.
    deadline: Monotonic,
    bytes: usize,
}

/// What is under way, and what to answer with.
#[derive(Debug)]
enum Work {
    Open(OpenPlan, OpenQueue),
    Configure(ConfigurePlan, ConfigureStream),
    ConfigureLegacy(ConfigurePlan, ConfigureQueueStream),
    Close(ClosePlan),
    /// Takes back an open that succeeded after its peer was told that it did not.
    Undo,
}

/// A request that a queue, partition or the registry works on.
#[derive(Debug)]
struct Call {
    rid: i32,
    queue: WireQueueId,
    deadline: Monotonic,
    work: Work,
    /// The peer was told that it takes too long.
    is_expired: bool,
}

/// Requests in work and waiting. Owned by: the session's processor.
#[derive(Debug, Default)]
pub(super) struct Requests {
    calls: HashMap<u64, Call>,
    /// Has an entry exactly for the queue numbers that a call is in work for.
    waiting: HashMap<WireQueueId, VecDeque<Asked>>,
    waiting_count: usize,
    waiting_bytes: usize,
    next_call: u64,
}

impl Requests {
    /// Whether nothing is in work; then nothing waits either.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether an open is in work, whose partition is not known yet.
    pub(super) fn has_open(&self) -> bool {
        self.calls
            .values()
            .any(|call| matches!(call.work, Work::Open(..)))
    }

    /// Whether a queue number is being opened, or will be.
    pub(super) fn is_opening(&self, queue: WireQueueId) -> bool {
        let in_work = |call: &Call| {
            call.queue == queue && !call.is_expired && matches!(call.work, Work::Open(..))
        };
        self.calls.values().any(in_work)
            || self.waiting.get(&queue).is_some_and(|waiting| {
                waiting
                    .iter()
                    .any(|asked| matches!(asked.request, Request::Open(_)))
            })
    }

    /// Forgets what is not in work yet.
    pub(super) fn drop_waiting(&mut self) {
        self.waiting.values_mut().for_each(VecDeque::clear);
        self.waiting_count = 0;
        self.waiting_bytes = 0;
    }

    fn begin(&mut self, call: Call) -> u64 {
        self.next_call += 1;
        self.waiting.entry(call.queue).or_default();
        self.calls.insert(self.next_call, call);
        self.next_call
    }

    fn next_waiting(&mut self, queue: WireQueueId) -> Option<Asked> {
        let asked = self.waiting.get_mut(&queue)?.pop_front()?;
        self.forget(&asked);
        Some(asked)
    }

    fn forget(&mut self, asked: &Asked) {
        self.waiting_count -= 1;
        self.waiting_bytes -= asked.bytes;
    }
}

impl Session {
    /// One control event of a negotiated peer.
    pub(super) fn control(&mut self, cx: &mut Cx<'_, Event>, event: &WireEvent<'_>) {
        let message = match decode_event::<ControlMessage>(event) {
            Ok(message) => message,
            Err(error) => return self.odd(cx, &format!("control document: {error}")),
        };
        let Some(rid) = message.rid.filter(|rid| *rid >= 0) else {
            return self.odd(cx, "request without a number");
        };
        let bytes = event.header.length;
        match (self.phase, message.body) {
            (Phase::Admin, ControlBody::AdminCommand(request)) => {
                self.admin_command(cx, rid, &request.command)
            }
            (Phase::Admin, _) => self.odd(cx, "request from an administrator"),
            (_, ControlBody::AdminCommand(_)) => {
                self.refuse(
                    rid,
                    Refusal::new(Category::Refused, "only administrators send commands"),
                );
            }
            (_, ControlBody::Disconnect(_)) => {
                self.disconnect_rid = Some(rid);
                self.leave(cx, "disconnect");
            }
            (_, ControlBody::OpenQueue(request)) => {
                self.ask(cx, rid, Request::Open(request), bytes)
            }
            (_, ControlBody::ConfigureStream(request)) => {
                self.ask(cx, rid, Request::Configure(request), bytes)
            }
            (_, ControlBody::ConfigureQueueStream(request)) => {
                self.ask(cx, rid, Request::ConfigureLegacy(request), bytes)
            }
            (_, ControlBody::CloseQueue(request)) => {
                self.ask(cx, rid, Request::Close(request), bytes)
            }
            _ => self.odd(cx, "control document that is no request"),
        }
    }

    pub(super) fn refuse(&mut self, rid: i32, mut refusal: Refusal) {
        // The official SDK takes the one for its own cancellation and hangs, and the other for success.
        if matches!(refusal.category, Category::Canceled | Category::Success) {
            refusal.category = Category::Unknown;
        }
        self.answer(rid, ControlBody::Status(Status::from(refusal)));
    }

    fn ask(&mut self, cx: &mut Cx<'_, Event>, rid: i32, request: Request, bytes: usize) {
        let deadline = cx.now() + self.settings().request_timeout;
        let queue = request.queue();
        let asked = Asked {
            rid,
            request,
            deadline,
            bytes,
        };
        let requests = &mut self.requests;
        let count = requests.calls.len() + requests.waiting_count;
        if count >= self.context.settings.requests_max
            || requests.waiting_bytes + bytes > WAITING_BYTES_MAX
        {
            return self.refuse(
                rid,
                Refusal::new(Category::Refused, "too many requests in work"),
            );
        }
        match requests.waiting.get_mut(&queue) {
            Some(waiting) => {
                requests.waiting_count += 1;
                requests.waiting_bytes += bytes;
                waiting.push_back(asked);
            }
            None => {
                self.start(cx, asked);
            }
        }
    }

    /// Starts what waits for a queue number that has become free.
    fn go_on(&mut self, cx: &mut Cx<'_, Event>, queue: WireQueueId) {
        while let Some(asked) = self.requests.next_waiting(queue) {
            if self.start(cx, asked) {
                return;
            }
        }
        self.requests.waiting.remove(&queue);
    }

    /// Judges a request and sends it on its way, or answers it at once. Returns whether it is under way.
    fn start(&mut self, cx: &mut Cx<'_, Event>, asked: Asked) -> bool {
        let Asked {
            rid,
            request,
            deadline,
            ..
        } = asked;
        let queue = request.queue();
        let begun = match request {
            Request::Open(request) => self.start_open(request),
            Request::Configure(request) => self.start_configure(request),
            Request::ConfigureLegacy(request) => self.start_configure_legacy(request),
            Request::Close(request) => self.start_close(&request),
        };
        match begun {
            Ok(Begun::Work(work)) => {
                // What the peer sent before the request reaches the queue before it.
                self.deliver(cx);
                let call = self.requests.begin(Call {
                    rid,
                    queue,
                    deadline,
                    work,
                    is_expired: false,
                });
                self.post_call(cx, call);
                true
            }
            Ok(Begun::Answer(body)) => {
                self.answer(rid, body);
                false
            }
            Err(refusal) => {
                self.refuse(rid, refusal);
                false
            }
        }
    }

    fn start_open(&mut self, request: OpenQueue) -> Result<Begun, Refusal> {
        let plan = self
            .queues
            .check_open(&request.handle_parameters, &self.context.settings)?;
        Ok(Begun::Work(Work::Open(plan, request)))
    }

    fn start_configure(&mut self, request: ConfigureStream) -> Result<Begun, Refusal> {
        let plan = self.queues.check_configure(&request)?;
        if plan.is_trivial {
            return Ok(Begun::Answer(ControlBody::ConfigureStreamResponse(
                ConfigureStreamResponse { request },
            )));
        }
        Ok(Begun::Work(Work::Configure(plan, request)))
    }

    fn start_configure_legacy(&mut self, request: ConfigureQueueStream) -> Result<Begun, Refusal> {
        let plan = self.queues.check_configure_legacy(&request)?;
        if plan.is_trivial {
            return Ok(Begun::Answer(ControlBody::ConfigureQueueStreamResponse(
                ConfigureQueueStreamResponse { request },
            )));
        }
        Ok(Begun::Work(Work::ConfigureLegacy(plan, request)))
    }

    fn start_close(&mut self, request: &CloseQueue) -> Result<Begun, Refusal> {
        let plan = self
            .queues
            .check_close(&request.handle_parameters, request.is_final)?;
        self.queues.closing(&plan);
        Ok(Begun::Work(Work::Close(plan)))
    }

    fn post_call(&mut self, cx: &mut Cx<'_, Event>, call: u64) {
        let Some(Call { queue, work, .. }) = self.requests.calls.get(&call) else {
            return;
        };
        let (session, queue) = (self.id, *queue);
        let target = self.queues.get(queue).map(|open| open.target.clone());
        let event = match work {
            Work::Open(plan, _) => {
                let event = self.open_event(call, plan);
                return cx.post(&self.context.registry, event);
            }
            Work::Configure(plan, _) | Work::ConfigureLegacy(plan, _) => {
                Event::Configure(Box::new(ConfigureCall {
                    session,
                    queue,
                    sub_id: plan.sub_id,
                    call,
                    subscriptions: plan.subscriptions.clone(),
                }))
            }
            Work::Close(plan) => Event::Close(Box::new(CloseCall {
                session,
                queue,
                call,
                scope: plan.scope,
            })),
            Work::Undo => return,
        };
        // The plan was made from the open queue.
        if let Some(target) = target {
            cx.post(&target, event);
        }
    }

    fn open_event(&self, call: u64, plan: &OpenPlan) -> Event {
        Event::Open(Box::new(OpenCall {
            session: self.id,
            reply: self.me.clone(),
            description: self.description().into(),
            call,
            uri: plan.uri.clone(),
            queue: plan.queue,
            sub_id: plan.sub_id,
            app_id: plan.app_id.clone(),
            read_count: plan.read_count,
            write_count: plan.write_count,
        }))
    }

    /// The answer to an open.
    pub(super) fn opened(&mut self, cx: &mut Cx<'_, Event>, answer: Opened) {
        let Some(call) = self.requests.calls.remove(&answer.call) else {
            return;
        };
        let Call {
            rid,
            queue,
            deadline,
            work: Work::Open(plan, request),
            is_expired,
        } = call
        else {
            return;
        };
        match answer.result {
            Ok(opened) => {
                self.note_partition(cx, &opened.partition);
                if self.phase == Phase::Lost {
                    // The partition forgets the handle when it is told that the session ended.
                } else if is_expired {
                    self.undo_open(cx, queue, deadline, &plan, &opened.queue);
                    return;
                } else {
                    self.answer_open(rid, plan, request, opened);
                }
            }
            Err(refusal) if !is_expired => self.refuse(rid, refusal),
            Err(_) => {}
        }
        self.after_answer(cx, queue);
    }

    fn answer_open(&mut self, rid: i32, plan: OpenPlan, request: OpenQueue, opened: OpenedQueue) {
        self.queues.opened(plan, opened.queue);
        let response = OpenQueueResponse {
            original_request: request,
            routing_configuration: RoutingConfiguration {
                flags: opened.routing_flags,
            },
            deduplication_time_ms: opened.deduplication_ms,
        };
        self.answer(rid, ControlBody::OpenQueueResponse(response));
    }

    fn note_partition(&mut self, cx: &mut Cx<'_, Event>, partition: &Handle<Event>) {
        if !self.partitions.contains(partition) {
            self.partitions.push(partition.clone());
            if self.is_paused {
                cx.post(partition, Event::Paused { session: self.id });
            }
        }
    }

    fn undo_open(
        &mut self,
        cx: &mut Cx<'_, Event>,
        queue: WireQueueId,
        deadline: Monotonic,
        plan: &OpenPlan,
        target: &Handle<Event>,
    ) {
        let call = self.requests.begin(Call {
            rid: 0,
            queue,
            deadline,
            work: Work::Undo,
            is_expired: true,
        });
        let scope = CloseScope::Stream {
            sub_id: plan.sub_id,
            read_count: plan.read_count,
            write_count: plan.write_count,
        };
        cx.post(
            target,
            Event::Close(Box::new(CloseCall {
                session: self.id,
                queue,
                call,
                scope,
            })),
        );
    }

    /// The answer to a configure. What is pushed from here on is pushed under the new subscriptions.
    pub(super) fn configured(&mut self, cx: &mut Cx<'_, Event>, answer: Configured) {
        let Some(call) = self.requests.calls.remove(&answer.call) else {
            return;
        };
        let (plan, body) = match call.work {
            Work::Configure(plan, request) => (
                plan,
                ControlBody::ConfigureStreamResponse(ConfigureStreamResponse { request }),
            ),
            Work::ConfigureLegacy(plan, request) => (
                plan,
                ControlBody::ConfigureQueueStreamResponse(ConfigureQueueStreamResponse { request }),
            ),
            Work::Open(..) | Work::Close(_) | Work::Undo => return,
        };
        match answer.result {
            Ok(()) => {
                self.queues.configured(&plan);
                self.answer(call.rid, body);
            }
            Err(refusal) => self.refuse(call.rid, refusal),
        }
        self.after_answer(cx, call.queue);
    }

    /// The answer to a close. All ACKs of the queue are in the output already and go out before the answer.
    pub(super) fn closed(&mut self, cx: &mut Cx<'_, Event>, answer: Closed) {
        let Some(call) = self.requests.calls.remove(&answer.call) else {
            return;
        };
        if let Work::Close(plan) = call.work {
            self.queues.closed(&plan);
            match answer.result {
                Ok(()) => self.answer(call.rid, ControlBody::CloseQueueResponse(Empty {})),
                Err(refusal) => self.refuse(call.rid, refusal),
            }
        }
        self.after_answer(cx, call.queue);
    }

    fn after_answer(&mut self, cx: &mut Cx<'_, Event>, queue: WireQueueId) {
        self.go_on(cx, queue);
        self.resume_input(cx);
        self.say_farewell(cx);
    }

    /// Answers what takes too long.
    ///
    /// An open can be taken back if it succeeds after all. A configure or a close cannot: the peer would not know which
    /// subscriptions hold, so its connection ends and it begins anew.
    pub(super) fn expire_requests(&mut self, cx: &mut Cx<'_, Event>) {
        let now = cx.now();
        self.expire_questions(now);
        let mut late = Vec::new();
        let mut is_stuck = false;
        for call in self
            .requests
            .calls
            .values_mut()
            .filter(|call| !call.is_expired && call.deadline <= now)
        {
            match call.work {
                Work::Open(..) => {
                    call.is_expired = true;
                    late.push(call.rid);
                }
                _ => is_stuck = true,
            }
        }
        if is_stuck {
            return self.lose(cx, "a queue does not answer");
        }
        let requests = &mut self.requests;
        for waiting in requests.waiting.values_mut() {
            // Deadlines grow along a queue of requests.
            while waiting.front().is_some_and(|asked| asked.deadline <= now) {
                if let Some(asked) = waiting.pop_front() {
                    requests.waiting_count -= 1;
                    requests.waiting_bytes -= asked.bytes;
                    late.push(asked.rid);
                }
            }
        }
        // The maps' order must not reach the wire.
        late.sort_unstable();
        for rid in late {
            self.refuse(
                rid,
                Refusal::new(Category::Timeout, "the queue did not answer in time"),
            );
        }
    }
}

/// How a request begins.
enum Begun {
    /// Somebody has to work on it.
    Work(Work),
    /// It is done already.
    Answer(ControlBody),
}

impl Session {
    /// A line from an operator's tool; the registry answers through an event.
    fn admin_command(&mut self, cx: &mut Cx<'_, Event>, rid: i32, line: &str) {
        let (style, command) = command::parse(line);
        let text = match command {
            Ok(Command::Query(request)) => return self.admin_query(cx, rid, style, request),
            Ok(Command::Help) => command::help(style),
            Ok(Command::Stats) => command::stats(style, &self.context.stats),
            Err(text) => command::error(style, &text),
        };
        self.answer(rid, ControlBody::AdminResponse(AdminResponse { text }));
    }

    fn admin_query(
        &mut self,
        cx: &mut Cx<'_, Event>,
        rid: i32,
        style: Style,
        request: QueryRequest,
    ) {
        if self.questions.len() >= QUESTIONS_MAX {
            let text = command::error(style, "too many commands in work");
            return self.answer(rid, ControlBody::AdminResponse(AdminResponse { text }));
        }
        tracing::info!(
            event = "admin.command",
            session = self.id.0,
            peer = self.description(),
            ?request
        );
        self.requests.next_call += 1;
        let call = self.requests.next_call;
        self.questions.push(Question {
            call,
            rid,
            style,
            deadline: cx.now() + self.settings().request_timeout,
        });
        let me = self.me.clone();
        let reply =
            Box::new(move |answer| me.post(Event::Answer(Box::new(Answer { call, answer }))));
        cx.post(
            &self.context.registry,
            Event::Query(Box::new(Query { request, reply })),
        );
    }

    /// The answer to a question of [`Session::admin_command`].
    pub(super) fn admin_answer(&mut self, answer: &Answer) {
        let Some(index) = self
            .questions
            .iter()
            .position(|question| question.call == answer.call)
        else {
            return;
        };
        let Question { rid, style, .. } = self.questions.swap_remove(index);
        let text = command::render(style, &answer.answer);
        self.answer(rid, ControlBody::AdminResponse(AdminResponse { text }));
    }

    fn expire_questions(&mut self, now: Monotonic) {
        while let Some(index) = self
            .questions
            .iter()
            .position(|question| question.deadline <= now)
        {
            let Question { rid, style, .. } = self.questions.swap_remove(index);
            let text = command::error(style, "no answer in time");
            self.answer(rid, ControlBody::AdminResponse(AdminResponse { text }));
        }
    }
}

/// A command that waits for its answer.
#[derive(Debug)]
pub(super) struct Question {
    call: u64,
    rid: i32,
    style: Style,
    deadline: Monotonic,
}
