//! The call itself: 64 bytes that hold all that a queue or an expiry test looks at.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::calls::reply::{Answer, Refusal, Reply};
use crate::clock::Monotonic;

/// What kind of request a call is: an index into the pool's [`ClassConfig`](crate::calls::ClassConfig)s.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Class(pub u8);

impl Class {
    /// The class as an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Calls of one session with the same key run one after the other, in the order in which they came.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OrderKey(u16);

impl OrderKey {
    /// No order with any other call.
    pub const NONE: Self = Self(0);

    /// The key of whatever `id` names within the session, a queue say. Two ids may share a key: their calls then wait for each other,
    /// which costs time but breaks nothing.
    pub const fn of(id: u64) -> Self {
        Self((id % 65_535) as u16 + 1)
    }

    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// What the frame says about a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallHeader {
    /// Whose call it is; what [`Exchange::cancel_session`](crate::calls::Exchange::cancel_session) goes by.
    pub session: u64,
    /// The caller's number of the request.
    pub request: u32,
    /// What it is.
    pub class: Class,
    /// What it must not overtake.
    pub order: OrderKey,
    /// How long the caller waits, counted from the receipt. `None` and zero mean for ever.
    pub timeout: Option<Duration>,
}

/// A call's identity and times, without the call: what a reply is sent by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallInfo {
    /// As in the header.
    pub session: u64,
    /// As in the header.
    pub request: u32,
    /// As in the header.
    pub class: Class,
    /// The loop's time when the frame came.
    pub received: Monotonic,
    /// When its handler began; `None` if it has not.
    pub started: Option<Monotonic>,
    /// When its caller gives up; `None` if never.
    pub deadline: Option<Monotonic>,
}

impl CallInfo {
    /// True if an answer at `completed` comes after the deadline.
    pub fn is_late(&self, completed: Monotonic) -> bool {
        self.deadline.is_some_and(|deadline| completed > deadline)
    }
}

/// A slice of a receive buffer that the call keeps alive. 16 bytes.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    buffer: Arc<Vec<u8>>,
    start: u32,
    length: u32,
}

impl Frame {
    /// Bytes `start .. start + length` of `buffer`; `None` if they are not there.
    pub fn new(buffer: Arc<Vec<u8>>, start: u32, length: u32) -> Option<Self> {
        let end = start.checked_add(length)?;
        (end as usize <= buffer.len()).then_some(Self {
            buffer,
            start,
            length,
        })
    }
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = self.start as usize;
        &self.buffer[start..start + self.length as usize]
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum State {
    Waiting,
    Running,
    Answered,
}

/// One request that asks for an answer. `B` is its body, undecoded; `R` the way its reply takes.
///
/// **Layout**: one cache line if body and way take 24 bytes together, as [`Frame`] and [`PostTo`](crate::calls::PostTo) do.
///
/// Answering consumes the call, so it happens at most once:
///
/// ```compile_fail,E0382
/// # use mqb_dispatcher::calls::{InboundCall, Reply};
/// fn twice<R: Reply<Response = u32>>(call: InboundCall<(), R>) {
///     call.respond(1);
///     call.respond(2);
/// }
/// ```
///
/// and dropping it answers [`Answer::Failed`], so it happens at least once. A build with debug assertions panics then (unless it is
/// unwinding already): a handler that forgets its caller is a bug.
#[repr(C, align(64))]
pub struct InboundCall<B, R: Reply> {
    // u64::MAX is never. Written by `receive` only.
    deadline_ns: u64,
    received_ns: u64,
    // Valid once the state says so.
    started_ns: u64,
    session: u64,
    body: B,
    // Taken by whoever answers.
    route: Option<R>,
    request: u32,
    order: OrderKey,
    class: Class,
    state: State,
}

impl<B, R: Reply> InboundCall<B, R> {
    /// A call that has just arrived. `received` is the time of the loop's turn that read the frame's first byte: no clock is read here.
    pub fn receive(header: &CallHeader, body: B, route: R, received: Monotonic) -> Self {
        let received_ns = received.as_nanos();
        let timeout_ns = header.timeout.map_or(0, |timeout| {
            u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)
        });
        Self {
            deadline_ns: match timeout_ns {
                0 => u64::MAX,
                nanos => received_ns.saturating_add(nanos),
            },
            received_ns,
            started_ns: 0,
            session: header.session,
            body,
            route: Some(route),
            request: header.request,
            order: header.order,
            class: header.class,
            state: State::Waiting,
        }
    }

    /// Begins the call on the calling thread, without a pool. If its deadline has passed it is answered instead and `None` returned.
    pub fn start(mut self, now: Monotonic) -> Option<Self> {
        if self.is_expired(now) {
            self.refuse(Refusal::Expired);
            return None;
        }
        self.mark_started(now);
        Some(self)
    }

    /// True if its caller has given up. **Cost**: one compare.
    #[inline]
    pub fn is_expired(&self, now: Monotonic) -> bool {
        self.deadline_ns <= now.as_nanos() && self.deadline_ns != u64::MAX
    }

    /// The request, undecoded.
    pub fn body(&self) -> &B {
        &self.body
    }

    /// Whose call it is.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// What it is.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Identity and times.
    pub fn info(&self) -> CallInfo {
        CallInfo {
            session: self.session,
            request: self.request,
            class: self.class,
            received: Monotonic::from_nanos(self.received_ns),
            started: (self.state == State::Running)
                .then_some(Monotonic::from_nanos(self.started_ns)),
            deadline: (self.deadline_ns != u64::MAX)
                .then_some(Monotonic::from_nanos(self.deadline_ns)),
        }
    }

