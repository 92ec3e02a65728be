//! A domain in use, and what its settings mean for its queues.

use mqb_core::config::{Config, DomainConfig};
use mqb_queue::QueueSettings;

/// Share of a quota at which a queue counts as nearly full. **Units**: percent.
const HIGH_WATERMARK_PERCENT: u8 = 80;

/// A domain in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Name with tier.
    pub name: String,
    /// What it promises.
    pub config: DomainConfig,
}

impl Domain {
    /// A domain whose queues recovery found: they are kept even if the configuration does not name it any more.
    pub fn recovered(name: &str, config: &Config) -> Self {
        let domain = config.domain(name).unwrap_or(&config.defaults);
        Self {
            name: name.into(),
            config: domain.clone(),
        }
    }

    /// What its queues are told.
    pub fn queue_settings(&self) -> QueueSettings {
        let config = &self.config;
        QueueSettings {
            max_messages: config.max_messages,
            max_bytes: config.max_bytes.bytes(),
            high_watermark_percent: HIGH_WATERMARK_PERCENT,
            ttl: Some(config.ttl).filter(|ttl| !ttl.is_zero()),
            max_delivery_attempts: config.max_delivery_attempts,
            max_producers: config.max_producers,
            max_consumers: config.max_consumers,
        }
    }

    /// How long a repeated PUT is recognised. **Units**: milliseconds.
    pub fn deduplication_ms(&self) -> u64 {
        u64::try_from(self.config.deduplication.as_millis()).unwrap_or(u64::MAX)
    }
}
