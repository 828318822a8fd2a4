//! A refusal of a gateway reaches the clients of another network.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::common::*;

/// The answer of an HTTP server, head and body.
fn get(server: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
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
        let answer = get(server, &path);
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        // The control node's own text: without its answer the server would report that nothing answers.
        let words = format!("no route to the session: {limit}");
        assert!(answer.contains(&words), "{answer}");
    }
    // The first one is not touched.
    full.first
        .step(Duration::from_millis(100), &mut viewer)
        .unwrap();
    full.first.leave();
}
