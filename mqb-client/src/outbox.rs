//! Everything the application has handed over and the broker has not answered yet.
//!
//! Posting threads append here under one short lock; the I/O thread takes whole events out. A message stays in the window
//! until its ACK (or, when none was asked for, until it is written), in the very bytes in which it was sent, so that
//! retransmission after a reconnect sends the same GUIDs in the same order. Sans-IO: knows no socket, clock or thread.
//!
//! Messages are numbered from 0 (*ordinal*); the low bits of the ordinal are the GUID's counter, so an ACK finds its
//! message by subtraction. PUT events (*chunks*) are numbered too.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use mqb_core::wire::{
    Confirm, ConfirmBuilder, EventBuilder, EventKind, PutBuilder, PutHead, padding,
};
use mqb_core::{Guid, limits};

use crate::ack::{Ack, AckStatus, Completion};
use crate::guid::{COUNTER_SPAN, GuidMaker, counter_of};
use crate::inbound::reuse;
use crate::transmit::Transmit;

/// A PUT event is closed at about this size.
const CHUNK_BYTES: usize = 256 * 1024;
/// From this size on a payload is sent from the application's own buffer, as a PUT event of its own.
pub(crate) const SHARE_BYTES: usize = 32 * 1024;
/// Spare buffers kept for coming chunks.
const POOL_BUFFERS: usize = 8;
/// Smaller buffers are not worth keeping.
const POOL_BYTES_MIN: usize = 1024;
/// Oldest unanswered to newest message; beyond it counters could be mistaken for one another.
const ORDINAL_SPAN: usize = (COUNTER_SPAN / 2) as usize;

/// What a message is made of, prepared outside the lock.
pub(crate) struct Prepared<'a> {
    /// All but the GUID.
    pub(crate) head: PutHead,
    pub(crate) data: Data<'a>,
}

/// Application data of a message.
pub(crate) enum Data<'a> {
    /// Copied into the event.
    Copied(&'a [u8]),
    /// Sent from where it is.
    Shared(Bytes),
}

impl Data<'_> {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Data::Copied(slice) => slice,
            Data::Shared(bytes) => bytes,
        }
    }
}

/// A message that got its answer, and how the application wants to hear of it.
pub(crate) struct Settled {
    pub(crate) slot: usize,
    pub(crate) ack: Ack,
    pub(crate) completion: Completion,
}

/// Whether a queue takes messages now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gate {
    Open,
    /// Closed, or being closed, by the application.
    Closed,
    /// The broker refused to reopen it.
    Failed,
}

/// Why a message was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The window is full.
    Full,
    /// See [`Gate`].
    Closed,
    Failed,
    /// The session has ended.
    Ended,
}

struct Entry {
    /// The GUID's time, to tell a stale ACK from one for this message.
    timer: u64,
    chunk: u64,
    offset: u32,
    /// Header, data and padding.
    len: u32,
    /// What it takes of the window.
    cost: u32,
    slot: u32,
    completion: Completion,
}

struct Chunk {
    front: Front,
    /// A large payload, sent without copying behind `front`. Its padding follows.
    body: Option<Bytes>,
    first_ordinal: u64,
    count: u32,
    /// Messages without an answer.
    pending: u32,
    /// Messages that want none.
    unrequested: u32,
    written: bool,
}

/// A whole PUT event, or its beginning if the chunk has a body.
enum Front {
    /// Only the last chunk grows.
    Growing(Vec<u8>, PutBuilder),
    Frozen(Bytes),
}

/// The window of one session.
pub(crate) struct Outbox {
    guids: GuidMaker,
    max_messages: usize,
    max_bytes: usize,
    entries: VecDeque<Entry>,
    /// Ordinal of `entries[0]`.
    first_ordinal: u64,
    chunks: VecDeque<Chunk>,
    /// Number of `chunks[0]`.
    first_chunk: u64,
    /// The next chunk to go out.
    next_chunk: u64,
    in_flight: usize,
    in_flight_bytes: usize,
    pool: Vec<Vec<u8>>,
    confirms: Vec<u8>,
    /// The event at the end of `confirms`.
    confirm_event: Option<ConfirmBuilder>,
    confirm_count: usize,
    gates: Vec<Gate>,
    /// The session is up and its queues are reopened.
    flowing: bool,
    ended: bool,
}

