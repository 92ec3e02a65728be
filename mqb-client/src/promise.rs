//! A value that one thread will have and another waits for.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// Locks, and goes on with the data if a callback of the application panicked while it held the lock:
/// every critical section of this crate leaves its data consistent at each point where foreign code runs.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits on `condition` until notified or until the deadline; `None` waits without one.
pub(crate) fn wait<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    deadline: Option<Instant>,
) -> MutexGuard<'a, T> {
    match deadline {
        None => condition
            .wait(guard)
            .unwrap_or_else(PoisonError::into_inner),
        Some(at) => {
            let left = at.saturating_duration_since(Instant::now());
            condition
                .wait_timeout(guard, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0
        }
    }
}

#[derive(Debug)]
struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
    /// The promising half is gone; without a value there will be none.
    ended: bool,
}

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    ready: Condvar,
}

/// The half that gives the value.
#[derive(Debug)]
pub(crate) struct Promise<T>(Arc<Shared<T>>);

/// The half that takes the value: by blocking, by polling, or as a [`Future`].
#[derive(Debug)]
pub(crate) struct Promised<T>(Arc<Shared<T>>);

/// A promise and its other half.
pub(crate) fn promise<T>() -> (Promise<T>, Promised<T>) {
    let state = State {
        value: None,
        waker: None,
        ended: false,
    };
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        ready: Condvar::new(),
    });
    (Promise(shared.clone()), Promised(shared))
}

impl<T> Promise<T> {
    /// Gives the value.
    pub(crate) fn fulfil(self, value: T) {
        lock(&self.0.state).value = Some(value);
        // Dropping wakes whoever waits.
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let waker = {
            let mut state = lock(&self.0.state);
            state.ended = true;
            state.waker.take()
        };
        self.0.ready.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Why there is no value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The deadline came first.
    Timeout,
    /// The other half is gone.
    Ended,
}

impl<T> Promised<T> {
    /// Blocks until the value is there.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Result<T, Missing> {
        let mut state = lock(&self.0.state);
        loop {
            if let Some(value) = state.value.take() {
                return Ok(value);
            }
            if state.ended {
                return Err(Missing::Ended);
            }
            if deadline.is_some_and(|at| Instant::now() >= at) {
                return Err(Missing::Timeout);
            }
            state = wait(&self.0.ready, state, deadline);
        }
    }

    /// The value if it is there.
    pub(crate) fn take(&self) -> Option<T> {
        lock(&self.0.state).value.take()
    }
}

impl<T> Future for Promised<T> {
    type Output = Result<T, Missing>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.0.state);
        if let Some(value) = state.value.take() {
            return Poll::Ready(Ok(value));
        }
        if state.ended {
            return Poll::Ready(Err(Missing::Ended));
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_promise_ends_the_wait() {
        let (give, take) = promise::<u32>();
        let waiter = std::thread::spawn(move || take.wait(None));
        drop(give);
        assert_eq!(waiter.join().unwrap(), Err(Missing::Ended));
    }

    #[test]
    fn a_value_given_before_the_wait_is_found() {
        let (give, take) = promise();
        assert_eq!(take.wait(Some(Instant::now())), Err(Missing::Timeout));
        give.fulfil(5);
        assert_eq!(take.wait(Some(Instant::now())), Ok(5));
    }
}
