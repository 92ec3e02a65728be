//! A partition log driven step by step on a [`FakeDisk`], next to a naive model of what must be in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use mqb_broker::storage::{
    Duty, Environment, Helpers, MemoryBudget, PartitionLog, Progress, Recovered, StorageConfig,
    StorageError, WindowLimits,
};
use mqb_core::{DataFormat, Guid, PartitionId, QueueId, Sequence};
use mqb_queue::{Fetch, MessageStore, NewMessage, Settled, StoreError};

use crate::fake_disk::FakeDisk;
use crate::rng::Rng;

/// What was done with a message.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its queue.
    pub queue: QueueId,
    /// Its number, from which GUID and data follow.
    pub number: u64,
    /// **Units**: bytes.
    pub len: usize,
    /// It was seen durable: the producer has its ACK.
    pub durable: bool,
    /// Settled; the last record appended then.
    pub settled_at: Option<Sequence>,
    /// The settling was seen durable.
    pub settled_durable: bool,
}

/// GUID of message `number`.
pub fn guid(number: u64) -> Guid {
    let mut guid = [0x40; 16];
    guid[..8].copy_from_slice(&number.to_le_bytes());
    Guid(guid)
}

/// Data of message `number`.
pub fn data(number: u64, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (number as usize * 31 + i * 7) as u8)
        .collect()
}

/// Small enough that every run rolls, checkpoints and cleans.
pub fn tiny() -> StorageConfig {
    StorageConfig {
        segment_bytes: 8 << 10,
        block_bytes: 1 << 10,
        carry_bytes: 2 << 10,
        reserve_bytes: 32 << 10,
        window: WindowLimits {
            duration_ms: 1 << 40,
            max_entries: 1_000_000,
        },
        ..StorageConfig::default()
    }
}

/// The directory of the partition.
pub fn dir() -> PathBuf {
    PathBuf::from("/data/p0000")
}

/// Opens a partition on a disk, with helpers that are stepped by hand.
pub fn open(
    disk: &FakeDisk,
    config: &StorageConfig,
    budget: usize,
) -> Result<(Environment, PartitionLog, Recovered), StorageError> {
    let environment = Environment {
        disk: Arc::new(disk.clone()),
        helpers: Arc::new(Helpers::manual()),
        budget: MemoryBudget::new(budget),
    };
    let (log, recovered) = PartitionLog::open(
        &environment,
        Path::new(&dir()),
        PartitionId(0),
        config.clone(),
        Arc::new(|| {}),
        &mut |_| {},
    )?;
    Ok((environment, log, recovered))
}

/// See the module.
pub struct World {
    /// The disk; shared with the log.
    pub disk: FakeDisk,
    /// Settings of each start.
    pub config: StorageConfig,
    /// Helpers of the running log.
    pub environment: Environment,
    /// The running log.
    pub log: PartitionLog,
    /// All messages that may be in the log or were settled, by place.
    pub messages: BTreeMap<Sequence, Message>,
    /// Queues that exist for sure.
    pub queues: Vec<QueueId>,
    /// Random messages may exceed a segment.
    pub large: bool,
    /// PUTs refused for want of space.
    pub refused: u64,
    /// Starts so far.
    pub starts: u64,
    number: u64,
    now_ms: u64,
    budget: usize,
}

impl World {
    /// An empty log with two durable queues.
    pub fn new(seed: u64, config: StorageConfig, budget: usize) -> World {
        let disk = FakeDisk::new(seed);
        let (environment, mut log, _) = open(&disk, &config, budget).expect("an empty disk");
        let queues =
            ["bmq://a.b/one", "bmq://a.b/two"].map(|uri| log.create_queue(uri).expect("space").0);
        let mut world = World {
            disk,
            config,
            environment,
            log,
            messages: BTreeMap::new(),
            queues: queues.to_vec(),
            large: true,
            refused: 0,
            starts: 1,
            number: 0,
            now_ms: 1_000_000,
            budget,
        };
        world.settle_down();
        world
    }

    /// Stores a message.
    pub fn put(&mut self, queue: QueueId, len: usize) -> Result<Sequence, StoreError> {
        let number = self.number;
        let owner = Bytes::from(data(number, len));
        let message = NewMessage {
            guid: guid(number),
            format: DataFormat(0),
            accepted_at_ms: self.now_ms,
            data: &owner,
            owner: &owner,
        };
        let sequence = self
            .log
            .put(queue, &message)
            .inspect_err(|_| self.refused += 1)?;
        self.number += 1;
        let message = Message {
            queue,
            number,
            len,
            durable: false,
            settled_at: None,
            settled_durable: false,
        };
        assert!(
            self.messages.insert(sequence, message).is_none(),
            "a place is given once"
        );
        Ok(sequence)
    }

    /// Settles a message.
    pub fn settle(&mut self, sequence: Sequence) {
        let message = self.messages.get_mut(&sequence).expect("known");
        self.log.settle(message.queue, sequence, Settled::Confirmed);
        message.settled_at = Some(self.log.appended());
    }

    /// Notes what is durable.
    pub fn poll(&mut self) -> Progress {
        let progress = self.log.poll();
        let synced = progress.marks.synced;
        for (sequence, message) in &mut self.messages {
            message.durable |= *sequence <= synced;
            message.settled_durable |= message.settled_at.is_some_and(|at| at <= synced);
        }
        progress
    }

    /// Lets time pass.
    pub fn tick(&mut self, ms: u64) {
        self.now_ms += ms;
        self.log.tick(self.now_ms);
    }