impl Outbox {
    pub(crate) fn new(guids: GuidMaker, max_messages: usize, max_bytes: usize) -> Outbox {
        Outbox {
            guids,
            max_messages: max_messages.clamp(1, ORDINAL_SPAN),
            max_bytes: max_bytes.max(1),
            entries: VecDeque::new(),
            first_ordinal: 0,
            chunks: VecDeque::new(),
            first_chunk: 0,
            next_chunk: 0,
            in_flight: 0,
            in_flight_bytes: 0,
            pool: Vec::new(),
            confirms: Vec::new(),
            confirm_event: None,
            confirm_count: 0,
            gates: Vec::new(),
            flowing: false,
            ended: false,
        }
    }

    /// Messages without an answer.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether data may leave now.
    pub(crate) fn is_flowing(&self) -> bool {
        self.flowing
    }

    /// Whether there are messages that [`Outbox::take`] would find.
    pub(crate) fn has_chunks(&self) -> bool {
        self.flowing && self.next_chunk < self.first_chunk + self.chunks.len() as u64
    }

    /// Confirms that wait to be sent.
    pub(crate) fn pending_confirms(&self) -> usize {
        self.confirm_count
    }

    /// Opens or closes a queue for posts.
    pub(crate) fn set_gate(&mut self, slot: usize, gate: Gate) {
        if self.gates.len() <= slot {
            self.gates.resize(slot + 1, Gate::Closed);
        }
        self.gates[slot] = gate;
    }

    /// Whether posters that wait for room should look again: with some room, so that they go on in batches.
    pub(crate) fn has_room_for_many(&self) -> bool {
        self.in_flight <= self.max_messages - self.max_messages.div_ceil(4)
            && self.in_flight_bytes <= self.max_bytes / 4 * 3
    }

    /// Takes a message into the window.
    ///
    /// **Cost**: one copy of small data; no allocation but for a new chunk once in 256 KiB.
    #[inline]
    pub(crate) fn put(
        &mut self,
        slot: usize,
        message: &Prepared<'_>,
        now: Instant,
        completion: &mut Completion,
    ) -> Result<Guid, Refusal> {
        let cost = message.data.as_slice().len();
        self.admit(slot, cost)?;
        let ordinal = self.first_ordinal + self.entries.len() as u64;
        let timer = self.guids.timer(now);
        let guid = self.guids.make(ordinal, timer);
        let head = PutHead {
            guid,
            ..message.head
        };
        let (offset, len) = match &message.data {
            Data::Copied(data) => self.append_copied(ordinal, &head, data),
            Data::Shared(data) => self.append_shared(ordinal, &head, data),
        };
        let chunk = self.first_chunk + self.chunks.len() as u64 - 1;
        let completion = std::mem::replace(completion, Completion::Done);
        if let Some(last) = self.chunks.back_mut() {
            last.count += 1;
            last.pending += 1;
            last.unrequested += u32::from(!completion.wants_ack());
        }
        self.in_flight += 1;
        self.in_flight_bytes += cost;
        // All three fit: a message is at most 64 MiB and a chunk of several ends at 256 KiB.
        self.entries.push_back(Entry {
            timer,
            chunk,
            offset: offset as u32,
            len: len as u32,
            cost: cost as u32,
            slot: slot as u32,
            completion,
        });
        Ok(guid)
    }

    fn admit(&self, slot: usize, cost: usize) -> Result<(), Refusal> {
        if self.ended {
            return Err(Refusal::Ended);
        }
        match self.gates.get(slot) {
            Some(Gate::Open) => {}
            Some(Gate::Failed) => return Err(Refusal::Failed),
            Some(Gate::Closed) | None => return Err(Refusal::Closed),
        }
        // One message of any size fits an empty window.
        let too_many_bytes = self.in_flight > 0 && self.in_flight_bytes + cost > self.max_bytes;
        if self.in_flight >= self.max_messages
            || self.entries.len() >= ORDINAL_SPAN
            || too_many_bytes
        {
            return Err(Refusal::Full);
        }
        Ok(())
    }

