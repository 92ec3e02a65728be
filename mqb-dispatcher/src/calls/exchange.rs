//! Where calls and workers meet: one lock around the ready queue and the stack of idle workers, and a slot per worker.
//!
//! [`ServicePool`](crate::calls::ServicePool) is this plus threads. Under the lock nothing allocates, reads a clock, wakes, logs, or calls
//! foreign code; answers are given after it.
//!
//! No call is ever left with only sleepers to see it: a worker goes on the idle stack in the same critical section in which it found
//! nothing ready, and who adds a call without waking an idle worker has seen, under the same lock, a working one that does not
//! block and that comes back through it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::calls::admission::{Load, nanos};
use crate::calls::call::{Class, InboundCall};
use crate::calls::config::{ConfigError, OnOverload, PoolConfig, ServeOrder};
use crate::calls::metrics::{ClassFigures, PoolFigures, Recorder};
use crate::calls::queue::{Entry, Eviction, LaneConfig, QueueConfig, ReadyQueue, Victim};
use crate::calls::reply::{Refusal, Reply};
use crate::calls::slot::{Delivery, Slot};
use crate::clock::{Clock, Monotonic};
use crate::sync::{Mutex, lock};

/// Calls refused by one worker per look at the queue, at most: it has to come to its own call too.
const SWEEP_MAX: usize = 16;

/// What became of a call that was put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// A worker has it.
    HandedOff,
    /// It waits.
    Queued,
    /// It was refused, and has been answered so.
    Refused(Refusal),
}

/// What a worker has to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// [`Worker::run`] what it has.
    Run,
    /// It is on the idle stack now: [`Exchange::wait`].
    Wait,
    /// End: the exchange is closed and nothing is left.
    Stop,
}

/// The meeting place.
#[derive(Debug)]
pub struct Exchange<B, R: Reply> {
    config: PoolConfig,
    state: Mutex<State<B, R>>,
    slots: Box<[Slot<InboundCall<B, R>>]>,
    // One per worker, then the one of whoever holds the lock.
    recorders: Box<[Recorder]>,
    wakes: AtomicU64,
}

#[derive(Debug)]
struct State<B, R: Reply> {
    queue: ReadyQueue<InboundCall<B, R>>,
    // The last to go to sleep is the first to be woken: its caches are the warmest, and the others can stay asleep.
    idle: Vec<u16>,
    // Workers that will come back through the lock soon: neither idle nor in a handler that may sleep.
    active: usize,
    load: Load,
    is_closed: bool,
    handed_off: u64,
    queued: u64,
    wakes_suppressed: u64,
}

/// What one worker thread carries from turn to turn.
#[derive(Debug)]
pub struct Worker<B, R: Reply> {
    index: u16,
    batch: Vec<InboundCall<B, R>>,
    refused: Vec<(InboundCall<B, R>, Refusal)>,
    served: Vec<Served>,
    // Not counted among the active: it runs something that may sleep.
    is_away: bool,
}

/// A call that a worker is done with.
#[derive(Clone, Copy, Debug)]
struct Served {
    class: Class,
    chain: Option<(u64, u16)>,
    // None if it was not started after all.
    service_ns: Option<u64>,
}

/// What `State::admit` decided; carried out after the lock is released.
enum Decision<B, R: Reply> {
    HandOff(u16, InboundCall<B, R>),
    Queued {
        wake: Option<u16>,
        evicted: Option<(InboundCall<B, R>, Refusal)>,
    },
    Refuse(InboundCall<B, R>, Refusal),
}

impl<B: Send, R: Reply + Send> Exchange<B, R> {
    /// An exchange for `config.workers` workers. **Errors**: see [`PoolConfig::validate`].
    pub fn new(config: PoolConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let cap = config.hard_cap();
        let lane = |class: &crate::calls::ClassConfig| LaneConfig {
            weight: class.weight,
            is_evictable: class.on_overload == OnOverload::Refuse,
            capacity: match class.on_overload {
                OnOverload::Refuse => cap.max(class.reserve),
                OnOverload::Wait | OnOverload::Run => class.reserve,
            },
        };
        let queue = ReadyQueue::new(&QueueConfig {
            lanes: config.classes.iter().map(lane).collect(),
            round_robin_every: if config.order == ServeOrder::Deadline {
                4
            } else {
                0
            },
            eviction: match config.order {
                ServeOrder::Deadline => Eviction::LatestOfLargest,
                ServeOrder::StrictDeadline | ServeOrder::Arrival => Eviction::Latest,
            },
        });
        let workers = usize::from(config.workers);
        Ok(Self {
            state: Mutex::new(State {
                queue,
                idle: Vec::with_capacity(workers),
                active: 0,
                load: Load::new(&config),
                is_closed: false,
                handed_off: 0,
                queued: 0,
                wakes_suppressed: 0,
            }),
            slots: (0..workers).map(|_| Slot::new()).collect(),
            recorders: (0..=workers)
                .map(|_| Recorder::new(config.classes.len()))
                .collect(),
            wakes: AtomicU64::new(0),
            config,
        })
    }

