//! A received message.

use bytes::Bytes;
use mqb_core::compress::Inflater;
use mqb_core::properties::{Properties, Property};
use mqb_core::{Compression, DataFormat, Guid, PropertiesStyle, limits};

use crate::error::Error;

/// A message as it came from the broker. Cheap to move and clone; keeps the block in which it was received alive.
#[derive(Clone, Debug)]
pub struct Message {
    guid: Guid,
    data: Bytes,
    format: DataFormat,
    out_of_order: bool,
    subscription: u16,
}

impl Message {
    pub(crate) fn new(
        guid: Guid,
        data: Bytes,
        format: DataFormat,
        out_of_order: bool,
        subscription: u16,
    ) -> Message {
        Message {
            guid,
            data,
            format,
            out_of_order,
            subscription,
        }
    }

    /// The GUID that its producer gave it.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// Whether it comes out of its order, usually because it was delivered before and not confirmed.
    pub fn is_out_of_order(&self) -> bool {
        self.out_of_order
    }

    /// Which of the queue's subscriptions it came for: the position of its options at open or reconfigure.
    pub fn subscription(&self) -> usize {
        usize::from(self.subscription)
    }

    /// The application data as transmitted: possibly with properties, possibly compressed.
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// How [`Message::data`] is encoded.
    pub fn format(&self) -> DataFormat {
        self.format
    }

    /// The payload, without properties and compression.
    ///
    /// **Errors**: the message is malformed. **Cost**: none without properties and compression; see [`Message::contents`].
    pub fn payload(&self) -> Result<Bytes, Error> {
        if self.format == DataFormat::PLAIN {
            return Ok(self.data.clone());
        }
        self.contents().map(|contents| contents.payload)
    }

    /// Payload and properties.
    ///
    /// **Errors**: the message is malformed. **Cost**: reads the properties, inflates and copies what is compressed.
    pub fn contents(&self) -> Result<Contents, Error> {
        let Some(style) = self.format.properties() else {
            let payload = if self.format.compression() == Compression::None {
                self.data.clone()
            } else {
                inflate(&self.data)?
            };
            return Ok(Contents {
                payload,
                properties: None,
            });
        };
        let compressed = self.format.compression() == Compression::Zlib;
        let plain = if compressed && style == PropertiesStyle::Old {
            inflate(&self.data)?
        } else {
            self.data.clone()
        };
        let area_bytes = Properties::parse(&plain, style)
            .map_err(mqb_core::error::DataFault::from)?
            .area_length();
        let mut payload = plain.slice(area_bytes..);
        if compressed && style == PropertiesStyle::New && !payload.is_empty() {
            payload = inflate(&payload)?;
        }
        Ok(Contents {
            payload,
            properties: Some((plain.slice(..area_bytes), style)),
        })
    }
}

fn inflate(data: &[u8]) -> Result<Bytes, Error> {
    let mut plain = Vec::new();
    Inflater::new()
        .inflate(data, limits::INFLATED_BYTES_MAX, &mut plain)
        .map_err(mqb_core::error::DataFault::from)?;
    Ok(plain.into())
}

/// A message taken apart.
#[derive(Clone, Debug)]
pub struct Contents {
    /// What its producer posted.
    pub payload: Bytes,
    /// The area, checked.
    properties: Option<(Bytes, PropertiesStyle)>,
}

impl Contents {
    /// The message's properties, in the order of the message.
    pub fn properties(&self) -> impl Iterator<Item = Property<'_>> {
        let parsed = self
            .properties
            .as_ref()
            .and_then(|(area, style)| Properties::parse(area, *style).ok());
        parsed.into_iter().flat_map(|properties| properties.iter())
    }

    /// The property of a name. **Cost**: linear.
    pub fn property(&self, name: &str) -> Option<Property<'_>> {
        self.properties()
            .find(|property| property.name == name.as_bytes())
    }
}
