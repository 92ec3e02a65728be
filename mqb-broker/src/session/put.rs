//! PUTs and CONFIRMs of one read, judged and sorted by queue.
//!
//! SDKs send one message per event, so the unit of work is the read, not the event: all frames of a read share one piece of
//! memory, and each queue gets one batch of ranges into it.

use bytes::Bytes;
use mqb_core::error::{DataFault, WireError};
use mqb_core::wire::{Ack, AckStatus, Confirm, Put};
use mqb_core::{Compression, DataFormat, Guid, PropertiesStyle, SessionId, SubId, WireQueueId, checksum, compress, properties};
use mqb_core::limits::INFLATED_BYTES_MAX;
use mqb_dispatcher::{Cx, Handle};

use crate::event::{ConfirmBatch, Event, PutBatch, PutItem};

/// A message that may be stored.
#[derive(Debug, PartialEq, Eq)]
pub enum Judged {
    /// As it came.
    AsIs(DataFormat),
    /// Inflated on reception, since its properties were compressed too.
    Inflated(DataFormat, Vec<u8>),
}

/// Judges one message's data: padding, size, checksum, properties, compression. What passes can be pushed to any consumer.
///
/// **Errors**: the message must be refused; its neighbours are not affected. **Cost**: linear in the data; a compressed
/// message is inflated, within a cap, and thrown away.
pub fn judge(put: &Put<'_>) -> Result<Judged, DataFault> {
    let format = put.format()?;
    let computed = checksum::crc32c(put.data);
    if computed != put.crc {
        return Err(DataFault::Checksum { have: put.crc, want: computed });
    }
    match (format.properties(), format.compression()) {
        (None, Compression::None) => {}
        (None, Compression::Zlib) => {
            if compress::inflated_length(put.data, INFLATED_BYTES_MAX)? == 0 {
                return Err(DataFault::EmptyPayload);
            }
        }
        (Some(PropertiesStyle::Old), Compression::Zlib) => {
            let mut inflated = Vec::new();
            compress::inflate(put.data, INFLATED_BYTES_MAX, &mut inflated)?;
            check_payload(&inflated, PropertiesStyle::Old, Compression::None)?;
            let format = DataFormat::new(Compression::None, Some(PropertiesStyle::Old));
            return Ok(Judged::Inflated(format, inflated));
        }
        (Some(style), compression) => check_payload(put.data, style, compression)?,
    }
    Ok(Judged::AsIs(format))
}

fn check_payload(data: &[u8], style: PropertiesStyle, compression: Compression) -> Result<(), DataFault> {
    let area = properties::validate(data, style)?;
    let payload = &data[area..];
    if payload.is_empty() {
        return Err(DataFault::EmptyPayload);
    }
    if compression == Compression::Zlib && compress::inflated_length(payload, INFLATED_BYTES_MAX)? == 0 {
        return Err(DataFault::EmptyPayload);
    }
    Ok(())
}

/// What one read brings for one queue.
struct Pending {
    queue: WireQueueId,
    target: Handle<Event>,
    puts: Vec<PutItem>,
    confirms: Vec<(SubId, Guid)>,
}

/// What one read brings. Owned by: the session's processor; empty between reads.
#[derive(Default)]
pub struct Inbound {
    frames: Bytes,
    pending: Vec<Pending>,
    /// Sizes of the last batches: the next ones will be similar.
    puts_hint: usize,
    confirms_hint: usize,
}

impl Inbound {
    /// Begins a read whose frames lie in `frames`.
    pub fn begin(&mut self, frames: &Bytes) {
        debug_assert!(self.pending.is_empty(), "the last read was delivered");
        self.frames = frames.clone();
    }

    /// Ends a read: `frames` are not referred to any more.
    pub fn end(&mut self) {
        self.frames = Bytes::new();
    }

