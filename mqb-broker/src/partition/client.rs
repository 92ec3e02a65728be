//! The partition as a dispatcher client.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use mqb_core::config::Config;
use mqb_core::uri::Uri;
use mqb_core::{PartitionId, QueueId, Sequence};
use mqb_dispatcher::{Client, ClientCore, Cx, MemberId, Monotonic, TimerId};
use mqb_queue::{Budget, Counters, Delivery, Fill, MemoryStore, Notice, Queue, RestoredMessage};

use super::acks::PendingAcks;
use super::deferred::Deferred;
use super::hosted::{Home, Hosted, QueueIndex, Queues};
use super::log::{Level, Log, News};
use super::sessions::Sessions;
use crate::domain::Domain;
use crate::event::{Event, QueryAnswer};
use crate::storage::Marks;

/// How often the log has its housekeeping while records are appended: it prepares segments in time.
const BUSY_TICK: Duration = Duration::from_millis(20);
/// The same while nothing happens.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// How often messages are looked at for their time to live, and the wall clock is read.
const EXPIRY_EVERY: Duration = Duration::from_millis(250);
/// What one queue may deliver before the next one has its turn.
const QUEUE_BUDGET: Budget = Budget {
    messages: 512,
    bytes: 1 << 20,
};
/// What all queues may deliver in one turn.
const TURN_BUDGET: Budget = Budget {
    messages: 4096,
    bytes: 8 << 20,
};
/// Alarms about poison messages are raised at most so often.
const POISON_ALARM_EVERY: Duration = Duration::from_secs(15);

/// Gives milliseconds since the Unix epoch.
pub type WallClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What a partition is told at its start.
pub struct PartitionConfig {
    /// Its number.
    pub id: PartitionId,
    /// Read a few times per second.
    pub wall_clock: WallClock,
}

/// A queue that the log's recovery found.
pub struct RecoveredQueue {
    /// Its number.
    pub id: QueueId,
    /// Canonical URI.
    pub uri: String,
    /// Its messages, in the order of the log.
    pub messages: Vec<RestoredMessage>,
    /// Its history.
    pub counters: Counters,
}

/// A recovered queue, ready to be hosted. Built off the processors: a million messages take a while.
pub struct PreparedQueue {
    uri: String,
    domain: Arc<Domain>,
    engine: Queue,
}

impl PreparedQueue {
    /// Rebuilds the engine of a queue.
    pub fn new(recovered: RecoveredQueue, config: &Config) -> Self {
        // The registry looks at the same names; a URI that does not parse stays in its log, out of reach.
        let name = Uri::parse(&recovered.uri).map_or("", |uri| uri.qualified_domain());
        let domain = Domain::recovered(name, config);
        let mut engine = Queue::new(recovered.id, domain.queue_settings());
        engine.reserve(recovered.messages.len());
        recovered
            .messages
            .into_iter()
            .for_each(|message| engine.restore(message));
        engine.restore_counters(recovered.counters);
        Self {
            uri: recovered.uri,
            domain: Arc::new(domain),
            engine,
        }
    }

    /// Canonical URI.
    pub fn uri(&self) -> &str {
        &self.uri
    }
}

/// Work that goes over several turns.
pub(super) enum Sweep {
    Expire {
        index: QueueIndex,
    },
    Purge {
        index: QueueIndex,
        cut: Sequence,
        messages: u64,
        bytes: u64,
        reply: Box<dyn FnOnce(QueryAnswer) + Send>,
    },
}

/// Wall time without reading a clock for each event.
struct Wall {
    clock: WallClock,
    anchor_ms: u64,
    at: Monotonic,
}

impl Wall {
    fn ms(&self, now: Monotonic) -> u64 {
        self.anchor_ms
            .saturating_add(now.since(self.at).as_millis() as u64)
    }

    /// Follows the clock: it may have been set, and the machine may have slept.
    fn anchor(&mut self, now: Monotonic) {
        self.anchor_ms = (self.clock)();
        self.at = now;
    }
}

