//! Streams and groups over loopback, blocking and in tokio.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake};
use std::thread::JoinHandle;
use std::time::Duration;

use tcpxm_tokio::{
    Carrier, Config, GroupConfig, GroupEvent, GroupMode, Mode, SegmentKey, XmEndpoint, XmListener,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

fn open(last: u8, port: u16) -> XmEndpoint {
    let mut config = Config::new(SocketAddr::from(([127, 0, 0, last], port)));
    // Loopback's index is 1 in every network namespace.
    config.interface = 1;
    XmEndpoint::open(&config).expect("an endpoint")
}

/// Starts threads that each accept one connection and read it to its end.
fn read_all(listeners: impl IntoIterator<Item = XmListener>) -> Vec<JoinHandle<Vec<u8>>> {
    let read = |listener: XmListener| {
        std::thread::spawn(move || {
            let mut received = Vec::new();
            let mut stream = listener.wait(None).expect("accepted");
            Read::read_to_end(&mut stream, &mut received).expect("read");
            received
        })
    };
    listeners.into_iter().map(read).collect()
}

#[test]
fn blocks_that_are_handed_over_arrive_as_they_were() {
    let server = open(1, 0);
    let reading = read_all([server.listen().expect("listening")]);
    let to = server.local_address();
    let client = open(1, 0);
    let config = GroupConfig::new(client.local_address(), vec![to.ip()], to.port());
    let mut group = client.open_group(config).expect("a group");
    let bytes = content(20_000_000);
    let mut rest = &bytes[..];
    // Short and long pieces, and more than the send buffer holds.
    for len in [1, 70_000, 16_000, 5_000_000, 65_536, 3, 10_000_000]
        .into_iter()
        .cycle()
    {
        let (piece, behind) = rest.split_at(rest.len().min(len));
        Write::write_all(&mut group, piece).expect("written");
        rest = behind;
        if rest.is_empty() {
            break;
        }
    }
    group.finish().expect("shut");
    assert!(
        Write::write_all(&mut group, b"more").is_err(),
        "after the end"
    );
    assert_eq!(group.wait_delivered().expect("delivered"), 1);
    for received in reading {
        assert!(received.join().expect("a reader") == bytes);
    }
}

#[test]
fn a_connection_carries_bytes_both_ways_and_ends() {
    let server = open(1, 0);
    let listener = server.listen().expect("listening");
    let client = open(1, 0);
    let mut one = client.connect(server.local_address()).expect("opened");
    let mut two = listener.wait(None).expect("accepted");
    assert_eq!(two.peer_address().expect("known"), client.local_address());
    let bytes = content(3_000_000);
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || {
        Write::write_all(&mut one, &sent).expect("written");
        one.finish().expect("shut");
        let mut answer = Vec::new();
        Read::read_to_end(&mut one, &mut answer).expect("read");
        answer
    });
    let mut received = Vec::new();
    Read::read_to_end(&mut two, &mut received).expect("read");
    assert!(received == bytes);
    Write::write_all(&mut two, b"thanks").expect("written");
    drop(two);
    assert_eq!(writer.join().expect("the writer"), b"thanks");
}

/// Sends to the receivers from 127.0.0.2 on: each gets every byte, and is in mode multicast.
fn reaches_all_by_multicast(sender: &XmEndpoint, listeners: Vec<XmListener>, port: u16) {
    let count = listeners.len();
    let receivers = (0..count).map(|at| Ipv4Addr::new(127, 0, 0, 2 + at as u8).into());
    let config = GroupConfig::new(sender.local_address(), receivers.collect(), port);
    let mut group = sender.open_group(config).expect("a group");
    let handle = group.handle();
    let bytes = content(5_000_000);
    let readers = read_all(listeners);
    Write::write_all(&mut group, &bytes).expect("written");
    group.finish().expect("shut");
    assert_eq!(group.wait_delivered().expect("delivered"), count);
    for reader in readers {
        assert!(reader.join().expect("a reader") == bytes);
    }
    let events: Vec<GroupEvent> = std::iter::from_fn(|| handle.poll_event()).collect();
    for receiver in 0..count {
        let expected = [
            GroupEvent::Mode(receiver, Mode::Multicast),
            GroupEvent::Delivered(receiver),
        ];
        assert!(expected.iter().all(|e| events.contains(e)), "{events:?}");
    }
}

