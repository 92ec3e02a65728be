//! What a domain promises about its queues.

use std::time::Duration;

/// Settings of one queue. Changes take effect with the next operation that looks at them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// Most messages stored at a time; the one that would exceed it is refused. (The reference broker admits one more.)
    pub max_messages: u64,
    /// Most application data stored at a time; the message that would exceed it is refused. **Units**: bytes.
    pub max_bytes: u64,
    /// Share of a limit at which the queue counts as nearly full, in percent; it counts as relaxed again at half of that.
    pub high_watermark_percent: u8,
    /// Least time that a message is kept; `None`: for ever.
    pub ttl: Option<Duration>,
    /// Deliveries after which a message whose consumers keep dying is removed; 0: unlimited.
    pub max_delivery_attempts: u32,
    /// Most writers open at a time; 0: unlimited.
    pub max_producers: u32,
    /// Most readers open at a time; 0: unlimited.
    pub max_consumers: u32,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            max_messages: 10_000_000,
            max_bytes: 64 << 30,
            high_watermark_percent: 80,
            ttl: None,
            max_delivery_attempts: 0,
            max_producers: 0,
            max_consumers: 0,
        }
    }
}
