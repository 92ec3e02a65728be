//! One connection: its socket and receive buffer. Owned by: the session's processor.
//!
//! The socket is registered once, for both directions and edge-triggered: a session that does not want to read just does not
//! read, and the kernel's receive buffer fills up. No system call is spent on changing interests, and the end of the
//! connection is still noticed.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use mio::Interest;
use mio::net::TcpStream;
use mqb_core::error::FrameError;
use mqb_core::wire::FrameLimits;
use mqb_dispatcher::{Cx, IoToken, Monotonic, Readiness};
use socket2::{SockRef, TcpKeepalive};

use super::inbuf::{Fill, Frames, InBuf};
use super::outbuf::{OutBuf, Progress};
use crate::event::Event;

/// A silent connection is probed by the operating system after this,
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// again after this,
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// and given up after so many probes: within a minute in all.
const KEEPALIVE_PROBES: u32 = 5;

/// A connection.
pub struct Connection {
    stream: TcpStream,
    token: IoToken,
    /// The other end.
    pub peer: SocketAddr,
    input: InBuf,
    /// The socket took no more at the last write.
    blocked: bool,
    /// A read would not block, as far as is known.
    readable: bool,
    /// The peer said that it will send no more.
    peer_closed: bool,
    is_shut: bool,
    /// Since when the socket has taken nothing although something waited.
    stalled_since: Option<Monotonic>,
    /// Since the connection began.
    pub bytes_in: u64,
}

impl Connection {
    /// Takes over an accepted socket. **Errors**: of the operating system.
    pub fn new(
        mut stream: TcpStream,
        peer: SocketAddr,
        cx: &mut Cx<'_, Event>,
    ) -> io::Result<Self> {
        // Batches are written whole, once per turn: waiting for more would only add delay.
        stream.set_nodelay(true)?;
        // Finds hosts that vanished without a word, even if their peers know no heartbeats.
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE_IDLE)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_PROBES);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        let token = cx.register_io(&mut stream, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self {
            stream,
            token,
            peer,
            input: InBuf::new(),
            blocked: false,
            readable: false,
            peer_closed: false,
            is_shut: false,
            stalled_since: None,
            bytes_in: 0,
        })
    }

    /// Stops watching the socket; to be called before it is dropped.
    pub fn close(mut self, cx: &mut Cx<'_, Event>) {
        // Failing only means that the operating system has forgotten the socket already.
        let _ = cx.deregister_io(self.token, &mut self.stream);
    }

    /// Notes what the operating system reported.
    pub fn note(&mut self, ready: Readiness) {
        if ready.is_readable() {
            self.readable = true;
        }
        if ready.is_writable() {
            self.blocked = false;
        }
        if ready.has(Readiness::READ_CLOSED) {
            self.peer_closed = true;
        }
    }

    /// Whether a read is worth trying.
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// Whether the peer will send no more than what waits to be read.
    pub fn is_peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// Asks to be called again in the next turn, after others had theirs.
    pub fn read_again(&self, cx: &mut Cx<'_, Event>) {
        cx.ready_again(self.token, Readiness::READABLE);
    }

    /// One read, of at most 256 KiB beyond a frame that has begun. **Errors**: of the socket.
    pub fn fill(&mut self) -> io::Result<Fill> {
        let fill = self.input.fill(&self.stream)?;
        match fill {
            Fill::Full(count) => self.bytes_in += count as u64,
            Fill::Drained(count) => {
                // A short read has emptied the socket: what comes next is a new edge. Only the end may already have been
                // reported, and still has to be read.
                self.readable = self.peer_closed;
                self.bytes_in += count as u64;
            }
            Fill::Empty | Fill::Eof => self.readable = false,
        }
        Ok(fill)
    }

    /// Whole frames that were received. **Errors**: as [`InBuf::take`].
    pub fn take(
        &mut self,
        limits: &FrameLimits,
        only_first: bool,
    ) -> Result<Option<Frames>, FrameError> {
        self.input.take(limits, only_first)
    }

    /// As [`InBuf::go_on`].
    pub fn go_on(&mut self, batch: Bytes, end: usize) {
        self.input.go_on(batch, end);
    }

    /// Writes what the socket takes. **Errors**: of the socket.
    pub fn flush(&mut self, output: &mut OutBuf, now: Monotonic) -> io::Result<()> {
        if output.is_empty() || self.blocked {
            return Ok(());
        }
        match output.write_to(&mut self.stream)? {
            Progress::Done => self.stalled_since = None,
            Progress::Blocked(count) => {
                self.blocked = true;
                if count > 0 || self.stalled_since.is_none() {
                    self.stalled_since = Some(now);
                }
            }
        }
        Ok(())
    }

    /// Whether output waits for the peer to read.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Since when the peer has taken nothing although something waited.
    pub fn stalled_since(&self) -> Option<Monotonic> {
        self.stalled_since
    }

    /// Throws away what was received.
    pub fn discard_input(&mut self) {
        self.input = InBuf::new();
    }

    /// Tells the peer that nothing more will come. Errors do not matter: the connection is over either way.
    pub fn shut_down_writing(&mut self) {
        if std::mem::replace(&mut self.is_shut, true) {
            return;
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }
}
