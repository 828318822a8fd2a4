//! The control connection to one host.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cli::clock::Clock;
use cli::conversation::Conversation;
use cli::secure::{self, Credentials};
use mcp_control::wire::progress::FileVerdict;
use mcp_control::{
    Client, ClientConfig, ClientEvent, DataPath, Digest, Failed, Layout, Manifest, Reason, Side,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout_at;
use tokio_rustls::TlsConnector;

use crate::hosts::{self, Target};

/// A host that refuses is tried again so often, when it is worth waiting for.
const AGAIN: Duration = Duration::from_millis(300);

/// What the copy asks of a host.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    Suggest { source: u16, destination: u16 },
    Plan(Option<(DataPath, Arc<Layout>)>),
    Digest(u32, FileVerdict),
    Expect(Digest),
    Fail(Failed),
}

/// What a host says.
#[derive(Debug)]
pub(crate) enum News {
    /// The connection is there and proved.
    Connected {
        address: SocketAddrV4,
        /// This host's address on it.
        local: Ipv4Addr,
    },
    Event(ClientEvent),
}

/// What all hosts share.
pub(crate) struct Common {
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) config: ClientConfig,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) insecure: bool,
    pub(crate) clock: Clock,
    /// Until when a host must have answered.
    pub(crate) deadline: Instant,
    /// Try hosts again that refuse.
    pub(crate) again: bool,
}

/// One host, from the first attempt to connect to its last word.
pub(crate) struct Host {
    pub(crate) common: Arc<Common>,
    pub(crate) target: Target,
    pub(crate) index: usize,
    pub(crate) news: mpsc::Sender<(usize, News)>,
    pub(crate) commands: mpsc::UnboundedReceiver<Command>,
}

impl Host {
    /// Until it is over: the last news says how.
    pub(crate) async fn run(mut self) {
        let deadline = self.common.deadline.into();
        let reached = tokio::select! {
            reached = timeout_at(deadline, reach(&self.common, &self.target)) => reached,
            failed = given_up(&mut self.commands) => Ok(Err(failed)),
        };
        let (stream, address) = match reached {
            Ok(Ok(reached)) => reached,
            Ok(Err(failed)) => return self.unreached(failed).await,
            Err(_) => return self.unreached(silent()).await,
        };
        let IpAddr::V4(local) = stream
            .local_addr()
            .map_or(address.ip().to_owned().into(), |a| a.ip())
        else {
            return self
                .unreached(Failed::new(Reason::NoPort, None, "data needs IPv4"))
                .await;
        };
        let Some(credentials) = &self.common.credentials else {
            self.tell(News::Connected { address, local }).await;
            return self.converse(stream).await;
        };
        let name = match credentials.server_name(&self.target.host) {
            Ok(name) => name,
            Err(text) => {
                let failed = Failed::new(Reason::Protocol, None, &text);
                return self.unreached(failed).await;
            }
        };
        let connector = TlsConnector::from(Arc::clone(&credentials.client));
        match timeout_at(deadline, connector.connect(name, stream)).await {
            Ok(Ok(stream)) => {
                self.tell(News::Connected { address, local }).await;
                self.converse(stream).await;
            }
            Ok(Err(error)) => {
                let failed = Failed::new(Reason::Permission, None, &secure::explain(&error));
                self.unreached(failed).await;
            }
            Err(_) => self.unreached(silent()).await,
        }
    }

    async fn tell(&self, news: News) {
        // Nobody listens any more: the copy is over.
        let _ = self.news.send((self.index, news)).await;
    }

    async fn unreached(&self, failed: Failed) {
        let side = Side::Here;
        self.tell(News::Event(ClientEvent::Failed { failed, side }))
            .await;
    }

    async fn converse<S: AsyncRead + AsyncWrite>(&mut self, stream: S) {
        let common = &self.common;
        let manifest = Arc::clone(&common.manifest);
        let machine = Client::new(common.config.clone(), manifest, common.clock.now());
        let mut conversation = Conversation::new(machine, stream, common.clock);
        let deadline = common.deadline.into();
        let mut welcomed = false;
        let mut commanded = true;
        loop {
            tokio::select! {
                event = conversation.next() => {
                    let Some(mut event) = event else { return };
                    if let ClientEvent::Failed { failed, .. } = &mut event
                        && !welcomed
                        && failed.reason == Reason::Closed
                        && common.credentials.is_none()
                    {
                        failed.text = "hung up at once: it may want a key".to_owned();
                    }
                    welcomed |= matches!(event, ClientEvent::Welcome { .. });
                    self.tell(News::Event(event)).await;
                }
                command = self.commands.recv(), if commanded => match command {
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

/// A connection, by whichever address answers first in order.
async fn reach(common: &Common, target: &Target) -> Result<(TcpStream, SocketAddrV4), Failed> {
    let failed = |text: &str| Failed::new(Reason::Closed, None, text);
    let addresses = hosts::resolve(target).await;
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
        for address in &addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    let _ = stream.set_nodelay(true);
                    return Ok((stream, *address));
                }
                Err(error) => last = Some(error),
            }
        }
        if !common.again {
            let error = last.map_or_else(String::new, |error| error.to_string());
            return Err(failed(&format!("cannot be reached: {error}")));
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn silent() -> Failed {
    Failed::new(Reason::Silent, None, "no answer within --max-wait")
}

/// Until the copy gives this host up.
async fn given_up(commands: &mut mpsc::UnboundedReceiver<Command>) -> Failed {
    loop {
        match commands.recv().await {
            Some(Command::Fail(failed)) => return failed,
            Some(_) => {}
            None => std::future::pending().await,
        }
    }
}

fn obey<S: AsyncRead + AsyncWrite>(conversation: &mut Conversation<Client, S>, command: Command) {
    let now = conversation.now();
    let machine = &mut conversation.machine;
    let said = match command {
        Command::Suggest {
            source,
            destination,
        } => machine.suggest(now, source, destination),
        Command::Plan(data) => machine.plan(now, data),
        Command::Digest(entry, verdict) => machine.digest(now, entry, verdict),
        Command::Expect(whole) => {
            machine.expect(now, whole);
            Ok(())
        }
        Command::Fail(failed) => {
            machine.fail(now, failed);
            Ok(())
        }
    };
    if said.is_err() {
        // Only a host that has failed already is told what comes too late.
        tracing::debug!("a command after the end");
    }
}
