//! A broker with real sockets and sessions whose registry, partition and queues are one small fake, and a peer that speaks
//! the wire protocol with blocking sockets.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mqb_broker::event::{
    AckBatch, AckItem, AckStatus, CLUSTER, Closed, Configured, Event, Opened, OpenedQueue,
    PushBatch, PushItem, QueryAnswer, QueueReport, Refusal,
};
use mqb_broker::net::listener::{self, ConnectionStats, Listener, ListenerConfig};
use mqb_broker::session::{SessionContext, SessionSettings};
use mqb_core::control::{
    Category, ClientIdentity, ClientKind, ConfigureStream, ConsumerInfo, ControlBody,
    ControlMessage, Document, Encoding, GuidInfo, Negotiation, OpenQueue, QueueHandleParameters,
    StreamParameters, Subscription, decode_event, encode_event,
};
use mqb_core::wire::{
    self, Ack, AckIter, EventKind, FrameLimits, PushIter, PutBuilder, PutFlags, PutHead,
    frame_length,
};
use mqb_core::{Guid, PartitionId, SessionId, SubscriptionId, WireQueueId, checksum};
use mqb_dispatcher::{
    Client, ClientCore, Cx, Dispatcher, DispatcherConfig, Handle, Hooks, Placement, ProcessorId,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// What the fake saw, for assertions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Up(Option<String>),
    Open(String),
    Puts(usize, usize),
    Confirms(usize),
    Configure(usize),
    Close,
    Paused,
    Resumed,
    Ended { graceful: bool },
    Down,
}

/// How the fake behaves.
#[derive(Clone, Default)]
pub(crate) struct Script {
    /// PUTs are kept undecided until this many have come.
    pub(crate) hold_puts: usize,
    /// Messages of this many bytes pushed to whoever configures a stream.
    pub(crate) push_on_configure: Vec<usize>,
    /// Opens of URIs that contain this are refused.
    pub(crate) refuse: Option<&'static str>,
    /// PUTs come back as pushes.
    pub(crate) echo: bool,
}

struct Fake {
    core: ClientCore,
    script: Script,
    seen: Sender<Seen>,
    session: Option<Handle<Event>>,
    held: Vec<AckItem>,
    held_bytes: usize,
    held_count: usize,
    subscription: Option<(WireQueueId, SubscriptionId)>,
    waiting: VecDeque<Bytes>,
    sessions: Vec<(SessionId, String, Handle<Event>)>,
}

impl Fake {
    fn saw(&self, what: Seen) {
        // A test that has seen enough may be gone.
        let _ = self.seen.send(what);
    }

    fn push(&self, cx: &mut Cx<'_, Event>, data: Bytes, format: mqb_core::DataFormat, guid: Guid) {
        let (Some((queue, subscription)), Some(session)) = (self.subscription, &self.session)
        else {
            return;
        };
        let range = 0..data.len() as u32;
        let item = PushItem {
            queue,
            subscription,
            guid,
            format,
            out_of_order: false,
            chunk: 0,
            data: range,
        };
        cx.post(
            session,
            Event::Pushes(Box::new(PushBatch {
                chunks: vec![data],
                pushes: vec![item],
            })),
        );
    }
}

