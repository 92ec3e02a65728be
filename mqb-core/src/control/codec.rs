//! The two traits between schema types and encodings.

use crate::error::SchemaError;

/// A field or selection: its number in BER and its name in JSON.
#[derive(Clone, Copy)]
pub struct Key {
    pub(crate) id: u8,
    pub(crate) name: &'static str,
}

/// Where a value found in a sequence belongs.
#[derive(Clone, Copy)]
pub enum Slot {
    /// Index in [`Shape::fields`].
    Field(usize),
    /// Index in [`Shape::selections`].
    Selection(usize),
}

/// What a sequence may hold.
pub struct Shape {
    /// Ordinary fields.
    pub(crate) fields: &'static [Key],
    /// Alternatives of a choice.
    pub(crate) selections: &'static [Key],
    /// How BER wraps the selections; JSON has them as members either way.
    pub(crate) wrap: u8,
}

/// Writes values. Infallible.
pub trait Encoder {
    fn integer(&mut self, key: Key, value: i128);
    fn boolean(&mut self, key: Key, value: bool);
    fn text(&mut self, key: Key, value: &str);
    fn bytes(&mut self, key: Key, value: &[u8]);
    fn name(&mut self, key: Key, number: i32, name: &'static str);
    fn sequence(&mut self, key: Key, fields: impl FnOnce(&mut Self));
    /// `selection` writes one of the alternatives of the enclosing sequence's choice.
    fn choice(&mut self, id: u8, selection: impl FnOnce(&mut Self));
    fn array<T>(&mut self, key: Key, items: &[T], item: impl Fn(&T, Key, &mut Self));
}

/// Reads the value that it stands at.
pub trait Decoder {
    fn integer(&mut self) -> Result<i128, SchemaError>;
    fn boolean(&mut self) -> Result<bool, SchemaError>;
    fn text(&mut self) -> Result<String, SchemaError>;
    fn bytes(&mut self) -> Result<Vec<u8>, SchemaError>;
    /// The number of one of `names`.
    fn name(&mut self, names: &[(i32, &'static str)]) -> Result<i32, SchemaError>;
    /// Calls `field` for each known field or selection.
    fn sequence(
        &mut self,
        shape: &Shape,
        field: &mut dyn FnMut(Slot, &mut Self) -> Result<(), SchemaError>,
    ) -> Result<(), SchemaError>;
    fn array(
        &mut self,
        item: &mut dyn FnMut(&mut Self) -> Result<(), SchemaError>,
    ) -> Result<(), SchemaError>;
    /// The error of a value that is there but not allowed.
    fn out_of_range(&self) -> SchemaError;
}

/// A type that can be a field.
pub(crate) trait Value: Sized {
    fn encode<E: Encoder>(&self, key: Key, encoder: &mut E);
    fn decode<D: Decoder>(decoder: &mut D) -> Result<Self, SchemaError>;
}

/// A type that can be a whole document.
pub trait Root: Sized {
    fn encode_root<E: Encoder>(&self, encoder: &mut E);
    fn decode_root<D: Decoder>(decoder: &mut D) -> Result<Self, SchemaError>;
}

/// The key of things without one: documents and items of arrays.
pub(crate) const NO_KEY: Key = Key { id: 0, name: "" };

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Value for $type {
            fn encode<E: Encoder>(&self, key: Key, encoder: &mut E) {
                encoder.integer(key, i128::from(*self));
            }
            fn decode<D: Decoder>(decoder: &mut D) -> Result<Self, SchemaError> {
                let value = decoder.integer()?;
                Self::try_from(value).map_err(|_| decoder.out_of_range())
            }
        }
    )*};
}
integers!(i32, u32, i64, u64);

impl Value for bool {
    fn encode<E: Encoder>(&self, key: Key, encoder: &mut E) {
        encoder.boolean(key, *self);
    }
    fn decode<D: Decoder>(decoder: &mut D) -> Result<Self, SchemaError> {
        decoder.boolean()
    }
}

impl Value for String {
    fn encode<E: Encoder>(&self, key: Key, encoder: &mut E) {
        encoder.text(key, self);
    }
    fn decode<D: Decoder>(decoder: &mut D) -> Result<Self, SchemaError> {
        decoder.text()
    }
}

impl Value for Vec<u8> {
    fn encode<E: Encoder>(&self, key: Key, encoder: &mut E) {
        encoder.bytes(key, self);
    }
    fn decode<D: Decoder>(decoder: &mut D) -> Result<Self, SchemaError> {
        decoder.bytes()
    }
}

/// Absent when `None`.
impl<T: Value> Value for Option<T> {
    fn encode<E: Encoder>(&self, key: Key, encoder: &mut E) {
        if let Some(value) = self {
            value.encode(key, encoder);
        }
    }
    fn decode<D: Decoder>(decoder: &mut D) -> Result<Self, SchemaError> {
        T::decode(decoder).map(Some)
    }
}

/// Text from a peer's bytes, each byte that is not UTF-8 replaced by one of the same length.
pub(crate) fn text_from(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '\u{1A}'));
    }
    text
}

