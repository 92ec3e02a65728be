//! What lives on a processor, and what it may do there.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::time::Duration;

use mio::Interest;
use mio::event::Source;

use crate::clock::Monotonic;
use crate::handle::{Full, Handle};
use crate::io::{IoToken, Readiness};
use crate::registrar::Registrar;
use crate::tag::{Address, ClientCore, ClientKind, ProcessorId};
use crate::timer::TimerId;
use crate::turn::TurnState;
use crate::watermark::Level;

/// A part of a client that can be addressed on its own: the client owns it, the dispatcher delivers to it by this number.
///
/// Unique among the members that live on one processor at a time; numbers are small, so they can index a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberId(pub u32);

/// A processor's level changed; told to clients that asked with [`Cx::subscribe_pressure`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pressure {
    /// Whose inbox it is.
    pub processor: ProcessorId,
    /// What it came to.
    pub level: Level,
}

/// State that one processor owns.
///
/// Built on its thread, dropped on its thread, and only ever called there, one call at a time: it may hold `Rc`, `Cell` and sockets,
/// and needs no lock. A handler must not block. If one panics, the client is dropped and reported, and everything else goes on.
pub trait Client<E: Send + 'static> {
    /// The identity given to the client when it was made.
    fn core(&self) -> &ClientCore;

    /// An event posted to the client's handle.
    fn on_event(&mut self, cx: &mut Cx<'_, E>, event: E);

    /// An event posted to a member's handle.
    fn on_member_event(&mut self, cx: &mut Cx<'_, E>, member: MemberId, event: E) {
        let _ = member;
        self.on_event(cx, event);
    }

    /// A socket is ready. Edge-triggered: read or write until it would block, or ask with [`Cx::ready_again`] to be called once more.
    fn on_ready(&mut self, cx: &mut Cx<'_, E>, token: IoToken, ready: Readiness) {
        let _ = (cx, token, ready);
    }

    /// A timer ran out.
    fn on_timer(&mut self, cx: &mut Cx<'_, E>, timer: TimerId) {
        let _ = (cx, timer);
    }

    /// End of a turn in which the client was called: the place for work that is cheaper per batch.
    fn flush(&mut self, cx: &mut Cx<'_, E>) {
        let _ = cx;
    }

    /// A processor crossed a watermark; only for clients that called [`Cx::subscribe_pressure`].
    fn on_pressure(&mut self, cx: &mut Cx<'_, E>, pressure: Pressure) {
        let _ = (cx, pressure);
    }

    /// The dispatcher is stopping. The client may work on until the deadline, and calls [`Cx::unregister_self`] when it is done; the
    /// default is done at once.
    fn on_stop(&mut self, cx: &mut Cx<'_, E>) {
        cx.unregister_self();
    }
}

/// Proof of running inside a turn of a processor, and the door to what may be done there.
///
/// Neither `Send` nor `Sync`, made by the loop only, and borrowed for one call, so it cannot be kept:
///
/// ```compile_fail
/// # use mqb_dispatcher::Cx;
/// fn leave(cx: &mut Cx<'_, u32>) {
///     std::thread::scope(|scope| { scope.spawn(|| cx.now()); });
/// }
/// ```
pub struct Cx<'t, E: Send + 'static> {
    turn: &'t mut TurnState<E>,
    me: Address,
    _thread: PhantomData<*const ()>,
}

impl<E: Send + 'static> fmt::Debug for Cx<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cx(processor {}, slot {})", self.turn.id(), self.me.slot)
    }
}