    /// The configuration.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// Gives a call to a worker, queues it, or answers why not. `now` is the loop's time; no clock is read.
    ///
    /// **Panics** if the call's class is not in the configuration.
    pub fn put(&self, call: InboundCall<B, R>, now: Monotonic) -> Admission {
        let class = call.class();
        assert!(
            class.index() < self.config.classes.len(),
            "{class:?} is not configured"
        );
        let decision = {
            let mut state = lock(&self.state);
            self.counter().received(class);
            let decision = state.admit(&self.config, call, now);
            self.count_decision(&mut state, &decision);
            decision
        };
        match decision {
            Decision::HandOff(worker, call) => {
                self.post(worker, Delivery::Item(call));
                Admission::HandedOff
            }
            Decision::Queued { wake, evicted } => {
                if let Some(worker) = wake {
                    self.post(worker, Delivery::Look);
                }
                if let Some((call, why)) = evicted {
                    call.refuse(why);
                }
                Admission::Queued
            }
            Decision::Refuse(call, why) => {
                call.refuse(why);
                Admission::Refused(why)
            }
        }
    }

    /// Makes the calling thread worker number `index`, from 0; each number once.
    ///
    /// **Panics** if there is no such worker.
    pub fn attach(&self, index: u16) -> Worker<B, R> {
        self.slots[usize::from(index)].attach();
        lock(&self.state).active += 1;
        Worker {
            index,
            batch: Vec::with_capacity(self.config.batch_max),
            refused: Vec::with_capacity(2 * SWEEP_MAX),
            served: Vec::with_capacity(self.config.batch_max),
            is_away: false,
        }
    }

    /// Reports what the worker has done and takes what it does next. `now` is the end of its last call: no clock is read.
    pub fn take(&self, worker: &mut Worker<B, R>, now: Monotonic) -> Turn {
        let (turn, wake) = {
            let mut state = lock(&self.state);
            state.settle(worker);
            state.fill(&self.config, worker, now);
            for (call, why) in &worker.refused {
                self.counter().refused(call.class(), why);
            }
            let turn = if !worker.batch.is_empty() || !worker.refused.is_empty() {
                Turn::Run
            } else if state.is_closed {
                state.active -= 1;
                Turn::Stop
            } else {
                state.load.queue_was_empty();
                state.idle.push(worker.index);
                state.active -= 1;
                Turn::Wait
            };
            (turn, state.wake_for_rest(&self.config))
        };
        if let Some(other) = wake {
            self.post(other, Delivery::Look);
        }
        turn
    }

    /// Sleeps until there is something to do; after [`Turn::Wait`] only. Then read the clock: time has passed.
    pub fn wait(&self, worker: &mut Worker<B, R>) {
        match self.slots[usize::from(worker.index)].wait(self.config.spins) {
            Delivery::Item(call) => {
                // Whoever handed it over did the same sum.
                worker.is_away = self.config.classes[call.class().index()].may_block;
                worker.batch.push(call);
            }
            Delivery::Look => {}
        }
    }

    /// Answers what has expired, and wakes a worker if something waits that nobody was woken for in time. To be called by a timer, as
    /// often as callers shall learn of an expiry while all workers are busy; every few milliseconds is cheap.
    pub fn tick(&self, now: Monotonic) {
        loop {
            let mut expired = Vec::with_capacity(SWEEP_MAX);
            let wake = {
                let mut state = lock(&self.state);
                state.sweep(&self.config, now, &mut expired);
                for (call, why) in &expired {
                    self.counter().refused(call.class(), why);
                }
                if state.queue.ready() > 0 {
                    state.wake_one()
                } else {
                    None
                }
            };
            if let Some(worker) = wake {
                self.post(worker, Delivery::Look);
            }
            let is_last = expired.len() < SWEEP_MAX;
            for (call, why) in expired {
                call.refuse(why);
            }
            if is_last {
                return;
            }
        }
    }

