//! The loop body: one turn of one processor. Threads (`dispatcher.rs`) and tests (`manual.rs`) are only drivers of it.
//!
//! ```text
//! take the inbox -> events, own posts first -> timers -> sockets -> own posts again -> flush -> publish outboxes
//! ```
//!
//! Each phase takes what it works on from a queue, so that it can go on after a handler panicked: the panic costs the client that was
//! being called, nothing else. One unwind guard per phase, not per event.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;

use crate::budget::{Budget, Timed};
use crate::client::{Client, Cx, MemberId, Pressure};
use crate::clock::Monotonic;
use crate::config::{Activity, EventKind, PanicReport};
use crate::current::{self, NO_SLOT};
use crate::group::{Control, Group, Item};
use crate::io::IoTable;
use crate::lanes::{self, Lanes};
use crate::poller::Poller;
use crate::stats::{Counters, TurnCounts};
use crate::tag::{self, Address, ClientCore, ProcessorId};
use crate::timer::Wheel;
use crate::turn::{Slot, Tenant, TurnState};
use crate::watermark::Level;

/// Own posts run before the inbox's next event, but after so many of them the inbox has its turn: neither starves.
const LOCAL_RUN: u32 = 8;
/// Every so many turns the first handler is timed on its own.
const SAMPLE_TURNS: u64 = 8;

/// What a turn did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TurnReport {
    /// Events delivered.
    pub events: u64,
    /// Timers delivered.
    pub timers: u64,
    /// Readiness notifications delivered.
    pub ready: u64,
    /// Clients flushed.
    pub flushes: u64,
    /// Whether work is left that waits for nothing.
    pub has_more: bool,
}

impl TurnReport {
    /// True if the turn found nothing to do.
    pub fn is_idle(&self) -> bool {
        self.events + self.timers + self.ready + self.flushes == 0 && !self.has_more
    }
}

/// Owns its clients. Stays on the thread that made it.
pub(crate) struct Processor<E: Send + 'static> {
    // Dropped before the rest: clients may deregister nothing, but their sockets must close before the poll does.
    clients: Vec<Option<Box<dyn Client<E>>>>,
    state: TurnState<E>,
    group: Arc<Group<E>>,
    /// Taken from the inbox and not yet run.
    batch: VecDeque<Item<E>>,
    poller: Poller,
    budget: Budget,
    counts: TurnCounts,
    /// Items of the inbox that this turn has finished.
    left: usize,
    local_run: u32,
    /// Own posts that were left over at the end of the last turn, and so count as waiting.
    carried: usize,
    /// Own posts that are being run, taken from the lanes as a whole.
    own: VecDeque<Item<E>>,
    counters: Arc<CachePadded<Counters>>,
    pressure_seen: u64,
    levels: Vec<Level>,
    tells: VecDeque<(Address, Pressure)>,
    /// Clients that have yet to be told to stop.
    stops: VecDeque<Address>,
    /// Readiness that this turn has yet to deliver; what handlers ask to see again is for the next.
    ready_due: usize,
}

const NOBODY: Address = Address {
    slot: NO_SLOT,
    generation: 0,
};

