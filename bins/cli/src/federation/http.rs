//! Reading the answer to an HTTP/1.1 request from whatever pieces it comes in (RFC 9112): what clients
//! of an HTTP network need, no more. Without sockets; total, and bounded by [`MAX_HEAD`].

use core::ops::Range;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// Longest head of an answer, and longest trailer, in bytes.
pub const MAX_HEAD: usize = 16 << 10;
/// Longest line that announces a chunk, in bytes.
const MAX_CHUNK_LINE: usize = 256;

/// What is wrong with an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HttpError {
    /// It is no answer in HTTP/1.
    #[error("not an answer in HTTP/1")]
    Malformed,
    /// Its head or a line in it is longer than the bound.
    #[error("the head of the answer is too long")]
    TooLong,
    /// The connection ended before the answer did.
    #[error("the connection ended in the middle of the answer")]
    Truncated,
}

/// The head of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// The status, such as 200.
    pub status: u16,
    /// Where it redirects to.
    pub location: Option<String>,
}

/// What was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// The head.
    Head(Head),
    /// A piece of the body: which of the bytes that were fed.
    Data(Range<usize>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Head,
    /// So many bytes are left.
    Length(u64),
    /// Until the connection ends.
    Close,
    ChunkLine,
    Chunk(u64),
    ChunkEnd,
    Trailer,
    Done,
}

/// Reads one answer.
#[derive(Debug)]
pub struct Reader {
    state: State,
    line: Vec<u8>,
    trailer: usize,
}

impl Default for Reader {
    fn default() -> Self {
        Reader {
            state: State::Head,
            line: Vec::new(),
            trailer: 0,
        }
    }
}

impl Reader {
    /// Takes bytes; answers how many of them were used, and what they brought. Call again with the rest,
    /// until all are used.
    ///
    /// # Errors
    /// They are no answer; nothing more can be read.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(usize, Option<Part>), HttpError> {
        match self.state {
            State::Done => Ok((bytes.len(), None)),
            State::Head => self.head(bytes),
            State::Close if bytes.is_empty() => Ok((0, None)),
            State::Close => Ok((bytes.len(), Some(Part::Data(0..bytes.len())))),
            State::Length(left) => Ok(self.body(bytes, left, State::Length, State::Done)),
            State::Chunk(left) => Ok(self.body(bytes, left, State::Chunk, State::ChunkEnd)),
            State::ChunkLine | State::ChunkEnd | State::Trailer => self.chunk_line(bytes),
        }
    }

    /// The whole answer has been read.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// The answer has not.
    pub fn finish(&self) -> Result<(), HttpError> {
        match self.state {
            State::Close | State::Done => Ok(()),
            _ => Err(HttpError::Truncated),
        }
    }

    fn body(
        &mut self,
        bytes: &[u8],
        left: u64,
        more: fn(u64) -> State,
        then: State,
    ) -> (usize, Option<Part>) {
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let left = left - len as u64;
        self.state = if left > 0 { more(left) } else { then };
        (len, (len > 0).then_some(Part::Data(0..len)))
    }

    /// Takes one line, without its end.
    fn take_line(
        &mut self,
        bytes: &[u8],
        most: usize,
    ) -> Result<(usize, Option<Vec<u8>>), HttpError> {
        let (used, whole) = match bytes.iter().position(|&byte| byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (bytes.len(), false),
        };
        if self.line.len() + used > most {
            return Err(HttpError::TooLong);
        }
        self.line.extend_from_slice(&bytes[..used]);
        if !whole {
            return Ok((used, None));
        }
        let mut line = core::mem::take(&mut self.line);
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok((used, Some(line)))
    }

    fn chunk_line(&mut self, bytes: &[u8]) -> Result<(usize, Option<Part>), HttpError> {
        let most = match self.state {
            State::Trailer => MAX_HEAD - self.trailer.min(MAX_HEAD),
            _ => MAX_CHUNK_LINE,
        };
        let (used, line) = self.take_line(bytes, most)?;
        let Some(line) = line else {
            return Ok((used, None));
        };
        match self.state {
            State::ChunkEnd if line.is_empty() => self.state = State::ChunkLine,
            State::ChunkEnd => return Err(HttpError::Malformed),
            State::Trailer if line.is_empty() => {
                self.state = State::Done;
            }
            State::Trailer => self.trailer += line.len(),
            _ => {
                let digits = line.split(|&byte| byte == b';').next().unwrap_or_default();
                let digits = core::str::from_utf8(digits.trim_ascii());
                let digits = digits.map_err(|_| HttpError::Malformed)?;
                let hex = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
                let len = u64::from_str_radix(digits, 16).ok().filter(|_| hex);
                self.state = match len.ok_or(HttpError::Malformed)? {
                    0 => State::Trailer,
                    len => State::Chunk(len),
                };
            }
        }
        Ok((used, None))
    }

    fn head(&mut self, bytes: &[u8]) -> Result<(usize, Option<Part>), HttpError> {
        let before = self.line.len();
        let room = MAX_HEAD.saturating_sub(before).min(bytes.len());
        self.line.extend_from_slice(&bytes[..room]);
        let end = self.line.windows(4).position(|four| four == b"\r\n\r\n");
        let Some(end) = end else {
            return match self.line.len() {
                MAX_HEAD.. => Err(HttpError::TooLong),
                _ => Ok((room, None)),
            };
        };
        let used = end + 4 - before;
        let head = core::mem::take(&mut self.line);
        let text = core::str::from_utf8(&head[..end]).map_err(|_| HttpError::Malformed)?;
        let (head, state) = parse_head(text)?;
        if (100..200).contains(&head.status) {
            return Ok((used, None));
        }
        self.state = state;
        Ok((used, Some(Part::Head(head))))
    }
}

