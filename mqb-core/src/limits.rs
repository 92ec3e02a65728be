//! Every cap of the protocol in one place. A peer can make this process hold at most what is written here.
//!
//! **Units** are in the names. Relations between the caps are checked at compile time at the end of the file.

/// Bytes of the event header, and the least that must be read to judge a frame.
pub const EVENT_HEADER_BYTES: usize = 8;
/// Bytes of a word; sizes inside events are counted in words.
pub const WORD_BYTES: usize = 4;

/// Largest application data of one message: what the official SDKs send at most.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Largest PUT event taken: C++ producers batch up to 66 MiB, and a header's worth of slack.
pub const PUT_EVENT_BYTES_MAX: usize = (66 << 20) + 4096;
/// Largest PUSH event built here.
pub const PUSH_EVENT_BYTES_MAX: usize = (66 << 20) + 4096;
/// Largest PUSH event that a consumer takes from a broker: the soft limit of the reference's builders.
pub const PUSH_EVENT_BYTES_MAX_RECEIVED: usize = 512 << 20;
/// Largest event of any other kind: control, authentication, confirm, ack, reject.
pub const OTHER_EVENT_BYTES_MAX: usize = 1 << 20;
/// Largest event of any other kind that a client takes from a broker: answers to operators' commands can be long.
pub const OTHER_EVENT_BYTES_MAX_RECEIVED: usize = 16 << 20;
/// Largest event of any kind before the negotiation is done.
pub const HANDSHAKE_EVENT_BYTES_MAX: usize = 64 << 10;
/// Largest event of a kind that has no body.
pub const HEARTBEAT_EVENT_BYTES_MAX: usize = 64;

/// `messageWords` is a field of 28 bits.
pub const MESSAGE_WORDS_MAX: usize = (1 << 28) - 1;
/// `optionsWords` is a field of 24 bits.
pub const OPTIONS_WORDS_MAX: usize = (1 << 24) - 1;
/// Options in one message.
pub const OPTIONS_MAX: usize = 63;
/// Subscription ids written into one PUSH: what one option can hold is far above what a session may have.
pub const PUSH_IDS_MAX: usize = 1024;
/// Correlation ids have 24 bits.
pub const CORRELATION_ID_MAX: u32 = (1 << 24) - 1;

/// Nesting of a control document, BER or JSON. The deepest known message nests 8 levels (16 with BER's wrappers).
pub const SCHEMA_DEPTH_MAX: usize = 24;
/// Elements (BER TLVs, JSON values) of a control document, skipped ones included.
pub const SCHEMA_ELEMENTS_MAX: usize = 16_384;
/// Subscriptions in one configureStream.
pub const SUBSCRIPTIONS_MAX: usize = 256;
/// Priority entries (`consumers`) of one subscription.
pub const CONSUMERS_PER_SUBSCRIPTION_MAX: usize = 16;

/// Properties of one message: the count is one byte.
pub const PROPERTIES_MAX: usize = 255;
/// Bytes of a property's name: the length has 12 bits.
pub const PROPERTY_NAME_BYTES_MAX: usize = 4095;
/// Bytes of a property's value, and of the whole properties area (padding included): fits 26 bits of bytes.
pub const PROPERTIES_AREA_BYTES_MAX: usize = ((1 << 24) - 1) * WORD_BYTES;

/// What a compressed message may inflate to. One message cannot cost more than one uncompressed message of the largest size.
pub const INFLATED_BYTES_MAX: usize = MESSAGE_BYTES_MAX;

/// Bytes of a queue's name, as in the reference.
pub const QUEUE_NAME_BYTES_MAX: usize = 64;
/// Bytes of a domain with its tier. The reference keeps a file of this name per domain.
pub const DOMAIN_BYTES_MAX: usize = 255;
/// Bytes of an app id.
pub const APP_ID_BYTES_MAX: usize = 255;
/// Bytes of a whole queue URI.
pub const URI_BYTES_MAX: usize =
    6 + DOMAIN_BYTES_MAX + 1 + QUEUE_NAME_BYTES_MAX + 4 + APP_ID_BYTES_MAX;

/// Bytes of a feature string that are looked at.
pub const FEATURES_BYTES_MAX: usize = 4096;

/// `qId`s from here on are reserved (−10 as an unsigned number).
pub const RESERVED_QUEUE_ID_MIN: u32 = 0xFFFF_FFF6;

const _: () = assert!(MESSAGE_BYTES_MAX + 4096 <= PUT_EVENT_BYTES_MAX);
const _: () = assert!(MESSAGE_BYTES_MAX + 4096 + PUSH_IDS_MAX * 4 <= PUSH_EVENT_BYTES_MAX);
const _: () = assert!(PUSH_EVENT_BYTES_MAX <= PUSH_EVENT_BYTES_MAX_RECEIVED);
const _: () = assert!(PUSH_EVENT_BYTES_MAX_RECEIVED <= i32::MAX as usize);
const _: () = assert!(PUT_EVENT_BYTES_MAX / WORD_BYTES <= MESSAGE_WORDS_MAX);
const _: () = assert!(OTHER_EVENT_BYTES_MAX <= OTHER_EVENT_BYTES_MAX_RECEIVED);
const _: () = assert!(HANDSHAKE_EVENT_BYTES_MAX <= OTHER_EVENT_BYTES_MAX);
const _: () = assert!(PROPERTIES_AREA_BYTES_MAX < MESSAGE_BYTES_MAX);
const _: () = assert!(PROPERTIES_AREA_BYTES_MAX <= (1 << 26));
const _: () = assert!(SUBSCRIPTIONS_MAX <= PUSH_IDS_MAX);
const _: () = assert!(PUSH_IDS_MAX < (1 << 21));
