//! An exchange with threads: the service pool.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::calls::call::InboundCall;
use crate::calls::config::PoolConfig;
use crate::calls::exchange::{Admission, Exchange, Turn};
use crate::calls::metrics::PoolFigures;
use crate::calls::reply::Reply;
use crate::clock::{Clock, Monotonic, SystemClock};
use crate::dispatcher::DispatcherError;

/// What the workers do.
pub trait Service: Send + Sync + 'static {
    /// What calls carry, usually a [`Frame`](crate::calls::Frame).
    type Body: Send + 'static;
    /// The way of replies, usually a [`PostTo`](crate::calls::PostTo).
    type Route: Reply + Send + 'static;

    /// Handles a call on a worker's thread; may block. The call may be kept and answered later from any thread, but then what is
    /// measured, and what its order key holds back, ends here nevertheless.
    ///
    /// A panic is caught: the caller is told that the service failed.
    fn handle(&self, call: InboundCall<Self::Body, Self::Route>);
}

type CallExchange<S> = Exchange<<S as Service>::Body, <S as Service>::Route>;

/// Workers on threads of their own. Dropping it closes it and waits for running handlers.
pub struct ServicePool<S: Service> {
    shared: Arc<Shared<S>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<S: Service> {
    exchange: CallExchange<S>,
    service: S,
    clock: Arc<dyn Clock>,
    // Workers that have ended, for `stop`. Last in the order of locks: held alone.
    ended: Mutex<u16>,
    changed: Condvar,
}

/// Workers that did not return from their handlers in time; their threads are left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{workers} workers are stuck in a handler")]
pub struct StuckWorkers {
    /// How many.
    pub workers: u16,
}

impl<S: Service> ServicePool<S> {
    /// Starts the workers. Use the clock of the dispatcher whose loops receive the calls.
    ///
    /// **Errors**: a senseless configuration; a refusal of the operating system to start a thread.
    pub fn start(config: PoolConfig, service: S) -> Result<Self, DispatcherError> {
        Self::start_with_clock(config, service, Arc::new(SystemClock))
    }

    /// As [`ServicePool::start`], with another clock.
    ///
    /// **Errors**: as `start`.
    pub fn start_with_clock(
        config: PoolConfig,
        service: S,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, DispatcherError> {
        let exchange = Exchange::new(config)
            .map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidInput, error))?;
        let shared = Arc::new(Shared {
            exchange,
            service,
            clock,
            ended: Mutex::new(0),
            changed: Condvar::new(),
        });
        let mut pool = Self {
            threads: Vec::new(),
            shared: Arc::clone(&shared),
        };
        let config = shared.exchange.config();
        for index in 0..config.workers {
            let shared = Arc::clone(&shared);
            let name = format!("{}-{index}", config.thread_name);
            let thread = std::thread::Builder::new()
                .name(name)
                .spawn(move || shared.work(index))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// For those that bring calls.
    pub fn handle(&self) -> PoolHandle<S> {
        PoolHandle(Arc::clone(&self.shared))
    }

    /// Figures of now.
    pub fn figures(&self) -> PoolFigures {
        self.shared.exchange.figures()
    }

    /// Refuses new calls, answers those that wait, and waits for running handlers until `deadline` has passed.
    ///
    /// **Errors**: handlers that did not return.
    pub fn stop(mut self, deadline: Duration) -> Result<(), StuckWorkers> {
        self.shared.exchange.close();
        let end = Instant::now() + deadline;
        let started = self.threads.len() as u16;
        let mut ended = lock(&self.shared.ended);
        while *ended < started {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let workers = started - *ended;
                drop(ended);
                self.threads.clear();
                return Err(StuckWorkers { workers });
            }
            ended = self
                .shared
                .changed
                .wait_timeout(ended, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        Ok(())
    }
}

impl<S: Service> Drop for ServicePool<S> {
    fn drop(&mut self) {
        self.shared.exchange.close();
        for thread in self.threads.drain(..) {
            // A worker catches its handlers' panics; one of its own has been printed.
            let _ = thread.join();
        }
    }
}

impl<S: Service> Shared<S> {
    fn work(&self, index: u16) {
        let _ended = Ended(self);
        let exchange = &self.exchange;
        let mut worker = exchange.attach(index);
        let mut now = self.clock.now();
        loop {
            match exchange.take(&mut worker, now) {
                Turn::Stop => return,
                Turn::Run => {}
                Turn::Wait => {
                    exchange.wait(&mut worker);
                    now = self.clock.now();
                }
            }
            now = worker.run(exchange, &*self.clock, now, |call| {
                self.service.handle(call);
            });
        }
    }
}

/// Counts a worker out, however it ends.
struct Ended<'a, S: Service>(&'a Shared<S>);

impl<S: Service> Drop for Ended<'_, S> {
    fn drop(&mut self) {
        *lock(&self.0.ended) += 1;
        self.0.changed.notify_all();
    }
}

fn lock(ended: &Mutex<u16>) -> std::sync::MutexGuard<'_, u16> {
    ended.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Service> fmt::Debug for ServicePool<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServicePool")
            .field("workers", &self.threads.len())
            .finish_non_exhaustive()
    }
}

/// Brings calls to a pool, from any thread. Outlives it: then everything is answered that the service is shutting down.
pub struct PoolHandle<S: Service>(Arc<Shared<S>>);

impl<S: Service> PoolHandle<S> {
    /// Gives a call to a worker, queues it, or answers why not. Never blocks. `now` is the loop's time.
    ///
    /// **Panics** if the call's class is not in the configuration.
    pub fn put(&self, call: InboundCall<S::Body, S::Route>, now: Monotonic) -> Admission {
        self.0.exchange.put(call, now)
    }

    /// See [`Exchange::tick`].
    pub fn tick(&self, now: Monotonic) {
        self.0.exchange.tick(now);
    }

    /// Forgets the queued calls of a session that has gone; how many. See [`Exchange::cancel_session`].
    pub fn cancel_session(&self, session: u64) -> usize {
        self.0.exchange.cancel_session(session)
    }

    /// Figures of now.
    pub fn figures(&self) -> PoolFigures {
        self.0.exchange.figures()
    }
}

impl<S: Service> Clone for PoolHandle<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Service> fmt::Debug for PoolHandle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PoolHandle")
    }
}
