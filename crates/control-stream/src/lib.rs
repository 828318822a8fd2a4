//! Control connections between two hosts over one TCP connection each.
//!
//! | module | contents |
//! | --- | --- |
//! | [`tls`] | [`Credentials`](tls::Credentials): TLS 1.3 in which both sides prove that they hold a key, from one key file |
//! | [`links`] | [`LinkCredentials`](links::LinkCredentials): TLS of connections to ends that are known by their certificate, not by a name |
//! | [`conversation`] | [`Conversation`](conversation::Conversation): a sans-IO machine at one end of a byte stream, driven in tokio |
//!
//! The feature `mcp-control` implements [`StreamMachine`](conversation::StreamMachine) for the machines of
//! `mcp-control`.
#![forbid(unsafe_code)]

pub mod conversation;
pub mod links;
#[cfg(feature = "mcp-control")]
mod mcp;
pub mod tls;
