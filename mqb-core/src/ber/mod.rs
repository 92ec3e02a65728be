//! The flavour of ASN.1 BER that BlazingMQ speaks: what is needed of it, with caps on depth and elements.
//!
//! Constructed values are written in the indefinite form (identifier, `80`, contents, `00 00`); both forms are read, nested
//! at will. Text is not chunked. Which number means what is the business of `control`.

mod reader;
mod writer;

pub(crate) use reader::{Element, Reader};
pub(crate) use writer::Writer;

/// Universal, constructed, 16: a sequence.
pub(crate) const SEQUENCE: u8 = 0x30;
/// Class bits of a field of a sequence.
pub(crate) const CONTEXT: u8 = 0x80;
/// Set where the contents are elements themselves.
pub(crate) const CONSTRUCTED: u8 = 0x20;
