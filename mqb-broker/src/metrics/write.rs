//! The page: every metric with its name, help and labels.

use std::fmt::{self, Write as _};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{RunningSnapshot, Snapshot};
use crate::event::{PartitionReport, QueueReport};
use crate::storage::SYNC_BUCKETS_US;

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

/// Writes metrics one after the other.
struct Page<'a> {
    encoder: DescriptorEncoder<'a>,
}

type Labels<'a, const N: usize> = [(&'static str, &'a str); N];

impl Page<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: impl Into<Number>) -> fmt::Result {
        self.gauges(name, help, [([], value.into())])
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Into<Number>) -> fmt::Result {
        self.counters(name, help, [([], value.into())])
    }

    fn gauges<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'l, N>, Number)>,
    ) -> fmt::Result {
        let metric_type = prometheus_client::metrics::MetricType::Gauge;
        let mut family = self
            .encoder
            .encode_descriptor(name, help, None, metric_type)?;
        for (labels, value) in values {
            let metric = family.encode_family(&labels)?;
            match value {
                Number::Whole(value) => {
                    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(metric)?
                }
                Number::Real(value) => ConstGauge::new(value).encode(metric)?,
            }
        }
        Ok(())
    }

    fn counters<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'l, N>, Number)>,
    ) -> fmt::Result {
        let metric_type = prometheus_client::metrics::MetricType::Counter;
        let mut family = self
            .encoder
            .encode_descriptor(name, help, None, metric_type)?;
        for (labels, value) in values {
            let metric = family.encode_family(&labels)?;
            match value {
                Number::Whole(value) => ConstCounter::new(value).encode(metric)?,
                Number::Real(value) => ConstCounter::new(value).encode(metric)?,
            }
        }
        Ok(())
    }
}

/// A value: most are counts.
#[derive(Clone, Copy)]
enum Number {
    Whole(u64),
    Real(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<u32> for Number {
    fn from(value: u32) -> Self {
        Self::Whole(value.into())
    }
}

impl From<usize> for Number {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let page = &mut Page { encoder };
        page.gauges(
            "mqb_build_info",
            "1, with the version that runs.",
            [([("version", env!("CARGO_PKG_VERSION"))], true.into())],
        )?;
        page.gauge(
            "mqb_ready",
            "1 when clients are served, as /readyz.",
            self.is_ready,
        )?;
        page.gauge(
            "mqb_draining",
            "1 when the broker is stopping.",
            self.is_draining,
        )?;
        let process = &self.process;
        page.counter(
            "mqb_process_cpu_seconds",
            "CPU time, user and system.",
            process.cpu_seconds,
        )?;
        page.gauge(
            "mqb_process_resident_memory_bytes",
            "Resident memory.",
            process.resident_bytes,
        )?;
        page.gauge(
            "mqb_process_open_fds",
            "Open file descriptors.",
            process.open_fds,
        )?;
        page.gauge(
            "mqb_process_max_fds",
            "Limit of open file descriptors.",
            process.max_fds,
        )?;
        match &self.running {
            Some(running) => running.write(page),
            None => Ok(()),
        }
    }
}

impl RunningSnapshot {
    fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        self.write_connections(page)?;
        self.write_queues(page)?;
        self.write_alarms(page)?;
        self.write_storage(page)?;
        self.write_syncs(page)?;
        self.write_dispatcher(page)
    }

    fn write_connections(&self, page: &mut Page<'_>) -> fmt::Result {
        let stats = &self.connections;
        page.gauge("mqb_connections", "Open connections.", stats.open)?;
        page.counter(
            "mqb_connections_accepted",
            "Connections accepted.",
            stats.accepted,
        )?;
        page.counter(
            "mqb_connections_refused",
            "Connections closed at once: there were too many.",
            stats.refused,
        )?;
        page.counter(
            "mqb_accept_errors",
            "Failures to accept for want of descriptors or memory.",
            stats.accept_errors,
        )?;
        page.counter(
            "mqb_put_rejected",
            "PUTs refused before they came to a queue: malformed or too large.",
            stats.rejected_puts,
        )?;
        page.counter(
            "mqb_push_stale",
            "Messages not sent because their subscription had ended; redelivered.",
            stats.stale_pushes,
        )
    }

