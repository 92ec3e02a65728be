//! Cuts short what one place in the code has to say again and again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;

/// Events of one place that are written per interval.
const BURST: u32 = 50;
/// How long a place is cut short.
const INTERVAL: Duration = Duration::from_secs(10);

/// What to do with an event.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Write,
    /// Written again after a silence in which so many were not.
    Resume {
        suppressed: u64,
    },
    Suppress,
}

struct Window {
    since: Instant,
    written: u32,
    suppressed: u64,
}

/// Owned by: whoever logs; the lock is held for a look-up. As many entries as there are places that log.
#[derive(Default)]
pub(super) struct Repeats {
    windows: Mutex<HashMap<Identifier, Window>>,
}

impl Repeats {
    pub(super) fn judge(&self, place: Identifier, now: Instant) -> Verdict {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.entry(place).or_insert(Window {
            since: now,
            written: 0,
            suppressed: 0,
        });
        if now.duration_since(window.since) >= INTERVAL {
            let suppressed = std::mem::replace(
                window,
                Window {
                    since: now,
                    written: 1,
                    suppressed: 0,
                },
            )
            .suppressed;
            return if suppressed > 0 {
                Verdict::Resume { suppressed }
            } else {
                Verdict::Write
            };
        }
        if window.written < BURST {
            window.written += 1;
            return Verdict::Write;
        }
        window.suppressed += 1;
        Verdict::Suppress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_cut_short_counted_and_over_after_the_interval() {
        let callsite = || {
            static META: std::sync::OnceLock<Identifier> = std::sync::OnceLock::new();
            META.get_or_init(|| {
                use tracing::callsite::Callsite;
                struct Here;
                static HERE: Here = Here;
                impl Callsite for Here {
                    fn set_interest(&self, _: tracing::subscriber::Interest) {}
                    fn metadata(&self) -> &tracing::Metadata<'_> {
                        unreachable!("only the address counts")
                    }
                }
                Identifier(&HERE)
            })
            .clone()
        };
        let repeats = Repeats::default();
        let start = Instant::now();
        for _ in 0..BURST {
            assert_eq!(repeats.judge(callsite(), start), Verdict::Write);
        }
        for _ in 0..7 {
            assert_eq!(
                repeats.judge(callsite(), start + INTERVAL / 2),
                Verdict::Suppress
            );
        }
        assert_eq!(
            repeats.judge(callsite(), start + INTERVAL),
            Verdict::Resume { suppressed: 7 }
        );
        assert_eq!(repeats.judge(callsite(), start + INTERVAL), Verdict::Write);
        assert_eq!(
            repeats.judge(callsite(), start + INTERVAL * 2),
            Verdict::Write
        );
    }
}
