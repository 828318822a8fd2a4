//! The control connection to one host.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use control_stream::conversation::{Conversation, Turn};
use control_stream::tls::{self, Credentials};
use mcp_control::wire::hello::Prepared;
use mcp_control::wire::island::{Listen, Multicast};
use mcp_control::wire::plan::Carrier;
use mcp_control::wire::progress::FileVerdict;
use mcp_control::wire::relay::{Blocks, Fed, Feed};
use mcp_control::{
    Client, ClientConfig, ClientEvent, DataPath, Digest, Failed, Layout, Manifest, Reason, Side,
};
use proto_core::clock::Clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{timeout, timeout_at};
use tokio_rustls::TlsConnector;

use crate::hosts::{self, Family, Target};

/// Frames that may wait for a host; no digests are sent meanwhile.
const MAX_QUEUED: usize = 64;
/// Pause before a refused connection is retried.
const AGAIN: Duration = Duration::from_millis(300);

/// A command of the copy to a host.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    /// Offer the copy, with this suggestion for the data connection.
    Offer(Option<Prepared>),
    Suggest {
        carrier: Carrier,
        source: u16,
        destination: u16,
    },
    Plan(Option<(DataPath, Arc<Layout>)>),
    /// The permit bounds how many digests wait for the slowest host.
    Digest(u32, FileVerdict, Arc<OwnedSemaphorePermit>),
    Expect(Digest),
    Blocks(Arc<Blocks>),
    Feed(Feed),
    Fed(Fed),
    Multicast(Arc<Multicast>),
    Listen(Listen),
    Fail(Failed),
}

/// A control connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connected {
    pub(crate) address: SocketAddr,
    /// This host's address on the connection.
    pub(crate) local: SocketAddr,
    /// How long the handshake of TCP took: a round trip, or more.
    pub(crate) took: Duration,
}

/// A message of a host to the copy.
#[derive(Debug)]
pub(crate) enum Report {
    /// The connection is open and authenticated.
    Connected(Connected),
    Event(ClientEvent),
}

/// What all hosts share.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) config: ClientConfig,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) insecure: bool,
    pub(crate) clock: Clock,
    /// Deadline for a host's answer.
    pub(crate) deadline: Instant,
    /// Retry hosts that refuse the connection.
    pub(crate) again: bool,
    /// `--connect-timeout`.
    pub(crate) timeout: Duration,
    /// Version of IP for names, and the addresses to connect from.
    pub(crate) family: Family,
    pub(crate) from: Vec<IpAddr>,
}

/// One host, from the first attempt to connect to its last message.
pub(crate) struct Host {
    pub(crate) common: Arc<Common>,
    pub(crate) target: Target,
    pub(crate) index: usize,
    pub(crate) reports: mpsc::Sender<(usize, Report)>,
    pub(crate) commands: mpsc::UnboundedReceiver<Command>,
}

impl Host {
    /// Runs until the host has ended; its last message says how.
    pub(crate) async fn run(mut self) {
        let deadline: tokio::time::Instant = self.common.deadline.into();
        let reached = tokio::select! {
            // A little more time than the attempt gives itself: its error is more precise.
            reached = timeout_at(deadline + AGAIN * 2, reach(&self.common, &self.target)) => reached,
            failed = given_up(&mut self.commands) => Ok(Err(failed)),
        };
        let (stream, address, took) = match reached {
            Ok(Ok(reached)) => reached,
            Ok(Err(failed)) => return self.unreached(failed).await,
            Err(_) => return self.unreached(silent()).await,
        };
        let local = match stream.local_addr() {
            Ok(local) => local,
            Err(error) => {
                let failed = Failed::new(Reason::Closed, None, &error.to_string());
                return self.unreached(failed).await;
            }
        };
        let connected = Report::Connected(Connected {
            address,
            local,
            took,
        });
        let Some(credentials) = &self.common.credentials else {
            self.tell(connected).await;
            return self.converse(stream).await;
        };
        let name = match credentials.server_name(self.target.name()) {
            Ok(name) => name,
            Err(text) => {
                let failed = Failed::new(Reason::Protocol, None, &text);
                return self.unreached(failed).await;
            }
        };
        let connector = TlsConnector::from(Arc::clone(&credentials.client));
        match timeout_at(deadline, connector.connect(name, stream)).await {
            Ok(Ok(stream)) => {
                self.tell(connected).await;
                self.converse(stream).await;
            }
            Ok(Err(error)) => {
                let failed = Failed::new(Reason::Permission, None, &tls::explain(&error));
                self.unreached(failed).await;
            }
            Err(_) => self.unreached(silent()).await,
        }
    }

