//! URLs of plain HTTP, and the paths that sessions have at the servers of an HTTP network.

use core::fmt;
use core::str::FromStr;

use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Bytes of a session's name that are escaped in a path: all but the unreserved ones (RFC 3986 section 2.3).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A URL of plain HTTP: `http://host:port/path`, without credentials and without a fragment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url(Uri);

/// Text that is not a URL of plain HTTP.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is not like http://host:port/path")]
pub struct UrlError(String);

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let plain = |uri: &Uri| {
            let server = uri.authority().filter(|server| !server.host().is_empty());
            text.starts_with("http://")
                && server.is_some_and(|server| !server.as_str().contains('@'))
        };
        let uri = text.parse::<Uri>().ok().filter(plain);
        uri.map(Url).ok_or_else(|| UrlError(text.to_owned()))
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.path())
    }
}

impl Url {
    /// Host and port as they stand in the URL.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.0.authority().map_or("", |server| server.as_str())
    }

    /// Path and query; at least a slash.
    #[must_use]
    pub fn path(&self) -> &str {
        self.0.path_and_query().map_or("/", |path| path.as_str())
    }

    /// Returns the URL of another path at the same server.
    ///
    /// # Errors
    /// The path does not begin with a slash, or has characters that must be escaped.
    pub fn with_path(&self, path: &str) -> Result<Url, UrlError> {
        match path.starts_with('/') {
            true => format!("http://{}{path}", self.authority()).parse(),
            false => Err(UrlError(path.to_owned())),
        }
    }

    /// Returns the target of a redirection from this URL: a path of the same server, or a whole URL.
    ///
    /// # Errors
    /// The target is not a URL of plain HTTP.
    pub fn follow(&self, location: &str) -> Result<Url, UrlError> {
        match location.starts_with('/') {
            true => self.with_path(location),
            false => location.parse(),
        }
    }

    /// Host and port of the server, as `connect` takes them: port 80 unless the URL names another.
    #[must_use]
    pub fn server(&self) -> String {
        let authority = self.authority();
        match self
            .0
            .host()
            .is_some_and(|host| host.len() == authority.len())
        {
            true => format!("{authority}:80"),
            false => authority.to_owned(),
        }
    }
}

/// Returns the path of a session at the servers of an HTTP network: its name, escaped, and the number of the
/// flow, from 0, unless that is the first.
#[must_use]
pub fn session_path(session: &str, flow: usize) -> String {
    let name = utf8_percent_encode(session, ESCAPED);
    match flow {
        0 => format!("/s/{name}"),
        flow => format!("/s/{name}/{flow}"),
    }
}

/// Parses such a path: the name of the session, and the number of the flow.
#[must_use]
pub fn parse_session_path(path: &str) -> Option<(String, usize)> {
    let rest = path.strip_prefix("/s/")?;
    let (name, flow) = match rest.split_once('/') {
        Some((name, flow)) => (name, flow.parse().ok().filter(|&flow| flow > 0)?),
        None => (rest, 0),
    };
    // The decoder leaves incomplete escapes as they are.
    let hex = |at: usize, text: &str| text.as_bytes().get(at).is_some_and(u8::is_ascii_hexdigit);
    if !name
        .split('%')
        .skip(1)
        .all(|text| hex(0, text) && hex(1, text))
    {
        return None;
    }
    let name = percent_decode_str(name).decode_utf8().ok()?;
    Some((name.into_owned(), flow))
}
