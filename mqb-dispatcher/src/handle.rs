//! How everybody else reaches a client: handles, and the event source for threads that are no processors.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::client::Cx;
use crate::group::{Control, Group, Item};
use crate::lanes;
use crate::tag::{Address, ProcessorId, ThreadTag};
use crate::watermark::Level;

/// The address of a client or of a member. Outlives it: what is sent after it has gone is dropped and counted.
///
/// **Cost** of a clone: an atomic increment of a counter that all handles of the dispatcher share. Fine per client or batch, a
/// bottleneck if done per event on several cores.
pub struct Handle<E: Send + 'static> {
    group: Arc<Group<E>>,
    thread: ThreadTag,
    processor: ProcessorId,
    address: Address,
}

/// An event that was not accepted, given back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Full<E> {
    /// The event.
    pub event: E,
    /// True if the processor has stopped, false if it is over its high mark.
    pub is_stopped: bool,
}

impl<E> fmt::Debug for Full<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_stopped {
            "Full(stopped)"
        } else {
            "Full(over the high mark)"
        })
    }
}

impl<E: Send + 'static> Handle<E> {
    pub(crate) fn new(group: Arc<Group<E>>, processor: ProcessorId, address: Address) -> Self {
        let thread = group.processor(processor).tag;
        Self {
            group,
            thread,
            processor,
            address,
        }
    }

    /// True when the caller runs on the client's processor. **Cost**: one load, one compare.
    #[inline(always)]
    pub fn in_dispatcher_thread(&self) -> bool {
        self.thread.is_current()
    }

    /// The client's processor.
    pub fn processor(&self) -> ProcessorId {
        self.processor
    }

    /// How full the client's processor is.
    #[inline]
    pub fn level(&self) -> Level {
        self.group.processor(self.processor).watermark.level()
    }

    /// Sends an event; never blocks, always accepted.
    ///
    /// Within a turn of the same dispatcher it takes the same way as [`Cx::post`], so the order with those holds; prefer that, it is
    /// cheaper. From other threads it is published at once; a thread that sends much should use an [`EventSource`].
    /// If the processor has stopped, the event is dropped and counted as returned.
    pub fn post(&self, event: E) {
        self.send(Item::Event {
            to: self.address,
            event,
        });
    }

    /// As [`Handle::post`], unless the processor is over its high mark or has stopped. **Errors**: gives the event back.
    pub fn try_post(&self, event: E) -> Result<(), Full<E>> {
        if self.level() != Level::Normal {
            return Err(Full {
                event,
                is_stopped: false,
            });
        }
        let refused = match lanes::route(
            &self.group,
            self.thread,
            self.processor,
            Item::Event {
                to: self.address,
                event,
            },
        ) {
            None => return Ok(()),
            Some(item) => self.group.push(self.processor, item),
        };
        match refused {
            Err(Item::Event { event, .. }) => Err(Full {
                event,
                is_stopped: true,
            }),
            _ => Ok(()),
        }
    }

    /// Runs `f` on the client's processor, after everything this thread has sent before and after the clients touched so far in
    /// that turn have been flushed; so it may drop what they still referred to.
    ///
    /// `f` is dropped unrun if the client has gone.
    pub fn barrier(&self, f: impl FnOnce(&mut Cx<'_, E>) + Send + 'static) {
        self.send(Item::Control(Box::new(Control::Barrier {
            to: self.address,
            run: Box::new(f),
        })));
    }

    /// Has the client flushed and dropped after everything this thread has sent to it before.
    pub fn unregister(&self) {
        self.send(Item::Control(Box::new(Control::Unregister {
            to: self.address,
        })));
    }

    /// Waits until the client has handled everything this thread has sent before. False if the client has gone.
    ///
    /// **Panics** on a thread that is running a turn of any processor: two processors that wait for each other would never end.
    pub fn synchronize(&self) -> bool {
        assert!(
            ThreadTag::current().is_none(),
            "synchronize would block a processor"
        );
        let (done, wait) = std::sync::mpsc::channel();
        self.barrier(move |_| {
            // The receiver waits below, so the send can only fail if this thread dies.
            let _ = done.send(());
        });
        wait.recv().is_ok()
    }

    fn send(&self, item: Item<E>) {
        if let Some(item) = lanes::route(&self.group, self.thread, self.processor, item) {
            // What comes back is counted by `push` and dropped here, outside of any lock.
            drop(self.group.push(self.processor, item));
        }
    }

    pub(crate) fn thread(&self) -> ThreadTag {
        self.thread
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }

    pub(crate) fn group(&self) -> &Arc<Group<E>> {
        &self.group
    }
}

impl<E: Send + 'static> Clone for Handle<E> {
    fn clone(&self) -> Self {
        Self {
            group: Arc::clone(&self.group),
            ..*self
        }
    }
}

impl<E: Send + 'static> PartialEq for Handle<E> {
    fn eq(&self, other: &Self) -> bool {
        // A tag is unique in the process, so it stands for the processor too.
        self.thread == other.thread && self.address == other.address
    }
}

impl<E: Send + 'static> Eq for Handle<E> {}

impl<E: Send + 'static> Hash for Handle<E> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.thread.hash(state);
        self.address.hash(state);
    }
}

impl<E: Send + 'static> fmt::Debug for Handle<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Handle({}/{}#{})",
            self.processor, self.address.slot, self.address.generation
        )
    }
}

/// Sends in batches from a thread that is no processor: collects per processor, publishes at 64, on [`EventSource::flush`] and on
/// drop.
///
/// Events for one client arrive in the order in which one source sent them. May move between threads, but is used by one at a time.
pub struct EventSource<E: Send + 'static> {
    group: Arc<Group<E>>,
    pending: Vec<VecDeque<Item<E>>>,
}

impl<E: Send + 'static> EventSource<E> {
    pub(crate) fn new(group: Arc<Group<E>>) -> Self {
        let pending = (0..group.processors.len())
            .map(|_| VecDeque::new())
            .collect();
        Self { group, pending }
    }

    /// Collects an event. **Panics** if `to` belongs to another dispatcher.
    pub fn post(&mut self, to: &Handle<E>, event: E) {
        assert!(
            Arc::ptr_eq(&self.group, &to.group),
            "an event source serves one dispatcher"
        );
        let pending = &mut self.pending[to.processor.index()];
        pending.push_back(Item::Event {
            to: to.address,
            event,
        });
        if pending.len() >= lanes::PUBLISH_AT {
            self.group.publish(to.processor, pending);
        }
    }

    /// Publishes everything that was collected.
    pub fn flush(&mut self) {
        for (index, pending) in self.pending.iter_mut().enumerate() {
            if !pending.is_empty() {
                self.group.publish(ProcessorId(index as u16), pending);
            }
        }
    }
}

impl<E: Send + 'static> Drop for EventSource<E> {
    fn drop(&mut self) {
        self.flush();
    }
}

impl<E: Send + 'static> fmt::Debug for EventSource<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSource")
            .field(
                "pending",
                &self.pending.iter().map(VecDeque::len).sum::<usize>(),
            )
            .finish()
    }
}
