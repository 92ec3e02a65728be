//! Message properties: named, typed values in front of a message's payload.
//!
//! ```text
//! header (6)                                  n x entry (6)                           contents
//! +--+---+---+-----------------------+---+---++-+-----+------------------------+----+-----------+ +---------------+-------+
//! |00|e/2|h/2| area words (24 bits)  | 0 | n ||0|type | X (26 bits)            | 0  | name len  | | name value ...|padding|
//! +--+---+---+-----------------------+---+---++-+-----+------------------------+----+-----------+ +---------------+-------+
//! h, e: size of the header and of an entry, both 6, may grow      type: 5 bits      name len: 12 bits     padding: 1 to 4
//! X, old style: length of the value       X, new style: where the name begins, counted from the first name
//! ```
//! [`Properties::parse`] checks everything, so that iteration cannot fail. Names and values are bytes, not text.

use crate::error::PropertiesError;
use crate::format::PropertiesStyle;
use crate::limits::{
    PROPERTIES_AREA_BYTES_MAX, PROPERTIES_MAX, PROPERTY_NAME_BYTES_MAX, WORD_BYTES,
};
use crate::wire::padding;

const HEADER_BYTES: usize = 6;
const ENTRY_BYTES: usize = 6;

/// Type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PropertyKind {
    /// One byte, 0 or 1.
    Bool = 1,
    /// One byte.
    Char = 2,
    /// i16, big-endian.
    Short = 3,
    /// i32, big-endian.
    Int32 = 4,
    /// i64, big-endian.
    Int64 = 5,
    /// Bytes, usually text.
    String = 6,
    /// Bytes.
    Binary = 7,
}

impl PropertyKind {
    const fn from_wire(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Bool,
            2 => Self::Char,
            3 => Self::Short,
            4 => Self::Int32,
            5 => Self::Int64,
            6 => Self::String,
            7 => Self::Binary,
            _ => return None,
        })
    }

    /// Size of a value, if all have the same. **Units**: bytes.
    pub const fn fixed_length(self) -> Option<usize> {
        match self {
            Self::Bool | Self::Char => Some(1),
            Self::Short => Some(2),
            Self::Int32 => Some(4),
            Self::Int64 => Some(8),
            Self::String | Self::Binary => None,
        }
    }
}

/// One property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Property<'a> {
    /// Not empty, unique in its message.
    pub name: &'a [u8],
    /// Type of the value.
    pub kind: PropertyKind,
    /// Of the type's length.
    pub value: &'a [u8],
}

/// A properties area that was found valid.
#[derive(Clone, Copy, Debug)]
pub struct Properties<'a> {
    /// The entries.
    entries: &'a [u8],
    entry_bytes: usize,
    /// Names and values, without padding.
    contents: &'a [u8],
    style: PropertiesStyle,
    area_bytes: usize,
}

/// An entry's fields.
struct Entry {
    kind: u8,
    x: usize,
    name_length: usize,
}

impl Entry {
    #[inline]
    fn read(bytes: &[u8]) -> Entry {
        let first = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        Entry {
            kind: (first >> 26 & 31) as u8,
            x: (first & 0x03FF_FFFF) as usize,
            name_length: usize::from(u16::from_be_bytes([bytes[4], bytes[5]]) & 0x0FFF),
        }
    }

    fn bytes(kind: PropertyKind, x: usize, name_length: usize) -> [u8; ENTRY_BYTES] {
        let first = u32::from(kind as u8) << 26 | x as u32;
        let [a, b, c, d] = first.to_be_bytes();
        let [e, f] = (name_length as u16).to_be_bytes();
        [a, b, c, d, e, f]
    }
}

impl<'a> Properties<'a> {
    /// Size of the whole area as its header announces it. **Units**: bytes.
    ///
    /// **Errors**: `data` is too short to have a header.
    pub fn announced_length(data: &[u8]) -> Result<usize, PropertiesError> {
        match data.first_chunk::<HEADER_BYTES>() {
            Some(header) => {
                Ok(u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize * WORD_BYTES)
            }
            None => Err(PropertiesError::Truncated {
                have: data.len(),
                need: HEADER_BYTES,
            }),
        }
    }

