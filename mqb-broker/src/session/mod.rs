//! Sessions: what a connection means. One dispatcher client per connection owns its socket, its numbers and its output.
//!
//! Pure parts: [`negotiate`], [`auth`], [`streams`] (numbers and the rules about them), [`put`] (judging messages),
//! [`output`] (what is sent, in which order). The rest ties them to the dispatcher: [`client`] (life and end of a
//! connection), `handshake`, `requests` and `traffic`.

pub mod auth;
pub mod client;
mod handshake;
pub mod negotiate;
pub mod output;
pub mod put;
mod requests;
pub mod settings;
pub mod streams;
mod traffic;

pub use client::{Session, SessionContext};
pub use settings::SessionSettings;
