//! A connection to a broker that survives the loss of the network connection below it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use mqb_core::control::{ClientIdentity, ClientKind, GuidInfo};
use mqb_core::features;

use crate::backoff::Backoff;
use crate::command::Command;
use crate::connection::{Config, Connection, FirstConnect};
use crate::error::Error;
use crate::guid::{GuidMaker, client_id_text};
use crate::io::{Driver, WAKER, resolve};
use crate::options::{ConsumerOptions, OpenOptions, SessionOptions};
use crate::outbox::Outbox;
use crate::promise::{Missing, Promised, lock, promise};
use crate::queue::Queue;
use crate::random::Random;
use crate::shared::Shared;
use crate::uri::QueueUri;

const PROTOCOL_VERSION: i32 = 1;
/// "Development version" in the protocol's counting: brokers then offer everything.
const SDK_VERSION: i32 = 999_999;
/// After the session is dropped, what was posted has this long to leave.
const ABANDON_TIMEOUT: Duration = Duration::from_secs(5);

/// Counts the sessions of this process, as brokers expect it in the identity.
static SESSIONS: AtomicI32 = AtomicI32::new(0);

/// A session with a broker: one I/O thread, one connection at a time, any number of queues.
///
/// When the connection is lost it is made anew, the queues are reopened, and everything without an acknowledgement is sent
/// again with the same GUIDs in the same order, so that the broker can recognise what it already has.
///
/// Dropping the session ends it in the background: what was posted still leaves if the connection is up, but nobody learns
/// how it went. [`Session::disconnect`] waits.
///
/// **Thread**: any, also several at once.
pub struct Session {
    shared: Arc<Shared>,
    address: String,
    request_timeout: Duration,
    disconnect_timeout: Duration,
}

/// Counts since the session began, and what is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SessionStats {
    /// Posts that the broker accepted.
    pub acked: u64,
    /// Posts that were refused or given up.
    pub refused: u64,
    /// Messages received, once per subscription.
    pub received: u64,
    /// Connections made.
    pub connections: u64,
    /// Posts without an answer.
    pub in_flight: usize,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Connects to a broker and negotiates. `address` is `tcp://HOST:PORT`.
    ///
    /// ```no_run
    /// use mqb_client::{OpenOptions, Session, SessionOptions};
    ///
    /// # fn main() -> Result<(), mqb_client::Error> {
    /// let session = Session::connect("tcp://127.0.0.1:30114", SessionOptions::new())?;
    /// let queue = session.open("bmq://my.domain/queue", OpenOptions::new().write())?;
    /// queue.post("hello")?.wait()?;
    /// session.disconnect()
    /// # }
    /// ```
    ///
    /// **Errors**: the address is malformed, nobody listens there (unless [`SessionOptions::wait_for_broker`]), the broker
    /// refused, or time ran out.
    pub fn connect(address: &str, options: SessionOptions) -> Result<Session, Error> {
        let host = parse_address(address)?;
        let connect_error = |source| Error::Connect {
            address: address.to_owned(),
            source,
        };
        if !options.wait_for_broker {
            resolve(&host).map_err(connect_error)?;
        }
        let now = Instant::now();
        let client_id = make_client_id();
        let poll = mio::Poll::new().map_err(Error::Thread)?;
        let waker = mio::Waker::new(poll.registry(), WAKER).map_err(Error::Thread)?;
        let outbox = Outbox::new(
            GuidMaker::new(client_id, now),
            options.max_in_flight_messages,
            options.max_in_flight_bytes,
        );
        let shared = Arc::new(Shared::new(outbox, waker));
        let (reply, connected) = promise();
        let first = FirstConnect {
            reply,
            wait_for_broker: options.wait_for_broker,
            address: address.to_owned(),
        };
        let backoff = Backoff::new(options.reconnect_base, options.reconnect_limit);
        let session = Session {
            shared: shared.clone(),
            address: address.to_owned(),
            request_timeout: options.request_timeout,
            disconnect_timeout: options.disconnect_timeout,
        };
        let config = Config {
            identity: identity(&client_id, options.process_name),
            credential: options.credential,
            connect_timeout: options.connect_timeout,
            request_timeout: options.request_timeout,
            disconnect_timeout: options.disconnect_timeout,
        };
        let connection = Connection::new(shared.clone(), config, first, options.on_event, now);
        let driver = Driver::new(
            poll,
            shared.clone(),
            connection,
            host,
            backoff,
            options.connect_timeout,
        );
        let thread = std::thread::Builder::new()
            .name("mqb-session".to_owned())
            .spawn(move || driver.run())
            .map_err(Error::Thread)?;
        shared.set_thread(thread.thread().id());
        match connected.wait(None) {
            Ok(result) => result.map(|()| session),
            Err(_) => Err(Error::Closed),
        }
    }

    /// The address it was connected to.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Opens a queue. Blocks until the broker has answered, reconnecting first if need be.
    ///
    /// **Errors**: the URI or the options make no sense, the queue is open already, the broker refused, or time ran out.
    pub fn open(&self, uri: &str, options: OpenOptions) -> Result<Queue, Error> {
        self.shared.check_may_block()?;
        let parsed = QueueUri::parse(uri)?;
        check_open(&parsed, &options)?;
        let (reply, opened) = promise();
        let deadline = Instant::now() + self.request_timeout;
        self.shared.command(Command::Open {
            uri: parsed,
            options: Box::new(options),
            deadline,
            reply,
        })?;
        wait_for(&opened)
    }

    /// Opens a queue for reading and calls `handler` with each message: [`OpenOptions::on_message`] in short.
    ///
    /// ```no_run
    /// # fn example(session: &mqb_client::Session) -> Result<(), mqb_client::Error> {
    /// use mqb_client::ConsumerOptions;
    /// session.subscribe("bmq://my.domain/queue", ConsumerOptions::new(), |queue, message| {
    ///     println!("{:?}", message.payload());
    ///     if let Err(error) = queue.confirm(&message) {
    ///         eprintln!("it will come again: {error}");
    ///     }
    /// })?;
    /// # Ok(()) }
    /// ```
    ///
    /// **Errors**: as for [`Session::open`].
    pub fn subscribe(
        &self,
        uri: &str,
        consumer: ConsumerOptions,
        handler: impl FnMut(&Queue, crate::Message) + Send + 'static,
    ) -> Result<Queue, Error> {
        self.open(uri, OpenOptions::new().read(consumer).on_message(handler))
    }

    /// Blocks until every post has its answer; `false` if `timeout` passed first.
    ///
    /// **Errors**: the session ended.
    pub fn flush(&self, timeout: Duration) -> Result<bool, Error> {
        self.shared.wait_answered(Some(Instant::now() + timeout))
    }

    /// What has happened so far. **Cost**: one short lock.
    pub fn stats(&self) -> SessionStats {
        let counters = &self.shared.counters;
        SessionStats {
            acked: counters.acked.load(Ordering::Relaxed),
            refused: counters.refused.load(Ordering::Relaxed),
            received: counters.received.load(Ordering::Relaxed),
            connections: counters.connections.load(Ordering::Relaxed),
            in_flight: lock(&self.shared.inner).outbox.in_flight(),
        }
    }

    /// Ends the session: what was posted and confirmed leaves, then the broker is told and its answer awaited. Posts that have
    /// no acknowledgement by then get [`AckStatus::Canceled`](crate::AckStatus::Canceled); [`Session::flush`] first if that matters.
    ///
    /// **Errors**: called in a callback.
    pub fn disconnect(self) -> Result<(), Error> {
        self.shared.check_may_block()?;
        let (reply, done) = promise();
        if self.shared.command(Command::Disconnect { reply }).is_err() {
            return Ok(());
        }
        // The session's thread gives up by itself after the disconnect timeout; this one allows for its scheduling.
        let deadline = Instant::now() + self.disconnect_timeout + ABANDON_TIMEOUT;
        match done.wait(Some(deadline)) {
            Ok(()) | Err(Missing::Ended) => Ok(()),
            Err(Missing::Timeout) => Err(Error::Timeout {
                doing: "disconnecting",
                after: self.disconnect_timeout,
            }),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Fails if the session has ended, which is what is wanted.
        let _ = self.shared.command(Command::Abandon);
    }
}

