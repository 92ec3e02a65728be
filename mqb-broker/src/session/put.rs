//! PUTs and CONFIRMs of one read, judged and sorted by queue.
//!
//! SDKs send one message per event, so the unit of work is the read, not the event: all frames of a read share one piece of
//! memory, and each queue gets one batch of ranges into it.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use bytes::Bytes;
use mqb_core::compress::Inflater;
use mqb_core::error::DataFault;
use mqb_core::limits::INFLATED_BYTES_MAX;
use mqb_core::properties::Properties;
use mqb_core::wire::{Ack, AckStatus, Confirm, Put};
use mqb_core::{
    Compression, DataFormat, Guid, GuidGenerator, PropertiesStyle, SessionId, SubId, WireQueueId,
    checksum, data,
};
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

/// Judges messages. Holds the memory for inflating, which only peers that compress ever need.
#[derive(Default)]
pub struct Judge {
    inflater: Option<Box<Inflater>>,
    scratch: Vec<u8>,
}

impl Judge {
    /// Judges one message's data: padding, size, checksum, properties, compression. What passes can be pushed to any
    /// consumer.
    ///
    /// **Errors**: the message must be refused; its neighbours are not affected. **Cost**: a plain payload is read once, for
    /// its checksum; a compressed one is inflated too, within a cap, and thrown away.
    pub fn judge(&mut self, put: &Put<'_>) -> Result<Judged, DataFault> {
        let format = put.format()?;
        let computed = checksum::crc32c(put.data);
        if computed != put.crc {
            return Err(DataFault::Checksum {
                have: put.crc,
                want: computed,
            });
        }
        match (format.properties(), format.compression()) {
            (None, Compression::None) => {}
            (Some(style), Compression::None) => {
                if Properties::parse(put.data, style)?.area_length() == put.data.len() {
                    return Err(DataFault::EmptyPayload);
                }
            }
            (properties, Compression::Zlib) => {
                let inflater = self.inflater.get_or_insert_default();
                data::validate(format, put.data, inflater, &mut self.scratch)?;
                if properties == Some(PropertiesStyle::Old) {
                    let mut inflated = Vec::new();
                    inflater.inflate(put.data, INFLATED_BYTES_MAX, &mut inflated)?;
                    return Ok(Judged::Inflated(
                        DataFormat::new(Compression::None, properties),
                        inflated,
                    ));
                }
            }
        }
        Ok(Judged::AsIs(format))
    }

    /// Appends a message for a consumer of the old kind, and says in what format.
    ///
    /// **Errors**: as [`data::to_old_style`].
    pub fn to_old_style(
        &mut self,
        format: DataFormat,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<DataFormat, DataFault> {
        data::to_old_style(format, data, self.inflater.get_or_insert_default(), out)
    }
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
        self.pending
            .iter()
            .rposition(|pending| pending.queue == queue)
    }

    fn entry(&mut self, queue: WireQueueId, target: &Handle<Event>) -> &mut Pending {
        let index = self.find(queue).unwrap_or_else(|| {
            self.pending.push(Pending {
                queue,
                target: target.clone(),
                puts: Vec::new(),
                confirms: Vec::new(),
            });
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
                let batch = ConfirmBatch {
                    session,
                    queue: pending.queue,
                    confirms: pending.confirms,
                };
                cx.post(&pending.target, Event::Confirms(Box::new(batch)));
            }
            if !pending.puts.is_empty() {
                self.puts_hint = pending.puts.len().min(1024);
                let batch = PutBatch {
                    session,
                    queue: pending.queue,
                    frames: self.frames.clone(),
                    puts: pending.puts,
                };
                charge += batch.charge();
                cx.post(&pending.target, Event::Puts(Box::new(batch)));
            }
        }
        charge
    }
}