    fn write_queues(&self, page: &mut Page<'_>) -> fmt::Result {
        page.gauge(
            "mqb_queues",
            "Queues.",
            self.queues.len() + self.queues_omitted,
        )?;
        page.gauge(
            "mqb_queues_omitted",
            "Queues that this page does not list because there are too many.",
            self.queues_omitted,
        )?;
        type Read = fn(&QueueReport) -> Number;
        let gauges: [(&str, &str, Read); 6] = [
            ("depth_messages", "Messages stored and not settled.", |q| {
                q.messages.into()
            }),
            (
                "depth_bytes",
                "Application data of messages stored and not settled.",
                |q| q.bytes.into(),
            ),
            (
                "oldest_message_age_seconds",
                "Age of the oldest message; 0 if there is none.",
                |q| (q.oldest_age_ms as f64 / 1000.0).into(),
            ),
            (
                "unconfirmed_messages",
                "Messages handed to consumers and not confirmed.",
                |q| q.unconfirmed.into(),
            ),
            ("producers", "Handles that may write.", |q| {
                q.producers.into()
            }),
            ("consumers", "Handles that may read.", |q| {
                q.consumers.into()
            }),
        ];
        let counters: [(&str, &str, Read); 8] = [
            (
                "put",
                "PUTs judged, refused ones included, since the start.",
                |q| q.puts.into(),
            ),
            ("nack", "PUTs refused since the start.", |q| q.nacks.into()),
            (
                "push",
                "Messages handed to consumers since the start, repeated ones included.",
                |q| q.pushes.into(),
            ),
            (
                "stored",
                "Messages stored since the queue was created.",
                |q| q.stored.into(),
            ),
            (
                "confirmed",
                "Messages confirmed since the queue was created.",
                |q| q.confirmed.into(),
            ),
            (
                "expired",
                "Messages whose time to live passed, since the queue was created.",
                |q| q.expired.into(),
            ),
            (
                "purged",
                "Messages purged by an operator since the queue was created.",
                |q| q.purged.into(),
            ),
            (
                "removed",
                "Messages removed after too many deliveries, since the queue was created.",
                |q| q.removed.into(),
            ),
        ];
        for (name, help, read) in gauges {
            let values = self.queues.iter().map(|q| {
                (
                    [("domain", domain(&q.uri)), ("queue", q.uri.as_str())],
                    read(q),
                )
            });
            page.gauges(&format!("mqb_queue_{name}"), help, values)?;
        }
        for (name, help, read) in counters {
            let values = self.queues.iter().map(|q| {
                (
                    [("domain", domain(&q.uri)), ("queue", q.uri.as_str())],
                    read(q),
                )
            });
            page.counters(&format!("mqb_queue_{name}"), help, values)?;
        }
        Ok(())
    }

    /// One gauge per kind of alarm, with a line in the log of the same name. 0 when all is well.
    fn write_alarms(&self, page: &mut Page<'_>) -> fmt::Result {
        let count =
            |is: fn(&PartitionReport) -> u64| self.partitions.iter().map(is).sum::<u64>().into();
        let alarms = [
            (
                [("kind", "partition_readonly")],
                count(|p| p.is_failed.into()),
            ),
            ([("kind", "partition_full")], count(|p| p.is_full.into())),
            ([("kind", "queue_full")], count(|p| p.queues_full)),
            ([("kind", "queue_high_watermark")], count(|p| p.queues_high)),
            (
                [("kind", "deduplication_shortened")],
                count(|p| u64::from(p.storage.window_shortened > 0)),
            ),
            (
                [("kind", "blocks_lost")],
                count(|p| u64::from(p.storage.lost_blocks > 0)),
            ),
        ];
        page.gauges(
            "mqb_alarm",
            "Partitions or queues in this state; anything but 0 wants attention.",
            alarms,
        )?;
        page.counter(
            "mqb_poison_messages",
            "Messages removed because their consumers kept dying.",
            self.partitions
                .iter()
                .map(|p| p.poison_messages)
                .sum::<u64>(),
        )
    }

    fn write_storage(&self, page: &mut Page<'_>) -> fmt::Result {
        type Read = fn(&PartitionReport) -> Number;
        let numbers: Vec<String> = self
            .partitions
            .iter()
            .map(|p| p.partition.to_string())
            .collect();
        let gauges: [(&str, &str, Read); 10] = [
            ("partition_queues", "Queues of the partition.", |p| {
                p.queues.into()
            }),
            (
                "partition_pending_acks",
                "PUTs that wait for their durability level.",
                |p| p.pending_acks.into(),
            ),
            ("storage_segments", "Files of the log.", |p| {
                p.storage.segments.into()
            }),
            ("storage_disk_bytes", "Size of the log's files.", |p| {
                p.storage.disk_bytes.into()
            }),
            (
                "storage_live_messages",
                "Messages in the log that are not settled.",
                |p| p.storage.live_messages.into(),
            ),
            (
                "storage_live_bytes",
                "Estimated part of the log that is not settled.",
                |p| p.storage.live_bytes.into(),
            ),
            (
                "storage_unsynced_entries",
                "Entries that are not durable yet.",
                |p| p.storage.unsynced_entries.into(),
            ),
            (
                "storage_deduplication_entries",
                "GUIDs that are remembered.",
                |p| p.storage.window_entries.into(),
            ),
            (
                "storage_table_bytes",
                "Memory of tables and windows.",
                |p| p.storage.table_bytes.into(),
            ),
            (
                "storage_read_only",
                "1 if the partition takes nothing more.",
                |p| p.is_failed.into(),
            ),
        ];
        let counters: [(&str, &str, Read); 6] = [
            ("storage_written_bytes", "Bytes written to the log.", |p| {
                p.storage.written_bytes.into()
            }),
            ("storage_writes", "Write calls.", |p| {
                p.storage.writes.into()
            }),
            (
                "storage_read_bytes",
                "Bytes read back because they were no longer in memory.",
                |p| p.storage.read_bytes.into(),
            ),
            (
                "storage_carried_bytes",
                "Bytes of live messages that cleaning moved.",
                |p| p.storage.carried_bytes.into(),
            ),
            ("storage_checkpoints", "Checkpoints written.", |p| {
                p.storage.checkpoints.into()
            }),
            (
                "storage_deduplication_shortened",
                "GUIDs forgotten early because of the cap.",
                |p| p.storage.window_shortened.into(),
            ),
        ];
        let labelled = |read: Read| {
            let both = numbers.iter().zip(&self.partitions);
            both.map(move |(number, p)| ([("partition", number.as_str())], read(p)))
        };
        for (name, help, read) in gauges {
            page.gauges(&format!("mqb_{name}"), help, labelled(read))?;
        }
        for (name, help, read) in counters {
            page.counters(&format!("mqb_{name}"), help, labelled(read))?;
        }
        // One budget for all of them.
        let blocks = self
            .partitions
            .iter()
            .map(|p| p.storage.block_bytes)
            .max()
            .unwrap_or(0);
        page.gauge(
            "mqb_storage_cache_bytes",
            "Memory of blocks of the log, all partitions together.",
            blocks,
        )
    }