impl Client<Event> for Fake {
    fn core(&self) -> &ClientCore {
        &self.core
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Event>, event: Event) {
        match event {
            Event::SessionUp(up) => {
                self.saw(Seen::Up(up.identity.clone()));
                if let Some(identity) = up.identity {
                    if let Some((_, _, old)) = self
                        .sessions
                        .iter()
                        .find(|(_, known, _)| *known == identity)
                    {
                        cx.post(old, Event::Superseded { by: up.session });
                    }
                    self.sessions.push((up.session, identity, up.handle));
                }
            }
            Event::Open(call) => {
                self.saw(Seen::Open(call.uri.clone()));
                self.session = Some(call.reply.clone());
                let refused = self
                    .script
                    .refuse
                    .is_some_and(|part| call.uri.contains(part));
                let result = if refused {
                    Err(Refusal::new(Category::Unknown, "no").with_code(-1))
                } else {
                    Ok(OpenedQueue {
                        queue: cx.handle(),
                        partition: cx.handle(),
                        routing_flags: 2,
                        deduplication_ms: 300_000,
                    })
                };
                cx.post(
                    &call.reply,
                    Event::Opened(Box::new(Opened {
                        call: call.call,
                        result,
                    })),
                );
            }
            Event::Puts(batch) => {
                self.saw(Seen::Puts(
                    batch.puts.len(),
                    batch.puts.iter().map(|put| put.data.len()).sum(),
                ));
                self.held_bytes += batch.charge();
                self.held_count += batch.puts.len();
                for put in &batch.puts {
                    if put.ack {
                        let status = AckStatus::Success;
                        self.held.push(AckItem {
                            queue: batch.queue,
                            guid: put.guid,
                            correlation: put.correlation,
                            status,
                        });
                    }
                    if self.script.echo {
                        let data = batch
                            .frames
                            .slice(put.data.start as usize..put.data.end as usize);
                        self.push(cx, data, put.format, put.guid);
                    }
                }
                if self.held_count >= self.script.hold_puts
                    && let Some(session) = &self.session
                {
                    let acks = std::mem::take(&mut self.held);
                    let released_bytes = std::mem::take(&mut self.held_bytes);
                    cx.post(
                        session,
                        Event::Acks(Box::new(AckBatch {
                            acks,
                            released_bytes,
                        })),
                    );
                }
            }
            Event::Confirms(batch) => self.saw(Seen::Confirms(batch.confirms.len())),
            Event::Configure(call) => {
                self.saw(Seen::Configure(call.subscriptions.len()));
                self.subscription = call
                    .subscriptions
                    .first()
                    .map(|subscription| (call.queue, subscription.id));
                let Some(session) = self.session.clone() else {
                    return;
                };
                cx.post(
                    &session,
                    Event::Configured(Box::new(Configured {
                        call: call.call,
                        result: Ok(()),
                    })),
                );
                for (index, size) in self
                    .script
                    .push_on_configure
                    .clone()
                    .into_iter()
                    .enumerate()
                {
                    let data = Bytes::from(vec![index as u8; size]);
                    self.push(
                        cx,
                        data,
                        mqb_core::DataFormat::PLAIN,
                        Guid([index as u8 + 1; 16]),
                    );
                }
                while let Some(data) = self.waiting.pop_front() {
                    self.push(cx, data, mqb_core::DataFormat::PLAIN, Guid([9; 16]));
                }
            }
            Event::Close(call) => {
                self.saw(Seen::Close);
                if let Some(session) = &self.session {
                    cx.post(
                        session,
                        Event::Closed(Box::new(Closed {
                            call: call.call,
                            result: Ok(()),
                        })),
                    );
                }
            }
            Event::Paused { .. } => self.saw(Seen::Paused),
            Event::Resumed { .. } => self.saw(Seen::Resumed),
            Event::SessionEnded { graceful, .. } => {
                self.saw(Seen::Ended { graceful });
                if let Some(session) = &self.session {
                    cx.post(
                        session,
                        Event::SessionGone {
                            partition: PartitionId(0),
                        },
                    );
                }
            }
            Event::SessionDown { .. } => self.saw(Seen::Down),
            Event::Query(query) => (query.reply)(QueryAnswer::Queues(vec![QueueReport {
                uri: "bmq://d/q".into(),
                ..QueueReport::default()
            }])),
            _ => {}
        }
    }
}

/// The broker under test.
pub(crate) struct Broker {
    dispatcher: Option<Dispatcher<Event>>,
    pub(crate) address: SocketAddr,
    pub(crate) listener: Handle<Event>,
    pub(crate) seen: Receiver<Seen>,
    pub(crate) stats: Arc<ConnectionStats>,
}

impl Broker {
    pub(crate) fn start(settings: SessionSettings, script: Script) -> Self {
        Self::start_capped(settings, script, 1000)
    }