fn parse_head(text: &str) -> Result<(Head, State), HttpError> {
    let mut lines = text.split("\r\n");
    let mut first = lines.next().unwrap_or("").splitn(3, ' ');
    let version = first.next().unwrap_or("");
    let digits = first.next().filter(|status| status.len() == 3);
    let status = digits
        .and_then(|status| status.parse().ok())
        .ok_or(HttpError::Malformed)?;
    if !version.starts_with("HTTP/1.") {
        return Err(HttpError::Malformed);
    }
    let (mut location, mut length, mut chunked) = (None, None, false);
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(HttpError::Malformed)?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("location") {
            location = Some(value.to_owned());
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            if !value.eq_ignore_ascii_case("chunked") {
                return Err(HttpError::Malformed);
            }
            chunked = true;
        } else if name.eq_ignore_ascii_case("content-length") {
            let number = value.parse::<u64>().map_err(|_| HttpError::Malformed)?;
            if length
                .replace(number)
                .is_some_and(|before| before != number)
            {
                return Err(HttpError::Malformed);
            }
        }
    }
    let state = match (status, chunked, length) {
        (204 | 304, ..) | (_, false, Some(0)) => State::Done,
        (_, true, _) => State::ChunkLine,
        (_, false, Some(length)) => State::Length(length),
        (_, false, None) => State::Close,
    };
    Ok((Head { status, location }, state))
}

/// A URL of plain HTTP: `http://host:port/path`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    /// Host and port as they stand in the URL.
    pub authority: String,
    /// From the slash on; at least that.
    pub path: String,
}

impl core::str::FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not like http://host:port/path");
        let rest = text.strip_prefix("http://").ok_or_else(wrong)?;
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let odd = |byte: u8| byte <= b' ' || byte >= 0x7f;
        if authority.is_empty() || authority.contains('@') || text.bytes().any(odd) {
            return Err(wrong());
        }
        Ok(Url {
            authority: authority.to_owned(),
            path: path.to_owned(),
        })
    }
}

impl core::fmt::Display for Url {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

impl Url {
    /// Another path of the same server.
    #[must_use]
    pub fn with_path(&self, path: &str) -> Url {
        Url {
            authority: self.authority.clone(),
            path: path.to_owned(),
        }
    }

    /// What a redirection of this leads to.
    ///
    /// # Errors
    /// It is no URL of plain HTTP.
    pub fn follow(&self, location: &str) -> Result<Url, String> {
        match location.starts_with('/') {
            true => Ok(self.with_path(location)),
            false => location.parse(),
        }
    }

    /// Where the server is; port 80 unless the URL names another.
    ///
    /// # Errors
    /// The name is unknown.
    pub fn resolve(&self) -> Result<SocketAddr, String> {
        let bare = self.authority.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok((address, 80).into());
        }
        let text = match self.authority.rsplit_once(':') {
            Some(_) => self.authority.clone(),
            None => format!("{}:80", self.authority),
        };
        let failed = |why: String| format!("{text}: {why}");
        let mut found = text
            .to_socket_addrs()
            .map_err(|error| failed(error.to_string()))?;
        found.next().ok_or_else(|| failed("no address".to_owned()))
    }
}

