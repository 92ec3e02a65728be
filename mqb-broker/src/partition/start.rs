//! From a data directory to running partitions and a registry that knows their queues.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use mqb_core::PartitionId;
use mqb_core::config::Config;
use mqb_dispatcher::{Handle, Placement, ProcessorId, Registrar};
use mqb_queue::{Counters, RestoredMessage};

use super::client::{Partition, PartitionConfig, PreparedQueue, RecoveredQueue, WallClock};
use crate::domain::{PartitionEntry, Registry, RegistryConfig};
use crate::event::{CLUSTER, Event, PARTITION};
use crate::storage::{
    self, Damage, DataDir, Environment, PartitionLog, RecoveryProgress, StorageConfig,
    StorageError, WindowLimits,
};

/// Most queues of a broker: each has an address on its processor.
const QUEUES_MAX: usize = 100_000;

/// What was started.
pub struct Started {
    /// Where opens, sessions and queries go.
    pub registry: Handle<Event>,
    /// The partitions, in the order of their numbers.
    pub partitions: Vec<Handle<Event>>,
    /// Where durable bytes are bad; those partitions are read-only.
    pub damage: Vec<Damage>,
    /// Queues found.
    pub queues: usize,
    /// Messages found.
    pub messages: u64,
}

/// A partition whose log is open and whose engines are rebuilt, not yet on its processor.
struct Opened {
    log: PartitionLog,
    queues: Vec<PreparedQueue>,
    damage: Vec<Damage>,
    messages: u64,
    /// Given to the log at its opening, filled when the partition has an address.
    address: Arc<OnceLock<Handle<Event>>>,
}

/// Opens all partitions, in parallel, and puts them on their processors. Blocks for as long as recovery takes: called on
/// a start-up thread. `progress` is called from several threads.
///
/// **Errors**: a log cannot be opened. Damage inside one is no error.
pub fn start(
    config: &Arc<Config>,
    environment: &Environment,
    dir: &DataDir,
    registrar: &Registrar<Event>,
    progress: &(dyn Fn(RecoveryProgress) + Sync),
) -> Result<Started, StorageError> {
    let wall_clock: WallClock = Arc::new(wall_clock_ms);
    start_at(config, environment, dir, registrar, progress, &wall_clock)
}

/// The same by another wall clock.
pub(super) fn start_at(
    config: &Arc<Config>,
    environment: &Environment,
    dir: &DataDir,
    registrar: &Registrar<Event>,
    progress: &(dyn Fn(RecoveryProgress) + Sync),
    wall_clock: &WallClock,
) -> Result<Started, StorageError> {
    let opened = open_all(config, environment, dir, progress)?;
    let (mut partitions, mut damage) = (Vec::new(), Vec::new());
    let (mut queue_count, mut message_count) = (0, 0);
    let mut entries = Vec::with_capacity(opened.len());
    for (number, opened) in (0..).zip(opened) {
        let Opened {
            log,
            queues,
            address,
            ..
        } = opened;
        damage.extend(opened.damage);
        queue_count += queues.len();
        message_count += opened.messages;
        let uris = queues.iter().map(|queue| queue.uri().to_owned()).collect();
        let partition = PartitionConfig {
            id: PartitionId(number),
            wall_clock: Arc::clone(wall_clock),
        };
        let at = Placement::Processor(ProcessorId(number % registrar.processors()), PARTITION);
        let handle = registrar.register(at, move |core, cx| {
            Box::new(Partition::new(core, cx, partition, log, queues))
        });
        // A helper that had news before this woke nobody; the partition looks once by itself.
        address.set(handle.clone()).expect("set once");
        partitions.push(handle.clone());
        entries.push(PartitionEntry {
            handle,
            queues: uris,
        });
    }
    let registry = RegistryConfig {
        config: Arc::clone(config),
        max_queues: QUEUES_MAX,
    };
    let at = Placement::Processor(ProcessorId(0), CLUSTER);
    let registry = registrar.register(at, move |core, _| {
        Box::new(Registry::new(core, registry, entries))
    });
    Ok(Started {
        registry,
        partitions,
        damage,
        queues: queue_count,
        messages: message_count,
    })
}

/// What the configuration means for logs.
pub fn storage_config(config: &Config) -> StorageConfig {
    let defaults = &config.defaults;
    StorageConfig {
        segment_bytes: config.storage.segment_size.bytes(),
        sync_interval_ms: u64::try_from(config.storage.sync_interval.as_millis())
            .unwrap_or(u64::MAX),
        window: WindowLimits {
            duration_ms: u64::try_from(defaults.deduplication.as_millis()).unwrap_or(u64::MAX),
            max_entries: defaults.deduplication_max as usize,
        },
        ..StorageConfig::default()
    }
}

fn open_all(
    config: &Arc<Config>,
    environment: &Environment,
    dir: &DataDir,
    progress: &(dyn Fn(RecoveryProgress) + Sync),
) -> Result<Vec<Opened>, StorageError> {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(8));
    let next = Mutex::new(0..dir.partitions());
    let opened = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some(number) = lock(&next).next() else {
                        return;
                    };
                    let result = open(config, environment, dir, PartitionId(number), progress);
                    lock(&opened).push((number, result));
                }
            });
        }
    });
    let mut opened = opened.into_inner().unwrap_or_else(PoisonError::into_inner);
    opened.sort_unstable_by_key(|(number, _)| *number);
    opened.into_iter().map(|(_, result)| result).collect()
}

fn open(
    config: &Arc<Config>,
    environment: &Environment,
    dir: &DataDir,
    id: PartitionId,
    progress: &(dyn Fn(RecoveryProgress) + Sync),
) -> Result<Opened, StorageError> {
    let address: Arc<OnceLock<Handle<Event>>> = Arc::default();
    let wakes = Arc::clone(&address);
    let notify = Arc::new(move || {
        if let Some(handle) = wakes.get() {
            handle.post(Event::Wake);
        }
    });
    let path = dir.partition_path(id);
    let settings = storage_config(config);
    let (log, recovered) =
        PartitionLog::open(environment, &path, id, settings, notify, &mut |at| {
            progress(at)
        })?;
    let messages = recovered
        .queues
        .iter()
        .map(|queue| queue.live.len() as u64)
        .sum();
    let queues = recovered
        .queues
        .into_iter()
        .map(|queue| PreparedQueue::new(queue.into(), config))
        .collect();
    Ok(Opened {
        log,
        queues,
        damage: recovered.damage,
        messages,
        address,
    })
}

impl From<storage::RecoveredQueue> for RecoveredQueue {
    fn from(queue: storage::RecoveredQueue) -> Self {
        let message = |message: storage::RecoveredMessage| RestoredMessage {
            sequence: message.sequence,
            guid: message.guid,
            format: message.format,
            len: message.len,
            accepted_at_ms: message.accepted_at_ms,
        };
        let counters = queue.counters;
        Self {
            id: queue.id,
            uri: queue.uri.as_ref().into(),
            messages: queue.live.into_iter().map(message).collect(),
            counters: Counters {
                stored: counters.put,
                confirmed: counters.confirmed,
                expired: counters.expired,
                purged: counters.purged,
                removed: counters.removed,
            },
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A thread that panicked while opening is reported by the scope; what the others did stands.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Milliseconds since the Unix epoch.
fn wall_clock_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