    /// Checks the area at the start of `data` completely.
    ///
    /// **Errors**: the area is malformed. **Cost**: linear if names are sorted, as SDKs write them; no allocation.
    pub fn parse(
        data: &'a [u8],
        style: PropertiesStyle,
    ) -> Result<Properties<'a>, PropertiesError> {
        let area_bytes = Self::announced_length(data)?;
        let header_bytes = usize::from(data[0] & 7) * 2;
        let entry_bytes = usize::from(data[0] >> 3 & 7) * 2;
        let count = usize::from(data[5]);
        if header_bytes < HEADER_BYTES || entry_bytes < ENTRY_BYTES {
            return Err(PropertiesError::HeaderSize(data[0]));
        }
        if count == 0 {
            return Err(PropertiesError::None);
        }
        let contents_at = header_bytes + count * entry_bytes;
        let need = area_bytes.max(contents_at + 1);
        if data.len() < need || area_bytes < need {
            return Err(PropertiesError::Truncated {
                have: data.len().min(area_bytes),
                need,
            });
        }
        let padding = data[area_bytes - 1];
        let contents_end = area_bytes - usize::from(padding.min(4));
        if !(1..=4).contains(&padding) || contents_end < contents_at {
            return Err(PropertiesError::Padding(padding));
        }
        let properties = Properties {
            entries: &data[header_bytes..contents_at],
            entry_bytes,
            contents: &data[contents_at..contents_end],
            style,
            area_bytes,
        };
        properties.check()?;
        Ok(properties)
    }

    /// Checks every entry, then that no name repeats.
    fn check(&self) -> Result<(), PropertiesError> {
        let mut walk = self.iter();
        let mut previous: &[u8] = &[];
        let mut sorted = true;
        for index in 0..self.count() {
            let property = walk.step()?;
            if property.name.is_empty() {
                return Err(PropertiesError::Name(index));
            }
            let length = property.value.len();
            if property
                .kind
                .fixed_length()
                .is_some_and(|fixed| fixed != length)
            {
                return Err(PropertiesError::ValueLength {
                    kind: property.kind as u8,
                    length,
                });
            }
            sorted &= previous < property.name;
            previous = property.name;
        }
        if walk.at != self.contents.len() {
            return Err(PropertiesError::Offset(self.count() - 1));
        }
        if sorted {
            Ok(())
        } else {
            self.check_names_unique()
        }
    }

    #[cold]
    fn check_names_unique(&self) -> Result<(), PropertiesError> {
        let mut names: [(&[u8], u8); PROPERTIES_MAX] = [(&[], 0); PROPERTIES_MAX];
        for (index, (slot, property)) in names.iter_mut().zip(self.iter()).enumerate() {
            *slot = (property.name, index as u8);
        }
        let names = &mut names[..self.count()];
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(PropertiesError::Duplicate(usize::from(pair[1].1))),
            None => Ok(()),
        }
    }

    /// Number of properties, at least 1.
    #[inline]
    pub fn count(&self) -> usize {
        self.entries.len() / self.entry_bytes
    }

    /// Size of the whole area; the payload begins here. **Units**: bytes.
    #[inline]
    pub fn area_length(&self) -> usize {
        self.area_bytes
    }

    /// Style it was read in.
    #[inline]
    pub fn style(&self) -> PropertiesStyle {
        self.style
    }

    /// The properties in the order they were written.
    #[inline]
    pub fn iter(&self) -> PropertiesIter<'a> {
        PropertiesIter {
            properties: *self,
            index: 0,
            at: 0,
        }
    }

    /// The property of a name. **Cost**: linear.
    pub fn find(&self, name: &[u8]) -> Option<Property<'a>> {
        self.iter().find(|property| property.name == name)
    }

    /// Appends the same properties in `style`. Names and values are copied as they are; headers get today's size.
    pub fn write(&self, style: PropertiesStyle, out: &mut Vec<u8>) {
        let count = self.count();
        let unpadded = HEADER_BYTES + count * ENTRY_BYTES + self.contents.len();
        out.extend_from_slice(&area_header(unpadded, count));
        let mut at = 0;
        for property in self.iter() {
            let x = match style {
                PropertiesStyle::Old => property.value.len(),
                PropertiesStyle::New => at,
            };
            out.extend_from_slice(&Entry::bytes(property.kind, x, property.name.len()));
            at += property.name.len() + property.value.len();
        }
        out.extend_from_slice(self.contents);
        out.extend_from_slice(padding(unpadded));
    }
}

impl<'a> IntoIterator for &Properties<'a> {
    type Item = Property<'a>;
    type IntoIter = PropertiesIter<'a>;

    fn into_iter(self) -> PropertiesIter<'a> {
        self.iter()
    }
}

/// Walks properties.
#[derive(Clone, Debug)]
pub struct PropertiesIter<'a> {
    properties: Properties<'a>,
    index: usize,
    /// In the contents.
    at: usize,
}

