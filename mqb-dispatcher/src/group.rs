//! What the processors of one dispatcher share with each other and with every handle: inboxes, gates, levels, slots, counters.
//!
//! Nothing in here belongs to a client. All of it may be touched by any thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::client::{Client, Cx};
use crate::clock::Clock;
use crate::config::{DispatcherConfig, Hooks, OverflowReport};
use crate::gate::Gate;
use crate::handle::Handle;
use crate::inbox::Inbox;
use crate::lanes;
use crate::names::Names;
use crate::slots::SlotAllocator;
use crate::stats::Counters;
use crate::stop::StopMonitor;
use crate::sync::{Mutex, lock};
use crate::tag::{Address, ClientCore, ClientKind, ProcessorId, ThreadTag};
use crate::watermark::{Change, Watermark};

pub(crate) type Make<E> = Box<dyn FnOnce(ClientCore, &mut Cx<'_, E>) -> Box<dyn Client<E>> + Send>;
pub(crate) type Barrier<E> = Box<dyn FnOnce(&mut Cx<'_, E>) + Send>;
pub(crate) type OnAll<E> = Arc<dyn Fn(&mut Cx<'_, E>) + Send + Sync>;

/// What travels: an event inline, everything rare behind a box.
pub(crate) enum Item<E: Send + 'static> {
    Event { to: Address, event: E },
    Control(Box<Control<E>>),
}

pub(crate) enum Control<E: Send + 'static> {
    Register {
        core: ClientCore,
        make: Make<E>,
    },
    Unregister {
        to: Address,
    },
    Barrier {
        to: Address,
        run: Barrier<E>,
    },
    OnAll {
        run: OnAll<E>,
        _done: Arc<Done>,
    },
    /// Tell the clients of these kinds (bit set) to stop.
    Stop {
        kinds: u32,
    },
}

/// Runs its closure when the last reference goes.
///
/// The lock is there to make it `Sync`; nobody ever waits for it.
pub(crate) struct Done(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Drop for Done {
    fn drop(&mut self) {
        let done = lock(&self.0).take();
        if let Some(done) = done {
            done();
        }
    }
}

/// One processor as seen by everybody.
pub(crate) struct Shared<E: Send + 'static> {
    pub(crate) id: ProcessorId,
    pub(crate) tag: ThreadTag,
    pub(crate) inbox: CachePadded<Inbox<Item<E>>>,
    pub(crate) gate: CachePadded<Gate>,
    pub(crate) watermark: Watermark,
    pub(crate) slots: SlotAllocator,
    pub(crate) names: Names,
    pub(crate) counters: Arc<CachePadded<Counters>>,
    pub(crate) waker: mio::Waker,
    /// Set once: finish what is there and leave.
    pub(crate) exit: AtomicBool,
    /// Set once: the thread has dropped all its clients.
    pub(crate) finished: AtomicBool,
    overflow_reported: AtomicBool,
    clients: [AtomicU32; ClientKind::COUNT],
    pub(crate) members: AtomicU32,
}

impl<E: Send + 'static> Shared<E> {
    /// Wakes the processor if it sleeps, or is about to.
    pub(crate) fn wake(&self) {
        if self.gate.must_wake() {
            self.counters.wakes.fetch_add(1, Ordering::Relaxed);
            // Fails only if the eventfd is gone, that is after the processor has left.
            let _ = self.waker.wake();
        }
    }

    pub(crate) fn clients_of(&self, kind: ClientKind) -> u32 {
        self.clients[usize::from(kind.id())].load(Ordering::Relaxed)
    }

    pub(crate) fn clients(&self) -> u32 {
        self.clients
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }
}

/// One dispatcher as seen by everybody.
pub(crate) struct Group<E: Send + 'static> {
    pub(crate) processors: Box<[Shared<E>]>,
    pub(crate) config: DispatcherConfig,
    pub(crate) hooks: Hooks<E>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Grows after each change of a level; processors compare it with what they saw last.
    pub(crate) pressure_epoch: CachePadded<AtomicU64>,
    /// Kinds that take no new clients, a bit each.
    pub(crate) stopping: AtomicU32,
    pub(crate) stop: StopMonitor,
}