/// One partition. Owned by: its processor.
pub struct Partition<L> {
    core: ClientCore,
    pub(super) id: PartitionId,
    pub(super) log: L,
    pub(super) memory: MemoryStore,
    pub(super) queues: Queues,
    pub(super) memory_queues: u32,
    pub(super) sessions: Sessions,
    /// How far the log had come when it was last looked at: everything up to here was released.
    pub(super) marks: Marks,
    pub(super) news: News,
    pub(super) acks: [PendingAcks; 2],
    pub(super) deferred: [Deferred; 2],
    /// Queues with messages that cannot be seen yet.
    pub(super) fresh: [Vec<QueueIndex>; 2],
    /// Highest level that something appended in this turn waits for.
    pub(super) wanted: Option<Level>,
    /// Queues that may have something to deliver.
    ready: VecDeque<QueueIndex>,
    /// Queues whose next message is being read from disk.
    stalled: Vec<QueueIndex>,
    pub(super) sweeps: VecDeque<Sweep>,
    wall: Wall,
    /// Wall clock of this turn.
    pub(super) now_ms: u64,
    tick: Option<TimerId>,
    /// The last record at the last tick.
    ticked_at: Sequence,
    expired_at: Monotonic,
    pub(super) is_stopping: bool,
    pub(super) poison_messages: u64,
    poison_alarm: Option<Monotonic>,
}

impl<L: Log> Partition<L> {
    /// Takes over a log and the queues that were recovered from it.
    pub fn new(
        core: ClientCore,
        cx: &mut Cx<'_, Event>,
        config: PartitionConfig,
        log: L,
        queues: Vec<PreparedQueue>,
    ) -> Self {
        let wall = Wall {
            anchor_ms: (config.wall_clock)(),
            clock: config.wall_clock,
            at: cx.now(),
        };
        let marks = log.marks();
        let mut partition = Self {
            core,
            id: config.id,
            log,
            memory: MemoryStore::new(),
            queues: Queues::default(),
            memory_queues: 0,
            sessions: Sessions::default(),
            marks,
            news: News::default(),
            acks: Default::default(),
            deferred: Default::default(),
            fresh: Default::default(),
            wanted: None,
            ready: VecDeque::new(),
            stalled: Vec::new(),
            sweeps: VecDeque::new(),
            now_ms: wall.anchor_ms,
            wall,
            tick: Some(cx.schedule(BUSY_TICK)),
            ticked_at: Sequence::ZERO,
            expired_at: cx.now(),
            is_stopping: false,
            poison_messages: 0,
            poison_alarm: None,
        };
        cx.set_name(&format!("partition {}", config.id));
        for PreparedQueue {
            uri,
            domain,
            engine,
        } in queues
        {
            let home = Home::Log(Level::of(domain.config.durability));
            partition.host(cx, &uri, &domain, engine, home, Sequence::ZERO);
        }
        // The helpers may have had news before there was anyone to wake.
        partition.hear(cx);
        partition
    }

    /// Notes that a queue may have something to deliver.
    pub(super) fn set_ready(&mut self, index: QueueIndex) {
        let hosted = self.queues.at(index);
        if !hosted.is_ready {
            hosted.is_ready = true;
            self.ready.push_back(index);
        }
    }

    /// Tells operators what an engine noticed.
    pub(super) fn take_notices(&mut self, index: QueueIndex) {
        for notice in self.queues.at(index).engine.take_notices() {
            match notice {
                Notice::Fill(fill) => self.note_fill(index, fill),
                Notice::Removed { guid, attempts } => {
                    self.poison_messages += 1;
                    let is_due = self
                        .poison_alarm
                        .is_none_or(|last| self.wall.at.since(last) >= POISON_ALARM_EVERY);
                    if is_due {
                        self.poison_alarm = Some(self.wall.at);
                        tracing::error!(
                            event = "alarm", alarm = "POISON_PILL", uri = %self.queues.at(index).uri, %guid, attempts,
                            total = self.poison_messages, "removed: its consumers kept dying"
                        );
                    }
                }
                _ => {}
            }
        }
    }

    fn note_fill(&mut self, index: QueueIndex, fill: Fill) {
        let hosted = self.queues.at(index);
        hosted.fill = fill;
        let stats = hosted.engine.stats();
        let (uri, messages, bytes) = (&hosted.uri, stats.messages, stats.bytes);
        match fill {
            Fill::Relaxed => {
                tracing::info!(event = "alarm.cleared", alarm = "CAPACITY_STATE", %uri, messages, bytes)
            }
            Fill::High => {
                tracing::warn!(event = "alarm", alarm = "CAPACITY_STATE_HIGH_WATERMARK", %uri, messages, bytes)
            }
            Fill::Full => {
                tracing::error!(event = "alarm", alarm = "CAPACITY_STATE_FULL", %uri, messages, bytes)
            }
        }
    }

