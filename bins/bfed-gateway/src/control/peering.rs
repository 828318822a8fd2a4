//! Streams to peers and data nodes: outgoing and incoming connections, and the proof of their identity.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bfed::wire::node::Register;
use bfed::wire::notification::{Reason, Repr as Notification};
use bfed::wire::open::Repr as Open;
use bfed::wire::{self, ParseError};
use bfed::{GatewayId, NodeIdentity, PeerId};
use control_stream::tls::{self, Credentials, Proof};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::streams::{Cut, Cutter, Stream};
use super::{Input, resolve};
use crate::config::Endpoint;
use crate::limiter::{self, ConnectionLimiter, Limits, LogLimiter};

/// Time for the connection, the handshake and the first message together.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before the next connection is accepted after one was closed to free its descriptor.
const SHED: Duration = Duration::from_millis(1);
/// Pause before the next connection is accepted if none could be closed.
const SCARCE: Duration = Duration::from_millis(100);
/// Most unproved connections of the peering port and of the cluster port; fewer where the process may open few
/// file descriptors. The data nodes of one machine may
/// all call at once after a restart of the control node: 64 at most.
const UNPROVED: Limits = Limits {
    total: 256,
    per_source: 64,
};

/// The unproved connections of one port, and the addresses with reserved places.
#[derive(Debug)]
pub(crate) struct Port {
    limiter: Mutex<ConnectionLimiter<AbortHandle>>,
    named: Mutex<BTreeSet<IpAddr>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Port {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Port {
            limiter: Mutex::new(ConnectionLimiter::new(UNPROVED.for_process())),
            named: Mutex::default(),
        })
    }

    /// Reserves places for these addresses, in place of those of the last call.
    pub(crate) fn name(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        *lock(&self.named) = addresses.into_iter().map(limiter::source).collect();
    }

    /// Returns the number of connections that were closed because a bound was reached.
    pub(crate) fn evicted(&self) -> u64 {
        lock(&self.limiter).evicted()
    }

    /// Closes an unproved connection, if there is one.
    fn shed(&self) -> bool {
        let shed = lock(&self.limiter).shed();
        shed.is_some_and(|task| {
            task.abort();
            true
        })
    }

    /// Serves a connection, which counts as unproved until `served` is ready. Returns whether another one is
    /// closed for it, as soon as the runtime runs that one's task.
    fn admit(
        self: &Arc<Self>,
        from: SocketAddr,
        served: impl Future<Output = ()> + Send + 'static,
    ) -> bool {
        let named = lock(&self.named).contains(&limiter::source(from.ip()));
        let start = |ticket| {
            let port = Arc::clone(self);
            let task = async move {
                served.await;
                lock(&port.limiter).remove(ticket);
            };
            tokio::spawn(task).abort_handle()
        };
        let (_, evicted) = lock(&self.limiter).admit(from.ip(), named, start);
        evicted.inspect(AbortHandle::abort).is_some()
    }
}

/// An incoming connection that claims to be a peer's.
pub(crate) struct Caller {
    pub(crate) gateway: GatewayId,
    pub(crate) stream: Stream,
    pub(crate) cutter: Cutter,
    pub(crate) first: Vec<u8>,
    pub(crate) from: SocketAddr,
    /// The identity that it has proved.
    pub(crate) proof: Option<Proof>,
    /// The TCP socket itself.
    pub(crate) socket: OwnedFd,
}

/// Target and options of an outgoing connection.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) to: Endpoint,
    pub(crate) tls_name: Option<String>,
    /// Lowest TTL of incoming packets; `None` accepts any.
    pub(crate) min_ttl: Option<u8>,
}

/// Opens a stream to a peer or a control node; returns it and the address that it leads to, whose identity is proved.
pub(crate) async fn call(
    call: Call,
    credentials: Option<Arc<Credentials>>,
) -> Result<(Stream, SocketAddr), String> {
    let connected = timeout(TIMEOUT, async {
        let (stream, at) = resolve::connect(&call.to, credentials.is_some(), TIMEOUT).await?;
        prepare(&stream, call.min_ttl)?;
        let Some(credentials) = credentials else {
            return Ok((Box::new(stream) as Stream, at));
        };
        let host = call.tls_name.unwrap_or_else(|| call.to.host());
        let name = credentials.server_name(&host)?;
        let connector = TlsConnector::from(Arc::clone(&credentials.client));
        let stream = connector
            .connect(name, stream)
            .await
            .map_err(|e| tls::explain(&e))?;
        Ok((Box::new(stream) as Stream, at))
    });
    connected
        .await
        .unwrap_or_else(|_| Err("no answer in time".to_owned()))
}

