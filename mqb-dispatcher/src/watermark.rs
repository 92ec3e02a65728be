//! How full a processor is, and the level that tells clients to hold back and to resume.
//!
//! Crossing *high* raises the level, falling to *low* lowers it. Both sides change the level and then look again at what the other
//! side may have done meanwhile, the same two-flag shape as the gate, so a level can neither stay high over an empty queue nor
//! be lowered unseen (`tests/loom.rs`, `watermark`).

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU32, AtomicUsize, Ordering, fence};

/// How full a processor is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Level {
    /// Below the high mark, or not yet down at the low mark after being under it.
    #[default]
    Normal,
    /// Reached the high mark and not yet back at the low mark: take no new edge work for it.
    High,
    /// At or over the hard limit: who still brings work should be cut off.
    Hard,
}

/// What a change of the level asks of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Nothing.
    None,
    /// The level changed: tell everybody who subscribed.
    Announce,
}

/// Depth counter and level of one processor.
#[derive(Debug)]
pub struct Watermark {
    depth: CachePadded<AtomicUsize>,
    raised: CachePadded<AtomicU32>,
    low: usize,
    high: usize,
    hard: usize,
}

impl Watermark {
    /// **Panics** unless `low < high <= hard`.
    pub fn new(low: usize, high: usize, hard: usize) -> Self {
        assert!(
            low < high && high <= hard,
            "watermarks must rise: {low} {high} {hard}"
        );
        Self {
            depth: CachePadded::new(AtomicUsize::new(0)),
            raised: CachePadded::new(AtomicU32::new(0)),
            low,
            high,
            hard,
        }
    }

    /// Events that wait. **Cost**: one load.
    pub fn depth(&self) -> usize {
        // Relaxed: a figure for decisions that tolerate being a moment late.
        self.depth.load(Ordering::Relaxed)
    }

    /// The current level.
    pub fn level(&self) -> Level {
        if self.raised.load(Ordering::Relaxed) == 0 {
            Level::Normal
        } else if self.depth() >= self.hard {
            Level::Hard
        } else {
            Level::High
        }
    }

    /// Counts `count` items in, *before* they are published; the depth that results.
    pub fn enter(&self, count: usize) -> usize {
        self.depth.fetch_add(count, Ordering::Relaxed) + count
    }

    /// Takes back an [`Watermark::enter`] whose items were refused.
    pub fn retract(&self, count: usize) {
        self.depth.fetch_sub(count, Ordering::Relaxed);
    }

    /// Producer, after publishing: raises the level if `depth` (what `enter` returned) calls for it.
    pub fn after_enter(&self, depth: usize) -> Change {
        let change = self.after_enter_unchecked(depth);
        if change == Change::Announce {
            // Pairs with the fence in `leave`: either the consumer sees the level or we see that it has drained already.
            fence(Ordering::SeqCst);
            self.lower_if_drained();
        }
        change
    }

    /// The first half of [`Watermark::after_enter`]. Alone it is wrong: the model shows a level that stays high for ever.
    pub fn after_enter_unchecked(&self, depth: usize) -> Change {
        // Look before swapping: while the level is high every producer comes by here.
        if depth >= self.high
            && self.raised.load(Ordering::Relaxed) == 0
            && self.raised.swap(1, Ordering::Relaxed) == 0
        {
            Change::Announce
        } else {
            Change::None
        }
    }

    /// Consumer: `count` items are done.
    pub fn leave(&self, count: usize) -> Change {
        let before = self.depth.fetch_sub(count, Ordering::Relaxed);
        debug_assert!(before >= count, "more events left than entered");
        // Pairs with the fence in `after_enter`.
        fence(Ordering::SeqCst);
        self.lower_if_drained()
    }

    fn lower_if_drained(&self) -> Change {
        if self.raised.load(Ordering::Relaxed) != 0
            && self.depth.load(Ordering::Relaxed) <= self.low
            && self.raised.swap(0, Ordering::Relaxed) != 0
        {
            Change::Announce
        } else {
            Change::None
        }
    }

    /// True if `depth` is at or over the hard limit.
    pub fn is_over_hard_limit(&self, depth: usize) -> bool {
        depth >= self.hard
    }

    /// True if `depth` is at or over the high mark.
    pub fn is_over_high(&self, depth: usize) -> bool {
        depth >= self.high
    }
}
