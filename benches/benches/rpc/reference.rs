//! Kudu's topology: caller, client reactor, server reactor, worker, server reactor, client reactor, caller.
//!
//! As its RPC layer does it: a reactor is woken when its task queue was empty; one `recv` per frame, with four bytes more so that it is
//! seen whether another follows; one `send` per message, tried at once; a call is an allocation, kept in a binary heap by deadline;
//! idle workers are a stack of slots with a mutex and a condition variable, notified under the mutex.

use std::collections::{BinaryHeap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::marker::PhantomData;
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use mio::{Events, Interest, Poll, Token, Waker};
use mqb_benches::wall_ns;

use crate::wire::{REPLY, REQUEST, Request, Response};

const WAKER: Token = Token(usize::MAX);

pub(crate) enum Task {
    Connect(TcpStream),
    Send { connection: usize, bytes: Vec<u8> },
    Stop,
}

/// What other threads see of a reactor.
pub(crate) struct Reactor {
    tasks: Mutex<VecDeque<Task>>,
    waker: Waker,
}

impl Reactor {
    pub(crate) fn post(&self, task: Task) {
        let was_empty = {
            let mut tasks = self.tasks.lock().expect("no panic");
            tasks.push_back(task);
            tasks.len() == 1
        };
        if was_empty {
            self.waker.wake().expect("an eventfd can be written");
        }
    }
}

/// Starts a reactor; `on_frame` gets each frame of `frame` bytes and the number of its connection.
pub(crate) fn start<F>(
    frame: usize,
    on_frame: impl FnOnce(Arc<Reactor>) -> F,
) -> (Arc<Reactor>, JoinHandle<()>)
where
    F: FnMut(usize, &[u8]) + Send + 'static,
{
    let poll = Poll::new().expect("an epoll");
    let reactor = Arc::new(Reactor {
        tasks: Mutex::new(VecDeque::new()),
        waker: Waker::new(poll.registry(), WAKER).expect("an eventfd"),
    });
    let mut on_frame = on_frame(Arc::clone(&reactor));
    let shared = Arc::clone(&reactor);
    let thread = std::thread::spawn(move || run(poll, &shared, frame, &mut on_frame));
    (reactor, thread)
}

struct Connection {
    stream: mio::net::TcpStream,
    inbound: Vec<u8>,
    have: usize,
    outbound: VecDeque<Vec<u8>>,
    written: usize,
}

fn run(mut poll: Poll, shared: &Reactor, frame: usize, on_frame: &mut dyn FnMut(usize, &[u8])) {
    let mut events = Events::with_capacity(256);
    let mut connections: Vec<Connection> = Vec::new();
    let mut tasks = VecDeque::new();
    loop {
        poll.poll(&mut events, None).expect("epoll works");
        for event in &events {
            if event.token() == WAKER {
                continue;
            }
            let connection = &mut connections[event.token().0];
            if event.is_writable() {
                connection.write();
            }
            if event.is_readable() {
                connection.read(frame, |bytes| on_frame(event.token().0, bytes));
            }
        }
        std::mem::swap(&mut *shared.tasks.lock().expect("no panic"), &mut tasks);
        for task in tasks.drain(..) {
            match task {
                Task::Stop => return,
                Task::Connect(stream) => {
                    let mut stream = mio::net::TcpStream::from_std(stream);
                    let token = Token(connections.len());
                    poll.registry()
                        .register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)
                        .expect("epoll takes it");
                    connections.push(Connection {
                        stream,
                        inbound: vec![0; frame + 4],
                        have: 0,
                        outbound: VecDeque::new(),
                        written: 0,
                    });
                }
                Task::Send { connection, bytes } => {
                    let connection = &mut connections[connection];
                    connection.outbound.push_back(bytes);
                    if connection.outbound.len() == 1 {
                        connection.write();
                    }
                }
            }
        }
    }
}

impl Connection {
    fn read(&mut self, frame: usize, mut on_frame: impl FnMut(&[u8])) {
        loop {
            // The rest of this frame, and the beginning of the next if it is there.
            let room = &mut self.inbound[self.have..];
            let wanted = room.len();
            let count = match self.stream.read(room) {
                Ok(0) => return,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return,
            };
            self.have += count;
            if self.have >= frame {
                on_frame(&self.inbound[..frame]);
                self.inbound.copy_within(frame..self.have, 0);
                self.have -= frame;
            }
            if count < wanted {
                return;
            }
        }
    }

    fn write(&mut self) {
        while let Some(bytes) = self.outbound.front() {
            match self.stream.write(&bytes[self.written..]) {
                Ok(count) if self.written + count == bytes.len() => {
                    self.written = 0;
                    self.outbound.pop_front();
                }
                Ok(count) => self.written += count,
                // Writable again, or gone: the reactor hears of it.
                Err(_) => return,
            }
        }
    }
}

/// How a queue learns a call's deadline.
pub(crate) trait Deadline: Send + Sync + 'static {
    fn of(call: &Call) -> u64;
}