/// A generator for the messages of a peer that makes no GUIDs (Java). Unique across connections and restarts by 48 random
/// bits, within a connection by time and counter.
pub fn guid_generator() -> GuidGenerator {
    let random = RandomState::new().build_hasher().finish().to_be_bytes();
    let [client_id @ .., _, _] = random;
    GuidGenerator::new(client_id)
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

#[cfg(test)]
mod tests {
    use mqb_core::properties::PropertiesBuilder;
    use mqb_core::wire::{Event as WireEvent, PutBuilder, PutFlags, PutHead, PutIter};

    use super::*;

    /// A PUT event with one message, its checksum right.
    fn event(data: &[u8], format: DataFormat) -> Vec<u8> {
        let head = PutHead {
            guid: Guid([1; 16]),
            flags: PutFlags::of(true, format),
            compression: format.compression(),
            schema: format.schema_id(),
            crc: checksum::crc32c(data),
            ..PutHead::default()
        };
        let mut out = Vec::new();
        let mut builder = PutBuilder::begin(&mut out);
        builder.append_copy(&mut out, &head, data).unwrap();
        builder.finish(&mut out);
        out
    }

    fn judge(event: &[u8]) -> Result<Judged, DataFault> {
        let put = PutIter::new(&WireEvent::parse(event).unwrap())
            .next()
            .unwrap()
            .unwrap();
        Judge::default().judge(&put)
    }

    fn packed(style: PropertiesStyle, payload: &[u8]) -> (Vec<u8>, DataFormat) {
        let mut properties = PropertiesBuilder::new();
        properties
            .set_string("name", &"value ".repeat(400))
            .unwrap();
        properties.set_int32("number", 7).unwrap();
        let mut data = Vec::new();
        let format = data::pack(&properties, style, payload, Compression::Zlib, &mut data).unwrap();
        (data, format)
    }

    fn deflated(data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        mqb_core::compress::deflate(data, &mut out);
        out
    }

    #[test]
    fn good_messages_pass_as_they_came() {
        let (new, new_format) = packed(PropertiesStyle::New, &[b'z'; 5000]);
        assert_eq!(new_format.compression(), Compression::Zlib);
        let zlib = DataFormat::new(Compression::Zlib, None);
        for (data, format) in [
            (b"x".to_vec(), DataFormat::PLAIN),
            (new, new_format),
            (deflated(b"payload"), zlib),
        ] {
            assert_eq!(judge(&event(&data, format)), Ok(Judged::AsIs(format)));
        }
    }

    #[test]
    fn compressed_old_style_properties_are_inflated_and_can_be_read() {
        let (data, format) = packed(PropertiesStyle::Old, &[b'z'; 5000]);
        assert_eq!(format.compression(), Compression::Zlib);
        match judge(&event(&data, format)).unwrap() {
            Judged::Inflated(format, data) => {
                assert_eq!(
                    format,
                    DataFormat::new(Compression::None, Some(PropertiesStyle::Old))
                );
                let properties = Properties::parse(&data, PropertiesStyle::Old).unwrap();
                assert_eq!(properties.count(), 2);
                assert_eq!(&data[properties.area_length()..], [b'z'; 5000]);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_would_kill_or_starve_a_consumer_is_refused() {
        let zlib = DataFormat::new(Compression::Zlib, None);
        let old = DataFormat::new(Compression::None, Some(PropertiesStyle::Old));
        let new = DataFormat::new(Compression::None, Some(PropertiesStyle::New));
        let (area, _) = packed(PropertiesStyle::New, b"x");
        let bomb = deflated(&vec![0; INFLATED_BYTES_MAX + 1]);
        for (data, format) in [
            (b"".to_vec(), DataFormat::PLAIN),
            (b"no zlib at all".to_vec(), zlib),
            (deflated(b""), zlib),
            (bomb, zlib),
            (b"no properties".to_vec(), old),
            (b"no properties".to_vec(), new),
            (area[..area.len() - 1].to_vec(), new),
        ] {
            assert!(
                judge(&event(&data, format)).is_err(),
                "{format:?} {} bytes",
                data.len()
            );
        }
    }

    #[test]
    fn a_wrong_checksum_is_found() {
        let mut bytes = event(b"payload", DataFormat::PLAIN);
        let at = bytes.len() - 8;
        bytes[at] ^= 1;
        assert!(matches!(judge(&bytes), Err(DataFault::Checksum { .. })));
    }
}
