//! What a session tells the application about its connection.

use crate::error::Rejection;

/// A change of the session's connection, in the order of occurrence.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SessionEvent {
    /// The first connection is up.
    Connected,
    /// The connection is gone; it is being made anew. Posts are kept meanwhile, confirms fail.
    ConnectionLost {
        /// Why, in words.
        reason: String,
    },
    /// The connection is up again; queues are being reopened.
    Reconnected,
    /// A queue is usable again.
    QueueReopened {
        /// Which.
        uri: String,
    },
    /// The broker refused to open a queue again: posts to it fail from now on.
    QueueReopenFailed {
        /// Which.
        uri: String,
        /// The broker's answer.
        rejection: Rejection,
    },
    /// All queues are settled one way or the other and what was unacknowledged is on its way again.
    StateRestored,
    /// The session has ended.
    Disconnected,
}
