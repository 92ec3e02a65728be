//! An independent codec of the client protocol: what a peer sends and how it reads the answers.
//!
//! Deliberately not built on `mqb-core`: a fault shared by encoder and decoder would cancel out. Slow and simple; control
//! messages are JSON, which the broker must speak as well as BER. Layouts follow the protocol's description.

use serde_json::Value;

/// Event kinds (the low six bits of byte 4 of an event).
pub mod kind {
    #![allow(missing_docs, reason = "the names are the protocol's")]
    pub const CONTROL: u8 = 1;
    pub const PUT: u8 = 2;
    pub const CONFIRM: u8 = 3;
    pub const PUSH: u8 = 4;
    pub const ACK: u8 = 5;
    pub const STORAGE: u8 = 8;
    pub const HEARTBEAT_REQ: u8 = 11;
    pub const HEARTBEAT_RSP: u8 = 12;
    pub const REJECT: u8 = 13;
    pub const AUTHENTICATION: u8 = 15;
}

/// A GUID as bytes.
pub type Guid = [u8; 16];

/// PUT flag: an ACK is wanted.
pub const ACK_REQUESTED: u8 = 1;
/// PUT and PUSH flag: the application data starts with message properties.
pub const PROPERTIES: u8 = 2;
/// PUSH flag: not in the order of arrival.
pub const OUT_OF_ORDER: u8 = 4;

const BER: u8 = 0;
const JSON: u8 = 1 << 5;

/// A whole event: 8-byte header and body.
pub fn event(kind: u8, type_specific: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(8 + body.len()).expect("an event is below 4 GiB");
    let mut out = Vec::with_capacity(8 + body.len());
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&[0x40 | kind, 2, type_specific, 0]);
    out.extend_from_slice(body);
    out
}

/// Appends 1 to 4 bytes, each holding their number, up to a multiple of 4.
pub fn pad(out: &mut Vec<u8>) {
    let count = 4 - out.len() % 4;
    out.resize(out.len() + count, count as u8);
}

/// A control event in JSON.
pub fn json_event(kind: u8, message: &Value) -> Vec<u8> {
    let mut body = message.to_string().into_bytes();
    pad(&mut body);
    event(kind, JSON, &body)
}

/// A control event whose body is given as it is, in BER's name.
pub fn ber_event(kind: u8, document: &[u8]) -> Vec<u8> {
    let mut body = document.to_vec();
    pad(&mut body);
    event(kind, BER, &body)
}

/// A heartbeat request.
pub fn heartbeat_request() -> Vec<u8> {
    event(kind::HEARTBEAT_REQ, 0, &[])
}

/// CRC32-C, bit by bit from its definition, sped up by a table.
pub fn crc32c(data: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0u32; 256];
        let mut i = 0;
        while i < 256 {
            let mut c = i as u32;
            let mut bit = 0;
            while bit < 8 {
                c = if c & 1 == 1 {
                    0x82f6_3b78 ^ (c >> 1)
                } else {
                    c >> 1
                };
                bit += 1;
            }
            table[i] = c;
            i += 1;
        }
        table
    };
    !data.iter().fold(!0u32, |crc, &byte| {
        TABLE[((crc ^ u32::from(byte)) & 0xff) as usize] ^ (crc >> 8)
    })
}

/// One message of a PUT event. Every field may be set to what no SDK would send.
#[derive(Clone, Debug)]
pub struct Put<'a> {
    /// The peer's number for the queue.
    pub queue: u32,
    /// GUID, or the correlation id of a peer that makes no GUIDs (see [`correlation`]).
    pub guid: Guid,
    /// `ACK_REQUESTED`, `PROPERTIES`.
    pub flags: u8,
    /// 0 none, 1 zlib.
    pub compression: u8,
    /// 0: old style properties; 1: new style without a schema.
    pub schema: u16,
    /// The options area.
    pub options: &'a [u8],
    /// Properties and payload, before padding.
    pub data: &'a [u8],
    /// Set to send a wrong checksum.
    pub crc: Option<u32>,
}