    fn append_copied(&mut self, ordinal: u64, head: &PutHead, data: &[u8]) -> (usize, usize) {
        let (buffer, builder) = self.growing_chunk(ordinal, data.len());
        let offset = buffer.len();
        builder
            .append_copy(buffer, head, data)
            .expect("data is within its limit, and the chunk far below that of an event");
        (offset, buffer.len() - offset)
    }

    fn append_shared(&mut self, ordinal: u64, head: &PutHead, data: &Bytes) -> (usize, usize) {
        self.freeze_last();
        let mut front = Vec::with_capacity(64);
        let mut builder = PutBuilder::begin(&mut front);
        let at = builder
            .append(&mut front, head, data.len())
            .expect("data is within its limit");
        let len = builder.finish(&mut front) - limits::EVENT_HEADER_BYTES;
        // The padding behind the data is sent from a constant.
        front.truncate(at);
        self.push_chunk(ordinal, Front::Frozen(front.into()), Some(data.clone()));
        (limits::EVENT_HEADER_BYTES, len)
    }

    /// The buffer of the last chunk if it has room, else of a new one.
    fn growing_chunk(&mut self, ordinal: u64, len: usize) -> (&mut Vec<u8>, &mut PutBuilder) {
        let fits = matches!(self.chunks.back(), Some(Chunk { front: Front::Growing(b, _), .. }) if b.len() + len <= CHUNK_BYTES);
        if !fits {
            self.freeze_last();
            let mut buffer = self.pool.pop().unwrap_or_default();
            let builder = PutBuilder::begin(&mut buffer);
            self.push_chunk(ordinal, Front::Growing(buffer, builder), None);
        }
        match self.chunks.back_mut() {
            Some(Chunk {
                front: Front::Growing(buffer, builder),
                ..
            }) => (buffer, builder),
            _ => unreachable!("the last chunk was found or made growing above"),
        }
    }

    fn push_chunk(&mut self, first_ordinal: u64, front: Front, body: Option<Bytes>) {
        self.chunks.push_back(Chunk {
            front,
            body,
            first_ordinal,
            count: 0,
            pending: 0,
            unrequested: 0,
            written: false,
        });
    }

    fn freeze_last(&mut self) {
        if let Some(last) = self.chunks.back_mut() {
            last.freeze();
        }
    }

    /// Notes that a message is done with; it is sent with the next events. `false` while there is no session to send it in.
    #[inline]
    pub(crate) fn confirm(&mut self, confirm: &Confirm) -> bool {
        if !self.flowing {
            return false;
        }
        self.confirm_count += 1;
        if let Some(event) = &mut self.confirm_event
            && event.append(&mut self.confirms, confirm).is_ok()
        {
            return true;
        }
        self.finish_confirms();
        let mut event = ConfirmBuilder::begin(&mut self.confirms);
        event
            .append(&mut self.confirms, confirm)
            .expect("an empty event takes one confirm");
        self.confirm_event = Some(event);
        true
    }

    fn finish_confirms(&mut self) {
        if let Some(event) = self.confirm_event.take() {
            event.finish(&mut self.confirms);
        }
    }

    /// Moves all that can be sent to `transmit`.
    pub(crate) fn take(&mut self, transmit: &mut Transmit) {
        if !self.flowing {
            return;
        }
        if self.confirm_count > 0 {
            self.finish_confirms();
            transmit.push(Bytes::copy_from_slice(&self.confirms));
            self.confirms.clear();
            self.confirm_count = 0;
        }
        self.freeze_last();
        while self.has_chunks() {
            let index = (self.next_chunk - self.first_chunk) as usize;
            // Messages that were acknowledged on an earlier connection, or given up, are left out.
            if self.chunks[index].pending < self.chunks[index].count {
                self.compact(index);
            }
            self.chunks[index].send(self.next_chunk, transmit);
            self.next_chunk += 1;
        }
    }

