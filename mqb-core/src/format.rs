//! How a message's application data is encoded.

use std::fmt;

/// Encoding of application data; kept with a message and handed out unchanged.
///
/// **Layout** (one byte in the log): bits 0-1 compression (0 none, 1 zlib), bit 2 has properties, bit 3 properties are new style.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DataFormat(pub u8);

/// How (part of) the application data is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Compression {
    /// Not at all.
    #[default]
    None = 0,
    /// One zlib stream: of everything with old-style or no properties, of the payload only with new-style properties.
    Zlib = 1,
}

/// Style of the properties area. See [`crate::properties`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PropertiesStyle {
    /// Property headers hold the lengths of values; compression covers the area too.
    Old,
    /// Property headers hold offsets; the area is never compressed.
    New,
}

impl DataFormat {
    const ZLIB: u8 = 1;
    const PROPERTIES: u8 = 4;
    const NEW_STYLE: u8 = 8;

    /// No compression, no properties.
    pub const PLAIN: DataFormat = DataFormat(0);

    /// Builds the byte.
    #[inline]
    pub const fn new(compression: Compression, properties: Option<PropertiesStyle>) -> Self {
        let style = match properties {
            None => 0,
            Some(PropertiesStyle::Old) => Self::PROPERTIES,
            Some(PropertiesStyle::New) => Self::PROPERTIES | Self::NEW_STYLE,
        };
        DataFormat(compression as u8 | style)
    }

    /// Compression of the data.
    #[inline]
    pub const fn compression(self) -> Compression {
        if self.0 & Self::ZLIB != 0 {
            Compression::Zlib
        } else {
            Compression::None
        }
    }

    /// Style of the properties, if there are any.
    #[inline]
    pub const fn properties(self) -> Option<PropertiesStyle> {
        if self.0 & Self::PROPERTIES == 0 {
            None
        } else if self.0 & Self::NEW_STYLE == 0 {
            Some(PropertiesStyle::Old)
        } else {
            Some(PropertiesStyle::New)
        }
    }

    /// What to write as schema id: 1 (new style, no schema) or 0.
    ///
    /// Producers' own schema ids never go to consumers: two producers use one id for different lists of names.
    #[inline]
    pub const fn schema_id(self) -> u16 {
        match self.properties() {
            Some(PropertiesStyle::New) => 1,
            _ => 0,
        }
    }
}

impl fmt::Debug for DataFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DataFormat({:?}, {:?})",
            self.compression(),
            self.properties()
        )
    }
}
