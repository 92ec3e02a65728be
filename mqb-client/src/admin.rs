//! A connection for operators' commands.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use mqb_core::control::{
    self, AdminCommand, Category, ClientIdentity, ClientKind, ControlBody, ControlMessage,
    Document, Encoding, Negotiation,
};
use mqb_core::wire::{Event, EventKind, FrameLimits, HEARTBEAT_RESPONSE, frame_length};

use crate::connection::rejection;
use crate::error::Error;
use crate::io::resolve;
use crate::session::parse_address;

/// A connection that takes one command at a time and gives back text. Blocking; reconnects for nobody.
///
/// ```no_run
/// # fn main() -> Result<(), mqb_client::Error> {
/// # use std::time::Duration;
/// let mut admin = mqb_client::Admin::connect("tcp://127.0.0.1:30114", Duration::from_secs(5))?;
/// println!("{}", admin.command("help")?);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Admin {
    stream: TcpStream,
    buffer: Vec<u8>,
    limits: FrameLimits,
    address: String,
    timeout: Duration,
    next_rid: i32,
}

impl Admin {
    /// Connects and negotiates. `timeout` also bounds each command.
    ///
    /// **Errors**: as for [`Session::connect`](crate::Session::connect).
    pub fn connect(address: &str, timeout: Duration) -> Result<Admin, Error> {
        let connect_error = |source| Error::Connect {
            address: address.to_owned(),
            source,
        };
        let addresses = resolve(&parse_address(address)?).map_err(connect_error)?;
        let stream = addresses
            .iter()
            .map(|at| TcpStream::connect_timeout(at, timeout))
            .reduce(|first, next| first.or(next))
            .unwrap_or(Err(std::io::ErrorKind::NotFound.into()))
            .map_err(connect_error)?;
        let mut admin = Admin {
            stream,
            buffer: Vec::new(),
            limits: FrameLimits::HANDSHAKE,
            address: address.to_owned(),
            timeout,
            next_rid: 0,
        };
        admin.negotiate()?;
        Ok(admin)
    }

    fn negotiate(&mut self) -> Result<(), Error> {
        let identity = ClientIdentity {
            protocol_version: 1,
            kind: ClientKind::Admin,
            process_name: "mqb".to_owned(),
            pid: i32::try_from(std::process::id()).unwrap_or(0),
            features: mqb_core::features::CLIENT.to_owned(),
            ..ClientIdentity::default()
        };
        self.send(&Negotiation::ClientIdentity(identity))?;
        match self.receive::<Negotiation>("negotiating")? {
            Negotiation::BrokerResponse(response)
                if response.result.category == Category::Success =>
            {
                self.limits = FrameLimits::CLIENT;
                Ok(())
            }
            Negotiation::BrokerResponse(response) => Err(Error::Rejected {
                doing: "negotiating",
                rejection: rejection(&response.result),
            }),
            _ => Err(Error::Protocol(
                "the broker's first document is not a broker response",
            )),
        }
    }

    /// Runs a command and returns the broker's text.
    ///
    /// **Errors**: no answer in time, or the connection is gone. What the broker thinks of the command is in the text.
    pub fn command(&mut self, command: &str) -> Result<String, Error> {
        self.next_rid += 1;
        let rid = Some(self.next_rid);
        self.send(&ControlMessage {
            rid,
            body: ControlBody::AdminCommand(AdminCommand {
                command: command.to_owned(),
            }),
        })?;
        loop {
            let answer = self.receive::<ControlMessage>("running a command")?;
            match answer.body {
                _ if answer.rid != rid => {}
                ControlBody::AdminResponse(response) => return Ok(response.text),
                ControlBody::Status(status) => {
                    return Err(Error::Rejected {
                        doing: "running a command",
                        rejection: rejection(&status),
                    });
                }
                _ => {
                    return Err(Error::Protocol(
                        "the answer to a command is no admin response",
                    ));
                }
            }
        }
    }

    fn send<D: Document>(&mut self, document: &D) -> Result<(), Error> {
        let mut bytes = Vec::new();
        control::encode_event(Encoding::Ber, document, &mut bytes);
        self.stream
            .write_all(&bytes)
            .map_err(|source| self.lost(source))
    }

    fn lost(&self, source: std::io::Error) -> Error {
        Error::Connect {
            address: self.address.clone(),
            source,
        }
    }

    /// The next document of this kind.
    fn receive<D: Document>(&mut self, doing: &'static str) -> Result<D, Error> {
        let deadline = Instant::now() + self.timeout;
        loop {
            let frame = self.next_frame(deadline, doing)?;
            let Ok(event) = Event::parse(&frame) else {
                return Err(Error::Protocol("malformed event"));
            };
            match event.header.kind {
                kind if kind == D::KIND => {
                    return control::decode_event(&event)
                        .map_err(|_| Error::Protocol("document cannot be understood"));
                }
                EventKind::HeartbeatRequest => self
                    .stream
                    .write_all(&HEARTBEAT_RESPONSE)
                    .map_err(|source| self.lost(source))?,
                _ => {}
            }
        }
    }

    fn next_frame(&mut self, deadline: Instant, doing: &'static str) -> Result<Vec<u8>, Error> {
        loop {
            match frame_length(&self.buffer, &self.limits) {
                Ok(Some(length)) if self.buffer.len() >= length => {
                    return Ok(self.buffer.drain(..length).collect());
                }
                Ok(_) => self.fill(deadline, doing)?,
                Err(_) => return Err(Error::Protocol("framing error")),
            }
        }
    }

    fn fill(&mut self, deadline: Instant, doing: &'static str) -> Result<(), Error> {
        let timeout = Error::Timeout {
            doing,
            after: self.timeout,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(timeout);
        }
        self.stream
            .set_read_timeout(Some(left))
            .map_err(|source| self.lost(source))?;
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(self.lost(std::io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) =>
            {
                Err(timeout)
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(self.lost(error)),
        }
    }
}
