//! Documents in JSON: a pull parser over the bytes (no tree is built) and a compact writer.
//!
//! Written as the reference does: `/` as `\/`, empty arrays left out, byte strings in base64, enumerations by name.

use super::codec::{Decoder, Encoder, Key, Root, Shape, Slot, text_from};
use crate::error::SchemaError;
use crate::limits::{SCHEMA_DEPTH_MAX, SCHEMA_ELEMENTS_MAX};

/// Decodes a document that is all of `bytes` but white space.
pub(super) fn decode<T: Root>(bytes: &[u8]) -> Result<T, SchemaError> {
    let mut decoder = JsonDecoder {
        input: bytes,
        at: 0,
        depth: 0,
        elements: 0,
    };
    let document = T::decode_root(&mut decoder)?;
    match decoder.peek() {
        Err(SchemaError::Truncated) => Ok(document),
        _ => Err(decoder.malformed()),
    }
}

/// Appends `document`.
pub(super) fn encode<T: Root>(document: &T, out: &mut Vec<u8>) {
    document.encode_root(&mut JsonEncoder { out, first: true });
}

struct JsonDecoder<'a> {
    input: &'a [u8],
    at: usize,
    depth: usize,
    elements: usize,
}

/// A string as it stands between its quotes.
struct RawString<'a> {
    bytes: &'a [u8],
    escaped: bool,
}

impl<'a> JsonDecoder<'a> {
    fn malformed(&self) -> SchemaError {
        SchemaError::Malformed(self.at)
    }

    /// The next byte that is not white space, which is not taken.
    fn peek(&mut self) -> Result<u8, SchemaError> {
        while let Some(byte) = self.input.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Ok(*byte);
            }
            self.at += 1;
        }
        Err(SchemaError::Truncated)
    }

    fn take_if(&mut self, byte: u8) -> Result<bool, SchemaError> {
        let found = self.peek()? == byte;
        self.at += usize::from(found);
        Ok(found)
    }

    fn expect(&mut self, byte: u8) -> Result<(), SchemaError> {
        if self.take_if(byte)? {
            Ok(())
        } else {
            Err(self.malformed())
        }
    }

    /// Counts a value.
    fn element(&mut self) -> Result<(), SchemaError> {
        self.elements += 1;
        if self.elements > SCHEMA_ELEMENTS_MAX {
            Err(SchemaError::Elements)
        } else {
            Ok(())
        }
    }

    fn enter(&mut self, open: u8) -> Result<(), SchemaError> {
        if !self.take_if(open)? {
            return Err(SchemaError::Type(self.at));
        }
        if self.depth == SCHEMA_DEPTH_MAX {
            return Err(SchemaError::Depth);
        }
        self.depth += 1;
        Ok(())
    }

    /// Calls `item` for each of a comma-separated list up to `close`.
    fn list(
        &mut self,
        close: u8,
        item: &mut dyn FnMut(&mut Self) -> Result<(), SchemaError>,
    ) -> Result<(), SchemaError> {
        if !self.take_if(close)? {
            loop {
                item(self)?;
                if !self.take_if(b',')? {
                    break;
                }
            }
            self.expect(close)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn raw_string(&mut self) -> Result<RawString<'a>, SchemaError> {
        if self.peek()? != b'"' {
            return Err(SchemaError::Type(self.at));
        }
        let start = self.at + 1;
        let mut at = start;
        let mut escaped = false;
        loop {
            match self.input.get(at).ok_or(SchemaError::Truncated)? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    at += 2;
                }
                _ => at += 1,
            }
        }
        self.at = at + 1;
        Ok(RawString {
            bytes: &self.input[start..at],
            escaped,
        })
    }

    /// The string's bytes with escapes resolved. Never longer than what stands there.
    fn resolve(&self, raw: &RawString<'a>) -> Result<Vec<u8>, SchemaError> {
        let mut out = Vec::with_capacity(raw.bytes.len());
        let mut rest = raw.bytes;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            if byte != b'\\' {
                out.push(byte);
                continue;
            }
            let (&escape, after) = rest.split_first().ok_or(SchemaError::Truncated)?;
            rest = after;
            match escape {
                b'"' | b'\\' | b'/' => out.push(escape),
                b'b' => out.push(8),
                b'f' => out.push(12),
                b'n' => out.push(b'\n'),
                b'r' => out.push(b'\r'),
                b't' => out.push(b'\t'),
                b'u' => {
                    let (character, after) = unicode(rest).ok_or(self.malformed())?;
                    rest = after;
                    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                _ => return Err(self.malformed()),
            }
        }
        Ok(out)
    }

    fn key(&mut self, shape: &Shape) -> Result<Option<Slot>, SchemaError> {
        let raw = self.raw_string()?;
        let resolved;
        let name = if raw.escaped {
            resolved = self.resolve(&raw)?;
            &resolved[..]
        } else {
            raw.bytes
        };
        let find = |keys: &[Key]| keys.iter().position(|key| key.name.as_bytes() == name);
        Ok(find(shape.fields)
            .map(Slot::Field)
            .or_else(|| find(shape.selections).map(Slot::Selection)))
    }

    fn literal(&mut self, text: &[u8]) -> Result<(), SchemaError> {
        if !self.input[self.at..].starts_with(text) {
            return Err(self.malformed());
        }
        self.at += text.len();
        Ok(())
    }

    fn number(&mut self) -> &'a [u8] {
        let start = self.at;
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        self.at += self.input[start..]
            .iter()
            .take_while(|byte| is_part(byte))
            .count();
        &self.input[start..self.at]
    }

    /// Passes over any value.
    fn skip(&mut self) -> Result<(), SchemaError> {
        self.element()?;
        match self.peek()? {
            b'"' => self.raw_string().map(|_| ()),
            b'{' => {
                self.enter(b'{')?;
                self.list(b'}', &mut |decoder| {
                    decoder.raw_string()?;
                    decoder.expect(b':')?;
                    decoder.skip()
                })
            }
            b'[' => {
                self.enter(b'[')?;
                self.list(b']', &mut |decoder| decoder.skip())
            }
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            b'n' => self.literal(b"null"),
            _ if self.number().is_empty() => Err(self.malformed()),
            _ => Ok(()),
        }
    }
}

