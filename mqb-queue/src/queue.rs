//! One queue: a plain state machine over a [`MessageStore`].
//!
//! Owned by: the processor of its partition (or of whatever embeds it). It reads no clock and starts nothing: time comes
//! in as an argument, messages go out through a [`Sink`], and what an operator should know is picked up as [`Notice`]s.
//! State changes for good are appended to the store at the moment they are decided; a message whose confirm is appended
//! is not handed out again.
//!
//! Invariant, at any time: `stored = confirmed + expired + purged + removed + depth`.

use mqb_core::{Guid, QueueId, Sequence, SubId};

use crate::consumer::{Peer, SubscriptionParameters};
use crate::engine::priority::Priority;
use crate::engine::{Budget, Delivery, Sink};
use crate::handles::{CloseScope, HandleError, Handles, OpenError, OpenRequest, StreamId};
use crate::message::{MessageTable, NewEntry, Slot};
use crate::settings::QueueSettings;
use crate::store::{DataFormat, MessageStore, NewMessage, Settled, StoreError};

/// One queue and its engine.
pub struct Queue {
    id: QueueId,
    settings: QueueSettings,
    messages: MessageTable,
    handles: Handles,
    engine: Priority,
    /// Messages up to here may be seen by consumers.
    deliverable: Sequence,
    counters: Counters,
    fill: Fill,
    notices: Vec<Notice>,
}

/// What happened to the messages of a queue since it was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Messages accepted.
    pub stored: u64,
    /// Messages that a consumer confirmed.
    pub confirmed: u64,
    /// Messages whose time to live passed.
    pub expired: u64,
    /// Messages that an operator purged.
    pub purged: u64,
    /// Messages out of delivery attempts.
    pub removed: u64,
}

impl Counters {
    /// Messages that left the queue.
    pub fn settled(&self) -> u64 {
        self.confirmed + self.expired + self.purged + self.removed
    }
}

/// Something that an operator should know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// The queue's use of its quota changed.
    Fill(Fill),
    /// A message was removed because its consumers kept dying.
    Removed {
        /// The message.
        guid: Guid,
        /// Deliveries it had.
        attempts: u32,
    },
}

/// How full a queue is, with hysteresis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fill {
    /// Below the watermark.
    #[default]
    Relaxed,
    /// Above the high watermark, and not yet back below half of it.
    High,
    /// A message was refused for want of quota.
    Full,
}

/// Outcome of [`Queue::put`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accepted {
    /// Appended.
    Stored(Sequence),
    /// A message with this GUID is in the queue already; nothing was changed.
    Duplicate(Sequence),
}

/// Why a message was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// The queue holds its maximum of messages.
    #[error("the queue holds its maximum of messages")]
    LimitMessages,
    /// The message does not fit into the queue's maximum of bytes.
    #[error("the queue holds its maximum of bytes")]
    LimitBytes,
    /// The store refused it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A live message found by recovery.
#[derive(Clone, Copy, Debug)]
pub struct RestoredMessage {
    /// Place in the log, above that of the message restored before.
    pub sequence: Sequence,
    /// The message.
    pub guid: Guid,
    /// Encoding of its data.
    pub format: DataFormat,
    /// Length of its data. **Units**: bytes.
    pub len: u32,
    /// Wall clock at acceptance, milliseconds since the Unix epoch.
    pub accepted_at_ms: u64,
}

/// How much [`Queue::expire`] or [`Queue::purge`] removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Number of messages.
    pub messages: u64,
    /// **Units**: bytes of application data.
    pub bytes: u64,
    /// The step's bound was reached: call again.
    pub more: bool,
}

/// A message as an operator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageView {
    /// Place in the log.
    pub sequence: Sequence,
    /// The message.
    pub guid: Guid,
    /// Encoding of its data.
    pub format: DataFormat,
    /// Length of its data. **Units**: bytes.
    pub len: u32,
    /// Wall clock at acceptance, milliseconds since the Unix epoch.
    pub accepted_at_ms: u64,
    /// With a consumer at this moment.
    pub outstanding: bool,
}

/// State of a queue in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueStats {
    /// Messages stored and not settled.
    pub messages: u64,
    /// Their data. **Units**: bytes.
    pub bytes: u64,
    /// Messages with consumers.
    pub outstanding: u64,
    /// Messages that came back and wait to be handed out again.
    pub returned: u64,
    /// Writers.
    pub producers: u32,
    /// Readers.
    pub consumers: u32,
    /// Acceptance time of the oldest message, milliseconds since the Unix epoch.
    pub oldest_accepted_at_ms: Option<u64>,
    /// Acceptance time of the oldest message that waits for a consumer, milliseconds since the Unix epoch.
    pub waiting_accepted_at_ms: Option<u64>,
    /// History.
    pub counters: Counters,
    /// Use of the quota.
    pub fill: Fill,
}

