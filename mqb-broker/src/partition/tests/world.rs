//! A registry and partitions on a hand-turned dispatcher, over a real log in a temporary directory whose helper threads
//! are replaced by calls, with peers that write down what they are told.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use mqb_core::config::{Config, DomainConfig, DomainRule, Durability, NamePattern, Size};
use mqb_core::{DataFormat, Guid, SessionId, SubId, SubscriptionId, WireQueueId};
use mqb_dispatcher::{Client, ClientCore, Cx, Handle, Manual, Placement, ProcessorId};
use tempfile::TempDir;

use super::super::start::{Started, start_at};
use crate::event::*;
use crate::storage::{
    DataDir, Disk, DiskFile, Duty, Environment, Helpers, MemoryBudget, NodeId, OpenMode, RealDisk,
};

/// What a peer was told.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Told {
    Opened(u64, Result<(), Refusal>),
    Ack(u128, AckStatus),
    Push {
        n: u128,
        subscription: u32,
        out_of_order: bool,
        len: usize,
    },
    Configured(u64, Result<(), Refusal>),
    Closed(u64, Result<(), Refusal>),
    Gone,
    Superseded(u64),
    Lost,
}

/// A connection without a socket.
pub(super) struct Peer {
    pub(super) session: SessionId,
    pub(super) handle: Handle<Event>,
    seen: Arc<Mutex<Seen>>,
    /// Budget taken by PUTs.
    pub(super) charged: usize,
}

#[derive(Default)]
struct Seen {
    told: Vec<Told>,
    queue: Option<Handle<Event>>,
    partitions: Vec<Handle<Event>>,
    released: usize,
}

struct Probe {
    core: ClientCore,
    seen: Arc<Mutex<Seen>>,
}

impl Client<Event> for Probe {
    fn core(&self) -> &ClientCore {
        &self.core
    }

    fn on_event(&mut self, _cx: &mut Cx<'_, Event>, event: Event) {
        let mut seen = self.seen.lock().unwrap();
        match event {
            Event::Opened(opened) => {
                let Opened { call, result } = *opened;
                let result = result.map(|opened| {
                    if !seen.partitions.contains(&opened.partition) {
                        seen.partitions.push(opened.partition);
                    }
                    seen.queue = Some(opened.queue);
                });
                seen.told.push(Told::Opened(call, result));
            }
            Event::Acks(batch) => {
                seen.released += batch.released_bytes;
                seen.told.extend(
                    batch
                        .acks
                        .iter()
                        .map(|ack| Told::Ack(number(&ack.guid), ack.status)),
                );
            }
            Event::Pushes(batch) => {
                for push in &batch.pushes {
                    let data = &batch.chunks[usize::from(push.chunk)]
                        [push.data.start as usize..push.data.end as usize];
                    let n = number(&push.guid);
                    assert!(
                        data.iter().all(|&byte| byte == n as u8),
                        "the data of another message"
                    );
                    let (subscription, out_of_order) = (push.subscription.0, push.out_of_order);
                    seen.told.push(Told::Push {
                        n,
                        subscription,
                        out_of_order,
                        len: data.len(),
                    });
                }
            }
            Event::Configured(answer) => {
                seen.told.push(Told::Configured(answer.call, answer.result))
            }
            Event::Closed(answer) => seen.told.push(Told::Closed(answer.call, answer.result)),
            Event::SessionGone { .. } => seen.told.push(Told::Gone),
            Event::Superseded { by } => seen.told.push(Told::Superseded(by.0)),
            Event::PartitionLost { .. } => seen.told.push(Told::Lost),
            _ => panic!("not for a session"),
        }
    }
}

impl Peer {
    /// What it was told since the last call.
    pub(super) fn told(&self) -> Vec<Told> {
        std::mem::take(&mut self.seen.lock().unwrap().told)
    }

    pub(super) fn queue(&self) -> Handle<Event> {
        self.seen
            .lock()
            .unwrap()
            .queue
            .clone()
            .expect("a queue was opened")
    }

    pub(super) fn partitions(&self) -> Vec<Handle<Event>> {
        self.seen.lock().unwrap().partitions.clone()
    }

    /// Budget given back.
    pub(super) fn released(&self) -> usize {
        self.seen.lock().unwrap().released
    }
}

pub(super) fn guid(n: u128) -> Guid {
    Guid(n.to_be_bytes())
}

fn number(guid: &Guid) -> u128 {
    u128::from_be_bytes(guid.0)
}

/// The real disk, which can be made to fail.
#[derive(Default)]
pub(super) struct Faults {
    pub(super) sync: AtomicBool,
    pub(super) full: AtomicBool,
}

struct FaultyDisk(Arc<Faults>);

struct FaultyFile(Arc<dyn DiskFile>, Arc<Faults>);