    pub(crate) fn start_capped(
        settings: SessionSettings,
        script: Script,
        connections_max: usize,
    ) -> Self {
        let config = DispatcherConfig {
            processors: 2,
            ..DispatcherConfig::default()
        };
        let dispatcher = Dispatcher::start(config, Hooks::default()).unwrap();
        let registrar = dispatcher.registrar();
        let (tell, seen) = channel();
        let registry = registrar.register(
            Placement::Processor(ProcessorId(0), CLUSTER),
            move |core, _| {
                Box::new(Fake {
                    core,
                    script,
                    seen: tell,
                    session: None,
                    held: Vec::new(),
                    held_bytes: 0,
                    held_count: 0,
                    subscription: None,
                    waiting: VecDeque::new(),
                    sessions: Vec::new(),
                })
            },
        );
        let socket = listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let stats = Arc::new(ConnectionStats::default());
        let sessions = SessionContext {
            settings: Arc::new(settings),
            registry,
            stats: Arc::clone(&stats),
        };
        let listener = Listener::register(
            &registrar,
            ListenerConfig {
                socket,
                connections_max,
                sessions,
            },
        );
        Self {
            dispatcher: Some(dispatcher),
            address,
            listener,
            seen,
            stats,
        }
    }

    pub(crate) fn connect(&self) -> Peer {
        Peer::new(self.address)
    }

    /// The next thing that the fake saw.
    pub(crate) fn next(&self) -> Seen {
        self.seen
            .recv_timeout(PATIENCE)
            .expect("the fake saw nothing more")
    }

    /// Skips what the fake saw until `wanted`.
    pub(crate) fn until(&self, wanted: &Seen) {
        while self.next() != *wanted {}
    }

    /// Waits until no connection is open.
    pub(crate) fn until_quiet(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.stats.open.load(Ordering::Acquire) > 0 {
            assert!(Instant::now() < deadline, "connections stay open");
            std::thread::yield_now();
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(dispatcher) = self.dispatcher.take() {
            // A test that fails leaves clients behind; that is not what it should report.
            let _ = dispatcher.stop(Duration::from_secs(2));
        }
    }
}

/// One received event.
pub(crate) struct Frame(Vec<u8>);

impl Frame {
    pub(crate) fn event(&self) -> wire::Event<'_> {
        wire::Event::parse(&self.0).unwrap()
    }

    pub(crate) fn kind(&self) -> EventKind {
        self.event().header.kind
    }

    pub(crate) fn control(&self) -> ControlMessage {
        decode_event(&self.event()).unwrap()
    }

    pub(crate) fn acks(&self) -> Vec<Ack> {
        AckIter::new(&self.event()).map(Result::unwrap).collect()
    }
}

/// A peer.
pub(crate) struct Peer {
    pub(crate) socket: TcpStream,
    input: Vec<u8>,
    rid: i32,
}

impl Peer {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            socket,
            input: Vec::new(),
            rid: 0,
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    pub(crate) fn send<D: Document>(&mut self, document: &D) {
        self.write(&document_event(document));
    }