impl Queue {
    /// Messages settled by one call of [`expire`](Self::expire) or [`purge`](Self::purge), at most.
    pub const SWEEP_STEP: u64 = 4096;

    /// An empty queue.
    pub fn new(id: QueueId, settings: QueueSettings) -> Self {
        Self {
            id,
            settings,
            messages: MessageTable::new(),
            handles: Handles::default(),
            engine: Priority::new(),
            deliverable: Sequence::ZERO,
            counters: Counters::default(),
            fill: Fill::Relaxed,
            notices: Vec::new(),
        }
    }

    /// Its number in the partition.
    pub fn id(&self) -> QueueId {
        self.id
    }

    /// What it promises.
    pub fn settings(&self) -> &QueueSettings {
        &self.settings
    }

    /// Changes what it promises; messages that are there stay.
    pub fn set_settings(&mut self, settings: QueueSettings) {
        self.settings = settings;
    }

    /// Makes room for that many messages to be restored.
    pub fn reserve(&mut self, messages: usize) {
        self.messages.reserve(messages);
    }

    /// Puts back a message that recovery found. Quota does not apply; it can be delivered at once.
    pub fn restore(&mut self, message: RestoredMessage) {
        let RestoredMessage {
            sequence,
            guid,
            format,
            len,
            accepted_at_ms,
        } = message;
        let slot = self.messages.push(NewEntry {
            guid,
            sequence,
            accepted_at_ms,
            format,
            len,
            mark: Priority::NEW,
        });
        self.engine.appended(slot);
        self.deliverable = sequence;
        self.counters.stored += 1;
    }

    /// Sets the history that recovery found, after the last message was restored. What does not add up is put right in
    /// `stored`.
    pub fn restore_counters(&mut self, history: Counters) {
        self.counters = Counters {
            stored: history.settled() + self.messages.len() as u64,
            ..history
        };
    }

    /// Whether the peer has the queue open for writing.
    pub fn may_write(&self, peer: Peer) -> bool {
        self.handles.may_write(peer)
    }

    /// Stores a message. It can be delivered once [`set_deliverable`](Self::set_deliverable) reaches it.
    ///
    /// **Errors**: quota or store; nothing was changed then.
    pub fn put<S: MessageStore + ?Sized>(
        &mut self,
        store: &mut S,
        message: &NewMessage<'_>,
    ) -> Result<Accepted, PutError> {
        if let Some(slot) = self.messages.find(&message.guid) {
            return Ok(Accepted::Duplicate(self.messages.at(slot).sequence));
        }
        // Lengths are u32 here; the protocol stops three orders of magnitude earlier.
        let len = u32::try_from(message.data.len()).map_err(|_| PutError::LimitBytes)?;
        if let Err(refused) = self.check_quota(len) {
            // An empty queue is not full, however large the message is.
            if self.messages.oldest().is_some() {
                self.set_fill(Fill::Full);
            }
            return Err(refused);
        }
        let sequence = store.put(self.id, message)?;
        let NewMessage {
            guid,
            format,
            accepted_at_ms,
            ..
        } = *message;
        let slot = self.messages.push(NewEntry {
            guid,
            sequence,
            accepted_at_ms,
            format,
            len,
            mark: Priority::NEW,
        });
        self.engine.appended(slot);
        self.counters.stored += 1;
        self.update_fill();
        Ok(Accepted::Stored(sequence))
    }

    fn check_quota(&self, len: u32) -> Result<(), PutError> {
        // Slots are u32, so no configuration can ask for more messages than that.
        let max_messages = self.settings.max_messages.min(u64::from(u32::MAX - 1));
        if self.messages.len() as u64 >= max_messages {
            return Err(PutError::LimitMessages);
        }
        if self.messages.bytes().saturating_add(u64::from(len)) > self.settings.max_bytes {
            return Err(PutError::LimitBytes);
        }
        Ok(())
    }

    /// Messages up to `upto` may be delivered from now on. Never goes back.
    pub fn set_deliverable(&mut self, upto: Sequence) {
        self.deliverable = self.deliverable.max(upto);
    }

    /// Takes a message off the queue because a reader is done with it: the one who has it or another of the same app.
    /// Returns whether the message was there. Unknown ones and those confirmed before are no error; a peer or stream
    /// that does not read confirms nothing.
    pub fn confirm<S: MessageStore + ?Sized>(
        &mut self,
        store: &mut S,
        peer: Peer,
        sub_id: SubId,
        guid: &Guid,
    ) -> bool {
        let reads = self
            .handles
            .find(peer, sub_id)
            .is_ok_and(|stream| self.handles.stream(stream).read_count > 0);
        let Some(slot) = self.messages.find(guid).filter(|_| reads) else {
            return false;
        };
        self.settle(store, slot, Settled::Confirmed);
        true
    }

