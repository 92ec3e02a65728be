//! The session's thread: one socket, one poll, one connection state machine.
//!
//! Everything that touches the network is here; what the bytes mean is in [`crate::connection`].

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::backoff::Backoff;
use crate::command::Command;
use crate::connection::{Connection, Next};
use crate::inbound::Inbound;
use crate::outbox::Gate;
use crate::promise::lock;
use crate::random::Random;
use crate::shared::{Shared, Sleep};

pub(crate) const WAKER: Token = Token(0);
const SOCKET: Token = Token(1);

/// Reads in a row before other work gets a turn.
const READS_PER_TURN: usize = 4;
/// With this much waiting for the socket, new messages stay where they are batched.
const TRANSMIT_BYTES: usize = 512 * 1024;

/// The socket and what is known about it.
struct Link {
    stream: TcpStream,
    /// The connection is established, not only under way.
    up: bool,
    readable: bool,
    writable: bool,
}

/// Owned by: the session's I/O thread, which runs [`Driver::run`].
pub(crate) struct Driver {
    poll: Poll,
    shared: Arc<Shared>,
    connection: Connection,
    inbound: Inbound,
    link: Option<Link>,
    host: String,
    attempt: usize,
    backoff: Backoff,
    random: Random,
    /// When to connect next, or to give up the attempt under way.
    connect_at: Option<Instant>,
    connect_timeout: Duration,
}

/// Resolves once, so that a wrong name fails early.
pub(crate) fn resolve(host: &str) -> io::Result<Vec<SocketAddr>> {
    let addresses: Vec<SocketAddr> = host.to_socket_addrs()?.collect();
    if addresses.is_empty() {
        Err(io::ErrorKind::NotFound.into())
    } else {
        Ok(addresses)
    }
}

impl Driver {
    pub(crate) fn new(
        poll: Poll,
        shared: Arc<Shared>,
        connection: Connection,
        host: String,
        backoff: Backoff,
        connect_timeout: Duration,
    ) -> Driver {
        Driver {
            poll,
            shared,
            connection,
            inbound: Inbound::new(),
            link: None,
            host,
            attempt: 0,
            backoff,
            random: Random::from_system(),
            connect_at: Some(Instant::now()),
            connect_timeout,
        }
    }

