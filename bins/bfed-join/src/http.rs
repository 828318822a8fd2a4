//! A client of HTTP/1.1, as far as it takes to ask a mediator and to read and write a stream.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use cli::federation::http::{Head, Part, Reader, Url};

/// How long a connection, and an answer to a question, may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer to a question, in bytes.
const MAX_ANSWER: usize = 64 << 10;

/// Opens a connection and writes the head of a request.
pub(crate) fn open(url: &Url, method: &str, more: &str) -> io::Result<TcpStream> {
    let address = url.resolve().map_err(io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let _ = stream.set_nodelay(true);
    let head = format!(
        "{method} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: bfed-join\r\nAccept: */*\r\n{more}\r\n",
        url.path, url.authority
    );
    stream.write_all(head.as_bytes())?;
    Ok(stream)
}

/// Reads a whole answer: its status and its body.
pub(crate) fn read_answer(stream: &mut TcpStream) -> io::Result<(u16, Vec<u8>)> {
    let until = Instant::now() + PATIENCE;
    let (mut reader, mut status, mut body) = (Reader::default(), 0, Vec::new());
    let mut buffer = [0; 4096];
    while !reader.is_done() {
        let len = stream.read(&mut buffer)?;
        if len == 0 {
            reader.finish().map_err(io::Error::other)?;
            break;
        }
        let mut rest = &buffer[..len];
        while !rest.is_empty() {
            let (used, part) = reader.feed(rest).map_err(io::Error::other)?;
            match part {
                Some(Part::Head(Head { status: code, .. })) => status = code,
                Some(Part::Data(range)) => body.extend_from_slice(&rest[range]),
                None => {}
            }
            rest = &rest[used..];
        }
        if body.len() > MAX_ANSWER || Instant::now() > until {
            return Err(io::Error::other(
                "the answer is too long, or takes too long",
            ));
        }
    }
    Ok((status, body))
}

/// Asks a question: the body of the answer.
pub(crate) fn post(url: &Url, body: &[u8]) -> Result<Vec<u8>, String> {
    let ask = || -> io::Result<(u16, Vec<u8>)> {
        let more = format!(
            "Content-Type: application/octet-stream\r\nContent-Length: {}\r\nConnection: close\r\n",
            body.len()
        );
        let mut stream = open(url, "POST", &more)?;
        stream.write_all(body)?;
        read_answer(&mut stream)
    };
    match ask() {
        Ok((200, answer)) => Ok(answer),
        Ok((status, text)) => {
            let text = String::from_utf8_lossy(&text[..text.len().min(200)]).into_owned();
            Err(format!("{url}: {status} {}", text.trim()))
        }
        Err(error) => Err(format!("{url}: {error}")),
    }
}