fn prepare(stream: &TcpStream, min_ttl: Option<u8>) -> Result<OwnedFd, String> {
    let text = |error: std::io::Error| error.to_string();
    stream.set_nodelay(true).map_err(text)?;
    let socket = stream.as_fd().try_clone_to_owned().map_err(text)?;
    if let Some(min_ttl) = min_ttl {
        bound_hops(&socket, stream.peer_addr().map_err(text)?, min_ttl)?;
    }
    Ok(socket)
}

/// Sends with the highest TTL and drops packets with a lower one than `min_ttl` (RFC 5082).
pub(crate) fn bound_hops(socket: &OwnedFd, peer: SocketAddr, min_ttl: u8) -> Result<(), String> {
    linux_net::inet::bound_hops(socket, peer.ip(), min_ttl).map_err(|e| e.to_string())
}

/// Accepts peers' connections until the task is dropped.
pub(crate) async fn peers(
    listener: TcpListener,
    port: Arc<Port>,
    credentials: Option<Arc<Credentials>>,
    inputs: mpsc::Sender<Input>,
) {
    let serve = move |stream, from| {
        let (credentials, inputs) = (credentials.clone(), inputs.clone());
        let greeted = greet(stream, from, credentials);
        introduce(from, inputs, async {
            Ok(Input::Caller(Box::new(greeted.await?)))
        })
    };
    accept(listener, port, serve).await;
}

/// Passes on the input that a new connection becomes within [`TIMEOUT`], or why it is refused.
async fn introduce(
    from: SocketAddr,
    inputs: mpsc::Sender<Input>,
    introduced: impl Future<Output = Result<Input, String>>,
) {
    let result = timeout(TIMEOUT, introduced).await;
    let result = result.unwrap_or_else(|_| Err("no message in time".to_owned()));
    let input = result.unwrap_or_else(|why| Input::Stranger(from, why));
    let _ = inputs.send(input).await;
}

/// A stream with a data node.
pub(crate) struct Registrant {
    pub(crate) stream: Stream,
    pub(crate) cutter: Cutter,
    /// Its REGISTER, if it was read already.
    pub(crate) first: Option<Vec<u8>>,
    pub(crate) identity: NodeIdentity,
}

impl Registrant {
    /// Creates the stream of a data node of this process.
    pub(crate) fn own(stream: Stream) -> Self {
        Registrant {
            stream,
            cutter: Cutter::new(),
            first: None,
            identity: NodeIdentity::default(),
        }
    }
}

/// The data nodes that may register.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    pub(crate) credentials: Option<Arc<Credentials>>,
    /// The names of which each certificate must have one.
    pub(crate) names: Vec<String>,
}

/// The identity of all processes on loopback, or with the cluster's secret.
const NAMELESS: NodeIdentity = NodeIdentity(1);

impl Members {
    /// Returns the identity of a data node if it may register. Equal names are one identity; 0 is this process.
    fn identify(&self, proof: Option<&Proof>) -> Result<NodeIdentity, String> {
        let Some(proof @ Proof::Certificate(_)) = proof else {
            return Ok(NAMELESS);
        };
        let found = (NAMELESS.0 + 1..)
            .zip(&self.names)
            .find(|(_, name)| proof.is_for(name).is_ok());
        found
            .map(|(number, _)| NodeIdentity(number))
            .ok_or_else(|| "its certificate bears no name of cluster.nodes".to_owned())
    }
}

/// Accepts data nodes' connections until the task is dropped.
pub(crate) async fn nodes(
    listener: TcpListener,
    port: Arc<Port>,
    members: Members,
    inputs: mpsc::Sender<Input>,
) {
    // An address in a certificate is the data node's.
    port.name(members.names.iter().filter_map(|name| name.parse().ok()));
    let members = Arc::new(members);
    let serve = move |stream, from| {
        let (members, inputs) = (Arc::clone(&members), inputs.clone());
        introduce(from, inputs, async move {
            let registered = registrant(stream, from, &members).await;
            registered.map(Input::Node)
        })
    };
    accept(listener, port, serve).await;
}

/// Authenticates a data node and reads its REGISTER.
async fn registrant(
    stream: TcpStream,
    from: SocketAddr,
    members: &Members,
) -> Result<Registrant, String> {
    let (stream, proof, _) = secure(stream, from, members.credentials.clone()).await?;
    let identity = match members.identify(proof.as_ref()) {
        Ok(identity) => identity,
        Err(why) => {
            dismiss(stream, Reason::BadPeer, &why).await;
            return Err(why);
        }
    };
    let sides = ["the control node", "the data node"];
    let (first, stream, cutter, _) = first_message(stream, sides, Register::parse).await?;
    Ok(Registrant {
        stream,
        cutter,
        first: Some(first),
        identity,
    })
}

