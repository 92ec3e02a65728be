//! Sizes and durations as people write them: `64MiB`, `100ms`, `5m`.

use std::fmt;
use std::time::Duration;

/// A number of bytes, written with a binary unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Size(u64);

const SIZE_UNITS: [(&str, u64); 4] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];
const DURATION_UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

impl Size {
    /// So many bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// So many times 1,048,576 bytes.
    pub const fn mebi(count: u64) -> Self {
        Self(count << 20)
    }

    /// **Units**: bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The same for memory sizes of this machine. Saturates.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// `64MiB`, `4096B`, `4096`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let problem =
            || format!("`{text}` is not a size; write for example 4096, 64KiB, 256MiB, 10GiB");
        let (number, unit) = split(text);
        let factor = match unit {
            "" => 1,
            unit => {
                SIZE_UNITS
                    .iter()
                    .find(|(name, _)| name.eq_ignore_ascii_case(unit))
                    .ok_or_else(problem)?
                    .1
            }
        };
        let number: u64 = number.parse().map_err(|_| problem())?;
        number.checked_mul(factor).map(Self).ok_or_else(problem)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = SIZE_UNITS
            .into_iter()
            .find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor))
            .unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

/// `100ms`, `30s`, `5m`, `12h`, `7d`; a bare `0` is zero.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let problem =
        || format!("`{text}` is not a duration; write for example 100ms, 30s, 5m, 12h, 7d");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (number, unit) = split(text);
    let factor = DURATION_UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(problem)?
        .1;
    let number: u64 = number.parse().map_err(|_| problem())?;
    number
        .checked_mul(factor)
        .map(Duration::from_millis)
        .ok_or_else(problem)
}

/// The same notation.
pub fn format_duration(duration: Duration) -> String {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if ms == 0 {
        return "0".into();
    }
    let (unit, factor) = DURATION_UNITS
        .into_iter()
        .find(|(_, factor)| ms.is_multiple_of(*factor))
        .unwrap_or(("ms", 1));
    format!("{}{unit}", ms / factor)
}

fn split(text: &str) -> (&str, &str) {
    let at = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    (&text[..at], text[at..].trim())
}