impl<E: Send + 'static> Processor<E> {
    pub(crate) fn new(
        group: Arc<Group<E>>,
        id: ProcessorId,
        poller: Poller,
    ) -> std::io::Result<Self> {
        let shared = group.processor(id);
        let now = group.clock.now();
        let state = TurnState {
            id,
            tag: shared.tag,
            now,
            slots: Vec::new(),
            lanes: Lanes::new(Arc::clone(&group), shared.tag),
            timers: Wheel::new(now),
            io: IoTable::new(poller.registry()?),
            ready: VecDeque::new(),
            flush: VecDeque::new(),
            leaving: Vec::new(),
            subscribers: Vec::new(),
            new_subscribers: Vec::new(),
            group: Arc::clone(&group),
        };
        Ok(Self {
            clients: Vec::new(),
            state,
            batch: VecDeque::new(),
            poller,
            budget: Budget::default(),
            counts: TurnCounts::default(),
            left: 0,
            local_run: 0,
            carried: 0,
            own: VecDeque::new(),
            counters: Arc::clone(&shared.counters),
            pressure_seen: 0,
            levels: vec![Level::Normal; group.processors.len()],
            tells: VecDeque::new(),
            stops: VecDeque::new(),
            ready_due: 0,
            group,
        })
    }

    /// Makes this processor current on the calling thread until what is returned is dropped.
    pub(crate) fn enter(&self) -> (tag::Entered, lanes::Entered) {
        (
            tag::Entered::new(self.state.tag),
            lanes::Entered::new(&self.state.lanes),
        )
    }

    /// One turn. The processor must have been entered.
    pub(crate) fn turn(&mut self) -> TurnReport {
        let now = self.group.clock.now();
        self.counters
            .turn_started_ns
            .store(now.as_nanos() + 1, Ordering::Relaxed);
        self.state.now = now;
        self.counts = TurnCounts::default();
        self.left = 0;
        self.ready_due = self.state.ready.len();
        let sample = self.counters.published.turns().is_multiple_of(SAMPLE_TURNS);
        self.budget.start(now, &self.group.config, sample);
        self.take_inbox();

        if self.has_pressure_news() {
            self.guarded(Self::tell_pressure);
        }
        self.guarded(Self::run_events);
        if self.state.timers.may_fire(self.state.now) {
            self.guarded(Self::run_timers);
        }
        if self.ready_due > 0 {
            self.guarded(Self::run_ready);
        }
        if self.has_own_posts() {
            self.budget.resume(self.counts.events);
            self.guarded(Self::run_events);
        }
        if !self.state.flush.is_empty() {
            self.guarded(Self::run_flush);
        }
        self.state.lanes.publish();
        self.end_turn()
    }

    fn take_inbox(&mut self) {
        let shared = self.group.processor(self.state.id);
        let depth = shared.watermark.depth();
        if depth > 0 {
            self.counters.published.see_depth(depth);
            if self.batch.is_empty() {
                shared.inbox.take(&mut self.batch);
            }
        }
    }

    fn has_own_posts(&self) -> bool {
        !self.own.is_empty() || !self.state.lanes.local.borrow().is_empty()
    }

    fn end_turn(&mut self) -> TurnReport {
        self.account_local();
        if self.left > 0 {
            self.group
                .leave(self.group.processor(self.state.id), self.left);
        }
        self.counters
            .published
            .add_turn(&self.counts, self.state.timers.len());
        self.counters.current.store(0, Ordering::Relaxed);
        self.counters.turn_started_ns.store(0, Ordering::Relaxed);
        TurnReport {
            events: self.counts.events,
            timers: self.counts.timers,
            ready: self.counts.ready,
            flushes: self.counts.flushes,
            has_more: !self.batch.is_empty() || !self.own.is_empty() || self.state.has_work(),
        }
    }

    /// Own posts that the turn leaves behind count as waiting like those in the inbox.
    fn account_local(&mut self) {
        let waiting = self.own.len() + self.state.lanes.local.borrow().len();
        if waiting != self.carried {
            self.group.count_local(self.state.id, self.carried, waiting);
            self.carried = waiting;
        }
    }

    // ---- panics ----

    /// Runs a phase to its end, whatever its handlers do.
    fn guarded(&mut self, phase: fn(&mut Self)) {
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| phase(self))) {
            self.contain(&*panic);
        }
    }

    /// A handler panicked: its client goes.
    #[cold]
    fn contain(&mut self, panic: &(dyn std::any::Any + Send)) {
        let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = message
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "not a text".into());
        let word = self.counters.current.load(Ordering::Relaxed);
        let shared = self.group.processor(self.state.id);
        let report = PanicReport {
            handler: current::report(&self.group, shared, word),
            message,
        };
        self.counters.published.count_panic();
        // Nobody leaves a slot while being called, so the tenant of the slot is who was called.
        let slot = current::slot(word);
        if let Some(tenant) = self.state.slots.get(slot as usize) {
            self.drop_client(Address {
                slot,
                generation: tenant.generation,
            });
        }
        // A hook that panics costs nothing either.
        let _ = catch_unwind(AssertUnwindSafe(|| (self.group.hooks.on_panic)(&report)));
        // Others may have asked to leave or to come in the same call.
        self.guarded(Self::after_call);
    }

    // ---- calls into clients ----

    /// Notes who is called and why: the only thing that the watchdog and the blame for a panic cost per call.
    #[inline]
    fn begin(&self, activity: Activity, slot: u32) {
        // Relaxed: read by the watchdog, to whom a moment does not matter.
        self.counters
            .current
            .store(current::pack(activity, slot), Ordering::Relaxed);
    }

    /// Calls a client, if it is still there, and does what it left to be done after the call.
    #[inline]
    fn call(
        &mut self,
        activity: Activity,
        who: Address,
        f: impl FnOnce(&mut dyn Client<E>, &mut Cx<'_, E>),
    ) -> bool {
        self.begin(activity, who.slot);
        let is_there = self.state.slot(who).is_some();
        let client = self
            .clients
            .get_mut(who.slot as usize)
            .filter(|_| is_there)
            .and_then(Option::as_deref_mut);
        let Some(client) = client else {
            // Dropping what was meant for it may panic: nobody's fault here.
            self.begin(activity, NO_SLOT);
            return false;
        };
        f(client, &mut Cx::new(&mut self.state, who));
        if activity != Activity::Flush {
            self.state.link_slot(who.slot);
        }
        self.after_call();
        true
    }

    /// Clients that want to leave leave; clients that were registered here come.
    #[inline]
    fn after_call(&mut self) {
        if self.state.lanes.has_orders.get() {
            self.state.lanes.has_orders.set(false);
            self.let_leave();
            self.let_in();
        }
    }

    #[cold]
    fn let_leave(&mut self) {
        while let Some(who) = self.state.leaving.pop() {
            self.remove(who);
        }
    }

    #[cold]
    fn let_in(&mut self) {
        loop {
            let next = self.state.lanes.registrations.borrow_mut().pop_front();
            match next {
                Some(Item::Control(control)) => self.control(*control),
                Some(Item::Event { .. }) => unreachable!("only registrations are put there"),
                None => return,
            }
        }
    }

    /// Flushes a client for the last time and drops it.
    fn remove(&mut self, who: Address) {
        if self.state.slot(who).is_some() {
            self.flush_one(who.slot);
            self.drop_client(who);
        }
    }

    /// Drops a client, if it is still there. Its own `drop` may panic too.
    fn drop_client(&mut self, who: Address) {
        if self.state.slot(who).is_none() {
            return;
        }
        let client = self
            .clients
            .get_mut(who.slot as usize)
            .and_then(Option::take);
        self.state.move_out(who);
        self.begin(Activity::Drop, NO_SLOT);
        if catch_unwind(AssertUnwindSafe(|| drop(client))).is_err() {
            self.counters.published.count_panic();
        }
    }

    // ---- phases ----

    fn run_events(&mut self) {
        while self.budget.allows(self.counts.events) {
            let Some(item) = self.next_item() else { return };
            match item {
                Item::Event { to, event } => self.deliver(to, event),
                Item::Control(control) => self.control(*control),
            }
            self.counts.events += 1;
            if self.budget.is_check_due(self.counts.events) {
                self.check_time();
            }
        }
    }

    /// Own posts first, but the inbox has its share.
    #[inline(always)]
    fn next_item(&mut self) -> Option<Item<E>> {
        if self.local_run < LOCAL_RUN || self.batch.is_empty() {
            if self.own.is_empty() && !self.state.lanes.local.borrow().is_empty() {
                std::mem::swap(&mut self.own, &mut self.state.lanes.local.borrow_mut());
            }
            if let Some(item) = self.own.pop_front() {
                self.local_run += 1;
                self.counts.local_events += 1;
                return Some(item);
            }
        }
        self.local_run = 0;
        let item = self.batch.pop_front()?;
        self.left += 1;
        Some(item)
    }

    /// The hot path: spelled out, not through `call`, because each closure that an event passes through is one more copy of it.
    #[inline(always)]
    fn deliver(&mut self, to: Address, event: E) {
        let kind = match self.group.hooks.event_kind {
            Some(kind) => kind(&event),
            None => EventKind::default(),
        };
        let (slot, member) = match self.state.slot(to).map(|slot| slot.tenant) {
            Some(Tenant::Client) => (to.slot, None),
            Some(Tenant::Member { owner }) => (owner, Some(MemberId(to.slot))),
            _ => (NO_SLOT, None),
        };
        self.begin(Activity::Event(kind), slot);
        let client = self
            .clients
            .get_mut(slot as usize)
            .and_then(Option::as_deref_mut);
        let Some(client) = client else {
            self.counts.stale_drops += 1;
            return;
        };
        let generation = self.state.slots[slot as usize].generation;
        let cx = &mut Cx::new(&mut self.state, Address { slot, generation });
        match member {
            None => client.on_event(cx, event),
            Some(member) => client.on_member_event(cx, member, event),
        }
        self.state.link_slot(slot);
        self.after_call();
    }

    #[cold]
    fn check_time(&mut self) {
        let now = self.group.clock.now();
        self.state.now = now;
        let counters = &self.group.processor(self.state.id).counters.published;
        match self.budget.check(now, self.counts.events) {
            Timed::One(nanos) => counters.record_handler(nanos),
            Timed::Several => {}
        }
    }

    fn run_timers(&mut self) {
        while let Some((timer, owner)) = self.state.pop_expired() {
            if self.call(Activity::Timer, owner, |client, cx| {
                client.on_timer(cx, timer)
            }) {
                self.counts.timers += 1;
            }
        }
    }

    fn run_ready(&mut self) {
        while self.ready_due > 0 {
            self.ready_due -= 1;
            let Some((token, ready)) = self.state.ready.pop_front() else {
                return;
            };
            let Some(owner) = self.state.io.owner(token) else {
                continue;
            };
            if self.call(Activity::Ready, owner, |client, cx| {
                client.on_ready(cx, token, ready)
            }) {
                self.counts.ready += 1;
            }
        }
    }

    fn run_flush(&mut self) {
        // A client that links itself again in its flush is for the next turn.
        for _ in 0..self.state.flush.len() {
            let Some(slot) = self.state.flush.pop_front() else {
                return;
            };
            self.flush_one(slot);
        }
    }

    fn flush_one(&mut self, slot: u32) {
        // Unlinked already: it left, was flushed by a barrier, or another tenant came.
        if !self.state.unlink_slot(slot) {
            return;
        }
        let who = Address {
            slot,
            generation: self.state.slots[slot as usize].generation,
        };
        if self.call(Activity::Flush, who, |client, cx| client.flush(cx)) {
            self.counts.flushes += 1;
        }
    }

    // ---- control ----

    #[cold]
    fn control(&mut self, control: Control<E>) {
        match control {
            Control::Register { core, make } => self.make(core, make),
            Control::Unregister { to } => {
                self.flush_all();
                self.remove(to);
            }
            Control::Barrier { to, run } => {
                if self.state.slot(to).is_none() {
                    self.counts.stale_drops += 1;
                    return;
                }
                self.flush_all();
                self.begin(Activity::Barrier, to.slot);
                run(&mut Cx::new(&mut self.state, to));
                self.after_call();
            }
            Control::OnAll { run, _done } => {
                self.flush_all();
                self.begin(Activity::Barrier, NO_SLOT);
                run(&mut Cx::new(&mut self.state, NOBODY));
                self.after_call();
            }
            Control::Stop { kinds } => self.stop_kinds(kinds),
        }
    }

    /// Flushes every client touched so far in this turn. Guarded: one that panics there must not cost the order being carried out.
    fn flush_all(&mut self) {
        self.guarded(Self::run_flush);
    }

    fn make(&mut self, core: ClientCore, make: crate::group::Make<E>) {
        let (address, kind) = (core.address(), core.kind());
        self.state.move_in(address, Tenant::Client, kind, None);
        let index = address.slot as usize;
        if index >= self.clients.len() {
            self.clients.resize_with(index + 1, || None);
        }
        self.begin(Activity::Make, address.slot);
        let client = make(core, &mut Cx::new(&mut self.state, address));
        self.clients[index] = Some(client);
        if self.group.is_stopping(kind) {
            self.call(Activity::Stop, address, |client, cx| client.on_stop(cx));
        }
        self.after_call();
    }

    fn stop_kinds(&mut self, kinds: u32) {
        let concerned =
            |slot: &Slot| slot.tenant == Tenant::Client && kinds & 1 << slot.kind.id() != 0;
        let slots = self
            .state
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| concerned(slot));
        self.stops.extend(slots.map(|(index, slot)| Address {
            slot: index as u32,
            generation: slot.generation,
        }));
        self.guarded(Self::tell_stop);
    }

    fn tell_stop(&mut self) {
        while let Some(who) = self.stops.pop_front() {
            self.call(Activity::Stop, who, |client, cx| client.on_stop(cx));
        }
    }

    // ---- pressure ----

    fn has_pressure_news(&self) -> bool {
        !self.state.new_subscribers.is_empty()
            || !self.tells.is_empty()
            || self.group.pressure_epoch.load(Ordering::Relaxed) != self.pressure_seen
    }

    fn tell_pressure(&mut self) {
        // Acquire: pairs with the release in `announce_pressure`.
        let epoch = self.group.pressure_epoch.load(Ordering::Acquire);
        if epoch != self.pressure_seen {
            self.pressure_seen = epoch;
            self.note_levels();
        }
        while let Some(new) = self.state.new_subscribers.pop() {
            let over = self
                .levels
                .iter()
                .enumerate()
                .filter(|(_, level)| **level != Level::Normal);
            self.tells.extend(over.map(|(index, &level)| {
                (
                    new,
                    Pressure {
                        processor: ProcessorId(index as u16),
                        level,
                    },
                )
            }));
        }
        while let Some((who, pressure)) = self.tells.pop_front() {
            self.call(Activity::Pressure, who, |client, cx| {
                client.on_pressure(cx, pressure)
            });
        }
    }

    fn note_levels(&mut self) {
        for (index, shared) in self.group.processors.iter().enumerate() {
            let level = shared.watermark.level();
            if level != self.levels[index] {
                self.levels[index] = level;
                let pressure = Pressure {
                    processor: ProcessorId(index as u16),
                    level,
                };
                // A subscriber that is new as well is told below.
                let told = self
                    .state
                    .subscribers
                    .iter()
                    .filter(|who| !self.state.new_subscribers.contains(who));
                self.tells.extend(told.map(|&who| (who, pressure)));
            }
        }
    }

    // ---- sleeping and leaving ----

    /// Collects what is ready without waiting.
    pub(crate) fn poll_now(&mut self) {
        if !self.state.io.is_empty() {
            self.poller
                .poll(Some(std::time::Duration::ZERO), &mut self.state.ready);
        }
    }

    /// Sleeps until there is work, a timer or a ready socket.
    pub(crate) fn sleep(&mut self) {
        let shared = self.group.processor(self.state.id);
        shared.gate.announce();
        if !shared.inbox.is_empty() || self.has_orders() {
            shared.gate.awake();
            return self.poll_now();
        }
        shared.counters.sleeps.fetch_add(1, Ordering::Relaxed);
        let timeout = self
            .state
            .timers
            .next_look()
            .map(|at| at.since(self.group.clock.now()));
        self.poller.poll(timeout, &mut self.state.ready);
        shared.gate.awake();
    }

    /// True if another thread has brought something since the turn.
    pub(crate) fn has_arrivals(&self) -> bool {
        self.group.processor(self.state.id).watermark.depth() > self.carried || self.has_orders()
    }

    fn has_orders(&self) -> bool {
        self.group
            .processor(self.state.id)
            .exit
            .load(Ordering::Relaxed)
            || self.group.pressure_epoch.load(Ordering::Acquire) != self.pressure_seen
    }

    /// When the next timer wants a look.
    pub(crate) fn next_look(&self) -> Option<Monotonic> {
        self.state.timers.next_look()
    }

    /// Ends: refuses new events, runs those it has as long as `may_go_on`, drops its clients. Events that are left are counted.
    pub(crate) fn finish(&mut self, may_go_on: impl Fn() -> bool) {
        let group = Arc::clone(&self.group);
        let shared = group.processor(self.state.id);
        self.batch.append(&mut shared.inbox.close());
        while may_go_on() && self.turn_has_events() {
            self.turn();
        }
        for slot in 0..self.state.slots.len() {
            let Slot {
                generation, tenant, ..
            } = self.state.slots[slot];
            if tenant == Tenant::Client {
                self.drop_client(Address {
                    slot: slot as u32,
                    generation,
                });
            }
        }
        let batch = std::mem::take(&mut self.batch);
        let mut local = std::mem::take(&mut self.own);
        local.append(&mut self.state.lanes.local.borrow_mut());
        let registrations = self.state.lanes.registrations.take();
        let returned = batch.len() + local.len() + registrations.len();
        shared
            .counters
            .returned
            .fetch_add(returned as u64, Ordering::Relaxed);
        // Dropping events may panic like anything else that is not ours.
        for items in [batch, local, registrations] {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(items)));
        }
        self.state.lanes.publish();
    }

    fn turn_has_events(&self) -> bool {
        !self.batch.is_empty() || self.has_own_posts()
    }
}
