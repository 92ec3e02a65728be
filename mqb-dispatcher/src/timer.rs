//! Hierarchical timer wheel: one millisecond ticks, seven levels of 64 slots.
//!
//! A timer sits in the level of the highest digit (base 64) in which its tick differs from the present one, and moves down as time
//! comes near. Insert, cancel and expiry are O(1); a timer moves at most six times. Lists are linked by index inside one slab.

use std::time::Duration;

use slab::Slab;

use crate::clock::Monotonic;
use crate::tag::Address;

/// Length of a tick. **Units**: nanoseconds.
pub(crate) const TICK_NS: u64 = 1_000_000;

const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 7;
/// Timers further away than this (70 years) run out at this distance.
const FURTHEST_TICKS: u64 = 1 << (DIGIT_BITS * LEVELS as u32 - 1);
/// The list of timers that have run out and wait to be delivered.
const FIRING: u32 = (LEVELS * SLOTS) as u32;
const NIL: u32 = u32::MAX;

/// Names a timer of one processor. Never refers to a later one that took its place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TimerId(u64);

#[derive(Debug)]
struct Entry {
    owner: Address,
    id: TimerId,
    tick: u64,
    list: u32,
    previous: u32,
    next: u32,
    // The owner's other timers; the first is in its slot.
    siblings: Siblings,
}

