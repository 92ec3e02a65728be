//! What can be wrong with bytes from a peer, by the reaction it calls for.
//!
//! [`FrameError`]: the stream is lost, close the connection. [`WireError`]: the rest of this event is lost, the connection
//! goes on. [`DataFault`]: one message is bad, its neighbours are not; it gets a NACK. [`SchemaError`]: a control document
//! cannot be understood and is ignored (or, before the negotiation is done, the connection is closed).

use thiserror::Error;

/// The byte stream cannot be followed any further. **Reaction**: close the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The announced length is not above 4, or has its top bit (fragment) set.
    #[error("event length {0:#010x} is not valid")]
    Length(u32),
    /// The announced length is over the limit for its kind.
    #[error("event of kind {kind} and {length} bytes is over its limit of {limit} bytes")]
    TooLong {
        /// Event kind as on the wire.
        kind: u8,
        /// Announced length in bytes.
        length: usize,
        /// What is allowed.
        limit: usize,
    },
}

/// An event, or what is left of it, cannot be parsed. **Reaction**: discard the rest of the event, keep the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum WireError {
    /// Fewer bytes than an event header, or than its own header announces.
    #[error("event of {have} bytes is shorter than its header of {need} bytes")]
    EventHeader {
        /// Bytes there are.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// Kind 0, or a length that differs from the frame's.
    #[error("event header is not valid")]
    BadEvent,
    /// A header, message or option goes beyond what contains it.
    #[error("{what} needs {need} bytes where {have} are left")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Bytes left.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// A size field is smaller than what it must cover.
    #[error("{what} of {words} words is too small")]
    TooSmall {
        /// What was being read.
        what: &'static str,
        /// Announced size in words.
        words: usize,
    },
    /// An option of a type that may not be, or twice of one type, or too many.
    #[error("option of type {0} is not valid here")]
    Option(u8),
}

/// One message of a PUT or PUSH is not acceptable, though its limits in the event are known. **Reaction**: NACK it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum DataFault {
    /// The last byte is not a padding count of 1 to 4 that fits.
    #[error("padding byte {0} is not valid")]
    Padding(u8),
    /// There is no application data.
    #[error("application data is empty")]
    Empty,
    /// Properties are all there is: no payload behind them.
    #[error("payload is empty")]
    EmptyPayload,
    /// More application data than one message may have.
    #[error("application data of {0} bytes is over the limit")]
    TooBig(usize),
    /// Compression algorithm that does not exist.
    #[error("compression algorithm {0} is unknown")]
    Compression(u8),
    /// A schema id without properties.
    #[error("schema id {0} without properties")]
    SchemaWithoutProperties(u16),
    /// The checksum does not match the data.
    #[error("checksum is {have:08x}, data has {want:08x}")]
    Checksum {
        /// As sent.
        have: u32,
        /// As computed.
        want: u32,
    },
    /// The properties area is malformed.
    #[error("properties: {0}")]
    Properties(#[from] PropertiesError),
    /// The compressed part does not inflate, or inflates to too much.
    #[error("compressed data: {0}")]
    Inflate(#[from] InflateError),
}

/// A properties area is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PropertiesError {
    /// Shorter than its headers, or than its announced size.
    #[error("area of {have} bytes needs {need}")]
    Truncated {
        /// Bytes there are.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// A header is announced smaller than it can be.
    #[error("header size {0} is too small")]
    HeaderSize(u8),
    /// No property at all.
    #[error("no properties")]
    None,
    /// The padding count is not 1 to 4, or disagrees with the contents.
    #[error("padding byte {0} is not valid")]
    Padding(u8),
    /// A type that does not exist.
    #[error("type {0} is unknown")]
    Type(u8),
    /// A fixed-size value of another size.
    #[error("value of type {kind} has {length} bytes")]
    ValueLength {
        /// Type as on the wire.
        kind: u8,
        /// Length found.
        length: usize,
    },
    /// A name that is empty, or does not start with a letter or digit.
    #[error("name of property {0} is not valid")]
    Name(usize),
    /// Two properties of one name.
    #[error("property {0} repeats a name")]
    Duplicate(usize),
    /// Offsets that do not grow, or leave the area.
    #[error("offset or length of property {0} is not valid")]
    Offset(usize),
    /// Too many properties, or too long a name, value or area (when building).
    #[error("too many or too large properties")]
    TooLarge,
}

/// A zlib stream cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum InflateError {
    /// Not a complete zlib stream, or bytes behind its end.
    #[error("not one complete zlib stream")]
    Corrupt,
    /// Inflates to more than the cap.
    #[error("inflates to more than {0} bytes")]
    TooBig(usize),
}

/// A control document cannot be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// An encoding that does not exist.
    #[error("encoding {0} is unknown")]
    Encoding(u8),
    /// Ends too early, or a length goes beyond its container.
    #[error("document is truncated")]
    Truncated,
    /// Not well-formed.
    #[error("document is malformed at byte {0}")]
    Malformed(usize),
    /// Another type of value than the schema has there.
    #[error("value of another type at byte {0}")]
    Type(usize),
    /// A number that does not fit its field, or an enumeration value that does not exist.
    #[error("value out of range at byte {0}")]
    Range(usize),
    /// Nested deeper than allowed.
    #[error("nested too deep")]
    Depth,
    /// More elements than allowed.
    #[error("too many elements")]
    Elements,
    /// No selection that is known, where there must be one.
    #[error("no known selection")]
    NoSelection,
}

/// The message does not fit the event under construction; nothing was written. Finish the event and begin another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("event is full")]
pub struct EventFull;
