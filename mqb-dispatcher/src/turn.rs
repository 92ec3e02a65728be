//! The state of a processor that a handler may touch, through [`Cx`](crate::Cx), while its client is borrowed.
//!
//! Owned by the processor's thread. Clients themselves are kept apart (`processor.rs`), so a handler can reach all of this and no
//! client, and nothing here calls foreign code.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mio::Interest;
use mio::event::Source;

use crate::client::MemberId;
use crate::clock::Monotonic;
use crate::group::{Group, Item, Shared};
use crate::handle::Handle;
use crate::io::{IoTable, IoToken, Readiness};
use crate::lanes::Lanes;
use crate::registrar::Registrar;
use crate::tag::{Address, ClientCore, ClientKind, ProcessorId, ThreadTag};
use crate::timer::{TimerId, Wheel};
use crate::watermark::Level;

/// Who lives in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tenant {
    Vacant,
    Client,
    /// A member: its client's slot.
    Member {
        owner: u32,
    },
}

/// What the loop must know of a slot before it touches the client.
pub(crate) struct Slot {
    pub(crate) generation: u32,
    pub(crate) tenant: Tenant,
    pub(crate) kind: ClientKind,
    /// Is in the flush list.
    linked: bool,
    leaving: bool,
    members: u32,
    first_io: Option<u32>,
    first_timer: Option<u32>,
}

const VACANT: Slot = Slot {
    generation: 0,
    tenant: Tenant::Vacant,
    kind: ClientKind::new(0, "vacant"),
    linked: false,
    leaving: false,
    members: 0,
    first_io: None,
    first_timer: None,
};

pub(crate) struct TurnState<E: Send + 'static> {
    pub(crate) group: Arc<Group<E>>,
    pub(crate) id: ProcessorId,
    pub(crate) tag: ThreadTag,
    pub(crate) now: Monotonic,
    pub(crate) slots: Vec<Slot>,
    pub(crate) lanes: Rc<Lanes<E>>,
    pub(crate) timers: Wheel,
    pub(crate) io: IoTable,
    /// Readiness that waits for its turn.
    pub(crate) ready: VecDeque<(IoToken, Readiness)>,
    /// Clients to flush at the end of this turn.
    pub(crate) flush: VecDeque<u32>,
    /// Clients to drop once the running handler has returned.
    pub(crate) leaving: Vec<Address>,
    pub(crate) subscribers: Vec<Address>,
    /// Subscribers that must be told the present levels.
    pub(crate) new_subscribers: Vec<Address>,
}

