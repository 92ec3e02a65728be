//! Messages in both directions: PUT and CONFIRM in, ACK and PUSH out.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use mqb_core::wire::{ConfirmIter, Event as WireEvent, PushHead, Put, PutIter};
use mqb_core::{Guid, PropertiesStyle, SubscriptionId, WireQueueId};
use mqb_dispatcher::Cx;

use super::client::{Phase, Session};
use super::put::{self, Judged};
use crate::event::{AckBatch, Event, PushBatch, PushItem, PutBatch, PutItem};

impl Session {
    /// Whether a PUT event has a message for a queue that cannot be written to yet, but perhaps soon.
    pub(super) fn is_for_opening_queue(&self, event: &WireEvent<'_>) -> bool {
        PutIter::new(event).map_while(Result::ok).any(|put| {
            let is_writable = self
                .queues
                .get(put.queue)
                .is_some_and(|queue| queue.is_writable());
            !is_writable && self.requests.is_opening(put.queue)
        })
    }

    /// The messages of a PUT event that lies at `at` in the memory of this read.
    pub(super) fn puts(&mut self, cx: &mut Cx<'_, Event>, event: &WireEvent<'_>, at: usize) {
        for put in PutIter::new(event) {
            self.quantum = self.quantum.saturating_sub(1);
            match put {
                Ok(put) => self.put(cx, &put, at),
                Err(error) => return self.odd(cx, &format!("put: {error}")),
            }
        }
    }

    fn put(&mut self, cx: &mut Cx<'_, Event>, put: &Put<'_>, at: usize) {
        let makes_guids = self.peer.as_ref().is_some_and(|peer| peer.makes_guids);
        let queue = self
            .queues
            .get(put.queue)
            .filter(|queue| queue.is_writable());
        let Some(queue) = queue.filter(|_| !makes_guids || !put.guid.is_unset()) else {
            return self.refuse_put(put, makes_guids, "no queue to write to, or no GUID");
        };
        let judged = match self.judge.judge(put) {
            Ok(judged) => judged,
            Err(fault) => return self.refuse_put(put, makes_guids, &fault.to_string()),
        };
        let (guid, correlation, ack) = if makes_guids {
            (put.guid, 0, put.flags.ack_requested())
        } else {
            let correlation = put.correlation_id();
            let elapsed = cx.now().since(self.started_at).as_nanos();
            let guids = self.guids.get_or_insert_with(put::guid_generator);
            (
                guids.make(u64::try_from(elapsed).unwrap_or(u64::MAX)),
                correlation,
                correlation != 0,
            )
        };
        match judged {
            Judged::AsIs(format) => {
                let start = at + put.data_offset;
                let data = offset(start)..offset(start + put.data.len());
                self.inbound.put(
                    &queue.target,
                    put,
                    PutItem {
                        guid,
                        correlation,
                        ack,
                        format,
                        data,
                    },
                );
            }
            Judged::Inflated(format, data) => {
                let target = queue.target.clone();
                // Behind what came before it.
                self.deliver(cx);
                let item = PutItem {
                    guid,
                    correlation,
                    ack,
                    format,
                    data: 0..offset(data.len()),
                };
                let batch = PutBatch {
                    session: self.id,
                    queue: put.queue,
                    frames: Bytes::from(data),
                    puts: vec![item],
                };
                self.in_flight_bytes += batch.charge();
                cx.post(&target, Event::Puts(Box::new(batch)));
            }
        }
    }

    /// A refusal is told whether or not an ACK was asked for.
    fn refuse_put(&mut self, put: &Put<'_>, makes_guids: bool, why: &str) {
        self.output.ack(put::refusal(put, makes_guids));
        self.context
            .stats
            .rejected_puts
            .fetch_add(1, Ordering::Relaxed);
        tracing::debug!(event = "session.put_refused", session = self.id.0, queue = put.queue.0, guid = %put.guid, why);
    }

