//! Outgoing events of one processor: a local queue for itself, and one outbox per other processor.
//!
//! The lanes of the turn that is running are also reachable through a thread-local, so that a plain `Handle::post` within a turn keeps
//! its place behind what `Cx::post` sent before.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use crate::group::{Group, Item};
use crate::tag::{ProcessorId, ThreadTag};

/// An outbox is published when it holds as many; the lock and the fence are then paid by a 64th per event.
pub(crate) const PUBLISH_AT: usize = 64;

thread_local! {
    static CURRENT: RefCell<Option<Rc<dyn Any>>> = const { RefCell::new(None) };
}

/// Owned by its processor. No foreign code runs while a queue is borrowed.
pub(crate) struct Lanes<E: Send + 'static> {
    group: Arc<Group<E>>,
    tag: ThreadTag,
    pub(crate) local: RefCell<VecDeque<Item<E>>>,
    pub(crate) registrations: RefCell<VecDeque<Item<E>>>,
    remote: RefCell<Vec<VecDeque<Item<E>>>>,
    /// Some outbox is not empty.
    has_outgoing: Cell<bool>,
    /// Somebody wants to leave or to come: looked at after each call, so it is one flag for all of that.
    pub(crate) has_orders: Cell<bool>,
}

impl<E: Send + 'static> Lanes<E> {
    pub(crate) fn new(group: Arc<Group<E>>, tag: ThreadTag) -> Rc<Self> {
        let remote = (0..group.processors.len())
            .map(|_| VecDeque::new())
            .collect();
        Rc::new(Self {
            group,
            tag,
            local: RefCell::default(),
            registrations: RefCell::default(),
            remote: RefCell::new(remote),
            has_outgoing: Cell::new(false),
            has_orders: Cell::new(false),
        })
    }

    /// Takes an item for processor `to` (tagged `tag`) of `group`; gives it back if that is another dispatcher's.
    #[inline]
    pub(crate) fn put(
        &self,
        group: &Arc<Group<E>>,
        tag: ThreadTag,
        to: ProcessorId,
        item: Item<E>,
    ) -> Option<Item<E>> {
        if tag == self.tag {
            self.local.borrow_mut().push_back(item);
            return None;
        }
        if !Arc::ptr_eq(group, &self.group) {
            return Some(item);
        }
        let waiting = {
            let outbox = &mut self.remote.borrow_mut()[to.index()];
            outbox.push_back(item);
            outbox.len()
        };
        self.has_outgoing.set(true);
        if waiting >= PUBLISH_AT {
            self.publish_one(to);
        }
        None
    }

    /// Publishes every outbox.
    pub(crate) fn publish(&self) {
        if !self.has_outgoing.replace(false) {
            return;
        }
        for index in 0..self.group.processors.len() {
            self.publish_one(ProcessorId(index as u16));
        }
    }

    fn publish_one(&self, to: ProcessorId) {
        let mut outbox = std::mem::take(&mut self.remote.borrow_mut()[to.index()]);
        if !outbox.is_empty() {
            // Not under the borrow: events that a stopped processor refuses are dropped in there, which is foreign code.
            self.group.publish(to, &mut outbox);
        }
        // Back for its capacity; behind it whatever dropping a refused event has posted meanwhile.
        let mut remote = self.remote.borrow_mut();
        outbox.append(&mut remote[to.index()]);
        remote[to.index()] = outbox;
    }
}

/// Makes lanes current on this thread until dropped.
pub(crate) struct Entered {
    before: Option<Rc<dyn Any>>,
}

impl Entered {
    pub(crate) fn new<E: Send + 'static>(lanes: &Rc<Lanes<E>>) -> Self {
        let lanes: Rc<dyn Any> = Rc::<Lanes<E>>::clone(lanes);
        Self {
            before: CURRENT.with(|current| current.replace(Some(lanes))),
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // At thread exit the slot may be gone already, and with it the need to restore it.
        let _ = CURRENT.try_with(|current| current.replace(self.before.take()));
    }
}

/// Puts an item into the lanes of the turn that is running on this thread, if there is one of the same dispatcher; else gives it
/// back, to be pushed.
pub(crate) fn route<E: Send + 'static>(
    group: &Arc<Group<E>>,
    tag: ThreadTag,
    to: ProcessorId,
    item: Item<E>,
) -> Option<Item<E>> {
    if ThreadTag::current().is_none() {
        return Some(item);
    }
    CURRENT.with(|current| {
        let lanes = current.borrow().clone();
        match lanes
            .as_deref()
            .and_then(|lanes| lanes.downcast_ref::<Lanes<E>>())
        {
            Some(lanes) => lanes.put(group, tag, to, item),
            None => Some(item),
        }
    })
}

/// Takes a registration on the processor whose turn is running on this thread: it is done as soon as the running handler returns, before
/// anything can be delivered to the new client. Gives it back on any other thread.
pub(crate) fn route_register<E: Send + 'static>(
    group: &Arc<Group<E>>,
    tag: ThreadTag,
    control: Item<E>,
) -> Option<Item<E>> {
    if !tag.is_current() {
        return Some(control);
    }
    CURRENT.with(|current| {
        let lanes = current.borrow().clone();
        match lanes
            .as_deref()
            .and_then(|lanes| lanes.downcast_ref::<Lanes<E>>())
        {
            Some(lanes) if Arc::ptr_eq(group, &lanes.group) => {
                lanes.registrations.borrow_mut().push_back(control);
                lanes.has_orders.set(true);
                None
            }
            _ => Some(control),
        }
    })
}