    /// Answers.
    pub fn respond(self, response: R::Response) {
        self.finish(Answer::Done(response));
    }

    /// Answers that it was not started, and why.
    ///
    /// **Panics** in builds with debug assertions if it was started: such a refusal would be a lie.
    pub fn refuse(self, refusal: Refusal) {
        debug_assert!(
            self.state == State::Waiting,
            "a call that was started cannot be refused"
        );
        self.finish(Answer::Refused(refusal));
    }

    /// Forgets a call whose caller has gone: nobody is answered.
    pub fn cancel(mut self) {
        let info = self.info();
        self.state = State::Answered;
        if let Some(route) = self.route.take() {
            route.cancelled(info);
        }
    }

    fn finish(mut self, answer: Answer<R::Response>) {
        let info = self.info();
        self.state = State::Answered;
        if let Some(route) = self.route.take() {
            route.reply(info, answer);
        }
    }

    pub(crate) fn mark_started(&mut self, now: Monotonic) {
        self.started_ns = now.as_nanos();
        self.state = State::Running;
    }

    #[inline]
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    #[inline]
    pub(crate) fn received_ns(&self) -> u64 {
        self.received_ns
    }

    /// What it must not overtake; `None` if it may overtake everything.
    #[inline]
    pub(crate) fn chain(&self) -> Option<(u64, u16)> {
        (!self.order.is_none()).then_some((self.session, self.order.0))
    }
}

impl<B, R: Reply> Drop for InboundCall<B, R> {
    fn drop(&mut self) {
        if let Some(route) = self.route.take() {
            let info = self.info();
            self.state = State::Answered;
            route.reply(info, Answer::Failed);
            assert!(
                !cfg!(debug_assertions) || std::thread::panicking(),
                "a call was dropped without an answer: {info:?}"
            );
        }
    }
}

impl<B, R: Reply> fmt::Debug for InboundCall<B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InboundCall({:?}, {:?})", self.state, self.info())
    }
}

#[cfg(all(test, not(mqb_loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::calls::PostTo;

    // What the queue moves about is one line, and so is an empty place for it.
    const _: () = assert!(size_of::<InboundCall<Frame, PostTo<u64, u64>>>() == 64);
    const _: () = assert!(size_of::<Option<InboundCall<Frame, PostTo<u64, u64>>>>() == 64);

    struct Route(Sender<Answer<u32>>);

    impl Reply for Route {
        type Response = u32;

        fn reply(self, _call: CallInfo, answer: Answer<u32>) {
            self.0.send(answer).expect("the test listens");
        }
    }

    fn at(nanos: u64) -> Monotonic {
        Monotonic::from_nanos(nanos)
    }

    fn header(timeout: Option<Duration>) -> CallHeader {
        CallHeader {
            session: 7,
            request: 9,
            timeout,
            ..CallHeader::default()
        }
    }

    #[test]
    fn no_timeout_means_never_and_a_huge_one_does_not_wrap() {
        let (route, _answers) = channel();
        for (timeout, deadline) in [
            (None, None),
            (Some(Duration::ZERO), None),
            (Some(Duration::MAX), None),
            (Some(Duration::from_nanos(5)), Some(at(105))),
        ] {
            let call = InboundCall::receive(&header(timeout), (), Route(route.clone()), at(100));
            assert_eq!(call.info().deadline, deadline);
            assert_eq!(call.is_expired(at(105)), deadline.is_some());
            assert!(!call.is_expired(at(104)));
            call.cancel();
        }
    }

    #[test]
    fn an_expired_call_is_answered_instead_of_started() {
        let (route, answers) = channel();
        let timeout = Some(Duration::from_nanos(5));
        let call = InboundCall::receive(&header(timeout), (), Route(route.clone()), at(100));
        assert!(call.start(at(105)).is_none());
        assert_eq!(answers.recv(), Ok(Answer::Refused(Refusal::Expired)));
        let call = InboundCall::receive(&header(timeout), (), Route(route), at(100));
        let call = call.start(at(104)).expect("in time");
        assert_eq!(call.info().started, Some(at(104)));
        call.respond(3);
        assert_eq!(answers.recv(), Ok(Answer::Done(3)));
        assert!(answers.recv().is_err(), "one answer each");
    }

    #[test]
    fn a_dropped_call_answers_that_the_service_failed() {
        let (route, answers) = channel();
        let call = InboundCall::receive(&header(None), (), Route(route), at(0));
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(call)));
        assert_eq!(dropped.is_err(), cfg!(debug_assertions));
        assert_eq!(answers.recv(), Ok(Answer::Failed));
    }

    #[test]
    fn a_cancelled_call_answers_nobody() {
        let (route, answers) = channel();
        InboundCall::receive(&header(None), (), Route(route), at(0)).cancel();
        assert!(answers.recv().is_err());
    }

    #[test]
    fn a_frame_cannot_leave_its_buffer() {
        let buffer = Arc::new(vec![1, 2, 3, 4]);
        let frame = Frame::new(Arc::clone(&buffer), 1, 2).expect("within");
        assert_eq!(*frame, [2, 3]);
        assert!(Frame::new(Arc::clone(&buffer), 3, 2).is_none());
        assert!(Frame::new(buffer, u32::MAX, 2).is_none());
    }
}
