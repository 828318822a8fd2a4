//! Is the source of a session.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use cli::events::{Events, hex};
use cli::federation::http::session_path;
use cli::{exit, interrupt};
use linux_net::SendError;
use linux_net::inet::{Transmit, UdpSocket};
use linux_net::poll::{self, Watch};
use std::os::fd::AsFd;

use crate::args::Args;
use crate::events::{End, Event};
use crate::frames;
use crate::http;
use crate::mediator::{self, Address};

/// How often the end of a numbered session is told to a group, and with which pauses.
const ENDS: usize = 5;
const BETWEEN_ENDS: Duration = Duration::from_millis(100);

/// Where frames go.
enum Sink {
    Group(UdpSocket, SocketAddr),
    Http(TcpStream),
}

impl Sink {
    fn open(args: &Args) -> Result<Sink, String> {
        if let [Address::Http(url)] = &args.mediator[..] {
            let url = url.with_path(&session_path(args.session.as_str(), args.flow().0));
            let more = "Transfer-Encoding: chunked\r\nConnection: close\r\n";
            let stream =
                http::open(&url, "PUT", more).map_err(|error| format!("{url}: {error}"))?;
            return Ok(Sink::Http(stream));
        }
        let Some(to) = args.group() else {
            return Err("the session's native name is no group".into());
        };
        let any: IpAddr = match to.group {
            SocketAddr::V4(_) => [0u8; 4].into(),
            SocketAddr::V6(_) => [0u16; 8].into(),
        };
        // Of a source-specific group this host must be the source.
        let bind = SocketAddr::new(to.source.unwrap_or(any), 0);
        let (socket, _) = mediator::group_socket(bind, args.interface.as_deref(), args.ttl)?;
        Ok(Sink::Group(socket, to.group))
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        match self {
            Sink::Group(socket, to) => {
                let transmit = Transmit {
                    source: None,
                    destination: *to,
                    bytes: frame,
                    segment_len: None,
                };
                loop {
                    match socket.send(&transmit) {
                        Ok(_) => return Ok(()),
                        Err(SendError::WouldBlock) => {
                            poll::wait(&mut [Watch::writable(socket.as_fd())], None)?;
                        }
                        Err(error) => return Err(io::Error::other(error)),
                    }
                    if interrupt::raised() {
                        return Ok(());
                    }
                }
            }
            Sink::Http(stream) => {
                let chunk = [format!("{:x}\r\n", frame.len()).as_bytes(), frame, b"\r\n"].concat();
                stream.write_all(&chunk)
            }
        }
    }

    /// The last frame was sent.
    fn finish(self) -> io::Result<()> {
        let Sink::Http(mut stream) = self else {
            return Ok(());
        };
        stream.write_all(b"0\r\n\r\n")?;
        match http::read_answer(&mut stream)? {
            (200..=299, _) => Ok(()),
            (status, text) => {
                let text = String::from_utf8_lossy(&text).trim().to_owned();
                Err(io::Error::other(format!("the server says {status} {text}")))
            }
        }
    }
}

#[derive(Default)]
struct Sent {
    frames: u64,
    bytes: u64,
    hasher: blake3::Hasher,
}

/// Runs; the exit code.
pub(crate) fn run(args: &Args) -> Result<u8, String> {
    let events = Events::new(args.json, false);
    let shown = args.input.display();
    let input: Box<dyn Read> = match args.input.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => {
            Box::new(File::open(&args.input).map_err(|error| format!("--input {shown}: {error}"))?)
        }
    };
    let mut sink = Sink::open(args)?;
    let (started, mut sent) = (Instant::now(), Sent::default());
    let pumped = pump(args, input, &mut sink, &mut sent, &events);
    let done = pumped.and_then(|()| end(args, sink, &sent));
    let (result, code, message) = match done {
        _ if interrupt::raised() => ("interrupted", exit::INTERRUPTED, "interrupted".into()),
        Ok(()) => ("complete", exit::OK, String::new()),
        Err(error) => ("failed", exit::FAILED, error.to_string()),
    };
    events.emit(&Event::End(Box::new(End {
        result,
        exit_code: code,
        message: &message,
        seconds: started.elapsed().as_secs_f64(),
        bytes: sent.bytes,
        digest: hex(sent.hasher.finalize().as_bytes()),
        frames: sent.frames,
        lost: 0,
        late: 0,
        skipped_bytes: 0,
        datagrams: sent.frames,
        requests: 0,
        damped: 0,
        moved: 0,
    })));
    if code == exit::FAILED {
        cli::print_message!("error: {message}");
    }
    Ok(code)
}

/// Reads as much as fills the buffer, less at the end.
fn fill(input: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match input.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

fn pump(
    args: &Args,
    mut input: Box<dyn Read>,
    sink: &mut Sink,
    sent: &mut Sent,
    events: &Events,
) -> io::Result<()> {
    let (numbered, started) = (args.numbered(), Instant::now());
    let (mut payload, mut frame) = (vec![0; args.frame.into()], Vec::new());
    let mut progress = 1;
    while !interrupt::raised() {
        let len = fill(&mut *input, &mut payload)?;
        if len == 0 {
            break;
        }
        let elapsed = started.elapsed();
        // When the frames before this one have left at the rate that was asked for.
        let micros = u128::from(sent.bytes) * 8_000_000 / u128::from(args.rate.0.max(1));
        let due = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
        if due > elapsed + Duration::from_micros(200) {
            std::thread::sleep(due - elapsed);
        }
        match numbered {
            true => {
                frames::emit_data(sent.frames, &payload[..len], &mut frame);
                sink.send(&frame)?;
            }
            false => sink.send(&payload[..len])?,
        }
        sent.hasher.update(&payload[..len]);
        sent.frames += 1;
        sent.bytes += len as u64;
        if started.elapsed().as_secs() >= progress {
            progress = started.elapsed().as_secs() + 1;
            let (seconds, bytes, frames) =
                (started.elapsed().as_secs_f64(), sent.bytes, sent.frames);
            events.emit(&Event::Progress {
                seconds,
                bytes,
                frames,
                lost: 0,
            });
        }
    }
    Ok(())
}

/// Tells the end.
fn end(args: &Args, mut sink: Sink, sent: &Sent) -> io::Result<()> {
    if args.numbered() {
        let mut frame = Vec::new();
        let digest = sent.hasher.finalize();
        frames::emit_end(sent.frames, sent.bytes, digest.as_bytes(), &mut frame);
        let times = match sink {
            Sink::Group(..) => ENDS,
            Sink::Http(_) => 1,
        };
        for time in 0..times {
            if time > 0 {
                std::thread::sleep(BETWEEN_ENDS);
            }
            sink.send(&frame)?;
        }
    }
    sink.finish()
}
