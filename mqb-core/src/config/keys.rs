//! The table of keys: path, documentation, how to set and how to show. Parsing, printing and documentation all read it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use super::{
    Config, DomainConfig, DomainRule, Durability, LogFormat, Mode, Size, Source, format_duration,
    parse_duration,
};

/// A value before it has a type: from the file or from the command line.
#[derive(Clone, Copy)]
pub(super) enum Raw<'a> {
    File(&'a DeValue<'a>),
    Text(&'a str),
}

/// One key that an operator can set.
pub(super) struct Key<T> {
    pub(super) path: &'static str,
    pub(super) doc: &'static str,
    pub(super) set: fn(&mut T, Raw<'_>) -> Result<(), String>,
    pub(super) show: fn(&T) -> String,
}

/// How a type is read and shown.
trait Value: Sized {
    fn read(raw: Raw<'_>) -> Result<Self, String>;
    fn show(&self) -> String;
}

macro_rules! key {
    ($path:literal, $doc:literal, $($field:ident).+) => { key!($path, $doc, $($field).+, |_| Ok(())) };
    ($path:literal, $doc:literal, $($field:ident).+, $check:expr) => {
        Key {
            path: $path,
            doc: $doc,
            set: |target, raw| {
                let value = read_like(&target.$($field).+, raw)?;
                checked(&value, $check)?;
                target.$($field).+ = value;
                Ok(())
            },
            show: |target| Value::show(&target.$($field).+),
        }
    };
}

/// Reads a value of the type of the one that it replaces.
fn read_like<T: Value>(_old: &T, raw: Raw<'_>) -> Result<T, String> {
    T::read(raw)
}

/// Gives the closure's parameter its type.
fn checked<T>(value: &T, check: impl Fn(&T) -> Result<(), String>) -> Result<(), String> {
    check(value)
}

fn within<T: PartialOrd + std::fmt::Display>(value: &T, min: T, max: T) -> Result<(), String> {
    if *value < min || *value > max {
        return Err(format!("{value} is out of range: {min} to {max}"));
    }
    Ok(())
}

/// Keys of the whole broker.
pub(super) const KEYS: &[Key<Config>] = &[
    key!(
        "listen.address",
        "Address and port for BlazingMQ clients; port 0 takes any.",
        listen
    ),
    key!(
        "http.address",
        "Address and port of health checks and metrics; port 0 takes any.",
        http
    ),
    key!(
        "processors",
        "Threads that run sessions and queues; 0: one per core.",
        processors,
        |v| within(v, 0, 1024)
    ),
    key!(
        "storage.data_dir",
        "Directory that holds everything that survives. One broker at a time.",
        storage.data_dir
    ),
    key!(
        "storage.partitions",
        "Partitions of a new data directory; an existing one keeps its number.",
        storage.partitions,
        |v| within(v, 1, 1024)
    ),
    key!(
        "storage.segment_size",
        "Size of a file of the log.",
        storage.segment_size,
        |v| within(v, Size::new(64 << 10), Size::new(1 << 30))
    ),
    key!(
        "storage.sync_interval",
        "How late data of the level `flush` is synced to disk.",
        storage.sync_interval,
        |v| {
            if v.is_zero() || *v > Duration::from_secs(60) {
                Err("must be between 1ms and 60s".into())
            } else {
                Ok(())
            }
        }
    ),
    key!(
        "storage.cache_size",
        "Memory for messages that wait, all queues together; what is above is read back from disk.",
        storage.cache_size,
        |v| within(v, Size::mebi(1), Size::new(1 << 40))
    ),
    key!(
        "limits.connections",
        "Connections at a time.",
        limits.connections,
        |v| within(v, 1, 1_000_000)
    ),
    key!(
        "limits.queues_per_connection",
        "Queues open on one connection.",
        limits.queues_per_connection,
        |v| within(v, 1, 1_000_000)
    ),
    key!(
        "limits.in_flight",
        "PUT data on its way to storage per connection; above it the socket is not read.",
        limits.in_flight
    ),
    key!(
        "limits.output",
        "Output waiting for a slow peer at which it is cut off.",
        limits.output
    ),
    key!(
        "limits.handshake_timeout",
        "Time for a new connection to negotiate.",
        limits.handshake_timeout,
        nonzero
    ),
    key!(
        "limits.write_stall_timeout",
        "Time that a peer may take no byte while output waits for it.",
        limits.write_stall_timeout,
        nonzero
    ),
    key!(
        "heartbeat.interval",
        "How often a silent peer is asked whether it lives; 0: never.",
        heartbeat_interval
    ),
    key!(
        "heartbeat.misses",
        "Questions without an answer after which the connection is given up.",
        heartbeat_misses,
        |v| within(v, 1, 1000)
    ),
    key!(
        "shutdown.deadline",
        "Time for an orderly stop after SIGTERM.",
        shutdown_deadline,
        nonzero
    ),
    key!("log.format", "`text` or `json`.", log_format),
    key!(
        "log.level",
        "`error`, `warn`, `info`, `debug`, `trace`, or per-module directives as in `info,mqb_broker::storage=debug`.",
        log_level
    ),
    key!(
        "domains.auto_create",
        "Whether a domain that no [[domain]] names is created at its first use.",
        auto_create
    ),
    key!(
        "domains.max",
        "Domains at a time.",
        domains_max,
        |v| within(v, 1, 1_000_000)
    ),
];

/// Keys of `[defaults]` and of each `[[domain]]`.
pub(super) const DOMAIN_KEYS: &[Key<DomainConfig>] = &[
    key!(
        "mode",
        "How messages find consumers: `priority` (each message to one consumer, higher priority first).",
        mode
    ),
    key!(
        "durability",
        "What an ACK means: `sync` (on disk), `flush` (in the file), `memory`.",
        durability
    ),
    key!(
        "max_messages",
        "Messages waiting in a queue.",
        max_messages,
        |v| within(v, 1, u64::from(u32::MAX) >> 1)
    ),
    key!(
        "max_bytes",
        "Application data waiting in a queue.",
        max_bytes
    ),
    key!("ttl", "Time that a message is kept; 0: for ever.", ttl),
    key!(
        "max_delivery_attempts",
        "Deliveries after which a message whose consumers keep dying is removed; 0: unlimited.",
        max_delivery_attempts,
        |v| within(v, 0, 63)
    ),
    key!(
        "deduplication",
        "How long a repeated PUT is recognised.",
        deduplication,
        |v| {
            if *v > Duration::from_secs(86_400) {
                Err("must be at most 1d".into())
            } else {
                Ok(())
            }
        }
    ),
    key!(
        "deduplication_max",
        "PUTs remembered for that, per queue; more shorten the time.",
        deduplication_max,
        |v| within(v, 1, 100_000_000)
    ),
    key!(
        "max_producers",
        "Writers of a queue; 0: unlimited.",
        max_producers
    ),
    key!(
        "max_consumers",
        "Readers of a queue; 0: unlimited.",
        max_consumers
    ),
    key!(
        "max_queues",
        "Queues in the domain; 0: unlimited.",
        max_queues
    ),
];

fn nonzero(value: &Duration) -> Result<(), String> {
    if value.is_zero() {
        Err("must not be 0".into())
    } else {
        Ok(())
    }
}

/// The key, or a message that names the nearest one.
pub(super) fn find(path: &str) -> Result<&'static Key<Config>, String> {
    KEYS.iter()
        .find(|key| key.path == path)
        .ok_or_else(|| unknown(path, KEYS.iter().map(|key| key.path)))
}

/// The same for a key of a domain.
pub(super) fn find_domain(name: &str) -> Result<&'static Key<DomainConfig>, String> {
    DOMAIN_KEYS
        .iter()
        .find(|key| key.path == name)
        .ok_or_else(|| unknown(name, DOMAIN_KEYS.iter().map(|key| key.path).chain(["name"])))
}