/// The path of a session at the servers of an HTTP network: its name, escaped, and the number of the
/// flow, from 0, unless that is the first.
#[must_use]
pub fn session_path(session: &str, flow: usize) -> String {
    let mut path = String::from("/s/");
    for byte in session.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                path.push(byte.into());
            }
            byte => path.push_str(&format!("%{byte:02X}")),
        }
    }
    if flow > 0 {
        path.push_str(&format!("/{flow}"));
    }
    path
}

/// Reads such a path: the name, and the number of the flow.
#[must_use]
pub fn parse_session_path(path: &str) -> Option<(String, usize)> {
    let rest = path.strip_prefix("/s/")?;
    let (name, flow) = match rest.split_once('/') {
        Some((name, flow)) => (name, flow.parse().ok().filter(|&flow| flow > 0)?),
        None => (rest, 0),
    };
    let mut bytes = Vec::new();
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        let (high, low) = (digit()?, digit()?);
        bytes.push((high << 4 | low) as u8);
    }
    Some((String::from_utf8(bytes).ok()?, flow))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status and body, with the bytes fed in pieces of that size.
    fn read(bytes: &[u8], piece: usize) -> Result<(u16, Vec<u8>), HttpError> {
        let (mut reader, mut status, mut body) = (Reader::default(), 0, vec![]);
        for mut rest in bytes.chunks(piece) {
            while !rest.is_empty() {
                let (used, part) = reader.feed(rest)?;
                match part {
                    Some(Part::Head(head)) => status = head.status,
                    Some(Part::Data(range)) => body.extend_from_slice(&rest[range]),
                    None => {}
                }
                rest = &rest[used..];
            }
        }
        reader.finish()?;
        Ok((status, body))
    }

    #[test]
    fn answers_in_pieces_of_any_size() {
        let chunked =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
            5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\nA: b\r\n\r\n";
        let length = b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\nhello, world";
        let close = b"HTTP/1.0 200 OK\r\n\r\nhello, world";
        for piece in 1..200 {
            for bytes in [&chunked[..], length, close] {
                let (status, body) = read(bytes, piece).unwrap();
                assert_eq!((status, &body[..]), (200, &b"hello, world"[..]), "{piece}");
            }
        }
    }

    #[test]
    fn what_is_cut_off_is_known() {
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        for end in 0..chunked.len() {
            assert_eq!(
                read(&chunked[..end], 64),
                Err(HttpError::Truncated),
                "{end}"
            );
        }
    }

    #[test]
    fn nonsense_is_refused_and_nothing_grows() {
        for bytes in [
            &b"SSH-2.0-x\r\n\r\n"[..],
            b"HTTP/1.1 20 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-5\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhelloX\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n11111111111111111\r\n",
        ] {
            assert_eq!(read(bytes, 7), Err(HttpError::Malformed), "{bytes:?}");
        }
        let endless = vec![b'x'; 1 << 20];
        assert_eq!(read(&endless, 1000), Err(HttpError::TooLong));
        let chunks = [
            &b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"[..],
            &endless,
        ]
        .concat();
        assert_eq!(read(&chunks, 1000), Err(HttpError::TooLong));
    }

    #[test]
    fn urls() {
        let url: Url = "http://10.0.0.1:8080/a/b".parse().unwrap();
        assert_eq!(url.to_string(), "http://10.0.0.1:8080/a/b");
        assert_eq!(url.resolve().unwrap(), "10.0.0.1:8080".parse().unwrap());
        assert_eq!(url.follow("/c").unwrap().path, "/c");
        assert_eq!(
            "http://[::1]"
                .parse::<Url>()
                .unwrap()
                .resolve()
                .unwrap()
                .port(),
            80
        );
        for wrong in [
            "https://x/",
            "x",
            "http://",
            "http://u@h/",
            "http://h/a b",
            "http://h/\r\n",
        ] {
            assert!(wrong.parse::<Url>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn paths_of_sessions_make_the_round_trip() {
        let name = "bfed://7/talk/1/2/?a=b%20c";
        for flow in [0, 1, 15] {
            let path = session_path(name, flow);
            assert_eq!(parse_session_path(&path), Some((name.to_owned(), flow)));
        }
        for wrong in [
            "/", "/s", "/x/a", "/s/a/0", "/s/a/b", "/s/%", "/s/%f", "/s/%zz", "/s/%ff", "/s/a/1/2",
        ] {
            assert_eq!(parse_session_path(wrong), None, "{wrong}");
        }
    }
}
