//! Control documents: negotiation, authentication, requests and their answers, in BER and JSON.
//!
//! [`schema`] lists every type once, with the number (BER) and the name (JSON) of each field; a type encodes and decodes
//! itself through the two traits of `codec`, each of which has one implementation per encoding.
//!
//! What decoders forgive: absent fields (they get their default), unknown fields, any order, both length forms of BER,
//! integers as JSON strings, two selections (the last counts). Text that is not UTF-8 is taken byte for byte, with each
//! wrong byte replaced by U+001A: never longer than what arrived, and valid in no identifier.
//!
//! **Memory**: a document allocates its strings and, capped by [`crate::limits`], its subscriptions; nothing by an
//! announced length.

mod ber;
mod codec;
mod json;
pub mod schema;

pub use schema::{
    AdminCommand, AdminResponse, Authentication, AuthenticationRequest, AuthenticationResponse,
    BrokerResponse, Category, ClientIdentity, ClientKind, CloseQueue, ConfigureQueueStream,
    ConfigureQueueStreamResponse, ConfigureStream, ConfigureStreamResponse, ConsumerInfo,
    ControlBody, ControlMessage, Empty, Expression, ExpressionVersion, GuidInfo, Negotiation,
    OpenQueue, OpenQueueResponse, QueueHandleParameters, QueueStreamParameters,
    RoutingConfiguration, SdkLanguage, Status, StreamParameters, SubQueueIdInfo, Subscription,
};

use crate::error::SchemaError;
use crate::limits;
use crate::wire::{Event, EventBuilder, EventKind, padding, strip_padding};

/// How a document is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Encoding {
    /// ASN.1 BER: C++ and Python peers.
    #[default]
    Ber,
    /// JSON: Java peers.
    Json,
}

impl Encoding {
    /// From the type-specific byte of an event header.
    ///
    /// **Errors**: the document cannot be decoded.
    pub const fn from_type_specific(byte: u8) -> Result<Encoding, SchemaError> {
        match byte >> 5 {
            0 => Ok(Encoding::Ber),
            1 => Ok(Encoding::Json),
            other => Err(SchemaError::Encoding(other)),
        }
    }

    /// The type-specific byte of an event header.
    pub const fn type_specific(self) -> u8 {
        match self {
            Encoding::Ber => 0,
            Encoding::Json => 1 << 5,
        }
    }
}

/// A whole document: [`Negotiation`], [`Authentication`] or [`ControlMessage`].
pub trait Document: codec::Root {
    /// The kind of event that carries it.
    const KIND: EventKind;
}

impl Document for Negotiation {
    const KIND: EventKind = EventKind::Control;
}

impl Document for Authentication {
    const KIND: EventKind = EventKind::Authentication;
}

impl Document for ControlMessage {
    const KIND: EventKind = EventKind::Control;
}

/// Decodes a document from an event's body, padding included or not.
///
/// **Errors**: it cannot be understood.
pub fn decode<M: Document>(encoding: Encoding, body: &[u8]) -> Result<M, SchemaError> {
    match encoding {
        Encoding::Ber => ber::decode(body),
        Encoding::Json => json::decode(strip_padding(body).unwrap_or(body)),
    }
}

/// Decodes the document in `event`, in the encoding that its header names.
///
/// **Errors**: it cannot be understood.
pub fn decode_event<M: Document>(event: &Event<'_>) -> Result<M, SchemaError> {
    decode(
        Encoding::from_type_specific(event.header.type_specific)?,
        event.body,
    )
}

/// Appends a document without padding.
pub fn encode<M: Document>(encoding: Encoding, document: &M, out: &mut Vec<u8>) {
    match encoding {
        Encoding::Ber => ber::encode(document, out),
        Encoding::Json => json::encode(document, out),
    }
}

/// Appends a whole event: header, document, padding. Returns its length in bytes.
///
/// The one document that can be long is an [`AdminResponse`]: a client takes [`limits::OTHER_EVENT_BYTES_MAX_RECEIVED`],
/// and it is for the caller to keep the text below.
pub fn encode_event<M: Document>(encoding: Encoding, document: &M, out: &mut Vec<u8>) -> usize {
    let event = EventBuilder::begin(
        M::KIND,
        encoding.type_specific(),
        limits::OTHER_EVENT_BYTES_MAX_RECEIVED,
        out,
    );
    let start = out.len();
    encode(encoding, document, out);
    let length = out.len() - start;
    out.extend_from_slice(padding(length));
    event.finish(out)
}
