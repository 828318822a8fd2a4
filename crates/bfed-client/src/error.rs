//! Why a session cannot be received or published.

use std::io;

use bfed::GatewayId;
use bfed::wire::no_route::Reason;

use crate::http::HttpError;
use crate::{Address, GroupAddress, UrlError};

/// Why a session cannot be received or published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A mediator says that there is no route to the session (NO_ROUTE). Ask later where the reason may pass.
    #[error("no route to the session: {0}")]
    Refused(Reason),
    /// No mediator answered in time.
    #[error("{0}")]
    NoAnswer(String),
    /// The source's numbered frames have a version that this crate does not read.
    #[error(
        "the source sends version {0} of numbered frames, this client reads version {own}: install the same release of \
         polycast on both",
        own = crate::frames::VERSION
    )]
    OtherVersion(u8),
    /// The gateway's address of the session is neither a group nor a URL.
    #[error("the gateway's address of the session is neither a group nor a URL")]
    UnknownAddress,
    /// The session is sent to a group by LTP, and received by another program.
    #[error(
        "this network carries the session over LTP, to {0}: receive it with `bfed-join exec URL -- lms-recv --group \
         {{group}} --source {{source}} ...`"
    )]
    NeedsLtp(GroupAddress),
    /// A mediator redirects to text that is not the address of a mediator.
    #[error("{from} redirects to gateway {gateway}: {why}")]
    BadRedirect {
        /// The mediator that redirects.
        from: Address,
        /// The gateway that it names.
        gateway: GatewayId,
        /// What is wrong with the address.
        why: String,
    },
    /// Mediators redirect to each other.
    #[error("a loop of redirections: {}, {to}", joined(visited))]
    RedirectLoop {
        /// The mediators asked, in order.
        visited: Vec<Address>,
        /// The one among them that was redirected to.
        to: Address,
    },
    /// Too many mediators redirect.
    #[error("more than {limit} redirections, the last to {to}")]
    TooManyRedirects {
        /// Most redirections.
        limit: u8,
        /// Target of the last one.
        to: Address,
    },
    /// No interface has the name or the address.
    #[error(transparent)]
    NoInterface(#[from] linux_net::link::UnknownInterface),
    /// A socket or another resource of the system is not available.
    #[error("{0}")]
    Network(String),
    /// The session's native name is not a group, and no HTTP server is named.
    #[error("the session's native name is no group")]
    NotAGroup,
    /// The server of an HTTP network cannot be used.
    #[error("{url}: {error}")]
    Server {
        /// The URL asked for.
        url: String,
        /// What is wrong.
        error: HttpError,
    },
    /// The server of an HTTP network refused the stream, or cut it off.
    #[error("{}", describe(.0))]
    Http(HttpError),
    /// A URL cannot be formed.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The sink cannot take the data, or a socket cannot send it.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The caller cancelled the session.
    #[error("interrupted")]
    Cancelled,
}

fn joined(addresses: &[Address]) -> String {
    let texts: Vec<String> = addresses.iter().map(Address::to_string).collect();
    texts.join(", ")
}

/// Names the server where the error is its answer.
fn describe(error: &HttpError) -> String {
    match error {
        HttpError::Status { .. } => format!("the server says {error}"),
        _ => error.to_string(),
    }
}
