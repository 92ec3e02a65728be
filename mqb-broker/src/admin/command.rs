//! Commands of admin sessions: text in, text or JSON out. Pure.
//!
//! ```text
//! [ENCODING TEXT | JSON | JSON_COMPACT | JSON_PRETTY]
//! HELP
//! DOMAINS LIST
//! DOMAINS INFOS
//! DOMAINS DOMAIN <domain> INFOS
//! DOMAINS DOMAIN <domain> QUEUE <queue> INFOS
//! DOMAINS DOMAIN <domain> QUEUE <queue> PURGE [<appId> | *]
//! DOMAINS DOMAIN <domain> QUEUE <queue> LIST [<offset> [<count>]]
//! ```
//! and, for tools, with JSON answers unless `ENCODING TEXT` precedes them,
//!
//! ```text
//! queues [<domain>]
//! peek <uri> [<count> [<offset>]]
//! purge <uri> [<appId>]
//! stats
//! ```
//! Words of commands are taken in any case. JSON answers are one object: `{"domains":[...]}`, `{"queues":[...]}`,
//! `{"messages":[...]}`, `{"purged_messages":n,"purged_bytes":n}`, or `{"error":{"code","message"}}`; a list that does not
//! fit one control event ends early and says `"truncated":true`.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use mqb_core::{Compression, PropertiesStyle};
use serde_json::{Value, json};

use crate::event::{MessageReport, PartitionReport, QueryAnswer, QueryRequest, QueueReport};
use crate::net::listener::ConnectionStats;

/// Longest answer: it has to fit a control event of at most 1 MiB.
const ANSWER_BYTES_MAX: usize = 900 << 10;
/// Messages listed by one command.
const LIST_MAX: u32 = 256;
const LIST_DEFAULT: u32 = 20;
/// Data shown of a message to people.
const PREVIEW_BYTES: usize = 256;
/// Data of one message for tools; more is cut off, as its size tells.
const DATA_BYTES_MAX: usize = 256 << 10;

/// How an answer is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Style {
    /// For people.
    #[default]
    Text,
    /// One line.
    Json,
    /// Indented.
    JsonPretty,
}

/// What a line asks.
#[derive(Clone, Debug)]
pub enum Command {
    /// An overview of the commands.
    Help,
    /// Figures about connections, known to the session that is asked.
    Stats,
    /// A question to the registry.
    Query(QueryRequest),
}

const HELP: &str = "\
HELP
    This text.
DOMAINS LIST
    Names of the domains in use.
DOMAINS INFOS
    All queues.
DOMAINS DOMAIN <domain> INFOS
    The queues of a domain.
DOMAINS DOMAIN <domain> QUEUE <queue> INFOS
    One queue.
DOMAINS DOMAIN <domain> QUEUE <queue> PURGE [<appId> | *]
    Removes the queue's messages, of one app or of all.
DOMAINS DOMAIN <domain> QUEUE <queue> LIST [<offset> [<count>]]
    Waiting messages, oldest first, at most 256.
queues [<domain>] | peek <uri> [<count> [<offset>]] | purge <uri> [<appId>] | stats
    The same for tools: the answer is JSON.
Any command may be preceded by ENCODING TEXT, ENCODING JSON (one line) or ENCODING JSON_PRETTY.
";

/// Takes a line apart.
///
/// **Errors**: it is no command, and why.
pub fn parse(line: &str) -> (Style, Result<Command, String>) {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let mut style = None;
    if words
        .first()
        .is_some_and(|word| word.eq_ignore_ascii_case("ENCODING"))
    {
        style = match words
            .get(1)
            .map(|word| word.to_ascii_uppercase())
            .as_deref()
        {
            Some("TEXT") => Some(Style::Text),
            Some("JSON" | "JSON_COMPACT") => Some(Style::Json),
            Some("JSON_PRETTY") => Some(Style::JsonPretty),
            _ => {
                return (
                    Style::Text,
                    Err("ENCODING is TEXT, JSON, JSON_COMPACT or JSON_PRETTY".into()),
                );
            }
        };
        words.drain(..2);
    }
    if let Some(command) = parse_short(&words) {
        return (style.unwrap_or(Style::Json), command);
    }
    (style.unwrap_or_default(), parse_words(&words))
}