    /// The chunk and all before it have been written to the socket.
    pub(crate) fn chunk_written(&mut self, chunk: u64, settled: &mut Vec<Settled>) {
        let end = (chunk + 1).saturating_sub(self.first_chunk) as usize;
        for index in (0..end.min(self.chunks.len())).rev() {
            if self.chunks[index].written {
                break;
            }
            self.chunks[index].written = true;
            if self.chunks[index].unrequested > 0 {
                self.settle_unrequested(index, settled);
            }
        }
        self.drop_settled_front();
    }

    fn settle_unrequested(&mut self, chunk: usize, settled: &mut Vec<Settled>) {
        let (first, count) = (
            self.chunks[chunk].first_ordinal,
            u64::from(self.chunks[chunk].count),
        );
        for ordinal in first.max(self.first_ordinal)..first + count {
            let index = (ordinal - self.first_ordinal) as usize;
            if matches!(self.entries[index].completion, Completion::Unrequested) {
                self.settle(index, AckStatus::Success, settled);
            }
        }
    }

    /// Applies one ACK; `false` if it is for no message that waits.
    #[inline]
    pub(crate) fn acknowledge(
        &mut self,
        guid: &Guid,
        status: AckStatus,
        settled: &mut Vec<Settled>,
    ) -> bool {
        let ahead = (counter_of(guid).wrapping_sub(self.first_ordinal)) % COUNTER_SPAN;
        let index = ahead as usize;
        let Some(entry) = self.entries.get(index) else {
            return false;
        };
        if matches!(entry.completion, Completion::Done)
            || self.guids.make(self.first_ordinal + ahead, entry.timer) != *guid
        {
            return false;
        }
        self.settle(index, status, settled);
        true
    }

    /// Call after a batch of [`Outbox::acknowledge`].
    pub(crate) fn drop_settled_front(&mut self) {
        while let Some(Entry {
            completion: Completion::Done,
            ..
        }) = self.entries.front()
        {
            self.entries.pop_front();
            self.first_ordinal += 1;
        }
        while let Some(front) = self.chunks.front() {
            if front.pending > 0 || self.next_chunk == self.first_chunk {
                break;
            }
            self.chunks.pop_front();
            self.first_chunk += 1;
        }
    }

    #[inline]
    fn settle(&mut self, index: usize, status: AckStatus, settled: &mut Vec<Settled>) {
        let entry = &mut self.entries[index];
        let completion = std::mem::replace(&mut entry.completion, Completion::Done);
        self.in_flight -= 1;
        self.in_flight_bytes -= entry.cost as usize;
        let chunk = &mut self.chunks[(entry.chunk - self.first_chunk) as usize];
        chunk.pending -= 1;
        if chunk.pending == 0 {
            chunk.recycle(&mut self.pool);
        }
        if completion.wants_ack() {
            let tag = if let Completion::Tag(tag) = completion {
                tag
            } else {
                0
            };
            let guid = self
                .guids
                .make(self.first_ordinal + index as u64, entry.timer);
            settled.push(Settled {
                slot: entry.slot as usize,
                ack: Ack { guid, status, tag },
                completion,
            });
        }
    }

    /// Gives up what a queue still waits for, and refuses more.
    pub(crate) fn cancel_queue(
        &mut self,
        slot: usize,
        gate: Gate,
        status: AckStatus,
        settled: &mut Vec<Settled>,
    ) {
        self.set_gate(slot, gate);
        for index in 0..self.entries.len() {
            let entry = &self.entries[index];
            if entry.slot as usize == slot && !matches!(entry.completion, Completion::Done) {
                self.settle(index, status, settled);
            }
        }
        self.drop_settled_front();
    }