    /// Forgets all queued calls of a session that has gone; how many. Those that run go on, and their replies find nobody.
    pub fn cancel_session(&self, session: u64) -> usize {
        let mut count = 0;
        self.take_out(
            |call| call.session() == session,
            |call| {
                count += 1;
                call.cancel();
            },
            |recorder, class| recorder.cancelled(class),
        );
        count
    }

    /// Refuses new calls and answers what waits, except for classes that are always run. Workers end when those are done.
    pub fn close(&self) {
        lock(&self.state).is_closed = true;
        let runs = |class: Class| self.config.classes[class.index()].on_overload == OnOverload::Run;
        self.take_out(
            |call| !runs(call.class()),
            |call| call.refuse(Refusal::ShuttingDown),
            |recorder, class| recorder.refused(class, &Refusal::ShuttingDown),
        );
        loop {
            let worker = {
                let mut state = lock(&self.state);
                state.wake_one()
            };
            match worker {
                Some(worker) => self.post(worker, Delivery::Look),
                None => return,
            }
        }
    }

    /// Figures of now.
    pub fn figures(&self) -> PoolFigures {
        let mut classes: Vec<_> = self
            .config
            .classes
            .iter()
            .map(|class| ClassFigures::new(class.name))
            .collect();
        let state = lock(&self.state);
        for recorder in &self.recorders {
            recorder.add_to(&mut classes);
        }
        for (class, figures) in classes.iter_mut().enumerate() {
            figures.queued = state.queue.len_of(class as u8);
        }
        PoolFigures {
            classes,
            limit: state.load.limit(),
            service_mean: Duration::from_nanos(state.load.service_mean_ns()),
            is_standing: state.load.is_standing(),
            idle: state.idle.len(),
            handed_off: state.handed_off,
            queued: state.queued,
            wakes: self.wakes.load(Ordering::Relaxed),
            wakes_suppressed: state.wakes_suppressed,
        }
    }

    fn take_out(
        &self,
        matches: impl Fn(&InboundCall<B, R>) -> bool,
        mut then: impl FnMut(InboundCall<B, R>),
        count: impl Fn(&Recorder, Class),
    ) {
        let mut out = Vec::with_capacity(4 * SWEEP_MAX);
        loop {
            {
                let mut state = lock(&self.state);
                state.queue.take_matching(&matches, &mut out);
                for call in &out {
                    count(self.counter(), call.class());
                }
            }
            let is_last = out.len() < out.capacity();
            out.drain(..).for_each(&mut then);
            if is_last {
                return;
            }
        }
    }

    fn count_decision(&self, state: &mut State<B, R>, decision: &Decision<B, R>) {
        match decision {
            Decision::HandOff(..) => state.handed_off += 1,
            Decision::Queued { evicted, .. } => {
                state.queued += 1;
                if let Some((call, why)) = evicted {
                    self.counter().refused(call.class(), why);
                }
            }
            Decision::Refuse(call, why) => self.counter().refused(call.class(), why),
        }
    }

