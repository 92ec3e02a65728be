//! The same processors, turned by hand: deterministic tests and simulations.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Monotonic, TestClock};
use crate::config::{DispatcherConfig, Hooks};
use crate::dispatcher::{self, DispatcherError};
use crate::group::Group;
use crate::processor::{Processor, TurnReport};
use crate::registrar::Registrar;
use crate::stats::DispatcherStats;
use crate::tag::ProcessorId;

/// A dispatcher without threads: its owner says which processor has a turn, and when time moves.
///
/// Within [`Manual::turn`] the calling thread *is* that processor, for `in_dispatcher_thread` and all. Sockets work too, polled
/// without waiting before each turn. Nothing else runs, so the same calls give the same course of events.
pub struct Manual<E: Send + 'static> {
    processors: Vec<Processor<E>>,
    group: Arc<Group<E>>,
    clock: Arc<TestClock>,
}

impl<E: Send + 'static> Manual<E> {
    /// `processors` of them, otherwise with defaults.
    ///
    /// **Errors**: those of the operating system (an epoll and an eventfd are made for each).
    pub fn new(processors: u16) -> Result<Self, DispatcherError> {
        Self::with_config(
            DispatcherConfig {
                processors,
                ..DispatcherConfig::default()
            },
            Hooks::default(),
        )
    }

    /// With a configuration. `idle`, `thread_name` and `stuck_after` have no meaning here.
    ///
    /// **Errors**: as [`Dispatcher::start`](crate::Dispatcher::start).
    pub fn with_config(config: DispatcherConfig, hooks: Hooks<E>) -> Result<Self, DispatcherError> {
        let clock = Arc::new(TestClock::new());
        let (group, pollers) = dispatcher::build(config, hooks, Arc::<TestClock>::clone(&clock))?;
        let processors = pollers
            .into_iter()
            .enumerate()
            .map(|(index, poller)| {
                Processor::new(Arc::clone(&group), ProcessorId(index as u16), poller)
            })
            .collect::<std::io::Result<_>>()?;
        Ok(Self {
            processors,
            group,
            clock,
        })
    }

    /// To register clients.
    pub fn registrar(&self) -> Registrar<E> {
        Registrar::new(Arc::clone(&self.group))
    }

    /// The clock that all processors read.
    pub fn clock(&self) -> &Arc<TestClock> {
        &self.clock
    }

    /// Gives a processor one turn. **Panics** if there is no such processor.
    pub fn turn(&mut self, processor: ProcessorId) -> TurnReport {
        let processor = &mut self.processors[processor.index()];
        let _entered = processor.enter();
        processor.poll_now();
        processor.turn()
    }

    /// Gives all processors turns, in order of their numbers, until none has anything to do; the number of events delivered.
    ///
    /// **Panics** if that is not so after `turns_max` rounds: something keeps itself busy.
    pub fn run_until_idle(&mut self, turns_max: usize) -> u64 {
        let mut events = 0;
        for _ in 0..turns_max {
            let mut is_idle = true;
            for index in 0..self.processors.len() {
                let report = self.turn(ProcessorId(index as u16));
                events += report.events;
                is_idle &= report.is_idle();
            }
            if is_idle {
                return events;
            }
        }
        panic!("still busy after {turns_max} rounds of turns");
    }

    /// Moves time on by `by`, stopping at each moment at which a timer may run out to run everything that follows from it.
    pub fn advance(&mut self, by: Duration, turns_max: usize) {
        let end = self.clock.now() + by;
        while let Some(next) = self.next_timer().filter(|next| *next <= end) {
            self.clock.advance_to(next);
            self.run_until_idle(turns_max);
        }
        self.clock.advance_to(end);
        self.run_until_idle(turns_max);
    }

    /// The earliest moment at which a timer of any processor may run out.
    pub fn next_timer(&self) -> Option<Monotonic> {
        self.processors
            .iter()
            .filter_map(Processor::next_look)
            .min()
    }

    /// Figures of now.
    pub fn stats(&self) -> DispatcherStats {
        self.group.stats()
    }

    /// A function that reads the figures, even after the end.
    pub fn stats_reader(&self) -> impl Fn() -> DispatcherStats + Send + Sync + Clone + 'static {
        let group = Arc::clone(&self.group);
        move || group.stats()
    }

    /// Tells every client to stop and runs what follows, then drops what has not unregistered; how many that were.
    pub fn stop(mut self, turns_max: usize) -> usize {
        for kinds in self.group.stop_phases() {
            self.group.stop_kinds(kinds);
            self.run_until_idle(turns_max);
        }
        self.group.count_of(u32::MAX)
    }
}

impl<E: Send + 'static> Drop for Manual<E> {
    fn drop(&mut self) {
        for processor in &mut self.processors {
            let _entered = processor.enter();
            processor.finish(|| false);
        }
    }
}

impl<E: Send + 'static> fmt::Debug for Manual<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manual")
            .field("processors", &self.processors.len())
            .finish_non_exhaustive()
    }
}
