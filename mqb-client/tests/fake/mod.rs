//! A broker for tests: answers every request, keeps what it gets, and does as told.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use mqb_core::control::{
    self, AdminResponse, Authentication, AuthenticationResponse, BrokerResponse, Category,
    ClientIdentity, ConfigureQueueStreamResponse, ConfigureStreamResponse, ControlBody,
    ControlMessage, Document, Empty, Encoding, Negotiation, OpenQueueResponse,
    RoutingConfiguration, Status,
};
use mqb_core::wire::{
    Ack, AckBuilder, AckStatus, ConfirmIter, Event, EventKind, FrameLimits, PushBuilder, PushHead,
    PutIter, frame_length,
};
use mqb_core::{DataFormat, Guid, SubscriptionId, WireQueueId, features};

/// A PUT as it arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stored {
    pub(crate) connection: usize,
    pub(crate) queue: u32,
    pub(crate) guid: Guid,
    pub(crate) data: Vec<u8>,
    pub(crate) format: DataFormat,
    pub(crate) ack_requested: bool,
}

/// What the broker is told to do and what it has seen.
pub(crate) struct State {
    pub(crate) features: &'static str,
    pub(crate) encoding: Encoding,
    /// Heartbeat figures for the client.
    pub(crate) heartbeat: (i32, i32),
    /// Routing flags of every queue.
    pub(crate) routing: u64,
    /// Acknowledge PUTs, with this status.
    pub(crate) ack: Option<AckStatus>,
    /// Push every PUT back to the connection that it came from.
    pub(crate) echo: bool,
    /// Answer to opens, configures, closes, instead of success.
    pub(crate) refuse_open: Option<Category>,
    pub(crate) refuse_configure: Option<Category>,
    /// Leave opens unanswered.
    pub(crate) mute: bool,
    /// Close the connection at the next open, that many times.
    pub(crate) drop_at_open: usize,
    pub(crate) puts: Vec<Stored>,
    /// Queue, GUID, sub-queue id.
    pub(crate) confirms: Vec<(u32, Guid, u32)>,
    pub(crate) requests: Vec<ControlBody>,
    pub(crate) identities: Vec<ClientIdentity>,
    pub(crate) authentications: usize,
    pub(crate) heartbeats_answered: usize,
    pub(crate) connections: usize,
    /// Queue to current subscription (configureStream) or sub-queue id, of the last connection.
    subscriptions: HashMap<u32, u32>,
    current: Option<TcpStream>,
}