    fn write_syncs(&self, page: &mut Page<'_>) -> fmt::Result {
        let help = "Time of fdatasync calls on the log.";
        let metric_type = prometheus_client::metrics::MetricType::Histogram;
        let mut family =
            page.encoder
                .encode_descriptor("mqb_storage_fsync_seconds", help, None, metric_type)?;
        for partition in &self.partitions {
            let storage = &partition.storage;
            let bounds = SYNC_BUCKETS_US
                .iter()
                .map(|us| *us as f64 / 1e6)
                .chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(storage.sync_buckets).collect();
            let number = partition.partition.to_string();
            let labels = [("partition", number.as_str())];
            family
                .encode_family(&labels)?
                .encode_histogram::<NoLabelSet>(
                    storage.sync_ns_total as f64 / 1e9,
                    storage.sync_buckets.iter().sum(),
                    &buckets,
                    None,
                )?;
        }
        Ok(())
    }

    fn write_dispatcher(&self, page: &mut Page<'_>) -> fmt::Result {
        type Read = fn(&mqb_dispatcher::ProcessorStats) -> Number;
        let processors = &self.dispatcher.processors;
        let mut numbers = Vec::with_capacity(processors.len());
        for processor in processors {
            let mut number = String::new();
            write!(number, "{}", processor.processor.index())?;
            numbers.push(number);
        }
        let gauges: [(&str, &str, Read); 6] = [
            ("depth", "Events that wait.", |p| p.depth.into()),
            (
                "depth_max",
                "Most events that ever waited at the start of a turn.",
                |p| p.depth_max.into(),
            ),
            ("clients", "Sessions, partitions and other clients.", |p| {
                p.clients.into()
            }),
            ("members", "Queues.", |p| p.members.into()),
            ("timers_pending", "Timers that wait.", |p| {
                p.timers_pending.into()
            }),
            (
                "handler_seconds_max",
                "The longest handler among those timed.",
                |p| (p.handler_ns_max as f64 / 1e9).into(),
            ),
        ];
        let counters: [(&str, &str, Read); 10] = [
            ("events", "Events delivered.", |p| p.events.into()),
            (
                "local_events",
                "Of those, posted on the processor itself.",
                |p| p.local_events.into(),
            ),
            ("turns", "Turns.", |p| p.turns.into()),
            ("flushes", "Flushes of clients.", |p| p.flushes.into()),
            ("sleeps", "Times it went to sleep.", |p| p.sleeps.into()),
            (
                "wakes",
                "Times another thread woke it: at most one per sleep.",
                |p| p.wakes.into(),
            ),
            ("stale_drops", "Events for clients that had gone.", |p| {
                p.stale_drops.into()
            }),
            (
                "overshoot",
                "Batches that came while it was over its high mark.",
                |p| p.overshoot.into(),
            ),
            ("panics", "Handlers that panicked: each is a defect.", |p| {
                p.panics.into()
            }),
            ("stuck", "Turns in which a handler was found stuck.", |p| {
                p.stuck.into()
            }),
        ];
        let labelled = |read: Read| {
            let both = numbers.iter().zip(processors);
            both.map(move |(number, p)| ([("processor", number.as_str())], read(p)))
        };
        for (name, help, read) in gauges {
            page.gauges(&format!("mqb_dispatcher_{name}"), help, labelled(read))?;
        }
        for (name, help, read) in counters {
            page.counters(&format!("mqb_dispatcher_{name}"), help, labelled(read))?;
        }
        Ok(())
    }
}

/// `a.b.~tier` of `bmq://a.b.~tier/queue`.
fn domain(uri: &str) -> &str {
    let rest = uri.strip_prefix("bmq://").unwrap_or(uri);
    rest.split_once('/').map_or(rest, |(domain, _)| domain)
}