    /// Looks at what the log's helpers have done.
    fn hear(&mut self, cx: &mut Cx<'_, Event>) {
        let news = self.log.poll();
        if news.fetched {
            for index in std::mem::take(&mut self.stalled) {
                self.set_ready(index);
            }
        }
        if news.is_full != self.news.is_full {
            let partition = self.id.0;
            match news.is_full {
                true => tracing::error!(
                    event = "alarm",
                    alarm = "PARTITION_FULL",
                    partition,
                    "no space: messages are refused"
                ),
                false => {
                    tracing::info!(event = "alarm.cleared", alarm = "PARTITION_FULL", partition)
                }
            }
        }
        let fails = news.is_failed && !self.news.is_failed;
        self.news = news;
        if fails {
            self.fail(cx);
        }
    }

    /// The log has failed: nobody is told that anything succeeded.
    fn fail(&mut self, cx: &mut Cx<'_, Event>) {
        let partition = self.id.0;
        match &self.news.fault {
            Some(fault) => tracing::error!(
                event = "alarm", alarm = "PARTITION_READONLY", partition, what = fault.what, file = %fault.file, error = %fault.error,
                "the log failed: read-only until a restart"
            ),
            None => tracing::error!(
                event = "alarm",
                alarm = "PARTITION_READONLY",
                partition,
                "the log is damaged: read-only"
            ),
        }
        self.advance(cx);
        for level in Level::ALL {
            self.fail_acks(level);
        }
        for level in Level::ALL {
            for (_, answer) in std::mem::take(&mut self.deferred[level as usize]) {
                self.give(cx, answer, false);
            }
        }
    }

    /// Releases what the log has made true since the last look.
    fn advance(&mut self, cx: &mut Cx<'_, Event>) {
        let marks = self.log.marks();
        if marks == self.marks {
            return;
        }
        debug_assert!(marks.synced <= marks.written && marks.written >= self.marks.written);
        self.marks = marks;
        for level in Level::ALL {
            self.release_acks(level);
            self.release_messages(level);
        }
        // Behind the ACKs of both levels: a session's end waits for all that it has sent.
        for level in Level::ALL {
            self.give_due(cx, level);
        }
    }

    /// Hands out messages, every queue in its turn, within the budget of one turn.
    fn deliver(&mut self, cx: &mut Cx<'_, Event>) {
        let mut left = TURN_BUDGET;
        while left.messages > 0 && left.bytes > 0 {
            let Some(index) = self.ready.pop_front() else {
                return;
            };
            let hosted = self.queues.at(index);
            hosted.is_ready = false;
            let given = Budget {
                messages: QUEUE_BUDGET.messages.min(left.messages),
                bytes: QUEUE_BUDGET.bytes.min(left.bytes),
            };
            let mut budget = given;
            let store = Hosted::store(hosted.home, &mut self.log, &mut self.memory);
            let outcome = hosted
                .engine
                .deliver(&mut budget, store, &mut self.sessions);
            let pushed = given.messages - budget.messages;
            hosted.pushes += pushed as u64;
            left.messages -= pushed;
            left.bytes -= given.bytes - budget.bytes;
            match outcome {
                Delivery::More => self.set_ready(index),
                Delivery::Stalled => self.stalled.push(index),
                Delivery::Drained | Delivery::NoConsumer => {}
            }
        }
        if !self.ready.is_empty() {
            cx.link_flush();
        }
    }

    /// One bounded step of work that goes over several turns.
    fn sweep(&mut self, cx: &mut Cx<'_, Event>) {
        let Some(sweep) = self.sweeps.pop_front() else {
            return;
        };
        let (Sweep::Expire { index } | Sweep::Purge { index, .. }) = sweep;
        let hosted = self.queues.at(index);
        let store = Hosted::store(hosted.home, &mut self.log, &mut self.memory);
        match sweep {
            Sweep::Expire { .. } => {
                let swept = hosted.engine.expire(self.now_ms, store);
                if swept.messages > 0 {
                    tracing::debug!(event = "queue.expired", uri = %hosted.uri, messages = swept.messages, bytes = swept.bytes);
                }
                hosted.is_expiring = swept.more;
                if swept.more {
                    self.sweeps.push_back(sweep);
                }
            }
            Sweep::Purge {
                cut,
                messages,
                bytes,
                reply,
                ..
            } => {
                let swept = hosted.engine.purge(cut, store);
                let (messages, bytes) = (messages + swept.messages, bytes + swept.bytes);
                if swept.more {
                    self.sweeps.push_back(Sweep::Purge {
                        index,
                        cut,
                        messages,
                        bytes,
                        reply,
                    });
                } else {
                    reply(QueryAnswer::Purged { messages, bytes });
                }
            }
        }
        // Windows may have opened.
        self.set_ready(index);
        self.take_notices(index);
        if !self.sweeps.is_empty() {
            cx.link_flush();
        }
    }

