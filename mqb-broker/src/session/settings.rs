//! What an operator can set about sessions, and the caps that hold whatever was set.

use std::time::Duration;

use mqb_core::config::Config;

/// Limits and identity used by every session. Shared, immutable.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// What this broker calls itself to its peers.
    pub host_name: String,
    /// `brokerVersion`: major * 10000 + minor * 100 + patch, or 999999 for a development build.
    pub broker_version: i32,
    /// Time from the first byte possible to the end of the negotiation.
    pub handshake_timeout: Duration,
    /// How often a silent peer is asked; zero: never.
    pub heartbeat_interval: Duration,
    /// How many questions in a row may stay without any answer.
    pub heartbeat_misses: u32,
    /// A peer that takes no byte for so long while output waits is cut off.
    pub write_stall_timeout: Duration,
    /// A request that its queue does not answer for so long is answered with a timeout.
    pub request_timeout: Duration,
    /// How long a peer may take to close after its disconnect was answered.
    pub linger_timeout: Duration,
    /// How long the end of a session waits for its partitions.
    pub farewell_timeout: Duration,
    /// PUT data that may be on its way to storage before the socket is no longer read. **Units**: bytes.
    pub in_flight_bytes_max: usize,
    /// Waiting output above which its queues stop pushing. **Units**: bytes.
    pub output_high_bytes: usize,
    /// Waiting output below which they go on. **Units**: bytes.
    pub output_low_bytes: usize,
    /// Waiting output, beyond one message of the largest size, at which the connection is cut off. **Units**: bytes.
    pub output_bytes_max: usize,
    /// Queue numbers (`qId`) open at once on one connection.
    pub queues_max: usize,
    /// Streams (app ids) open at once on one connection, over all its queues.
    pub streams_max: usize,
    /// Requests in work or waiting on one connection.
    pub requests_max: usize,
}

impl SessionSettings {
    /// What the operator set, the rest at its default.
    pub fn from_config(config: &Config) -> Self {
        let limits = &config.limits;
        let output_bytes_max = limits.output.as_usize();
        let defaults = Self::default();
        let output_high_bytes = defaults.output_high_bytes.min(output_bytes_max / 2);
        Self {
            handshake_timeout: limits.handshake_timeout,
            heartbeat_interval: config.heartbeat_interval,
            heartbeat_misses: config.heartbeat_misses,
            write_stall_timeout: limits.write_stall_timeout,
            in_flight_bytes_max: limits.in_flight.as_usize(),
            output_high_bytes,
            output_low_bytes: output_high_bytes / 4,
            output_bytes_max,
            queues_max: limits.queues_per_connection as usize,
            streams_max: limits.queues_per_connection as usize * 2,
            ..defaults
        }
    }
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            host_name: String::new(),
            broker_version: 999_999,
            handshake_timeout: Duration::from_secs(10),
            heartbeat_interval: Duration::from_secs(3),
            heartbeat_misses: 10,
            write_stall_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(30),
            linger_timeout: Duration::from_secs(5),
            farewell_timeout: Duration::from_secs(30),
            in_flight_bytes_max: 16 << 20,
            output_high_bytes: 4 << 20,
            output_low_bytes: 1 << 20,
            output_bytes_max: 256 << 20,
            queues_max: 10_000,
            streams_max: 20_000,
            requests_max: 20_000,
        }
    }
}
