//! One event as one line: `key=value` text, or a JSON object.

use std::fmt::{self, Write};

use mqb_core::config::LogFormat;
use tracing::field::{Field, Visit};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// Longest value that is written whole. **Units**: bytes. A peer's text must not flood the log.
const VALUE_BYTES_MAX: usize = 1024;

/// A line under construction.
pub(super) struct Line {
    format: LogFormat,
    text: String,
    /// Fields other than `event` and the message, which go first.
    fields: String,
    event: Option<String>,
    message: Option<String>,
    target: Option<&'static str>,
}

impl Line {
    pub(super) fn new(format: LogFormat, metadata: &Metadata<'static>) -> Self {
        let mut text = String::with_capacity(160);
        let mut time = String::with_capacity(32);
        // Writing to a string does not fail.
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let level = metadata.level();
        let _ = match format {
            LogFormat::Text => write!(text, "{time} {level:>5}"),
            LogFormat::Json => write!(text, "{{\"time\":\"{time}\",\"level\":\"{level}\""),
        };
        // In text only for people who debug: `event` says more.
        let shows_target = format == LogFormat::Json || *level > Level::INFO;
        let target = shows_target.then(|| metadata.target());
        Self {
            format,
            text,
            fields: String::new(),
            event: None,
            message: None,
            target,
        }
    }

    /// Adds a field.
    pub(super) fn number(&mut self, name: &str, value: u64) {
        self.plain(name, value);
    }

    fn plain(&mut self, name: &str, value: impl fmt::Display) {
        key(&mut self.fields, self.format, name);
        let _ = write!(self.fields, "{value}");
    }

    fn quoted(&mut self, field: &str, value: &str) {
        match field {
            "event" => self.event = Some(value.into()),
            "message" => self.message = Some(value.into()),
            name => {
                key(&mut self.fields, self.format, name);
                put(&mut self.fields, self.format, value);
            }
        }
    }

    /// The line with its end.
    pub(super) fn finish(mut self) -> String {
        let format = self.format;
        let leading = [
            ("event", self.event.as_deref()),
            ("msg", self.message.as_deref()),
        ];
        for (name, value) in leading {
            if let Some(value) = value {
                key(&mut self.text, format, name);
                put(&mut self.text, format, value);
            }
        }
        self.text += &self.fields;
        if let Some(target) = self.target {
            key(&mut self.text, format, "target");
            put(&mut self.text, format, target);
        }
        if format == LogFormat::Json {
            self.text.push('}');
        }
        self.text.push('\n');
        self.text
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.quoted(field.name(), &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.quoted(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.plain(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.plain(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.plain(field.name(), value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no infinities.
        if value.is_finite() {
            self.plain(field.name(), value)
        } else {
            self.quoted(field.name(), &value.to_string())
        }
    }
}

fn key(out: &mut String, format: LogFormat, name: &str) {
    // Names are identifiers in our own source and need no escaping.
    let _ = match format {
        LogFormat::Text => write!(out, " {name}="),
        LogFormat::Json => write!(out, ",\"{name}\":"),
    };
}

fn put(out: &mut String, format: LogFormat, value: &str) {
    let shown = shorten(value);
    match format {
        LogFormat::Json => {
            // A string always has a JSON form.
            out.push_str(&serde_json::to_string(shown).unwrap_or_default());
        }
        LogFormat::Text if is_plain(shown) => out.push_str(shown),
        LogFormat::Text => {
            out.push('"');
            out.extend(shown.chars().flat_map(|c| match c {
                // Readable as they are; everything that could end the value, the line or move a terminal's cursor is not.
                '\'' => Escape::Itself(Some(c)),
                c if c == '"' || c == '\\' || c.is_control() || !is_visible(c) => {
                    Escape::Code(c.escape_default())
                }
                c => Escape::Itself(Some(c)),
            }));
            out.push('"');
        }
    }
}

/// Letters of other scripts stay readable; directions, separators and invisible characters do not hide anything.
fn is_visible(c: char) -> bool {
    c == ' ' || c.is_alphanumeric() || c.is_ascii_graphic()
}

enum Escape {
    Itself(Option<char>),
    Code(std::char::EscapeDefault),
}

impl Iterator for Escape {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        match self {
            Escape::Itself(c) => c.take(),
            Escape::Code(code) => code.next(),
        }
    }
}

fn is_plain(value: &str) -> bool {
    !value.is_empty()
        && value
            .bytes()
            .all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\' | b'='))
}

fn shorten(value: &str) -> &str {
    let mut end = value.len().min(VALUE_BYTES_MAX);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    &value[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: LogFormat, value: &str) -> String {
        let mut out = String::new();
        put(&mut out, format, value);
        out
    }

    #[test]
    fn what_peers_send_cannot_end_a_line_or_a_field() {
        for value in [
            "a\nevent=forged",
            "\" x=\"1",
            "\u{1b}[2J",
            "\u{202e}abc",
            "\u{2028}",
            "",
            "a b",
            "k=v",
            "\\",
        ] {
            let text = written(LogFormat::Text, value);
            assert!(
                text.starts_with('"') && text.ends_with('"') && text.len() >= 2,
                "{text}"
            );
            let inside = &text[1..text.len() - 1];
            assert!(
                !inside
                    .chars()
                    .any(|c| c.is_control() || c == '\u{202e}' || c == '\u{2028}'),
                "{text}"
            );
            assert!(
                !inside.replace("\\\\", "").replace("\\\"", "").contains('"'),
                "{text}"
            );
            let json = written(LogFormat::Json, value);
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), value);
        }
        assert_eq!(written(LogFormat::Text, "bmq://a.b/c"), "bmq://a.b/c");
        assert_eq!(written(LogFormat::Text, "zwölf Bücher"), "\"zwölf Bücher\"");
    }

    #[test]
    fn long_values_are_cut_at_a_character() {
        assert_eq!(shorten(&"ä".repeat(VALUE_BYTES_MAX)).len(), VALUE_BYTES_MAX);
        assert_eq!(
            shorten(&format!("x{}", "ä".repeat(VALUE_BYTES_MAX))).len(),
            VALUE_BYTES_MAX - 1
        );
    }
}
