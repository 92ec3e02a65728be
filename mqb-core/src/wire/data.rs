//! What PUT and PUSH have in common: the two size words, the three areas, and the rules of the application data.
//!
//! ```text
//!  31  28 27                        0 31              8 7   5 4       0
//! +------+---------------------------+-----------------+-----+---------+----------
//! | flags|       message words       |  options words  | zip |hdr words| ...
//! +------+---------------------------+-----------------+-----+---------+----------
//! message = header (hdr words) + options (options words) + application data with 1..4 padding bytes
//! ```

use crate::error::{DataFault, WireError};
use crate::format::{Compression, DataFormat, PropertiesStyle};
use crate::limits::{MESSAGE_BYTES_MAX, MESSAGE_WORDS_MAX, WORD_BYTES};
use crate::wire::strip_padding;

/// The flag for "the data begins with properties"; the same bit in PUT and PUSH.
pub(crate) const FLAG_PROPERTIES: u8 = 2;

/// One message of a data event, cut into its areas.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) flags: u8,
    pub(crate) compression: u8,
    pub(crate) header: &'a [u8],
    pub(crate) options: &'a [u8],
    pub(crate) data: &'a [u8],
    /// A padding count that is not one; `data` is empty then.
    pub(crate) bad_padding: Option<u8>,
    /// Where `data` begins, from the start of the message.
    pub(crate) data_offset: usize,
}

/// Cuts the first message off `bytes`. Progress is certain: a message has at least its 8 bytes.
#[inline]
pub(crate) fn split_message<'a>(
    bytes: &'a [u8],
    what: &'static str,
) -> Result<(Message<'a>, &'a [u8]), WireError> {
    let Some((fixed, _)) = bytes.split_first_chunk::<8>() else {
        return Err(WireError::Truncated {
            what,
            have: bytes.len(),
            need: 8,
        });
    };
    let first = u32::from_be_bytes([fixed[0], fixed[1], fixed[2], fixed[3]]);
    let words = (first & 0x0FFF_FFFF) as usize;
    let header_words = usize::from(fixed[7] & 0x1F);
    let options_words = u32::from_be_bytes([0, fixed[4], fixed[5], fixed[6]]) as usize;
    if header_words < 2 {
        return Err(WireError::TooSmall {
            what,
            words: header_words,
        });
    }
    if words < header_words + options_words {
        return Err(WireError::TooSmall { what, words });
    }
    let size = words * WORD_BYTES;
    if size > bytes.len() {
        return Err(WireError::Truncated {
            what,
            have: bytes.len(),
            need: size,
        });
    }
    let (message, rest) = bytes.split_at(size);
    let data_offset = (header_words + options_words) * WORD_BYTES;
    let area = &message[data_offset..];
    let (data, bad_padding) = match strip_padding(area) {
        Ok(data) => (data, None),
        Err(count) => (&area[..0], (!area.is_empty()).then_some(count)),
    };
    let message = Message {
        flags: (first >> 28) as u8,
        compression: fixed[7] >> 5,
        header: &message[..header_words * WORD_BYTES],
        options: &message[header_words * WORD_BYTES..data_offset],
        data,
        bad_padding,
        data_offset,
    };
    Ok((message, rest))
}

/// Bytes `at..at + N` of a header that may be shorter than today's; absent ones are zero.
#[inline]
pub(crate) fn field<const N: usize>(header: &[u8], at: usize) -> [u8; N] {
    header
        .get(at..)
        .and_then(|rest| rest.first_chunk::<N>())
        .copied()
        .unwrap_or([0; N])
}

/// The format that header fields announce.
#[inline]
pub(crate) fn announced_format(
    flags: u8,
    compression: u8,
    schema: u16,
) -> Result<DataFormat, DataFault> {
    let compression = match compression {
        0 => Compression::None,
        1 => Compression::Zlib,
        other => return Err(DataFault::Compression(other)),
    };
    let properties = match (flags & FLAG_PROPERTIES != 0, schema) {
        (false, 0) => None,
        (false, schema) => return Err(DataFault::SchemaWithoutProperties(schema)),
        (true, 0) => Some(PropertiesStyle::Old),
        (true, _) => Some(PropertiesStyle::New),
    };
    Ok(DataFormat::new(compression, properties))
}

/// Whether there is data of an allowed size, well padded.
#[inline]
pub(crate) fn check_area(data: &[u8], bad_padding: Option<u8>) -> Result<(), DataFault> {
    if let Some(count) = bad_padding {
        return Err(DataFault::Padding(count));
    }
    if data.is_empty() {
        return Err(DataFault::Empty);
    }
    if data.len() > MESSAGE_BYTES_MAX {
        return Err(DataFault::TooBig(data.len()));
    }
    Ok(())
}

/// The two size words of a message with `data_length` bytes of data, or `None` if it cannot be one message.
#[inline]
pub(crate) fn size_words(
    flags: u8,
    compression: Compression,
    header_words: usize,
    options_bytes: usize,
    data_length: usize,
) -> Option<([u8; 8], usize)> {
    let words = header_words + options_bytes / WORD_BYTES + data_length / WORD_BYTES + 1;
    if words > MESSAGE_WORDS_MAX || options_bytes / WORD_BYTES > crate::limits::OPTIONS_WORDS_MAX {
        return None;
    }
    let first = u32::from(flags) << 28 | words as u32;
    let second = (options_bytes / WORD_BYTES) as u32 * 256
        + (u32::from(compression as u8) << 5)
        + header_words as u32;
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_be_bytes());
    bytes[4..].copy_from_slice(&second.to_be_bytes());
    Some((bytes, words * WORD_BYTES))
}
