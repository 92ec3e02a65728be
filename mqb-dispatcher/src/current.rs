//! What runs on a processor right now, in one word that the watchdog can read: activity, event kind, slot.

use std::sync::Arc;

use crate::config::{Activity, EventKind, HandlerReport};
use crate::group::{Group, Shared};

/// Slot of work that belongs to no client.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// Packs an activity into a word. **Layout**: slot in bits 0..32, event kind in 32..48, activity in 48..56.
#[inline]
pub(crate) fn pack(activity: Activity, slot: u32) -> u64 {
    let (code, kind) = match activity {
        Activity::Idle => (0, 0),
        Activity::Event(EventKind(kind)) => (1, kind),
        Activity::Make => (2, 0),
        Activity::Ready => (3, 0),
        Activity::Timer => (4, 0),
        Activity::Flush => (5, 0),
        Activity::Pressure => (6, 0),
        Activity::Stop => (7, 0),
        Activity::Barrier => (8, 0),
        Activity::Drop => (9, 0),
    };
    u64::from(slot) | u64::from(kind) << 32 | code << 48
}

/// The slot in a word.
pub(crate) fn slot(word: u64) -> u32 {
    word as u32
}

fn unpack(word: u64) -> (Activity, u32) {
    let activity = match (word >> 48) as u8 {
        1 => Activity::Event(EventKind((word >> 32) as u16)),
        2 => Activity::Make,
        3 => Activity::Ready,
        4 => Activity::Timer,
        5 => Activity::Flush,
        6 => Activity::Pressure,
        7 => Activity::Stop,
        8 => Activity::Barrier,
        9 => Activity::Drop,
        _ => Activity::Idle,
    };
    (activity, slot(word))
}

/// Puts what the word says into words.
pub(crate) fn report<E: Send + 'static>(
    group: &Group<E>,
    shared: &Shared<E>,
    word: u64,
) -> HandlerReport {
    let (activity, slot) = unpack(word);
    let name = shared.names.find(slot);
    HandlerReport {
        processor: shared.id,
        kind: name.as_ref().map(|name| name.kind),
        name: name.map_or_else(|| Arc::from("dispatcher"), |name| name.text()),
        activity,
        event: match activity {
            Activity::Event(kind) => (group.hooks.event_name)(kind),
            _ => "",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_activity_unpacks_to_itself() {
        for activity in [
            Activity::Idle,
            Activity::Event(EventKind(0)),
            Activity::Event(EventKind(u16::MAX)),
            Activity::Make,
            Activity::Ready,
            Activity::Timer,
            Activity::Flush,
            Activity::Pressure,
            Activity::Stop,
            Activity::Barrier,
            Activity::Drop,
        ] {
            for slot in [0, 77, NO_SLOT] {
                assert_eq!(unpack(pack(activity, slot)), (activity, slot));
            }
        }
    }
}