impl<E: Send + 'static> Group<E> {
    pub(crate) fn new(
        config: DispatcherConfig,
        hooks: Hooks<E>,
        clock: Arc<dyn Clock>,
        wakers: Vec<mio::Waker>,
    ) -> Arc<Self> {
        let processors = wakers.into_iter().enumerate().map(|(index, waker)| Shared {
            id: ProcessorId(index as u16),
            tag: ThreadTag::allocate(),
            inbox: CachePadded::default(),
            gate: CachePadded::default(),
            watermark: Watermark::new(
                config.low_watermark,
                config.high_watermark,
                config.hard_limit,
            ),
            slots: SlotAllocator::new(config.max_clients),
            names: Names::default(),
            counters: Arc::default(),
            waker,
            exit: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            overflow_reported: AtomicBool::new(false),
            clients: Default::default(),
            members: AtomicU32::new(0),
        });
        Arc::new(Self {
            processors: processors.collect(),
            hooks,
            clock,
            pressure_epoch: CachePadded::default(),
            stopping: AtomicU32::new(0),
            stop: StopMonitor::default(),
            config,
        })
    }

    #[inline]
    pub(crate) fn processor(&self, id: ProcessorId) -> &Shared<E> {
        &self.processors[id.index()]
    }

    /// Publishes one item. **Errors**: gives it back, counted as returned, if the processor has stopped.
    pub(crate) fn push(&self, to: ProcessorId, item: Item<E>) -> Result<(), Item<E>> {
        let shared = self.processor(to);
        let depth = shared.watermark.enter(1);
        if let Err(item) = shared.inbox.push(item) {
            self.refused(shared, 1);
            return Err(item);
        }
        self.published(shared, depth);
        Ok(())
    }

    /// Publishes all of `items`, in order, and leaves it empty. What a stopped processor refuses is dropped and counted as returned.
    pub(crate) fn publish(&self, to: ProcessorId, items: &mut VecDeque<Item<E>>) {
        let shared = self.processor(to);
        let count = items.len();
        let depth = shared.watermark.enter(count);
        if shared.inbox.append(items) {
            self.published(shared, depth);
        } else {
            self.refused(shared, count);
            items.clear();
        }
    }

    fn published(&self, shared: &Shared<E>, depth: usize) {
        if shared.watermark.is_over_high(depth) {
            shared.counters.overshoot.fetch_add(1, Ordering::Relaxed);
            if shared.watermark.after_enter(depth) == Change::Announce {
                self.announce_pressure();
            }
            if shared.watermark.is_over_hard_limit(depth)
                && !shared.overflow_reported.swap(true, Ordering::Relaxed)
            {
                self.announce_pressure();
                (self.hooks.on_overflow)(&OverflowReport {
                    processor: shared.id,
                    depth,
                });
            }
        }
        shared.wake();
    }

    fn refused(&self, shared: &Shared<E>, count: usize) {
        shared.watermark.retract(count);
        shared
            .counters
            .returned
            .fetch_add(count as u64, Ordering::Relaxed);
    }

    /// `count` items of this processor are done.
    pub(crate) fn leave(&self, shared: &Shared<E>, count: usize) {
        if shared.watermark.leave(count) == Change::Announce {
            shared.overflow_reported.store(false, Ordering::Relaxed);
            self.announce_pressure();
        }
    }

    /// The processor's own posts that wait went from `before` to `after`.
    pub(crate) fn count_local(&self, id: ProcessorId, before: usize, after: usize) {
        let shared = self.processor(id);
        if after > before {
            let depth = shared.watermark.enter(after - before);
            if shared.watermark.after_enter(depth) == Change::Announce {
                self.announce_pressure();
            }
        } else {
            self.leave(shared, before - after);
        }
    }

    /// A level has changed: every processor looks at all of them, in its next turn.
    pub(crate) fn announce_pressure(&self) {
        // Release: who sees the new epoch sees the level. Who sleeps is woken; the gate's fence orders the epoch before the look at it.
        self.pressure_epoch.fetch_add(1, Ordering::Release);
        for shared in &self.processors {
            shared.wake();
        }
    }

    /// Publishes a registration so that nobody who learns the handle can overtake it.
    pub(crate) fn push_register(
        self: &Arc<Self>,
        to: ProcessorId,
        control: Item<E>,
    ) -> Result<(), Item<E>> {
        match lanes::route_register(self, self.processor(to).tag, control) {
            None => Ok(()),
            Some(control) => self.push(to, control),
        }
    }

    pub(crate) fn on_all(&self, kind: ClientKind, run: OnAll<E>, done: Box<dyn FnOnce() + Send>) {
        let done = Arc::new(Done(Mutex::new(Some(done))));
        for index in self.range_of(kind) {
            let control = Control::OnAll {
                run: Arc::clone(&run),
                _done: Arc::clone(&done),
            };
            // A stopped processor drops it, which counts as done.
            drop(self.push(ProcessorId(index), Item::Control(Box::new(control))));
        }
    }

    fn range_of(&self, kind: ClientKind) -> std::ops::Range<u16> {
        let all = 0..self.processors.len() as u16;
        self.config
            .ranges
            .iter()
            .find(|(listed, _)| *listed == kind)
            .map_or(all, |(_, range)| range.clone())
    }

    pub(crate) fn least_loaded(&self, kind: ClientKind) -> ProcessorId {
        let load = |index: &u16| {
            let shared = &self.processors[usize::from(*index)];
            (shared.clients_of(kind), shared.clients())
        };
        ProcessorId(
            self.range_of(kind)
                .min_by_key(load)
                .expect("a kind's range is checked at the start: never empty"),
        )
    }

    pub(crate) fn count_in(&self, processor: ProcessorId, kind: ClientKind) {
        self.processor(processor).clients[usize::from(kind.id())].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_out(&self, processor: ProcessorId, kind: ClientKind) {
        self.processor(processor).clients[usize::from(kind.id())].fetch_sub(1, Ordering::Relaxed);
        self.stop.changed();
    }

    /// Clients of the kinds in the bit set, on all processors.
    pub(crate) fn count_of(&self, kinds: u32) -> usize {
        let count = |shared: &Shared<E>| -> usize {
            let of_kind = |id: usize| shared.clients[id].load(Ordering::Relaxed) as usize;
            (0..ClientKind::COUNT)
                .filter(|id| kinds & 1 << id != 0)
                .map(of_kind)
                .sum()
        };
        self.processors.iter().map(count).sum()
    }

    pub(crate) fn is_stopping(&self, kind: ClientKind) -> bool {
        self.stopping.load(Ordering::Relaxed) & 1 << kind.id() != 0
    }

    /// A handle that nobody is behind.
    pub(crate) fn stale_handle(self: &Arc<Self>) -> Handle<E> {
        Handle::new(
            Arc::clone(self),
            ProcessorId(0),
            Address {
                slot: u32::MAX,
                generation: 0,
            },
        )
    }
}