impl<'a> Put<'a> {
    /// A plain message with an ACK wanted.
    pub fn new(queue: u32, guid: Guid, data: &'a [u8]) -> Put<'a> {
        Put {
            queue,
            guid,
            flags: ACK_REQUESTED,
            compression: 0,
            schema: 0,
            options: &[],
            data,
            crc: None,
        }
    }

    /// Appends the message: header of 9 words, options, padded data.
    pub fn append(&self, out: &mut Vec<u8>) {
        let padding = 4 - self.data.len() % 4;
        let words = 9 + (self.options.len() + self.data.len() + padding) / 4;
        let words = u32::try_from(words).expect("a message is below 2^28 words");
        out.extend_from_slice(&(u32::from(self.flags) << 28 | words).to_be_bytes());
        let option_words = u32::try_from(self.options.len() / 4).expect("options are small");
        out.extend_from_slice(
            &(option_words << 8 | u32::from(self.compression) << 5 | 9).to_be_bytes(),
        );
        out.extend_from_slice(&self.queue.to_be_bytes());
        out.extend_from_slice(&self.guid);
        out.extend_from_slice(&self.crc.unwrap_or_else(|| crc32c(self.data)).to_be_bytes());
        out.extend_from_slice(&self.schema.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(self.options);
        out.extend_from_slice(self.data);
        out.resize(out.len() + padding, padding as u8);
    }
}

/// A PUT event of these messages.
pub fn put_event(puts: &[Put<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    puts.iter().for_each(|put| put.append(&mut body));
    event(kind::PUT, 0, &body)
}

/// The GUID field of a peer that makes no GUIDs: a 24-bit correlation id in bytes 1 to 3.
pub fn correlation(id: u32) -> Guid {
    let mut field = [0; 16];
    field[..4].copy_from_slice(&(id & 0x00ff_ffff).to_be_bytes());
    field
}

/// A CONFIRM (or, with its kind, REJECT) event.
pub fn confirm_event(kind: u8, confirms: &[(u32, Guid, u32)]) -> Vec<u8> {
    let mut body = vec![0x16, 0, 0, 0];
    for (queue, guid, sub_queue) in confirms {
        body.extend_from_slice(&queue.to_be_bytes());
        body.extend_from_slice(guid);
        body.extend_from_slice(&sub_queue.to_be_bytes());
    }
    event(kind, 0, &body)
}

/// A property value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Property {
    /// Type 4.
    Int32(i32),
    /// Type 6.
    Text(String),
    /// Any type number with any bytes.
    Raw(u8, Vec<u8>),
}

impl Property {
    fn encode(&self) -> (u8, Vec<u8>) {
        match self {
            Property::Int32(value) => (4, value.to_be_bytes().to_vec()),
            Property::Text(text) => (6, text.clone().into_bytes()),
            Property::Raw(kind, bytes) => (*kind, bytes.clone()),
        }
    }
}

/// The properties area, in old style (lengths of values) or new style (offsets of names).
pub fn properties(list: &[(&str, Property)], new_style: bool) -> Vec<u8> {
    let mut headers = Vec::new();
    let mut body = Vec::new();
    for (name, value) in list {
        let (kind, bytes) = value.encode();
        let x = u32::try_from(if new_style { body.len() } else { bytes.len() })
            .expect("properties are small");
        headers.extend_from_slice(&(u32::from(kind) << 26 | x).to_be_bytes());
        headers.extend_from_slice(
            &u16::try_from(name.len())
                .expect("a name is short")
                .to_be_bytes(),
        );
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(&bytes);
    }
    let mut out = vec![
        0x1b,
        0,
        0,
        0,
        0,
        u8::try_from(list.len()).expect("at most 255 properties"),
    ];
    out.extend_from_slice(&headers);
    out.extend_from_slice(&body);
    pad(&mut out);
    let words = u32::try_from(out.len() / 4).expect("the area is small");
    out[1..4].copy_from_slice(&words.to_be_bytes()[1..]);
    out
}

/// One message of an ACK event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// 0 is success.
    pub status: u8,
    /// The correlation id of a peer that makes no GUIDs, else 0.
    pub correlation: u32,
    /// The message.
    pub guid: Guid,
    /// The peer's number for the queue.
    pub queue: u32,
}

/// One message of a PUSH event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// `PROPERTIES`, `OUT_OF_ORDER`.
    pub flags: u8,
    /// The peer's number for the queue.
    pub queue: u32,
    /// The message.
    pub guid: Guid,
    /// 0 none, 1 zlib.
    pub compression: u8,
    /// 0: old style properties; 1: new style without a schema.
    pub schema: u16,
    /// The options area as it came.
    pub options: Vec<u8>,
    /// Properties and payload, padding removed.
    pub data: Vec<u8>,
}

impl Push {
    /// The subscription ids of an option SUB_QUEUE_IDS_OLD, which must be the only option.
    #[track_caller]
    pub fn subscriptions(&self) -> Vec<u32> {
        let words: Vec<u32> = self.options.chunks(4).map(be32).collect();
        let (head, ids) = words
            .split_first()
            .expect("a PUSH to a client carries its subscription");
        assert_eq!(
            *head,
            1 << 26 | words.len() as u32,
            "one SUB_QUEUE_IDS_OLD option: {:02x?}",
            self.options
        );
        ids.to_vec()
    }
}

/// An event from the broker.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A control message, decoded from JSON.
    Control(Value),
    /// An authentication message, decoded from JSON.
    Authentication(Value),
    /// A control or authentication event in BER, as bytes.
    Ber(Vec<u8>),
    /// An ACK event.
    Acks(Vec<Ack>),
    /// A PUSH event.
    Pushes(Vec<Push>),
    /// A heartbeat request.
    HeartbeatRequest,
    /// A heartbeat response.
    HeartbeatResponse,
}

