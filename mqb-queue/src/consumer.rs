//! What a consumer asked for and how much of it it uses.
//!
//! A *lane* is the account of one subscription: window and usage. Lanes belong to a stream (one reader of a queue) and
//! outlive its configurations: a re-configuration gives new subscriptions to the lanes that are there, so messages
//! handed out under an earlier configuration still fill the window. (The reference broker starts again from zero, so a
//! full consumer that re-configures gets another full window.)

use mqb_core::{SessionId, SubscriptionId, WireQueueId};

/// One subscription of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubscriptionParameters {
    /// What a push to it carries.
    pub id: SubscriptionId,
    /// Window; 0 pauses.
    pub max_unconfirmed_messages: u64,
    /// Window. **Units**: bytes; 0 pauses. May be overshot by one message.
    pub max_unconfirmed_bytes: u64,
    /// Higher gets messages first; only the highest gets any.
    pub priority: i32,
    /// Weight among equal priorities; at least 1.
    pub priority_count: u32,
}

impl SubscriptionParameters {
    /// Whether it wants messages at all.
    pub fn is_consuming(&self) -> bool {
        self.max_unconfirmed_messages > 0 && self.max_unconfirmed_bytes > 0
    }
}

/// A peer's handle on a queue: the number it chose, on its connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Peer {
    /// The connection.
    pub session: SessionId,
    /// The peer's number for the queue.
    pub queue: WireQueueId,
}

/// Where a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// Whose it is.
    pub peer: Peer,
    /// The owner's own number for the connection, as given at open.
    pub token: u32,
    /// Under which subscription.
    pub subscription: SubscriptionId,
}

/// The account of one subscription.
#[derive(Debug)]
pub(crate) struct Lane {
    /// The stream that it belongs to.
    pub(crate) stream: u32,
    pub(crate) peer: Peer,
    pub(crate) token: u32,
    /// `None`: de-configured; what is outstanding stays outstanding.
    pub(crate) parameters: Option<SubscriptionParameters>,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// At its limit, and not yet back at 80 %.
    full: bool,
    /// Its connection takes nothing at the moment.
    pub(crate) paused: bool,
    /// Messages given to it since its last turn in the rotation.
    pub(crate) turns: u32,
    /// Whether the rotation lists it.
    pub(crate) in_ring: bool,
}

impl Lane {
    pub(crate) fn new(stream: u32, peer: Peer, token: u32, paused: bool) -> Self {
        Self {
            stream,
            peer,
            token,
            parameters: None,
            messages: 0,
            bytes: 0,
            full: false,
            paused,
            turns: 0,
            in_ring: false,
        }
    }

    /// Puts new parameters, or none, in force. Usage stays.
    pub(crate) fn configure(&mut self, parameters: Option<SubscriptionParameters>) {
        self.parameters = parameters;
        self.turns = 0;
        self.full = self.is_at_limit();
    }

    /// The priority at which it takes part; `None` if it wants nothing.
    pub(crate) fn level(&self) -> Option<i32> {
        self.parameters
            .as_ref()
            .filter(|parameters| parameters.is_consuming())
            .map(|parameters| parameters.priority)
    }

    /// Whether it can be given a message now.
    #[inline]
    pub(crate) fn is_usable(&self) -> bool {
        !self.full && !self.paused && self.level().is_some()
    }

    /// Counts a message handed out. The lane is usable.
    pub(crate) fn take(&mut self, len: u32) {
        self.messages += 1;
        self.bytes += u64::from(len);
        self.full = self.is_at_limit();
    }

    /// Counts a message that is no longer outstanding.
    pub(crate) fn give_back(&mut self, len: u32) {
        self.messages = self
            .messages
            .checked_sub(1)
            .expect("each outstanding message is counted once");
        self.bytes = self
            .bytes
            .checked_sub(u64::from(len))
            .expect("each outstanding message is counted once");
        if let (true, Some(parameters)) = (self.full, &self.parameters) {
            let resumes = self.messages <= resume_at(parameters.max_unconfirmed_messages)
                && self.bytes <= resume_at(parameters.max_unconfirmed_bytes);
            self.full = !resumes || self.is_at_limit();
        }
    }

    fn is_at_limit(&self) -> bool {
        self.parameters.as_ref().is_some_and(|parameters| {
            self.messages >= parameters.max_unconfirmed_messages
                || self.bytes >= parameters.max_unconfirmed_bytes
        })
    }
}

/// Usage at which a full window opens again: 80 % of the limit, rounded up.
fn resume_at(limit: u64) -> u64 {
    limit - limit / 5
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(messages: u64, bytes: u64) -> Lane {
        let peer = Peer {
            session: SessionId(1),
            queue: WireQueueId(0),
        };
        let mut lane = Lane::new(0, peer, 0, false);
        lane.configure(Some(SubscriptionParameters {
            id: SubscriptionId(1),
            max_unconfirmed_messages: messages,
            max_unconfirmed_bytes: bytes,
            priority: 0,
            priority_count: 1,
        }));
        lane
    }

    #[test]
    fn resume_point_is_eighty_percent_rounded_up() {
        for limit in 0..1000u64 {
            assert_eq!(resume_at(limit), (limit * 4).div_ceil(5), "limit {limit}");
        }
        assert_eq!(resume_at(u64::MAX), u64::MAX - u64::MAX / 5);
    }

    #[test]
    fn ten_messages_fill_and_eight_resume() {
        let mut lane = lane(10, u64::MAX);
        for _ in 0..10 {
            assert!(lane.is_usable());
            lane.take(1);
        }
        assert!(!lane.is_usable());
        lane.give_back(1);
        assert!(!lane.is_usable(), "9 of 10 outstanding");
        lane.give_back(1);
        assert!(lane.is_usable(), "8 of 10 outstanding");
    }

    #[test]
    fn small_windows_resume_after_one_confirm() {
        for limit in 1..=6 {
            let mut lane = lane(limit, u64::MAX);
            (0..limit).for_each(|_| lane.take(1));
            assert!(!lane.is_usable());
            lane.give_back(1);
            assert!(lane.is_usable(), "limit {limit}");
        }
    }

    #[test]
    fn bytes_overshoot_by_one_message_and_resume_at_eighty_percent() {
        let mut lane = lane(1000, 1000);
        for _ in 0..4 {
            assert!(lane.is_usable());
            lane.take(300);
        }
        assert!(!lane.is_usable());
        lane.give_back(300);
        assert!(!lane.is_usable(), "900 of 1000 outstanding");
        lane.give_back(300);
        assert!(lane.is_usable(), "600 of 1000 outstanding");
    }

    #[test]
    fn zero_pauses_and_a_one_byte_window_takes_one_message_at_a_time() {
        assert!(!lane(0, 10).is_usable());
        assert!(!lane(10, 0).is_usable());
        let mut lane = lane(10, 1);
        lane.take(1);
        assert!(!lane.is_usable());
        lane.give_back(1);
        assert!(lane.is_usable());
    }

    #[test]
    fn usage_survives_a_new_configuration() {
        let mut lane = lane(2, u64::MAX);
        lane.take(1);
        lane.take(1);
        let mut parameters = lane.parameters.expect("configured");
        parameters.id = SubscriptionId(2);
        lane.configure(None);
        assert!(!lane.is_usable());
        lane.configure(Some(parameters));
        assert!(!lane.is_usable(), "still 2 of 2 outstanding");
        parameters.max_unconfirmed_messages = 3;
        lane.configure(Some(parameters));
        assert!(lane.is_usable());
    }
}
