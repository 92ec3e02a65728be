//! Feature strings: what a peer can do. `field[:value[,value]...][;field...]`, case matters, unknown fields are nobody's concern.

use crate::control::Encoding;
use crate::limits::FEATURES_BYTES_MAX;

/// What a broker announces. Java looks for `MPS:MESSAGE_PROPERTIES_EX` as text, so it is that field's first value.
pub const BROKER: &str = "PROTOCOL_ENCODING:BER,JSON;HA:GRACEFUL_SHUTDOWN,GRACEFUL_SHUTDOWN_V2,BROADCAST_TO_PROXIES;\
                          MPS:MESSAGE_PROPERTIES_EX;SUBSCRIPTIONS:CONFIGURE_STREAM";
/// What a client announces, as the official C++ SDK does.
pub const CLIENT: &str = "PROTOCOL_ENCODING:BER,JSON;MPS:MESSAGE_PROPERTIES_EX";

/// What is looked for in a peer's string.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// How to write control documents for it.
    pub encoding: Encoding,
    /// It reads new-style properties.
    pub new_properties: bool,
    /// It (a broker) takes configureStream.
    pub configure_stream: bool,
}

impl Features {
    /// Reads a peer's string. An overlong one counts as empty.
    pub fn parse(text: &str) -> Features {
        let encoding = match lists(text, "PROTOCOL_ENCODING", "JSON")
            && !lists(text, "PROTOCOL_ENCODING", "BER")
        {
            true => Encoding::Json,
            false => Encoding::Ber,
        };
        Features {
            encoding,
            new_properties: lists(text, "MPS", "MESSAGE_PROPERTIES_EX"),
            configure_stream: lists(text, "SUBSCRIPTIONS", "CONFIGURE_STREAM"),
        }
    }
}

/// Whether `text` has `field` with `value` among its values.
///
/// As in the reference, a field with a colon and nothing behind it spoils the whole string.
pub fn lists(text: &str, field: &str, value: &str) -> bool {
    if text.len() > FEATURES_BYTES_MAX || text.split(';').any(|part| part.ends_with(':')) {
        return false;
    }
    let values = text
        .split(';')
        .find_map(|part| part.strip_prefix(field)?.strip_prefix(':'));
    values.is_some_and(|values| values.split(',').any(|listed| listed == value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_by_the_reference_rule() {
        for (text, encoding) in [
            ("", Encoding::Ber),
            ("PROTOCOL_ENCODING:BER,JSON", Encoding::Ber),
            ("PROTOCOL_ENCODING:JSON,BER", Encoding::Ber),
            (
                "PROTOCOL_ENCODING:JSON;MPS:MESSAGE_PROPERTIES_EX",
                Encoding::Json,
            ),
            ("X;PROTOCOL_ENCODING:JSON", Encoding::Json),
            ("PROTOCOL_ENCODING:json", Encoding::Ber),
            ("PROTOCOL_ENCODING:XML", Encoding::Ber),
            ("PROTOCOL_ENCODING:JSON;HA:", Encoding::Ber),
            ("MY_PROTOCOL_ENCODING:JSON", Encoding::Ber),
        ] {
            assert_eq!(Features::parse(text).encoding, encoding, "{text}");
        }
    }

    #[test]
    fn own_strings_say_what_they_should() {
        let all = Features {
            encoding: Encoding::Ber,
            new_properties: true,
            configure_stream: true,
        };
        assert_eq!(Features::parse(BROKER), all);
        assert_eq!(
            Features::parse(CLIENT),
            Features {
                configure_stream: false,
                ..all
            }
        );
        assert_eq!(
            Features::parse(&"MPS:MESSAGE_PROPERTIES_EX;".repeat(1000)),
            Features::default()
        );
    }
}
