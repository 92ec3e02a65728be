//! Handles on queues: open, configure, close, and the end of a connection.

use std::sync::Arc;

use mqb_core::config::Durability;
use mqb_core::control::Category;
use mqb_core::control::schema::routing_flags;
use mqb_core::{QueueId, Sequence, SessionId};
use mqb_dispatcher::Cx;
use mqb_queue::{Fill, OpenRequest, Peer, Queue, StoreError};

use super::client::Partition;
use super::deferred::{Answer, Undo};
use super::hosted::{Home, Hosted, QueueIndex};
use super::log::{Level, Log};
use crate::domain::Domain;
use crate::event::{
    CloseCall, Closed, ConfigureCall, Configured, Event, Opened, OpenedQueue, PlacedOpen, QUEUE,
    Refusal,
};
use crate::storage::{Window, WindowLimits};

/// Numbers of queues in memory start here: the log numbers its own from 1.
const MEMORY_QUEUES: u32 = 1 << 31;

impl<L: Log> Partition<L> {
    /// An open that the registry sent here.
    pub(super) fn open(&mut self, cx: &mut Cx<'_, Event>, place: PlacedOpen) {
        let PlacedOpen { open, domain } = place;
        let peer = Peer {
            session: open.session,
            queue: open.queue,
        };
        let index = match self.queues.find(&open.uri) {
            _ if self.is_stopping => {
                Err(Refusal::new(Category::NotReady, "the broker is stopping"))
            }
            Some(index) => Ok(index),
            None => self.create(cx, &open.uri, &domain),
        };
        let (call, reply) = (open.call, open.reply.clone());
        let refuse = |cx: &mut Cx<'_, Event>, refusal| {
            cx.post(
                &reply,
                Event::Opened(Box::new(Opened {
                    call,
                    result: Err(refusal),
                })),
            );
        };
        let index = match index {
            Ok(index) => index,
            Err(refusal) => return refuse(cx, refusal),
        };
        let token = self.sessions.enter(&open);
        let (sub_id, read_count, write_count) = (open.sub_id, open.read_count, open.write_count);
        let request = OpenRequest {
            peer,
            token,
            sub_id,
            read_count,
            write_count,
        };
        let hosted = self.queues.at(index);
        if let Err(error) = hosted.engine.open(&request) {
            self.sessions.forget_if_unused(token);
            return refuse(
                cx,
                Refusal::new(Category::Unknown, error.to_string()).with_code(-1),
            );
        }
        self.sessions.note_open(token, index, open.queue);
        let slot = self.sessions.slot(token);
        if slot.is_paused {
            hosted.engine.set_paused(peer, true);
        }
        let opened = Box::new(Opened {
            call,
            result: Ok(OpenedQueue {
                queue: hosted.handle.clone(),
                partition: cx.handle(),
                routing_flags: routing_flags::PRIORITY,
                deduplication_ms: i32::try_from(hosted.domain.deduplication_ms())
                    .unwrap_or(i32::MAX),
            }),
        });
        let undo = Undo {
            token,
            index,
            peer,
            sub_id,
            read_count,
            write_count,
        };
        let answer = Answer::Opened {
            reply,
            opened,
            undo,
        };
        match hosted.home {
            Home::Log(level) if self.marks.at(level) < hosted.created => {
                slot.is_sync |= level == Level::Synced;
                self.answer_at(cx, level, answer);
            }
            home => {
                slot.is_sync |= home == Home::Log(Level::Synced);
                self.give(cx, answer, true);
            }
        }
    }

    fn create(
        &mut self,
        cx: &mut Cx<'_, Event>,
        uri: &str,
        domain: &Arc<Domain>,
    ) -> Result<QueueIndex, Refusal> {
        let (id, created, home) = match domain.config.durability {
            Durability::Memory => {
                self.memory_queues += 1;
                (
                    QueueId(MEMORY_QUEUES + self.memory_queues),
                    Sequence::ZERO,
                    Home::Memory,
                )
            }
            durability => {
                let (id, created) = self.log.create_queue(uri).map_err(not_created)?;
                (id, created, Home::Log(Level::of(durability)))
            }
        };
        let engine = Queue::new(id, domain.queue_settings());
        tracing::info!(
            event = "queue.created",
            uri,
            partition = self.id.0,
            queue = id.0,
            durability = %domain.config.durability
        );
        Ok(self.host(cx, uri, domain, engine, home, created))
    }

    /// Gives a queue its address.
    pub(super) fn host(
        &mut self,
        cx: &mut Cx<'_, Event>,
        uri: &str,
        domain: &Arc<Domain>,
        engine: Queue,
        home: Home,
        created: Sequence,
    ) -> QueueIndex {
        let limits = WindowLimits {
            duration_ms: domain.deduplication_ms(),
            max_entries: domain.config.deduplication_max as usize,
        };
        let window = match home {
            Home::Log(_) => {
                self.log.set_duplicate_window(engine.id(), limits);
                None
            }
            Home::Memory => Some(Window::new(limits)),
        };
        let (member, _, handle) = cx.add_member(QUEUE, uri);
        self.queues.add(Hosted {
            engine,
            uri: uri.into(),
            domain: Arc::clone(domain),
            home,
            handle,
            member,
            created,
            last_put: Sequence::ZERO,
            is_fresh: false,
            is_ready: false,
            is_expiring: false,
            fill: Fill::Relaxed,
            puts: 0,
            nacks: 0,
            pushes: 0,
            window,
        })
    }

    /// New subscriptions. The answer goes between the pushes under the old ones and those under the new.
    pub(super) fn configure(
        &mut self,
        cx: &mut Cx<'_, Event>,
        index: QueueIndex,
        call: ConfigureCall,
    ) {
        let peer = Peer {
            session: call.session,
            queue: call.queue,
        };
        let Some(token) = self.sessions.find(call.session) else {
            return;
        };
        let hosted = self.queues.at(index);
        let result = hosted
            .engine
            .configure(peer, call.sub_id, &call.subscriptions);
        self.sessions.send(cx, token);
        let result = result.map_err(|error| Refusal::new(Category::Unknown, error.to_string()));
        let configured = Box::new(Configured {
            call: call.call,
            result,
        });
        cx.post(
            &self.sessions.slot(token).reply,
            Event::Configured(configured),
        );
        self.set_ready(index);
    }

    /// The end of streams. Answered when what the peer said before is as safe as its domain promises.
    pub(super) fn close(&mut self, cx: &mut Cx<'_, Event>, index: QueueIndex, close: &CloseCall) {
        let peer = Peer {
            session: close.session,
            queue: close.queue,
        };
        let Some(token) = self.sessions.find(close.session) else {
            return;
        };
        let hosted = self.queues.at(index);
        let store = Hosted::store(hosted.home, &mut self.log, &mut self.memory);
        let (home, call) = (hosted.home, close.call);
        if let Err(error) = hosted.engine.close(store, peer, close.scope) {
            let result = Err(Refusal::new(Category::Unknown, error.to_string()));
            self.sessions.send(cx, token);
            return cx.post(
                &self.sessions.slot(token).reply,
                Event::Closed(Box::new(Closed { call, result })),
            );
        }
        if !hosted.engine.is_open(peer) {
            self.sessions.note_closed(token, index, close.queue);
        }
        self.set_ready(index);
        match home {
            Home::Log(level) => self.answer_at(cx, level, Answer::Closed { token, call }),
            Home::Memory => self.give(cx, Answer::Closed { token, call }, true),
        }
    }

    /// A connection is over: what its readers hold goes to others.
    pub(super) fn session_ended(
        &mut self,
        cx: &mut Cx<'_, Event>,
        session: SessionId,
        graceful: bool,
    ) {
        let Some(token) = self.sessions.find(session) else {
            return tracing::error!(event = "partition.strange_session", session = session.0);
        };
        let slot = self.sessions.slot(token);
        let level = if slot.is_sync {
            Level::Synced
        } else {
            Level::Written
        };
        for (index, queue) in std::mem::take(&mut slot.open) {
            let hosted = self.queues.at(index);
            let store = Hosted::store(hosted.home, &mut self.log, &mut self.memory);
            if let Err(error) = hosted
                .engine
                .drop_peer(store, Peer { session, queue }, graceful)
            {
                tracing::error!(event = "partition.strange_handle", session = session.0, uri = %hosted.uri, %error);
            }
            self.set_ready(index);
            self.take_notices(index);
        }
        self.answer_at(cx, level, Answer::Gone { token });
    }

    /// A connection takes nothing for now, or takes messages again.
    pub(super) fn set_paused(&mut self, session: SessionId, paused: bool) {
        let Some(token) = self.sessions.find(session) else {
            return;
        };
        let slot = self.sessions.slot(token);
        slot.is_paused = paused;
        for (index, queue) in slot.open.clone() {
            self.queues
                .at(index)
                .engine
                .set_paused(Peer { session, queue }, paused);
            self.set_ready(index);
        }
    }
}

fn not_created(error: StoreError) -> Refusal {
    Refusal::new(
        Category::NotReady,
        format!("the queue cannot be made: {error}"),
    )
}