#[test]
fn a_group_reaches_every_receiver_by_multicast() {
    let first = open(2, 0);
    let port = first.local_address().port();
    let others = [3, 4].map(|last| open(last, port));
    let listeners: Vec<_> = [&first, &others[0], &others[1]]
        .map(|endpoint| endpoint.listen().expect("listening"))
        .into();
    reaches_all_by_multicast(&open(1, 0), listeners, port);
}

#[test]
fn a_receiver_that_is_not_there_does_not_hold_the_others_up() {
    let here = open(1, 0);
    let port = here.local_address().port();
    let listener = here.listen().expect("listening");
    // An endpoint that does not listen: it refuses.
    let _deaf = open(5, port);
    let sender = open(1, 0);
    let receivers: Vec<IpAddr> = [1, 5]
        .map(|last| Ipv4Addr::new(127, 0, 0, last).into())
        .into();
    let mut config = GroupConfig::new(sender.local_address(), receivers, port);
    config.mode = GroupMode::Unicast;
    let mut group = sender.open_group(config).expect("a group");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let mut stream = listener.wait(None).expect("accepted");
        Read::read_to_string(&mut stream, &mut text).expect("read");
        text
    });
    Write::write_all(&mut group, b"hello").expect("written");
    group.finish().expect("shut");
    assert_eq!(group.wait_delivered().expect("delivered"), 1);
    assert_eq!(reader.join().expect("the reader"), "hello");
}

#[test]
fn an_abort_wakes_who_waits() {
    let server = open(1, 0);
    let listener = server.listen().expect("listening");
    let client = open(1, 0);
    let _one = client.connect(server.local_address()).expect("opened");
    let mut two = listener.wait(None).expect("accepted");
    let handle = two.handle();
    let reader = std::thread::spawn(move || Read::read(&mut two, &mut [0; 9]));
    handle.abort();
    let error = reader.join().expect("the reader").expect_err("aborted");
    assert!(
        matches!(
            error.kind(),
            ErrorKind::ConnectionAborted | ErrorKind::NotConnected
        ),
        "{error:?}"
    );
    let late = listener.wait(Some(Duration::from_millis(1)));
    assert_eq!(late.expect_err("nobody").kind(), ErrorKind::TimedOut);
}

#[tokio::test]
async fn the_same_in_tokio() {
    let server = open(1, 0);
    let listener = server.listen().expect("listening");
    let client = open(1, 0);
    let mut one = client.connect(server.local_address()).expect("opened");
    let bytes = content(2_000_000);
    let send = async {
        AsyncWriteExt::write_all(&mut one, &bytes)
            .await
            .expect("written");
        AsyncWriteExt::shutdown(&mut one).await.expect("shut");
    };
    let receive = async {
        let mut two = listener.accept().await.expect("accepted");
        let mut received = Vec::new();
        AsyncReadExt::read_to_end(&mut two, &mut received)
            .await
            .expect("read");
        received
    };
    let ((), received) = tokio::join!(send, receive);
    assert!(received == bytes);
}

#[tokio::test]
async fn news_of_a_group_come_by_themselves() {
    let here = open(1, 0);
    let listener = here.listen().expect("listening");
    let sender = open(1, 0);
    let receivers = vec![Ipv4Addr::LOCALHOST.into()];
    let port = here.local_address().port();
    let config = GroupConfig::new(sender.local_address(), receivers, port);
    let mut group = sender.open_group(config).expect("a group");
    let handle = group.handle();
    AsyncWriteExt::write_all(&mut group, b"hello")
        .await
        .expect("written");
    group.finish().expect("finished");
    let mut stream = listener.accept().await.expect("accepted");
    let mut text = String::new();
    AsyncReadExt::read_to_string(&mut stream, &mut text)
        .await
        .expect("read");
    assert_eq!(text, "hello");
    while handle.next_event().await != Some(GroupEvent::Delivered(0)) {}
    drop(group);
    assert_eq!(handle.next_event().await, None);
}

