//! What a domain promises, and which domain a rule is about.

use std::fmt;
use std::time::Duration;

use super::Size;

/// What an ACK means.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// On the disk: survives power loss.
    #[default]
    Sync,
    /// In the file, synced soon: survives `kill -9` of the broker.
    Flush,
    /// In memory only: survives nothing.
    Memory,
}

impl Durability {
    /// As it is written in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Flush => "flush",
            Durability::Memory => "memory",
        }
    }

    /// From the same notation. **Errors**: a text for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "sync" => Ok(Durability::Sync),
            "flush" => Ok(Durability::Flush),
            "memory" => Ok(Durability::Memory),
            _ => Err(format!(
                "`{}` is no durability; choose sync, flush or memory",
                text.escape_default()
            )),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How messages find consumers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Each message to one consumer, those of higher priority first.
    #[default]
    Priority,
}

impl Mode {
    /// As it is written in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Priority => "priority",
        }
    }

    /// From the same notation. **Errors**: a text for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "priority" => Ok(Mode::Priority),
            "fanout" | "broadcast" => Err(format!(
                "mode `{text}` is not available in this version; only priority is"
            )),
            _ => Err(format!(
                "`{}` is no mode; only priority is available",
                text.escape_default()
            )),
        }
    }
}

/// Settings of a domain. Limits are per queue unless they say otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainConfig {
    /// How messages find consumers.
    pub mode: Mode,
    /// What an ACK means.
    pub durability: Durability,
    /// Messages waiting at a time.
    pub max_messages: u64,
    /// Application data waiting at a time.
    pub max_bytes: Size,
    /// Least time that a message is kept; zero: for ever.
    pub ttl: Duration,
    /// Deliveries after which a message whose consumers keep dying is removed; 0: unlimited.
    pub max_delivery_attempts: u32,
    /// How long a repeated PUT is recognised.
    pub deduplication: Duration,
    /// PUTs that are remembered for that at most, per queue.
    pub deduplication_max: u32,
    /// Writers at a time; 0: unlimited.
    pub max_producers: u32,
    /// Readers at a time; 0: unlimited.
    pub max_consumers: u32,
    /// Queues in the domain; 0: unlimited.
    pub max_queues: u32,
}

impl Default for DomainConfig {
    fn default() -> Self {
        Self {
            mode: Mode::Priority,
            durability: Durability::Sync,
            max_messages: 10_000_000,
            max_bytes: Size::new(16 << 30),
            ttl: Duration::from_secs(7 * 86_400),
            max_delivery_attempts: 0,
            deduplication: Duration::from_secs(300),
            deduplication_max: 1_000_000,
            max_producers: 0,
            max_consumers: 0,
            max_queues: 10_000,
        }
    }
}

/// One `[[domain]]` of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainRule {
    /// Which domains it is about.
    pub name: NamePattern,
    /// Their settings: the defaults with the rule's own values.
    pub config: DomainConfig,
}

/// A domain's name, or a pattern in which each `*` stands for any run of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(String);

impl NamePattern {
    /// Letters, digits, `-`, `_`, `.`, `~` and `*`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.~*".contains(c);
        if text.is_empty()
            || text.len() > crate::limits::DOMAIN_BYTES_MAX
            || !text.chars().all(allowed)
        {
            return Err(format!(
                "`{}` is not a domain name or pattern: 1 to {} of letters, digits, `-`, `_`, `.`, and `*` for any text",
                text.escape_default(),
                crate::limits::DOMAIN_BYTES_MAX
            ));
        }
        Ok(Self(text.into()))
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the name itself, not a pattern.
    pub fn is_exactly(&self, name: &str) -> bool {
        self.0 == name
    }

    /// **Cost**: linear in the product of the lengths at worst.
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().expect("split yields at least one part");
        let Some(mut rest) = name.strip_prefix(first) else {
            return false;
        };
        let mut parts = parts.peekable();
        if parts.peek().is_none() {
            return rest.is_empty();
        }
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return rest.ends_with(part);
            }
            // The leftmost place is never worse than a later one.
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        true
    }
}