/// Decodes a whole event from the broker.
///
/// **Panics** on anything that the protocol does not allow a broker to send: that is a failure of the test.
#[track_caller]
pub fn decode(bytes: &[u8]) -> Event {
    assert_eq!(be32(&bytes[..4]) as usize, bytes.len(), "whole event");
    assert_eq!(bytes.len() % 4, 0, "events are made of whole words");
    assert_eq!(
        (bytes[4] >> 6, bytes[5], bytes[7]),
        (1, 2, 0),
        "event header {:02x?}",
        &bytes[..8]
    );
    let body = &bytes[8..];
    match (bytes[4] & 63, bytes[6]) {
        (kind::CONTROL, JSON) => Event::Control(decode_json(body)),
        (kind::AUTHENTICATION, JSON) => Event::Authentication(decode_json(body)),
        (kind::CONTROL | kind::AUTHENTICATION, BER) => Event::Ber(bytes.to_vec()),
        (kind::ACK, 0) => Event::Acks(decode_acks(body)),
        (kind::PUSH, 0) => Event::Pushes(decode_pushes(body)),
        (kind::HEARTBEAT_REQ, 0) if body.is_empty() => Event::HeartbeatRequest,
        (kind::HEARTBEAT_RSP, 0) if body.is_empty() => Event::HeartbeatResponse,
        other => panic!("the broker sent an event of kind and encoding {other:?}"),
    }
}

/// The body without its count padding; the padding must be well formed.
#[track_caller]
fn unpad(body: &[u8]) -> &[u8] {
    let count = *body.last().expect("padding is never empty");
    assert!((1..=4).contains(&count), "padding byte {count}");
    let (data, padding) = body.split_at(body.len() - usize::from(count));
    assert!(
        padding.iter().all(|&byte| byte == count),
        "padding {padding:?}"
    );
    data
}

#[track_caller]
fn decode_json(body: &[u8]) -> Value {
    serde_json::from_slice(unpad(body)).expect("the broker's JSON parses")
}

#[track_caller]
fn decode_acks(body: &[u8]) -> Vec<Ack> {
    assert_eq!(body[..4], [0x16, 0, 0, 0], "ACK header");
    assert_eq!((body.len() - 4) % 24, 0, "whole ACK messages");
    body[4..]
        .chunks(24)
        .map(|message| Ack {
            status: message[0],
            correlation: be32(message) & 0x00ff_ffff,
            guid: guid(&message[4..]),
            queue: be32(&message[20..]),
        })
        .collect()
}

#[track_caller]
fn decode_pushes(mut body: &[u8]) -> Vec<Push> {
    let mut pushes = Vec::new();
    while !body.is_empty() {
        let (first, second) = (be32(body), be32(&body[4..]));
        let words = (first & 0x0fff_ffff) as usize;
        let header = (second & 31) as usize;
        let options = (second >> 8) as usize;
        assert_eq!(header, 8, "PUSH header words");
        assert!(
            words > header + options,
            "a PUSH has data or at least its padding"
        );
        let (message, rest) = body.split_at(words * 4);
        pushes.push(Push {
            flags: (first >> 28) as u8,
            queue: be32(&message[8..]),
            guid: guid(&message[12..]),
            compression: (second >> 5 & 7) as u8,
            schema: u16::from_be_bytes([message[28], message[29]]),
            options: message[header * 4..(header + options) * 4].to_vec(),
            data: unpad(&message[(header + options) * 4..]).to_vec(),
        });
        body = rest;
    }
    pushes
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"))
}

fn guid(bytes: &[u8]) -> Guid {
    bytes[..16].try_into().expect("sixteen bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_of_known_strings() {
        assert_eq!(crc32c(b"abcd"), 0x92c8_0a31);
        assert_eq!(crc32c(b"a"), 0xc1d0_4330);
        assert_eq!(crc32c(b"hello"), 0x9a71_bb4c);
    }

    #[test]
    fn aligned_data_gets_a_whole_word_of_padding() {
        let bytes = put_event(&[Put::new(0, [7; 16], b"abcd")]);
        assert_eq!(bytes.len(), 8 + 36 + 8);
        assert_eq!(bytes[bytes.len() - 8..], *b"abcd\x04\x04\x04\x04");
    }

    #[test]
    fn properties_area_counts_its_words() {
        let area = properties(&[("a", Property::Int32(1))], true);
        assert_eq!(
            area,
            [
                0x1b, 0, 0, 5, 0, 1, 0x10, 0, 0, 0, 0, 1, b'a', 0, 0, 0, 1, 3, 3, 3
            ]
        );
    }
}