#[test]
fn a_port_that_is_taken_is_found_out() {
    let one = open(1, 0);
    let config = Config::new(one.local_address());
    let error = XmEndpoint::open(&config).expect_err("taken");
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
}

/// An endpoint over IP; `None` where that is not permitted, which the test reports.
fn open_over_ip(last: u8, port: u16) -> Option<XmEndpoint> {
    let mut config = Config::new(SocketAddr::from(([127, 0, 0, last], port)));
    config.interface = 1;
    config.machine.carrier = Carrier::Ip;
    match XmEndpoint::open(&config) {
        Ok(endpoint) => Some(endpoint),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
            netlab::skip("tcpxm-tokio", error);
            None
        }
    }
}

#[test]
fn over_ip_the_other_side_may_be_the_kernel() {
    let Some(here) = open_over_ip(1, 0) else {
        return;
    };
    let bytes = content(2_000_000);
    // The kernel listens.
    let kernel = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = kernel.local_addr().expect("known");
    let mut stream = here.connect(address).expect("opened");
    let (mut peer, _) = kernel.accept().expect("accepted");
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || {
        Write::write_all(&mut stream, &sent).expect("written");
        stream.finish().expect("shut");
        let mut answer = Vec::new();
        Read::read_to_end(&mut stream, &mut answer).expect("read");
        answer
    });
    let mut received = Vec::new();
    peer.read_to_end(&mut received).expect("read");
    assert!(received == bytes);
    peer.write_all(&bytes).expect("written");
    drop(peer);
    assert!(writer.join().expect("the writer") == bytes);
    // The kernel connects.
    let listener = here.listen().expect("listening");
    let mut peer = std::net::TcpStream::connect(here.local_address()).expect("connected");
    let mut stream = listener.wait(None).expect("accepted");
    peer.write_all(&bytes).expect("written");
    peer.shutdown(std::net::Shutdown::Write).expect("shut");
    let mut received = Vec::new();
    Read::read_to_end(&mut stream, &mut received).expect("read");
    assert!(received == bytes);
}

#[test]
fn over_ip_a_group_reaches_every_receiver_by_multicast() {
    let Some(first) = open_over_ip(2, 0) else {
        return;
    };
    let port = first.local_address().port();
    let second = open_over_ip(3, port).expect("an endpoint");
    let listeners = [&first, &second].map(|endpoint| endpoint.listen().expect("listening"));
    let sender = open_over_ip(1, 0).expect("an endpoint");
    reaches_all_by_multicast(&sender, listeners.into(), port);
}

/// The side that closes last is removed when its end is acknowledged: that is no error.
#[tokio::test]
async fn shutting_down_after_the_other_side_has_closed_succeeds() {
    let server = open(1, 0);
    let listener = server.listen().expect("listening");
    let client = open(1, 0);
    let mut one = client.connect(server.local_address()).expect("opened");
    AsyncWriteExt::write_all(&mut one, b"question")
        .await
        .expect("written");
    let mut two = listener.accept().await.expect("accepted");
    one.finish().expect("shut");
    let mut text = String::new();
    AsyncReadExt::read_to_string(&mut two, &mut text)
        .await
        .expect("read");
    AsyncWriteExt::write_all(&mut two, b"answer")
        .await
        .expect("written");
    two.shutdown().await.expect("delivered");
    two.shutdown().await.expect("a second time is fine");
    text.clear();
    AsyncReadExt::read_to_string(&mut one, &mut text)
        .await
        .expect("read");
    assert_eq!(text, "answer");
    one.shutdown().await.expect("delivered long ago");
}

/// The side that closes last is removed when its end is acknowledged. An application that has not read the
/// peer's end yet still reads it.
#[tokio::test]
async fn the_end_is_read_after_the_connection_is_gone() {
    let mut config = Config::new(SocketAddr::from(([127, 0, 0, 1], 0)));
    // If the peer's end arrives last after all, the connection waits this long before it is removed.
    config.machine.time_wait = tcpxm::Duration::from_millis(20);
    let server = XmEndpoint::open(&config).expect("an endpoint");
    let listener = server.listen().expect("listening");
    let client = open(1, 0);
    let mut one = client.connect(server.local_address()).expect("opened");
    AsyncWriteExt::write_all(&mut one, b"question")
        .await
        .expect("written");
    one.finish().expect("shut");
    let mut two = listener.accept().await.expect("accepted");
    let mut bytes = [0; 8];
    AsyncReadExt::read_exact(&mut two, &mut bytes)
        .await
        .expect("read");
    two.shutdown().await.expect("delivered");
    while two.peer_address().is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let end = AsyncReadExt::read(&mut two, &mut bytes).await;
    assert_eq!(end.expect("the end"), 0);
}