    /// The batch of a queue, if it has one already.
    fn find(&mut self, queue: WireQueueId) -> Option<usize> {
        // Almost always the same queue as the last time.
        self.pending.iter().rposition(|pending| pending.queue == queue)
    }

    fn entry(&mut self, queue: WireQueueId, target: &Handle<Event>) -> &mut Pending {
        let index = self.find(queue).unwrap_or_else(|| {
            self.pending.push(Pending { queue, target: target.clone(), puts: Vec::new(), confirms: Vec::new() });
            self.pending.len() - 1
        });
        &mut self.pending[index]
    }

    /// Adds a message whose data lies in the frames of this read. `guid` and `correlation` as in [`PutItem`].
    pub fn put(&mut self, target: &Handle<Event>, put: &Put<'_>, item: PutItem) {
        let hint = self.puts_hint;
        let pending = self.entry(put.queue, target);
        if pending.puts.is_empty() {
            pending.puts.reserve(hint);
        }
        pending.puts.push(item);
    }

    /// Adds a confirm.
    pub fn confirm(&mut self, target: &Handle<Event>, confirm: &Confirm) {
        let hint = self.confirms_hint;
        let pending = self.entry(confirm.queue, target);
        if pending.confirms.is_empty() {
            pending.confirms.reserve(hint);
        }
        pending.confirms.push((confirm.sub_id, confirm.guid));
    }

    /// Sends everything on its way, each queue's confirms before its PUTs. Returns what it takes of the in-flight budget.
    pub fn deliver(&mut self, cx: &mut Cx<'_, Event>, session: SessionId) -> usize {
        let mut charge = 0;
        for pending in self.pending.drain(..) {
            if !pending.confirms.is_empty() {
                self.confirms_hint = pending.confirms.len().min(1024);
                let batch = ConfirmBatch { session, queue: pending.queue, confirms: pending.confirms };
                cx.post(&pending.target, Event::Confirms(Box::new(batch)));
            }
            if !pending.puts.is_empty() {
                self.puts_hint = pending.puts.len().min(1024);
                let batch = PutBatch { session, queue: pending.queue, frames: self.frames.clone(), puts: pending.puts };
                charge += batch.charge();
                cx.post(&pending.target, Event::Puts(Box::new(batch)));
            }
        }
        charge
    }
}

/// Makes the GUIDs of messages whose producers do not (Java).
///
/// Unique across connections and restarts by 48 random bits, within a connection by time and counter.
#[derive(Debug)]
pub struct GuidMaker {
    client_id: [u8; 6],
    counter: u32,
}

impl GuidMaker {
    /// With a random client id.
    pub fn new() -> Self {
        use std::hash::{BuildHasher, Hasher};
        let random = std::collections::hash_map::RandomState::new().build_hasher().finish().to_be_bytes();
        let mut client_id = [0; 6];
        client_id.copy_from_slice(&random[..6]);
        Self { client_id, counter: 0 }
    }

    /// The next GUID; `nanos` is any clock that does not go back while this maker lives.
    pub fn make(&mut self, nanos: u64) -> Guid {
        let counter = self.counter;
        self.counter = (counter + 1) & 0x3F_FFFF;
        let mut guid = [0; 16];
        guid[..3].copy_from_slice(&(0x40_0000 | counter).to_be_bytes()[1..]);
        guid[3..10].copy_from_slice(&nanos.to_be_bytes()[1..]);
        guid[10..].copy_from_slice(&self.client_id);
        Guid(guid)
    }
}

impl Default for GuidMaker {
    fn default() -> Self {
        Self::new()
    }
}

/// The outcome of a PUT that never reaches a queue.
pub fn refusal(put: &Put<'_>, makes_guids: bool) -> Ack {
    Ack {
        queue: put.queue,
        guid: if makes_guids { put.guid } else { Guid::UNSET },
        correlation: if makes_guids { 0 } else { put.correlation_id() },
        status: AckStatus::Unknown,
    }
}