/// The character of a `\u` escape behind its `u`; half of a pair alone becomes U+001A, as wrong bytes do.
fn unicode(rest: &[u8]) -> Option<(char, &[u8])> {
    const LOST: char = '\u{1A}';
    let hex = |bytes: &[u8; 4]| {
        bytes.iter().try_fold(0, |value, &byte| {
            Some(value << 4 | char::from(byte).to_digit(16)?)
        })
    };
    let (first, after) = rest.split_first_chunk::<4>()?;
    let first = hex(first)?;
    if !(0xD800..0xDC00).contains(&first) {
        return Some((char::from_u32(first).unwrap_or(LOST), after));
    }
    let second = after
        .strip_prefix(b"\\u")
        .and_then(|rest| rest.split_first_chunk::<4>());
    match second.and_then(|(second, after)| Some((hex(second)?, after))) {
        Some((second @ 0xDC00..0xE000, after)) => {
            let character = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
            Some((char::from_u32(character).unwrap_or(LOST), after))
        }
        _ => Some((LOST, after)),
    }
}

fn parse_integer(digits: &[u8]) -> Option<i128> {
    // 20 digits and a sign: no 64-bit number has more, and i128 cannot overflow.
    if digits.len() > 21 {
        return None;
    }
    std::str::from_utf8(digits)
        .ok()
        .filter(|text| !text.starts_with('+'))?
        .parse()
        .ok()
}

impl Decoder for JsonDecoder<'_> {
    fn integer(&mut self) -> Result<i128, SchemaError> {
        let digits = match self.peek()? {
            b'"' => self.raw_string()?.bytes,
            b'-' | b'0'..=b'9' => self.number(),
            _ => return Err(SchemaError::Type(self.at)),
        };
        parse_integer(digits).ok_or(self.out_of_range())
    }

    fn boolean(&mut self) -> Result<bool, SchemaError> {
        match self.peek()? {
            b't' => self.literal(b"true").map(|()| true),
            b'f' => self.literal(b"false").map(|()| false),
            _ => Err(SchemaError::Type(self.at)),
        }
    }

    fn text(&mut self) -> Result<String, SchemaError> {
        let raw = self.raw_string()?;
        if !raw.escaped {
            return Ok(text_from(raw.bytes));
        }
        let bytes = self.resolve(&raw)?;
        Ok(String::from_utf8(bytes).unwrap_or_else(|error| text_from(error.as_bytes())))
    }

    fn bytes(&mut self) -> Result<Vec<u8>, SchemaError> {
        let raw = self.raw_string()?;
        base64_decode(self.resolve(&raw)?).ok_or(self.out_of_range())
    }

    fn name(&mut self, names: &[(i32, &'static str)]) -> Result<i32, SchemaError> {
        let found = if self.peek()? == b'"' {
            let raw = self.raw_string()?;
            names.iter().find(|(_, name)| name.as_bytes() == raw.bytes)
        } else {
            let number = self.integer()?;
            names.iter().find(|(value, _)| i128::from(*value) == number)
        };
        found.map(|(value, _)| *value).ok_or(self.out_of_range())
    }

    fn sequence(
        &mut self,
        shape: &Shape,
        field: &mut dyn FnMut(Slot, &mut Self) -> Result<(), SchemaError>,
    ) -> Result<(), SchemaError> {
        self.enter(b'{')?;
        self.list(b'}', &mut |decoder| {
            let slot = decoder.key(shape)?;
            decoder.expect(b':')?;
            match slot {
                // `null` is the same as absent.
                Some(slot) if decoder.peek()? != b'n' => {
                    decoder.element()?;
                    field(slot, decoder)
                }
                _ => decoder.skip(),
            }
        })
    }

    fn array(
        &mut self,
        item: &mut dyn FnMut(&mut Self) -> Result<(), SchemaError>,
    ) -> Result<(), SchemaError> {
        self.enter(b'[')?;
        self.list(b']', &mut |decoder| {
            decoder.element()?;
            item(decoder)
        })
    }

    fn out_of_range(&self) -> SchemaError {
        SchemaError::Range(self.at)
    }
}

struct JsonEncoder<'a> {
    out: &'a mut Vec<u8>,
    /// Nothing stands in the innermost object or array yet.
    first: bool,
}

