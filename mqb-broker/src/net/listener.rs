//! The door: accepts connections and gives each a session on the least loaded processor.
//!
//! Owned by: processor 0. New connections are the first to be refused when descriptors or the configured number run out;
//! what is open, storage included, keeps its descriptors. At end of life it passes `Drain` on to every session.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use mio::Interest;
use mio::net::{TcpListener, TcpStream};
use mqb_core::SessionId;
use mqb_dispatcher::{
    Client, ClientCore, Cx, Handle, IoToken, Placement, ProcessorId, Readiness, Registrar, TimerId,
};
use socket2::{Domain, Protocol, Socket, Type};

use crate::event::{CLUSTER, Event, SESSION};
use crate::session::client::{Session, SessionContext};

/// Connections waiting to be accepted, as far as the operating system allows.
const BACKLOG: i32 = 1024;
/// Accepted per turn, so that a storm of connections does not starve the processor's other clients.
const ACCEPTS_PER_TURN: usize = 64;
/// Pause after the process ran out of descriptors or memory.
const BACK_OFF: Duration = Duration::from_millis(200);

/// Binds the listening socket, so that a wrong or busy address is known before anything is started.
///
/// **Errors**: of the operating system.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // A restart must not wait for old connections to time out in the kernel.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Figures about connections. Shared; for metrics and for whoever waits for the last one to end.
#[derive(Debug, Default)]
pub struct ConnectionStats {
    /// Open at this moment.
    pub open: AtomicUsize,
    /// Accepted since the start.
    pub accepted: AtomicU64,
    /// Closed at once because there were too many.
    pub refused: AtomicU64,
    /// Times that accepting failed for want of descriptors or memory.
    pub accept_errors: AtomicU64,
    /// Messages that were not sent because their subscription was not valid; each is a defect.
    pub stale_pushes: AtomicU64,
    /// PUTs refused by sessions, before they came to a queue.
    pub rejected_puts: AtomicU64,
}

/// Counts one open connection for as long as it lives, whatever ends it.
pub struct ConnectionPermit(Arc<ConnectionStats>);

impl ConnectionPermit {
    fn new(stats: &Arc<ConnectionStats>) -> Arc<Self> {
        stats.open.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self(Arc::clone(stats)))
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        // Release: whoever sees the count fall also sees what the session did before.
        self.0.open.fetch_sub(1, Ordering::Release);
    }
}

/// What a listener needs.
pub struct ListenerConfig {
    /// From [`bind`].
    pub socket: std::net::TcpListener,
    /// Connections open at once.
    pub connections_max: usize,
    /// Handed to every session.
    pub sessions: SessionContext,
}

/// The listening client.
pub struct Listener {
    core: ClientCore,
    socket: Option<TcpListener>,
    token: Option<IoToken>,
    connections_max: usize,
    sessions: SessionContext,
    next_session: u64,
    /// Sessions that may still live; pruned as it grows.
    started: Vec<(Weak<ConnectionPermit>, Handle<Event>)>,
    prune_at: usize,
    backing_off: bool,
    /// Whether running out of descriptors was logged for this spell.
    shortage_logged: bool,
    refusal_logged: bool,
}

impl Listener {
    /// Puts a listener on processor 0 and returns where to send it `Drain`.
    pub fn register(registrar: &Registrar<Event>, config: ListenerConfig) -> Handle<Event> {
        registrar.register(Placement::Processor(ProcessorId(0), CLUSTER), move |core, cx| {
            let mut socket = TcpListener::from_std(config.socket);
            let token = match cx.register_io(&mut socket, Interest::READABLE) {
                Ok(token) => Some(token),
                Err(error) => {
                    tracing::error!(event = "listener.failed", %error, "cannot watch the listening socket");
                    None
                }
            };
            Box::new(Self {
                core,
                socket: Some(socket),
                token,
                connections_max: config.connections_max,
                sessions: config.sessions,
                next_session: 1,
                started: Vec::new(),
                prune_at: 64,
                backing_off: false,
                shortage_logged: false,
                refusal_logged: false,
            })
        })
    }

    fn accept_some(&mut self, cx: &mut Cx<'_, Event>) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(socket) = &self.socket else { return };
            match socket.accept() {
                Ok((stream, peer)) => self.admit(cx, stream, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Only that connection is gone.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => return self.back_off(cx, &error),
            }
        }
        if let Some(token) = self.token {
            cx.ready_again(token, Readiness::READABLE);
        }
    }

    fn admit(&mut self, cx: &mut Cx<'_, Event>, stream: TcpStream, peer: SocketAddr) {
        let stats = &self.sessions.stats;
        if stats.open.load(Ordering::Relaxed) >= self.connections_max {
            stats.refused.fetch_add(1, Ordering::Relaxed);
            if !std::mem::replace(&mut self.refusal_logged, true) {
                tracing::warn!(event = "connection.refused", %peer, limit = self.connections_max, "too many connections");
            }
            return;
        }
        self.refusal_logged = false;
        self.shortage_logged = false;
        stats.accepted.fetch_add(1, Ordering::Relaxed);
        let permit = ConnectionPermit::new(stats);
        let weak = Arc::downgrade(&permit);
        let id = SessionId(self.next_session);
        self.next_session += 1;
        let context = self.sessions.clone();
        let handle = cx
            .registrar()
            .register(Placement::LeastLoaded(SESSION), move |core, cx| {
                Box::new(Session::accept(core, cx, id, stream, peer, context, permit))
            });
        self.started.push((weak, handle));
        if self.started.len() >= self.prune_at {
            self.started.retain(|(permit, _)| permit.strong_count() > 0);
            self.prune_at = (self.started.len() * 2).max(64);
        }
    }

    fn back_off(&mut self, cx: &mut Cx<'_, Event>, error: &io::Error) {
        self.sessions
            .stats
            .accept_errors
            .fetch_add(1, Ordering::Relaxed);
        if !std::mem::replace(&mut self.shortage_logged, true) {
            tracing::error!(event = "connection.accept_failed", %error, "new connections have to wait");
        }
        if !std::mem::replace(&mut self.backing_off, true) {
            cx.schedule(BACK_OFF);
        }
    }

    fn stop_accepting(&mut self, cx: &mut Cx<'_, Event>) {
        if let Some(mut socket) = self.socket.take()
            && let Some(token) = self.token.take()
        {
            // The socket is closed next; failing to stop watching it changes nothing.
            let _ = cx.deregister_io(token, &mut socket);
        }
    }

    fn drain(&mut self, cx: &mut Cx<'_, Event>) {
        self.stop_accepting(cx);
        for (permit, session) in self.started.drain(..) {
            if permit.strong_count() > 0 {
                cx.post(&session, Event::Drain);
            }
        }
    }
}

impl Client<Event> for Listener {
    fn core(&self) -> &ClientCore {
        &self.core
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Event>, event: Event) {
        if let Event::Drain = event {
            self.drain(cx);
        }
    }

    fn on_ready(&mut self, cx: &mut Cx<'_, Event>, _token: IoToken, _ready: Readiness) {
        if !self.backing_off {
            self.accept_some(cx);
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, Event>, _timer: TimerId) {
        self.backing_off = false;
        self.accept_some(cx);
    }

    fn on_stop(&mut self, cx: &mut Cx<'_, Event>) {
        self.drain(cx);
        cx.unregister_self();
    }
}
