//! Writing BER into a `Vec<u8>`.

use super::{CONSTRUCTED, CONTEXT};

/// Appends elements to a buffer. Field numbers are below 31.
pub(crate) struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Appends to `out`.
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Writer { out }
    }

    /// A field with `contents`.
    pub(crate) fn primitive(&mut self, number: u8, contents: &[u8]) {
        debug_assert!(number < 31);
        self.out.push(CONTEXT | number);
        self.length(contents.len());
        self.out.extend_from_slice(contents);
    }

    /// A field that holds a number: two's complement, as few bytes as will do, at least one.
    pub(crate) fn integer(&mut self, number: u8, value: i128) {
        let bytes = value.to_be_bytes();
        let redundant =
            |pair: &[u8]| (pair[0] == 0 && pair[1] < 0x80) || (pair[0] == 0xFF && pair[1] >= 0x80);
        let skip = bytes.windows(2).take_while(|pair| redundant(pair)).count();
        self.primitive(number, &bytes[skip..]);
    }

    /// Opens a constructed field; [`Writer::end`] closes it.
    pub(crate) fn begin(&mut self, number: u8) {
        debug_assert!(number < 31);
        self.begin_identifier(CONTEXT | CONSTRUCTED | number);
    }

    /// Opens a constructed element of any identifier.
    pub(crate) fn begin_identifier(&mut self, identifier: u8) {
        self.out.extend_from_slice(&[identifier, 0x80]);
    }

    /// Closes the innermost open element.
    pub(crate) fn end(&mut self) {
        self.out.extend_from_slice(&[0, 0]);
    }

    fn length(&mut self, length: usize) {
        if let Ok(short @ ..0x80) = u8::try_from(length) {
            self.out.push(short);
            return;
        }
        let bytes = (length as u64).to_be_bytes();
        let skip = bytes.iter().take_while(|&&byte| byte == 0).count();
        self.out.push(0x80 | (bytes.len() - skip) as u8);
        self.out.extend_from_slice(&bytes[skip..]);
    }
}