impl JsonEncoder<'_> {
    /// Comma and name.
    fn member(&mut self, key: Key) {
        if !self.first {
            self.out.push(b',');
        }
        self.first = false;
        if !key.name.is_empty() {
            self.string(key.name);
            self.out.push(b':');
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push(b'"');
        for &byte in text.as_bytes() {
            match byte {
                b'"' | b'\\' | b'/' => self.out.extend_from_slice(&[b'\\', byte]),
                8 => self.out.extend_from_slice(b"\\b"),
                12 => self.out.extend_from_slice(b"\\f"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                b'\t' => self.out.extend_from_slice(b"\\t"),
                0..0x20 => {
                    const HEX: &[u8; 16] = b"0123456789ABCDEF";
                    self.out.extend_from_slice(b"\\u00");
                    self.out.extend_from_slice(&[
                        HEX[usize::from(byte >> 4)],
                        HEX[usize::from(byte & 15)],
                    ]);
                }
                _ => self.out.push(byte),
            }
        }
        self.out.push(b'"');
    }
}

impl Encoder for JsonEncoder<'_> {
    fn integer(&mut self, key: Key, value: i128) {
        self.member(key);
        self.out.extend_from_slice(value.to_string().as_bytes());
    }

    fn boolean(&mut self, key: Key, value: bool) {
        self.member(key);
        self.out
            .extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn text(&mut self, key: Key, value: &str) {
        self.member(key);
        self.string(value);
    }

    fn bytes(&mut self, key: Key, value: &[u8]) {
        self.member(key);
        self.string(&base64_encode(value));
    }

    fn name(&mut self, key: Key, _: i32, name: &'static str) {
        self.member(key);
        self.string(name);
    }

    fn sequence(&mut self, key: Key, fields: impl FnOnce(&mut Self)) {
        self.member(key);
        self.out.push(b'{');
        self.first = true;
        fields(self);
        self.out.push(b'}');
        self.first = false;
    }

    fn choice(&mut self, _: u8, selection: impl FnOnce(&mut Self)) {
        selection(self);
    }

    fn array<T>(&mut self, key: Key, items: &[T], item: impl Fn(&T, Key, &mut Self)) {
        if items.is_empty() {
            return;
        }
        self.member(key);
        self.out.push(b'[');
        self.first = true;
        items
            .iter()
            .for_each(|value| item(value, super::codec::NO_KEY, self));
        self.out.push(b']');
        self.first = false;
    }
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64_encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk
            .iter()
            .fold(0u32, |group, &byte| group << 8 | u32::from(byte))
            << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let index = (group >> (18 - 6 * digit)) & 63;
            text.push(if digit <= chunk.len() {
                char::from(BASE64[index as usize])
            } else {
                '='
            });
        }
    }
    text
}

/// Decodes in place; padding may be missing.
fn base64_decode(mut text: Vec<u8>) -> Option<Vec<u8>> {
    let padding = text
        .iter()
        .rev()
        .take(2)
        .take_while(|&&byte| byte == b'=')
        .count();
    text.truncate(text.len() - padding);
    let (mut group, mut bits, mut length) = (0u32, 0, 0);
    for at in 0..text.len() {
        let digit = BASE64.iter().position(|&byte| byte == text[at])?;
        group = (group << 6 | digit as u32) & 0xFFFF;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            text[length] = (group >> bits) as u8;
            length += 1;
        }
    }
    if text.len() % 4 == 1 {
        return None;
    }
    text.truncate(length);
    Some(text)
}