    /// The messages of a CONFIRM event. Those for unknown streams are no error: the queue may just have been closed.
    pub(super) fn confirms(&mut self, cx: &mut Cx<'_, Event>, event: &WireEvent<'_>) {
        for confirm in ConfirmIter::new(event) {
            self.quantum = self.quantum.saturating_sub(1);
            match confirm {
                Ok(confirm) => {
                    if let Some(queue) = self.queues.get(confirm.queue)
                        && queue.is_readable(confirm.sub_id)
                    {
                        self.inbound.confirm(&queue.target, &confirm);
                    }
                }
                Err(error) => return self.odd(cx, &format!("confirm: {error}")),
            }
        }
    }

    /// Outcomes from a partition.
    pub(super) fn acks(&mut self, cx: &mut Cx<'_, Event>, batch: &AckBatch) {
        debug_assert!(
            batch.released_bytes <= self.in_flight_bytes,
            "more was given back than was taken"
        );
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(batch.released_bytes);
        if !matches!(self.phase, Phase::Running { .. } | Phase::Leaving) {
            return;
        }
        let makes_guids = self.peer.as_ref().is_some_and(|peer| peer.makes_guids);
        let mut open: Option<WireQueueId> = None;
        for ack in &batch.acks {
            if open != Some(ack.queue) {
                // An ACK for a queue number that is not open kills the official SDK.
                if self.queues.get(ack.queue).is_none() {
                    continue;
                }
                open = Some(ack.queue);
            }
            let mut ack = *ack;
            if !makes_guids && !ack.status.is_success() {
                ack.guid = Guid::UNSET;
            }
            self.output.ack(ack);
        }
        // The budget may have room again.
        self.read(cx);
        self.drain_further(cx);
    }

    /// Messages from a partition.
    pub(super) fn pushes(&mut self, cx: &mut Cx<'_, Event>, batch: &PushBatch) {
        if !matches!(self.phase, Phase::Running { .. } | Phase::Leaving) {
            return;
        }
        let takes_new = self
            .peer
            .as_ref()
            .is_some_and(|peer| peer.takes_new_properties);
        let mut valid: Option<(WireQueueId, SubscriptionId)> = None;
        for item in &batch.pushes {
            let to = (item.queue, item.subscription);
            if valid != Some(to) {
                let is_valid = self
                    .queues
                    .get(item.queue)
                    .is_some_and(|queue| queue.is_subscribed(item.subscription));
                if !is_valid {
                    return self.stale_push(cx, item);
                }
                valid = Some(to);
            }
            self.push(item, batch, takes_new);
        }
    }

    fn push(&mut self, item: &PushItem, batch: &PushBatch, takes_new: bool) {
        let chunk = &batch.chunks[usize::from(item.chunk)];
        let data = &chunk[item.data.start as usize..item.data.end as usize];
        if takes_new || item.format.properties() != Some(PropertiesStyle::New) {
            let head = PushHead::new(item.queue, item.guid, item.format, item.out_of_order);
            self.output.push(&head, item.subscription, chunk, data);
            return;
        }
        let mut converted = Vec::new();
        let format = match self.judge.to_old_style(item.format, data, &mut converted) {
            Ok(format) => format,
            Err(error) => {
                // It was judged when it came, so this is damage or a defect; the message stays unconfirmed.
                tracing::error!(event = "session.push_not_convertible", session = self.id.0, guid = %item.guid, %error);
                return;
            }
        };
        let head = PushHead::new(item.queue, item.guid, format, item.out_of_order);
        let converted = Bytes::from(converted);
        self.output
            .push(&head, item.subscription, &converted, &converted);
    }

    /// A message under a subscription that does not hold would kill the official SDK. Partitions do not send any, so this
    /// is a defect; ending the connection is what makes the message deliverable again.
    #[cold]
    fn stale_push(&mut self, cx: &mut Cx<'_, Event>, item: &PushItem) {
        self.context
            .stats
            .stale_pushes
            .fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            event = "session.stale_push", session = self.id.0, queue = item.queue.0, subscription = item.subscription.0,
            guid = %item.guid, "a message under a subscription that does not hold"
        );
        self.lose(
            cx,
            "internal error: message under a subscription that does not hold",
        );
    }
}

/// An offset within one read, which is at most one frame and one read size long.
fn offset(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a read is far below 4 GiB")
}