    /// Goes on until nothing is left to do: all durable, dead segments gone.
    pub fn settle_down(&mut self) -> Progress {
        let mut progress = Progress::default();
        for _ in 0..60 {
            self.tick(300);
            self.environment.helpers.run_until_idle();
            progress = self.poll();
        }
        progress
    }

    /// One random thing.
    pub fn step(&mut self, rng: &mut Rng) {
        match rng.below(100) {
            0..=34 => {
                let queue = self.queues[rng.below(self.queues.len() as u64) as usize];
                let len = match rng.below(40) {
                    0 if self.large => 4097 + rng.below(6000),
                    1..=5 => rng.below(2000),
                    _ => rng.below(120),
                };
                // A refusal is counted; whether one is right depends on the test.
                let _ = self.put(queue, len as usize);
            }
            35..=59 => {
                let written = self.log.marks().written;
                let deliverable: Vec<Sequence> = self
                    .messages
                    .iter()
                    .filter(|(s, m)| m.settled_at.is_none() && (**s <= written || rng.one_in(50)))
                    .map(|(s, _)| *s)
                    .take(40)
                    .collect();
                if !deliverable.is_empty() {
                    self.settle(deliverable[rng.below(deliverable.len() as u64) as usize]);
                }
            }
            60..=66 => self.log.flush(),
            67..=70 => {
                self.log.want_sync();
                self.log.flush();
            }
            71..=76 => self.tick(rng.below(150)),
            77..=82 => {
                self.poll();
            }
            83..=84 => self.fetch_one(rng),
            _ => {
                let duty = [Duty::Write, Duty::Write, Duty::Sync, Duty::Read, Duty::Tend]
                    [rng.below(5) as usize];
                self.environment.helpers.step(duty);
            }
        }
    }

    fn fetch_one(&mut self, rng: &mut Rng) {
        let live: Vec<_> = self
            .messages
            .iter()
            .filter(|(_, m)| m.settled_at.is_none())
            .collect();
        if !live.is_empty() {
            let (sequence, message) = live[rng.below(live.len() as u64) as usize];
            match self.log.fetch(message.queue, *sequence) {
                Fetch::Ready(stored) => {
                    assert_eq!(stored.data(), data(message.number, message.len))
                }
                Fetch::Later => {}
                Fetch::Lost => panic!("{sequence:?} is lost"),
            }
        }
    }

    /// Starts again on what the disk has, and compares. What nobody was promised may have gone either way; the model learns which.
    pub fn restart(&mut self) -> Recovered {
        let (environment, log, recovered) =
            open(&self.disk, &self.config, self.budget).expect("opens");
        (self.environment, self.log) = (environment, log);
        self.starts += 1;
        assert_eq!(recovered.damage, [], "no damage was done");
        self.compare(&recovered);
        recovered
    }

    fn compare(&mut self, recovered: &Recovered) {
        let mut live = BTreeMap::new();
        for queue in &recovered.queues {
            let counted = queue.counters.live() as usize;
            assert_eq!(counted, queue.live.len(), "conservation in {:?}", queue.id);
            assert!(queue.live.is_sorted_by_key(|m| m.sequence));
            live.extend(queue.live.iter().map(|m| (m.sequence, (queue.id, *m))));
        }
        for queue in &self.queues {
            assert!(
                recovered.queues.iter().any(|q| q.id == *queue),
                "durable queue {queue} is gone"
            );
        }
        let mut gone = Vec::new();
        for (sequence, message) in &mut self.messages {
            let found = live.remove(sequence);
            let found = found.filter(|(_, m)| m.guid == guid(message.number));
            match found {
                Some((queue, found)) => {
                    assert!(
                        !message.settled_durable,
                        "{sequence:?} came back: {message:?}"
                    );
                    assert_eq!((queue, found.len as usize), (message.queue, message.len));
                    message.settled_at = None;
                }
                None => {
                    let may_be_gone = !message.durable || message.settled_at.is_some();
                    assert!(may_be_gone, "{sequence:?} is gone: {message:?}");
                    gone.push((*sequence, message.queue, message.number, message.durable));
                }
            }
        }
        assert!(live.is_empty(), "unknown messages: {live:?}");
        for (sequence, queue, number, durable) in gone {
            let known = self.log.duplicate(queue, &guid(number), self.now_ms);
            if durable {
                assert_eq!(
                    known,
                    Some(sequence),
                    "a settled message sent again would be stored twice"
                );
            }
            // A message that was never stored must be taken when it is sent again; one that was stored and settled must not.
            assert!(known.is_none_or(|s| s == sequence));
            self.messages.remove(&sequence);
        }
        for (sequence, message) in &mut self.messages {
            assert_eq!(
                self.log
                    .duplicate(message.queue, &guid(message.number), self.now_ms),
                Some(*sequence)
            );
            // Recovery has synced what it found.
            message.durable = true;
        }
    }

    /// Reads every live message.
    pub fn read_all(&mut self) {
        for (sequence, message) in &self.messages {
            if message.settled_at.is_some() {
                continue;
            }
            let mut tries = 0;
            loop {
                match self.log.fetch(message.queue, *sequence) {
                    Fetch::Ready(stored) => {
                        assert_eq!(stored.data(), data(message.number, message.len));
                        break;
                    }
                    Fetch::Later => assert!(tries < 5, "{sequence:?} does not come back"),
                    Fetch::Lost => panic!("{sequence:?} is lost"),
                }
                tries += 1;
                self.log.flush();
                self.environment.helpers.run_until_idle();
                self.log.poll();
            }
        }
    }

    /// Messages that are not settled.
    pub fn live(&self) -> usize {
        self.messages
            .values()
            .filter(|m| m.settled_at.is_none())
            .count()
    }
}
