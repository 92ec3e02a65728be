//! Threads that drive processors: start, stop, statistics.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::clock::{Clock, SystemClock};
use crate::config::{DispatcherConfig, Hooks, Idle};
use crate::group::{Control, Group, Item};
use crate::poller::Poller;
use crate::processor::Processor;
use crate::registrar::Registrar;
use crate::stats::{DispatcherStats, Tenants};
use crate::tag::{ClientKind, ProcessorId};
use crate::watchdog::Watchdog;

/// What processors get after the deadline to drop their clients.
const LEAVE_GRACE: Duration = Duration::from_secs(1);

/// Why a dispatcher did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DispatcherError {
    /// The configuration makes no sense.
    #[error("invalid dispatcher configuration: {0}")]
    Config(&'static str),
    /// The operating system refused a thread, an epoll or an eventfd.
    #[error("starting a processor")]
    Io(#[from] io::Error),
}

/// What went wrong when stopping. Everything was stopped that could be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StopError {
    /// Clients did not finish before the deadline and were dropped.
    #[error("{clients} clients had not finished at the deadline")]
    Unfinished {
        /// How many.
        clients: usize,
    },
    /// Processors were in a handler that did not return; their threads are left behind.
    #[error("processors {processors:?} are stuck in a handler")]
    Stuck {
        /// Which.
        processors: Vec<ProcessorId>,
    },
}

/// Processors on threads of their own. Dropping it stops it without grace.
pub struct Dispatcher<E: Send + 'static> {
    group: Arc<Group<E>>,
    threads: Vec<JoinHandle<()>>,
    watchdog: Option<Watchdog>,
}

impl<E: Send + 'static> Dispatcher<E> {
    /// Starts the processors. When it returns they can be registered with; identities are decided before the first thread starts.
    ///
    /// **Errors**: a senseless configuration; a refusal of the operating system.
    pub fn start(config: DispatcherConfig, hooks: Hooks<E>) -> Result<Self, DispatcherError> {
        Self::start_with_clock(config, hooks, Arc::new(SystemClock))
    }

    /// As [`Dispatcher::start`], with another clock. Threads sleep in real time, so it must run at the pace of the real one.
    ///
    /// **Errors**: as `start`.
    pub fn start_with_clock(
        config: DispatcherConfig,
        hooks: Hooks<E>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, DispatcherError> {
        let (group, pollers) = build(config, hooks, clock)?;
        let mut dispatcher = Self {
            threads: Vec::with_capacity(pollers.len()),
            watchdog: None,
            group,
        };
        for (index, poller) in pollers.into_iter().enumerate() {
            let group = Arc::clone(&dispatcher.group);
            let name = format!("{}-{index}", group.config.thread_name);
            let run = move || run(&group, ProcessorId(index as u16), poller);
            dispatcher
                .threads
                .push(std::thread::Builder::new().name(name).spawn(run)?);
        }
        dispatcher.watchdog = Watchdog::start(Arc::clone(&dispatcher.group))?;
        Ok(dispatcher)
    }

    /// To register clients.
    pub fn registrar(&self) -> Registrar<E> {
        Registrar::new(Arc::clone(&self.group))
    }

    /// Figures of now.
    pub fn stats(&self) -> DispatcherStats {
        self.group.stats()
    }

    /// A function that reads the figures, from any thread and even after the end.
    pub fn stats_reader(&self) -> impl Fn() -> DispatcherStats + Send + Sync + Clone + 'static {
        let group = Arc::clone(&self.group);
        move || group.stats()
    }

    /// Stops in order: kind by kind as configured, clients are told ([`Client::on_stop`](crate::Client::on_stop)) and may work on until
    /// they unregister or the deadline passes; then processors run what they have accepted, drop their clients and end. Events
    /// that could not be run are counted as returned.
    ///
    /// **Errors**: see [`StopError`]. **Panics** on a processor of any dispatcher: it would wait for itself.
    pub fn stop(mut self, deadline: Duration) -> Result<(), StopError> {
        assert!(
            crate::ThreadTag::current().is_none(),
            "a processor cannot stop its own dispatcher"
        );
        self.stop_until(Instant::now() + deadline)
    }

    fn stop_until(&mut self, deadline: Instant) -> Result<(), StopError> {
        for kinds in self.group.stop_phases() {
            self.group.stop_kinds(kinds);
            self.group
                .stop
                .wait_until(deadline, || self.group.count_of(kinds) == 0);
        }
        let unfinished = self.group.count_of(u32::MAX);
        self.leave(deadline)?;
        if unfinished > 0 {
            Err(StopError::Unfinished {
                clients: unfinished,
            })
        } else {
            Ok(())
        }
    }

    /// Has the threads end and joins those that do.
    fn leave(&mut self, deadline: Instant) -> Result<(), StopError> {
        self.group.stop.leave_by(deadline);
        for shared in &self.group.processors {
            shared.exit.store(true, Ordering::Release);
            shared.wake();
        }
        let count = self.threads.len();
        let grace = deadline.max(Instant::now()) + LEAVE_GRACE;
        self.group.stop.wait_until(grace, || {
            self.group.stop.finished.load(Ordering::Acquire) >= count
        });
        drop(self.watchdog.take());
        let mut stuck = Vec::new();
        for (index, thread) in std::mem::take(&mut self.threads).into_iter().enumerate() {
            if self.group.processors[index]
                .finished
                .load(Ordering::Acquire)
            {
                // Panics of clients are contained; one of the loop itself has been printed.
                let _ = thread.join();
            } else {
                stuck.push(ProcessorId(index as u16));
            }
        }
        if stuck.is_empty() {
            Ok(())
        } else {
            Err(StopError::Stuck { processors: stuck })
        }
    }
}

