//! Application data as a whole: properties and payload, compressed or not, by its [`DataFormat`].
//!
//! ```text
//! no properties:  payload                      zlib: all of it
//! old style:      area, payload                zlib: all of it
//! new style:      area, payload                zlib: the payload only
//! ```

use crate::compress::{COMPRESS_BYTES_MIN, Inflater, deflate};
use crate::error::DataFault;
use crate::format::{Compression, DataFormat, PropertiesStyle};
use crate::limits::{INFLATED_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::properties::{Properties, PropertiesBuilder};

/// What [`validate`] leaves allocated in its scratch buffer: enough for usual properties, not for a hostile peer's.
const SCRATCH_BYTES_KEPT: usize = 64 << 10;

/// Properties and payload, uncompressed.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    /// The properties, if there are any.
    pub properties: Option<Properties<'a>>,
    /// The payload.
    pub payload: &'a [u8],
}

/// Checks that any consumer can take `data`: properties are valid, compressed parts inflate within the cap, there is a payload.
///
/// `scratch` is used for what must be inflated to be looked at (properties of old style under compression) and left empty.
///
/// **Errors**: the message must be refused. **Cost**: reads properties and inflates what is compressed; a plain payload is
/// not touched. No allocation but in `scratch`, which grows with what comes out.
pub fn validate(
    format: DataFormat,
    data: &[u8],
    inflater: &mut Inflater,
    scratch: &mut Vec<u8>,
) -> Result<(), DataFault> {
    let zlib = format.compression() == Compression::Zlib;
    let payload_bytes = match format.properties() {
        None if zlib => inflater.check(data, INFLATED_BYTES_MAX)?,
        None => data.len(),
        Some(PropertiesStyle::Old) if zlib => {
            let mut header = [0; 6];
            inflater.prefix(data, &mut header)?;
            let keep = Properties::announced_length(&header)?;
            scratch.clear();
            let total = inflater.check_keeping(data, INFLATED_BYTES_MAX, keep, scratch);
            let area = Properties::parse(scratch, PropertiesStyle::Old)
                .map(|properties| properties.area_length());
            scratch.clear();
            scratch.shrink_to(SCRATCH_BYTES_KEPT);
            total? - area?
        }
        Some(style) => {
            let payload = &data[Properties::parse(data, style)?.area_length()..];
            if zlib {
                inflater.check(payload, INFLATED_BYTES_MAX)?
            } else {
                payload.len()
            }
        }
    };
    if payload_bytes == 0 {
        Err(DataFault::EmptyPayload)
    } else {
        Ok(())
    }
}

/// Takes data apart for an application. What must be inflated goes into `scratch`, at most `cap` bytes.
///
/// **Errors**: malformed properties or compressed data.
pub fn unpack<'a>(
    format: DataFormat,
    data: &'a [u8],
    cap: usize,
    inflater: &mut Inflater,
    scratch: &'a mut Vec<u8>,
) -> Result<Contents<'a>, DataFault> {
    scratch.clear();
    let zlib = format.compression() == Compression::Zlib;
    match format.properties() {
        Some(PropertiesStyle::New) => {
            let properties = Properties::parse(data, PropertiesStyle::New)?;
            let mut payload = &data[properties.area_length()..];
            // Without properties the payload could not be empty; with them, an empty one was not worth compressing.
            if zlib && !payload.is_empty() {
                inflater.inflate(payload, cap, scratch)?;
                payload = scratch;
            }
            Ok(Contents {
                properties: Some(properties),
                payload,
            })
        }
        style => {
            let mut plain = data;
            if zlib {
                inflater.inflate(data, cap, scratch)?;
                plain = scratch;
            }
            let properties = style
                .map(|style| Properties::parse(plain, style))
                .transpose()?;
            let payload = &plain[properties.map_or(0, |properties| properties.area_length())..];
            Ok(Contents {
                properties,
                payload,
            })
        }
    }
}

/// Appends `data` for a consumer that reads old-style properties only, and says what format that is.
///
/// New-style properties are rewritten and their payload inflated; anything else stays as it is.
///
/// **Errors**: malformed properties or compressed data; `out` then holds a part.
pub fn to_old_style(
    format: DataFormat,
    data: &[u8],
    inflater: &mut Inflater,
    out: &mut Vec<u8>,
) -> Result<DataFormat, DataFault> {
    if format.properties() != Some(PropertiesStyle::New) {
        out.extend_from_slice(data);
        return Ok(format);
    }
    let properties = Properties::parse(data, PropertiesStyle::New)?;
    properties.write(PropertiesStyle::Old, out);
    let payload = &data[properties.area_length()..];
    match format.compression() {
        Compression::None => out.extend_from_slice(payload),
        Compression::Zlib => inflater.inflate(payload, INFLATED_BYTES_MAX, out)?,
    }
    Ok(DataFormat::new(
        Compression::None,
        Some(PropertiesStyle::Old),
    ))
}