impl<'t, E: Send + 'static> Cx<'t, E> {
    pub(crate) fn new(turn: &'t mut TurnState<E>, me: Address) -> Self {
        Self {
            turn,
            me,
            _thread: PhantomData,
        }
    }

    /// The time, read at the start of the turn and again now and then in a long one. **Cost**: a load.
    #[inline]
    pub fn now(&self) -> Monotonic {
        self.turn.now
    }

    /// The processor running this turn.
    #[inline]
    pub fn processor(&self) -> ProcessorId {
        self.turn.id()
    }

    /// Sends an event. To this processor: to the end of its local queue, run in this turn as far as its budget goes, never recursively.
    /// To another processor: collected, published at the end of the turn or at 64.
    ///
    /// Always accepted: what must not be refused (confirms, acks, control) has to get through. An event for a client that has gone
    /// is dropped and counted.
    #[inline]
    pub fn post(&mut self, to: &Handle<E>, event: E) {
        self.turn.post(to, event);
    }

    /// As [`Cx::post`], unless the target's processor is over its high mark. **Errors**: gives the event back.
    pub fn try_post(&mut self, to: &Handle<E>, event: E) -> Result<(), Full<E>> {
        if to.level() != Level::Normal {
            return Err(Full {
                event,
                is_stopped: false,
            });
        }
        self.turn.post(to, event);
        Ok(())
    }

    /// A handle to this client.
    pub fn handle(&self) -> Handle<E> {
        self.turn.handle_to(self.me)
    }

    /// Calls [`Client::on_timer`] once, not before `after` has passed, at a granularity of one millisecond.
    ///
    /// **Cost**: O(1), as is [`Cx::cancel`]. A client's timers go with it.
    pub fn schedule(&mut self, after: Duration) -> TimerId {
        self.turn.schedule(self.me, after)
    }

    /// Forgets a timer of this client; false if it ran out or was cancelled before. It is not delivered afterwards, even if due in this turn.
    pub fn cancel(&mut self, timer: TimerId) -> bool {
        self.turn.cancel(self.me, timer)
    }

    /// Watches a socket for this client.
    ///
    /// **Errors**: those of the operating system.
    pub fn register_io(
        &mut self,
        source: &mut (impl Source + ?Sized),
        interest: Interest,
    ) -> io::Result<IoToken> {
        self.turn.register_io(self.me, source, interest)
    }

    /// Changes what a watched socket is watched for; reports again what is ready already.
    ///
    /// **Errors**: those of the operating system; `NotFound` if the token is not this client's.
    pub fn reregister_io(
        &mut self,
        token: IoToken,
        source: &mut (impl Source + ?Sized),
        interest: Interest,
    ) -> io::Result<()> {
        self.turn.reregister_io(self.me, token, source, interest)
    }

    /// Stops watching a socket. Readiness that was already collected is not delivered any more.
    ///
    /// **Errors**: those of the operating system; `NotFound` if the token is not this client's.
    pub fn deregister_io(
        &mut self,
        token: IoToken,
        source: &mut (impl Source + ?Sized),
    ) -> io::Result<()> {
        self.turn.deregister_io(self.me, token, source)
    }

    /// Delivers `ready` for `token` in the next turn, as if the socket had become ready: for a handler that stops before it would
    /// block so that others get their share.
    pub fn ready_again(&mut self, token: IoToken, ready: Readiness) {
        self.turn.ready_again(token, ready);
    }

    /// Gives a part of this client an address of its own; its events arrive in [`Client::on_member_event`].
    ///
    /// The member's core answers for this processor; `name` appears in reports. **Panics** if the processor has no slot left
    /// (`DispatcherConfig::max_clients`): the panic costs this client, as any.
    pub fn add_member(
        &mut self,
        kind: ClientKind,
        name: &str,
    ) -> (MemberId, ClientCore, Handle<E>) {
        self.turn.add_member(self.me, kind, name)
    }

    /// Takes a member's address away: events that still come for it are dropped and counted. False if it was not this client's.
    pub fn remove_member(&mut self, member: MemberId) -> bool {
        self.turn.remove_member(self.me, member)
    }

    /// Drops this client once the current call has returned and it has been flushed. Its handles are stale from then on.
    pub fn unregister_self(&mut self) {
        self.turn.unregister(self.me);
    }

    /// Names this client in reports; without it, it goes by its kind.
    pub fn set_name(&mut self, name: &str) {
        self.turn.set_name(self.me, name);
    }

    /// Has [`Client::flush`] called at the end of this turn (of the next one, from within `flush`). Every delivery does so anyway.
    pub fn link_flush(&mut self) {
        self.turn.link_flush(self.me);
    }

    /// From now on tells this client, by [`Client::on_pressure`], when a processor crosses its watermarks; at once if one is over.
    pub fn subscribe_pressure(&mut self) {
        self.turn.subscribe_pressure(self.me);
    }

    /// How full a processor is now.
    pub fn level_of(&self, processor: ProcessorId) -> Level {
        self.turn.level_of(processor)
    }

    /// To register clients from within a turn.
    pub fn registrar(&self) -> Registrar<E> {
        self.turn.registrar()
    }
}
