//! The streams between data nodes and their control node: one task for each data node of
//! this process keeps its stream up. The data node has one end of a socket pair; the task copies the other end to
//! the control node of this process, or over TCP to the active one.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use control_stream::tls::Credentials;
use tokio::io::{AsyncWriteExt, duplex};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::config::Cluster;
use crate::control::streams::Stream;
use crate::control::{Call, Input, Registrant, call};
use crate::data;

/// Room of a stream inside the process, in bytes.
const ROOM: usize = 1 << 16;
/// Time to connect to a control node before the next one is tried: another may be the active one.
const CALL: Duration = Duration::from_secs(1);
/// Time without a warning that no control node answers: programs of a cluster start in any order.
const STARTING: Duration = Duration::from_secs(10);
/// Pause between attempts.
const RETRY: Duration = Duration::from_millis(100);

/// Where the control node is.
#[derive(Clone)]
pub(crate) enum Towards {
    /// The control node of this process.
    Driver(mpsc::Sender<Input>),
    /// Control nodes elsewhere: the first that accepts the stream and keeps it.
    Cluster(Cluster, Option<Arc<Credentials>>),
}

impl Towards {
    async fn open(&self, turn: usize) -> Result<Stream, String> {
        match self {
            Towards::Driver(driver) => {
                let (here, there) = duplex(ROOM);
                let gone = "the control node has ended";
                let taken = driver
                    .send(Input::Node(Registrant::own(Box::new(there))))
                    .await;
                taken.map_err(|_| gone.to_owned())?;
                Ok(Box::new(here))
            }
            Towards::Cluster(cluster, credentials) => {
                let to = &cluster.control[turn % cluster.control.len()];
                let wanted = Call {
                    to: to.clone(),
                    tls_name: cluster.tls_name.clone(),
                    min_ttl: None,
                };
                let called = timeout(CALL, call(wanted, credentials.clone())).await;
                let called = called.unwrap_or_else(|_| Err("no answer in time".to_owned()));
                let called = called.map(|(stream, _)| stream);
                called.map_err(|why| format!("{to}: {why}"))
            }
        }
    }
}

/// Keeps a data node's stream up until the data node ends.
pub(crate) async fn keep(node: data::Controller, towards: Towards) {
    let (mut last_error, mut starting) = (String::new(), true);
    let began = Instant::now();
    for turn in 0.. {
        match towards.open(turn).await {
            Ok(stream) => match connect(&node, stream).await {
                Ok(true) => {
                    starting = false;
                    last_error.clear();
                }
                Ok(false) => {}
                Err(Ended) => return,
            },
            // Once for each reason, not for each attempt.
            Err(why) if why != last_error && starting && began.elapsed() < STARTING => {
                tracing::info!(
                    event = "control_waiting",
                    error = why,
                    "waiting for the control node"
                );
                last_error = why;
            }
            Err(why) if why != last_error || (starting && began.elapsed() >= STARTING) => {
                tracing::warn!(
                    event = "control_unreachable",
                    error = why,
                    "no control node reachable; forwarding continues"
                );
                (starting, last_error) = (false, why);
            }
            Err(_) => {}
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The data node has ended.
struct Ended;

/// Carries a stream until either side ends it. Returns whether the control node sent anything.
async fn connect(node: &data::Controller, mut stream: Stream) -> Result<bool, Ended> {
    let pair = UnixStream::pair().and_then(|(own, theirs)| {
        own.set_nonblocking(true)?;
        Ok((tokio::net::UnixStream::from_std(own)?, theirs))
    });
    let (mut own, theirs) = match pair {
        Ok(pair) => pair,
        Err(error) => {
            tracing::warn!(event = "control_stream_failed", %error, "cannot open a stream inside the process");
            return Ok(false);
        }
    };
    if node.send(data::Command::Connect(theirs)).is_err() {
        // Busy, or ended: then the next attempt finds out.
        let _ = stream.shutdown().await;
        return if node.is_closed() {
            Err(Ended)
        } else {
            Ok(false)
        };
    }
    let (mut read_own, mut write_own) = own.split();
    let (mut read, mut write) = tokio::io::split(stream);
    let mut received = false;
    let receive = async {
        let mut buffer = vec![0; 1 << 14];
        loop {
            use tokio::io::AsyncReadExt;
            let len = match read.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(len) => len,
            };
            received = true;
            if write_own.write_all(&buffer[..len]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = receive => {}
        _ = tokio::io::copy(&mut read_own, &mut write) => {}
    }
    Ok(received)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use socket2::{Domain, Socket, Type};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    /// A bound socket on loopback, and its address.
    fn bound() -> (Socket, SocketAddr) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        socket.bind(&any.into()).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        (socket, address)
    }

    /// A listener that answers no connection because its queue is full, with the sockets that fill it.
    fn swallows_calls() -> (Vec<Socket>, SocketAddr) {
        let (listener, address) = bound();
        listener.listen(0).unwrap();
        let mut open = vec![listener];
        for _ in 0..4 {
            let caller = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            caller.set_nonblocking(true).unwrap();
            let _ = caller.connect(&address.into());
            open.push(caller);
        }
        (open, address)
    }

    // The clock is virtual: it advances only while no task can run.
    #[tokio::test(start_paused = true)]
    async fn a_control_node_that_swallows_calls_is_passed_over() {
        let (_open, silent) = swallows_calls();
        let active = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cluster = Cluster {
            listen: None,
            control: vec![silent.into(), active.local_addr().unwrap().into()],
            tls_name: None,
            key_file: None,
            nodes: Vec::new(),
        };
        let towards = Towards::Cluster(cluster, None);
        let began = Instant::now();
        let Err(why) = towards.open(0).await else {
            panic!("it answered");
        };
        assert!(why.contains("no answer in time"), "{why}");
        assert!(towards.open(1).await.is_ok());
        // A successor's data nodes are back well before the timeout of 10 s of peers and ports.
        assert!(began.elapsed() <= Duration::from_secs(2));
    }
}