/// The commands for tools; `None` if it is none of them.
fn parse_short(words: &[&str]) -> Option<Result<Command, String>> {
    let (verb, rest) = words.split_first()?;
    let query = |request| Ok(Command::Query(request));
    Some(match (verb.to_ascii_lowercase().as_str(), rest) {
        ("queues", []) => query(QueryRequest::Queues { domain: None }),
        ("queues", [domain]) => query(QueryRequest::Queues {
            domain: Some((*domain).into()),
        }),
        ("peek", [uri]) => parse_queue((*uri).into(), "LIST", &[]),
        ("peek", [uri, count]) => parse_queue((*uri).into(), "LIST", &["0", count]),
        ("peek", [uri, count, skip]) => parse_queue((*uri).into(), "LIST", &[skip, count]),
        ("purge", [uri]) => parse_queue((*uri).into(), "PURGE", &[]),
        ("purge", [uri, app_id]) => parse_queue((*uri).into(), "PURGE", &[app_id]),
        ("stats", []) => Ok(Command::Stats),
        ("queues" | "peek" | "purge" | "stats", _) => Err("wrong number of words; try HELP".into()),
        _ => return None,
    })
}

fn parse_words(words: &[&str]) -> Result<Command, String> {
    let is = |at: usize, word: &str| {
        words
            .get(at)
            .is_some_and(|found| found.eq_ignore_ascii_case(word))
    };
    if words.is_empty() || (is(0, "HELP") && words.len() == 1) {
        return Ok(Command::Help);
    }
    if is(0, "DOMAINS") && is(1, "LIST") && words.len() == 2 {
        return Ok(Command::Query(QueryRequest::Domains));
    }
    if is(0, "DOMAINS") && is(1, "INFOS") && words.len() == 2 {
        return Ok(Command::Query(QueryRequest::Queues { domain: None }));
    }
    if is(0, "DOMAINS") && is(1, "DOMAIN") && words.len() > 3 {
        let domain = words[2];
        if is(3, "INFOS") && words.len() == 4 {
            return Ok(Command::Query(QueryRequest::Queues {
                domain: Some(domain.into()),
            }));
        }
        if is(3, "QUEUE") && words.len() > 5 {
            let uri = format!("bmq://{domain}/{}", words[4]);
            return parse_queue(uri, words[5], &words[6..]);
        }
    }
    // The line is a peer's: not all of it, and nothing unprintable, goes into an answer or a log.
    let shown: String = words
        .join(" ")
        .chars()
        .flat_map(char::escape_debug)
        .take(80)
        .collect();
    Err(format!("unknown command '{shown}'; try HELP"))
}

fn parse_queue(uri: String, verb: &str, rest: &[&str]) -> Result<Command, String> {
    let number = |word: &str| {
        word.parse::<u64>()
            .map_err(|_| format!("'{}' is not a number", word.escape_debug()))
    };
    let request = match (verb.to_ascii_uppercase().as_str(), rest) {
        ("INFOS", []) => QueryRequest::Queue { uri },
        ("PURGE", [] | ["*"]) => QueryRequest::Purge { uri, app_id: None },
        ("PURGE", [app_id]) => QueryRequest::Purge {
            uri,
            app_id: Some((*app_id).into()),
        },
        ("LIST", []) => QueryRequest::Messages {
            uri,
            skip: 0,
            count: LIST_DEFAULT,
        },
        ("LIST", [skip]) => QueryRequest::Messages {
            uri,
            skip: number(skip)?,
            count: LIST_DEFAULT,
        },
        ("LIST", [skip, count]) => {
            let count = u32::try_from(number(count)?)
                .unwrap_or(LIST_MAX)
                .min(LIST_MAX);
            QueryRequest::Messages {
                uri,
                skip: number(skip)?,
                count,
            }
        }
        _ => return Err("for a queue there are INFOS, PURGE and LIST; try HELP".into()),
    };
    Ok(Command::Query(request))
}

/// The answer to HELP.
pub fn help(style: Style) -> String {
    match style {
        Style::Text => HELP.into(),
        _ => write_json(style, &json!({ "help": HELP })),
    }
}

/// The answer to a line that is no command.
pub fn error(style: Style, text: &str) -> String {
    match style {
        Style::Text => format!("error: {text}\n"),
        _ => write_json(
            style,
            &json!({ "error": { "code": "refused", "message": text } }),
        ),
    }
}

/// The answer to `stats`.
pub fn stats(style: Style, stats: &ConnectionStats) -> String {
    let figures = [
        (
            "connections_open",
            stats.open.load(Ordering::Relaxed) as u64,
        ),
        (
            "connections_accepted",
            stats.accepted.load(Ordering::Relaxed),
        ),
        ("connections_refused", stats.refused.load(Ordering::Relaxed)),
        ("accept_errors", stats.accept_errors.load(Ordering::Relaxed)),
        ("rejected_puts", stats.rejected_puts.load(Ordering::Relaxed)),
        ("stale_pushes", stats.stale_pushes.load(Ordering::Relaxed)),
    ];
    match style {
        Style::Text => lines(&figures, |out, (name, value)| {
            writeln!(out, "{name}={value}")
        }),
        _ => write_json(
            style,
            &Value::Object(
                figures
                    .iter()
                    .map(|(name, value)| ((*name).into(), json!(value)))
                    .collect(),
            ),
        ),
    }
}

