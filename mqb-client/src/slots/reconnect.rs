//! Loss and return of the connection, and the end of the session.

use std::time::Instant;

use super::{CloseReply, Slots, State, Step};
use crate::inbox::End;
use crate::outbox::Settled;
use crate::transmit::Transmit;

impl Slots {
    /// Nothing that was on its way will be answered.
    pub(crate) fn on_lost(&mut self, settled: &mut Vec<Settled>) {
        for request in std::mem::take(&mut self.requests).into_values() {
            if let (
                Step::Configure {
                    reply: Some(reply), ..
                },
                Some(slot),
            ) = (request.step, self.slots[request.slot].as_mut())
            {
                slot.configures.push(reply);
            }
        }
        self.routes.clear();
        self.last_route = None;
        self.delivery.messages.clear();
        for index in 0..self.slots.len() {
            let Some(slot) = self.slots[index].as_mut() else {
                continue;
            };
            slot.routes.clear();
            if let Some(queue) = &slot.queue {
                queue.inner.inbox.clear();
            }
            if let Some(reply) = slot.close.take() {
                slot.state = State::Closing {
                    reply: CloseReply::Close(reply),
                    outcome: Ok(()),
                };
            }
            match slot.state {
                // The broker forgot the queue with the connection: that closed it.
                State::Closing { .. } => self.finish_closing(index, settled),
                State::Open | State::Failed => slot.state = State::Restoring,
                State::Opening { .. } | State::Restoring => {}
            }
        }
        self.find_deadline();
    }

    /// The session is there again: opens all queues, those of the past and those that have waited for it.
    pub(crate) fn restore(&mut self, transmit: &mut Transmit, now: Instant) {
        for index in 0..self.slots.len() {
            self.send_open(index, transmit, now);
        }
    }

    /// Whether a queue is still being reopened.
    pub(crate) fn is_restoring(&self) -> bool {
        self.slots
            .iter()
            .flatten()
            .any(|slot| matches!(slot.state, State::Restoring))
    }

    /// The session is over.
    pub(crate) fn end(&mut self) {
        for slot in self.slots.drain(..).flatten() {
            if let Some(queue) = &slot.queue {
                queue.inner.inbox.set_end(Some(End::SessionEnded));
            }
        }
        self.requests.clear();
    }
}