#[derive(Clone, Copy, Debug)]
struct Siblings {
    previous: Option<u32>,
    next: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

const EMPTY: List = List {
    head: NIL,
    tail: NIL,
};

/// The timers of one processor.
#[derive(Debug)]
pub(crate) struct Wheel {
    entries: Slab<Entry>,
    lists: Box<[List]>,
    // Per level, which lists are not empty.
    occupied: [u64; LEVELS],
    tick: u64,
    scheduled: u32,
}

impl Wheel {
    pub(crate) fn new(now: Monotonic) -> Self {
        Self {
            entries: Slab::new(),
            lists: vec![EMPTY; LEVELS * SLOTS + 1].into_boxed_slice(),
            occupied: [0; LEVELS],
            tick: now.as_nanos() / TICK_NS,
            scheduled: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Never fires before `after` has passed, and never within the present tick: a handler that reschedules itself cannot spin inside a turn.
    ///
    /// `first` is the head of the owner's list of timers, here and below.
    pub(crate) fn schedule(
        &mut self,
        owner: Address,
        first: &mut Option<u32>,
        now: Monotonic,
        after: Duration,
    ) -> TimerId {
        let present = self.tick.max(now.as_nanos() / TICK_NS);
        if self.entries.is_empty() {
            // Nothing has moved time on meanwhile.
            self.tick = present;
        }
        let tick = (now + after)
            .as_nanos()
            .div_ceil(TICK_NS)
            .clamp(present + 1, self.tick + FURTHEST_TICKS);
        let vacant = self.entries.vacant_entry();
        let index = u32::try_from(vacant.key())
            .expect("four thousand million timers do not fit into memory");
        self.scheduled = self.scheduled.wrapping_add(1);
        let id = TimerId(u64::from(index) | u64::from(self.scheduled) << 32);
        let siblings = Siblings {
            previous: None,
            next: first.replace(index),
        };
        vacant.insert(Entry {
            owner,
            id,
            tick,
            list: NIL,
            previous: NIL,
            next: NIL,
            siblings,
        });
        if let Some(next) = siblings.next {
            self.entries[next as usize].siblings.previous = Some(index);
        }
        self.place(index);
        id
    }

    pub(crate) fn cancel(&mut self, owner: Address, first: &mut Option<u32>, id: TimerId) -> bool {
        let index = id.0 as u32;
        if self
            .entries
            .get(index as usize)
            .is_none_or(|entry| entry.id != id || entry.owner != owner)
        {
            return false;
        }
        self.remove(index, first);
        true
    }

    /// Forgets all timers of an owner that has gone.
    pub(crate) fn forget(&mut self, mut first: Option<u32>) {
        while let Some(index) = first {
            self.unlink(index);
            first = self.entries.remove(index as usize).siblings.next;
        }
    }

    /// False if certainly nothing runs out by `now`. **Cost**: a compare, unless a tick has passed.
    pub(crate) fn may_fire(&self, now: Monotonic) -> bool {
        !self.entries.is_empty() && now.as_nanos() / TICK_NS > self.tick
            || self.lists[FIRING as usize].head != NIL
    }

    /// Takes one timer that has run out by `now`, in order of their ticks and, within a tick, roughly of their scheduling.
    pub(crate) fn pop_expired<'a>(
        &mut self,
        now: Monotonic,
        first: impl FnOnce(Address) -> &'a mut Option<u32>,
    ) -> Option<(TimerId, Address)> {
        let firing = &self.lists[FIRING as usize];
        if firing.head == NIL {
            self.advance(now.as_nanos() / TICK_NS);
        }
        let index = self.lists[FIRING as usize].head;
        if index == NIL {
            return None;
        }
        let Entry { id, owner, .. } = self.entries[index as usize];
        self.remove(index, first(owner));
        Some((id, owner))
    }

    fn remove(&mut self, index: u32, first: &mut Option<u32>) {
        self.unlink(index);
        let Siblings { previous, next } = self.entries.remove(index as usize).siblings;
        match previous {
            None => *first = next,
            Some(previous) => self.entries[previous as usize].siblings.next = next,
        }
        if let Some(next) = next {
            self.entries[next as usize].siblings.previous = previous;
        }
    }

    /// When to look again: no timer runs out before. (A far timer asks for a look when it must move down a level.)
    pub(crate) fn next_look(&self) -> Option<Monotonic> {
        if self.lists[FIRING as usize].head != NIL {
            return Some(Monotonic::ZERO);
        }
        self.next_list()
            .map(|(_, tick)| Monotonic::from_nanos(tick.saturating_mul(TICK_NS)))
    }

    /// Moves time on to the next list that is due, if any, until something fires.
    fn advance(&mut self, to: u64) {
        while self.lists[FIRING as usize].head == NIL {
            match self.next_list() {
                Some((list, tick)) if tick <= to => {
                    self.tick = tick;
                    self.redistribute(list);
                }
                _ => {
                    self.tick = self.tick.max(to);
                    return;
                }
            }
        }
    }

    /// The earliest occupied list and the tick at which its range begins.
    fn next_list(&self) -> Option<(u32, u64)> {
        let level = self.occupied.iter().position(|&slots| slots != 0)?;
        let slot = self.occupied[level].trailing_zeros();
        let shift = DIGIT_BITS * level as u32;
        let above = self.tick >> (shift + DIGIT_BITS) << (shift + DIGIT_BITS);
        Some((
            level as u32 * SLOTS as u32 + slot,
            above | u64::from(slot) << shift,
        ))
    }

    fn redistribute(&mut self, list: u32) {
        while self.lists[list as usize].head != NIL {
            let index = self.lists[list as usize].head;
            self.unlink(index);
            self.place(index);
        }
    }

    fn place(&mut self, index: u32) {
        let tick = self.entries[index as usize].tick;
        if tick <= self.tick {
            return self.append(FIRING, index);
        }
        let level = (63 - (tick ^ self.tick).leading_zeros()) / DIGIT_BITS;
        let slot = (tick >> (level * DIGIT_BITS)) as u32 % SLOTS as u32;
        self.occupied[level as usize] |= 1 << slot;
        self.append(level * SLOTS as u32 + slot, index);
    }

    fn append(&mut self, list: u32, index: u32) {
        let tail = std::mem::replace(&mut self.lists[list as usize].tail, index);
        match tail {
            NIL => self.lists[list as usize].head = index,
            tail => self.entries[tail as usize].next = index,
        }
        let entry = &mut self.entries[index as usize];
        (entry.list, entry.previous, entry.next) = (list, tail, NIL);
    }

    fn unlink(&mut self, index: u32) {
        let Entry {
            list,
            previous,
            next,
            ..
        } = self.entries[index as usize];
        match previous {
            NIL => self.lists[list as usize].head = next,
            previous => self.entries[previous as usize].next = next,
        }
        match next {
            NIL => self.lists[list as usize].tail = previous,
            next => self.entries[next as usize].previous = previous,
        }
        if list != FIRING && self.lists[list as usize].head == NIL {
            self.occupied[list as usize / SLOTS] &= !(1 << (list as usize % SLOTS));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWNERS: usize = 3;

    fn owner(index: usize) -> Address {
        Address {
            slot: index as u32,
            generation: 1,
        }
    }

    fn at(millis: u64) -> Monotonic {
        Monotonic::from_nanos(millis * TICK_NS)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Schedule { owner: usize, after: u64 },
        Cancel { timer: usize },
        Forget { owner: usize },
        Advance { by: u64 },
    }

    /// From the next tick to years ahead, each magnitude as likely.
    fn span() -> impl Strategy<Value = u64> {
        (0..40_u32, any::<u64>()).prop_map(|(bits, random)| random & ((1 << bits) - 1))
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..OWNERS, span()).prop_map(|(owner, after)| Step::Schedule { owner, after }),
            1 => any::<prop::sample::Index>().prop_map(|timer| Step::Cancel { timer: timer.index(1 << 16) }),
            1 => (0..OWNERS).prop_map(|owner| Step::Forget { owner }),
            3 => span().prop_map(|by| Step::Advance { by }),
        ]
    }

    proptest! {
        #[test]
        fn the_wheel_agrees_with_a_sorted_list(start in span(), steps in prop::collection::vec(step(), 1..200)) {
            let mut now = start;
            let mut wheel = Wheel::new(at(now));
            let mut first = [None; OWNERS];
            let mut made = Vec::new();
            // (tick, timer, owner)
            let mut model: Vec<(u64, TimerId, usize)> = Vec::new();
            for step in steps {
                match step {
                    Step::Schedule { owner: index, after } => {
                        let timer = wheel.schedule(owner(index), &mut first[index], at(now), Duration::from_millis(after));
                        made.push((timer, index));
                        model.push((now + after.max(1), timer, index));
                    }
                    Step::Cancel { timer } if !made.is_empty() => {
                        let (timer, index) = made[timer % made.len()];
                        let known = model.iter().position(|(_, known, _)| *known == timer);
                        let cancelled = wheel.cancel(owner(index), &mut first[index], timer);
                        prop_assert_eq!(cancelled, known.is_some());
                        known.map(|known| model.remove(known));
                    }
                    Step::Cancel { .. } => {}
                    Step::Forget { owner: index } => {
                        wheel.forget(first[index].take());
                        model.retain(|(_, _, of)| *of != index);
                    }
                    Step::Advance { by } => {
                        now += by;
                        let mut last = 0;
                        while let Some((timer, of)) = wheel.pop_expired(at(now), |of| &mut first[of.slot as usize]) {
                            let known = model.iter().position(|(_, known, _)| *known == timer);
                            let (tick, _, index) = model.remove(known.expect("only live timers fire"));
                            prop_assert_eq!(owner(index), of);
                            prop_assert!(tick <= now, "fired early");
                            prop_assert!(last <= tick, "out of order");
                            last = tick;
                        }
                        prop_assert!(model.iter().all(|(tick, _, _)| *tick > now), "one did not fire");
                    }
                }
                prop_assert_eq!(wheel.len(), model.len());
                let earliest = model.iter().map(|(tick, _, _)| *tick).min();
                // It may want to look sooner, never later.
                prop_assert_eq!(wheel.next_look().is_some(), earliest.is_some());
                if let (Some(look), Some(earliest)) = (wheel.next_look(), earliest) {
                    prop_assert!(look <= at(earliest));
                }
            }
        }
    }

    #[test]
    fn another_owner_cannot_cancel_a_timer() {
        let mut wheel = Wheel::new(at(0));
        let (mut mine, mut theirs) = (None, None);
        let timer = wheel.schedule(owner(0), &mut mine, at(0), Duration::from_millis(5));
        assert!(!wheel.cancel(owner(1), &mut theirs, timer));
        assert!(wheel.cancel(owner(0), &mut mine, timer));
    }
}
