//! A broker that keeps nothing: acknowledges at once and passes messages straight on to the queue's latest consumer.
//!
//! It shows what client, protocol and loopback cost by themselves. Prints its address; runs until its standard input ends.
//!
//! ```sh
//! cargo run --release -p mqb-client --example null_broker
//! ```
//!
//! No windows, no durability, no error handling worth the name: never use it for anything but measuring.

use std::collections::HashMap;
use std::io::{self, BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use mqb_core::control::{
    self, BrokerResponse, ClientIdentity, ConfigureStreamResponse, ControlBody, ControlMessage,
    Document, Empty, Encoding, Negotiation, OpenQueueResponse,
};
use mqb_core::wire::{
    Ack, AckBuilder, AckStatus, Event, EventKind, FrameLimits, PushBuilder, PushHead, PutIter,
    frame_length,
};
use mqb_core::{SubscriptionId, WireQueueId, features};

/// Where a queue's messages go.
struct Consumer {
    socket: TcpStream,
    queue: WireQueueId,
    subscription: SubscriptionId,
}

type Consumers = Arc<Mutex<HashMap<String, Arc<Mutex<Consumer>>>>>;

struct Peer {
    socket: TcpStream,
    consumers: Consumers,
    negotiated: bool,
    /// URI of each of its queues.
    queues: HashMap<u32, String>,
    acks: Vec<u8>,
    pushes: Vec<u8>,
}

impl Peer {
    fn serve(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 4 << 20];
        let mut have = 0;
        loop {
            if have == buffer.len() {
                buffer.resize(have * 2, 0);
            }
            have += match self.socket.read(&mut buffer[have..])? {
                0 => return Ok(()),
                count => count,
            };
            let mut start = 0;
            while let Some(length) = frame_length(&buffer[start..have], &FrameLimits::BROKER)
                .map_err(io::Error::other)?
            {
                let Some(frame) = buffer[..have].get(start..start + length) else {
                    break;
                };
                self.on_event(&Event::parse(frame).map_err(io::Error::other)?)?;
                start += length;
            }
            buffer.copy_within(start..have, 0);
            have -= start;
        }
    }

    fn on_event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match event.header.kind {
            EventKind::Control if !self.negotiated => {
                self.negotiated = true;
                let broker_identity = ClientIdentity {
                    features: features::BROKER.to_owned(),
                    ..ClientIdentity::default()
                };
                self.send(&Negotiation::BrokerResponse(BrokerResponse {
                    broker_identity,
                    max_missed_heartbeats: 0,
                    ..BrokerResponse::default()
                }))
            }
            EventKind::Control => self.on_control(event),
            EventKind::Put => self.on_put(event),
            _ => Ok(()),
        }
    }

    fn send<D: Document>(&mut self, document: &D) -> io::Result<()> {
        let mut bytes = Vec::new();
        control::encode_event(Encoding::Ber, document, &mut bytes);
        self.socket.write_all(&bytes)
    }

    fn on_control(&mut self, event: &Event<'_>) -> io::Result<()> {
        let message: ControlMessage = control::decode_event(event).map_err(io::Error::other)?;
        let body = match message.body {
            ControlBody::OpenQueue(original_request) => {
                let parameters = &original_request.handle_parameters;
                self.queues.insert(parameters.q_id, parameters.uri.clone());
                ControlBody::OpenQueueResponse(OpenQueueResponse {
                    original_request,
                    ..OpenQueueResponse::default()
                })
            }
            ControlBody::ConfigureStream(request) => {
                let uri = self.queues.get(&request.q_id).cloned().unwrap_or_default();
                let mut consumers = self
                    .consumers
                    .lock()
                    .expect("nothing panics under the lock");
                match request.stream_parameters.subscriptions.first() {
                    Some(subscription) => {
                        let (queue, subscription) =
                            (WireQueueId(request.q_id), SubscriptionId(subscription.s_id));
                        let consumer = Consumer {
                            socket: self.socket.try_clone()?,
                            queue,
                            subscription,
                        };
                        consumers.insert(uri, Arc::new(Mutex::new(consumer)));
                    }
                    None => drop(consumers.remove(&uri)),
                }
                drop(consumers);
                ControlBody::ConfigureStreamResponse(ConfigureStreamResponse { request })
            }
            ControlBody::CloseQueue(_) => ControlBody::CloseQueueResponse(Empty {}),
            ControlBody::Disconnect(_) => ControlBody::DisconnectResponse(Empty {}),
            _ => return Ok(()),
        };
        self.send(&ControlMessage {
            rid: message.rid,
            body,
        })
    }

    /// Messages of one event are for one queue: that is how the load sends them.
    fn on_put(&mut self, event: &Event<'_>) -> io::Result<()> {
        let first = PutIter::new(event)
            .find_map(Result::ok)
            .map_or(0, |put| put.queue.0);
        let uri = self.queues.get(&first).map_or("", String::as_str);
        let consumer = self
            .consumers
            .lock()
            .expect("nothing panics under the lock")
            .get(uri)
            .cloned();
        let mut consumer = consumer
            .as_ref()
            .map(|consumer| consumer.lock().expect("nothing panics under the lock"));
        let (queue, id) = consumer
            .as_ref()
            .map_or((WireQueueId(0), SubscriptionId(0)), |consumer| {
                (consumer.queue, consumer.subscription)
            });
        self.acks.clear();
        self.pushes.clear();
        let mut acks = AckBuilder::begin(&mut self.acks);
        let mut pushes = PushBuilder::begin(&mut self.pushes);
        for put in PutIter::new(event).map_while(Result::ok) {
            let ack = Ack {
                queue: put.queue,
                guid: put.guid,
                correlation: 0,
                status: AckStatus::Success,
            };
            acks.append(&mut self.acks, &ack)
                .map_err(io::Error::other)?;
            let head = PushHead::new(
                queue,
                put.guid,
                put.format().map_err(io::Error::other)?,
                false,
            );
            pushes
                .append_copy(&mut self.pushes, &head, &[id], put.data)
                .map_err(io::Error::other)?;
        }
        acks.finish(&mut self.acks);
        pushes.finish(&mut self.pushes);
        if let Some(consumer) = &mut consumer {
            consumer.socket.write_all(&self.pushes)?;
        }
        self.socket.write_all(&self.acks)
    }
}

fn main() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("tcp://{}", listener.local_addr()?);
    let consumers = Consumers::default();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let consumers = consumers.clone();
            std::thread::spawn(move || {
                let mut peer = Peer {
                    socket,
                    consumers,
                    negotiated: false,
                    queues: HashMap::new(),
                    acks: Vec::new(),
                    pushes: Vec::new(),
                };
                if let Err(error) = peer.serve() {
                    eprintln!("connection ended: {error}");
                }
            });
        }
    });
    io::stdin().lock().lines().for_each(drop);
    Ok(())
}
