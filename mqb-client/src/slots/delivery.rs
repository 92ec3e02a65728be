//! Where received messages and acknowledgements go.

use bytes::Bytes;
use mqb_core::DataFormat;
use mqb_core::wire::{Push, PushFlags};

use super::{Key, Slots};
use crate::ack::{Ack, Completion};
use crate::message::Message;
use crate::options::AckHandler;
use crate::outbox::Settled;

impl Slots {
    /// A message arrived; `data` makes its reference-counted slice. Returns for how many subscriptions it was.
    #[inline]
    pub(crate) fn on_push(&mut self, push: &Push<'_>, data: impl Fn() -> Bytes) -> u64 {
        let implicit = push.flags.contains(PushFlags::IMPLICIT_PAYLOAD);
        let (options, format) = match (push.options(), push.format()) {
            (Ok(options), Ok(format)) => (options, format),
            (Ok(options), Err(_)) if implicit => (options, DataFormat::PLAIN),
            (Err(error), _) => {
                tracing::warn!(guid = %push.guid, %error, "message dropped");
                return 0;
            }
            (_, Err(error)) => {
                tracing::warn!(guid = %push.guid, %error, "message dropped");
                return 0;
            }
        };
        let mut count = 0;
        for (id, _) in options.subscriptions() {
            let Some((slot, subscription)) = self.route((push.queue.0, id.0)) else {
                tracing::debug!(
                    queue = push.queue.0,
                    subscription = id.0,
                    "message for no subscription of this session"
                );
                continue;
            };
            if self.delivery.slot != slot {
                self.deliver();
                self.delivery.slot = slot;
            }
            let out_of_order = push.flags.contains(PushFlags::OUT_OF_ORDER);
            self.delivery.messages.push(Message::new(
                push.guid,
                data(),
                format,
                out_of_order,
                subscription,
            ));
            count += 1;
        }
        count
    }

    #[inline]
    pub(super) fn route(&mut self, key: Key) -> Option<(usize, u16)> {
        match self.last_route {
            Some((last, route)) if last == key => Some(route),
            _ => {
                let route = *self.routes.get(&key)?;
                self.last_route = Some((key, route));
                Some(route)
            }
        }
    }

    /// Hands over what arrived.
    pub(crate) fn deliver(&mut self) {
        if self.delivery.messages.is_empty() {
            return;
        }
        let messages = &mut self.delivery.messages;
        let Some(slot) = self
            .slots
            .get_mut(self.delivery.slot)
            .and_then(Option::as_mut)
        else {
            return messages.clear();
        };
        match (&slot.queue, &mut slot.on_messages) {
            (Some(queue), Some(handler)) => handler(queue, messages),
            (Some(queue), None) => queue.inner.inbox.push(messages),
            (None, _) => {}
        }
        messages.clear();
    }

    /// Hands acknowledgements to a queue's handler and empties `acks`.
    pub(crate) fn give_acks(&mut self, index: usize, acks: &mut Vec<Ack>) {
        if acks.is_empty() {
            return;
        }
        if let Some(handler) = self
            .slots
            .get_mut(index)
            .and_then(Option::as_mut)
            .and_then(|slot| slot.on_acks.as_mut())
        {
            handler(acks);
        }
        acks.clear();
    }
}

/// Takes the tagged answers of one queue out of `settled` and hands them over.
pub(super) fn hand_out_acks(index: usize, settled: &mut Vec<Settled>, handler: &mut AckHandler) {
    let is_tagged = |settled: &Settled| {
        settled.slot == index && matches!(settled.completion, Completion::Tag(_))
    };
    let acks: Vec<Ack> = settled
        .iter()
        .filter(|settled| is_tagged(settled))
        .map(|settled| settled.ack)
        .collect();
    settled.retain(|settled| !is_tagged(settled));
    if !acks.is_empty() {
        handler(&acks);
    }
}
