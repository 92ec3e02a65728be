//! Who gets the next message: round robin with weights among the usable lanes of the highest priority.
//!
//! The highest priority is that of the lanes that *want* messages, full or not: lower ones get nothing while the top is
//! merely busy. A lane with a window of 0 wants nothing and holds nobody up. A lane that becomes usable again queues up
//! behind the others, so picking costs O(1) however many consumers are full.

use std::collections::VecDeque;

use slab::Slab;
use smallvec::SmallVec;

use crate::consumer::{Lane, Peer, SubscriptionParameters, Target};

/// Place of a lane; reused after the lane is gone.
pub(crate) type LaneId = u32;

/// The lanes of one app and their turn order.
pub(crate) struct Rotation {
    lanes: Slab<Lane>,
    /// Usable lanes of the top level, next one first. May list lanes that have become unusable; they are dropped when met.
    ring: VecDeque<LaneId>,
    /// Priority of the top level.
    level: Option<i32>,
}

impl Rotation {
    pub(crate) fn new() -> Self {
        Self {
            lanes: Slab::new(),
            ring: VecDeque::new(),
            level: None,
        }
    }

    /// The lane whose turn it is.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<LaneId> {
        while let Some(&id) = self.ring.front() {
            let lane = &mut self.lanes[id as usize];
            if lane.is_usable() {
                return Some(id);
            }
            lane.in_ring = false;
            lane.turns = 0;
            self.ring.pop_front();
        }
        None
    }

    /// Where a message for the lane goes.
    pub(crate) fn target(&self, id: LaneId) -> Target {
        let lane = &self.lanes[id as usize];
        let subscription = lane
            .parameters
            .as_ref()
            .expect("only a configured lane has its turn")
            .id;
        Target {
            peer: lane.peer,
            token: lane.token,
            subscription,
        }
    }

    /// Counts a message given to `id`, which [`next`](Self::next) named, and passes the turn on when its weight is used up.
    pub(crate) fn take(&mut self, id: LaneId, len: u32) {
        debug_assert_eq!(self.ring.front(), Some(&id));
        let lane = &mut self.lanes[id as usize];
        lane.take(len);
        lane.turns += 1;
        if lane.turns
            >= lane
                .parameters
                .as_ref()
                .map_or(1, |parameters| parameters.priority_count)
        {
            lane.turns = 0;
            self.ring.rotate_left(1);
        }
    }

    /// Counts a message of `id` that is no longer outstanding.
    pub(crate) fn give_back(&mut self, id: LaneId, len: u32) {
        self.lanes[id as usize].give_back(len);
        self.enlist(id);
    }

    /// The stream that a lane belongs to.
    pub(crate) fn stream_of(&self, id: LaneId) -> u32 {
        self.lanes[id as usize].stream
    }

    /// Number of messages outstanding with a stream. **Cost**: linear in the number of lanes.
    pub(crate) fn outstanding(&self, stream: u32) -> u64 {
        self.of(stream).map(|(_, lane)| lane.messages).sum()
    }

    /// Stops or resumes delivery to a connection without touching what it holds.
    pub(crate) fn set_paused(&mut self, peer: Peer, paused: bool) {
        let ids: SmallVec<[usize; 8]> = self
            .lanes
            .iter()
            .filter(|(_, lane)| lane.peer == peer)
            .map(|(id, _)| id)
            .collect();
        for id in ids {
            self.lanes[id].paused = paused;
            self.enlist(id as LaneId);
        }
    }

    /// Replaces the subscriptions of a stream. New ones take over the accounts of old ones: first those of the same id,
    /// then the fullest. Accounts left over keep what is outstanding until it comes back or a later configuration
    /// takes them over.
    pub(crate) fn configure(
        &mut self,
        stream: u32,
        owner: (Peer, u32, bool),
        subscriptions: &[SubscriptionParameters],
    ) {
        let mut free: SmallVec<[LaneId; 4]> = self.of(stream).map(|(id, _)| id as LaneId).collect();
        let mut assigned: SmallVec<[Option<LaneId>; 4]> =
            SmallVec::from_elem(None, subscriptions.len());
        for (lane, subscription) in assigned.iter_mut().zip(subscriptions) {
            let same = |&id: &LaneId| {
                self.lanes[id as usize]
                    .parameters
                    .is_some_and(|old| old.id == subscription.id)
            };
            *lane = free.iter().position(same).map(|at| free.remove(at));
        }
        free.sort_by_key(|&id| {
            let lane = &self.lanes[id as usize];
            std::cmp::Reverse((lane.messages, lane.bytes))
        });
        let mut free = free.into_iter();
        let (peer, token, paused) = owner;
        for (lane, subscription) in assigned.iter().zip(subscriptions) {
            let id = lane.or_else(|| free.next()).unwrap_or_else(|| {
                self.lanes.insert(Lane::new(stream, peer, token, paused)) as LaneId
            });
            self.lanes[id as usize].configure(Some(*subscription));
        }
        for id in free {
            self.lanes[id as usize].configure(None);
        }
        self.lanes.retain(|_, lane| {
            lane.stream != stream || lane.parameters.is_some() || lane.messages > 0
        });
        self.rebuild();
    }

    /// Forgets a stream. Nothing is outstanding with it.
    pub(crate) fn remove(&mut self, stream: u32) {
        debug_assert_eq!(self.outstanding(stream), 0);
        self.lanes.retain(|_, lane| lane.stream != stream);
        self.rebuild();
    }

    fn of(&self, stream: u32) -> impl Iterator<Item = (usize, &Lane)> {
        self.lanes
            .iter()
            .filter(move |(_, lane)| lane.stream == stream)
    }

    /// Puts a lane that has become usable at the end of the rotation.
    fn enlist(&mut self, id: LaneId) {
        let lane = &mut self.lanes[id as usize];
        if !lane.in_ring && lane.is_usable() && lane.level() == self.level {
            lane.in_ring = true;
            self.ring.push_back(id);
        }
    }

    /// Finds the top level again after lanes came, went or changed. Those that keep their place in the rotation keep it.
    fn rebuild(&mut self) {
        self.level = self.lanes.iter().filter_map(|(_, lane)| lane.level()).max();
        let ring = std::mem::take(&mut self.ring);
        self.lanes
            .iter_mut()
            .for_each(|(_, lane)| lane.in_ring = false);
        for id in ring {
            if self.lanes.contains(id as usize) {
                self.enlist(id);
            }
        }
        let ids: Vec<usize> = self.lanes.iter().map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| self.enlist(id as LaneId));
    }
}