    /// Opens the queue, or adds to what is open.
    pub fn open(&mut self, request: &OpenRequest) -> Result<(), OpenError> {
        self.handles
            .open(
                request,
                self.settings.max_producers,
                self.settings.max_consumers,
            )
            .map(drop)
    }

    /// Whether the peer has the queue open.
    pub fn is_open(&self, peer: Peer) -> bool {
        self.handles.contains(peer)
    }

    /// Whether nobody has the queue open.
    pub fn is_closed(&self) -> bool {
        self.handles.is_empty()
    }

    /// Replaces the subscriptions of a stream; none: deliver nothing more. What is outstanding stays so and counts.
    /// A stream without readers accepts anything and gets nothing.
    pub fn configure(
        &mut self,
        peer: Peer,
        sub_id: SubId,
        subscriptions: &[SubscriptionParameters],
    ) -> Result<(), HandleError> {
        let id = self.handles.find(peer, sub_id)?;
        let stream = self.handles.stream(id);
        if stream.read_count > 0 {
            let owner = (peer, stream.token, self.handles.is_paused(peer));
            self.engine.configure(id, owner, subscriptions);
        }
        Ok(())
    }

    /// Stops or resumes pushing to a peer, whatever its windows say.
    pub fn set_paused(&mut self, peer: Peer, paused: bool) {
        self.handles.set_paused(peer, paused);
        self.engine.set_paused(peer, paused);
    }

    /// Closes streams on the peer's wish. What their readers hold goes to others, at no cost to the messages.
    pub fn close<S: MessageStore + ?Sized>(
        &mut self,
        store: &mut S,
        peer: Peer,
        scope: CloseScope,
    ) -> Result<(), HandleError> {
        match scope {
            CloseScope::Stream {
                sub_id,
                read_count,
                write_count,
            } => {
                if let Some(stream) =
                    self.handles
                        .close_some(peer, sub_id, read_count, write_count)?
                {
                    self.release(store, stream, true);
                }
                self.handles.sweep(peer, false);
                Ok(())
            }
            CloseScope::Queue => self.drop_peer(store, peer, true),
        }
    }

    /// Forgets a peer whose connection ended. If not `graceful`, each message it holds has lost a delivery attempt, and
    /// goes for good if it was the last one.
    pub fn drop_peer<S: MessageStore + ?Sized>(
        &mut self,
        store: &mut S,
        peer: Peer,
        graceful: bool,
    ) -> Result<(), HandleError> {
        for stream in self.handles.streams(peer)? {
            self.release(store, stream, graceful);
        }
        self.handles.sweep(peer, true);
        Ok(())
    }

    fn release<S: MessageStore + ?Sized>(
        &mut self,
        store: &mut S,
        stream: StreamId,
        graceful: bool,
    ) {
        let limit = self.settings.max_delivery_attempts;
        let gone = self.engine.release(&mut self.messages, stream, |message| {
            if !graceful {
                message.add_loss();
            }
            !graceful && limit > 0 && message.losses() >= limit
        });
        for slot in gone {
            let message = self.messages.at(slot);
            self.notices.push(Notice::Removed {
                guid: message.guid,
                attempts: message.losses(),
            });
            self.settle(store, slot, Settled::Removed);
        }
    }

    /// Hands out messages until there are none, nobody wants them, the budget is used up or the store has to read.
    pub fn deliver<S: MessageStore + ?Sized>(
        &mut self,
        budget: &mut Budget,
        store: &mut S,
        sink: &mut impl Sink,
    ) -> Delivery {
        self.engine.deliver(
            &mut self.messages,
            self.id,
            self.deliverable,
            budget,
            store,
            sink,
        )
    }

    /// Removes messages whose time to live has passed, with or without consumers, delivered or not; at most
    /// [`SWEEP_STEP`](Self::SWEEP_STEP) of them. `now_ms` is the wall clock, milliseconds since the Unix epoch.
    pub fn expire<S: MessageStore + ?Sized>(&mut self, now_ms: u64, store: &mut S) -> Swept {
        let Some(ttl) = self.settings.ttl else {
            return Swept::default();
        };
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        self.sweep(store, Settled::Expired, |queue, slot| {
            queue
                .messages
                .at(slot)
                .accepted_at_ms()
                .saturating_add(ttl_ms)
                <= now_ms
        })
    }