impl Disk for FaultyDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.create_dir(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(dir)
    }
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(FaultyFile(
            RealDisk.open(path, mode)?,
            Arc::clone(&self.0),
        )))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        RealDisk.lock(path)
    }
    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        if self.0.full.load(Ordering::Relaxed) {
            Ok(0)
        } else {
            RealDisk.free_bytes(dir)
        }
    }
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, bufs: &[io::IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.0.write_at(bufs, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        if self.1.sync.load(Ordering::Relaxed) {
            Err(io::Error::other("broken"))
        } else {
            self.0.sync_data()
        }
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        match self.1.full.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => self.0.allocate(len),
        }
    }
    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.truncate(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

/// The broker without sessions and sockets.
pub(super) struct World {
    pub(super) manual: Manual<Event>,
    pub(super) environment: Environment,
    pub(super) started: Started,
    pub(super) faults: Arc<Faults>,
    config: Arc<Config>,
    _data_dir: DataDir,
    sessions: u64,
    call: u64,
}

pub(super) fn domain(name: &str, change: impl FnOnce(&mut DomainConfig)) -> DomainRule {
    let mut config = DomainConfig::default();
    change(&mut config);
    DomainRule {
        name: NamePattern::parse(name).unwrap(),
        config,
    }
}

/// Domains `sync`, `flush` and `memory`, two partitions, small segments.
pub(super) fn config() -> Config {
    let mut config = Config::default();
    config.storage.partitions = 2;
    config.storage.segment_size = Size::new(256 << 10);
    config.domains = vec![
        domain("sync", |_| {}),
        domain("flush", |config| config.durability = Durability::Flush),
        domain("memory", |config| config.durability = Durability::Memory),
    ];
    config
}

impl World {
    pub(super) fn new(dir: &TempDir, config: Config) -> Self {
        let manual = Manual::new(2).unwrap();
        let faults: Arc<Faults> = Arc::default();
        let environment = Environment {
            disk: Arc::new(FaultyDisk(Arc::clone(&faults))),
            helpers: Arc::new(Helpers::manual()),
            budget: MemoryBudget::new(128 << 10),
        };
        let partitions = config.storage.partitions;
        let data_dir =
            DataDir::open(&environment.disk, dir.path(), partitions, || NodeId(1)).unwrap();
        let clock = Arc::clone(manual.clock());
        let wall_clock: super::super::WallClock =
            Arc::new(move || 1_700_000_000_000 + mqb_dispatcher::Clock::now(&*clock).as_millis());
        let config = Arc::new(config);
        let started = start_at(
            &config,
            &environment,
            &data_dir,
            &manual.registrar(),
            &|_| {},
            &wall_clock,
        )
        .unwrap();
        let mut world = Self {
            manual,
            environment,
            started,
            faults,
            config,
            _data_dir: data_dir,
            sessions: 0,
            call: 0,
        };
        world.settle();
        world
    }

    /// Ends without a word, as `kill -9` does, and starts again.
    pub(super) fn restart(self, dir: &TempDir) -> Self {
        let config = Config::clone(&self.config);
        drop(self);
        Self::new(dir, config)
    }

    /// Events only: the helpers stand still.
    pub(super) fn run(&mut self) {
        self.manual.run_until_idle(10_000);
    }

    /// One duty of the helpers, and what follows.
    pub(super) fn help(&mut self, duty: Duty) {
        while self.environment.helpers.step(duty) {}
        self.run();
    }

    /// Events and helpers until nothing is left to do.
    pub(super) fn settle(&mut self) {
        loop {
            self.run();
            let duties = [Duty::Write, Duty::Sync, Duty::Read, Duty::Tend];
            if !duties
                .into_iter()
                .any(|duty| self.environment.helpers.step(duty))
            {
                return;
            }
        }
    }

    /// Lets time pass, helpers included.
    pub(super) fn pass(&mut self, time: Duration) {
        let steps = time.as_millis().div_ceil(50);
        for _ in 0..steps {
            self.manual.advance(Duration::from_millis(50), 10_000);
            self.settle();
        }
    }

    pub(super) fn peer(&mut self, identity: Option<&str>) -> Peer {
        self.sessions += 1;
        let session = SessionId(self.sessions);
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let at = Placement::Processor(ProcessorId((self.sessions % 2) as u16), SESSION);
        let shared = Arc::clone(&seen);
        let handle = self
            .manual
            .registrar()
            .register(at, move |core, _| Box::new(Probe { core, seen: shared }));
        self.started
            .registry
            .post(Event::SessionUp(Box::new(SessionUp {
                session,
                handle: handle.clone(),
                identity: identity.map(Into::into),
                description: "test".into(),
            })));
        self.run();
        Peer {
            session,
            handle,
            seen,
            charged: 0,
        }
    }

    pub(super) fn open_counts(
        &mut self,
        peer: &Peer,
        uri: &str,
        read_count: u32,
        write_count: u32,
    ) -> u64 {
        self.call += 1;
        self.started.registry.post(Event::Open(Box::new(OpenCall {
            session: peer.session,
            reply: peer.handle.clone(),
            description: "test".into(),
            call: self.call,
            uri: uri.into(),
            queue: QUEUE_NUMBER,
            sub_id: SubId(0),
            app_id: None,
            read_count,
            write_count,
        })));
        self.run();
        self.call
    }

    /// Opens for reading and writing, and waits until that is done.
    pub(super) fn open(&mut self, peer: &Peer, uri: &str) {
        let call = self.open_counts(peer, uri, 1, 1);
        self.settle();
        assert_eq!(peer.told(), [Told::Opened(call, Ok(()))]);
    }

    pub(super) fn configure(&mut self, peer: &Peer, window: Option<(u32, u64)>) -> u64 {
        self.call += 1;
        let subscriptions = window.map(|(id, messages)| SubscriptionParameters {
            id: SubscriptionId(id),
            max_unconfirmed_messages: messages,
            max_unconfirmed_bytes: 1 << 30,
            priority: 0,
            priority_count: 1,
        });
        peer.queue().post(Event::Configure(Box::new(ConfigureCall {
            session: peer.session,
            queue: QUEUE_NUMBER,
            sub_id: SubId(0),
            call: self.call,
            subscriptions: subscriptions.into_iter().collect(),
        })));
        self.run();
        self.call
    }

    /// Opens and asks for messages.
    pub(super) fn consume(&mut self, peer: &Peer, uri: &str, window: u64) {
        self.open(peer, uri);
        let call = self.configure(peer, Some((1, window)));
        let told = peer.told();
        assert_eq!(told.first(), Some(&Told::Configured(call, Ok(()))));
        // What followed at once is for the test to see.
        peer.seen.lock().unwrap().told = told[1..].to_vec();
    }

    pub(super) fn put_batch(&mut self, peer: &mut Peer, numbers: &[u128], len: usize) {
        let (mut frames, mut puts) = (Vec::new(), Vec::new());
        for &n in numbers {
            let start = frames.len() as u32;
            frames.resize(frames.len() + len, n as u8);
            let data = start..frames.len() as u32;
            puts.push(PutItem {
                guid: guid(n),
                correlation: 0,
                ack: true,
                format: DataFormat(0),
                data,
            });
        }
        let batch = PutBatch {
            session: peer.session,
            queue: QUEUE_NUMBER,
            frames: Bytes::from(frames),
            puts,
        };
        peer.charged += batch.charge();
        peer.queue().post(Event::Puts(Box::new(batch)));
        self.run();
    }

    pub(super) fn put(&mut self, peer: &mut Peer, numbers: &[u128]) {
        self.put_batch(peer, numbers, 100);
    }

    pub(super) fn confirm(&mut self, peer: &Peer, numbers: &[u128]) {
        let confirms = numbers.iter().map(|&n| (SubId(0), guid(n))).collect();
        let batch = ConfirmBatch {
            session: peer.session,
            queue: QUEUE_NUMBER,
            confirms,
        };
        peer.queue().post(Event::Confirms(Box::new(batch)));
        self.run();
    }

    pub(super) fn close(&mut self, peer: &Peer) -> u64 {
        self.call += 1;
        let call = CloseCall {
            session: peer.session,
            queue: QUEUE_NUMBER,
            call: self.call,
            scope: CloseScope::Queue,
        };
        peer.queue().post(Event::Close(Box::new(call)));
        self.run();
        self.call
    }

    pub(super) fn end(&mut self, peer: &Peer, graceful: bool) {
        for partition in peer.partitions() {
            partition.post(Event::SessionEnded {
                session: peer.session,
                graceful,
            });
        }
        self.started.registry.post(Event::SessionDown {
            session: peer.session,
        });
        self.run();
    }

    pub(super) fn ask(&mut self, request: QueryRequest) -> QueryAnswer {
        let answer = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&answer);
        let reply = Box::new(move |answer| *slot.lock().unwrap() = Some(answer));
        self.started
            .registry
            .post(Event::Query(Box::new(Query { request, reply })));
        self.settle();
        answer
            .lock()
            .unwrap()
            .take()
            .expect("every question is answered")
    }

    pub(super) fn report(&mut self, uri: &str) -> QueueReport {
        match self.ask(QueryRequest::Queue { uri: uri.into() }) {
            QueryAnswer::Queues(mut reports) => reports.remove(0),
            other => panic!("{other:?}"),
        }
    }
}

/// The number that every peer gives to its one queue.
const QUEUE_NUMBER: WireQueueId = WireQueueId(5);
