//! Both ends of a stream over QUIC: the hello is the first message, then messages come as they become whole.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use control_stream::tls::Credentials;
use ldc_linux::quic::{self, Congestion, Drain, Event, Limits};
use ldc_linux::schedule::Scheduler;
use ldc_linux::{Attributes, Rings, Sender, Shape};

use crate::args::{RecvArgs, SendArgs};
use crate::ring::Ring;
use crate::send::{CONNECT_TIMEOUT, POLL_INTERVAL};
use crate::wire::{HEADER_LEN, HELLO_LEN, Hello, MAX_PAYLOAD};

/// Sequence number of the hello, which no window uses.
const HELLO: u64 = u64::MAX - 1;

/// Returns the keys of both ends.
fn credentials(path: Option<&Path>) -> Result<Credentials> {
    let path = path.context("--transport quic needs --key-file")?;
    Credentials::read(path).map_err(|error| anyhow!(error))
}

/// A connection that is set up, before the stream begins.
pub(crate) struct Connected {
    senders: Vec<Sender>,
    drain: Drain,
    pub(crate) peer: SocketAddr,
}

/// Connects to the first address that accepts. Returns `None` when interrupted.
pub(crate) fn connect(
    args: &SendArgs,
    shape: Shape,
    scheduler: &Scheduler,
) -> Result<Option<Connected>> {
    let credentials = credentials(args.key_file.as_deref())?;
    let host = args.to.rsplit_once(':').map_or(&*args.to, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = credentials
        .server_name(host)
        .map_err(|error| anyhow!(error))?;
    let addresses = args
        .to
        .to_socket_addrs()
        .with_context(|| format!("{}: write HOST:PORT, as in receiver:5000", args.to))?;
    let config = quic::Config {
        congestion: congestion(args.congestion.as_deref())?,
        datagrams_below: if args.datagrams { u32::MAX } else { 0 },
        idle_timeout: CONNECT_TIMEOUT,
        linger: args.linger,
        acks: true,
        ..quic::Config::default()
    };
    let mut last = anyhow!("{}: no address", args.to);
    for peer in addresses {
        let (senders, rings) = Rings::create(shape, scheduler.clone())?;
        let tls = credentials.client.clone();
        let mut drain = Drain::connect(rings, peer, &name.to_str(), tls, config)?;
        let error = loop {
            match drain.wait_connected(POLL_INTERVAL) {
                _ if cli::interrupt::raised() => return Ok(None),
                Ok(false) => {}
                Ok(true) => {
                    return Ok(Some(Connected {
                        senders,
                        drain,
                        peer,
                    }));
                }
                Err(error) => break error,
            }
        };
        last = anyhow!("cannot connect to {peer}: {error}");
    }
    Err(last)
}

/// Returns the congestion control with this name.
fn congestion(name: Option<&str>) -> Result<Congestion> {
    match name {
        None | Some("cubic") => Ok(Congestion::Cubic),
        Some("reno") => Ok(Congestion::NewReno),
        Some("bbr") => Ok(Congestion::Bbr),
        Some(other) => Err(anyhow!(
            "--congestion {other}: over QUIC use `reno`, `cubic` or `bbr`"
        )),
    }
}

impl Connected {
    /// Sends the hello, and starts the drain once the receiver has it: later messages may overtake each other.
    pub(crate) fn begin(mut self, hello: &Hello) -> Result<Ring> {
        let sent = self.senders[0].send(
            HELLO,
            &hello.emit(),
            Attributes {
                deadline: None,
                priority: u32::MAX,
            },
        );
        sent.context("the ring has no room for the hello")?;
        let mut ring = quic::start(self.senders, self.drain)?;
        ring[0].notify();
        let end = Instant::now() + CONNECT_TIMEOUT;
        while ring[0].ring().poll_ack() != Some(HELLO) {
            if ring.has_ended() {
                let error = ring.finish().err();
                return Err(error.map_or_else(|| anyhow!("the connection ended"), Into::into));
            }
            if Instant::now() >= end || cli::interrupt::raised() {
                return Err(anyhow!("the receiver did not acknowledge the hello"));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(Ring::Quic(ring))
    }
}

/// Listens for streams.
pub(crate) fn listen(args: &RecvArgs) -> Result<quic::Receiver> {
    let credentials = credentials(args.key_file.as_deref())?;
    let limits = Limits {
        message: HEADER_LEN + MAX_PAYLOAD as usize,
        ..Limits::default()
    };
    quic::Receiver::bind(args.listen, credentials.server.clone(), limits)
        .with_context(|| format!("cannot listen on {}", args.listen))
}

/// Waits for a connection that begins with a valid hello. Calls `refused` for each that does not. Returns `None` when
/// interrupted.
pub(crate) fn accept(
    receiver: &mut quic::Receiver,
    mut refused: impl FnMut(SocketAddr, &str),
) -> Result<Option<(SocketAddr, Hello)>> {
    let mut peer = None;
    while !cli::interrupt::raised() {
        let event = receiver.wait(POLL_INTERVAL)?;
        match (event, peer) {
            (None, _) => {}
            (Some(Event::Connected(address)), _) => peer = Some(address),
            (Some(Event::Message(bytes)), Some(address)) => {
                let hello = <&[u8; HELLO_LEN]>::try_from(&bytes[..]);
                let hello = hello.map(Hello::parse).unwrap_or_else(|_| {
                    Hello::check_start(&bytes)?;
                    Err(crate::wire::WireError::Malformed("length of the hello"))
                });
                match hello {
                    Ok(hello) => return Ok(Some((address, hello))),
                    Err(error) => {
                        let reason = error.to_string();
                        receiver.refuse(&reason);
                        refused(address, &reason);
                        peer = None;
                    }
                }
            }
            (Some(Event::Message(_)), None) => {}
            (Some(Event::Done), address) => {
                if let Some(address) = address {
                    refused(address, "closed the connection before its hello");
                }
                peer = None;
            }
            (Some(Event::Failed(error)), address) => {
                if let Some(address) = address {
                    refused(address, &error.to_string());
                }
                peer = None;
            }
        }
    }
    Ok(None)
}