    async fn tell(&self, report: Report) {
        // The copy may be over.
        let _ = self.reports.send((self.index, report)).await;
    }

    async fn unreached(&self, failed: Failed) {
        let side = Side::Here;
        self.tell(Report::Event(ClientEvent::Failed { failed, side }))
            .await;
    }

    async fn converse<S: AsyncRead + AsyncWrite>(&mut self, stream: S) {
        let mut config = self.common.config.clone();
        config.prepared = match begin(&mut self.commands).await {
            Ok(prepared) => prepared,
            Err(failed) => return self.unreached(failed).await,
        };
        let common = &self.common;
        let manifest = Arc::clone(&common.manifest);
        let machine = Client::new(config, manifest, common.clock.now());
        let mut conversation = Conversation::new(machine, stream, common.clock);
        let deadline = common.deadline.into();
        let mut welcomed = false;
        let mut commanded = true;
        let mut digests = VecDeque::new();
        loop {
            while conversation.machine.queued() < MAX_QUEUED
                && let Some(command) = digests.pop_front()
            {
                obey(&mut conversation, command);
            }
            tokio::select! {
                turn = conversation.turn() => {
                    let event = match turn {
                        Turn::Event(event) => event,
                        Turn::Sent => continue,
                        Turn::Over => return,
                    };
                    let event = match event {
                        ClientEvent::Failed { failed, side: Side::Peer }
                            if !welcomed && failed.reason == Reason::Closed =>
                        {
                            let failed = hung_up(common, conversation.error());
                            ClientEvent::Failed { failed, side: Side::Here }
                        }
                        event => event,
                    };
                    welcomed |= matches!(event, ClientEvent::Welcome { .. });
                    self.tell(Report::Event(event)).await;
                }
                command = self.commands.recv(), if commanded => match command {
                    Some(command @ (Command::Digest(..) | Command::Blocks(..))) => {
                        digests.push_back(command);
                    }
                    Some(command) => obey(&mut conversation, command),
                    None => commanded = false,
                },
                () = tokio::time::sleep_until(deadline), if !welcomed => {
                    welcomed = true;
                    obey(&mut conversation, Command::Fail(silent()));
                }
            }
        }
    }
}