    fn on_tick(&mut self, cx: &mut Cx<'_, Event>) {
        let now = cx.now();
        if now.since(self.expired_at) >= EXPIRY_EVERY {
            self.expired_at = now;
            self.wall.anchor(now);
            self.start_expiry(self.wall.anchor_ms);
        }
        self.now_ms = self.wall.ms(now);
        self.log.tick(self.now_ms);
        self.hear(cx);
        let appended = self.log.appended();
        let is_busy = appended != self.ticked_at || self.marks.synced < appended;
        self.ticked_at = appended;
        self.tick = Some(cx.schedule(if is_busy { BUSY_TICK } else { IDLE_TICK }));
    }

    /// Queues whose oldest message has lived out its time are swept.
    fn start_expiry(&mut self, now_ms: u64) {
        let is_due = |hosted: &Hosted| {
            !hosted.is_expiring && hosted.engine.expires_at_ms().is_some_and(|at| at <= now_ms)
        };
        self.queues
            .iter_mut()
            .filter_map(|hosted| hosted.window.as_mut())
            .for_each(|window| window.expire(now_ms));
        let due: Vec<QueueIndex> = self
            .queues
            .iter()
            .filter(|(_, hosted)| is_due(hosted))
            .map(|(index, _)| index)
            .collect();
        for index in due {
            self.queues.at(index).is_expiring = true;
            self.sweeps.push_back(Sweep::Expire { index });
        }
    }

    /// Goes once everything is safe, or cannot be.
    fn leave_if_closed(&mut self, cx: &mut Cx<'_, Event>) {
        if self.is_stopping && (self.news.is_closed || self.news.is_failed) {
            tracing::info!(
                event = "partition.stopped",
                partition = self.id.0,
                is_failed = self.news.is_failed
            );
            cx.unregister_self();
        }
    }
}

impl<L: Log> Client<Event> for Partition<L> {
    fn core(&self) -> &ClientCore {
        &self.core
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Event>, event: Event) {
        self.now_ms = self.wall.ms(cx.now());
        match event {
            Event::Wake => self.hear(cx),
            Event::Place(place) => self.open(cx, *place),
            Event::Paused { session } => self.set_paused(session, true),
            Event::Resumed { session } => self.set_paused(session, false),
            Event::SessionEnded { session, graceful } => self.session_ended(cx, session, graceful),
            Event::Query(query) => self.query(*query),
            _ => tracing::error!(
                event = "partition.strange_event",
                "an event that is not for a partition"
            ),
        }
    }

    fn on_member_event(&mut self, cx: &mut Cx<'_, Event>, member: MemberId, event: Event) {
        self.now_ms = self.wall.ms(cx.now());
        let Some(index) = self.queues.of_member(member) else {
            return;
        };
        match event {
            Event::Puts(batch) => self.puts(index, &batch),
            Event::Confirms(batch) => self.confirms(index, &batch),
            Event::Configure(call) => self.configure(cx, index, *call),
            Event::Close(call) => self.close(cx, index, &call),
            _ => tracing::error!(
                event = "queue.strange_event",
                "an event that is not for a queue"
            ),
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, Event>, timer: TimerId) {
        if self.tick == Some(timer) {
            self.on_tick(cx);
        }
    }

    /// The block goes to its writer first; then what the log has made true meanwhile is passed on.
    fn flush(&mut self, cx: &mut Cx<'_, Event>) {
        self.sweep(cx);
        if let Some(level) = self.wanted.take() {
            self.log.want(level);
        }
        self.log.flush();
        self.advance(cx);
        self.deliver(cx);
        self.sessions.send_all(cx);
        self.leave_if_closed(cx);
    }

    fn on_stop(&mut self, cx: &mut Cx<'_, Event>) {
        self.is_stopping = true;
        self.log.flush();
        self.log.close();
        self.hear(cx);
    }
}