/// Declares a sequence: `id field "name": type = default`.
macro_rules! sequence {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $id:literal $field:ident $wire:literal: $type:ty = $default:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $default,)* }
            }
        }

        impl $crate::control::codec::Value for $name {
            fn encode<E: $crate::control::codec::Encoder>(&self, key: $crate::control::codec::Key, encoder: &mut E) {
                encoder.sequence(key, |_encoder| {
                    $(self.$field.encode($crate::control::codec::Key { id: $id, name: $wire }, _encoder);)*
                });
            }
            fn decode<D: $crate::control::codec::Decoder>(decoder: &mut D) -> Result<Self, $crate::error::SchemaError> {
                const SHAPE: $crate::control::codec::Shape = $crate::control::codec::Shape {
                    fields: &[$($crate::control::codec::Key { id: $id, name: $wire }),*],
                    selections: &[],
                    wrap: 0,
                };
                let mut _value = Self::default();
                decoder.sequence(&SHAPE, &mut |slot, _decoder| {
                    let $crate::control::codec::Slot::Field(_index) = slot else { return Ok(()) };
                    let mut _at = 0;
                    $(
                        if _index == _at {
                            _value.$field = $crate::control::codec::Value::decode(_decoder)?;
                            return Ok(());
                        }
                        _at += 1;
                    )*
                    Ok(())
                })?;
                Ok(_value)
            }
        }
    };
}

/// Declares an enumeration: `Variant = number "name"`.
macro_rules! enumeration {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:literal $wire:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(i8)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $number,)*
        }

        impl $name {
            const NAMES: &'static [(i32, &'static str)] = &[$(($number, $wire)),*];

            /// The name on the wire.
            pub const fn wire_name(self) -> &'static str {
                match self {
                    $($name::$variant => $wire,)*
                }
            }
        }

        impl $crate::control::codec::Value for $name {
            fn encode<E: $crate::control::codec::Encoder>(&self, key: $crate::control::codec::Key, encoder: &mut E) {
                encoder.name(key, i32::from(*self as i8), self.wire_name());
            }
            fn decode<D: $crate::control::codec::Decoder>(decoder: &mut D) -> Result<Self, $crate::error::SchemaError> {
                match decoder.name(Self::NAMES)? {
                    $($number => Ok($name::$variant),)*
                    _ => Err(decoder.out_of_range()),
                }
            }
        }
    };
}

pub(crate) use {enumeration, sequence};

/// Declares a choice as the body of a document: `id Variant "name": type`.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $id:literal $variant:ident $wire:literal: $type:ty,)* } $($unknown:tt)*) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum $name {
            $($(#[$variant_doc])* $variant($type),)*
            $($unknown)*
        }

        impl $name {
            const SELECTIONS: &'static [$crate::control::codec::Key] =
                &[$($crate::control::codec::Key { id: $id, name: $wire }),*];

            fn encode_selection<E: $crate::control::codec::Encoder>(&self, encoder: &mut E) {
                #[allow(unreachable_patterns, reason = "only one of the choices has a variant for the unknown")]
                match self {
                    $($name::$variant(value) => {
                        $crate::control::codec::Value::encode(value, $crate::control::codec::Key { id: $id, name: $wire }, encoder);
                    })*
                    _ => {}
                }
            }

            fn decode_selection<D: $crate::control::codec::Decoder>(
                index: usize,
                decoder: &mut D,
            ) -> Result<Self, $crate::error::SchemaError> {
                let mut _at = 0;
                $(
                    if index == _at {
                        return $crate::control::codec::Value::decode(decoder).map($name::$variant);
                    }
                    _at += 1;
                )*
                Err($crate::error::SchemaError::NoSelection)
            }
        }
    };
}

pub(crate) use choice;

/// An item of an array, which has a bound.
pub(crate) trait Item: Value {
    /// Items in one array.
    const MAX: usize;
}

impl<T: Item> Value for Vec<T> {
    fn encode<E: Encoder>(&self, key: Key, encoder: &mut E) {
        encoder.array(key, self, |item, key, encoder| item.encode(key, encoder));
    }
    fn decode<D: Decoder>(decoder: &mut D) -> Result<Self, SchemaError> {
        let mut items = Vec::new();
        decoder.array(&mut |decoder| {
            if items.len() == T::MAX {
                return Err(SchemaError::Elements);
            }
            items.push(T::decode(decoder)?);
            Ok(())
        })?;
        Ok(items)
    }
}