fn wait_for<T>(promised: &Promised<Result<T, Error>>) -> Result<T, Error> {
    // The session's thread keeps the time; it answers or it ends.
    promised.wait(None).unwrap_or(Err(Error::Closed))
}

fn check_open(uri: &QueueUri, options: &OpenOptions) -> Result<(), Error> {
    if !options.write && options.read.is_empty() {
        return Err(Error::Options(
            "a queue is opened for reading, for writing, or both",
        ));
    }
    if options.write && uri.app_id().is_some() {
        return Err(Error::Options("a writer gives no app id"));
    }
    if options.read.len() > mqb_core::limits::SUBSCRIPTIONS_MAX {
        return Err(Error::Options("too many subscriptions"));
    }
    Ok(())
}

/// `HOST:PORT` of `tcp://HOST:PORT`; the scheme may be left out.
pub(crate) fn parse_address(address: &str) -> Result<String, Error> {
    let host = address
        .strip_prefix("tcp://")
        .unwrap_or(address)
        .trim_end_matches('/');
    let valid = host
        .rsplit_once(':')
        .is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok());
    if valid && !host.contains("//") {
        Ok(host.to_owned())
    } else {
        Err(Error::Address {
            address: address.to_owned(),
        })
    }
}

fn make_client_id() -> [u8; 6] {
    let bits = Random::from_system().bits().to_be_bytes();
    [bits[0], bits[1], bits[2], bits[3], bits[4], bits[5]]
}

/// Who this session is. The same on every connection, so that the broker recognises it.
fn identity(client_id: &[u8; 6], process_name: Option<String>) -> ClientIdentity {
    let executable = || {
        std::env::current_exe()
            .ok()
            .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
    };
    let since_epoch = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    ClientIdentity {
        protocol_version: PROTOCOL_VERSION,
        sdk_version: SDK_VERSION,
        kind: ClientKind::Client,
        process_name: process_name.or_else(executable).unwrap_or_default(),
        pid: i32::try_from(std::process::id()).unwrap_or(0),
        session_id: SESSIONS.fetch_add(1, Ordering::Relaxed) + 1,
        features: features::CLIENT.to_owned(),
        guid_info: GuidInfo {
            client_id: client_id_text(client_id),
            nanoseconds_from_epoch: i64::try_from(since_epoch.as_nanos()).unwrap_or(0),
        },
        ..ClientIdentity::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_and_without_a_scheme() {
        assert_eq!(
            parse_address("tcp://127.0.0.1:30114").unwrap(),
            "127.0.0.1:30114"
        );
        assert_eq!(parse_address("localhost:1").unwrap(), "localhost:1");
        assert_eq!(parse_address("tcp://[::1]:5/").unwrap(), "[::1]:5");
        for wrong in [
            "",
            "tcp://",
            "host",
            "tcp://host",
            "host:99999",
            ":1",
            "udp://host:1",
        ] {
            assert!(
                matches!(parse_address(wrong), Err(Error::Address { .. })),
                "{wrong}"
            );
        }
    }
}
