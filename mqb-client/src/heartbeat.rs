//! Watches whether the broker is still there, as newer official SDKs do.

use std::time::{Duration, Instant};

/// What to do about the broker's silence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beat {
    Quiet,
    /// Ask it to say something.
    Request,
    /// It has been asked often enough.
    Dead,
}

/// Counts checks without traffic. Any event from the broker is a sign of life; nothing is sent on a busy link.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    interval: Duration,
    max_missed: u32,
    missed: u32,
    traffic: bool,
    next: Option<Instant>,
}

impl Heartbeat {
    /// Never asks.
    pub(crate) fn off() -> Heartbeat {
        Heartbeat {
            interval: Duration::ZERO,
            max_missed: 0,
            missed: 0,
            traffic: false,
            next: None,
        }
    }

    /// With the figures that the broker announced; it may announce that it does not want to be watched.
    pub(crate) fn new(interval_ms: i32, max_missed: i32, now: Instant) -> Heartbeat {
        match (u64::try_from(interval_ms), u32::try_from(max_missed)) {
            (Ok(interval_ms @ 1..), Ok(max_missed @ 1..)) => {
                let interval = Duration::from_millis(interval_ms);
                Heartbeat {
                    interval,
                    max_missed,
                    missed: 0,
                    traffic: false,
                    next: Some(now + interval),
                }
            }
            _ => Heartbeat::off(),
        }
    }

    pub(crate) fn note_traffic(&mut self) {
        self.traffic = true;
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.next
    }

    pub(crate) fn on_time(&mut self, now: Instant) -> Beat {
        if self.next.is_none_or(|at| now < at) {
            return Beat::Quiet;
        }
        self.next = Some(now + self.interval);
        if std::mem::take(&mut self.traffic) {
            self.missed = 0;
            return Beat::Quiet;
        }
        self.missed += 1;
        if self.missed > self.max_missed {
            Beat::Dead
        } else {
            Beat::Request
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_asked_about_and_then_ends_the_connection() {
        let start = Instant::now();
        let at = |n: u64| start + Duration::from_millis(100 * n);
        let mut heartbeat = Heartbeat::new(100, 2, start);
        assert_eq!(heartbeat.on_time(at(0)), Beat::Quiet);
        heartbeat.note_traffic();
        assert_eq!(heartbeat.on_time(at(1)), Beat::Quiet);
        assert_eq!(heartbeat.on_time(at(2)), Beat::Request);
        heartbeat.note_traffic();
        assert_eq!(heartbeat.on_time(at(3)), Beat::Quiet);
        assert_eq!(heartbeat.on_time(at(4)), Beat::Request);
        assert_eq!(heartbeat.on_time(at(5)), Beat::Request);
        assert_eq!(heartbeat.on_time(at(6)), Beat::Dead);
    }

    #[test]
    fn a_broker_that_announces_no_limit_is_not_watched() {
        assert_eq!(Heartbeat::new(3000, 0, Instant::now()).deadline(), None);
        assert_eq!(Heartbeat::new(-1, 10, Instant::now()).deadline(), None);
    }
}