    /// Runs until the session ends.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(8);
        loop {
            let now = Instant::now();
            match self.connection.on_time(now) {
                Next::Continue => {}
                Next::Reset(reason) => self.lose(reason),
                Next::Stop => break,
            }
            self.connect_if_due(now);
            // Reading first: what callbacks post and confirm leaves in the same turn.
            self.read(now);
            self.take_work(now);
            self.write();
            let timeout = self.prepare_sleep(Instant::now());
            let polled = self.poll.poll(&mut events, timeout);
            lock(&self.shared.inner).sleep = Sleep::Awake;
            if let Err(error) = polled {
                if error.kind() != io::ErrorKind::Interrupted {
                    self.lose(format!("poll: {error}"));
                }
                continue;
            }
            for event in &events {
                if event.token() == SOCKET {
                    self.on_socket(
                        event.is_readable() || event.is_read_closed() || event.is_error(),
                        event.is_writable(),
                    );
                }
            }
        }
        self.connection.end();
    }

    /// Takes what the application handed over: data in its order, then requests.
    fn take_work(&mut self, now: Instant) {
        let mut inner = lock(&self.shared.inner);
        let commands = std::mem::take(&mut inner.commands);
        for command in &commands {
            // Nothing may slip in behind what leaves before the close.
            if let Command::Close { slot, .. } = command {
                inner.outbox.set_gate(*slot, Gate::Closed);
            }
        }
        if !commands.is_empty() || self.connection.transmit.len() < TRANSMIT_BYTES {
            let only_confirms = !inner.outbox.has_chunks();
            let few = inner.outbox.pending_confirms() < crate::shared::CONFIRM_BATCH;
            let young = inner.confirm_deadline.is_some_and(|at| now < at);
            if !(commands.is_empty() && only_confirms && few && young && !inner.flush_confirms) {
                inner.outbox.take(&mut self.connection.transmit);
                inner.confirm_deadline = None;
                inner.flush_confirms = false;
            }
        }
        drop(inner);
        self.connection.on_commands(commands, now);
    }

    /// Announces that the thread is about to sleep, unless there is something to do. Returns for how long it may.
    fn prepare_sleep(&mut self, now: Instant) -> Option<Duration> {
        let blocked = self.connection.transmit.len() >= TRANSMIT_BYTES;
        let can_read = self
            .link
            .as_ref()
            .is_some_and(|link| link.up && link.readable);
        let can_write = self
            .link
            .as_ref()
            .is_some_and(|link| link.up && link.writable)
            && !self.connection.transmit.is_empty();
        let mut deadline = [self.connection.deadline(), self.connect_at]
            .into_iter()
            .flatten()
            .min();
        let mut inner = lock(&self.shared.inner);
        // While the socket takes no more, their time does not matter.
        if !blocked && inner.outbox.pending_confirms() > 0 && inner.outbox.is_flowing() {
            deadline = [deadline, inner.confirm_deadline]
                .into_iter()
                .flatten()
                .min();
        }
        let flush = inner.flush_confirms && inner.outbox.pending_confirms() > 0;
        let data = !blocked && (inner.outbox.has_chunks() || (flush && inner.outbox.is_flowing()));
        if can_read
            || can_write
            || data
            || !inner.commands.is_empty()
            || self.connection.is_stopping()
        {
            return Some(Duration::ZERO);
        }
        inner.sleep = if blocked {
            Sleep::ForCommands
        } else {
            Sleep::ForAnything
        };
        deadline.map(|at| at.saturating_duration_since(now))
    }

    fn on_socket(&mut self, readable: bool, writable: bool) {
        let Some(link) = &mut self.link else { return };
        link.readable |= readable;
        link.writable |= writable;
        if link.up {
            return;
        }
        match link.stream.take_error() {
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => return self.connect_failed(&error),
        }
        match link.stream.peer_addr() {
            Ok(_) => {
                link.up = true;
                link.writable = true;
                // Small requests must not wait for the ACK of earlier bytes; failing to set it costs latency only.
                let _ = link.stream.set_nodelay(true);
                self.connect_at = None;
                self.inbound.reset();
                self.connection.on_connected(Instant::now());
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            Err(error) => self.connect_failed(&error),
        }
    }

    fn connect_if_due(&mut self, now: Instant) {
        if self.connect_at.is_none_or(|at| now < at) {
            return;
        }
        if self.link.is_some() {
            return self.connect_failed(&io::ErrorKind::TimedOut.into());
        }
        match self.connect() {
            Ok(link) => {
                self.link = Some(link);
                self.connect_at = Some(now + self.connect_timeout);
            }
            Err(error) => self.connect_failed(&error),
        }
    }

    fn connect(&mut self) -> io::Result<Link> {
        // Resolved each time: the broker may have moved. Blocking is fine, this thread has nothing else to do.
        let addresses = resolve(&self.host)?;
        let address = addresses[self.attempt % addresses.len()];
        self.attempt += 1;
        let mut stream = TcpStream::connect(address)?;
        self.poll.registry().register(
            &mut stream,
            SOCKET,
            Interest::READABLE | Interest::WRITABLE,
        )?;
        Ok(Link {
            stream,
            up: false,
            readable: false,
            writable: false,
        })
    }

    fn connect_failed(&mut self, error: &io::Error) {
        tracing::debug!(host = %self.host, %error, "connect failed");
        self.link = None;
        self.connection.on_connect_failed(error);
        self.schedule_connect();
    }

    fn schedule_connect(&mut self) {
        self.connect_at = Some(Instant::now() + self.backoff.next(&mut self.random));
    }

    fn lose(&mut self, reason: String) {
        if self.link.take().is_none() {
            return;
        }
        if self.connection.is_established() {
            self.backoff.reset();
        }
        self.inbound.reset();
        self.connection.on_lost(reason);
        self.schedule_connect();
    }

    fn write(&mut self) {
        let Some(link) = &mut self.link else { return };
        if !link.up || !link.writable || self.connection.transmit.is_empty() {
            return;
        }
        match self.connection.transmit.write_to(&mut &link.stream) {
            Ok(chunk) => {
                link.writable = self.connection.transmit.is_empty();
                if let Some(chunk) = chunk {
                    self.connection.on_chunk_written(chunk);
                }
            }
            Err(error) => self.lose(format!("write: {error}")),
        }
    }

    fn read(&mut self, now: Instant) {
        for _ in 0..READS_PER_TURN {
            let Some(link) = self.link.as_mut().filter(|link| link.up && link.readable) else {
                return;
            };
            match self.inbound.read_from(&link.stream) {
                Ok((0, _)) => return self.lose("closed by the broker".to_owned()),
                // A short read has emptied the socket; the next bytes make a new event.
                Ok((read, room)) => link.readable = read == room,
                Err(rustix::io::Errno::AGAIN) => {
                    link.readable = false;
                    return;
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return self.lose(format!("read: {error}")),
            }
            if let Err(reason) = self.consume(now) {
                return self.lose(reason);
            }
        }
    }

    fn consume(&mut self, now: Instant) -> Result<(), String> {
        loop {
            let block = self
                .inbound
                .take_events()
                .map_err(|error| error.to_string())?;
            if block.is_empty() {
                return Ok(());
            }
            self.connection.on_events(block, now)?;
            if self.connection.is_negotiated() {
                self.inbound.set_limits(mqb_core::wire::FrameLimits::CLIENT);
            }
        }
    }
}