    /// The session is over: gives up everything and refuses more.
    pub(crate) fn end(&mut self, settled: &mut Vec<Settled>) {
        self.ended = true;
        self.flowing = false;
        for slot in 0..self.gates.len() {
            self.cancel_queue(slot, Gate::Closed, AckStatus::Canceled, settled);
        }
    }

    /// The connection is gone: nothing leaves until [`Outbox::resume`].
    pub(crate) fn suspend(&mut self) {
        self.flowing = false;
        self.confirms.clear();
        self.confirm_event = None;
        self.confirm_count = 0;
    }

    /// The session is up: what was sent and not answered goes first, in order, with the same GUIDs.
    /// Messages that want no answer and were written are not sent again.
    pub(crate) fn resume(&mut self) {
        self.flowing = true;
        let sent = (self.next_chunk - self.first_chunk) as usize;
        for chunk in self.chunks.iter_mut().take(sent) {
            chunk.written = false;
        }
        self.next_chunk = self.first_chunk;
    }

    /// Rewrites a chunk with only the messages that are still without an answer.
    fn compact(&mut self, index: usize) {
        let chunk = &mut self.chunks[index];
        if chunk.pending == 0 || chunk.body.is_some() {
            return;
        }
        let Front::Frozen(old) = &chunk.front else {
            return;
        };
        let mut front = Vec::with_capacity(old.len());
        let event = EventBuilder::begin(EventKind::Put, 0, limits::PUT_EVENT_BYTES_MAX, &mut front);
        for ordinal in chunk.first_ordinal.max(self.first_ordinal)
            ..chunk.first_ordinal + u64::from(chunk.count)
        {
            let entry = &mut self.entries[(ordinal - self.first_ordinal) as usize];
            if !matches!(entry.completion, Completion::Done) {
                let start = entry.offset as usize;
                entry.offset = front.len() as u32;
                front.extend_from_slice(&old[start..start + entry.len as usize]);
            }
        }
        event.finish(&mut front);
        chunk.front = Front::Frozen(front.into());
    }
}

impl Chunk {
    fn freeze(&mut self) {
        let front = std::mem::replace(&mut self.front, Front::Frozen(Bytes::new()));
        self.front = match front {
            Front::Growing(mut buffer, builder) => {
                builder.finish(&mut buffer);
                Front::Frozen(buffer.into())
            }
            frozen => frozen,
        };
    }

    fn send(&self, number: u64, transmit: &mut Transmit) {
        let Front::Frozen(front) = &self.front else {
            return;
        };
        match &self.body {
            // Its messages were given up before they left.
            _ if self.pending == 0 => {}
            None => transmit.push_piece(front.clone(), Some(number)),
            Some(body) => {
                transmit.push(front.clone());
                transmit.push(body.clone());
                transmit.push_piece(Bytes::from_static(padding(body.len())), Some(number));
            }
        }
    }