#[test]
fn no_room_to_read_into_is_not_waited_for() {
    let server = open(1, 0);
    let _listener = server.listen().expect("listening");
    let mut one = open(1, 0).connect(server.local_address()).expect("opened");
    assert_eq!(Read::read(&mut one, &mut []).expect("nothing"), 0);
}

#[test]
fn a_listener_with_a_key_hears_the_sender_that_has_it_alone() {
    let key = SegmentKey([3; 16]);
    for (theirs, heard) in [
        (Some(key), true),
        (Some(SegmentKey([4; 16])), false),
        (None, false),
    ] {
        let receiver = open(5, 0);
        let listener = receiver.listen_keyed(key).expect("listening");
        let sender = open(1, 0);
        let to = receiver.local_address();
        let mut config = GroupConfig::new(sender.local_address(), vec![to.ip()], to.port());
        config.key = theirs;
        let mut group = sender.open_group(config).expect("a group");
        Write::write_all(&mut group, b"signed").expect("written");
        group.finish().expect("shut");
        match listener.wait(Some(Duration::from_millis(if heard {
            20_000
        } else {
            300
        }))) {
            Ok(mut stream) => {
                let mut received = Vec::new();
                Read::read_to_end(&mut stream, &mut received).expect("read");
                assert!(heard && received == b"signed");
            }
            Err(error) => assert!(!heard && error.kind() == ErrorKind::TimedOut, "{error}"),
        }
    }
}

/// A thread that blocks in a read drives the endpoint. While it does other things the endpoint's thread does.
#[test]
fn who_stops_reading_is_stood_in_for() {
    let (server, client) = (open(1, 0), open(1, 0));
    let listener = server.listen().expect("listening");
    let address = server.local_address();
    let config = GroupConfig::new(client.local_address(), vec![address.ip()], address.port());
    let mut group = client.open_group(config).expect("a group");
    Write::write_all(&mut group, b"first").expect("written");
    let mut stream = listener.wait(None).expect("accepted");
    for word in [b"first", b"again"] {
        let mut read = [0; 5];
        Read::read_exact(&mut stream, &mut read).expect("read");
        assert_eq!(&read, word);
        Write::write_all(&mut group, b"again").expect("written");
    }
    group.finish().expect("shut");
    // The rest is acknowledged, including the end, although it is not read yet.
    assert_eq!(group.wait_delivered().expect("delivered"), 1);
    let mut rest = Vec::new();
    Read::read_to_end(&mut stream, &mut rest).expect("read");
    assert_eq!(rest, b"again");
}