    fn post(&self, worker: u16, delivery: Delivery<InboundCall<B, R>>) {
        if self.slots[usize::from(worker)].post(delivery) {
            self.wakes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The recorder of whoever holds the lock.
    fn counter(&self) -> &Recorder {
        self.recorders
            .last()
            .expect("there is one more than there are workers")
    }
}

/// Nothing is dropped unanswered, whoever forgot to close or to drain.
impl<B, R: Reply> Drop for Exchange<B, R> {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let state = state.unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut rest = Vec::with_capacity(state.queue.len());
        state.queue.take_matching(|_| true, &mut rest);
        rest.extend(self.slots.iter().filter_map(Slot::take_back));
        for call in rest {
            call.refuse(Refusal::ShuttingDown);
        }
    }
}

impl<B, R: Reply> Drop for Worker<B, R> {
    fn drop(&mut self) {
        for call in self.batch.drain(..) {
            call.refuse(Refusal::ShuttingDown);
        }
        for (call, why) in self.refused.drain(..) {
            call.refuse(why);
        }
    }
}

impl<B: Send, R: Reply + Send> State<B, R> {
    fn admit(
        &mut self,
        config: &PoolConfig,
        call: InboundCall<B, R>,
        now: Monotonic,
    ) -> Decision<B, R> {
        let class = call.class().index();
        let policy = config.classes[class].on_overload;
        if self.is_closed {
            return Decision::Refuse(call, Refusal::ShuttingDown);
        }
        if policy != OnOverload::Run && call.is_expired(now) {
            return Decision::Refuse(call, Refusal::Expired);
        }
        let chain = call.chain();
        let is_free = chain.is_none_or(|chain| !self.queue.is_busy(chain));
        let leaves_asleep = is_free && self.leaves_asleep(config);
        if is_free
            && !leaves_asleep
            && self.queue.ready() == 0
            && let Some(worker) = self.idle.pop()
        {
            if let Some(chain) = chain {
                self.queue.begin(chain);
            }
            self.active += usize::from(!config.classes[class].may_block);
            return Decision::HandOff(worker, call);
        }
        let mut evicted = None;
        let entry = entry(config, &call);
        if policy == OnOverload::Refuse {
            if config.refuse_infeasible && self.is_infeasible(class, &call, now) {
                self.load.fade(class);
                let retry_after = self.load.retry_after();
                return Decision::Refuse(call, Refusal::Overloaded { retry_after });
            }
            if self.queue.evictable() >= self.load.limit() {
                match self.queue.evict_for(entry) {
                    Victim::Newcomer => {
                        let retry_after = self.load.retry_after();
                        return Decision::Refuse(call, Refusal::Overloaded { retry_after });
                    }
                    Victim::Queued(_, victim) => {
                        let retry_after = self.load.retry_after();
                        evicted = Some((victim, Refusal::Evicted { retry_after }));
                    }
                }
            }
        }
        self.queue.push(entry, call);
        self.wakes_suppressed += u64::from(leaves_asleep);
        let wake = if self.queue.ready() > 0 && !leaves_asleep {
            self.wake_one()
        } else {
            None
        };
        Decision::Queued { wake, evicted }
    }

    /// True if, by what was measured, the call would end after its deadline.
    fn is_infeasible(&self, class: usize, call: &InboundCall<B, R>, now: Monotonic) -> bool {
        let deadline = call.deadline_ns();
        let done_at = |ahead: usize| {
            now.as_nanos()
                .saturating_add(self.load.wait_ns(ahead))
                .saturating_add(self.load.p95_ns(class))
        };
        // Nearly always everything fits, and then it need not be counted who is ahead.
        done_at(self.queue.len()) > deadline
            && done_at(self.queue.count_before(deadline)) > deadline
    }

    /// True if an idle worker would start later than a working one takes the next call.
    fn leaves_asleep(&self, config: &PoolConfig) -> bool {
        if self.idle.is_empty() || self.active == 0 || self.queue.ready() >= 2 * self.active {
            return false;
        }
        let ahead = self.queue.ready() as u64 + 1;
        ahead * self.load.service_mean_ns() / (self.active as u64) < nanos(config.wake_latency)
    }

    /// Takes an idle worker off the stack, to be sent to look at the queue.
    fn wake_one(&mut self) -> Option<u16> {
        let worker = self.idle.pop()?;
        self.active += 1;
        Some(worker)
    }

    /// After a worker has taken its share: somebody must come for the rest.
    fn wake_for_rest(&mut self, config: &PoolConfig) -> Option<u16> {
        if self.queue.ready() == 0 || self.leaves_asleep(config) {
            return None;
        }
        self.wake_one()
    }

    /// Takes note of what a worker has done.
    fn settle(&mut self, worker: &mut Worker<B, R>) {
        if std::mem::take(&mut worker.is_away) {
            self.active += 1;
        }
        for served in worker.served.drain(..) {
            if let Some(nanos) = served.service_ns {
                self.load.record_service(served.class.index(), nanos);
            }
            if let Some(chain) = served.chain {
                self.queue.finish(chain);
            }
        }
    }

    /// Gives a worker its next calls, and those to refuse.
    fn fill(&mut self, config: &PoolConfig, worker: &mut Worker<B, R>, now: Monotonic) {
        self.sweep(config, now, &mut worker.refused);
        let count = self.batch_size(config);
        while worker.batch.len() < count && worker.refused.len() < worker.refused.capacity() {
            let Some((entry, call)) = self.queue.pop() else {
                break;
            };
            if let Some(why) = self.judge(config, &call, now) {
                if let Some(chain) = entry.chain {
                    self.queue.finish(chain);
                }
                worker.refused.push((call, why));
                continue;
            }
            let may_block = config.classes[usize::from(entry.class)].may_block;
            worker.batch.push(call);
            if may_block {
                worker.is_away = true;
                self.active -= 1;
                break;
            }
        }
    }