impl<'a> PropertiesIter<'a> {
    fn entry(&self, index: usize) -> Option<Entry> {
        let at = index * self.properties.entry_bytes;
        self.properties
            .entries
            .get(at..at + ENTRY_BYTES)
            .map(Entry::read)
    }

    /// The next property, whose bounds are checked here. There must be one.
    #[inline]
    fn step(&mut self) -> Result<Property<'a>, PropertiesError> {
        let bad = PropertiesError::Offset(self.index);
        let entry = self.entry(self.index).ok_or(bad)?;
        let kind = PropertyKind::from_wire(entry.kind).ok_or(PropertiesError::Type(entry.kind))?;
        let contents = self.properties.contents;
        let end = match (self.properties.style, self.entry(self.index + 1)) {
            (PropertiesStyle::Old, _) => self.at + entry.name_length + entry.x,
            (PropertiesStyle::New, _) if entry.x != self.at => return Err(bad),
            (PropertiesStyle::New, Some(next)) => next.x,
            (PropertiesStyle::New, None) => contents.len(),
        };
        let property = contents.get(self.at..end).ok_or(bad)?;
        let (name, value) = property.split_at_checked(entry.name_length).ok_or(bad)?;
        self.at = end;
        self.index += 1;
        Ok(Property { name, kind, value })
    }
}

impl<'a> Iterator for PropertiesIter<'a> {
    type Item = Property<'a>;

    #[inline]
    fn next(&mut self) -> Option<Property<'a>> {
        if self.index == self.properties.count() {
            return None;
        }
        Some(self.step().expect("every entry was checked in parse"))
    }
}

fn area_header(unpadded: usize, count: usize) -> [u8; HEADER_BYTES] {
    let words = (unpadded / WORD_BYTES + 1) as u32;
    let [_, high, middle, low] = words.to_be_bytes();
    [0x1B, high, middle, low, 0, count as u8]
}

/// Collects properties to be written sorted by name, as the official SDK does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertiesBuilder {
    /// Sorted by name.
    properties: Vec<(Vec<u8>, PropertyKind, Vec<u8>)>,
    contents_bytes: usize,
}

