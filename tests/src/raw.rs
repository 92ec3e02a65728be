//! A peer on a raw socket: what an SDK does, step by step and under the test's control.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::wait::PATIENCE;
use crate::wire::{self, Ack, Event, Guid, Push, Put, kind};

/// Who a peer says it is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// `clientIdentity`, as JSON.
    pub message: Value,
    /// The six bytes that end this peer's GUIDs.
    pub client_id: [u8; 6],
}

/// Features of a peer that wants answers in JSON.
pub const JSON_FEATURES: &str = "PROTOCOL_ENCODING:JSON;MPS:MESSAGE_PROPERTIES_EX";

impl Identity {
    /// A peer in C++'s name that makes its own GUIDs, unlike any other of this test process.
    pub fn unique() -> Identity {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        // Relaxed: only uniqueness matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut client_id = [0; 6];
        client_id[..2].copy_from_slice(&(std::process::id() as u16).to_be_bytes());
        client_id[2..].copy_from_slice(&number.to_be_bytes());
        let hex: String = client_id.iter().map(|byte| format!("{byte:02X}")).collect();
        let message = json!({
            "protocolVersion": 1, "sdkVersion": 999_999, "clientType": "E_TCPCLIENT", "processName": "mqb-tests",
            "pid": std::process::id(), "sessionId": number, "hostName": "", "features": JSON_FEATURES,
            "clusterName": "", "clusterNodeId": -1, "sdkLanguage": "E_CPP",
            "guidInfo": {"clientId": hex, "nanoSecondsFromEpoch": 0},
        });
        Identity { message, client_id }
    }

    /// A Java-shaped peer: JSON only, correlation ids instead of GUIDs.
    pub fn java() -> Identity {
        let mut identity = Identity::unique();
        identity.message["sdkLanguage"] = json!("E_JAVA");
        identity
            .message
            .as_object_mut()
            .expect("an object")
            .remove("guidInfo");
        identity
    }

    /// Replaces one member.
    pub fn with(mut self, member: &str, value: Value) -> Identity {
        self.message[member] = value;
        self
    }

    /// The negotiation event.
    pub fn event(&self) -> Vec<u8> {
        wire::json_event(kind::CONTROL, &json!({"clientIdentity": self.message}))
    }
}

/// One subscription of a configureStream: id, window, priority.
#[derive(Clone, Copy, Debug)]
pub struct Subscription {
    /// `sId`.
    pub id: u32,
    /// `maxUnconfirmedMessages`.
    pub messages: i64,
    /// `maxUnconfirmedBytes`.
    pub bytes: i64,
    /// `consumerPriority`.
    pub priority: i32,
}

impl Subscription {
    /// The window that SDKs ask for by default.
    pub fn new(id: u32) -> Subscription {
        Subscription {
            id,
            messages: 1000,
            bytes: 33_554_432,
            priority: 0,
        }
    }

    /// Another number of messages.
    pub fn messages(mut self, messages: i64) -> Subscription {
        self.messages = messages;
        self
    }

    /// Another number of bytes.
    pub fn bytes(mut self, bytes: i64) -> Subscription {
        self.bytes = bytes;
        self
    }

    /// Another priority.
    pub fn priority(mut self, priority: i32) -> Subscription {
        self.priority = priority;
        self
    }

    fn json(&self) -> Value {
        json!({"sId": self.id, "expression": {"version": "E_UNDEFINED", "text": ""}, "consumers": [{
            "maxUnconfirmedMessages": self.messages, "maxUnconfirmedBytes": self.bytes,
            "consumerPriority": self.priority, "consumerPriorityCount": 1}]})
    }
}

/// Why reading from the broker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The broker closed (or reset) the connection.
    Closed,
    /// Nothing came within the time.
    Silent,
}

/// A connection to the broker.
#[derive(Debug)]
pub struct Peer {
    stream: TcpStream,
    identity: Identity,
    received: Vec<u8>,
    consumed: usize,
    stash: VecDeque<Event>,
    next_request: i64,
    next_guid: u32,
    next_subscription: u32,
}

/// READ in a queue's flags.
pub const READ: u64 = 2;
/// WRITE in a queue's flags.
pub const WRITE: u64 = 4;

impl Peer {
    /// A TCP connection, nothing sent yet.
    #[track_caller]
    pub fn dial(address: SocketAddr, identity: Identity) -> Peer {
        Peer::try_dial(address, identity).expect("the broker accepts connections")
    }