/// A message about a key that does not exist.
pub(super) fn unknown(path: &str, known: impl Iterator<Item = &'static str>) -> String {
    let nearest = known.map(|name| (distance(path, name), name)).min();
    let shown = path.escape_default();
    match nearest {
        Some((distance, name)) if distance <= 1 + path.len() / 3 => {
            format!("unknown key `{shown}`, did you mean `{name}`?")
        }
        _ => format!("unknown key `{shown}`; `mqb-broker --print-config` lists all keys"),
    }
}

/// Number of single-character edits from one text to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, c) in from.chars().take(256).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, d) in to.iter().enumerate() {
            let substituted = diagonal + usize::from(c != *d);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

/// Every key with its default and what it does, for the documentation.
pub fn documentation() -> Vec<(String, String, &'static str)> {
    let config = Config::default();
    let broker = KEYS
        .iter()
        .map(|key| (key.path.to_owned(), (key.show)(&config), key.doc));
    let domain = DOMAIN_KEYS.iter().map(|key| {
        (
            format!("defaults.{}", key.path),
            (key.show)(&config.defaults),
            key.doc,
        )
    });
    broker.chain(domain).collect()
}

pub(super) fn print(config: &Config) -> String {
    let mut out = String::new();
    let line = |key: &str, value: String, source: Source| format!("{key} = {value}  # {source}\n");
    let mut section = "";
    // Keys without a section must come first in TOML; the table lists sections in runs.
    for key in KEYS.iter().filter(|key| !key.path.contains('.')) {
        out += &line(key.path, (key.show)(config), config.source(key.path));
    }
    for key in KEYS {
        if let Some((name, rest)) = key.path.split_once('.') {
            if name != section {
                out += &format!("\n[{name}]\n");
                section = name;
            }
            out += &line(rest, (key.show)(config), config.source(key.path));
        }
    }
    out += "\n[defaults]\n";
    for key in DOMAIN_KEYS {
        out += &line(
            key.path,
            (key.show)(&config.defaults),
            config.source(&default_path(key.path)),
        );
    }
    for rule in &config.domains {
        out += &format!("\n[[domain]]\nname = {}\n", text(rule.name.as_str()));
        for key in DOMAIN_KEYS {
            let value = (key.show)(&rule.config);
            match config.sources.get(&rule_path(rule, key.path)) {
                Some(source) => out += &line(key.path, value, *source),
                None => out += &format!("{} = {value}  # as [defaults]\n", key.path),
            }
        }
    }
    out
}

