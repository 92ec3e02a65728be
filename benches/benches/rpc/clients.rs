//! Callers. The reference has a reactor per client; ours sends from the thread that calls (sync), or all of a turn's calls in one
//! write (async).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use mio::{Events, Interest, Poll, Token};

use crate::reference::{self, Reactor, Task};
use crate::wire::{Inbound, REPLY, Request, Response};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Sync,
    Async,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Reference,
    Ours,
}

/// What all callers share. Counts of different callers do not share a cache line.
pub(crate) struct Load {
    completed: Vec<Padded>,
    failed: AtomicU64,
    stop: AtomicBool,
}

#[repr(align(128))]
#[derive(Default)]
struct Padded(AtomicU64);

impl Load {
    fn count(&self, caller: usize, response: Response) {
        if response.check() {
            self.completed[caller].0.fetch_add(1, Ordering::Relaxed);
        } else {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn completed(&self) -> u64 {
        self.completed
            .iter()
            .map(|count| count.0.load(Ordering::Relaxed))
            .sum()
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

pub(crate) struct Clients {
    pub(crate) load: Arc<Load>,
    callers: Vec<JoinHandle<()>>,
    reactors: Vec<(Arc<Reactor>, JoinHandle<()>)>,
    address: SocketAddr,
}

impl Clients {
    /// Connects all of them and starts calling.
    pub(crate) fn start(
        mode: Mode,
        kind: Kind,
        count: usize,
        concurrency: usize,
        address: SocketAddr,
        mut accepted: impl FnMut(),
    ) -> Self {
        let load = Arc::new(Load {
            completed: (0..count).map(|_| Padded::default()).collect(),
            failed: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let mut clients = Self {
            load: Arc::clone(&load),
            callers: Vec::new(),
            reactors: Vec::new(),
            address,
        };
        for caller in 0..count {
            let stream = TcpStream::connect(address).expect("the server listens");
            stream.set_nodelay(true).expect("a TCP socket");
            accepted();
            let load = Arc::clone(&load);
            // As evenly as they go.
            let outstanding = concurrency / count + usize::from(caller < concurrency % count);
            match (mode, kind) {
                (Mode::Sync, Kind::Ours) => clients
                    .callers
                    .push(std::thread::spawn(move || sync_ours(stream, &load, caller))),
                (Mode::Async, Kind::Ours) => clients.callers.push(std::thread::spawn(move || {
                    async_ours(stream, &load, caller, outstanding);
                })),
                (Mode::Sync, Kind::Reference) => clients.sync_reference(stream, load, caller),
                (Mode::Async, Kind::Reference) => {
                    clients.async_reference(stream, load, caller, outstanding);
                }
            }
        }
        clients
    }

    fn sync_reference(&mut self, stream: TcpStream, load: Arc<Load>, caller: usize) {
        stream.set_nonblocking(true).expect("a socket");
        let reply = Arc::new((Mutex::new(None), Condvar::new()));
        let replied = Arc::clone(&reply);
        let (reactor, thread) = reference::client(stream, |_| {
            Box::new(move |response| {
                *replied.0.lock().expect("no panic") = Some(response);
                replied.1.notify_one();
            })
        });
        let sender = Arc::clone(&reactor);
        self.reactors.push((reactor, thread));
        self.callers.push(std::thread::spawn(move || {
            let mut id = 0;
            while !load.is_over() {
                id += 1;
                sender.post(Task::Send {
                    connection: 0,
                    bytes: Request::new(id).encode().to_vec(),
                });
                let mut answered = reply.0.lock().expect("no panic");
                let response = loop {
                    match answered.take() {
                        Some(response) => break response,
                        None => answered = reply.1.wait(answered).expect("no panic"),
                    }
                };
                drop(answered);
                load.count(caller, response);
            }
        }));
    }

    fn async_reference(
        &mut self,
        stream: TcpStream,
        load: Arc<Load>,
        caller: usize,
        outstanding: usize,
    ) {
        stream.set_nonblocking(true).expect("a socket");
        let (reactor, thread) = reference::client(stream, move |reactor| {
            let mut id = outstanding as u32;
            Box::new(move |response| {
                load.count(caller, response);
                // The next call takes the way of any other: a task for the reactor, which may be this one.
                if !load.is_over() {
                    id += 1;
                    reactor.post(Task::Send {
                        connection: 0,
                        bytes: Request::new(id).encode().to_vec(),
                    });
                }
            })
        });
        for id in 1..=outstanding as u32 {
            reactor.post(Task::Send {
                connection: 0,
                bytes: Request::new(id).encode().to_vec(),
            });
        }
        self.reactors.push((reactor, thread));
    }

    /// Ends all callers. Before the server, which has to answer the last calls.
    pub(crate) fn stop(self) {
        self.load.stop.store(true, Ordering::Relaxed);
        for caller in self.callers {
            caller.join().expect("no panic");
        }
        for (reactor, thread) in self.reactors {
            reactor.post(Task::Stop);
            thread.join().expect("no panic");
        }
        let _ = self.address;
    }
}

fn sync_ours(mut stream: TcpStream, load: &Load, caller: usize) {
    let mut reply = [0; REPLY];
    let mut id = 0;
    while !load.is_over() {
        id += 1;
        stream
            .write_all(&Request::new(id).encode())
            .expect("the server reads");
        stream.read_exact(&mut reply).expect("the server answers");
        load.count(caller, Response::decode(&reply));
    }
}

fn async_ours(stream: TcpStream, load: &Load, caller: usize, outstanding: usize) {
    stream.set_nonblocking(true).expect("a socket");
    let mut stream = mio::net::TcpStream::from_std(stream);
    let mut poll = Poll::new().expect("an epoll");
    poll.registry()
        .register(
            &mut stream,
            Token(0),
            Interest::READABLE | Interest::WRITABLE,
        )
        .expect("epoll takes it");
    let mut events = Events::with_capacity(8);
    let mut inbound = Inbound::new();
    let mut outbound = Vec::new();
    let mut id = 0;
    for _ in 0..outstanding {
        id += 1;
        outbound.extend_from_slice(&Request::new(id).encode());
    }
    while !load.is_over() && outstanding > 0 {
        while !outbound.is_empty() {
            match stream.write(&outbound) {
                Ok(count) => drop(outbound.drain(..count)),
                // Writable again, or gone: the loop hears of it.
                Err(_) => break,
            }
        }
        poll.poll(&mut events, None).expect("epoll works");
        while let Some(is_full) = inbound.fill(&mut stream) {
            inbound.frames(REPLY, |frame| {
                load.count(caller, Response::decode(frame));
                id += 1;
                outbound.extend_from_slice(&Request::new(id).encode());
            });
            if !is_full {
                break;
            }
        }
    }
}