    /// The next event, or `None` at the end of the stream.
    pub(crate) fn frame(&mut self) -> Option<Frame> {
        let mut chunk = [0; 64 << 10];
        loop {
            if let Some(length) = frame_length(&self.input, &FrameLimits::CLIENT).unwrap()
                && length <= self.input.len()
            {
                return Some(Frame(self.input.drain(..length).collect()));
            }
            match self.socket.read(&mut chunk) {
                Ok(0) => return None,
                Ok(count) => self.input.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The next event that is not a question whether this peer is there.
    pub(crate) fn expect(&mut self) -> Frame {
        self.next_frame().expect("the broker closed the connection")
    }

    fn next_frame(&mut self) -> Option<Frame> {
        loop {
            match self.frame() {
                Some(frame) if frame.kind() == EventKind::HeartbeatRequest => {}
                other => return other,
            }
        }
    }

    pub(crate) fn is_closed(&mut self) -> bool {
        self.next_frame().is_none()
    }

    pub(crate) fn negotiate(&mut self) {
        self.send(&Negotiation::ClientIdentity(identity("0123456789AB")));
        self.expect_welcome();
    }

    pub(crate) fn expect_welcome(&mut self) {
        let frame = self.expect();
        match decode_event(&frame.event()).unwrap() {
            Negotiation::BrokerResponse(response) => {
                assert_eq!(response.result.category, Category::Success)
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn next_rid(&mut self) -> i32 {
        self.rid += 1;
        self.rid
    }

    /// Sends a request and returns its number.
    pub(crate) fn request(&mut self, body: ControlBody) -> i32 {
        let rid = self.next_rid();
        self.send(&ControlMessage {
            rid: Some(rid),
            body,
        });
        rid
    }

    /// Sends a request and returns the answer, which has to come next.
    pub(crate) fn call(&mut self, body: ControlBody) -> ControlBody {
        let rid = self.request(body);
        let message = self.expect().control();
        assert_eq!(message.rid, Some(rid));
        message.body
    }

    pub(crate) fn open(&mut self, uri: &str, queue: u32, flags: u64) {
        match self.call(open(uri, queue, flags)) {
            ControlBody::OpenQueueResponse(response) => {
                assert_eq!(response.original_request.handle_parameters.uri, uri);
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn configure(&mut self, queue: u32, subscription: u32) {
        match self.call(configure(queue, subscription)) {
            ControlBody::ConfigureStreamResponse(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn document_event<D: Document>(document: &D) -> Vec<u8> {
    let mut out = Vec::new();
    encode_event(Encoding::Ber, document, &mut out);
    out
}

pub(crate) fn identity(client_id: &str) -> ClientIdentity {
    ClientIdentity {
        protocol_version: 1,
        kind: ClientKind::Client,
        process_name: "peer".into(),
        pid: 1,
        features: mqb_core::features::CLIENT.into(),
        guid_info: GuidInfo {
            client_id: client_id.into(),
            nanoseconds_from_epoch: 1,
        },
        ..ClientIdentity::default()
    }
}

pub(crate) fn handle(uri: &str, queue: u32, flags: u64) -> QueueHandleParameters {
    QueueHandleParameters {
        uri: uri.into(),
        q_id: queue,
        sub_id_info: None,
        flags,
        read_count: i32::from(flags & 2 != 0),
        write_count: i32::from(flags & 4 != 0),
        admin_count: 0,
    }
}

pub(crate) fn open(uri: &str, queue: u32, flags: u64) -> ControlBody {
    ControlBody::OpenQueue(OpenQueue {
        handle_parameters: handle(uri, queue, flags),
    })
}

pub(crate) fn configure(queue: u32, subscription: u32) -> ControlBody {
    let consumer = ConsumerInfo {
        max_unconfirmed_messages: 1000,
        max_unconfirmed_bytes: 1 << 25,
        consumer_priority: 0,
        consumer_priority_count: 1,
    };
    let subscriptions = vec![Subscription {
        s_id: subscription,
        consumers: vec![consumer],
        ..Subscription::default()
    }];
    let stream_parameters = StreamParameters {
        subscriptions,
        ..StreamParameters::default()
    };
    ControlBody::ConfigureStream(ConfigureStream {
        q_id: queue,
        stream_parameters,
    })
}

pub(crate) fn guid(number: u32) -> Guid {
    let mut guid = Guid([0x40; 16]);
    guid.0[..4].copy_from_slice(&(number | 0x4000_0000).to_be_bytes());
    guid
}

/// A PUT event with one plain message.
pub(crate) fn put(queue: u32, guid: Guid, data: &[u8], ack: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut builder = PutBuilder::begin(&mut out);
    let head = PutHead {
        queue: WireQueueId(queue),
        guid,
        flags: if ack {
            PutFlags::ACK_REQUESTED
        } else {
            PutFlags::default()
        },
        crc: checksum::crc32c(data),
        ..PutHead::default()
    };
    builder.append_copy(&mut out, &head, data).unwrap();
    builder.finish(&mut out);
    out
}

/// Sizes and subscription ids of the messages of a PUSH event.
pub(crate) fn pushed(frame: &Frame) -> Vec<(usize, u32)> {
    PushIter::new(&frame.event())
        .map(|push| {
            let push = push.unwrap();
            let options = push.options().unwrap();
            let ids: Vec<u32> = options.subscriptions().map(|(id, _)| id.0).collect();
            assert_eq!(ids.len(), 1);
            (push.data.len(), ids[0])
        })
        .collect()
}