/// Writes an answer, shortened to what one control event holds.
pub fn render(style: Style, answer: &QueryAnswer) -> String {
    match (style, answer) {
        (_, QueryAnswer::Refused(text)) => error(style, text),
        (Style::Text, QueryAnswer::Domains(domains)) => {
            lines(domains, |out, domain| writeln!(out, "{domain}"))
        }
        (Style::Text, QueryAnswer::Queues(queues)) => lines(queues, queue_line),
        (Style::Text, QueryAnswer::Messages(messages)) => lines(messages, message_line),
        (Style::Text, QueryAnswer::Partitions(partitions)) => {
            lines(partitions, |out, partition| writeln!(out, "{partition:?}"))
        }
        (_, QueryAnswer::Partitions(partitions)) => {
            list(style, "partitions", partitions, partition_json)
        }
        (Style::Text, QueryAnswer::Purged { messages, bytes }) => {
            format!("purged {messages} messages, {bytes} bytes\n")
        }
        (_, QueryAnswer::Domains(domains)) => {
            list(style, "domains", domains, |domain| json!(domain))
        }
        (_, QueryAnswer::Queues(queues)) => list(style, "queues", queues, queue_json),
        (_, QueryAnswer::Messages(messages)) => list(style, "messages", messages, message_json),
        (_, QueryAnswer::Purged { messages, bytes }) => write_json(
            style,
            &json!({ "purged_messages": messages, "purged_bytes": bytes }),
        ),
    }
}

fn lines<T>(items: &[T], write: impl Fn(&mut String, &T) -> std::fmt::Result) -> String {
    let mut out = String::new();
    for (index, item) in items.iter().enumerate() {
        if out.len() > ANSWER_BYTES_MAX {
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(out, "... and {} more", items.len() - index);
            break;
        }
        let _ = write(&mut out, item);
    }
    if items.is_empty() {
        out.push_str("none\n");
    }
    out
}

fn queue_line(out: &mut String, queue: &QueueReport) -> std::fmt::Result {
    writeln!(
        out,
        "{} messages={} bytes={} unconfirmed={} producers={} consumers={} oldest_ms={} partition={} mode={} durability={} \
         stored={} confirmed={} expired={} purged={} removed={}",
        queue.uri,
        queue.messages,
        queue.bytes,
        queue.unconfirmed,
        queue.producers,
        queue.consumers,
        queue.oldest_age_ms,
        queue.partition,
        queue.mode,
        queue.durability,
        queue.stored,
        queue.confirmed,
        queue.expired,
        queue.purged,
        queue.removed
    )
}

fn message_line(out: &mut String, message: &MessageReport) -> std::fmt::Result {
    write!(
        out,
        "{} accepted_ms={} bytes={} ",
        message.guid, message.accepted_at_ms, message.size_bytes
    )?;
    match &message.data {
        Some(data) => writeln!(
            out,
            "{}",
            data[..data.len().min(PREVIEW_BYTES)].escape_ascii()
        ),
        None => writeln!(out, "(on disk)"),
    }
}

fn list<T>(style: Style, name: &str, items: &[T], to_json: impl Fn(&T) -> Value) -> String {
    // An upper bound by what one item may take keeps the answer whole JSON.
    let mut bytes = 0;
    let mut values = Vec::new();
    for item in items {
        let value = to_json(item);
        bytes += value.to_string().len() * if style == Style::JsonPretty { 2 } else { 1 };
        if bytes > ANSWER_BYTES_MAX {
            break;
        }
        values.push(value);
    }
    let is_truncated = values.len() < items.len();
    let mut object = serde_json::Map::new();
    object.insert(name.into(), Value::Array(values));
    if is_truncated {
        object.insert("truncated".into(), json!(true));
    }
    write_json(style, &Value::Object(object))
}

fn queue_json(queue: &QueueReport) -> Value {
    json!({
        "uri": queue.uri, "mode": queue.mode, "durability": queue.durability, "partition": queue.partition,
        "depth_messages": queue.messages, "depth_bytes": queue.bytes, "unconfirmed": queue.unconfirmed,
        "producers": queue.producers, "consumers": queue.consumers,
        "oldest_age_ms": (queue.messages > 0).then_some(queue.oldest_age_ms),
        "stored": queue.stored, "confirmed": queue.confirmed, "expired": queue.expired, "purged": queue.purged,
        "removed": queue.removed,
    })
}

