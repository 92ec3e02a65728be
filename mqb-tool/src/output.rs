//! Tables, numbers and messages for people.

use std::io::{self, Write};

use mqb_client::{Message, Property, PropertyKind};
use serde_json::{Map, Value, json};

use crate::value::to_hex;

/// Prints aligned columns; those in `right` are numbers.
pub(crate) fn table(headings: &[&str], right: &[usize], rows: &[Vec<String>]) -> io::Result<()> {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = io::stdout().lock();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (column, (cell, width)) in cells.zip(&widths).enumerate() {
            let gap = " ".repeat(width.saturating_sub(cell.chars().count()));
            let cell = if right.contains(&column) {
                format!("{gap}{cell}")
            } else {
                format!("{cell}{gap}")
            };
            text.push_str(&cell);
            text.push_str("  ");
        }
        writeln!(out, "{}", text.trim_end())
    };
    line(&mut headings.iter().copied())?;
    for row in rows {
        line(&mut row.iter().map(String::as_str))?;
    }
    Ok(())
}

/// Prints a line. Unlike `println!` it reports a reader that has gone instead of panicking.
pub(crate) fn print_line(line: &dyn std::fmt::Display) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}

/// As `println!`, returning from the function if the reader has gone.
macro_rules! say {
    ($($line:tt)*) => {
        $crate::output::print_line(&format_args!($($line)*))?
    };
}
pub(crate) use say;

/// `1,234,567`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1.5 MiB`.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit < UNITS.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{number} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// `12s`, `3m 20s`, `5h 1m`.
pub(crate) fn age(ms: u64) -> String {
    match ms / 1000 {
        0 => format!("{ms}ms"),
        seconds @ 1..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        seconds => format!("{}h {}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// A property's value, typed.
pub(crate) fn property_json(property: &Property<'_>) -> Value {
    let number = || {
        property
            .value
            .iter()
            .fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    match property.kind {
        PropertyKind::Bool => json!(property.value == [1]),
        PropertyKind::Char => json!(number()),
        PropertyKind::Short => json!(number() as i16),
        PropertyKind::Int32 => json!(number() as i32),
        PropertyKind::Int64 => json!(number() as i64),
        PropertyKind::String => json!(String::from_utf8_lossy(property.value)),
        PropertyKind::Binary => json!(to_hex(property.value)),
    }
}

/// A received message as one JSON object. A payload that is not text is given in hexadecimal.
pub(crate) fn message_json(message: &Message) -> Result<Value, mqb_client::Error> {
    let contents = message.contents()?;
    let properties: Map<String, Value> = contents
        .properties()
        .map(|property| {
            (
                String::from_utf8_lossy(property.name).into_owned(),
                property_json(&property),
            )
        })
        .collect();
    let mut value = json!({
        "guid": message.guid().to_string(), "bytes": contents.payload.len(), "outOfOrder": message.is_out_of_order(), "properties": properties,
    });
    match std::str::from_utf8(&contents.payload) {
        Ok(text) => value["payload"] = json!(text),
        Err(_) => value["payloadHex"] = json!(to_hex(&contents.payload)),
    }
    Ok(value)
}

/// A received message for people: a line about it on standard error, its payload on standard output.
pub(crate) fn message_text(message: &Message, heading: bool) -> anyhow::Result<()> {
    let contents = message.contents()?;
    if heading {
        let properties: String = contents
            .properties()
            .map(|property| {
                format!(
                    "  {}={}",
                    String::from_utf8_lossy(property.name).escape_debug(),
                    property_json(&property)
                )
            })
            .collect();
        let again = if message.is_out_of_order() {
            "  (delivered again)"
        } else {
            ""
        };
        eprintln!(
            "{}  {}{again}{properties}",
            message.guid(),
            bytes(contents.payload.len() as u64)
        );
    }
    let mut out = io::stdout().lock();
    out.write_all(&contents.payload)?;
    if !contents.payload.ends_with(b"\n") {
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(thousands),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [0, 1023, 1536, 5 << 30].map(bytes),
            ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
        );
        assert_eq!(
            [5, 12_000, 200_000, 18_060_000].map(age),
            ["5ms", "12s", "3m 20s", "5h 1m"]
        );
    }
}
