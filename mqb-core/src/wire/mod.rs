//! The binary events, read in place and written into the caller's buffers.
//!
//! Reading: [`frame_length`] cuts the stream, [`Event::parse`] takes a frame apart, [`PutIter`], [`PushIter`], [`AckIter`]
//! and [`ConfirmIter`] walk its body without copying or allocating. Writing: the builders append headers to a `Vec<u8>`
//! and say where payloads are to be spliced in, so that these can be gathered by the system call.

mod ack;
mod confirm;
mod data;
mod header;
mod options;
mod push;
mod put;

pub use ack::{Ack, AckBuilder, AckIter, AckStatus};
pub use confirm::{Confirm, ConfirmBuilder, ConfirmIter};
pub use header::{
    Event, EventBuilder, EventHeader, EventKind, FrameLimits, HEARTBEAT_REQUEST,
    HEARTBEAT_RESPONSE, frame_length, padding,
};
pub use options::{
    Options, RawOption, RawOptionIter, RemainingAttempts, SubscriptionIter, write_group_id,
    write_sub_queue_ids, write_sub_queue_info_packed, write_sub_queue_infos,
};
pub use push::{Push, PushBuilder, PushFlags, PushHead, PushIter};
pub use put::{Put, PutBuilder, PutFlags, PutHead, PutIter};

pub(crate) use header::strip_padding;
