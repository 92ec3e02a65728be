//! Reading BER in place.

use super::CONSTRUCTED;
use crate::error::SchemaError;
use crate::limits::{SCHEMA_DEPTH_MAX, SCHEMA_ELEMENTS_MAX};

/// An element whose identifier and length were read and whose contents come next.
#[derive(Clone, Copy)]
pub(crate) struct Element {
    /// Class and constructed bits and, if below 31, the number.
    pub(crate) identifier: u8,
    /// The number, whatever its size.
    pub(crate) number: u32,
    /// Where the contents end; `None`: at an end-of-contents mark.
    end: Option<usize>,
    /// Nothing of this element is behind here.
    limit: usize,
}

impl Element {
    /// Whether its contents are elements.
    pub(crate) fn is_constructed(&self) -> bool {
        self.identifier & CONSTRUCTED != 0
    }
}

/// A place in a document. Every step moves forward; the number of elements is capped.
pub(crate) struct Reader<'a> {
    input: &'a [u8],
    at: usize,
    elements: usize,
}

impl<'a> Reader<'a> {
    /// Stands at the first byte.
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Reader {
            input,
            at: 0,
            elements: 0,
        }
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// The first element of the document.
    pub(crate) fn root(&mut self) -> Result<Element, SchemaError> {
        self.element(self.input.len())?
            .ok_or(SchemaError::Malformed(0))
    }

    /// The next element in `parent`, whose earlier ones must have been read or skipped; `None` behind the last.
    pub(crate) fn next_in(&mut self, parent: &Element) -> Result<Option<Element>, SchemaError> {
        match parent.end {
            Some(end) if self.at == end => Ok(None),
            Some(end) => match self.element(end)? {
                Some(element) => Ok(Some(element)),
                // A mark where a length already says where to stop.
                None => Err(SchemaError::Malformed(self.at)),
            },
            None => self.element(parent.limit),
        }
    }

    /// The contents of a primitive element.
    pub(crate) fn contents(&mut self, element: &Element) -> Result<&'a [u8], SchemaError> {
        match element.end {
            Some(end) if !element.is_constructed() => {
                let contents = &self.input[self.at..end];
                self.at = end;
                Ok(contents)
            }
            _ => Err(SchemaError::Type(self.at)),
        }
    }

    /// Passes over an element's contents.
    pub(crate) fn skip(&mut self, element: &Element) -> Result<(), SchemaError> {
        if let Some(end) = element.end {
            self.at = end;
            return Ok(());
        }
        let mut open = 1;
        while open > 0 {
            match self.element(element.limit)? {
                None => open -= 1,
                Some(Element { end: Some(end), .. }) => self.at = end,
                Some(_) if open >= SCHEMA_DEPTH_MAX => return Err(SchemaError::Depth),
                Some(_) => open += 1,
            }
        }
        Ok(())
    }

    /// Reads identifier and length; `None` for an end-of-contents mark. Nothing may reach beyond `limit`.
    fn element(&mut self, limit: usize) -> Result<Option<Element>, SchemaError> {
        let start = self.at;
        let identifier = self.byte(limit)?;
        let number = self.number(identifier, limit)?;
        let first = self.byte(limit)?;
        if identifier == 0 {
            return if first == 0 {
                Ok(None)
            } else {
                Err(SchemaError::Malformed(start))
            };
        }
        self.elements += 1;
        if self.elements > SCHEMA_ELEMENTS_MAX {
            return Err(SchemaError::Elements);
        }
        if first == 0x80 {
            if identifier & CONSTRUCTED == 0 {
                return Err(SchemaError::Malformed(start));
            }
            return Ok(Some(Element {
                identifier,
                number,
                end: None,
                limit,
            }));
        }
        let length = self.length(first, limit)?;
        let end = self
            .at
            .checked_add(length)
            .filter(|&end| end <= limit)
            .ok_or(SchemaError::Truncated)?;
        Ok(Some(Element {
            identifier,
            number,
            end: Some(end),
            limit: end,
        }))
    }

    fn byte(&mut self, limit: usize) -> Result<u8, SchemaError> {
        let byte = self.input[..limit]
            .get(self.at)
            .copied()
            .ok_or(SchemaError::Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    /// The number behind an identifier: in it, or in the bytes that follow, 7 bits each.
    fn number(&mut self, identifier: u8, limit: usize) -> Result<u32, SchemaError> {
        if identifier & 0x1F != 0x1F {
            return Ok(u32::from(identifier & 0x1F));
        }
        let mut number = 0u32;
        for _ in 0..4 {
            let byte = self.byte(limit)?;
            number = number << 7 | u32::from(byte & 0x7F);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(SchemaError::Malformed(self.at))
    }

    fn length(&mut self, first: u8, limit: usize) -> Result<usize, SchemaError> {
        if first < 0x80 {
            return Ok(usize::from(first));
        }
        let mut length = 0;
        let count = first & 0x7F;
        if count > 4 {
            return Err(SchemaError::Malformed(self.at));
        }
        for _ in 0..count {
            length = length << 8 | usize::from(self.byte(limit)?);
        }
        Ok(length)
    }
}
