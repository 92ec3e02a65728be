//! Sockets: the listener, and each connection's buffers. Nothing here knows what the bytes mean beyond frame boundaries.

pub mod conn;
pub mod inbuf;
pub mod listener;
pub mod outbuf;
