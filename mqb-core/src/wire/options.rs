//! Options between a message's header and its data.
//!
//! ```text
//!  31    26 25 24      21 20                      0
//! +--------+--+----------+-------------------------+----------------------
//! |  type  |P | specific | words (header included) | content, unless P
//! +--------+--+----------+-------------------------+----------------------
//! 1 old sub-queue ids: n x u32       2 group id: text with 1..4 padding bytes
//! 3 sub-queue infos: specific = words per item; n x { u32 id, u8 attempts, 3 x 0 }
//!   packed (P): id 0, the words field is the attempts byte, no content
//! ```

use crate::SubscriptionId;
use crate::error::WireError;
use crate::limits::{OPTIONS_MAX, WORD_BYTES};
use crate::wire::{padding, strip_padding};

pub(crate) const SUB_QUEUE_IDS_OLD: u8 = 1;
pub(crate) const GROUP_ID: u8 = 2;
pub(crate) const SUB_QUEUE_INFOS: u8 = 3;

const WORDS_MASK: u32 = (1 << 21) - 1;
const INFO_WORDS: u8 = 2;

/// One option as it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawOption<'a> {
    /// 1 to 3 are known.
    pub kind: u8,
    /// No content; `words` has a meaning of the kind's own.
    pub packed: bool,
    /// Meaning depends on the kind (4 bits).
    pub type_specific: u8,
    /// The low 21 bits of the header.
    pub words: u32,
    /// What follows the header, padding included.
    pub content: &'a [u8],
}

/// Walks an options area. After an error there is nothing more.
#[derive(Clone, Debug)]
pub struct RawOptionIter<'a> {
    rest: &'a [u8],
}

impl<'a> RawOptionIter<'a> {
    /// Walks `area`.
    #[inline]
    pub fn new(area: &'a [u8]) -> Self {
        RawOptionIter { rest: area }
    }

    #[inline]
    fn step(&mut self) -> Result<RawOption<'a>, WireError> {
        const WHAT: &str = "option";
        let Some((header, after)) = self.rest.split_first_chunk::<4>() else {
            return Err(WireError::Truncated {
                what: WHAT,
                have: self.rest.len(),
                need: 4,
            });
        };
        let header = u32::from_be_bytes(*header);
        let mut option = RawOption {
            kind: (header >> 26) as u8,
            packed: header >> 25 & 1 != 0,
            type_specific: (header >> 21 & 15) as u8,
            words: header & WORDS_MASK,
            content: &[],
        };
        if option.packed {
            self.rest = after;
            return Ok(option);
        }
        let size = option.words as usize * WORD_BYTES;
        if option.words < 2 {
            return Err(WireError::TooSmall {
                what: WHAT,
                words: option.words as usize,
            });
        }
        if size > self.rest.len() {
            return Err(WireError::Truncated {
                what: WHAT,
                have: self.rest.len(),
                need: size,
            });
        }
        (option.content, self.rest) = after.split_at(size - WORD_BYTES);
        Ok(option)
    }
}

impl<'a> Iterator for RawOptionIter<'a> {
    type Item = Result<RawOption<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let step = self.step();
        if step.is_err() {
            self.rest = &[];
        }
        Some(step)
    }
}

/// How often a message may still be delivered: bit 7 unlimited, bit 6 suspect, bits 5..0 the count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemainingAttempts(pub u8);

impl RemainingAttempts {
    /// No limit.
    pub const UNLIMITED: RemainingAttempts = RemainingAttempts(0x80);

    /// The count, or `None` for no limit.
    #[inline]
    pub const fn count(self) -> Option<u8> {
        if self.0 & 0x80 != 0 {
            None
        } else {
            Some(self.0 & 0x3F)
        }
    }
}