/// The path under which the source of a key of `[defaults]` is kept.
pub(super) fn default_path(key: &str) -> String {
    format!("defaults.{key}")
}

/// The path under which the source of a rule's own value is kept.
pub(super) fn rule_path(rule: &DomainRule, key: &str) -> String {
    format!("domain.{}.{key}", rule.name.as_str())
}

fn text(value: &str) -> String {
    toml::Value::from(value).to_string()
}

fn want<T>(what: &str, raw: Raw<'_>) -> Result<T, String> {
    match raw {
        Raw::File(value) => Err(format!("expected {what}, found a {}", value.type_str())),
        Raw::Text(value) => Err(format!(
            "expected {what}, found `{}`",
            value.escape_default()
        )),
    }
}

fn as_text<'a>(raw: &Raw<'a>) -> Option<&'a str> {
    match raw {
        Raw::File(value) => value.as_str(),
        Raw::Text(value) => Some(value),
    }
}

macro_rules! integer_value {
    ($($t:ty),*) => {$(
        impl Value for $t {
            fn read(raw: Raw<'_>) -> Result<Self, String> {
                let parsed = match raw {
                    Raw::File(DeValue::Integer(number)) => i128::from_str_radix(number.as_str(), number.radix()).ok(),
                    Raw::File(_) => None,
                    Raw::Text(text) => text.parse().ok(),
                };
                match parsed {
                    Some(number) => <$t>::try_from(number).map_err(|_| format!("{number} is out of range: 0 to {}", <$t>::MAX)),
                    None => want("a whole number", raw),
                }
            }
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
integer_value!(u16, u32, u64);

macro_rules! text_value {
    ($t:ty, $what:literal, $parse:expr, $show:expr) => {
        impl Value for $t {
            fn read(raw: Raw<'_>) -> Result<Self, String> {
                let parse: fn(&str) -> Result<$t, String> = $parse;
                match as_text(&raw) {
                    Some(value) => parse(value),
                    None => want($what, raw),
                }
            }
            fn show(&self) -> String {
                let show: fn(&$t) -> String = $show;
                text(&show(self))
            }
        }
    };
}
text_value!(
    SocketAddr,
    "an address as a text",
    |value| {
        let value = value
            .strip_prefix("tcp://")
            .unwrap_or(value)
            .replace("localhost:", "127.0.0.1:");
        value.parse().map_err(|_| {
            format!("`{value}` is not an address; write for example 127.0.0.1:30114 or [::1]:30114")
        })
    },
    ToString::to_string
);
text_value!(Duration, "a duration as a text", parse_duration, |v| {
    format_duration(*v)
});
text_value!(Durability, "a text", Durability::parse, |v| v.name().into());
text_value!(Mode, "a text", Mode::parse, |v| v.name().into());
text_value!(String, "a text", |value| Ok(value.into()), Clone::clone);
text_value!(
    PathBuf,
    "a path as a text",
    |value| if value.is_empty() {
        Err("must not be empty".into())
    } else {
        Ok(value.into())
    },
    |v| v.display().to_string()
);
text_value!(
    LogFormat,
    "a text",
    |value| match value {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(format!("`{value}` is no log format; choose text or json")),
    },
    |v| match v {
        LogFormat::Text => "text".into(),
        LogFormat::Json => "json".into(),
    }
);

impl Value for Size {
    fn read(raw: Raw<'_>) -> Result<Self, String> {
        match (as_text(&raw), raw) {
            (Some(value), _) => Size::parse(value),
            (None, Raw::File(DeValue::Integer(_))) => u64::read(raw).map(Size::new),
            _ => want("a size", raw),
        }
    }

    fn show(&self) -> String {
        text(&self.to_string())
    }
}

impl Value for bool {
    fn read(raw: Raw<'_>) -> Result<Self, String> {
        let parsed = match raw {
            Raw::File(value) => value.as_bool(),
            Raw::Text(value) => value.parse().ok(),
        };
        parsed.map_or_else(|| want("true or false", raw), Ok)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}