/// Computed once when the call was received.
pub(crate) struct Cached;

impl Deadline for Cached {
    #[inline]
    fn of(call: &Call) -> u64 {
        call.deadline_ns
    }
}

/// Computed at each comparison, by a function that is not inlined, and about which the optimiser knows no more than about one of another
/// translation unit: it could hoist a pure one out of the loop over a heap's levels.
pub(crate) struct Recomputed;

impl Deadline for Recomputed {
    #[inline(never)]
    fn of(call: &Call) -> u64 {
        std::hint::black_box(call).compute()
    }
}

/// As Kudu had it: the deadline's function calls two of the time library, for the conversion and for the sum, and none is inlined.
pub(crate) struct ThreeFunctions;

impl Deadline for ThreeFunctions {
    #[inline(never)]
    fn of(call: &Call) -> u64 {
        match std::hint::black_box(call).request.timeout_ms {
            0 => u64::MAX,
            ms => add(call.received_ns, from_milliseconds(u64::from(ms))),
        }
    }
}

#[inline(never)]
fn from_milliseconds(ms: u64) -> u64 {
    std::hint::black_box(ms).saturating_mul(1_000_000)
}

#[inline(never)]
fn add(time: u64, delta: u64) -> u64 {
    std::hint::black_box(time).saturating_add(delta)
}

/// 64 bytes: what is slow here must not be the memory.
pub(crate) struct Call {
    received_ns: u64,
    deadline_ns: u64,
    arrival: u64,
    request: Request,
    route: Option<(Arc<Reactor>, usize)>,
}

const _: () = assert!(size_of::<Call>() == 64);

impl Call {
    pub(crate) fn new(
        request: Request,
        received_ns: u64,
        route: Option<(Arc<Reactor>, usize)>,
    ) -> Box<Self> {
        let mut call = Box::new(Self {
            received_ns,
            deadline_ns: 0,
            arrival: 0,
            request,
            route,
        });
        call.deadline_ns = call.compute();
        call
    }

    /// No timeout means never.
    #[inline]
    fn compute(&self) -> u64 {
        match self.request.timeout_ms {
            0 => u64::MAX,
            ms => self
                .received_ns
                .saturating_add(u64::from(ms).saturating_mul(1_000_000)),
        }
    }

    pub(crate) fn class(&self) -> usize {
        self.request.class as usize
    }

    /// The same call again, at another time.
    pub(crate) fn renew(&mut self, received_ns: u64) {
        self.received_ns = received_ns;
        self.deadline_ns = self.compute();
    }

    fn answer(self, sum: Option<u32>) {
        if let Some((reactor, connection)) = self.route {
            let response = Response {
                id: self.request.id,
                sum,
            };
            reactor.post(Task::Send {
                connection,
                bytes: response.encode().to_vec(),
            });
        }
    }
}

/// A call in a heap whose greatest is the most urgent.
pub(crate) struct Ordered<D>(pub(crate) Box<Call>, PhantomData<D>);

impl<D> Ordered<D> {
    pub(crate) fn new(call: Box<Call>) -> Self {
        Self(call, PhantomData)
    }
}

impl<D: Deadline> Ordered<D> {
    /// Deadline, then arrival, in one number: comparing it takes no branch, so that no misprediction hides what is asked about.
    #[inline]
    fn key(&self) -> u128 {
        u128::from(D::of(&self.0)) << 64 | u128::from(self.0.arrival)
    }
}

impl<D: Deadline> Ord for Ordered<D> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.key().cmp(&self.key())
    }
}

impl<D: Deadline> PartialOrd for Ordered<D> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }

    // What the standard heap calls.
    #[inline]
    fn le(&self, other: &Self) -> bool {
        other.key() <= self.key()
    }
}

impl<D: Deadline> PartialEq for Ordered<D> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<D: Deadline> Eq for Ordered<D> {}

/// Where workers get calls.
pub(crate) trait CallQueue: Send + Sync + 'static {
    fn new(workers: usize) -> Self;
    fn put(&self, call: Box<Call>);
    fn get(&self, worker: usize) -> Option<Box<Call>>;
    fn close(&self);
}

const BOUND: usize = 200;

/// The service queue of Kudu.
pub(crate) struct Kudu<D> {
    state: Mutex<KuduState<D>>,
    slots: Vec<Slot>,
}

struct KuduState<D> {
    heap: BinaryHeap<Ordered<D>>,
    idle: Vec<usize>,
    arrivals: u64,
    is_closed: bool,
}

#[derive(Default)]
struct Slot {
    posted: Mutex<Option<Option<Box<Call>>>>,
    changed: Condvar,
}

impl Slot {
    fn post(&self, call: Option<Box<Call>>) {
        let mut posted = self.posted.lock().expect("no panic");
        *posted = Some(call);
        // With the lock held, as there.
        self.changed.notify_one();
    }
}