/// The known options of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options<'a> {
    ids: Ids<'a>,
    /// Group of the message, without padding.
    pub group_id: Option<&'a [u8]>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Ids<'a> {
    /// No option: the default id 0.
    #[default]
    None,
    Old(&'a [u8]),
    Infos(&'a [u8], usize),
    Packed(u8),
}

impl<'a> Options<'a> {
    /// Parses an options area. Kinds of the future are skipped.
    ///
    /// **Errors**: kind 0, a kind twice, both kinds of ids, over 63 options, or sizes that do not fit.
    #[inline]
    pub fn parse(area: &'a [u8]) -> Result<Options<'a>, WireError> {
        let mut options = Options::default();
        for (count, option) in RawOptionIter::new(area).enumerate() {
            let option = option?;
            if count >= OPTIONS_MAX || option.kind == 0 {
                return Err(WireError::Option(option.kind));
            }
            options.take(&option)?;
        }
        Ok(options)
    }

    #[inline]
    fn take(&mut self, option: &RawOption<'a>) -> Result<(), WireError> {
        let bad = WireError::Option(option.kind);
        match option.kind {
            SUB_QUEUE_IDS_OLD | SUB_QUEUE_INFOS if self.ids != Ids::None => return Err(bad),
            SUB_QUEUE_IDS_OLD if option.packed => return Err(bad),
            SUB_QUEUE_IDS_OLD => self.ids = Ids::Old(option.content),
            SUB_QUEUE_INFOS if option.packed => self.ids = Ids::Packed((option.words & 0xFF) as u8),
            SUB_QUEUE_INFOS => {
                let item = usize::from(option.type_specific) * WORD_BYTES;
                if item < 2 * WORD_BYTES || !option.content.len().is_multiple_of(item) {
                    return Err(bad);
                }
                self.ids = Ids::Infos(option.content, item);
            }
            GROUP_ID if self.group_id.is_some() || option.packed => return Err(bad),
            GROUP_ID => self.group_id = Some(strip_padding(option.content).map_err(|_| bad)?),
            _ => {}
        }
        Ok(())
    }

    /// The subscriptions that the message is for, in order; without an option that is id 0.
    #[inline]
    pub fn subscriptions(&self) -> SubscriptionIter<'a> {
        SubscriptionIter {
            ids: self.ids,
            implied: matches!(self.ids, Ids::None | Ids::Packed(_)),
        }
    }
}

/// Iterator over (subscription id, remaining attempts).
#[derive(Clone, Debug)]
pub struct SubscriptionIter<'a> {
    ids: Ids<'a>,
    implied: bool,
}

impl Iterator for SubscriptionIter<'_> {
    type Item = (SubscriptionId, RemainingAttempts);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.ids {
            Ids::None | Ids::Packed(_) if !self.implied => None,
            Ids::None => {
                self.implied = false;
                Some((SubscriptionId(0), RemainingAttempts::UNLIMITED))
            }
            Ids::Packed(attempts) => {
                self.implied = false;
                Some((SubscriptionId(0), RemainingAttempts(*attempts)))
            }
            Ids::Old(rest) => {
                let (id, after) = rest.split_first_chunk::<4>()?;
                *rest = after;
                Some((
                    SubscriptionId(u32::from_be_bytes(*id)),
                    RemainingAttempts::UNLIMITED,
                ))
            }
            Ids::Infos(rest, item) => {
                let (info, after) = rest.split_at_checked(*item)?;
                *rest = after;
                let id = SubscriptionId(u32::from_be_bytes([info[0], info[1], info[2], info[3]]));
                Some((id, RemainingAttempts(info[4])))
            }
        }
    }
}

#[inline]
pub(crate) fn option_header(kind: u8, packed: bool, type_specific: u8, words: u32) -> [u8; 4] {
    let header = u32::from(kind) << 26
        | u32::from(packed) << 25
        | u32::from(type_specific & 15) << 21
        | words & WORDS_MASK;
    header.to_be_bytes()
}

/// Appends an option with old sub-queue ids. `ids` should be few.
pub fn write_sub_queue_ids(out: &mut Vec<u8>, ids: &[SubscriptionId]) {
    out.extend_from_slice(&option_header(
        SUB_QUEUE_IDS_OLD,
        false,
        0,
        (1 + ids.len()) as u32,
    ));
    ids.iter()
        .for_each(|id| out.extend_from_slice(&id.0.to_be_bytes()));
}

/// Appends an option with ids and remaining attempts, as between brokers.
pub fn write_sub_queue_infos(out: &mut Vec<u8>, infos: &[(SubscriptionId, RemainingAttempts)]) {
    let words = (1 + infos.len() * usize::from(INFO_WORDS)) as u32;
    out.extend_from_slice(&option_header(SUB_QUEUE_INFOS, false, INFO_WORDS, words));
    for (id, attempts) in infos {
        out.extend_from_slice(&id.0.to_be_bytes());
        out.extend_from_slice(&[attempts.0, 0, 0, 0]);
    }
}

/// Appends the packed form of the same option, which stands for id 0.
pub fn write_sub_queue_info_packed(out: &mut Vec<u8>, attempts: RemainingAttempts) {
    out.extend_from_slice(&option_header(
        SUB_QUEUE_INFOS,
        true,
        0,
        u32::from(attempts.0),
    ));
}

/// Appends a group id, at most 31 bytes in the reference.
pub fn write_group_id(out: &mut Vec<u8>, group: &[u8]) {
    let words = (group.len() / WORD_BYTES + 2) as u32;
    out.extend_from_slice(&option_header(GROUP_ID, false, 0, words));
    out.extend_from_slice(group);
    out.extend_from_slice(padding(group.len()));
}