/// Connects to the first address that answers, in order; says how long that attempt took.
async fn reach(
    common: &Common,
    target: &Target,
) -> Result<(TcpStream, SocketAddr, Duration), Failed> {
    let failed = |text: &str| Failed::new(Reason::Closed, None, text);
    let addresses = hosts::resolve(target, common.family).await;
    let addresses = addresses.map_err(|text| failed(&text))?;
    let proved = common.credentials.is_some() || common.insecure;
    if !proved && addresses.iter().any(|address| !address.ip().is_loopback()) {
        return Err(Failed::new(
            Reason::Permission,
            None,
            "is another host: give --key-file, or --insecure if you mean it",
        ));
    }
    loop {
        let mut last = None;
        for (at, address) in addresses.iter().enumerate() {
            // Each address gets its share of the remaining time.
            let left = common.deadline.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(addresses.len() - at).unwrap_or(1);
            let began = Instant::now();
            let connected = timeout(share, connect(common, *address)).await;
            match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(stream) => {
                    let _ = stream.set_nodelay(true);
                    return Ok((stream, *address, began.elapsed()));
                }
                Err(error) => last = Some(error),
            }
        }
        let over = !common.again || Instant::now() >= common.deadline;
        if let Some(error) = last
            && over
        {
            return Err(failed(&unreachable(&error, target.port)));
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Connects from the configured address, if there is one.
async fn connect(common: &Common, address: SocketAddr) -> io::Result<TcpStream> {
    let same = |from: &&IpAddr| from.is_ipv4() == address.is_ipv4();
    let Some(&from) = common.from.iter().find(same) else {
        return TcpStream::connect(address).await;
    };
    let socket = match from {
        IpAddr::V4(_) => TcpSocket::new_v4()?,
        IpAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.bind(SocketAddr::new(from, 0))?;
    socket.connect(address).await
}

/// Explains why a host closed the connection before its first message. With certificates, this is how a client
/// learns that its own was refused: in TLS 1.3 the client finishes first.
fn hung_up(common: &Common, error: Option<&io::Error>) -> Failed {
    match (&common.credentials, error) {
        (None, _) => {
            let text = "hung up at once: it may want a key, or is busy";
            Failed::new(Reason::Closed, None, text)
        }
        (Some(_), Some(error)) => Failed::new(Reason::Permission, None, &tls::explain(error)),
        (Some(_), None) => Failed::new(Reason::Closed, None, "hung up at once"),
    }
}

/// Explains why a connection failed, and what to check.
fn unreachable(error: &io::Error, port: u16) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("refuses connections to port {port}: is mcpd running there?")
        }
        io::ErrorKind::TimedOut => {
            format!("does not answer on port {port}: a firewall, or the host is down")
        }
        _ => format!("cannot be reached: {}", routing_hint(error)),
    }
}

/// Returns the text of an error, with advice if it concerns routing.
pub(crate) fn routing_hint(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::AddrNotAvailable => {
            format!("{error}; choose an interface with --interface")
        }
        _ => error.to_string(),
    }
}

fn silent() -> Failed {
    Failed::new(Reason::Silent, None, "no answer within --connect-timeout")
}

/// Waits until the copy fails this host.
async fn given_up(commands: &mut mpsc::UnboundedReceiver<Command>) -> Failed {
    loop {
        match commands.recv().await {
            Some(Command::Fail(failed)) => return failed,
            Some(_) => {}
            None => std::future::pending().await,
        }
    }
}

/// Waits for the command to offer the copy.
async fn begin(
    commands: &mut mpsc::UnboundedReceiver<Command>,
) -> Result<Option<Prepared>, Failed> {
    loop {
        match commands.recv().await {
            Some(Command::Offer(prepared)) => return Ok(prepared),
            Some(Command::Fail(failed)) => return Err(failed),
            Some(_) => {}
            None => std::future::pending().await,
        }
    }
}

fn obey<S: AsyncRead + AsyncWrite>(conversation: &mut Conversation<Client, S>, command: Command) {
    let now = conversation.now();
    let machine = &mut conversation.machine;
    let said = match command {
        // It was given before the conversation began.
        Command::Offer(_) => Ok(()),
        Command::Suggest {
            carrier,
            source,
            destination,
        } => machine.suggest(now, carrier, source, destination),
        Command::Plan(data) => machine.plan(now, data),
        Command::Digest(entry, verdict, permit) => {
            let said = machine.digest(now, entry, verdict);
            drop(permit);
            said
        }
        Command::Expect(whole) => {
            machine.expect(now, whole);
            Ok(())
        }
        Command::Blocks(blocks) => machine.blocks(now, &blocks),
        Command::Feed(feed) => machine.feed(now, &feed),
        Command::Fed(fed) => machine.fed(now, &fed),
        Command::Multicast(multicast) => machine.multicast(now, &multicast),
        Command::Listen(listen) => machine.listen(now, &listen),
        Command::Fail(failed) => {
            machine.fail(now, failed);
            Ok(())
        }
    };
    if said.is_err() {
        // Commands arrive late only for a host that has failed.
        tracing::debug!("a command after the end");
    }
}
