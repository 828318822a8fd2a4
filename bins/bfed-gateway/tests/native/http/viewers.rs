//! Viewers that a server counts: readers, addresses that ask for playlists, subscribers of MoQ.

use std::io::{Read, Write};
use std::net::TcpStream;

use socket2::{Domain, Socket, Type};

use super::late::{SESSION, TS, hls, recorded};
use super::moq::{Peer, bytes, counts, moq_config, moq_edge, run};
use super::*;

/// Asks for a file from an address of loopback; returns the first bytes of the answer.
fn ask_from(last: u8, path: &str) -> String {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let from = SocketAddr::from(([127, 0, 1, last], 0));
    socket.bind(&from.into()).unwrap();
    let edge: SocketAddr = EDGE.parse().unwrap();
    socket.connect(&edge.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer[..answer.len().min(64)]).into_owned()
}

#[test]
fn an_address_that_asks_for_the_playlist_is_one_viewer_however_often_it_asks() {
    alone(|| {
        let net = edge();
        let (_source, playlist) = recorded(&*net, TS);
        // The one that has begun the segments.
        assert_eq!(count(&*net, "hls_viewers"), 1);
        for _ in 0..3 {
            for last in 1..=5 {
                let answer = ask_from(last, &hls("index.m3u8"));
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            }
        }
        assert_eq!(count(&*net, "hls_viewers"), 6);
        assert_eq!(count(&*net, "http_viewers"), 0);
        // Segments alone, and requests that are refused, make no viewer.
        let segment = playlist.lines().find(|line| line.ends_with(".ts")).unwrap();
        assert!(ask_from(7, &hls(segment)).starts_with("HTTP/1.1 200"));
        let refused = ask_from(8, &hls("index.m3u8?_HLS_part=0"));
        assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
        assert_eq!(count(&*net, "hls_viewers"), 6);
        let mut reader = Client::get(EDGE, &path(SESSION));
        assert_eq!(reader.head(), 200);
        assert_eq!(count(&*net, "http_viewers"), 1);
        let viewers = net.presented()[0].viewers;
        assert_eq!(viewers, Some(7));
        drop(reader);
        counts_down(&*net, "http_viewers");
    });
}

/// Waits until a gauge is 0.
fn counts_down(net: &dyn Network, what: &str) {
    for _ in 0..600 {
        if count(net, what) == 0 {
            return;
        }
        std::thread::sleep(StdDuration::from_millis(50));
    }
    panic!("{what} stays at {}", count(net, what));
}

#[test]
fn a_subscriber_of_moq_is_a_viewer_until_it_leaves_and_the_server_itself_is_none() {
    alone(|| {
        let net = moq_edge(moq_config());
        let mut source = Client::put(EDGE, &path("bfed://7/film"));
        source.chunk(&TS[..100 * 188]);
        run(async {
            let peers = [Peer::raw("moq-lite-06").await, Peer::web("/").await];
            let mut reads = Vec::new();
            for peer in &peers {
                let track = peer.track("7/film").await.unwrap();
                reads.push(tokio::spawn(bytes(track, 30_000)));
                // A client that subscribes again is the same viewer.
                drop(peer.track("7/film").await.unwrap());
            }
            source.chunk(&TS[100 * 188..]);
            for read in reads {
                read.await.unwrap();
            }
            assert_eq!(count(&*net, "moq_viewers"), 2);
            assert_eq!(count(&*net, "http_viewers"), 0);
            assert_eq!(net.presented()[0].viewers, Some(2));
        });
        counts_down(&*net, "moq_viewers");
        counts(&*net, "moq_clients_accepted", 2);
    });
}
