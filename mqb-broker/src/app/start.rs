//! From a configuration to a broker that serves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use mqb_core::config::Config;
use mqb_dispatcher::{Dispatcher, DispatcherConfig, Handle};
use rustix::process::Resource;

use super::hooks::{self, Addresses};
use crate::event::{CLUSTER, Event, PARTITION, SESSION};
use crate::failure::Failure;
use crate::http::Pages;
use crate::metrics::Running;
use crate::net::listener::{self, ConnectionStats, Listener, ListenerConfig};
use crate::partition;
use crate::session::{SessionContext, SessionSettings};
use crate::storage::{DataDir, Disk, Environment, Helpers, MemoryBudget, RealDisk};

/// Threads for fdatasync at most; partitions share them.
const SYNCERS_MAX: u16 = 4;
/// Descriptors that the broker needs beside its connections: log files, helpers, HTTP.
const OWN_DESCRIPTORS: u64 = 256;

/// A broker that serves. Fields are dropped in this order: the directory is unlocked last.
pub(super) struct Broker {
    pub(super) dispatcher: Dispatcher<Event>,
    pub(super) listener: Handle<Event>,
    pub(super) connections: Arc<ConnectionStats>,
    pub(super) environment: Environment,
    pub(super) dir: DataDir,
    /// The real address.
    pub(super) listen: SocketAddr,
}

/// Does everything up to the first connection that can be served. Blocks for as long as recovery takes.
///
/// **Errors**: see [`Failure`]; everything that had been started is ended.
pub(super) fn start(
    config: &Arc<Config>,
    pages: &Pages,
    lost: impl Fn(String) + Send + Sync + 'static,
) -> Result<Broker, Failure> {
    let begun = Instant::now();
    raise_descriptors(config);
    // Before anything that takes long: who starts two brokers hears it at once.
    let socket =
        listener::bind(config.listen).with_context(|| format!("listening on {}", config.listen))?;
    let listen = socket.local_addr().context("asking for the port")?;
    let (dir, environment) = open_storage(config)?;
    pages.health.set_partitions(dir.partitions().into());
    let addresses = Arc::<Addresses>::default();
    let hooks = hooks::hooks(Arc::clone(&addresses), lost);
    let dispatcher =
        Dispatcher::start(dispatcher_config(config), hooks).context("starting the processors")?;
    let registrar = dispatcher.registrar();
    let started = partition::start(config, &environment, &dir, &registrar, &|at| {
        pages.health.recovered(at)
    })?;
    for damage in &started.damage {
        tracing::error!(event = "alarm", alarm = "PARTITION_READONLY", %damage, "damaged: readable, takes nothing new");
    }
    // Set once, here.
    let _ = addresses
        .known
        .set((started.registry.clone(), started.partitions));
    let connections = Arc::<ConnectionStats>::default();
    let settings = SessionSettings {
        host_name: host_name(),
        ..SessionSettings::from_config(config)
    };
    let listener = Listener::register(
        &registrar,
        ListenerConfig {
            socket,
            connections_max: config.limits.connections as usize,
            sessions: SessionContext {
                settings: Arc::new(settings),
                registry: started.registry.clone(),
                stats: Arc::clone(&connections),
            },
        },
    );
    pages.metrics.set(Running {
        registry: started.registry,
        connections: Arc::clone(&connections),
        dispatcher: Box::new(dispatcher.stats_reader()),
    });
    tracing::info!(
        event = "broker.ready", listen = %listen, processors = registrar.processors(), partitions = dir.partitions(),
        queues = started.queues, messages = started.messages, seconds = begun.elapsed().as_secs_f64()
    );
    Ok(Broker {
        dispatcher,
        listener,
        connections,
        environment,
        dir,
        listen,
    })
}

fn open_storage(config: &Config) -> Result<(DataDir, Environment), Failure> {
    let storage = &config.storage;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let node = DataDir::random_node().context("asking for randomness")?;
    let dir = DataDir::open(&disk, &storage.data_dir, storage.partitions, || node)?;
    if dir.partitions() != storage.partitions {
        tracing::info!(
            event = "storage.partitions",
            partitions = dir.partitions(),
            configured = storage.partitions,
            "the data directory keeps its number"
        );
    }
    let helpers = Helpers::start(dir.partitions().min(SYNCERS_MAX).into())
        .context("starting storage threads")?;
    let budget = MemoryBudget::new(storage.cache_size.as_usize());
    Ok((
        dir,
        Environment {
            disk,
            helpers: Arc::new(helpers),
            budget,
        },
    ))
}

fn dispatcher_config(config: &Config) -> DispatcherConfig {
    let defaults = DispatcherConfig::default();
    DispatcherConfig {
        processors: if config.processors == 0 {
            defaults.processors
        } else {
            config.processors
        },
        thread_name: "mqb-proc".into(),
        // Sessions have been asked to end before this; who is left did not in time, and must not take that of the partitions.
        stop_order: vec![PARTITION, CLUSTER, SESSION],
        ..defaults
    }
}

/// Takes as many descriptors as the system allows, and says so if they are too few for the configured connections.
fn raise_descriptors(config: &Config) {
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    let before = limit.current;
    limit.current = limit.maximum;
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, limit) {
        limit.current = before;
        tracing::warn!(event = "process.descriptors", %error, "the limit of open files stays as it is");
    }
    let needed = u64::from(config.limits.connections) + OWN_DESCRIPTORS;
    if let Some(limit) = limit.current.filter(|limit| *limit < needed) {
        tracing::warn!(
            event = "process.descriptors",
            limit,
            needed,
            "fewer open files are allowed than limits.connections needs"
        );
    }
}

fn host_name() -> String {
    // For people who look at what their SDK says about its peer; a broker without it works as well.
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "localhost".into(), |name| name.trim().into())
}