/// Appends a message as an SDK packs it, and says in what format. Compression is dropped where it does not pay: below 1024
/// bytes, or when the result is not smaller.
///
/// **Errors**: no payload, or too much in all; nothing was written.
pub fn pack(
    properties: &PropertiesBuilder,
    style: PropertiesStyle,
    payload: &[u8],
    compression: Compression,
    out: &mut Vec<u8>,
) -> Result<DataFormat, DataFault> {
    if payload.is_empty() {
        return Err(DataFault::EmptyPayload);
    }
    let start = out.len();
    properties.write(style, out);
    let style = (!properties.is_empty()).then_some(style);
    let compressed_from = if style == Some(PropertiesStyle::New) {
        out.len()
    } else {
        start
    };
    out.extend_from_slice(payload);
    let mut used = Compression::None;
    if compression == Compression::Zlib && out.len() - compressed_from >= COMPRESS_BYTES_MIN {
        let mut compressed = Vec::new();
        deflate(&out[compressed_from..], &mut compressed);
        if compressed.len() < out.len() - compressed_from {
            out.truncate(compressed_from);
            out.extend_from_slice(&compressed);
            used = Compression::Zlib;
        }
    }
    let size = out.len() - start;
    if size > MESSAGE_BYTES_MAX {
        out.truncate(start);
        return Err(DataFault::TooBig(size));
    }
    Ok(DataFormat::new(used, style))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Compression::{None as Plain, Zlib};
    use PropertiesStyle::{New, Old};

    fn properties() -> PropertiesBuilder {
        let mut builder = PropertiesBuilder::new();
        builder.set_string("name", "value").unwrap();
        builder
    }

    fn packed(
        properties: &PropertiesBuilder,
        style: PropertiesStyle,
        payload: &[u8],
        compression: Compression,
    ) -> (DataFormat, Vec<u8>) {
        let mut out = Vec::new();
        let format = pack(properties, style, payload, compression, &mut out).unwrap();
        (format, out)
    }

    #[test]
    fn every_format_is_packed_validated_and_unpacked() {
        let payload = b"payload ".repeat(500);
        let (mut inflater, mut scratch, mut unpacked) = (Inflater::new(), Vec::new(), Vec::new());
        for style in [Old, New] {
            for compression in [Plain, Zlib] {
                for builder in [PropertiesBuilder::new(), properties()] {
                    let (format, data) = packed(&builder, style, &payload, compression);
                    assert_eq!(
                        format,
                        DataFormat::new(compression, (!builder.is_empty()).then_some(style))
                    );
                    assert_eq!(data.len() < payload.len(), compression == Zlib);
                    validate(format, &data, &mut inflater, &mut scratch).unwrap();
                    let contents =
                        unpack(format, &data, 1 << 20, &mut inflater, &mut unpacked).unwrap();
                    assert_eq!(contents.payload, payload);
                    assert_eq!(contents.properties.is_some(), !builder.is_empty());
                    let mut old = Vec::new();
                    let old_format = to_old_style(format, &data, &mut inflater, &mut old).unwrap();
                    assert_ne!(old_format.properties(), Some(New));
                    validate(old_format, &old, &mut inflater, &mut scratch).unwrap();
                    let contents =
                        unpack(old_format, &old, 1 << 20, &mut inflater, &mut unpacked).unwrap();
                    assert_eq!(contents.payload, payload);
                }
            }
        }
    }

    #[test]
    fn compression_follows_the_sdk_rule() {
        let none = PropertiesBuilder::new();
        assert_eq!(
            packed(&none, New, &[b'z'; 1023], Zlib).0.compression(),
            Plain
        );
        assert_eq!(
            packed(&none, New, &[b'z'; 1024], Zlib).0.compression(),
            Zlib
        );
        assert_eq!(
            packed(&properties(), New, &[b'z'; 1020], Zlib)
                .0
                .compression(),
            Plain
        );
        assert_eq!(
            packed(&properties(), Old, &[b'z'; 1020], Zlib)
                .0
                .compression(),
            Zlib
        );
        let noise: Vec<u8> = (0..500u32)
            .flat_map(|n| crate::checksum::crc32c(&n.to_be_bytes()).to_be_bytes())
            .collect();
        assert_eq!(packed(&none, New, &noise, Zlib).0.compression(), Plain);
    }

    #[test]
    fn what_kills_consumers_is_refused() {
        let (mut inflater, mut scratch) = (Inflater::new(), Vec::new());
        let mut check = |compression, style, data: &[u8]| {
            let result = validate(
                DataFormat::new(compression, style),
                data,
                &mut inflater,
                &mut scratch,
            );
            assert!(scratch.is_empty());
            result.is_err()
        };
        let mut area = Vec::new();
        properties().write(New, &mut area);
        assert!(check(Zlib, None, b"garbage"));
        assert!(check(Plain, Some(New), &area), "no payload");
        assert!(check(Zlib, Some(New), &[&area[..], b"garbage"].concat()));
        assert!(check(Zlib, Some(Old), b"garbage"));
        assert!(!check(Plain, Some(New), &[&area[..], b"x"].concat()));
        let mut nothing = Vec::new();
        deflate(b"", &mut nothing);
        assert!(check(Zlib, None, &nothing));
        let mut short = Vec::new();
        deflate(&area[..10], &mut short);
        assert!(check(Zlib, Some(Old), &short));
        let mut bomb = Vec::new();
        deflate(&vec![0; INFLATED_BYTES_MAX + 1], &mut bomb);
        assert!(check(Zlib, None, &bomb));
    }
}