fn partition_json(partition: &PartitionReport) -> Value {
    json!({
        "partition": partition.partition, "queues": partition.queues, "sessions": partition.sessions,
        "messages": partition.messages, "bytes": partition.bytes, "pendingAcks": partition.pending_acks,
        "isFull": partition.is_full, "isFailed": partition.is_failed, "queuesFull": partition.queues_full,
        "queuesHigh": partition.queues_high, "poisonMessages": partition.poison_messages,
    })
}

fn message_json(message: &MessageReport) -> Value {
    let compression = if message.format.compression() == Compression::None {
        "none"
    } else {
        "zlib"
    };
    let style = match message.format.properties() {
        None => None,
        Some(PropertiesStyle::Old) => Some("old"),
        Some(PropertiesStyle::New) => Some("new"),
    };
    let mut value = json!({
        "guid": message.guid.to_string(), "accepted_at_ms": message.accepted_at_ms, "size_bytes": message.size_bytes,
        "compression": compression, "properties": style.is_some(), "properties_style": style,
    });
    if let Some(data) = &message.data {
        value["data"] = Value::String(base64(&data[..data.len().min(DATA_BYTES_MAX)]));
    }
    value
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let padded = [
            group[0],
            group.get(1).copied().unwrap_or(0),
            group.get(2).copied().unwrap_or(0),
        ];
        let bits = u32::from_be_bytes([0, padded[0], padded[1], padded[2]]);
        for place in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= group.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    text
}

fn write_json(style: Style, value: &Value) -> String {
    match style {
        Style::JsonPretty => format!("{value:#}"),
        Style::Json | Style::Text => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_understood_in_any_case() {
        let (style, command) = parse("encoding json Domains domain my.domain queue q1 list 5 1000");
        assert_eq!(style, Style::Json);
        match command.unwrap() {
            Command::Query(QueryRequest::Messages { uri, skip, count }) => {
                assert_eq!(
                    (uri.as_str(), skip, count),
                    ("bmq://my.domain/q1", 5, LIST_MAX)
                );
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(parse("help").1, Ok(Command::Help)));
        assert!(matches!(
            parse("DOMAINS DOMAIN d QUEUE q PURGE *").1,
            Ok(Command::Query(QueryRequest::Purge { app_id: None, .. }))
        ));
        assert!(matches!(
            parse("DOMAINS INFOS").1,
            Ok(Command::Query(QueryRequest::Queues { domain: None }))
        ));
    }

    #[test]
    fn what_is_no_command_is_explained_without_echoing_everything() {
        let line = format!("RM -RF \u{7} {}", "x".repeat(10_000));
        let text = parse(&line).1.unwrap_err();
        assert!(text.len() < 200 && text.contains("\\u{7}"), "{text}");
        assert!(parse("DOMAINS DOMAIN d QUEUE q LIST five").1.is_err());
        assert!(parse("ENCODING MORSE HELP").1.is_err());
        assert!(parse("DOMAINS DOMAIN").1.is_err());
    }

    #[test]
    fn tools_get_json_without_asking() {
        let (style, command) = parse("peek bmq://d/q 3 7");
        assert_eq!(style, Style::Json);
        assert!(matches!(
            command.unwrap(),
            Command::Query(QueryRequest::Messages {
                skip: 7,
                count: 3,
                ..
            })
        ));
        assert!(matches!(
            parse("purge bmq://d/q").1,
            Ok(Command::Query(QueryRequest::Purge { app_id: None, .. }))
        ));
        assert!(matches!(
            parse("ENCODING TEXT queues"),
            (Style::Text, Ok(_))
        ));
        assert!(matches!(parse("peek"), (Style::Json, Err(_))));
        let message = MessageReport {
            guid: mqb_core::Guid([1; 16]),
            accepted_at_ms: 5,
            format: mqb_core::DataFormat::PLAIN,
            size_bytes: 5,
            data: Some(bytes::Bytes::from_static(b"hello")),
        };
        let text = render(Style::Json, &QueryAnswer::Messages(vec![message]));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["messages"][0]["data"], "aGVsbG8=");
        assert_eq!(value["messages"][0]["properties"], false);
    }

    #[test]
    fn base64_has_the_known_values() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn long_answers_are_shortened_and_stay_json() {
        let queue = |index: usize| QueueReport {
            uri: format!("bmq://d/q{index:06}"),
            ..QueueReport::default()
        };
        let answer = QueryAnswer::Queues((0..20_000).map(queue).collect());
        for style in [Style::Text, Style::Json, Style::JsonPretty] {
            let text = render(style, &answer);
            assert!(text.len() < 1 << 20, "{style:?} {}", text.len());
            if style != Style::Text {
                let value: Value = serde_json::from_str(&text).unwrap();
                assert!(value["queues"].as_array().unwrap().len() > 1000);
                assert_eq!(value["truncated"], true);
            }
        }
    }
}
