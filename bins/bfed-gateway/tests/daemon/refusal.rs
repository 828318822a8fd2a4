//! A refusal of a gateway reaches the clients of another network.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::common::*;

/// The status line of an HTTP server's answer.
fn get(server: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = [0; 1024];
    let len = stream.read(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..len]).into_owned();
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_gateway_without_room_refuses_viewers_of_another_network() {
    let mut full = Full::start();
    // The second session is refused: to a client of the federation, and to a player.
    let mut second = join("bfed://2/second", full.mediator).unwrap();
    let mut viewer = Viewer::default();
    let refused = loop {
        match second.step(Duration::from_millis(100), &mut viewer) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    let limit = bfed::wire::no_route::Reason::Limit;
    assert!(
        matches!(refused, bfed_client::Error::Refused(reason) if reason == limit),
        "{refused}"
    );
    let path = bfed_client::session_path("bfed://2/second", 0);
    for server in [full.server, full.mediator] {
        let began = Instant::now();
        let status = get(server, &path);
        assert!(status.starts_with("HTTP/1.1 503"), "{status}");
        // No answer of the control node within 15 s would be 504.
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(10), "{waited:?}");
    }
    // The first one is not touched.
    full.first
        .step(Duration::from_millis(100), &mut viewer)
        .unwrap();
    full.first.leave();
}