    /// [`Peer::dial`] while the broker may be away.
    pub fn try_dial(address: SocketAddr, identity: Identity) -> std::io::Result<Peer> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Peer {
            stream,
            identity,
            received: Vec::new(),
            consumed: 0,
            stash: VecDeque::new(),
            next_request: 1,
            next_guid: 0,
            next_subscription: 1,
        })
    }

    /// A negotiated session of a new identity.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Peer {
        Peer::connect_as(address, Identity::unique())
    }

    /// A negotiated session of this identity.
    #[track_caller]
    pub fn connect_as(address: SocketAddr, identity: Identity) -> Peer {
        let mut peer = Peer::dial(address, identity);
        let response = peer.negotiate();
        assert_eq!(response["result"]["category"], "E_SUCCESS", "{response}");
        peer
    }

    /// Sends the identity and returns `brokerResponse`.
    #[track_caller]
    pub fn negotiate(&mut self) -> Value {
        self.try_negotiate()
            .expect("the broker answers the negotiation")
    }

    /// [`Peer::negotiate`] while the broker may go away.
    pub fn try_negotiate(&mut self) -> Result<Value, End> {
        self.send(&self.identity.event()).map_err(|_| End::Closed)?;
        match self.next(PATIENCE)? {
            Event::Control(mut message) => Ok(message["brokerResponse"].take()),
            other => panic!("not an answer to the negotiation: {other:?}"),
        }
    }

    /// The identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The socket, for what only a socket can do.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Ends the sending direction; the broker sees the end of the stream.
    pub fn finish(&self) {
        // Fails only when the broker has closed already.
        _ = self.stream.shutdown(Shutdown::Write);
    }

    /// The next event in the order of arrival.
    pub fn next(&mut self, patience: Duration) -> Result<Event, End> {
        match self.stash.pop_front() {
            Some(event) => Ok(event),
            None => self.read_event(patience),
        }
    }

    /// Everything that arrives until the broker closes, is silent for `patience`, or `enough` says so.
    pub fn collect(
        &mut self,
        patience: Duration,
        mut enough: impl FnMut(&[Event]) -> bool,
    ) -> (Vec<Event>, Option<End>) {
        let mut events = Vec::new();
        loop {
            if enough(&events) {
                return (events, None);
            }
            match self.next(patience) {
                Ok(event) => events.push(event),
                Err(end) => return (events, Some(end)),
            }
        }
    }

    fn read_event(&mut self, patience: Duration) -> Result<Event, End> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(event) = self.slice() {
                return Ok(event);
            }
            self.fill(deadline)?;
        }
    }

    /// Takes one whole event out of what was received.
    fn slice(&mut self) -> Option<Event> {
        let bytes = &self.received[self.consumed..];
        let length = u32::from_be_bytes(bytes.get(..4)?.try_into().expect("four bytes")) as usize;
        assert!(
            (8..1 << 31).contains(&length),
            "the broker announced an event of {length} bytes"
        );
        let event = wire::decode(bytes.get(..length)?);
        self.consumed += length;
        if self.consumed == self.received.len() {
            self.received.clear();
            self.consumed = 0;
        }
        Some(event)
    }

    fn fill(&mut self, deadline: Instant) -> Result<(), End> {
        // Moved to the front only when much of it is spent, so that many small events are not quadratic.
        if self.consumed > 1 << 20 {
            self.received.drain(..self.consumed);
            self.consumed = 0;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(End::Silent);
        }
        self.stream
            .set_read_timeout(Some(left))
            .expect("the time left is not zero");
        let mut chunk = [0; 64 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(End::Closed),
            Ok(count) => {
                self.received.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(End::Silent)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(_) => Err(End::Closed),
        }
    }

    /// Whether the broker closes this connection within `patience`; events on the way are dropped.
    pub fn is_closed_within(&mut self, patience: Duration) -> bool {
        self.collect(patience, |_| false).1 == Some(End::Closed)
    }

    /// Waits until a heartbeat request is answered: everything sent before has been read by the broker.
    #[track_caller]
    pub fn round_trip(&mut self) {
        self.send(&wire::heartbeat_request())
            .expect("the broker reads");
        self.wait_for("the answer to a heartbeat", |event| {
            (*event == Event::HeartbeatResponse).then_some(())
        });
    }

    /// Reads on until `pick` likes an event; the others are kept for later, in order.
    #[track_caller]
    pub fn wait_for<T>(&mut self, what: &str, pick: impl FnMut(&Event) -> Option<T>) -> T {
        self.try_wait_for(PATIENCE, pick)
            .unwrap_or_else(|end| panic!("{end:?} while waiting for {what}"))
    }

    /// [`Peer::wait_for`] with an own patience, while the broker may go away.
    pub fn try_wait_for<T>(
        &mut self,
        patience: Duration,
        mut pick: impl FnMut(&Event) -> Option<T>,
    ) -> Result<T, End> {
        if let Some((index, found)) = self
            .stash
            .iter()
            .enumerate()
            .find_map(|(i, event)| pick(event).map(|t| (i, t)))
        {
            self.stash.remove(index);
            return Ok(found);
        }
        let deadline = Instant::now() + patience;
        loop {
            let event = self.read_event(deadline.saturating_duration_since(Instant::now()))?;
            if let Some(found) = pick(&event) {
                return Ok(found);
            }
            self.stash.push_back(event);
        }
    }

    /// Drops the events that were kept while waiting for others.
    pub fn forget_kept(&mut self) {
        self.stash.clear();
    }

    /// A request's bytes and its id.
    pub fn request(&mut self, mut body: Value) -> (i64, Vec<u8>) {
        let id = self.next_request;
        self.next_request += 1;
        body["rId"] = json!(id);
        (id, wire::json_event(kind::CONTROL, &body))
    }

    /// Sends a request and returns its id.
    #[track_caller]
    pub fn send_request(&mut self, body: Value) -> i64 {
        let (id, bytes) = self.request(body);
        self.send(&bytes).expect("the broker reads");
        id
    }

    /// The response to a request.
    #[track_caller]
    pub fn response(&mut self, id: i64) -> Value {
        self.wait_for("a response", |event| match event {
            Event::Control(message) if message["rId"] == id => Some(message.clone()),
            _ => None,
        })
    }

    /// Sends a request and returns the response, other events being kept.
    #[track_caller]
    pub fn call(&mut self, body: Value) -> Value {
        let id = self.send_request(body);
        self.response(id)
    }

    /// [`Peer::call`] while the broker may go away.
    pub fn try_call(&mut self, body: Value, patience: Duration) -> Result<Value, End> {
        let (id, bytes) = self.request(body);
        self.send(&bytes).map_err(|_| End::Closed)?;
        self.try_wait_for(patience, |event| match event {
            Event::Control(message) if message["rId"] == id => Some(message.clone()),
            _ => None,
        })
    }

    /// Opens a queue under a number, which must succeed.
    #[track_caller]
    pub fn open(&mut self, uri: &str, queue: u32, flags: u64) {
        let response = self.call(open_request(uri, queue, flags));
        assert!(
            response.get("openQueueResponse").is_some(),
            "open {uri}: {response}"
        );
    }

    /// Opens for writing.
    #[track_caller]
    pub fn open_write(&mut self, uri: &str, queue: u32) {
        self.open(uri, queue, WRITE);
    }

    /// Opens for reading with SDK's default window, and returns the subscription id in force.
    #[track_caller]
    pub fn open_read(&mut self, uri: &str, queue: u32) -> u32 {
        self.open(uri, queue, READ);
        let subscription = Subscription::new(self.fresh_subscription());
        self.configure(queue, &[subscription]);
        subscription.id
    }

    /// A subscription id that this session has not used.
    pub fn fresh_subscription(&mut self) -> u32 {
        self.next_subscription += 1;
        self.next_subscription - 1
    }

    /// Configures a queue, which must succeed.
    #[track_caller]
    pub fn configure(&mut self, queue: u32, subscriptions: &[Subscription]) {
        let response = self.call(configure_request(queue, subscriptions));
        assert!(
            response.get("configureStreamResponse").is_some(),
            "configure {queue}: {response}"
        );
    }

    /// Closes a queue as an SDK does: empty configuration if it reads, then closeQueue.
    #[track_caller]
    pub fn close(&mut self, uri: &str, queue: u32, flags: u64) {
        if flags & READ != 0 {
            self.configure(queue, &[]);
        }
        let response = self.call(close_request(uri, queue, flags));
        assert!(
            response.get("closeQueueResponse").is_some(),
            "close {uri}: {response}"
        );
    }

    /// Disconnects properly and asserts that the response is the last word.
    #[track_caller]
    pub fn disconnect(mut self) {
        let id = self.send_request(json!({"disconnect": {}}));
        self.response(id);
        self.finish();
        let (events, end) = self.collect(PATIENCE, |_| false);
        let late: Vec<&Event> = events
            .iter()
            .filter(|event| matches!(event, Event::Control(_)))
            .collect();
        assert!(late.is_empty(), "after disconnectResponse: {late:?}");
        assert_eq!(
            end,
            Some(End::Closed),
            "the broker closes when the peer has"
        );
    }

    /// A new GUID of this peer.
    pub fn fresh_guid(&mut self) -> Guid {
        let mut guid = [0; 16];
        // Version 1 in the two top bits, then the counter: its low 22 bits here, all of it in place of the time.
        guid[..3].copy_from_slice(&(0x40_0000 | self.next_guid & 0x3f_ffff).to_be_bytes()[1..]);
        guid[6..10].copy_from_slice(&self.next_guid.to_be_bytes());
        guid[10..].copy_from_slice(&self.identity.client_id);
        self.next_guid += 1;
        guid
    }

    /// Posts one message with a new GUID and an ACK wanted.
    #[track_caller]
    pub fn put(&mut self, queue: u32, data: &[u8]) -> Guid {
        let guid = self.fresh_guid();
        self.send(&wire::put_event(&[Put::new(queue, guid, data)]))
            .expect("the broker reads");
        guid
    }

    /// Posts one message and returns its ACK's status.
    #[track_caller]
    pub fn put_and_wait(&mut self, queue: u32, data: &[u8]) -> u8 {
        let guid = self.put(queue, data);
        self.ack_of(guid).status
    }

    /// The ACK of this message; ACKs of others are dropped.
    #[track_caller]
    pub fn ack_of(&mut self, guid: Guid) -> Ack {
        self.wait_for("an ACK", |event| match event {
            Event::Acks(acks) => acks.iter().find(|ack| ack.guid == guid).copied(),
            _ => None,
        })
    }

    /// Exactly this many ACKs.
    #[track_caller]
    pub fn acks(&mut self, count: usize) -> Vec<Ack> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(self.wait_for("ACKs", |event| match event {
                Event::Acks(acks) => Some(acks.clone()),
                _ => None,
            }));
        }
        assert_eq!(all.len(), count, "more ACKs than asked for");
        all
    }

    /// The next `count` messages; more of the same event are kept.
    #[track_caller]
    pub fn pushes(&mut self, count: usize) -> Vec<Push> {
        let mut all = Vec::new();
        while all.len() < count {
            let have = all.len();
            all.extend(
                self.wait_for(&format!("message {have} of {count}"), |event| match event {
                    Event::Pushes(pushes) => Some(pushes.clone()),
                    _ => None,
                }),
            );
        }
        let rest = all.split_off(count);
        if !rest.is_empty() {
            self.stash.push_front(Event::Pushes(rest));
        }
        all
    }

    /// The messages of the next PUSH event.
    #[track_caller]
    pub fn some_pushes(&mut self) -> Vec<Push> {
        self.wait_for("messages", |event| match event {
            Event::Pushes(pushes) => Some(pushes.clone()),
            _ => None,
        })
    }

    /// The next message; others of its event are kept.
    #[track_caller]
    pub fn one_push(&mut self) -> Push {
        self.pushes(1).remove(0)
    }

    /// Confirms messages of a queue's default stream.
    #[track_caller]
    pub fn confirm(&mut self, queue: u32, guids: &[Guid]) {
        let confirms: Vec<(u32, Guid, u32)> = guids.iter().map(|&guid| (queue, guid, 0)).collect();
        self.send(&wire::confirm_event(kind::CONFIRM, &confirms))
            .expect("the broker reads");
    }

    /// Asserts that no message and no ACK arrives while the broker answers `rounds` heartbeats.
    #[track_caller]
    pub fn assert_quiet(&mut self, rounds: usize) {
        (0..rounds).for_each(|_| self.round_trip());
        assert!(
            self.stash.is_empty(),
            "expected nothing, got {:?}",
            self.stash
        );
    }
}

/// An openQueue request.
pub fn open_request(uri: &str, queue: u32, flags: u64) -> Value {
    json!({"openQueue": {"handleParameters": handle(uri, queue, flags)}})
}

/// A configureStream request for the default stream.
pub fn configure_request(queue: u32, subscriptions: &[Subscription]) -> Value {
    let list: Vec<Value> = subscriptions.iter().map(Subscription::json).collect();
    json!({"configureStream": {"qId": queue, "streamParameters": {"appId": "__default", "subscriptions": list}}})
}

/// A final closeQueue request.
pub fn close_request(uri: &str, queue: u32, flags: u64) -> Value {
    json!({"closeQueue": {"handleParameters": handle(uri, queue, flags), "isFinal": true}})
}

/// `handleParameters` with the counts that fit the flags.
pub fn handle(uri: &str, queue: u32, flags: u64) -> Value {
    json!({"uri": uri, "qId": queue, "flags": flags, "readCount": u8::from(flags & READ != 0),
        "writeCount": u8::from(flags & WRITE != 0), "adminCount": 0})
}