#[test]
fn all_who_wait_to_read_are_served() {
    let server = open(1, 0);
    let listener = server.listen().expect("listening");
    let mut readers = Vec::new();
    let mut streams = Vec::new();
    for _ in 0..3 {
        let one = open(1, 0).connect(server.local_address());
        let one = one.expect("opened");
        let mut other = listener.wait(None).expect("accepted");
        streams.push(one);
        readers.push(std::thread::spawn(move || {
            let mut word = [0; 4];
            let mut words = 0;
            while Read::read_exact(&mut other, &mut word).is_ok() {
                Write::write_all(&mut other, &word).expect("answered");
                words += 1;
            }
            words
        }));
    }
    for round in 0..60u32 {
        let stream = &mut streams[round as usize * 7 % 3];
        let word = round.to_be_bytes();
        Write::write_all(stream, &word).expect("asked");
        let mut answer = [0; 4];
        Read::read_exact(stream, &mut answer).expect("answered");
        assert_eq!(answer, word);
    }
    for stream in &streams {
        stream.finish().expect("shut");
    }
    for reader in readers {
        assert_eq!(reader.join().expect("a reader"), 20);
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct Wakeups(AtomicUsize);

impl Wake for Wakeups {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Data for one connection wakes its reader, once, and no other task.
#[test]
fn a_change_wakes_only_the_tasks_that_wait_for_it() {
    const CONNECTIONS: usize = 8;
    let server = open(1, 0);
    let listener = server.listen().expect("listening");
    let clients: Vec<_> = (0..CONNECTIONS).map(|_| open(1, 0)).collect();
    let mut senders = Vec::new();
    let mut readers = Vec::new();
    for client in &clients {
        let stream = client.connect(server.local_address());
        senders.push(stream.expect("opened"));
        let accepted = listener.wait(Some(Duration::from_secs(20)));
        readers.push((accepted.expect("accepted"), Arc::new(Wakeups::default())));
    }
    let accepting = Arc::new(Wakeups::default());
    let poll = |future: Pin<&mut dyn Future<Output = bool>>, wakeups: &Arc<Wakeups>| {
        let waker = Arc::clone(wakeups).into();
        future.poll(&mut Context::from_waker(&waker))
    };
    let mut accept = Box::pin(async { listener.accept().await.is_ok() });
    assert!(poll(accept.as_mut(), &accepting).is_pending());
    for (number, (stream, wakeups)) in readers.iter_mut().enumerate() {
        let waker = Arc::clone(wakeups).into();
        let context = &mut Context::from_waker(&waker);
        let mut byte = [0];
        let pinned = Pin::new(stream);
        let read = pinned.poll_read(context, &mut ReadBuf::new(&mut byte));
        assert!(read.is_pending(), "{number}");
    }
    for (number, sender) in senders.iter_mut().enumerate() {
        Write::write_all(sender, b"x").expect("written");
        while readers[number].1.0.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let counts = readers
            .iter()
            .map(|(_, wakeups)| wakeups.0.load(Ordering::SeqCst));
        let expected = (0..CONNECTIONS).map(|other| usize::from(other <= number));
        assert!(counts.eq(expected), "after {number}");
    }
    assert_eq!(accepting.0.load(Ordering::SeqCst), 0);
    // One more connection wakes the task that accepts, and no reader.
    let late = open(1, 0);
    let _stream = late.connect(server.local_address()).expect("opened");
    while accepting.0.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let woken = readers
        .iter()
        .map(|(_, wakeups)| wakeups.0.load(Ordering::SeqCst));
    assert_eq!(woken.sum::<usize>(), CONNECTIONS);
    assert_eq!(poll(accept.as_mut(), &accepting), Poll::Ready(true));
}

/// Returns how often the calling thread has waited so far.
fn waits() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("of Linux");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.expect("a count").trim().parse().expect("a number")
}

/// A listener without connections sleeps until a change or the end of its time.
#[test]
fn a_listener_that_waits_is_not_woken_for_nothing() {
    let server = open(1, 0);
    let listener = server.listen().expect("listening");
    let before = waits();
    let waited = listener.wait(Some(Duration::from_secs(2)));
    assert_eq!(waited.expect_err("nobody").kind(), ErrorKind::TimedOut);
    let times = waits() - before;
    assert!(times < 20, "{times} times in two seconds");
}

/// Connections that arrive while the listener waits, or is about to, are all taken.
#[test]
fn a_listener_takes_every_connection_that_arrives_while_it_waits() {
    let server = open(1, 0);
    let listener = server.listen().expect("listening");
    let to = server.local_address();
    let clients: Vec<_> = (0..16)
        .map(|_| {
            std::thread::spawn(move || {
                let client = open(1, 0);
                let mut stream = client.connect(to).expect("opened");
                Write::write_all(&mut stream, b"x").expect("written");
                stream.finish().expect("shut");
                let mut rest = Vec::new();
                let _ = Read::read_to_end(&mut stream, &mut rest);
            })
        })
        .collect();
    for _ in 0..16 {
        let mut stream = listener
            .wait(Some(Duration::from_secs(20)))
            .expect("accepted");
        let mut byte = [0];
        Read::read_exact(&mut stream, &mut byte).expect("read");
    }
    for client in clients {
        client.join().expect("a client");
    }
}
