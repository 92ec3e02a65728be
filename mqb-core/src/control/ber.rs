//! Documents in BER: the schema's traits on top of [`crate::ber`].

use super::codec::{Decoder, Encoder, Key, Root, Shape, Slot, text_from};
use crate::ber::{CONTEXT, Element, Reader, SEQUENCE, Writer};
use crate::error::SchemaError;
use crate::limits::SCHEMA_DEPTH_MAX;

/// Decodes the document at the start of `bytes`; what follows it (padding) is not looked at.
pub(super) fn decode<T: Root>(bytes: &[u8]) -> Result<T, SchemaError> {
    let mut reader = Reader::new(bytes);
    let current = reader.root()?;
    if current.identifier != SEQUENCE {
        return Err(SchemaError::Type(0));
    }
    T::decode_root(&mut BerDecoder {
        reader,
        current,
        depth: 0,
    })
}

/// Appends `document`.
pub(super) fn encode<T: Root>(document: &T, out: &mut Vec<u8>) {
    document.encode_root(&mut BerEncoder {
        writer: Writer::new(out),
    });
}

struct BerDecoder<'a> {
    reader: Reader<'a>,
    /// The value to be read next.
    current: Element,
    depth: usize,
}

impl BerDecoder<'_> {
    fn enter(&mut self) -> Result<Element, SchemaError> {
        if !self.current.is_constructed() {
            return Err(SchemaError::Type(self.reader.position()));
        }
        if self.depth == SCHEMA_DEPTH_MAX {
            return Err(SchemaError::Depth);
        }
        self.depth += 1;
        Ok(self.current)
    }

    /// Calls `field` for each selection in the wrapper that the decoder stands at.
    fn selections(
        &mut self,
        shape: &Shape,
        field: &mut dyn FnMut(Slot, &mut Self) -> Result<(), SchemaError>,
    ) -> Result<(), SchemaError> {
        let choice = self.enter()?;
        while let Some(element) = self.reader.next_in(&choice)? {
            self.current = element;
            match find(shape.selections, &element) {
                Some(index) => field(Slot::Selection(index), self)?,
                None => self.reader.skip(&element)?,
            }
        }
        self.depth -= 1;
        Ok(())
    }
}

/// The key of an element, if it is a field of its sequence at all and known.
fn find(keys: &[Key], element: &Element) -> Option<usize> {
    let is_field = element.identifier & 0xC0 == CONTEXT;
    keys.iter()
        .position(|key| is_field && u32::from(key.id) == element.number)
}

impl Decoder for BerDecoder<'_> {
    fn integer(&mut self) -> Result<i128, SchemaError> {
        let contents = self.reader.contents(&self.current)?;
        // A number of 8 bytes, and a zero in front of an unsigned one.
        if !(1..=9).contains(&contents.len()) {
            return Err(self.out_of_range());
        }
        let sign = if contents[0] & 0x80 != 0 { -1 } else { 0 };
        Ok(contents
            .iter()
            .fold(sign, |value, &byte| value << 8 | i128::from(byte)))
    }

    fn boolean(&mut self) -> Result<bool, SchemaError> {
        match self.reader.contents(&self.current)? {
            [byte] => Ok(*byte != 0),
            _ => Err(self.out_of_range()),
        }
    }

    fn text(&mut self) -> Result<String, SchemaError> {
        self.reader.contents(&self.current).map(text_from)
    }

    fn bytes(&mut self) -> Result<Vec<u8>, SchemaError> {
        self.reader.contents(&self.current).map(<[u8]>::to_vec)
    }

    fn name(&mut self, names: &[(i32, &'static str)]) -> Result<i32, SchemaError> {
        let number = self.integer()?;
        let known = names.iter().find(|(value, _)| i128::from(*value) == number);
        known.map(|(value, _)| *value).ok_or(self.out_of_range())
    }

    fn sequence(
        &mut self,
        shape: &Shape,
        field: &mut dyn FnMut(Slot, &mut Self) -> Result<(), SchemaError>,
    ) -> Result<(), SchemaError> {
        let sequence = self.enter()?;
        let wrap = Key {
            id: shape.wrap,
            name: "",
        };
        while let Some(element) = self.reader.next_in(&sequence)? {
            self.current = element;
            match find(shape.fields, &element) {
                Some(index) => field(Slot::Field(index), self)?,
                None if !shape.selections.is_empty() && find(&[wrap], &element).is_some() => {
                    self.selections(shape, field)?
                }
                None => self.reader.skip(&element)?,
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn array(
        &mut self,
        item: &mut dyn FnMut(&mut Self) -> Result<(), SchemaError>,
    ) -> Result<(), SchemaError> {
        let array = self.enter()?;
        while let Some(element) = self.reader.next_in(&array)? {
            if element.identifier != SEQUENCE {
                return Err(SchemaError::Type(self.reader.position()));
            }
            self.current = element;
            item(self)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn out_of_range(&self) -> SchemaError {
        SchemaError::Range(self.reader.position())
    }
}

struct BerEncoder<'a> {
    writer: Writer<'a>,
}

impl Encoder for BerEncoder<'_> {
    fn integer(&mut self, key: Key, value: i128) {
        self.writer.integer(key.id, value);
    }

    fn boolean(&mut self, key: Key, value: bool) {
        self.writer.primitive(key.id, &[u8::from(value)]);
    }

    fn text(&mut self, key: Key, value: &str) {
        self.writer.primitive(key.id, value.as_bytes());
    }

    fn bytes(&mut self, key: Key, value: &[u8]) {
        self.writer.primitive(key.id, value);
    }

    fn name(&mut self, key: Key, number: i32, _: &'static str) {
        self.writer.integer(key.id, i128::from(number));
    }

    fn sequence(&mut self, key: Key, fields: impl FnOnce(&mut Self)) {
        match key.name {
            "" => self.writer.begin_identifier(SEQUENCE),
            _ => self.writer.begin(key.id),
        }
        fields(self);
        self.writer.end();
    }

    fn choice(&mut self, id: u8, selection: impl FnOnce(&mut Self)) {
        self.writer.begin(id);
        selection(self);
        self.writer.end();
    }

    fn array<T>(&mut self, key: Key, items: &[T], item: impl Fn(&T, Key, &mut Self)) {
        self.writer.begin(key.id);
        items
            .iter()
            .for_each(|value| item(value, super::codec::NO_KEY, self));
        self.writer.end();
    }
}
