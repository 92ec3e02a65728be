//! The server as the broker has it: connections are clients of a dispatcher, replies leave in one write per turn. Calls are handled
//! on the loop that read them, or by a service pool, or (to compare) by workers around one mutex and one condition variable.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::Write;
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use mio::Interest;
use mqb_dispatcher::calls::{
    Answer, Bound, CallHeader, CallInfo, Class, ClassConfig, InboundCall, PoolConfig, PoolHandle,
    PostTo, Reply, Service, ServicePool,
};
use mqb_dispatcher::{
    Client, ClientCore, ClientKind, Clock, Cx, Dispatcher, DispatcherConfig, Hooks, IoToken,
    Placement, Readiness, SystemClock,
};

use crate::wire::{Inbound, REQUEST, Request, Response};

const KIND: ClientKind = ClientKind::new(0, "connection");

pub(crate) struct Event(Response);

fn event(call: CallInfo, answer: Answer<u32>) -> Event {
    Event(response(call, answer))
}

fn response(call: CallInfo, answer: Answer<u32>) -> Response {
    Response {
        id: call.request,
        sum: match answer {
            Answer::Done(sum) => Some(sum),
            Answer::Refused(_) | Answer::Failed => None,
        },
    }
}

type Remote = PostTo<Event, u32>;
type RemoteCall = InboundCall<[u32; 2], Remote>;

/// The way of a reply that never leaves the loop.
struct Local(Rc<RefCell<Vec<u8>>>);

impl Reply for Local {
    type Response = u32;

    fn reply(self, call: CallInfo, answer: Answer<u32>) {
        let bytes = response(call, answer).encode();
        self.0.borrow_mut().extend_from_slice(&bytes);
    }
}

pub(crate) struct Sum;

impl Service for Sum {
    type Body = [u32; 2];
    type Route = Remote;

    fn handle(&self, call: RemoteCall) {
        let [a, b] = *call.body();
        call.respond(a.wrapping_add(b));
    }
}

/// One mutex and one condition variable.
#[derive(Default)]
struct Plain {
    state: Mutex<(VecDeque<RemoteCall>, bool)>,
    changed: Condvar,
}

impl Plain {
    fn put(&self, call: RemoteCall) {
        self.state.lock().expect("no panic").0.push_back(call);
        self.changed.notify_one();
    }