impl<E: Send + 'static> TurnState<E> {
    pub(crate) fn shared(&self) -> &Shared<E> {
        self.group.processor(self.id)
    }

    #[inline]
    pub(crate) fn id(&self) -> ProcessorId {
        self.id
    }

    #[inline]
    pub(crate) fn post(&mut self, to: &Handle<E>, event: E) {
        let item = Item::Event {
            to: to.address(),
            event,
        };
        if let Some(item) = self
            .lanes
            .put(to.group(), to.thread(), to.processor(), item)
        {
            // Another dispatcher's: published at once, counted there if refused.
            drop(to.group().push(to.processor(), item));
        }
    }

    pub(crate) fn handle_to(&self, address: Address) -> Handle<E> {
        Handle::new(Arc::clone(&self.group), self.id, address)
    }

    pub(crate) fn registrar(&self) -> Registrar<E> {
        Registrar::new(Arc::clone(&self.group))
    }

    pub(crate) fn level_of(&self, processor: ProcessorId) -> Level {
        self.group
            .processors
            .get(processor.index())
            .map_or(Level::Normal, |shared| shared.watermark.level())
    }

    /// The slot of a tenant that is still there.
    #[inline]
    pub(crate) fn slot(&mut self, address: Address) -> Option<&mut Slot> {
        self.slots
            .get_mut(address.slot as usize)
            .filter(|slot| slot.generation == address.generation && slot.tenant != Tenant::Vacant)
    }

    pub(crate) fn move_in(
        &mut self,
        address: Address,
        tenant: Tenant,
        kind: ClientKind,
        name: Option<&str>,
    ) {
        let index = address.slot as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || VACANT);
        }
        debug_assert_eq!(self.slots[index].tenant, Tenant::Vacant);
        self.slots[index] = Slot {
            generation: address.generation,
            tenant,
            kind,
            ..VACANT
        };
        self.shared().names.insert(address.slot, kind, name);
    }

    /// Empties a slot, with the members, sockets and timers of who lived there.
    pub(crate) fn move_out(&mut self, address: Address) {
        let Some(slot) = self.slot(address) else {
            return;
        };
        let Slot {
            kind,
            members,
            first_io,
            first_timer,
            tenant,
            ..
        } = std::mem::replace(slot, VACANT);
        self.io.forget(first_io);
        self.timers.forget(first_timer);
        if members > 0 {
            self.move_members_out(address.slot);
        }
        self.subscribers.retain(|subscriber| *subscriber != address);
        let shared = self.group.processor(self.id);
        shared.names.remove(address.slot);
        shared.slots.release(address);
        match tenant {
            Tenant::Member { .. } => {
                shared.members.fetch_sub(1, Ordering::Relaxed);
            }
            _ => self.group.count_out(self.id, kind),
        }
    }

    fn move_members_out(&mut self, owner: u32) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].tenant == (Tenant::Member { owner }) {
                self.move_out(Address {
                    slot: slot as u32,
                    generation: self.slots[slot].generation,
                });
            }
        }
    }

    pub(crate) fn add_member(
        &mut self,
        owner: Address,
        kind: ClientKind,
        name: &str,
    ) -> (MemberId, ClientCore, Handle<E>) {
        let address = self
            .shared()
            .slots
            .reserve()
            .expect("the processor has a slot left for a member");
        self.shared().members.fetch_add(1, Ordering::Relaxed);
        self.move_in(
            address,
            Tenant::Member { owner: owner.slot },
            kind,
            Some(name),
        );
        self.slots[owner.slot as usize].members += 1;
        let core = ClientCore::new(self.tag, self.id, kind, address);
        (MemberId(address.slot), core, self.handle_to(address))
    }

    pub(crate) fn remove_member(&mut self, owner: Address, member: MemberId) -> bool {
        let Some(slot) = self.slots.get(member.0 as usize) else {
            return false;
        };
        if slot.tenant != (Tenant::Member { owner: owner.slot }) {
            return false;
        }
        self.move_out(Address {
            slot: member.0,
            generation: slot.generation,
        });
        self.slots[owner.slot as usize].members -= 1;
        true
    }

    pub(crate) fn unregister(&mut self, address: Address) {
        if let Some(slot) = self.slot(address)
            && !std::mem::replace(&mut slot.leaving, true)
        {
            self.leaving.push(address);
            self.lanes.has_orders.set(true);
        }
    }

    #[inline]
    pub(crate) fn link_flush(&mut self, address: Address) {
        if let Some(slot) = self.slots.get_mut(address.slot as usize)
            && slot.generation == address.generation
        {
            Self::link(slot, &mut self.flush, address.slot);
        }
    }

    /// Puts a client into the flush list unless it is in it.
    #[inline]
    pub(crate) fn link_slot(&mut self, slot: u32) {
        Self::link(&mut self.slots[slot as usize], &mut self.flush, slot);
    }

    #[inline]
    fn link(slot: &mut Slot, flush: &mut VecDeque<u32>, index: u32) {
        if !slot.linked {
            slot.linked = true;
            flush.push_back(index);
        }
    }

    /// Takes a client out of the flush list, in the sense that it may be put in again. False if it was not in it.
    pub(crate) fn unlink_slot(&mut self, slot: u32) -> bool {
        std::mem::take(&mut self.slots[slot as usize].linked)
    }

    pub(crate) fn schedule(&mut self, owner: Address, after: Duration) -> TimerId {
        let first = &mut self.slots[owner.slot as usize].first_timer;
        self.timers.schedule(owner, first, self.now, after)
    }

    pub(crate) fn cancel(&mut self, me: Address, timer: TimerId) -> bool {
        self.timers
            .cancel(me, &mut self.slots[me.slot as usize].first_timer, timer)
    }

    pub(crate) fn pop_expired(&mut self) -> Option<(TimerId, Address)> {
        let slots = &mut self.slots;
        self.timers.pop_expired(self.now, |owner| {
            &mut slots[owner.slot as usize].first_timer
        })
    }

    pub(crate) fn set_name(&mut self, me: Address, name: &str) {
        if let Some(slot) = self.slot(me) {
            let kind = slot.kind;
            self.shared().names.insert(me.slot, kind, Some(name));
        }
    }

    pub(crate) fn subscribe_pressure(&mut self, me: Address) {
        if self.slot(me).is_some() && !self.subscribers.contains(&me) {
            self.subscribers.push(me);
            self.new_subscribers.push(me);
        }
    }

    pub(crate) fn register_io(
        &mut self,
        me: Address,
        source: &mut (impl Source + ?Sized),
        interest: Interest,
    ) -> io::Result<IoToken> {
        let first = &mut self.slots[me.slot as usize].first_io;
        self.io.register(me, first, source, interest)
    }

    pub(crate) fn reregister_io(
        &mut self,
        me: Address,
        token: IoToken,
        source: &mut (impl Source + ?Sized),
        interest: Interest,
    ) -> io::Result<()> {
        self.io.reregister(me, token, source, interest)
    }

    pub(crate) fn deregister_io(
        &mut self,
        me: Address,
        token: IoToken,
        source: &mut (impl Source + ?Sized),
    ) -> io::Result<()> {
        let first = &mut self.slots[me.slot as usize].first_io;
        self.io.deregister(me, first, token, source)
    }

    pub(crate) fn ready_again(&mut self, token: IoToken, ready: Readiness) {
        self.ready.push_back((token, ready));
    }

    /// True if there is something to do without waiting for anybody.
    pub(crate) fn has_work(&self) -> bool {
        !self.ready.is_empty()
            || !self.flush.is_empty()
            || !self.new_subscribers.is_empty()
            || !self.lanes.local.borrow().is_empty()
            || !self.lanes.registrations.borrow().is_empty()
            || self.shared().exit.load(Ordering::Relaxed)
    }
}
