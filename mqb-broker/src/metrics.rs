//! `/metrics`: what the registry, the partitions, the dispatcher and the operating system say at this moment.
//!
//! Nothing is kept: each scrape asks and writes what it was told. Names and labels are documented in docs/operations.md; they are
//! bounded by the number of queues, partitions and processors, never by connections or messages.

mod process;
mod write;

use std::fmt;
use std::sync::{Arc, OnceLock};

use mqb_dispatcher::{DispatcherStats, Handle};
use prometheus_client::registry::Registry;

use crate::event::{Event, PartitionReport, Query, QueryAnswer, QueryRequest, QueueReport};
use crate::health::{Health, Phase};
use crate::net::listener::ConnectionStats;
use process::ProcessStats;

/// Queues that one page lists. Their figures are what a page of a broker with very many queues consists of.
const QUEUES_MAX: usize = 10_000;

/// Where figures come from once the broker runs.
pub struct Running {
    /// Answers queries.
    pub registry: Handle<Event>,
    /// Of connections.
    pub connections: Arc<ConnectionStats>,
    /// Of processors.
    pub dispatcher: Box<dyn Fn() -> DispatcherStats + Send + Sync>,
}

/// Where figures come from. Filled when the broker is ready.
#[derive(Default)]
pub struct MetricsSource {
    running: OnceLock<Running>,
}

/// What one scrape was told.
struct Snapshot {
    is_ready: bool,
    is_draining: bool,
    process: ProcessStats,
    running: Option<RunningSnapshot>,
}

struct RunningSnapshot {
    queues: Vec<QueueReport>,
    queues_omitted: usize,
    partitions: Vec<PartitionReport>,
    dispatcher: DispatcherStats,
    connections: Connections,
}

/// [`ConnectionStats`] as numbers.
struct Connections {
    open: u64,
    accepted: u64,
    refused: u64,
    accept_errors: u64,
    stale_pushes: u64,
    rejected_puts: u64,
}

impl MetricsSource {
    /// The broker runs. Only the first call counts.
    pub fn set(&self, running: Running) {
        // Set once at the end of start-up; a second source would be of the same broker.
        let _ = self.running.set(running);
    }

    /// The page. Waits for every partition; bounded by the caller.
    ///
    /// **Errors**: only of formatting.
    pub async fn render(&self, health: &Health) -> Result<String, fmt::Error> {
        let phase = health.phase();
        let running = match self.running.get() {
            Some(running) => Some(running.ask().await),
            None => None,
        };
        let snapshot = Snapshot {
            is_ready: phase == Phase::Ready,
            is_draining: phase == Phase::Draining,
            process: ProcessStats::read(),
            running,
        };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(snapshot));
        let mut text = String::with_capacity(16 << 10);
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Running {
    async fn ask(&self) -> RunningSnapshot {
        let mut queues = match self.query(QueryRequest::Queues { domain: None }).await {
            Some(QueryAnswer::Queues(queues)) => queues,
            _ => Vec::new(),
        };
        let queues_omitted = queues.len().saturating_sub(QUEUES_MAX);
        queues.truncate(QUEUES_MAX);
        let partitions = match self.query(QueryRequest::Partitions).await {
            Some(QueryAnswer::Partitions(partitions)) => partitions,
            _ => Vec::new(),
        };
        RunningSnapshot {
            queues,
            queues_omitted,
            partitions,
            dispatcher: (self.dispatcher)(),
            connections: Connections::read(&self.connections),
        }
    }

    /// `None` when the broker stops before it answers.
    async fn query(&self, request: QueryRequest) -> Option<QueryAnswer> {
        let (sender, answer) = tokio::sync::oneshot::channel();
        // Whoever asked may have given up waiting; then nobody needs the answer.
        let reply = Box::new(move |answer| drop(sender.send(answer)));
        self.registry
            .post(Event::Query(Box::new(Query { request, reply })));
        answer.await.ok()
    }
}

impl Connections {
    fn read(stats: &ConnectionStats) -> Self {
        use std::sync::atomic::Ordering::Relaxed;
        Self {
            open: stats.open.load(Relaxed) as u64,
            accepted: stats.accepted.load(Relaxed),
            refused: stats.refused.load(Relaxed),
            accept_errors: stats.accept_errors.load(Relaxed),
            stale_pushes: stats.stale_pushes.load(Relaxed),
            rejected_puts: stats.rejected_puts.load(Relaxed),
        }
    }
}
