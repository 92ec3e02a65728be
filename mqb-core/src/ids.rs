//! Identifiers. Each number that is mixed with others elsewhere is a type of its own here.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// One partition: one log and the queues in it. Persisted; independent of the number of processors.
    PartitionId(u16)
}
id! {
    /// A queue within its partition, numbered from 1 in the order of creation in that partition's log. Persisted, never reused.
    QueueId(u32)
}
id! {
    /// Position of a record in its partition's log: later records compare greater. Opaque but to the log itself. Persisted; 0 is before all records.
    Sequence(u64)
}
id! {
    /// One connection of a peer to this process. Process-wide, from 1, never reused, not persisted.
    SessionId(u64)
}
id! {
    /// `qId`: the number that a peer chose for a queue on its own connection.
    WireQueueId(u32)
}
id! {
    /// `subId`: the number that a peer chose for a sub-stream (app id) of one of its queues; 0 is the default stream.
    SubId(u32)
}
id! {
    /// `sId`: the number that a peer chose for one subscription in a configureStream; what a PUSH carries.
    SubscriptionId(u32)
}

impl Sequence {
    /// Before every record.
    pub const ZERO: Sequence = Sequence(0);
}