    fn get(&self) -> Option<RemoteCall> {
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
}

#[derive(Clone)]
enum Way {
    Loop,
    Pool(PoolHandle<Sum>),
    Plain(Arc<Plain>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handling {
    OnTheLoop,
    HandedOff,
    PlainCondvar,
}

struct Connection {
    core: ClientCore,
    stream: mio::net::TcpStream,
    token: IoToken,
    way: Way,
    route: Remote,
    inbound: Inbound,
    outbound: Rc<RefCell<Vec<u8>>>,
}

impl Connection {
    fn dispatch(&self, cx: &Cx<'_, Event>, request: &Request) {
        let header = CallHeader {
            request: request.id,
            class: Class(request.class as u8),
            timeout: Some(Duration::from_millis(u64::from(request.timeout_ms))),
            ..CallHeader::default()
        };
        let now = cx.now();
        match &self.way {
            Way::Loop => {
                let route = Local(Rc::clone(&self.outbound));
                let call = InboundCall::receive(&header, request.operands, route, now);
                if let Some(call) = call.start(now) {
                    let [a, b] = *call.body();
                    call.respond(a.wrapping_add(b));
                }
            }
            Way::Pool(pool) => {
                let route = self.route.clone();
                pool.put(
                    InboundCall::receive(&header, request.operands, route, now),
                    now,
                );
            }
            Way::Plain(queue) => {
                let route = self.route.clone();
                queue.put(InboundCall::receive(&header, request.operands, route, now));
            }
        }
    }
}

impl Client<Event> for Connection {
    fn core(&self) -> &ClientCore {
        &self.core
    }

    fn on_event(&mut self, _cx: &mut Cx<'_, Event>, event: Event) {
        let bytes = event.0.encode();
        self.outbound.borrow_mut().extend_from_slice(&bytes);
    }

    fn on_ready(&mut self, cx: &mut Cx<'_, Event>, token: IoToken, ready: Readiness) {
        debug_assert!(token == self.token);
        if !ready.is_readable() {
            return;
        }
        // Out of the way while calls are dispatched, which borrows the rest.
        let mut inbound = std::mem::replace(&mut self.inbound, Inbound::empty());
        loop {
            let filled = inbound.fill(&mut self.stream);
            inbound.frames(REQUEST, |frame| self.dispatch(cx, &Request::decode(frame)));
            match filled {
                Some(true) => {}
                Some(false) => break,
                None => {
                    cx.unregister_self();
                    break;
                }
            }
        }
        self.inbound = inbound;
    }

    fn flush(&mut self, _cx: &mut Cx<'_, Event>) {
        let mut outbound = self.outbound.borrow_mut();
        while !outbound.is_empty() {
            match self.stream.write(&outbound) {
                Ok(count) => drop(outbound.drain(..count)),
                // Writable again, or gone: the loop hears of it.
                Err(_) => return,
            }
        }
    }
}

/// As the broker has it: no more loops than cores.
pub(crate) fn processors(reactors: usize) -> usize {
    reactors.min(std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

pub(crate) struct Server {
    dispatcher: Dispatcher<Event>,
    pool: Option<ServicePool<Sum>>,
    plain: Option<(Arc<Plain>, Vec<JoinHandle<()>>)>,
    way: Way,
}

impl Server {
    pub(crate) fn start(handling: Handling, reactors: usize, workers: usize) -> Self {
        let dispatcher = Dispatcher::start(
            DispatcherConfig {
                processors: processors(reactors) as u16,
                stuck_after: Duration::ZERO,
                ..DispatcherConfig::default()
            },
            Hooks::default(),
        )
        .expect("processors");
        let (mut pool, mut plain) = (None, None);
        let way = match handling {
            Handling::OnTheLoop => Way::Loop,
            Handling::HandedOff => {
                let started = ServicePool::start(pool_config(workers), Sum).expect("workers");
                let way = Way::Pool(started.handle());
                pool = Some(started);
                way
            }
            Handling::PlainCondvar => {
                let queue = Arc::new(Plain::default());
                let threads = (0..workers).map(|_| plain_worker(&queue)).collect();
                plain = Some((Arc::clone(&queue), threads));
                Way::Plain(queue)
            }
        };
        Self {
            dispatcher,
            pool,
            plain,
            way,
        }
    }

    pub(crate) fn accept(&mut self, stream: TcpStream) {
        let way = self.way.clone();
        self.dispatcher
            .registrar()
            .register(Placement::LeastLoaded(KIND), move |core, cx| {
                let mut stream = mio::net::TcpStream::from_std(stream);
                let token = cx
                    .register_io(&mut stream, Interest::READABLE | Interest::WRITABLE)
                    .expect("epoll takes it");
                Box::new(Connection {
                    core,
                    stream,
                    token,
                    way,
                    route: PostTo::new(cx.handle(), event),
                    inbound: Inbound::new(),
                    outbound: Rc::default(),
                })
            });
    }

    pub(crate) fn stop(self) {
        if let Some(pool) = self.pool {
            pool.stop(Duration::from_secs(5)).expect("nothing is stuck");
        }
        if let Some((queue, threads)) = self.plain {
            queue.state.lock().expect("no panic").1 = true;
            queue.changed.notify_all();
            for thread in threads {
                thread.join().expect("no panic");
            }
        }
        self.dispatcher
            .stop(Duration::from_secs(5))
            .expect("nothing lingers");
    }
}

fn plain_worker(queue: &Arc<Plain>) -> JoinHandle<()> {
    let queue = Arc::clone(queue);
    std::thread::spawn(move || {
        while let Some(call) = queue.get() {
            if let Some(call) = call.start(SystemClock.now()) {
                Sum.handle(call);
            }
        }
    })
}

fn pool_config(workers: usize) -> PoolConfig {
    PoolConfig {
        workers: workers as u16,
        classes: vec![ClassConfig {
            name: "sum",
            may_block: false,
            ..ClassConfig::default()
        }],
        // The bound of rpc-bench's service, as the least.
        bound: Bound::Time {
            target: Duration::from_millis(5),
            min: 200,
            max: 1024,
        },
        ..PoolConfig::default()
    }
}
