//! Client of the BlazingMQ protocol: post messages to queues of a broker, receive and confirm them.
//!
//! ```no_run
//! use mqb_client::{ConsumerOptions, OpenOptions, Session, SessionOptions};
//!
//! # fn main() -> Result<(), mqb_client::Error> {
//! let session = Session::connect("tcp://127.0.0.1:30114", SessionOptions::new())?;
//!
//! let queue = session.open("bmq://my.domain/queue", OpenOptions::new().write().read(ConsumerOptions::new()))?;
//! let receipt = queue.post("hello")?;
//! assert!(receipt.wait()?.status.is_success());
//!
//! let message = queue.recv()?;
//! assert_eq!(&message.payload()?[..], b"hello");
//! queue.confirm(&message)?;
//!
//! queue.close()?;
//! session.disconnect()?;
//! # Ok(()) }
//! ```
//!
//! # How it works
//!
//! A [`Session`] has one thread that owns the socket; no async runtime is involved, though a [`Receipt`] can be awaited in any.
//! Posts from any thread are encoded into PUT events of up to 256 KiB under one short lock; the session's thread sends
//! whatever has gathered while it was busy, so that batches form under load and nothing waits when there is none. The same
//! holds for confirms. What has no acknowledgement stays in a bounded window ([`SessionOptions::max_in_flight`]): posts block
//! when it is full. After a lost connection the session reconnects with growing, jittered delays, reopens its queues and
//! sends the window's contents again, in order and with the same GUIDs.
//!
//! Callbacks run on the session's thread: they may post and confirm, but calls that would block fail there with
//! [`Error::InCallback`], and posts with [`Error::Full`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod ack;
mod admin;
mod backoff;
mod command;
mod connection;
mod error;
mod event;
mod guid;
mod heartbeat;
mod inbound;
mod inbox;
mod io;
mod message;
mod options;
mod outbox;
mod promise;
mod put;
mod queue;
mod random;
mod session;
mod shared;
mod slots;
mod transmit;
mod uri;

pub use ack::{Ack, AckStatus, Receipt};
pub use admin::Admin;
pub use error::{Error, Rejection};
pub use event::SessionEvent;
pub use message::{Contents, Message};
pub use options::{ConsumerOptions, OpenOptions, SessionOptions};
pub use put::{Payload, Put};
pub use queue::Queue;
pub use session::{Session, SessionStats};

pub use mqb_core::Guid;
pub use mqb_core::properties::{PropertiesBuilder, Property, PropertyKind};
