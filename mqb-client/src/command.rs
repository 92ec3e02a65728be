//! Requests from the application to the session's thread.

use std::time::Instant;

use crate::error::Error;
use crate::options::{ConsumerOptions, OpenOptions};
use crate::promise::Promise;
use crate::queue::Queue;
use crate::uri::QueueUri;

pub(crate) enum Command {
    Open {
        uri: QueueUri,
        options: Box<OpenOptions>,
        deadline: Instant,
        reply: Promise<Result<Queue, Error>>,
    },
    Configure {
        slot: usize,
        consumers: Vec<ConsumerOptions>,
        reply: Promise<Result<(), Error>>,
    },
    Close {
        slot: usize,
        reply: Promise<Result<(), Error>>,
    },
    Disconnect {
        reply: Promise<()>,
    },
    /// The session was dropped: as a disconnect that nobody waits for.
    Abandon,
}
