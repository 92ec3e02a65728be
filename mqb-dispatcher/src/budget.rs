//! How many events a turn may run, and for how long, without reading the clock for each.

use crate::clock::Monotonic;
use crate::config::DispatcherConfig;

/// The clock is read after as many events at most; fewer if they are slow.
const STRIDE_MAX: u64 = 64;
/// So many events after the start of a turn the clock is read first.
const STRIDE_FIRST: u64 = 16;

/// How far the events of one turn may go.
#[derive(Default)]
pub(crate) struct Budget {
    events: u64,
    until: Monotonic,
    checked_at: u64,
    checked: Monotonic,
    next_check: u64,
}

/// What a look at the clock has measured.
pub(crate) enum Timed {
    One(u64),
    Several,
}

impl Budget {
    /// For a turn that begins now. With `sample` the first event is timed on its own.
    pub(crate) fn start(&mut self, now: Monotonic, config: &DispatcherConfig, sample: bool) {
        *self = Self {
            events: config.turn_events as u64,
            until: now + config.turn_time,
            checked_at: 0,
            checked: now,
            next_check: if sample { 1 } else { STRIDE_FIRST },
        };
    }

    /// Goes on with events after other work, whose time must not be taken for that of one event.
    pub(crate) fn resume(&mut self, events: u64) {
        self.next_check = self.next_check.max(events + STRIDE_FIRST);
    }

    #[inline]
    pub(crate) fn is_check_due(&self, events: u64) -> bool {
        events >= self.next_check
    }

    #[inline]
    pub(crate) fn allows(&self, events: u64) -> bool {
        events < self.events
    }

    /// Looks at the clock: ends the budget if the time is over, else decides when to look again, so that the turn ends in time if
    /// handlers stay as slow as they are.
    pub(crate) fn check(&mut self, now: Monotonic, events: u64) -> Timed {
        let (nanos, count) = (
            (now - self.checked).as_nanos() as u64,
            events - self.checked_at,
        );
        (self.checked, self.checked_at) = (now, events);
        if now >= self.until {
            self.events = events;
            self.next_check = u64::MAX;
        } else {
            let left = (self.until - now).as_nanos() as u64;
            let per_event = nanos / count.max(1) + 1;
            self.next_check = events + (left / per_event / 2).clamp(1, STRIDE_MAX);
        }
        if count == 1 {
            Timed::One(nanos)
        } else {
            Timed::Several
        }
    }
}
