//! Producers and consumers that keep books: what was acknowledged, what is in doubt, what was confirmed for good. The
//! books outlive connections and the broker, so that a test can compare them with what a restarted broker still has.

use std::collections::{BTreeSet, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::load;
use crate::raw::{self, End, Identity, Peer, READ, Subscription, WRITE};
use crate::rng::Rng;
use crate::wait::PATIENCE;
use crate::wire::{self, Event, Guid, Put, kind};

/// The GUID of message `id` of a producer: the same after any number of reconnects.
pub fn guid_of(client_id: [u8; 6], id: u64) -> Guid {
    let mut guid = [0; 16];
    guid[0] = 0x40;
    guid[2..10].copy_from_slice(&id.to_be_bytes());
    guid[10..].copy_from_slice(&client_id);
    guid
}

/// The id in a GUID of [`guid_of`].
pub fn id_of(guid: Guid) -> u64 {
    u64::from_be_bytes(guid[2..10].try_into().expect("eight bytes"))
}

/// What a group of threads tells the test while it runs.
#[derive(Debug, Default)]
pub struct Progress {
    /// Messages acknowledged.
    pub acked: AtomicU64,
    /// Messages received.
    pub received: AtomicU64,
    /// Asks everyone to come to an end.
    pub stop: AtomicBool,
}

impl Progress {
    /// Whether the test wants an end. Relaxed throughout: these are counters, not hand-overs.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A producer of one queue, with its books.
#[derive(Debug)]
pub struct Producer {
    identity: Identity,
    uri: String,
    next: u64,
    size: (u64, u64),
    rng: Rng,
    /// Acknowledged as stored.
    pub acked: BTreeSet<u64>,
    /// Sent, and not (yet) acknowledged.
    pub in_doubt: BTreeSet<u64>,
}

impl Producer {
    /// A producer of messages between `smallest` and `largest` bytes.
    pub fn new(uri: &str, seed: u64, (smallest, largest): (u64, u64)) -> Producer {
        Producer {
            identity: Identity::unique(),
            uri: uri.to_owned(),
            next: 0,
            size: (smallest, largest),
            rng: Rng::new(seed),
            acked: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
        }
    }

    /// The queue.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The six bytes that end this producer's GUIDs.
    pub fn client_id(&self) -> [u8; 6] {
        self.identity.client_id
    }

    /// Number of messages made so far.
    pub fn sent(&self) -> u64 {
        self.next
    }

    /// A message's bytes. The size follows from the number, so that a retransmission is the same message.
    pub fn payload(&self, id: u64) -> Vec<u8> {
        let (smallest, largest) = self.size;
        let size = smallest + Rng::new(id).below(largest - smallest + 1);
        load::payload(id, size as usize)
    }

    /// Connects, opens, retransmits what is in doubt as an SDK does, and returns the connection.
    pub fn connect(&mut self, address: SocketAddr) -> Result<Peer, End> {
        let mut peer = Peer::try_dial(address, self.identity.clone()).map_err(|_| End::Closed)?;
        peer.try_negotiate()?;
        let response = peer.try_call(raw::open_request(&self.uri, 0, WRITE), PATIENCE)?;
        assert!(response.get("openQueueResponse").is_some(), "{response}");
        let again: Vec<u64> = self.in_doubt.iter().copied().collect();
        for batch in again.chunks(32) {
            self.send(&mut peer, batch)?;
        }
        Ok(peer)
    }

    /// Posts until asked to stop or the connection ends, never more than `window` in doubt.
    pub fn run(
        &mut self,
        address: SocketAddr,
        window: usize,
        progress: &Progress,
    ) -> Result<(), End> {
        let mut peer = self.connect(address)?;
        while !progress.stopped() {
            while self.in_doubt.len() < window {
                let count = 1 + self
                    .rng
                    .below(16.min((window - self.in_doubt.len()) as u64));
                self.post(&mut peer, count)?;
            }
            self.read_acks(&mut peer, progress)?;
        }
        while !self.in_doubt.is_empty() {
            self.read_acks(&mut peer, progress)?;
        }
        peer.try_call(json!({"disconnect": {}}), PATIENCE)
            .map(|_: Value| ())
    }

    /// Posts new messages in one event.
    pub fn post(&mut self, peer: &mut Peer, count: u64) -> Result<(), End> {
        let ids: Vec<u64> = (self.next..self.next + count).collect();
        self.next += count;
        // In doubt from the moment before sending: a send that fails may have arrived.
        self.in_doubt.extend(&ids);
        self.send(peer, &ids)
    }

    /// Waits until nothing is in doubt.
    pub fn settle(&mut self, peer: &mut Peer, progress: &Progress) -> Result<(), End> {
        while !self.in_doubt.is_empty() {
            self.read_acks(peer, progress)?;
        }
        Ok(())
    }

    fn send(&self, peer: &mut Peer, ids: &[u64]) -> Result<(), End> {
        let payloads: Vec<Vec<u8>> = ids.iter().map(|&id| self.payload(id)).collect();
        let client = self.client_id();
        let puts: Vec<Put<'_>> = ids
            .iter()
            .zip(&payloads)
            .map(|(&id, data)| Put::new(0, guid_of(client, id), data))
            .collect();
        peer.send(&wire::put_event(&puts)).map_err(|_| End::Closed)
    }

    fn read_acks(&mut self, peer: &mut Peer, progress: &Progress) -> Result<(), End> {
        let acks = peer.try_wait_for(PATIENCE, |event| match event {
            Event::Acks(acks) => Some(acks.clone()),
            _ => None,
        });
        let acks = match acks {
            Err(End::Silent) => panic!(
                "{}: {} messages are not acknowledged",
                self.uri,
                self.in_doubt.len()
            ),
            other => other?,
        };
        for ack in acks {
            assert_eq!((ack.status, ack.queue), (0, 0), "{}: {ack:?}", self.uri);
            let id = id_of(ack.guid);
            assert!(
                self.in_doubt.remove(&id),
                "{}: message {id} was acknowledged twice on a connection",
                self.uri
            );
            self.acked.insert(id);
            progress.acked.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// A consumer of one queue, with its books.
#[derive(Debug)]
pub struct Consumer {
    identity: Identity,
    uri: String,
    producer: [u8; 6],
    rng: Rng,
    /// One message in this many is left unconfirmed (0: none).
    pub leave_one_in: u64,
    /// Messages after which the queue is closed and opened again.
    pub close_after: u64,
    /// Confirmed, and the close behind the confirm was answered: these are gone for good.
    pub settled: HashSet<u64>,
    /// Confirmed, but nobody said that it arrived.
    pub maybe: HashSet<u64>,
}

impl Consumer {
    /// A consumer of what `producer` sends.
    pub fn new(producer: &Producer, seed: u64) -> Consumer {
        Consumer {
            identity: Identity::unique(),
            uri: producer.uri.clone(),
            producer: producer.client_id(),
            rng: Rng::new(seed),
            leave_one_in: 10,
            close_after: 500,
            settled: HashSet::new(),
            maybe: HashSet::new(),
        }
    }

    /// Consumes until asked to stop or the connection ends, closing the queue now and then.
    pub fn run(&mut self, address: SocketAddr, progress: &Progress) -> Result<(), End> {
        let mut peer = Peer::try_dial(address, self.identity.clone()).map_err(|_| End::Closed)?;
        peer.try_negotiate()?;
        while !progress.stopped() {
            self.open(&mut peer)?;
            let confirmed = self.consume(&mut peer, progress)?;
            self.close(&mut peer)?;
            for id in confirmed {
                self.maybe.remove(&id);
                self.settled.insert(id);
            }
        }
        peer.try_call(json!({"disconnect": {}}), PATIENCE)
            .map(|_: Value| ())
    }

    fn open(&self, peer: &mut Peer) -> Result<(), End> {
        let response = peer.try_call(raw::open_request(&self.uri, 0, READ), PATIENCE)?;
        assert!(response.get("openQueueResponse").is_some(), "{response}");
        let subscription = Subscription::new(peer.fresh_subscription());
        let response = peer.try_call(raw::configure_request(0, &[subscription]), PATIENCE)?;
        assert!(
            response.get("configureStreamResponse").is_some(),
            "{response}"
        );
        Ok(())
    }

    /// Receives for one opening of the queue, and returns what was confirmed.
    fn consume(&mut self, peer: &mut Peer, progress: &Progress) -> Result<Vec<u64>, End> {
        let mut seen = HashSet::new();
        let mut confirmed = Vec::new();
        while (seen.len() as u64) < self.close_after && !progress.stopped() {
            let pushes = match peer.try_wait_for(Duration::from_millis(20), |event| match event {
                Event::Pushes(pushes) => Some(pushes.clone()),
                _ => None,
            }) {
                Ok(pushes) => pushes,
                Err(End::Silent) => continue,
                Err(End::Closed) => return Err(End::Closed),
            };
            let mut confirms = Vec::new();
            for push in pushes {
                let id = load::verify(&push.data);
                assert_eq!(
                    push.guid,
                    guid_of(self.producer, id),
                    "{}: message {id}",
                    self.uri
                );
                assert!(
                    !self.settled.contains(&id),
                    "{}: message {id} came back after its confirm was safe",
                    self.uri
                );
                assert!(
                    seen.insert(id),
                    "{}: message {id} came twice to one consumer",
                    self.uri
                );
                progress.received.fetch_add(1, Ordering::Relaxed);
                if self.leave_one_in == 0 || !self.rng.one_in(self.leave_one_in) {
                    confirms.push((0, push.guid, 0));
                    confirmed.push(id);
                    self.maybe.insert(id);
                }
            }
            peer.send(&wire::confirm_event(kind::CONFIRM, &confirms))
                .map_err(|_| End::Closed)?;
        }
        Ok(confirmed)
    }

    fn close(&self, peer: &mut Peer) -> Result<(), End> {
        let response = peer.try_call(raw::configure_request(0, &[]), PATIENCE)?;
        assert!(
            response.get("configureStreamResponse").is_some(),
            "{response}"
        );
        let response = peer.try_call(raw::close_request(&self.uri, 0, READ), PATIENCE)?;
        assert!(response.get("closeQueueResponse").is_some(), "{response}");
        peer.forget_kept();
        Ok(())
    }
}
