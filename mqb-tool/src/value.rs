//! Values of the command line that are more than text.

use std::time::Duration;

use mqb_client::PropertiesBuilder;

/// `500ms`, `10s`, `2m`, `1h`; a bare number is seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number
        .parse()
        .map_err(|_| format!("{text:?} is not a time such as 500ms or 10s"))?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "" | "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => {
            return Err(format!(
                "{unit:?} is not a unit of time; there are ms, s, m and h"
            ));
        }
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{text:?} is too long"))
}

/// `1024`, `64k`, `1m`: bytes.
pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
    let lower = text.to_ascii_lowercase();
    let (digits, factor) = match lower.trim_end_matches("ib").trim_end_matches('b') {
        rest if rest.ends_with('k') => (&rest[..rest.len() - 1], 1 << 10),
        rest if rest.ends_with('m') => (&rest[..rest.len() - 1], 1 << 20),
        rest => (rest, 1),
    };
    let number: usize = digits
        .parse()
        .map_err(|_| format!("{text:?} is not a size such as 1024, 64k or 1m"))?;
    number
        .checked_mul(factor)
        .ok_or_else(|| format!("{text:?} is too large"))
}

/// `name=value` or `name:type=value`, the type one of bool, short, int, long, string, binary (hexadecimal).
#[derive(Clone, Debug)]
pub(crate) struct PropertyArg {
    name: String,
    value: PropertyValue,
}

#[derive(Clone, Debug)]
enum PropertyValue {
    Bool(bool),
    Short(i16),
    Int(i32),
    Long(i64),
    Text(String),
    Binary(Vec<u8>),
}

impl PropertyArg {
    pub(crate) fn parse(text: &str) -> Result<PropertyArg, String> {
        let (left, value) = text
            .split_once('=')
            .ok_or("write a property as name=value or name:type=value")?;
        let (name, kind) = left.split_once(':').unwrap_or((left, "string"));
        let bad = |what: &str| format!("{value:?} is not {what}");
        let value = match kind {
            "bool" => PropertyValue::Bool(value.parse().map_err(|_| bad("true or false"))?),
            "short" => PropertyValue::Short(value.parse().map_err(|_| bad("a 16-bit number"))?),
            "int" => PropertyValue::Int(value.parse().map_err(|_| bad("a 32-bit number"))?),
            "long" => PropertyValue::Long(value.parse().map_err(|_| bad("a 64-bit number"))?),
            "string" => PropertyValue::Text(value.to_owned()),
            "binary" => PropertyValue::Binary(parse_hex(value).ok_or_else(|| bad("hexadecimal"))?),
            other => {
                return Err(format!(
                    "{other:?} is not a type; there are bool, short, int, long, string and binary"
                ));
            }
        };
        Ok(PropertyArg {
            name: name.to_owned(),
            value,
        })
    }

    pub(crate) fn add_to(&self, properties: &mut PropertiesBuilder) -> anyhow::Result<()> {
        use mqb_client::PropertyKind;
        let name = self.name.as_str();
        match &self.value {
            PropertyValue::Bool(value) => properties.set_bool(name, *value),
            PropertyValue::Short(value) => {
                properties.set(name, PropertyKind::Short, value.to_be_bytes())
            }
            PropertyValue::Int(value) => properties.set_int32(name, *value),
            PropertyValue::Long(value) => properties.set_int64(name, *value),
            PropertyValue::Text(value) => properties.set_string(name, value),
            PropertyValue::Binary(value) => properties.set_binary(name, value),
        }
        .map_err(|error| anyhow::anyhow!("property {name:?}: {error}"))
    }
}

/// Bytes from hexadecimal digits.
pub(crate) fn parse_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

/// Bytes from base64 with padding.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let mut word = 0u32;
        for index in 0..4 {
            word = word << 6 | u32::from(group.get(index).map_or(Some(0), |byte| digit(*byte))?);
        }
        // Four digits are three bytes, three are two, two are one.
        let whole = word.to_be_bytes();
        bytes.extend_from_slice(&whole[1..group.len().max(1)]);
    }
    Some(bytes)
}

/// Hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing into a String does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_with_their_units() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert!(
            parse_duration("").is_err()
                && parse_duration("5x").is_err()
                && parse_duration("1e9h").is_err()
        );
        assert_eq!(
            (parse_size("64"), parse_size("1k"), parse_size("2MiB")),
            (Ok(64), Ok(1024), Ok(2 << 20))
        );
        assert!(parse_size("k").is_err() && parse_size("99999999999999999999").is_err());
    }

    #[test]
    fn base64_of_every_length() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("Zg==", b"f"),
            ("Zm8=", b"fo"),
            ("Zm9v", b"foo"),
            ("Zm9vYg==", b"foob"),
            ("/+8=", b"\xff\xef"),
        ] {
            assert_eq!(from_base64(text).as_deref(), Some(bytes), "{text}");
        }
        assert_eq!(from_base64("Zm9*"), None);
    }

    #[test]
    fn properties_of_every_type() {
        let mut properties = PropertiesBuilder::new();
        for text in [
            "a=b=c",
            "n:int=-5",
            "l:long=9",
            "s:short=3",
            "t:bool=true",
            "x:binary=00ff",
            "e=",
        ] {
            PropertyArg::parse(text)
                .unwrap()
                .add_to(&mut properties)
                .unwrap();
        }
        assert_eq!(properties.len(), 7);
        for wrong in [
            "novalue",
            "n:int=x",
            "n:float=1",
            "x:binary=0",
            "x:binary=zz",
        ] {
            assert!(PropertyArg::parse(wrong).is_err(), "{wrong}");
        }
    }
}