impl PropertiesBuilder {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.properties.is_empty()
    }

    /// Number of properties.
    pub fn len(&self) -> usize {
        self.properties.len()
    }

    /// Adds a property with a value in its wire form, or replaces the one of its name.
    ///
    /// **Errors**: empty or overlong name, a value of the wrong length for its type, or too much in all. Nothing is changed.
    pub fn set(
        &mut self,
        name: impl Into<Vec<u8>>,
        kind: PropertyKind,
        value: impl Into<Vec<u8>>,
    ) -> Result<(), PropertiesError> {
        let (name, value) = (name.into(), value.into());
        let found = self
            .properties
            .binary_search_by(|(other, ..)| other.as_slice().cmp(&name));
        let index = found.unwrap_or_else(|index| index);
        if name.is_empty() {
            return Err(PropertiesError::Name(index));
        }
        if kind
            .fixed_length()
            .is_some_and(|fixed| fixed != value.len())
        {
            return Err(PropertiesError::ValueLength {
                kind: kind as u8,
                length: value.len(),
            });
        }
        let replaced = found.map_or(0, |index| name.len() + self.properties[index].2.len());
        let contents_bytes = self.contents_bytes - replaced + name.len() + value.len();
        let count = self.properties.len() + usize::from(found.is_err());
        let area = HEADER_BYTES + count * ENTRY_BYTES + contents_bytes + WORD_BYTES;
        if name.len() > PROPERTY_NAME_BYTES_MAX
            || count > PROPERTIES_MAX
            || area > PROPERTIES_AREA_BYTES_MAX
        {
            return Err(PropertiesError::TooLarge);
        }
        self.contents_bytes = contents_bytes;
        match found {
            Ok(index) => self.properties[index] = (name, kind, value),
            Err(index) => self.properties.insert(index, (name, kind, value)),
        }
        Ok(())
    }

    /// Sets a BOOL. **Errors**: as [`PropertiesBuilder::set`].
    pub fn set_bool(&mut self, name: &str, value: bool) -> Result<(), PropertiesError> {
        self.set(name, PropertyKind::Bool, [u8::from(value)])
    }

    /// Sets an INT32. **Errors**: as [`PropertiesBuilder::set`].
    pub fn set_int32(&mut self, name: &str, value: i32) -> Result<(), PropertiesError> {
        self.set(name, PropertyKind::Int32, value.to_be_bytes())
    }

    /// Sets an INT64. **Errors**: as [`PropertiesBuilder::set`].
    pub fn set_int64(&mut self, name: &str, value: i64) -> Result<(), PropertiesError> {
        self.set(name, PropertyKind::Int64, value.to_be_bytes())
    }

    /// Sets a STRING. **Errors**: as [`PropertiesBuilder::set`].
    pub fn set_string(&mut self, name: &str, value: &str) -> Result<(), PropertiesError> {
        self.set(name, PropertyKind::String, value)
    }

    /// Sets a BINARY. **Errors**: as [`PropertiesBuilder::set`].
    pub fn set_binary(&mut self, name: &str, value: &[u8]) -> Result<(), PropertiesError> {
        self.set(name, PropertyKind::Binary, value)
    }

    /// Appends the area; nothing if there are no properties, as an area without any is malformed.
    pub fn write(&self, style: PropertiesStyle, out: &mut Vec<u8>) {
        if self.is_empty() {
            return;
        }
        let unpadded = HEADER_BYTES + self.properties.len() * ENTRY_BYTES + self.contents_bytes;
        out.extend_from_slice(&area_header(unpadded, self.properties.len()));
        let mut at = 0;
        for (name, kind, value) in &self.properties {
            let x = match style {
                PropertiesStyle::Old => value.len(),
                PropertiesStyle::New => at,
            };
            out.extend_from_slice(&Entry::bytes(*kind, x, name.len()));
            at += name.len() + value.len();
        }
        for (name, _, value) in &self.properties {
            out.extend_from_slice(name);
            out.extend_from_slice(value);
        }
        out.extend_from_slice(padding(unpadded));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PropertiesStyle::{New, Old};

    fn sample() -> PropertiesBuilder {
        let mut builder = PropertiesBuilder::new();
        builder.set_string("zone", "north").unwrap();
        builder.set_int32("id", -3).unwrap();
        builder.set_bool("a", true).unwrap();
        builder.set_binary("empty", b"").unwrap();
        builder
    }

    fn area(style: PropertiesStyle) -> Vec<u8> {
        let mut out = Vec::new();
        sample().write(style, &mut out);
        out
    }

    #[test]
    fn builder_sorts_and_both_styles_read_back() {
        for style in [Old, New] {
            let area = area(style);
            let properties = Properties::parse(&area, style).unwrap();
            assert_eq!(properties.area_length(), area.len());
            let names: Vec<_> = properties
                .iter()
                .map(|property| property.name.to_vec())
                .collect();
            assert_eq!(names, [&b"a"[..], b"empty", b"id", b"zone"]);
            assert_eq!(properties.find(b"zone").unwrap().value, b"north");
            assert_eq!(properties.find(b"id").unwrap().value, (-3i32).to_be_bytes());
            assert_eq!(properties.find(b"none"), None);
        }
    }

    #[test]
    fn styles_convert_into_each_other_byte_for_byte() {
        for (from, to) in [(Old, New), (New, Old), (Old, Old), (New, New)] {
            let source = area(from);
            let mut out = Vec::new();
            Properties::parse(&source, from)
                .unwrap()
                .write(to, &mut out);
            assert_eq!(out, area(to));
        }
    }

    #[test]
    fn larger_headers_of_the_future_are_read_and_normalised() {
        // Header of 8 and entries of 10 bytes.
        let mut grown = vec![5 << 3 | 4, 0, 0, 8, 0, 1, 0xEE, 0xEE];
        grown.extend_from_slice(&Entry::bytes(PropertyKind::String, 0, 1));
        grown.extend_from_slice(&[0xEE; 4]);
        grown.extend_from_slice(b"kvalue-of-it\x01");
        grown.extend_from_slice(&[1]);
        grown.truncate(31);
        grown.push(1);
        let properties = Properties::parse(&grown, New).unwrap();
        assert_eq!(properties.find(b"k").unwrap().value, b"value-of-it\x01");
        let mut out = Vec::new();
        properties.write(Old, &mut out);
        assert_eq!(
            Properties::parse(&out, Old)
                .unwrap()
                .find(b"k")
                .unwrap()
                .value,
            b"value-of-it\x01"
        );
    }

    fn raw(style: PropertiesStyle, properties: &[(&[u8], u8, &[u8])]) -> Vec<u8> {
        let contents: usize = properties
            .iter()
            .map(|(name, _, value)| name.len() + value.len())
            .sum();
        let unpadded = HEADER_BYTES + ENTRY_BYTES * properties.len() + contents;
        let mut out = area_header(unpadded, properties.len()).to_vec();
        let mut at = 0;
        for (name, kind, value) in properties {
            let x = if style == Old { value.len() } else { at };
            let mut entry = Entry::bytes(PropertyKind::Bool, x, name.len());
            entry[0] = entry[0] & 3 | kind << 2;
            out.extend_from_slice(&entry);
            at += name.len() + value.len();
        }
        properties
            .iter()
            .for_each(|(name, _, value)| out.extend([*name, *value].concat()));
        out.extend_from_slice(padding(unpadded));
        out
    }

    #[test]
    fn what_starves_consumers_is_refused() {
        use PropertiesError::{Duplicate, Name, Type, ValueLength};
        for style in [Old, New] {
            let parse = |properties: &[(&[u8], u8, &[u8])]| {
                Properties::parse(&raw(style, properties), style).map(|_| ())
            };
            assert_eq!(parse(&[(b"a", 6, b"x"), (b"b", 6, b"y")]), Ok(()));
            assert_eq!(
                parse(&[(b"b", 6, b"x"), (b"a", 6, b"y")]),
                Ok(()),
                "readers must not rely on sorting"
            );
            assert_eq!(
                parse(&[(b"a", 6, b"x"), (b"a", 6, b"y")]),
                Err(Duplicate(1))
            );
            assert_eq!(
                parse(&[(b"a", 6, b"x"), (b"b", 6, b""), (b"a", 6, b"y")]),
                Err(Duplicate(2))
            );
            assert_eq!(parse(&[(b"", 6, b"x")]), Err(Name(0)));
            assert_eq!(parse(&[(b"a", 0, b"x")]), Err(Type(0)));
            assert_eq!(parse(&[(b"a", 8, b"x")]), Err(Type(8)));
            assert_eq!(
                parse(&[(b"a", 1, b"xy")]),
                Err(ValueLength { kind: 1, length: 2 })
            );
            assert_eq!(
                parse(&[(b"a", 5, b"1234567")]),
                Err(ValueLength { kind: 5, length: 7 })
            );
            assert_eq!(parse(&[]), Err(PropertiesError::None));
        }
    }

    #[test]
    fn offsets_must_be_monotonic_and_within() {
        let good = raw(New, &[(b"a", 6, b"x"), (b"b", 6, b"y"), (b"c", 6, b"z")]);
        for (entry, offset) in [(0, 1), (1, 0), (1, 5), (1, 200), (2, 2), (2, 6), (2, 7)] {
            let mut bad = good.clone();
            bad[HEADER_BYTES + entry * ENTRY_BYTES + 3] = offset;
            assert!(
                Properties::parse(&bad, New).is_err(),
                "entry {entry} offset {offset}"
            );
        }
        let old = raw(Old, &[(b"a", 6, b"x"), (b"b", 6, b"y")]);
        for length in [0, 2, 200] {
            let mut bad = old.clone();
            bad[HEADER_BYTES + 3] = length;
            assert!(Properties::parse(&bad, Old).is_err(), "length {length}");
        }
    }

    #[test]
    fn every_truncation_is_refused() {
        for style in [Old, New] {
            let area = area(style);
            (0..area.len())
                .for_each(|length| assert!(Properties::parse(&area[..length], style).is_err()));
        }
    }

    #[test]
    fn builder_refuses_what_a_reader_would() {
        let mut builder = sample();
        assert_eq!(
            builder.set("", PropertyKind::Binary, *b"x"),
            Err(PropertiesError::Name(0))
        );
        assert_eq!(
            builder.set("s", PropertyKind::Short, *b"x"),
            Err(PropertiesError::ValueLength { kind: 3, length: 1 })
        );
        assert_eq!(
            builder.set(vec![b'n'; 4096], PropertyKind::Binary, *b""),
            Err(PropertiesError::TooLarge)
        );
        assert_eq!(builder, sample());
        for index in builder.len()..PROPERTIES_MAX {
            builder.set_bool(&format!("n{index}"), true).unwrap();
        }
        assert_eq!(
            builder.set_bool("one too many", true),
            Err(PropertiesError::TooLarge)
        );
        builder.set_bool("n254", false).unwrap();
        let mut out = Vec::new();
        builder.write(New, &mut out);
        assert_eq!(
            Properties::parse(&out, New).unwrap().count(),
            PROPERTIES_MAX
        );
    }
}