    /// Moves expired calls out, at most [`SWEEP_MAX`].
    fn sweep(
        &mut self,
        config: &PoolConfig,
        now: Monotonic,
        expired: &mut Vec<(InboundCall<B, R>, Refusal)>,
    ) {
        // In order of arrival the heads do not tell.
        if config.order == ServeOrder::Arrival {
            return;
        }
        let expires = |class: u8| config.classes[usize::from(class)].on_overload != OnOverload::Run;
        while expired.len() < SWEEP_MAX {
            let Some((_, call)) = self.queue.pop_expired(now.as_nanos(), expires) else {
                return;
            };
            expired.push((call, Refusal::Expired));
        }
    }

    /// A share of what is ready, and no more than is done by the time another worker would have woken up.
    fn batch_size(&self, config: &PoolConfig) -> usize {
        let share = self.queue.ready() / usize::from(config.workers);
        let short = nanos(config.wake_latency) / self.load.service_mean_ns();
        config
            .batch_max
            .min(share)
            .min(usize::try_from(short).unwrap_or(usize::MAX))
            .max(1)
    }

    /// Why a call whose turn it is should not be started.
    fn judge(
        &mut self,
        config: &PoolConfig,
        call: &InboundCall<B, R>,
        now: Monotonic,
    ) -> Option<Refusal> {
        let class = call.class().index();
        let delay_ns = now.as_nanos().saturating_sub(call.received_ns());
        let must_shed = self.load.must_shed(delay_ns, now.as_nanos());
        let policy = config.classes[class].on_overload;
        if policy != OnOverload::Run && call.is_expired(now) {
            return Some(Refusal::Expired);
        }
        if policy != OnOverload::Refuse {
            return None;
        }
        let done_at = now.as_nanos().saturating_add(self.load.p95_ns(class));
        if config.refuse_infeasible && done_at > call.deadline_ns() {
            self.load.fade(class);
            return Some(Refusal::Expired);
        }
        must_shed.then(|| Refusal::Overloaded {
            retry_after: self.load.retry_after(),
        })
    }
}

impl<B: Send, R: Reply + Send> Worker<B, R> {
    /// Answers what is refused, then runs `handle` on each call it has; the time at the end. The clock is read once per call: the end
    /// of one is the start of the next.
    ///
    /// A panic of `handle` costs that call, which answers that the service failed, and nothing else.
    pub fn run(
        &mut self,
        exchange: &Exchange<B, R>,
        clock: &dyn Clock,
        mut now: Monotonic,
        mut handle: impl FnMut(InboundCall<B, R>),
    ) -> Monotonic {
        for (call, why) in self.refused.drain(..) {
            call.refuse(why);
        }
        let recorder = &exchange.recorders[usize::from(self.index)];
        for mut call in self.batch.drain(..) {
            let class = call.class();
            let chain = call.chain();
            let expires = exchange.config.classes[class.index()].on_overload != OnOverload::Run;
            if expires && call.is_expired(now) {
                recorder.refused(class, &Refusal::Expired);
                call.refuse(Refusal::Expired);
                self.served.push(Served {
                    class,
                    chain,
                    service_ns: None,
                });
                continue;
            }
            call.mark_started(now);
            let info = call.info();
            recorder.started(&info, now);
            let result = catch_unwind(AssertUnwindSafe(|| handle(call)));
            let end = clock.now();
            match result {
                Ok(()) => recorder.answered(&info, now, end),
                Err(_) => recorder.panicked(class),
            }
            self.served.push(Served {
                class,
                chain,
                service_ns: Some(nanos(end.since(now))),
            });
            now = end;
        }
        now
    }
}

fn entry<B, R: Reply>(config: &PoolConfig, call: &InboundCall<B, R>) -> Entry {
    Entry {
        order_ns: match config.order {
            ServeOrder::Arrival => 0,
            ServeOrder::Deadline | ServeOrder::StrictDeadline => call.deadline_ns(),
        },
        class: call.class().0,
        chain: call.chain(),
    }
}
