//! Slot numbers and their generations: who may be addressed on a processor, decided from any thread.
//!
//! A slot is reserved by whoever registers a client, before the client exists; the handle made from it is valid at once. A slot's
//! generation changes when its tenant goes, so that an old handle can never reach the next tenant. A slot whose generations are used
//! up is retired.

use crate::sync::{Mutex, lock};
use crate::tag::Address;

/// The slots of one processor.
#[derive(Debug)]
pub struct SlotAllocator {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    // Generation of the tenant, or of the next one while the slot is free.
    generations: Vec<u32>,
    free: Vec<u32>,
    capacity: u32,
}

impl SlotAllocator {
    /// Hands out at most `capacity` slots at a time.
    pub fn new(capacity: u32) -> Self {
        Self {
            state: Mutex::new(State {
                capacity,
                ..State::default()
            }),
        }
    }

    /// Reserves a slot; `None` if all are taken.
    pub(crate) fn reserve(&self) -> Option<Address> {
        let mut state = lock(&self.state);
        if let Some(slot) = state.free.pop() {
            return Some(Address {
                slot,
                generation: state.generations[slot as usize],
            });
        }
        let slot = u32::try_from(state.generations.len())
            .ok()
            .filter(|&slot| slot < state.capacity)?;
        state.generations.push(1);
        Some(Address {
            slot,
            generation: 1,
        })
    }

    /// The tenant at `address` has gone: its handles are stale from now on.
    pub(crate) fn release(&self, address: Address) {
        let mut state = lock(&self.state);
        let generation = &mut state.generations[address.slot as usize];
        debug_assert_eq!(
            *generation, address.generation,
            "a slot is released by its tenant"
        );
        if *generation < u32::MAX {
            *generation += 1;
            state.free.push(address.slot);
        }
    }

    /// As `reserve`, in plain numbers for the models: slot and generation.
    #[cfg(mqb_loom)]
    pub fn reserve_raw(&self) -> Option<(u32, u32)> {
        self.reserve()
            .map(|address| (address.slot, address.generation))
    }

    /// As `release`.
    #[cfg(mqb_loom)]
    pub fn release_raw(&self, (slot, generation): (u32, u32)) {
        self.release(Address { slot, generation });
    }
}