impl<E: Send + 'static> Drop for Dispatcher<E> {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            // Without grace, and whoever drops a dispatcher does not want to know.
            let _ = self.leave(Instant::now());
        }
    }
}

impl<E: Send + 'static> fmt::Debug for Dispatcher<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher")
            .field("processors", &self.group.processors.len())
            .finish_non_exhaustive()
    }
}

impl<E: Send + 'static> Group<E> {
    /// Sets of kinds, in the order in which they stop.
    pub(crate) fn stop_phases(&self) -> Vec<u32> {
        let bit = |kind: &ClientKind| 1_u32 << kind.id();
        let mut phases: Vec<u32> = self.config.stop_order.iter().map(bit).collect();
        let listed = phases.iter().fold(0, |all, kinds| all | kinds);
        phases.push(!listed);
        phases
    }

    pub(crate) fn stop_kinds(&self, kinds: u32) {
        // Registrations that are on their way are told when they arrive; see `Processor::make`.
        self.stopping.fetch_or(kinds, Ordering::SeqCst);
        for shared in &self.processors {
            drop(self.push(shared.id, Item::Control(Box::new(Control::Stop { kinds }))));
        }
    }

    pub(crate) fn stats(&self) -> DispatcherStats {
        let read = |shared: &crate::group::Shared<E>| {
            shared.counters.read(
                shared.id,
                shared.watermark.depth(),
                shared.watermark.level(),
                Tenants {
                    clients: shared.clients(),
                    members: shared.members.load(Ordering::Relaxed),
                },
            )
        };
        DispatcherStats {
            processors: self.processors.iter().map(read).collect(),
        }
    }
}

/// Checks the configuration and makes what processors share, and their pollers.
pub(crate) fn build<E: Send + 'static>(
    config: DispatcherConfig,
    hooks: Hooks<E>,
    clock: Arc<dyn Clock>,
) -> Result<(Arc<Group<E>>, Vec<Poller>), DispatcherError> {
    check(&config)?;
    let mut pollers = Vec::new();
    let mut wakers = Vec::new();
    for _ in 0..config.processors {
        let (poller, waker) = Poller::new()?;
        pollers.push(poller);
        wakers.push(waker);
    }
    Ok((Group::new(config, hooks, clock, wakers), pollers))
}

fn check(config: &DispatcherConfig) -> Result<(), DispatcherError> {
    let sound = |holds: bool, what| {
        if holds {
            Ok(())
        } else {
            Err(DispatcherError::Config(what))
        }
    };
    sound(
        (1..=1024).contains(&config.processors),
        "there must be 1 to 1024 processors",
    )?;
    sound(config.turn_events > 0, "a turn must have room for an event")?;
    sound(
        config.low_watermark < config.high_watermark,
        "the low watermark must be below the high one",
    )?;
    sound(
        config.high_watermark <= config.hard_limit,
        "the hard limit must not be below the high watermark",
    )?;
    sound(
        (1..=1 << 30).contains(&config.max_clients),
        "a processor must have room for 1 to 2^30 clients",
    )?;
    let in_range =
        |range: &std::ops::Range<u16>| range.start < range.end && range.end <= config.processors;
    sound(
        config.ranges.iter().all(|(_, range)| in_range(range)),
        "a kind's range must name processors that exist",
    )
}

/// A processor's thread.
fn run<E: Send + 'static>(group: &Arc<Group<E>>, id: ProcessorId, poller: Poller) {
    let mut processor = match Processor::new(Arc::clone(group), id, poller) {
        Ok(processor) => processor,
        Err(error) => panic!("the processor's poll is broken: {error}"),
    };
    let _entered = processor.enter();
    let shared = group.processor(id);
    loop {
        let report = processor.turn();
        if shared.exit.load(Ordering::Acquire) {
            break;
        }
        if report.has_more {
            processor.poll_now();
        } else {
            idle(&mut processor, group.config.idle);
        }
    }
    processor.finish(|| group.stop.may_go_on());
    drop(processor);
    shared.finished.store(true, Ordering::Release);
    group.stop.processor_finished();
}

/// Waits for work as configured.
fn idle<E: Send + 'static>(processor: &mut Processor<E>, idle: Idle) {
    match idle {
        Idle::Block => processor.sleep(),
        Idle::Spin => {
            std::hint::spin_loop();
            processor.poll_now();
        }
        Idle::SpinThenBlock(time) => {
            let started = Instant::now();
            while started.elapsed() < time {
                if processor.has_arrivals() {
                    return processor.poll_now();
                }
                std::hint::spin_loop();
            }
            processor.sleep();
        }
    }
}
