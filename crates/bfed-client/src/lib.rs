//! A client of the Broadcast Federation: receives and publishes sessions in networks of IP multicast, of
//! source-specific multicast and of HTTP servers.
//!
//! A client asks a mediator of its network for a session. The mediator answers with a group or a URL of this
//! network where a gateway puts the session's data, with another mediator, or with a refusal. [`Session`] asks,
//! follows redirections, refreshes its requests, finds a session again that moves or breaks, and takes numbered
//! frames apart. [`Publisher`] is the source of a session in the network that owns it.
//!
//! ```no_run
//! use bfed_client::{Cancel, JoinOptions, Session};
//!
//! # struct Ignore;
//! # impl bfed_client::Sink for Ignore {
//! #     fn data(&mut self, _: &[u8]) -> std::io::Result<()> { Ok(()) }
//! # }
//! let mut options = JoinOptions::new("bfed://1/239.1.2.3/5004/?framing=numbered".parse()?);
//! options.mediators = vec!["http://cdn.example:8080".parse()?];
//! let session = Session::join(options, &Cancel::new()?, &mut Ignore)?;
//! let (stats, incomplete) = session.copy_to(&mut std::fs::File::create("film.ts")?)?;
//! println!("{} bytes; {incomplete:?}", stats.bytes);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Module layout
//!
//! | module | content |
//! | --- | --- |
//! | `session` | [`Session`], its options, events and counters |
//! | `membership` | from the first request to the last refresh: costs, TRANSLATION, REDIRECT, NO_ROUTE |
//! | `mediator`, `named` | messages to and from one mediator: on a group (damped), by unicast, over HTTP; names |
//! | `credential` | the token, and which hosts get it |
//! | `input` | the data: from a group, or over HTTP |
//! | `assembly`, [`frames`] | numbered frames: what is missing, and where the end is |
//! | [`contents`] | files one after the other in numbered frames |
//! | `publish` | [`Publisher`] |
//! | [`http`], `stream`, `url` | HTTP over hyper; streams on threads of their own; URLs and paths of sessions |
//! | `address` | addresses of groups and of mediators |
//!
//! # Driving a session
//!
//! The interface blocks. [`Session::join`], then [`Session::step`] until it returns [`Status::Complete`] or an
//! error, then [`Session::leave`]; [`Session::copy_to`] does all three. [`Cancel`] ends a wait from another
//! thread. Each HTTP stream has a thread with a tokio runtime of its own; the caller needs none, and must not
//! block a runtime with these calls. The functions in [`http`] are asynchronous.
//!
//! # Units and limits
//!
//! | quantity | bound |
//! | --- | --- |
//! | redirections from mediator to mediator, from server to server | 5 each |
//! | costs of several mediators | 4 s |
//! | answer of a mediator over HTTP | 64 KiB |
//! | head of an HTTP answer | 16 KiB, 100 fields |
//! | time of HTTP connections and answers | [`http::Timeouts`] |
//! | memory of an HTTP stream | 16 pieces of 16 KiB |
//! | memory of numbered frames | one frame, 65,000 bytes, and one piece |
//!
//! # Trust
//!
//! Mediators, servers and the network are not trusted: every message is parsed totally and within the bounds
//! above, redirections end, and an answer is taken only with the client's nonce or for its group. Neither
//! mediators nor data are authenticated, and HTTP is not encrypted: an on-path attacker can refuse a session or
//! replace its data. The digest of numbered frames detects damage, not forgery. A hostile mediator can make the
//! client join any multicast group and request any URL of plain HTTP that this host can reach. A token
//! ([`JoinOptions::token`]) travels unencrypted to the mediators that the user names, and in HTTP networks to servers on their hosts
//! and on [`JoinOptions::token_hosts`]. Other mediators and servers, that these name, do not get it.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod address;
mod assembly;
pub mod contents;
mod credential;
mod error;
pub mod frames;
pub mod http;
mod input;
mod mediator;
mod membership;
mod named;
mod publish;
mod session;
mod stream;
mod url;

pub use address::{
    DEFAULT_PORT, GroupAddress, GroupError, MEDIATOR_PORT, MEDIATOR_V4, MEDIATOR_V6, PADDED_LEN,
};
pub use assembly::Incomplete;
pub use error::Error;
pub use input::Place;
pub use mediator::Address;
pub use named::is_dns_name;
pub use publish::{PublishOptions, Published, Publisher};
pub use session::{Cancel, Event, JoinOptions, Session, Sink, Stats, Status};
pub use url::{Url, UrlError, parse_session_path, session_path};

/// Whether a session consists of numbered frames: its name has the parameter `framing=numbered`.
#[must_use]
pub fn is_numbered(session: &bfed::SessionName) -> bool {
    session
        .parameters()
        .any(|parameter| parameter == ("framing", "numbered"))
}