    /// Lets go of the memory, keeping the buffer for later if nobody else holds it.
    fn recycle(&mut self, pool: &mut Vec<Vec<u8>>) {
        self.body = None;
        if let Front::Frozen(front) = &mut self.front {
            let front = std::mem::take(front);
            if pool.len() < POOL_BUFFERS && front.len() >= POOL_BYTES_MIN && front.is_unique() {
                pool.push(reuse(front));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mqb_core::wire::{Event, FrameLimits, PutIter, frame_length};
    use mqb_core::{WireQueueId, checksum};

    use super::*;

    const MESSAGES: usize = 100;

    fn outbox() -> Outbox {
        let mut outbox = Outbox::new(GuidMaker::new([7; 6], Instant::now()), MESSAGES, 1 << 20);
        outbox.set_gate(0, Gate::Open);
        outbox.set_gate(1, Gate::Open);
        outbox.flowing = true;
        outbox
    }

    fn put(
        outbox: &mut Outbox,
        slot: usize,
        data: &[u8],
        completion: Completion,
    ) -> Result<Guid, Refusal> {
        let head = PutHead {
            queue: WireQueueId(slot as u32),
            crc: checksum::crc32c(data),
            ..PutHead::default()
        };
        let data = if data.len() >= SHARE_BYTES {
            Data::Shared(Bytes::copy_from_slice(data))
        } else {
            Data::Copied(data)
        };
        outbox.put(slot, &Prepared { head, data }, Instant::now(), &mut {
            completion
        })
    }

    /// What would go over the wire now, as GUIDs and data, and the number of events.
    fn sent(outbox: &mut Outbox) -> (Vec<(Guid, Vec<u8>)>, usize) {
        let mut transmit = Transmit::default();
        outbox.take(&mut transmit);
        let mut bytes = Vec::new();
        let last = transmit.write_to(&mut bytes).unwrap();
        if let Some(last) = last {
            outbox.chunk_written(last, &mut Vec::new());
        }
        let (mut messages, mut events, mut rest) = (Vec::new(), 0, bytes.as_slice());
        while let Some(length) = frame_length(rest, &FrameLimits::BROKER).unwrap() {
            let event = Event::parse(&rest[..length]).unwrap();
            messages.extend(
                PutIter::new(&event)
                    .map(|put| put.unwrap())
                    .map(|put| (put.guid, put.data.to_vec())),
            );
            events += 1;
            rest = &rest[length..];
        }
        (messages, events)
    }

    fn acknowledge(outbox: &mut Outbox, guids: &[Guid]) -> Vec<Settled> {
        let mut settled = Vec::new();
        for guid in guids {
            outbox.acknowledge(guid, AckStatus::Success, &mut settled);
        }
        outbox.drop_settled_front();
        settled
    }

    #[test]
    fn acknowledgements_in_any_order_find_their_messages_also_where_the_counter_wraps() {
        let mut outbox = outbox();
        outbox.first_ordinal = COUNTER_SPAN - 10;
        let guids: Vec<Guid> = (0..20u64)
            .map(|n| put(&mut outbox, 0, b"data", Completion::Tag(n)).unwrap())
            .collect();
        assert_eq!(sent(&mut outbox).1, 1);
        for pick in [13, 2, 19, 0, 10] {
            let settled = acknowledge(&mut outbox, &guids[pick..=pick]);
            assert_eq!(
                (settled.len(), settled[0].ack.guid, settled[0].ack.tag),
                (1, guids[pick], pick as u64)
            );
            assert!(
                acknowledge(&mut outbox, &guids[pick..=pick]).is_empty(),
                "twice"
            );
        }
        assert_eq!(acknowledge(&mut outbox, &guids).len(), 15);
        assert_eq!(
            (
                outbox.in_flight,
                outbox.in_flight_bytes,
                outbox.entries.len(),
                outbox.chunks.len()
            ),
            (0, 0, 0, 0)
        );
        // A counter that fits with another time is another message.
        let current = put(&mut outbox, 0, b"x", Completion::Tag(0)).unwrap();
        let mut other = current;
        other.0[9] ^= 1;
        assert!(acknowledge(&mut outbox, &[other, Guid::UNSET, Guid([0xFF; 16])]).is_empty());
        assert_eq!(acknowledge(&mut outbox, &[current]).len(), 1);
    }

    #[test]
    fn the_window_is_bounded_in_messages_and_bytes_and_takes_one_of_any_size() {
        let mut outbox = outbox();
        put(&mut outbox, 0, &vec![1; 2 << 20], Completion::Tag(0)).unwrap();
        assert_eq!(
            put(&mut outbox, 0, b"x", Completion::Tag(0)),
            Err(Refusal::Full)
        );
        let guid = sent(&mut outbox).0[0].0;
        acknowledge(&mut outbox, &[guid]);
        for _ in 0..MESSAGES {
            put(&mut outbox, 0, b"x", Completion::Tag(0)).unwrap();
        }
        assert_eq!(
            put(&mut outbox, 0, b"x", Completion::Tag(0)),
            Err(Refusal::Full)
        );
        assert!(!outbox.has_room_for_many());
    }

    #[test]
    fn what_is_retransmitted_is_what_has_no_answer_in_order_however_often() {
        let mut outbox = outbox();
        let mut guids = Vec::new();
        for n in 0..60u8 {
            let data = if n % 20 == 5 {
                vec![n; SHARE_BYTES]
            } else {
                vec![n; 10]
            };
            let completion = if n % 7 == 3 {
                Completion::Unrequested
            } else {
                Completion::Tag(0)
            };
            guids.push(put(&mut outbox, 0, &data, completion).unwrap());
            if n % 11 == 0 && n < 50 {
                sent(&mut outbox);
            }
        }
        // The first 45 were written: of these, those that want no answer are done with.
        let mut left: Vec<usize> = (0..60).filter(|n| *n > 44 || n % 7 != 3).collect();
        for round in 0..3 {
            outbox.suspend();
            assert!(sent(&mut outbox).0.is_empty());
            outbox.resume();
            let again = sent(&mut outbox).0;
            let wanted: Vec<Guid> = left.iter().map(|n| guids[*n]).collect();
            assert_eq!(
                again.iter().map(|(guid, _)| *guid).collect::<Vec<_>>(),
                wanted,
                "round {round}"
            );
            assert!(
                again
                    .iter()
                    .zip(&left)
                    .all(|((_, data), n)| data.iter().all(|byte| usize::from(*byte) == *n))
            );
            left.retain(|n| n % 7 != 3);
            let (answered, rest): (Vec<usize>, Vec<usize>) =
                left.iter().partition(|n| **n % 3 == round);
            acknowledge(
                &mut outbox,
                &answered.iter().map(|n| guids[*n]).collect::<Vec<_>>(),
            );
            left = rest;
        }
        assert!(left.is_empty());
        assert_eq!((outbox.in_flight, outbox.in_flight_bytes), (0, 0));
    }

    #[test]
    fn a_closed_queue_takes_its_messages_along_and_leaves_the_others() {
        let mut outbox = outbox();
        let guids: Vec<Guid> = (0..10)
            .map(|n| put(&mut outbox, n % 2, &[n as u8], Completion::Tag(0)).unwrap())
            .collect();
        let mut settled = Vec::new();
        outbox.cancel_queue(1, Gate::Failed, AckStatus::Canceled, &mut settled);
        assert_eq!(settled.len(), 5);
        assert_eq!(
            put(&mut outbox, 1, b"x", Completion::Tag(0)),
            Err(Refusal::Failed)
        );
        let later = put(&mut outbox, 0, b"later", Completion::Tag(0)).unwrap();
        let left: Vec<Guid> = sent(&mut outbox)
            .0
            .into_iter()
            .map(|(guid, _)| guid)
            .collect();
        let mut wanted: Vec<Guid> = guids.into_iter().step_by(2).collect();
        wanted.push(later);
        assert_eq!(left, wanted);
        outbox.end(&mut settled);
        assert_eq!((settled.len(), outbox.in_flight), (11, 0));
        assert_eq!(
            put(&mut outbox, 0, b"x", Completion::Tag(0)),
            Err(Refusal::Ended)
        );
    }

    #[test]
    fn confirms_become_whole_events_below_the_limit() {
        let mut outbox = outbox();
        let confirm = Confirm {
            queue: WireQueueId(1),
            guid: Guid([1; 16]),
            sub_id: mqb_core::SubId(0),
        };
        for _ in 0..100_000 {
            assert!(outbox.confirm(&confirm));
        }
        let mut transmit = Transmit::default();
        outbox.take(&mut transmit);
        let mut bytes = Vec::new();
        transmit.write_to(&mut bytes).unwrap();
        let (mut count, mut rest) = (0, bytes.as_slice());
        while let Some(length) = frame_length(rest, &FrameLimits::BROKER).unwrap() {
            let event = Event::parse(&rest[..length]).unwrap();
            count += mqb_core::wire::ConfirmIter::new(&event)
                .filter(|found| *found == Ok(confirm))
                .count();
            rest = &rest[length..];
        }
        assert_eq!((count, outbox.pending_confirms()), (100_000, 0));
        outbox.suspend();
        assert!(!outbox.confirm(&confirm));
    }
}