    /// When the oldest message will have lived out its time. **Units**: milliseconds since the Unix epoch.
    pub fn expires_at_ms(&self) -> Option<u64> {
        let ttl_ms = u64::try_from(self.settings.ttl?.as_millis()).unwrap_or(u64::MAX);
        Some(
            self.messages
                .at(self.messages.oldest()?)
                .accepted_at_ms()
                .saturating_add(ttl_ms),
        )
    }

    /// Where a purge that is asked for now has to stop: the newest message.
    pub fn purge_cut(&self) -> Sequence {
        self.messages
            .newest()
            .map_or(Sequence::ZERO, |slot| self.messages.at(slot).sequence)
    }

    /// Removes messages up to `cut`, delivered or not; at most [`SWEEP_STEP`](Self::SWEEP_STEP) of them.
    pub fn purge<S: MessageStore + ?Sized>(&mut self, cut: Sequence, store: &mut S) -> Swept {
        self.sweep(store, Settled::Purged, |queue, slot| {
            queue.messages.at(slot).sequence <= cut
        })
    }

    /// Removes from the oldest on, while `goes` says so.
    fn sweep<S: MessageStore + ?Sized>(
        &mut self,
        store: &mut S,
        why: Settled,
        goes: impl Fn(&Self, Slot) -> bool,
    ) -> Swept {
        let mut swept = Swept::default();
        while let Some(slot) = self.messages.oldest().filter(|&slot| goes(self, slot)) {
            if swept.messages == Self::SWEEP_STEP {
                swept.more = true;
                break;
            }
            swept.messages += 1;
            swept.bytes += u64::from(self.messages.at(slot).len);
            self.settle(store, slot, why);
        }
        swept
    }

    /// The one door through which a message leaves.
    fn settle<S: MessageStore + ?Sized>(&mut self, store: &mut S, slot: Slot, why: Settled) {
        self.engine.forget(&self.messages, slot);
        let message = self.messages.remove(slot);
        store.settle(self.id, message.sequence, why);
        match why {
            Settled::Confirmed => self.counters.confirmed += 1,
            Settled::Expired => self.counters.expired += 1,
            Settled::Purged => self.counters.purged += 1,
            Settled::Removed => self.counters.removed += 1,
        }
        debug_assert_eq!(
            self.counters.stored,
            self.counters.settled() + self.messages.len() as u64
        );
        if self.fill != Fill::Relaxed {
            self.update_fill();
        }
    }

    /// Follows the watermarks: up at the high one, down at half of it.
    fn update_fill(&mut self) {
        let percent = u128::from(self.settings.high_watermark_percent);
        let above = |used: u64, limit: u64, percent: u128| {
            u128::from(used) * 100 > u128::from(limit) * percent
        };
        let any_above = |percent: u128| {
            above(
                self.messages.len() as u64,
                self.settings.max_messages,
                percent,
            ) || above(self.messages.bytes(), self.settings.max_bytes, percent)
        };
        match self.fill {
            Fill::Relaxed if any_above(percent) => self.set_fill(Fill::High),
            Fill::High | Fill::Full if !any_above(percent / 2) => self.set_fill(Fill::Relaxed),
            _ => {}
        }
    }

    fn set_fill(&mut self, fill: Fill) {
        if self.fill != fill {
            self.fill = fill;
            self.notices.push(Notice::Fill(fill));
        }
    }

    /// Takes what there is to tell an operator.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// The queue in numbers. **Cost**: O(1).
    pub fn stats(&self) -> QueueStats {
        let accepted = |slot: Slot| self.messages.at(slot).accepted_at_ms();
        QueueStats {
            messages: self.messages.len() as u64,
            bytes: self.messages.bytes(),
            outstanding: self.engine.outstanding(),
            returned: self.engine.returned(),
            producers: self.handles.producers(),
            consumers: self.handles.consumers(),
            oldest_accepted_at_ms: self.messages.oldest().map(accepted),
            waiting_accepted_at_ms: self.engine.oldest_waiting().map(accepted),
            counters: self.counters,
            fill: self.fill,
        }
    }

    /// Messages in the order of the log, without taking them. **Cost**: linear in what is skipped.
    pub fn messages(&self) -> impl Iterator<Item = MessageView> {
        std::iter::successors(self.messages.oldest(), |&slot| self.messages.newer(slot)).map(
            |slot| {
                let message = self.messages.at(slot);
                MessageView {
                    sequence: message.sequence,
                    guid: message.guid,
                    format: message.format(),
                    len: message.len,
                    accepted_at_ms: message.accepted_at_ms(),
                    outstanding: Priority::is_outstanding(message),
                }
            },
        )
    }
}