/// Reads the first message of a stream, which must be of one type: its bytes, and its content. Dismisses the other side
/// of a stream that begins with anything else. `sides` are this one and the other, for people.
async fn first_message<T>(
    mut stream: Stream,
    [own, other]: [&str; 2],
    parse: impl FnOnce(&[u8]) -> Result<T, ParseError>,
) -> Result<(Vec<u8>, Stream, Cutter, T), String> {
    let mut cutter = Cutter::new();
    let (first, wrong) = match cutter.next(&mut stream).await {
        Cut::Message(first) => match parse(&first) {
            Ok(message) => return Ok((first, stream, cutter, message)),
            Err(error) => (first, error.to_string()),
        },
        Cut::Garbage(first) => (first, "its first bytes are not a message".to_owned()),
        Cut::End => return Err("it closed the connection without a message".to_owned()),
    };
    let (reason, wrong) = match wire::other_version(&first) {
        Some(version) => {
            let versions = (version, version);
            (
                Reason::Version,
                wire::describe_mismatch(own, other, versions),
            )
        }
        None => (Reason::BadMessage, wrong),
    };
    dismiss(stream, reason, &wrong).await;
    Err(wrong)
}

/// Accepts connections at once: the port's limiter bounds unproved ones, not the kernel's queue, where an honest
/// peer would wait for them.
async fn accept<F>(
    listener: TcpListener,
    port: Arc<Port>,
    serve: impl Fn(TcpStream, SocketAddr) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut log = LogLimiter::default();
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                if port.admit(from, serve(stream, from)) {
                    // The descriptors of the other one are closed before the next one takes more.
                    tokio::task::yield_now().await;
                }
            }
            Err(error) => {
                // Out of file descriptors, most likely: close an unproved connection.
                let shed = port.shed();
                let now = std::time::Instant::now();
                if let Some(count) = log.summary(now) {
                    tracing::warn!(
                        event = "accept_failed",
                        count,
                        "more connections could not be accepted"
                    );
                }
                if log.admit(now) {
                    tracing::warn!(event = "accept_failed", %error, "a connection could not be accepted");
                }
                let pause = if shed { SHED } else { SCARCE };
                tokio::time::sleep(pause).await;
            }
        }
    }
}

type Secured = (Stream, Option<Proof>, OwnedFd);

async fn secure(
    stream: TcpStream,
    from: SocketAddr,
    credentials: Option<Arc<Credentials>>,
) -> Result<Secured, String> {
    let socket = prepare(&stream, None)?;
    let Some(credentials) = credentials else {
        return match from.ip().to_canonical().is_loopback() {
            true => Ok((Box::new(stream), None, socket)),
            false => Err("it is not on loopback, and there is no key file".to_owned()),
        };
    };
    let acceptor = TlsAcceptor::from(Arc::clone(&credentials.server));
    let stream = acceptor
        .accept(stream)
        .await
        .map_err(|e| tls::explain(&e))?;
    let proof = credentials.proof(stream.get_ref().1);
    Ok((Box::new(stream), Some(proof), socket))
}

/// Reads a peer's first message, which identifies it.
async fn greet(
    stream: TcpStream,
    from: SocketAddr,
    credentials: Option<Arc<Credentials>>,
) -> Result<Caller, String> {
    let (stream, proof, socket) = secure(stream, from, credentials).await?;
    let sides = ["this gateway", "the peer"];
    let (first, stream, cutter, open) = first_message(stream, sides, Open::parse).await?;
    Ok(Caller {
        gateway: open.gateway,
        stream,
        cutter,
        first,
        from,
        proof,
        socket,
    })
}

/// Sends the reason and closes the connection.
pub(crate) async fn dismiss(mut stream: Stream, reason: Reason, text: &str) {
    let why = Notification::new(reason, text);
    let mut bytes = vec![0; why.buffer_len()];
    why.emit(&mut bytes);
    let sent = async {
        stream.write_all(&bytes).await?;
        stream.shutdown().await
    };
    let _ = timeout(Duration::from_secs(3), sent).await;
}

/// The result of an outgoing connection.
pub(crate) struct Outcome {
    pub(crate) peer: PeerId,
    pub(crate) result: Result<(Stream, SocketAddr), String>,
}
