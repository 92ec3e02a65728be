//! The broker's configuration: typed, with the source of each value.
//!
//! Precedence: defaults, then the file, then the command line. This module reads no files: it parses text that it is given, so
//! that start, reload and `--check-config` are the same code. The keys, their documentation and their defaults stand in one
//! table (`keys.rs`); a key that is not in it is an error that names the line and the nearest known key.

mod domain;
mod keys;
mod parse;
mod units;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use domain::{DomainConfig, DomainRule, Durability, Mode, NamePattern};
pub use keys::documentation;
pub use units::{Size, format_duration, parse_duration};

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Built in.
    Default,
    /// The configuration file.
    File {
        /// Line in the file, from 1.
        line: usize,
    },
    /// The command line.
    Flag,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File { line } => write!(f, "file, line {line}"),
            Source::Flag => f.write_str("command line"),
        }
    }
}

/// A configuration that cannot be used, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Something in the file.
    #[error("{file}:{line}: {problem}")]
    File {
        /// As given by the caller.
        file: String,
        /// From 1.
        line: usize,
        /// For people, with what to do.
        problem: String,
    },
    /// A flag of the command line.
    #[error("{flag}: {problem}")]
    Flag {
        /// The flag or key.
        flag: String,
        /// For people.
        problem: String,
    },
    /// Values that do not go together.
    #[error("{0}")]
    Conflict(String),
}

/// Output format of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// One line of text per event.
    #[default]
    Text,
    /// One JSON object per event.
    Json,
}

/// Everything an operator can set.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Address for BlazingMQ clients.
    pub listen: SocketAddr,
    /// Address of health and metrics.
    pub http: SocketAddr,
    /// Number of processors; 0: one per core.
    pub processors: u16,
    /// Storage.
    pub storage: StorageConfig,
    /// What one peer may take.
    pub limits: LimitsConfig,
    /// How often a silent peer is asked; zero: never.
    pub heartbeat_interval: Duration,
    /// Questions without an answer after which a connection is given up.
    pub heartbeat_misses: u32,
    /// Time for an orderly stop.
    pub shutdown_deadline: Duration,
    /// Format of the log.
    pub log_format: LogFormat,
    /// `error`, `warn`, `info`, `debug`, `trace`, or per-module directives.
    pub log_level: String,
    /// Whether a domain that the file does not name is created at its first use.
    pub auto_create: bool,
    /// Domains at a time, named and created ones together.
    pub domains_max: u32,
    /// Settings of domains that no rule names, and what rules start from.
    pub defaults: DomainConfig,
    /// Rules of the file, in its order.
    pub domains: Vec<DomainRule>,
    sources: BTreeMap<String, Source>,
}

/// Settings of the data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageConfig {
    /// Holds everything that survives.
    pub data_dir: PathBuf,
    /// Partitions of a new data directory; an existing one keeps its number.
    pub partitions: u16,
    /// Size of a log segment.
    pub segment_size: Size,
    /// How late the log is synced when nobody waits for it.
    pub sync_interval: Duration,
    /// Memory for blocks of the log, all partitions together.
    pub cache_size: Size,
}

/// Caps per connection and on connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Connections at a time.
    pub connections: u32,
    /// Queues open on one connection.
    pub queues_per_connection: u32,
    /// PUT data on its way to storage, per connection.
    pub in_flight: Size,
    /// Output waiting for a slow peer, at which it is cut off.
    pub output: Size,
    /// Time to negotiate.
    pub handshake_timeout: Duration,
    /// Time that a peer may take no byte while output waits.
    pub write_stall_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 30114)),
            http: SocketAddr::from(([127, 0, 0, 1], 8080)),
            processors: 0,
            storage: StorageConfig {
                data_dir: PathBuf::from("./mqb-data"),
                partitions: 4,
                segment_size: Size::mebi(64),
                sync_interval: Duration::from_millis(100),
                // With the tables beside it, a million waiting messages of 1 KiB stay under 400 MiB in all.
                cache_size: Size::mebi(216),
            },
            limits: LimitsConfig {
                connections: 10_000,
                queues_per_connection: 10_000,
                in_flight: Size::mebi(16),
                output: Size::mebi(256),
                handshake_timeout: Duration::from_secs(10),
                write_stall_timeout: Duration::from_secs(30),
            },
            heartbeat_interval: Duration::from_secs(3),
            heartbeat_misses: 10,
            shutdown_deadline: Duration::from_secs(10),
            log_format: LogFormat::Text,
            log_level: "info".into(),
            auto_create: true,
            domains_max: 1000,
            defaults: DomainConfig::default(),
            domains: Vec::new(),
            sources: BTreeMap::new(),
        }
    }
}

impl Config {
    /// Reads a TOML document on top of what is set already. `file` is only for messages.
    ///
    /// **Errors**: the first problem, with its line.
    pub fn apply_file(&mut self, file: &str, text: &str) -> Result<(), ConfigError> {
        parse::apply(self, file, text)
    }

    /// Sets one key as the command line does. `flag` is only for messages.
    ///
    /// A key of `[defaults]` also changes it for the domains of the file that do not set it themselves.
    ///
    /// **Errors**: an unknown key; a value that it cannot have.
    pub fn apply_flag(&mut self, flag: &str, key: &str, value: &str) -> Result<(), ConfigError> {
        let problem = |problem| ConfigError::Flag {
            flag: flag.into(),
            problem,
        };
        let raw = keys::Raw::Text(value);
        if let Some(name) = key.strip_prefix("defaults.") {
            let key = keys::find_domain(name).map_err(problem)?;
            (key.set)(&mut self.defaults, raw).map_err(problem)?;
            for rule in &mut self.domains {
                if !self.sources.contains_key(&keys::rule_path(rule, name)) {
                    (key.set)(&mut rule.config, raw).map_err(problem)?;
                }
            }
        } else {
            (keys::find(key).map_err(problem)?.set)(self, raw).map_err(problem)?;
        }
        self.sources.insert(key.into(), Source::Flag);
        Ok(())
    }

    /// Checks what no single key can.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let conflict = |text: &str| Err(ConfigError::Conflict(text.into()));
        if self.limits.in_flight.bytes() < 1 << 20 {
            return conflict("limits.in_flight must be at least 1MiB");
        }
        if self.limits.output.bytes() < 8 << 20 {
            return conflict(
                "limits.output must be at least 8MiB: twice the largest batch of pushes",
            );
        }
        if self.listen == self.http && self.listen.port() != 0 {
            return conflict("listen.address and http.address must differ");
        }
        if !self.auto_create && self.domains.is_empty() {
            return conflict(
                "domains.auto_create is false and no [[domain]] is named: no queue could ever be opened",
            );
        }
        Ok(())
    }

    /// Settings of a domain by the first rule that names it, else the first pattern that matches, else the defaults if domains
    /// may be created by use.
    pub fn domain(&self, name: &str) -> Option<&DomainConfig> {
        let exact = self.domains.iter().find(|rule| rule.name.is_exactly(name));
        let rule = exact.or_else(|| self.domains.iter().find(|rule| rule.name.matches(name)));
        rule.map(|rule| &rule.config)
            .or_else(|| self.auto_create.then_some(&self.defaults))
    }

    /// Each key with its value and where the value comes from, as a TOML document with comments.
    pub fn print(&self) -> String {
        keys::print(self)
    }

    fn source(&self, path: &str) -> Source {
        self.sources.get(path).copied().unwrap_or(Source::Default)
    }
}

#[cfg(test)]
mod tests;