pub(crate) struct Fake {
    pub(crate) address: String,
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Fake {
    pub(crate) fn start() -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp://{}", listener.local_addr().unwrap());
        let state = State {
            features: features::BROKER,
            encoding: Encoding::Ber,
            heartbeat: (3000, 0),
            routing: 2,
            ack: Some(AckStatus::Success),
            echo: false,
            refuse_open: None,
            refuse_configure: None,
            mute: false,
            drop_at_open: 0,
            puts: Vec::new(),
            confirms: Vec::new(),
            requests: Vec::new(),
            identities: Vec::new(),
            authentications: 0,
            heartbeats_answered: 0,
            connections: 0,
            subscriptions: HashMap::new(),
            current: None,
        };
        let shared = Arc::new((Mutex::new(state), Condvar::new()));
        let accepted = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, shared) = (stream.unwrap(), accepted.clone());
                std::thread::spawn(move || Peer::new(stream, shared).serve());
            }
        });
        Fake { address, shared }
    }

    /// Looks at the state, or changes it.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.shared.0.lock().unwrap())
    }

    /// Blocks until the state is as wanted; fails the test after ten seconds.
    pub(crate) fn wait(&self, what: &str, mut wanted: impl FnMut(&State) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut state = self.shared.0.lock().unwrap();
        while !wanted(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited in vain until {what}");
            state = self.shared.1.wait_timeout(state, left).unwrap().0;
        }
    }

    /// Cuts the connection.
    pub(crate) fn cut(&self) {
        self.with(|state| {
            if let Some(stream) = state.current.take() {
                // It may have ended by itself.
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
    }

    /// Sends raw bytes to the client.
    pub(crate) fn send(&self, bytes: &[u8]) {
        let mut stream = self.with(|state| state.current.as_ref().unwrap().try_clone().unwrap());
        stream.write_all(bytes).unwrap();
    }

    /// Pushes messages to a queue's current subscription, in one event.
    pub(crate) fn push(&self, queue: u32, messages: &[(Guid, &[u8])]) {
        let id = self.with(|state| state.subscriptions[&queue]);
        self.send(&push_event(
            queue,
            id,
            messages
                .iter()
                .map(|(guid, data)| (*guid, DataFormat::PLAIN, *data)),
        ));
    }
}

fn push_event<'a>(
    queue: u32,
    id: u32,
    messages: impl Iterator<Item = (Guid, DataFormat, &'a [u8])>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut event = PushBuilder::begin(&mut bytes);
    for (guid, format, data) in messages {
        let head = PushHead::new(WireQueueId(queue), guid, format, false);
        event
            .append_copy(&mut bytes, &head, &[SubscriptionId(id)], data)
            .unwrap();
    }
    event.finish(&mut bytes);
    bytes
}

struct Peer {
    stream: TcpStream,
    shared: Arc<(Mutex<State>, Condvar)>,
    negotiated: bool,
    number: usize,
}

impl Peer {
    fn new(stream: TcpStream, shared: Arc<(Mutex<State>, Condvar)>) -> Peer {
        let number = {
            let mut state = shared.0.lock().unwrap();
            state.connections += 1;
            state.subscriptions.clear();
            state.current = Some(stream.try_clone().unwrap());
            state.connections
        };
        Peer {
            stream,
            shared,
            negotiated: false,
            number,
        }
    }

    fn serve(&mut self) {
        let mut buffer = Vec::new();
        let mut chunk = [0; 64 * 1024];
        while let Ok(count @ 1..) = self.stream.read(&mut chunk) {
            buffer.extend_from_slice(&chunk[..count]);
            let mut start = 0;
            while let Some(length) = frame_length(&buffer[start..], &FrameLimits::BROKER).unwrap() {
                let Some(frame) = buffer.get(start..start + length) else {
                    break;
                };
                if self.on_event(&Event::parse(frame).unwrap()).is_none() {
                    // Ends the session's connection as well.
                    let _ = self.stream.shutdown(Shutdown::Both);
                    return;
                }
                start += length;
            }
            buffer.drain(..start);
        }
    }

    fn on_event(&mut self, event: &Event<'_>) -> Option<()> {
        let shared = self.shared.clone();
        let mut state = shared.0.lock().unwrap();
        let state = &mut *state;
        let result = match event.header.kind {
            EventKind::Authentication => {
                state.authentications += 1;
                self.send(
                    state,
                    &Authentication::Response(AuthenticationResponse::default()),
                )
            }
            EventKind::Control if !self.negotiated => self.negotiate(state, event),
            EventKind::Control => self.on_control(state, event),
            EventKind::Put => self.on_put(state, event),
            EventKind::Confirm => {
                state.confirms.extend(
                    ConfirmIter::new(event)
                        .map(|c| c.unwrap())
                        .map(|c| (c.queue.0, c.guid, c.sub_id.0)),
                );
                Some(())
            }
            EventKind::HeartbeatResponse => {
                state.heartbeats_answered += 1;
                Some(())
            }
            other => panic!("a client does not send {other:?}"),
        };
        shared.1.notify_all();
        result
    }

    fn send<D: Document>(&mut self, state: &State, document: &D) -> Option<()> {
        let mut bytes = Vec::new();
        control::encode_event(state.encoding, document, &mut bytes);
        self.stream.write_all(&bytes).ok()
    }

    fn negotiate(&mut self, state: &mut State, event: &Event<'_>) -> Option<()> {
        let Negotiation::ClientIdentity(identity) = control::decode_event(event).unwrap() else {
            panic!("no identity")
        };
        state.identities.push(identity);
        self.negotiated = true;
        let response = BrokerResponse {
            broker_identity: ClientIdentity {
                features: state.features.to_owned(),
                ..ClientIdentity::default()
            },
            heartbeat_interval_ms: state.heartbeat.0,
            max_missed_heartbeats: state.heartbeat.1,
            ..BrokerResponse::default()
        };
        self.send(state, &Negotiation::BrokerResponse(response))
    }

    fn on_control(&mut self, state: &mut State, event: &Event<'_>) -> Option<()> {
        let message: ControlMessage = control::decode_event(event).unwrap();
        state.requests.push(message.body.clone());
        let refusal = |category: Category| {
            ControlBody::Status(Status {
                category,
                code: 7,
                message: "as\ntold".to_owned(),
            })
        };
        let answer = match message.body {
            ControlBody::OpenQueue(_) if state.drop_at_open > 0 => {
                state.drop_at_open -= 1;
                return None;
            }
            ControlBody::OpenQueue(_) if state.mute => return Some(()),
            ControlBody::OpenQueue(request) => match state.refuse_open {
                Some(category) => refusal(category),
                None => ControlBody::OpenQueueResponse(OpenQueueResponse {
                    original_request: request,
                    routing_configuration: RoutingConfiguration {
                        flags: state.routing,
                    },
                    ..OpenQueueResponse::default()
                }),
            },
            ControlBody::ConfigureStream(_) | ControlBody::ConfigureQueueStream(_)
                if state.refuse_configure.is_some() =>
            {
                refusal(state.refuse_configure.unwrap())
            }
            ControlBody::ConfigureStream(request) => {
                let ids = request
                    .stream_parameters
                    .subscriptions
                    .first()
                    .map(|subscription| subscription.s_id);
                match ids {
                    Some(id) => state.subscriptions.insert(request.q_id, id),
                    None => state.subscriptions.remove(&request.q_id),
                };
                ControlBody::ConfigureStreamResponse(ConfigureStreamResponse { request })
            }
            ControlBody::ConfigureQueueStream(request) => {
                let id = request
                    .stream_parameters
                    .sub_id_info
                    .as_ref()
                    .map_or(0, |info| info.sub_id);
                state.subscriptions.insert(request.q_id, id);
                ControlBody::ConfigureQueueStreamResponse(ConfigureQueueStreamResponse { request })
            }
            ControlBody::CloseQueue(_) => ControlBody::CloseQueueResponse(Empty {}),
            ControlBody::Disconnect(_) => ControlBody::DisconnectResponse(Empty {}),
            ControlBody::AdminCommand(command) => ControlBody::AdminResponse(AdminResponse {
                text: format!("you said {}", command.command),
            }),
            other => panic!("a client does not send {other:?}"),
        };
        self.send(
            state,
            &ControlMessage {
                rid: message.rid,
                body: answer,
            },
        )
    }

    fn on_put(&mut self, state: &mut State, event: &Event<'_>) -> Option<()> {
        let mut acks = Vec::new();
        let mut builder = AckBuilder::begin(&mut acks);
        let mut wanted = false;
        for put in PutIter::new(event).map(|put| put.unwrap()) {
            assert_eq!(
                put.crc,
                mqb_core::checksum::crc32c(put.data),
                "checksum of {}",
                put.guid
            );
            let format = put.format().unwrap();
            if let Some(status) = state
                .ack
                .filter(|status| put.flags.ack_requested() || !status.is_success())
            {
                wanted = true;
                builder
                    .append(
                        &mut acks,
                        &Ack {
                            queue: put.queue,
                            guid: put.guid,
                            correlation: 0,
                            status,
                        },
                    )
                    .unwrap();
            }
            state.puts.push(Stored {
                connection: self.number,
                queue: put.queue.0,
                guid: put.guid,
                data: put.data.to_vec(),
                format,
                ack_requested: put.flags.ack_requested(),
            });
            if let (true, Some(id)) = (state.echo, state.subscriptions.get(&put.queue.0)) {
                self.stream
                    .write_all(&push_event(
                        put.queue.0,
                        *id,
                        std::iter::once((put.guid, format, put.data)),
                    ))
                    .ok()?;
            }
        }
        builder.finish(&mut acks);
        if wanted {
            self.stream.write_all(&acks).ok()
        } else {
            Some(())
        }
    }
}
