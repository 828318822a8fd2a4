//! How streams to peers and data nodes come about: calls, callers, and who they prove to be.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bfed::wire::notification::{Reason, Repr as Notification};
use bfed::wire::open::Repr as Open;
use bfed::{GatewayId, PeerId};
use cli::secure::{self, Credentials, Proof};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::Input;
use super::streams::{Cut, Cutter, Stream};

/// How long a call, a handshake and a first message may take, together.
const PATIENCE: Duration = Duration::from_secs(10);
/// Callers that have not said yet who they are; others wait in the kernel.
const STRANGERS: usize = 64;

/// A caller that says that it is a peer.
pub(crate) struct Caller {
    pub(crate) gateway: GatewayId,
    pub(crate) stream: Stream,
    pub(crate) cutter: Cutter,
    pub(crate) first: Vec<u8>,
    pub(crate) from: SocketAddr,
    /// What it has proved.
    pub(crate) proof: Option<Proof>,
    /// The TCP socket itself.
    pub(crate) socket: OwnedFd,
}

/// Whom to call, and how.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) to: SocketAddr,
    pub(crate) tls_name: Option<String>,
    pub(crate) max_hops: Option<u8>,
}

/// Opens a stream.
pub(crate) async fn call(
    call: Call,
    credentials: Option<Arc<Credentials>>,
) -> Result<Stream, String> {
    let connected = timeout(PATIENCE, async {
        let stream = TcpStream::connect(call.to)
            .await
            .map_err(|e| e.to_string())?;
        prepare(&stream, call.max_hops)?;
        let Some(credentials) = credentials else {
            return Ok(Box::new(stream) as Stream);
        };
        let host = call.tls_name.unwrap_or_else(|| call.to.ip().to_string());
        let name = credentials.server_name(&host)?;
        let connector = TlsConnector::from(Arc::clone(&credentials.client));
        let stream = connector
            .connect(name, stream)
            .await
            .map_err(|e| secure::explain(&e))?;
        Ok(Box::new(stream) as Stream)
    });
    connected
        .await
        .unwrap_or_else(|_| Err("no answer in time".to_owned()))
}

fn prepare(stream: &TcpStream, max_hops: Option<u8>) -> Result<OwnedFd, String> {
    let text = |error: std::io::Error| error.to_string();
    stream.set_nodelay(true).map_err(text)?;
    let socket = stream.as_fd().try_clone_to_owned().map_err(text)?;
    if let Some(hops) = max_hops {
        bound_hops(&socket, stream.peer_addr().map_err(text)?, hops)?;
    }
    Ok(socket)
}

/// RFC 5082: what this side sends has crossed no hop yet, and what arrives has crossed no more than
/// `hops`, counting the last.
pub(crate) fn bound_hops(socket: &OwnedFd, peer: SocketAddr, hops: u8) -> Result<(), String> {
    linux_net::inet::bound_hops(socket, peer.ip(), 255 - (hops - 1)).map_err(|e| e.to_string())
}

/// Takes peers' calls until the task is dropped.
pub(crate) async fn peers(
    listener: TcpListener,
    credentials: Option<Arc<Credentials>>,
    inputs: mpsc::Sender<Input>,
) {
    accept(listener, move |stream, from| {
        let (credentials, inputs) = (credentials.clone(), inputs.clone());
        async move {
            let greeted = timeout(PATIENCE, greet(stream, from, credentials));
            let result = greeted
                .await
                .unwrap_or_else(|_| Err("it says nothing".to_owned()));
            let input = match result {
                Ok(caller) => Input::Caller(Box::new(caller)),
                Err(why) => Input::Stranger(from, why),
            };
            let _ = inputs.send(input).await;
        }
    })
    .await;
}

/// Takes data nodes' calls until the task is dropped.
pub(crate) async fn nodes(
    listener: TcpListener,
    credentials: Option<Arc<Credentials>>,
    inputs: mpsc::Sender<Input>,
) {
    accept(listener, move |stream, from| {
        let (credentials, inputs) = (credentials.clone(), inputs.clone());
        async move {
            let secured = timeout(PATIENCE, secure(stream, from, credentials));
            let result = secured
                .await
                .unwrap_or_else(|_| Err("it says nothing".to_owned()));
            let input = match result {
                Ok((stream, ..)) => Input::Node(stream),
                Err(why) => Input::Stranger(from, why),
            };
            let _ = inputs.send(input).await;
        }
    })
    .await;
}

async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream, SocketAddr) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(STRANGERS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, from)) => {
                let served = serve(stream, from);
                tokio::spawn(async move {
                    served.await;
                    drop(place);
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: others must end first.
                tracing::warn!(%error, "taking calls");
                tokio::time::sleep(Duration::from_millis(100)).await;
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
        .map_err(|e| secure::explain(&e))?;
    let proof = credentials.proof(stream.get_ref().1);
    Ok((Box::new(stream), Some(proof), socket))
}

/// Hears a caller's first message, by which it says who it is.
async fn greet(
    stream: TcpStream,
    from: SocketAddr,
    credentials: Option<Arc<Credentials>>,
) -> Result<Caller, String> {
    let (mut stream, proof, socket) = secure(stream, from, credentials).await?;
    let mut cutter = Cutter::new();
    let wrong = match cutter.next(&mut stream).await {
        Cut::Message(first) => match Open::parse(&first) {
            Ok(open) => {
                return Ok(Caller {
                    gateway: open.gateway,
                    stream,
                    cutter,
                    first,
                    from,
                    proof,
                    socket,
                });
            }
            Err(error) => error.to_string(),
        },
        Cut::Garbage(_) => "what it says is no message".to_owned(),
        Cut::End => return Err("it hung up without a word".to_owned()),
    };
    dismiss(stream, Reason::BadMessage, &wrong).await;
    Err(wrong)
}

/// Says why, and hangs up.
pub(crate) async fn dismiss(mut stream: Stream, reason: Reason, text: &str) {
    let why = Notification::new(reason, text);
    let mut bytes = vec![0; why.buffer_len()];
    why.emit(&mut bytes);
    let told = async {
        stream.write_all(&bytes).await?;
        stream.shutdown().await
    };
    let _ = timeout(Duration::from_secs(3), told).await;
}

/// What an outgoing call brought.
pub(crate) struct Outcome {
    pub(crate) peer: PeerId,
    pub(crate) result: Result<Stream, String>,
}
