//! A message to be posted, and its encoding.

use std::cell::RefCell;

use bytes::Bytes;
use mqb_core::compress::COMPRESS_BYTES_MIN;
use mqb_core::properties::PropertiesBuilder;
use mqb_core::wire::{PutFlags, PutHead};
use mqb_core::{
    Compression, DataFormat, Guid, PropertiesStyle, WireQueueId, checksum, data, limits,
};

use crate::error::Error;
use crate::outbox::{Data, Prepared, SHARE_BYTES};

/// A thread keeps no larger buffer than this between posts.
const KEEP_BYTES_MAX: usize = 1 << 20;

/// A message's payload.
#[derive(Clone, Debug)]
pub enum Payload<'a> {
    /// Copied when the message is posted.
    Borrowed(&'a [u8]),
    /// From 32 KiB on sent from where it is, without a copy.
    Shared(Bytes),
}

impl Payload<'_> {
    fn as_slice(&self) -> &[u8] {
        match self {
            Payload::Borrowed(slice) => slice,
            Payload::Shared(bytes) => bytes,
        }
    }
}

/// A message to be posted. Bytes and text turn into one by themselves.
///
/// ```
/// use mqb_client::{PropertiesBuilder, Put};
///
/// # fn main() -> Result<(), mqb_core::error::PropertiesError> {
/// let mut properties = PropertiesBuilder::new();
/// properties.set_string("kind", "greeting")?;
/// properties.set_int32("attempt", 1)?;
/// let put = Put::new("hello").properties(&properties).compressed();
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Put<'a> {
    payload: Payload<'a>,
    properties: Option<&'a PropertiesBuilder>,
    compressed: bool,
}

impl<'a> Put<'a> {
    /// A message without properties, not compressed.
    pub fn new(payload: impl Into<Payload<'a>>) -> Put<'a> {
        Put {
            payload: payload.into(),
            properties: None,
            compressed: false,
        }
    }

    /// Adds properties.
    pub fn properties(mut self, properties: &'a PropertiesBuilder) -> Put<'a> {
        self.properties = Some(properties);
        self
    }

    /// Compresses with zlib if that is worth it: from 1 KiB on, and only if the result is smaller.
    pub fn compressed(mut self) -> Put<'a> {
        self.compressed = true;
        self
    }

    /// Encodes for a queue and passes the result on; what was encoded lives on the stack or in buffers of this thread.
    pub(crate) fn with_prepared<T>(
        &self,
        queue: WireQueueId,
        style: PropertiesStyle,
        wants_ack: bool,
        then: impl FnOnce(&Prepared<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let payload = self.payload.as_slice();
        if payload.is_empty() {
            return Err(Error::EmptyPayload);
        }
        let compress = self.compressed && payload.len() >= COMPRESS_BYTES_MIN;
        match self.properties {
            None if !compress => {
                return send(
                    queue,
                    DataFormat::PLAIN,
                    wants_ack,
                    Source::of(&self.payload),
                    then,
                );
            }
            Some(none) if none.is_empty() && !compress => {
                return send(
                    queue,
                    DataFormat::PLAIN,
                    wants_ack,
                    Source::of(&self.payload),
                    then,
                );
            }
            _ => {}
        }
        let none = PropertiesBuilder::new();
        let compression = if self.compressed {
            Compression::Zlib
        } else {
            Compression::None
        };
        let mut packed = PACKED.take();
        packed.clear();
        let format = data::pack(
            self.properties.unwrap_or(&none),
            style,
            payload,
            compression,
            &mut packed,
        )?;
        let result = send(queue, format, wants_ack, Source::Borrowed(&packed), then);
        if packed.capacity() <= KEEP_BYTES_MAX {
            PACKED.set(packed);
        }
        result
    }
}

impl<'a, T: Into<Payload<'a>>> From<T> for Put<'a> {
    fn from(payload: T) -> Put<'a> {
        Put::new(payload)
    }
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Payload::Borrowed(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Payload<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Payload::Borrowed(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Payload<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Payload::Borrowed(bytes)
    }
}

impl<'a> From<&'a str> for Payload<'a> {
    fn from(text: &'a str) -> Self {
        Payload::Borrowed(text.as_bytes())
    }
}

impl<'a> From<&'a String> for Payload<'a> {
    fn from(text: &'a String) -> Self {
        Payload::Borrowed(text.as_bytes())
    }
}

impl From<Bytes> for Payload<'_> {
    fn from(bytes: Bytes) -> Self {
        Payload::Shared(bytes)
    }
}

impl From<Vec<u8>> for Payload<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Payload::Shared(bytes.into())
    }
}

impl From<String> for Payload<'_> {
    fn from(text: String) -> Self {
        Payload::Shared(text.into())
    }
}

thread_local! {
    /// Where a posting thread puts together what cannot be sent as it is.
    static PACKED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Copy)]
enum Source<'a> {
    Borrowed(&'a [u8]),
    Shared(&'a Bytes),
}

impl<'a> Source<'a> {
    fn of(payload: &'a Payload<'_>) -> Source<'a> {
        match payload {
            Payload::Borrowed(slice) => Source::Borrowed(slice),
            Payload::Shared(bytes) => Source::Shared(bytes),
        }
    }
}

fn send<T>(
    queue: WireQueueId,
    format: DataFormat,
    wants_ack: bool,
    data: Source<'_>,
    then: impl FnOnce(&Prepared<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let slice = match data {
        Source::Borrowed(slice) => slice,
        Source::Shared(bytes) => bytes,
    };
    if slice.len() > limits::MESSAGE_BYTES_MAX {
        return Err(Error::TooBig {
            have: slice.len(),
            limit: limits::MESSAGE_BYTES_MAX,
        });
    }
    let head = PutHead {
        queue,
        guid: Guid::UNSET,
        flags: PutFlags::of(wants_ack, format),
        compression: format.compression(),
        schema: format.schema_id(),
        crc: checksum::crc32c(slice),
    };
    let data = match data {
        Source::Shared(bytes) if bytes.len() >= SHARE_BYTES => Data::Shared(bytes.clone()),
        // Copied here, where no lock is held.
        Source::Borrowed(slice) if slice.len() >= SHARE_BYTES => {
            Data::Shared(Bytes::copy_from_slice(slice))
        }
        _ => Data::Copied(slice),
    };
    then(&Prepared { head, data })
}