impl<D: Deadline> CallQueue for Kudu<D> {
    fn new(workers: usize) -> Self {
        Self {
            state: Mutex::new(KuduState {
                heap: BinaryHeap::with_capacity(BOUND),
                idle: Vec::with_capacity(workers),
                arrivals: 0,
                is_closed: false,
            }),
            slots: (0..workers).map(|_| Slot::default()).collect(),
        }
    }

    fn put(&self, mut call: Box<Call>) {
        let mut state = self.state.lock().expect("no panic");
        if state.heap.is_empty()
            && let Some(worker) = state.idle.pop()
        {
            drop(state);
            self.slots[worker].post(Some(call));
            return;
        }
        if state.heap.len() >= BOUND {
            drop(state);
            call.answer(None);
            return;
        }
        state.arrivals += 1;
        call.arrival = state.arrivals;
        state.heap.push(Ordered::new(call));
    }

    fn get(&self, worker: usize) -> Option<Box<Call>> {
        {
            let mut state = self.state.lock().expect("no panic");
            if let Some(Ordered(call, _)) = state.heap.pop() {
                return Some(call);
            }
            if state.is_closed {
                return None;
            }
            state.idle.push(worker);
        }
        let slot = &self.slots[worker];
        let mut posted = slot.posted.lock().expect("no panic");
        loop {
            if let Some(call) = posted.take() {
                return call;
            }
            posted = slot.changed.wait(posted).expect("no panic");
        }
    }

    fn close(&self) {
        let mut state = self.state.lock().expect("no panic");
        state.is_closed = true;
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        for worker in idle {
            self.slots[worker].post(None);
        }
    }
}

/// One mutex, one condition variable, first come first served.
pub(crate) struct Plain {
    state: Mutex<(VecDeque<Box<Call>>, bool)>,
    changed: Condvar,
}

impl CallQueue for Plain {
    fn new(_workers: usize) -> Self {
        Self {
            state: Mutex::new((VecDeque::with_capacity(BOUND), false)),
            changed: Condvar::new(),
        }
    }

    fn put(&self, call: Box<Call>) {
        let mut state = self.state.lock().expect("no panic");
        if state.0.len() >= BOUND {
            drop(state);
            call.answer(None);
            return;
        }
        state.0.push_back(call);
        drop(state);
        self.changed.notify_one();
    }

    fn get(&self, _worker: usize) -> Option<Box<Call>> {
        let mut state = self.state.lock().expect("no panic");
        loop {
            if let Some(call) = state.0.pop_front() {
                return Some(call);
            }
            if state.1 {
                return None;
            }
            state = self.changed.wait(state).expect("no panic");
        }
    }

    fn close(&self) {
        self.state.lock().expect("no panic").1 = true;
        self.changed.notify_all();
    }
}

/// Reactors and workers around a queue.
pub(crate) struct Server<Q> {
    queue: Arc<Q>,
    reactors: Vec<(Arc<Reactor>, JoinHandle<()>)>,
    workers: Vec<JoinHandle<()>>,
    next: usize,
}

impl<Q: CallQueue> Server<Q> {
    pub(crate) fn start(reactors: usize, workers: usize) -> Self {
        let queue = Arc::new(Q::new(workers));
        let reactors = (0..reactors)
            .map(|_| {
                let queue = Arc::clone(&queue);
                start(REQUEST, move |reactor| {
                    move |connection, frame: &[u8]| {
                        let request = Request::decode(frame);
                        let route = Some((Arc::clone(&reactor), connection));
                        queue.put(Call::new(request, wall_ns(), route));
                    }
                })
            })
            .collect();
        let work = |worker: usize| {
            let queue = Arc::clone(&queue);
            std::thread::spawn(move || {
                while let Some(call) = queue.get(worker) {
                    // One read for the time it was taken, and one for the test, as there.
                    let taken = wall_ns();
                    let is_expired = taken.max(wall_ns()) >= call.deadline_ns;
                    let sum = (!is_expired).then(|| call.request.sum());
                    call.answer(sum);
                }
            })
        };
        Self {
            workers: (0..workers).map(work).collect(),
            queue,
            reactors,
            next: 0,
        }
    }

    pub(crate) fn accept(&mut self, stream: TcpStream) {
        let reactor = self.next % self.reactors.len();
        self.next += 1;
        self.reactors[reactor].0.post(Task::Connect(stream));
    }

    pub(crate) fn stop(self) {
        self.queue.close();
        for worker in self.workers {
            worker.join().expect("no panic");
        }
        for (reactor, thread) in self.reactors {
            reactor.post(Task::Stop);
            thread.join().expect("no panic");
        }
    }
}

/// A client reactor for one connection, with `on_reply` called on it.
pub(crate) fn client(
    stream: TcpStream,
    on_reply: impl FnOnce(Arc<Reactor>) -> Box<dyn FnMut(Response) + Send>,
) -> (Arc<Reactor>, JoinHandle<()>) {
    let (reactor, thread) = start(REPLY, |reactor| {
        let mut on_reply = on_reply(reactor);
        move |_: usize, frame: &[u8]| on_reply(Response::decode(frame))
    });
    reactor.post(Task::Connect(stream));
    (reactor, thread)
}
