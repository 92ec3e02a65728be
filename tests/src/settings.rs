//! What tests need to know of the broker's configuration keys and metric names, in one place.

use crate::metrics::Scrape;

/// Segments so small that a second of load rolls, checkpoints and cleans many of them.
pub const SMALL_SEGMENTS: &str = "
[storage]
segment_size = \"1MiB\"
";

/// Little memory for messages, so that a test sees at once what is held beyond it. And patience with peers that read
/// nothing, because here they are the point.
pub const SMALL_MEMORY: &str = "
[storage]
cache_size = \"32MiB\"
[limits]
write_stall_timeout = \"10m\"
[heartbeat]
interval = \"0s\"
";

/// What the metrics page says about one queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueBooks {
    /// Messages ever stored.
    pub stored: f64,
    /// Messages confirmed.
    pub confirmed: f64,
    /// Messages that outlived their time.
    pub expired: f64,
    /// Messages purged.
    pub purged: f64,
    /// Messages removed at the limit of delivery attempts.
    pub removed: f64,
    /// Messages there now.
    pub depth: f64,
}

impl QueueBooks {
    /// Messages that are there no more.
    pub fn gone(&self) -> f64 {
        self.confirmed + self.expired + self.purged + self.removed
    }
}

/// Reads one queue's numbers.
///
/// **Panics** when the page does not have them: an absent metric is a fault, not a zero.
#[track_caller]
pub fn queue_books(scrape: &Scrape, uri: &str) -> QueueBooks {
    let label = format!("queue=\"{uri}\"");
    let read = |name: &str| {
        let name = format!("mqb_queue_{name}");
        scrape
            .sum(&name, &[&label])
            .unwrap_or_else(|| panic!("no {name} of {uri} among {:?}", scrape.names()))
    };
    QueueBooks {
        stored: read("stored_total"),
        confirmed: read("confirmed_total"),
        expired: read("expired_total"),
        purged: read("purged_total"),
        removed: read("removed_total"),
        depth: read("depth_messages"),
    }
}

/// Heartbeats so fast that a test can wait for them.
pub const FAST_HEARTBEATS: &str = "
[heartbeat]
interval = \"100ms\"
misses = 3
";

/// A `[[domain]]` table.
pub fn domain(name: &str, settings: &[(&str, &str)]) -> String {
    let lines: String = settings
        .iter()
        .map(|(key, value)| format!("{key} = {value}\n"))
        .collect();
    format!("\n[[domain]]\nname = \"{name}\"\n{lines}")
}

/// For tests that restart often: recovery looks through the whole of a segment for frames behind a torn tail, which in a
/// build without optimisation takes seconds for a large one.
pub const QUICK_RESTART: &str = "
[storage]
segment_size = \"4MiB\"
";
