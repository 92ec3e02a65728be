//! What a domain promises about its queues.

use std::time::Duration;

use mqb_queue::QueueSettings;

/// What an ACK means.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// The record is on the medium: survives loss of power.
    #[default]
    Sync,
    /// The record is in the file: survives the death of the broker.
    Flush,
    /// Accepted: survives nothing.
    Memory,
}

impl Durability {
    /// As the configuration spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Flush => "flush",
            Self::Memory => "memory",
        }
    }
}

/// Settings shared by the domains that one rule of the configuration describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainSettings {
    /// What an ACK means.
    pub durability: Durability,
    /// Limits of each queue.
    pub queue: QueueSettings,
    /// How long a message that is sent again is recognised; zero: only while the first one is stored.
    pub deduplication: Duration,
    /// Most queues; 0: unlimited.
    pub max_queues: u32,
}

impl Default for DomainSettings {
    fn default() -> Self {
        Self {
            durability: Durability::Sync,
            queue: QueueSettings::default(),
            deduplication: Duration::from_secs(300),
            max_queues: 10_000,
        }
    }
}

/// A domain in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Name with tier.
    pub name: String,
    /// What it promises.
    pub settings: DomainSettings,
}

impl Domain {
    /// `deduplicationTimeMs` of an openQueueResponse.
    pub fn deduplication_ms(&self) -> i32 {
        i32::try_from(self.settings.deduplication.as_millis()).unwrap_or(i32::MAX)
    }
}
